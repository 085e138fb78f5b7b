"""numpy: mapped arrays, .npy and .npz files."""
import os

import numpy as np


def say(*what):
    print(*what, flush=True)


a = np.memmap("map.bin", dtype=np.float64, mode="w+", shape=(500, 400))
a[:] = np.arange(200000).reshape(500, 400)
a.flush()
b = np.memmap("map.bin", dtype=np.float64, mode="r", shape=(500, 400))
say(float(b.sum()), float(b[499, 399]))
c = np.memmap("map.bin", dtype=np.float64, mode="r+", shape=(500, 400))
c[0, 0] = -1
c.flush()
say(float(b[0, 0]), float(np.fromfile("map.bin")[0]))
d = np.memmap("map.bin", dtype=np.float64, mode="c", shape=(500, 400))
d[0, 0] = 99
say(float(b[0, 0]))
pid = os.fork()
if pid == 0:
    c[1, 1] = 12345
    c.flush()
    os._exit(0)
os.waitpid(pid, 0)
say(float(b[1, 1]))
np.save("a.npy", np.arange(1000, dtype=np.int32))
say(int(np.load("a.npy").sum()), int(np.load("a.npy", mmap_mode="r")[-1]))
np.savez_compressed("a.npz", x=np.ones(100), y=np.zeros((3, 3)))
with np.load("a.npz") as z:
    say(sorted(z.files), float(z["x"].sum()))
np.arange(10.0).tofile("raw")
with open("raw", "ab") as f:
    np.arange(5.0).tofile(f)
say(np.fromfile("raw").tolist())
np.savetxt("t.txt", np.eye(3))
say(np.loadtxt("t.txt").tolist())
os.unlink("a.npz")  # A zip holds the time at which it was written.
