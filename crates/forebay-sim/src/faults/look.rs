//! What a simulated bridge has at hand while it decides.

use super::history::{Thing, ino};
use super::model::Tree;
use forebay_core::bridge::{Bridge, version};
use forebay_core::facts::{Attr, LowerEntry, LowerPage};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, ObjectId, ObjectName, Token};
use forebay_core::request::World;
use forebay_core::table::{TableError, Tables};
use std::cell::Cell;

/// As many names of a PFS directory are read at a time: few, so that listings have several pages.
const PAGE_ENTRIES: usize = 2;

/// [`World`] of one bridge for one step.
pub(super) struct Hand<'a> {
    pub(super) bridge: &'a Bridge,
    pub(super) tables: &'a dyn Tables,
    /// The PFS.
    pub(super) lower: &'a Tree,
    pub(super) epoch: u32,
    pub(super) versions: &'a Cell<u32>,
    pub(super) commits: u64,
}

/// Simulated disks give directories odd numbers.
pub(super) fn is_dir(oid: ObjectId) -> bool {
    oid.seq() % 2 == 1
}

fn type_bits(dir: bool) -> u32 {
    if dir { libc::S_IFDIR } else { libc::S_IFREG }
}

impl World for Hand<'_> {
    fn tables(&self) -> &dyn Tables {
        self.tables
    }

    fn is_single(&self) -> bool {
        self.bridge.membership().is_single()
    }

    fn is_at_hand(&self, path: &TreePath) -> bool {
        self.bridge.membership().is_home(path) && !self.bridge.is_held(path)
    }

    fn is_held_below(&self, dir: &TreePath) -> bool {
        self.bridge.is_held_below(dir)
    }

    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError> {
        self.bridge.path_of(object, self.tables)
    }

    fn moved(&self, _: &TreePath) -> Option<TreePath> {
        None
    }

    fn attr(&self, object: ObjectName) -> Result<Attr, i32> {
        let dir = is_dir(object.oid);
        Ok(Attr {
            mode: type_bits(dir) | 0o755,
            ino: ino(object.oid),
            ..Attr::default()
        })
    }

    fn link_text(&self, _: ObjectName) -> Result<Vec<u8>, i32> {
        Err(libc::EINVAL)
    }

    fn lower(&self, path: &TreePath) -> Option<Result<Option<Attr>, i32>> {
        let root = Thing { ino: 1, dir: true };
        let thing = if path.is_root() {
            Some(&root)
        } else {
            self.lower.get(path)
        };
        Some(Ok(thing.map(|t| Attr {
            mode: type_bits(t.dir) | 0o755,
            ino: t.ino,
            // Above the limit for staging: files of the PFS are opened in place.
            size: 1,
            ..Attr::default()
        })))
    }

    fn lower_link(&self, _: &TreePath) -> Option<Result<Vec<u8>, i32>> {
        Some(Err(libc::EINVAL))
    }

    fn is_plain(&self, object: ObjectName) -> bool {
        !is_dir(object.oid)
    }

    fn times_wait(&self) -> bool {
        false
    }

    fn next_version(&self) -> u64 {
        self.versions.set(self.versions.get() + 1);
        version(self.epoch, self.versions.get(), self.me())
    }

    fn me(&self) -> BridgeId {
        self.bridge.membership().me()
    }

    fn moment(&self) -> u64 {
        self.commits
    }

    fn pfs_changes(&self) -> u64 {
        0
    }

    fn was_carried_out(&self, token: Token) -> bool {
        self.bridge.was_carried_out(token)
    }

    fn is_undecided(&self, token: Token) -> bool {
        self.bridge.is_undecided(token)
    }
}

/// The names of a PFS directory after one.
pub(super) fn list(lower: &Tree, dir: &TreePath, after: Option<&[u8]>) -> LowerPage {
    let children = lower.iter().filter(|(p, _)| p.parent() == *dir);
    let children = children.filter(|(p, _)| after.is_none_or(|after| p.name() > after));
    let mut entries: Vec<_> = children
        .map(|(p, t)| LowerEntry {
            name: p.name().to_vec(),
            ino: t.ino,
            dtype: if t.dir { libc::DT_DIR } else { libc::DT_REG },
        })
        .collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let ends = entries.len() <= PAGE_ENTRIES;
    entries.truncate(PAGE_ENTRIES);
    LowerPage {
        entries,
        after: after.map(<[u8]>::to_vec),
        ends,
    }
}
