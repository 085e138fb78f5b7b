//! Objects that only carry a label are made some time after their records: the tables tell what they do, most are gone before,
//! and to make a file for each would be the most of what a removal costs.

use super::{Objects, Shape};
use crate::label;
use forebay_core::facts::Label;
use forebay_core::record::ObjectName;
use forebay_core::storage::Unlabelled;
use forebay_sys::{self as sys, Sys};
use forebay_types::Backing;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::os::fd::AsFd;

/// Those that have no file yet. A record names each, and a mark in the tables tells the next start to make it.
#[derive(Default)]
pub(super) struct Markers(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    new: HashSet<ObjectName>,
    due: HashSet<ObjectName>,
}

impl Waiting {
    fn has(&self, object: ObjectName) -> bool {
        self.new.contains(&object) || self.due.contains(&object)
    }

    fn forget(&mut self, object: ObjectName) -> bool {
        self.new.remove(&object) || self.due.remove(&object)
    }
}

impl Objects {
    /// A name for an object that only carries its label. There is nothing of it on the disk.
    pub fn new_marker(&self) -> ObjectName {
        let oid = self.next_id(Shape::File as u64);
        let object = ObjectName { oid, link: 0 };
        // What is not there need not be looked for.
        self.unsettle(object);
        object
    }

    /// A record names this new object. True if no other one has waited.
    pub fn label_later(&self, object: ObjectName) -> bool {
        let mut waiting = self.markers.0.lock();
        let is_first = waiting.new.is_empty() && waiting.due.is_empty();
        waiting.new.insert(object);
        is_first
    }

    /// Is the object still to be made?
    pub fn waits_for_label(&self, object: ObjectName) -> bool {
        self.markers.0.lock().has(object)
    }

    /// Nothing is to be made of this object here any more. True if it was still to be made.
    pub fn forget_marker(&self, object: ObjectName) -> bool {
        self.markers.0.lock().forget(object)
    }

    /// Are objects still to be made?
    pub fn unlabelled(&self) -> Unlabelled {
        let waiting = self.markers.0.lock();
        match (waiting.due.is_empty(), waiting.new.is_empty()) {
            (false, _) => Unlabelled::Due,
            (true, false) => Unlabelled::New,
            (true, true) => Unlabelled::None,
        }
    }

    /// Some of those that are due. If none is, all of them become so.
    pub fn due_markers(&self, most: usize) -> Vec<ObjectName> {
        let mut waiting = self.markers.0.lock();
        if waiting.due.is_empty() {
            waiting.due = std::mem::take(&mut waiting.new);
        }
        waiting.due.iter().take(most).copied().collect()
    }

    /// It could not be made: it waits as those do that come now.
    pub fn put_off_marker(&self, object: ObjectName) {
        let mut waiting = self.markers.0.lock();
        if waiting.due.remove(&object) {
            waiting.new.insert(object);
        }
    }

    /// Makes an object that only carries its label, or replaces its label.
    ///
    /// # Errors
    /// Those of the file system. It is as it was, or has no label.
    pub fn make_marker(&self, object: ObjectName, label: &Label) -> Sys<()> {
        // Whoever removes it meanwhile waits, and finds the file.
        let mut waiting = self.markers.0.lock();
        let folder = self.folder(object, true)?;
        let name = Backing::name(object, false);
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_NOFOLLOW;
        let fd = sys::open(folder.as_fd(), &name, flags, 0o600)?;
        self.put_label(fd.as_fd(), object, &label::encode(label))?;
        waiting.forget(object);
        Ok(())
    }
}
