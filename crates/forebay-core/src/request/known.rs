//! What was obtained for one request so far: looks at the PFS, and what other bridges said.

use crate::bridge::{Fact, Heard, Listed, ReadSet, Stand};
use crate::facts::{Attr, LowerPage, PfsLook, Through, Timestamp};
use crate::ops::Op;
use crate::path::TreePath;
use crate::record::ObjectName;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A file of the PFS: its inode and when that changed.
type Source = (u64, Timestamp);

/// What a decision has listed, each with a digest of the records and of the absences there. Looks are compared by it:
/// a record that was there before a look at the PFS and is gone after it is in no later list. A commit relies on
/// [`ReadSet::ranges`].
pub(super) type Lists = BTreeMap<Listed, u64>;

/// How records and lists stood.
#[derive(Debug, Default)]
struct Stood {
    /// Records of this bridge are read anew in each step.
    records: BTreeMap<TreePath, Stand>,
    listed: Lists,
}

/// What few requests learn.
#[derive(Debug, Default)]
struct Seldom {
    /// Files that somebody was found to have open.
    held: BTreeSet<TreePath>,
    /// What was renamed, by the places where it is on the PFS.
    renamed: BTreeMap<TreePath, Option<Attr>>,
}

/// Facts that were not at hand and have been obtained. Those of few requests are in boxes: each request allocates this.
#[derive(Debug, Default)]
pub struct Known {
    /// Count of changes of the PFS by this bridge when the looks below were taken.
    pfs_changes: u64,
    attrs: RefCell<BTreeMap<TreePath, Option<Attr>>>,
    links: RefCell<BTreeMap<TreePath, Vec<u8>>>,
    seldom: RefCell<Option<Box<Seldom>>>,
    /// Pages by directory. A decision starts again after each new page, so all its pages are kept: two for a
    /// listing, all for a check that a directory is empty.
    lists: BTreeMap<TreePath, Vec<Arc<LowerPage>>>,
    /// Attributes of backing objects. A request looks at each once: its steps mostly follow each other within microseconds,
    /// and a look is a system call.
    objects: RefCell<Vec<(ObjectName, Attr)>>,
    /// The file of the PFS that is about to be copied, as it was looked at.
    to_copy: Cell<Option<Source>>,
    /// What was copied into objects made for this request.
    copied: Vec<(ObjectName, Option<Source>)>,
    /// What other bridges said.
    pub(super) others: Heard,
    /// What the steps that looked at the PFS saw beside it.
    stood: Option<Box<Stood>>,
    /// This bridge is alone in its namespace.
    pub(super) is_alone: bool,
    /// The request begins in a directory that the client has open.
    pub(super) starts_within: bool,
    /// See [`crate::facts::Facts::levels_above`].
    pub(super) levels_above: usize,
    /// What the first of two looks has seen.
    pub(super) first_look: Option<Box<(ReadSet, Lists)>>,
}

impl Known {
    /// Of a request that has just arrived.
    pub(super) fn of(op: &Op) -> Self {
        Known {
            starts_within: op.starts_within(),
            ..Known::default()
        }
    }

    /// Does what is seen of the PFS have to be in the directories that were seen before? One user of a bridge may see more than another
    /// one, and who has a directory open works in that one.
    pub(super) fn keeps_to_dirs(&self, serves_several_users: bool) -> bool {
        serves_several_users || self.starts_within
    }

    /// Forgets what was seen of the PFS if this bridge has changed it since.
    pub(super) fn refresh(&mut self, pfs_changes: u64) {
        if self.pfs_changes != pfs_changes {
            self.pfs_changes = pfs_changes;
            self.forget_pfs();
        }
    }

    /// Forgets whatever may have changed. Of the PFS that is known by [`Known::refresh`] where nobody else drains.
    pub(super) fn decide_anew(&mut self) {
        self.others.forget();
        self.first_look = None;
        self.stood = None;
        if !self.is_alone {
            self.forget_pfs();
        }
    }

    /// Has a record changed since the PFS was looked at for this decision? Notes how they stand.
    pub(super) fn is_outdated_by(&mut self, reads: &ReadSet, lists: &Lists) -> bool {
        let mut changed = false;
        if reads.records.is_empty() && lists.is_empty() {
            return false;
        }
        let stood = self.stood.get_or_insert_default();
        for (path, seen) in &reads.records {
            let before = stood.records.insert(path.clone(), seen.stand());
            changed |= before.is_some_and(|before| before != seen.stand());
        }
        for (of, seen) in lists {
            let before = stood.listed.insert(of.clone(), *seen);
            changed |= before.is_some_and(|before| before != *seen);
        }
        let saw_renamed = |seldom: &Seldom| !seldom.renamed.is_empty();
        let saw_pfs = !self.attrs.get_mut().is_empty()
            || !self.links.get_mut().is_empty()
            || !self.lists.is_empty()
            || self.seldom.get_mut().as_deref().is_some_and(saw_renamed);
        changed && saw_pfs
    }

    /// Forgets what was seen of the PFS.
    pub(super) fn forget_pfs(&mut self) {
        self.attrs.get_mut().clear();
        self.links.get_mut().clear();
        self.lists.clear();
        if let Some(seldom) = self.seldom.get_mut() {
            seldom.held.clear();
            seldom.renamed.clear();
        }
    }

    /// Forgets all attributes.
    pub(super) fn forget_attrs(&mut self) {
        self.objects.get_mut().clear();
        self.attrs.get_mut().clear();
        if let Some(seldom) = self.seldom.get_mut() {
            seldom.renamed.clear();
        }
    }

    /// Forgets what other bridges said.
    pub(super) fn forget_others(&mut self) {
        self.others.forget();
    }

    /// Takes in what other bridges said.
    pub fn learn(&mut self, fact: Fact) {
        self.others.learn(fact);
    }

    /// What a look for attributes has shown.
    pub(super) fn put_attr(&self, look: PfsLook, attr: Option<Attr>) {
        match look {
            PfsLook::Renamed { origin, .. } => {
                let mut seldom = self.seldom.borrow_mut();
                let seldom = seldom.get_or_insert_default();
                seldom.renamed.insert(origin, attr);
            }
            PfsLook::Attr(path) => {
                self.attrs.borrow_mut().insert(path, attr);
            }
            PfsLook::Link(_) | PfsLook::List { .. } => unreachable!("it shows no attributes"),
        }
    }

    pub(super) fn put_link(&self, path: TreePath, text: Vec<u8>) {
        self.links.borrow_mut().insert(path, text);
    }

    pub(super) fn put_list(&mut self, path: TreePath, page: Arc<LowerPage>) {
        page.assert_well_formed();
        self.lists.entry(path).or_default().push(page);
    }

    pub(super) fn put_held(&mut self, path: TreePath) {
        let seldom = self.seldom.get_mut().get_or_insert_default();
        seldom.held.insert(path);
    }

    pub(super) fn is_held_in_place(&self, path: &TreePath) -> bool {
        let seldom = self.seldom.borrow();
        seldom
            .as_ref()
            .is_some_and(|seldom| seldom.held.contains(path))
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
        self.attrs.borrow().get(path).copied()
    }

    pub(super) fn renamed(&self, origin: &TreePath) -> Option<Option<Attr>> {
        let seldom = self.seldom.borrow();
        seldom.as_ref()?.renamed.get(origin).copied()
    }

    /// What this request has seen at this place of the PFS: what was renamed from there, or else what has its name.
    pub(super) fn shown(&self, path: &TreePath) -> Option<Attr> {
        let renamed = self.renamed(path).flatten();
        renamed.or_else(|| self.attr(path).flatten())
    }

    /// What this look goes through, as this request has seen it: the directory that an entry is in, the directory that is listed, the link
    /// that is read. Of something renamed: the directory out of which it was. `None`: it has not.
    pub fn through(&self, look: &PfsLook) -> Option<Through> {
        let seen = match look {
            PfsLook::Renamed {
                out_of: Some(dir), ..
            } => return Some(Through::Known(*dir)),
            PfsLook::Attr(path) | PfsLook::Renamed { origin: path, .. } => {
                self.shown(&path.split()?.0)
            }
            PfsLook::Link(path) | PfsLook::List { dir: path, .. } => self.shown(path),
        };
        seen.map(|attr| Through::Seen(attr.inode()))
    }

    pub(super) fn link(&self, path: &TreePath) -> Option<Vec<u8>> {
        self.links.borrow().get(path).cloned()
    }

    pub(super) fn list(&self, path: &TreePath, after: Option<&[u8]>) -> Option<&Arc<LowerPage>> {
        self.lists.get(path)?.iter().find(|page| page.covers(after))
    }

    pub(super) fn object(&self, object: ObjectName) -> Option<Attr> {
        let objects = self.objects.borrow();
        let found = objects.iter().find(|(seen, _)| *seen == object);
        found.map(|&(_, attr)| attr)
    }

    /// The page of a PFS directory that was obtained last, if one was.
    pub fn last_list(&self) -> Option<(&TreePath, &Arc<LowerPage>)> {
        let (dir, pages) = self.lists.iter().next()?;
        Some((dir, pages.last()?))
    }
}
