//! System calls that tell whether an inode is as good as new, and words in a file that
//! outlive the process.
#![allow(unsafe_code)]

use forebay_sys::{self as sys, Errno, Sys};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// `FS_IOC_GETFLAGS`.
const GET_FLAGS: libc::c_ulong = 0x8008_6601;
/// `FS_IOC_FSGETXATTR`.
const GET_FSXATTR: libc::c_ulong = 0x801c_581f;
/// Flags of an inode that say how the file system stores it: `FS_EXTENT_FL`, `FS_INLINE_DATA_FL`.
const STORAGE_FLAGS: libc::c_long = 0x0008_0000 | 0x1000_0000;

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct FsXattr {
    xflags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    pad: [u8; 8],
}

fn check(result: libc::c_int) -> Sys<()> {
    if result < 0 {
        return Err(Errno::last());
    }
    Ok(())
}

/// Is this the only descriptor by which the file can be read, written or mapped? (The kernel
/// grants an exclusive lease only then. It knows nothing of `O_PATH` descriptors.)
pub(super) fn is_opened_once(fd: BorrowedFd<'_>) -> bool {
    let lease = |kind: libc::c_int| {
        // SAFETY: plain integers.
        check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) })
    };
    lease(libc::F_WRLCK).is_ok() && lease(libc::F_UNLCK).is_ok()
}

/// Has the file no extended attribute (access control lists are some) but this one?
///
/// # Errors
/// Of `flistxattr`, but not that the list is long.
pub(super) fn has_only_xattr(fd: BorrowedFd<'_>, name: &[u8]) -> Sys<bool> {
    let mut names = [0u8; 64];
    // SAFETY: the buffer has the length that is passed.
    let n = unsafe { libc::flistxattr(fd.as_raw_fd(), names.as_mut_ptr().cast(), names.len()) };
    if n < 0 {
        return match Errno::last() {
            Errno(libc::ERANGE) => Ok(false),
            e => Err(e),
        };
    }
    Ok(names[..n as usize].strip_suffix(&[0]) == Some(name))
}

/// Has somebody set flags (`chattr`) or a project on the inode?
///
/// # Errors
/// Of `ioctl`, but not that the file system has no such things.
pub(super) fn has_inode_flags(fd: BorrowedFd<'_>) -> Sys<bool> {
    let unknown = |outcome: Sys<()>| match outcome {
        Err(Errno(libc::ENOTTY | libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(()),
        other => other,
    };
    let mut flags: libc::c_long = 0;
    // SAFETY: the kernel writes at most a long there.
    unknown(check(unsafe {
        libc::ioctl(fd.as_raw_fd(), GET_FLAGS, &raw mut flags)
    }))?;
    let mut more = FsXattr::default();
    // SAFETY: `more` has the size that the number of the call tells.
    unknown(check(unsafe {
        libc::ioctl(fd.as_raw_fd(), GET_FSXATTR, &raw mut more)
    }))?;
    Ok(flags & !STORAGE_FLAGS != 0 || more.project != 0)
}

/// Access, modification and change time are now.
///
/// # Errors
/// Of `futimens`.
pub(super) fn set_times_to_now(fd: BorrowedFd<'_>) -> Sys<()> {
    // SAFETY: a null pointer means now.
    check(unsafe { libc::futimens(fd.as_raw_fd(), std::ptr::null()) })
}

/// Types of file systems that write a block where it lies: ext4, XFS, tmpfs. With others a
/// store into a mapped file may need space, and end the process if there is none.
const IN_PLACE: [i64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

/// Looks at change times, with a change between any two, that tell how fine they are.
const LOOKS: usize = 8;
/// Coarse change times tick at least this slowly.
const TICK: Duration = Duration::from_millis(1);

/// Words in a mapped file: what is stored is in the page cache at once.
pub(super) struct SharedWords {
    file: File,
    at: NonNull<AtomicU64>,
    /// 0 where a file can't be mapped safely.
    count: usize,
}

// SAFETY: it is a piece of memory that is only accessed as atomic words, until it is dropped.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps `count` words of the file `name` in `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// Of the file system.
    pub(super) fn open(dir: BorrowedFd<'_>, name: &[u8], count: usize) -> Sys<Self> {
        let bytes = count * size_of::<u64>();
        let flags = libc::O_RDWR | libc::O_CREAT;
        let file = File::from(sys::open(dir, name, flags, 0o600)?);
        if !IN_PLACE.contains(&sys::fs_type(file.as_fd())?) {
            return Ok(SharedWords {
                file,
                at: NonNull::dangling(),
                count: 0,
            });
        }
        let len = file.metadata()?.len() as usize;
        if len < bytes {
            // With all its blocks: a store that found no space would end the process.
            file.write_all_at(&vec![0; bytes - len], len as u64)?;
        }
        // SAFETY: a new mapping of a file that is long enough; the result is checked.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_fd().as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at) {
            Some(at) if at.as_ptr() != libc::MAP_FAILED => Ok(SharedWords {
                file,
                at: at.cast(),
                count,
            }),
            _ => Err(Errno::last()),
        }
    }

    /// Does every change of an inode that was looked at give it another change time? (Linux
    /// 6.13 and later, on some file systems. Elsewhere the clock ticks once in milliseconds.)
    ///
    /// # Errors
    /// Of the file system.
    pub(super) fn has_fine_times(&self) -> Sys<bool> {
        let fd = self.file.as_fd();
        let begin = Instant::now();
        let mut last = sys::stat(fd, b"")?.ctime;
        for _ in 0..LOOKS {
            sys::chmod(fd, 0o600)?;
            let ctime = sys::stat(fd, b"")?.ctime;
            if ctime <= last {
                return Ok(false);
            }
            last = ctime;
        }
        // A clock that ticks would have had to tick at each look.
        Ok(begin.elapsed() < TICK * LOOKS as u32)
    }

    /// The words.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has so many words, is aligned to a page, and lives as long as `self`;
        // without one there are no words, and the pointer is aligned.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.count) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        if self.count == 0 {
            return;
        }
        // SAFETY: this mapping was made by `open` and is used by nobody any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.count * size_of::<u64>()) };
    }
}
