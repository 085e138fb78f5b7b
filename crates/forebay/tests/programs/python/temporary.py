"""tempfile in the buffer: names that are free, files that vanish."""
import os
import tempfile


def say(*what):
    print(*what, flush=True)


tempfile.tempdir = os.path.abspath("project")
seen = sorted(os.listdir("project"))
with tempfile.TemporaryFile() as f:
    f.write(b"x" * 100000)
    f.seek(0)
    say(len(f.read()), os.fstat(f.fileno()).st_nlink, sorted(os.listdir("project")) == seen)
with tempfile.NamedTemporaryFile("w+", suffix=".txt") as f:
    f.write("named")
    f.flush()
    say(open(f.name).read(), oct(os.stat(f.name).st_mode), len(os.listdir("project")) - len(seen))
say(sorted(os.listdir("project")) == seen)
with tempfile.TemporaryDirectory(dir=".") as d:
    for i in range(50):
        with open(f"{d}/{i}", "w") as f:
            f.write(str(i))
    os.mkdir(d + "/sub")
    open(d + "/sub/x", "w").close()
    say(len(os.listdir(d)), oct(os.stat(d).st_mode))
say(os.path.exists(d))
with tempfile.SpooledTemporaryFile(max_size=10) as f:
    f.write(b"y" * 1000)
    f.seek(0)
    say(len(f.read()))
made = [tempfile.mkstemp(dir=".") for _ in range(100)]
say(len({name for _, name in made}))
for fd, name in made:
    os.write(fd, b"z")
    os.close(fd)
    os.unlink(name)
d = tempfile.mkdtemp()
os.rename(d, "kept")
fd, name = tempfile.mkstemp(dir="kept")
os.close(fd)
os.rename(name, "kept/file")
