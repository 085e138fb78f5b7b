#!/usr/bin/env bash
# Runs one LAMMPS simulation twice, on the plain file system and through a Forebay buffer,
# and compares every file that the two runs have left behind.
#
#   scripts/demo.sh [OUT]      OUT: where all of it goes (default out/demo; emptied first)
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$repo/out/demo}
forebay=${FOREBAY:-$repo/target/release/forebay}
input=$repo/examples/melt/in.melt
ranks=2
# A run that hangs should end as a failed demo, not as a terminal that never comes back.
limit_s=120

fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }
headline() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || headline() { printf '\n== %s\n' "$*"; }

[ -x "$forebay" ] || fail "$forebay is missing: run \`make build\` first"
for program in lmp mpiexec.openmpi; do
    command -v "$program" >/dev/null || fail "$program is missing: run \`scripts/setup.sh demo\` first"
done

rm -rf "$out"
mkdir -p "$out/native" "$out/pfs"
out=$(cd "$out" && pwd)

# Open MPI refuses root without the first option, and 2 ranks on 1 core without the second.
simulate=(
    timeout -k 10 "$limit_s"
    mpiexec.openmpi --allow-run-as-root --oversubscribe -n "$ranks" lmp -in "$input"
)
export OMP_NUM_THREADS=1

now_ms() { date +%s%3N; }

headline "1. Native: $ranks ranks of LAMMPS write to $out/native"
started=$(now_ms)
(cd "$out/native" && "${simulate[@]}") >"$out/native.screen" 2>&1 \
    || { tail -20 "$out/native.screen" >&2; fail "the native run failed"; }
native_ms=$(($(now_ms) - started))
echo "done in $native_ms ms"

headline "2. Buffered: the same command behind \`forebay run --buffer pfs --\`"
started=$(now_ms)
status=0
(
    cd "$out/pfs"
    "$forebay" run --buffer "$out/pfs" --storage "$out/storage" --report "$out/report.json" \
        --log "$out/lammps.darshan" \
        -- "${simulate[@]}" 2>"$out/buffered.report" >"$out/buffered.screen"
) || status=$?
buffered_ms=$(($(now_ms) - started))
# The report arrives on standard error, beside what the program itself says there.
cat "$out/buffered.report"
if [ "$status" != 0 ]; then
    tail -20 "$out/buffered.screen" >&2
    fail "the buffered run ended with status $status"
fi
echo "done in $buffered_ms ms, the drain included"

# Timings differ from run to run, so of a log only what the simulation computed is compared.
thermo() { awk '/^ *Step /{table=1} /^Loop time/{table=0} table' "$1"; }

headline "3. Comparison of $out/native with $out/pfs"
same=0 same_thermo=0 bytes=0
differing=()
list() { (cd "$1" && find . -mindepth 1 -printf '%y %m %P\n' | LC_ALL=C sort -k3); }
if ! diff <(list "$out/native") <(list "$out/pfs") >"$out/names.diff"; then
    cat "$out/names.diff"
    fail "the two runs left different files, or different modes (< native, > buffered)"
fi
while IFS= read -r file; do
    if cmp -s "$out/native/$file" "$out/pfs/$file"; then
        same=$((same + 1))
        bytes=$((bytes + $(stat -c %s "$out/pfs/$file")))
    elif [[ $file == log.* ]] && [ -n "$(thermo "$out/native/$file")" ] \
        && cmp -s <(thermo "$out/native/$file") <(thermo "$out/pfs/$file"); then
        same_thermo=$((same_thermo + 1))
    else
        differing+=("$file")
    fi
done < <(cd "$out/native" && find . -type f -printf '%P\n' | LC_ALL=C sort)

printf '  %4d files equal, byte for byte (%s)\n' "$same" "$(numfmt --to=iec-i --suffix=B "$bytes")"
printf '  %4d logs equal in every line that the simulation computed\n' "$same_thermo"
printf '  %4d files differ\n' "${#differing[@]}"
if [ ${#differing[@]} -gt 0 ]; then
    printf '       %s\n' "${differing[@]}"
    fail "the buffered run did not give what the native run gave"
fi
[ "$same" -gt 0 ] && [ "$same_thermo" -gt 0 ] || fail "nothing was compared: the simulation wrote no files"

headline "4. Where things are"
cat <<END
  native results     $out/native
  buffered results   $out/pfs     (the "PFS": here a directory of this disk)
  report             $out/report.json
  Darshan log        $out/lammps.darshan     (forebay report shows it)
  what LAMMPS said   $out/native.screen, $out/buffered.screen
END
echo
echo "The demo has passed."
