//! Backing objects: the files, directories and nodes on local storage that hold
//! what programs write. The crate does not know what a record means.
//!
//! `obj/<folder>/<id>` is a file, `<id>.node` beside it a FIFO, socket or device,
//! and `<id>.<k>` a further hard link. `dir/<folder>/<id>/` is a directory, empty
//! but for what was made in it past the buffer. The lowest two bits of an object's sequence number say which of these
//! the object is, so that its id alone gives its path.
#![forbid(unsafe_code)]

pub mod label;
mod labels;
mod lent;
mod markers;
mod name;
mod pfs_notes;
mod quarantine;
mod scan;
mod settle;
mod spare;
mod touch;
mod words;

#[cfg(test)]
mod tests;

pub use forebay_core::record::Shape;
pub use forebay_types::folder_of;
pub use labels::LabelError;
pub use name::{parse_name, shape};
pub use pfs_notes::PfsNotes;
pub use quarantine::{Quarantine, Refused, Withheld, withheld_as};
pub use scan::Scanned;
pub use settle::{Removed, Retired};

use forebay_core::facts::{Attr, Fresh, NewKind, NewObject, Timestamp};
use forebay_core::markers::Markers;
use forebay_core::record::{BridgeId, ObjectId, ObjectName};
use forebay_core::spares::Slot;
use forebay_sys::{self as sys, Errno, Sys, errno_of};
use forebay_types::{Backing, COPY, FOLDER_BITS, is_own_attribute};
use label::LabelsOf;
use labels::Beside;
use name::SHAPE_BITS;
use parking_lot::{Mutex, RwLock};
use settle::Unsettled;
use spare::SpareFiles;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A new object, and its open descriptor if one was asked for.
#[derive(Debug)]
pub struct Made {
    /// Identity and inode number.
    pub fresh: Fresh,
    /// Descriptor of the file with the flags of the request, if the object is a plain new file.
    pub fd: Option<OwnedFd>,
    /// Slot of the file in the register, if it was a spare file. A doom mark still names it.
    pub spare: Option<Slot>,
}

/// How many folders of backing objects are kept open.
const FOLDERS: usize = 256;

type Folder = (Shape, u64);

/// All backing objects of one bridge.
pub struct Objects {
    instance: OwnedFd,
    folders: RwLock<HashMap<Folder, Arc<OwnedFd>>>,
    me: BridgeId,
    epoch: u32,
    /// Count of objects made; the sequence number without the shape.
    next: AtomicU64,
    /// Sequence numbers of objects that no commit has named yet.
    unnamed: Mutex<BTreeSet<u64>>,
    touched: Mutex<HashMap<ObjectName, Timestamp>>,
    touched_count: AtomicUsize,
    beside: Beside,
    spares: SpareFiles,
    unsettled: Unsettled,
    markers: Mutex<Markers>,
    labels: LabelsOf,
    root: bool,
    my_ids: (u32, u32),
}

fn folder_path(folder: Folder) -> String {
    let kind = if folder.0 == Shape::Dir { "dir" } else { "obj" };
    format!("{kind}/{:x}", folder.1)
}

/// Path of an object's backing file below the instance directory.
pub fn path_of_file(object: ObjectName) -> Vec<u8> {
    Backing::file(object).to_vec()
}

/// Path of a backing directory below the instance directory.
pub fn path_of_dir(object: ObjectName) -> PathBuf {
    OsString::from_vec(Backing::dir(object).to_vec()).into()
}

impl Objects {
    /// Opens the objects of an instance directory. New objects get sequence numbers from folder `first_folder` on.
    ///
    /// # Errors
    /// Those of opening or making the directories.
    pub fn open(
        instance: &Path,
        labels: LabelsOf,
        me: BridgeId,
        epoch: u32,
        first_folder: u64,
    ) -> Sys<Self> {
        let fd = sys::open_path(instance, libc::O_PATH | libc::O_DIRECTORY)?;
        lent::give_back(fd.as_fd())?;
        for kind in [&b"obj"[..], b"dir"] {
            sys::make_dir(fd.as_fd(), kind)?;
        }
        let my_ids = sys::my_ids();
        let spares = SpareFiles::open(&fd, labels)?;
        let unsettled = Unsettled::new(fd.as_fd())?;
        let objects = Objects {
            instance: fd,
            folders: RwLock::default(),
            me,
            epoch,
            next: AtomicU64::new(first_folder << (FOLDER_BITS - SHAPE_BITS)),
            unnamed: Mutex::default(),
            touched: Mutex::default(),
            touched_count: AtomicUsize::new(0),
            beside: Beside::default(),
            spares,
            unsettled,
            markers: Mutex::default(),
            labels,
            root: my_ids.0 == 0,
            my_ids,
        };
        objects.find_labels_beside()?;
        Ok(objects)
    }

    fn folder(&self, object: ObjectName, make: bool) -> Sys<Arc<OwnedFd>> {
        let kind = if shape(object) == Shape::Dir {
            Shape::Dir
        } else {
            Shape::File
        };
        let key = (kind, folder_of(object.oid.seq()));
        if let Some(fd) = self.folders.read().get(&key) {
            return Ok(fd.clone());
        }
        let path = folder_path(key);
        if make {
            sys::make_dir(self.instance.as_fd(), path.as_bytes())?;
        }
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let fd = Arc::new(sys::open(self.instance.as_fd(), path.as_bytes(), flags, 0)?);
        let mut folders = self.folders.write();
        if folders.len() >= FOLDERS {
            // Any open folder may go: it is cheap to open again.
            if let Some(&any) = folders.keys().find(|&&k| k != key) {
                folders.remove(&any);
            }
        }
        folders.insert(key, fd.clone());
        Ok(fd)
    }

    fn next_id(&self, shape: u64) -> ObjectId {
        assert!(
            self.me.0 > 0 && self.epoch > 0,
            "bridges and their starts are counted from 1, so no object has the id 0"
        );
        let mut unnamed = self.unnamed.lock();
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let seq = count << SHAPE_BITS | shape;
        let is_new = unnamed.insert(seq);
        assert!(is_new, "sequence number {seq} is used twice");
        ObjectId::new(self.me, self.epoch, seq)
    }

    /// A lower bound of the next sequence number.
    fn next_seq(&self) -> u64 {
        self.next.load(Ordering::Relaxed) << SHAPE_BITS
    }

    /// The watermark: every object with a smaller sequence number is named by a commit, removed, or doomed.
    pub fn settled(&self) -> u64 {
        let unnamed = self.unnamed.lock();
        let next = self.next_seq();
        let settled = unnamed.first().copied().unwrap_or(next);
        debug_assert!(settled <= next, "{settled} was never given out");
        settled
    }

    /// Keeps the watermark of an earlier life, until what is above it is judged.
    pub fn hold_watermark(&self, watermark: u64) {
        self.unnamed.lock().insert(watermark);
    }

    /// What was above the watermark of an earlier life is judged.
    pub fn release_watermark(&self, watermark: u64) {
        self.unnamed.lock().remove(&watermark);
    }

    /// Notes that a commit has named the object, or that it was removed.
    pub fn settle(&self, made: &Made) {
        if let Some(slot) = made.spare {
            self.release_slot(slot);
        } else if made.fresh.object.link == 0 {
            self.unsettle(made.fresh.object);
        }
    }

    /// Is there an object that no record names, and that could not be removed?
    pub fn has_unnamed(&self) -> bool {
        !self.unnamed.lock().is_empty()
    }

    fn unsettle(&self, object: ObjectName) {
        self.unnamed.lock().remove(&object.oid.seq());
    }

    /// A fresh name for a further link to an object.
    pub fn new_link(&self, of: ObjectName) -> ObjectName {
        // A number is never used twice, so that a mark that outlives its link never names another link.
        let link = loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed) as u32;
            if n != 0 {
                break n;
            }
        };
        ObjectName { oid: of.oid, link }
    }

    /// Makes a further link with its label, under a name from [`Objects::new_link`].
    ///
    /// # Errors
    /// Those of the file system.
    pub fn make_link(&self, old: ObjectName, new: ObjectName, spec: &NewObject) -> Sys<Fresh> {
        assert!(
            old.oid == new.oid && new.link != 0,
            "{new} is no further link of {old}"
        );
        let folder = self.folder(old, false)?;
        let dir = folder.as_fd();
        sys::link(
            dir,
            &Backing::name(old, false),
            dir,
            &Backing::name(new, false),
        )?;
        let labelled = self.write_label(new, &spec.label);
        if shape(old) == Shape::Node && labelled.is_ok() {
            sys::link(
                dir,
                &Backing::name(old, true),
                dir,
                &Backing::name(new, true),
            )?;
        }
        labelled?;
        Ok(Fresh::new(new, self.attr(new)?.ino))
    }

    /// Makes a new object. For a plain file, `open` asks for a descriptor with these flags. `source` is the plain file
    /// that a copy is made of; the caller has opened it.
    ///
    /// # Errors
    /// Those of the file system. OPNOTSUPP: the storage does not take an extended attribute of `source`. A failure
    /// leaves nothing behind.
    pub fn make(
        &self,
        spec: &NewObject,
        open: Option<i32>,
        source: Option<BorrowedFd<'_>>,
    ) -> Sys<Made> {
        let shape = match spec.what {
            NewKind::Dir => Shape::Dir as u64,
            NewKind::Node(_) => Shape::Node as u64,
            NewKind::Staged { .. } => COPY,
            _ => Shape::File as u64,
        };
        let object = ObjectName {
            oid: self.next_id(shape),
            link: 0,
        };
        let made = self.make_as(object, spec, open, source);
        if made.is_err() {
            // The failure may have left a part of the object. If it stays, the next start looks at it.
            if self.remove(object).is_ok() {
                self.unsettle(object);
            }
        }
        made
    }

    fn make_as(
        &self,
        object: ObjectName,
        spec: &NewObject,
        open: Option<i32>,
        source: Option<BorrowedFd<'_>>,
    ) -> Sys<Made> {
        let folder = self.folder(object, true)?;
        let dir = folder.as_fd();
        let name = Backing::name(object, false);
        let label = label::encode(&spec.label);
        let put_label = |fd: &OwnedFd| self.put_label(fd.as_fd(), object, &label);
        let mode = spec.mode & 0o7777;
        let create = libc::O_CREAT | libc::O_EXCL;
        let mut grant = None;
        let ino = match &spec.what {
            NewKind::File => {
                let (flags, wanted) = match open {
                    Some(flags) => (flags, true),
                    None => (libc::O_WRONLY, false),
                };
                let fd = sys::open(dir, &name, flags | create, self.first_mode(mode))?;
                put_label(&fd)?;
                self.dress(fd.as_fd(), spec, mode)?;
                let attr = sys::stat(fd.as_fd(), b"")?;
                self.spares.note_birth(object, attr.ctime, label);
                grant = wanted.then_some(fd);
                attr.ino
            }
            NewKind::Marker => {
                let fd = sys::open(dir, &name, libc::O_WRONLY | create, 0o600)?;
                put_label(&fd)?;
                // Nobody sees its attributes.
                0
            }
            NewKind::Symlink(text) => {
                let fd = sys::open(dir, &name, libc::O_WRONLY | create, 0o600)?;
                put_label(&fd)?;
                self.dress(fd.as_fd(), spec, 0o600)?;
                let ino = sys::stat(fd.as_fd(), b"")?.ino;
                use std::io::Write;
                std::fs::File::from(fd).write_all(text).map_err(errno_of)?;
                self.unsettled.wrote(object);
                ino
            }
            NewKind::Dir => {
                sys::mkdir(dir, &name, self.first_mode(mode) | 0o700)?;
                let fd = sys::open(dir, &name, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
                put_label(&fd)?;
                self.dress(fd.as_fd(), spec, mode)?;
                let attr = sys::stat(fd.as_fd(), b"")?;
                if attr.mode & 0o7777 != mode {
                    sys::chmod(fd.as_fd(), mode)?;
                }
                attr.ino
            }
            NewKind::Node(dev) => {
                let fd = sys::open(dir, &name, libc::O_WRONLY | create, 0o600)?;
                put_label(&fd)?;
                let node = Backing::name(object, true);
                sys::mknod(dir, &node, spec.mode, *dev)?;
                if (spec.uid, spec.gid) != self.my_ids {
                    self.chown(dir, &node, spec.uid, spec.gid)?;
                    sys::chmod_at(dir, &node, mode)?;
                }
                sys::stat(dir, &node)?.ino
            }
            NewKind::Staged { bytes, .. } => {
                let from = source.ok_or(Errno::INVAL)?;
                let fd = sys::open(dir, &name, libc::O_RDWR | create, 0o600)?;
                let attr = sys::stat(from, b"")?;
                if *bytes > 0 {
                    sys::copy(from, fd.as_fd(), *bytes)?;
                }
                self.dress(fd.as_fd(), spec, 0o600)?;
                // A truncation takes the capabilities away. So do data and a new owner, which have come already.
                let is_truncated = *bytes < attr.size;
                let refused = sys::copy_xattrs(from, fd.as_fd(), |name| {
                    is_own_attribute(name) || is_truncated && name == b"security.capability"
                });
                match refused {
                    Ok(refused) if refused.is_empty() => {}
                    // ext4 has no space for one that is larger than it takes.
                    Ok(_) | Err(Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG) => {
                        return Err(Errno::OPNOTSUPP);
                    }
                    Err(e) => return Err(e),
                }
                // After attributes of users, which only who may write to the file can set.
                sys::chmod(fd.as_fd(), mode)?;
                sys::set_times(fd.as_fd(), b"", Some(attr.atime), Some(attr.mtime))?;
                // Comes last: what has no label is a part of a copy that nobody was given.
                put_label(&fd)?;
                if *bytes > 0 {
                    self.unsettled.wrote(object);
                }
                sys::stat(fd.as_fd(), b"")?.ino
            }
            NewKind::LinkTo(_) => return Err(Errno::INVAL),
        };
        Ok(Made {
            fresh: Fresh {
                is_open: grant.is_some(),
                ..Fresh::new(object, ino)
            },
            fd: grant,
            spare: None,
        })
    }

    /// The mode to create with. Except for root, only a file that its owner can write can be labelled.
    fn first_mode(&self, mode: u32) -> u32 {
        if self.root { mode } else { mode | 0o200 }
    }

    fn chown(&self, dir: BorrowedFd<'_>, name: &[u8], uid: u32, gid: u32) -> Sys<()> {
        match sys::chown(dir, name, uid, gid) {
            // An unprivileged bridge serves only its own user. A group that the kernel does
            // not grant stays as it was.
            Err(Errno::PERM) if !self.root => Ok(()),
            other => other,
        }
    }

    /// Sets owner and mode, with as few calls as possible.
    fn dress(&self, fd: BorrowedFd<'_>, spec: &NewObject, mode: u32) -> Sys<()> {
        let chown = (spec.uid, spec.gid) != self.my_ids;
        if chown {
            self.chown(fd, b"", spec.uid, spec.gid)?;
        }
        // `chown` clears the set-user-id bits.
        if self.first_mode(mode) != mode || chown && mode & 0o6000 != 0 {
            sys::chmod(fd, mode)?;
        }
        Ok(())
    }

    /// Attributes of an object as a program sees them. A directory has its latest time, even if that is
    /// not on disk yet.
    ///
    /// # Errors
    /// ENOENT if the object is gone.
    pub fn attr(&self, object: ObjectName) -> Sys<Attr> {
        let folder = self.folder(object, false)?;
        let node = shape(object) == Shape::Node;
        let mut attr = sys::stat(folder.as_fd(), &Backing::name(object, node))?;
        if shape(object) == Shape::Dir
            && self.touched_count.load(Ordering::Relaxed) > 0
            && let Some(&at) = self.touched.lock().get(&object)
        {
            attr.mtime = attr.mtime.max(at);
            attr.ctime = attr.ctime.max(at);
        }
        Ok(attr)
    }

    /// Text of a symbolic link, which its backing file holds.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn link_text(&self, object: ObjectName) -> Sys<Vec<u8>> {
        use std::io::Read;
        let fd = self.open_file(object, libc::O_RDONLY)?;
        let mut text = Vec::new();
        std::fs::File::from(fd)
            .take(libc::PATH_MAX as u64)
            .read_to_end(&mut text)
            .map_err(errno_of)?;
        Ok(text)
    }

    /// Opens the file, directory or node that programs see.
    ///
    /// # Errors
    /// ENOENT if the object is gone; else those of the file system.
    pub fn open_object(&self, object: ObjectName, flags: i32) -> Sys<OwnedFd> {
        if shape(object) == Shape::Dir {
            self.flush_touch(object);
        }
        let folder = self.folder(object, false)?;
        let node = shape(object) == Shape::Node;
        sys::open(folder.as_fd(), &Backing::name(object, node), flags, 0)
    }

    /// Opens an object by `O_PATH`, for a look that changes nothing: times that wait to be written go on waiting.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open_to_look(&self, object: ObjectName) -> Sys<OwnedFd> {
        let folder = self.folder(object, false)?;
        let name = Backing::name(object, shape(object) == Shape::Node);
        sys::open(folder.as_fd(), &name, libc::O_PATH | libc::O_NOFOLLOW, 0)
    }

    /// Opens the file that carries the label.
    fn open_file(&self, object: ObjectName, flags: i32) -> Sys<OwnedFd> {
        let folder = self.folder(object, false)?;
        sys::open(
            folder.as_fd(),
            &Backing::name(object, false),
            flags | libc::O_NOFOLLOW,
            0,
        )
    }

    /// Unlinks an object. It is no error if the object is gone already.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove(&self, object: ObjectName) -> Sys<()> {
        let gone = |r: Sys<()>| match r {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        };
        let folder = match self.folder(object, false) {
            Ok(f) => f,
            Err(e) => return gone(Err(e)),
        };
        let is_dir = shape(object) == Shape::Dir;
        if is_dir && self.touched_count.load(Ordering::Relaxed) > 0 {
            let mut touched = self.touched.lock();
            touched.remove(&object);
            self.touched_count.store(touched.len(), Ordering::Relaxed);
        }
        if object.link != 0 {
            self.drop_link_label(object)?;
        }
        if shape(object) == Shape::Node {
            gone(sys::unlink(
                folder.as_fd(),
                &Backing::name(object, true),
                false,
            ))?;
        }
        gone(sys::unlink(
            folder.as_fd(),
            &Backing::name(object, false),
            is_dir,
        ))?;
        self.drop_label_beside(object)
    }

    /// The kind of the local file system, as `statfs.f_type`.
    ///
    /// # Errors
    /// Those of `statfs`.
    pub fn fs_type(&self) -> Sys<i64> {
        sys::fs_type(self.instance.as_fd())
    }

    /// Size of the local file system, and the space free on it, in bytes.
    ///
    /// # Errors
    /// Those of `statfs`.
    pub fn space(&self) -> Sys<(u64, u64)> {
        sys::fs_space(self.instance.as_fd())
    }
}
