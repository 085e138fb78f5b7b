//! The stage of a test: a PFS directory, a storage directory on another file system, and a directory for sockets, used by
//! no other test.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use crate::common;
use crate::common::elsewhere::Elsewhere;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A command that takes longer counts as hung. The limit is generous, because the machine may be shared.
const LIMIT: Duration = Duration::from_secs(120);

/// The output of a command, and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    #[track_caller]
    pub fn ends_with(self, code: i32) -> Said {
        assert_eq!(self.code, code, "out:\n{}\nerr:\n{}", self.out, self.err);
        self
    }

    /// A line of standard error.
    #[track_caller]
    pub fn tells(self, text: &str) -> Said {
        assert!(self.err.contains(text), "no {text:?} in:\n{}", self.err);
        self
    }

    #[track_caller]
    pub fn prints(self, text: &str) -> Said {
        assert!(self.out.contains(text), "no {text:?} in:\n{}", self.out);
        self
    }
}

/// The name of the storage; those of others begin with it.
const STORAGE: &str = "storage";

pub struct Stage {
    pub dir: PathBuf,
    /// Holds the storage, to which the link `storage` leads. `None`: that is made in `dir`.
    elsewhere: Option<Elsewhere>,
}

impl Stage {
    pub fn new() -> Stage {
        let mut stage = Stage::without_storage();
        stage.elsewhere = Elsewhere::than(&stage.dir);
        if let Some(elsewhere) = &stage.elsewhere {
            let storage = elsewhere.path().join(STORAGE);
            fs::create_dir(&storage).unwrap();
            std::os::unix::fs::symlink(&storage, stage.dir.join(STORAGE)).unwrap();
            let device = |path: &Path| path.metadata().unwrap().dev();
            assert_ne!(device(&storage), device(&stage.pfs()));
        }
        stage
    }

    /// Without a storage: a test puts something in its place, or the first command makes it beside the PFS.
    pub fn without_storage() -> Stage {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // The name is short, because the path of a socket must be short.
        let dir = std::env::temp_dir().join(format!(
            "fbcli-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        ));
        for sub in ["pfs", "run", "home"] {
            fs::create_dir_all(dir.join(sub)).unwrap();
        }
        let dir = dir.canonicalize().unwrap();
        Stage {
            dir,
            elsewhere: None,
        }
    }

    pub fn pfs(&self) -> PathBuf {
        self.dir.join("pfs")
    }

    /// Makes the storage a new one.
    pub fn clear_storage(&self) {
        for entry in fs::read_dir(self.path(STORAGE)).into_iter().flatten() {
            fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
    }

    /// A path in the directory of the stage; of a storage, that where it really is.
    pub fn path(&self, name: &str) -> PathBuf {
        match &self.elsewhere {
            Some(elsewhere) if name.starts_with(STORAGE) => elsewhere.path().join(name),
            _ => self.dir.join(name),
        }
    }

    /// A command that runs `program` in the directory of the stage, with a minimal environment.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", self.dir.join("home"))
            .env("LC_ALL", "C.UTF-8")
            .env("XDG_RUNTIME_DIR", self.dir.join("run"))
            .env("FOREBAY_STORAGE", self.path(STORAGE))
            .env("FOREBAY_PRELOAD", common::preload())
            .env("FOREBAY_RECORDER", common::recorder())
            .env("FOREBAY_TABLES", self.dir.join("tables"))
            .env("FOREBAY_LOG_DIR", self.dir.join("logs"))
            .env("FOREBAY", common::forebay())
            .current_dir(&self.dir)
            .stdin(Stdio::null());
        command
    }

    /// `forebay` with these arguments.
    pub fn forebay(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(common::forebay());
        command.args(arguments);
        command
    }

    /// Waits for the end of the command.
    pub fn say(&self, arguments: &[&str]) -> Said {
        finish(self.forebay(arguments))
    }

    /// A shell script under `forebay run --buffer pfs` with these options.
    pub fn script(&self, options: &[&str], script: &str) -> Said {
        finish(self.script_command(options, script))
    }

    pub fn script_command(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.forebay(&["run", "--buffer", "pfs"]);
        command.args(options).args(["--", "sh", "-c", script]);
        command
    }

    /// The bridges that `forebay status --json` lists.
    pub fn bridges(&self) -> Vec<Value> {
        let said = self.say(&["status", "--json"]).ends_with(0);
        let all: Value = serde_json::from_str(&said.out).unwrap();
        all["bridges"].as_array().unwrap().clone()
    }

    /// The process id of the only bridge.
    pub fn bridge_pid(&self) -> u32 {
        let bridges = self.bridges();
        assert_eq!(bridges.len(), 1, "{bridges:?}");
        bridges[0]["pid"].as_u64().unwrap().try_into().unwrap()
    }

    /// Waits until each thread of this process is traced.
    #[track_caller]
    pub fn wait_for_tracer(&self, pid: u32) {
        self.wait_for("strace", || {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            let status = |task: std::io::Result<fs::DirEntry>| {
                fs::read_to_string(task.unwrap().path().join("status")).unwrap()
            };
            tasks
                .map(status)
                .all(|status| !status.contains("TracerPid:\t0\n"))
        });
    }

    /// The names and contents on the PFS, without the lock of a buffer.
    pub fn on_pfs(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(self.pfs()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name == ".forebay-lock" {
                continue;
            }
            found.insert(name, fs::read_to_string(&path).unwrap_or_default());
        }
        found
    }

    /// Waits until a condition holds that another process brings about.
    #[track_caller]
    pub fn wait_for(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(started.elapsed() < LIMIT, "{what} does not come about");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    pub fn wait_for_file(&self, name: &str) {
        let path = self.path(name);
        self.wait_for(name, || path.exists());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A failed test may leave bridges. They are the processes whose arguments name its directory.
        // With the slash: the name of this one is the beginning of others.
        let dirs = [
            Some(self.dir.as_path()),
            self.elsewhere.as_ref().map(Elsewhere::path),
        ];
        let marks: Vec<_> = dirs
            .iter()
            .flatten()
            .map(|dir| format!("{}/", dir.display()))
            .collect();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
                continue;
            };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(" bridge ") && marks.iter().any(|mark| line.contains(mark)) {
                kill("KILL", pid.unsigned_abs());
            }
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Sends a signal to a process that the test has started.
pub fn kill(signal: &str, pid: u32) {
    let _ = Command::new("kill")
        .args(["-s", signal, &pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// Waits until a process is gone that is no child of this one.
pub fn wait_dead(pid: u32) {
    if let Ok(process) = forebay_sys::Process::open(pid) {
        process.await_end();
    }
}

/// Starts the command, and captures both output streams.
pub fn start(mut command: Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end of the command. Fails after a time limit.
pub fn wait(mut child: Child) -> Said {
    fn reader(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut stream) = stream {
                stream.read_to_end(&mut bytes).unwrap();
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("a command hangs: {}", err.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Said {
        code: status.code().unwrap_or(128 + status.signal().unwrap_or(0)),
        out: out.join().unwrap(),
        err: err.join().unwrap(),
    }
}

/// Starts the command and waits for its end.
pub fn finish(command: Command) -> Said {
    wait(start(command))
}

/// Everything below a directory that a drain must preserve: kind and mode, size or text, time, names.
pub fn tree(root: &Path) -> BTreeMap<String, String> {
    let described = forebay_testkit::entries_below(root)
        .into_iter()
        .map(|(path, meta)| {
            let full = root.join(&path);
            let mut text = format!("{:o}", meta.mode());
            if !meta.is_dir() {
                let (names, mtime) = (meta.nlink(), meta.mtime());
                text += &format!(" x{names} {mtime}.{:09}", meta.mtime_nsec());
            }
            if meta.is_symlink() {
                text += &format!(" -> {}", fs::read_link(&full).unwrap().display());
            } else if meta.is_file() {
                text += &format!(" {}", String::from_utf8_lossy(&fs::read(&full).unwrap()));
            }
            (path.to_string_lossy().into_owned(), text)
        });
    described.collect()
}

/// A small file system of its own, until the value is dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// In memory at `dir`, which is made, with these options of tmpfs. `None` where this process may not mount.
    pub fn new(dir: PathBuf, options: &str) -> Option<SmallDisk> {
        SmallDisk::mount(dir, &["-t", "tmpfs", "-o", options, "none"])
    }

    /// An ext4 of so many MiB at `dir`, which is made, in a file beside it.
    pub fn ext4(dir: PathBuf, mib: u64) -> Option<SmallDisk> {
        let image = dir.with_extension("image");
        let file = fs::File::create(&image).unwrap();
        file.set_len(mib << 20).unwrap();
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-m0"])
            .arg(&image)
            .status();
        let is_made = made.is_ok_and(|status| status.success());
        is_made
            .then(|| SmallDisk::mount(dir, &["-o", "loop", image.to_str().unwrap()]))
            .flatten()
    }

    fn mount(dir: PathBuf, arguments: &[&str]) -> Option<SmallDisk> {
        fs::create_dir(&dir).unwrap();
        let mounted = Command::new("mount").args(arguments).arg(&dir).status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(SmallDisk(dir))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
