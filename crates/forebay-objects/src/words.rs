//! Words in a file that outlive the process, and how fine the change times of inodes are.

use forebay_sys::{self as sys, MappedWords, Sys, errno_of};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Looks at change times, with a change between any two, that tell how fine they are.
const LOOKS: usize = 8;
/// Coarse change times tick at least this slowly.
const TICK: Duration = Duration::from_millis(1);

/// Words in a mapped file: what is stored is in the page cache at once.
pub(super) struct SharedWords {
    file: File,
    /// `None` where a file can't be mapped safely.
    map: Option<MappedWords>,
}

impl SharedWords {
    /// Maps `count` words of the file `name` in `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// Of the file system.
    pub(super) fn open(dir: BorrowedFd<'_>, name: &[u8], count: usize) -> Sys<Self> {
        let bytes = (count * size_of::<u64>()) as u64;
        let flags = libc::O_RDWR | libc::O_CREAT;
        let file = File::from(sys::open(dir, name, flags, 0o600)?);
        if !sys::writes_in_place(file.as_fd())? {
            return Ok(SharedWords { file, map: None });
        }
        let len = file.metadata().map_err(errno_of)?.len();
        if len < bytes {
            // With all its blocks: a store that found no space would end the process.
            let missing = vec![0; (bytes - len) as usize];
            file.write_all_at(&missing, len).map_err(errno_of)?;
        }
        let map = Some(MappedWords::new(file.as_fd(), count)?);
        Ok(SharedWords { file, map })
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
        self.map.as_ref().map_or(&[], MappedWords::words)
    }
}
