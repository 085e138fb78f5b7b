//! Files of the PFS that programs open in place. Who has one open: then no copy of it is put into the buffer. And what our programs
//! may have made of one ([`WrittenInPlace`]): a drain tells that from changes of others.
//!
//! The kernel says who has a file open, but not what is granted after the question. A grant is therefore numbered before
//! it checks for commits, and a commit is announced before it checks for grants. One sees the other.
//!
//! Nothing here asks the kernel, and times are since some moment of the driver.

mod written;

pub use written::{Written, WrittenInPlace};

use crate::facts::{Attr, Inode};
use std::collections::BTreeMap;
use std::time::Duration;

/// Files whose grants are remembered one by one.
const REMEMBERED: usize = 1 << 18;
/// Longest way of a descriptor to a client, where /proc alone tells who has a file open.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// Looks until the bridge has closed its own copy of a descriptor, which it does right after sending it. A request waits
/// for this, so the wait is far shorter than the one of a drain for the same.
pub const OWN_COPY_LOOKS: u32 = 10;
/// Pause after each of these.
pub const OWN_COPY_PAUSE: Duration = Duration::from_millis(1);

/// A map by file. It grows large and needs no order, so the driver chooses it; a hash map is forbidden in core.
pub trait FileMap<V>: Default {
    /// What is remembered of this file.
    fn get(&self, file: Inode) -> Option<&V>;
    /// Remembers this of the file, in place of what was remembered.
    fn insert(&mut self, file: Inode, value: V);
    /// The number of files.
    fn count(&self) -> usize;
    /// Forgets all of them.
    fn clear(&mut self);
}

/// In an order that is the same in each run.
impl<V> FileMap<V> for BTreeMap<Inode, V> {
    fn get(&self, file: Inode) -> Option<&V> {
        BTreeMap::get(self, &file)
    }

    fn insert(&mut self, file: Inode, value: V) {
        BTreeMap::insert(self, file, value);
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn clear(&mut self) {
        BTreeMap::clear(self);
    }
}

/// Grants of PFS files in place, as far as they matter.
#[derive(Debug)]
pub struct Grants<L, W> {
    /// Grants so far, those of earlier bridges counted as one.
    count: u64,
    last: L,
    /// Grants up to this number are not remembered.
    forgotten: u64,
    written: WrittenInPlace<W>,
}

/// The last grant of a file.
#[derive(Debug)]
pub struct Grant {
    number: u64,
    at: Duration,
}

/// What the kernel says to an exclusive lease on a file that this process has just opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// It is given: nobody else has the file open.
    Given,
    /// It is refused, as if somebody had the file open.
    Refused,
    /// The file system has none, or the kernel can't tell.
    Unknown,
}

/// Who has a file open, or who knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Users {
    /// Nobody.
    Nobody,
    /// Others have, or will in a moment.
    Others,
    /// Somebody. A lease tells others from the bridge itself.
    AskLeases,
    /// What /proc shows is right: nothing is on its way to a client.
    AskProc,
}

impl<L: FileMap<Grant>, W: FileMap<Written>> Grants<L, W> {
    /// No grants yet. `has_past`: earlier bridges of this buffer may have granted something.
    pub fn new(has_past: bool) -> Self {
        Grants {
            count: 1,
            last: L::default(),
            forgotten: u64::from(has_past),
            written: WrittenInPlace::default(),
        }
    }

    /// How many there were. Whatever is granted from now on has a larger number.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Notes that a client is about to get a descriptor of the file with these attributes, perhaps to write to it. Without
    /// attributes it may be any file.
    pub fn note(&mut self, attr: Option<&Attr>, writes: bool, now: Duration) {
        if attr.is_some_and(|attr| !attr.is_file()) {
            return;
        }
        self.count += 1;
        let number = self.count;
        let Some(attr) = attr else {
            self.forgotten = number;
            return;
        };
        if self.last.count() >= REMEMBERED {
            self.last.clear();
            self.forgotten = number;
        }
        let inode = attr.inode();
        if writes {
            self.written.note(attr, false);
        }
        self.last.insert(inode, Grant { number, at: now });
    }

    /// Notes that a client is about to change the file with these attributes by its path (`truncate`): what is no regular
    /// file is not written in place.
    pub fn note_change(&mut self, attr: &Attr) {
        if attr.is_file() {
            self.written.note(attr, true);
        }
    }

    /// What clients may have written to.
    pub fn written(&self) -> &WrittenInPlace<W> {
        &self.written
    }

    /// Notes what the writers of a file had left when it was hidden: it had these attributes, and nobody had it open for writing,
    /// after that number of grants.
    pub fn note_left(&mut self, attr: &Attr, since: u64) {
        if !self.was_granted_since(attr.inode(), since) {
            self.written.note_left(attr);
        }
    }

    /// True if the file may have been granted after that number of grants.
    pub fn was_granted_since(&self, inode: Inode, since: u64) -> bool {
        let last = self.last.get(inode).map_or(0, |grant| grant.number);
        last.max(self.forgotten) > since
    }

    /// Who has the file open? `is_network`: it is on a network file system, which may refuse each lease, as NFS does.
    pub fn users(&self, inode: Inode, lease: Lease, is_network: bool, now: Duration) -> Users {
        match lease {
            Lease::Given => Users::Nobody,
            Lease::Refused if !is_network => Users::AskLeases,
            // Leases tell nothing. What was never granted is held by no client.
            _ if !self.was_granted_since(inode, 0) => Users::Nobody,
            _ if self.is_on_its_way(inode, now) => Users::Others,
            _ => Users::AskProc,
        }
    }

    fn is_on_its_way(&self, inode: Inode, now: Duration) -> bool {
        let last = self.last.get(inode);
        last.is_some_and(|grant| now.saturating_sub(grant.at) < ON_ITS_WAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Timestamp;

    type Grants = super::Grants<BTreeMap<Inode, Grant>, BTreeMap<Inode, Written>>;

    const NOW: Duration = Duration::from_secs(100);
    const MOMENT: Duration = Duration::from_millis(1);

    fn file(ino: u64) -> Attr {
        Attr {
            mode: libc::S_IFREG | 0o644,
            dev: 1,
            ino,
            ..Attr::default()
        }
    }

    fn granted(ino: u64) -> Grants {
        let mut grants = Grants::new(false);
        grants.note(Some(&file(ino)), false, NOW);
        grants
    }

    #[test]
    fn a_grant_counts_for_what_was_begun_before_it_and_for_its_file_alone() {
        let mut grants = Grants::new(false);
        let before = grants.count();
        grants.note(Some(&file(7)), false, NOW);
        assert!(grants.was_granted_since((1, 7), before));
        assert!(!grants.was_granted_since((1, 8), before));
        assert!(!grants.was_granted_since((2, 7), before));
        assert!(!grants.was_granted_since((1, 7), grants.count()));
    }

    #[test]
    fn what_is_no_file_is_no_grant_and_what_cant_be_looked_at_may_be_any_file() {
        let mut grants = Grants::new(false);
        let before = grants.count();
        let fifo = Attr {
            mode: libc::S_IFIFO | 0o644,
            ..file(7)
        };
        grants.note(Some(&fifo), true, NOW);
        grants.note_change(&fifo);
        assert_eq!(grants.count(), before);
        assert!(!grants.written().may_have_made(&file(7)));
        grants.note(None, true, NOW);
        for ino in [7, 8] {
            assert!(grants.was_granted_since((1, ino), before));
            assert!(!grants.was_granted_since((1, ino), grants.count()));
        }
    }

    #[test]
    fn what_an_earlier_bridge_has_granted_is_not_known() {
        assert!(!Grants::new(false).was_granted_since((1, 7), 0));
        let grants = Grants::new(true);
        assert!(grants.was_granted_since((1, 7), 0));
        // Only those who begin now know that nothing was granted since.
        assert!(!grants.was_granted_since((1, 7), grants.count()));
    }

    #[test]
    fn a_grant_that_there_is_no_room_to_remember_counts_for_every_file() {
        let mut grants = Grants::new(false);
        let all = REMEMBERED as u64;
        (0..all).for_each(|ino| grants.note(Some(&file(ino)), false, NOW));
        let before = grants.count();
        assert!(!grants.was_granted_since((1, 0), before));
        assert!(!grants.was_granted_since((1, all), 0));
        grants.note(Some(&file(all)), false, NOW);
        assert!(grants.was_granted_since((1, 0), before));
        assert!(grants.last.len() < 2);
    }

    #[test]
    fn what_writers_had_left_is_noted_unless_one_has_got_the_file_since() {
        let changed = |sec| Attr {
            ctime: Timestamp { sec, nsec: 0 },
            nlink: 1,
            ..file(7)
        };
        let mut grants = Grants::new(false);
        grants.note(Some(&changed(1)), true, NOW);
        let since = grants.count();
        grants.note(Some(&changed(1)), false, NOW);
        grants.note_left(&changed(2), since);
        assert!(grants.written().may_have_made(&changed(3)));
        grants.note_left(&changed(2), grants.count());
        assert!(!grants.written().may_have_made(&changed(3)));
    }

    #[test]
    fn on_a_local_file_system_a_lease_says_who_has_it_open() {
        let grants = granted(7);
        let users = |lease| grants.users((1, 7), lease, false, NOW);
        assert_eq!(users(Lease::Given), Users::Nobody);
        assert_eq!(users(Lease::Refused), Users::AskLeases);
        let never = Grants::new(false).users((1, 7), Lease::Refused, false, NOW);
        assert_eq!(never, Users::AskLeases, "not only clients open files");
    }

    #[test]
    fn where_leases_tell_nothing_only_what_was_granted_can_be_held() {
        for (lease, is_network) in [
            (Lease::Refused, true),
            (Lease::Unknown, true),
            (Lease::Unknown, false),
        ] {
            let users = |grants: &Grants, now| grants.users((1, 7), lease, is_network, now);
            assert_eq!(users(&Grants::new(false), NOW), Users::Nobody);
            assert_eq!(users(&granted(8), NOW), Users::Nobody);
            let grants = granted(7);
            // /proc does not show it while it is on its way to a client.
            assert_eq!(users(&grants, NOW), Users::Others);
            let arrived = NOW + ON_ITS_WAY;
            assert_eq!(users(&grants, arrived - MOMENT), Users::Others);
            assert_eq!(users(&grants, arrived), Users::AskProc);
            assert_eq!(users(&Grants::new(true), NOW), Users::AskProc);
        }
        let given = granted(7).users((1, 7), Lease::Given, true, NOW);
        assert_eq!(given, Users::Nobody, "a lease that is given is right");
    }
}
