"""multiprocessing: processes by fork and by spawn fill one file and many."""
import fcntl
import multiprocessing
import os
import sys

BLOCK = 4096


def fill(task):
    how, number = task
    with open(f"{how}.bin", "r+b") as f:
        f.seek(number * BLOCK)
        f.write(bytes([number % 256]) * BLOCK)
    with open(f"{how}.dir/{number}", "w") as f:
        f.write(str(number))
    with open(f"{how}.log", "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.write(f"{number}\n")
    with open(f"{how}.count", "r+") as f:
        fcntl.lockf(f, fcntl.LOCK_EX)
        value = int(f.read() or 0)
        f.seek(0)
        f.write(str(value + 1))
        f.flush()
        fcntl.lockf(f, fcntl.LOCK_UN)
    return number


def main():
    for how in ("fork", "spawn"):
        os.mkdir(f"{how}.dir")
        for name in (f"{how}.bin", f"{how}.count"):
            open(name, "w").close()
        context = multiprocessing.get_context(how)
        with context.Pool(4) as pool:
            print(how, sum(pool.imap_unordered(fill, [(how, i) for i in range(200)], chunksize=5)))
        data = open(f"{how}.bin", "rb").read()
        print(all(data[i * BLOCK:(i + 1) * BLOCK] == bytes([i % 256]) * BLOCK for i in range(200)), len(data))
        print(len(os.listdir(f"{how}.dir")), open(f"{how}.count").read())
        lines = sorted(int(n) for n in open(f"{how}.log"))
        print(lines == list(range(200)))
        os.unlink(f"{how}.log")
    with multiprocessing.Manager() as manager:
        shared = manager.dict()
        p = multiprocessing.Process(target=shared.update, args=({"a": 1},))
        p.start()
        p.join()
        print(dict(shared), p.exitcode)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
