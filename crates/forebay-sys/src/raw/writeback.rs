//! Starts to write pages out, without waiting. `rustix` has no `sync_file_range`.

use super::check;
use crate::Sys;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Asks the kernel to begin to write all pages of a file out.
///
/// # Errors
/// ESPIPE if the descriptor has no pages; else those of the file system.
pub fn begin(fd: BorrowedFd<'_>) -> Sys<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::sync_file_range(fd.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) })
        .map(drop)
}

/// Writes all pages of a file out, and waits for that.
///
/// # Errors
/// As [`begin`].
pub fn whole(fd: BorrowedFd<'_>) -> Sys<()> {
    const ALL: u32 = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: plain integers.
    check(unsafe { libc::sync_file_range(fd.as_raw_fd(), 0, 0, ALL) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn pages_of_a_file_can_be_written_out_and_a_pipe_has_none() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 5000]).unwrap();
        assert_eq!(begin(file.as_fd()), Ok(()));
        assert_eq!(whole(file.as_fd()), Ok(()));
        let (reader, _writer) = crate::pipe().unwrap();
        assert_eq!(begin(reader.as_fd()), Err(Errno::SPIPE));
    }
}
