#!/usr/bin/env bash
# Checks a built preload library against what docs/ARCHITECTURE.md says of it:
#   - it defines exactly the functions of crates/forebay-preload/exports.txt;
#   - of other libraries it uses only what is listed below, all of libc;
#   - it has no thread-local storage and no executable stack;
#   - the path of a call outside the buffer makes no system call of its own (checked by strace, where that works).
#
# usage: scripts/check-preload.sh [LIBRARY]      (default: target/release/libforebay_preload.so)
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
name=preload
library=${1:-${CARGO_TARGET_DIR:-$here/target}/release/libforebay_preload.so}
# What a hook may call while a signal handler or a child of vfork runs it: kernel, memory, strings. The rest is used
# only where the program itself has called a function that allocates or opens a stream.
allowed='__errno_location __register_atfork abort bcmp calloc clone dlsym environ free malloc
memchr memcmp memcpy memmove memrchr memset qsort realloc strlen tdestroy tsearch
posix_spawnattr_getflags posix_spawnattr_getpgroup posix_spawnattr_getschedparam posix_spawnattr_getschedpolicy
posix_spawnattr_getsigdefault posix_spawnattr_getsigmask'
. "$here/scripts/check-library.sh"

check_symbols

# The same program with and without the library, on paths outside: the calls on them are the same. The one exception is
# getcwd, once for each working directory of each process.
if can_trace; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    calls() {
        strace -f -o "$work/trace" env "$@" /bin/sh -c "cd $work && : > made && mv made moved && test -e moved && rm moved"
        grep -F -e "$work" -e '"made"' -e '"moved"' "$work/trace" | sed 's/^[0-9]* *//; s/ = .*//' | grep -v -e execve -e getcwd || true
    }
    calls >"$work/without"
    calls LD_PRELOAD="$library" FOREBAY_BUFFER=/nonexistent/buffer FOREBAY_SOCKET=/nonexistent/socket >"$work/with"
    [ -s "$work/without" ] || complain "strace shows no calls"
    if ! difference=$(diff "$work/without" "$work/with"); then
        complain "system calls on paths outside differ (< without, > with the library):"
        echo "$difference" >&2
    fi
    foreign=$(grep -cE 'socket\(|connect\(|readlink(at)?\("?/proc/self/fd' "$work/trace" || true)
    [ "$foreign" = 0 ] || complain "asks the kernel or the bridge about paths outside"
fi

conclude
