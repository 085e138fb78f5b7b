//! Markers of removals, which are made some time after their records: the tables tell what they do, many are gone before, and a
//! file for each would be most of the cost of a removal.
//!
//! A mark in the tables ([`Change::Relabel`](crate::table::Change::Relabel)) says that one is still to be made. The marker of a
//! rename does not wait: if the tables were lost before it is there, a drain would destroy what was renamed. Of a removal only what
//! was removed shows again.

use crate::record::{Kind, ObjectName};
use std::collections::BTreeSet;

/// May the object of a record of this kind not be there yet?
pub fn may_be_unmade(kind: Kind) -> bool {
    kind == Kind::Whiteout
}

/// Are markers still to be made?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmade {
    /// There are none.
    None,
    /// None is due.
    New,
    /// Some are due.
    Due,
}

/// Markers that are not made yet. New ones become due only when all due ones have been tried.
#[derive(Debug, Default)]
pub struct Markers {
    new: BTreeSet<ObjectName>,
    due: BTreeSet<ObjectName>,
}

impl Markers {
    /// One more. True if no other one waits.
    pub fn wait(&mut self, marker: ObjectName) -> bool {
        let is_first = self.unmade() == Unmade::None;
        self.new.insert(marker);
        is_first
    }

    /// Does it wait?
    pub fn has(&self, marker: ObjectName) -> bool {
        self.new.contains(&marker) || self.due.contains(&marker)
    }

    /// It is made, or nobody needs it any more. True if it has waited.
    pub fn forget(&mut self, marker: ObjectName) -> bool {
        self.new.remove(&marker) || self.due.remove(&marker)
    }

    /// Are there any?
    pub fn unmade(&self) -> Unmade {
        match (self.due.is_empty(), self.new.is_empty()) {
            (false, _) => Unmade::Due,
            (true, false) => Unmade::New,
            (true, true) => Unmade::None,
        }
    }

    /// Up to `most` of those that are due. If none is, all that wait become so.
    pub fn due(&mut self, most: usize) -> Vec<ObjectName> {
        if self.due.is_empty() {
            std::mem::swap(&mut self.due, &mut self.new);
        }
        self.due.iter().take(most).copied().collect()
    }

    /// It could not be made: it waits as those do that come now.
    pub fn put_off(&mut self, marker: ObjectName) {
        if self.due.remove(&marker) {
            self.new.insert(marker);
        }
    }

    /// None could be made now.
    pub fn put_off_all(&mut self) {
        self.new.append(&mut self.due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BridgeId, ObjectId};

    fn marker(n: u64) -> ObjectName {
        ObjectName {
            oid: ObjectId::new(BridgeId(1), 1, n),
            link: 0,
        }
    }

    #[test]
    fn what_comes_is_due_after_all_that_was_and_what_failed_waits_with_it() {
        let mut markers = Markers::default();
        let [first, second, late] = [4, 8, 12].map(marker);
        assert!(markers.wait(first) && !markers.wait(second));
        assert_eq!(markers.unmade(), Unmade::New);
        assert_eq!((markers.due(1).len(), markers.due(9).len()), (1, 2));
        markers.wait(late);
        assert_eq!((markers.due(9).len(), markers.unmade()), (2, Unmade::Due));
        assert!(markers.forget(first) && !markers.forget(first));
        markers.put_off(second);
        // It was not due any more.
        markers.put_off(first);
        assert_eq!(markers.unmade(), Unmade::New);
        assert!(markers.has(second) && !markers.has(first));
        assert_eq!(markers.due(9).len(), 2);
        markers.put_off_all();
        assert_eq!(markers.unmade(), Unmade::New);
        assert!(markers.forget(second) && markers.forget(late));
        assert_eq!((markers.due(9), markers.unmade()), (vec![], Unmade::None));
    }
}
