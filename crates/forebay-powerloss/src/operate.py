"""Carries out operations (src/model.rs) and says so to the mark file: "begin N" before, "ack N" after.

usage: operate.py OPS.json FIRST TREE MARK
"""
import ctypes
import json
import mmap
import os
import sys
import time

ops, number, tree, mark = json.load(open(sys.argv[1])), int(sys.argv[2]), sys.argv[3], sys.argv[4]
mark = os.open(mark, os.O_WRONLY)
libc = ctypes.CDLL(None, use_errno=True)
os.chdir(tree)


def filling(at, count, tag):
    text = b"%08x\n" % tag
    start = at % len(text)
    return (text * (count // len(text) + 2))[start : start + count]


def put(op):
    data = filling(op["at"], op["bytes"], op["tag"])
    flags = os.O_RDWR | os.O_CREAT
    if op["sync"] == "osync":
        flags |= os.O_SYNC
    if op["how"] == "direct":
        flags |= os.O_DIRECT
    fd = os.open(op["path"], flags, 0o644)
    if op["how"] == "mmap":
        with mmap.mmap(fd, os.fstat(fd).st_size) as view:
            view[op["at"] : op["at"] + op["bytes"]] = data
            if op["sync"] != "none":
                view.flush()
    else:
        # Anonymous memory begins at a page, as O_DIRECT wants it.
        buffer = mmap.mmap(-1, len(data))
        buffer.write(data)
        if os.pwritev(fd, [buffer], op["at"]) != len(data):
            raise OSError("short write")
    if op["sync"] == "fsync":
        os.fsync(fd)
    if op["sync"] == "fdatasync":
        os.fdatasync(fd)
    os.close(fd)


def by_descriptor(path, call):
    fd = os.open(path, os.O_RDONLY)
    call(fd)
    os.close(fd)


def syncfs(fd):
    # Python has no call for it.
    if libc.syncfs(fd) != 0:
        raise OSError(ctypes.get_errno(), "syncfs")


def falloc(op):
    fd = os.open(op["path"], os.O_RDWR)
    os.posix_fallocate(fd, op["at"], op["bytes"])
    os.close(fd)


calls = {
    "creat": lambda op: os.close(os.open(op["path"], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)),
    "mkdir": lambda op: os.mkdir(op["path"]),
    "put": put,
    "falloc": falloc,
    "truncate": lambda op: os.truncate(op["path"], op["bytes"]),
    "link": lambda op: os.link(op["from"], op["to"]),
    "unlink": lambda op: os.unlink(op["path"]),
    "rmdir": lambda op: os.rmdir(op["path"]),
    "rename": lambda op: os.rename(op["from"], op["to"]),
    "setxattr": lambda op: os.setxattr(op["path"], "user.t", b"%d" % op["tag"]),
    "removexattr": lambda op: os.removexattr(op["path"], "user.t"),
    "fsync": lambda op: by_descriptor(op["path"], os.fsync),
    "fdatasync": lambda op: by_descriptor(op["path"], os.fdatasync),
    "sync": lambda op: os.sync(),
    "syncfs": lambda op: by_descriptor(op["path"], syncfs),
    "pause": lambda op: time.sleep(op["ms"] / 1000),
    "end": lambda op: None,
}
for op in ops:
    os.write(mark, b"begin %d" % number)
    calls[op["op"]](op)
    os.write(mark, b"ack %d" % number)
    number += 1
