//! Spare files: removed files that new files can take over.
//!
//! To make and remove a file costs the local file system several times as much as to
//! change one. So a removed file is kept as a spare file if nobody can notice: it is
//! empty, nobody has it open, and its inode holds nothing that a new file would not have.
//! The next new file takes it over, with its name and object id.
//!
//! For the tables, a spare file is a removed file that is not unlinked yet: its doom mark
//! stays until the batch that names the file again removes it. After a crash the spare
//! file is unlinked like any doomed file. If the tables are lost as well, the label would
//! bring back a file that had been removed. So a *register* outside the tables names all
//! spare files.
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
use crate::label;
use forebay_core::facts::{Fresh, NewKind, NewObject, Timestamp};
use forebay_core::record::{ObjectId, ObjectName};
use forebay_sys::{self as sys, Sys};
use forebay_types::Backing;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Most spare files at a time. Each costs an open descriptor.
const SPARES: usize = 128;
/// How many spare files are searched for one with the right label. To write a label costs more than this search.
const SAME_NAME: usize = 16;
/// How many objects are remembered one by one as not to be reused.
const REMEMBERED: usize = 1 << 16;
const REGISTER: &[u8] = b"spare";
/// Words of the register for one file: two for its id, and a check word.
const WORDS: usize = 3;
const CHECK: u64 = 0x5eed_f11e_0b1e_c700;

/// How many new files are remembered as they were when they were made.
const BIRTHS: usize = 1024;

/// A place in the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(usize);

/// A removed file.
struct Spare {
    object: ObjectName,
    fd: OwnedFd,
    /// Status flags of `fd`.
    flags: i32,
    ino: u64,
    mode: u32,
    owner: (u32, u32),
    /// Its label, which is still that of the removed file.
    label: Vec<u8>,
    slot: Slot,
}

/// A file as it was when it was made. As long as its change time is the same, its inode is unchanged.
struct Birth {
    object: ObjectName,
    ctime: Timestamp,
    label: Vec<u8>,
}

/// The spare files, and the objects that must not become one.
pub(super) struct Spares {
    kept: Mutex<Kept>,
    register: SharedWords,
    /// Sequence numbers of objects that programs may open at any time without the bridge.
    excluded: Mutex<HashSet<u64>>,
    /// All objects with smaller sequence numbers are excluded, too.
    excluded_below: AtomicU64,
    /// Status flags of the last file that a program made. The next one probably has the same.
    flags: AtomicI32,
    /// The files made last; the place depends on the low bits of the sequence number.
    births: Mutex<Vec<Option<Birth>>>,
    /// The change times are fine: each change after a `stat` gives the inode another one.
    fine_times: bool,
}

#[derive(Default)]
struct Kept {
    files: Vec<Spare>,
    free: Vec<Slot>,
}

impl Kept {
    /// One of the files removed last that has this label, if there is one; else the very last. The label
    /// is the same when a program removes a file and makes it again.
    fn take(&mut self, label: &[u8]) -> Option<Spare> {
        let from = self.files.len().saturating_sub(SAME_NAME);
        let same = self.files[from..].iter().rposition(|s| s.label == label);
        match same {
            Some(n) => Some(self.files.swap_remove(from + n)),
            None => self.files.pop(),
        }
    }
}

impl Spares {
    pub(super) fn open(instance: &OwnedFd) -> Sys<Self> {
        let register = SharedWords::open(instance.as_fd(), REGISTER, SPARES * WORDS)?;
        // Without a register there are no slots, and no file is kept.
        let slots = register.words().len() / WORDS;
        Ok(Spares {
            kept: Mutex::new(Kept {
                files: Vec::new(),
                free: (0..slots).map(Slot).collect(),
            }),
            fine_times: register.has_fine_times()?,
            births: Mutex::new((0..BIRTHS).map(|_| None).collect()),
            register,
            excluded: Mutex::default(),
            excluded_below: AtomicU64::new(0),
            flags: AtomicI32::new(libc::O_WRONLY),
        })
    }

    /// The file of the register.
    pub(super) fn register_file(&self) -> BorrowedFd<'_> {
        self.register.file()
    }

    fn enter(&self, slot: Slot, object: ObjectName) {
        let (high, low) = ((object.oid.0 >> 64) as u64, object.oid.0 as u64);
        let words = &self.register.words()[slot.0 * WORDS..][..WORDS];
        words[0].store(high, Ordering::Relaxed);
        words[1].store(low, Ordering::Relaxed);
        words[2].store(high ^ low ^ CHECK, Ordering::Release);
    }

    fn clear(&self, slot: Slot) {
        self.register.words()[slot.0 * WORDS + 2].store(0, Ordering::Release);
    }

    fn birth_place(object: ObjectName) -> usize {
        (object.oid.seq() >> SHAPE_BITS) as usize % BIRTHS
    }

    /// Remembers an empty file that was just made, with its change time after that.
    pub(super) fn note_birth(&self, object: ObjectName, ctime: Timestamp, label: Vec<u8>) {
        self.births.lock()[Self::birth_place(object)] = Some(Birth {
            object,
            ctime,
            label,
        });
    }

    /// The label of a file whose inode is unchanged since the file was made.
    fn untouched(&self, object: ObjectName, ctime: Timestamp) -> Option<Vec<u8>> {
        let place = Self::birth_place(object);
        let birth = self.births.lock()[place].take_if(|birth| birth.object == object)?;
        (self.fine_times && birth.ctime == ctime).then_some(birth.label)
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

impl Objects {
    /// Excludes an object, because programs may open it at any time by its name or by an `O_PATH`
    /// descriptor: its file must never become another one. Call this before the check that nothing was committed since
    /// the decision to open it: after a commit that removed it, the file may be another one already.
    pub fn never_reuse(&self, object: ObjectName) {
        if shape(object) != Shape::File {
            return;
        }
        let mut excluded = self.spares.excluded.lock();
        if excluded.len() >= REMEMBERED {
            let all = self.next_seq();
            self.spares.excluded_below.store(all, Ordering::Relaxed);
            excluded.clear();
        }
        excluded.insert(object.oid.seq());
    }

    /// True if nothing known about the object forbids that its file becomes another one.
    fn may_be_reused(&self, object: ObjectName) -> bool {
        let seq = object.oid.seq();
        shape(object) == Shape::File
            && object.link == 0
            // For objects of earlier epochs it is not known who may open them.
            && object.oid.epoch() == self.epoch
            && seq >= self.spares.excluded_below.load(Ordering::Relaxed)
            && !self.spares.excluded.lock().remove(&seq)
    }

    /// Takes a doomed object out of use.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn retire(&self, object: ObjectName) -> Sys<Retired> {
        if self.unsettled.may_know(object.oid.seq()) {
            return self.retire_known(object);
        }
        if self.may_be_reused(object) && self.keep(object) {
            return Ok(Retired::Kept);
        }
        self.remove(object).map(|()| Retired::Gone)
    }

    /// Keeps a file as a spare file if it is as good as new. Otherwise, or after an error, the caller unlinks it.
    fn keep(&self, object: ObjectName) -> bool {
        let Some(slot) = self.spares.kept.lock().free.pop() else {
            return false;
        };
        let spare = self.examine(object, slot);
        let mut kept = self.spares.kept.lock();
        match spare {
            Ok(Some(spare)) => {
                self.spares.enter(slot, object);
                kept.files.push(spare);
                true
            }
            _ => {
                kept.free.push(slot);
                false
            }
        }
    }

    fn examine(&self, object: ObjectName, slot: Slot) -> Sys<Option<Spare>> {
        let folder = self.folder(object, false)?;
        let flags = self.spares.flags.load(Ordering::Relaxed);
        let fd = sys::open(folder.as_fd(), &Backing::name(object, false), flags, 0)?;
        let attr = sys::stat(fd.as_fd(), b"")?;
        let is_empty = attr.mode & libc::S_IFMT == libc::S_IFREG
            && attr.nlink == 1
            && attr.size == 0
            && attr.blocks == 0;
        if !is_empty || !sys::is_opened_once(fd.as_fd()) {
            return Ok(None);
        }
        let label = match self.spares.untouched(object, attr.ctime) {
            Some(label) => Some(label),
            None if sys::has_only_xattr(fd.as_fd(), label::XATTR)?
                && !sys::has_inode_flags(fd.as_fd())? =>
            {
                sys::get_xattr(fd.as_fd(), label::XATTR)?
            }
            None => None,
        };
        Ok(label.map(|label| Spare {
            object,
            fd,
            flags,
            ino: attr.ino,
            mode: attr.mode & 0o7777,
            owner: (attr.uid, attr.gid),
            label,
            slot,
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
        let Some(spare) = self.spares.kept.lock().take(&label) else {
            return Ok(None);
        };
        if self.unsettled.may_know(spare.object.oid.seq()) {
            self.retire_later(spare.object);
            self.release_slot(spare.slot);
            return Ok(None);
        }
        let (object, slot) = (spare.object, spare.slot);
        self.revive(spare, spec, label, open)
            .map(Some)
            .map_err(|_| {
                self.release_slot(slot);
                object
            })
    }

    fn revive(&self, spare: Spare, spec: &NewObject, label: Vec<u8>, open: i32) -> Sys<Made> {
        let fd = spare.fd.as_fd();
        if label != spare.label {
            sys::set_xattr(fd, label::XATTR, &label)?;
        }
        let mode = spec.mode & 0o7777;
        let chown = (spec.uid, spec.gid) != spare.owner;
        if chown {
            sys::chown(fd, b"", spec.uid, spec.gid)?;
        }
        if mode != spare.mode || chown {
            sys::chmod(fd, mode)?;
        }
        sys::set_times_to_now(fd)?;
        let ctime = sys::stat(fd, b"")?.ctime;
        self.spares.note_birth(spare.object, ctime, label);
        let fd = if open == spare.flags {
            spare.fd
        } else {
            let folder = self.folder(spare.object, false)?;
            let name = Backing::name(spare.object, false);
            sys::open(folder.as_fd(), &name, open, 0)?
        };
        Ok(Made {
            fresh: Fresh {
                is_doomed: true,
                is_open: true,
                ..Fresh::new(spare.object, spare.ino)
            },
            fd: Some(fd),
            spare: Some(spare.slot),
        })
    }

    /// Frees a place in the register. Its file has a name again, or is gone.
    pub fn release_slot(&self, slot: Slot) {
        self.spares.clear(slot);
        let mut kept = self.spares.kept.lock();
        debug_assert!(!kept.free.contains(&slot), "{slot:?} is free already");
        kept.free.push(slot);
    }

    /// No file is spare any more: their objects, and the places in the register, which are to be released when the files
    /// are gone.
    pub(super) fn take_spares(&self) -> impl Iterator<Item = (ObjectName, Option<Slot>)> {
        let files = std::mem::take(&mut self.spares.kept.lock().files);
        files
            .into_iter()
            .map(|spare| (spare.object, Some(spare.slot)))
    }

    /// Unlinks all spare files, and returns those that are gone.
    pub fn drop_spares(&self) -> Vec<ObjectName> {
        let mut gone = Vec::new();
        for (object, slot) in self.take_spares() {
            if self.remove(object).is_ok() {
                gone.push(object);
            }
            slot.into_iter().for_each(|slot| self.release_slot(slot));
        }
        gone
    }

    /// Files that were spare in the last epoch and are still empty. Only needed if the tables are
    /// lost; otherwise their doom marks say more.
    pub fn spare_of_last_life(&self) -> Vec<ObjectName> {
        let mut objects = self.spares.entered();
        // After a power failure the register may be out of date, and name a file that is in use again.
        objects.retain(|object| {
            self.attr(*object)
                .is_ok_and(|attr| attr.size == 0 && attr.blocks == 0)
        });
        objects
    }

    /// Empties the register, after the doom marks of the last epoch were carried out.
    pub fn forget_last_life(&self) {
        let slots = self.spares.register.words().len() / WORDS;
        (0..slots).for_each(|n| self.spares.clear(Slot(n)));
    }
}
