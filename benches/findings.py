#!/usr/bin/python3
"""Seconds that findings of `forebay report` claim, beside the seconds that were gained by mending the program.

    benches/findings.py --forebay target/release/forebay [--dir DIR] [--rounds 5] [--json FILE] [NAME...]

Each program of benches/programs runs in turns, bare as it is and bare as mended. Then it runs as it is under
`forebay record`, and its report is asked for the finding. Of each kind of run the quickest one counts, because other load
can only add; the range of what was gained is that within the rounds. If it holds zero, nothing can be said here.
Files that earlier runs have made are removed, outside of the time. Times never decide the exit code.

Programs of several ranks, and others whose waiting is not to depend on this machine, run on `forebay-slow-pfs`, which takes
2 ms for each call: by root, with FUSE and Open MPI. MPI programs say themselves how long they took.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "programs"
# What a call takes on the stand-in for a parallel file system: so long that neither the start of a call nor other load counts.
CALL_US = 2000


@dataclass
class Case:
    """How a program runs, and which findings may claim its seconds. Where several fire, the largest claim counts, because
    they overlap."""

    codes: list
    ranks: int = 1
    # On forebay-slow-pfs, by root.
    is_slow: bool = False
    by_romio: bool = False
    rules: dict = field(default_factory=dict)

    def command(self, name, form, folder):
        script = FOLDER / ("findings_mpi.py" if self.ranks > 1 else "findings.py")
        line = ["/usr/bin/python3", str(script), name, form, str(folder)]
        if self.ranks == 1 or form == "prepare":
            return line
        start = ["mpiexec.openmpi", "-n", str(self.ranks), "--allow-run-as-root", "--oversubscribe"]
        # Ranks that wait leave the processors to those that work.
        start += ["--mca", "mpi_yield_when_idle", "1"]
        return [*start, "--mca", "io", "romio321" if self.by_romio else "ompio", *line]


def alone(*codes, **more):
    return Case(list(codes), **more)


def of_ranks(ranks, *codes, **more):
    return Case(list(codes), ranks, is_slow=True, **more)


CASES = {
    "small-writes": alone("small-writes"),
    "small-reads": alone("small-reads"),
    "random-reads": alone("random-reads"),
    "random-writes": alone("random-writes"),
    "read-write-switches": alone("read-write-switches"),
    "repeated-reads": alone("repeated-reads"),
    "read-by-many": alone("read-by-many"),
    "frequent-fsync": alone("frequent-fsync"),
    "fsync-bursts": alone("fsync-bursts"),
    "read-ahead": alone("read-ahead"),
    "read-ahead-by-pieces": alone("read-ahead"),
    "stdio-bulk": alone("stdio-bulk"),
    "metadata-time": alone("metadata-time", "stat-storm"),
    "repeated-opens": alone("repeated-opens"),
    "many-small-files": alone("many-small-files"),
    "misaligned-writes": alone("misaligned-writes"),
    "import-storm": alone("many-small-files", "import-storm"),
    "writes-of-many-sizes": alone("small-writes"),
    "h5-small-writes": alone("small-writes"),
    "write-bursts": alone("write-bursts", is_slow=True),
    "mpi-independent-writes": Case(["independent-writes"], 2),
    "mpi-straggler": of_ranks(8, "straggler-shared-file"),
    "mpi-uneven-bytes": of_ranks(8, "uneven-bytes", "straggler-ranks"),
    "mpi-rank-0": of_ranks(8, "rank-0-io"),
    "mpi-idle-tail": of_ranks(8, "idle-tail"),
    "mpi-in-turns": of_ranks(8, "ranks-take-turns"),
    "mpi-file-per-process": of_ranks(8, "file-per-process", rules={"file_per_process_ranks": 8}),
    "mpi-import-storm": of_ranks(8, "import-storm"),
    "mpi-read-modify-write": of_ranks(2, "read-modify-write", by_romio=True),
    "mpi-not-gathered": of_ranks(4, "collective-writes-not-gathered", by_romio=True),
}
# Kept from one run to the next, because `prepare` has made it.
PREPARED = {"input", "modules"}


def clear(folder):
    for entry in folder.iterdir():
        if entry.name not in PREPARED:
            entry.unlink()
    # What earlier runs have written is no load for the next one.
    os.sync()


def seconds_of(line, folder):
    """Seconds of a run: those that the program prints, else by the wall clock."""
    clear(folder)
    start = time.monotonic()
    said = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    whole = time.monotonic() - start
    printed = [line.split()[1] for line in said.splitlines() if line.startswith("seconds ")]
    return float(printed[0]) if printed else whole


@contextmanager
def stand_in(forebay, folder):
    """The stand-in for a slow file system, mounted there."""
    line = [str(Path(forebay).with_name("forebay-slow-pfs")), "--latency-us", str(CALL_US), str(folder)]
    server = subprocess.Popen(line, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try:
        assert server.stdout.readline().startswith("ready"), "forebay-slow-pfs does not start: it needs root and FUSE"
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        server.communicate(timeout=60)


def measure(forebay, name, base, rounds):
    folder = base / name
    folder.mkdir()
    with stand_in(forebay, folder) if CASES[name].is_slow else nullcontext():
        row = measure_in(forebay, name, folder, base, rounds)
    shutil.rmtree(folder)
    return row


def measure_in(forebay, name, folder, base, rounds):
    case = CASES[name]
    subprocess.run(case.command(name, "prepare", folder), check=True)
    times = {"bad": [], "mended": [], "recorded": []}
    claims, others, concerned = [], {}, []
    rules = base / f"{name}.rules"
    rules.write_text(json.dumps(case.rules))
    for at in range(rounds):
        for form in ("bad", "mended"):
            times[form].append(seconds_of(case.command(name, form, folder), folder))
        log = base / f"{name}.{at}.darshan"
        line = [forebay, "record", "--log", str(log), "--include", str(base), "--", *case.command(name, "bad", folder)]
        times["recorded"].append(seconds_of(line, folder))
        line = [forebay, "report", "--json", "--rules", str(rules), str(log)]
        said = subprocess.run(line, check=True, capture_output=True)
        found = {one["code"]: one for one in json.loads(said.stdout)[0]["findings"]}
        hits = [found[code] for code in case.codes if code in found]
        claims.append(max((one["seconds_lost"] or 0.0 for one in hits), default=None))
        concerned += [one["concerned_seconds"] for one in hits if one["concerned_seconds"]]
        for code, one in found.items():
            if code not in case.codes and (one["seconds_lost"] or 0) > 0.01:
                others.setdefault(code, []).append(one["seconds_lost"])
    gains = [bad - mended for bad, mended in zip(times["bad"], times["mended"])]
    known = [one for one in claims if one]
    return {
        "program": name,
        "seconds": times,
        "claims": claims,
        "concerned": min(concerned, default=None),
        "bad": min(times["bad"]),
        "mended": min(times["mended"]),
        "recorded": min(times["recorded"]),
        "gained": min(times["bad"]) - min(times["mended"]),
        "least_gain": min(gains),
        "most_gain": max(gains),
        "claimed": min(known, default=None),
        "fired": sum(1 for one in claims if one is not None),
        "rounds": rounds,
        "others": {code: min(all_of) for code, all_of in others.items()},
    }


def verdict(row):
    """What the claim is worth; above 1 it exceeds the gain."""
    if row["fired"] < row["rounds"]:
        return "missed" if not row["fired"] else f"fired {row['fired']} of {row['rounds']} times"
    if not row["claimed"]:
        return "not estimated"
    if row["least_gain"] <= 0:
        return "no gain that could be measured"
    factor = row["claimed"] / row["gained"]
    if 0.5 <= factor <= 2:
        return f"within 2x ({factor:.2f})"
    return f"claims too {'much' if factor > 1 else 'little'} ({factor:.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forebay", required=True)
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--logs", metavar="DIR", help="keep the log of the last round of each program there")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    args = parser.parse_args()
    forebay = str(Path(args.forebay).resolve())
    rows = []
    print("| program | as it is | mended | gained (range) | claimed | verdict | also claimed |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="findings-") as base:
        for name in args.names or CASES:
            row = measure(forebay, name, Path(base), args.rounds)
            if args.logs:
                Path(args.logs).mkdir(parents=True, exist_ok=True)
                shutil.move(Path(base) / f"{name}.{args.rounds - 1}.darshan", Path(args.logs) / f"{name}.darshan")
            rows.append(row)
            claimed = "-" if row["claimed"] is None else f"{row['claimed']:.3f} s"
            others = ", ".join(f"{code} {s:.3f} s" for code, s in row["others"].items())
            print(
                f"| {name} | {row['bad']:.3f} s | {row['mended']:.3f} s | {row['gained']:.3f} s ({row['least_gain']:.3f} to "
                f"{row['most_gain']:.3f}) | {claimed} | {verdict(row)} | {others} |",
                flush=True,
            )
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
