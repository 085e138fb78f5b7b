//! The local disk of one bridge: backing objects with their labels.
//!
//! Work on it takes time. What was under way when the bridge died has happened
//! or not, as chance has it; what was finished stays.

use super::random::Random;
use forebay_core::facts::Label;
use forebay_core::record::ObjectName;
use std::collections::BTreeMap;

/// One piece of work.
#[derive(Debug, Clone)]
pub(super) enum Work {
    Make(ObjectName, Label),
    Unlink(ObjectName),
    Relabel(ObjectName, Label),
}

/// Backing objects.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) objects: BTreeMap<ObjectName, Label>,
    under_way: BTreeMap<u64, Work>,
    count: u64,
}

impl Disk {
    /// Begins a piece of work; the number is for [`Disk::finish`].
    pub(super) fn begin(&mut self, work: Work) -> u64 {
        self.count += 1;
        self.under_way.insert(self.count, work);
        self.count
    }

    /// The work is done, and what it was.
    pub(super) fn finish(&mut self, number: u64) -> Option<Work> {
        let work = self.under_way.remove(&number)?;
        self.carry_out(&work);
        Some(work)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// The bridge dies.
    pub(super) fn crash(&mut self, random: &mut Random) {
        for (_, work) in std::mem::take(&mut self.under_way) {
            if random.chance(500_000) {
                self.carry_out(&work);
            }
        }
    }

    fn carry_out(&mut self, work: &Work) {
        match work {
            Work::Make(object, label) => {
                self.objects.insert(*object, label.clone());
            }
            Work::Unlink(object) => {
                self.objects.remove(object);
            }
            Work::Relabel(object, label) => {
                if let Some(old) = self.objects.get_mut(object) {
                    *old = label.clone();
                }
            }
        }
    }
}
