//! What a recovery can't give a name and must not delete: files in `quarantine/`, beside a text that tells their path.
//!
//! Only a recovery adds to the folder. A file in it has no name in the tables, so that it may be copied out or removed
//! whether a bridge is running or not. The texts are bytes from a disk that has lost power: nothing here trusts them.

use super::{Objects, Shape, folder_path, lent, parse_name, shape};
use crate::folder_of;
use forebay_core::facts::{Attr, Timestamp};
use forebay_core::path::TreePath;
use forebay_core::record::ObjectName;
use forebay_core::repair;
use forebay_sys::{self as sys, Errno, Openers, Sys, Xattr, errno_of};
use forebay_types::{Backing, MAX_PATH_BYTES, is_own_attribute};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

const FOLDER: &str = "quarantine";
/// Behind the name of the file: the text with its path.
const PATH: &[u8] = b".path";

/// One file in quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withheld {
    /// The object that it was. Its file is [`withheld_as`] in the quarantine folder.
    pub object: ObjectName,
    /// Where in the buffer it was, as its label told. `None` if the text that says so is missing or damaged.
    pub path: Option<TreePath>,
    /// Its length.
    pub bytes: u64,
    /// Last change of its data.
    pub mtime: Timestamp,
}

impl Withheld {
    /// The path that it had, or the one that stands for a lost path.
    pub fn path_or_lost(&self) -> TreePath {
        self.path
            .clone()
            .unwrap_or_else(|| repair::lost(self.object))
    }
}

/// Why a file could not be copied out of the quarantine, or removed from it. It is where it was then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// What was tried.
    pub operation: &'static str,
    /// What the kernel said.
    pub errno: Errno,
}

/// Gives a failure its operation.
trait During<T> {
    fn during(self, operation: &'static str) -> Result<T, Refused>;
}

impl<T> During<T> for Sys<T> {
    fn during(self, operation: &'static str) -> Result<T, Refused> {
        self.map_err(|errno| Refused { operation, errno })
    }
}

/// The name of a file in quarantine, which is also the id that people use.
pub fn withheld_as(object: ObjectName) -> String {
    Backing::name(object, false).escape_ascii().to_string()
}

fn path_name(object: ObjectName) -> Vec<u8> {
    [&Backing::name(object, false)[..], PATH].concat()
}

/// The quarantine folder of an instance.
pub struct Quarantine {
    dir: OwnedFd,
}

impl Quarantine {
    /// Opens that of an instance directory; `None` if no recovery has ever put anything into it.
    ///
    /// # Errors
    /// Those of the open.
    pub fn open(instance: &Path) -> Sys<Option<Self>> {
        let instance = sys::open_path(instance, libc::O_PATH | libc::O_DIRECTORY)?;
        Quarantine::open_at(instance.as_fd())
    }

    fn open_at(instance: BorrowedFd<'_>) -> Sys<Option<Self>> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        match sys::open(instance, FOLDER.as_bytes(), flags, 0) {
            Ok(dir) => Ok(Some(Quarantine { dir })),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Where the files of an instance are.
    pub fn path_in(instance: &Path) -> std::path::PathBuf {
        instance.join(FOLDER)
    }

    /// Keeps out others that take files out or remove them, as long as this value lives. A recovery only adds, and does not ask.
    ///
    /// # Errors
    /// EWOULDBLOCK: another process does so just now. Those of giving back a mode that somebody who was killed had lent.
    pub fn lock(&self) -> Sys<()> {
        sys::lock_file(self.dir.as_fd())?;
        lent::give_back(self.dir.as_fd())
    }

    /// What is in it, by path.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn list(&self) -> Sys<Vec<Withheld>> {
        // A directory descriptor is read once; the list may be asked for again.
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let dir = sys::open(self.dir.as_fd(), b".", flags, 0)?;
        let mut entries = Vec::new();
        while sys::read_dir(dir.as_fd(), &mut entries)? {}
        let mut found = Vec::new();
        for entry in &entries {
            let Some((object, false)) = parse_name(&entry.name) else {
                continue;
            };
            let attr = match sys::stat(self.dir.as_fd(), &entry.name) {
                Ok(attr) => attr,
                // Somebody has just taken it out.
                Err(Errno::NOENT) => continue,
                Err(e) => return Err(e),
            };
            if attr.is_file() {
                found.push(Withheld {
                    object,
                    path: self.told_path(object),
                    bytes: attr.size,
                    mtime: attr.mtime,
                });
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path).then(a.object.cmp(&b.object)));
        Ok(found)
    }

    /// The path that the text beside a file tells. Whatever is wrong with the text, the file itself counts.
    fn told_path(&self, object: ObjectName) -> Option<TreePath> {
        // It opens no link, and waits for no FIFO.
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let text = sys::open(self.dir.as_fd(), &path_name(object), flags, 0).ok()?;
        let mut path = Vec::new();
        let text = std::fs::File::from(text);
        text.take(MAX_PATH_BYTES as u64 + 1)
            .read_to_end(&mut path)
            .ok()?;
        let is_whole = !path.is_empty() && path.len() <= MAX_PATH_BYTES;
        is_whole.then(|| TreePath::new(path)).flatten()
    }

    /// Copies a file to `name` in `dir`, durably, with its owner, mode, times and extended attributes, and replaces nothing:
    /// EEXIST if something has the name. Returns the names of extended attributes that the file system there does not take.
    /// The file is still in quarantine afterwards.
    ///
    /// # Errors
    /// Those of the file systems, with what was tried; EBUSY if a process has the file open for writing. Nothing is left
    /// under the name then, unless the last step failed, which syncs the directory.
    pub fn copy_out(
        &self,
        object: ObjectName,
        dir: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<Vec<String>, Refused> {
        let (source, attr, xattrs) = self.open_source(object)?;
        if sys::is_in_use(source.as_fd(), Openers::Writers) == Some(true) {
            return Err(Errno::BUSY).during("open in quarantine");
        }
        match sys::stat(dir, name) {
            Ok(_) => return Err(Errno::EXIST).during("create"),
            Err(Errno::NOENT) => {}
            Err(e) => return Err(e).during("look at"),
        }
        let temporary = [b".forebay-taken-", &Backing::name(object, false)[..]].concat();
        let file = sys::create_anew(dir, &temporary, 0o600).during("create")?;
        let outcome = fill(source.as_fd(), file.as_fd(), &attr, &xattrs)
            .and_then(|refused| {
                move_into_place(dir, &temporary, name).during("rename")?;
                Ok(refused)
            })
            .inspect_err(|_| {
                // What failed is told; a part of a copy is of no use.
                let _ = sys::unlink(dir, &temporary, false);
            })?;
        sys::sync_names(dir, || Ok(file)).during("sync directory")?;
        Ok(outcome)
    }

    /// Opens a file for reading, also one that its owner may not read, with the attributes and extended attributes that it has.
    fn open_source(&self, object: ObjectName) -> Result<(OwnedFd, Attr, Vec<Xattr>), Refused> {
        let (dir, name) = (self.dir.as_fd(), Backing::name(object, false));
        let attr = sys::stat(dir, &name).during("look at in quarantine")?;
        if !attr.is_file() {
            return Err(Errno::INVAL).during("open in quarantine");
        }
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let open = || {
            let file = sys::open(dir, &name, flags, 0)?;
            let xattrs = sys::read_xattrs(file.as_fd(), is_own_attribute)?;
            Ok((file, xattrs))
        };
        let opened = match open() {
            Err(Errno::ACCESS) => {
                let by_path = libc::O_PATH | libc::O_NOFOLLOW;
                let path = sys::open(dir, &name, by_path, 0).during("open in quarantine")?;
                lent::lend(dir, &name, path.as_fd(), 0o400, |_| open())
                    .during("chmod in quarantine")?
            }
            opened => opened,
        };
        let (source, xattrs) = opened.during("open in quarantine")?;
        Ok((source, attr, xattrs))
    }

    /// Removes a file and its text for good, durably.
    ///
    /// # Errors
    /// Those of the file system; ENOENT if it is not there.
    pub fn discard(&self, object: ObjectName) -> Result<(), Refused> {
        let dir = self.dir.as_fd();
        sys::unlink(dir, &Backing::name(object, false), false).during("remove from quarantine")?;
        // It goes last, because a file without it is listed all the same. One that stays means nothing: no id comes twice.
        let _ = sys::unlink(dir, &path_name(object), false);
        sys::fsync(dir).during("sync quarantine")
    }
}

/// Contents and attributes of a copy, synced.
fn fill(
    source: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    attr: &Attr,
    xattrs: &[Xattr],
) -> Result<Vec<String>, Refused> {
    let copied = sys::copy(source, file, attr.size).during("copy")?;
    if copied != attr.size {
        return Err(Errno::IO).during("copy");
    }
    let now = sys::stat(file, b"").during("look at the copy")?;
    if (now.uid, now.gid) != (attr.uid, attr.gid) {
        sys::chown(file, b"", attr.uid, attr.gid).during("chown")?;
    }
    let refused = sys::write_xattrs(file, xattrs).during("set extended attributes")?;
    sys::chmod(file, attr.mode & 0o7777).during("chmod")?;
    sys::set_times(file, b"", Some(attr.atime), Some(attr.mtime)).during("set times")?;
    sys::fsync(file).during("sync")?;
    Ok(refused)
}

/// Renames within a directory, and replaces nothing.
fn move_into_place(dir: BorrowedFd<'_>, from: &[u8], to: &[u8]) -> Sys<()> {
    match sys::rename_noreplace(dir, from, dir, to) {
        Err(Errno::INVAL | Errno::NOSYS) => {}
        outcome => return outcome,
    }
    // Lustre and NFS can't promise that of a rename, but a link never replaces anything.
    sys::link(dir, from, dir, to)?;
    sys::unlink(dir, from, false)
}

impl Objects {
    /// Puts a file into quarantine. `path` is where it was in the buffer.
    ///
    /// # Errors
    /// Those of the file system; the object is where it was then.
    pub fn quarantine(&self, object: ObjectName, path: &[u8]) -> Sys<()> {
        assert_eq!(shape(object), Shape::File, "only a file holds data");
        sys::make_dir(self.instance.as_fd(), FOLDER.as_bytes())?;
        let instance = self.instance.as_fd();
        let name = Backing::name(object, false);
        let within = |name: &[u8]| [FOLDER.as_bytes(), b"/", name].concat();
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
        let text = sys::open(instance, &within(&path_name(object)), flags, 0o600)?;
        let mut text = std::fs::File::from(text);
        text.write_all(path).map_err(errno_of)?;
        text.sync_all().map_err(errno_of)?;
        let folder = folder_path((Shape::File, folder_of(object.oid.seq())));
        let file = [folder.as_bytes(), b"/", &name].concat();
        sys::rename(instance, &file, instance, &within(&name))
    }

    /// What is in quarantine.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn withheld(&self) -> Sys<Vec<Withheld>> {
        match Quarantine::open_at(self.instance.as_fd())? {
            Some(quarantine) => quarantine.list(),
            None => Ok(Vec::new()),
        }
    }
}
