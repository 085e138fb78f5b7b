"""shutil, filecmp and zipfile on trees that are half old and half new."""
import filecmp
import os
import shutil
import zipfile


def say(*what):
    print(*what, flush=True)


def names(top):
    return sorted(os.path.relpath(os.path.join(d, f), top) for d, ds, fs in os.walk(top) for f in fs + ds)


outside = os.environ["OUTSIDE"]
os.unlink("project/src/pipe")  # copytree would wait for a writer.
shutil.copytree("project", "copy", symlinks=True)
say(names("copy"), filecmp.dircmp("project/data", "copy/data").diff_files)
shutil.copytree("copy", outside + "/copy", symlinks=True)
shutil.copytree(outside + "/copy", "copy/nested", symlinks=True, ignore=shutil.ignore_patterns("n*"))
shutil.copytree("project/data", "copy/data", dirs_exist_ok=True)
shutil.move("copy/nested", "moved")
shutil.move("moved/data/block", outside + "/block")
shutil.move(outside + "/block", "moved/block")
shutil.move(outside + "/copy/src", "moved/src-back")
say(names("moved"))
shutil.copy2("project/data/numbers", "n2")
shutil.copystat("project/src/tool", "n2")
shutil.copyfile("project/data/block", "b2")
shutil.copymode("private/key", "b2")
say(oct(os.stat("n2").st_mode), os.stat("n2").st_mtime_ns, oct(os.stat("b2").st_mode))
shutil.rmtree("copy")
shutil.rmtree("project/src")
say(names("."))
archive = shutil.make_archive(outside + "/all", "gztar", ".", "moved")
shutil.unpack_archive(archive, "unpacked")
say(names("unpacked") == sorted(["moved"] + ["moved/" + n for n in names("moved")]))
with zipfile.ZipFile("z.zip", "w", zipfile.ZIP_DEFLATED) as z:
    z.write("project/data/numbers", "numbers")
with zipfile.ZipFile("z.zip") as z:
    say(z.testzip(), z.namelist())
    z.extractall("unzipped")
say(filecmp.cmp("unzipped/numbers", "project/data/numbers", shallow=False))
say(shutil.disk_usage(".").total > 0, shutil.which("tool", path=os.path.abspath("moved/src-back")) is not None)
shutil.rmtree("no-such", ignore_errors=True)
os.chmod("project/data", 0o755)
os.removedirs("project/empty") if not os.listdir("project/empty") else say("not empty")
