"""A file keeps its inode number, whatever is done to it, and whoever looks."""
import os

ROOT_DESCRIPTOR = os.open(".", os.O_RDONLY)


def listed(path):
    where, name = os.path.split(path)
    return next(entry.inode() for entry in os.scandir(where or ".") if entry.name == name)


def same(what, path, before):
    """Is it the number that the file had, by name, by descriptor and in a listing?"""
    by_path = os.open(path, os.O_PATH)
    descriptors = [by_path]
    if os.access(path, os.R_OK) and os.geteuid() != 0 or os.stat(path).st_mode & 0o400:
        descriptors.append(os.open(path, os.O_RDONLY))
    numbers = {os.fstat(d).st_ino for d in descriptors}
    numbers |= {os.stat(path).st_ino, os.lstat(path).st_ino, listed(path)}
    numbers |= {os.stat(path, dir_fd=ROOT_DESCRIPTOR).st_ino}
    devices = {os.stat(path).st_dev, os.stat(".").st_dev} | {os.fstat(d).st_dev for d in descriptors}
    print(what, numbers == {before}, len(devices), flush=True)
    for descriptor in descriptors:
        os.close(descriptor)


start = {name: os.stat(name).st_ino for name in ("append", "empty", "moved", "linked", "mode", "locked", "dir/below", "times")}
for name, before in start.items():
    same(name, name, before)

with open("append", "a") as file:
    file.write("more")
    print("open", os.fstat(file.fileno()).st_ino == start["append"])
    kept = os.dup(file.fileno())
same("appended to", "append", start["append"])
open("empty", "w").close()
same("emptied", "empty", start["empty"])
open("moved", "a").close()
os.rename("moved", "dir/new")
same("renamed", "dir/new", start["moved"])
os.link("linked", "dir/link")
same("linked", "linked", start["linked"])
same("the link", "dir/link", start["linked"])
os.chmod("mode", 0o600)
same("another mode", "mode", start["mode"])
with open("locked", "r+b") as file:
    file.write(b"x")
    os.fchmod(file.fileno(), 0o200)
    print("may not be read", os.fstat(file.fileno()).st_ino == start["locked"])
same("may not be read", "locked", start["locked"])
with open("dir/below", "r+b") as file:
    file.truncate(3)
same("cut", "dir/below", start["dir/below"])
os.utime("times", (5, 6))
os.setxattr("times", "user.a", b"b")
same("times", "times", start["times"])

pid = os.fork()
if pid == 0:
    print("in a child", os.fstat(kept).st_ino == start["append"], flush=True)
    os._exit(0)
os.waitpid(pid, 0)

# Each file has a number of its own.
names = [os.path.join(where, name) for where, _, files in os.walk(".") for name in files]
print(len(names) - len({os.stat(name).st_ino for name in names}), "shared")
