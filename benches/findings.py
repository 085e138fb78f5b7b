#!/usr/bin/python3
"""Seconds that findings of `forebay report` claim, beside the seconds that were gained by mending the program.

    benches/findings.py --forebay target/release/forebay [--dir DIR] [--rounds 5] [--json FILE] [NAME...]

Each program of benches/programs/findings.py runs in turns, bare as it is and bare as mended. Then it runs as it is under
`forebay record`, and its report is asked for the finding. Of each kind of run the quickest one counts, because other load
can only add; the range of what was gained is that within the rounds. If it holds zero, nothing can be said here.
Files that earlier runs have made are removed, outside of the time. Times never decide the exit code.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs" / "findings.py"
RANKS = 2
# Program: the findings that may claim its seconds. Where several fire, the largest claim counts, because they overlap.
CODES = {
    "small-writes": ["small-writes"],
    "small-reads": ["small-reads"],
    "random-reads": ["random-reads"],
    "random-writes": ["random-writes"],
    "read-write-switches": ["read-write-switches"],
    "repeated-reads": ["repeated-reads"],
    "read-by-many": ["read-by-many"],
    "frequent-fsync": ["frequent-fsync"],
    "stdio-bulk": ["stdio-bulk"],
    "metadata-time": ["metadata-time"],
    "repeated-opens": ["repeated-opens"],
    "many-small-files": ["many-small-files"],
    "misaligned-writes": ["misaligned-writes"],
    "import-storm": ["many-small-files"],
    "h5-small-writes": ["small-writes"],
    "mpi-independent-writes": ["independent-writes"],
    "mpi-straggler": ["straggler-shared-file", "straggler-ranks", "uneven-bytes", "rank-0-io"],
}
# Kept from one run to the next, because `prepare` has made it.
PREPARED = {"input", "modules"}


def command(name, form, folder):
    line = [sys.executable, str(PROGRAMS), name, form, str(folder)]
    if name.startswith("mpi-"):
        line = ["mpiexec", "-n", str(RANKS), "--allow-run-as-root", *line]
    return line


def clear(folder):
    for entry in folder.iterdir():
        if entry.name not in PREPARED:
            entry.unlink()
    # What earlier runs have written is no load for the next one.
    os.sync()


def seconds_of(line, folder):
    clear(folder)
    start = time.monotonic()
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


def measure(forebay, name, base, rounds):
    folder = base / name
    folder.mkdir()
    subprocess.run(command(name, "prepare", folder)[-5:], check=True)
    times = {"bad": [], "mended": [], "recorded": []}
    claims, others = [], {}
    for at in range(rounds):
        for form in ("bad", "mended"):
            times[form].append(seconds_of(command(name, form, folder), folder))
        log = base / f"{name}.{at}.darshan"
        line = [forebay, "record", "--log", str(log), "--include", str(base), "--", *command(name, "bad", folder)]
        clear(folder)
        start = time.monotonic()
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times["recorded"].append(time.monotonic() - start)
        said = subprocess.run([forebay, "report", "--json", str(log)], check=True, capture_output=True)
        found = {one["code"]: one for one in json.loads(said.stdout)[0]["findings"]}
        claimed = [found[code]["seconds_lost"] for code in CODES[name] if code in found]
        claims.append(max((one or 0.0 for one in claimed), default=None))
        for code, one in found.items():
            if code not in CODES[name] and (one["seconds_lost"] or 0) > 0.01:
                others.setdefault(code, []).append(one["seconds_lost"])
    shutil.rmtree(folder)
    gains = [bad - mended for bad, mended in zip(times["bad"], times["mended"])]
    known = [one for one in claims if one]
    return {
        "program": name,
        "seconds": times,
        "claims": claims,
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
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CODES))
    args = parser.parse_args()
    forebay = str(Path(args.forebay).resolve())
    rows = []
    print("| program | as it is | mended | gained (range) | claimed | verdict | also claimed |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="findings-") as base:
        for name in args.names or CODES:
            row = measure(forebay, name, Path(base), args.rounds)
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
