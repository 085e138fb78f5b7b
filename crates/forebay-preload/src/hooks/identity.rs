//! Functions that change the user, the groups or the umask of the process.
//!
//! The bridge judges a request by the credentials that come with it. But it learns the
//! supplementary groups only when a connection is made. So the library makes new
//! connections after a change of user or groups.

use core::ffi::{c_char, c_int, c_uint};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use forebay_hook::hooks;

use crate::requests::LINK;
use forebay_hook::kernel::{self, call};

static UMASK: AtomicU32 = AtomicU32::new(0o022);
/// `pid << 32 | umask` of a child of `vfork` that has set its own; 0 for none.
static STRAY: AtomicU64 = AtomicU64::new(0);

/// Reads the umask. The only system call for this also sets it, so this runs at load time, while there is one thread.
pub fn read_umask() {
    // SAFETY: plain integers.
    let mask = unsafe { call!(libc::SYS_umask, 0o077) }.unwrap_or(0o022);
    // SAFETY: as above.
    let _ = unsafe { call!(libc::SYS_umask, mask) };
    UMASK.store(mask as u32, Ordering::Relaxed);
}

/// The umask for new files of the caller.
pub fn umask_of_caller() -> u32 {
    let stray = STRAY.load(Ordering::Relaxed);
    if stray != 0 && stray >> 32 == kernel::getpid() as u64 {
        return stray as u32;
    }
    UMASK.load(Ordering::Relaxed)
}

fn changed(result: c_int) -> c_int {
    if result == 0 {
        LINK.identity_changed();
    }
    result
}

hooks! {
    fn umask [real] (mask: c_uint) -> c_uint {
        let mask = mask & 0o777;
        if LINK.is_owner() {
            UMASK.store(mask, Ordering::Relaxed);
        } else {
            STRAY.store((kernel::getpid() as u64) << 32 | u64::from(mask), Ordering::Relaxed);
        }
        real(mask)
    }

    fn setuid | setgid | seteuid | setegid [real] (id: c_uint) -> c_int {
        changed(real(id))
    }

    fn setreuid | setregid [real] (id: c_uint, effective: c_uint) -> c_int {
        changed(real(id, effective))
    }

    fn setresuid | setresgid [real] (id: c_uint, effective: c_uint, saved: c_uint) -> c_int {
        changed(real(id, effective, saved))
    }

    fn setgroups [real] (count: usize, groups: *const c_uint) -> c_int {
        changed(real(count, groups))
    }

    fn initgroups [real] (user: *const c_char, group: c_uint) -> c_int {
        changed(real(user, group))
    }

    fn setfsuid | setfsgid [real] (id: c_uint) -> c_int {
        let before = real(id);
        LINK.identity_changed();
        before
    }
}
