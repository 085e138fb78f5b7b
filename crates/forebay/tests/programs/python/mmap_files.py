"""Mapped files: shared and private, old and new, grown and shared with a child."""
import mmap
import os


def say(*what):
    print(*what, flush=True)


with open("new", "w+b") as f:
    f.truncate(1 << 20)
    with mmap.mmap(f.fileno(), 0) as m:
        m[0:5] = b"hello"
        m[-5:] = b"world"
        m.flush()
    say(os.pread(f.fileno(), 5, 0), os.pread(f.fileno(), 5, (1 << 20) - 5))

with open("project/data/block", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
    m[100:104] = b"abcd"
    say(m.find(b"abcd"), len(m), m[98:106])
    f.seek(200)
    f.write(b"written")
    f.flush()
    say(m[198:210])
    m.resize(400000)
    m[399990:400000] = b"0123456789"
say(os.path.getsize("project/data/block"), open("project/data/block", "rb").read()[-10:])

with open("project/data/numbers", "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
    say(m.readline(), m.rfind(b"20000"), len(m))
with open("project/data/numbers", "r+b") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
    m[0:1] = b"X"
    say(m[0:1], os.pread(f.fileno(), 1, 0))

with open("shared", "w+b") as f:
    f.truncate(4096)
    with mmap.mmap(f.fileno(), 4096) as m:
        pid = os.fork()
        if pid == 0:
            m[10:20] = b"from child"
            os._exit(0)
        os.waitpid(pid, 0)
        say(m[10:20])
        os.unlink("shared")
        m[0:4] = b"last"
        say(os.pread(f.fileno(), 4, 0))

with open("a", "w+b") as f:
    f.truncate(8192)
    m = mmap.mmap(f.fileno(), 8192)
m[4096:4100] = b"kept"  # The descriptor is closed; the mapping lives on.
os.rename("a", "b")
m.close()
say(open("b", "rb").read()[4096:4100])
