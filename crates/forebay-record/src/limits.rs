//! Limits of the process. They are lifted for the moment in which a table is made.

use forebay_hook::kernel::call;

/// Sets a soft limit, to the hard one at most. Returns the soft limit before.
pub fn swap_soft_limit(which: u32, soft: u64) -> Option<u64> {
    let mut old = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `old` is writable.
    unsafe { call!(libc::SYS_prlimit64, 0, which, 0, &raw mut old) }.ok()?;
    let new = libc::rlimit64 {
        rlim_cur: soft.min(old.rlim_max),
        rlim_max: old.rlim_max,
    };
    // SAFETY: `new` is readable.
    unsafe { call!(libc::SYS_prlimit64, 0, which, &raw const new, 0) }.ok()?;
    Some(old.rlim_cur)
}

/// The soft limit.
pub fn soft_limit(which: u32) -> u64 {
    let mut now = libc::rlimit64 {
        rlim_cur: u64::MAX,
        rlim_max: u64::MAX,
    };
    // SAFETY: `now` is writable.
    let _ = unsafe { call!(libc::SYS_prlimit64, 0, which, 0, &raw mut now) };
    now.rlim_cur
}
