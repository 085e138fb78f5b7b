#!/usr/bin/env bash
# Installs what Debian 12 needs to build, demonstrate and test Forebay.
#
#   scripts/setup.sh build    compiler and libraries
#   scripts/setup.sh demo     the above, LAMMPS and Open MPI
#   scripts/setup.sh test     the above, and every program the tests run
#
# When all is there it starts no package manager at all, so that `make` may call it every time.
set -euo pipefail

mode=${1:-build}
cache=${FOREBAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/forebay}
tools=$cache/tools

# `rust-version` of Cargo.toml.
least_cargo_minor=88
# Pinned: a new release of a suite may add cases, and the table in docs/pjdfstest.md names each one.
fsx_version=0.3.2
pjdfstest_version=0.2.2
# Pinned: the tests compare every value of a log with what this release reads.
pydarshan_version=3.5.0
# An MPI library of the standard ABI of MPI 5. Debian 12 has none.
standard_mpi_version=5.0.2

build_packages=(gcc g++ make pkg-config clang libclang-dev librocksdb-dev)
demo_packages=(lammps openmpi-bin)
test_packages=(
    busybox-static git vim rsync patch strace fio sqlite3 attr acl libacl1-dev gfortran
    mpich libmpich-dev libopenmpi-dev
    libhdf5-dev libhdf5-mpich-dev libhdf5-openmpi-dev hdf5-tools libpnetcdf-dev python3-mpi4py
    python3 python3-venv python3-numpy python3-h5py
    nodejs
    chromium fonts-dejavu-core
    # Part of an ordinary system, but not of small images.
    e2fsprogs xfsprogs mount procps iproute2
)

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "root is needed for: $* (no sudo here; run it as root and come back)"
    fi
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = 'ii ' ]; }

install_missing() {
    local missing=() package
    for package; do
        installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null \
        || fail "not a Debian system; please install the counterparts of: ${missing[*]}"
    say "installing ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

cargo_is_new_enough() {
    local minor
    command -v cargo >/dev/null || return 1
    minor=$(cargo --version 2>/dev/null | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
    [ "${minor:-0}" -ge "$least_cargo_minor" ]
}

install_rust() {
    # rustup puts cargo where only a new login shell would look.
    PATH=$HOME/.cargo/bin:$PATH
    if cargo_is_new_enough; then
        return 0
    fi
    say "cargo 1.$least_cargo_minor or newer is needed; found: $(cargo --version 2>/dev/null || echo none)"
    if ! command -v rustup >/dev/null; then
        # Debian 12's own cargo is 1.65. The -web packages follow what its browsers need, and are new enough.
        install_missing rustc-web cargo-web rust-web-clippy rustfmt-web ca-certificates || true
    else
        rustup toolchain install stable --profile minimal -c clippy -c rustfmt
        rustup default stable
    fi
    hash -r
    cargo_is_new_enough || fail "no cargo >= 1.$least_cargo_minor could be installed.
    Install a current Rust with rustup (its home page says how), then run this again."
}

install_foreign_suites() {
    local name version
    for pair in "fsx $fsx_version" "pjdfstest $pjdfstest_version"; do
        read -r name version <<<"$pair"
        if [ "$("$tools/bin/$name" --version 2>/dev/null)" = "$name $version" ]; then
            continue
        fi
        say "building $name $version into $tools"
        cargo install --quiet --locked --root "$tools" "$name@$version"
    done
}

# A package of PyPI in a virtual environment of its own.
install_from_pypi() {
    local package=$1 version=$2 folder=$cache/$3
    if [ "$("$folder/bin/python" -c 'import importlib.metadata as m, sys; print(m.version(sys.argv[1]))' "$package" 2>/dev/null)" \
        = "$version" ]; then
        return 0
    fi
    say "installing $package $version into $folder"
    /usr/bin/python3 -m venv --clear "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check "$package==$version"
}

case $mode in
    build)
        install_missing "${build_packages[@]}"
        install_rust
        ;;
    demo)
        install_missing "${build_packages[@]}" "${demo_packages[@]}"
        install_rust
        ;;
    test)
        install_missing "${build_packages[@]}" "${demo_packages[@]}" "${test_packages[@]}"
        install_rust
        install_foreign_suites
        # The reader of Darshan logs that ours is compared with.
        install_from_pypi darshan "$pydarshan_version" pydarshan
        install_from_pypi mpich "$standard_mpi_version" standard-mpi
        ;;
    *)
        fail "usage: scripts/setup.sh build|demo|test"
        ;;
esac
