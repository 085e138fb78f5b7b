#!/usr/bin/env bash
# Shows that the rules of the house bite. A step of `make lint`; needs clippy, no network.
#
# 1. core's clippy.toml refuses each line of tests/impure/forbidden.rs that says so, and no other line.
# 2. Every package takes the lints of the workspace, which deny unsafe code, and the files that allow it are those of
#    docs/unsafe-rooms.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    printf 'check-rules: %s\n' "$*" >&2
    exit 1
}

core=crates/forebay-core
impure=$core/tests/impure/forbidden.rs
CLIPPY_CONF_DIR=$core clippy-driver --edition 2024 --crate-type lib --emit metadata --out-dir "$scratch" \
    --error-format short "$impure" >/dev/null 2>"$scratch/said" && fail "clippy accepts all of $impure"
sed -n "s|^$impure:\([0-9]*\):[0-9]*: error.*disallowed.*|\1|p" "$scratch/said" | sort -nu >"$scratch/refused"
grep -n '// refused$' "$impure" | cut -d: -f1 >"$scratch/expected"
diff "$scratch/expected" "$scratch/refused" >"$scratch/differs" || {
    cat "$scratch/said" >&2
    fail "lines of $impure that clippy should refuse (<) or should not (>):
$(grep '^[<>]' "$scratch/differs")"
}

for manifest in crates/*/Cargo.toml benches/Cargo.toml; do
    grep -A1 '^\[lints\]' "$manifest" | grep -qx 'workspace = true' || fail "$manifest does not take the lints of the workspace"
done
grep -rlE '^ *#!?\[allow\(unsafe_code\)\]' crates benches --include='*.rs' | sort >"$scratch/rooms"
sed -n 's|^\([a-z].*\.rs\)  .*|\1|p' docs/unsafe-rooms.txt | sort >"$scratch/listed"
diff "$scratch/listed" "$scratch/rooms" >"$scratch/differs" \
    || fail "docs/unsafe-rooms.txt names files that allow no unsafe code (<), or misses some that do (>):
$(grep '^[<>]' "$scratch/differs")"
