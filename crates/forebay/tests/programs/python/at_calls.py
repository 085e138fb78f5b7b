"""openat, mkdirat, renameat, linkat, unlinkat, fchmodat ... relative to directory descriptors."""
import errno
import os


def say(*what):
    print(*what, flush=True)


def attempt(what, call):
    try:
        say(what, "->", call())
    except OSError as error:
        say(what, "->", errno.errorcode[error.errno])


os.mkdir("newdir")
old = os.open("project/src", os.O_RDONLY | os.O_DIRECTORY)
new = os.open("newdir", os.O_RDONLY | os.O_DIRECTORY)
top = os.open(".", os.O_PATH)
for name, d in (("old", old), ("new", new), ("top", top)):
    def write(path="f", d=d):
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600, dir_fd=d)
        os.write(fd, name.encode())
        os.close(fd)
    attempt(name + " open", write)
    attempt(name + " open again", write)
    attempt(name + " stat", lambda: os.stat("f", dir_fd=d).st_size)
    attempt(name + " mkdir", lambda: os.mkdir("d", dir_fd=d))
    attempt(name + " mkdir again", lambda: os.mkdir("d", dir_fd=d))
    attempt(name + " in it", lambda: write("d/g"))
    attempt(name + " symlink", lambda: os.symlink("f", "s", dir_fd=d))
    attempt(name + " readlink", lambda: os.readlink("s", dir_fd=d))
    attempt(name + " link", lambda: os.link("f", "h", src_dir_fd=d, dst_dir_fd=d))
    attempt(name + " rename", lambda: os.rename("f", "r", src_dir_fd=d, dst_dir_fd=d))
    attempt(name + " chmod", lambda: os.chmod("r", 0o640, dir_fd=d))
    attempt(name + " utime", lambda: os.utime("r", (1, 2), dir_fd=d))
    attempt(name + " access", lambda: os.access("r", os.W_OK, dir_fd=d))
    attempt(name + " lstat", lambda: oct(os.stat("s", dir_fd=d, follow_symlinks=False).st_mode))
    attempt(name + " mkfifo", lambda: os.mkfifo("p", dir_fd=d))
    attempt(name + " rmdir", lambda: os.rmdir("d", dir_fd=d))
    attempt(name + " unlink", lambda: os.unlink("d/g", dir_fd=d))
    attempt(name + " rmdir again", lambda: os.rmdir("d", dir_fd=d))
    attempt(name + " dotdot", lambda: os.stat("..", dir_fd=d).st_mode)
    attempt(name + " no such", lambda: os.stat("none", dir_fd=d))
    attempt(name + " not a directory", lambda: os.stat("r/x", dir_fd=d))
attempt("across", lambda: os.rename("r", "from-old", src_dir_fd=old, dst_dir_fd=new))
attempt("across", lambda: os.rename("from-old", "back", src_dir_fd=new, dst_dir_fd=top))
attempt("link across", lambda: os.link("text", "linked", src_dir_fd=old, dst_dir_fd=new))
say(os.stat("linked", dir_fd=new).st_nlink, sorted(os.listdir(new)), sorted(os.listdir(old)))
os.rename("newdir", "project/moved")
attempt("after the move", lambda: os.open("later", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=new) > 0)
say(sorted(os.listdir("project/moved")), os.readlink("/proc/self/cwd") == os.getcwd())
dup = os.dup(new)
os.close(new)
attempt("through a copy", lambda: os.stat("later", dir_fd=dup).st_size)
attempt("file as directory", lambda: os.stat("x", dir_fd=os.open("back", os.O_RDONLY)))
attempt("bad descriptor", lambda: os.stat("x", dir_fd=999))
attempt("absolute", lambda: os.stat(os.path.abspath("back"), dir_fd=999).st_size)
os.fchdir(dup)
say(os.path.basename(os.getcwd()), os.path.exists("../data/numbers"), os.path.exists("later"))
os.fchdir(old)
say(os.path.basename(os.getcwd()), os.path.exists("text"))
os.chdir("..")
say(sorted(os.listdir(".")))
attempt("open . and ..", lambda: (sorted(os.listdir("./src/..")), os.stat(".").st_ino == os.stat("src/..").st_ino))
attempt("above the root", lambda: os.path.samefile("../..", os.path.dirname(os.environ["BUFFER"])))
attempt("back from above", lambda: open("../../run/back").read())
