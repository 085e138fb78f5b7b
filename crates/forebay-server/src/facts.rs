//! The state of the world for one request.
//!
//! Tables and backing objects are at hand; so is a local PFS. What may wait is
//! handed back as a need, obtained by [`crate::execute`] without a lock, and
//! remembered here for the next turn.

use crate::ServerHandle;
use crate::namespace::State;
use forebay_core::facts::{Attr, Facts, Fresh, LowerEntry, Need, NewObject, Outcome, Stop, errno};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, ObjectName, Record, Token};
use forebay_core::table::{TableError, Tables};
use forebay_objects::{self as objects, Made, Shape};
use forebay_sys::Errno;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// What one request has obtained so far.
#[derive(Default)]
pub struct Memo {
    /// Count of changes of the PFS by this bridge when the looks below were taken.
    lower_changes: Cell<u64>,
    attrs: RefCell<HashMap<TreePath, Option<Attr>>>,
    links: RefCell<HashMap<TreePath, Vec<u8>>>,
    lists: RefCell<HashMap<TreePath, Arc<Vec<LowerEntry>>>>,
    /// Of directories in the buffer. A request is judged by one look at each: its turns
    /// follow each other within microseconds, and a look is a system call.
    dirs: RefCell<Vec<(ObjectName, Attr)>>,
    fresh: RefCell<Vec<(NewObject, Made)>>,
}

impl Memo {
    /// Forgets what it saw of the PFS if the bridge itself has changed it since.
    pub fn refresh(&self, lower_changes: u64) {
        if self.lower_changes.replace(lower_changes) != lower_changes {
            self.attrs.borrow_mut().clear();
            self.links.borrow_mut().clear();
            self.lists.borrow_mut().clear();
        }
    }
    /// Has the bridge itself changed the PFS since the last look?
    pub fn is_stale(&self, lower_changes: u64) -> bool {
        self.lower_changes.get() != lower_changes
    }
    /// Remembers an `lstat`.
    pub fn put_attr(&self, path: TreePath, attr: Option<Attr>) {
        self.attrs.borrow_mut().insert(path, attr);
    }
    /// Remembers a link.
    pub fn put_link(&self, path: TreePath, text: Vec<u8>) {
        self.links.borrow_mut().insert(path, text);
    }
    /// Remembers a listing.
    pub fn put_list(&self, path: TreePath, list: Arc<Vec<LowerEntry>>) {
        self.lists.borrow_mut().insert(path, list);
    }
    /// The listing that this request used, if it used one.
    pub fn any_list(&self) -> Option<(TreePath, Arc<Vec<LowerEntry>>)> {
        let lists = self.lists.borrow();
        lists.iter().next().map(|(p, l)| (p.clone(), l.clone()))
    }
    /// Forgets all attributes.
    pub fn forget_attrs(&self) {
        self.dirs.borrow_mut().clear();
        self.attrs.borrow_mut().clear();
    }
    fn dir(&self, object: ObjectName) -> Option<Attr> {
        let dirs = self.dirs.borrow();
        dirs.iter()
            .find(|(dir, _)| *dir == object)
            .map(|&(_, attr)| attr)
    }
    fn put_dir(&self, object: ObjectName, attr: Attr) {
        self.dirs.borrow_mut().push((object, attr));
    }
    /// Remembers a new object.
    pub fn put_fresh(&self, spec: NewObject, made: Made) {
        self.fresh.borrow_mut().push((spec, made));
    }
    /// All new objects.
    pub fn take_fresh(&self) -> Vec<(NewObject, Made)> {
        self.fresh.take()
    }
    /// The descriptor that came with a new object.
    pub fn take_fd(&self, object: ObjectName) -> Option<std::os::fd::OwnedFd> {
        self.fresh
            .borrow_mut()
            .iter_mut()
            .find(|(_, made)| made.fresh.object == object)
            .and_then(|(_, made)| made.fd.take())
    }
}

/// [`Facts`] for one turn of one request, valid while a lock on the namespace is held.
pub struct RequestFacts<'a> {
    /// The bridge.
    pub server: &'a ServerHandle,
    /// What was obtained.
    pub memo: &'a Memo,
    /// What the lock protects.
    pub state: &'a State,
}

fn fault(e: TableError) -> Stop {
    Stop::Fault(e.to_string())
}

fn from_errno(e: Errno) -> Stop {
    Stop::Errno(e.raw_os_error())
}

impl RequestFacts<'_> {
    /// A record names the object, so it has to be there.
    fn missing(&self, object: ObjectName, e: Errno) -> Stop {
        match e {
            Errno::NOENT => Stop::Fault(format!("backing object {object:?} is gone")),
            other => from_errno(other),
        }
    }
}

impl Facts for RequestFacts<'_> {
    fn record(&self, path: &TreePath) -> Outcome<Option<Record>> {
        self.server.namespace.tables().get(path).map_err(fault)
    }

    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Outcome<Vec<(Vec<u8>, Record)>> {
        let tables = self.server.namespace.tables();
        tables.children(dir, after, limit).map_err(fault)
    }

    fn subtree(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, Record)>> {
        self.server.namespace.tables().subtree(dir).map_err(fault)
    }

    fn path_of(&self, object: ObjectName) -> Outcome<Option<TreePath>> {
        self.server
            .namespace
            .tables()
            .path_of(object)
            .map_err(fault)
    }

    fn moved(&self, origin: &TreePath) -> Outcome<Option<TreePath>> {
        Ok(self.state.moved(origin))
    }

    fn attr(&self, object: ObjectName) -> Outcome<Attr> {
        let is_dir = objects::shape(object) == Shape::Dir;
        if is_dir && let Some(attr) = self.memo.dir(object) {
            return Ok(attr);
        }
        let attr = self.server.objects.attr(object);
        let attr = attr.map_err(|e| self.missing(object, e))?;
        if is_dir {
            self.memo.put_dir(object, attr);
        }
        Ok(attr)
    }

    fn link_text(&self, object: ObjectName) -> Outcome<Vec<u8>> {
        let text = self.server.objects.link_text(object);
        text.map_err(|e| self.missing(object, e))
    }

    fn lower(&self, path: &TreePath) -> Outcome<Option<Attr>> {
        if let Some(attr) = self.memo.attrs.borrow().get(path) {
            return Ok(*attr);
        }
        if self.server.lower.may_wait() {
            return Err(Stop::Need(Need::Lower(path.clone())));
        }
        self.server.lower.attr(path).map_err(from_errno)
    }

    fn lower_link(&self, path: &TreePath) -> Outcome<Vec<u8>> {
        if let Some(text) = self.memo.links.borrow().get(path) {
            return Ok(text.clone());
        }
        if self.server.lower.may_wait() {
            return Err(Stop::Need(Need::LowerLink(path.clone())));
        }
        self.server.lower.link_text(path).map_err(from_errno)
    }

    fn lower_list(&self, path: &TreePath) -> Outcome<Arc<Vec<LowerEntry>>> {
        // Even a local directory can be large: never under the lock.
        match self.memo.lists.borrow().get(path) {
            Some(list) => Ok(list.clone()),
            None => Err(Stop::Need(Need::LowerList(path.clone()))),
        }
    }

    fn fresh(&self, spec: &NewObject) -> Outcome<Fresh> {
        let fresh = self.memo.fresh.borrow();
        match fresh.iter().find(|(made_for, _)| made_for == spec) {
            Some((_, made)) => Ok(made.fresh),
            None => Err(Stop::Need(Need::Object(Box::new(spec.clone())))),
        }
    }

    fn next_version(&self) -> u64 {
        self.server.namespace.next_version()
    }

    fn me(&self) -> BridgeId {
        self.server.me
    }

    fn was_carried_out(&self, token: Token) -> Outcome<bool> {
        if token == Token::default() {
            return errno(libc::EINVAL);
        }
        Ok(self.server.namespace.was_carried_out(token))
    }
}
