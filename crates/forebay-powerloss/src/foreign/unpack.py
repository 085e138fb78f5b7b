"""Unpacks an archive, syncs, removes a part of it, syncs, and says so to the mark file.

usage: unpack.py DIRECTORY MARK ARCHIVE PART
"""
import os
import subprocess
import sys

directory, mark, archive, part = sys.argv[1:]
mark = os.open(mark, os.O_WRONLY)
os.chdir(directory)
steps = [
    lambda: subprocess.run(["tar", "xf", archive], check=True),
    os.sync,
    lambda: subprocess.run(["rm", "-r", part], check=True),
    os.sync,
]
for number, step in enumerate(steps):
    os.write(mark, b"begin %d" % number)
    step()
    os.write(mark, b"ack %d" % number)
