//! What a neighbour does on the PFS, who knows nothing of bridges.

use super::{Inode, Pfs};
use crate::faults::history::Thing;
use forebay_core::path::TreePath;
use forebay_core::record::Kind;

impl Pfs {
    /// The number of the inode at `path`: another one for each that ever was, whatever users know it by.
    pub(in crate::faults) fn number(&self, path: &TreePath) -> Option<u64> {
        self.names.get(path).copied()
    }

    /// The inode of this number.
    fn of_number(&self, number: u64) -> Option<&Inode> {
        self.inodes.get(&number)
    }

    /// What users know an inode by, and its contents.
    pub(in crate::faults) fn version(&self, number: u64) -> Option<(Thing, u64)> {
        self.of_number(number).map(|i| (i.thing, i.contents))
    }

    /// All names with the numbers of their inodes.
    pub(in crate::faults) fn numbers(&self) -> impl Iterator<Item = (&TreePath, u64)> {
        self.names.iter().map(|(path, number)| (path, *number))
    }

    /// Is there nothing in this directory?
    fn is_empty_dir(&self, path: &TreePath) -> bool {
        self.get(path).is_some_and(|t| t.is_dir()) && self.below(path).len() == 1
    }

    /// The neighbour removes a file or an empty directory, whoever made it; the number of its inode.
    pub(in crate::faults) fn take_away(&mut self, path: &TreePath) -> Option<u64> {
        let number = self.number(path).filter(|_| !path.is_root())?;
        let is_dir = self.get(path)?.is_dir();
        if is_dir && !self.is_empty_dir(path) {
            return None;
        }
        self.change(vec![(path.clone(), None)]);
        self.sync_last();
        Some(number)
    }

    /// The neighbour makes something at `path`; the number of its inode.
    pub(in crate::faults) fn put(&mut self, path: &TreePath, kind: Kind) -> Option<u64> {
        self.intrude(path, kind)?;
        self.number(path)
    }

    /// The neighbour writes to a file in place; the number of its inode and what it holds now.
    pub(in crate::faults) fn scribble(&mut self, path: &TreePath) -> Option<(u64, u64)> {
        let is_file = self.get(path).is_some_and(|t| t.kind == Kind::File);
        let number = self.number(path).filter(|_| is_file)?;
        self.meddle(path);
        // The next thing that is made does not hold the same.
        self.count += 1;
        Some((number, self.contents(path)?))
    }

    /// Somebody has decided for what is here, and below, whatever programs have written last.
    pub(in crate::faults) fn decide_for(&mut self, place: &TreePath) {
        let within = self.names.iter().filter(|(path, _)| path.is_within(place));
        let numbers: Vec<_> = within.map(|(_, number)| *number).collect();
        for number in numbers {
            if let Some(inode) = self.inodes.get_mut(&number) {
                inode.is_foreign = true;
            }
        }
    }

    /// Somebody has decided that the directory that is here is the one in the buffer.
    pub(in crate::faults) fn give(&mut self, place: &TreePath) {
        if let Some(inode) = self.inode_mut(place) {
            inode.is_given = true;
        }
    }

    /// The neighbour renames a file, also over another one; the number of its inode.
    pub(in crate::faults) fn put_over(&mut self, from: &TreePath, to: &TreePath) -> Option<u64> {
        let is_file = |path| self.get(path).is_some_and(|t| t.kind == Kind::File);
        let number = self.number(from).filter(|_| is_file(from))?;
        let fits = self.has_dir(to) && (is_file(to) || !self.names.contains_key(to));
        if !fits || self.number(to) == Some(number) {
            return None;
        }
        self.change(vec![(to.clone(), Some(number)), (from.clone(), None)]);
        self.sync_last();
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.is_foreign = true;
            inode.is_seen = false;
        }
        Some(number)
    }

    /// The neighbour renames a directory with all that is in it: the numbers of their inodes, and where each is then.
    pub(in crate::faults) fn move_dir(
        &mut self,
        from: &TreePath,
        to: &TreePath,
    ) -> Option<Vec<(u64, TreePath)>> {
        let is_dir = self.get(from).is_some_and(|t| t.is_dir()) && !from.is_root();
        let fits = self.has_dir(to) && !self.names.contains_key(to) && !to.is_within(from);
        if !is_dir || !fits {
            return None;
        }
        let moved: Vec<_> = self
            .names
            .iter()
            .filter_map(|(path, number)| Some((*number, path.clone(), path.rebase(from, to)?)))
            .collect();
        let new = moved
            .iter()
            .map(|(number, _, new)| (new.clone(), Some(*number)));
        let old = moved.iter().map(|(_, old, _)| (old.clone(), None));
        self.change(new.chain(old).collect());
        self.sync_last();
        for (number, ..) in &moved {
            if let Some(inode) = self.inodes.get_mut(number) {
                inode.is_foreign = true;
                inode.is_seen = false;
            }
        }
        Some(
            moved
                .into_iter()
                .map(|(number, _, new)| (number, new))
                .collect(),
        )
    }

    /// The neighbour gives a file another name; the number of its inode.
    pub(in crate::faults) fn link(&mut self, old: &TreePath, new: &TreePath) -> Option<u64> {
        let is_file = self.get(old).is_some_and(|t| t.kind == Kind::File);
        let number = self.number(old).filter(|_| is_file)?;
        if !self.has_dir(new) || self.names.contains_key(new) {
            return None;
        }
        self.change(vec![(new.clone(), Some(number))]);
        self.sync_last();
        Some(number)
    }

    /// After so many changes of names by drains the PFS refuses one.
    pub(in crate::faults) fn refuse_after(&mut self, changes: Option<u32>) {
        self.refuses_after = changes;
    }

    /// The errno with which the PFS refuses this change of a name.
    pub(in crate::faults) fn refuses(&mut self) -> Option<i32> {
        match &mut self.refuses_after {
            Some(0) => {
                self.refuses_after = None;
                Some(libc::EIO)
            }
            Some(left) => {
                *left -= 1;
                None
            }
            None => None,
        }
    }
}
