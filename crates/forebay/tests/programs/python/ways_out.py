"""Random paths through the buffer and out of it, by links, `..`, working directories and descriptors.

`ways_out.py STEPS SEED...` changes a tree at random, in $BUFFER and in $OUTSIDE, and says at each step what a call with such a path
came to. Files hold the number of the step that made them, so a wrong file shows. Names are few, so paths meet.

`link` and `rename` from one side to the other are two file systems in the buffer, and one natively. So they are not made
natively; in the buffer they must fail.
"""
import errno
import os
import random
import stat
import sys

BUFFER, OUTSIDE = os.environ["BUFFER"], os.environ["OUTSIDE"]
IS_BUFFERED = "FOREBAY_BUFFER" in os.environ
NAMES = "abcdefg"
OUT = os.path.basename(OUTSIDE)
RUN = os.path.basename(BUFFER)
MANY_SLASHES = ["/", "//", "/./"]


def short(text):
    return text.replace(BUFFER, "$B").replace(OUTSIDE, "$O").replace(os.path.dirname(BUFFER), "$T")


def is_below(root, path):
    return path == root or path.startswith(root + "/")


class Steps:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.number = 0
        self.dirfd = None

    def name(self):
        return self.random.choice(NAMES)

    def path(self, kind):
        """A path by way of the buffer. At each step it goes to something that is there, up, or to what may not be there."""
        pick = self.random
        start = pick.choice(["absolute", "absolute", "relative", "relative", "beside", "doubtful"])
        # The last one is a way to the buffer only if the name is no link.
        doubtful = OUTSIDE + "/" + self.name() + "/../../" + RUN
        path = {"absolute": BUFFER, "relative": ".", "beside": OUTSIDE + "/../" + RUN, "doubtful": doubtful}[start]
        self.by_a_link = False
        for _ in range(pick.randint(1, 9)):
            path += ("/" if pick.random() < 0.93 else pick.choice(MANY_SLASHES)) + self.step(path)
        if pick.random() < (0.2 if kind == "look" else 0.85):
            while kind != "look" and not os.path.isdir(path) and pick.random() < 0.8:
                path = os.path.dirname(path)
            path += "/" + self.name()
        if path.startswith("./") and pick.random() < 0.9:
            path = path[2:]
        return path + pick.choice([""] * 10 + ["/", "//"])

    def step(self, path):
        pick = self.random
        kind = pick.choice(["there", "there", "there", "there", "up", "up", "up", "name", "dot"])
        at = os.path.realpath(path)
        if is_below(BUFFER, at):
            self.by_a_link = False
        if kind == "dot":
            return "."
        if kind == "name" or not os.path.isdir(at):
            return self.name() if pick.random() < 0.5 else ".."
        if at == os.path.dirname(BUFFER):
            # A path that reaches the buffer by a link outside goes past the library.
            return OUT if self.by_a_link or pick.random() < 0.7 else RUN
        if not is_below(BUFFER, at) and not is_below(OUTSIDE, at):
            return "."
        there = [name for name in sorted(os.listdir(at)) if name in NAMES]
        if kind == "up" or not there:
            return ".."
        name = pick.choice(there)
        beside = os.path.join(at, name)
        if os.path.islink(beside):
            leads_to = os.path.normpath(os.path.join(at, os.readlink(beside)))
            self.by_a_link |= is_below(OUTSIDE, at) or leads_to != os.path.realpath(leads_to)
        return name

    def side(self, path):
        """Where the last name of the path is: in the buffer, outside, or where nothing may be changed."""
        bare = path.rstrip("/")
        parent, last = os.path.split(bare)
        at = self.end(parent or ("/" if path.startswith("/") else "."), os.O_DIRECTORY)
        if at is None:
            return "nowhere"
        for side in (BUFFER, OUTSIDE):
            if is_below(side, at):
                # The name of the root and of what is above it is another directory's.
                return side if last not in ("", ".", "..") or at != side else None
        return None

    def end(self, path, flags=0):
        """The path without links of what is there. (`realpath` of Python takes `..` after a file.)"""
        try:
            fd = os.open(path, os.O_PATH | flags)
        except OSError:
            return None
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            here = os.open(".", os.O_RDONLY)
            os.fchdir(fd)
            at = os.getcwd()
            os.fchdir(here)
            os.close(here)
        else:
            at = os.readlink("/proc/self/fd/%d" % fd)
        os.close(fd)
        return at

    def text(self):
        """The text of a symbolic link in the buffer."""
        pick = self.random
        return pick.choice([
            self.name(),
            self.name() + "/" + self.name(),
            "../" + self.name(),
            "../../" + OUT + "/" + self.name(),
            "../" + OUT + "/" + self.name(),
            OUTSIDE + "/" + self.name(),
            OUTSIDE,
            BUFFER + "/" + self.name(),
            BUFFER + "/" + self.name() + "/../../" + OUT,
            OUTSIDE + "/../" + RUN + "/" + self.name(),
            "..",
            "/",
        ])

    # ---- looks ----

    def about(self, attr):
        kind = stat.S_IFMT(attr.st_mode)
        return oct(attr.st_mode), attr.st_size if stat.S_ISREG(kind) else None

    def look(self, path):
        call = self.random.choice(["stat", "lstat", "readlink", "read", "list", "realpath", "access", "dirfd", "chdir", "twice"])
        if call == "stat":
            return call, self.about(os.stat(path))
        if call == "lstat":
            return call, self.about(os.lstat(path))
        if call == "readlink":
            return call, os.readlink(path)
        if call == "read":
            with open(path) as file:
                return call, file.read()
        if call == "list":
            found = sorted(os.listdir(path))
            # What else is in the folder of the test is nobody's.
            return call, [name for name in found if name in NAMES]
        if call == "realpath":
            return call, os.path.realpath(path, strict=True)
        if call == "access":
            return call, os.access(path, os.W_OK), os.access(path, os.F_OK, follow_symlinks=False)
        if call == "twice":
            return call, os.path.samestat(os.stat(path), os.stat(path)), os.path.samefile(path, os.path.realpath(path))
        if call == "dirfd":
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            if self.dirfd is not None:
                os.close(self.dirfd)
            self.dirfd = fd
            return call, "open"
        os.chdir(path)
        return call, os.getcwd()

    # ---- changes ----

    def change(self, path):
        side = self.side(path)
        if side is None:
            return "spared",
        call = self.random.choice(["write", "write", "append", "truncate", "mkdir", "mkdir", "mkdir", "symlink", "symlink", "unlink", "rmdir",
                                   "chmod", "replace", "replace"])
        dirfd = self.dirfd if not path.startswith("/") and self.random.random() < 0.3 else None
        if dirfd is not None and self.seen_from(dirfd, path) is None:
            return "spared",
        if call in ("write", "append"):
            flags = os.O_WRONLY | os.O_CREAT | self.random.choice([0, os.O_EXCL, os.O_NOFOLLOW])
            fd = os.open(path, flags | (os.O_APPEND if call == "append" else os.O_TRUNC), 0o644, dir_fd=dirfd)
            os.write(fd, b"%d\n" % self.number)
            os.close(fd)
            return call, "done"
        if call == "truncate":
            os.truncate(path, self.random.randint(0, 3))
        elif call == "mkdir":
            os.mkdir(path, dir_fd=dirfd)
        elif call == "symlink":
            # One from outside into the buffer goes past the library.
            os.symlink(self.text() if side == BUFFER and dirfd is None else self.name(), path, dir_fd=dirfd)
        elif call == "replace":
            # The PFS goes on to have what was there.
            os.unlink(path, dir_fd=dirfd)
            os.mkdir(path, dir_fd=dirfd)
        elif call == "unlink":
            os.unlink(path, dir_fd=dirfd)
        elif call == "rmdir":
            self.go_home()
            if self.side(path) is None:
                return "spared",
            os.rmdir(path)
        else:
            os.chmod(path, self.random.choice([0o644, 0o755]) if not os.path.isdir(path) else 0o755)
        return call, "done"

    def seen_from(self, dirfd, path):
        here = os.open(".", os.O_RDONLY)
        try:
            os.fchdir(dirfd)
            return self.side(path)
        finally:
            os.fchdir(here)
            os.close(here)

    def go_home(self):
        """What is removed is neither the working directory nor open."""
        os.chdir(BUFFER)
        if self.dirfd is not None:
            os.close(self.dirfd)
        self.dirfd = None

    def two(self, old, new):
        sides = self.side(old), self.side(new)
        if None in sides:
            return "spared",
        call = self.random.choice(["rename", "rename", "link", "link-follow"])
        if call == "rename" and os.path.isdir(new):
            self.go_home()
            sides = self.side(old), self.side(new)
            if None in sides:
                return "spared",
        if call == "link-follow" or call == "link" and old.endswith("/"):
            # What is linked is where the last link leads.
            old = os.path.join(BUFFER, old) if call == "link-follow" else old
            at = self.end(old)
            sides = "nowhere" if at is None else self.side(at), sides[1]
        makes = {
            "rename": lambda: os.rename(old, new),
            "link": lambda: os.link(old, new),
            "link-follow": lambda: os.link(old, new, src_dir_fd=self.home, follow_symlinks=True),
        }
        if call != "rename" and sides[0] == BUFFER and not self.is_file(old, call == "link-follow"):
            # The library refuses a further name for other things of the PFS.
            return "spared",
        if "nowhere" in sides:
            # It fails: for what is wrong with either path, or because these are two file systems.
            try:
                makes[call]()
            except OSError:
                return call, "fails"
        is_across = sides[0] != sides[1]
        if is_across and not IS_BUFFERED:
            return call, "across"
        try:
            makes[call]()
        except OSError:
            if is_across:
                return call, "across"
            raise
        return (call, "done across") if is_across else (call, "done")

    def is_file(self, path, follow):
        try:
            return stat.S_ISREG(os.stat(path, follow_symlinks=follow).st_mode)
        except OSError:
            return True

    def run(self, steps):
        os.chdir(BUFFER)
        self.home = os.open(BUFFER, os.O_RDONLY | os.O_DIRECTORY)
        for self.number in range(steps):
            if self.number % 25 == 0:
                self.go_home()
            kind = self.random.choice(["look", "look", "change", "change", "two", "two"])
            said = [self.number]
            try:
                paths = [self.path(kind) for _ in range(2 if kind == "two" else 1)]
                said += [short(path) for path in paths]
                said += getattr(self, kind)(*paths)
            except OSError as error:
                said += [kind, errno.errorcode[error.errno]]
            print(short(" ".join(map(str, said))), flush=True)
        self.go_home()
        os.close(self.home)


for seed in sys.argv[2:]:
    print("seed", seed, flush=True)
    Steps(int(seed)).run(int(sys.argv[1]))
