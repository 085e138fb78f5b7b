//! The tables made anew from the labels that all backing objects carry.
//!
//! A label names its directory by an identity: a directory made in the buffer by its object, one of the PFS
//! by its path there. So the path of an object is found through the chain of its parents, and what has been
//! renamed is found through the labels of what moved. Nothing that holds data is dropped: what has lost its
//! directory, or shares its name with a younger object, gets a name that says so.

mod learning;

pub use learning::{Sight, learned};

use crate::drain::waiting_path;
use crate::facts::{Label, LabelParent};
use crate::identity::Identity;
use crate::label::is_void;
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
    /// Objects of which the labels tell another place.
    pub moved: Vec<ObjectName>,
    /// Markers that speak of nothing any more.
    pub void: Vec<ObjectName>,
    /// What was not clear.
    pub problems: Vec<Problem>,
}

impl Rebuilt {
    /// What makes the tables. The marks tell the next start to write the labels that are wrong now, and to remove what speaks of nothing.
    pub fn into_changes(self) -> Vec<Change> {
        let records = self.records.into_iter();
        let puts = records.map(|(path, record)| Change::Put { path, record });
        puts.chain(self.moved.into_iter().map(Change::Relabel))
            .chain(self.void.into_iter().map(Change::Doom))
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
        arriving: label.renamed.map(Box::new),
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
        if is_void(&survivor.label) {
            rebuilt.void.push(survivor.object);
            continue;
        }
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
    let mut ahead = ahead(&survivors, &rebuilt.records);
    rebuilt.moved.append(&mut ahead);
    rebuilt.moved.sort();
    rebuilt.moved.dedup();
    rebuilt
}

/// Objects whose labels name a directory otherwise than these records do: a drain was killed between them and the label of
/// what they are in.
fn ahead(survivors: &[Survivor], records: &[(TreePath, PathRecord)]) -> Vec<ObjectName> {
    let parents = survivors.iter().map(|s| (s.object, &s.label.parent));
    let parents: BTreeMap<_, _> = parents.collect();
    let by_path: BTreeMap<_, _> = records
        .iter()
        .map(|(path, record)| (path, record))
        .collect();
    let lower = |dir: &TreePath| {
        let mut at = dir.clone();
        loop {
            match by_path.get(&at) {
                Some(record) => return dir.rebase(&at, record.origin.as_ref()?),
                None if at.is_root() => return Some(dir.clone()),
                None => at = at.parent(),
            }
        }
    };
    let is_ahead = |path: &TreePath, object| match parents.get(object) {
        Some(LabelParent::Lower(told)) => lower(&path.parent()).is_some_and(|dir| dir != *told),
        Some(LabelParent::Object(oid)) => {
            let dir = by_path.get(&path.parent());
            dir.is_none_or(|dir| dir.object.oid != *oid)
        }
        None => false,
    };
    let objects = records.iter().map(|(path, record)| (path, &record.object));
    let ahead = objects.filter(|(path, object)| is_ahead(path, object));
    ahead.map(|(_, object)| *object).collect()
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

/// Finds the path of every survivor through the chain of its parents.
struct Ancestry<'a> {
    survivors: &'a [Survivor],
    dirs: BTreeMap<ObjectId, usize>,
    moved: BTreeMap<TreePath, usize>,
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
                ancestry.moved.insert(origin.clone(), i);
                // Its own label may tell the place before, if a drain was killed: see `learned`.
                ancestry.moved.insert(waiting_path(s.object.oid), i);
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
