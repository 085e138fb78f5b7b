//! The lock in the PFS directory: made, found, judged by [`forebay_core::claim`], taken over, removed.

use crate::Error;
use crate::error::Where;
use crate::instance::holds_objects;
use forebay_core::claim::{self, Claim, Holdings, LockVerdict, Taken, Witness};
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno, Process, Sys};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// So often another bridge may have changed the lock between two looks of ours.
const MOST_TRIES: u32 = 100;

/// What this node knows of holders that are, or were, on it.
struct Node;

impl Witness for Node {
    fn runs(&self, claim: &Claim) -> bool {
        match Process::open(claim.pid) {
            Err(Errno::SRCH | Errno::INVAL) => false,
            // What can't be seen may be it.
            Err(_) => true,
            Ok(process) => {
                let is_other = sys::process_started(claim.pid)
                    .is_ok_and(|started| started != claim.pid_started);
                !process.has_ended() && !is_other
            }
        }
    }

    fn holds(&self, claim: &Claim) -> Holdings {
        let instance = Path::new(OsStr::from_bytes(&claim.instance));
        let gone_or_unknown = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => Holdings::Gone,
            _ => Holdings::Unknown,
        };
        match fs::symlink_metadata(instance) {
            Ok(found) if found.ino() == claim.storage => {}
            Ok(_) => return Holdings::Gone,
            Err(e) => return gone_or_unknown(e),
        }
        match holds_objects(instance) {
            Ok(true) => Holdings::Something,
            Ok(false) => Holdings::Nothing,
            Err(_) => Holdings::Unknown,
        }
    }

    fn is_at_its_place(&self, claim: &Claim) -> bool {
        let root = Path::new(OsStr::from_bytes(&claim.root));
        let root = sys::open_path(root, libc::O_PATH | libc::O_DIRECTORY);
        let found = root.and_then(|root| sys::stat(root.as_fd(), b""));
        found.is_ok_and(|found| found.ino == claim.dir)
    }
}

/// Does the bridge that has made this lock run, on this node and in this container? A bridge of another user may not answer.
pub fn is_served(claim: &Claim) -> bool {
    let is_here = sys::boot_id().is_ok_and(|boot| boot == claim.boot)
        && sys::pid_space().is_ok_and(|space| space == claim.pid_space);
    is_here && Node.runs(claim)
}

/// The lock of a buffer.
pub(crate) struct Hold {
    lower: Arc<Lower>,
    root: PathBuf,
    mine: Claim,
}

impl Hold {
    /// That of the buffer over `root` for the storage `instance`, whose own lock the caller has. The directory is not locked yet.
    ///
    /// # Errors
    /// The file system says no.
    pub fn new(lower: Arc<Lower>, root: &Path, instance: &Path) -> Result<Self, Error> {
        let failed = |e| Error::io("can't look at", root, e);
        // By one path in each life, from wherever the command was given.
        let instance = instance
            .canonicalize()
            .map_err(|e| Error::io("can't find", instance, e))?;
        let storage =
            fs::metadata(&instance).map_err(|e| Error::io("can't look at", &instance, e))?;
        let pid = std::process::id();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let mine = Claim {
            uid: sys::my_ids().0,
            host: sys::host_name(),
            boot: sys::boot_id().map_err(failed)?,
            pid_space: sys::pid_space().map_err(failed)?,
            mount_space: sys::mount_space().map_err(failed)?,
            pid,
            pid_started: sys::process_started(pid).map_err(failed)?,
            since_s: since.map_or(0, |since| since.as_secs()),
            dir: sys::stat(lower.root(), b"").map_err(failed)?.ino,
            storage: storage.ino(),
            root: root.as_os_str().as_bytes().to_vec(),
            instance: instance.as_os_str().as_bytes().to_vec(),
        };
        Ok(Hold {
            lower,
            root: root.to_owned(),
            mine,
        })
    }

    /// Identity of the space in which paths have a meaning for the bridge.
    pub fn mount_space(&self) -> u64 {
        self.mine.mount_space
    }

    /// Does the directory have a lock that this storage has made in the directory with the inode number `dir`, in whichever life?
    /// Perhaps under the name that it has while it is being removed.
    pub fn is_there(&self, dir: u64) -> bool {
        let aside = Claim::name_aside(&self.mine.to_text());
        [claim::NAME, &aside].into_iter().any(|name| {
            let text = sys::readlink(self.lower.root(), name).ok();
            let claim = text.as_deref().and_then(Claim::from_text);
            claim.is_some_and(|claim| claim.is_of(&self.mine) && claim.dir == dir)
        })
    }

    /// Locks the directory. Gives what the user should know of that.
    ///
    /// # Errors
    /// [`Error::Locked`]: another buffer has this directory, one above it, or one in it.
    pub fn take(&self) -> Result<Vec<String>, Error> {
        let mut notes = Vec::new();
        let is_new = self.acquire(&mut notes)?;
        self.sweep();
        // After that: of two that overlap and come at once, each finds the lock of the other.
        if let Err(e) = self.check_overlap() {
            // What an earlier life has left is still to be drained.
            if is_new {
                self.release();
            }
            return Err(e);
        }
        Ok(notes)
    }

    /// Takes the lock, or says why there can be none. False if an earlier life of this storage had it.
    fn acquire(&self, notes: &mut Vec<String>) -> Result<bool, Error> {
        let root = self.lower.root();
        let mine = self.mine.to_text();
        let mut is_new = true;
        for _ in 0..MOST_TRIES {
            match self.keeping_times(|| sys::symlink(&mine, root, claim::NAME)) {
                Ok(()) => {
                    let readable = || sys::open_path(&self.root, libc::O_RDONLY);
                    return sys::sync_names(root, readable)
                        .map(|()| is_new)
                        .map_err(|e| Error::io("can't make durable", &self.root, e));
                }
                Err(Errno::EXIST) => {}
                Err(e) => {
                    notes.push(format!(
                        "{} can't be locked ({e}): another buffer over it would not be noticed",
                        self.root.display()
                    ));
                    return Ok(is_new);
                }
            }
            let found = match sys::readlink(root, claim::NAME) {
                Err(Errno::NOENT) => continue,
                // A request that NFS has sent twice.
                Ok(text) if text == mine => return Ok(is_new),
                Ok(text) => text,
                Err(_) => Vec::new(),
            };
            let Some(theirs) = Claim::from_text(&found) else {
                return Err(self.locked(Where::Here, &self.root, None));
            };
            let verdict = claim::judge(&theirs, &self.mine, self.mine.dir, &Node);
            let is_own = matches!(verdict, LockVerdict::Own);
            match verdict {
                LockVerdict::Taken(why) => {
                    return Err(self.locked(Where::Here, &self.root, Some((theirs, why))));
                }
                LockVerdict::Own => is_new = false,
                LockVerdict::Stale(why) => notes.push(format!(
                    "took over the lock of {} ({theirs}): {why}",
                    self.root.display()
                )),
            }
            match self.keeping_times(|| remove_exactly(root, &found)) {
                Ok(()) => {}
                // It names this storage, and counts for others as long as something is in there.
                Err(e @ (Errno::ROFS | Errno::ACCESS | Errno::PERM)) if is_own => {
                    notes.push(format!(
                        "the lock of {} can't be renewed ({e}): it stays as an earlier bridge has made it",
                        self.root.display()
                    ));
                    return Ok(false);
                }
                Err(e) => return Err(Error::io("can't take over the lock of", &self.root, e)),
            }
        }
        Err(self.locked(Where::Here, &self.root, None))
    }

    fn locked(&self, place: Where, dir: &Path, by: Option<(Claim, Taken)>) -> Error {
        Error::Locked {
            asked: self.root.clone(),
            place,
            dir: dir.to_owned(),
            by: by.map(Box::new),
        }
    }

    /// Does a buffer lie over a directory above this one, or in it? Locks above are all seen. Of those below only the ones that
    /// something on this node leads to: a running bridge, or another buffer in the same storage.
    fn check_overlap(&self) -> Result<(), Error> {
        for dir in sys::ancestors(&self.root) {
            if let Some(by) = self.counts(&dir) {
                return Err(self.locked(Where::Above, &dir, Some(by)));
            }
        }
        for dir in buffers_on_this_node(Path::new(OsStr::from_bytes(&self.mine.instance))) {
            let Ok(dir) = dir.canonicalize() else {
                continue;
            };
            let is_below = sys::is_within(&dir, &self.root) && !sys::is_within(&self.root, &dir);
            if is_below && let Some(by) = self.counts(&dir) {
                return Err(self.locked(Where::Below, &dir, Some(by)));
            }
        }
        Ok(())
    }

    /// The lock in another directory, if it counts.
    fn counts(&self, dir: &Path) -> Option<(Claim, Taken)> {
        // By calls that a library in this process does not see: it hides locks.
        let dir = sys::open_path(dir, libc::O_PATH | libc::O_DIRECTORY).ok()?;
        let text = sys::readlink(dir.as_fd(), claim::NAME).ok()?;
        let about = sys::stat(dir.as_fd(), b"").ok()?;
        let link = sys::stat(dir.as_fd(), claim::NAME).ok()?;
        // Where everybody may write, anybody could keep others from all that lies below.
        let believed = [0, about.uid, self.mine.uid];
        if about.mode & 0o002 != 0 && !believed.contains(&link.uid) {
            return None;
        }
        let theirs = Claim::from_text(&text)?;
        match claim::judge(&theirs, &self.mine, about.ino, &Node) {
            LockVerdict::Taken(why) => Some((theirs, why)),
            LockVerdict::Own | LockVerdict::Stale(_) => None,
        }
    }

    /// Makes sure that the lock is still ours, before anything is changed on the PFS. One that somebody has removed is made anew.
    ///
    /// # Errors
    /// [`Error::Locked`]: another buffer has it now.
    pub fn confirm(&self) -> Result<(), Error> {
        self.acquire(&mut Vec::new()).map(drop)
    }

    /// What to say if the path of the buffer leads elsewhere by now: others have renamed or removed the directory, and what is
    /// drained goes with it.
    pub fn remark_on_place(&self) -> Option<String> {
        let here = sys::stat(self.lower.root(), b"").ok()?;
        let named = sys::open_path(&self.root, libc::O_PATH | libc::O_DIRECTORY);
        match named.and_then(|dir| sys::stat(dir.as_fd(), b"")) {
            // The device of a network file system has another number with each mount.
            Ok(named) if named.ino == here.ino => return None,
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
            // Nobody can tell.
            Err(_) => return None,
        }
        if here.nlink == 0 {
            return Some(format!(
                "others have removed {} while it was buffered: nothing can be drained to it",
                self.root.display()
            ));
        }
        let now = fs::read_link(sys::proc_link(self.lower.root())).ok()?;
        let there = sys::open_path(&now, libc::O_PATH | libc::O_DIRECTORY);
        let there = there.and_then(|dir| sys::stat(dir.as_fd(), b""));
        let root = self.root.display();
        let elsewhere = || {
            format!(
                "{root} leads elsewhere now (unmounted, or mounted over): what was drained is in the directory that was there before"
            )
        };
        Some(match there {
            Ok(there) if (there.dev, there.ino) != (here.dev, here.ino) || now == self.root => {
                elsewhere()
            }
            Err(Errno::NOENT | Errno::NOTDIR) => elsewhere(),
            // It may be where nobody but others can look.
            Ok(_) | Err(_) => format!(
                "others have renamed {root} while it was buffered: what was drained is in {}",
                now.display()
            ),
        })
    }

    /// The buffer holds nothing any more: the directory is free.
    pub fn release(&self) {
        let mine = self.mine.to_text();
        // One that stays is known as stale by what its storage holds.
        let _ = self.keeping_times(|| remove_exactly(self.lower.root(), &mine));
        self.sweep();
    }

    /// Removes what could not be removed of a lock of this storage, because the PFS failed or the process died.
    fn sweep(&self) {
        let aside = Claim::name_aside(&self.mine.to_text());
        let root = self.lower.root();
        let text = sys::readlink(root, &aside).ok();
        let claim = text.as_deref().and_then(Claim::from_text);
        if claim.is_some_and(|claim| claim.is_of(&self.mine)) {
            let _ = self.keeping_times(|| sys::unlink(root, &aside, false));
        }
    }

    /// What happens to the lock does not show in the times of the directory.
    fn keeping_times(&self, change: impl FnOnce() -> Sys<()>) -> Sys<()> {
        let root = self.lower.root();
        let before = sys::stat(root, b"");
        change()?;
        if let (Ok(before), Ok(dir)) = (before, sys::open(root, b".", libc::O_RDONLY, 0)) {
            // Only its owner may.
            let _ = sys::set_times(dir.as_fd(), b"", None, Some(before.mtime));
        }
        Ok(())
    }
}

/// Removes the lock if it has this text. Another one stays, or is put back: who looks at it in this very moment finds none, which
/// its holder notices before the next drain.
fn remove_exactly(root: BorrowedFd<'_>, text: &[u8]) -> Sys<()> {
    let aside = Claim::name_aside(text);
    if sys::readlink(root, claim::NAME).as_deref() != Ok(text) {
        return Ok(());
    }
    match sys::rename(root, claim::NAME, root, &aside) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    }
    if sys::readlink(root, &aside).as_deref() != Ok(text) {
        // A link replaces nothing on any file system, but not every one has links.
        return match sys::link(root, &aside, root, claim::NAME) {
            Err(Errno::PERM | Errno::OPNOTSUPP) => {
                sys::rename_noreplace(root, &aside, root, claim::NAME)
            }
            // Somebody has made a lock meanwhile.
            Ok(()) | Err(Errno::EXIST) => sys::unlink(root, &aside, false),
            Err(e) => Err(e),
        };
    }
    sys::unlink(root, &aside, false)
}

/// Directories that may have a buffer, as this node knows: a hint alone, for anybody can start a process with such arguments.
fn buffers_on_this_node(instance: &Path) -> Vec<PathBuf> {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    let siblings = instance.parent().into_iter().flat_map(entries);
    let mut found: Vec<PathBuf> = siblings
        .filter_map(|entry| crate::instance::root_of(&entry.path()))
        .collect();
    for process in entries(Path::new("/proc")) {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|&b| b == 0).collect();
        let at = words
            .windows(3)
            .position(|w| w[0] == b"bridge" && w[1] == b"--root");
        found.extend(at.map(|at| PathBuf::from(OsStr::from_bytes(words[at + 2]))));
    }
    found
}

/// Removes the lock of a directory, because somebody says that it counts no more. Gives what it said; `None` if there was none.
///
/// # Errors
/// Its bridge runs on this node, or the file system says no.
pub fn unlock(root: &Path) -> Result<Option<String>, Error> {
    let failed = |e| Error::io("can't unlock", root, e);
    let dir = sys::open_path(root, libc::O_PATH | libc::O_DIRECTORY).map_err(failed)?;
    let text = match sys::readlink(dir.as_fd(), claim::NAME) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.map_err(failed)?,
    };
    let found = Claim::from_text(&text);
    if let Some(theirs) = &found {
        let is_here = theirs.host == sys::host_name()
            && sys::boot_id().is_ok_and(|boot| boot == theirs.boot)
            && sys::pid_space().is_ok_and(|space| space == theirs.pid_space);
        if is_here && Node.runs(theirs) {
            return Err(Error::Locked {
                asked: root.to_owned(),
                place: Where::Here,
                dir: root.to_owned(),
                by: Some(Box::new((theirs.clone(), Taken::Running))),
            });
        }
    }
    remove_exactly(dir.as_fd(), &text).map_err(failed)?;
    Ok(Some(match found {
        Some(theirs) => theirs.to_string(),
        None => String::from_utf8_lossy(&text).escape_debug().to_string(),
    }))
}
