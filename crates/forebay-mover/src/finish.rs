//! The end of a drain: attributes and durability of directories, the list of what is left, and the release of
//! the buffered copies.

use crate::contents::stamp;
use crate::ground::{Ground, Halt, commit, forget};
use crate::pass::Pass;
use crate::pfs::{During, Trouble, Work};
use crate::{inventory, processes};
use forebay_admin::drain::Reason;
use forebay_core::drain::{Picture, Update};
use forebay_core::facts::Attr;
use forebay_core::path::TreePath;
use forebay_core::record::{Kind, Record};
use forebay_sys::{self as sys, Errno, Openers};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

impl<G: Ground + ?Sized> Pass<'_, G> {
    /// Gives the directories made in the buffer their attributes, children before parents, because every
    /// entry that comes changes the times of its directory.
    pub(crate) fn finish_dirs(&self) -> Result<(), Halt> {
        let picture = self.picture()?;
        for (path, record) in picture.born_dirs().rev() {
            if record.drained.is_none() || !picture.is_settled(&path.parent()) {
                continue;
            }
            let objects = self.ground.objects();
            objects.flush_touch(record.object);
            let Ok(attr) = objects.attr(record.object) else {
                continue;
            };
            if record.drained == Some(stamp(&attr)) && !self.has_changed(path) {
                continue;
            }
            self.points.pass()?;
            if let Err(trouble) = self.dress_dir(path, record, &attr) {
                self.leave(path, 0, trouble);
                continue;
            }
            self.counters.dirs.fetch_add(1, Ordering::Relaxed);
            self.points.pass()?;
            self.ground.exclusively(&mut |ns| {
                if ns.tables().get(path)?.as_ref() != Some(record) {
                    return Ok(());
                }
                let after = Record {
                    drained: Some(stamp(&attr)),
                    ..record.clone()
                };
                let update = Update {
                    path: path.clone(),
                    before: record.clone(),
                    after: Some(after),
                };
                commit(ns, vec![update], Vec::new())
            })?;
        }
        Ok(())
    }

    fn dress_dir(&self, path: &TreePath, record: &Record, attr: &Attr) -> Work<()> {
        let source = self
            .ground
            .objects()
            .open_object(record.object, libc::O_RDONLY | libc::O_DIRECTORY)
            .during("open in the buffer")?;
        let target = self
            .ground
            .lower()
            .open(path, libc::O_RDONLY | libc::O_DIRECTORY)
            .during("open directory")?;
        self.dress(source.as_fd(), target.as_fd(), attr)
    }

    /// Puts the entries of all directories that were changed on disk.
    pub(crate) fn sync_dirs(&self) {
        for dir in self.take_unsynced() {
            let synced = self
                .ground
                .lower()
                .open(&dir, libc::O_RDONLY | libc::O_DIRECTORY)
                .and_then(|fd| sys::fsync(fd.as_fd()));
            match synced {
                // Gone meanwhile, or of a file system that does not sync directories.
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::INVAL) => {}
                // Its owner may write and search it, but not read it.
                Err(Errno::ACCESS) => self.sync_all(),
                Err(errno) => {
                    let operation = "fsync directory";
                    self.leave(&dir, 0, Trouble { operation, errno });
                }
            }
        }
    }

    fn sync_all(&self) {
        let lower = self.ground.lower();
        let synced = lower
            .open(&TreePath::root(), libc::O_RDONLY | libc::O_DIRECTORY)
            .and_then(|fd| sys::syncfs(fd.as_fd()));
        if let Err(errno) = synced {
            let operation = "syncfs";
            self.leave(&TreePath::root(), 0, Trouble { operation, errno });
        }
    }

    /// Looks once more at everything: what failed and is gone meanwhile is not left, and what has come
    /// meanwhile is.
    pub(crate) fn list_what_is_left(&self) -> Result<(), Halt> {
        let picture = self.picture()?;
        let objects = self.ground.objects();
        let dirty: BTreeSet<&TreePath> = picture
            .records()
            .iter()
            .filter(|(path, record)| inventory::is_dirty(objects, path, record))
            .map(|(path, _)| path)
            .collect();
        self.counters.keep_left(|path| dirty.contains(path));
        let reason = match self.is_stopping() {
            true => Reason::Stopped,
            false => Reason::Changing,
        };
        for path in dirty {
            if !self.counters.is_left(path) {
                let record = &picture.records()[path];
                let bytes = objects.attr(record.object).map_or(0, |attr| attr.size);
                self.counters.leave(path, bytes, reason, "", String::new());
            }
        }
        Ok(())
    }

    /// Lets go of the buffered copies, if the PFS alone shows the same tree and nobody holds one of them.
    pub(crate) fn release(&self) -> Result<(), Halt> {
        if self.request.keep || self.is_stopping() || self.counters.has_left() {
            return Ok(());
        }
        self.points.pass()?;
        let mut released = false;
        self.ground.exclusively(&mut |ns| {
            // From here on whoever has decided what to open, and not opened it yet, decides anew.
            ns.forbid_late_grants();
            let picture = crate::ground::picture(ns)?;
            match self.why_keep(&picture) {
                Some(reason) => self.counters.keep_because(&reason),
                None => {
                    forget(ns, picture.records())?;
                    released = true;
                }
            }
            Ok(())
        })?;
        if released {
            self.counters.set_released();
        }
        Ok(())
    }

    fn why_keep(&self, picture: &Picture) -> Option<String> {
        let objects = self.ground.objects();
        let mut has_dirs = false;
        for (path, record) in picture.records() {
            if inventory::is_dirty(objects, path, record) {
                return Some(format!("{path} has been changed again"));
            }
            has_dirs |= record.kind == Kind::Dir;
            let is_open = match record.kind {
                Kind::File => self.is_open(record),
                // Nodes take no leases.
                Kind::Special => objects
                    .attr(record.object)
                    .is_ok_and(|attr| processes::anyone_has((attr.dev, attr.ino), Openers::Anyone)),
                _ => false,
            };
            if is_open {
                return Some(format!("{path} is still open"));
            }
        }
        let dirs = self.ground.instance().join("dir");
        (has_dirs && processes::anyone_is_in(&dirs))
            .then(|| "a process is in a directory that was made in the buffer".to_owned())
    }

    fn is_open(&self, record: &Record) -> bool {
        match self.open_source(record.object) {
            Ok(fd) => processes::is_in_use(&fd, Openers::Anyone),
            Err(_) => true,
        }
    }
}
