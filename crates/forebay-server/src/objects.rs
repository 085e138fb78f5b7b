//! Backing objects: the files, directories and nodes on local storage that hold
//! what programs write.
//!
//! `obj/<folder>/<id>` is a file, `<id>.node` beside it a FIFO, socket or device,
//! `<id>.<k>` a further hard link; `dir/<folder>/<id>/` is a directory, always
//! empty. The lowest two bits of an object's sequence number say which of these
//! it is, so that an id alone leads to it.

use crate::label;
use crate::limits::{FOLDERS, WATERMARK_EVERY};
use crate::lower::Lower;
use crate::sys::{self, Errno, Sys};
use forebay_core::facts::{Attr, Fresh, Label, NewKind, NewObject, Timestamp};
use forebay_core::record::{BridgeId, ObjectId, ObjectName};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What an object is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A regular file; also a symbolic link's text and a marker.
    File,
    /// An empty directory.
    Dir,
    /// A FIFO, socket or device beside a file that carries the label.
    Node,
}

const SHAPE_BITS: u32 = 2;
/// Sequence numbers per folder, as a power of two.
const FOLDER_BITS: u32 = 12;

/// The shape that an id tells.
pub fn shape(object: ObjectName) -> Shape {
    match object.oid.seq() & 3 {
        0 => Shape::File,
        1 => Shape::Dir,
        _ => Shape::Node,
    }
}

/// The folder that a sequence number belongs to.
pub fn folder_of(seq: u64) -> u64 {
    seq >> FOLDER_BITS
}

/// The name of an object within its folder, without allocation.
struct Name {
    bytes: [u8; 48],
    len: usize,
}

impl Name {
    fn new(object: ObjectName, node: bool) -> Self {
        let mut name = Name {
            bytes: [0; 48],
            len: 0,
        };
        for byte in object.oid.0.to_be_bytes() {
            name.hex(byte >> 4);
            name.hex(byte & 15);
        }
        if object.link != 0 {
            name.push(b'.');
            let digits = (35 - object.link.leading_zeros()) / 4;
            for i in (0..digits).rev() {
                name.hex((object.link >> (4 * i)) as u8 & 15);
            }
        }
        if node {
            for b in *b".node" {
                name.push(b);
            }
        }
        name
    }
    fn push(&mut self, b: u8) {
        self.bytes[self.len] = b;
        self.len += 1;
    }
    fn hex(&mut self, digit: u8) {
        self.push(b"0123456789abcdef"[usize::from(digit & 15)]);
    }
}

impl std::ops::Deref for Name {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Reads the name of a backing file: the object, and whether it is its node.
pub fn parse_name(name: &[u8]) -> Option<(ObjectName, bool)> {
    let text = std::str::from_utf8(name).ok()?;
    let (text, node) = match text.strip_suffix(".node") {
        Some(t) => (t, true),
        None => (text, false),
    };
    let (id, link) = text.split_once('.').unwrap_or((text, "0"));
    let object = ObjectName {
        oid: ObjectId(u128::from_str_radix(id, 16).ok()?),
        link: u32::from_str_radix(link, 16).ok()?,
    };
    // Only the spelling that we write ourselves.
    (*Name::new(object, node) == *name).then_some((object, node))
}

/// A new object, and its open descriptor if one was asked for.
#[derive(Debug)]
pub struct Made {
    /// Identity and inode number.
    pub fresh: Fresh,
    /// Descriptor of the file with the flags of the request, if it is a plain new file.
    pub fd: Option<OwnedFd>,
}

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
    unsettled: Mutex<BTreeSet<u64>>,
    touched: Mutex<HashMap<ObjectName, Timestamp>>,
    touched_count: AtomicUsize,
    root: bool,
    my_ids: (u32, u32),
}

fn folder_path(folder: Folder) -> String {
    let kind = if folder.0 == Shape::Dir { "dir" } else { "obj" };
    format!("{kind}/{:x}", folder.1)
}

impl Objects {
    /// The objects in an instance directory; new ones get sequence numbers from folder `first_folder` on.
    ///
    /// # Errors
    /// The directories can't be opened or made.
    pub fn open(instance: &Path, me: BridgeId, epoch: u32, first_folder: u64) -> Sys<Self> {
        let fd = sys::open_path(instance, libc::O_PATH | libc::O_DIRECTORY)?;
        for kind in [&b"obj"[..], b"dir"] {
            match sys::mkdir(fd.as_fd(), kind, 0o700) {
                Ok(()) | Err(Errno(libc::EEXIST)) => {}
                Err(e) => return Err(e),
            }
        }
        let my_ids = sys::my_ids();
        Ok(Objects {
            instance: fd,
            folders: RwLock::default(),
            me,
            epoch,
            next: AtomicU64::new(first_folder << (FOLDER_BITS - SHAPE_BITS)),
            unsettled: Mutex::default(),
            touched: Mutex::default(),
            touched_count: AtomicUsize::new(0),
            root: my_ids.0 == 0,
            my_ids,
        })
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
            match sys::mkdir(self.instance.as_fd(), path.as_bytes(), 0o700) {
                Ok(()) | Err(Errno(libc::EEXIST)) => {}
                Err(e) => return Err(e),
            }
        }
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let fd = Arc::new(sys::open(self.instance.as_fd(), path.as_bytes(), flags, 0)?);
        let mut folders = self.folders.write();
        if folders.len() >= FOLDERS {
            // They are cheap to open again; which one goes hardly matters.
            if let Some(&any) = folders.keys().find(|&&k| k != key) {
                folders.remove(&any);
            }
        }
        folders.insert(key, fd.clone());
        Ok(fd)
    }

    fn next_id(&self, shape: Shape) -> ObjectId {
        let mut unsettled = self.unsettled.lock();
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let seq = count << SHAPE_BITS | shape as u64;
        unsettled.insert(seq);
        ObjectId::new(self.me, self.epoch, seq)
    }

    /// Whatever has a sequence number below this is named by a commit, or removed.
    pub fn settled(&self) -> u64 {
        let unsettled = self.unsettled.lock();
        let next = self.next.load(Ordering::Relaxed) << SHAPE_BITS;
        unsettled.first().copied().unwrap_or(next)
    }

    /// Objects made so far, in units that advance by one with each.
    pub fn count(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Is it time to write the watermark down, given the count when it was last written?
    pub fn watermark_due(&self, last: u64) -> bool {
        self.count() >= last + WATERMARK_EVERY
    }

    /// A commit has named the object, or it has been removed.
    pub fn settle(&self, object: ObjectName) {
        if object.link == 0 {
            self.unsettled.lock().remove(&object.oid.seq());
        }
    }

    /// A name for a further link to an object.
    pub fn new_link(&self, of: ObjectName) -> ObjectName {
        // Never used twice, so that a mark that outlived its link never meets another one.
        let link = loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed) as u32;
            if n != 0 {
                break n;
            }
        };
        ObjectName { oid: of.oid, link }
    }

    /// Makes a further link, labelled, under a name from [`Objects::new_link`].
    ///
    /// # Errors
    /// Of the file system.
    pub fn make_link(&self, old: ObjectName, new: ObjectName, spec: &NewObject) -> Sys<Fresh> {
        let folder = self.folder(old, false)?;
        let dir = folder.as_fd();
        sys::link(dir, &Name::new(old, false), &Name::new(new, false))?;
        let labelled = self.write_label(new, &spec.label);
        if shape(old) == Shape::Node && labelled.is_ok() {
            sys::link(dir, &Name::new(old, true), &Name::new(new, true))?;
        }
        labelled?;
        Ok(Fresh {
            object: new,
            ino: self.attr(new)?.ino,
        })
    }

    /// Makes a new object. For a plain file `open` gives the flags of a descriptor that is wanted.
    ///
    /// # Errors
    /// Of the file system; nothing is left behind then.
    pub fn make(&self, spec: &NewObject, open: Option<i32>, lower: &Lower) -> Sys<Made> {
        let shape = match spec.what {
            NewKind::Dir => Shape::Dir,
            NewKind::Node(_) => Shape::Node,
            _ => Shape::File,
        };
        let object = ObjectName {
            oid: self.next_id(shape),
            link: 0,
        };
        let made = self.make_as(object, spec, open, lower);
        if made.is_err() {
            // Whatever part of it exists.
            let _ = self.remove(object);
            self.settle(object);
        }
        made
    }

    fn make_as(
        &self,
        object: ObjectName,
        spec: &NewObject,
        open: Option<i32>,
        lower: &Lower,
    ) -> Sys<Made> {
        let folder = self.folder(object, true)?;
        let dir = folder.as_fd();
        let name = Name::new(object, false);
        let label = label::encode(&spec.label);
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
                sys::set_xattr(fd.as_fd(), label::XATTR, &label)?;
                self.dress(fd.as_fd(), spec, mode)?;
                let ino = sys::stat(fd.as_fd(), b"")?.ino;
                grant = wanted.then_some(fd);
                ino
            }
            NewKind::Marker | NewKind::Symlink(_) => {
                let fd = sys::open(dir, &name, libc::O_WRONLY | create, 0o600)?;
                sys::set_xattr(fd.as_fd(), label::XATTR, &label)?;
                self.dress(fd.as_fd(), spec, 0o600)?;
                let ino = sys::stat(fd.as_fd(), b"")?.ino;
                if let NewKind::Symlink(text) = &spec.what {
                    use std::io::Write;
                    std::fs::File::from(fd).write_all(text)?;
                }
                ino
            }
            NewKind::Dir => {
                sys::mkdir(dir, &name, self.first_mode(mode) | 0o700)?;
                let fd = sys::open(dir, &name, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
                sys::set_xattr(fd.as_fd(), label::XATTR, &label)?;
                self.dress(fd.as_fd(), spec, mode)?;
                let attr = sys::stat(fd.as_fd(), b"")?;
                if attr.mode & 0o7777 != mode {
                    sys::chmod(fd.as_fd(), mode)?;
                }
                attr.ino
            }
            NewKind::Node(dev) => {
                let fd = sys::open(dir, &name, libc::O_WRONLY | create, 0o600)?;
                sys::set_xattr(fd.as_fd(), label::XATTR, &label)?;
                let node = Name::new(object, true);
                sys::mknod(dir, &node, spec.mode, *dev)?;
                if (spec.uid, spec.gid) != self.my_ids {
                    self.chown(dir, &node, spec.uid, spec.gid)?;
                    sys::chmod_at(dir, &node, mode)?;
                }
                sys::stat(dir, &node)?.ino
            }
            NewKind::Staged { lower: path, bytes } => {
                let fd = sys::open(dir, &name, libc::O_RDWR | create, 0o600)?;
                sys::set_xattr(fd.as_fd(), label::XATTR, &label)?;
                let from = lower.open(path, libc::O_RDONLY | libc::O_NONBLOCK)?;
                let attr = sys::stat(from.as_fd(), b"")?;
                if attr.mode & libc::S_IFMT != libc::S_IFREG {
                    return Err(Errno(libc::ESTALE));
                }
                if *bytes > 0 {
                    sys::copy(from.as_fd(), fd.as_fd(), *bytes)?;
                }
                self.dress(fd.as_fd(), spec, mode)?;
                sys::chmod(fd.as_fd(), mode)?;
                sys::set_times(fd.as_fd(), b"", Some(attr.atime), Some(attr.mtime))?;
                sys::stat(fd.as_fd(), b"")?.ino
            }
            NewKind::LinkTo(_) => return Err(Errno(libc::EINVAL)),
        };
        Ok(Made {
            fresh: Fresh { object, ino },
            fd: grant,
        })
    }

    /// The mode to create with: only root may label what its owner can't write.
    fn first_mode(&self, mode: u32) -> u32 {
        if self.root { mode } else { mode | 0o200 }
    }

    fn chown(&self, dir: BorrowedFd<'_>, name: &[u8], uid: u32, gid: u32) -> Sys<()> {
        match sys::chown(dir, name, uid, gid) {
            // Without privilege the owner is the only user there is, and a group that
            // the kernel does not grant stays what it was.
            Err(Errno(libc::EPERM)) if !self.root => Ok(()),
            other => other,
        }
    }

    /// Owner and mode as asked, with as few calls as will do.
    fn dress(&self, fd: BorrowedFd<'_>, spec: &NewObject, mode: u32) -> Sys<()> {
        let chown = (spec.uid, spec.gid) != self.my_ids;
        if chown {
            self.chown(fd, b"", spec.uid, spec.gid)?;
        }
        // A change of the owner takes set-user-id bits away.
        if self.first_mode(mode) != mode || chown && mode & 0o6000 != 0 {
            sys::chmod(fd, mode)?;
        }
        Ok(())
    }

    /// Attributes of an object as a program sees them (times of a directory
    /// include what is not on disk yet).
    ///
    /// # Errors
    /// ENOENT if it is gone.
    pub fn attr(&self, object: ObjectName) -> Sys<Attr> {
        let folder = self.folder(object, false)?;
        let node = shape(object) == Shape::Node;
        let mut attr = sys::stat(folder.as_fd(), &Name::new(object, node))?;
        if shape(object) == Shape::Dir
            && self.touched_count.load(Ordering::Relaxed) > 0
            && let Some(&at) = self.touched.lock().get(&object)
        {
            attr.mtime = attr.mtime.max(at);
            attr.ctime = attr.ctime.max(at);
        }
        Ok(attr)
    }

    /// What a backing symbolic link holds.
    ///
    /// # Errors
    /// Of the file system.
    pub fn link_text(&self, object: ObjectName) -> Sys<Vec<u8>> {
        use std::io::Read;
        let fd = self.open_file(object, libc::O_RDONLY)?;
        let mut text = Vec::new();
        std::fs::File::from(fd)
            .take(libc::PATH_MAX as u64)
            .read_to_end(&mut text)?;
        Ok(text)
    }

    /// Opens what programs see of an object.
    ///
    /// # Errors
    /// ENOENT if it is gone; else of the file system.
    pub fn open_object(&self, object: ObjectName, flags: i32) -> Sys<OwnedFd> {
        if shape(object) == Shape::Dir {
            self.flush_touch(object);
        }
        let folder = self.folder(object, false)?;
        let node = shape(object) == Shape::Node;
        sys::open(folder.as_fd(), &Name::new(object, node), flags, 0)
    }

    /// Opens the file that carries the label.
    fn open_file(&self, object: ObjectName, flags: i32) -> Sys<OwnedFd> {
        let folder = self.folder(object, false)?;
        sys::open(
            folder.as_fd(),
            &Name::new(object, false),
            flags | libc::O_NOFOLLOW,
            0,
        )
    }

    /// Unlinks an object; one that is gone already is no error.
    ///
    /// # Errors
    /// Of the file system.
    pub fn remove(&self, object: ObjectName) -> Sys<()> {
        let gone = |r: Sys<()>| match r {
            Err(Errno(libc::ENOENT)) => Ok(()),
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
        if shape(object) == Shape::Node {
            gone(sys::unlink(folder.as_fd(), &Name::new(object, true), false))?;
        }
        gone(sys::unlink(
            folder.as_fd(),
            &Name::new(object, false),
            is_dir,
        ))
    }

    /// Writes the label of an object anew.
    ///
    /// # Errors
    /// Of the file system.
    pub fn write_label(&self, object: ObjectName, label: &Label) -> Sys<()> {
        let fd = self.open_label(object)?;
        let name = label::xattr_name(object.link);
        let value = label::encode(label);
        self.lending(fd.as_fd(), 0o200, || {
            sys::set_xattr(fd.as_fd(), &name, &value)
        })
    }

    /// The label of an object; `None` if it has none or a damaged one.
    ///
    /// # Errors
    /// Of the file system.
    pub fn read_label(&self, object: ObjectName) -> Sys<Option<Label>> {
        let fd = self.open_label(object)?;
        let name = label::xattr_name(object.link);
        let bytes = self.lending(fd.as_fd(), 0o400, || sys::get_xattr(fd.as_fd(), &name))?;
        Ok(bytes.and_then(|b| label::decode(&b)))
    }

    /// Does something for which the owner may have taken his own permission away: then he
    /// gets it back for the moment. The kernel asks for it at each access to an attribute.
    fn lending<T>(&self, fd: BorrowedFd<'_>, bits: u32, work: impl Fn() -> Sys<T>) -> Sys<T> {
        match work() {
            Err(Errno(libc::EACCES | libc::EPERM)) if !self.root => {
                let mode = sys::stat(fd, b"")?.mode & 0o7777;
                sys::chmod(fd, mode | bits)?;
                let outcome = work();
                sys::chmod(fd, mode)?;
                outcome
            }
            other => other,
        }
    }

    /// A descriptor for attributes also of what its owner can't read.
    fn open_label(&self, object: ObjectName) -> Sys<OwnedFd> {
        let flags = libc::O_RDONLY
            | libc::O_NONBLOCK
            | if shape(object) == Shape::Dir {
                libc::O_DIRECTORY
            } else {
                0
            };
        match self.open_file(object, flags) {
            Err(Errno(libc::EACCES)) if !self.root => {
                let folder = self.folder(object, false)?;
                let name = Name::new(object, false);
                let mode = sys::stat(folder.as_fd(), &name)?.mode & 0o7777;
                sys::chmod_at(folder.as_fd(), &name, mode | 0o400)?;
                let fd = self.open_file(object, flags);
                sys::chmod_at(folder.as_fd(), &name, mode)?;
                fd
            }
            other => other,
        }
    }

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
        let at = {
            let mut touched = self.touched.lock();
            let at = touched.remove(&object);
            self.touched_count.store(touched.len(), Ordering::Relaxed);
            at
        };
        if let Some(at) = at {
            self.write_touch(object, at);
        }
    }

    /// Writes the times of all directories that wait for it.
    pub fn flush_touches(&self) {
        let all = {
            let mut touched = self.touched.lock();
            self.touched_count.store(0, Ordering::Relaxed);
            std::mem::take(&mut *touched)
        };
        for (object, at) in all {
            self.write_touch(object, at);
        }
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

    /// Bytes in all and bytes free on the local file system.
    ///
    /// # Errors
    /// Of `statfs`.
    pub fn space(&self) -> Sys<(u64, u64)> {
        sys::fs_space(self.instance.as_fd())
    }

    /// Names of all backing files and directories in folders from `first` on. What has no
    /// name of ours comes as `Err` with its path in the instance directory.
    ///
    /// # Errors
    /// Of the file system.
    #[allow(clippy::type_complexity)]
    pub fn scan(&self, first: u64) -> Sys<Vec<Result<(ObjectName, bool), String>>> {
        let mut found = Vec::new();
        for kind in ["obj", "dir"] {
            for folder in self.list(kind)? {
                let text = String::from_utf8_lossy(&folder).into_owned();
                let path = format!("{kind}/{text}");
                match u64::from_str_radix(&text, 16) {
                    Ok(n) if n < first => continue,
                    Ok(_) => {}
                    Err(_) => {
                        found.push(Err(path));
                        continue;
                    }
                }
                for name in self.list(&path)? {
                    found.push(match parse_name(&name) {
                        Some((object, node))
                            if (shape(object) == Shape::Dir) == (kind == "dir") =>
                        {
                            Ok((object, node))
                        }
                        _ => Err(format!("{path}/{}", name.escape_ascii())),
                    });
                }
            }
        }
        Ok(found)
    }

    /// The greatest folder number in use.
    ///
    /// # Errors
    /// Of the file system.
    pub fn last_folder(instance: &Path) -> Sys<Option<u64>> {
        let mut last = None;
        for kind in ["obj", "dir"] {
            let entries = match std::fs::read_dir(instance.join(kind)) {
                Ok(entries) => entries,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e.into()),
            };
            for entry in entries {
                let name = entry?.file_name();
                if let Some(n) = name.to_str().and_then(|s| u64::from_str_radix(s, 16).ok()) {
                    last = last.max(Some(n));
                }
            }
        }
        Ok(last)
    }

    /// Removes folders that hold nothing.
    pub fn sweep(&self) {
        for kind in ["obj", "dir"] {
            for folder in self.list(kind).unwrap_or_default() {
                let path = format!("{kind}/{}", String::from_utf8_lossy(&folder));
                // One that is not empty stays.
                let _ = sys::unlink(self.instance.as_fd(), path.as_bytes(), true);
            }
        }
    }

    fn list(&self, path: &str) -> Sys<Vec<Vec<u8>>> {
        let fd = sys::open(
            self.instance.as_fd(),
            path.as_bytes(),
            libc::O_RDONLY | libc::O_DIRECTORY,
            0,
        )?;
        let mut entries = Vec::new();
        while sys::read_dir(fd.as_fd(), &mut entries)? {}
        Ok(entries.into_iter().map(|e| e.name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backing_names_lead_back_to_their_objects() {
        for (seq, link) in [(0, 0), (5, 1), (u64::MAX, u32::MAX), (1 << 40, 0x10)] {
            let object = ObjectName {
                oid: ObjectId::new(BridgeId(7), 2, seq),
                link,
            };
            for node in [false, true] {
                let name = Name::new(object, node);
                assert_eq!(parse_name(&name), Some((object, node)));
            }
        }
        for bad in ["", "x", "00.1", "0.0.0", "lost+found"] {
            assert_eq!(parse_name(bad.as_bytes()), None);
        }
    }
}
