#!/usr/bin/env python3
"""The four methods of the collective layer on GlusterFS, whose clients really lock: a replicated volume, a client for each rank. By root.

    apt-get install glusterfs-server glusterfs-client
    make build
    benches/gluster.py [--dir DIR] [--size 128x128x128] [--ranks 4] [--buffer BYTES] [--rounds N] [--repeats N]

Servers, bricks and clients run in namespaces of their own, and end with this program. First
`forebay probe` looks at two of the clients. Then the benchmark coll_perf writes its array with each method and as many aggregators as
ranks, and as the layer chooses by what was probed. The volume counts the lock requests that reach its bricks.
"""

import argparse
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
RELEASE = HERE.parent / "target/release"
METHODS = ["even", "aligned", "static-cyclic", "group-cyclic"]
PROBED = "as probed"
ADDRESS = "10.77.0.1"
VOLUME = "forebay"
INSIDE = "FOREBAY_GLUSTER_INSIDE"
# What the daemon of GlusterFS keeps at fixed places.
STATE = ["/var/lib/glusterd", "/var/log/glusterfs", "/run/gluster"]
LOCKS = ["INODELK", "FINODELK", "LK", "ENTRYLK"]
LONGEST_START_S = 60
OPEN_MPI = ["mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader", "--mca", "btl_vader_single_copy_mechanism",
            "none", "--mca", "mpi_yield_when_idle", "1", "--mca", "oob_tcp_if_include", "lo"]


def said(*command, **more):
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, **more)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {ran.stdout}{ran.stderr}")
    return ran.stdout


def until(what, holds):
    """Waits for something that takes its time."""
    end = time.monotonic() + LONGEST_START_S
    while not holds():
        if time.monotonic() > end:
            sys.exit(f"{what} takes longer than {LONGEST_START_S} s")
        time.sleep(0.1)


class Volume:
    """A replicated volume with clients, in the namespaces of this process."""

    def __init__(self, folder, clients):
        self.processes = []
        self.dirs = [f"{folder}/client{n}" for n in range(clients)]
        said("ip", "link", "set", "lo", "up")
        said("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
        for place in STATE:
            os.makedirs(place, exist_ok=True)
            said("mount", "-t", "tmpfs", "tmpfs", place)
        for place in ["/var/lib/glusterd/groups", "/var/log/glusterfs/bricks"]:
            os.makedirs(place, exist_ok=True)
        self.start("glusterd", "--no-daemon", "--log-file", f"{folder}/glusterd.log")
        until("glusterd", lambda: subprocess.run(["gluster", "--mode=script", "pool", "list"], capture_output=True).returncode == 0)
        bricks = [f"{folder}/brick{n}" for n in range(2)]
        for brick in bricks:
            os.makedirs(brick)
        self.told("volume", "create", VOLUME, "replica", "2", *(f"{ADDRESS}:{brick}" for brick in bricks), "force")
        self.told("volume", "start", VOLUME)
        self.told("volume", "profile", VOLUME, "start")
        for number, place in enumerate(self.dirs):
            os.makedirs(place)
            self.start("glusterfs", "--no-daemon", f"--volfile-server={ADDRESS}", f"--volfile-id={VOLUME}",
                       f"--log-file={folder}/client{number}.log", place)
            until(f"the client {place}", lambda: os.path.ismount(place))

    def start(self, *command):
        self.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    @staticmethod
    def told(*words):
        return said("gluster", "--mode=script", *words)

    def counters(self):
        """Requests that reached the bricks since this was asked last."""
        counts = dict.fromkeys([*LOCKS, "WRITE"], 0)
        for line in self.told("volume", "profile", VOLUME, "info", "incremental").splitlines():
            found = re.match(r"\s*[\d.]+\s+(?:[\d.]+ [num]?s\s+){3}(\d+)\s+(\S+)\s*$", line)
            if found and found[2] in counts:
                counts[found[2]] += int(found[1])
        return counts

    def close(self):
        for place in self.dirs:
            subprocess.run(["umount", "-l", place], capture_output=True)
        with contextlib.suppress(SystemExit):
            self.told("volume", "stop", VOLUME, "force")
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        for place in reversed(STATE):
            subprocess.run(["umount", "-l", place], capture_output=True)


def measured(options, folder, volume, program, how, name):
    """What one run costs. `name`: of a file that no client knows yet. One that was removed by another client is there for a while,
    and where some ranks can't open a file, OMPIO of Open MPI 4.1 waits for ever."""
    hints = f"forebay_collective=always;cb_buffer_size={options.buffer};cb_config_list=*:*;forebay_overlap=disable"
    environment = {}
    if how == PROBED:
        environment["FOREBAY_LOCKS"] = f"{folder}/locks"
    else:
        hints += f";forebay_locks=none;forebay_partition={how};striping_unit={options.granule}"
    preload = [f"LD_PRELOAD={options.library}", f"FOREBAY_COLLECTIVE_HINTS={hints}"]
    sizes = [*options.size.split("x"), "0", "0", "0", str(options.rounds)]
    line = [*OPEN_MPI, "-n", str(options.ranks), "env", *preload, program, f"{folder}/client%d/{name}", *sizes]
    volume.counters()
    out = said(*line, env={**os.environ, **environment})
    counts = volume.counters()
    os.unlink(f"{folder}/client0/{name}")
    times = {direction: list(map(float, seconds)) for direction, *seconds in map(str.split, out.splitlines())}
    return counts, statistics.median(times["write"])


def experiment(options):
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        program = f"{folder}/coll_perf"
        said("mpicc.openmpi", "-O2", "-o", program, HERE / "programs/coll_perf.c")
        volume = Volume(folder, options.ranks)
        try:
            probe = [options.forebay, "probe", volume.dirs[0], "--also", volume.dirs[1]]
            environment = {**os.environ, "FOREBAY_LOCKS": f"{folder}/locks"}
            probed = subprocess.run(probe, capture_output=True, text=True, env=environment, timeout=900)
            print(f"$ forebay probe {volume.dirs[0]} --also {volume.dirs[1]}".replace(folder, "/mnt"))
            print((probed.stdout + probed.stderr).replace(folder, "/mnt"))
            runs = {how: [] for how in [*METHODS, PROBED]}
            for repeat in range(options.repeats):
                for number, (how, so_far) in enumerate(runs.items()):
                    so_far.append(measured(options, folder, volume, program, how, f"file{repeat}-{number}"))
            nx, ny, nz = map(int, options.size.split("x"))
            print(f"coll_perf, {options.size} ints ({nx * ny * nz * 4 / 1e6:.0f} MB), {options.ranks} ranks and clients, buffers of {options.buffer} bytes, "
                  f"{options.repeats} runs of {options.rounds} writes and reads in turns; requests at the bricks in a run")
            print(f"{'method':14} " + " ".join(f"{name:>16}" for name in [*LOCKS, "WRITE"]) + f" {'write s':>8}")
            for how, each in runs.items():
                line = f"{how:14}"
                for name in [*LOCKS, "WRITE"]:
                    counts = sorted(counts[name] for counts, _ in each)
                    line += f" {'/'.join(map(str, counts)):>16}"
                print(f"{line} {statistics.median(seconds for _, seconds in each):8.3f}")
        finally:
            volume.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="where the bricks are")
    parser.add_argument("--size", default="128x128x128", help="ints in each direction")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--granule", type=int, default=64 << 10)
    parser.add_argument("--buffer", type=int, default=256 << 10)
    parser.add_argument("--forebay", default=str(RELEASE / "forebay"))
    parser.add_argument("--library", default=str(RELEASE / "libforebay_mpiio.so"))
    options = parser.parse_args()
    if not os.path.exists(options.library):
        sys.exit(f"{options.library}: build it first")
    if os.environ.get(INSIDE):
        return experiment(options)
    if os.geteuid() != 0 or not shutil.which("glusterd"):
        sys.exit("it needs root, and glusterfs-server and glusterfs-client of Debian")
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, *sys.argv]
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})


main()
