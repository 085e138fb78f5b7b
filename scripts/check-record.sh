#!/usr/bin/env bash
# Checks a built recorder against what docs/RECORDER.md says of it:
#   - it defines exactly the functions of crates/forebay-record/exports.txt;
#   - of other libraries it uses only what is listed below, all of libc;
#   - it has no thread-local storage and no executable stack;
#   - without FOREBAY_RECORD it makes no system call of its own, and with it none for each read, write or seek
#     (checked by strace, where that works).
#
# usage: scripts/check-record.sh [LIBRARY]      (default: target/release/libforebay_record.so)
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
name=record
library=${1:-${CARGO_TARGET_DIR:-$here/target}/release/libforebay_record.so}
# What a hook may call while a signal handler or a child of vfork runs it: clock, memory, strings, and what only looks at
# a stream. The handlers are set at load time.
allowed='__errno_location __register_atfork __vfork bcmp clock_gettime dirfd dladdr dlopen dlsym dlvsym environ feof ferror fileno_unlocked
ftello memchr memcmp memcpy memmove memset on_exit stderr stdin stdout strlen'
. "$here/scripts/check-library.sh"

check_symbols

if can_trace; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/tables"
    # The calls of dd on its two files.
    calls() {
        strace -o "$work/trace" env "$@" dd if=/dev/zero of="$work/out" bs=512 count=50 2>/dev/null
        sed 's/(.*//' "$work/trace" | sort | uniq -c
    }
    calls >"$work/without"
    calls LD_PRELOAD="$library" >"$work/idle"
    calls LD_PRELOAD="$library" FOREBAY_RECORD="$work/tables" >"$work/with"
    count() { awk -v call="$2" '$2 == call { print $1 }' "$1"; }
    for call in write lseek dup2; do
        [ "$(count "$work/without" $call)" = "$(count "$work/idle" $call)" ] || complain "idle, it adds calls of $call"
    done
    extra=$(($(awk '{ n += $1 } END { print n }' "$work/with") - $(awk '{ n += $1 } END { print n }' "$work/without")))
    # dd writes to a duplicated descriptor: each of the 50 writes asks for the position.
    [ "$extra" -lt 150 ] || complain "recording adds $extra system calls to a program that makes 100 reads and writes"
fi

conclude
