//! Files of the PFS that programs have open in place: what they write goes past the buffer, so that no copy of such a file may
//! be put into it. For a bridge that is alone, which knows of all programs.

use super::node::Node;
use super::pfs::Pfs;
use forebay_core::bridge::Mutation;
use forebay_core::path::TreePath;
use forebay_core::record::ObjectName;
use forebay_core::table::Change;
use std::collections::{BTreeMap, BTreeSet};

/// Descriptors of objects are below this.
const FIRST_FD: u64 = 1 << 62;

/// A descriptor of a file of the PFS.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// Number of the inode.
    inode: u64,
    /// A client has it, not only the bridge.
    by_client: bool,
}

/// What was granted in place.
#[derive(Debug, Default)]
pub(super) struct InPlace {
    /// Programs write to files of the PFS.
    pub(super) is_on: bool,
    open: BTreeMap<u64, Open>,
    grants: u64,
    /// The last grant of each inode.
    last: BTreeMap<u64, u64>,
    /// What users know files by that were granted. A real bridge forgets that when it dies; then a drain takes what was written
    /// in place to something that is removed for a change by others, and leaves it and says so.
    written: BTreeSet<u64>,
}

/// An object made for a request that is a copy of a file of the PFS.
pub(super) struct CopyOf {
    object: ObjectName,
    lower: TreePath,
    inode: u64,
    /// The number of grants when it was read.
    since: u64,
}

impl InPlace {
    /// A descriptor of this file, which users know by `identity`.
    pub(super) fn open(&mut self, inode: u64, identity: u64) -> Option<u64> {
        if !self.is_on {
            return None;
        }
        self.grants += 1;
        self.last.insert(inode, self.grants);
        self.written.insert(identity);
        let fd = FIRST_FD + self.grants;
        let by_client = false;
        self.open.insert(fd, Open { inode, by_client });
        Some(fd)
    }

    /// The inode of a descriptor.
    pub(super) fn of(&self, fd: u64) -> Option<u64> {
        self.open.get(&fd).map(|open| open.inode)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.open.is_empty()
    }

    fn is_held(&self, inode: u64) -> bool {
        self.open.values().any(|open| open.inode == inode)
    }

    fn was_granted_since(&self, inode: u64, since: u64) -> bool {
        self.last.get(&inode).is_some_and(|last| *last > since)
    }

    /// The copy that is made of a file of the PFS now, as `object`; `None` if somebody has the file open.
    pub(super) fn begin_copy(
        &self,
        object: ObjectName,
        lower: &TreePath,
        pfs: &Pfs,
        planted: Option<Mutation>,
    ) -> Option<CopyOf> {
        let inode = pfs.number(lower).unwrap_or_default();
        if self.is_held(inode) && !Mutation::HeldFilesAreCopied.is(planted) {
            return None;
        }
        Some(CopyOf {
            object,
            lower: lower.clone(),
            inode,
            since: self.grants,
        })
    }

    /// May a program have written in place to what users know by this?
    pub(super) fn was_written(&self, identity: u64) -> bool {
        self.written.contains(&identity)
    }

    /// The process dies. Descriptors of clients outlive it.
    pub(super) fn crash(&mut self) {
        self.open.retain(|_, open| open.by_client);
    }

    /// So do the clients.
    pub(super) fn lose_power(&mut self) {
        self.open.clear();
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

    /// The file of the PFS that was granted in place since a copy of it was begun that this batch names.
    pub(super) fn granted_since(&self, copies: &[CopyOf], batch: &[Change]) -> Option<TreePath> {
        let names = |object: ObjectName| {
            let mut puts = batch.iter();
            puts.any(|c| matches!(c, Change::Put { record, .. } if record.object == object))
        };
        let named = copies.iter().find(|copy| names(copy.object))?;
        let is_granted = self.in_place.was_granted_since(named.inode, named.since);
        is_granted.then(|| named.lower.clone())
    }
}
