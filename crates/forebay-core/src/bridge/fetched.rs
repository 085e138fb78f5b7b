//! Facts that were fetched from other bridges, and the memory of those that one decision has obtained.

use crate::facts::Need;
use crate::path::TreePath;
use crate::record::{BridgeId, ObjectId, ObjectName, PathRecord};
use crate::speakers::{Lowers, SpeakersPage};
use std::collections::BTreeMap;

/// What other bridges hold below a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OthersBelow {
    /// Their records, parents first.
    pub entries: Vec<(TreePath, PathRecord)>,
    /// A digest of what each of them holds, for [`super::RangeRead`].
    pub seen: Vec<(BridgeId, u64)>,
}

/// The answer to a [`Need`] that other bridges know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// What its home says of a path.
    Record {
        /// Which path.
        path: TreePath,
        /// The record.
        record: Option<PathRecord>,
        /// If there is none: see [`super::Bridge::absence`].
        absence: u64,
    },
    /// The first children of a directory after a name that the *other* bridges hold, sorted. The own tables are read by
    /// the driver.
    Children {
        /// Which directory.
        dir: TreePath,
        /// After this name.
        after: Option<Vec<u8>>,
        /// Each name once.
        children: Vec<(Vec<u8>, PathRecord)>,
        /// A digest of what each of them holds there, with its absences.
        seen: u64,
    },
    /// What the *other* bridges hold below a directory. The own tables are read by the driver.
    Below {
        /// Which directory.
        dir: TreePath,
        /// Their records.
        others: OthersBelow,
    },
    /// Who speaks of paths of the PFS, of *all* bridges.
    Speakers {
        /// Of which paths.
        of: Lowers,
        /// The page begins below this path.
        before: Option<TreePath>,
        /// The page.
        page: SpeakersPage,
    },
    /// The names of an object, as its owner knows them.
    Names {
        /// Which object.
        object: ObjectId,
        /// Its names with their paths.
        names: Vec<(ObjectName, TreePath)>,
    },
}

/// The children of a directory that other bridges hold: the first after a name.
type ChildrenPages = BTreeMap<(TreePath, Option<Vec<u8>>), ChildrenPage>;

/// Names and records, and a digest of what each bridge holds there.
type ChildrenPage = (Vec<(Vec<u8>, PathRecord)>, u64);

/// Facts of other bridges that were obtained for one decision.
#[derive(Debug, Default)]
pub struct Heard {
    records: BTreeMap<TreePath, (Option<PathRecord>, u64)>,
    children: ChildrenPages,
    below: BTreeMap<TreePath, OthersBelow>,
    speakers: BTreeMap<(Lowers, Option<TreePath>), SpeakersPage>,
    names: BTreeMap<ObjectId, Vec<(ObjectName, TreePath)>>,
}

impl Heard {
    /// Takes in a fact, in place of an older one.
    pub fn learn(&mut self, fact: Fact) {
        match fact {
            Fact::Record {
                path,
                record,
                absence,
            } => drop(self.records.insert(path, (record, absence))),
            Fact::Children {
                dir,
                after,
                children,
                seen,
            } => {
                debug_assert!(
                    children.is_sorted_by(|a, b| a.0 < b.0),
                    "children come sorted, each name once"
                );
                self.children.insert((dir, after), (children, seen));
            }
            Fact::Below { dir, others } => drop(self.below.insert(dir, others)),
            Fact::Speakers { of, before, page } => {
                self.speakers.insert((of, before), page);
            }
            Fact::Names { object, names } => drop(self.names.insert(object, names)),
        }
    }

    /// Forgets everything.
    pub fn forget(&mut self) {
        *self = Heard::default();
    }

    /// The record of a path with its absence.
    pub fn record(&self, path: &TreePath) -> Option<&(Option<PathRecord>, u64)> {
        self.records.get(path)
    }

    /// See [`Fact::Children`].
    pub fn children(&self, dir: &TreePath, after: Option<&[u8]>) -> Option<&ChildrenPage> {
        self.children.get(&(dir.clone(), after.map(<[u8]>::to_vec)))
    }

    /// See [`Fact::Below`].
    pub fn below(&self, dir: &TreePath) -> Option<&OthersBelow> {
        self.below.get(dir)
    }

    /// See [`Fact::Speakers`].
    pub fn speakers(&self, of: &Lowers, before: Option<&TreePath>) -> Option<&SpeakersPage> {
        self.speakers.get(&(of.clone(), before.cloned()))
    }

    /// See [`Fact::Names`].
    pub fn names(&self, object: ObjectId) -> Option<&Vec<(ObjectName, TreePath)>> {
        self.names.get(&object)
    }
}

/// Do other bridges know this?
pub fn is_of_others(need: &Need) -> bool {
    match need {
        Need::Record(_)
        | Need::Children { .. }
        | Need::Below(_)
        | Need::Speakers { .. }
        | Need::Names(_) => true,
        Need::Settled(_) | Need::Look(_) | Need::FurtherUp(_) | Need::Object(_) => false,
    }
}
