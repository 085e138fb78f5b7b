//! Contents of files: how bytes get to storage, and from one file to another.

use crate::{Errno, Sys, raw};
use rustix::fs::{self, Advice, SeekFrom};
use rustix::io::{pread, pwrite, retry_on_intr};
use std::os::fd::{BorrowedFd, OwnedFd};

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

/// Makes the names in a directory durable, which may be an `O_PATH` descriptor. If this user may not read it, the whole file
/// system is synced, to which `readable` leads.
///
/// # Errors
/// Those of the calls.
pub fn sync_names(dir: BorrowedFd<'_>, readable: impl FnOnce() -> Sys<OwnedFd>) -> Sys<()> {
    match crate::open(dir, b".", libc::O_RDONLY | libc::O_DIRECTORY, 0) {
        Ok(dir) => fs::fsync(dir),
        Err(Errno::ACCESS) => fs::syncfs(readable()?),
        Err(e) => Err(e),
    }
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

/// Writes all pages of a file out, and waits until they are on the disk or in its cache. Not what tells where they are: a
/// sync of anything else has to follow, on a file system that keeps the order of such changes.
///
/// # Errors
/// Those of `sync_file_range`.
pub fn write_out(fd: BorrowedFd<'_>) -> Sys<()> {
    raw::writeback::whole(fd)
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

/// Copies up to `bytes` from the start of `from` to the start of the empty file `to`, and returns how many there were.
/// Holes stay holes. The kernel copies if it can.
///
/// # Errors
/// Those of the file systems. It is no error if the kernel cannot copy between them, or knows of no holes.
pub fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, bytes: u64) -> Sys<u64> {
    let size = (fs::fstat(from)?.st_size as u64).min(bytes);
    let mut at = 0;
    while at < bytes {
        let (start, end) = match next_data(from, at) {
            Ok(Some((start, end))) => (start, end.min(bytes)),
            Ok(None) => break,
            // Not every file says where its data is; some say that they have no bytes, and give some.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => (at, bytes),
            Err(e) => return Err(e),
        };
        if start >= end {
            break;
        }
        at = copy_range(from, to, start, end)?;
        if at < end {
            return Ok(at);
        }
    }
    if at < size {
        set_size(to, size)?;
    }
    Ok(at.max(size))
}

/// Copies a range, and returns where it has ended: earlier if `from` does.
fn copy_range(from: BorrowedFd<'_>, to: BorrowedFd<'_>, start: u64, end: u64) -> Sys<u64> {
    let (mut read, mut written) = (start, start);
    while read < end {
        let piece = PIECE_BYTES.min(end - read) as usize;
        let copied = retry_on_intr(|| {
            fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), piece)
        });
        match copied {
            Ok(0) => break,
            Ok(_) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BADF) => {
                return copy_by_hand(from, to, read, end);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(read)
}

fn copy_by_hand(from: BorrowedFd<'_>, to: BorrowedFd<'_>, start: u64, end: u64) -> Sys<u64> {
    let mut buffer = vec![0u8; BUFFER_BYTES];
    let mut at = start;
    while at < end {
        let piece = (end - at).min(BUFFER_BYTES as u64) as usize;
        let n = retry_on_intr(|| pread(from, &mut buffer[..piece], at))?;
        if n == 0 {
            break;
        }
        write_all_at(to, &buffer[..n], at)?;
        at += n as u64;
    }
    Ok(at)
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
        let copied = copy_by_hand(from.as_fd(), to.as_fd(), 1000, 1 << 40);
        assert_eq!(copied, Ok(bytes.len() as u64));
        let written = std::fs::read(dir.path().join("to")).unwrap();
        assert_eq!(written[..1000], [0; 1000]);
        assert_eq!(written[1000..], bytes[1000..]);
        // A descriptor that cannot be written to.
        let failed = copy_by_hand(from.as_fd(), from.as_fd(), 0, 10);
        assert_eq!(failed, Err(Errno::BADF));
    }
}
