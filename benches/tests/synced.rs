//! What a drain says is synced was synced, on a file system that is never told of a `syncfs`.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

const FILES: u64 = 100;

/// The command that is tested: what FOREBAY_BIN says, or that of `make build`, which has its libraries beside it.
fn forebay() -> PathBuf {
    let told = std::env::var_os("FOREBAY_BIN").map(PathBuf::from);
    told.unwrap_or_else(|| {
        Path::new(env!("CARGO_BIN_EXE_forebay-slow-pfs")).with_file_name("../release/forebay")
    })
}

/// A mounted stand-in.
struct Pfs {
    at: PathBuf,
    process: Child,
    says: BufReader<ChildStdout>,
}

impl Pfs {
    fn mount(at: PathBuf) -> Self {
        fs::create_dir_all(&at).expect("a place to mount at");
        let mut process = Command::new(env!("CARGO_BIN_EXE_forebay-slow-pfs"))
            .args(["--latency-us", "0"])
            .arg(&at)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the stand-in starts");
        let mut says = BufReader::new(process.stdout.take().expect("a pipe"));
        says.read_line(&mut String::new()).expect("it is there");
        Pfs { at, process, says }
    }

    /// What came to it.
    fn unmount(&mut self) -> Value {
        let unmounted = Command::new("umount").arg(&self.at).status();
        assert!(unmounted.expect("umount starts").success());
        let mut report = String::new();
        self.says.read_to_string(&mut report).expect("a report");
        self.process.wait().expect("its end");
        serde_json::from_str(&report).expect("a line of JSON")
    }
}

impl Drop for Pfs {
    fn drop(&mut self) {
        // After a failure it is still there.
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn each_file_and_each_directory_is_synced_where_nothing_is_known_of_syncfs() {
    forebay_testkit::skip_unless!(
        forebay_testkit::is_root() && Path::new("/dev/fuse").exists() && forebay().exists(),
        "this needs root, FUSE and {}",
        forebay().display()
    );
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("synced");
    let _ = fs::remove_dir_all(&folder);
    let mut pfs = Pfs::mount(folder.join("pfs"));
    let buffer = pfs.at.join("buffer");
    fs::create_dir(&buffer).expect("the buffer");
    let storage = folder.join("storage");
    fs::create_dir(&storage).expect("the storage");
    let with = |verb: &str| {
        let mut command = Command::new(forebay());
        command.arg(verb).arg("--buffer").arg(&buffer);
        command.arg("--storage").arg(&storage);
        command
    };
    let make = format!("mkdir d d/e; for n in $(seq {FILES}); do echo $n > d/e/f$n; done");
    run(with("run")
        .args(["--no-drain", "--no-record", "--", "sh", "-c", &make])
        .current_dir(&buffer));
    let said = run(&mut with("drain"));
    assert!(said.contains("fsync of each file and directory"), "{said}");
    let came = pfs.unmount();
    let calls = |name: &str| came["calls"][name].as_u64().unwrap_or(0);
    assert_eq!(came["unsynced_files"], 0, "{came}");
    // The lock, which the bridge that ends moves aside and removes, once after the run and once after the drain.
    assert_eq!(came["named_unsynced"], 2, "{came}");
    // That of the stand-in itself, in which this test has made the buffer; and the buffer, since the lock went.
    assert_eq!(came["unsynced_dirs"], 2, "{came}");
    assert!(calls("fsyncdir") >= 3, "{came}");
    assert_eq!(calls("fsync"), FILES, "{came}");
}
