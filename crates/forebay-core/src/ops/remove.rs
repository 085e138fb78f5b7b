//! Names that go.

use super::change::{Below, Hidden, Plan};
use super::{Answer, Context, Decision, Path};
use crate::facts::{Outcome, errno};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::PathRecord;
use crate::walk::{Follow, Found, Last, Node};

/// So many records below a directory go with it in one batch.
const UNSEEN_AT_ONCE: usize = 64;

impl Context<'_> {
    pub(super) fn unlink(&self, path: &Path) -> Outcome<Decision> {
        let found = self.walk.resolve(path, Follow::No)?;
        if found.last != Last::Name {
            return errno(libc::EISDIR);
        }
        let Some(node) = &found.node else {
            return errno(libc::ENOENT);
        };
        if found.slash {
            // Linux refuses it before it looks at permissions.
            return errno(if self.walk.is_dir(node) {
                libc::EISDIR
            } else {
                libc::ENOTDIR
            });
        }
        self.check_change(&found.dir)?;
        if self.walk.is_dir(node) {
            return errno(libc::EISDIR);
        }
        self.check_removal(&found.dir, node)?;
        let hidden = self.hidden_at(&found);
        self.remove(&found, hidden, &[], Plan::default())
    }

    pub(super) fn rmdir(&self, path: &Path) -> Outcome<Decision> {
        let found = self.walk.resolve(path, Follow::No)?;
        match found.last {
            _ if found.path.is_root() => return errno(libc::EBUSY),
            Last::Dot => return errno(libc::EINVAL),
            Last::DotDot => return errno(libc::ENOTEMPTY),
            Last::Name => {}
        }
        let Some(node) = &found.node else {
            return errno(libc::ENOENT);
        };
        self.check_change(&found.dir)?;
        if !self.walk.is_dir(node) {
            return errno(libc::ENOTDIR);
        }
        self.check_removal(&found.dir, node)?;
        let mut plan = Plan::default();
        let (hidden, below) = self.empty(&found)?;
        let is_seen = |r: &PathRecord| r.is_visible() || r.transit.is_some();
        match hidden.is_some() && !below.iter().any(|(_, r)| is_seen(r)) {
            true if below.len() > UNSEEN_AT_ONCE => plan.delete_unseen(&found.path, &below),
            _ => below.iter().for_each(|(path, r)| plan.delete(path, r)),
        }
        self.remove(&found, hidden, &below, plan)
    }

    /// Drops the invisible records below an empty directory that goes. Gives what of the PFS is hidden at its path from
    /// then on, with all that is in it, and those records.
    pub(super) fn drop_below(
        &self,
        found: &Found,
        plan: &mut Plan,
    ) -> Outcome<(Option<Hidden>, Below)> {
        let (hidden, below) = self.empty(found)?;
        for (path, record) in &below {
            plan.delete(path, record);
        }
        Ok((hidden, below))
    }

    /// What of the PFS is hidden at the path of an empty directory when it is gone, and the records below it.
    fn empty(&self, found: &Found) -> Outcome<(Option<Hidden>, Below)> {
        let below = self.check_empty(found)?;
        let mut hidden = self.hidden_at(found);
        // Otherwise what is hidden is something else, in whose place the directory came.
        let is_itself = found.record.as_ref().is_none_or(|r| r.hides.is_none());
        if let Some(hidden) = hidden.as_mut().filter(|_| is_itself) {
            let entries = self.hidden_in(found, &below)?;
            hidden.entry = hidden.entry.map(|dir| dir.with_contents(entries));
        }
        Ok((hidden, below))
    }

    fn remove(
        &self,
        found: &Found,
        mut hidden: Option<Hidden>,
        below: &[(TreePath, PathRecord)],
        mut plan: Plan,
    ) -> Outcome<Decision> {
        self.settle_left(found, below, None, &mut [&mut hidden], &mut plan)?;
        self.drop_record(found, &mut plan);
        self.vacate(found, hidden, &mut plan)?;
        plan.touch(&found.dir);
        Ok(plan.decide(Answer::Done))
    }
}

impl Context<'_> {
    /// What was renamed, and is removed or copied now, may lie on the PFS where it was before, kept from view by a record there
    /// or above. Nobody changes it by another name any more, so that record knows it from now on as it is. `below` are the invisible
    /// records below what goes, `leaving` is what is renamed with everything below it, and `hidden` is what new records of
    /// this decision keep from view.
    pub(super) fn settle_left(
        &self,
        found: &Found,
        below: &[(TreePath, PathRecord)],
        leaving: Option<&TreePath>,
        hidden: &mut [&mut Option<Hidden>],
        plan: &mut Plan,
    ) -> Outcome<()> {
        let origin = found.record.as_ref().and_then(|r| r.origin.as_ref());
        let (Some(origin), Some(Node::Lower(_, attr))) = (origin, &found.node) else {
            return Ok(());
        };
        let known = Identity::of(attr).with_contents(self.hidden_in(found, below)?);
        let settle = |entry: &mut Option<Identity>, is_itself: bool| {
            *entry = entry.map(|before| match is_itself {
                // Others may have replaced it.
                true if before.is_inode_of(attr) => known,
                true => before,
                false => before.without_contents(),
            });
        };
        let mut lower = origin.clone();
        while !lower.is_root() {
            let is_itself = lower == *origin;
            let mut fresh = hidden.iter_mut().filter_map(|h| h.as_mut());
            if let Some(hidden) = fresh.find(|hidden| hidden.path == lower) {
                settle(&mut hidden.entry, is_itself);
                return Ok(());
            }
            let at = self.shows_at(&lower)?;
            if leaving.is_some_and(|dir| at.is_within(dir)) {
                // It gets another record in any case.
                return Ok(());
            }
            let record = self.facts.record(&at)?;
            if let Some(mut record) = record.filter(|r| r.hides.as_ref() == Some(&lower)) {
                settle(&mut record.replaces, is_itself);
                record.version = self.facts.next_version();
                // A drain that has marked it looks at what is there itself.
                if record.transit.is_none() {
                    plan.put(at, record);
                }
                return Ok(());
            }
            lower = lower.parent();
        }
        Ok(())
    }

    /// The path in the buffer at which this place on the PFS would show through: directories above it may have been renamed.
    fn shows_at(&self, lower: &TreePath) -> Outcome<TreePath> {
        let mut dir = lower.clone();
        while !dir.is_root() {
            dir = dir.parent();
            if let Some(now) = self.facts.moved(&dir)? {
                return Ok(lower.rebase(&dir, &now).unwrap_or(now));
            }
        }
        Ok(lower.clone())
    }

    /// The entries of a directory of the PFS that these records below it hide, each with its name; no identity for one of
    /// which the records tell something else.
    fn hidden_in<'a>(
        &self,
        dir: &Found,
        below: &'a [(TreePath, PathRecord)],
    ) -> Outcome<Vec<(&'a [u8], Option<Identity>)>> {
        let place = match &dir.node {
            Some(Node::Lower(lower, _)) => lower,
            _ => &dir.path,
        };
        let mut entries = Vec::new();
        for (path, record) in below {
            let hidden = place.join(path.name());
            let is_in_it = path.parent() == dir.path && record.hides.as_ref() == Some(&hidden);
            let mut entry = record.replaces.filter(|_| is_in_it);
            if let Some(known) = entry.filter(|known| known.is_doubtful()) {
                match self.facts.lower(&hidden)? {
                    None => continue,
                    Some(now) => entry = known.is(&now).then(|| known.certain()),
                }
            }
            entries.push((path.name(), entry));
        }
        Ok(entries)
    }
}
