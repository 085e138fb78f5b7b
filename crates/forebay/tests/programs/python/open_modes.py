"""Every way to open a file, on one that was there and on one that is new."""
import errno
import io
import os


def say(*what):
    print(*what, flush=True)


def attempt(what, call):
    try:
        say(what, "->", call())
    except OSError as error:
        say(what, "->", errno.errorcode[error.errno], error.filename)


OLD, NEW = "project/src/text", "new"
for path in (OLD, NEW):
    for mode in ("r", "r+", "x", "a", "a+", "w", "w+", "x+", "rb", "ab"):
        def use():
            with open(path, mode) as f:
                did = []
                if f.writable():
                    did.append(f.write(b"bytes\n" if "b" in mode else f"text {mode}\n"))
                    f.flush()
                if f.readable():
                    f.seek(0)
                    did.append(f.read())
                did.append(f.tell())
                did.append(os.fstat(f.fileno()).st_size)
                return did
        attempt(f"{path} {mode}", use)

flags = {name: getattr(os, name) for name in (
    "O_RDONLY", "O_WRONLY", "O_RDWR", "O_CREAT", "O_EXCL", "O_TRUNC", "O_APPEND", "O_DIRECTORY",
    "O_NOFOLLOW", "O_PATH", "O_CLOEXEC", "O_SYNC", "O_DSYNC", "O_NONBLOCK")}


def opened(path, spelled, mode=0o640):
    value = 0
    for name in spelled.split("|"):
        value |= flags[name]
    fd = os.open(path, value, mode)
    try:
        info = os.fstat(fd)
        import fcntl
        # What led to the file is history: O_NOFOLLOW is of no consequence any more.
        got = fcntl.fcntl(fd, fcntl.F_GETFL) & ~(os.O_NOATIME | os.O_NOFOLLOW)
        return (oct(info.st_mode), oct(got), os.get_inheritable(fd))
    finally:
        os.close(fd)


for path in (OLD, "made", "project", "project/src/soft", "project/src/dangling", "project/src/loop-a",
             "no-such/x", "made/x", "project/src/into-private/key", "", "project/src/text/", "private/"):
    for spelled in ("O_RDONLY", "O_RDWR", "O_WRONLY|O_CREAT", "O_WRONLY|O_CREAT|O_EXCL", "O_RDONLY|O_DIRECTORY",
                    "O_RDONLY|O_NOFOLLOW", "O_PATH", "O_PATH|O_NOFOLLOW", "O_WRONLY|O_APPEND", "O_RDWR|O_SYNC",
                    "O_RDONLY|O_CREAT|O_DIRECTORY"):
        attempt(f"{path!r} {spelled}", lambda: opened(path, spelled))

with open("lines", "w", buffering=1) as f:
    for i in range(10000):
        print(i, file=f)
with open("lines") as f:
    say(sum(int(line) for line in f))
with io.open("lines", "rb", buffering=0) as f:
    f.seek(-6, io.SEEK_END)
    say(f.read())
with open("lines", "r+b") as f:
    f.truncate(100)
    f.seek(1000)
    f.write(b"after a hole")
say(os.path.getsize("lines"), open("lines", "rb").read().count(b"\0"))

before = os.stat(OLD).st_ino
with open(OLD, "r+") as f, open(OLD) as g:
    f.write("both see it")
    f.flush()
    say(g.read(11), os.fstat(f.fileno()).st_ino == os.fstat(g.fileno()).st_ino == os.stat(OLD).st_ino)

with open("unlinked", "w+") as f:
    os.unlink("unlinked")
    f.write("still here")
    f.flush()
    f.seek(0)
    say(f.read(), os.fstat(f.fileno()).st_nlink, os.path.exists("unlinked"))
with open(OLD, "r+") as f:
    os.unlink(OLD)
    f.write("gone but open")
    f.flush()
    f.seek(0)
    say(f.read(13), os.path.exists(OLD))
with open("renamed-while-open", "w") as f:
    os.rename("renamed-while-open", "new-name")
    f.write("arrives under the new name")
say(open("new-name").read())
with open("replaced", "w") as f:
    f.write("old")
g = open("replaced")
with open("replacement", "w") as f:
    f.write("new")
os.replace("replacement", "replaced")
say(g.read(), open("replaced").read())
