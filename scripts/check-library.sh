# What scripts/check-preload.sh and scripts/check-record.sh share; they source it, after setting
#   name      of the check and of the crate: preload, record
#   library   the built library
#   allowed   what it may use of libc
set -euo pipefail
export LC_ALL=C
exports=$here/crates/forebay-$name/exports.txt
failed=0

complain() {
    echo "check-$name: $*" >&2
    failed=1
}

# Exports and imports as listed, no thread-local storage, no executable stack, nothing but libc.
check_symbols() {
    local defined used difference surplus own segments needed
    # The last ones are put in by the linker, and weak.
    allowed="$allowed _ITM_deregisterTMCloneTable _ITM_registerTMCloneTable __cxa_finalize __gmon_start__"
    defined=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort)
    if ! difference=$(diff <(sort "$exports") <(printf '%s\n' "$defined")); then
        complain "the exported functions differ from exports.txt (< listed, > exported):"
        echo "$difference" >&2
    fi

    used=$(nm -D --undefined-only "$library" | awk '{ print $NF }' | sed 's/@.*//' | sort)
    surplus=$(comm -13 <(tr -s ' \n' '\n\n' <<<"$allowed" | sort) <(printf '%s\n' "$used"))
    [ -z "$surplus" ] || complain "not on the list of imports:" $surplus

    # A function that the library replaces must be called through the chain, not through its own hook.
    own=$(comm -12 <(printf '%s\n' "$defined") <(printf '%s\n' "$used"))
    [ -z "$own" ] || complain "imports what it exports:" $own

    segments=$(readelf -lW "$library")
    ! grep -q ' TLS ' <<<"$segments" || complain "has thread-local storage"
    grep -Eq 'GNU_STACK.* RW +0' <<<"$segments" || complain "has an executable stack"
    needed=$(readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p')
    [ "$needed" = libc.so.6 ] || complain "depends on more than libc:" $needed
}

# Does strace work here? (In containers it may not.)
can_trace() { command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null; }

conclude() {
    [ "$failed" = 0 ] || exit 1
    echo "check-$name: $(wc -l <"$exports") functions, imports as listed, no thread-local storage"
}

[ -f "$library" ] || { echo "check-$name: $library is missing (cargo build --release -p forebay-$name)" >&2; exit 2; }
