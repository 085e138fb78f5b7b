//! Removed files that wait for their next life.
//!
//! To make a file and to remove it costs the local file system several times what it
//! costs to change one. So a removed file is kept if nobody can notice: it is empty,
//! nobody has it open, and nothing is in its inode that a new file would not have. The
//! next new file takes it over, with its name and object id.
//!
//! Until then it is a removed file whose unlinking is still to come: its doom mark stays in
//! the tables, and the batch that names it again takes the mark away. A crash in between
//! leaves a doomed file, as it always did. Should the tables be lost as well, the
//! label would tell of a file that had been removed, and so a *register* outside the
//! tables names all spare files.
//!
//! An object id may therefore mean another file a moment later. Who opens an object has
//! to do so under the lock of the namespace under which its name was looked up, and who
//! lets others open it later has to say so ([`Objects::never_reuse`]).

use super::name::SHAPE_BITS;
use super::words::SharedWords;
use super::{Made, Name, Objects, Shape, shape};
use crate::label;
use forebay_core::facts::{Fresh, NewKind, NewObject, Timestamp};
use forebay_core::record::{ObjectId, ObjectName};
use forebay_sys::{self as sys, Sys};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Spare files at a time. Each is an open descriptor.
const SPARES: usize = 128;
/// Spare files that are looked through for one with the right label: to write one costs more.
const SAME_NAME: usize = 16;
/// Objects that are remembered as not to be used again, one by one.
const REMEMBERED: usize = 1 << 16;
const REGISTER: &[u8] = b"spare";
/// Words of the register for one file: its id, and a word that holds only with it.
const WORDS: usize = 3;
const CHECK: u64 = 0x5eed_f11e_0b1e_c700;

/// New files that are remembered as they were made.
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
    /// What its label still says.
    label: Vec<u8>,
    slot: Slot,
}

/// A file as it was made. While its change time is the same, nothing has been done to its inode.
struct Birth {
    object: ObjectName,
    ctime: Timestamp,
    label: Vec<u8>,
}

/// Spare files, and what must not become one.
pub(super) struct Spares {
    kept: Mutex<Kept>,
    register: SharedWords,
    /// Sequence numbers of objects that others may open at any time.
    excluded: Mutex<HashSet<u64>>,
    /// Objects with smaller sequence numbers are excluded as well.
    excluded_below: AtomicU64,
    /// Status flags with which programs made their last file: those of the next one, most likely.
    flags: AtomicI32,
    /// The last files that were made, by a part of their sequence numbers.
    births: Mutex<Vec<Option<Birth>>>,
    /// Every change after a look gives an inode another change time.
    fine_times: bool,
}

#[derive(Default)]
struct Kept {
    files: Vec<Spare>,
    free: Vec<Slot>,
}

impl Kept {
    /// The file that went last, or one with this very label among the last: a program that
    /// removes a file to make it anew.
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
        // Without a register no file can be kept.
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

    /// An empty file was made, and looked at afterwards.
    pub(super) fn note_birth(&self, object: ObjectName, ctime: Timestamp, label: Vec<u8>) {
        self.births.lock()[Self::birth_place(object)] = Some(Birth {
            object,
            ctime,
            label,
        });
    }

    /// The label of a file to whose inode nothing has been done since it was made.
    fn untouched(&self, object: ObjectName, ctime: Timestamp) -> Option<Vec<u8>> {
        let place = Self::birth_place(object);
        let birth = self.births.lock()[place].take_if(|birth| birth.object == object)?;
        (self.fine_times && birth.ctime == ctime).then_some(birth.label)
    }

    /// Entered objects.
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
    /// Others may open this object by its name or by an `O_PATH` descriptor, at any time: its
    /// file may not become another one. To be called under the lock of the namespace.
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

    /// May the file of this object become another one, for all that is known of it?
    fn may_be_reused(&self, object: ObjectName) -> bool {
        let seq = object.oid.seq();
        shape(object) == Shape::File
            && object.link == 0
            // What became of the objects of earlier lives is not known.
            && object.oid.epoch() == self.epoch
            && seq >= self.spares.excluded_below.load(Ordering::Relaxed)
            && !self.spares.excluded.lock().remove(&seq)
    }

    /// Takes a doomed object out of use: true if it is kept for another life, with its doom
    /// mark; else it is unlinked.
    ///
    /// # Errors
    /// Of the file system.
    pub fn retire(&self, object: ObjectName) -> Sys<bool> {
        if self.may_be_reused(object) && self.keep(object) {
            return Ok(true);
        }
        self.remove(object).map(|()| false)
    }

    /// Keeps a file if it is as good as new. Whatever speaks against it, it is unlinked then.
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
        let fd = sys::open(folder.as_fd(), &Name::new(object, false), flags, 0)?;
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

    /// A spare file as the new object that is asked for, if there is one. `Err`: a spare file
    /// that was of no use after all; to be unlinked.
    ///
    /// # Errors
    /// See above.
    pub fn reuse(&self, spec: &NewObject, open: i32) -> Result<Option<Made>, ObjectName> {
        if spec.what != NewKind::File {
            return Ok(None);
        }
        self.spares.flags.store(open, Ordering::Relaxed);
        let label = label::encode(&spec.label);
        let Some(spare) = self.spares.kept.lock().take(&label) else {
            return Ok(None);
        };
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
            let name = Name::new(spare.object, false);
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

    /// The file that was in this place is a spare one no more: it has a name again, or has gone.
    pub fn release_slot(&self, slot: Slot) {
        self.spares.clear(slot);
        self.spares.kept.lock().free.push(slot);
    }

    /// Unlinks all spare files, and gives those that are gone.
    pub fn drop_spares(&self) -> Vec<ObjectName> {
        let files = std::mem::take(&mut self.spares.kept.lock().files);
        let mut gone = Vec::new();
        for spare in files {
            if self.remove(spare.object).is_ok() {
                gone.push(spare.object);
            }
            self.release_slot(spare.slot);
        }
        gone
    }

    /// Files that were spare when the last life ended, as far as they are still empty: for
    /// when the tables, which know better, are lost.
    pub fn spare_of_last_life(&self) -> Vec<ObjectName> {
        let mut objects = self.spares.entered();
        // The register may be older than the file, after a power failure.
        objects.retain(|object| {
            self.attr(*object)
                .is_ok_and(|attr| attr.size == 0 && attr.blocks == 0)
        });
        objects
    }

    /// No file is spare any more: the doom marks of the last life have been carried out.
    pub fn forget_last_life(&self) {
        let slots = self.spares.register.words().len() / WORDS;
        (0..slots).for_each(|n| self.spares.clear(Slot(n)));
    }
}
