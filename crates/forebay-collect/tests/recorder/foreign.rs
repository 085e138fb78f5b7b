//! Foreign programs do the same with the recorder as without, alone and before the buffer's library.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use forebay_testkit::built::Library;

use crate::run::Place;

/// Scripts that print the same and leave the same files in their folder each time.
const SCRIPTS: [(&str, &str); 7] = [
    (
        "bash",
        "for i in $(seq 50); do echo line $i >> log; done; while read -r _ n; do s=$((s+n)); done < log; echo $s
         exec 5<>log; read -r a b <&5; echo $b; (echo sub; exit 3) | cat; echo ${PIPESTATUS[0]}
         diff <(sort log) <(sort -r log | sort) && echo same; cat << EOF > here
$s
EOF
         trap 'echo bye' EXIT",
    ),
    (
        "python",
        "/usr/bin/python3 - << 'EOF'
import concurrent.futures, json, mmap, multiprocessing, os, pickle, shelve, subprocess, tempfile, threading
def work(n):
    with open(f'w{n}', 'w') as f: f.write(str(n) * n)
    return os.path.getsize(f'w{n}')
with multiprocessing.Pool(3) as pool: print(pool.map(work, range(20)))
with concurrent.futures.ThreadPoolExecutor(4) as pool: print(sum(pool.map(work, range(20, 40))))
print(subprocess.run(['sh', '-c', 'echo $0; cat w7'], capture_output=True, text=True).stdout)
with open('m', 'w+b') as f:
    f.truncate(8192); m = mmap.mmap(f.fileno(), 8192); m[4000:4005] = b'hello'; m.flush(); m.close()
print(open('m', 'rb').read()[4000:4005])
r, w = os.pipe()
if os.fork() == 0:
    os.write(w, b'child'); os._exit(0)
os.wait(); print(os.read(r, 5))
json.dump({'a': list(range(1000))}, open('j', 'w')); print(len(json.load(open('j'))['a']))
with tempfile.TemporaryFile() as f: f.write(b'x' * 100000); f.seek(5); print(len(f.read()))
EOF",
    ),
    (
        "sqlite",
        "/usr/bin/python3 - << 'EOF'
import sqlite3
c = sqlite3.connect('db'); c.execute('pragma journal_mode=wal'); c.execute('create table t(a, b)')
for n in range(20):
    with c: c.executemany('insert into t values(?, ?)', [(n, k) for k in range(100)])
print(c.execute('select count(*), sum(a * b) from t').fetchone(), c.execute('pragma integrity_check').fetchone())
c.close()
EOF
         rm -f db db-wal db-shm",
    ),
    (
        "git",
        "export HOME=$PWD GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
         git config --global user.email a@b; git config --global user.name n
         git init -q -b main repo && cd repo; for i in $(seq 30); do echo $i > f$i; done
         git add . && git commit -q -m one; echo more >> f3; git commit -qam two; git gc -q; git fsck 2>&1
         git log --format=%H; git clone -q . ../clone && cd .. && diff -r -x .git repo clone && rm -rf repo clone .gitconfig",
    ),
    (
        "tar",
        "mkdir -p a/b; for i in $(seq 40); do head -c $((i * 777)) /dev/zero | tr '\\0' x > a/b/f$i; done; ln -s f1 a/b/l
         tar --sort=name --mtime=@0 --owner=0 --group=0 -czf t.tgz a; mkdir out; tar -C out -xzf t.tgz; diff -r a out/a
         gzip -dc t.tgz | cksum; cp -r a c; dd if=a/b/f40 of=d bs=100 conv=sync status=none; cksum d; rm -rf t.tgz",
    ),
    (
        "gcc",
        "printf '#include <stdio.h>\\nint main(void){puts(\"built\");return 0;}\\n' > p.c
         gcc -O1 p.c -o p && ./p; g++ -x c++ -O0 - -o q << 'EOF'
#include <fstream>
#include <iostream>
int main() { { std::ofstream o(\"cxx\"); for (int i = 0; i < 5000; i++) o << i << '\\n'; }
  std::ifstream f(\"cxx\"); long s = 0, n; while (f >> n) s += n; std::cout << s << std::endl; }
EOF
         ./q; rm -f p q",
    ),
    ("tools", "find / -maxdepth 1 -name proc; ls -d /usr; stat -c %s /etc/hostname; awk 'BEGIN{print 1+1}'; sed -n 1p /etc/passwd; sort -u /etc/group | head -1"),
];

fn tree(dir: &Path, below: &Path, out: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(below).expect("a folder").flatten() {
        let path = entry.path();
        let name = path
            .strip_prefix(dir)
            .expect("below")
            .to_string_lossy()
            .into_owned();
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            tree(dir, &path, out);
        } else {
            out.insert(name, std::fs::read(&path).unwrap_or_default());
        }
    }
}

/// What a script prints, how it ends, and the files that it leaves.
type Result = (String, String, Option<i32>, BTreeMap<String, Vec<u8>>);

fn run(place: &Place, script: &str, preload: &[String]) -> Result {
    // The same path for all, so that what programs print of it is the same.
    let dir = place.path("work");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).expect("a folder");
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "100", "env"]);
    if !preload.is_empty() {
        command.arg(format!("LD_PRELOAD={}", preload.join(":")));
        command.arg(format!("FOREBAY_RECORD={}", place.tables().display()));
        command
            .arg("FOREBAY_BUFFER=/nonexistent/buffer")
            .arg("FOREBAY_SOCKET=/nonexistent/socket");
    }
    let out = command
        .args(["/bin/bash", "-c", script])
        .current_dir(&dir)
        .output()
        .expect("timeout runs");
    let mut files = BTreeMap::new();
    tree(&dir, &dir, &mut files);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        text(&out.stdout),
        text(&out.stderr),
        out.status.code(),
        files,
    )
}

fn compare(with_buffer: bool) {
    let mut preload = vec![Library::Recorder.path().display().to_string()];
    if with_buffer {
        preload.push(Library::Preload.path().display().to_string());
    }
    for (name, script) in SCRIPTS {
        let place = Place::new(name);
        let native = run(&place, script, &[]);
        assert_eq!(native.2, Some(0), "{name}: {}", native.1);
        let recorded = run(&place, script, &preload);
        assert_eq!(native.0, recorded.0, "{name}: printed");
        assert_eq!(native.1, recorded.1, "{name}: complained");
        assert_eq!(native.2, recorded.2, "{name}: code");
        let names = |r: &Result| r.3.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&native), names(&recorded), "{name}: files");
        for (file, content) in &native.3 {
            assert!(content == &recorded.3[file], "{name}: content of {file}");
        }
        assert!(!place.images().is_empty(), "{name} was recorded");
    }
}

#[test]
fn other_people_s_programs_do_the_same_when_they_are_recorded() {
    compare(false);
}

#[test]
fn they_do_the_same_before_the_buffer_s_library() {
    compare(true);
}

#[test]
fn the_built_library_exports_and_imports_what_is_listed() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/check-record.sh");
    let output = Command::new(script)
        .arg(Library::Recorder.path())
        .output()
        .expect("run the check");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
