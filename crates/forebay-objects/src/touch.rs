//! Modification times of backing directories. Programs see a new time at once; it is written to disk later.

use super::Objects;
use forebay_core::facts::Timestamp;
use forebay_core::record::ObjectName;
use forebay_sys as sys;
use forebay_types::Backing;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

impl Objects {
    /// Notes that the directory's entries have just changed. The time is written to disk later.
    pub fn touch(&self, object: ObjectName) {
        let mut touched = self.touched.lock();
        touched.insert(object, sys::now_coarse());
        self.touched_count.store(touched.len(), Ordering::Relaxed);
    }

    /// True if there are times that are not on disk yet.
    pub fn has_touched(&self) -> bool {
        self.touched_count.load(Ordering::Relaxed) > 0
    }

    /// Writes the times of one directory, if they are not on disk.
    pub fn flush_touch(&self, object: ObjectName) {
        if !self.has_touched() {
            return;
        }
        // The lock is held until the time is written. A program that opens the directory may set its times a moment
        // later, and they must not be overwritten.
        let mut touched = self.touched.lock();
        if let Some(at) = touched.remove(&object) {
            self.write_touch(object, at);
        }
        self.touched_count.store(touched.len(), Ordering::Relaxed);
    }

    /// Writes all times to disk that are not there yet.
    pub fn flush_touches(&self) {
        let mut touched = self.touched.lock();
        for (object, at) in touched.drain() {
            self.write_touch(object, at);
        }
        self.touched_count.store(0, Ordering::Relaxed);
    }

    fn write_touch(&self, object: ObjectName, at: Timestamp) {
        // A failure is ignored: the directory is gone, or belongs to another user.
        if let Ok(folder) = self.folder(object, false) {
            let name = Backing::name(object, false);
            // The file system may have stamped it by a finer clock; a later time must stay.
            if sys::stat(folder.as_fd(), &name).is_ok_and(|now| now.mtime < at) {
                let _ = sys::set_times(folder.as_fd(), &name, None, Some(at));
            }
        }
    }
}
