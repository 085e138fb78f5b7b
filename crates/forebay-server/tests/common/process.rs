//! A bridge in a process of its own, to be killed or looked at from outside. It is this
//! test program again, asked for its test `bridge_process`.

use super::Place;
use forebay_client::Control;
use forebay_server::Config;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const ROOT: &str = "FBY_TEST_ROOT";
const STORAGE: &str = "FBY_TEST_STORAGE";
const SOCKET: &str = "FBY_TEST_SOCKET";
const LOG: &str = "FBY_TEST_LOG";
const READY: &str = "bridge is ready";

/// What the test `bridge_process` does: it serves if it was started by [`Process`].
pub fn serve() {
    let Some(root) = std::env::var_os(ROOT) else {
        return;
    };
    let var = |name| std::env::var_os(name).unwrap();
    let mut config = Config::new(Path::new(&root), Path::new(&var(STORAGE))).unwrap();
    config.socket = var(SOCKET).into();
    let log = File::options().append(true).create(true).open(var(LOG));
    config.log = Box::new(log.unwrap());
    forebay_server::run(config, |_| println!("{READY}")).unwrap();
    // Nobody listens to what the test harness would say now.
    std::process::exit(0);
}

/// The process. It dies with the value.
pub struct Process(Child, PathBuf);

impl Process {
    /// Starts a bridge and waits until it serves.
    pub fn start(place: &Place) -> Process {
        Self::start_at(&place.root(), &place.storage(), place)
    }

    /// The same with folders elsewhere; socket and log are those of `place`.
    pub fn start_at(root: &Path, storage: &Path, place: &Place) -> Process {
        Self::try_start_at(root, storage, place).expect("the bridge has not started")
    }

    /// `None` if it ends before it serves.
    pub fn try_start_at(root: &Path, storage: &Path, place: &Place) -> Option<Process> {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["bridge_process", "--exact", "--ignored", "--nocapture"])
            .env(ROOT, root)
            .env(STORAGE, storage)
            .env(SOCKET, place.socket())
            .env(LOG, place.log())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(
                File::options()
                    .append(true)
                    .create(true)
                    .open(place.log())
                    .unwrap(),
            )
            .spawn()
            .unwrap();
        // It stays with the child: a bridge that lives for a minute is told of by the harness in it, and ends if nobody
        // can read that.
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.contains(READY));
        let process = Process(child, place.socket());
        ready.then_some(process)
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// `kill -9`, and waits for its end.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Ends it in order.
    pub fn end(mut self) {
        Control::connect(&self.1).unwrap().stop().unwrap();
        let status = self.0.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// How many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        let dir = format!("/proc/{}/fd", self.id());
        std::fs::read_dir(dir).unwrap().count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Ended already, or by the failing test.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
