"""subprocess: inherited descriptors, working directories, pipes, programs from the buffer."""
import os
import subprocess


def say(*what):
    print(*what, flush=True)


def run(*args, **more):
    done = subprocess.run(*args, capture_output=True, text=True, **more)
    say(done.returncode, done.stdout.replace(os.environ["BUFFER"], "B"), done.stderr.replace(os.environ["BUFFER"], "B"))


fd = os.open("inherited", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
os.set_inheritable(fd, True)
for how in (True, False):
    subprocess.run(["sh", "-c", f"echo child >&{fd}; cat <&{fd}"], pass_fds=[fd], close_fds=True)
    subprocess.run(["sh", "-c", f"echo child >&{fd}"], close_fds=False)
os.write(fd, b"parent\n")
say(os.pread(fd, 1000, 0))

run(["pwd"], cwd="project/src")
run(["cat", "text"], cwd="project/src")
os.makedirs("new/dir")
open("new/dir/file", "w").write("in a new directory")
run(["cat", "file"], cwd="new/dir")
run("pwd; cat file; ls ..", shell=True, cwd="new/dir")
run(["./tool", "a"], cwd="project/src")
run([os.path.abspath("project/src/tool"), "b"], cwd="/")
run(["cat"], stdin=open("project/src/text"))
with open("out", "w") as out:
    subprocess.run(["ls", "project"], stdout=out, stderr=subprocess.STDOUT)
say(open("out").read())
dirfd = os.open("project/src", os.O_RDONLY)
subprocess.run(["cat", f"/proc/self/fd/{dirfd}/text"], pass_fds=[dirfd])
subprocess.run(["sh", "-c", f"cd /proc/self/fd/{dirfd} && cat text"], pass_fds=[dirfd])
run(["sh", "-c", "cat text; echo made > made-by-child"], preexec_fn=lambda: os.fchdir(dirfd))
say(open("project/src/made-by-child").read())
try:
    subprocess.run(["no-such-program"], cwd="project")
except FileNotFoundError as error:
    say(error.filename)
try:
    subprocess.run(["ls"], cwd="no-such-directory")
except FileNotFoundError as error:
    say(error.filename)
p = subprocess.Popen(["sort", "-n", "project/data/numbers"], stdout=subprocess.PIPE)
q = subprocess.Popen(["tail", "-1"], stdin=p.stdout, stdout=subprocess.PIPE)
say(q.communicate()[0])
p.wait()
p.stdout.close()
run(["env", "-i", "cat", "project/src/text"])
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(r)
    os.chdir("new/dir")
    with open("from-fork", "w") as f:
        f.write("fork")
    os.write(w, os.getcwd().encode())
    os._exit(7)
os.close(w)
say(os.read(r, 4096).decode().replace(os.environ["BUFFER"], "B"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), open("new/dir/from-fork").read())
pid = os.posix_spawn("/bin/cat", ["cat", "spawned"], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "spawned-out", os.O_CREAT | os.O_WRONLY, 0o600)])
# Both write to one place, so one after the other.
os.wait()
say(pid > 0)
say(open("spawned-out").read(), os.system("test -e spawned-out"), os.popen("cat new/dir/file").read())
