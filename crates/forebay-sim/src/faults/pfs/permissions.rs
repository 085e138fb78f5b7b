//! What the user whose drains these are may not do on the PFS.

use super::Pfs;
use forebay_core::path::TreePath;
use std::collections::BTreeSet;

/// The number of the root, which no inode has.
const OF_ROOT: u64 = 0;

/// Whose things are, by the numbers of their inodes. What is not named is the user's.
#[derive(Debug, Clone, Default)]
pub(super) struct Permissions {
    /// Of another user. Only that one changes names in a directory of these, or gives it another parent.
    others: BTreeSet<u64>,
    /// Directories of another user in which everybody may make names, and take away what is theirs.
    sticky: BTreeSet<u64>,
}

impl Pfs {
    /// Another user owns what is here.
    pub(in crate::faults) fn give_to_others(&mut self, path: &TreePath) {
        let owned = self.owned(path);
        self.permissions.others.extend(owned);
    }

    /// Another user owns this directory, and everybody may make names in it.
    pub(in crate::faults) fn make_sticky(&mut self, path: &TreePath) {
        let owned = self.owned(path);
        self.permissions.sticky.extend(owned);
    }

    /// The number of what is here.
    fn owned(&self, path: &TreePath) -> Option<u64> {
        match path.is_root() {
            true => Some(OF_ROOT),
            false => self.number(path),
        }
    }

    fn is_in(&self, path: &TreePath, numbers: &BTreeSet<u64>) -> bool {
        self.owned(path).is_some_and(|n| numbers.contains(&n))
    }

    /// The errno with which the PFS keeps the user from taking this name away.
    pub(super) fn keeps(&self, path: &TreePath) -> Option<i32> {
        let Permissions { others, sticky } = &self.permissions;
        let dir = path.parent();
        match (self.is_in(&dir, others), self.is_in(&dir, sticky)) {
            (true, _) => Some(libc::EACCES),
            (false, true) if self.is_in(path, others) => Some(libc::EPERM),
            _ => None,
        }
    }

    /// The errno with which the PFS keeps the user from renaming this.
    pub(super) fn forbids(&self, from: &TreePath, to: &TreePath) -> Option<i32> {
        let others = &self.permissions.others;
        let is_dir = self.get(from).is_some_and(|thing| thing.is_dir());
        let gets_parent = is_dir && from.parent() != to.parent();
        let is_forbidden =
            self.is_in(&to.parent(), others) || gets_parent && self.is_in(from, others);
        let keeps = self.keeps(from);
        keeps.or_else(|| is_forbidden.then_some(libc::EACCES))
    }
}
