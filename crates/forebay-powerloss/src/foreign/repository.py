"""Makes a git repository and commits to it, and says so to the mark file.

usage: repository.py DIRECTORY MARK COMMITS
"""
import os
import subprocess
import sys

directory, mark, commits = sys.argv[1:]
mark = os.open(mark, os.O_WRONLY)
os.chdir(directory)
who = {"GIT_%s_%s" % (role, field): value for role in ("AUTHOR", "COMMITTER")
       for field, value in (("NAME", "a"), ("EMAIL", "a@localhost"), ("DATE", "2001-01-01T00:00:00Z"))}
options = ["core.fsync=all", "core.fsyncMethod=fsync", "gc.auto=0", "maintenance.auto=false", "safe.directory=*"]


def git(*arguments):
    command = ["git"] + [part for option in options for part in ("-c", option)] + list(arguments)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **who})


def sync_directory(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


git("init", "-q", "-b", "main", ".")
os.mkdir("sub")
# init itself syncs nothing.
os.sync()
for number in range(int(commits)):
    for path in ("a%d" % (number % 4), "sub/b%d" % number):
        with open(path, "w") as file:
            file.write("commit %d\n" % number * 40)
    git("add", "-A")
    os.write(mark, b"begin %d" % number)
    git("commit", "-q", "-m", "commit %d" % number)
    # git syncs the new file of the branch, but not the directory in which it is renamed.
    sync_directory(".git/refs/heads")
    os.write(mark, b"ack %d" % number)
