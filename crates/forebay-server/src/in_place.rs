//! Files of the PFS that programs have open in place: while one has, no copy of the file is put into the buffer.
//!
//! The kernel says who has a file open ([`who_uses`]), but not what is granted after the question. A grant is therefore
//! numbered before it checks for commits, and a commit is announced before it checks for grants
//! ([`crate::namespace::Namespace::commit`]). One sees the other.

use forebay_mover::{InUse, who_shows_in_proc, who_uses};
use forebay_sys::{self as sys, Openers, Sys};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Files whose grants are remembered one by one; about 20 MB.
const REMEMBERED: usize = 1 << 18;
/// Longest way of a descriptor to a client, where /proc alone tells who has a file open.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// Tries until the bridge has closed its own copy of a descriptor, which it does right after sending it.
const OWN_COPY_TRIES: u32 = 10;
/// Pause between two of these.
const OWN_COPY_PAUSE: Duration = Duration::from_millis(1);

/// Device and number of an inode.
pub type Inode = (u64, u64);

/// Grants of PFS files in place, as far as they matter.
pub struct InPlace(Mutex<Grants>);

struct Grants {
    /// Grants so far, those of earlier bridges counted as one.
    count: u64,
    last: HashMap<Inode, Grant>,
    /// Grants up to this number are not remembered.
    forgotten: u64,
    /// Files that were granted for writing, the first [`REMEMBERED`] of them.
    written: HashSet<Inode>,
}

struct Grant {
    number: u64,
    at: Instant,
}

/// A PFS file that nobody has open, about to be copied.
pub struct Original {
    /// To read it.
    pub file: OwnedFd,
    /// Which it is.
    pub inode: Inode,
    /// The number of grants when its users were asked for.
    pub since: u64,
}

/// What a look at who has a file open has shown.
pub enum Looked {
    /// Nobody has.
    Free(Original),
    /// Others have.
    Held,
    /// The bridge itself has, for a moment.
    Busy(OwnedFd),
}

impl InPlace {
    /// Starts without grants. `has_past`: earlier bridges of this buffer may have granted something.
    pub fn new(has_past: bool) -> Self {
        InPlace(Mutex::new(Grants {
            count: 1,
            last: HashMap::new(),
            forgotten: u64::from(has_past),
            written: HashSet::new(),
        }))
    }

    /// May a client of this bridge have written to the file in place?
    pub fn was_written(&self, inode: Inode) -> bool {
        self.0.lock().written.contains(&inode)
    }

    /// Notes that a client is about to get this descriptor, perhaps to write to it.
    pub fn note(&self, file: &OwnedFd, writes: bool) {
        let attr = sys::stat(file.as_fd(), b"");
        if matches!(&attr, Ok(attr) if attr.mode & libc::S_IFMT != libc::S_IFREG) {
            return;
        }
        let mut grants = self.0.lock();
        grants.count += 1;
        let number = grants.count;
        let Ok(attr) = attr else {
            // It may be any file.
            grants.forgotten = number;
            return;
        };
        if grants.last.len() >= REMEMBERED {
            grants.last.clear();
            grants.forgotten = number;
        }
        if writes && grants.written.len() < REMEMBERED {
            grants.written.insert((attr.dev, attr.ino));
        }
        let at = Instant::now();
        grants
            .last
            .insert((attr.dev, attr.ino), Grant { number, at });
    }

    /// Notes that a client is about to change the file by its path (`truncate`): what is no regular file is not written in place.
    pub fn note_change(&self, file: &OwnedFd) {
        let Ok(attr) = sys::stat(file.as_fd(), b"") else {
            return;
        };
        let mut grants = self.0.lock();
        if attr.mode & libc::S_IFMT == libc::S_IFREG && grants.written.len() < REMEMBERED {
            grants.written.insert((attr.dev, attr.ino));
        }
    }

    /// True if the file may have been granted after that number of grants.
    pub fn was_granted_since(&self, inode: Inode, since: u64) -> bool {
        let grants = self.0.lock();
        let last = grants.last.get(&inode).map_or(0, |grant| grant.number);
        last.max(grants.forgotten) > since
    }

    /// The file, to be copied, if nobody has it open.
    ///
    /// # Errors
    /// It can't be looked at.
    pub fn look(&self, file: OwnedFd, is_network: bool) -> Sys<Looked> {
        let since = self.0.lock().count;
        let attr = sys::stat(file.as_fd(), b"")?;
        let inode = (attr.dev, attr.ino);
        Ok(match self.users(&file, inode, is_network) {
            InUse::No => Looked::Free(Original { file, inode, since }),
            InUse::ByOthers => Looked::Held,
            InUse::ByUs => Looked::Busy(file),
        })
    }

    /// [`InPlace::look`], where it may block: descriptors of the bridge itself are closed soon. `None`: somebody has it open.
    ///
    /// # Errors
    /// It can't be looked at.
    pub fn unless_held(&self, mut file: OwnedFd, is_network: bool) -> Sys<Option<Original>> {
        for _ in 0..OWN_COPY_TRIES {
            file = match self.look(file, is_network)? {
                Looked::Free(original) => return Ok(Some(original)),
                Looked::Held => return Ok(None),
                Looked::Busy(file) => file,
            };
            std::thread::sleep(OWN_COPY_PAUSE);
        }
        Ok(None)
    }

    fn users(&self, file: &OwnedFd, inode: Inode, is_network: bool) -> InUse {
        match sys::is_in_use(file.as_fd(), Openers::Anyone) {
            Some(false) => InUse::No,
            Some(true) if !is_network => who_uses(file),
            // A network file system may refuse each lease (NFS does), and some file systems have none.
            _ if !self.was_granted_since(inode, 0) => InUse::No,
            _ if self.is_on_its_way(inode) => InUse::ByOthers,
            _ => who_shows_in_proc(file),
        }
    }

    fn is_on_its_way(&self, inode: Inode) -> bool {
        let grants = self.0.lock();
        let last = grants.last.get(&inode);
        last.is_some_and(|grant| grant.at.elapsed() < ON_ITS_WAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn inode(file: &OwnedFd) -> Inode {
        let attr = sys::stat(file.as_fd(), b"").unwrap();
        (attr.dev, attr.ino)
    }

    #[test]
    fn a_grant_after_a_copy_was_begun_is_seen_and_one_before_it_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "1").unwrap();
        let open = || OwnedFd::from(File::open(&path).unwrap());
        let grants = InPlace::new(false);
        let original = grants.unless_held(open(), false).unwrap().unwrap();
        assert!(!grants.was_granted_since(original.inode, original.since));
        let granted = open();
        grants.note(&granted, false);
        assert_eq!(inode(&granted), original.inode);
        assert!(grants.was_granted_since(original.inode, original.since));
        drop(original);
        assert!(grants.unless_held(open(), false).unwrap().is_none());
        drop(granted);
        let again = grants.unless_held(open(), false).unwrap().unwrap();
        assert!(!grants.was_granted_since(again.inode, again.since));
    }

    #[test]
    fn where_leases_tell_nothing_only_what_was_granted_can_be_held() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "1").unwrap();
        let open = || OwnedFd::from(File::open(&path).unwrap());
        let held = open();
        let grants = InPlace::new(false);
        assert!(grants.unless_held(open(), true).unwrap().is_some());
        // It may be on its way to a client, where /proc does not show it.
        grants.note(&held, true);
        assert!(grants.unless_held(open(), true).unwrap().is_none());
        // What an earlier bridge has granted is not known.
        let next = InPlace::new(true);
        assert!(next.was_granted_since(inode(&held), 0));
        assert!(next.unless_held(open(), true).unwrap().is_none());
    }
}
