"""h5py: write, append, resize, read, and a second process that reads."""
import os
import subprocess
import sys

import h5py
import numpy as np


def say(*what):
    print(*what, flush=True)


with h5py.File("data.h5", "w") as f:
    f.attrs["made"] = "here"
    g = f.create_group("run/one")
    g.create_dataset("x", data=np.arange(100000).reshape(100, 1000), chunks=(10, 1000), compression="gzip")
    g.create_dataset("grows", shape=(10,), maxshape=(None,), dtype="f8", chunks=(16,))
    f["soft"] = h5py.SoftLink("/run/one/x")
with h5py.File("data.h5", "r+") as f:
    d = f["run/one/grows"]
    d.resize((1000,))
    d[:] = np.arange(1000.0)
    del f["soft"]
with h5py.File("data.h5", "r") as f:
    say(sorted(f["run/one"]), int(f["run/one/x"][:].sum()), float(f["run/one/grows"][-1]), dict(f.attrs))
with h5py.File("other.h5", "w", libver="latest") as f:
    f["link"] = h5py.ExternalLink("data.h5", "/run/one/x")
with h5py.File("other.h5", "r") as f:
    say(f["link"].shape)
reader = "import h5py; f = h5py.File('data.h5', 'r'); print(f['run/one/x'][99, 999])"
say(subprocess.run([sys.executable, "-c", reader], capture_output=True, text=True).stdout)
with h5py.File("data.h5", "r"):
    # HDF5 locks what it has open: a writer beside a reader must be refused here as elsewhere.
    try:
        h5py.File("data.h5", "a").close()
        say("opened twice")
    except OSError:
        say("refused")
with h5py.File("core.h5", "w", driver="core") as f:
    f["x"] = np.ones(10)
with h5py.File("split", "w", driver="split") as f:
    f["x"] = np.ones(10)
say(sorted(n for n in os.listdir(".")))
with h5py.File("swmr.h5", "w", libver="latest") as f:
    d = f.create_dataset("x", shape=(0,), maxshape=(None,), dtype="i4")
    f.swmr_mode = True
    with h5py.File("swmr.h5", "r", libver="latest", swmr=True) as r:
        d.resize((5,))
        d[:] = 7
        d.flush()
        r["x"].id.refresh()
        say(r["x"][:].tolist())
