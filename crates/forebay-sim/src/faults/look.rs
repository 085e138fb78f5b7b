//! What a simulated bridge has at hand while it decides.

use super::disk::{Disk, is_dir};
use super::env::Env;
use super::history::ino;
use super::pfs::Pfs;
use forebay_core::bridge::{Bridge, Listed, Mutation, version};
use forebay_core::facts::{Attr, Through};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, ObjectId, ObjectName, Token};
use forebay_core::request::World;
use forebay_core::speakers::Speakers;
use forebay_core::table::{TableError, Tables};
use std::cell::{Cell, RefCell};

/// [`World`] of one bridge for one step.
pub(super) struct Hand<'a> {
    pub(super) bridge: &'a Bridge,
    pub(super) tables: &'a dyn Tables,
    /// The PFS.
    pub(super) pfs: &'a Pfs,
    /// What is known of objects of other bridges.
    pub(super) env: &'a Env,
    /// A look at it takes time.
    pub(super) is_slow: bool,
    /// Looks at the PFS, or at objects, fail with this errno.
    pub(super) pfs_fails: Option<i32>,
    pub(super) storage_fails: Option<i32>,
    /// Errnos with which that has happened.
    pub(super) met: RefCell<Vec<i32>>,
    pub(super) records_at_once: usize,
    pub(super) times_wait: bool,
    pub(super) disk: &'a Disk,
    pub(super) speakers: &'a Speakers,
    pub(super) pfs_changes: u64,
    pub(super) epoch: u32,
    pub(super) versions: &'a Cell<u32>,
    /// The number of the last object that was made.
    pub(super) objects: &'a Cell<u64>,
    pub(super) commits: u64,
    pub(super) mutation: Option<Mutation>,
}

impl Hand<'_> {
    /// A look is taken, which fails or not.
    fn look(&self, failure: Option<i32>) -> Result<(), i32> {
        let Some(errno) = failure else {
            return Ok(());
        };
        self.met.borrow_mut().push(errno);
        Err(errno)
    }
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

    fn absence(&self, path: &TreePath) -> u64 {
        self.bridge.absence(path)
    }
    fn absences(&self, of: &Listed) -> u64 {
        self.bridge.absences(of)
    }

    fn moved(&self, origin: &TreePath) -> Option<TreePath> {
        self.speakers.moved(origin)
    }

    fn attr(&self, object: ObjectName) -> Result<Attr, i32> {
        if object.oid.bridge() != self.me() {
            // The other bridge would be asked for it.
            let dir = is_dir(object.oid);
            let kind = if dir { libc::S_IFDIR } else { libc::S_IFREG };
            return Ok(Attr {
                mode: kind | 0o755,
                ino: self.env.identity(object.oid),
                ..Attr::default()
            });
        }
        self.look(self.storage_fails)?;
        self.disk.attr(object).ok_or(libc::ENOENT)
    }

    fn link_text(&self, object: ObjectName) -> Result<Vec<u8>, i32> {
        if object.oid.bridge() == self.me() && !self.disk.objects.contains_key(&object) {
            return Err(libc::ENOENT);
        }
        self.look(self.storage_fails)?;
        // Another bridge would be asked for the text of its own.
        let text = self.env.texts.get(&ino(object.oid));
        text.cloned().ok_or(libc::EINVAL)
    }

    fn lower(&self, path: &TreePath, _: Option<Through>) -> Option<Result<Option<Attr>, i32>> {
        let attr = || self.look(self.pfs_fails).map(|()| self.pfs.attr(path));
        (!self.is_slow).then(attr)
    }

    fn lower_link(&self, path: &TreePath, _: Option<Through>) -> Option<Result<Vec<u8>, i32>> {
        let text = || {
            self.look(self.pfs_fails)?;
            self.pfs.link_text(path, &self.env.texts)
        };
        (!self.is_slow).then(text)
    }

    fn is_plain(&self, object: ObjectName) -> bool {
        !is_dir(object.oid)
    }

    fn times_wait(&self) -> bool {
        self.times_wait
    }

    fn records_at_once(&self) -> usize {
        self.records_at_once
    }

    fn next_version(&self) -> u64 {
        self.versions.set(self.versions.get() + 1);
        version(self.epoch, self.versions.get(), self.me())
    }

    fn new_marker(&self) -> ObjectName {
        self.objects.set(self.objects.get() + 2);
        ObjectName {
            oid: ObjectId::new(self.me(), self.epoch, self.objects.get()),
            link: 0,
        }
    }

    fn me(&self) -> BridgeId {
        self.bridge.membership().me()
    }

    fn moment(&self) -> u64 {
        self.commits
    }

    fn pfs_changes(&self) -> u64 {
        self.pfs_changes
    }

    fn commits_in_parts(&self) -> bool {
        self.bridge.membership().is_single()
    }

    fn planted(&self) -> Option<Mutation> {
        self.mutation
    }

    fn was_carried_out(&self, token: Token) -> bool {
        self.bridge.was_carried_out(token)
    }

    fn is_undecided(&self, token: Token) -> bool {
        self.bridge.is_undecided(token)
    }
}
