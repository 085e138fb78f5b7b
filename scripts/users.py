#!/usr/bin/python3
"""Several users of a buffer of root, who also rename directories past it, judged by what each could do natively. For root.

Each call of a user goes to the buffer over a PFS; what succeeds there is done in a twin of the PFS as well, natively, by the same user.
Renames past the buffer are done in both. So the twin is what there would be without a buffer, and:

- nothing succeeds in the buffer that its user is refused in the twin, nor shows what that user can see nowhere;
- as long as nothing was renamed past the buffer, calls succeed in it that succeed in the twin;
- a drain changes entries only to what they are in the twin, and all of them if it says that nothing is left;
- what was written and is still in the twin is on the PFS or in the storage.

    scripts/users.py [--first 1] [--seeds 200] [--steps 400] [--forebay target/release/forebay] [--pfs DIR] [--storage DIR]

A seed ends early where the two worlds part in a way that is no fault: what was done natively to something that the buffer had not
taken there, or in a directory that the buffer goes on showing where it was. Ends with 1 at the first broken promise, with the fewest
steps that break it.
"""

import argparse
import ctypes
import errno
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile

USERS = [(1001, 1001, [2000]), (1003, 1003, [2000]), (1004, 1004, [])]
NAMES = ["a", "b", "c", "d", "e"]
EXCHANGE, NO_REPLACE = 2, 1
LIBC = ctypes.CDLL(None, use_errno=True)


def rename(one, other, flags=0, dirs=(-100, -100)):
    if LIBC.renameat2(dirs[0], os.fsencode(one), dirs[1], os.fsencode(other), flags):
        raise OSError(ctypes.get_errno(), "")


class Hands:
    """Calls of a user below a directory."""

    def __init__(self, root):
        self.root, self.open = root, {}

    def where(self, base, path):
        return (os.path.join(self.root, path), None) if base is None else (path, self.open[base])

    def do(self, op):
        try:
            return self.act(**op)
        except KeyError:
            return "no descriptor"
        except OSError as e:
            return errno.errorcode[e.errno]

    def act(self, kind, base=None, path="", to_base=None, to="", mode=0, data="", slot=0, flags=0, without=()):
        at, fd = self.where(base, path)
        if kind == "read":
            f = os.open(at, os.O_RDONLY, dir_fd=fd)
            try:
                return os.read(f, 1 << 16).decode()
            finally:
                os.close(f)
        if kind in ("new", "put", "append"):
            how = {"new": os.O_CREAT | os.O_EXCL, "put": os.O_CREAT | os.O_TRUNC, "append": os.O_APPEND}[kind]
            f = os.open(at, os.O_WRONLY | how, mode, dir_fd=fd)
            os.write(f, data.encode())
            os.close(f)
        elif kind == "list":
            f = os.open(at, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
            try:
                return sorted(name for name in os.listdir(f) if not name.startswith(".forebay"))
            finally:
                os.close(f)
        elif kind in ("stat", "lstat"):
            s = os.stat(at, dir_fd=fd, follow_symlinks=kind == "stat")
            size = s.st_size if stat.S_ISREG(s.st_mode) else 0
            return [s.st_mode, s.st_uid, s.st_gid, size]
        elif kind == "access":
            return os.access(at, mode, dir_fd=fd)
        elif kind == "open":
            f = os.open(at, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
            if slot in self.open:
                os.close(self.open[slot])
            self.open[slot] = f
        elif kind == "mkdir":
            os.mkdir(at, mode, dir_fd=fd)
        elif kind == "rmdir":
            os.rmdir(at, dir_fd=fd)
        elif kind == "unlink":
            os.unlink(at, dir_fd=fd)
        elif kind == "symlink":
            os.symlink(data, at, dir_fd=fd)
        elif kind == "readlink":
            return os.readlink(at, dir_fd=fd)
        elif kind == "chmod":
            os.chmod(at, mode, dir_fd=fd)
        elif kind == "utime":
            os.utime(at, (5, mode), dir_fd=fd)
        elif kind == "rename":
            there, there_fd = self.where(to_base, to)
            rename(at, there, flags, (-100 if fd is None else fd, -100 if there_fd is None else there_fd))
        elif kind == "link":
            there, there_fd = self.where(to_base, to)
            os.link(at, there, src_dir_fd=fd, dst_dir_fd=there_fd, follow_symlinks=False)
        elif kind == "probe":
            # May the user change this entry, and what it names?
            parent = os.path.dirname(at) or "."
            try:
                entry = os.stat(at, dir_fd=fd, follow_symlinks=False).st_mode
            except OSError:
                entry = None
            writable = os.access(parent, os.W_OK | os.X_OK, dir_fd=fd)
            return [entry, writable, entry is not None and os.access(at, os.W_OK, dir_fd=fd)]
        elif kind == "walk":
            # All that the user can look at, and read; but for directories with the inodes `without`, and what is right in them.
            seen = []

            def enter(at, fd, shows):
                for name in NAMES:
                    path = os.path.join(at, name)
                    try:
                        s = os.stat(path, dir_fd=fd, follow_symlinks=False)
                        is_dir = stat.S_ISDIR(s.st_mode)
                        size = s.st_size if stat.S_ISREG(s.st_mode) else 0
                        if s.st_ino not in without if is_dir else shows:
                            seen.append([s.st_mode, s.st_uid, s.st_gid, size])
                        if is_dir:
                            enter(path, fd, s.st_ino not in without)
                        elif shows and stat.S_ISREG(s.st_mode):
                            r = os.open(path, os.O_RDONLY, dir_fd=fd)
                            seen.append(os.read(r, 1 << 16).decode())
                            os.close(r)
                    except OSError:
                        pass
            enter(self.root, None, not without)
            for f in self.open.values():
                enter(".", f, os.fstat(f).st_ino not in without)
            return seen
        return "ok"


def worker():
    os.umask(0)
    hands = {}
    for line in sys.stdin:
        root, op = json.loads(line)
        said = hands.setdefault(root, Hands(root)).do(op)
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


class Worker:
    """A user. `PROGRAM`: this file, where each user may read it."""

    PROGRAM = __file__

    def __init__(self, user, before=()):
        uid, gid, groups = user
        groups = ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
        as_user = ["setpriv", "--reuid", str(uid), "--regid", str(gid), *groups]
        self.process = subprocess.Popen(
            [*before, *as_user, sys.executable, "-u", self.PROGRAM, "worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, root, op):
        self.process.stdin.write(json.dumps([root, op]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker has ended at {op}")
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Machine:
    def __init__(self, forebay, pfs, storage, twin, seed, steps):
        self.forebay, self.pfs, self.storage, self.twin = forebay, pfs, storage, twin
        self.random, self.steps = random.Random(seed), steps
        self.log, self.counts, self.bad = [], {}, []
        # Numbers of directories by their inodes on the PFS, and where they are in the twin by their inodes there.
        self.on_pfs, self.in_twin = {}, {}
        self.moved = False
        # What each user could see in directories that a program has made, before others renamed something.
        self.was_seen = {u[0]: [] for u in USERS}
        # What was done, to do it again.
        self.script, self.replayed = [], None

    def prepare(self):
        for root in (self.pfs, self.twin):
            for path, uid, gid, mode in [
                (".", 0, 0, 0o777), ("a", 1001, 1001, 0o755), ("a/a", 1001, 1001, 0o755), ("a/b", 1003, 1003, 0o700),
                ("a/c", 1003, 1003, 0o755), ("a/b/c", 1003, 1003, 0o755), ("b", 1003, 1003, 0o755), ("b/a", 1001, 1001, 0o700),
                ("b/b", 1003, 1003, 0o777), ("b/b/a", 1001, 1001, 0o755), ("c", 0, 2000, 0o2775), ("c/a", 1001, 2000, 0o2775),
                ("c/b", 1003, 2000, 0o2770), ("d", 0, 0, 0o1777), ("d/a", 1001, 1001, 0o755), ("d/b", 1003, 1003, 0o755),
                ("d/c", 1004, 1004, 0o777), ("e", 1004, 1004, 0o711), ("e/a", 1003, 1003, 0o777), ("e/b", 1001, 1001, 0o700),
            ]:
                at = os.path.join(root, path)
                os.makedirs(at, exist_ok=True)
                if path != ".":
                    for name, bits in (("d", 0o644), ("e", 0o600)):
                        f = os.path.join(at, name)
                        if os.path.exists(f):
                            continue
                        with open(f, "w") as out:
                            out.write(f"<{path}/{name}>")
                        os.chown(f, uid, gid)
                        os.chmod(f, bits)
                os.chown(at, uid, gid)
                os.chmod(at, mode)
        self.pair()
        self.first = len(self.on_pfs)

    def pair(self):
        """Which directory of the twin is which one of the PFS: those that are known stay so, and others are found below them by name."""
        was = dict(self.on_pfs)
        twins = {number: inode for inode, number in self.in_twin.items()}
        self.pfs_dirs, self.twin_dirs = self.dirs(self.pfs), self.dirs(self.twin)
        at = {inode: path for path, inode in self.twin_dirs.items()}
        for path, inode in sorted(self.pfs_dirs.items(), key=lambda p: p[0].count("/")):
            if inode in was:
                continue
            if path == "":
                other = self.twin_dirs[""]
            else:
                parent = was.get(self.pfs_dirs[os.path.dirname(path)])
                if parent is None or twins.get(parent) not in at:
                    continue
                there = os.path.join(at[twins[parent]], os.path.basename(path))
                other = self.twin_dirs.get(there)
                if other is None or other in self.in_twin:
                    continue
            number = len(twins)
            was[inode] = self.on_pfs[inode] = number
            twins[number] = other
            self.in_twin[other] = number

    def dirs(self, root):
        found = {"": os.stat(root).st_ino}
        for at, names, _ in os.walk(root):
            for name in names:
                path = os.path.join(at, name)
                if not name.startswith(".forebay") and not os.path.islink(path):
                    found[os.path.relpath(path, root)] = os.lstat(path).st_ino
        return found

    def entries(self, root, numbers):
        """What is where: by the number of a directory that was there first, or the place below one, and the name. A drain may make another
        directory anew."""
        numbers = {inode: number for inode, number in numbers.items() if number < self.first}
        found = {}
        keys = {root: (numbers[os.stat(root).st_ino],)}
        for at, names, files in os.walk(root):
            for name in [*names, *files]:
                if name.startswith(".forebay"):
                    # What is in a directory that waits under a name of a drain is in that directory.
                    path = os.path.join(at, name)
                    number = numbers.get(os.lstat(path).st_ino)
                    if number is not None and name in names:
                        keys[path] = (number,)
                    elif name in names:
                        names.remove(name)
                    continue
                path = os.path.join(at, name)
                about = os.lstat(path)
                kind = stat.S_IFMT(about.st_mode)
                key = (*keys[at], name)
                if kind == stat.S_IFDIR:
                    number = numbers.get(about.st_ino)
                    keys[path] = key if number is None else (number,)
                    what = "dir" if number is None else number
                elif kind == stat.S_IFLNK:
                    what = os.readlink(path)
                else:
                    what = open(path).read()
                found[key] = (kind, what, about.st_uid, about.st_mode & 0o7777 if kind != stat.S_IFLNK else 0)
        return found

    def note(self, *words):
        self.log.append(" ".join(map(str, words)))

    def wrong(self, *words):
        self.note("WRONG", *words)
        self.bad.append(self.log[-1])

    def run(self):
        in_buffer = [self.forebay, "run", "--buffer", self.pfs, "--storage", self.storage, "-q", "--no-record", "--no-drain", "--"]
        subprocess.run([self.forebay, "up", "--buffer", self.pfs, "--storage", self.storage], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.inside = {u[0]: Worker(u, in_buffer) for u in USERS}
        self.outside = {u[0]: Worker(u) for u in USERS}
        try:
            for self.step in range(self.steps if self.replayed is None else len(self.replayed)):
                if self.replayed is not None:
                    user, op = self.replayed[self.step]
                    if op["kind"] == "drain":
                        self.drain()
                    elif op["kind"] == "past":
                        self.past(user, **{k: v for k, v in op.items() if k != "kind"})
                    else:
                        self.carry_out(user, op)
                    if self.bad:
                        break
                    continue
                chance = self.random.random()
                if chance < 0.12:
                    self.rename_past()
                elif chance < 0.14:
                    self.drain()
                else:
                    self.call()
                if self.bad:
                    break
            if not self.bad:
                self.drain()
                self.nothing_is_lost()
        finally:
            for worker in (*self.inside.values(), *self.outside.values()):
                worker.end()
            subprocess.run([self.forebay, "down", "--no-drain", "--buffer", self.pfs],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def some_path(self):
        # Mostly something in a directory that is there.
        if self.random.random() < 0.6:
            some = sorted(self.dirs(self.twin))
            at = self.random.choice(some)
            return os.path.join(at, self.random.choice(NAMES)) if self.random.random() < 0.8 or not at else at
        count = self.random.choice([1, 1, 2, 2, 2, 3, 3])
        return "/".join(".." if self.random.random() < 0.04 else self.random.choice(NAMES) for _ in range(count))

    def some_call(self):
        r = self.random
        kind = r.choices(
            ["read", "new", "put", "append", "list", "stat", "lstat", "access", "open", "mkdir", "rmdir", "unlink", "symlink",
             "readlink", "chmod", "utime", "rename", "link"],
            [8, 12, 5, 4, 6, 5, 2, 2, 8, 8, 2, 4, 3, 1, 4, 1, 12, 4])[0]
        op = {"kind": kind, "base": r.choice([None, None, 0, 1]), "path": self.some_path()}
        if op["base"] is None:
            op["path"] = op["path"].replace("..", "a")
        if kind in ("new", "put"):
            op["mode"] = r.choice([0o644, 0o600, 0o666])
        if kind in ("new", "put", "append"):
            op["data"] = f"<{self.step}>"
        if kind == "mkdir":
            op["mode"] = r.choice([0o755, 0o777, 0o700, 0o1777, 0o2775])
        if kind == "chmod":
            op["mode"] = r.choice([0o755, 0o700, 0o777, 0o711, 0o644, 0o600])
        if kind == "access":
            op["mode"] = r.choice([1, 2, 4])
        if kind == "utime":
            op["mode"] = r.choice([7, 4_000_000_000])
        if kind == "open":
            op["slot"] = r.choice([0, 1])
        if kind == "symlink":
            op["data"] = r.choice(["../a", "../../b", "a/b", "b", "..", "c/a"])
        if kind in ("rename", "link"):
            op["to_base"], op["to"] = r.choice([None, None, 0, 1]), self.some_path()
            if op["to_base"] is None:
                op["to"] = op["to"].replace("..", "a")
        if kind == "rename":
            op["flags"] = r.choice([0, 0, 0, NO_REPLACE, EXCHANGE])
        return op

    CHANGES = {"new", "put", "append", "mkdir", "rmdir", "unlink", "symlink", "chmod", "utime", "rename", "link"}

    def call(self):
        self.carry_out(self.random.choice(USERS)[0], self.some_call())

    def carry_out(self, user, op):
        self.script.append([user, op])
        inside, outside = self.inside[user], self.outside[user]
        kind = op["kind"]
        probes = []
        if kind in self.CHANGES:
            for base, path in ((op["base"], op["path"]), (op.get("to_base"), op.get("to"))):
                if path is not None:
                    probes.append(outside.ask(self.pfs, {"kind": "probe", "base": base, "path": path}))
        said = inside.ask(self.pfs, op)
        if said == "no descriptor":
            return
        failed = said is False or isinstance(said, str) and said.isupper()
        if failed and kind in self.CHANGES:
            self.count(kind, said, "")
            self.note(self.step, user, op, "->", said)
            if not self.moved and outside.ask(self.twin, op) == "ok":
                self.wrong(user, op, "buffer", said, "natively ok")
            return
        natively = outside.ask(self.twin, op)
        self.note(self.step, user, op, "->", said, "" if natively == said else f"twin {natively}")
        self.count(kind, said if failed else "ok", "" if natively == said else "differs")
        if kind == "open" and not failed:
            outside.ask(self.pfs, op)
        if natively == said:
            if said == "ok" and self.moved and kind in self.CHANGES:
                self.compare(user, op)
            return
        if failed:
            # The buffer may refuse or hide more, but only what a rename past it has disturbed.
            if not self.moved and natively != "no descriptor":
                self.wrong(user, op, "buffer", said, "natively", natively)
            if natively == "EACCES" and said not in ("EACCES", "ENOENT"):
                self.count("tells", said, kind)
            return
        if kind == "list" and isinstance(natively, list) and self.moved:
            more = set(said) - set(natively)
            if not more:
                return
            natively = sorted(more)
        if kind in self.CHANGES or kind == "open":
            told = outside.ask(self.pfs, {**op, "kind": "open"}) if kind == "open" else probes
            possible = told == "ok" if kind == "open" else all(self.may(kind, p) for p in probes)
            # What others have moved shows where it was as long as something is left in the buffer; nobody gets further by it.
            is_refused = natively in ("EACCES", "EPERM")
            possible = possible or not is_refused or self.is_in_a_stale_dir(user, op)
        else:
            told = outside.ask(self.pfs, op)
            possible = told == said or kind == "list" and self.may_list(user, op, natively, told)
            if kind in ("stat", "lstat", "read"):
                stale = self.differs(user, op["base"], os.path.dirname(op["path"]) or ".")
                possible = possible or said in self.seen_by(user, stale)
        if not possible:
            self.wrong(user, op, "buffer", said, "natively", natively, "on the PFS", told)
        else:
            self.count(kind, "as on the PFS", "")
            if kind in self.CHANGES or kind == "open":
                # The twin does not know it. What follows would be judged wrongly.
                self.note("diverged")
                raise Diverged

    def may_list(self, user, op, names, on_pfs):
        """Is each of these names on the PFS, or of something that the user can see?"""
        seen = self.seen_by(user, self.differs(user, op["base"], op["path"]))
        for name in set(names) - set(on_pfs if isinstance(on_pfs, list) else []):
            look = {"kind": "lstat", "base": op["base"], "path": os.path.join(op["path"], name)}
            if self.inside[user].ask(self.pfs, look) not in seen:
                return False
        return True

    def differs(self, user, base, path):
        """Does the buffer show something else at this path than there is natively?"""
        look = {"kind": "stat", "base": base, "path": path}
        return self.inside[user].ask(self.pfs, look) != self.outside[user].ask(self.twin, look)

    def seen_by(self, user, is_stale):
        """All that the user can look at. A stale directory, which a program has made, a drain has put on the PFS and others have renamed, goes
        on showing in the buffer as it was."""
        roots = (self.twin, self.pfs)
        now = [seen for root in roots for seen in self.outside[user].ask(root, {"kind": "walk"})]
        return now + self.was_seen[user] if is_stale else now

    def is_in_a_stale_dir(self, user, op):
        is_stale = False
        for base, path in ((op["base"], op["path"]), (op.get("to_base"), op.get("to"))):
            if path is None:
                continue
            parent = os.path.dirname(path) or "."
            look = {"kind": "stat", "base": base, "path": parent}
            said, natively = self.inside[user].ask(self.pfs, look), self.outside[user].ask(self.twin, look)
            if said == natively:
                continue
            if said not in self.seen_by(user, True):
                return False
            is_stale = True
        return is_stale

    def compare(self, user, op):
        """Ends if the call was done to another thing in the buffer than in the twin: what waits elsewhere is not replaced."""
        for base, path in ((op["base"], op["path"]), (op.get("to_base"), op.get("to"))):
            if path is None:
                continue
            look = {"kind": "lstat", "base": base, "path": path}
            said, natively = self.inside[user].ask(self.pfs, look), self.outside[user].ask(self.twin, look)
            if said != natively:
                self.note(user, look, said, "twin", natively)
                self.count(op["kind"], "done to something else", "")
                raise Diverged

    @staticmethod
    def may(kind, probe):
        if not isinstance(probe, list):
            return False
        entry, parent, itself = probe
        if kind in ("chmod", "utime"):
            return entry is not None
        if kind == "append" or kind == "put" and entry is not None:
            return itself
        return parent

    def count(self, *key):
        self.counts[key] = self.counts.get(key, 0) + 1

    def how(self):
        """Whether a promise is broken, and by what."""
        words = [word.strip("',") for word in self.bad[0].split()] if self.bad else []
        return words[1:2] if words[1:2] in (["drain"], ["lost"]) else words[3:4]

    def rename_past(self):
        """A user renames a directory that is on the PFS, past the buffer. The same happens in the twin."""
        r = self.random
        self.pair()
        pfs_at = {self.on_pfs[i]: p for p, i in self.pfs_dirs.items() if i in self.on_pfs}
        in_twin = {self.in_twin[i] for i in self.twin_dirs.values() if i in self.in_twin}
        both = sorted(n for n in pfs_at if n in in_twin and pfs_at[n] != "")
        if len(both) < 2:
            return
        one, other = r.sample(both, 2)
        if r.random() < 0.6:
            flags = EXCHANGE
            pfs_to = pfs_at[other]
        else:
            flags = NO_REPLACE
            pfs_to = os.path.join(pfs_at[other], r.choice(NAMES))
        for user in r.sample([u[0] for u in USERS], len(USERS)):
            if self.past(user, pfs_at[one], pfs_to, flags) == "ok":
                break

    def twin_of(self, path):
        """The same place in the twin, or None: a directory is where it is there, anything else in the directory where it is to be."""
        for at, rest in ((path, ""), (os.path.dirname(path), os.path.basename(path))):
            number = self.on_pfs.get(self.pfs_dirs.get(at))
            there = [p for p, inode in self.twin_dirs.items() if self.in_twin.get(inode, -1) == number]
            if there:
                return os.path.join(self.twin, there[0], rest).rstrip("/")
        return None

    def past(self, user, pfs_at, pfs_to, flags):
        self.pair()
        ends = [self.twin_of(path) for path in (pfs_at, pfs_to)]
        if None in ends:
            return None
        first = [inode for inode, number in self.in_twin.items() if number < self.first]
        for some in self.was_seen:
            self.was_seen[some] += self.outside[some].ask(self.twin, {"kind": "walk", "without": first})
        try:
            rename(*ends, flags)
        except OSError:
            return None
        op = {"kind": "rename", "path": pfs_at, "to": pfs_to, "flags": flags}
        said = self.outside[user].ask(self.pfs, op)
        if said == "ok":
            self.moved = True
            self.script.append([user, {"kind": "past", "pfs_at": pfs_at, "pfs_to": pfs_to, "flags": flags}])
            self.note(self.step, user, "past the buffer", op)
            self.count("past", "ok", flags)
        else:
            rename(*(ends if flags == EXCHANGE else ends[::-1]), flags)
            self.count("past", said, flags)
        return said

    def drain(self):
        self.script.append([0, {"kind": "drain"}])
        self.pair()
        before = self.entries(self.pfs, self.on_pfs)
        done = subprocess.run([self.forebay, "drain", "--buffer", self.pfs, "--storage", self.storage],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.note(self.step, "drain", done.returncode, "\n" + done.stdout if done.returncode else "")
        self.count("drain", done.returncode, "")
        if done.returncode not in (0, 75):
            self.wrong("drain", done.returncode, done.stdout)
        self.pair()
        after = self.entries(self.pfs, self.on_pfs)
        wanted = self.entries(self.twin, self.in_twin)
        all_wanted = None
        for key in sorted(before.keys() | after.keys() | wanted.keys(), key=str):
            b, a, w = before.get(key), after.get(key), wanted.get(key)
            if a == w or (a == b and done.returncode == 75):
                continue
            all_wanted = all_wanted or {(what, uid) for _, what, uid, _ in wanted.values()}
            # What was removed has gone before something else can come there. What is exchanged may wait under a name of the drain, and a directory that a drain has made may go first.
            if a is None and done.returncode == 75 and (b[1:3] not in all_wanted or b[1] in ("dir", *self.aside())):
                continue
            # Where others have moved a directory, what was removed from it counts as removed with it.
            if a == b and w is None and self.moved:
                self.count("drain", "stays", "")
                continue
            self.wrong("drain", done.returncode, key, "was", b, "is", a, "in the twin", w, "\n" + done.stdout)

    def aside(self):
        """What is under names of a drain, or in a directory there: directories by their numbers, and contents of files."""
        found = set()
        for at, names, files in os.walk(self.pfs):
            for name in [*names, *files]:
                path = os.path.join(at, name)
                if "/.forebay" not in path or os.path.islink(path):
                    continue
                found.add(self.on_pfs.get(os.stat(path).st_ino) if name in names else open(path).read())
        return found

    def nothing_is_lost(self):
        wanted = self.entries(self.twin, self.in_twin)
        there = self.entries(self.pfs, self.on_pfs)
        kept = set()
        for at, _, files in os.walk(self.storage):
            for name in files:
                try:
                    data = open(os.path.join(at, name), "rb").read(1 << 16)
                except OSError:
                    continue
                if data.startswith(b"<"):
                    kept.add(data.decode(errors="replace"))
        all_there = {what for kind, what, *_ in there.values() if kind == stat.S_IFREG}
        all_there |= self.aside()
        for key, (kind, what, *_) in wanted.items():
            if kind == stat.S_IFREG and what not in all_there and what not in kept:
                self.wrong("lost", key, what)


class Diverged(Exception):
    pass


def play(options, seed, replayed=None):
    """One seed, or these steps, in new directories."""
    pfs, storage = (tempfile.mkdtemp(prefix="forebay-users-", dir=at) for at in (options.pfs, options.storage))
    for path in (pfs, storage, *(os.path.join(pfs, name) for name in ("pfs", "twin", "run", "home"))):
        os.makedirs(path, exist_ok=True)
        os.chmod(path, 0o755)
    os.environ |= {"XDG_RUNTIME_DIR": os.path.join(pfs, "run"), "HOME": os.path.join(pfs, "home")}
    shutil.copy(__file__, os.path.join(pfs, "users.py"))
    Worker.PROGRAM = os.path.join(pfs, "users.py")
    at = {name: os.path.join(pfs, name) for name in ("pfs", "twin")}
    machine = Machine(options.forebay, at["pfs"], storage, at["twin"], seed, options.steps)
    machine.replayed = replayed
    mask = os.umask(0)
    try:
        machine.prepare()
        machine.run()
    except Diverged:
        machine.count("parted", "", "")
    finally:
        os.umask(mask)
        for path in (pfs, storage):
            shutil.rmtree(path)
    return machine


def shrink(options, machine):
    """Fewer steps that break a promise as well."""
    steps, parts = machine.script, 2
    while len(steps) > 1:
        size = max(1, len(steps) // parts)
        tries = (steps[:i] + steps[i + size :] for i in range(0, len(steps), size))
        fewer = next((less for less in tries if play(options, 0, less).how() == machine.how()), None)
        if fewer is not None:
            steps, parts = fewer, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(parts * 2, len(steps))
    return play(options, 0, steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--forebay", type=os.path.abspath, default="target/release/forebay")
    parser.add_argument("--pfs", default="/dev/shm")
    parser.add_argument("--storage", default="/var/tmp")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("only root can be several users")
    counts = {}
    for seed in range(options.first, options.first + options.seeds):
        machine = play(options, seed)
        for key, count in machine.counts.items():
            counts[key] = counts.get(key, 0) + count
        if machine.bad:
            print(f"seed {seed} breaks a promise:\n{machine.bad[0]}")
            print("\n".join(shrink(options, machine).log))
            sys.exit(1)
    for key in sorted(counts, key=str):
        print(counts[key], *key)


if __name__ == "__main__":
    worker() if sys.argv[1:] == ["worker"] else main()
