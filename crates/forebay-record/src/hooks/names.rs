//! Calls that make, remove and rename names, and `chdir`.

use core::ffi::{c_int, c_uint};

use forebay_count::event::Extra;
use forebay_count::path::record_id;
use forebay_count::{Event, Op};
use forebay_hook::hooks;
use libc::{AT_FDCWD, AT_REMOVEDIR, mode_t, size_t, ssize_t};

use super::{Path, Sink};
use crate::clock::now_ns;
use crate::count::{extra, on_name, on_path};
use crate::record_names::{directory_changed, with_name};
use crate::state::{self, recording};
use forebay_hook::kernel;

hooks! {
    fn mkdir [real] (path: Path, mode: mode_t) -> c_int {
        extra(Extra::Mkdir, || real(path, mode))
    }

    fn mkdirat [real] (dirfd: c_int, path: Path, mode: mode_t) -> c_int {
        extra(Extra::Mkdir, || real(dirfd, path, mode))
    }

    fn rmdir [real] (path: Path) -> c_int {
        extra(Extra::Rmdir, || real(path))
    }

    fn unlink | remove [real] (path: Path) -> c_int {
        extra(Extra::Unlink, || real(path))
    }

    fn unlinkat [real] (dirfd: c_int, path: Path, flags: c_int) -> c_int {
        let kind = if flags & AT_REMOVEDIR != 0 { Extra::Rmdir } else { Extra::Unlink };
        extra(kind, || real(dirfd, path, flags))
    }

    fn link [real] (old: Path, new: Path) -> c_int {
        extra(Extra::Link, || real(old, new))
    }

    fn linkat [real] (old_dir: c_int, old: Path, new_dir: c_int, new: Path, flags: c_int) -> c_int {
        extra(Extra::Link, || real(old_dir, old, new_dir, new, flags))
    }

    fn symlink [real] (target: Path, path: Path) -> c_int {
        extra(Extra::Symlink, || real(target, path))
    }

    fn symlinkat [real] (target: Path, dirfd: c_int, path: Path) -> c_int {
        extra(Extra::Symlink, || real(target, dirfd, path))
    }

    fn readlink [real] (path: Path, out: Sink, room: size_t) -> ssize_t {
        extra(Extra::Readlink, || real(path, out, room))
    }

    fn readlinkat [real] (dirfd: c_int, path: Path, out: Sink, room: size_t) -> ssize_t {
        extra(Extra::Readlink, || real(dirfd, path, out, room))
    }

    fn rename [real] (old: Path, new: Path) -> c_int {
        renamed((AT_FDCWD, old), (AT_FDCWD, new), || real(old, new))
    }

    fn renameat [real] (old_dir: c_int, old: Path, new_dir: c_int, new: Path) -> c_int {
        renamed((old_dir, old), (new_dir, new), || real(old_dir, old, new_dir, new))
    }

    fn renameat2 [real] (old_dir: c_int, old: Path, new_dir: c_int, new: Path, flags: c_uint) -> c_int {
        renamed((old_dir, old), (new_dir, new), || real(old_dir, old, new_dir, new, flags))
    }

    fn chdir | chroot [real] (path: Path) -> c_int {
        let result = real(path);
        moved(result)
    }

    fn fchdir [real] (fd: c_int) -> c_int {
        let result = real(fd);
        moved(result)
    }
}

fn moved(result: c_int) -> c_int {
    if result == 0 && !state::is_borrowed() {
        directory_changed();
    }
    result
}

/// Counts a rename on the records of both names.
unsafe fn renamed(old: (c_int, Path), new: (c_int, Path), call: impl FnOnce() -> c_int) -> c_int {
    let Some(recording) = recording() else {
        return call();
    };
    let start_ns = now_ns();
    let result = call();
    let end_ns = now_ns();
    recording.table.add_extra(Extra::Rename, start_ns, end_ns);
    if result != 0 {
        return result;
    }
    let errno = kernel::errno();
    // SAFETY: the caller's promise.
    unsafe {
        let source = Event::plain(Op::RenameSource, start_ns, end_ns);
        let id = with_name(&recording, old.0, old.1, |name| {
            on_name(&recording, name, &source);
            record_id(name)
        });
        let target = Event {
            aux: id.unwrap_or(0),
            ..Event::plain(Op::RenameTarget, start_ns, end_ns)
        };
        on_path(&recording, new.0, new.1, &target);
    }
    kernel::set_errno(errno);
    result
}
