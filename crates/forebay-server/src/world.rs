//! What is at hand while a request is decided: tables, backing objects, and a PFS that does not wait.

use crate::ServerHandle;
use crate::limits::{DESCRIPTORS_LOOKED_AT, INLINE_REMOVAL};
use crate::namespace::State;
use forebay_core::facts::{Attr, Cred, Facts, Through};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, ObjectName, Token};
use forebay_core::request::{Known, Look, World};
use forebay_core::table::{TableError, Tables};
use forebay_objects::{Shape, shape};
use forebay_sys::{self as sys, Errno};
use std::os::fd::AsFd;
use std::sync::Arc;

/// Who asks.
pub(crate) struct Asker {
    /// The process.
    pub pid: u32,
    /// Its rights.
    pub cred: Arc<Cred>,
}

/// [`World`] for one step.
pub(crate) struct Hand<'a> {
    /// The bridge.
    pub server: &'a ServerHandle,
    /// What the lock on the namespace protects, while it is held. Without it facts may be of different moments.
    pub state: Option<&'a State>,
    /// Who asks; `None`: the bridge itself.
    pub asker: Option<&'a Asker>,
    /// It may take long.
    pub is_long: bool,
}

impl ServerHandle {
    /// A bridge of root serves all users, and sees more of the PFS than each of them may.
    pub(crate) fn serves_several_users(&self) -> bool {
        self.uid() == 0
    }

    /// Calls `f` with the facts at hand, and with what the read lock on the namespace protects: that is held meanwhile, so the
    /// facts are all of one moment.
    pub(crate) fn with_look<T>(&self, f: impl FnOnce(&dyn Facts, &State) -> T) -> T {
        let guard = self.namespace.read();
        let hand = Hand {
            server: self,
            state: Some(&guard),
            asker: None,
            is_long: true,
        };
        let known = Known::default();
        f(&Look::new(&hand, &known), &guard)
    }
}

impl Hand<'_> {
    fn cred(&self) -> Option<&Cred> {
        self.asker.map(|asker| &*asker.cred)
    }
}

impl World for Hand<'_> {
    fn tables(&self) -> &dyn Tables {
        self.server.namespace.tables()
    }

    fn is_single(&self) -> bool {
        true
    }

    fn is_at_hand(&self, _: &TreePath) -> bool {
        true
    }

    fn is_held_below(&self, _: &TreePath) -> bool {
        false
    }

    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError> {
        self.server.namespace.tables().path_of(object)
    }

    fn moved(&self, origin: &TreePath) -> Option<TreePath> {
        match self.state {
            Some(state) => state.moved(origin),
            None => self.server.namespace.read().moved(origin),
        }
    }

    fn attr(&self, object: ObjectName) -> Result<Attr, i32> {
        let objects = &self.server.objects;
        let look = || {
            let attr = objects.attr(object)?;
            let lists = self.server.lower.lists();
            let Some(cred) = self.cred() else {
                return Ok(attr);
            };
            match lists.known(attr, cred) {
                Some(known) => Ok(known),
                None => {
                    let opened = objects.open_to_look(object)?;
                    lists.read(opened.as_fd(), attr, cred)
                }
            }
        };
        look().map_err(|e: Errno| e.raw_os_error())
    }

    fn link_text(&self, object: ObjectName) -> Result<Vec<u8>, i32> {
        self.server
            .objects
            .link_text(object)
            .map_err(|e| e.raw_os_error())
    }

    fn has_strays(&self, dir: ObjectName) -> Result<bool, i32> {
        self.server
            .objects
            .has_entries(dir)
            .map_err(|e| e.raw_os_error())
    }

    fn is_asked_for_several_users(&self) -> bool {
        self.asker.is_some() && self.server.serves_several_users()
    }

    fn keeps_numbers(&self) -> bool {
        self.server.settings.keeps_numbers
    }

    fn lower(
        &self,
        path: &TreePath,
        through: Option<Through>,
    ) -> Option<Result<Option<Attr>, i32>> {
        let lower = &self.server.lower;
        let look = || {
            let found = lower.attr_in(path, through, self.cred());
            found.map_err(|e| e.raw_os_error())
        };
        (!lower.may_wait()).then(look)
    }

    fn lower_link(
        &self,
        path: &TreePath,
        through: Option<Through>,
    ) -> Option<Result<Vec<u8>, i32>> {
        let lower = &self.server.lower;
        let look = || lower.link_text(path, through).map_err(|e| e.raw_os_error());
        (!lower.may_wait()).then(look)
    }

    fn above_root(&self) -> Result<Vec<Attr>, i32> {
        let above = self.server.lower.above_root(self.cred());
        above.map_err(|e| e.raw_os_error())
    }

    fn has_open(&self, what: &Attr) -> bool {
        self.asker.is_some_and(|Asker { pid, cred }| {
            sys::has_open(*pid, cred.uid, what.inode(), DESCRIPTORS_LOOKED_AT)
        })
    }

    fn is_plain(&self, object: ObjectName) -> bool {
        shape(object) == Shape::File
    }

    fn times_wait(&self) -> bool {
        self.server.lower.times().any_waits() || self.server.objects.has_touched()
    }

    fn records_at_once(&self) -> usize {
        if self.is_long {
            usize::MAX
        } else {
            INLINE_REMOVAL
        }
    }

    fn commits_in_parts(&self) -> bool {
        true
    }

    fn next_version(&self) -> u64 {
        self.server.namespace.next_version()
    }

    fn new_marker(&self) -> ObjectName {
        self.server.objects.new_marker()
    }

    fn me(&self) -> BridgeId {
        self.server.me
    }

    fn moment(&self) -> u64 {
        self.server.namespace.moment()
    }

    fn pfs_changes(&self) -> u64 {
        self.server.namespace.lower_changes()
    }

    fn was_carried_out(&self, token: Token) -> bool {
        self.server.namespace.was_carried_out(token)
    }

    fn is_undecided(&self, _: Token) -> bool {
        // A bridge that is alone decides at once.
        false
    }
}
