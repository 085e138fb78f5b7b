"""What descriptors promise: offsets, locks, dup, O_APPEND, sendfile, holes, xattrs, passing."""
import array
import errno
import fcntl
import os
import select
import socket
import struct


def say(*what):
    print(*what, flush=True)


def attempt(what, call):
    try:
        say(what, "->", call())
    except OSError as error:
        say(what, "->", errno.errorcode[error.errno])


for path in ("new", "project/src/text"):
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, b"0123456789")
    copy = os.dup(fd)
    os.lseek(copy, 3, os.SEEK_SET)
    say(os.read(fd, 2), os.lseek(fd, 0, os.SEEK_CUR))
    os.pwrite(fd, b"XY", 100)
    say(os.lseek(fd, 0, os.SEEK_END), os.preadv(fd, [bytearray(4)], 0), os.pwritev(fd, [b"ab", b"cd"], 50))
    other = os.open(path, os.O_RDONLY)
    say(os.lseek(other, 0, os.SEEK_CUR), os.path.sameopenfile(fd, other), os.fstat(fd).st_ino == os.stat(path).st_ino)
    os.ftruncate(fd, 60)
    os.fchmod(fd, 0o604)
    os.utime(fd, (5, 6))
    os.fsync(fd)
    os.fdatasync(fd)
    say(oct(os.stat(path).st_mode), os.stat(path).st_mtime, os.stat(path).st_size)
    os.truncate(path, 55)
    say(os.fstat(other).st_size)

    pid = os.fork()
    if pid == 0:
        mine = os.open(path, os.O_RDWR)
        fcntl.flock(mine, fcntl.LOCK_EX)
        fcntl.lockf(mine, fcntl.LOCK_EX, 10, 0)
        os.kill(os.getpid(), 19)
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    attempt("flock", lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
    attempt("lockf", lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5))
    attempt("lockf beside", lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 20))
    os.kill(pid, 18)
    os.waitpid(pid, 0)
    attempt("flock", lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))

    left, right = socket.socketpair()
    socket.send_fds(left, [b"x"], [fd])
    _, (passed,), _, _ = socket.recv_fds(right, 1, 1)
    say(os.pread(passed, 4, 50), passed != fd)
    for d in (copy, other, passed):
        os.close(d)
    os.setxattr(path, "user.note", b"hello")
    os.setxattr(fd, "user.more", b"x" * 100)
    say(sorted(os.listxattr(path)), os.getxattr(fd, "user.note"), sorted(os.listxattr(fd)))
    os.removexattr(path, "user.more")
    attempt("getxattr", lambda: os.getxattr(path, "user.more"))
    attempt("setxattr", lambda: os.setxattr(path, "user.note", b"", os.XATTR_CREATE))
    os.close(fd)

os.mkdir("dir")
os.setxattr("dir", "user.on", b"directory")
say(os.listxattr("dir"), os.listxattr("project"))
a = os.open("append", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
b = os.open("append", os.O_WRONLY | os.O_APPEND)
for i in range(100):
    os.write(a, b"a")
    os.write(b, b"b")
say(os.stat("append").st_size)
source = os.open("project/data/numbers", os.O_RDONLY)
target = os.open("sent", os.O_CREAT | os.O_RDWR)
say(os.sendfile(target, source, 0, 50000), os.copy_file_range(target, target, 1000, 0, 50000), os.stat("sent").st_size)
hole = os.open("hole", os.O_CREAT | os.O_RDWR)
os.pwrite(hole, b"x", 1 << 20)
say(os.lseek(hole, 0, os.SEEK_DATA), os.lseek(hole, 1 << 20, os.SEEK_HOLE))
os.posix_fallocate(hole, 0, 2 << 20)
os.posix_fadvise(hole, 0, 0, os.POSIX_FADV_DONTNEED)
say(os.fstat(hole).st_size)
os.mkfifo("fifo")
r = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
attempt("writer", lambda: os.write(os.open("fifo", os.O_WRONLY | os.O_NONBLOCK), b"through"))
say(select.select([r], [], [], 10)[0] == [r], os.read(r, 100))
attempt("statvfs", lambda: os.statvfs("new").f_bsize == os.statvfs("dir").f_bsize)
attempt("pathconf", lambda: (os.pathconf("new", "PC_NAME_MAX"), os.fpathconf(hole, "PC_PATH_MAX")))
os.closerange(3, 200)
say(open("new").read(10))
