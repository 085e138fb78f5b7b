//! The directory on local storage in which a bridge lives, while it holds its lock.

use crate::Error;
use crate::durable;
use crate::format::{self, Found};
use forebay_admin::{BridgeInfo, INFO_FILE, LOCK_FILE};
use forebay_core::root_dir::RootNote;
use forebay_objects::label::LabelsOf;
use forebay_sys as sys;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io, io::Write};

const ROOT_FILE: &str = "root";
/// Which directory that was: [`RootNote`].
const ROOT_NOTE_FILE: &str = "root-dir";
/// The directory of the tables.
pub(crate) const TABLES: &str = "meta";

/// Makes a directory that only its owner may enter, unless it is there and nobody else can change what is in it, and its
/// parents as usual. When this returns
/// their names survive a power loss, whoever made them: one who made the directory may have died before its name was
/// on the disk.
///
/// # Errors
/// The file system says no, or another user has made it.
pub fn make_private(dir: &Path) -> Result<(), Error> {
    let here = |path| {
        if path == Path::new("") {
            Path::new(".")
        } else {
            path
        }
    };
    let parents: Vec<_> = dir.ancestors().skip(1).map(here).collect();
    let missing = parents.iter().take_while(|parent| !parent.exists()).count();
    if let Some(parent) = parents.first() {
        fs::create_dir_all(parent).map_err(|e| Error::io("can't make", parent, e))?;
    }
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => check_private(dir)?,
        Err(e) => return Err(Error::io("can't make", dir, e)),
        Ok(()) => {}
    }
    // The directory that holds it, and those that hold a directory that was made for it.
    for parent in parents.iter().take(missing + 1) {
        let open = |path, flags| sys::open_path(path, flags | libc::O_DIRECTORY);
        open(parent, libc::O_PATH)
            .and_then(|parent| sys::sync_names(parent.as_fd(), || open(dir, libc::O_RDONLY)))
            .map_err(|e| Error::io("can't make durable", parent, e))?;
    }
    Ok(())
}

/// In a directory that everybody may write to, another user can make whatever has a name that can be told in advance.
fn check_private(dir: &Path) -> Result<(), Error> {
    let about = fs::symlink_metadata(dir).map_err(|e| Error::io("can't look at", dir, e))?;
    let (me, owner) = (sys::my_ids().0, about.uid());
    match about.is_dir() && owner == me && about.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(Error::NotPrivate {
            dir: dir.to_owned(),
            owner,
        }),
    }
}

/// See [`Instance::root`].
pub(crate) fn root_of(instance: &Path) -> Option<PathBuf> {
    let bytes = fs::read(instance.join(ROOT_FILE)).ok()?;
    (!bytes.is_empty()).then(|| PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

/// Does something lie in the folders for objects? Every record has an object, so where there is none there is nothing to
/// drain. Changes nothing.
///
/// # Errors
/// The file system says no.
pub(crate) fn holds_objects(instance: &Path) -> io::Result<bool> {
    for kind in ["obj", "dir"] {
        let folders = match fs::read_dir(instance.join(kind)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            folders => folders?,
        };
        for folder in folders {
            if fs::read_dir(folder?.path())?.next().is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// An instance directory that this process alone uses.
pub struct Instance {
    dir: PathBuf,
    found: Found,
    lock: OwnedFd,
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A process that this one is just starting has a copy of the descriptor for a moment.
        sys::unlock_file(self.lock.as_fd());
    }
}

impl Instance {
    /// Makes the directory if need be, locks it, and looks which format the storage in it has.
    ///
    /// # Errors
    /// Another bridge is using it, the storage is of a later program, or the file system says no.
    pub fn take(dir: &Path) -> Result<Self, Error> {
        make_private(dir)?;
        let path = dir.join(LOCK_FILE);
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| Error::io("can't open", &path, e))?;
        let lock = OwnedFd::from(file);
        sys::lock_file(lock.as_fd()).map_err(|e| match e {
            sys::Errno::WOULDBLOCK => Error::InUse {
                instance: dir.to_owned(),
            },
            e => Error::io("can't lock", &path, e),
        })?;
        Ok(Instance {
            dir: dir.to_owned(),
            found: format::look(dir)?,
            lock,
        })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A directory in which whatever is made is for its owner alone, whoever makes it: the bridge has no umask, and RocksDB leaves
    /// modes to that. Where the file system has no access control lists, the modes of the directories keep others out.
    ///
    /// # Errors
    /// The file system says no.
    pub(crate) fn private_dir(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.dir.join(name);
        if !path.exists() {
            make_private(&path)?;
        }
        let dir = sys::open_path(&path, libc::O_RDONLY | libc::O_DIRECTORY)
            .map_err(|e| Error::io("can't open", &path, e))?;
        // An earlier program has left it open to all.
        sys::chmod(dir.as_fd(), 0o700).map_err(|e| Error::io("can't change", &path, e))?;
        // The default list for new entries, as acl(5) and the kernel have it: version 2, then owner, group and others.
        let entry = |tag: u8, rights: u8| [tag, 0, rights, 0, 0xff, 0xff, 0xff, 0xff];
        let entries = [entry(0x01, 7), entry(0x04, 0), entry(0x20, 0)].concat();
        let list = [&[2, 0, 0, 0], &entries[..]].concat();
        let _ = sys::set_xattr(dir.as_fd(), b"system.posix_acl_default", &list);
        Ok(path)
    }

    /// What stays the same as long as the page cache does that holds the storage.
    ///
    /// # Errors
    /// The file system says no.
    pub(crate) fn cache_life(&self) -> Result<[u8; 16], Error> {
        sys::cache_life(self.lock.as_fd()).map_err(|e| Error::io("can't stat", &self.dir, e))
    }

    /// Sees whether the tables are there, before anybody opens them: that would make empty ones. These are right on a new
    /// storage, after a start that was killed before it had made them, and where everything was drained. But tables are
    /// durable before the first object is made, so where there are objects there were tables. Changes nothing.
    ///
    /// # Errors
    /// [`Error::TablesLost`]: they are not there, and objects are. Or the file system says no.
    pub(crate) fn check_tables(&self) -> Result<(), Error> {
        if forebay_tables::are_in(&self.dir.join(TABLES)) {
            return Ok(());
        }
        match holds_objects(&self.dir) {
            Ok(false) => Ok(()),
            Ok(true) => Err(Error::TablesLost {
                instance: self.dir.clone(),
            }),
            Err(e) => Err(Error::io("can't list", &self.dir, e)),
        }
    }

    /// Brings the storage up to the format of this program. Gives the format that it had, if that was an older one.
    ///
    /// # Errors
    /// The file system says no; nothing is lost.
    pub fn bring_up_to_date(&mut self) -> Result<Option<u32>, Error> {
        let (labels, before) = format::bring_up_to_date(&self.dir, self.found)?;
        self.found = Found::Known(format::CURRENT, labels);
        Ok(before)
    }

    /// Which labels its objects have. It is up to date.
    ///
    /// # Errors
    /// [`Error::LabelsOfRoot`]: this process sees none of them.
    pub(crate) fn labels(&self) -> Result<LabelsOf, Error> {
        let Found::Known(_, labels) = self.found else {
            unreachable!("what is up to date is known");
        };
        let dir = sys::open_path(&self.dir, libc::O_RDONLY | libc::O_DIRECTORY)
            .map_err(|e| Error::io("can't open", &self.dir, e))?;
        match labels.is_usable(dir.as_fd()) {
            true => Ok(labels),
            false => Err(Error::LabelsOfRoot {
                instance: self.dir.clone(),
            }),
        }
    }

    /// The buffer root that this instance was made for; `None` if that is not written down yet. A power loss may have left
    /// an empty file of a bridge of version 0.1.0: then it had not begun to serve, or the loss took that back as well.
    pub fn root(&self) -> Option<PathBuf> {
        root_of(&self.dir)
    }

    /// Writes down for which buffer root this is.
    ///
    /// # Errors
    /// It is for another one, or the file system says no.
    pub fn belong_to(&self, root: &Path) -> Result<(), Error> {
        match self.root() {
            Some(other) if other == root => Ok(()),
            Some(holds) => Err(Error::OtherRoot {
                instance: self.dir.clone(),
                holds,
                asked: root.to_owned(),
            }),
            None => {
                let path = self.dir.join(ROOT_FILE);
                durable::replace(&path, root.as_os_str().as_bytes())
                    .map_err(|e| Error::io("can't write", &path, e))
            }
        }
    }

    /// Which directory the buffer root was; `None` if that is not written down.
    pub fn root_note(&self) -> Option<RootNote> {
        let text = fs::read_to_string(self.dir.join(ROOT_NOTE_FILE)).ok()?;
        RootNote::from_text(&text)
    }

    /// Writes down which directory the buffer root is, durably.
    ///
    /// # Errors
    /// The file system says no.
    pub fn note_root(&self, note: RootNote) -> Result<(), Error> {
        if self.root_note() == Some(note) {
            return Ok(());
        }
        let path = self.dir.join(ROOT_NOTE_FILE);
        durable::replace(&path, note.to_text().as_bytes())
            .map_err(|e| Error::io("can't write", &path, e))
    }

    /// Does something lie in it that belongs to the buffer root?
    ///
    /// # Errors
    /// The file system says no.
    pub(crate) fn holds_something(&self) -> Result<bool, Error> {
        let failed = |e| Error::io("can't list", &self.dir, e);
        // And what a drain has to give back or to sweep there, and what waits for somebody.
        for folder in ["aside", "lent", "quarantine"] {
            let entries = match fs::read_dir(self.dir.join(folder)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(failed)?,
            };
            if entries.count() > 0 {
                return Ok(true);
            }
        }
        holds_objects(&self.dir).map_err(failed)
    }

    /// Tells others where the bridge is.
    ///
    /// # Errors
    /// The file system says no.
    pub fn publish(&self, info: &BridgeInfo) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(info)
            .map_err(|e| Error::io("can't write", &self.dir.join(INFO_FILE), e))?;
        // Of no use after a power loss, so it need not survive one. Who can't read it takes it for missing.
        let (path, temporary) = (self.dir.join(INFO_FILE), self.dir.join("bridge.json.new"));
        fs::OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| file.write_all(&text))
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(|e| Error::io("can't write", &path, e))
    }

    /// The bridge has ended in order.
    pub fn withdraw(&self) {
        let _ = fs::remove_file(self.dir.join(INFO_FILE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_directory_is_made_with_its_parents_and_may_be_there_already() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a/b/c");
        for _ in 0..2 {
            make_private(&dir).unwrap();
            let mode = fs::metadata(&dir).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o700);
        }
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(make_private(&folder.path().join("file/d")).is_err());
    }

    #[test]
    fn a_directory_that_others_have_made_or_can_change_is_refused() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let refuses = |name: &str| {
            let outcome = make_private(&path(name));
            assert!(
                matches!(outcome, Err(Error::NotPrivate { .. })),
                "{name}: {outcome:?}"
            );
        };
        fs::create_dir(path("open")).unwrap();
        fs::set_permissions(path("open"), fs::Permissions::from_mode(0o770)).unwrap();
        refuses("open");
        make_private(&path("own")).unwrap();
        symlink(path("own"), path("link")).unwrap();
        refuses("link");
        if forebay_testkit::is_root() {
            make_private(&path("theirs")).unwrap();
            chown(path("theirs"), Some(65534), None).unwrap();
            refuses("theirs");
        } else {
            forebay_testkit::skip("only root can give a directory to another user");
        }
    }

    #[test]
    fn an_instance_whose_root_a_power_loss_has_emptied_is_used_again() {
        let name = format!("fby-instance-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let instance = Instance::take(&dir).unwrap();
        assert_eq!(instance.root(), None);
        fs::write(dir.join(ROOT_FILE), "").unwrap();
        fs::write(dir.join("root.new"), "/pf").unwrap();
        assert_eq!(instance.root(), None);
        instance.belong_to(Path::new("/pfs/a")).unwrap();
        assert_eq!(instance.root(), Some(PathBuf::from("/pfs/a")));
        assert!(instance.belong_to(Path::new("/pfs/b")).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}
