//! Small files that survive a power loss: whole at any moment, and on the disk when the call returns.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts a file with these bytes in place of what is there. After a power loss in the middle of it the old one is there, and
/// perhaps one whose name ends in `.new`.
///
/// # Errors
/// The file system says no; the old file is there then.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let temporary = Path::new(&name);
    match fs::remove_file(temporary) {
        // A program that died in the middle of this has left it.
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let mut file = File::options()
        .write(true)
        .create_new(true)
        // The bridge has no umask.
        .mode(0o600)
        .open(temporary)?;
    file.write_all(bytes)?;
    // Synced before the rename, or the name could lead to an empty file after a power loss.
    file.sync_all()?;
    fs::rename(temporary, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Makes the names in a directory durable.
///
/// # Errors
/// The file system says no.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
