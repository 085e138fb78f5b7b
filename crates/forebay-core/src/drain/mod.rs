//! What has to be done to the PFS so that it equals the merged view, and in which order.
//!
//! A [`Picture`] is a copy of all records. It names the next [`Step`]s; the mover carries a step
//! out on the PFS, and [`Picture::advance`] says which records are different afterwards, so that
//! the mover can commit them in one batch. Every step can be repeated: a mover that died
//! between the work on the PFS and the commit finds the work done and commits.
//!
//! Names change places first, in three rounds: everything that was renamed goes to a temporary
//! name ([`Picture::evacuations`]), what is hidden goes away ([`Picture::clearances`]), and the
//! renamed things take their final names ([`Picture::placements`]). No round can destroy what a
//! later one needs: swaps, chains and a file in place of a directory need no special case. Then
//! come the directories that were made in the buffer ([`Picture::born_dirs`], parents first),
//! the contents ([`Picture::contents`]), and the attributes of directories.
//!
//! Records speak of *PFS paths as they are now*. So a step that renames a directory of the PFS
//! rewrites `origin` and `hides` of every record that speaks of something inside it.

#[cfg(test)]
mod tests;

use crate::path::TreePath;
use crate::record::{Kind, ObjectId, ObjectName, Record, Stamp};
use crate::walk::RESERVED_PREFIX;
use std::collections::{BTreeMap, BTreeSet};

/// The name under which a renamed thing waits in the root of the PFS directory.
pub fn waiting_name(oid: ObjectId) -> Vec<u8> {
    reserved(oid, ".moved")
}

/// The name under which contents are written before they take their final name.
pub fn copy_name(oid: ObjectId) -> Vec<u8> {
    reserved(oid, ".tmp")
}

/// The name of a hidden directory that only waits for its removal.
pub fn discarded_name(oid: ObjectId) -> Vec<u8> {
    reserved(oid, ".gone")
}

fn reserved(oid: ObjectId, suffix: &str) -> Vec<u8> {
    [RESERVED_PREFIX, format!("{oid}{suffix}").as_bytes()].concat()
}

/// Is this a name that an interrupted drain may have left, and that holds nothing of value?
/// (What waits under [`waiting_name`] is of value.)
pub fn is_leftover(name: &[u8]) -> bool {
    name.strip_prefix(RESERVED_PREFIX)
        .and_then(|rest| rest.split_at_checked(32))
        .is_some_and(|(oid, suffix)| {
            oid.iter().all(u8::is_ascii_hexdigit)
                && (suffix == b".tmp" || suffix.starts_with(b".gone"))
        })
}

/// One change of the names on the PFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Rename `from` to `to`, a waiting name. Done already if `to` exists.
    Evacuate {
        /// The record that moved it.
        path: TreePath,
        /// Where it is on the PFS.
        from: TreePath,
        /// Where it waits.
        to: TreePath,
    },
    /// Remove what is at `target`, with everything in it. Done already if nothing is there.
    Clear {
        /// The record that hides it.
        path: TreePath,
        /// What has to go.
        target: Option<TreePath>,
        /// If it is no directory, leave it: the contents of the record will replace it in one
        /// atomic rename.
        replaced: bool,
    },
    /// Rename `from` to the path of the record. Done already if `from` does not exist and the
    /// path does.
    Place {
        /// The record, and the final name.
        path: TreePath,
        /// Where the thing waits.
        from: TreePath,
    },
}

impl Step {
    /// Path of the record that asks for it.
    pub fn path(&self) -> &TreePath {
        match self {
            Step::Evacuate { path, .. } | Step::Clear { path, .. } | Step::Place { path, .. } => {
                path
            }
        }
    }
}

/// What a step does to one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Where.
    pub path: TreePath,
    /// As it was.
    pub before: Record,
    /// As it is now (the version is the mover's to set); `None` if it is gone.
    pub after: Option<Record>,
}

/// One object with contents of its own, and all its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The object.
    pub oid: ObjectId,
    /// The names, in the order of their paths. More than one: hard links.
    pub names: Vec<(TreePath, Record)>,
}

impl Contents {
    /// Are all names on the PFS in the state that the backing object has now?
    pub fn is_clean(&self, now: Stamp) -> bool {
        self.names
            .iter()
            .all(|(_, r)| r.drained == Some(now) && r.hides.is_none())
    }
}

/// All records of a buffer at one moment.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    records: BTreeMap<TreePath, Record>,
    /// PFS path -> paths of the records that speak of it.
    speakers: BTreeMap<TreePath, BTreeSet<TreePath>>,
}

impl Picture {
    /// Takes all records of a buffer.
    pub fn new(records: impl IntoIterator<Item = (TreePath, Record)>) -> Self {
        let mut picture = Picture::default();
        for (path, record) in records {
            picture.put(path, record);
        }
        picture
    }

    /// The records, parents before children.
    pub fn records(&self) -> &BTreeMap<TreePath, Record> {
        &self.records
    }

    /// The record at a path.
    pub fn get(&self, path: &TreePath) -> Option<&Record> {
        self.records.get(path)
    }

    /// Puts a record in.
    pub fn put(&mut self, path: TreePath, record: Record) {
        self.remove(&path);
        for lower in [&record.origin, &record.hides].into_iter().flatten() {
            self.speakers
                .entry(lower.clone())
                .or_default()
                .insert(path.clone());
        }
        self.records.insert(path, record);
    }

    /// Takes a record out.
    pub fn remove(&mut self, path: &TreePath) -> Option<Record> {
        let record = self.records.remove(path)?;
        for lower in [&record.origin, &record.hides].into_iter().flatten() {
            if let Some(paths) = self.speakers.get_mut(lower) {
                paths.remove(path);
                if paths.is_empty() {
                    self.speakers.remove(lower);
                }
            }
        }
        Some(record)
    }

    /// Where on the PFS the directory at `path` is served from now; `None` for one that was made
    /// in the buffer, below which nothing of the PFS shows.
    pub fn lower_dir(&self, path: &TreePath) -> Option<TreePath> {
        match self.records.get(path) {
            Some(r) if r.kind == Kind::Moved => r.origin.clone(),
            Some(_) => None,
            None => match path.split() {
                None => Some(TreePath::root()),
                Some((parent, name)) => Some(self.lower_dir(&parent)?.join(name)),
            },
        }
    }

    /// Is the directory at `path` on the PFS under this very path, with nothing left to move?
    /// Only then may something be put into it there.
    pub fn is_settled(&self, path: &TreePath) -> bool {
        let here = match self.records.get(path) {
            Some(r) if r.kind == Kind::Moved => r.origin.as_ref() == Some(path),
            Some(r) => r.kind == Kind::Dir && r.drained.is_some() && r.hides.is_none(),
            None => true,
        };
        here && (path.is_root() || self.is_settled(&path.parent()))
    }

    /// Does something that still has to go lie at this PFS path or above it?
    pub fn is_obstructed(&self, path: &TreePath) -> bool {
        let mut at = path.clone();
        loop {
            let in_the_way = self.speakers.get(&at).is_some_and(|paths| {
                paths.iter().any(|p| {
                    self.records.get(p).is_some_and(|r| {
                        r.hides.as_ref() == Some(&at) && !(p == path && self.is_replaced(p, r))
                    })
                })
            });
            if in_the_way {
                return true;
            }
            if at.is_root() {
                return false;
            }
            at = at.parent();
        }
    }

    /// Will the contents of this record replace what it hides?
    fn is_replaced(&self, path: &TreePath, record: &Record) -> bool {
        matches!(record.kind, Kind::File | Kind::Symlink | Kind::Special)
            && record.hides.is_some()
            && record.hides
                == self
                    .lower_dir(&path.parent())
                    .map(|dir| dir.join(path.name()))
    }

    /// First round. Deepest first, so that a thing is taken out of a directory before the
    /// directory itself goes. Ask again after the last one: a thing that was in its place can
    /// be carried off with the directory that holds it.
    pub fn evacuations(&self) -> Vec<Step> {
        let mut steps: Vec<(TreePath, Step)> = self
            .records
            .iter()
            .filter(|(_, r)| r.kind == Kind::Moved)
            .filter_map(|(path, r)| {
                let from = r.origin.clone()?;
                let to = TreePath::root().join(&waiting_name(r.object.oid));
                // A thing that is under its final name by chance has to go, too, if the directory
                // around it is to be replaced.
                let in_place =
                    from == *path && r.hides.is_none() && self.is_settled(&path.parent());
                (from != to && !in_place).then(|| {
                    let path = path.clone();
                    (from.clone(), Step::Evacuate { path, from, to })
                })
            })
            .collect();
        steps.sort_by_key(|(from, _)| std::cmp::Reverse(from.depth()));
        steps.into_iter().map(|(_, step)| step).collect()
    }

    /// Second round. Nothing may be cleared that holds the origin of an evacuation that failed:
    /// see [`Picture::holds_something_moved`].
    pub fn clearances(&self) -> Vec<Step> {
        self.records
            .iter()
            .filter(|(_, r)| r.kind == Kind::Whiteout || r.hides.is_some())
            .map(|(path, r)| Step::Clear {
                path: path.clone(),
                target: r.hides.clone(),
                replaced: self.is_replaced(path, r),
            })
            .collect()
    }

    /// Is something that the view still shows at or below this PFS path?
    pub fn holds_something_moved(&self, lower: &TreePath) -> bool {
        within(&self.speakers, lower).any(|(at, paths)| {
            paths
                .iter()
                .filter_map(|p| self.records.get(p))
                .any(|r| r.kind == Kind::Moved && r.origin.as_ref() == Some(at))
        })
    }

    /// Third round. Shallowest first. The directories made in the buffer that are parents of a
    /// final name must be on the PFS before it.
    pub fn placements(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = self
            .records
            .iter()
            .filter(|(_, r)| r.kind == Kind::Moved)
            .filter_map(|(path, r)| {
                let from = r.origin.clone()?;
                let waits = from == TreePath::root().join(&waiting_name(r.object.oid));
                waits.then(|| Step::Place {
                    path: path.clone(),
                    from,
                })
            })
            .collect();
        steps.sort_by_key(|step| step.path().depth());
        steps
    }

    /// Directories made in the buffer, parents before children.
    pub fn born_dirs(&self) -> impl DoubleEndedIterator<Item = (&TreePath, &Record)> {
        self.records.iter().filter(|(_, r)| r.kind == Kind::Dir)
    }

    /// The directories made in the buffer that hold `path`, from the root down.
    pub fn born_dirs_above(&self, path: &TreePath) -> Vec<TreePath> {
        let mut dirs = Vec::new();
        let mut at = path.clone();
        while !at.is_root() {
            at = at.parent();
            if self.records.get(&at).is_some_and(|r| r.kind == Kind::Dir) {
                dirs.push(at.clone());
            }
        }
        dirs.reverse();
        dirs
    }

    /// Files, symbolic links and nodes, the oldest object first.
    pub fn contents(&self) -> Vec<Contents> {
        let mut by_object: BTreeMap<ObjectId, Vec<(TreePath, Record)>> = BTreeMap::new();
        for (path, r) in &self.records {
            if matches!(r.kind, Kind::File | Kind::Symlink | Kind::Special) {
                by_object
                    .entry(r.object.oid)
                    .or_default()
                    .push((path.clone(), r.clone()));
            }
        }
        by_object
            .into_iter()
            .map(|(oid, names)| Contents { oid, names })
            .collect()
    }

    /// Is any name still to be moved or removed on the PFS?
    pub fn names_are_settled(&self) -> bool {
        self.records.iter().all(|(path, r)| match r.kind {
            Kind::Whiteout => false,
            Kind::Moved => r.origin.as_ref() == Some(path) && r.hides.is_none(),
            _ => r.hides.is_none(),
        })
    }

    /// The step has been carried out: the records that are different now.
    pub fn advance(&mut self, step: &Step) -> Vec<Update> {
        match step {
            Step::Evacuate { path, from, to } => self.relocated(path, from, to, false),
            Step::Place { path, from } => self.relocated(path, from, path, true),
            Step::Clear { path, .. } => {
                let Some(before) = self.remove(path) else {
                    return Vec::new();
                };
                let after = (before.kind != Kind::Whiteout).then(|| Record {
                    hides: None,
                    ..before.clone()
                });
                if let Some(record) = &after {
                    self.put(path.clone(), record.clone());
                }
                vec![Update {
                    path: path.clone(),
                    before,
                    after,
                }]
            }
        }
    }

    /// Objects whose labels name their directory by a PFS path that this step changes. Ask
    /// before [`Picture::advance`].
    pub fn labels_changed_by(&self, step: &Step) -> Vec<(TreePath, ObjectName)> {
        let (path, from) = match step {
            Step::Evacuate { path, from, .. } | Step::Place { path, from } => (path, from),
            Step::Clear { .. } => return Vec::new(),
        };
        within(&self.records, path)
            .filter(|(at, _)| *at != path)
            .filter(|(at, _)| {
                self.lower_dir(&at.parent())
                    .is_some_and(|dir| dir.is_within(from))
            })
            .map(|(at, r)| (at.clone(), r.object))
            .collect()
    }

    /// What was at `from` is at `to`: rewrites every record that speaks of it or of something in it.
    fn relocated(
        &mut self,
        mover: &TreePath,
        from: &TreePath,
        to: &TreePath,
        is_final: bool,
    ) -> Vec<Update> {
        let touched: BTreeSet<TreePath> = within(&self.speakers, from)
            .flat_map(|(_, paths)| paths.iter().cloned())
            .chain([mover.clone()])
            .collect();
        let natural = self.lower_dir(&mover.parent()) == Some(mover.parent());
        let mut updates = Vec::new();
        for path in touched {
            let Some(before) = self.remove(&path) else {
                continue;
            };
            let mut record = before.clone();
            record.origin = record
                .origin
                .map(|origin| origin.rebase(from, to).unwrap_or(origin));
            // Who hides exactly this hides nothing any more: it is no longer there.
            record.hides = record
                .hides
                .filter(|hides| hides != from)
                .map(|hides| hides.rebase(from, to).unwrap_or(hides));
            let mut after = Some(record);
            if is_final && path == *mover {
                if natural {
                    // The PFS shows it there by itself.
                    after = None;
                } else if let Some(record) = &mut after {
                    // Through a directory made in the buffer the PFS does not show.
                    record.drained = Some(Stamp::default());
                }
            }
            if let Some(record) = &after {
                self.put(path.clone(), record.clone());
            }
            updates.push(Update {
                path,
                before,
                after,
            });
        }
        updates
    }
}

/// The entries at and below `dir`.
fn within<'m, V>(
    map: &'m BTreeMap<TreePath, V>,
    dir: &'m TreePath,
) -> impl Iterator<Item = (&'m TreePath, &'m V)> {
    // Between `dir` and `dir/...` other names may lie (`dir!`), which begin alike.
    map.range(dir.clone()..)
        .take_while(move |(path, _)| path.as_bytes().starts_with(dir.as_bytes()))
        .filter(move |(path, _)| path.is_within(dir))
}
