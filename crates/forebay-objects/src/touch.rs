//! Times of directories: programs see a change at once, the disk a little later.

use super::{Name, Objects};
use forebay_core::facts::Timestamp;
use forebay_core::record::ObjectName;
use forebay_sys as sys;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

impl Objects {
    /// The directory's entries have changed now. Written to disk a little later.
    pub fn touch(&self, object: ObjectName) {
        let mut touched = self.touched.lock();
        touched.insert(object, sys::now_coarse());
        self.touched_count.store(touched.len(), Ordering::Relaxed);
    }

    /// Are there times that are not on disk?
    pub fn has_touched(&self) -> bool {
        self.touched_count.load(Ordering::Relaxed) > 0
    }

    /// Writes the times of one directory, if they are not on disk.
    pub fn flush_touch(&self, object: ObjectName) {
        if !self.has_touched() {
            return;
        }
        // Held until it is written: whoever opens the directory may set its times a moment later.
        let mut touched = self.touched.lock();
        if let Some(at) = touched.remove(&object) {
            self.write_touch(object, at);
        }
        self.touched_count.store(touched.len(), Ordering::Relaxed);
    }

    /// Writes the times of all directories that wait for it.
    pub fn flush_touches(&self) {
        let mut touched = self.touched.lock();
        for (object, at) in touched.drain() {
            self.write_touch(object, at);
        }
        self.touched_count.store(0, Ordering::Relaxed);
    }

    fn write_touch(&self, object: ObjectName, at: Timestamp) {
        // Gone meanwhile, or not ours to change: then its time does not matter.
        if let Ok(folder) = self.folder(object, false) {
            let name = Name::new(object, false);
            // The clock that we read is coarser than the one that the file system may have used.
            if sys::stat(folder.as_fd(), &name).is_ok_and(|now| now.mtime < at) {
                let _ = sys::set_times(folder.as_fd(), &name, None, Some(at));
            }
        }
    }
}
