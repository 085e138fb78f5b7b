//! Words in a file that outlive the process, and a test of how fine the change times of inodes are.

use forebay_sys::{self as sys, MappedWords, Sys, errno_of};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// How often the test changes an inode and looks at its change time.
const LOOKS: usize = 8;
/// Shortest tick of coarse change times.
const TICK: Duration = Duration::from_millis(1);

/// Words in a mapped file. A stored value is in the page cache at once.
pub(super) struct SharedWords {
    file: File,
    /// `None` if the file can't be mapped safely.
    map: Option<MappedWords>,
}

impl SharedWords {
    /// Maps `count` words of the file `name` in `dir`. Makes the file if it is missing.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn open(dir: BorrowedFd<'_>, name: &[u8], count: usize) -> Sys<Self> {
        let bytes = (count * size_of::<u64>()) as u64;
        let flags = libc::O_RDWR | libc::O_CREAT;
        let file = File::from(sys::open(dir, name, flags, 0o600)?);
        if !sys::writes_in_place(file.as_fd())? {
            return Ok(SharedWords { file, map: None });
        }
        let len = file.metadata().map_err(errno_of)?.len();
        if len < bytes {
            // All blocks are allocated now, because a store that finds no space would end the process.
            let missing = vec![0; (bytes - len) as usize];
            file.write_all_at(&missing, len).map_err(errno_of)?;
        }
        let map = Some(MappedWords::new(file.as_fd(), count)?);
        Ok(SharedWords { file, map })
    }

    /// True if each change after a `stat` gives an inode another change time. So it is on Linux 6.13
    /// and later, on some file systems. Elsewhere the clock of change times ticks every few milliseconds.
    ///
    /// # Errors
    /// Those of the file system.
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
        // With coarse times this loop would have waited for a tick at each look.
        Ok(begin.elapsed() < TICK * LOOKS as u32)
    }

    /// The file.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The words.
    pub(super) fn words(&self) -> &[AtomicU64] {
        self.map.as_ref().map_or(&[], MappedWords::words)
    }
}
