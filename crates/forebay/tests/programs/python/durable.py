"""Makes files durable in every way, and prints which calls asked the bridge: one line for each step, with the number
of requests to make names durable and of those for the shared page.

usage: durable.py BUFFER OUTSIDE, where BUFFER has a file `old` on the PFS."""

import array
import ctypes
import json
import mmap
import os
import signal
import socket
import subprocess
import sys

buffer, outside = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
MSYNC, PWRITEV2 = {"x86_64": (26, 328), "aarch64": (227, 287)}[os.uname().machine]
MS_SYNC = 4
number = 0


def requests():
    """Requests that the bridge has counted so far."""
    out = subprocess.check_output([os.environ["FOREBAY"], "status", "--json"])
    counted = json.loads(out)["bridges"][0]["server"]["operations"]
    return counted.get("sync", 0), counted.get("words", 0)


def pending():
    """Changes a name, so that names are not durable."""
    global number
    number += 1
    fd = os.open(f"{buffer}/pending-{number}", os.O_CREAT | os.O_WRONLY)
    os.close(fd)


def durable():
    """Makes all names durable."""
    fd = os.open(buffer, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def step(what, act):
    before = requests()
    act()
    after = requests()
    print(f"{what}: {after[0] - before[0]} {after[1] - before[1]}", flush=True)


def both(what, act):
    """A call, first while names are not durable, then while they are."""
    pending()
    step(what, act)
    durable()
    step(f"{what} again", act)


def by_syscall(call, *arguments):
    assert libc.syscall(*(ctypes.c_long(n) for n in (call, *arguments))) >= 0


def program(*command, **more):
    subprocess.run(command, check=True, **more)


def child(code, fd):
    """Another program that inherits a descriptor and makes no path call in the buffer."""
    command = [sys.executable, "-S", "-E", "-c", code, str(fd)]
    program(*command, pass_fds=[fd], cwd="/")


FSYNC = "import os, sys; os.fsync(int(sys.argv[1]))"
RECEIVE = """
import os, socket, sys
s = socket.socket(fileno=int(sys.argv[1]))
_, fds, _, _ = socket.recv_fds(s, 1, 1)
os.fsync(fds[0])
"""


def in_fork(fd):
    pid = os.fork()
    if pid == 0:
        os.fsync(fd)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def sent(fd):
    mine, theirs = socket.socketpair()
    socket.send_fds(mine, [b"x"], [fd])
    child(RECEIVE, theirs.fileno())


def aio_fsync(fd):
    control = ctypes.create_string_buffer(256)
    ctypes.c_int.from_buffer(control).value = fd
    # sigev_notify: without it, libc would raise signal 0.
    ctypes.c_int.from_buffer(control, 32 + 12).value = 1
    assert libc.aio_fsync(os.O_SYNC, control) == 0, os.strerror(ctypes.get_errno())
    while libc.aio_error(control) == 115:
        pass
    assert libc.aio_return(control) == 0


def opened(flags):
    fd = os.open(f"{buffer}/file", flags)
    if flags & os.O_ACCMODE != os.O_RDONLY:
        os.write(fd, b"y")
    os.close(fd)


def fails(fd):
    try:
        os.fsync(fd)
    except OSError:
        return
    raise AssertionError(f"fsync of {fd} does not fail")


# The first one asks for the page as well. What the bridge has found at its start counts as not durable.
fd = os.open(f"{buffer}/file", os.O_CREAT | os.O_RDWR)
os.write(fd, b"x" * 8192)
step("first fsync", lambda: os.fsync(fd))
step("second fsync", lambda: os.fsync(fd))
step("fsync after a write", lambda: (os.write(fd, b"x"), os.fsync(fd)))
step("fsync after a rename", lambda: (os.rename(f"{buffer}/file", f"{buffer}/moved"), os.fsync(fd)))
step("fsync after a removal", lambda: (os.rename(f"{buffer}/moved", f"{buffer}/file"), os.fsync(fd)))
both("fdatasync", lambda: os.fdatasync(fd))

copy = os.dup(fd)
both("dup", lambda: os.fsync(copy))
both("fork", lambda: in_fork(fd))
both("inherited", lambda: child(FSYNC, fd))
both("sent", lambda: sent(fd))

os.mkdir(f"{buffer}/dir")
directory = os.open(f"{buffer}/dir", os.O_RDONLY)
both("directory", lambda: os.fsync(directory))
root = os.open(buffer, os.O_RDONLY)
both("root", lambda: os.fsync(root))
old = os.open(f"{buffer}/old", os.O_RDONLY)
both("on the PFS", lambda: os.fsync(old))
os.unlink(f"{buffer}/pending-1")

foreign = os.open(f"{outside}/foreign", os.O_CREAT | os.O_RDWR)
both("outside", lambda: os.fsync(foreign))
both("outside inherited", lambda: child(FSYNC, foreign))
both("outside syncfs", lambda: libc.syncfs(foreign))
reader, writer = os.pipe()
both("pipe", lambda: (fails(reader), fails(9999)))

both("O_SYNC", lambda: opened(os.O_WRONLY | os.O_SYNC))
both("O_DSYNC", lambda: opened(os.O_RDWR | os.O_DSYNC))
both("O_RDONLY", lambda: opened(os.O_RDONLY | os.O_SYNC))
both("no O_SYNC", lambda: opened(os.O_WRONLY))
pending()
step("O_CREAT", lambda: os.close(os.open(f"{buffer}/made", os.O_CREAT | os.O_WRONLY | os.O_SYNC)))

memory = mmap.mmap(fd, 4096)
both("msync", lambda: memory.flush())
both("pwritev2", lambda: os.pwritev(fd, [b"z"], 0, os.RWF_DSYNC))
both("pwritev2 without", lambda: os.pwritev(fd, [b"z"], 0, 0))
both("msync by syscall", lambda: by_syscall(MSYNC, ctypes.addressof(ctypes.c_char.from_buffer(memory)), 4096, MS_SYNC))
text = ctypes.create_string_buffer(b"z", 1)
part = (ctypes.c_void_p * 2)(ctypes.addressof(text), 1)
both("pwritev2 by syscall", lambda: by_syscall(PWRITEV2, fd, ctypes.addressof(part), 1, 0, 0, os.RWF_DSYNC))
both("aio_fsync", lambda: aio_fsync(fd))
both("sync", lambda: os.sync())
both("syncfs", lambda: libc.syncfs(fd))

path = f"{buffer}/file"
both("sync(1) file", lambda: program("sync", path))
both("sync(1) data", lambda: program("sync", "-d", path))
both("sync(1) outside", lambda: program("sync", f"{outside}/foreign"))
both("sync(1) fs", lambda: program("sync", "-f", path))
both("sync(1)", lambda: program("sync"))
both("dd", lambda: program("dd", "if=/dev/zero", f"of={path}", "bs=4k", "count=2", "conv=notrunc,fsync", "status=none"))
