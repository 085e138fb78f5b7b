//! What a bridge knows while it decides one request: its own tables, and what it
//! has fetched from other bridges so far.

use super::history::{Thing, ino};
use super::model::Tree;
use forebay_core::bridge::{Bridge, RangeRead, ReadSet, version};
use forebay_core::facts::{
    Attr, Facts, Fresh, LowerEntry, Need, NewKind, NewObject, Outcome, Stop, errno,
};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, ObjectId, ObjectName, Record, Token};
use forebay_core::table::{TableError, Tables};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was fetched for one request since it was last decided.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) records: BTreeMap<TreePath, Option<Record>>,
    pub(super) ranges: BTreeMap<TreePath, Range>,
}

/// What other bridges hold below a directory.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) entries: Vec<(TreePath, Record)>,
    pub(super) seen: Vec<(BridgeId, u64)>,
}

/// [`Facts`] for one decision. Notes all that the decision relies on.
pub(super) struct Look<'a> {
    pub(super) bridge: &'a Bridge,
    pub(super) tables: &'a dyn Tables,
    pub(super) view: &'a View,
    /// The PFS.
    pub(super) lower: &'a Tree,
    /// Objects made for this request.
    pub(super) fresh: &'a [(NewObject, Fresh)],
    pub(super) epoch: u32,
    pub(super) versions: &'a Cell<u32>,
    pub(super) reads: RefCell<ReadSet>,
    /// Something was listed.
    pub(super) listed: Cell<bool>,
}

/// Simulated disks give directories odd numbers.
pub(super) fn is_dir(oid: ObjectId) -> bool {
    oid.seq() % 2 == 1
}

fn type_bits(dir: bool) -> u32 {
    if dir { libc::S_IFDIR } else { libc::S_IFREG }
}

fn fault(e: TableError) -> Stop {
    Stop::Fault(e.to_string())
}

impl Look<'_> {
    /// Does an answer that changes nothing rest on several records? A record at the path says all, at
    /// the moment at which its home is asked. That there is none says little: the PFS may have something
    /// there, if the directory is one of the PFS. With one bridge all is read at one moment.
    pub(super) fn rests_on_several(&self) -> bool {
        let reads = self.reads.borrow();
        let mut named = reads.records.iter().filter(|(p, _)| !p.is_root());
        let vacant = named.clone().count() > 1 && named.any(|(_, seen)| seen.version.is_none());
        (vacant || self.listed.get()) && !self.bridge.membership().is_single()
    }

    /// All records below `dir`, of this bridge and the others.
    fn below(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, Record)>> {
        self.listed.set(true);
        let mut all = self.tables.subtree(dir).map_err(fault)?;
        if !self.bridge.membership().is_single() {
            let others = self.view.ranges.get(dir);
            let Some(others) = others.filter(|_| !self.bridge.is_held_below(dir)) else {
                return Err(Stop::Need(Need::Range(dir.clone())));
            };
            all.extend(others.entries.iter().cloned());
            all.sort_by(|a, b| a.0.cmp(&b.0));
        }
        Ok(all)
    }
}

impl Facts for Look<'_> {
    fn record(&self, path: &TreePath) -> Outcome<Option<Record>> {
        let here = self.bridge.membership().is_home(path) && !self.bridge.is_held(path);
        let record = if here {
            self.tables.get(path).map_err(fault)?
        } else {
            match self.view.records.get(path) {
                Some(record) => record.clone(),
                None => return Err(Stop::Need(Need::Record(path.clone()))),
            }
        };
        self.reads.borrow_mut().saw(path, record.as_ref());
        Ok(record)
    }

    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Outcome<Vec<(Vec<u8>, Record)>> {
        let children = self.below(dir)?.into_iter().filter_map(|(path, record)| {
            let (parent, name) = path.split()?;
            let fits = parent == *dir && after.is_none_or(|a| name > a);
            self.reads.borrow_mut().saw(&path, Some(&record));
            fits.then(|| (name.to_vec(), record))
        });
        Ok(children.take(limit).collect())
    }

    fn subtree(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, Record)>> {
        let all = self.below(dir)?;
        let mut reads = self.reads.borrow_mut();
        for (path, record) in &all {
            reads.saw(path, Some(record));
        }
        let seen = self.view.ranges.get(dir).map(|r| r.seen.clone());
        reads.ranges.push(RangeRead {
            dir: dir.clone(),
            seen: seen.unwrap_or_default(),
        });
        Ok(all)
    }

    fn path_of(&self, object: ObjectName) -> Outcome<Option<TreePath>> {
        self.bridge.path_of(object, self.tables).map_err(fault)
    }

    fn moved(&self, _: &TreePath) -> Outcome<Option<TreePath>> {
        Ok(None)
    }

    fn attr(&self, object: ObjectName) -> Outcome<Attr> {
        let dir = is_dir(object.oid);
        Ok(Attr {
            mode: type_bits(dir) | 0o755,
            ino: ino(object.oid),
            ..Attr::default()
        })
    }

    fn link_text(&self, _: ObjectName) -> Outcome<Vec<u8>> {
        errno(libc::EINVAL)
    }

    fn lower(&self, path: &TreePath) -> Outcome<Option<Attr>> {
        let root = Thing { ino: 1, dir: true };
        let thing = if path.is_root() {
            Some(&root)
        } else {
            self.lower.get(path)
        };
        Ok(thing.map(|t| Attr {
            mode: type_bits(t.dir) | 0o755,
            ino: t.ino,
            // Above the limit for staging: files of the PFS are opened in place.
            size: 1,
            ..Attr::default()
        }))
    }

    fn lower_link(&self, _: &TreePath) -> Outcome<Vec<u8>> {
        errno(libc::EINVAL)
    }

    fn lower_list(&self, path: &TreePath) -> Outcome<Arc<Vec<LowerEntry>>> {
        let children = self.lower.iter().filter(|(p, _)| p.parent() == *path);
        let entry = |(p, t): (&TreePath, &Thing)| LowerEntry {
            name: p.name().to_vec(),
            ino: t.ino,
            dtype: if t.dir { libc::DT_DIR } else { libc::DT_REG },
        };
        Ok(Arc::new(children.map(entry).collect()))
    }

    fn fresh(&self, spec: &NewObject) -> Outcome<Fresh> {
        if let NewKind::LinkTo(object) = spec.what
            && object.oid.bridge() != self.me()
        {
            // Only the bridge that keeps the object can give it another name.
            return errno(libc::EXDEV);
        }
        let made = self.fresh.iter().find(|(of, _)| of == spec);
        match made {
            Some((_, fresh)) => Ok(*fresh),
            None => Err(Stop::Need(Need::Object(Box::new(spec.clone())))),
        }
    }

    fn next_version(&self) -> u64 {
        self.versions.set(self.versions.get() + 1);
        version(self.epoch, self.versions.get(), self.me())
    }

    fn me(&self) -> BridgeId {
        self.bridge.membership().me()
    }

    fn was_carried_out(&self, token: Token) -> Outcome<bool> {
        Ok(self.bridge.was_carried_out(token))
    }
}
