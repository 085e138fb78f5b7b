//! What is known of the two versions between which somebody decides.

use super::below::Below;
use super::exchanged::Exchanged;
use crate::bridge::ReadSet;
use crate::drain::act::Work;
use crate::drain::orphans::is_waiting;
use crate::facts::Attr;
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Kind, PathRecord};
use std::collections::BTreeSet;

/// What was renamed out of their version, and has not left it.
#[derive(Clone)]
pub(super) enum InTwoPlaces {
    /// What is chosen about.
    Itself,
    /// Something else.
    Other(TreePath),
}

/// What is known of the two versions.
#[derive(Clone)]
pub(super) struct Conflict {
    pub(super) record: PathRecord,
    /// Where on the PFS their version is.
    pub(super) theirs: TreePath,
    /// Where what was renamed is on the PFS.
    pub(super) origin: Option<TreePath>,
    /// What is there now.
    pub(super) at_origin: Option<Attr>,
    /// What is below it in the buffer.
    pub(super) below: Below,
    /// What was renamed away from where their version is.
    pub(super) went_to: Option<TreePath>,
    /// Places in their version from which something was renamed that may not have left yet.
    pub(super) leaving: BTreeSet<TreePath>,
    /// A thing that was renamed out of their version, and would show in two places if that came back now. One below what is chosen
    /// about that can't leave before that does not count.
    pub(super) in_two_places: Option<InTwoPlaces>,
    /// What has taken the old place of the renamed thing, and would replace it if it went back there.
    pub(super) replaced_by: Option<TreePath>,
    /// What has exchanged its names with this, if theirs is taken: it is where it was before only together with this.
    pub(super) ring: Vec<Exchanged>,
    /// The directory that it is in is not on the PFS any more.
    pub(super) lacks_dir: bool,
    /// Another directory is there than the one that it is for.
    pub(super) is_in_other_dir: bool,
    /// Why nothing can be in its place on the PFS yet.
    pub(super) waits_because: Option<String>,
    /// Both sides have a directory there, and the two become one.
    pub(super) is_of_both: bool,
    /// What is in its place on the PFS.
    pub(super) at_theirs: Option<Attr>,
    /// A second name, and where it is on the PFS.
    pub(super) beside: Option<(TreePath, TreePath)>,
    /// Something has that name.
    pub(super) is_second_taken: bool,
    pub(super) reads: ReadSet,
}

impl Conflict {
    /// What is in its place if others have changed nothing, as far as that can be said. `None` after a choice for ours, so that it
    /// can still be revoked.
    pub(super) fn known(&self) -> Option<Identity> {
        let is_there = !self.lacks_dir && !self.is_origin_replaced() && self.went_to.is_none();
        let known = self.record.replaces.filter(|_| is_there);
        known.filter(|_| !self.record.is_chosen())
    }

    /// The same of a directory of which the record knows what was in it.
    pub(super) fn known_contents(&self) -> Option<Identity> {
        self.known().filter(|known| known.has_contents())
    }

    /// Have programs exchanged these names, and nobody else has done anything?
    pub(super) fn is_only_exchanged(&self) -> bool {
        let is_there = !self.lacks_dir && !self.is_origin_replaced();
        is_there && !self.ring.is_empty() && self.ring.iter().all(|one| one.is_in_place)
    }

    /// The directory out of which it was renamed, if it is known which one that was.
    pub(super) fn left_dir(&self) -> Option<(TreePath, Identity)> {
        let origin = self.origin.as_ref()?;
        let out_of = self.record.dirs().out_of?;
        Some((origin.parent(), out_of))
    }

    /// Takes note of what was found on the PFS.
    pub(super) fn see(&mut self, seen: Vec<Work<Option<Attr>>>) -> Work<()> {
        let found: Vec<_> = seen.into_iter().collect::<Work<_>>()?;
        let mut found = found.into_iter();
        self.at_theirs = found.next().flatten();
        self.at_origin = match self.origin {
            Some(_) => found.next().flatten(),
            None => None,
        };
        if let Some((_, out_of)) = self.left_dir() {
            // What has this name in another directory is not what was renamed.
            let dir = found.next().flatten();
            let is_it = dir.is_none_or(|dir| out_of.is_dir_of(&dir));
            self.at_origin = self.at_origin.take().filter(|_| is_it);
        }
        match self.record.kind {
            Kind::Moved => self.below.tell_apart(&self.record, self.at_origin.as_ref()),
            _ => self.below.hiding = None,
        }
        for one in &mut self.ring {
            let there = found.next().flatten();
            let known = one.record.arriving.as_deref();
            let is_it = |attr: &Attr| known.is_none_or(|known| known.is(attr));
            one.below.tell_apart(&one.record, there.as_ref());
            one.is_dir = there.is_some_and(|attr| attr.is_dir() && is_it(&attr));
            one.is_in_place = !one.record.adopts
                && there.is_some_and(|attr| known.is_some_and(|known| known.is(&attr)));
        }
        self.is_of_both = self.record.kind == Kind::Dir
            && self.record.hides.is_none()
            && self.at_theirs.as_ref().is_some_and(Attr::is_dir);
        self.is_second_taken = self.beside.is_some() && found.next().flatten().is_some();
        Ok(())
    }

    /// Was something renamed, and others have removed it where it was, or put something else there? So it also counts after somebody
    /// has chosen to take along what is there now, until that has left: the choice can be revoked.
    pub(super) fn is_origin_replaced(&self) -> bool {
        let known = self.record.arriving.as_ref();
        let is_other = |attr: &Attr| known.is_some_and(|known| !known.is(attr));
        self.record.kind == Kind::Moved
            && (self.record.adopts && !is_waiting(&self.record)
                || self.at_origin.as_ref().is_none_or(is_other))
    }
}
