//! Calls with paths in one process: open, stat, small files, and paths outside a buffer.

use crate::place::{Place, Series, named};
use crate::timing::{per_operation, windows};
use forebay_benches::sample::Cost;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A pause that is longer than a bridge polls before it sleeps.
const PAUSE: Duration = Duration::from_millis(3);
const SMALL_BYTES: usize = 4096;

fn open_close(path: &Path) -> io::Result<()> {
    File::open(path).map(drop)
}

fn stat(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

/// Opens and stats one file over and over.
pub fn one_file(place: &Place, dir: &Path) -> io::Result<Series> {
    let path = dir.join("file");
    named(&path, fs::write(&path, b"contents"))?;
    Ok(vec![
        ("open-close", windows(place, || open_close(&path))?),
        ("stat", windows(place, || stat(&path))?),
    ])
}

/// Opens a file after a pause, so that the bridge sleeps.
pub fn idle(place: &Place, dir: &Path) -> io::Result<Series> {
    let path = dir.join("file");
    named(&path, fs::write(&path, b"contents"))?;
    let times: io::Result<Vec<Cost>> = (0..place.singles)
        .map(|_| {
            std::thread::sleep(PAUSE);
            per_operation(1, || open_close(&path))
        })
        .collect();
    Ok(vec![("open-close-idle", times?)])
}

/// Writes and reads many files of one block in one directory.
pub fn small_files(place: &Place, dir: &Path) -> io::Result<Series> {
    let paths: Vec<PathBuf> = (0..place.files)
        .map(|n| dir.join(format!("small.{n:06}")))
        .collect();
    let mut contents = [0x5a; SMALL_BYTES];
    let (mut written, mut read) = (Vec::new(), Vec::new());
    for _ in 0..place.repetitions {
        written.push(per_operation(paths.len(), || {
            paths.iter().try_for_each(|path| {
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(path)?
                    .write_all(&contents)
            })
        })?);
        read.push(per_operation(paths.len(), || {
            paths
                .iter()
                .try_for_each(|path| File::open(path)?.read_exact(&mut contents))
        })?);
        for path in &paths {
            named(path, fs::remove_file(path))?;
        }
    }
    Ok(vec![("small-write", written), ("small-read", read)])
}

/// Opens and stats paths outside the buffer, where the library has nothing to do.
pub fn outside(place: &Place) -> io::Result<Series> {
    const NAME: &str = "file-outside";
    let path = place.outside.join(NAME);
    named(&path, fs::write(&path, b"contents"))?;
    let open = windows(place, || open_close(&path))?;
    let absolute = windows(place, || stat(&path))?;
    // No other code of this program uses a relative path, so it need not change back.
    named(&place.outside, std::env::set_current_dir(&place.outside))?;
    let relative = windows(place, || stat(Path::new(NAME)))?;
    Ok(vec![
        ("outside-open", open),
        ("outside-stat", absolute),
        ("outside-stat-relative", relative),
    ])
}

/// Starts a process that ends at once.
pub fn exec(place: &Place) -> io::Result<Series> {
    let times: io::Result<Vec<Cost>> = (0..place.singles)
        .map(|_| {
            per_operation(1, || {
                let status = Command::new("/bin/true").status()?;
                status
                    .success()
                    .then_some(())
                    .ok_or_else(|| io::Error::other(format!("/bin/true: {status}")))
            })
        })
        .collect();
    Ok(vec![("exec", times?)])
}
