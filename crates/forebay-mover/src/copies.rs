//! Copies on their way to their names: synced, read back and compared, and named.

use crate::copy::{Source, Written};
use crate::counters::Counters;
use crate::ground::Halt;
use crate::leftovers;
use crate::pass::Pass;
use crate::pfs::{self, During, LastDir, Ours, Trouble, Work};
use crate::processes::{self, InUse};
use forebay_core::drain::{self, Copied, Copy, Name, Named, Naming, Temporary, Use};
use forebay_core::facts::{Attr, Timestamp};
use forebay_core::identity::Identity;
use forebay_core::label::without_hides;
use forebay_core::path::TreePath;
use forebay_core::pfs_kind::{SYNCED_TOGETHER_FROM, SyncBy};
use forebay_core::record::{Kind, ObjectId, ObjectName};
use forebay_objects::{LabelError, Shape, shape};
use forebay_pfs::Lower;
use forebay_sys::Openers;
use forebay_sys::{self as sys, Errno};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3;

/// One read and one write.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// Pause before another look at files that were open for writing.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A copy under its temporary name, or what has come about of one.
pub(crate) struct Held {
    pub(crate) object: ObjectName,
    /// Where it is on the PFS.
    pub(crate) path: TreePath,
    /// The directory that it is in.
    pub(crate) dir: Arc<OwnedFd>,
    pub(crate) name: Vec<u8>,
    /// The temporary file, still open. Of a symbolic link or a node an `O_PATH` descriptor.
    pub(crate) file: std::fs::File,
    /// What may be under its temporary name.
    pub(crate) ours: Ours,
    /// What was written to it, if it is a plain file and whole.
    pub(crate) written: Option<Written>,
}

impl Held {
    /// Of a file, link or node that was made just now with these attributes, in this directory.
    pub(crate) fn new(
        copy: &Copy,
        dir: Arc<OwnedFd>,
        file: std::fs::File,
        made: &Attr,
        lower: &Lower,
    ) -> Self {
        Held {
            object: copy.object,
            path: copy.temporary.path.clone(),
            dir,
            name: copy.temporary.path.name().to_vec(),
            file,
            ours: Ours::new(made, !lower.may_wait()),
            written: None,
        }
    }
}

/// All copies under temporary names.
#[derive(Default)]
pub(crate) struct Copies(Mutex<HashMap<ObjectId, Held>>);

impl Copies {
    fn put(&self, held: Held) {
        let before = self.0.lock().insert(held.object.oid, held);
        assert!(before.is_none(), "an object has one copy at a time");
    }

    fn take(&self, oid: ObjectId) -> Option<Held> {
        self.0.lock().remove(&oid)
    }
}

/// Links a copy that has its first name to another one. It is the copy itself that is linked: others may have put
/// something else in place of its first name.
fn further_name(dir: BorrowedFd<'_>, held: &mut Held, name: &Name) -> Work<Named> {
    let temp = &held.name;
    match sys::link_file(held.file.as_fd(), dir, temp) {
        // A link that is made a second time may find itself.
        Err(Errno::EXIST) if held.ours.at(dir, temp)?.is_some() => {}
        Err(Errno::EXIST) => return Ok(Named::Supplanted),
        linked => linked.during("link")?,
    }
    let named = pfs::give_name(dir, temp, name, &mut held.ours)?;
    // A rename between two names of one inode leaves both.
    held.ours.remove(dir, temp)?;
    Ok(named)
}

fn check_is(target: BorrowedFd<'_>, is: Identity) -> Work<()> {
    match is.is_dir_of(&sys::stat(target, b"").during("stat")?) {
        true => Ok(()),
        false => Err(Errno::EXIST).during("open directory"),
    }
}

fn missing<T>() -> Work<T> {
    Err(Errno::NOENT).during("find the copy")
}

impl Pass<'_> {
    pub(crate) fn copy_all(
        &self,
        copies: &[Copy],
        after_a_pause: bool,
    ) -> Result<Vec<drain::Work<Copied>>, Halt> {
        if after_a_pause {
            std::thread::sleep(LOOK_AGAIN);
        }
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut dirs = LastDir::default();
        let mut outcomes = Vec::with_capacity(copies.len());
        for copy in copies {
            self.points.pass()?;
            let mut held = None;
            let outcome = match self.is_stopping() {
                true => Ok(Copied::Stopped),
                false => self.copy(copy, &mut dirs, &mut buffer, &mut held),
            };
            if let Some(held) = held {
                self.copies.put(held);
            }
            outcomes.push(outcome.map_err(Trouble::into_core));
        }
        Ok(outcomes)
    }

    /// Does something with each of the copies.
    fn each(
        &self,
        oids: &[ObjectId],
        mut work: impl FnMut(&Held) -> Work<()>,
    ) -> Vec<drain::Work<()>> {
        let mut one = |oid: &ObjectId| {
            let Some(held) = self.copies.take(*oid) else {
                return missing();
            };
            let did = work(&held);
            self.copies.put(held);
            did
        };
        oids.iter()
            .map(|oid| one(oid).map_err(Trouble::into_core))
            .collect()
    }

    /// Puts copies on the disks of the PFS. Many files are synced by one call for the whole file system, where that is
    /// known to do it, because every `fsync` of its own waits for the disk's cache. What they were copied from is made
    /// durable by the sync point before it is known that they are drained.
    pub(crate) fn sync(&self, oids: &[ObjectId]) -> Vec<drain::Work<()>> {
        let lower = self.ground.lower;
        let is_synced = match lower.sync_by() {
            SyncBy::Nothing => true,
            SyncBy::Whole => oids.len() >= SYNCED_TOGETHER_FROM && lower.sync_whole().is_ok(),
            SyncBy::Each => false,
        };
        self.each(oids, |held| {
            if held.written.is_some() && !is_synced {
                sys::fsync(held.file.as_fd()).during("fsync")?;
            }
            self.ground.objects.distrust_contents([held.object]);
            Ok(())
        })
    }

    pub(crate) fn verify_all(&self, oids: &[ObjectId]) -> Vec<drain::Work<()>> {
        // The comparison reads from the file system, not from cached pages; the disk is asked for
        // the whole batch at once.
        for oid in oids {
            // Others go on with their copies meanwhile: this may wait for the PFS.
            let Some(held) = self.copies.take(*oid) else {
                continue;
            };
            if let Some(written) = &held.written {
                sys::forget_pages(held.file.as_fd());
                if written.size <= CHUNK_BYTES as u64 {
                    sys::will_need(held.file.as_fd());
                }
            }
            self.copies.put(held);
        }
        let mut buffer = vec![0; CHUNK_BYTES];
        self.each(oids, |held| self.verify(held, &mut buffer))
    }

    /// Reads the copy back and compares.
    fn verify(&self, held: &Held, buffer: &mut [u8]) -> Work<()> {
        let (file, Some(written)) = (&held.file, &held.written) else {
            return Ok(());
        };
        // Otherwise the read would change the access time. Where this is not permitted, the time is set again.
        let keeps = sys::keep_access_time(file.as_fd()).is_ok();
        let mut sum = Xxh3::new();
        let mut verified = 0;
        for &(start, end) in &written.ranges {
            sum.update(&start.to_le_bytes());
            let mut pos = start;
            while pos < end {
                let want = buffer.len().min((end - pos) as usize);
                let n = file
                    .read_at(&mut buffer[..want], pos)
                    .map_err(sys::errno_of)
                    .during("read back")?;
                if n == 0 {
                    break;
                }
                sum.update(&buffer[..n]);
                pos += n as u64;
                verified += n as u64;
                Counters::add(&self.counters.bytes_verified, n as u64);
            }
        }
        let size = sys::stat(file.as_fd(), b"").during("stat")?.size;
        let is_whole = size == written.size && verified == written.bytes();
        let is_same = is_whole && sum.digest() == written.sum;
        if !is_same {
            return Err(Errno::IO).during("verify");
        }
        if !keeps && let Ok(now) = self.ground.objects.attr(held.object) {
            let times: (Timestamp, Timestamp) = (now.atime, now.mtime);
            sys::set_times(file.as_fd(), b"", Some(times.0), Some(times.1)).during("set times")?;
        }
        Ok(())
    }

    pub(crate) fn name_all(&self, namings: &[Naming]) -> Result<Vec<drain::Work<Named>>, Halt> {
        let mut outcomes = Vec::with_capacity(namings.len());
        for naming in namings {
            self.points.pass()?;
            let mut held = self.copies.take(naming.temporary.oid);
            let named = match &mut held {
                Some(held) => {
                    assert_eq!(held.path, naming.temporary.path, "the copy that is meant");
                    self.name(held, &naming.names)
                }
                None => missing(),
            };
            // Of one that does not have its names it has to be known what may be removed.
            if let (Some(held), Ok(Named::Supplanted) | Err(_)) = (held, &named) {
                self.copies.put(held);
            }
            outcomes.push(named.map_err(Trouble::into_core));
        }
        Ok(outcomes)
    }

    /// All names: the first by a rename of the copy, the others by hard links.
    fn name(&self, held: &mut Held, names: &[Name]) -> Work<Named> {
        let (first, others) = names.split_first().expect("a copy has a name to get");
        assert_eq!(
            held.path.parent(),
            first.path.parent(),
            "a copy gets its name where it is"
        );
        pfs::check_within(held.dir.as_fd(), first.within)?;
        let named = pfs::give_name(held.dir.as_fd(), &held.name, first, &mut held.ours);
        self.tell_displaced(&first.path, held);
        let mut named = named?;
        for name in others {
            if named.is_whole() {
                let dir = pfs::parent(self.ground.lower, &name.path)?;
                pfs::check_within(dir.as_fd(), name.within)?;
                let further = further_name(dir.as_fd(), held, name);
                self.tell_displaced(&name.path, held);
                named = further?;
            }
        }
        Ok(named)
    }

    /// Tells where something of others is that had this path, if it has another one now.
    fn tell_displaced(&self, path: &TreePath, held: &mut Held) {
        let Some(name) = held.ours.take_displaced() else {
            return;
        };
        let now = path.parent().join(&name);
        if name == held.name {
            self.counters.remark(format!(
                "{path}: what others have put there while a drain replaced it is {now} now, and could not get its name back"
            ));
        } else {
            self.counters.came_back(now);
        }
    }

    pub(crate) fn forget(&self, all: &[Temporary]) -> Vec<drain::Work<()>> {
        // A copy can have several temporary names.
        let held: HashMap<_, _> = all
            .iter()
            .filter_map(|temporary| Some((temporary.oid, self.copies.take(temporary.oid)?)))
            .collect();
        let one = |temporary: &Temporary| {
            let removed = match held.get(&temporary.oid) {
                // Others may have renamed its directory.
                Some(held) if held.path == temporary.path => {
                    match held.ours.remove(held.dir.as_fd(), &held.name) {
                        // Another client of a network file system has removed the directory; or it fails for now.
                        Err(trouble) if trouble.errno == Errno::STALE => {
                            self.remove(&temporary.path, Some(&held.ours))
                        }
                        removed => removed,
                    }
                }
                held => self.remove(&temporary.path, held.map(|held| &held.ours)),
            };
            removed.map_err(Trouble::into_core)
        };
        all.iter().map(one).collect()
    }

    /// Removes a temporary name, if it is there and of this drain. Where no copy came about nobody can tell whose it is: EEXIST, so
    /// that its directory is swept before the drain ends.
    fn remove(&self, path: &TreePath, ours: Option<&Ours>) -> Work<()> {
        let dir = match pfs::parent(self.ground.lower, path) {
            Err(trouble) if trouble.is_absence() => return Ok(()),
            dir => dir?,
        };
        if let Some(ours) = ours {
            return ours.remove(dir.as_fd(), path.name());
        }
        match sys::stat(dir.as_fd(), path.name()) {
            Err(Errno::NOENT) => Ok(()),
            found if leftovers::is_own(&found.during("stat")?) => {
                Err(Errno::EXIST).during("unlink")
            }
            _ => Ok(()),
        }
    }

    /// Takes out of the label what the name replaced.
    pub(crate) fn unhide(&self, object: ObjectName) -> drain::Work<()> {
        let objects = self.ground.objects;
        let label = objects
            .read_label(object)
            .map_err(LabelError::errno)
            .during("read label");
        let written = label.and_then(|label| match label {
            Some(label) => objects
                .write_label(object, &without_hides(label))
                .during("write label"),
            None => Ok(()),
        });
        written.map_err(Trouble::into_core)
    }

    pub(crate) fn dress_dir(&self, path: &TreePath, is: Identity, object: ObjectName) -> Work<()> {
        let (objects, lower) = (self.ground.objects, self.ground.lower);
        let attr = objects.attr(object).during("stat in the buffer")?;
        // Where directories are synced one by one, this is the last moment for this one and for those in it: nobody can open
        // them when it has its mode.
        let is_last_sync = drain::is_last_sync(&attr, self.my_ids.0, lower.sync_by());
        if is_last_sync {
            lower.sync_changed().during("fsync directory")?;
        }
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let source = objects.open_object(object, flags);
        let target = lower.open(path, flags);
        if let Ok(target) = &target {
            check_is(target.as_fd(), is)?;
            match sys::remove_xattr(target.as_fd(), drain::made_for(self.my_ids.0)) {
                // Most have none. Of one that it was found with, its own mode may forbid that.
                Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM) => {}
                removed => removed.during("remove the mark of a new directory")?,
            }
        }
        let is_locked = |open: &Result<OwnedFd, Errno>| open.as_ref().err() == Some(&Errno::ACCESS);
        if is_locked(&source) || is_locked(&target) {
            // Its owner may not read it, here or there.
            let dir = pfs::parent(lower, path)?;
            let by_path = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
            let found = sys::open(dir.as_fd(), path.name(), by_path, 0).during("open directory")?;
            check_is(found.as_fd(), is)?;
            self.dress_by_path(object, Kind::Dir, found.as_fd(), &attr)?;
        } else {
            let source = source.during("open in the buffer")?;
            let target = target.as_ref().map_err(|e| *e).during("open directory")?;
            let xattrs = pfs::read_xattrs(source.as_fd())?;
            self.dress(&xattrs, target.as_fd(), &attr)?;
        }
        match target {
            Ok(target) if is_last_sync => sys::fsync(target.as_fd()).during("fsync directory"),
            _ => Ok(()),
        }
    }

    /// Who has the object open? If nobody has, the attributes were taken after that was seen.
    pub(crate) fn probe(&self, object: ObjectName) -> drain::Work<Use> {
        self.users_of(object).map_err(Trouble::into_core)
    }

    fn users_of(&self, object: ObjectName) -> Work<Use> {
        let attr = || {
            self.ground
                .objects
                .attr(object)
                .during("stat in the buffer")
        };
        if shape(object) != Shape::File {
            // Nodes take no leases.
            let before = attr()?;
            let is_held = processes::anyone_has(before.inode(), Openers::Anyone)
                .during("look who has it open")?;
            return Ok(if is_held {
                Use::Held
            } else {
                Use::Free(before)
            });
        }
        let Source {
            file: source,
            locked,
        } = self.open_source(object)?;
        let lent = locked.map(|locked| locked.lent);
        match processes::who_uses(&source) {
            InUse::ByOthers => return Ok(Use::Held),
            InUse::ByUs => return Ok(Use::Passing),
            InUse::No => {}
        }
        let now = sys::stat(source.as_fd(), b"").during("stat in the buffer")?;
        Ok(Use::free(now, lent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::record::BridgeId;
    use std::fs;

    #[test]
    fn a_further_name_is_that_of_the_copy_whatever_has_its_first_name_by_now() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let lower = Lower::open_root(folder.path(), Some(false)).unwrap();
        let dir = Arc::new(sys::open(lower.root(), b".", libc::O_PATH, 0).unwrap());
        let path = |name: &str| TreePath::new(name.as_bytes()).unwrap();
        let name = |name: &str| Name {
            path: path(name),
            replaces: None,
            within: None,
        };
        fs::create_dir(at("d")).unwrap();
        fs::write(at("ours"), "ours").unwrap();
        fs::write(at("theirs"), "theirs").unwrap();
        std::os::unix::fs::symlink("to", at("link")).unwrap();
        let held = |first: &str, flags| Held {
            object: ObjectName {
                oid: ObjectId::new(BridgeId(1), 1, 1),
                link: 0,
            },
            path: path("temp"),
            dir: dir.clone(),
            name: b"temp".to_vec(),
            ours: Ours::new(&sys::stat(lower.root(), first.as_bytes()).unwrap(), true),
            file: sys::open(lower.root(), first.as_bytes(), flags, 0)
                .unwrap()
                .into(),
            written: None,
        };
        let mut ours = held("ours", libc::O_RDONLY);
        // It stays, but another file has its first name.
        fs::rename(at("ours"), at("moved")).unwrap();
        fs::rename(at("theirs"), at("ours")).unwrap();
        let further = |held: &mut Held, name: &Name| {
            let dir = pfs::parent(&lower, &name.path).unwrap();
            further_name(dir.as_fd(), held, name)
        };
        let named = further(&mut ours, &name("d/second"));
        let second = sys::stat(lower.root(), b"d/second").unwrap();
        assert_eq!(named, Ok(Named::Whole(Identity::of_copy(&second))));
        assert_eq!(fs::read_to_string(at("d/second")).unwrap(), "ours");
        let mut link = held("link", libc::O_PATH | libc::O_NOFOLLOW);
        further(&mut link, &name("d/link")).unwrap();
        let text = fs::read_link(at("d/link")).unwrap();
        assert_eq!(text.to_str(), Some("to"));
        // It is gone.
        fs::remove_file(at("moved")).unwrap();
        fs::remove_file(at("d/second")).unwrap();
        let refused = further(&mut ours, &name("third")).unwrap_err();
        assert_eq!(refused.errno, Errno::NOENT);
        assert!(!at("third").exists());
    }
}
