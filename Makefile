# One door for the daily jobs. `make help` lists them.

SHELL := /bin/bash
# rustup puts cargo where a shell that was open before does not look.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup build demo test bench collective coll-perf durable soak users lint fuzz clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install the Debian packages that all the rest needs
	@scripts/setup.sh test

build: ## target/release/forebay, libforebay_preload.so, libforebay_record.so and libforebay_mpiio.so
	@scripts/setup.sh build
	cargo build --release --workspace --exclude forebay-preload --exclude forebay-record
	@# On their own: they are no_std, and features that other crates switch on must not reach them.
	cargo build --release -p forebay-preload
	cargo build --release -p forebay-record

demo: build ## a LAMMPS run on 2 ranks through the buffer, compared with a native one
	@scripts/setup.sh demo
	@scripts/demo.sh

test: ## unit tests, the fault simulator, and real programs under `forebay run`
	@scripts/setup.sh test
	cargo build --release -p forebay-preload
	cargo build --release -p forebay-record
	cargo test --workspace --exclude forebay-preload --exclude forebay-record --no-fail-fast

bench: build ## ratios to native ext4 and tmpfs, measured side by side; ARGS="--rounds 3" for less
	target/release/forebay-bench $(ARGS)
	target/release/forebay-collect-bench
	target/release/forebay-record-bench

collective: build ## collective writes and reads with the collective layer and without it, in turns
	benches/collective.py $(ARGS)

coll-perf: build ## a 3-D array in blocks by stock ROMIO, OMPIO and the four methods; ARGS="--locks tokens" for clients with locks, by root
	benches/coll_perf.py $(ARGS)

durable: build ## what waits for the disk (SQLite, PostgreSQL, fsync), natively and in the buffer, in turns
	benches/durable.py $(ARGS)

soak: build ## kills, full disks, neighbours and a failing PFS for an hour, by root; SECONDS=600 for less
	scripts/soak.py --seconds $(or $(SECONDS),3600) $(ARGS)

users: build ## several users of a buffer of root, who also rename directories past it; ARGS="--first 1 --seeds 200", by root
	scripts/users.py $(ARGS)

lint: ## formatting, clippy, the rules of the house and the documentation, warnings forbidden
	cargo fmt --all --check
	cargo clippy --workspace --exclude forebay-preload --exclude forebay-record --all-targets -- -D warnings
	@scripts/check-rules.sh
	@# Without test targets: the libraries bring their own panic handlers, which a test harness can't share.
	cargo clippy --release -p forebay-preload --lib -- -D warnings
	cargo clippy --release -p forebay-record --lib -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace --exclude forebay-preload --exclude forebay-record
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --release -p forebay-preload
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --release -p forebay-record

fuzz: ## how to fuzz messages, what lies on the storage, and logs
	@echo "Fuzzing needs a nightly compiler and cargo-fuzz:"
	@echo "    rustup toolchain install nightly"
	@echo "    cargo install cargo-fuzz"
	@echo "    cargo +nightly fuzz run wire -- -max_total_time=600"
	@echo "    cargo +nightly fuzz run stored fuzz/corpus/stored fuzz/seeds/stored -- -max_total_time=600"
	@echo "    cargo +nightly fuzz run darshan_log fuzz/corpus/darshan_log fuzz/seeds/darshan_log -- -max_total_time=600"
	@echo "Seeds that once mattered are kept in fuzz/seeds; add them with: fuzz/corpus/wire fuzz/seeds/wire"

clean: ## remove what the build, the demo and the tests left here
	cargo clean
	rm -rf out
