//! A buffer of its own for each test: folders, a bridge in threads, clients.
#![allow(dead_code)] // each test file uses its part

pub mod lane;
pub mod load;
pub mod process;
pub mod raw;

use forebay_client::Client;
use forebay_objects::label::LabelsOf;
use forebay_server::fsck::{self, Options};
use forebay_server::{Config, Server, start};
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that goes with the value.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        Self::within(std::env::temp_dir())
    }
    pub fn within(dir: impl AsRef<Path>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "fby-test-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = dir.as_ref().join(name);
        std::fs::create_dir(&path).unwrap();
        Folder(path.canonicalize().unwrap())
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A PFS directory and a place for buffers, both empty at first.
pub struct Place {
    folder: Folder,
}

impl Place {
    /// The attribute that holds the labels of its objects.
    pub fn label_attribute(&self) -> &'static [u8] {
        let folder = File::open(self.folder.path()).unwrap();
        LabelsOf::best(folder.as_fd()).attribute()
    }

    pub fn new() -> Self {
        let folder = Folder::new();
        for sub in ["pfs", "storage"] {
            let path = folder.path().join(sub);
            std::fs::create_dir(&path).unwrap();
            // A bridge in this process has taken the umask away.
            std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        Place { folder }
    }
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("pfs")
    }
    pub fn storage(&self) -> PathBuf {
        self.folder.path().join("storage")
    }
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
    pub fn instance(&self) -> PathBuf {
        forebay_admin::instance_dir(&self.storage(), &self.root())
    }
    /// The socket lies in the test's own folder; the log is a file beside it.
    pub fn config(&self) -> Config {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .unwrap();
        let mut config = Config::new(&self.root(), &self.storage()).unwrap();
        config.socket = self.socket();
        config.log = Box::new(log);
        config
    }
    /// The folder that holds all of it.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
    pub fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
    /// What the bridge has logged so far.
    pub fn logged(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }
    pub fn start(&self) -> Server {
        start(self.config()).unwrap()
    }
    pub fn client(&self) -> Client {
        Client::connect(&self.socket()).unwrap()
    }
    /// What a check of the stopped instance finds.
    pub fn problems(&self) -> Vec<String> {
        self.check(Options::default())
    }
    /// The same after the tables have been made anew from the labels.
    pub fn rebuilt(&self) -> Vec<String> {
        self.check(Options {
            rebuild: true,
            ..Options::default()
        })
    }
    fn check(&self, options: Options) -> Vec<String> {
        fsck::fsck(&self.instance(), options).unwrap().problems
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the bridge has logged:\n{}", self.logged());
        }
    }
}

pub fn write(client: &mut Client, path: &str, bytes: &[u8]) {
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
    let fd = client.open(path, flags, 0o644).unwrap();
    File::from(fd).write_all(bytes).unwrap();
}

pub fn read(client: &mut Client, path: &str) -> Vec<u8> {
    let fd = client.open(path, libc::O_RDONLY, 0).unwrap();
    let mut bytes = Vec::new();
    File::from(fd).read_to_end(&mut bytes).unwrap();
    bytes
}

pub fn names(client: &mut Client, dir: &str) -> Vec<String> {
    let entries = client.list(dir).unwrap();
    entries
        .into_iter()
        .map(|e| String::from_utf8(e.name).unwrap())
        .collect()
}
