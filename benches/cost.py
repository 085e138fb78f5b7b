#!/usr/bin/python3
"""What many names cost: `rm -r` of files of the PFS beside the same natively, the memory of the bridge, and how long
others wait while a large directory is listed or removed.

    benches/cost.py --forebay target/release/forebay [--dir DIR] [--ahead] [remove|memory|pauses...]

Run by root it makes an ext4 with a journal in an image in DIR. With --ahead (root) programs and bridge run ahead of all
other processes, for a machine that is not quiet.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REMOVED = [5000, 10000, 20000, 40000, 100000]
NAMES = 100000
LISTED = 200000
IMAGE_BYTES = 6 << 30
LONG_NS = 20_000_000


def ahead(pid=0):
    if "COST_AHEAD" in os.environ:
        for task in os.listdir(f"/proc/{pid or 'self'}/task"):
            os.sched_setscheduler(int(task), os.SCHED_RR, os.sched_param(1))


def make(folder, count):
    os.makedirs(folder)
    for n in range(count):
        os.close(os.open(f"{folder}/f{n:06d}", os.O_CREAT | os.O_WRONLY, 0o644))


def timed(*command):
    begun = time.monotonic()
    subprocess.check_call(command, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def memory_mib(bridge):
    lines = Path(f"/proc/{bridge}/status").read_text().splitlines()
    pairs = dict(line.split(":", 1) for line in lines)
    return "%d (at most %d)" % tuple(int(pairs[key].split()[0]) >> 10 for key in ("VmRSS", "VmHWM"))


class Buffer:
    """A PFS directory with a bridge of its own."""

    def __init__(self, forebay, folder):
        self.forebay, self.root, self.storage = forebay, f"{folder}/pfs", f"{folder}/storage"
        for path in (self.root, self.storage):
            os.makedirs(path)
        self.place = ["--buffer", self.root, "--storage", self.storage]

    def say(self, verb, *words):
        return subprocess.check_output([self.forebay, verb, *self.place, *words], text=True, stderr=subprocess.PIPE)

    def up(self):
        self.say("up")
        status = subprocess.check_output([self.forebay, "status", "--json", "--buffer", self.root], text=True)
        bridge = json.loads(status)["bridges"][0]["pid"]
        ahead(bridge)
        return bridge

    def start(self, *words):
        command = [self.forebay, "run", *self.place, "--no-drain", "--no-record", "--"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([*command, sys.executable, __file__, *map(str, words)], text=True, **pipes)

    def inside(self, *words):
        return self.start(*words).communicate()[0].strip()


def remove(forebay, folder):
    print("rm -r of files of the PFS     native s   buffer s   ratio   drain s")
    for count in REMOVED:
        place = f"{folder}/{count}"
        make(f"{place}/native", count)
        os.sync()
        native = timed("rm", "-r", f"{place}/native")
        buffer = Buffer(forebay, place)
        make(f"{buffer.root}/d", count)
        os.sync()
        buffer.up()
        took = float(buffer.inside("inside-remove", f"{buffer.root}/d"))
        begun = time.monotonic()
        buffer.say("drain")
        drain = time.monotonic() - begun
        buffer.say("down")
        print(f"{count:>24} {native:>13.2f} {took:>10.2f} {native / took:>7.2f} {drain:>9.2f}", flush=True)


def memory(forebay, folder):
    buffer = Buffer(forebay, folder)
    bridge = buffer.up()
    tell = lambda what: print(f"{what:<32} {memory_mib(bridge)} MiB", flush=True)
    tell("bridge at its start")
    buffer.inside("inside-make", f"{buffer.root}/d", NAMES)
    tell(f"{NAMES} files created")
    buffer.inside("inside-list", f"{buffer.root}/d")
    tell("ls -l")
    buffer.say("drain")
    tell("drained")
    buffer.inside("inside-remove", f"{buffer.root}/d")
    time.sleep(2)
    tell("removed")
    buffer.say("drain")
    tell("drained")
    buffer.say("down")


def pauses(forebay, folder):
    # A wait for a processor: what the kernel says of the caller, and of the one thread of the bridge that waited longest.
    print("others, while             s     calls   p99 ms  longest ms  over 20 ms  these two without waits for a processor, at least")
    buffer = Buffer(forebay, folder)
    make(f"{buffer.root}/d", LISTED)
    bridge = buffer.up()
    buffer.inside("inside-make", f"{buffer.root}/own", 1)
    for what, work in [("idle", None), ("ls -l", "inside-list"), ("find", "inside-find"), ("rm -r", "inside-remove")]:
        watchers = [buffer.start("inside-watch", buffer.root, how, bridge) for how in ("open", "create")]
        time.sleep(2)
        begun = time.monotonic()
        if work:
            buffer.inside(work, f"{buffer.root}/d")
        took = time.monotonic() - begun
        for how, watcher in zip(("open", "create"), watchers):
            print(f"{what:<7} {how:<7} {took:>10.1f} {watcher.communicate()[0].strip()}", flush=True)
    buffer.say("down")


def serving(bridge):
    """The threads of the bridge that a call may wait for."""
    for task in Path(f"/proc/{bridge}/task").iterdir():
        if (task / "comm").read_text().startswith(("shard", "sync")):
            yield task


def watch(root, how, bridge):
    ahead()
    os.set_blocking(0, False)
    delays = [os.open(path / "schedstat", os.O_RDONLY) for path in [Path("/proc/self"), *serving(bridge)]]
    delayed = lambda: [int(os.pread(delay, 100, 0).split()[1]) for delay in delays]
    waits, without = [], []
    while True:
        before = delayed()
        begun = time.perf_counter_ns()
        if how == "open":
            os.close(os.open(f"{root}/own/f000000", os.O_RDONLY))
        else:
            path = f"{root}/own/new{len(waits) % 100}"
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            os.unlink(path)
        waits.append(time.perf_counter_ns() - begun)
        own, *others = (now - then for now, then in zip(delayed(), before))
        without.append(waits[-1] - own - max(others))
        time.sleep(0.0002)
        if len(waits) % 64 == 0:
            with contextlib.suppress(BlockingIOError):
                if os.read(0, 1) == b"":
                    break
    waits.sort()
    told = [f"{max(times) / 1e6:>11.1f} {sum(wait > LONG_NS for wait in times):>11}" for times in (waits, without)]
    print(f"{len(waits):>9} {waits[int(len(waits) * 0.99)] / 1e6:>8.2f}", *told)


def inside(role, path, *more):
    """What runs under `forebay run`."""
    if role == "inside-watch":
        return watch(path, *more)
    if role == "inside-make":
        return make(path, int(more[0]))
    ahead()
    command = {"inside-remove": ["rm", "-r"], "inside-list": ["ls", "-l"], "inside-find": ["find"]}[role]
    return print(timed(*command, path))


@contextlib.contextmanager
def disk(folder):
    """A directory on an ext4 with a journal, if there may be one."""
    with tempfile.TemporaryDirectory(prefix="forebay-cost-", dir=folder) as place:
        if os.geteuid() != 0:
            yield place
            return
        image, mounted = f"{place}/image", f"{place}/mounted"
        os.mkdir(mounted)
        with open(image, "wb") as file:
            file.truncate(IMAGE_BYTES)
        subprocess.check_call(["mkfs.ext4", "-q", "-N", "1500000", image])
        subprocess.check_call(["mount", "-o", "loop", image, mounted])
        try:
            yield mounted
        finally:
            subprocess.check_call(["umount", mounted])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--dir", default="/dev/shm")
    parser.add_argument("--ahead", action="store_true")
    parser.add_argument("what", nargs="*", metavar="remove|memory|pauses")
    options = parser.parse_args()
    if options.ahead:
        os.environ["COST_AHEAD"] = "1"
    parts = {"remove": remove, "memory": memory, "pauses": pauses}
    forebay = os.path.abspath(options.forebay)
    ahead()
    for what in options.what or parts:
        with disk(options.dir) as folder:
            parts[what](forebay, folder)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].startswith("inside-"):
        inside(*sys.argv[1:])
    else:
        main()
