#!/usr/bin/python3
"""A drain beside `cp -r` and `sync -f` of the same tree, in turns, each time on new file systems. For root.

Prints for each kind of PFS the median time of both sides, and the ratio copy/drain: above 1 the drain is faster.

    benches/drain.py --forebay target/release/forebay [--dir DIR] [--rounds 3] [KIND...]

The storage is an ext4 with a journal in an image in DIR. Kinds of PFS: ext4, xfs (such images too), tmpfs, slow (FUSE, see
`forebay-slow-pfs --help`), cold: as ext4, and nothing of the source is in memory, and large: as ext4, with four large files.

Three more kinds are about names alone, on ext4: rm, mv and mkdir remove or rename a tenth as many empty files of the PFS, or make as
many directories, in the buffer. Their drain is timed beside the same command and `sync -f` on the PFS.

With --floor THREADS the other side is `programs/drain_floor.c`, the bare system calls of a drain, in place of the drain.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FILES = 20000
FILE_BYTES = 4096
DIRS = 100
LARGE_FILES = 4
LARGE_BYTES = 512 << 20
LATENCY_US = 300

# What is done in the target directory, with the empty files of the PFS in `old`.
NAMES = {
    "rm": "find old -type f -delete",
    "mv": "mkdir new; find old -type f -print0 | xargs -0 mv -t new",
    "mkdir": "seq {files} | sed s/^/d/ | xargs mkdir",
}

MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q"],
}


def make_small(folder, files):
    bytes_of = os.urandom(FILE_BYTES + files)
    for n in range(files):
        at = folder / f"d{n % DIRS}"
        if n < DIRS:
            at.mkdir()
        (at / f"f{n}").write_bytes(bytes_of[n : n + FILE_BYTES])


def make_large(folder):
    piece = os.urandom(1 << 20)
    for n in range(LARGE_FILES):
        with (folder / f"large{n}").open("wb") as file:
            for _ in range(LARGE_BYTES >> 20):
                file.write(piece)


@contextlib.contextmanager
def image(base, kind, size):
    """The folder of a new file system in an image."""
    at, disk = base / "mount", base / "image"
    at.mkdir(parents=True)
    with disk.open("wb") as file:
        file.truncate(size)
    subprocess.run([*MKFS[kind], disk], check=True)
    # The file below goes past the cache: a second copy in memory would cost more than the disk.
    device = run("losetup", "--find", "--show", "--direct-io=on", disk).strip()
    try:
        subprocess.run(["mount", device, at], check=True)
        try:
            yield at
        finally:
            subprocess.run(["umount", at], check=True)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
        disk.unlink()


@contextlib.contextmanager
def tmpfs(base):
    base.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", base], check=True)
    try:
        yield base
    finally:
        subprocess.run(["umount", base], check=True)


@contextlib.contextmanager
def slow(base, program, counts):
    base.mkdir(parents=True)
    served = subprocess.Popen([program, "--latency-us", str(LATENCY_US), base], stdout=subprocess.PIPE, text=True)
    try:
        served.stdout.readline()
        yield base
    finally:
        subprocess.run(["umount", base], check=True)
        counts.append(json.loads(served.stdout.read()))
        served.wait()


def pfs(base, kind, args, counts):
    if kind == "tmpfs":
        return tmpfs(base)
    if kind == "slow":
        return slow(base, Path(args.forebay).with_name("forebay-slow-pfs"), counts)
    return image(base, kind if kind in MKFS else "ext4", (8 if kind == "large" else 3) << 30)


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def once(base, kind, drains, args, counts):
    """Seconds of one side."""
    if kind in NAMES:
        return names_once(base, kind, drains, args)
    with image(base / "storage", "ext4", (8 if kind == "large" else 3) << 30) as storage:
        with pfs(base / "pfs", kind, args, counts) as at:
            made, target = storage / "made", at / "target"
            target.mkdir()
            make = [sys.executable, __file__, "--make", kind, "--files", args.files]
            if drains and not args.bare:
                buffer = ["--buffer", target, "--storage", storage]
                run(args.forebay, "run", *buffer, "--no-drain", "--no-record", "--", *make, target)
            else:
                made.mkdir()
                run(*make, made)
            # What was written before belongs to neither.
            os.sync()
            if kind == "cold":
                Path("/proc/sys/vm/drop_caches").write_text("3")
            begun = time.monotonic()
            if drains and args.bare:
                counts.append(run(args.bare, made, target, args.floor).strip())
            elif drains:
                run(*args.around.split(), args.forebay, "drain", *buffer, *args.options.split())
            else:
                run("cp", "-r", f"{made}/.", target)
                run("sync", "-f", target)
            took = time.monotonic() - begun
            found = sum(1 for path in target.rglob("*") if path.is_file())
            if found != (LARGE_FILES if kind == "large" else args.files):
                sys.exit(f"{found} files have arrived")
    for path in ("storage", "pfs"):
        shutil.rmtree(base / path, ignore_errors=True)
    return took


def names_once(base, kind, drains, args):
    """Seconds of one side, where names alone change."""
    files = args.files // 10
    command = ["sh", "-c", NAMES[kind].format(files=files)]
    with image(base / "storage", "ext4", 1 << 30) as storage, image(base / "pfs", "ext4", 1 << 30) as at:
        target = at / "target"
        (target / "old").mkdir(parents=True)
        for n in range(files):
            (target / "old" / f"f{n}").touch()
        os.sync()
        buffer = ["--buffer", target, "--storage", storage]
        if drains:
            inside = ["--no-drain", "--no-record", "--", *command]
            run("env", "-C", target, args.forebay, "run", *buffer, *inside)
            os.sync()
        begun = time.monotonic()
        if drains:
            run(*args.around.split(), args.forebay, "drain", *buffer, *args.options.split())
        else:
            run("env", "-C", target, *command)
            run("sync", "-f", target)
        took = time.monotonic() - begun
        found = {
            "rm": files - len(list((target / "old").iterdir())),
            "mv": len(list((target / "new").iterdir())) if (target / "new").is_dir() else 0,
            "mkdir": len(list(target.glob("d*"))),
        }[kind]
        if found != files:
            sys.exit(f"{found} of {files} names have changed")
    for path in ("storage", "pfs"):
        shutil.rmtree(base / path, ignore_errors=True)
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--dir", default=".", help="where the images are made")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--options", default="", help="further options of `forebay drain`")
    parser.add_argument("--around", default="", help="a command that runs `forebay drain`, as strace")
    parser.add_argument("--only", action="store_true", help="without the copy")
    parser.add_argument("--floor", type=int, metavar="THREADS", help="the bare system calls in place of the drain")
    parser.add_argument("--make", nargs=1, help=argparse.SUPPRESS)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="ext4 xfs tmpfs slow cold large rm mv mkdir")
    args = parser.parse_args()
    if args.make:
        folder = Path(args.kinds[0])
        return make_large(folder) if args.make == ["large"] else make_small(folder, args.files)
    args.forebay = str(Path(args.forebay).resolve())
    args.bare = None
    with contextlib.ExitStack() as stack:
        if args.floor:
            args.bare = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "drain_floor"
            run("cc", "-O2", "-Wall", "-pthread", "-o", args.bare, Path(__file__).parent / "programs/drain_floor.c")
        compare(args)


def compare(args):
    print(f"{'pfs':8} {'copy s':>8} {'drain s':>8} {'ratio':>6}  ratios of the rounds", flush=True)
    for kind in args.kinds or ["ext4", "xfs", "tmpfs", "slow", "cold", "large", *NAMES]:
        if args.bare and (kind in NAMES or kind == "large"):
            print(f"{kind:8} left out: --floor is about small files")
            continue
        if kind == "xfs" and not shutil.which("mkfs.xfs"):
            print(f"{kind:8} left out: mkfs.xfs is not installed")
            continue
        pairs, counts = [], []
        for _ in range(args.rounds):
            base = Path(tempfile.mkdtemp(dir=args.dir)).resolve()
            try:
                copied = float("nan") if args.only else once(base, kind, False, args, [])
                pairs.append((copied, once(base, kind, True, args, counts)))
            finally:
                shutil.rmtree(base, ignore_errors=True)
        copy, drain = (statistics.median(side) for side in zip(*pairs))
        ratios = " ".join(f"{c / d:.2f}" for c, d in pairs)
        print(f"{kind:8} {copy:8.2f} {drain:8.2f} {copy / drain:6.2f}  {ratios}", flush=True)
        if counts:
            what = "seconds of the phases" if args.bare else "calls of the drain"
            print(f"         {what}: {counts[-1]}")


main()
