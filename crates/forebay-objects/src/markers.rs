//! The markers of removals that have no file yet ([`forebay_core::markers`]).

use super::{Objects, Shape};
use crate::label;
use forebay_core::facts::Label;
use forebay_core::markers::Unmade;
use forebay_core::record::ObjectName;
use forebay_sys::{self as sys, Errno, Sys};
use forebay_types::Backing;
use std::os::fd::AsFd;

impl Objects {
    /// A name for a marker. There is nothing of it on the disk.
    pub fn new_marker(&self) -> ObjectName {
        let oid = self.next_id(Shape::File as u64);
        let object = ObjectName { oid, link: 0 };
        // What is not there need not be looked for.
        self.unsettle(object);
        object
    }

    /// The marker is to be made later. To be called when nobody can see the record yet that names it, or before anybody is served. True if no other one waits.
    pub fn mark_later(&self, object: ObjectName) -> bool {
        self.markers.lock().wait(object)
    }

    /// Is the marker still to be made?
    pub fn is_unmade(&self, object: ObjectName) -> bool {
        self.markers.lock().has(object)
    }

    /// The marker is not to be made any more. True if it was still to be made.
    pub fn forget_marker(&self, object: ObjectName) -> bool {
        self.markers.lock().forget(object)
    }

    /// Are markers still to be made?
    pub fn unmade(&self) -> Unmade {
        self.markers.lock().unmade()
    }

    /// Some of those that are due. If none is, all of them become so.
    pub fn due_markers(&self, most: usize) -> Vec<ObjectName> {
        self.markers.lock().due(most)
    }

    /// It could not be made: it waits as those do that come now.
    pub fn put_off_marker(&self, object: ObjectName) {
        self.markers.lock().put_off(object);
    }

    /// All of them wait as those do that come now.
    pub fn put_off_markers(&self) {
        self.markers.lock().put_off_all();
    }

    /// Makes a marker, if it is not there, or replaces its label.
    ///
    /// # Errors
    /// Those of the file system. All is as it was, or it has a file and waits no more.
    pub fn make_marker(&self, object: ObjectName, label: &Label) -> Sys<()> {
        // Whoever removes it meanwhile waits, and finds the file.
        let mut waiting = self.markers.lock();
        let folder = self.folder(object, true)?;
        let name = Backing::name(object, false);
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let labelled = match sys::open(folder.as_fd(), &name, flags, 0o600) {
            Ok(fd) => {
                let labelled = self.put_label(fd.as_fd(), object, &label::encode(label));
                if labelled.is_err() && self.remove(object).is_ok() {
                    return labelled;
                }
                labelled
            }
            Err(Errno::EXIST) => self.write_label(object, label),
            Err(e) => return Err(e),
        };
        // It has a file, also if that has no label: the mark stays.
        waiting.forget(object);
        labelled
    }
}
