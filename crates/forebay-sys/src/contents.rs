//! Contents of files: how bytes get to storage, and from one file to another.

use crate::{Errno, Sys, raw};
use rustix::fs::{self, Advice, SeekFrom};
use rustix::io::{pread, pwrite, retry_on_intr};
use std::os::fd::BorrowedFd;

/// `fsync`.
///
/// # Errors
/// Those of the call.
pub fn fsync(fd: BorrowedFd<'_>) -> Sys<()> {
    fs::fsync(fd)
}

/// `syncfs`.
///
/// # Errors
/// Those of the call.
pub fn syncfs(fd: BorrowedFd<'_>) -> Sys<()> {
    fs::syncfs(fd)
}

/// `ftruncate`.
///
/// # Errors
/// Those of the call.
pub fn set_size(fd: BorrowedFd<'_>, bytes: u64) -> Sys<()> {
    fs::ftruncate(fd, bytes)
}

/// Asks the kernel to begin to write the pages of a file out, and does not wait. This is advice: a failure does no harm.
pub fn begin_writeback(fd: BorrowedFd<'_>) {
    let _ = raw::writeback::begin(fd);
}

/// Drops the cached pages of a synced file, so that the next read comes from the file system. This is advice.
pub fn forget_pages(fd: BorrowedFd<'_>) {
    let _ = fs::fadvise(fd, 0, None, Advice::DontNeed);
}

/// Tells the kernel that all of the file will be read soon. This is advice.
pub fn will_need(fd: BorrowedFd<'_>) {
    let _ = fs::fadvise(fd, 0, None, Advice::WillNeed);
}

/// Tells the kernel that the file will be read from beginning to end. This is advice.
pub fn will_read_all(fd: BorrowedFd<'_>) {
    let _ = fs::fadvise(fd, 0, None, Advice::Sequential);
}

/// The next range with data at or after `from`, as start and end in bytes. `None` if only a hole follows. A file system
/// without holes reports the whole file.
///
/// # Errors
/// Those of `lseek`.
pub fn next_data(fd: BorrowedFd<'_>, from: u64) -> Sys<Option<(u64, u64)>> {
    let start = match fs::seek(fd, SeekFrom::Data(from)) {
        Err(Errno::NXIO) => return Ok(None),
        start => start?,
    };
    let end = fs::seek(fd, SeekFrom::Hole(start))?;
    Ok(Some((start, end)))
}

/// Most bytes that one call copies.
const PIECE_BYTES: u64 = 128 << 20;
/// Bytes that are read and written at once if the kernel does not copy.
const BUFFER_BYTES: usize = 1 << 20;

/// Copies up to `bytes` from the start of `from` to the start of `to`, and returns how many it copied. The kernel
/// copies if it can. Both descriptors must be at position 0.
///
/// # Errors
/// Those of the file systems. It is no error if the kernel cannot copy between them.
pub fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, bytes: u64) -> Sys<u64> {
    debug_assert_eq!((fs::tell(from), fs::tell(to)), (Ok(0), Ok(0)));
    let mut done = 0;
    while done < bytes {
        let piece = PIECE_BYTES.min(bytes - done) as usize;
        match retry_on_intr(|| fs::copy_file_range(from, None, to, None, piece)) {
            Ok(0) => break,
            Ok(n) => done += n as u64,
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BADF) => {
                return copy_by_hand(from, to, bytes, done);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

fn copy_by_hand(from: BorrowedFd<'_>, to: BorrowedFd<'_>, bytes: u64, start: u64) -> Sys<u64> {
    let mut buffer = vec![0u8; BUFFER_BYTES];
    let mut done = start;
    while done < bytes {
        let piece = (bytes - done).min(BUFFER_BYTES as u64) as usize;
        let n = retry_on_intr(|| pread(from, &mut buffer[..piece], done))?;
        if n == 0 {
            break;
        }
        write_all_at(to, &buffer[..n], done)?;
        done += n as u64;
    }
    Ok(done)
}

fn write_all_at(to: BorrowedFd<'_>, mut bytes: &[u8], mut at: u64) -> Sys<()> {
    while !bytes.is_empty() {
        match retry_on_intr(|| pwrite(to, bytes, at))? {
            0 => return Err(Errno::IO),
            n => {
                bytes = &bytes[n..];
                at += n as u64;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_is_copied_by_hand_is_what_was_there_from_the_given_byte_on() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..BUFFER_BYTES + 4321).map(|i| (i % 251) as u8).collect();
        let path = dir.path().join("from");
        std::fs::write(&path, &bytes).unwrap();
        let from = std::fs::File::open(&path).unwrap();
        let to = std::fs::File::create(dir.path().join("to")).unwrap();
        let copied = copy_by_hand(from.as_fd(), to.as_fd(), 1 << 40, 1000);
        assert_eq!(copied, Ok(bytes.len() as u64));
        let written = std::fs::read(dir.path().join("to")).unwrap();
        assert_eq!(written[..1000], [0; 1000]);
        assert_eq!(written[1000..], bytes[1000..]);
        // A descriptor that cannot be written to.
        let failed = copy_by_hand(from.as_fd(), from.as_fd(), 10, 0);
        assert_eq!(failed, Err(Errno::BADF));
    }
}
