#!/usr/bin/env python3
"""Collective writes and reads with the collective layer and without it, in turns, on MPICH and Open MPI.

    cargo build --release -p forebay-mpiio
    benches/collective.py [--dir DIR] [--rounds N] [--repeats N] [--ranks 2,4] [--mpi mpich,openmpi] [--hints "name=value;..."]
                          [--patterns small,block,lines,parts] [--gio DIR] [--best] [--library FILE]

Prints the median time of a call, and how many times faster it is with the layer. A ratio below 1 means that it is slower.
With --gio the same accesses are also made by the library GIO: DIR/mpich and DIR/openmpi are its installations.
Ranks on fewer cores than there are of them spend their time in turns of the scheduler: with MPICH, which polls, ratios of
more ranks than cores say little.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATTERNS = [("small", "100000"), ("block", "256"), ("lines", "128"), ("lines", "8192"), ("parts", "16")]
MPIS = {
    "mpich": ("mpicc.mpich", ["mpiexec.mpich"]),
    "openmpi": ("mpicc.openmpi", ["mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe"]),
}
ENVIRONMENT = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # Another process' memory may not be read in a container.
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


def run(start, ranks, library, hints, command):
    preload = [f"LD_PRELOAD={library}", f"FOREBAY_COLLECTIVE_HINTS={hints}"] if library else []
    line = [*start, "-n", str(ranks), "env", *preload, *command]
    ran = subprocess.run(line, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=600)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(line)}: {ran.stderr}")
    times = {}
    for said in ran.stdout.splitlines():
        _, direction, *seconds = said.split()
        times[direction] = [float(s) for s in seconds]
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="where the files are")
    parser.add_argument("--rounds", type=int, default=5, help="calls in a run of the program")
    parser.add_argument("--repeats", type=int, default=3, help="runs in turns")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--mpi", default="mpich,openmpi")
    parser.add_argument("--hints", default="")
    parser.add_argument("--best", action="store_true", help="compare the fastest calls instead: for a busy machine")
    parser.add_argument("--patterns", default="small,block,lines,parts")
    parser.add_argument("--gio")
    parser.add_argument("--library", default=str(HERE.parent / "target/release/libforebay_mpiio.so"))
    options = parser.parse_args()
    if not os.path.exists(options.library):
        sys.exit(f"{options.library}: build it first")
    more = f" {'GIO ms':>10} {'faster':>7}" if options.gio else ""
    print(f"{'MPI':8} {'ranks':>5} {'pattern':14} {'call':6} {'native ms':>10} {'layer ms':>10} {'faster':>7}{more}")
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        for name in options.mpi.split(","):
            compiler, start = MPIS[name]
            source = HERE / "programs/collective.c"
            program = f"{folder}/collective.{name}"
            subprocess.run([compiler, "-O2", "-o", program, source], check=True)
            # What is run, and with which library in front.
            ways = [(program, None), (program, options.library)]
            if options.gio:
                gio = f"{options.gio}/{name}"
                program = f"{folder}/gio.{name}"
                subprocess.run([compiler, "-O2", "-DWITH_GIO", f"-I{gio}/include", "-o", program, source, f"{gio}/lib/libgio.a"], check=True)
                ways.append((program, None))
            for ranks in map(int, options.ranks.split(",")):
                for pattern, size in (p for p in PATTERNS if p[0] in options.patterns.split(",")):
                    times = [{} for _ in ways]
                    for _ in range(options.repeats):
                        for (program, library), so_far in zip(ways, times):
                            command = [program, f"{folder}/file", pattern, size, str(options.rounds)]
                            for direction, seconds in run(start, ranks, library, options.hints, command).items():
                                so_far.setdefault(direction, []).extend(seconds)
                            os.unlink(f"{folder}/file")
                    for direction in ("write", "read"):
                        middle = min if options.best else statistics.median
                        native, *others = (middle(t[direction]) * 1000 for t in times)
                        told = "".join(f" {other:10.2f} {native / other:7.2f}" for other in others)
                        print(f"{name:8} {ranks:5} {pattern + ' ' + size:14} {direction:6} {native:10.2f}{told}", flush=True)


main()
