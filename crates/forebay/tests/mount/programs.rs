//! Programs that make their system calls without libc, or in ways that the preload library does not see.

use crate::common::{self, case, find_program, go_compiler, need};
use crate::{beside_a_mount, need_fuse};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tree on the PFS.
pub const TREE: &str = "
    mkdir -p src/deep data
    seq 1 5000 > data/numbers
    echo one > src/one; echo two > src/deep/two
    ln -s one src/link; chmod 600 src/deep/two
";

#[test]
fn a_static_busybox_does_what_it_does_natively() {
    need_fuse!();
    need!("busybox");
    let busybox = find_program("busybox").unwrap_or_default();
    let image = fs::read(&busybox).unwrap_or_default();
    let interpreter = b"/lib64/ld-linux";
    forebay_testkit::skip_unless!(
        !image.windows(interpreter.len()).any(|w| w == interpreter),
        "{} is not static (scripts/setup.sh test installs one that is)",
        busybox.display()
    );
    // The archive holds the times of the run.
    case!().via("mount").contents_change_in(["all.tar"]).start(TREE).same(
        r#"
        bb() { busybox "$@"; }
        bb ls -1R; bb find . -type f | bb sort
        bb cp -a src copy; bb mv copy/deep copy/deeper; bb rm copy/one
        bb tar -cf all.tar src data; bb mkdir out; bb tar -xf all.tar -C out; bb md5sum out/data/numbers
        bb sed -i 's/1/one/g' data/numbers; bb sort -r data/numbers > data/sorted; bb md5sum data/*
        bb dd if=/dev/zero of=hole bs=1k seek=100 count=1 2>/dev/null; bb stat -c '%s %h %a' hole src/deep/two
        bb ln src/one src/hard; bb ln -sf two src/deep/link; bb readlink src/deep/link
        bb truncate -s 5 data/sorted; bb cat data/sorted; bb touch -d '2019-05-06 07:08:09' data/sorted
        bb rmdir src 2>&1; bb rm -r src; bb ls
        bb chmod 700 out; bb chown 3:4 out/data; bb stat -c '%a %u %g' out out/data
        "#,
    );
}

/// A program in Go, which makes its system calls itself.
const GO: &str = r#"
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"sync"
)

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	old, err := os.ReadFile("data/numbers")
	check(err)
	fmt.Println(len(old))
	check(os.MkdirAll("go/a/b", 0o755))
	var group sync.WaitGroup
	for i := 0; i < 16; i++ {
		group.Add(1)
		// Outside a module the language is old enough that a loop has one variable for all its rounds.
		go func(i int) {
			defer group.Done()
			name := fmt.Sprintf("go/a/b/%d", i)
			check(os.WriteFile(name+".new", bytes.Repeat([]byte{byte('a' + i)}, 10000*i), 0o640))
			check(os.Rename(name+".new", name))
		}(i)
	}
	group.Wait()
	appended, err := os.OpenFile("src/one", os.O_APPEND|os.O_RDWR, 0)
	check(err)
	_, err = appended.WriteString("more\n")
	check(err)
	_, err = appended.Seek(0, io.SeekStart)
	check(err)
	text, err := io.ReadAll(appended)
	check(err)
	fmt.Printf("%q\n", text)
	check(appended.Close())
	check(os.Symlink("../src", "go/link"))
	check(os.RemoveAll("src/deep"))
	_, err = os.OpenFile("go/a/b/3", os.O_CREATE|os.O_EXCL, 0o600)
	fmt.Println(os.IsExist(err))
	var names []string
	check(filepath.WalkDir(".", func(path string, entry os.DirEntry, err error) error {
		names = append(names, path)
		return err
	}))
	sort.Strings(names)
	fmt.Println(names)
}
"#;

/// Builds the program in Go in this folder. If Go is not installed, prints that, and returns `None`.
pub fn go_program(folder: &Path) -> Option<PathBuf> {
    let go = go_compiler()?;
    let (source, program) = (folder.join("main.go"), folder.join("prog"));
    fs::write(&source, GO).expect("write the program");
    let built = Command::new(go)
        .args(["build", "-o"])
        .arg(&program)
        .arg(&source)
        .env("CGO_ENABLED", "0")
        .env("GOCACHE", folder.join("go-cache"))
        .env("GOPATH", folder.join("go"))
        .env("GO111MODULE", "off")
        .status()
        .expect("run go");
    assert!(built.success());
    Some(program)
}

#[test]
fn a_program_in_go_does_what_it_does_natively() {
    need_fuse!();
    let case = case!().via("mount").start(TREE);
    match go_program(&case.dir().join("bin")) {
        Some(_) => case.same(r#""$BIN/prog""#),
        None => case.passes(),
    }
}

#[test]
fn system_calls_without_libc_and_names_that_only_the_kernel_knows_work() {
    need_fuse!();
    case!().via("mount").start(TREE).same(
        r#"
        python3 - <<'END'
import ctypes, os, socket, mmap, fcntl
libc = ctypes.CDLL(None, use_errno=True)
OPENAT, RENAMEAT2 = 257, 316
fd = libc.syscall(OPENAT, -100, b"raw", os.O_CREAT | os.O_WRONLY, 0o644)
print(fd >= 0, os.write(fd, b"raw bytes"))
os.close(fd)
print(libc.syscall(RENAMEAT2, -100, b"raw", -100, b"src/one", 1), ctypes.get_errno())
print(libc.syscall(RENAMEAT2, -100, b"raw", -100, b"src/one", 2), open("raw").read(), open("src/one").read())
s = socket.socket(socket.AF_UNIX); s.bind("sock"); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect("sock"); a = s.accept()[0]
c.send(b"through the socket"); print(a.recv(100)); os.unlink("sock")
f = open("gone", "w+b"); f.write(b"x" * 5000); f.flush(); os.unlink("gone")
print(os.fstat(f.fileno()).st_size, len(open("/proc/self/fd/%d" % f.fileno(), "rb").read()))
m = mmap.mmap(f.fileno(), 5000); m[0:4] = b"mmap"; m.flush(); f.seek(0); print(f.read(5))
os.chdir("src/deep"); os.rename("../../src", "../../moved"); print(os.listdir("."), os.path.basename(os.path.dirname(os.getcwd())))
print(os.readlink("/proc/self/cwd").endswith("moved/deep"))
fds = [os.open("lock", os.O_CREAT | os.O_RDWR) for _ in range(2)]
fcntl.flock(fds[0], fcntl.LOCK_EX)
try: fcntl.flock(fds[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: print("locked")
END
        mkfifo pipe; (echo through the pipe > pipe &); cat pipe; rm pipe
        setfattr -n user.colour -v blue data/numbers; getfattr -d data/numbers; setfattr -x user.colour data/numbers
        "#,
    );
}

#[test]
fn a_program_in_the_buffer_finds_its_library_in_the_buffer() {
    need_fuse!();
    need!("gcc");
    case!()
        .via("mount")
        .contents_change_in(["prog", "libown.so"])
        .without_walk()
        .same(
            r#"
        mkdir -p lib bin
        echo 'int own(void) { return 42; }' > own.c
        echo 'int own(void); int main(void) { return own() != 42; }' > prog.c
        gcc -shared -fPIC -o lib/libown.so own.c
        gcc -o bin/prog prog.c -Llib -lown -Wl,-rpath,'$ORIGIN/../lib'
        bin/prog; echo "status $?"
        rm -r bin lib
        "#,
        );
}

#[test]
fn directories_have_the_times_that_programs_give_them() {
    need_fuse!();
    case!()
        .via("mount")
        .start(TREE)
        .same(common::TIMES_OF_DIRECTORIES);
}

/// `fts` leaves out looks at what can be no directory by the number of links of the one that it is in, if it is told so.
#[test]
fn a_walk_that_counts_links_finds_directories_that_were_made_in_the_buffer() {
    need_fuse!();
    case!().via("mount").start(TREE).same(
        r#"
        mkdir -p new/one/two src/added/deep; echo new > new/one/two/file
        python3 - <<'END'
import ctypes
libc = ctypes.CDLL(None)
libc.fts_open.restype = libc.fts_read.restype = ctypes.c_void_p
PHYSICAL, NOSTAT, DIRECTORY, PATH, INFO = 16, 8, 1, 48, 98
walk = libc.fts_open((ctypes.c_char_p * 2)(b"."), PHYSICAL | NOSTAT, None)
found = []
while entry := libc.fts_read(ctypes.c_void_p(walk)):
    if ctypes.c_ushort.from_address(entry + INFO).value == DIRECTORY:
        found.append(ctypes.c_char_p.from_address(entry + PATH).value.decode())
print(*sorted(found), sep="\n")
END
        "#,
    );
}

#[test]
fn archives_and_copies_stay_on_one_file_system() {
    need_fuse!();
    need!("rsync");
    case!().via("mount").start(TREE).same(
        r#"
        mkdir -p new/dir; echo new > new/dir/file; ln new/dir/file new/hard
        tar --one-file-system --sort=name -cf - . | tar -tf - | sort
        cp -ax . "$OUTSIDE/copy"; (cd "$OUTSIDE/copy" && find . | sort)
        rsync -aHx --itemize-changes . "$OUTSIDE/rsync" | sort
        find . -xdev | sort; du -x --apparent-size -b new/dir/file
        find . -printf '%p %i\n' | sort > "$OUTSIDE/found"; ls -aiR1 > /dev/null
        ls -i src | while read -r ino name; do [ "$(stat -c %i "src/$name")" = "$ino" ] || echo "$name"; done
        stat -c %d . new new/dir new/dir/file src src/one | sort -u | wc -l
        "#,
    );
}

#[test]
fn what_one_door_writes_the_other_one_sees_at_once() {
    need_fuse!();
    // A process with the library loaded, and programs without it: the shell clears the variable for them.
    let case = case!().start("seq 1 1000 > old").without_walk();
    let mountpoint = case.dir().join("at");
    fs::create_dir(&mountpoint).expect("make the mount point");
    let script = r#"
        at="$OUTSIDE/../at"
        other() { LD_PRELOAD= "$@"; }
        echo 1 > new; other cat "$at/new"
        other sh -c "echo 2 >> $at/new"; cat new
        exec 3>>new; echo 3 >&3; other sh -c "echo 4 >> $at/new"; echo 5 >&3; exec 3>&-; cat new
        other tail -1 "$at/old"; echo end >> old; other tail -1 "$at/old"
        mkdir dir; other touch "$at/dir/file"; mv dir moved; other ls "$at/moved"
        (cd moved && other sh -c "mv $at/moved $at/again" && ls && touch here); other ls "$at/again"
        rm new; other cat "$at/new" 2>&1 | sed 's/.*: //'
        python3 - "$at" <<'END'
import mmap, os, subprocess, sys
f = open("mapped", "w+b"); f.write(b"a" * 4096); f.flush()
m = mmap.mmap(f.fileno(), 4096)
plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
look = """
import mmap, os, sys
f = open(sys.argv[1], "r+b"); m = mmap.mmap(f.fileno(), 4096)
for line in sys.stdin:
    if line.strip(): m[0:3] = line.strip().encode()
    print(m[0:3], os.pread(f.fileno(), 3, 0), flush=True)
"""
pipe = subprocess.PIPE
there = subprocess.Popen(["python3", "-c", look, sys.argv[1] + "/mapped"], env=plain, stdin=pipe, stdout=pipe, text=True)
def other(text=""):
    there.stdin.write(text + "\n"); there.stdin.flush()
    print(there.stdout.readline().strip(), m[0:3], os.pread(f.fileno(), 3, 0))
other(); m[0:3] = b"bbb"; other(); other("ccc"); os.pwrite(f.fileno(), b"ddd", 0); other()
there.stdin.close(); there.wait()
END
    "#;
    let outcome = beside_a_mount(&case, script, &mountpoint);
    let expected = "1\n1\n2\n1\n2\n3\n4\n5\n1000\nend\nfile\nfile\nfile\nhere\nNo such file or directory\n\
                    b'aaa' b'aaa' b'aaa' b'aaa'\nb'bbb' b'bbb' b'bbb' b'bbb'\n\
                    b'ccc' b'ccc' b'ccc' b'ccc'\nb'ddd' b'ddd' b'ddd' b'ddd'\n";
    assert_eq!(outcome.text(), expected, "{}", outcome.forebay_said);
    case.passes();
}

/// A file system in memory, as long as this value lives.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new() -> Tmpfs {
        let dir = tempfile::tempdir().expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"])
            .arg(dir.path())
            .status();
        assert!(mounted.expect("run mount").success());
        Tmpfs(dir)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn storage_on_another_file_system_does_not_show() {
    need_fuse!();
    // Both count their inodes from one, so numbers would be the same.
    let (storage, pfs) = (Tmpfs::new(), Tmpfs::new());
    let script = r#"
        mkdir -p new/dir; for n in $(seq 1 40); do echo $n > new/dir/$n; done; ln new/dir/1 new/hard
        echo more >> old/3; mv old/5 new/moved
        echo devices $(find . -printf '%D\n' | sort -u | wc -l)
        echo shared $(find . -links 1 -printf '%i\n' | sort | uniq -d | wc -l) $(find . -type d -printf '%i\n' | sort | uniq -d | wc -l)
        echo entries $(find . -xdev | wc -l) $(tar --one-file-system -cf - . | tar -tf - | wc -l)
        python3 -c '
import os
for folder in (".", "new", "new/dir", "old"):
    for entry in os.scandir(folder):
        if entry.inode() != os.lstat(entry.path).st_ino: print(entry.path)'
        stat -c %h new/hard
    "#;
    fs::create_dir(pfs.0.path().join("old")).expect("make a folder");
    for n in 1..=60 {
        fs::write(pfs.0.path().join(format!("old/{n}")), "of the PFS").expect("write a file");
    }
    let ran = Command::new(common::forebay())
        .args(["run", "--no-record", "--via", "mount", "--buffer"])
        .arg(pfs.0.path())
        .arg("--storage")
        .arg(storage.0.path())
        .args(["--", "bash", "-c", script])
        .current_dir(pfs.0.path())
        .output()
        .expect("run forebay");
    let said = String::from_utf8_lossy(&ran.stdout);
    let told = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(
        said, "devices 1\nshared 0 0\nentries 105 105\n2\n",
        "{told}"
    );
    assert!(ran.status.success(), "{told}");
}
