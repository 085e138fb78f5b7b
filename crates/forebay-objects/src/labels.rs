//! Reads and writes the label of each object. A label is an extended attribute. If the inode has no
//! room for it (hundreds of hard links, very long paths), it is a file in `label/`.

use super::{Objects, Shape, lent, parse_name, shape};
use crate::label::{self, BadLabel};
use forebay_core::facts::{Attr, Label};
use forebay_core::record::ObjectName;
use forebay_sys::{self as sys, Errno, Sys, errno_of};
use forebay_types::Backing;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const FOLDER: &str = "label";
/// What the names of labels that are being written begin with.
const NEW: &[u8] = b".new-";

/// Why a label can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelError {
    /// A system call failed.
    System(Errno),
    /// It has a format that this program does not know. It may tell the only name of the object, so nobody may take it for none.
    Format(u8),
}

impl LabelError {
    /// The nearest errno.
    pub fn errno(self) -> Errno {
        match self {
            LabelError::System(e) => e,
            LabelError::Format(_) => Errno::OPNOTSUPP,
        }
    }
}

impl From<Errno> for LabelError {
    fn from(e: Errno) -> Self {
        LabelError::System(e)
    }
}

impl fmt::Display for LabelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabelError::System(e) => e.fmt(f),
            LabelError::Format(format) => BadLabel::Format(*format).fmt(f),
        }
    }
}

impl std::error::Error for LabelError {}

/// The objects whose labels are files in `label/`. Usually there is none, and one atomic load tells so.
#[derive(Default)]
pub(super) struct Beside {
    known: Mutex<HashSet<ObjectName>>,
    count: AtomicUsize,
    /// How many have been written: each under a name of its own at first.
    written: AtomicU64,
}

impl Beside {
    fn has(&self, object: ObjectName) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.known.lock().contains(&object)
    }
    fn change(&self, change: impl FnOnce(&mut HashSet<ObjectName>)) {
        let mut known = self.known.lock();
        change(&mut known);
        self.count.store(known.len(), Ordering::Release);
    }
}

fn within(name: &[u8]) -> Vec<u8> {
    [FOLDER.as_bytes(), b"/", name].concat()
}

fn path_beside(object: ObjectName) -> Vec<u8> {
    within(&Backing::name(object, false))
}

impl Objects {
    /// Reads from the disk which labels are files in `label/`.
    pub(super) fn find_labels_beside(&self) -> Sys<()> {
        sys::make_dir(self.instance.as_fd(), FOLDER.as_bytes())?;
        let names = self.list(FOLDER)?;
        // An earlier life was writing them when it ended, and the labels before them hold.
        for name in names.iter().filter(|name| name.starts_with(NEW)) {
            sys::unlink(self.instance.as_fd(), &within(name), false)?;
        }
        let objects = names.iter().filter_map(|name| parse_name(name));
        self.beside
            .change(|known| known.extend(objects.map(|(object, _)| object)));
        Ok(())
    }

    /// Objects whose labels are files in `label/`.
    pub fn labels_beside(&self) -> Vec<ObjectName> {
        self.beside.known.lock().iter().copied().collect()
    }

    /// Puts an encoded label on an object that `fd` leads to.
    pub(super) fn put_label(
        &self,
        fd: BorrowedFd<'_>,
        object: ObjectName,
        label: &[u8],
    ) -> Sys<()> {
        let name = self.labels.attribute_of_link(object.link);
        let put = self.lending(fd, object, 0o200, || sys::set_xattr(fd, &name, label));
        match put {
            Ok(()) => self.drop_label_beside(object),
            // The inode has no room. If the disk is full, the file will fail, too.
            Err(Errno::NOSPC | Errno::TOOBIG | Errno::RANGE) => {
                self.put_label_beside(object, label)?;
                self.beside.change(|known| {
                    known.insert(object);
                });
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Writes the file that holds a label. At every moment there is the whole new label or what was there before.
    fn put_label_beside(&self, object: ObjectName, label: &[u8]) -> Sys<()> {
        let dir = self.instance.as_fd();
        let number = self.beside.written.fetch_add(1, Ordering::Relaxed);
        let new = within(&[NEW, number.to_string().as_bytes()].concat());
        let write = || {
            use std::io::Write;
            let mut file = std::fs::File::from(sys::create_anew(dir, &new, 0o600)?);
            file.write_all(label).map_err(errno_of)?;
            // This happens rarely, and the contents of a file keep no order.
            file.sync_all().map_err(errno_of)?;
            sys::rename(dir, &new, dir, &path_beside(object))
        };
        write().inspect_err(|_| {
            // The next start does it otherwise.
            let _ = sys::unlink(dir, &new, false);
        })
    }

    /// Removes the file that holds a label, if there is one.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn drop_label_beside(&self, object: ObjectName) -> Sys<()> {
        if !self.beside.has(object) {
            return Ok(());
        }
        // Who reads the label from now on looks at the inode.
        self.beside.change(|known| {
            known.remove(&object);
        });
        match sys::unlink(self.instance.as_fd(), &path_beside(object), false) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => {
                self.beside.change(|known| {
                    known.insert(object);
                });
                Err(e)
            }
        }
    }

    /// Removes the label of a further link from the inode, which other links keep alive.
    pub(super) fn drop_link_label(&self, link: ObjectName) -> Sys<()> {
        let fd = match self.open_label(link) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(()),
            Err(e) => return Err(e),
        };
        let name = self.labels.attribute_of_link(link.link);
        let drop = || sys::remove_xattr(fd.as_fd(), &name);
        match self.lending(fd.as_fd(), link, 0o200, drop) {
            Err(Errno::NODATA) => Ok(()),
            other => other,
        }
    }

    /// Replaces the label of an object.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_label(&self, object: ObjectName, label: &Label) -> Sys<()> {
        let fd = self.open_label(object)?;
        self.put_label(fd.as_fd(), object, &label::encode(label))
    }

    /// The label of an object; `None` if it has none or a damaged one.
    ///
    /// # Errors
    /// Those of the file system; a label of a later format.
    pub fn read_label(&self, object: ObjectName) -> Result<Option<Label>, LabelError> {
        match self.label_bytes(object)?.map(|bytes| label::decode(&bytes)) {
            Some(Ok(label)) => Ok(Some(label)),
            Some(Err(BadLabel::Format(format))) => Err(LabelError::Format(format)),
            Some(Err(BadLabel::Damaged)) | None => Ok(None),
        }
    }

    fn label_bytes(&self, object: ObjectName) -> Sys<Option<Vec<u8>>> {
        if self.beside.has(object) {
            use std::io::Read;
            let path = path_beside(object);
            let file = sys::open(self.instance.as_fd(), &path, libc::O_RDONLY, 0)?;
            let mut bytes = Vec::new();
            std::fs::File::from(file)
                .read_to_end(&mut bytes)
                .map_err(errno_of)?;
            return Ok(Some(bytes));
        }
        let fd = self.open_label(object)?;
        let name = self.labels.attribute_of_link(object.link);
        self.lending(fd.as_fd(), object, 0o400, || {
            sys::get_xattr(fd.as_fd(), &name)
        })
    }

    /// Runs `work`, for which the owner may have removed the owner's own permission `bits`. If
    /// so, sets them for the moment: the kernel checks them at each access to an attribute.
    fn lending<T>(
        &self,
        fd: BorrowedFd<'_>,
        object: ObjectName,
        bits: u32,
        work: impl Fn() -> Sys<T>,
    ) -> Sys<T> {
        match work() {
            Err(Errno::ACCESS | Errno::PERM) if !self.root => {
                self.lend(fd, object, bits, |_| work())?
            }
            other => other,
        }
    }

    /// Runs `work` while an object, to which `fd` leads, gives its owner the permissions `bits` as well. `work` gets the
    /// attributes as they were before. It must not lend a permission itself, nor wait for a thread that does.
    ///
    /// # Errors
    /// Those of the file system: `work` did not run, or the object may have the permissions until the next start.
    pub fn lend<T>(
        &self,
        fd: BorrowedFd<'_>,
        object: ObjectName,
        bits: u32,
        work: impl FnOnce(Attr) -> T,
    ) -> Sys<T> {
        let path = match shape(object) {
            Shape::Dir => Backing::dir(object).to_vec(),
            Shape::File | Shape::Node => Backing::file(object).to_vec(),
        };
        lent::lend(self.instance.as_fd(), &path, fd, bits, work)
    }

    /// A descriptor of the file or directory that carries the label, as long as its owner may read it. Opening it changes
    /// nothing of it.
    pub(super) fn open_as_it_is(&self, object: ObjectName) -> Sys<OwnedFd> {
        let flags = libc::O_RDONLY
            | libc::O_NONBLOCK
            | if shape(object) == Shape::Dir {
                libc::O_DIRECTORY
            } else {
                0
            };
        self.open_file(object, flags)
    }

    /// A descriptor for attributes, also of an object that its owner can't read: that gives it another change time.
    pub(super) fn open_label(&self, object: ObjectName) -> Sys<OwnedFd> {
        match self.open_as_it_is(object) {
            Err(Errno::ACCESS) if !self.root => {
                let folder = self.folder(object, false)?;
                let name = Backing::name(object, false);
                let by_path = libc::O_PATH | libc::O_NOFOLLOW;
                let path = sys::open(folder.as_fd(), &name, by_path, 0)?;
                self.lend(path.as_fd(), object, 0o400, |_| self.open_as_it_is(object))?
            }
            other => other,
        }
    }
}
