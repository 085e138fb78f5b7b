//! The tables made anew from the labels that all backing objects carry.
//!
//! A label names its directory by an identity: a directory made in the buffer by its object, one of the PFS
//! by its path there. So the path of an object is found through the chain of its parents, and what has been
//! renamed is found through the labels of what moved. Nothing that holds data is dropped: what has lost its
//! directory, or shares its name with a younger object, gets a name that says so.

use crate::drain::waiting_path;
use crate::facts::{Attr, Label, LabelParent};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{BridgeId, Kind, ObjectId, ObjectName, PathRecord};
use crate::table::Change;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A labelled object that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivor {
    /// The object.
    pub object: ObjectName,
    /// What its label says.
    pub label: Label,
    /// Its inode number.
    pub ino: u64,
}

/// Something that the labels do not tell in full, and what was made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The directory of this name is lost; it is in the root now, under [`lost`].
    LostDirectory {
        /// The name that the label tells.
        name: Vec<u8>,
    },
    /// Two objects have this path; the older one is beside it now, under [`conflict`].
    SameName {
        /// The path.
        path: TreePath,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::LostDirectory { name } => write!(
                f,
                "{}: its directory is lost; it is now in the root",
                name.escape_ascii()
            ),
            Problem::SameName { path } => write!(f, "{path}: two objects have this name"),
        }
    }
}

/// The records that the labels tell of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rebuilt {
    /// Each path once.
    pub records: Vec<(TreePath, PathRecord)>,
    /// Objects that have another path now than their labels tell.
    pub moved: Vec<ObjectName>,
    /// What was not clear.
    pub problems: Vec<Problem>,
}

impl Rebuilt {
    /// What makes the tables. The marks tell the next start to write the labels that are wrong now.
    pub fn into_changes(self) -> Vec<Change> {
        let records = self.records.into_iter();
        let puts = records.map(|(path, record)| Change::Put { path, record });
        puts.chain(self.moved.into_iter().map(Change::Relabel))
            .collect()
    }
}

/// Does an object of this kind only carry its label? Then nothing is lost with it.
pub fn is_marker(kind: Kind) -> bool {
    matches!(kind, Kind::Moved | Kind::Whiteout)
}

/// Where something goes whose own place is lost.
pub fn lost(object: ObjectName) -> TreePath {
    TreePath::root().join(format!("lost-{object}").as_bytes())
}

/// Where something goes whose name a younger object has.
pub fn conflict(path: &TreePath, object: ObjectName) -> TreePath {
    let name = format!("conflict-{}.{:x}", object.oid, object.link);
    path.parent().join(name.as_bytes())
}

/// The record that a labelled object must have had, in this version.
pub fn record_of(survivor: &Survivor, owner: BridgeId, version: u64) -> PathRecord {
    let Survivor { object, label, ino } = survivor;
    PathRecord {
        version,
        ino: if is_marker(label.kind) { 0 } else { *ino },
        origin: label.origin.clone(),
        hides: label.hides.clone(),
        ..PathRecord::new(label.kind, *object, owner)
    }
}

/// Makes the records of all survivors of one bridge, `owner`. `version` gives a number for each, by a
/// count from 0.
///
/// `lacks_renames`: a mark of something that was renamed may have lost its label. Then what is hidden may be the only one
/// that there is: each drain takes it for changed by others, and touches it when somebody has decided.
pub fn rebuild(
    mut survivors: Vec<Survivor>,
    lacks_renames: bool,
    owner: BridgeId,
    version: impl Fn(u32) -> u64,
) -> Rebuilt {
    // Of two that claim one path the younger wins, and it comes first here.
    survivors.sort_by_key(|s| {
        let oid = s.object.oid;
        std::cmp::Reverse((oid.epoch(), oid.seq(), s.object.link))
    });
    let mut ancestry = Ancestry::new(&survivors);
    let mut taken = BTreeSet::new();
    let mut rebuilt = Rebuilt::default();
    for (i, survivor) in survivors.iter().enumerate() {
        let mut path = ancestry.path(i).unwrap_or_else(|| {
            let name = survivor.label.name.clone();
            rebuilt.problems.push(Problem::LostDirectory { name });
            rebuilt.moved.push(survivor.object);
            lost(survivor.object)
        });
        if !taken.insert(path.clone()) {
            if is_marker(survivor.label.kind) {
                continue;
            }
            let beside = conflict(&path, survivor.object);
            rebuilt.problems.push(Problem::SameName { path });
            rebuilt.moved.push(survivor.object);
            path = beside;
            taken.insert(path.clone());
        }
        let mut record = record_of(survivor, owner, version(i as u32));
        if lacks_renames && record.hides.is_some() {
            record.replaces = Some(Identity::NOTHING);
        }
        rebuilt.records.push((path, record));
    }
    rebuilt
}

/// Key of the note: some rebuilt records do not know yet what is on the PFS.
pub const IGNORANT: &[u8] = b"repair/ignorant";

/// Sets that note, or takes it away.
pub fn note_ignorance(is_there: bool) -> Change {
    Change::Meta {
        key: IGNORANT.to_vec(),
        value: is_there.then(Vec::new),
    }
}

/// What a record that was rebuilt does not know of the PFS, because no label tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignorance {
    /// What it hides is not known; this is the place.
    pub hides: Option<TreePath>,
    /// What was renamed is not known; this is where it was.
    pub origin: Option<TreePath>,
    /// Where what was renamed may wait for its name, if a drain was killed.
    pub waits: TreePath,
}

impl Ignorance {
    /// Of a record; `None` if it knows all.
    pub fn of(record: &PathRecord) -> Option<Self> {
        let hides = record.hides.clone().filter(|_| record.replaces.is_none());
        let is_unknown = record.kind == Kind::Moved && record.arriving.is_none();
        let origin = record.origin.clone().filter(|_| is_unknown);
        (hides.is_some() || origin.is_some()).then(|| Ignorance {
            hides,
            origin,
            waits: waiting_path(record.object.oid),
        })
    }

    /// What the record is when somebody has looked: `hidden` is what it hides now, `renamed` what is at its origin, and `waiting` what is
    /// where it may wait. Where nothing is, nothing that comes is meant. What waits needs no identity: nobody else gives that name.
    pub fn end(
        &self,
        record: PathRecord,
        hidden: Option<Identity>,
        renamed: Option<&Attr>,
        waiting: Option<&Attr>,
    ) -> PathRecord {
        let mut record = record;
        if self.hides.is_some() {
            record.replaces = Some(hidden.unwrap_or(Identity::NOTHING));
        }
        if self.origin.is_some() && waiting.is_none() {
            let known = renamed.map_or(Identity::NOTHING, Identity::of_leaving);
            record.arriving = Some(Box::new(known));
        }
        record
    }
}

/// Finds the path of every survivor through the chain of its parents.
struct Ancestry<'a> {
    survivors: &'a [Survivor],
    dirs: BTreeMap<ObjectId, usize>,
    moved: BTreeMap<&'a TreePath, usize>,
    paths: BTreeMap<usize, Option<TreePath>>,
}

impl<'a> Ancestry<'a> {
    fn new(survivors: &'a [Survivor]) -> Self {
        let mut ancestry = Ancestry {
            survivors,
            dirs: BTreeMap::new(),
            moved: BTreeMap::new(),
            paths: BTreeMap::new(),
        };
        for (i, s) in survivors.iter().enumerate() {
            // One that has opened to the PFS counts as moved; see `label::is_right`.
            if matches!(s.label.kind, Kind::Dir | Kind::Moved) {
                ancestry.dirs.insert(s.object.oid, i);
            }
            if let (Kind::Moved, Some(origin)) = (s.label.kind, &s.label.origin) {
                ancestry.moved.insert(origin, i);
            }
        }
        ancestry
    }

    fn path(&mut self, index: usize) -> Option<TreePath> {
        if let Some(known) = self.paths.get(&index) {
            return known.clone();
        }
        // Whoever comes back here while it is being worked out is its own ancestor.
        self.paths.insert(index, None);
        let label = &self.survivors[index].label;
        let parent = match &label.parent {
            LabelParent::Object(oid) => {
                let dir = *self.dirs.get(oid)?;
                self.path(dir)
            }
            LabelParent::Lower(lower) => self.path_of_lower(lower, index),
        };
        let path = parent.map(|p| p.join(&label.name));
        self.paths.insert(index, path.clone());
        path
    }

    /// Where a directory of the PFS is in the buffer, given what was renamed.
    fn path_of_lower(&mut self, lower: &TreePath, asker: usize) -> Option<TreePath> {
        let mut at = lower.clone();
        loop {
            match self.moved.get(&at).copied() {
                Some(index) if index != asker => {
                    let now = self.path(index)?;
                    return lower.rebase(&at, &now);
                }
                _ => {}
            }
            if at.is_root() {
                return Some(lower.clone());
            }
            at = at.parent();
        }
    }
}
