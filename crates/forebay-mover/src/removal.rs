//! Removes what is of no value any more from the PFS, however deep it is.

use crate::pfs::{During, Work};
use crate::touched::Touched;
use forebay_core::drain::is_of_others_since;
use forebay_core::facts::{Attr, Timestamp};
use forebay_sys::{self as sys, Errno};
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a removal leaves: what others have put there, or changed there, since a moment.
pub(crate) struct Spared<'t> {
    /// The moment, by the clock of the PFS.
    pub(crate) since: Timestamp,
    /// The directories that were there then, by the numbers of their inodes, if that is known.
    pub(crate) dirs: Option<HashSet<u64>>,
    /// What the drain itself has touched.
    pub(crate) touched: &'t Touched,
}

impl Spared<'_> {
    fn has(&self, attr: &Attr) -> bool {
        let was_there = || Some(self.dirs.as_ref()?.contains(&attr.ino));
        is_of_others_since(self.since, attr, was_there, || self.touched.mtime_of(attr))
    }
}

/// A directory that is being emptied.
struct Level {
    /// Its name in the directory above.
    name: Vec<u8>,
    /// Device and number of its inode.
    inode: (u64, u64),
    /// Directories in it that are still to be removed, with the inode numbers that they had when they were judged.
    dirs: Vec<(Vec<u8>, u64)>,
}

/// Removes the directory `name` in `dir` with everything in it but what is spared, and the directories around that. False:
/// something is left. Nothing there is fine. Symbolic links are not followed, and what is no directory (ENOTDIR), or has
/// another inode number than `ino` (ESTALE), is not removed.
///
/// Others choose how deep the tree is. So this is a loop, and has one directory of the tree open at a time: it comes
/// back by `..`, and looks whether that is where it came from.
pub(crate) fn remove_dir_but(
    dir: BorrowedFd<'_>,
    name: &[u8],
    ino: u64,
    spared: &Spared<'_>,
) -> Work<bool> {
    let (mut at, top) = match enter(dir, name, ino, spared)? {
        Entered::At(at, top) => (at, top),
        Entered::Gone => return Ok(true),
        Entered::Another => return Err(Errno::STALE).during("open directory"),
    };
    let is_gone = |emptied: Work<()>| match emptied {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.errno, Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(e) => Err(e),
    };
    let mut levels = vec![top];
    while let Some(level) = levels.last_mut() {
        if let Some((name, ino)) = level.dirs.pop() {
            // Another one is left, and shows when the directory around it is to be removed.
            if let Entered::At(inner, level) = enter(at.as_fd(), &name, ino, spared)? {
                levels.push(level);
                at = inner;
            }
            continue;
        }
        let emptied = levels.pop();
        let name = emptied.map(|level| level.name).unwrap_or_default();
        match levels.last() {
            None => return is_gone(remove_empty(dir, &name)),
            Some(above) => {
                at = leave(&at, above.inode)?;
                is_gone(remove_empty(at.as_fd(), &name))?;
            }
        }
    }
    unreachable!("the last level is the first one")
}

/// What came of entering a directory.
enum Entered {
    /// It is open, and holds only directories that are still to be removed, and what is spared.
    At(OwnedFd, Level),
    /// Nothing is there any more.
    Gone,
    /// Somebody has put another one there since it was judged. Nothing was done to that.
    Another,
}

/// Opens the directory with this inode number and removes everything in it but directories, and but what is spared.
fn enter(dir: BorrowedFd<'_>, name: &[u8], ino: u64, spared: &Spared<'_>) -> Work<Entered> {
    let is_it = |fd: &OwnedFd| match sys::stat(fd.as_fd(), b"").during("stat") {
        Ok(attr) => Ok(attr.ino == ino),
        Err(e) => Err(e),
    };
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let inner = match sys::open(dir, name, flags, 0) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(Entered::Gone),
        Err(Errno::ACCESS) => {
            // Its owner has locked it; what goes anyway may be opened first.
            let by_path = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
            let locked = sys::open(dir, name, by_path, 0).during("open directory")?;
            if !is_it(&locked)? {
                return Ok(Entered::Another);
            }
            sys::chmod_of_path(locked.as_fd(), 0o700).during("chmod")?;
            // By its name it might be another one by now.
            sys::open(locked.as_fd(), b".", flags, 0).during("open directory")?
        }
        Err(e) => return Err(e).during("open directory"),
    };
    if !is_it(&inner)? {
        return Ok(Entered::Another);
    }
    let mut entries = Vec::new();
    while sys::read_dir(inner.as_fd(), &mut entries).during("list directory")? {}
    let mut dirs = Vec::new();
    let mut is_unlocked = false;
    for entry in entries {
        let look = || sys::stat(inner.as_fd(), &entry.name);
        let unlock = || sys::chmod(inner.as_fd(), 0o700).during("chmod");
        let mut found = look();
        // What can't be looked at can't be judged.
        if found == Err(Errno::ACCESS) && !is_unlocked {
            is_unlocked = true;
            unlock()?;
            found = look();
        }
        let attr = match found {
            Ok(attr) if spared.has(&attr) => continue,
            Ok(attr) => attr,
            Err(Errno::NOENT) => continue,
            Err(e) => return Err(e).during("stat"),
        };
        spared.touched.note(&attr);
        let mut removed = remove_file(inner.as_fd(), &entry.name);
        if matches!(&removed, Err(e) if e.errno == Errno::ACCESS) && !is_unlocked {
            is_unlocked = true;
            unlock()?;
            removed = remove_file(inner.as_fd(), &entry.name);
        }
        if !removed? {
            dirs.push((entry.name, attr.ino));
        }
    }
    let attr = sys::stat(inner.as_fd(), b"").during("stat")?;
    let level = Level {
        name: name.to_vec(),
        inode: attr.inode(),
        dirs,
    };
    Ok(Entered::At(inner, level))
}

/// The directory above `dir`, which is the one with this inode.
fn leave(dir: &OwnedFd, above: (u64, u64)) -> Work<OwnedFd> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let outer = match sys::open(dir.as_fd(), b"..", flags, 0) {
        Err(Errno::ACCESS) => {
            // It was empty, so nothing in it has shown that it may not be searched.
            sys::chmod(dir.as_fd(), 0o700).during("chmod")?;
            sys::open(dir.as_fd(), b"..", flags, 0)
        }
        other => other,
    }
    .during("open directory")?;
    let attr = sys::stat(outer.as_fd(), b"").during("stat")?;
    if attr.inode() != above {
        // Somebody has moved it meanwhile. What is around it now is not ours to remove.
        return Err(Errno::STALE).during("open directory");
    }
    Ok(outer)
}

/// Unlinks what is no directory. False: it is one. Nothing there is fine.
pub(crate) fn remove_file(dir: BorrowedFd<'_>, name: &[u8]) -> Work<bool> {
    match sys::unlink(dir, name, false) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        // So POSIX has it for a directory. Linux says it of what nobody may remove.
        Err(Errno::PERM) => match sys::stat(dir, name) {
            Ok(attr) if attr.is_dir() => Ok(false),
            _ => Err(Errno::PERM).during("unlink"),
        },
        Err(e) => Err(e).during("unlink"),
    }
}

fn remove_empty(dir: BorrowedFd<'_>, name: &[u8]) -> Work<()> {
    match sys::unlink(dir, name, true) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e).during("rmdir"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn all_is_old(touched: &Touched) -> Spared<'_> {
        Spared {
            since: Timestamp {
                sec: i64::MAX,
                nsec: 0,
            },
            dirs: None,
            touched,
        }
    }

    fn remove_dir(dir: BorrowedFd<'_>, name: &[u8], ino: u64) -> Work<()> {
        let is_gone = remove_dir_but(dir, name, ino, &all_is_old(&Touched::default()))?;
        assert!(is_gone);
        Ok(())
    }

    fn ino_of(dir: &OwnedFd, name: &[u8]) -> u64 {
        sys::stat(dir.as_fd(), name).map_or(0, |attr| attr.ino)
    }

    #[test]
    fn a_directory_that_is_not_the_one_that_was_meant_stays() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("t")).unwrap();
        fs::write(folder.path().join("t/kept"), "x").unwrap();
        let top = OwnedFd::from(File::open(folder.path()).unwrap());
        let other = ino_of(&top, b"t") + 1;
        // Its owner has locked it, or not.
        for mode in [0o700, 0] {
            fs::set_permissions(folder.path().join("t"), Permissions::from_mode(mode)).unwrap();
            let refused = remove_dir(top.as_fd(), b"t", other).unwrap_err();
            assert_eq!(refused.errno, Errno::STALE);
            let left = fs::metadata(folder.path().join("t")).unwrap().permissions();
            assert_eq!(left.mode() & 0o777, mode);
        }
        fs::set_permissions(folder.path().join("t"), Permissions::from_mode(0o700)).unwrap();
        assert!(folder.path().join("t/kept").exists());
    }

    #[test]
    fn another_directory_in_place_of_a_judged_one_is_not_entered() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("t/s")).unwrap();
        fs::create_dir_all(path("theirs")).unwrap();
        fs::write(path("t/s/old"), "x").unwrap();
        fs::write(path("theirs/kept"), "x").unwrap();
        let top = OwnedFd::from(File::open(folder.path()).unwrap());
        let t = sys::open(top.as_fd(), b"t", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap();
        let touched = Touched::default();
        let spared = all_is_old(&touched);
        let Entered::At(_, level) = enter(top.as_fd(), b"t", ino_of(&top, b"t"), &spared).unwrap()
        else {
            panic!("it is there");
        };
        let [(name, ino)] = &level.dirs[..] else {
            panic!("one directory is in it");
        };
        sys::exchange(top.as_fd(), b"theirs", b"t/s").unwrap();
        let entered = enter(t.as_fd(), name, *ino, &spared).unwrap();
        assert!(matches!(entered, Entered::Another));
        assert!(path("t/s/kept").exists());
        assert!(path("theirs/old").exists());
    }

    #[test]
    fn a_tree_of_3_000_levels_goes() {
        const DEPTH: usize = 3_000;
        let folder = tempfile::tempdir().unwrap();
        let top = OwnedFd::from(File::open(folder.path()).unwrap());
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let mut at = sys::open(top.as_fd(), b".", flags, 0).unwrap();
        for _ in 0..DEPTH {
            sys::mkdir(at.as_fd(), b"d", 0o700).unwrap();
            at = sys::open(at.as_fd(), b"d", flags, 0).unwrap();
        }
        drop(at);
        remove_dir(top.as_fd(), b"d", ino_of(&top, b"d")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_nobody_may_remove_is_named_as_that() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t/file");
        fs::create_dir(folder.path().join("t")).unwrap();
        fs::write(&file, "x").unwrap();
        let chattr = |flag: &str| {
            let mut command = std::process::Command::new("chattr");
            let outcome = command.arg(flag).arg(&file).output();
            outcome.is_ok_and(|output| output.status.success())
        };
        if !chattr("+i") {
            return forebay_testkit::skip(
                "only root can make a file immutable, and not everywhere",
            );
        }
        let top = OwnedFd::from(File::open(folder.path()).unwrap());
        let trouble = remove_dir(top.as_fd(), b"t", ino_of(&top, b"t")).unwrap_err();
        assert!(chattr("-i"));
        assert_eq!((trouble.operation, trouble.errno), ("unlink", Errno::PERM));
        remove_dir(top.as_fd(), b"t", ino_of(&top, b"t")).unwrap();
    }

    #[test]
    fn a_tree_goes_with_what_its_owner_has_locked_and_without_what_its_links_lead_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("t/a/b")).unwrap();
        fs::create_dir_all(path("t/c/d/e")).unwrap();
        fs::create_dir(path("t/empty")).unwrap();
        fs::create_dir(path("outside")).unwrap();
        fs::write(path("outside/kept"), "x").unwrap();
        fs::write(path("t/a/file"), "x").unwrap();
        symlink(path("outside"), path("t/a/b/link")).unwrap();
        for (dir, mode) in [("t/a/b", 0o500), ("t/c/d", 0), ("t/empty", 0o400)] {
            fs::set_permissions(path(dir), Permissions::from_mode(mode)).unwrap();
        }
        let top = OwnedFd::from(File::open(folder.path()).unwrap());
        remove_dir(top.as_fd(), b"t", ino_of(&top, b"t")).unwrap();
        assert!(!path("t").exists());
        assert!(path("outside/kept").exists());
        // Nothing there is fine.
        remove_dir(top.as_fd(), b"t", ino_of(&top, b"t")).unwrap();
    }

    #[test]
    fn what_is_no_directory_is_not_removed_as_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("f"), "x").unwrap();
        let top = OwnedFd::from(File::open(folder.path()).unwrap());
        let refused = remove_dir(top.as_fd(), b"f", ino_of(&top, b"f")).unwrap_err();
        assert_eq!(refused.errno, Errno::NOTDIR);
        assert!(folder.path().join("f").exists());
        assert!(remove_file(top.as_fd(), b"f").unwrap());
        assert!(!folder.path().join("f").exists());
    }
}
