//! The stand-in for a parallel file system, mounted for a test.

// Each test uses its own part of this.
#![allow(dead_code)]

use forebay_testkit::built::{self, Library, forebay};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Can the stand-in be mounted, and is the command there?
pub fn is_possible() -> bool {
    forebay_testkit::is_root() && Path::new("/dev/fuse").exists() && forebay().exists()
}

/// A mounted stand-in.
pub struct Pfs {
    /// Where each client has it.
    pub at: Vec<PathBuf>,
    process: Child,
    says: BufReader<ChildStdout>,
}

impl Pfs {
    /// Mounts it in one directory for each client.
    pub fn mount(at: Vec<PathBuf>, options: &[&str]) -> Self {
        for dir in &at {
            fs::create_dir_all(dir).expect("a place to mount at");
        }
        let mut process = Command::new(env!("CARGO_BIN_EXE_forebay-slow-pfs"))
            .args(["--latency-us", "0"])
            .args(options)
            .args(&at)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the stand-in starts");
        let mut says = BufReader::new(process.stdout.take().expect("a pipe"));
        says.read_line(&mut String::new()).expect("it is there");
        Pfs { at, process, says }
    }

    /// What becomes of all calls from now on: a line as in `weather.rs`. Returns how many have come since the last one.
    pub fn set_weather(&mut self, line: &str) -> u64 {
        let mut stdin = self.process.stdin.as_ref().expect("a pipe");
        writeln!(stdin, "{line}").expect("it listens");
        let mut answer = String::new();
        self.says.read_line(&mut answer).expect("an answer");
        let words: Vec<_> = answer.splitn(4, ' ').collect();
        match words[..] {
            ["after", calls, "calls:", told] if told.trim_end() == line => {
                calls.parse().expect("a number")
            }
            _ => panic!("{answer:?} to {line:?}"),
        }
    }

    /// What came to it.
    pub fn unmount(&mut self) -> Value {
        let unmounted = Command::new("umount").arg(&self.at[0]).status();
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
        for dir in &self.at {
            let _ = Command::new("umount").arg("-l").arg(dir).output();
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A buffer on the stand-in, and its storage.
pub struct Scene {
    /// Where the buffer is.
    pub pfs: Pfs,
    /// The buffer directory.
    pub buffer: PathBuf,
    storage: PathBuf,
}

impl Scene {
    /// In a folder of this name, made anew.
    pub fn new(name: &str, options: &[&str]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        let pfs = Pfs::mount(vec![folder.join("pfs")], options);
        let scene = Scene {
            buffer: pfs.at[0].join("buffer"),
            storage: folder.join("storage"),
            pfs,
        };
        for dir in [&scene.buffer, &scene.storage] {
            fs::create_dir(dir).expect("the buffer and its storage");
        }
        scene
    }

    /// `forebay VERB` for this buffer.
    pub fn forebay(&self, verb: &str) -> Command {
        let mut command = Command::new(forebay());
        built::with_libraries(&mut command, &[Library::Preload]);
        command.arg(verb).arg("--buffer").arg(&self.buffer);
        command.arg("--storage").arg(&self.storage);
        command
    }

    /// Runs a script in the buffer. Nothing is drained.
    pub fn run(&self, script: &str) {
        let ran = self
            .forebay("run")
            .args(["--no-drain", "--no-record", "--", "sh", "-c", script])
            .current_dir(&self.buffer)
            .output()
            .expect("it starts");
        assert!(ran.status.success(), "{ran:?}");
    }
}
