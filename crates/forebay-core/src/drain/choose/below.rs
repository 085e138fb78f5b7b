//! What the buffer has below what is chosen about.

use super::{Choose, Conflict, Side};
use crate::bridge::ReadSet;
use crate::drain::act::BelowRead;
use crate::drain::drain_facts::DrainFacts;
use crate::drain::rules::holds_things;
use crate::facts::{Attr, Outcome};
use crate::path::TreePath;
use crate::record::{Kind, PathRecord};

/// The records below something.
#[derive(Clone, Default)]
pub(super) struct Below {
    /// There are some that go with it.
    pub(super) has_any: bool,
    /// One of them hides something of the PFS, and must not outlive a rename of what it is below.
    pub(super) hiding: Option<TreePath>,
    /// All of them, with their versions.
    seen: Vec<(TreePath, u64)>,
}

impl Below {
    pub(super) fn of(facts: &dyn DrainFacts, path: &TreePath) -> Outcome<Self> {
        let records = facts.below(path)?;
        let mut hiding = records.iter().filter(|(_, r)| r.hides.is_some());
        Ok(Below {
            has_any: !records.is_empty(),
            hiding: hiding.next().map(|(path, _)| path.clone()),
            seen: records
                .iter()
                .map(|(p, r)| (p.clone(), r.version))
                .collect(),
        })
    }

    /// It is below something that was renamed, at the old place of which now is `there`. Below a file nothing goes with it: such
    /// records are settled one by one, and one that hides something before it.
    pub(super) fn tell_apart(&mut self, renamed: &PathRecord, there: Option<&Attr>) {
        match holds_things(renamed) || there.is_some_and(Attr::is_dir) {
            true => self.hiding = None,
            false => self.has_any = false,
        }
    }
}

impl Choose {
    /// Programs may make something at any time below renamed things that do not get their new names, and below a directory that is
    /// given up. Gives what the commit relies on there; `None`: it has changed.
    pub(super) fn relies_below(
        &self,
        conflict: &Conflict,
        facts: &dyn DrainFacts,
        reads: &mut ReadSet,
    ) -> Outcome<Option<Vec<BelowRead>>> {
        let holds_things = matches!(conflict.record.kind, Kind::Moved | Kind::Dir);
        if !holds_things || conflict.is_of_both || self.choice.side == Side::Ours {
            return Ok(Some(Vec::new()));
        }
        let ring = conflict.ring.iter().map(|one| (&one.path, &one.below));
        let mut relied = Vec::new();
        for (path, below) in ring.chain([(&self.choice.path, &conflict.below)]) {
            let now = Below::of(facts, path)?;
            if now.seen != below.seen {
                return Ok(None);
            }
            facts.rely_on_range(path, reads)?;
            if facts.is_single() {
                relied.push(BelowRead {
                    dir: path.clone(),
                    seen: now.seen,
                });
            }
        }
        Ok(Some(relied))
    }
}
