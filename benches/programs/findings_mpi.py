#!/usr/bin/python3
"""MPI programs that have the problem that a finding of `forebay report` is about, and the same mended.

    mpiexec -n N findings_mpi.py NAME prepare|bad|mended DIR

Both forms produce the same bytes or read the same. Rank 0 prints the seconds from a barrier before the work to one behind
it, because the start of the ranks takes longer than much of what is measured here.
"""

import os
import sys
import time

from findings import forget, import_many, make, opened

BLOCK = 128 << 10


def world():
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    return comm, comm.Get_size(), comm.Get_rank()


def shared_file(folder, hints=None):
    """A file of all ranks, through MPI-IO."""
    from mpi4py import MPI

    info = MPI.Info.Create()
    for name, value in (hints or {}).items():
        info.Set(name, value)
    mode = MPI.MODE_CREATE | MPI.MODE_RDWR
    return MPI.File.Open(MPI.COMM_WORLD, f"{folder}/shared", mode, info)


def write_own(folder, blocks):
    """Writes so many blocks of a file of this rank."""
    _, _, rank = world()
    fd = opened(folder, f"part{rank}")
    for _ in range(blocks):
        os.write(fd, b"p" * BLOCK)
    os.close(fd)


def independent_writes(folder, mended):
    """Ranks write interleaved small blocks of a shared file: each for itself, and all together."""
    from mpi4py import MPI

    _, ranks, rank = world()
    file = shared_file(folder)
    block, steps = 512, 20_000
    kind = MPI.BYTE.Create_vector(steps, block, block * ranks).Commit()
    data = bytes([rank]) * (block * steps)
    if mended:
        file.Set_view(rank * block, MPI.BYTE, kind)
        file.Write_all(data)
    else:
        for step in range(steps):
            file.Write_at((step * ranks + rank) * block, data[:block])
    file.Close()


def straggler(folder, mended):
    """One rank reads nearly all of a shared file, while the others wait; and equal parts."""
    _, ranks, rank = world()
    blocks = 320
    mine = blocks // ranks if mended else 2 if rank else blocks - 2 * (ranks - 1)
    first = mine * rank if mended or rank == 0 else blocks - 2 * (ranks - rank)
    forget(folder, "input")
    fd = opened(folder, "input", os.O_RDONLY | os.O_DIRECT)
    import mmap

    memory = mmap.mmap(-1, BLOCK)
    for at in range(first, first + mine):
        os.preadv(fd, [memory], at * BLOCK)
    os.close(fd)


def uneven_bytes(folder, mended):
    """One rank has most of the data; and equal parts."""
    _, ranks, rank = world()
    most, others = 232, 32
    equal = (most + others * (ranks - 1)) // ranks
    write_own(folder, equal if mended else most if rank == 3 else others)


def rank_0(folder, mended):
    """Rank 0 writes what all ranks have; and each its own."""
    _, ranks, rank = world()
    blocks = 256
    if mended:
        write_own(folder, blocks // ranks)
    elif rank == 0:
        write_own(folder, blocks)


def idle_tail(folder, mended):
    """When all have written, one rank goes on; and what it writes then is spread over all."""
    comm, ranks, rank = world()
    all_write, one_writes = 64, 192
    write_own(folder, all_write)
    comm.Barrier()
    fd = opened(folder, f"summary{rank}")
    blocks = one_writes // ranks if mended else one_writes if rank == 5 else 0
    for _ in range(blocks):
        os.write(fd, b"s" * BLOCK)
    os.close(fd)


def in_turns(folder, mended):
    """One rank after the other writes its part; and all at once."""
    comm, ranks, rank = world()
    for turn in range(ranks):
        if turn == rank or (mended and turn == 0):
            write_own(folder, 100)
        if not mended:
            comm.Barrier()


def file_per_process(folder, mended):
    """Each rank makes a file in each step; and all ranks open one."""
    comm, _, rank = world()
    for step in range(20):
        fd = opened(folder, f"step{step}" + ("" if mended else f".{rank}"))
        os.pwrite(fd, b"f" * 512, rank * 512)
        os.close(fd)
        comm.Barrier()


def import_storm(folder, mended):
    """All ranks import the same modules, each by itself; or all in one."""
    import_many(folder, mended)


def strided(folder, hints, is_collective, block, blocks):
    """All ranks write every n-th block of a shared file in one call."""
    from mpi4py import MPI

    _, ranks, rank = world()
    file = shared_file(folder, hints)
    kind = MPI.BYTE.Create_vector(blocks, block, block * ranks).Commit()
    file.Set_view(rank * block, MPI.BYTE, kind)
    data = bytes([rank]) * (block * blocks)
    if is_collective:
        file.Write_all(data)
    else:
        file.Write(data)
    file.Close()


def read_modify_write(folder, mended):
    """Small pieces of a shared file by data sieving, and gathered by collective calls."""
    hints = {"romio_cb_write": "enable", "romio_ds_write": "enable"}
    strided(folder, hints, mended, 4096, 8192)


def not_gathered(folder, mended):
    """Collective calls that are carried out as the single requests of each rank, and gathered."""
    hints = {"romio_cb_write": "enable" if mended else "disable", "romio_ds_write": "disable"}
    strided(folder, hints, True, 16384, 300)


PROGRAMS = {
    "mpi-independent-writes": independent_writes,
    "mpi-straggler": straggler,
    "mpi-uneven-bytes": uneven_bytes,
    "mpi-rank-0": rank_0,
    "mpi-idle-tail": idle_tail,
    "mpi-in-turns": in_turns,
    "mpi-file-per-process": file_per_process,
    "mpi-import-storm": import_storm,
    "mpi-read-modify-write": read_modify_write,
    "mpi-not-gathered": not_gathered,
}


def main():
    name, form, folder = sys.argv[1:]
    if form == "prepare":
        if name == "mpi-straggler":
            make(folder, "input", 320 * BLOCK)
        if name == "mpi-import-storm":
            from findings import prepare

            prepare("import-storm", folder)
        return
    comm, _, rank = world()
    comm.Barrier()
    start = time.monotonic()
    PROGRAMS[name](folder, form == "mended")
    comm.Barrier()
    if rank == 0:
        print(f"seconds {time.monotonic() - start}")


if __name__ == "__main__":
    main()
