//! The stand-in of `benches/` for a slow PFS, which is no local file system and is never told of a `syncfs`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What each call takes, if no other time is said.
const LATENCY_US: u32 = 300;

/// A mounted stand-in, until the value is dropped.
pub struct SlowPfs {
    /// Where it is mounted.
    pub at: PathBuf,
    process: Child,
}

impl SlowPfs {
    /// `None`, after a skip, where it can't be mounted.
    pub fn mount() -> Option<SlowPfs> {
        SlowPfs::mount_with(LATENCY_US)
    }

    /// The same with so many microseconds for each call.
    pub fn mount_with(latency_us: u32) -> Option<SlowPfs> {
        if !(forebay_testkit::is_root() && Path::new("/dev/fuse").exists()) {
            forebay_testkit::skip("the stand-in for a slow PFS needs root and /dev/fuse");
            return None;
        }
        let program = forebay_testkit::built::executable("forebay-slow-pfs");
        if !program.exists() {
            forebay_testkit::skip(
                "no forebay-slow-pfs: cargo build -p forebay-benches makes it (make test does)",
            );
            return None;
        }
        // Short, because its path is in each path of the test.
        let at = forebay_testkit::new_folder(&std::env::temp_dir().to_string_lossy(), "slow");
        let mut process = Command::new(program)
            .args(["--latency-us", &latency_us.to_string()])
            .arg(&at)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the stand-in starts");
        let says = process.stdout.as_mut().expect("a pipe");
        let mut ready = String::new();
        let said = BufReader::new(says).read_line(&mut ready);
        said.expect("it speaks when it is there");
        assert_eq!(ready, "ready\n");
        Some(SlowPfs { at, process })
    }
}

impl Drop for SlowPfs {
    fn drop(&mut self) {
        // Lazily: after a failure something may be left that uses it.
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir(&self.at);
    }
}
