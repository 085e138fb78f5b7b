//! A permission that the owner of a file has taken from it, and that a bridge of this owner has to have for a moment: to read
//! what is drained, or to read and change a label.
//!
//! While the file has it, the link `lent-mode` beside the objects tells which file that is, which mode it had and which one it
//! got. So the next bridge gives the mode back after one that was killed. A file system with a journal keeps the link and the
//! mode in their order, so this holds for a loss of power as well.

use forebay_core::facts::Attr;
use forebay_sys::{self as sys, Errno, Sys};
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

const NOTE: &[u8] = b"lent-mode";
const MODE: u32 = 0o7777;

std::thread_local! {
    /// This thread lends a mode.
    static LENDS: Cell<bool> = const { Cell::new(false) };
}

/// One mode is lent at a time: a second lender would take the lent mode for the real one, and give that back.
static LENDING: Mutex<()> = Mutex::new(());

/// Runs `work` while the mode of a file or directory also gives its owner the permissions `bits`. `fd` leads to it, also one that
/// was opened with `O_PATH`, and `path` does from `dir`. `work` gets the attributes as they were before. Afterwards the old mode
/// is restored, unless somebody changed the mode meanwhile: then that change stays. `work` must not lend a mode itself, nor
/// wait for a thread that does.
///
/// # Errors
/// Those of the calls that look at the mode and change it, and of the note about it. If there is no note, no mode was changed.
pub(crate) fn lend<T>(
    dir: BorrowedFd<'_>,
    path: &[u8],
    fd: BorrowedFd<'_>,
    bits: u32,
    work: impl FnOnce(Attr) -> T,
) -> Sys<T> {
    assert!(!LENDS.get(), "one mode is lent at a time");
    let _one = LENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let modes = |attr: &Attr| [attr.mode & MODE, attr.mode & MODE | bits];
    let before = loop {
        let before = sys::stat(fd, b"")?;
        if before.mode & bits == bits {
            match sys::readlink(dir, NOTE) {
                // Something else keeps the owner out, if it is the owner.
                Err(Errno::NOENT) => return Ok(work(before)),
                // Somebody may have lent it before.
                noted => noted.and_then(|_| give_back(dir))?,
            }
            continue;
        }
        match sys::symlink(&note(modes(&before), path), dir, NOTE) {
            // What could not be given back may be the mode of this very file.
            Err(Errno::EXIST) => give_back(dir)?,
            written => break written.map(|()| before)?,
        }
    };
    let [own, lent] = modes(&before);
    if let Err(e) = sys::chmod_of_path(fd, lent) {
        sys::unlink(dir, NOTE, false)?;
        return Err(e);
    }
    LENDS.set(true);
    let outcome = work(before);
    LENDS.set(false);
    if sys::stat(fd, b"")?.mode & MODE == lent {
        sys::chmod_of_path(fd, own)?;
    }
    sys::unlink(dir, NOTE, false)?;
    Ok(outcome)
}

/// Gives the mode back that a file has got from somebody who was killed, or could not give it back.
///
/// # Errors
/// Those of the file system: the note stays then. EINVAL: the note tells nothing.
pub(crate) fn give_back(dir: BorrowedFd<'_>) -> Sys<()> {
    let text = match sys::readlink(dir, NOTE) {
        Ok(text) => text,
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(e),
    };
    let (own, lent, path) = told(&text).ok_or(Errno::INVAL)?;
    match sys::open(dir, path, libc::O_PATH | libc::O_NOFOLLOW, 0) {
        Ok(found) => {
            if sys::stat(found.as_fd(), b"")?.mode & MODE == lent {
                match sys::chmod_of_path(found.as_fd(), own) {
                    // It belongs to somebody else, so it never got anything.
                    Err(Errno::PERM) => {}
                    given => given?,
                }
            }
        }
        // It was removed since.
        Err(Errno::NOENT) => {}
        Err(e) => return Err(e),
    }
    sys::unlink(dir, NOTE, false)
}

fn note([own, lent]: [u32; 2], path: &[u8]) -> Vec<u8> {
    [format!("{own:o} {lent:o} ").as_bytes(), path].concat()
}

fn told(text: &[u8]) -> Option<(u32, u32, &[u8])> {
    let mut parts = text.splitn(3, |byte| *byte == b' ');
    let mut mode = || u32::from_str_radix(std::str::from_utf8(parts.next()?).ok()?, 8).ok();
    let modes = [mode()?, mode()?];
    Some((modes[0], modes[1], parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    struct Scene {
        folder: tempfile::TempDir,
        dir: File,
    }

    impl Scene {
        /// A file `d/file` that its owner may neither read nor write.
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("d")).unwrap();
            let scene = Scene {
                dir: File::open(folder.path()).unwrap(),
                folder,
            };
            fs::write(scene.file(), "").unwrap();
            scene.set(0o044);
            scene
        }

        fn file(&self) -> PathBuf {
            self.folder.path().join("d/file")
        }

        fn mode(&self) -> u32 {
            fs::metadata(self.file()).unwrap().permissions().mode() & MODE
        }

        fn set(&self, mode: u32) {
            fs::set_permissions(self.file(), fs::Permissions::from_mode(mode)).unwrap();
        }

        fn lend<T>(&self, bits: u32, work: impl FnOnce(Attr) -> T) -> Sys<T> {
            let fd = sys::open(self.dir.as_fd(), b"d/file", libc::O_PATH, 0).unwrap();
            lend(self.dir.as_fd(), b"d/file", fd.as_fd(), bits, work)
        }

        fn give_back(&self) -> Sys<()> {
            give_back(self.dir.as_fd())
        }

        fn has_note(&self) -> bool {
            sys::readlink(self.dir.as_fd(), NOTE).is_ok()
        }
    }

    #[test]
    fn a_permission_is_taken_back_but_not_from_a_mode_that_somebody_has_set() {
        let s = Scene::new();
        let lent = s.lend(0o400, |before| (before.mode & MODE, s.mode(), s.has_note()));
        assert_eq!(lent, Ok((0o044, 0o444, true)));
        assert_eq!((s.mode(), s.has_note()), (0o044, false));
        assert_eq!(s.lend(0o400, |_| s.set(0o600)), Ok(()));
        assert_eq!((s.mode(), s.has_note()), (0o600, false));
        // What has it already gets nothing.
        assert_eq!(s.lend(0o400, |_| s.has_note()), Ok(false));
    }

    #[test]
    fn of_permissions_that_are_lent_at_once_none_stays() {
        let s = Scene::new();
        std::thread::scope(|scope| {
            for bits in [0o400, 0o200, 0o100, 0o600] {
                let s = &s;
                scope.spawn(move || {
                    for _ in 0..500 {
                        let before = s.lend(bits, |before| before.mode & MODE);
                        assert_eq!(before, Ok(0o044));
                    }
                });
            }
        });
        assert_eq!((s.mode(), s.has_note()), (0o044, false));
    }

    #[test]
    fn who_was_killed_leaves_a_mode_that_the_next_one_gives_back() {
        let killed = |s: &Scene| {
            let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                s.lend(0o400, |_| std::panic::resume_unwind(Box::new(())))
            }));
            assert!(died.is_err());
            LENDS.set(false);
            assert_eq!((s.mode(), s.has_note()), (0o444, true));
        };
        let s = Scene::new();
        killed(&s);
        assert_eq!(s.give_back(), Ok(()));
        assert_eq!((s.mode(), s.has_note()), (0o044, false));
        assert_eq!(s.give_back(), Ok(()));
        // Somebody who lends at once has the true mode, too.
        killed(&s);
        assert_eq!(s.lend(0o400, |before| before.mode & MODE), Ok(0o044));
        assert_eq!((s.mode(), s.has_note()), (0o044, false));
        // What has another mode by now keeps it.
        killed(&s);
        s.set(0o640);
        assert_eq!(s.give_back(), Ok(()));
        assert_eq!((s.mode(), s.has_note()), (0o640, false));
        // It is gone.
        s.set(0o044);
        killed(&s);
        fs::remove_file(s.file()).unwrap();
        assert_eq!((s.give_back(), s.has_note()), (Ok(()), false));
    }

    #[test]
    fn a_note_that_tells_nothing_changes_no_mode() {
        let s = Scene::new();
        for text in ["x", "44 444", "9 444 d/file", "44 d/file"] {
            sys::symlink(text.as_bytes(), s.dir.as_fd(), NOTE).unwrap();
            assert_eq!(s.give_back(), Err(Errno::INVAL), "{text}");
            assert_eq!(s.lend(0o400, |_| ()), Err(Errno::INVAL), "{text}");
            assert_eq!(s.mode(), 0o044);
            sys::unlink(s.dir.as_fd(), NOTE, false).unwrap();
        }
    }
}
