//! A client of `forebay probe`: writes where it is told, and says how long that took.

use crate::cli::exit;
use crate::error::{Fault, fault};
use crate::place::plain;
use crate::verbs::probe_folder::open_marked;
use crate::verbs::tell;
use forebay_core::collective::WRITE_BYTES;
use forebay_sys as sys;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Instant;

/// The answer where a file system has no files of that size.
pub const TOO_LARGE: &str = "too large";

/// Runs the verb. The first line that it writes names the client of the file system that it is: the node and the mount.
/// The first line that it reads tells of the folder, and the answer is whether that is there. Then it reads lines `NAME OFFSET`, writes a
/// page there, and answers with nanoseconds, with `too large` if the file system has no files of that size, or with `error` and a text.
pub fn probe_client(dir: &Path, waits: bool) -> Result<u8, Fault> {
    let cannot = |e: io::Error| fault(format!("{}: {}", dir.display(), plain(&e)));
    let device = fs::metadata(dir).map_err(cannot)?.dev();
    let node = sys::boot_id().unwrap_or_else(|_| sys::host_name());
    tell(&format!("{} {device}\n", String::from_utf8_lossy(&node)))?;
    let (mut folder, mut files) = (None, BTreeMap::new());
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|e| fault(format!("standard input: {}", plain(&e))))?;
        let answer = match &folder {
            None => match open_marked(dir, &line) {
                Ok(found) => {
                    folder = found;
                    format!("{}\n", u8::from(folder.is_some()))
                }
                Err(e) => format!("error {}\n", plain(&e)),
            },
            Some(folder) => match write(folder, &mut files, waits, &line) {
                Ok(nanos) => format!("{nanos}\n"),
                Err(WriteError::Beyond) => format!("{TOO_LARGE}\n"),
                Err(WriteError::Other(e)) => format!("error {}\n", plain(&e)),
            },
        };
        tell(&answer)?;
        io::stdout()
            .flush()
            .map_err(|e| fault(format!("standard output: {}", plain(&e))))?;
    }
    Ok(exit::OK)
}

/// Why a page could not be written.
enum WriteError {
    /// The file system has no files of that size.
    Beyond,
    Other(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(e: io::Error) -> Self {
        WriteError::Other(e)
    }
}

fn write(
    folder: &OwnedFd,
    files: &mut BTreeMap<String, File>,
    waits: bool,
    line: &str,
) -> Result<u64, WriteError> {
    let words = line.rsplit_once(' ');
    let place = words.and_then(|(name, offset)| Some((name, offset.parse::<u64>().ok()?)));
    let (name, offset) = place.ok_or(io::Error::from(io::ErrorKind::InvalidInput))?;
    if !files.contains_key(name) {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let flags = flags | if waits { libc::O_SYNC } else { 0 };
        let file = sys::open(folder.as_fd(), name.as_bytes(), flags, 0o600);
        let file = File::from(file.map_err(io::Error::from)?);
        // Some file systems call all users by one number: somebody else may have got into the folder.
        let about = file.metadata()?;
        if !about.is_file() || about.nlink() != 1 {
            return Err(io::Error::other("it is not the probe's").into());
        }
        files.insert(name.to_owned(), file);
    }
    let file = &files[name];
    let begin = Instant::now();
    let written = file.write_all_at(&[b'p'; WRITE_BYTES as usize], offset);
    written.map_err(|e| match e.raw_os_error() {
        Some(libc::EFBIG) => WriteError::Beyond,
        // Some file systems say so of an offset that is too large.
        Some(libc::EINVAL) if offset > 0 => WriteError::Beyond,
        _ => WriteError::Other(e),
    })?;
    Ok(begin.elapsed().as_nanos() as u64)
}
