#!/usr/bin/python3
"""Programs that have the problem that a finding of `forebay report` is about, and the same mended.

    findings.py NAME prepare|bad|mended DIR       one process, or several that it starts

Both forms produce the same bytes or read the same. `prepare` makes the files that they read; it is not measured.
"""

import compileall
import ctypes
import os
import random
import sys
import threading
import time

MIB = 1 << 20
RECORDS = 300_000
RECORD = b"x" * 100
WORKERS = 2
CHECKPOINTS = 6
CHECKPOINT_BLOCKS = 50
COMPUTE_SECONDS = 1.5
SYNCING = 4
RECORD_PIECE = 16 << 10


def opened(folder, name, flags=os.O_CREAT | os.O_WRONLY):
    return os.open(f"{folder}/{name}", flags, 0o644)


def make(folder, name, size):
    fd = opened(folder, name)
    block = os.urandom(MIB)
    for _ in range(size // MIB):
        os.write(fd, block)
    os.fsync(fd)
    os.close(fd)


def forget(folder, name):
    """Takes a file out of the page cache, so that both forms read it from the disk."""
    fd = opened(folder, name, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def in_workers(work, workers=WORKERS):
    """Runs it in some processes at once."""
    pids = []
    for rank in range(workers):
        pid = os.fork()
        if pid == 0:
            work(rank)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0


def small_writes(folder, mended):
    fd = opened(folder, "log")
    held = bytearray()
    for _ in range(RECORDS):
        if mended:
            held += RECORD
            if len(held) >= 4 * MIB:
                os.write(fd, held)
                held.clear()
        else:
            os.write(fd, RECORD)
    os.write(fd, held)
    os.close(fd)


def small_reads(folder, mended):
    fd = opened(folder, "input", os.O_RDONLY)
    held, at, count = b"", 0, 0
    while True:
        if mended:
            if at >= len(held):
                held, at = os.read(fd, 4 * MIB), 0
            piece = held[at : at + 128]
            at += 128
        else:
            piece = os.read(fd, 128)
        if not piece:
            break
        count += 1
    os.close(fd)
    assert count == 32 * MIB // 128


def random_reads(folder, mended):
    forget(folder, "input")
    blocks = list(range(32 * MIB // 4096))
    random.Random(1).shuffle(blocks)
    if mended:
        blocks.sort()
    fd = opened(folder, "input", os.O_RDONLY)
    for block in blocks:
        os.pread(fd, 4096, block * 4096)
    os.close(fd)


def random_writes(folder, mended):
    blocks = list(range(16 * MIB // 4096))
    random.Random(1).shuffle(blocks)
    if mended:
        blocks.sort()
    fd = opened(folder, "out")
    data = b"y" * 4096
    for block in blocks:
        os.pwrite(fd, data, block * 4096)
    os.fsync(fd)
    os.close(fd)


def read_write_switches(folder, mended):
    fd = opened(folder, "input", os.O_RDWR)
    records = range(0, 16 * MIB, 256)
    if mended:
        data = os.pread(fd, 16 * MIB, 0)
        os.pwrite(fd, b"".join(data[at : at + 256][::-1] for at in records), 0)
    else:
        for at in records:
            os.pwrite(fd, os.pread(fd, 256, at)[::-1], at)
    os.close(fd)


def repeated_reads(folder, mended):
    fd = opened(folder, "input", os.O_RDONLY)
    data = bytearray(64 * MIB)
    view = memoryview(data)
    for epoch in range(20):
        if epoch == 0 or not mended:
            for at in range(0, 64 * MIB, MIB):
                os.preadv(fd, [view[at : at + MIB]], at)
    os.close(fd)


def read_by_many(folder, mended):
    size = 128 * MIB
    forget(folder, "input")

    def work(rank):
        fd = opened(folder, "input", os.O_RDONLY)
        part = size // WORKERS if mended else size
        for at in range(0, part, MIB):
            os.pread(fd, MIB, (rank * part + at) % size if mended else at)
        os.close(fd)

    in_workers(work)


def frequent_fsync(folder, mended):
    fd = opened(folder, "journal")
    for _ in range(500):
        os.write(fd, RECORD)
        if not mended:
            os.fsync(fd)
    os.fsync(fd)
    os.close(fd)


def fsync_bursts(folder, mended):
    """Processes that each write a checkpoint in five steps, and wait until it is on the disk."""

    def work(rank):
        block = os.urandom(32 * MIB)
        for step in range(5):
            fd = opened(folder, f"checkpoint{step}.{rank}")
            os.write(fd, block)
            if not mended:
                os.fsync(fd)
            os.close(fd)

    in_workers(work, SYNCING)


def scattered_records(folder, advise, pieces):
    """Reads 3,000 records of 32 KiB, at random places of a file that is not in memory, in so many pieces each."""
    forget(folder, "input")
    fd = opened(folder, "input", os.O_RDONLY)
    if advise:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    size = 2 * RECORD_PIECE
    # Never two that are neighbours.
    places = random.Random(1).sample(range(256 * MIB // size // 2), 3000)
    for place in places:
        for piece in range(pieces):
            os.pread(fd, size // pieces, place * 2 * size + piece * size // pieces)
    os.close(fd)


def read_ahead(folder, mended):
    """Two adjacent reads make the kernel read ahead. It is told not to."""
    scattered_records(folder, mended, 2)


def read_ahead_by_pieces(folder, mended):
    """The same; mended, each record is read in one piece."""
    scattered_records(folder, False, 1 if mended else 2)


def stdio_bulk(folder, mended):
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    block = b"z" * 1024
    if mended:
        fd = opened(folder, "stream")
        for _ in range(64):
            os.write(fd, block * 4096)
        os.close(fd)
        return
    stream = ctypes.c_void_p(libc.fopen(f"{folder}/stream".encode(), b"w"))
    for _ in range(256 * MIB // 1024):
        libc.fwrite(block, 1, 1024, stream)
    libc.fclose(stream)


def metadata_time(folder, mended):
    """A stat storm: does the file exist? 200,000 times."""
    path = f"{folder}/input"
    size = None
    for _ in range(200_000):
        if size is None or not mended:
            size = os.stat(path).st_size
    assert size


def repeated_opens(folder, mended):
    fd = None
    for _ in range(40_000):
        if fd is None or not mended:
            fd = opened(folder, "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.write(fd, RECORD)
        if not mended:
            os.close(fd)
    if mended:
        os.close(fd)


def many_small_files(folder, mended):
    one = opened(folder, "all") if mended else None
    for n in range(10_000):
        fd = one if mended else opened(folder, f"part{n:05}")
        os.write(fd, RECORD * 20)
        if not mended:
            os.close(fd)
    if mended:
        os.close(one)


def misaligned_writes(folder, mended):
    """Blocks of two processes, side by side in one file: off and on the block of the file system."""
    shift = 0 if mended else 100

    def work(rank):
        fd = opened(folder, "shared")
        data = b"r" * 4096
        for n in range(20_000):
            os.pwrite(fd, data, (n * WORKERS + rank) * 4096 + shift)
        os.close(fd)

    in_workers(work)


def writes_of_many_sizes(folder, mended):
    """Twenty files of 8 MiB, written by pieces of 512 B to 512 KiB: what a request costs can be told from them."""
    for n in range(20):
        size = 512 << (2 * (n % 6))
        piece = bytes(4 * MIB if mended else size)
        fd = opened(folder, f"sizes{n}")
        for _ in range(8 * MIB // len(piece)):
            os.write(fd, piece)
        os.close(fd)


def h5_small_writes(folder, mended):
    """Rows that are appended to a data set one by one, beside blocks of rows."""
    import h5py
    import numpy

    rows, columns = 30_000, 16
    values = numpy.arange(rows * columns, dtype="f8").reshape(rows, columns)
    with h5py.File(f"{folder}/table.h5", "w") as file:
        table = file.create_dataset("table", (rows, columns), "f8")
        step = rows // 10 if mended else 1
        for at in range(0, rows, step):
            table[at : at + step] = values[at : at + step]


def import_many(folder, mended):
    """Many modules, beside one that holds the same."""
    sys.path.insert(0, f"{folder}/modules")
    sys.dont_write_bytecode = True
    if mended:
        __import__("all_of_them")
    else:
        for n in range(1000):
            __import__(f"m{n:04}")


def write_bursts(folder, mended):
    """A checkpoint after each step of a computation: the next step waits for it, or begins at once."""
    block = os.urandom(128 << 10)

    def write(step):
        fd = opened(folder, f"checkpoint{step}")
        for _ in range(CHECKPOINT_BLOCKS):
            os.write(fd, block)
        os.close(fd)

    writing = None
    for step in range(CHECKPOINTS):
        time.sleep(COMPUTE_SECONDS)
        if not mended:
            write(step)
            continue
        if writing:
            writing.join()
        writing = threading.Thread(target=write, args=(step,))
        writing.start()
    if writing:
        writing.join()


def prepare(name, folder):
    sizes = {
        "small-reads": 32 * MIB,
        "random-reads": 32 * MIB,
        "read-write-switches": 16 * MIB,
        "repeated-reads": 64 * MIB,
        "read-by-many": 128 * MIB,
        "read-ahead": 256 * MIB,
        "read-ahead-by-pieces": 256 * MIB,
        "metadata-time": MIB,
    }
    if name in sizes:
        make(folder, "input", sizes[name])
    if name == "import-storm":
        os.mkdir(f"{folder}/modules")
        code = [f"class C{n}:\n    value = {n}\n" for n in range(1000)]
        for n, text in enumerate(code):
            with open(f"{folder}/modules/m{n:04}.py", "w") as file:
                file.write(text)
        with open(f"{folder}/modules/all_of_them.py", "w") as file:
            file.write("".join(code))
        # As they are when a program runs for the second time.
        compileall.compile_dir(f"{folder}/modules", quiet=1)


PROGRAMS = {
    "small-writes": small_writes,
    "small-reads": small_reads,
    "random-reads": random_reads,
    "random-writes": random_writes,
    "read-write-switches": read_write_switches,
    "repeated-reads": repeated_reads,
    "read-by-many": read_by_many,
    "frequent-fsync": frequent_fsync,
    "fsync-bursts": fsync_bursts,
    "read-ahead": read_ahead,
    "read-ahead-by-pieces": read_ahead_by_pieces,
    "stdio-bulk": stdio_bulk,
    "metadata-time": metadata_time,
    "repeated-opens": repeated_opens,
    "many-small-files": many_small_files,
    "misaligned-writes": misaligned_writes,
    "import-storm": import_many,
    "writes-of-many-sizes": writes_of_many_sizes,
    "h5-small-writes": h5_small_writes,
    "write-bursts": write_bursts,
}


def main():
    name, form, folder = sys.argv[1:]
    if form == "prepare":
        prepare(name, folder)
    else:
        PROGRAMS[name](folder, form == "mended")


if __name__ == "__main__":
    main()
