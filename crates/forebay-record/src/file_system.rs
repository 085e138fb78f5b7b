//! What the recorder asks about file systems.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering, Ordering::Relaxed};

use forebay_hook::kernel::call;

/// File systems whose block sizes are remembered.
const DEVICES: usize = 8;
static BLOCK_SIZES: [[AtomicU64; 2]; DEVICES] =
    [const { [const { AtomicU64::new(0) }; 2] }; DEVICES];

/// The alignment that Darshan takes for the file system of `fd`: its block size, but 1 MiB on Lustre.
pub fn alignment(fd: c_int, device: u64) -> u32 {
    const LUSTRE: i64 = 0x0BD0_0BD0;
    const LUSTRE_ALIGNMENT: u32 = 1 << 20;
    for [known, size] in &BLOCK_SIZES {
        if known.load(Ordering::Acquire) == device + 1 {
            return size.load(Relaxed) as u32;
        }
    }
    // SAFETY: zeroes are a valid value.
    let mut stat: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: `stat` is writable.
    if unsafe { call!(libc::SYS_fstatfs, fd, &raw mut stat) }.is_err() {
        return 0;
    }
    let size = match stat.f_type {
        LUSTRE => LUSTRE_ALIGNMENT,
        _ => stat.f_bsize as u32,
    };
    let [known, place] = &BLOCK_SIZES[device as usize % DEVICES];
    known.store(0, Ordering::Release);
    place.store(u64::from(size), Relaxed);
    known.store(device + 1, Ordering::Release);
    size
}
