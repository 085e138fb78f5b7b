//! `dup` and `fcntl`.

use core::ffi::c_int;

use forebay_count::event::Extra;
use forebay_hook::hooks;

use crate::count::extra;
use crate::fds;
use crate::opening;
use crate::state;

hooks! {
    fn dup [real] (old: c_int) -> c_int {
        opening::dup(old, || real(old))
    }

    fn dup2 | __dup2 [real] (old: c_int, new: c_int) -> c_int {
        opening::dup(old, || real(old, new))
    }

    fn dup3 [real] (old: c_int, new: c_int, flags: c_int) -> c_int {
        opening::dup(old, || real(old, new, flags))
    }

    fn fcntl | fcntl64 | __fcntl [real] (fd: c_int, command: c_int, argument: usize) -> c_int {
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => opening::dup(fd, || real(fd, command, argument)),
            libc::F_SETFL => {
                let result = real(fd, command, argument);
                if result == 0 {
                    note_flags(fd, argument as c_int);
                }
                result
            }
            libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => {
                extra(Extra::Lock, || real(fd, command, argument))
            }
            _ => real(fd, command, argument),
        }
    }
}

fn note_flags(fd: c_int, open: c_int) {
    if let Some(entry) = fds::known(fd).filter(|_| !state::is_borrowed()) {
        entry.set_flags(open);
    }
}
