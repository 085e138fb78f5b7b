//! What happens to objects at sync points: what the names rely on gets durable before, and removed files go after.

use super::{Objects, Shape, shape};
use forebay_core::pfs_kind::SYNCED_TOGETHER_FROM;
use forebay_core::record::ObjectName;
use forebay_core::spares::Slot;
use forebay_core::storage::{Removal, StorageOrder, is_short_of_space};
use forebay_sys::{self as sys, Errno, Sys};
use forebay_types::Backing;
use parking_lot::Mutex;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// What became of a removed object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retired {
    /// It is unlinked.
    Gone,
    /// It was a marker that was never made.
    Unmade,
    /// It is kept as a spare file. Its doom mark stays.
    Kept,
    /// It is unlinked after the next sync point; see [`Objects::removed_so_far`].
    Waits,
    /// The same should happen at once: somebody has it open, and would see that it is still there. The caller either
    /// reaches a sync point and unlinks it, or says [`Objects::retire_later`].
    InUse,
}

/// What waits for a sync point.
pub(super) struct Unsettled {
    storage: StorageOrder,
    /// The first sequence number that the last sync point can't know.
    begun: AtomicU64,
    removed: Mutex<Vec<ObjectName>>,
    /// One at a time: of two names of a file that go at once, each would take the other for one that stays.
    retiring: Mutex<()>,
    /// Objects whose contents come from the bridge, and which a program may have relied on before.
    written: Mutex<Vec<ObjectName>>,
}

/// Removed objects that may go as soon as the next sync point is reached.
#[derive(Debug, Default)]
pub struct Removed {
    objects: Vec<(ObjectName, Option<Slot>)>,
}

impl Unsettled {
    pub(super) fn new(instance: BorrowedFd<'_>) -> Sys<Self> {
        Ok(Unsettled {
            storage: StorageOrder::on(sys::fs_type(instance)?),
            begun: AtomicU64::new(0),
            removed: Mutex::default(),
            retiring: Mutex::default(),
            written: Mutex::default(),
        })
    }

    /// May the last sync point know this number, so that its file has to stay as it is until the next one?
    pub(super) fn may_know(&self, seq: u64) -> bool {
        let begun = self.begun.load(Ordering::Acquire);
        self.storage.may_know(seq, begun)
    }

    pub(super) fn wrote(&self, object: ObjectName) {
        // Elsewhere a sync point needs no list.
        if self.storage == StorageOrder::Ordered {
            self.written.lock().push(object);
        }
    }
}

impl Objects {
    /// What the storage makes of a power loss.
    pub fn storage(&self) -> StorageOrder {
        self.unsettled.storage
    }

    /// Takes a removed object out of use that the last sync point may know.
    pub(super) fn retire_known(&self, object: ObjectName) -> Sys<Retired> {
        let _one = self.unsettled.retiring.lock();
        let links_by_name = || self.attr(object).map_or(1, |attr| attr.nlink);
        let removal = match shape(object) {
            Shape::Dir => Removal::of(1, || false),
            Shape::Node => Removal::of(links_by_name(), || false),
            Shape::File => match self.open_object(object, libc::O_RDONLY | libc::O_NONBLOCK) {
                Ok(fd) => {
                    let links = sys::stat(fd.as_fd(), b"").map_or(1, |attr| attr.nlink);
                    Removal::of(links, || !sys::was_opened_once(fd))
                }
                Err(Errno::NOENT) => Removal::of(1, || false),
                // Nobody can tell.
                Err(_) => Removal::of(links_by_name(), || true),
            },
        };
        match removal {
            Removal::AtOnce => self.remove(object).map(|()| Retired::Gone),
            Removal::Now => Ok(Retired::InUse),
            Removal::Later => {
                self.retire_later(object);
                Ok(Retired::Waits)
            }
        }
    }

    /// Gives a file a name again that it had: `other` is one that it has.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn link_again(&self, other: ObjectName, object: ObjectName) -> Sys<()> {
        let folder = self.folder(object, false)?;
        let dir = folder.as_fd();
        if shape(object) == Shape::Node {
            sys::link(
                dir,
                &Backing::name(other, true),
                dir,
                &Backing::name(object, true),
            )?;
        }
        sys::link(
            dir,
            &Backing::name(other, false),
            dir,
            &Backing::name(object, false),
        )
    }

    /// A removed object is to be unlinked after the next sync point.
    pub fn retire_later(&self, object: ObjectName) {
        self.unsettled.removed.lock().push(object);
    }

    /// A sync point begins: objects that are made from now on belong to the next one.
    pub fn sync_point_begins(&self) {
        let next = self.next_seq();
        self.unsettled.begun.store(next, Ordering::Release);
    }

    /// Writes out the contents that come from the bridge, so that the next sync point finds them on the disk.
    ///
    /// # Errors
    /// Those of the file system. The next call tries again.
    pub fn write_out_own(&self) -> Sys<()> {
        let mut objects = std::mem::take(&mut *self.unsettled.written.lock());
        let written = self.write_out_all(&mut objects);
        self.unsettled.written.lock().append(&mut objects);
        written
    }

    /// Writes these out, and leaves those of which that has failed.
    fn write_out_all(&self, objects: &mut Vec<ObjectName>) -> Sys<()> {
        let mut is_whole = objects.len() >= SYNCED_TOGETHER_FROM;
        while let Some(&object) = objects.last().filter(|_| !is_whole) {
            match self.write_out(object) {
                // Its owner may not read it. A permission for the moment would give it another change time, and by that
                // it would count as changed since it was copied to the PFS.
                Err(Errno::ACCESS) => is_whole = true,
                written => {
                    written?;
                    objects.pop();
                }
            }
        }
        if is_whole {
            // The names are written next, on the same file system, which empties the cache of the disk.
            sys::syncfs(self.spares.register_file())?;
            objects.clear();
        }
        Ok(())
    }

    /// The next sync point writes the contents of these objects out as well.
    pub fn distrust_contents(&self, objects: impl IntoIterator<Item = ObjectName>) {
        objects.into_iter().for_each(|o| self.unsettled.wrote(o));
    }

    /// Writes the contents of an object out. It is no error if the object is gone. EACCES: its owner may not read it.
    fn write_out(&self, object: ObjectName) -> Sys<()> {
        match self.open_as_it_is(object) {
            Ok(file) => sys::write_out(file.as_fd()),
            Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Makes everything durable that is on the file system of the storage.
    ///
    /// # Errors
    /// Those of `syncfs`.
    pub fn sync_all(&self) -> Sys<()> {
        match self.storage() {
            StorageOrder::Volatile => Ok(()),
            StorageOrder::Ordered | StorageOrder::Unordered => {
                let file = self.spares.register_file();
                sys::syncfs(file)?;
                // On XFS `syncfs` alone leaves bytes in the cache of the disk if no name has changed.
                sys::fsync(file)
            }
        }
    }

    /// Takes what was removed so far. To be called before a sync point begins; when that is reached, it may go.
    pub fn removed_so_far(&self) -> Removed {
        let removed = std::mem::take(&mut *self.unsettled.removed.lock());
        let mut objects: Vec<_> = removed.into_iter().map(|object| (object, None)).collect();
        let spares = self.take_spares(self.storage()).into_iter();
        objects.extend(spares.map(|(object, slot)| (object, Some(slot))));
        Removed { objects }
    }

    /// The sync point was not reached: they wait for the next one.
    pub fn keep_removed(&self, removed: Removed) {
        let mut waiting = self.unsettled.removed.lock();
        for (object, slot) in removed.objects {
            waiting.push(object);
            if let Some(slot) = slot {
                self.release_slot(slot);
            }
        }
    }

    /// Unlinks up to `most` of them, and gives those that are gone, and the first error.
    pub fn unlink_some(
        &self,
        removed: &mut Removed,
        most: usize,
    ) -> (Vec<ObjectName>, Option<(ObjectName, Errno)>) {
        let mut gone = Vec::new();
        let mut trouble = None;
        let rest = removed.objects.len().saturating_sub(most);
        for (object, slot) in removed.objects.drain(rest..) {
            match self.remove(object) {
                Ok(()) => gone.push(object),
                // The mark stays, and the next start tries again.
                Err(e) => trouble = trouble.or(Some((object, e))),
            }
            if let Some(slot) = slot {
                self.release_slot(slot);
            }
        }
        (gone, trouble)
    }

    /// Is there so little space that removed files can't wait?
    pub fn is_short_of_space(&self) -> bool {
        self.space()
            .is_ok_and(|(size, free)| is_short_of_space(size, free))
    }
}

impl Removed {
    /// Is nothing left of it?
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Adds others.
    pub fn add(&mut self, mut others: Removed) {
        self.objects.append(&mut others.objects);
    }
}
