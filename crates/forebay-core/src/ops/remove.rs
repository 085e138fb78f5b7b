//! Names that go.

use super::change::Plan;
use super::hidden::{Below, Contents, Hidden};
use super::{Answer, Context, Decision, Path};
use crate::facts::{Outcome, errno};
use crate::path::TreePath;
use crate::record::PathRecord;
use crate::walk::{Follow, Found, Last};

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
        self.walk.check_here(&found)?;
        self.check_removal(&found.dir, node)?;
        let hidden = self.hidden_at(&found);
        self.remove(&found, hidden, &[], Plan::default())
    }

    pub(super) fn rmdir(&self, path: &Path) -> Outcome<Decision> {
        let found = self.walk.resolve(path, Follow::No)?;
        match found.last {
            Last::DotDot => return errno(libc::ENOTEMPTY),
            _ if found.path.is_root() => return errno(libc::EBUSY),
            Last::Dot => return errno(libc::EINVAL),
            Last::Name => {}
        }
        let Some(node) = &found.node else {
            return errno(libc::ENOENT);
        };
        self.check_change(&found.dir)?;
        if !self.walk.is_dir(node) {
            return errno(libc::ENOTDIR);
        }
        self.walk.check_here(&found)?;
        self.check_removal(&found.dir, node)?;
        let mut plan = Plan::default();
        let (hidden, below) = self.empty(&found)?;
        let at_once = self.walk.settings.removed_at_once;
        let is_seen = |r: &PathRecord| r.is_visible() || r.transit.is_some();
        match hidden.is_some() && !below.iter().any(|(_, r)| is_seen(r)) {
            true if below.len() > at_once => {
                plan.delete_unseen(&found.path, &below, at_once.max(1));
            }
            _ => below
                .iter()
                .for_each(|(path, r)| plan.delete_unseen_one(path, r)),
        }
        self.remove(&found, hidden, &below, plan)
    }

    /// Drops the records below an empty directory that goes. Gives what of the PFS is hidden at its path from
    /// then on, with all that is in it, and those records.
    pub(super) fn drop_below(
        &self,
        found: &Found,
        plan: &mut Plan,
    ) -> Outcome<(Option<Hidden>, Below)> {
        let (hidden, below) = self.empty(found)?;
        for (path, record) in &below {
            plan.delete_unseen_one(path, record);
        }
        Ok((hidden, below))
    }

    /// What of the PFS is hidden at the path of an empty directory when it is gone, and the records below it.
    fn empty(&self, found: &Found) -> Outcome<(Option<Hidden>, Below)> {
        let below = self.check_empty(found)?;
        let mut hidden = self.hidden_at(found);
        // Otherwise what is hidden is something else, in whose place the directory came.
        let is_itself = found.record.as_ref().is_none_or(|r| r.hides.is_none());
        if let Some(hidden) = hidden.as_mut().filter(|_| is_itself)
            && let Some(entry) = hidden.entry
        {
            let contents = Contents::of(&below);
            let entry = self.with_contents(entry, &hidden.path, &found.path, &contents)?;
            hidden.entry = Some(entry);
        }
        Ok((hidden, below))
    }

    fn remove(
        &self,
        found: &Found,
        hidden: Option<Hidden>,
        below: &[(TreePath, PathRecord)],
        mut plan: Plan,
    ) -> Outcome<Decision> {
        self.drop_record(found, &mut plan);
        self.vacate(found, hidden, &mut plan)?;
        self.settle_origin(found, below, &mut plan)?;
        plan.touch(self.touched(&found.dir)?);
        Ok(plan.decide(Answer::Done))
    }
}
