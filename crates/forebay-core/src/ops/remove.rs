//! Names that go.

use super::change::Plan;
use super::{Answer, Context, Decision, Path};
use crate::facts::{Outcome, errno};
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
        self.check_removal(&found.dir, node)?;
        self.remove(&found, Plan::default())
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
        self.drop_below(&found, &mut plan)?;
        self.remove(&found, plan)
    }

    /// Drops the invisible records below an empty directory that goes.
    pub(super) fn drop_below(&self, found: &Found, plan: &mut Plan) -> Outcome<()> {
        for (path, record) in self.check_empty(found)? {
            plan.delete(&path, &record);
        }
        Ok(())
    }

    fn remove(&self, found: &Found, mut plan: Plan) -> Outcome<Decision> {
        self.drop_record(found, &mut plan);
        self.vacate(found, &mut plan)?;
        plan.touch(&found.dir);
        Ok(plan.decide(Answer::Done))
    }
}
