#!/usr/bin/python3
"""Work that waits for the disk, natively and in the buffer, in turns on the same disk.

Prints for each load the median time of both sides and the ratio native/buffer: 1 is as fast as native.
Loads whose programs are not installed are left out, and named.

    benches/durable.py --forebay target/release/forebay [--dir DIR] [--rounds 3] [LOAD...]

Run by root it makes an ext4 with a journal in an image in DIR, unless DIR lies on one.
"""

import argparse
import contextlib
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from glob import glob
from pathlib import Path

TRANSACTIONS = 600
FILES = 1500
NAMES = 20000
DBENCH_S = 8
PG_TRANSACTIONS = 400
IMAGE_BYTES = 8 << 30


def sqlite(folder, journal):
    base = sqlite3.connect(f"{folder}/base.db", isolation_level=None)
    base.execute(f"pragma journal_mode={journal}")
    base.execute("pragma synchronous=full")
    base.execute("create table t(a integer primary key, b text)")
    begun = time.monotonic()
    for n in range(TRANSACTIONS):
        base.execute("insert into t values(?, ?)", (n, "x" * 200))
    return time.monotonic() - begun


def new_files(folder):
    begun = time.monotonic()
    for n in range(FILES):
        fd = os.open(f"{folder}/f{n}", os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(fd, b"x" * 4096)
        os.fsync(fd)
        os.close(fd)
    return time.monotonic() - begun


def replace(folder):
    root = os.open(folder, os.O_RDONLY)
    begun = time.monotonic()
    for n in range(FILES // 2):
        fd = os.open(f"{folder}/new", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        os.write(fd, b"x" * 65536)
        os.fsync(fd)
        os.close(fd)
        os.rename(f"{folder}/new", f"{folder}/state{n % 10}")
        os.fsync(root)
    return time.monotonic() - begun


def create(folder):
    begun = time.monotonic()
    for n in range(NAMES):
        os.close(os.open(f"{folder}/f{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    return time.monotonic() - begun


def dbench(folder):
    """Seconds for each MB."""
    load = glob("/usr/share/dbench/client.txt") + glob("/usr/share/dbench/*/client.txt")
    said = subprocess.run(
        ["dbench", "-s", "-D", folder, "-t", str(DBENCH_S), "-c", load[0], "2"],
        capture_output=True, text=True, check=True,
    ).stdout
    line = next(line for line in said.splitlines() if line.startswith("Throughput"))
    return 1 / float(line.split()[1])


def postgres(folder):
    programs = sorted(glob("/usr/lib/postgresql/*/bin"))[-1]
    data, sockets = f"{folder}/data", tempfile.mkdtemp()
    as_user = []
    if os.getuid() == 0:
        # The server refuses to run as root.
        as_user = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
        os.mkdir(data, 0o700)
        shutil.chown(data, "nobody", "nogroup")
        shutil.chown(sockets, "nobody", "nogroup")

    def run(program, *arguments):
        return subprocess.run(
            [*as_user, f"{programs}/{program}", *arguments],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )

    run("initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync")
    options = f"-k {sockets} -c listen_addresses= -c shared_buffers=64MB"
    run("pg_ctl", "-D", data, "-l", f"{sockets}/log", "-w", "-o", options, "start")
    try:
        run("pgbench", "-i", "-s", "2", "-q", "-U", "postgres", "-h", sockets, "postgres")
        begun = time.monotonic()
        run("pgbench", "-n", "-c", "2", "-t", str(PG_TRANSACTIONS), "-U", "postgres", "-h", sockets, "postgres")
        return time.monotonic() - begun
    finally:
        run("pg_ctl", "-D", data, "-m", "fast", "-w", "stop")
        shutil.rmtree(sockets, ignore_errors=True)


LOADS = {
    "sqlite-wal": (lambda folder: sqlite(folder, "wal"), f"{TRANSACTIONS} transactions, WAL, synchronous=FULL"),
    "sqlite-delete": (lambda folder: sqlite(folder, "delete"), f"{TRANSACTIONS} transactions, rollback journal, FULL"),
    "fsync-new": (new_files, f"{FILES} new files of 4 KiB, each with fsync"),
    "replace": (replace, f"{FILES // 2} times write 64 KiB, fsync, rename, fsync of the directory"),
    "pgbench": (postgres, f"2 clients, {PG_TRANSACTIONS} transactions each"),
    "dbench": (dbench, f"2 clients, {DBENCH_S} s, synchronous directories (-s); seconds for each MB"),
    "create": (create, f"{NAMES} empty files, no fsync"),
}


def missing(load):
    if load == "dbench" and not shutil.which("dbench"):
        return "dbench is not installed"
    if load == "pgbench" and not glob("/usr/lib/postgresql/*/bin/initdb"):
        return "PostgreSQL is not installed"
    return None


def once(load, base, forebay):
    """Seconds of one run in a folder of its own. None is removed before the end: ext4 looks long for inodes if many were
    freed a moment ago."""
    place = Path(tempfile.mkdtemp(dir=base))
    place.chmod(0o755)
    folder = place / "pfs"
    storage = place / "storage"
    for path in (folder, storage):
        path.mkdir()
    os.chmod(base, 0o755)
    os.sync()
    work = [sys.executable, __file__, "--work", load, str(folder)]
    if forebay:
        work = [forebay, "run", "--buffer", str(folder), "--storage", str(storage), "--no-drain", "--no-record", "--", *work]
    done = subprocess.run(work, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{load}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return float(done.stdout.split("seconds ")[1].split()[0])


def has_journal(folder):
    """Is it on an ext4 with a journal?"""
    device = os.stat(folder).st_dev
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf8").splitlines():
        words = line.split()
        if words[2] == f"{os.major(device)}:{os.minor(device)}":
            kind, source = words[words.index("-") + 1 :][:2]
            return kind == "ext4" and bool(glob(f"/proc/fs/jbd2/{Path(source).name}-*"))
    return False


@contextlib.contextmanager
def disk(folder):
    """A folder that goes at the end, on an ext4 with a journal if that can be had."""
    base = Path(tempfile.mkdtemp(dir=folder)).resolve()
    base.chmod(0o755)
    mounted = None
    try:
        if not has_journal(base) and os.getuid() == 0:
            image, mounted = base / "image", base / "mount"
            with image.open("wb") as file:
                file.truncate(IMAGE_BYTES)
            mounted.mkdir()
            subprocess.run(["mkfs.ext4", "-q", image], check=True)
            subprocess.run(["mount", "-o", "loop", image, mounted], check=True)
        elif not has_journal(base):
            print(f"{folder} is not on an ext4 with a journal: no fair reference, see docs/BENCHMARKS.md")
        yield mounted or base
    finally:
        if mounted:
            subprocess.run(["umount", mounted], check=False)
        shutil.rmtree(base, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--dir", default=".", help="on the disk that both sides use")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=" ".join(LOADS))
    args = parser.parse_args()
    if args.work:
        load, folder = args.work
        print("seconds", LOADS[load][0](folder))
        return
    forebay = str(Path(args.forebay).resolve())
    with disk(args.dir) as base:
        print(f"{'load':14} {'native s':>9} {'buffer s':>9} {'ratio':>6}  ratios of the rounds")
        for load in args.loads or LOADS:
            if reason := missing(load):
                print(f"{load:14} left out: {reason}")
                continue
            pairs = [(once(load, base, None), once(load, base, forebay)) for _ in range(args.rounds)]
            native, buffer = (statistics.median(side) for side in zip(*pairs))
            ratios = " ".join(f"{n / b:.2f}" for n, b in pairs)
            print(f"{load:14} {native:9.3f} {buffer:9.3f} {native / buffer:6.2f}  {ratios}   {LOADS[load][1]}", flush=True)


main()
