//! Carries out what [`forebay_core::spares`] decides about spare files, removed files that new files take over: opens and
//! looks at them, changes them, and keeps the register in words of a file that outlives the process.
//!
//! For the tables, a spare file is a removed file that is not unlinked yet: its doom mark
//! stays until the batch that names the file again removes it. After a crash the spare
//! file is unlinked like any doomed file. If the tables are lost as well, the register tells which files were spare.
//!
//! As a consequence, an object id may mean another file a moment later. An open without
//! the lock of the namespace counts only if nothing was committed since the decision that
//! allowed it. If others may open the object later, call [`Objects::never_reuse`] before
//! that is checked.
//!
//! A power loss leaves the names of the last sync point, but the files of a later moment. So a file that the last sync
//! point knows is never used again, see [`forebay_core::storage`].

use super::name::SHAPE_BITS;
use super::words::SharedWords;
use super::{Made, Objects, Retired, Shape, shape};
use crate::label::{self, LabelsOf};
use forebay_core::facts::{Attr, Fresh, NewKind, NewObject, Timestamp};
use forebay_core::record::{ObjectId, ObjectName};
use forebay_core::spares::{
    self, Births, Excluded, MOST_SPARES, RemovedFile, RemovedObject, Slot, TakenSpare,
};
use forebay_core::storage::StorageOrder;
use forebay_sys::{self as sys, Errno, Sys};
use forebay_types::Backing;
use parking_lot::Mutex;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

const REGISTER: &[u8] = b"spare";
/// Words of the register for one file: two for its id, and a check word.
const WORDS: usize = 3;
const CHECK: u64 = 0x5eed_f11e_0b1e_c700;

/// A spare file, open.
struct Kept {
    fd: OwnedFd,
    /// Status flags of `fd`.
    flags: i32,
    ino: u64,
    mode: u32,
    owner: (u32, u32),
    /// Its label, which is still that of the removed file.
    label: Vec<u8>,
}

type OpenSpare = spares::Spare<Kept>;

/// The spare files, and the objects that must not become one.
pub(super) struct SpareFiles {
    kept: Mutex<spares::Spares<Kept>>,
    register: SharedWords,
    labels: LabelsOf,
    excluded: Mutex<Excluded>,
    /// Status flags of the last file that a program made. The next one probably has the same.
    flags: AtomicI32,
    births: Mutex<Births<Vec<u8>>>,
}

impl SpareFiles {
    pub(super) fn open(instance: &OwnedFd, labels: LabelsOf) -> Sys<Self> {
        let register = SharedWords::open(instance.as_fd(), REGISTER, MOST_SPARES * WORDS)?;
        // Without a register there are no slots, and no file is kept.
        let slots = register.words().len() / WORDS;
        Ok(SpareFiles {
            kept: Mutex::new(spares::Spares::new(slots)),
            births: Mutex::new(Births::new(register.has_fine_times()?)),
            register,
            labels,
            excluded: Mutex::default(),
            flags: AtomicI32::new(libc::O_WRONLY),
        })
    }

    /// The file of the register.
    pub(super) fn register_file(&self) -> BorrowedFd<'_> {
        self.register.file()
    }

    fn enter(&self, slot: Slot, object: ObjectName) {
        let (high, low) = ((object.oid.0 >> 64) as u64, object.oid.0 as u64);
        let words = &self.register.words()[slot.number() * WORDS..][..WORDS];
        words[0].store(high, Ordering::Relaxed);
        words[1].store(low, Ordering::Relaxed);
        words[2].store(high ^ low ^ CHECK, Ordering::Release);
    }

    fn clear(&self, slot: usize) {
        self.register.words()[slot * WORDS + 2].store(0, Ordering::Release);
    }

    /// Remembers an empty file that was just made, with its change time after that.
    pub(super) fn note_birth(&self, object: ObjectName, ctime: Timestamp, label: Vec<u8>) {
        let mut births = self.births.lock();
        births.note(made_before(object), object, ctime, label);
    }

    /// The objects in the register.
    fn entered(&self) -> Vec<ObjectName> {
        self.register
            .words()
            .chunks_exact(WORDS)
            .filter_map(|words| {
                let check = words[2].load(Ordering::Acquire);
                let high = words[0].load(Ordering::Relaxed);
                let low = words[1].load(Ordering::Relaxed);
                let oid = ObjectId(u128::from(high) << 64 | u128::from(low));
                (check == high ^ low ^ CHECK).then_some(ObjectName { oid, link: 0 })
            })
            .collect()
    }
}

/// How many objects were made before this one.
fn made_before(object: ObjectName) -> u64 {
    object.oid.seq() >> SHAPE_BITS
}

/// The file of a removed object, open.
struct Opened<'a> {
    spares: &'a SpareFiles,
    object: ObjectName,
    fd: BorrowedFd<'a>,
}

impl RemovedFile for Opened<'_> {
    type Label = Vec<u8>;
    type Error = Errno;

    fn attr(&self) -> Sys<Attr> {
        sys::stat(self.fd, b"")
    }

    fn is_open(&self) -> bool {
        !sys::is_opened_once(self.fd)
    }

    fn untouched(&self, ctime: Timestamp) -> Option<Vec<u8>> {
        let mut births = self.spares.births.lock();
        births.take(made_before(self.object), self.object, ctime)
    }

    fn has_other_xattrs(&self) -> Sys<bool> {
        sys::has_only_xattr(self.fd, self.spares.labels.attribute()).map(|only| !only)
    }

    fn has_flags(&self) -> Sys<bool> {
        sys::has_inode_flags(self.fd)
    }

    fn label(&self) -> Sys<Option<Vec<u8>>> {
        sys::get_xattr(self.fd, self.spares.labels.attribute())
    }
}

impl Objects {
    /// Excludes an object, because programs may open it at any time by its name or by an `O_PATH`
    /// descriptor: its file must never become another one. Call this before the check that nothing was committed since
    /// the decision to open it: after a commit that removed it, the file may be another one already.
    pub fn never_reuse(&self, object: ObjectName) {
        if shape(object) == Shape::File {
            let mut excluded = self.spares.excluded.lock();
            excluded.add(object.oid.seq(), || self.next_seq());
        }
    }

    /// Takes a doomed object out of use.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn retire(&self, object: ObjectName) -> Sys<Retired> {
        if self.forget_marker(object) {
            return Ok(Retired::Unmade);
        }
        let seq = object.oid.seq();
        let removed = RemovedObject {
            object,
            is_plain: shape(object) == Shape::File,
            is_known: self.unsettled.may_know(seq),
        };
        let is_excluded = || self.spares.excluded.lock().take(seq);
        if removed.may_be_reused(self.epoch, is_excluded) && self.keep(object) {
            return Ok(Retired::Kept);
        }
        match removed.is_known {
            true => self.retire_known(object),
            false => self.remove(object).map(|()| Retired::Gone),
        }
    }

    /// Keeps a file as a spare file if it is as good as new. Otherwise, or after an error, the caller unlinks it.
    fn keep(&self, object: ObjectName) -> bool {
        let Some(slot) = self.spares.kept.lock().reserve() else {
            return false;
        };
        let found = self.examine(object);
        let mut kept = self.spares.kept.lock();
        match found {
            Ok(Some(file)) => {
                self.spares.enter(slot, object);
                kept.keep(object, slot, file);
                true
            }
            _ => {
                kept.release(slot);
                false
            }
        }
    }

    fn examine(&self, object: ObjectName) -> Sys<Option<Kept>> {
        let folder = self.folder(object, false)?;
        let flags = self.spares.flags.load(Ordering::Relaxed);
        // One on which somebody has a lease is in use.
        let fd = sys::open_at_once(flags, |flags| {
            sys::open(folder.as_fd(), &Backing::name(object, false), flags, 0)
        })?;
        let opened = Opened {
            spares: &self.spares,
            object,
            fd: fd.as_fd(),
        };
        let found = spares::as_new(&opened)?;
        Ok(found.map(|(attr, label)| Kept {
            fd,
            flags,
            ino: attr.ino,
            mode: attr.mode & 0o7777,
            owner: (attr.uid, attr.gid),
            label,
        }))
    }

    /// Makes the new object `spec` from a spare file, if there is one.
    ///
    /// # Errors
    /// A spare file that could not be used. The caller must unlink it.
    pub fn reuse(&self, spec: &NewObject, open: i32) -> Result<Option<Made>, ObjectName> {
        if spec.what != NewKind::File {
            return Ok(None);
        }
        self.spares.flags.store(open, Ordering::Relaxed);
        let label = label::encode(&spec.label);
        let has_label = |kept: &Kept| kept.label == label;
        let may_know = |seq| self.unsettled.may_know(seq);
        let of_user = |kept: &Kept| kept.owner.0 == spec.uid;
        let taken = self.spares.kept.lock().take(of_user, has_label, may_know);
        let spare = match taken {
            None => return Ok(None),
            Some(TakenSpare::Known(spare)) => {
                self.retire_later(spare.object);
                self.release_slot(spare.slot);
                return Ok(None);
            }
            Some(TakenSpare::Again(spare)) => spare,
        };
        let (object, slot) = (spare.object, spare.slot);
        self.revive(spare, spec, label, open)
            .map(Some)
            .map_err(|_| {
                self.release_slot(slot);
                object
            })
    }

    fn revive(&self, spare: OpenSpare, spec: &NewObject, label: Vec<u8>, open: i32) -> Sys<Made> {
        let OpenSpare {
            object,
            slot,
            file: kept,
        } = spare;
        let fd = kept.fd.as_fd();
        if label != kept.label {
            sys::set_xattr(fd, self.labels.attribute(), &label)?;
        }
        let mode = spec.mode & 0o7777;
        let chown = (spec.uid, spec.gid) != kept.owner;
        if chown {
            sys::chown(fd, b"", spec.uid, spec.gid)?;
        }
        if mode != kept.mode || chown {
            sys::chmod(fd, mode)?;
        }
        sys::set_times_to_now(fd)?;
        let ctime = sys::stat(fd, b"")?.ctime;
        self.spares.note_birth(object, ctime, label);
        let fd = if open == kept.flags {
            kept.fd
        } else {
            let folder = self.folder(object, false)?;
            let name = Backing::name(object, false);
            sys::open(folder.as_fd(), &name, open, 0)?
        };
        Ok(Made {
            fresh: Fresh {
                is_doomed: true,
                is_open: true,
                ..Fresh::new(object, kept.ino)
            },
            fd: Some(fd),
            spare: Some(slot),
        })
    }

    /// Frees a slot of the register. Its file has a name again, is gone, or waits for a sync point.
    pub(super) fn release_slot(&self, slot: Slot) {
        self.spares.clear(slot.number());
        self.spares.kept.lock().release(slot);
    }

    /// The spare files that go with the sync point that begins now: their objects, and their slots, which are to be released
    /// when the files are gone.
    pub(super) fn take_spares(&self, storage: StorageOrder) -> Vec<(ObjectName, Slot)> {
        let taken = self.spares.kept.lock().take_for_sync_point(storage);
        let taken = taken.into_iter();
        taken.map(|spare| (spare.object, spare.slot)).collect()
    }

    /// Unlinks all spare files, and returns those that are gone.
    pub fn drop_spares(&self) -> Vec<ObjectName> {
        let mut gone = Vec::new();
        let all = self.spares.kept.lock().take_all();
        for spare in all {
            if self.remove(spare.object).is_ok() {
                gone.push(spare.object);
            }
            self.release_slot(spare.slot);
        }
        gone
    }

    /// Files that were spare when the bridge died, and still are. Only needed if the tables are
    /// lost; otherwise their doom marks say more.
    pub fn spare_of_last_life(&self) -> Vec<ObjectName> {
        let mut objects = self.spares.entered();
        objects.retain(|object| {
            self.attr(*object)
                .is_ok_and(|attr| spares::is_still_spare(&attr))
        });
        objects
    }

    /// Empties the register, after the doom marks of the last epoch were carried out.
    pub fn forget_last_life(&self) {
        let slots = self.spares.register.words().len() / WORDS;
        (0..slots).for_each(|slot| self.spares.clear(slot));
    }
}
