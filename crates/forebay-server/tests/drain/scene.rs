//! A bridge over a small PFS directory, a client at work in it, and pictures of both sides.

use forebay_admin::drain::{DrainRequest, DrainStatus, Inventory, Left};
use forebay_client::Client;
use forebay_mover::{Counters, Halt, Pass, Points};
use forebay_server::{Config, Server, start, take_inventory};
use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// A folder of its own, removed at the end.
pub struct Scene {
    pub dir: PathBuf,
}

impl Scene {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let dir = std::env::temp_dir().join(format!(
            "forebay-drain-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir_all(dir.join("pfs")).unwrap();
        Scene { dir }
    }

    pub fn pfs(&self) -> PathBuf {
        self.dir.join("pfs")
    }

    /// A file of the PFS that was there before.
    pub fn below(&self, path: &str, text: &str) {
        let path = self.pfs().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        set_old(&File::open(&path).unwrap(), 7);
    }

    pub fn serve(&self) -> Bridge {
        self.serve_over(&self.pfs())
    }

    pub fn serve_over(&self, root: &Path) -> Bridge {
        let mut config = Config::new(root, &self.dir.join("storage")).unwrap();
        config.log = Box::new(std::io::sink());
        Bridge {
            server: Some(start(config).unwrap()),
            root: root.to_owned(),
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Far enough back that no test makes such a time by chance.
pub fn set_old(file: &File, second: u64) {
    let at = SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000 + second, 123_456_789);
    file.set_times(FileTimes::new().set_accessed(at).set_modified(at))
        .unwrap();
}

pub fn through(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// A bridge in this process, and what a program does in it.
pub struct Bridge {
    server: Option<Server>,
    root: PathBuf,
}

impl Bridge {
    pub fn client(&self) -> Client {
        Client::connect(&self.server().info().socket).unwrap()
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Ends it and starts another one: nothing but storage is left in between.
    pub fn restart(self, scene: &Scene) -> Bridge {
        let root = self.root.clone();
        drop(self);
        scene.serve_over(&root)
    }

    /// One drain, cut short at a point; true if it came to its end.
    pub fn drain_until(
        &self,
        point: i64,
        request: &DrainRequest,
    ) -> (bool, DrainStatus, Vec<Left>) {
        let counters = Counters::new(1);
        let points = Points::cut_at(point);
        let ground = self.server().handle().ground();
        let ended = match Pass::new(ground, request, &counters, &points).run() {
            Ok(()) => true,
            Err(Halt::Cut) => false,
            Err(e) => panic!("{e:?}"),
        };
        counters.end(None);
        (ended, counters.status(), left_of(&counters))
    }

    /// One drain, in which `then` happens at a point, if it comes so far.
    pub fn drain_while(
        &self,
        point: i64,
        then: impl Fn() + Send + Sync + 'static,
        request: &DrainRequest,
    ) -> (DrainStatus, Vec<Left>) {
        let counters = Counters::new(1);
        let points = Points::calling_at(point, then);
        let ground = self.server().handle().ground();
        let pass = Pass::new(ground, request, &counters, &points);
        pass.run().unwrap();
        counters.end(None);
        (counters.status(), left_of(&counters))
    }

    pub fn drain(&self, request: &DrainRequest) -> (DrainStatus, Vec<Left>) {
        let (ended, status, left) = self.drain_until(i64::MAX, request);
        assert!(ended);
        (status, left)
    }

    /// A drain that is stopped when so many bytes are copied.
    pub fn drain_and_stop(&self, request: &DrainRequest, bytes: u64) -> (DrainStatus, Vec<Left>) {
        let counters = Counters::new(1);
        let points = Points::cut_at(i64::MAX);
        std::thread::scope(|scope| {
            let drain = scope.spawn(|| {
                let ground = self.server().handle().ground();
                Pass::new(ground, request, &counters, &points)
                    .run()
                    .unwrap();
                counters.end(None);
            });
            while counters.status().bytes_done < bytes && !drain.is_finished() {
                std::thread::yield_now();
            }
            counters.stop();
        });
        (counters.status(), left_of(&counters))
    }

    pub fn inventory(&self) -> Inventory {
        take_inventory(self.server().handle()).unwrap()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let stopped = server.stop();
            if !std::thread::panicking() {
                stopped.unwrap();
            }
        }
    }
}

fn left_of(counters: &Counters) -> Vec<Left> {
    counters.left_from(0, usize::MAX)
}

/// One thread, so that every run passes the same points.
pub fn one_by_one() -> DrainRequest {
    DrainRequest {
        workers: Some(1),
        ..DrainRequest::default()
    }
}

/// What a program does, in short words.
pub trait Work {
    fn write(&mut self, path: &str, text: &str);
    fn read(&mut self, path: &str) -> String;
    fn age(&mut self, path: &str, second: u64);
    fn chmod(&mut self, path: &str, mode: u32);
}

impl Work for Client {
    fn write(&mut self, path: &str, text: &str) {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
        let mut file = File::from(self.open(path, flags, 0o640).unwrap());
        file.write_all(text.as_bytes()).unwrap();
        set_old(&file, text.len() as u64);
    }

    fn read(&mut self, path: &str) -> String {
        let mut text = String::new();
        File::from(self.open(path, libc::O_RDONLY, 0).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    fn age(&mut self, path: &str, second: u64) {
        let fd = self.resolve(path, 0).unwrap();
        set_old(&File::open(through(&fd)).unwrap(), second);
    }

    fn chmod(&mut self, path: &str, mode: u32) {
        let fd = self.resolve(path, 0).unwrap();
        fs::set_permissions(through(&fd), fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// One thing of a tree, as far as a drain has to bring it over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thing {
    pub mode: u32,
    pub owner: (u32, u32),
    pub contents: Vec<u8>,
    /// Not of directories that were there before: their entries change at the drain.
    pub mtime: Option<(i64, i64)>,
    /// Number of names; not of directories.
    pub names: u64,
}

/// A tree by its paths.
pub type Tree = BTreeMap<String, Thing>;

/// What is on the PFS, without the lock of the buffer.
pub fn tree_of(root: &Path, born: &[&str]) -> Tree {
    let things = forebay_testkit::entries_below(root)
        .into_iter()
        .filter(|(path, _)| path != Path::new(".forebay-lock"))
        .map(|(path, meta)| {
            let full = root.join(&path);
            let contents = if meta.is_symlink() {
                fs::read_link(&full).unwrap().into_os_string().into_vec()
            } else if meta.is_file() {
                fs::read(&full).unwrap()
            } else {
                Vec::new()
            };
            let name = path.to_string_lossy().into_owned();
            let has_own_time = !meta.is_dir() || born.contains(&name.as_str());
            let thing = Thing {
                mode: meta.mode(),
                owner: (meta.uid(), meta.gid()),
                contents,
                mtime: has_own_time.then_some((meta.mtime(), meta.mtime_nsec())),
                names: if meta.is_dir() { 0 } else { meta.nlink() },
            };
            (name, thing)
        });
    things.collect()
}

/// What the buffer shows, through a client.
pub fn view_of(client: &mut Client, born: &[&str]) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![Vec::new()];
    while let Some(dir) = todo.pop() {
        for entry in client.list(&dir).unwrap() {
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let mut path = dir.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            let attr = client.lstat(&path).unwrap();
            let is = |kind| attr.mode & libc::S_IFMT == kind;
            let mut contents = Vec::new();
            if is(libc::S_IFDIR) {
                todo.push(path.clone());
            } else if is(libc::S_IFLNK) {
                contents = client.readlink(&path).unwrap();
            } else if is(libc::S_IFREG) {
                let fd = client.open(&path, libc::O_RDONLY, 0).unwrap();
                File::from(fd).read_to_end(&mut contents).unwrap();
            }
            let name = String::from_utf8_lossy(&path).into_owned();
            let has_own_time = !is(libc::S_IFDIR) || born.contains(&name.as_str());
            tree.insert(
                name,
                Thing {
                    mode: attr.mode,
                    owner: (attr.uid, attr.gid),
                    contents,
                    mtime: has_own_time.then_some((attr.mtime.sec, attr.mtime.nsec.into())),
                    names: if is(libc::S_IFDIR) {
                        0
                    } else {
                        attr.nlink.into()
                    },
                },
            );
        }
    }
    tree
}

/// Both sides, with what is different in words.
pub fn assert_same(what: &str, expected: &Tree, found: &Tree) {
    let mut wrong = Vec::new();
    for (path, thing) in expected {
        match found.get(path) {
            None => wrong.push(format!("{path} is missing")),
            Some(other) if other != thing => {
                wrong.push(format!("{path}: expected {thing:?}, found {other:?}"));
            }
            Some(_) => {}
        }
    }
    for path in found.keys().filter(|path| !expected.contains_key(*path)) {
        wrong.push(format!("{path} should not be there"));
    }
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}
