//! Two who change one small tree: a program in the buffer, whose changes are drained, and somebody on the PFS, who strikes
//! at any point of that drain.

use super::scene::{Bridge, Scene, one_by_one};
use forebay_admin::drain::Reason;
use forebay_client::Client;
use forebay_core::drain::is_leftover;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What somebody does to the tree of [`scene`]. New contents and names hold who did it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Create,
    Write,
    Append,
    Truncate,
    Replace,
    RenameAway,
    Unlink,
    MakeDir,
    RemoveDir,
    CreateInDir,
    RenameDir,
    Chmod,
    Link,
}

const DEEDS: [Deed; 13] = [
    Deed::Create,
    Deed::Write,
    Deed::Append,
    Deed::Truncate,
    Deed::Replace,
    Deed::RenameAway,
    Deed::Unlink,
    Deed::MakeDir,
    Deed::RemoveDir,
    Deed::CreateInDir,
    Deed::RenameDir,
    Deed::Chmod,
    Deed::Link,
];

/// The calls of somebody at work in the tree.
trait Hands {
    fn open(&mut self, path: &str, flags: i32) -> io::Result<File>;
    fn rename(&mut self, old: &str, new: &str) -> io::Result<()>;
    fn unlink(&mut self, path: &str) -> io::Result<()>;
    fn mkdir(&mut self, path: &str) -> io::Result<()>;
    fn rmdir(&mut self, path: &str) -> io::Result<()>;
    fn link(&mut self, old: &str, new: &str) -> io::Result<()>;
    fn chmod(&mut self, path: &str, mode: u32) -> io::Result<()>;
}

fn of_client(e: forebay_client::Error) -> io::Error {
    match e.errno() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::other(e.to_string()),
    }
}

impl Hands for Client {
    fn open(&mut self, path: &str, flags: i32) -> io::Result<File> {
        let opened = Client::open(self, path, flags, 0o644).map_err(of_client)?;
        Ok(File::from(opened))
    }
    fn rename(&mut self, old: &str, new: &str) -> io::Result<()> {
        Client::rename(self, old, new).map_err(of_client)
    }
    fn unlink(&mut self, path: &str) -> io::Result<()> {
        Client::unlink(self, path).map_err(of_client)
    }
    fn mkdir(&mut self, path: &str) -> io::Result<()> {
        Client::mkdir(self, path, 0o755).map_err(of_client)
    }
    fn rmdir(&mut self, path: &str) -> io::Result<()> {
        Client::rmdir(self, path).map_err(of_client)
    }
    fn link(&mut self, old: &str, new: &str) -> io::Result<()> {
        Client::link(self, old, new).map_err(of_client)
    }
    fn chmod(&mut self, path: &str, mode: u32) -> io::Result<()> {
        let fd = self.resolve(path, 0).map_err(of_client)?;
        fs::set_permissions(super::scene::through(&fd), fs::Permissions::from_mode(mode))
    }
}

/// On the PFS, past the buffer.
struct Outside(PathBuf);

impl Hands for Outside {
    fn open(&mut self, path: &str, flags: i32) -> io::Result<File> {
        let mut options = File::options();
        options
            .write(flags & libc::O_ACCMODE != libc::O_RDONLY)
            .append(flags & libc::O_APPEND != 0)
            .create(flags & libc::O_CREAT != 0);
        options.open(self.0.join(path))
    }
    fn rename(&mut self, old: &str, new: &str) -> io::Result<()> {
        fs::rename(self.0.join(old), self.0.join(new))
    }
    fn unlink(&mut self, path: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(path))
    }
    fn mkdir(&mut self, path: &str) -> io::Result<()> {
        fs::create_dir(self.0.join(path))
    }
    fn rmdir(&mut self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.0.join(path))
    }
    fn link(&mut self, old: &str, new: &str) -> io::Result<()> {
        fs::hard_link(self.0.join(old), self.0.join(new))
    }
    fn chmod(&mut self, path: &str, mode: u32) -> io::Result<()> {
        fs::set_permissions(self.0.join(path), fs::Permissions::from_mode(mode))
    }
}

impl Deed {
    /// Does it. Where the other was quicker it fails, and may be done in part.
    fn done_by(self, who: &str, hands: &mut dyn Hands) -> io::Result<()> {
        let text = format!("{who}\n");
        let name = |end: &str| format!("{who}.{end}");
        let make = libc::O_WRONLY | libc::O_CREAT;
        match self {
            Deed::Create => hands.open("new", make)?.write_all(text.as_bytes()),
            Deed::Write => hands.open("f", libc::O_WRONLY)?.write_all(text.as_bytes()),
            Deed::Append => {
                let flags = libc::O_WRONLY | libc::O_APPEND;
                hands.open("f", flags)?.write_all(text.as_bytes())
            }
            Deed::Truncate => hands.open("f", libc::O_WRONLY)?.set_len(2),
            Deed::Replace => {
                let made = hands.open(&name("tmp"), make)?.write_all(text.as_bytes());
                made.and_then(|()| hands.rename(&name("tmp"), "f"))
            }
            Deed::RenameAway => hands.rename("f", &name("away")),
            Deed::Unlink => hands.unlink("f"),
            Deed::MakeDir => hands.mkdir("new"),
            Deed::RemoveDir => {
                let emptied = ["d/a", "d/b"].map(|path| hands.unlink(path));
                emptied.into_iter().collect::<io::Result<()>>()?;
                hands.rmdir("d")
            }
            Deed::CreateInDir => {
                let path = format!("d/{who}");
                hands.open(&path, make)?.write_all(text.as_bytes())
            }
            Deed::RenameDir => hands.rename("d", &name("dir")),
            Deed::Chmod => hands.chmod("f", 0o640),
            Deed::Link => hands.link("f", &name("link")),
        }
    }
}

/// All paths with permissions and contents; directories with a slash.
type Tree = BTreeMap<String, (u32, String)>;

/// What is on the PFS, but for the lock of the buffer.
fn on_pfs(root: &Path) -> Tree {
    let all = forebay_testkit::entries_below(root).into_iter();
    let others = all.filter(|(path, _)| path != Path::new(".forebay-lock"));
    others
        .filter_map(|(path, meta)| {
            let name = path.display().to_string();
            if meta.is_dir() {
                return Some((name + "/", (meta.mode() & 0o777, String::new())));
            }
            // A name of the drain may go while this looks.
            let text = fs::read_to_string(root.join(&path)).ok()?;
            Some((name, (meta.mode() & 0o777, text)))
        })
        .collect()
}

/// What the buffer shows.
fn in_buffer(client: &mut Client) -> Tree {
    let mut tree = Tree::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        for entry in client.list(&dir).unwrap() {
            let name = String::from_utf8(entry.name).unwrap();
            if name == "." || name == ".." {
                continue;
            }
            let path = format!("{dir}{name}");
            let mode = client.lstat(&path).unwrap().mode;
            if mode & libc::S_IFMT == libc::S_IFDIR {
                tree.insert(format!("{path}/"), (mode & 0o777, String::new()));
                dirs.push(format!("{path}/"));
                continue;
            }
            let mut text = String::new();
            let mut file = Hands::open(client, &path, libc::O_RDONLY).unwrap();
            file.read_to_string(&mut text).unwrap();
            tree.insert(path, (mode & 0o777, text));
        }
    }
    tree
}

fn holds(tree: &Tree, text: &str) -> bool {
    tree.values().any(|(_, contents)| contents == text)
}

/// Is it below a name that a drain makes up?
fn is_of_a_drain(path: &str) -> bool {
    path.split('/').any(|name| is_leftover(name.as_bytes()))
}

/// Does the tree hold what was at this path? A file may have another name now: one with text that names who wrote it is known
/// by that, any other by its mode and contents under its own name. A directory is known by its path: both may have made it.
fn keeps(tree: &Tree, path: &str, what: &(u32, String), whose: &str) -> bool {
    match path.ends_with('/') {
        true => tree.contains_key(path),
        false => tree.get(path) == Some(what) || what.1.contains(whose) && holds(tree, &what.1),
    }
}

/// What the PFS showed just before and after the deed on it, and what came of that.
struct Strike {
    before: Tree,
    after: Tree,
    did: bool,
}

impl Strike {
    fn at(root: &Path, deed: Deed) -> Strike {
        let before = on_pfs(root);
        let did = deed
            .done_by("theirs", &mut Outside(root.to_owned()))
            .is_ok();
        let after = on_pfs(root);
        Strike { before, after, did }
    }

    /// What it has made or changed.
    fn made(&self) -> impl Iterator<Item = (&String, &(u32, String))> {
        let made = self.after.iter();
        made.filter(|(path, what)| self.before.get(*path) != Some(what))
    }
}

/// Every so many points of a drain one is tried; the first differs from pair to pair.
const STRIDE: i64 = 8;
/// Environment variable: try all points, which takes minutes.
const ENV_EACH_POINT: &str = "FOREBAY_TEST_EACH_POINT";

#[derive(Default)]
struct Count {
    strikes: AtomicUsize,
    done: AtomicUsize,
    left: AtomicUsize,
}

/// One drain, in which somebody strikes at this point; false if it came to its end before.
fn strikes_at(point: i64, ours: Deed, theirs: Deed, count: &Count) -> bool {
    let what = format!("{ours:?} in the buffer, {theirs:?} on the PFS at point {point}");
    let scene = Scene::new();
    for (path, text) in [("f", "first\n"), ("d/a", "a\n"), ("d/b", "b\n")] {
        scene.below(path, text);
    }
    let pfs = scene.pfs();
    let bridge: Bridge = scene.serve();
    ours.done_by("ours", &mut bridge.client()).unwrap();
    let view = in_buffer(&mut bridge.client());
    let strike = Arc::new(Mutex::new(None));
    let struck = strike.clone();
    let root = pfs.clone();
    let then = move || *struck.lock().unwrap() = Some(Strike::at(&root, theirs));
    let (status, left) = bridge.drain_while(point, then, &one_by_one());
    let Some(strike) = strike.lock().unwrap().take() else {
        assert_eq!(left, [], "{what}: nobody else was there");
        return false;
    };
    count.strikes.fetch_add(1, Ordering::Relaxed);
    count
        .done
        .fetch_add(usize::from(strike.did), Ordering::Relaxed);
    count
        .left
        .fetch_add(usize::from(!left.is_empty()), Ordering::Relaxed);
    let keeps_theirs = |after: &Tree, when: &str| {
        for (path, made) in strike.made().filter(|(path, _)| !is_of_a_drain(path)) {
            assert!(
                keeps(after, path, made, "theirs"),
                "{what}, {when}: their {path:?} {made:?} is gone: {after:?}\n{left:?}"
            );
        }
    };
    let after = on_pfs(&pfs);
    let shown = in_buffer(&mut bridge.client());
    keeps_theirs(&after, "after the drain");
    // Where they have taken the directory away, it can only be listed.
    let is_listed = |text: &String| {
        let mut lost_dirs = left.iter().filter(|l| l.reason == Reason::NoDirectory);
        lost_dirs.any(|l| view.get(&l.path).is_some_and(|(_, other)| other == text))
    };
    let ours = view.values().map(|(_, text)| text);
    for text in ours.filter(|text| text.contains("ours")) {
        // What was on the PFS under its name was theirs to change.
        let published = strike.before.iter().filter(|(p, _)| !is_of_a_drain(p));
        let was_published = published.into_iter().any(|(_, (_, other))| other == text);
        assert!(
            was_published || is_listed(text) || holds(&shown, text) || holds(&after, text),
            "{what}: our {text:?} is lost: shown {shown:?}, PFS {after:?}\n{left:?}"
        );
    }
    if left.is_empty() && status.kept_because.is_none() {
        assert_eq!(shown, after, "{what}: nothing is said to be left");
    }
    let (_, left) = bridge.drain(&one_by_one());
    let after = on_pfs(&pfs);
    keeps_theirs(&after, "after the next drain");
    let leftover = after.keys().find(|path| is_of_a_drain(path));
    assert_eq!(leftover, None, "{what}: {left:?}");
    true
}

#[test]
fn whoever_changes_the_tree_on_the_pfs_at_points_all_over_a_drain_loses_nothing_and_destroys_nothing_of_ours()
 {
    let pairs = DEEDS
        .iter()
        .flat_map(|o| DEEDS.iter().map(move |t| (*o, *t)));
    let pairs: Vec<_> = pairs.collect();
    let next = AtomicUsize::new(0);
    let count = Count::default();
    let stride = std::env::var_os(ENV_EACH_POINT).map_or(STRIDE, |_| 1);
    std::thread::scope(|scope| {
        // They mostly wait for the disk.
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((ours, theirs)) = pairs.get(number) else {
                        break;
                    };
                    let mut point = number as i64 % stride;
                    while strikes_at(point, *ours, *theirs, &count) {
                        point += stride;
                    }
                }
            });
        }
    });
    let seen = |n: &AtomicUsize| n.load(Ordering::Relaxed);
    let (strikes, done, left) = (seen(&count.strikes), seen(&count.done), seen(&count.left));
    forebay_testkit::say(
        "struck",
        &format!("{strikes} strikes, {done} done, {left} left"),
    );
    assert!(strikes > 250, "{strikes} strikes");
    assert!(done > strikes / 2, "{done} of {strikes} were carried out");
    assert!(left > 30, "{left} drains left something");
}
