#!/usr/bin/python3
"""What path calls and transfers cost natively, by the library and by the mount, in turns in one run. Needs root.

    benches/mount.py --forebay target/release/forebay [--dir DIR] [--rounds N]

DIR is on the disk that is measured (default: /var/tmp). Each figure is the median over the rounds, in microseconds for
each call; the fastest and the slowest round are in brackets. Python's own time for a call is in all columns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

MIB = bytes(1 << 20)


def each(count, call):
    begun = time.perf_counter()
    for n in range(count):
        call(n)
    return (time.perf_counter() - begun) / count * 1e6


def measure():
    """One round in the working directory, which holds d/old."""
    os.makedirs("new", exist_ok=True)
    with open("new/large", "wb") as file:
        for _ in range(16):
            file.write(MIB)
    large = os.open("new/large", os.O_RDWR)

    def open_and_close(_):
        os.close(os.open("d/old", os.O_RDONLY))

    def make(n):
        os.close(os.open(f"new/{n}", os.O_CREAT | os.O_WRONLY, 0o644))

    figures = {
        "stat": each(1000, lambda _: os.stat("d/old")),
        "stat, no such file": each(1000, lambda _: os.path.exists("d/none")),
        "fstat": each(1000, lambda _: os.fstat(large)),
        "open + close": each(1000, open_and_close),
        "create + close": each(500, make),
        "unlink": each(500, lambda n: os.unlink(f"new/{n}")),
        "pread 4 KiB": each(2000, lambda n: os.pread(large, 4096, n % 4096 << 12)),
        "pwrite 4 KiB": each(2000, lambda n: os.pwrite(large, MIB[:4096], n % 4096 << 12)),
        "pread 1 MiB": each(200, lambda n: os.pread(large, 1 << 20, n % 16 << 20)),
        "pwrite 1 MiB": each(200, lambda n: os.pwrite(large, MIB, n % 16 << 20)),
    }
    os.close(large)
    os.unlink("new/large")
    os.rmdir("new")
    return figures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--forebay", required=True)
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    forebay = os.path.abspath(arguments.forebay)
    rounds = {"native": [], "preload": [], "mount": []}
    with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:
        for number in range(arguments.rounds):
            for way, found in rounds.items():
                root = f"{folder}/{way}{number}"
                os.makedirs(f"{root}/d")
                with open(f"{root}/d/old", "wb") as file:
                    file.write(MIB)
                command = [sys.executable, os.path.abspath(__file__), "--measure"]
                if way != "native":
                    place = ["--buffer", root, "--storage", f"{folder}/storage"]
                    command = [forebay, "run", "--no-record", "--via", way, *place, "--", *command]
                ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
                found.append(json.loads(ran.stdout))
    print("| us for each call | native | preload | mount |\n|---|---|---|---|")
    for name in rounds["native"][0]:
        cells = []
        for found in rounds.values():
            values = [one[name] for one in found]
            cells.append(f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})")
        print(f"| {name} |", " | ".join(cells), "|")


if __name__ == "__main__":
    if sys.argv[1:] == ["--measure"]:
        print(json.dumps(measure()))
    else:
        main()
