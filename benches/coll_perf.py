#!/usr/bin/env python3
"""A three-dimensional array in blocks, written and read by the MPI libraries themselves and by the four methods of the layer.

    make build
    benches/coll_perf.py [--dir DIR] [--size 256x256x256] [--grid 0x0x0] [--ranks 4] [--rounds N] [--repeats N]
    benches/coll_perf.py --locks tokens --granule 65536 --handover-us 500      every rank a client that waits for locks, by root
    benches/coll_perf.py --locks none --latency-us 300 --buffer 1048576 --overlap      with and without overlap on a slow file system, by root

Stock ROMIO is that of MPICH and that of Open MPI, OMPIO that of Open MPI. All of them, and the layer on both libraries with each
method, run in turns. Prints the median rate of a call with open and close, and how it compares with the same library without
the layer. Every byte that is read is checked. With --locks the files lie on the stand-in `forebay-slow-pfs`, mounted once for each rank: all ranks are
aggregators, and who writes where another rank holds the lock really waits. Then the locks that were given up are printed too.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RELEASE = HERE.parent / "target/release"
METHODS = ["even", "aligned", "static-cyclic", "group-cyclic"]
OPEN_MPI = ["mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe"]
# Name, compiler, how ranks start.
LIBRARIES = [
    ("ROMIO (MPICH)", "mpicc.mpich", ["mpiexec.mpich"]),
    ("OMPIO", "mpicc.openmpi", [*OPEN_MPI, "--mca", "io", "ompio"]),
    ("ROMIO (Open MPI)", "mpicc.openmpi", [*OPEN_MPI, "--mca", "io", "romio321"]),
]
ENVIRONMENT = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # Another process' memory may not be read in a container.
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


class Directory:
    """An ordinary directory, which all ranks see by one path."""

    def __init__(self, folder, _options):
        self.file = f"{folder}/file"

    def given_up(self):
        return None

    def close(self):
        pass


class Clients:
    """The stand-in with locks, mounted once for each rank."""

    def __init__(self, folder, options):
        self.dirs = [f"{folder}/client{rank}" for rank in range(options.ranks)]
        self.file = f"{folder}/client%d/file"
        for name in self.dirs:
            os.makedirs(name, exist_ok=True)
        self.process = subprocess.Popen(
            [options.stand_in, "--latency-us", str(options.latency_us), "--locks", options.locks, "--granule", str(options.granule),
             "--servers", str(options.servers), "--handover-us", str(options.handover_us), *self.dirs],
            stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def given_up(self):
        """Unmounts it: then it tells."""
        subprocess.run(["umount", self.dirs[0]], check=True)
        report = json.loads(self.process.stdout.read())
        self.process.wait()
        return report["calls"].get("lock given up", 0)

    def close(self):
        for name in self.dirs:
            subprocess.run(["umount", "-l", name], capture_output=True)
        self.process.kill()
        self.process.wait()


def run(options, folder, program, start, method):
    """The seconds of each write and each read, and the locks that were given up."""
    preload = []
    if method:
        partition, *overlap = method.split()
        hints = f"forebay_collective=always;forebay_partition={partition};striping_unit={options.granule};striping_factor={options.servers}"
        hints += f";forebay_overlap={overlap[1]}" if overlap else ""
        hints += f";cb_buffer_size={options.buffer}" if options.buffer else ""
        hints += ";cb_config_list=*:*" if options.locks else ""
        preload = [f"LD_PRELOAD={options.library}", f"FOREBAY_COLLECTIVE_HINTS={hints}"]
    place = (Clients if options.locks else Directory)(folder, options)
    try:
        sizes = [*options.size.split("x"), *options.grid.split("x"), str(options.rounds)]
        line = [*start, "-n", str(options.ranks), "env", *preload, program, place.file, *sizes]
        ran = subprocess.run(line, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=900)
        if ran.returncode != 0:
            sys.exit(f"{' '.join(line)}: {ran.stdout}{ran.stderr}")
        times = {}
        for said in ran.stdout.splitlines():
            direction, *seconds = said.split()
            times[direction] = [float(s) for s in seconds]
        return times, place.given_up()
    finally:
        place.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="where the files are")
    parser.add_argument("--size", default="256x256x256", help="ints in each direction")
    parser.add_argument("--grid", default="0x0x0", help="processes in each direction; 0: as equal as possible")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3, help="writes and reads in a run of the program")
    parser.add_argument("--repeats", type=int, default=3, help="runs in turns")
    parser.add_argument("--locks", help="tokens, server-extents, server-grown, whole-file or none; by root")
    parser.add_argument("--granule", type=int, default=1 << 20, help="bytes of a lock granule and of a stripe")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--handover-us", type=int, default=2000, help="what it takes to give up a lock")
    parser.add_argument("--library", default=str(RELEASE / "libforebay_mpiio.so"))
    parser.add_argument("--stand-in", default=str(RELEASE / "forebay-slow-pfs"))
    parser.add_argument("--latency-us", type=int, default=0, help="what each call of the stand-in takes")
    parser.add_argument("--buffer", type=int, help="bytes of an aggregator's buffer")
    parser.add_argument("--overlap", action="store_true", help="even domains alone, with the file read and written beside the exchange and in between")
    options = parser.parse_args()
    if not os.path.exists(options.library):
        sys.exit(f"{options.library}: build it first")
    methods = ["even overlap enable", "even overlap disable"] if options.overlap else METHODS
    nx, ny, nz = map(int, options.size.split("x"))
    megabytes = nx * ny * nz * 4 / 1e6
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        cases = {}
        for name, compiler, start in LIBRARIES:
            program = f"{folder}/{compiler}"
            if not os.path.exists(program):
                subprocess.run([compiler, "-O2", "-o", program, HERE / "programs/coll_perf.c"], check=True)
            # The layer takes the place of either I/O layer of Open MPI, so once is enough.
            for method in [None, *(methods if "Open MPI" not in name else [])]:
                cases[name, method] = (program, start, {}, [])
        for _ in range(options.repeats):
            for (name, method), (program, start, times, given_up) in cases.items():
                seconds, locks = run(options, folder, program, start, method)
                for direction, each in seconds.items():
                    times.setdefault(direction, []).extend(each)
                given_up.append(locks)
        print(f"{options.size} ints ({megabytes:.0f} MB), {options.ranks} ranks, {options.repeats} runs of {options.rounds} rounds in turns")
        print(f"{'library':18} {'method':20} {'write MB/s':>10} {'to stock':>8} {'read MB/s':>10} {'to stock':>8} {'locks given up':>15}")
        for (name, method), (_, _, times, given_up) in cases.items():
            line = f"{name:18} {method or 'stock':20}"
            for direction in ("write", "read"):
                mine, stock = (statistics.median(t[direction]) for t in (times, cases[name, None][2]))
                line += f" {megabytes / mine:10.0f} {stock / mine:8.2f}"
            locks = "" if None in given_up else f"{statistics.median(given_up):.0f} in a run"
            print(f"{line} {locks:>15}".rstrip())


main()
