//! What was obtained for one request so far: looks at the PFS, and what other bridges said.

use crate::bridge::ReadSet;
use crate::facts::{Attr, LowerPage, Timestamp};
use crate::path::TreePath;
use crate::record::{BridgeId, ObjectName, PathRecord};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What other bridges hold below a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OthersBelow {
    /// Their records, parents first.
    pub entries: Vec<(TreePath, PathRecord)>,
    /// A digest of what each of them holds, for [`crate::bridge::RangeRead`].
    pub seen: Vec<(BridgeId, u64)>,
}

/// The children of a directory that other bridges hold: the first after a name.
type ChildrenPages = BTreeMap<(TreePath, Option<Vec<u8>>), Vec<(Vec<u8>, PathRecord)>>;

/// A file of the PFS: its inode and when that changed.
type Source = (u64, Timestamp);

/// Facts that were not at hand and have been obtained.
#[derive(Debug, Default)]
pub struct Known {
    /// Count of changes of the PFS by this bridge when the looks below were taken.
    pfs_changes: u64,
    attrs: BTreeMap<TreePath, Option<Attr>>,
    links: BTreeMap<TreePath, Vec<u8>>,
    /// Pages by directory. A decision starts again after each new page, so all its pages are kept: two for a
    /// listing, all for a check that a directory is empty.
    lists: BTreeMap<TreePath, Vec<Arc<LowerPage>>>,
    /// Files that somebody was found to have open.
    held: BTreeSet<TreePath>,
    /// Attributes of backing objects. A request looks at each once: its steps follow each other within microseconds,
    /// and a look is a system call.
    objects: RefCell<Vec<(ObjectName, Attr)>>,
    /// The file of the PFS that is about to be copied, as it was looked at.
    to_copy: Cell<Option<Source>>,
    /// What was copied into objects made for this request.
    copied: Vec<(ObjectName, Option<Source>)>,
    records: BTreeMap<TreePath, Option<PathRecord>>,
    children: ChildrenPages,
    below: BTreeMap<TreePath, OthersBelow>,
    /// What the first of two looks has seen.
    pub(super) first_look: Option<ReadSet>,
}

impl Known {
    /// Forgets what was seen of the PFS if this bridge has changed it since.
    pub(super) fn refresh(&mut self, pfs_changes: u64) {
        if self.pfs_changes != pfs_changes {
            self.pfs_changes = pfs_changes;
            self.attrs.clear();
            self.links.clear();
            self.lists.clear();
            self.held.clear();
        }
    }

    /// Forgets all attributes.
    pub(super) fn forget_attrs(&mut self) {
        self.objects.get_mut().clear();
        self.attrs.clear();
    }

    /// Forgets what other bridges said.
    pub(super) fn forget_others(&mut self) {
        self.records.clear();
        self.children.clear();
        self.below.clear();
    }

    /// What its home says of a path.
    pub fn put_record(&mut self, path: TreePath, record: Option<PathRecord>) {
        self.records.insert(path, record);
    }

    /// The first children of `dir` after a name that other bridges hold, sorted.
    pub fn put_children(
        &mut self,
        dir: TreePath,
        after: Option<Vec<u8>>,
        children: Vec<(Vec<u8>, PathRecord)>,
    ) {
        debug_assert!(
            children.is_sorted_by(|a, b| a.0 < b.0),
            "children come sorted, each name once"
        );
        self.children.insert((dir, after), children);
    }

    /// What other bridges hold below `dir`.
    pub fn put_below(&mut self, dir: TreePath, below: OthersBelow) {
        self.below.insert(dir, below);
    }

    pub(super) fn put_attr(&mut self, path: TreePath, attr: Option<Attr>) {
        self.attrs.insert(path, attr);
    }

    pub(super) fn put_link(&mut self, path: TreePath, text: Vec<u8>) {
        self.links.insert(path, text);
    }

    pub(super) fn put_list(&mut self, path: TreePath, page: Arc<LowerPage>) {
        page.assert_well_formed();
        self.lists.entry(path).or_default().push(page);
    }

    pub(super) fn put_held(&mut self, path: TreePath) {
        self.held.insert(path);
    }

    pub(super) fn is_held_in_place(&self, path: &TreePath) -> bool {
        self.held.contains(path)
    }

    pub(super) fn put_object(&self, object: ObjectName, attr: Attr) {
        self.objects.borrow_mut().push((object, attr));
    }

    /// Notes which file is about to be copied.
    pub(super) fn will_copy(&self, source: Option<Source>) {
        self.to_copy.set(source);
    }

    /// That has been copied into this object.
    pub(super) fn has_copied(&mut self, object: ObjectName) {
        self.copied.push((object, self.to_copy.get()));
    }

    pub(super) fn source(&self, object: ObjectName) -> Option<Source> {
        let found = self.copied.iter().find(|(copy, _)| *copy == object);
        found.and_then(|(_, source)| *source)
    }

    pub(super) fn attr(&self, path: &TreePath) -> Option<Option<Attr>> {
        self.attrs.get(path).copied()
    }

    pub(super) fn link(&self, path: &TreePath) -> Option<&Vec<u8>> {
        self.links.get(path)
    }

    pub(super) fn list(&self, path: &TreePath, after: Option<&[u8]>) -> Option<&Arc<LowerPage>> {
        self.lists.get(path)?.iter().find(|page| page.covers(after))
    }

    pub(super) fn object(&self, object: ObjectName) -> Option<Attr> {
        let objects = self.objects.borrow();
        let found = objects.iter().find(|(seen, _)| *seen == object);
        found.map(|&(_, attr)| attr)
    }

    pub(super) fn record(&self, path: &TreePath) -> Option<&Option<PathRecord>> {
        self.records.get(path)
    }

    pub(super) fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
    ) -> Option<&Vec<(Vec<u8>, PathRecord)>> {
        self.children.get(&(dir.clone(), after.map(<[u8]>::to_vec)))
    }

    pub(super) fn below(&self, dir: &TreePath) -> Option<&OthersBelow> {
        self.below.get(dir)
    }

    /// The page of a PFS directory that was obtained last, if one was.
    pub fn last_list(&self) -> Option<(&TreePath, &Arc<LowerPage>)> {
        let (dir, pages) = self.lists.iter().next()?;
        Some((dir, pages.last()?))
    }
}
