//! Files of the PFS that programs have open in place: what they write goes past the buffer, so that no copy of such a file may
//! be put into it. For a bridge that is alone, which knows of all programs.

use super::node::Node;
use super::pfs::Pfs;
use forebay_core::bridge::Mutation;
use forebay_core::facts::{Attr, Inode};
use forebay_core::in_place::{Grant, Grants, Lease, Users, Written};
use forebay_core::path::TreePath;
use forebay_core::record::ObjectName;
use forebay_core::table::Change;
use std::collections::BTreeMap;
use std::time::Duration;

/// Descriptors of objects are below this.
const FIRST_FD: u64 = 1 << 62;

/// A descriptor of a file of the PFS.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// Number of the inode on the PFS.
    number: u64,
    /// A client has it, not only the bridge.
    by_client: bool,
}

/// What was granted in place.
#[derive(Debug)]
pub(super) struct InPlace {
    /// Programs write to files of the PFS.
    pub(super) is_on: bool,
    open: BTreeMap<u64, Open>,
    /// Files that were granted in place, by what users know them by. It survives a death here. A real bridge forgets it: then its
    /// drain takes such a write for a change by others, leaves the file and lists it.
    grants: Grants<BTreeMap<Inode, Grant>, BTreeMap<Inode, Written>>,
    granted: BTreeMap<Inode, Attr>,
}

/// An object made for a request that is a copy of a file of the PFS.
pub(super) struct CopyOf {
    object: ObjectName,
    lower: TreePath,
    inode: Inode,
    /// The number of grants when it was read.
    since: u64,
}

impl Default for InPlace {
    fn default() -> Self {
        InPlace {
            is_on: false,
            open: BTreeMap::new(),
            grants: Grants::new(false),
            granted: BTreeMap::new(),
        }
    }
}

/// A moment of the simulation as core counts time.
fn moment(now_us: u64) -> Duration {
    Duration::from_micros(now_us)
}

impl InPlace {
    /// A descriptor of the file of this number with these attributes.
    pub(super) fn open(&mut self, number: u64, attr: &Attr, now_us: u64) -> Option<u64> {
        if !self.is_on {
            return None;
        }
        self.grants.note(Some(attr), true, moment(now_us));
        self.granted.insert(attr.inode(), *attr);
        let fd = FIRST_FD + self.grants.count();
        let by_client = false;
        self.open.insert(fd, Open { number, by_client });
        Some(fd)
    }

    /// The number of the inode of a descriptor.
    pub(super) fn of(&self, fd: u64) -> Option<u64> {
        self.open.get(&fd).map(|open| open.number)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.open.is_empty()
    }

    /// What the kernel says to a lease on this file.
    fn lease(&self, number: Option<u64>) -> Lease {
        match self.open.values().any(|open| Some(open.number) == number) {
            true => Lease::Refused,
            false => Lease::Given,
        }
    }

    /// The copy that is made now, as `object`, of a file of the PFS with these attributes; `None` if somebody has the file open.
    pub(super) fn begin_copy(
        &self,
        object: ObjectName,
        (lower, attr): (&TreePath, &Attr),
        pfs: &Pfs,
        now_us: u64,
        planted: Option<Mutation>,
    ) -> Option<CopyOf> {
        let since = self.grants.count();
        let inode = attr.inode();
        let lease = self.lease(pfs.number(lower));
        let users = self.grants.users(inode, lease, false, moment(now_us));
        // A lease is refused only because somebody has the file open, so nobody has to be asked.
        let is_held = users != Users::Nobody;
        if is_held && !Mutation::HeldFilesAreCopied.is(planted) {
            return None;
        }
        Some(CopyOf {
            object,
            lower: lower.clone(),
            inode,
            since,
        })
    }

    /// Can programs have made the file what it is now, by writing to it in place?
    pub(super) fn may_have_made(&self, attr: &Attr) -> bool {
        self.grants.written().may_have_made(attr)
    }

    /// Files that this batch keeps from view, and that programs may have written to.
    pub(super) fn hidden_by(&self, batch: &[Change]) -> Vec<TreePath> {
        let hidden = self.grants.written().hidden_by(batch);
        hidden.into_iter().cloned().collect()
    }

    /// The process dies. Descriptors of clients outlive it.
    pub(super) fn crash(&mut self) {
        self.open.retain(|_, open| open.by_client);
    }

    /// So do the clients. What they have left may be lost.
    pub(super) fn lose_power(&mut self) {
        self.open.clear();
        for attr in self.granted.values() {
            self.grants.note_change(attr);
        }
    }
}

impl Node {
    /// A descriptor, of an object or in place, is on its way to a client.
    pub(super) fn pass(&mut self, fd: u64) {
        match self.in_place.open.get_mut(&fd) {
            Some(open) => open.by_client = true,
            None => self.disk.pass(fd),
        }
    }

    pub(super) fn close(&mut self, fd: u64) {
        if self.in_place.open.remove(&fd).is_none() {
            self.disk.close(fd);
        }
    }

    /// Notes what the writers of these files have left, where none has one open any more.
    pub(super) fn look_at_left(&mut self, files: &[TreePath]) {
        let pfs = self.lower.borrow();
        let in_place = &mut self.in_place;
        for file in files {
            let is_free = in_place.lease(pfs.number(file)) == Lease::Given;
            if let Some(attr) = pfs.attr(file).filter(|_| is_free) {
                let since = in_place.grants.count();
                in_place.grants.note_left(&attr, since);
            }
        }
    }

    /// The file of the PFS that was granted in place since a copy of it was begun that this batch names.
    pub(super) fn granted_since(&self, copies: &[CopyOf], batch: &[Change]) -> Option<TreePath> {
        let names = |object: ObjectName| {
            let mut puts = batch.iter();
            puts.any(|c| matches!(c, Change::Put { record, .. } if record.object == object))
        };
        let named = copies.iter().find(|copy| names(copy.object))?;
        let grants = &self.in_place.grants;
        let is_granted = grants.was_granted_since(named.inode, named.since);
        is_granted.then(|| named.lower.clone())
    }
}
