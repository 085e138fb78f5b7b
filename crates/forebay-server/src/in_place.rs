//! Files of the PFS that programs open in place: who has one open, and what they have left in it.
//!
//! [`forebay_core::in_place`] numbers grants and judges; this asks the kernel, and waits. A commit is announced before it
//! checks for grants ([`crate::namespace::Namespace::commit`]).

use forebay_core::facts::{Attr, Inode};
use forebay_core::in_place::{
    FileMap, Grant, Grants, Lease, OWN_COPY_LOOKS, OWN_COPY_PAUSE, Users, Written,
};
use forebay_core::path::TreePath;
use forebay_core::table::Change;
use forebay_mover::{InUse, who_shows_in_proc, who_uses};
use forebay_sys::{self as sys, Openers, Sys};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Each takes 20 to 30 MB for as many files as are remembered.
struct ByInode<V>(HashMap<Inode, V>);

impl<V> Default for ByInode<V> {
    fn default() -> Self {
        ByInode(HashMap::new())
    }
}

impl<V> FileMap<V> for ByInode<V> {
    fn get(&self, file: Inode) -> Option<&V> {
        self.0.get(&file)
    }

    fn insert(&mut self, file: Inode, value: V) {
        self.0.insert(file, value);
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// Grants of PFS files in place.
pub struct InPlace {
    grants: Mutex<Grants<ByInode<Grant>, ByInode<Written>>>,
    /// Times are since then.
    start: Instant,
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
        InPlace {
            grants: Mutex::new(Grants::new(has_past)),
            start: Instant::now(),
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Can clients of this bridge have made the file what it is now, by writing to it in place?
    pub fn may_have_made(&self, file: &Attr) -> bool {
        self.grants.lock().written().may_have_made(file)
    }

    /// Files of the PFS that this batch keeps from view, and that clients may have written to.
    pub fn hidden_by(&self, batch: &[Change]) -> Vec<TreePath> {
        let grants = self.grants.lock();
        grants
            .written()
            .hidden_by(batch)
            .into_iter()
            .cloned()
            .collect()
    }

    /// Notes what the writers of a file have left, if a lease tells that none has it open any more. It may block.
    pub fn look_at_left(&self, file: &OwnedFd, is_network: bool) {
        // There a lease may be refused whoever has it open.
        let looks = if is_network { 1 } else { OWN_COPY_LOOKS };
        for _ in 0..looks {
            let since = self.grants.lock().count();
            match sys::is_in_use(file.as_fd(), Openers::Writers) {
                Some(false) => {
                    if let Ok(attr) = sys::stat(file.as_fd(), b"") {
                        self.grants.lock().note_left(&attr, since);
                    }
                    return;
                }
                // Perhaps it is the bridge itself that has, for a moment.
                Some(true) => std::thread::sleep(OWN_COPY_PAUSE),
                None => return,
            }
        }
    }

    /// Notes that a client is about to get this descriptor, perhaps to write to it.
    pub fn note(&self, file: &OwnedFd, writes: bool) {
        let attr = sys::stat(file.as_fd(), b"").ok();
        let mut grants = self.grants.lock();
        grants.note(attr.as_ref(), writes, self.now());
    }

    /// Notes that a client is about to change the file by its path.
    pub fn note_change(&self, file: &OwnedFd) {
        if let Ok(attr) = sys::stat(file.as_fd(), b"") {
            self.grants.lock().note_change(&attr);
        }
    }

    /// True if the file may have been granted after that number of grants.
    pub fn was_granted_since(&self, inode: Inode, since: u64) -> bool {
        self.grants.lock().was_granted_since(inode, since)
    }

    /// The file, to be copied, if nobody has it open.
    ///
    /// # Errors
    /// It can't be looked at.
    pub fn look(&self, file: OwnedFd, is_network: bool) -> Sys<Looked> {
        let since = self.grants.lock().count();
        let inode = sys::stat(file.as_fd(), b"")?.inode();
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
        for _ in 0..OWN_COPY_LOOKS {
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
        let lease = match sys::is_in_use(file.as_fd(), Openers::Anyone) {
            Some(false) => Lease::Given,
            Some(true) => Lease::Refused,
            None => Lease::Unknown,
        };
        let users = {
            let grants = self.grants.lock();
            grants.users(inode, lease, is_network, self.now())
        };
        match users {
            Users::Nobody => InUse::No,
            Users::Others => InUse::ByOthers,
            Users::AskLeases => who_uses(file),
            Users::AskProc => who_shows_in_proc(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn inode(file: &OwnedFd) -> Inode {
        sys::stat(file.as_fd(), b"").unwrap().inode()
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
