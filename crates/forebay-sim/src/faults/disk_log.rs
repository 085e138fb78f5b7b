//! What a local disk holds when the power fails.
//!
//! Names, labels and times become durable on their own, in the order in which they were made; on storage without an order
//! those of each object do. Contents go their own way: they may be on the disk before the times that tell of them, or long
//! after. Only a sync brings them there for certain.

use super::disk::Inode;
use super::random::Random;
use forebay_core::facts::Label;
use forebay_core::record::{ObjectId, ObjectName};
use forebay_core::storage::StorageOrder;
use std::collections::BTreeMap;

/// Names with their labels, and inodes.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) objects: BTreeMap<ObjectName, Label>,
    pub(super) inodes: BTreeMap<ObjectId, Inode>,
}

/// What was done to one inode at one moment, and to one of its names.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) oid: ObjectId,
    /// `None`: it is gone.
    pub(super) name: Option<(ObjectName, Option<Label>)>,
    pub(super) inode: Option<Inode>,
}

impl State {
    fn apply(&mut self, change: Change) {
        match change.name {
            Some((name, Some(label))) => drop(self.objects.insert(name, label)),
            Some((name, None)) => drop(self.objects.remove(&name)),
            None => {}
        }
        if let Some(inode) = change.inode {
            self.inodes.insert(change.oid, inode);
        }
    }
}

/// What is durable, and what may be.
#[derive(Debug)]
pub(super) struct DiskLog {
    is_ordered: bool,
    durable: State,
    changes: Vec<Change>,
    /// Contents that are durable. Of inodes that are not here: none.
    contents: BTreeMap<ObjectId, u64>,
    /// Contents that may be there instead.
    written: BTreeMap<ObjectId, Vec<u64>>,
}

impl DiskLog {
    pub(super) fn new(storage: StorageOrder) -> Self {
        DiskLog {
            is_ordered: storage == StorageOrder::Ordered,
            durable: State::default(),
            changes: Vec::new(),
            contents: BTreeMap::new(),
            written: BTreeMap::new(),
        }
    }

    pub(super) fn did(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub(super) fn wrote(&mut self, oid: ObjectId, contents: u64) {
        self.written.entry(oid).or_default().push(contents);
    }

    /// The contents of an inode are brought to the disk.
    pub(super) fn sync_contents(&mut self, oid: ObjectId, contents: u64) {
        self.contents.insert(oid, contents);
        self.written.remove(&oid);
    }

    /// Names and times of an inode are brought to the disk; with them all older ones, if there is an order.
    pub(super) fn sync_times(&mut self, oid: ObjectId) {
        if self.is_ordered {
            return self.sync_names();
        }
        let (synced, rest): (Vec<_>, _) = self.changes.drain(..).partition(|c| c.oid == oid);
        self.changes = rest;
        synced.into_iter().for_each(|c| self.durable.apply(c));
    }

    /// All names and times are brought to the disk.
    pub(super) fn sync_names(&mut self) {
        for change in self.changes.drain(..) {
            self.durable.apply(change);
        }
    }

    /// The file of the tables was synced.
    pub(super) fn sync_tables(&mut self) {
        if self.is_ordered {
            self.sync_names();
        }
    }

    /// The power fails: what is left.
    pub(super) fn lose(&mut self, random: &mut Random) -> State {
        let changes = std::mem::take(&mut self.changes);
        // Often everything: the last change is the one that matters.
        let part = |random: &mut Random, all: u64| match random.chance(500_000) {
            true => all,
            false => random.below(all + 1),
        };
        let mut left = part(random, changes.len() as u64) as usize;
        let mut of_each = BTreeMap::new();
        if !self.is_ordered {
            left = changes.len();
            let mut counts: BTreeMap<ObjectId, u64> = BTreeMap::new();
            for change in &changes {
                *counts.entry(change.oid).or_default() += 1;
            }
            let parts = counts.into_iter().map(|(oid, n)| (oid, part(random, n)));
            of_each.extend(parts);
        }
        for change in changes.into_iter().take(left) {
            match of_each.get_mut(&change.oid) {
                Some(0) => continue,
                Some(n) => *n -= 1,
                None => {}
            }
            self.durable.apply(change);
        }
        let written = std::mem::take(&mut self.written);
        for (oid, inode) in &mut self.durable.inodes {
            let synced = self.contents.get(oid).copied().unwrap_or(0);
            let later = written.get(oid).map_or(&[][..], |later| later);
            let chosen = random.below(later.len() as u64 + 1) as usize;
            inode.contents = match chosen {
                0 => synced,
                n => later[n - 1],
            };
            self.contents.insert(*oid, inode.contents);
        }
        self.durable.clone()
    }

    /// Everything is durable as it is.
    pub(super) fn sync_all(&mut self, inodes: &BTreeMap<ObjectId, Inode>) {
        self.sync_names();
        self.written.clear();
        self.contents = inodes.iter().map(|(oid, i)| (*oid, i.contents)).collect();
    }
}
