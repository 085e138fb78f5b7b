//! The tables made anew from the labels that all backing objects carry.

use super::Report;
use crate::{Error, recover};
use forebay_core::bridge::version;
use forebay_core::facts::{Label, LabelParent};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, ObjectId, ObjectName, Record, Token};
use forebay_core::table::{Change, Tables};
use forebay_objects::Objects;
use forebay_sys::Errno;
use forebay_tables::{Cached, Journaled};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// A labelled object, on its way back into the tables.
struct Survivor {
    object: ObjectName,
    label: Label,
    ino: u64,
}

/// Makes the tables anew. The old ones, if there are any, are kept beside.
pub(super) fn rebuild(instance: &Path, report: &mut Report) -> Result<(), Error> {
    let meta = instance.join("meta");
    if meta.exists() {
        let aside = (0..)
            .map(|n| instance.join(format!("meta.old{n}")))
            .find(|p| !p.exists())
            .unwrap_or_else(|| instance.join("meta.old"));
        std::fs::rename(&meta, &aside).map_err(|e| Error::io("can't put aside", &meta, e))?;
    }
    let me = BridgeId(1);
    let objects = Objects::open(instance, me, 0, 0)
        .map_err(|e| Error::system("can't open the objects", e))?;
    // Removed before the tables were lost, although their labels still tell of them.
    for object in objects.spare_of_last_life() {
        objects
            .remove(object)
            .map_err(|e| Error::system("can't remove a spare file", e))?;
    }
    let mut survivors = Vec::new();
    let mut epoch = 0;
    let mut seen = HashSet::new();
    let scanned = objects.scan(0);
    for entry in scanned.map_err(|e| Error::system("can't list backing objects", e))? {
        let Ok((object, _)) = entry else { continue };
        epoch = epoch.max(object.oid.epoch());
        if !seen.insert(object) {
            continue;
        }
        let label = match objects.read_label(object) {
            Ok(Some(label)) => label,
            Ok(None) => {
                report
                    .problems
                    .push(format!("backing object {object} has no label"));
                continue;
            }
            // A node without its label file: it was being made or removed.
            Err(Errno::NOENT) => continue,
            Err(e) => {
                report
                    .problems
                    .push(format!("backing object {object}: {e}"));
                continue;
            }
        };
        // A label file without its node likewise.
        let Ok(attr) = objects.attr(object) else {
            continue;
        };
        survivors.push(Survivor {
            object,
            label,
            ino: attr.ino,
        });
    }
    let batch = name_all(survivors, me, epoch, report);
    report.rebuilt = batch.len();
    let tables = Cached::new(Journaled::open(&meta)?);
    for part in batch.chunks(4096) {
        tables.apply(part)?;
    }
    recover::begin(&tables, epoch.max(1))?;
    Ok(())
}

/// Finds the path of every survivor through the chain of its parents.
struct Naming<'a> {
    survivors: &'a [Survivor],
    dirs: HashMap<ObjectId, usize>,
    moved: HashMap<&'a TreePath, usize>,
    paths: HashMap<usize, Option<TreePath>>,
}

impl Naming<'_> {
    fn path(&mut self, index: usize) -> Option<TreePath> {
        if let Some(known) = self.paths.get(&index) {
            return known.clone();
        }
        // Whoever comes back here while it is being worked out is his own ancestor.
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

fn name_all(
    mut survivors: Vec<Survivor>,
    me: BridgeId,
    epoch: u32,
    report: &mut Report,
) -> Vec<Change> {
    // Of two that claim one path the younger wins, and it comes first here.
    survivors.sort_by_key(|s| {
        let oid = s.object.oid;
        std::cmp::Reverse((oid.epoch(), oid.seq(), s.object.link))
    });
    let mut naming = Naming {
        survivors: &survivors,
        dirs: HashMap::new(),
        moved: HashMap::new(),
        paths: HashMap::new(),
    };
    for (i, s) in survivors.iter().enumerate() {
        if s.label.kind == Kind::Dir {
            naming.dirs.insert(s.object.oid, i);
        }
        if let (Kind::Moved, Some(origin)) = (s.label.kind, &s.label.origin) {
            naming.moved.insert(origin, i);
        }
    }
    let mut taken = HashSet::new();
    let mut batch = Vec::new();
    for (i, survivor) in survivors.iter().enumerate() {
        let label = &survivor.label;
        let mut path = naming.path(i).unwrap_or_else(|| {
            report.problems.push(format!(
                "{}: its directory is lost; it is now in the root",
                label.name.escape_ascii()
            ));
            lost(survivor.object)
        });
        let marker = matches!(label.kind, Kind::Moved | Kind::Whiteout);
        if !taken.insert(path.clone()) {
            if marker {
                continue;
            }
            report
                .problems
                .push(format!("{path}: two objects have this name"));
            path = path.parent().join(
                format!(
                    "conflict-{}.{:x}",
                    survivor.object.oid, survivor.object.link
                )
                .as_bytes(),
            );
            taken.insert(path.clone());
        }
        batch.push(Change::Put {
            path,
            record: record(label, survivor.object, survivor.ino, me, epoch, i as u32),
        });
    }
    batch
}

/// The record that a labelled object must have had, in a version of its own.
pub(super) fn record(
    label: &Label,
    object: ObjectName,
    ino: u64,
    owner: BridgeId,
    epoch: u32,
    count: u32,
) -> Record {
    let marker = matches!(label.kind, Kind::Moved | Kind::Whiteout);
    Record {
        version: version(epoch, count, owner),
        kind: label.kind,
        object,
        owner,
        ino: if marker { 0 } else { ino },
        origin: label.origin.clone(),
        hides: label.hides.clone(),
        token: Token::default(),
        drained: None,
    }
}

/// Where something goes whose own place is lost or taken.
pub(super) fn lost(object: ObjectName) -> TreePath {
    TreePath::root().join(format!("lost-{object}").as_bytes())
}
