#!/usr/bin/python3
"""A soak: tries to break every promise of the buffer for an hour, and says so when one breaks. For root.

Programs under `forebay run` change files one operation at a time and write down, outside the buffer, what was begun and
what was acknowledged. Neighbours change the same PFS past the buffer. Meanwhile everything is killed, disks fill up,
and the PFS fails with EIO and ESTALE or hangs. At the end of each round the PFS is read natively and compared with what may
be there after the exit status 0 of its run and of its last drain; each conflict that a drain lists is settled, until a drain
ends with 0. Exit statuses of drains in the middle of a round are not judged.

    scripts/soak.py [--seconds 3600] [--seed N] [--forebay target/release/forebay] [--keep DIR] [--pfs KIND...]

Ends with 1 and a full account at the first broken promise; the evidence is copied to DIR. The seed decides the schedule;
the timing of processes is the machine's.
"""

import argparse
import collections
import contextlib
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

STORAGE_BYTES = 200 << 20
PFS_BYTES = 160 << 20
ROUNDS_OF_A_STAGE = 5
WORKERS = 3
NEIGHBOURS = 2
LONGEST_HANG_S = 30
# A process that takes longer than this, with a PFS that works, hangs.
LONGEST_END_S = 90
# Rounds for each neighbour's change that may be lost between the last look of a drain and what it does there: see
# "What stays possible" in docs/SEMANTICS.md.
ROUNDS_OF_A_LOST_MOMENT = 25
# Drains in a row that leave something for another reason than a conflict, with a PFS that works.
MOST_VAIN_DRAINS = 4
MOST_DRAINS = 15

SEMANTIC = {"ENOENT", "EEXIST", "ENOTEMPTY", "ENOTDIR", "EISDIR"}
SHARED = "shared"
SHARED_DIRS = [f"{SHARED}/d{n}" for n in range(3)]
SHARED_FILES = [f"{SHARED}/s{n}" for n in range(6)] + [f"{dir}/f{n}" for dir in SHARED_DIRS for n in range(2)]
OWN_DIRS = ["d", "e"]
OWN_FILES = ["a", "b", "c", "d/a", "d/b", "e/a"]
OWN_TMP = "tmp"


class Broken(Exception):
    """A promise is broken. `about` names what the account shows the history of."""

    def __init__(self, promise, about=()):
        super().__init__(promise)
        self.about = set(about)


def content(tag, size):
    """Bytes that nobody else writes."""
    head = f"<{tag}>".encode()
    return head + random.Random(tag).randbytes(max(size - len(head), 0))


def digest(found):
    return [len(found), hashlib.sha1(found).hexdigest()]


# What actors do: single operations, each of them written down before and after. ------------------------------------


def write_all(path, flags, data, sync):
    fd = os.open(path, flags, 0o644)
    try:
        done = 0
        while done < len(data):
            done += os.write(fd, data[done:])
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def read_all(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        found = bytearray()
        while piece := os.read(fd, 1 << 20):
            found += piece
        return bytes(found)
    finally:
        os.close(fd)


def list_all(root, below=""):
    """All paths in a directory, sorted."""
    found = []
    with os.scandir(os.path.join(root, below)) as entries:
        for entry in list(entries):
            path = os.path.join(below, entry.name)
            found.append(path)
            if entry.is_dir(follow_symlinks=False):
                found += list_all(root, path)
    return sorted(found)


class Actor:
    """One process that works in `root`, with a log of its own outside."""

    def __init__(self, name, root, log, seed):
        self.name, self.root, self.n = name, root, 0
        self.rng = random.Random(seed)
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.say(hello=os.getpid(), born=born(os.getpid()))

    def say(self, **line):
        line["t"] = time.monotonic()
        os.write(self.log, json.dumps(line).encode() + b"\n")

    def at(self, path):
        return os.path.join(self.root, path)

    def tag(self):
        return f"{self.name}.{self.n + 1}"

    def act(self, do, *args):
        """Carries out one operation: `ok` or the name of the error, and what it gave."""
        self.n += 1
        self.say(n=self.n, do=do, args=args)
        try:
            gave = getattr(self, do)(*args)
            outcome = "ok"
        except OSError as e:
            gave, outcome = None, errno.errorcode.get(e.errno, str(e.errno))
        self.say(n=self.n, done=outcome, gave=gave)
        return outcome, gave

    def write(self, path, tag, size, sync):
        write_all(self.at(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, content(tag, size), sync)

    def append(self, path, tag, size, sync):
        write_all(self.at(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, content(tag, size), sync)

    def append_existing(self, path, tag, size):
        """True if all was appended, and to what the path still leads to."""
        fd = os.open(self.at(path), os.O_WRONLY | os.O_APPEND)
        try:
            data = content(tag, size)
            return os.write(fd, data) == len(data) and os.fstat(fd).st_ino == os.stat(self.at(path)).st_ino
        finally:
            os.close(fd)

    def put(self, path, tag, size, sync):
        tmp = self.at(f"{SHARED}/.t-{self.name}")
        write_all(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, content(tag, size), sync)
        os.rename(tmp, self.at(path))

    def truncate(self, path, size):
        os.truncate(self.at(path), size)

    def unlink(self, path):
        os.unlink(self.at(path))

    def rename(self, old, new):
        os.rename(self.at(old), self.at(new))

    def link(self, old, new):
        os.link(self.at(old), self.at(new))

    def mkdir(self, path):
        os.mkdir(self.at(path))

    def rmdir(self, path):
        os.rmdir(self.at(path))

    def read(self, path):
        return digest(read_all(self.at(path)))

    def list(self, path):
        return list_all(self.at(path))

    def size(self):
        return self.rng.choice([0, 40, 500, 4096, 5000, 70000, self.rng.randrange(1, 200000)])


class Worker(Actor):
    """A program in the buffer: changes its own directory, and the shared one."""

    def own(self, path):
        return f"{self.name.split('.')[0]}/{path}"

    def knows(self, *paths):
        """Do reads of these work? What they give is checked when the logs are read."""
        return all(self.act("read", self.own(path))[0] in ("ok", "ENOENT", "ENOTDIR") for path in paths)

    def change(self, do, *args, paths):
        """After an error that says nothing of the outcome, looks what it was."""
        outcome, _ = self.act(do, *args)
        if outcome != "ok" and outcome not in SEMANTIC:
            self.act("list", self.own(""))
            self.knows(*paths)
        return outcome

    def step_own(self):
        rng, own = self.rng, self.own
        path, other = rng.sample(OWN_FILES, 2)
        do = rng.choices(
            ["put", "append", "unlink", "rename", "truncate", "link", "mkdir", "rmdir", "rename dir", "audit"],
            [6, 5, 2, 3, 2, 2, 2, 1, 1, 1],
        )[0]
        if do in ("mkdir", "rmdir", "rename dir"):
            old, new = rng.sample(OWN_DIRS, 2)
            if do == "rename dir":
                return self.change("rename", own(old), own(new), paths=OWN_FILES)
            return self.change(do, own(old), paths=[])
        if do == "audit":
            return self.audit()
        if not self.knows(path, other):
            return None
        if do == "put":
            if self.change("write", own(OWN_TMP), self.tag(), self.size(), rng.random() < 0.7, paths=[OWN_TMP]) == "ok":
                return self.change("rename", own(OWN_TMP), own(path), paths=[OWN_TMP, path])
            return self.change("unlink", own(OWN_TMP), paths=[OWN_TMP])
        if do == "append":
            return self.change("append", own(path), self.tag(), self.size(), rng.random() < 0.3, paths=[path])
        if do == "truncate":
            return self.change("truncate", own(path), rng.choice([0, 10, 5000, 100000]), paths=[path])
        if do == "unlink":
            return self.change("unlink", own(path), paths=[path])
        return self.change(do, own(path), own(other), paths=[path, other])

    def step_shared(self):
        do = self.rng.choices(["put", "append", "unlink", "mkdir", "rmdir"], [5, 4, 2, 2, 2])[0]
        if do in ("mkdir", "rmdir"):
            return self.act(do, self.rng.choice(SHARED_DIRS))
        path = self.rng.choice(SHARED_FILES)
        if do == "unlink":
            return self.act(do, path)
        return self.act(do, path, self.tag(), self.size(), self.rng.random() < 0.3)

    def audit(self):
        self.act("list", self.own(""))
        self.knows(*OWN_FILES, OWN_TMP)

    def work(self, until):
        self.audit()
        while time.monotonic() < until:
            if self.rng.random() < 0.7:
                self.step_own()
            else:
                self.step_shared()
            time.sleep(self.rng.choice([0, 0, 0.005, 0.03]))
        self.audit()


class Neighbour(Actor):
    """Somebody who works on the PFS past the buffer."""

    def step(self):
        do = self.rng.choices(["put", "append_existing", "unlink", "mkdir", "rmdir"], [4, 4, 2, 2, 1])[0]
        if do in ("mkdir", "rmdir"):
            return self.act(do, self.rng.choice(SHARED_DIRS))
        path = self.rng.choice(SHARED_FILES)
        if do == "put":
            return self.act(do, path, self.tag(), self.size(), False)
        return self.act(do, path, *([self.tag(), self.size()] if do == "append_existing" else []))

    def work(self, until, stop):
        while time.monotonic() < until and not os.path.exists(stop):
            self.step()
            time.sleep(self.rng.choice([0.01, 0.05, 0.2, 0.5]))


def crew(plan):
    """The command of a run: workers, for which it waits or not."""
    children = []
    for worker in plan["workers"]:
        pid = os.fork()
        if pid == 0:
            Worker(worker["name"], plan["root"], worker["log"], worker["seed"]).work(plan["begun"] + worker["seconds"])
            os._exit(0)
        children.append(pid)
    if plan["outlived"]:
        time.sleep(max(plan["begun"] + plan["seconds"] - time.monotonic(), 0))
        return
    for pid in children:
        os.waitpid(pid, 0)


def neighbours(plan):
    children = []
    for one in plan["neighbours"]:
        pid = os.fork()
        if pid == 0:
            Neighbour(one["name"], plan["root"], one["log"], one["seed"]).work(plan["begun"] + one["seconds"], plan["stop"])
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def ballast(path):
    """Takes all space that there is, and what gets free, until it is killed."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    size = 0
    while True:
        for piece in (64 << 20, 4 << 20, 256 << 10, 4096):
            with contextlib.suppress(OSError):
                while True:
                    os.posix_fallocate(fd, size, piece)
                    size += piece
        time.sleep(0.05)


# What may be there: the states that a directory of one worker may have. ---------------------------------------------

DIR = "a directory"
# Any beginning of some bytes that is not shorter than `least`.
Part = collections.namedtuple("Part", "whole least")


def group(world, name):
    return next((one for one in world if name in one[0]), None)


def without(world, name):
    """The world without one name."""
    one = group(world, name)
    if one is None:
        return world
    rest = one[0] - {name}
    return (world - {one}) | ({(rest, one[1])} if rest else set())


def has_parent(world, name):
    parent = os.path.dirname(name)
    return not parent or group(world, parent) is not None


def below(world, dir):
    return [name for names, _ in world for name in names if name.startswith(dir + "/")]


def moved(world, old, new):
    """The world in which a directory and everything below it has another name."""
    def name_of(name):
        return new + name[len(old):] if name == old or name.startswith(old + "/") else name
    return frozenset((frozenset(map(name_of, names)), what) for names, what in world)


def effect(world, do, args):
    """What an operation gives in one state: `ok` or an error, the state after it, and that after a part of it."""
    name = args[0]
    one = group(world, name)
    if do in ("write", "append"):
        if not has_parent(world, name):
            return "ENOENT", world, world
        data = content(args[1], args[2])
        least = 0
        if do == "append" and one:
            assert isinstance(one[1], bytes), "an append to what nobody has read"
            data, least = one[1] + data, len(one[1])
        names = one[0] if one else frozenset([name])
        rest = world - {one}
        return "ok", rest | {(names, data)}, rest | {(names, Part(data, least))}
    if do == "mkdir":
        if one or not has_parent(world, name):
            return ("EEXIST" if one else "ENOENT"), world, world
        new = world | {(frozenset([name]), DIR)}
        return "ok", new, new
    if one is None:
        return "ENOENT", world, world
    if do == "truncate":
        assert isinstance(one[1], bytes), "a truncate of what nobody has read"
        new = (world - {one}) | {(one[0], one[1][: args[1]].ljust(args[1], b"\0"))}
    elif do == "unlink":
        new = without(world, name)
    elif do == "rmdir":
        if below(world, name):
            return "ENOTEMPTY", world, world
        new = without(world, name)
    else:
        to = args[1]
        there = group(world, to)
        if not has_parent(world, to):
            return "ENOENT", world, world
        if do == "link":
            if there:
                return "EEXIST", world, world
            new = (world - {one}) | {(one[0] | {to}, one[1])}
        elif one[1] == DIR:
            if below(world, to):
                return "ENOTEMPTY", world, world
            new = moved(without(world, to), name, to)
        elif to in one[0]:
            new = world
        else:
            world_after = without(world, to)
            new = (world_after - {one}) | {((one[0] - {name}) | {to}, one[1])}
    new = frozenset(new)
    return "ok", new, new


def narrowed(world, name, seen):
    """The state with what was read at a name, or `None` if it can't be that."""
    one = group(world, name)
    if one is None or one[1] == DIR:
        return world if one is None and seen is None else None
    if seen is None:
        return None
    size, _ = seen
    if isinstance(one[1], Part):
        if not one[1].least <= size <= len(one[1].whole) or digest(one[1].whole[:size]) != seen:
            return None
        return (world - {one}) | {(one[0], one[1].whole[:size])}
    return world if digest(one[1]) == seen else None


def describe(what):
    if isinstance(what, Part):
        return f"between {what.least} and {len(what.whole)} bytes of {what.whole[:30]!r}"
    return what if what == DIR else f"{len(what)} bytes, {what[:30]!r}"


def names_of(world):
    return sorted(name for names, _ in world for name in names)


class Model:
    """All states that the directory of a worker may have."""

    def __init__(self, dir, world):
        self.dir, self.worlds = dir, {world}

    def own(self, args):
        prefix = self.dir + "/"
        return [a[len(prefix):] if isinstance(a, str) and a.startswith(prefix) else a for a in args]

    def keep(self, worlds, what, about):
        worlds = {frozenset(world) for world in worlds if world is not None}
        if not worlds:
            may = []
            for world in list(self.worlds)[:4]:
                may.append("; ".join(f"{'='.join(sorted(n))}: {describe(c)}" for n, c in sorted(world, key=lambda g: min(g[0]))))
            raise Broken(f"{self.dir}: {what}\n  what may be there ({len(self.worlds)} states):\n    " + "\n    ".join(may), about)
        self.worlds = worlds
        if len(worlds) > 20000:
            raise RuntimeError(f"{self.dir}: {len(worlds)} states are too many to follow")

    def op(self, op):
        """One operation of the log, which has an outcome or was cut off."""
        do, args, outcome = op["do"], self.own(op["args"]), op.get("done")
        about = {a for a in op["args"] if isinstance(a, str)}
        if do in ("read", "list"):
            if do == "list" and outcome == "ok":
                self.keep((w for w in self.worlds if names_of(w) == op["gave"]), f"a listing at {op['ended']:.3f} gave {op['gave']}", about)
            elif do == "read" and outcome in ("ok", "ENOENT", "ENOTDIR"):
                seen = op["gave"] if outcome == "ok" else None
                self.keep((narrowed(w, args[0], seen) for w in self.worlds), f"a read of {args[0]} at {op['ended']:.3f} gave {seen or outcome}", about)
            return
        effects = [(world, *effect(world, do, args)) for world in self.worlds]
        said = f"{do} {args} at {op['t']:.3f} gave {outcome}"
        if outcome == "ok":
            self.keep((new for _, gives, new, _ in effects if gives == "ok"), said, about)
        elif outcome in SEMANTIC:
            self.keep((world for world, gives, _, _ in effects if gives == outcome), said, about)
        else:
            after = [state for world, _, new, part in effects for state in (world, part, new)]
            self.keep(after, said, about)

    def compare(self, root, when):
        """The PFS as it is, read natively."""
        inodes = collections.defaultdict(set)
        what = {}
        for name in list_all(root / self.dir):
            at = root / self.dir / name
            ino = at.stat().st_ino
            inodes[ino].add(name)
            what[ino] = DIR if at.is_dir() else at.read_bytes()
        seen = frozenset((frozenset(names), what[ino]) for ino, names in inodes.items())
        shown = "; ".join(f"{'='.join(sorted(names))}: {describe(c)}" for names, c in sorted(seen, key=lambda g: min(g[0])))
        def is_it(world):
            found = {names: c for names, c in seen}
            return len(world) == len(seen) and all(
                names in found and (found[names] == c or isinstance(c, Part) and isinstance(found[names], bytes)
                and c.least <= len(found[names]) and c.whole.startswith(found[names])) for names, c in world)
        fits = [seen for world in self.worlds if is_it(world)]
        self.keep(fits, f"{when}, but the PFS has: {shown}", {self.dir})


# What must be found somewhere: each acknowledged content in the shared directory. ------------------------------------


def may_lead_nowhere(op, shared):
    """May the path of this operation have led to a file that was gone? A removal of which the PFS said that it failed may have been made,
    and for a second the client goes on showing the name."""
    def is_doubtful(other, is_worker):
        fails = other.get("done", "") != "ok" and other.get("done") not in SEMANTIC
        return fails and not is_worker and other["do"] in ("put", "unlink") and other["args"][0] == op["args"][0]
    return any(is_doubtful(other, is_worker) and other["t"] < op["ended"] < other["ended"] + 2 for other, is_worker in shared)


class Claim:
    def __init__(self, op, is_worker):
        self.op, self.is_worker = op, is_worker
        self.path, self.tag, size = op["args"][:3]
        self.bytes = content(self.tag, size)

    def is_excused(self, op, is_worker, drained_from):
        """May this other operation have destroyed it? `drained_from`: the first moment at which it may be on the PFS."""
        if op is self.op or op["args"][0] != self.path or op["ended"] <= self.op["t"]:
            return False
        if op["do"] in ("mkdir", "rmdir") or op.get("done") in SEMANTIC:
            return False
        replaces = op["do"] in ("put", "unlink")
        if not self.is_worker:
            return is_worker or replaces
        if is_worker:
            return replaces
        # An append may have been made in place, on the PFS.
        return replaces and (self.op["do"] == "append" or op["ended"] >= drained_from)

    def say(self):
        who = "a worker" if self.is_worker else "a neighbour"
        return f"{self.tag}: {self.op['do']} of {len(self.bytes)} bytes at {self.path} by {who}, {self.op['t']:.3f} to {self.op['ended']:.3f}"


def covers(listed, path):
    return path == listed or path.startswith(listed + "/")


# Processes. ---------------------------------------------------------------------------------------------------------


def born(pid):
    """When a process has begun, in ticks; `None` if there is none or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def processes(verb, root):
    """Processes of a verb of forebay over our own buffer."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                if len(words) > 2 and words[1] == verb.encode() and str(root).encode() in words and born(int(entry)):
                    found.append(int(entry))
    return found


def send(pid, sig):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sig)


def parent_of(pid):
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


# File systems. ------------------------------------------------------------------------------------------------------


class Mount:
    """A new file system at a folder, which goes at the end."""

    def __init__(self, base, name, kind, size, slow=None):
        self.at, self.kind, self.disk, self.served = base / name, kind, base / f"{name}.img", None
        self.at.mkdir(parents=True)
        if kind == "tmpfs":
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", self.at], check=True)
        elif kind == "ext4":
            with self.disk.open("wb") as file:
                file.truncate(size)
            subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.disk], check=True)
            subprocess.run(["mount", "-o", "loop", self.disk, self.at], check=True)
        elif kind == "fuse":
            self.served = subprocess.Popen([slow, "--latency-us", "200", self.at], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.served.stdout.readline()

    def weather(self, line):
        print(line, file=self.served.stdin, flush=True)
        self.served.stdout.readline()

    def end(self):
        for _ in range(20):
            if subprocess.run(["umount", self.at], check=False, stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.5)
        else:
            subprocess.run(["umount", "-l", self.at], check=False)
        if self.served:
            self.served.stdin.close()
            self.served.stdout.read()
            self.served.wait()
        with contextlib.suppress(OSError):
            self.disk.unlink()


# Rounds. ------------------------------------------------------------------------------------------------------------


class Soak:
    """One stage after the other: new file systems, and some rounds on them."""

    def __init__(self, args, base):
        self.args, self.base = args, base
        self.rng = random.Random(args.seed)
        self.counts = collections.Counter()
        self.begun = time.monotonic()
        self.round, self.stage = 0, 0
        self.events, self.started = [], []
        self.pfs = self.storage = None
        self.sockets = base / "s"
        self.sockets.mkdir(mode=0o700)

    def say(self, text):
        self.events.append(f"{time.monotonic():.3f} {text}")

    # A stage.

    def begin_stage(self, kind):
        self.stage += 1
        self.kind, self.dir = kind, self.base / f"stage{self.stage}"
        self.dir.mkdir()
        self.events.clear()
        self.storage = Mount(self.dir, "storage", "ext4", STORAGE_BYTES)
        self.pfs = Mount(self.dir, "pfs", kind, PFS_BYTES, Path(self.args.forebay).with_name("forebay-slow-pfs"))
        self.root = self.pfs.at / "buffer"
        self.local = self.storage.at / "forebay"
        self.local.mkdir()
        self.claims, self.history = {}, []
        self.models = []
        for n in range(WORKERS):
            at = self.root / f"w{n}"
            (at / "d").mkdir(parents=True)
            (at / "a").write_bytes(content(f"first.a{n}", 3000))
            (at / "d/a").write_bytes(content(f"first.d{n}", 100))
            os.link(at / "a", at / "b")
            world = {(frozenset("ab"), content(f"first.a{n}", 3000)), (frozenset(["d"]), DIR)}
            world.add((frozenset(["d/a"]), content(f"first.d{n}", 100)))
            self.models.append(Model(f"w{n}", frozenset(world)))
        for dir in SHARED_DIRS:
            (self.root / dir).mkdir(parents=True)

    def end_stage(self):
        self.kill_all()
        for mount in (self.pfs, self.storage):
            if mount:
                mount.end()
        self.pfs = self.storage = None

    def kill_all(self):
        """Ends all that this soak has started."""
        if self.pfs and self.pfs.served:
            with contextlib.suppress(OSError):
                self.pfs.weather("ok")
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.started = []
        if self.pfs:
            for verb in ("run", "bridge", "drain"):
                for pid in processes(verb, self.root):
                    send(pid, signal.SIGKILL)
            for pid in self.worker_pids():
                send(pid, signal.SIGKILL)
            deadline = time.monotonic() + 20
            while any(processes(verb, self.root) for verb in ("run", "bridge")) and time.monotonic() < deadline:
                time.sleep(0.05)

    # Commands.

    def forebay(self, verb, *options, name=None, tail=()):
        command = [self.args.forebay, verb, "--buffer", self.root, "--storage", self.local, *options, *tail]
        out = self.logs / f"{name or verb}.out"
        # Other bridges of this user are none of ours.
        env = {**os.environ, "FOREBAY_RECONNECT_S": "4", "FOREBAY_LOG_DIR": str(self.logs), "XDG_RUNTIME_DIR": str(self.sockets)}
        with out.open("wb") as stdout, out.with_suffix(".err").open("wb") as stderr:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=env, cwd="/", start_new_session=True)
        process.out, process.err = out, out.with_suffix(".err")
        self.started.append(process)
        self.say(f"{verb} {' '.join(map(str, options))} starts as {process.pid}")
        return process

    def python(self, what, argument):
        process = subprocess.Popen([sys.executable, __file__, what, argument], stdin=subprocess.DEVNULL)
        self.started.append(process)
        return process

    def await_end(self, process, what):
        try:
            code = process.wait(LONGEST_END_S)
        except subprocess.TimeoutExpired:
            raise Broken(f"{what} has not ended for {LONGEST_END_S} s, and the PFS works") from None
        self.say(f"{what} ends with {code}")
        return code

    def await_gone(self, find, what):
        deadline = time.monotonic() + LONGEST_END_S
        while found := find():
            if time.monotonic() > deadline:
                raise Broken(f"{what} {found} have not ended for {LONGEST_END_S} s, and the PFS works")
            time.sleep(0.02)

    # Chaos.

    def victims(self, kind):
        if kind == "front":
            return [self.run.pid] if self.run.poll() is None else []
        if kind == "keeper":
            return [pid for pid in processes("run", self.root) if pid != self.run.pid]
        if kind == "worker":
            alive = self.worker_pids()
            return [self.rng.choice(alive)] if alive else []
        if kind == "all":
            return [pid for one in ("bridge", "front", "keeper", "drain") for pid in self.victims(one)] + self.worker_pids()
        return processes(kind, self.root)

    def worker_pids(self):
        found = []
        for log in self.dir.glob("round*/w*.log"):
            with contextlib.suppress(OSError, ValueError), log.open() as lines:
                hello = json.loads(lines.readline())
                if born(hello["hello"]) == hello["born"]:
                    found.append(hello["hello"])
        return found

    def do_event(self, event):
        kind, *more = event
        if kind == "signal":
            victim, sig = more
            pids = self.victims(victim)
            for pid in pids:
                send(pid, sig)
            self.bridge_ended |= bool(pids) and victim != "worker"
            if pids:
                self.say(f"{sig.name} to {victim} {pids}")
                self.counts[f"{sig.name} {victim}"] += sig != signal.SIGCONT
            # The command may end by that, and then the run drains, if it is one that does.
            ends = victim not in ("bridge", "worker") or victim == "worker" and not set(self.worker_pids()) - set(pids)
            if pids and ends and self.drained_from < float("inf"):
                self.drained_from = min(self.drained_from, time.monotonic())
        elif kind == "drain":
            self.drains.append(self.forebay("drain", *more, name=f"drain{len(self.drains)}"))
            self.drained_from = min(self.drained_from, time.monotonic())
        elif kind == "ballast":
            at, mount = more
            if at == "begins":
                self.say(f"the disk of {mount.at.name} is full")
                self.counts[f"full disk: {mount.at.name}"] += 1
                self.weights.append((self.python("--ballast", str(mount.at / "ballast")), mount.at / "ballast"))
            else:
                self.lighten()
        elif kind == "weather":
            self.say(f"the PFS: {more[0]}")
            if more[0] != "ok":
                self.counts[f"PFS: {more[0].split()[0]}"] += 1
            if more[0].startswith("estale"):
                self.stale_since = min(self.stale_since, time.monotonic())
            self.pfs.weather(more[0])

    def lighten(self):
        for process, path in self.weights:
            process.kill()
            process.wait()
            with contextlib.suppress(OSError):
                path.unlink()
            self.say(f"{path} is gone")
        self.weights = []

    def schedule(self, seconds):
        """Events with their moments, in seconds since the round began."""
        rng, events = self.rng, []
        span = seconds + 2.5
        KILL, TERM, INT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT
        for _ in range(rng.choice([0, 1, 1, 2, 3, 5])):
            victim = rng.choices(["bridge", "front", "keeper", "worker", "all"], [5, 1, 1, 2, 1])[0]
            events.append((rng.uniform(0.2, span), "signal", victim, KILL))
        if rng.random() < 0.2:
            events.append((rng.uniform(0.2, span), "signal", rng.choice(["front", "bridge", "keeper", "drain"]), rng.choice([TERM, INT])))
        if rng.random() < 0.15:
            at = rng.uniform(0.2, span)
            events += [(at, "signal", "bridge", signal.SIGSTOP), (at + rng.uniform(0.1, 3), "signal", "bridge", signal.SIGCONT)]
        for _ in range(rng.choice([0, 0, 1, 2])):
            at = rng.uniform(0.3, span)
            events.append((at, "drain", *rng.choice([[], [], ["--keep"]])))
            if rng.random() < 0.5:
                events.append((at + rng.uniform(0.02, 0.7), "signal", rng.choice(["drain", "drain", "bridge"]), rng.choice([KILL, KILL, INT])))
        if rng.random() < 0.3:
            at = rng.uniform(0.3, span)
            full = rng.choice([self.storage, self.storage, self.pfs if self.kind != "fuse" else self.storage])
            events += [(at, "ballast", "begins", full), (at + rng.uniform(0.5, 4), "ballast", "ends", full)]
        if self.kind == "fuse" and rng.random() < 0.7:
            for _ in range(rng.choice([1, 1, 2])):
                at = rng.uniform(0.1, span)
                line = rng.choice(["eio", "eio 7", "estale", "estale 7", "hang"])
                long = LONGEST_HANG_S if line == "hang" and rng.random() < 0.15 else rng.uniform(0.3, 4)
                events += [(at, "weather", line), (at + long, "weather", "ok")]
        return sorted(events, key=lambda event: event[0])

    # A round.

    def one_round(self):
        rng = self.rng
        self.round += 1
        self.logs = self.dir / f"round{self.round}"
        self.logs.mkdir()
        self.drains, self.weights, self.drained_from = [], [], float("inf")
        self.stale_since = float("inf")
        begun, seconds = time.monotonic() + 0.3, rng.uniform(1.5, 6)
        self.say(f"round {self.round}")
        outlived = rng.random() < 0.25
        options = rng.choice([[], [], [], ["--no-drain"], ["--keep"]])
        options = options + (["--no-wait"] if outlived and rng.random() < 0.5 else [])
        options += ["--no-record"]
        # Another bridge drains then.
        self.bridge_ended = "--no-drain" in options
        events = self.schedule(seconds)
        plan = {"root": str(self.root), "begun": begun, "seconds": seconds, "outlived": outlived, "stop": str(self.logs / "stop")}
        plan["workers"] = [
            {"name": f"w{n}.{self.round}", "log": str(self.logs / f"w{n}.log"), "seed": rng.random(),
             "seconds": seconds + (rng.uniform(0.5, 5) if outlived else 0)} for n in range(WORKERS)]
        plan["neighbours"] = [
            {"name": f"n{n}.{self.round}", "log": str(self.logs / f"n{n}.log"), "seed": rng.random(), "seconds": 120}
            for n in range(NEIGHBOURS if rng.random() < 0.8 else 0)]
        (self.logs / "plan").write_text(json.dumps(plan))
        report = self.logs / "report.json"
        others = self.python("--neighbours", str(self.logs / "plan"))
        self.run = self.forebay("run", *options, "--report", report, tail=["--", sys.executable, __file__, "--crew", self.logs / "plan"])
        if "--no-drain" not in options:
            self.drained_from = begun + seconds - 0.1
        for at, *event in events:
            while (rest := begun + at - time.monotonic()) > 0:
                time.sleep(min(rest, 0.1))
            self.do_event(event)
        if self.kind == "fuse":
            self.do_event(["weather", "ok"])
        self.do_event(["signal", "bridge", signal.SIGCONT])
        self.lighten()
        code = self.await_end(self.run, "forebay run")
        self.drained_from = min(self.drained_from, time.monotonic())
        for drain in self.drains:
            self.await_end(drain, "forebay drain")
        self.await_gone(self.worker_pids, "workers")
        (self.logs / "stop").touch()
        self.await_end(others, "the neighbours")
        self.await_gone(lambda: processes("run", self.root), "keepers of runs")
        self.read_logs()
        self.judge_run(code, report, options)
        self.settle()
        self.counts["rounds"] += 1
        self.started = [process for process in self.started if process.poll() is None]

    def read_logs(self):
        """What everybody has done, and what may be there now."""
        shared = []
        for log in sorted(self.logs.glob("[wn][0-9]*.log")):
            is_worker = log.name[0] == "w"
            ops = []
            for line in log.read_bytes().splitlines():
                try:
                    line = json.loads(line)
                except ValueError:
                    continue
                if "do" in line:
                    ops.append({**line, "who": log.stem, "ended": float("inf")})
                elif "done" in line:
                    ops[-1].update(done=line["done"], gave=line["gave"], ended=line["t"])
            for op in ops:
                # The kernel repeats what fails with ESTALE, and half of that was carried out the first time.
                if not is_worker and op.get("done") == "ENOENT" and op["ended"] >= self.stale_since:
                    op["done"] = "ESTALE"
            self.history += ops
            self.counts["operations acknowledged"] += sum(op.get("done") == "ok" and op["do"] not in ("read", "list") for op in ops)
            self.counts["reads checked"] += sum(op.get("done") == "ok" and op["do"] in ("read", "list") for op in ops)
            self.counts["operations that failed or were cut off"] += sum(op.get("done", "") != "ok" and op.get("done") not in SEMANTIC for op in ops)
            for op in ops:
                if op["args"][0].startswith(SHARED):
                    shared.append((op, is_worker))
                else:
                    self.models[int(log.stem[1:])].op(op)
        for op, is_worker in shared:
            counts = op.get("done") == "ok" and (op["do"] in ("put", "append") or op["do"] == "append_existing" and op["gave"])
            if counts and not (op["do"] == "append_existing" and may_lead_nowhere(op, shared)):
                self.claims[op["args"][1]] = Claim(op, is_worker)
        earlier = float("-inf")
        for claim in list(self.claims.values()):
            is_new = any(op is claim.op for op, _ in shared)
            drained_from = self.drained_from if is_new else earlier
            if any(claim.is_excused(op, is_worker, drained_from) for op, is_worker in shared):
                del self.claims[claim.tag]

    def judge_run(self, code, report, options):
        """What a run says at its end is true."""
        if code < 0 or not report.exists() or not report.stat().st_size:
            return
        said = json.loads(report.read_text())
        drain = said["drain"]
        if drain is None:
            if "--no-drain" not in options:
                raise Broken("a run without --no-drain says that it has not drained")
            return
        if drain["complete"] != (code != 75):
            raise Broken(f"a run ends with {code}, and says complete: {drain['complete']}")
        if drain["complete"] and not said["going_on"]:
            self.counts["runs that said: left nothing"] += 1
            self.compare(f"the run has said that it left nothing, exit status {code}")
        if not drain["complete"] and drain["counters"]["state"] == "done" and not drain["left"]:
            raise Broken(f"a run ends with {code} and lists nothing")

    def compare(self, when):
        for model in self.models:
            model.compare(self.root, when)

    def settle(self):
        """Drains until everything is on the PFS, and settles conflicts."""
        vain = 0
        # By path: the side that is tried first.
        self.first_sides = {}
        for n in range(MOST_DRAINS):
            process = self.forebay("drain", "--json", name=f"last{n}")
            code = self.await_end(process, "forebay drain")
            if code not in (0, 75):
                raise Broken(f"forebay drain ends with {code}, with a PFS that works: {process.err.read_text()}")
            said = json.loads(process.out.read_text())
            left = said["left"]
            if (code == 0) != said["complete"] or (code == 75 and not left and said["counters"]["state"] == "done"):
                raise Broken(f"forebay drain ends with {code} and says: {said}")
            self.look_for_claims([one["path"] for one in left])
            if code == 0:
                break
            gone = {one["path"] for one in left if one["reason"] == "no-directory" and one["path"].startswith(SHARED)}
            gone = {path for path in gone if not (self.root / path).parent.exists()}
            made_again = sorted(path for path in gone if self.rng.random() < 0.5)
            changed = {one["path"] for one in left if one["reason"] in ("changed", "taken", "other-directory")}
            changed = sorted(changed | gone.difference(made_again))
            self.say(f"left: {[(one['path'], one['reason'], one['operation'], one['cause']) for one in left]}")
            if changed or made_again:
                self.take(changed, n)
                self.make_way(made_again)
                continue
            vain += 1
            if vain == MOST_VAIN_DRAINS:
                raise Broken(f"{vain} drains in a row, with a PFS that works, have left: {left}", {one["path"] for one in left})
        else:
            raise Broken(f"{MOST_DRAINS} drains, and each conflict settled, still leave: {left}", {one["path"] for one in left})
        self.compare("forebay drain has ended with 0")
        leftovers = [path for path in list_all(self.root) if "/.forebay-" in f"/{path}"]
        if leftovers:
            raise Broken(f"forebay drain has ended with 0 and leaves on the PFS {leftovers}")
        self.await_gone(lambda: processes("bridge", self.root), "bridges that nobody uses")
        if self.rng.random() < 0.3:
            fsck = subprocess.run([self.args.forebay, "fsck", "--storage", self.local], capture_output=True, text=True, check=False)
            if fsck.returncode:
                raise Broken(f"forebay fsck after a complete drain ends with {fsck.returncode}: {fsck.stdout}{fsck.stderr}")

    def take(self, changed, n):
        """Settles conflicts, each for a side by chance. What is refused for one side is tried for the next."""
        sides = ["ours", "theirs", "both"]
        by_side = collections.defaultdict(list)
        for path in changed:
            is_own = not path.startswith(SHARED)
            # Nobody else was in a worker's own directory. A bridge that comes after another one may be in doubt: it does not
            # know what was written in place on the PFS, nor what was in a directory of which a part is gone.
            if is_own and not self.bridge_ended:
                raise Broken(f"a drain says that others have changed {path}, and nobody has", {path})
            self.counts["conflicts in doubt" if is_own else "conflicts settled"] += 1
            first = self.first_sides.setdefault(path, self.rng.randrange(len(sides)))
            by_side["ours" if is_own else sides[(first + n) % len(sides)]].append(path)
        for side, paths in by_side.items():
            process = self.forebay("drain", "--json", "--take", side, *paths, name=f"take{n}-{side}")
            code = self.await_end(process, f"forebay drain --take {side}")
            if code not in (0, 1, 75):
                raise Broken(f"forebay drain --take {side} ends with {code}: {process.err.read_text()}", paths)
            for claim in list(self.claims.values()):
                loses = side == ("theirs" if claim.is_worker else "ours")
                if loses and any(covers(path, claim.path) for path in paths):
                    del self.claims[claim.tag]

    def make_way(self, gone):
        """Does natively what `--take` does not: directories come back that others have removed under what is ours."""
        for dir in sorted({(self.root / path).parent for path in gone}):
            self.say(f"{dir} is made again")
            self.counts["directories made again"] += 1
            dir.mkdir()

    def look_for_claims(self, left):
        """Each acknowledged content is in some file of the PFS, or ours is still in the buffer, and listed."""
        files, lost = {}, []
        for path in list_all(self.root / SHARED):
            at = self.root / SHARED / path
            if at.is_file():
                files[f"{SHARED}/{path}"] = at.read_bytes()
        for claim in self.claims.values():
            where = [path for path, found in files.items() if claim.bytes in found]
            if where:
                claim.path = claim.path if claim.path in where else where[0]
            elif claim.is_worker and any(covers(path, claim.path) for path in left):
                continue
            elif self.is_in_the_moment(claim):
                self.counts["changes of neighbours lost in the last moment"] += 1
                lost.append(claim.tag)
            else:
                raise Broken(f"acknowledged and lost: {claim.say()}; left in the buffer: {left}", {claim.path})
        self.counts["contents found"] += len(self.claims) - len(lost)
        for tag in lost:
            del self.claims[tag]

    def is_in_the_moment(self, claim):
        """May it be the documented loss: a change of something that a drain was just about to replace or remove?"""
        lost = self.counts["changes of neighbours lost in the last moment"]
        is_during_drain = claim.op["ended"] >= self.drained_from
        return (not claim.is_worker and is_during_drain
                and (lost + 1) * ROUNDS_OF_A_LOST_MOMENT <= self.counts["rounds"])

    # The account of a broken promise.

    def account(self, e):
        lines = [f"BROKEN in round {self.round} (stage {self.stage}, PFS: {self.kind}, seed {self.args.seed}): {e}", ""]
        about = e.about if isinstance(e, Broken) else set()
        def concerns(op):
            names = [a for a in op["args"] if isinstance(a, str)]
            return any(covers(a, name) or covers(name, a) for a in about for name in names if "/" in name or name == SHARED)
        ops = sorted((op for op in self.history if concerns(op)), key=lambda op: op["t"])
        lines.append(f"Operations on {sorted(about)}, the last ones:")
        for op in ops[-60:]:
            lines.append(f"  {op['t']:.3f} to {op['ended']:.3f} {op['who']} {op['do']} {op['args']}: {op.get('done', 'cut off')} {op.get('gave') or ''}")
        lines += ["", "What happened:"] + [f"  {event}" for event in self.events[-80:]]
        for log in sorted(self.local.rglob("bridge.log")):
            lines += ["", f"The end of {log}:"] + [f"  {line}" for line in log.read_text(errors="replace").splitlines()[-40:]]
        for log in sorted(self.logs.glob("*.err"), key=lambda log: log.stat().st_mtime):
            text = log.read_text(errors="replace").splitlines()[-25:]
            lines += ["", f"The end of {log.name}:"] + [f"  {line}" for line in text]
        return "\n".join(lines)

    def keep_evidence(self, account):
        kept = Path(self.args.keep or tempfile.mkdtemp(prefix="forebay-soak-"))
        kept = kept / f"seed{self.args.seed}-round{self.round}"
        kept.mkdir(parents=True, exist_ok=True)
        (kept / "account").write_text(account)
        for name, at in (("logs", self.dir), ("pfs", self.root), ("storage", self.local)):
            ignored = "pfs.img storage.img pfs storage" if name == "logs" else ""
            skip = [f"--exclude=./{one}" for one in ignored.split()]
            subprocess.run(["tar", "-C", at, "--xattrs", "--xattrs-include=*", *skip, "-cf", kept / f"{name}.tar", "."], check=False, stderr=subprocess.DEVNULL)
        return kept

    def summary(self):
        lines = [f"{time.monotonic() - self.begun:.0f} s, seed {self.args.seed}, {self.stage} stages"]
        return "\n".join(lines + [f"  {n:8} {what}" for what, n in sorted(self.counts.items()) if n])

    def soak(self, kinds):
        until = self.begun + self.args.seconds
        while time.monotonic() < until:
            kind = kinds[self.stage % len(kinds)]
            try:
                self.begin_stage(kind)
                for _ in range(ROUNDS_OF_A_STAGE):
                    if time.monotonic() < until:
                        self.one_round()
                if not self.args.quiet:
                    print(f"{time.monotonic() - self.begun:6.0f} s  round {self.round}, {kind}: {self.counts['operations acknowledged']} operations acknowledged", flush=True)
            except (Broken, AssertionError, RuntimeError, OSError, ValueError, KeyError) as e:
                if self.pfs and self.pfs.served:
                    self.pfs.weather("ok")
                text = self.account(e) + ("" if isinstance(e, Broken) else "\n" + traceback.format_exc())
                kept = self.keep_evidence(text)
                print(f"{text}\n\n{self.summary()}\n\nThe evidence is in {kept}", flush=True)
                return 1
            finally:
                self.end_stage()
            shutil.rmtree(self.dir)
        print(f"No promise was broken in {self.summary()}")
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--dir", default=None, help="where the images are made")
    parser.add_argument("--keep", help="where the evidence of a failure goes; default: a new folder in /tmp")
    parser.add_argument("--pfs", nargs="*", choices=["tmpfs", "ext4", "fuse"], help="kinds of PFS; default: all in turn")
    parser.add_argument("--quiet", action="store_true")
    for hidden in ("--crew", "--neighbours", "--ballast"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.crew:
        return crew(json.loads(Path(args.crew).read_text()))
    if args.neighbours:
        return neighbours(json.loads(Path(args.neighbours).read_text()))
    if args.ballast:
        return ballast(args.ballast)
    if os.geteuid() != 0:
        return print("skipped: only root can mount the file systems of the soak")
    args.forebay = str(Path(args.forebay).resolve())
    kinds = args.pfs or ["tmpfs", "ext4", "fuse"]
    if "fuse" in kinds and not (os.path.exists("/dev/fuse") and Path(args.forebay).with_name("forebay-slow-pfs").exists()):
        print("skipped: rounds on a PFS that fails and hangs: there is no /dev/fuse, or no forebay-slow-pfs beside forebay")
        kinds.remove("fuse")
    if args.seed is None:
        args.seed = random.randrange(1 << 32)
    print(f"seed {args.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    base = Path(tempfile.mkdtemp(prefix="forebay-soak-", dir=args.dir)).resolve()
    try:
        return Soak(args, base).soak(kinds)
    finally:
        shutil.rmtree(base, ignore_errors=True)


sys.exit(main())
