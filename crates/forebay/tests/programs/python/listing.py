"""Listings of merged directories, and what their entries say without a stat."""
import glob
import os


def say(*what):
    print(*what, flush=True)


def leads_to_directory(entry):
    try:
        return entry.is_dir()
    except OSError as error:
        return error.errno


def kinds(path):
    with os.scandir(path) as entries:
        return sorted((e.name, e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False), e.is_symlink(), leads_to_directory(e)) for e in entries)


os.makedirs("project/src/new/dir")
open("project/src/new/file", "w").close()
os.symlink("file", "project/src/new/link")
os.mkfifo("project/src/new/pipe")
os.unlink("project/src/text")
os.rename("project/src/tool", "project/src/instrument")
os.rename("project/src/deep", "project/src/new/deep")
for path in (".", "project", "project/src", "project/src/new", "project/src/new/deep", "private"):
    say(path, kinds(path))
    say(sorted(os.listdir(path)) == sorted(n for n, *_ in kinds(path)))
with os.scandir("project/src") as entries:
    say(sorted((e.name, e.inode() == os.lstat(e.path).st_ino, e.stat(follow_symlinks=False).st_size) for e in entries if e.is_file(follow_symlinks=False)))
for top, dirs, files in sorted(os.walk(".")):
    say(top, sorted(dirs), sorted(files))
for top, dirs, files in sorted(os.walk(".", topdown=False)):
    say(top, sorted(dirs), sorted(files))
for top, dirs, files, fd in os.fwalk("project/src"):
    dirs.sort()
    say(top, dirs, sorted(files), sorted(os.stat(f, dir_fd=fd, follow_symlinks=False).st_size for f in files))
say(sorted(glob.glob("**", recursive=True)))
say(sorted(glob.glob("project/*/n*")))

fd = os.open("project/src", os.O_RDONLY | os.O_DIRECTORY)
say(sorted(os.listdir(fd)))
os.rename("project/src", "project/source")
open("project/source/later", "w").close()
say("later" in os.listdir(fd))
os.fchdir(fd)
say(os.path.basename(os.getcwd()), sorted(os.listdir(".")))
os.chdir("../..")
os.close(fd)

# A directory that changes while it is listed: every name that stays must come exactly once.
os.mkdir("busy")
for i in range(3000):
    open(f"busy/stays{i}", "w").close()
seen = []
with os.scandir("busy") as entries:
    for n, e in enumerate(entries):
        seen.append(e.name)
        if n % 100 == 0:
            open(f"busy/comes{n}", "w").close()
            os.unlink(f"busy/comes{n}")
stays = [n for n in seen if n.startswith("stays")]
say(len(stays), len(set(stays)))
for n in stays:
    os.unlink("busy/" + n)
say(os.listdir("busy"))
os.rmdir("busy")
