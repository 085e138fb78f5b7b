//! What the buffer has below what is chosen about.

use crate::drain::drain_facts::DrainFacts;
use crate::drain::rules::holds_things;
use crate::facts::{Attr, Outcome};
use crate::path::TreePath;
use crate::record::PathRecord;

/// The records below something.
#[derive(Clone, Default)]
pub(super) struct Below {
    /// There are some that go with it.
    pub(super) has_any: bool,
    /// One of them hides something of the PFS, and must not outlive a rename of what it is below.
    pub(super) hiding: Option<TreePath>,
    /// All of them, with their versions.
    pub(super) seen: Vec<(TreePath, u64)>,
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
