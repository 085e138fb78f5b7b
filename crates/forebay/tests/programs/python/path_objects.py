"""pathlib over old and new entries."""
import os
from pathlib import Path


def say(*what):
    print(*what, flush=True)


root = Path.cwd()


def short(path):
    return str(path).replace(str(root), "B")


def attempt(what, call):
    try:
        say(what, "->", call())
    except OSError as error:
        say(what, "->", type(error).__name__, error.errno)
    except RuntimeError as error:  # How pathlib reports a loop of links.
        say(what, "->", type(error).__name__)


p = Path("fresh/inner")
p.mkdir(parents=True)
(p / "a.txt").write_text("alpha")
(p / "b.bin").write_bytes(bytes(range(256)))
(p / "link").symlink_to("a.txt")
(p / "hard").hardlink_to(p / "a.txt")
say(sorted(short(x) for x in Path(".").rglob("*")))
say(sorted(short(x) for x in Path("project").glob("*/[nt]*")))
say((p / "link").read_text(), (p / "link").is_symlink(), (p / "link").readlink(), short((p / "link").resolve()))
say((p / "hard").stat().st_nlink, (p / "hard").samefile(p / "a.txt"))
(p / "a.txt").rename(p / "c.txt")
attempt("link", lambda: (p / "link").read_text())
(p / "c.txt").replace("project/src/text")
say(Path("project/src/text").read_text(), Path("project/src/text-again").read_text())
Path("project/src/tool").chmod(0o700)
say(oct(Path("project/src/tool").stat().st_mode), Path("project/src/pipe").is_fifo())
attempt("rmdir", lambda: Path("project/empty").rmdir())
Path("project/empty/nothing").unlink()
attempt("rmdir", lambda: Path("project/empty").rmdir())
attempt("mkdir", lambda: Path("project").mkdir())
attempt("mkdir ok", lambda: Path("project").mkdir(exist_ok=True))
attempt("unlink", lambda: Path("none").unlink())
attempt("unlink ok", lambda: Path("none").unlink(missing_ok=True))
attempt("unlink dir", lambda: Path("project").unlink())
attempt("touch", lambda: Path("touched").touch(exist_ok=False))
attempt("touch again", lambda: Path("touched").touch(exist_ok=False))
attempt("resolve loop", lambda: Path("project/src/loop-a").resolve(strict=True))
attempt("resolve", lambda: short(Path("project/src/into-private/../private/key").resolve(strict=True)))
say(short(Path("project/../fresh/./inner").resolve()), Path("project/src/dangling").exists(), os.path.lexists("project/src/dangling"))
say(Path("project").owner() == Path("fresh").owner(), Path("project/src").is_dir(), Path("project/src").is_mount())
os.utime("fresh/inner/b.bin", ns=(1_000_000_001, 1_234_567_890_123_456_789 // 10))
say(Path("fresh/inner/b.bin").stat().st_mtime_ns)
