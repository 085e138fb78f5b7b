//! The directory of a workload, and how much it does.

use forebay_benches::catalogue::Scale;
use forebay_benches::sample::Cost;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The cost of one operation, by row and repetition.
pub type Series = Vec<(&'static str, Vec<Cost>)>;

/// The directory of a workload, and its sizes.
pub struct Place {
    dir: PathBuf,
    /// A directory that is never in a buffer.
    pub outside: PathBuf,
    /// Repetitions for calls that take microseconds. Each is a window of time.
    pub windows: usize,
    /// Length of a window.
    pub window: Duration,
    /// Repetitions for longer work, whose time is not fixed.
    pub repetitions: usize,
    /// Files per process.
    pub files: usize,
    /// Size of the file that is written and read in calls of 1 MiB.
    pub sequential_mib: usize,
    /// How many processes are started, and how many pauses are made.
    pub singles: usize,
}

impl Place {
    /// A place with the sizes of a scale.
    pub fn new(dir: PathBuf, outside: PathBuf, scale: Scale) -> Self {
        let (windows, window_ms, repetitions, files, sequential_mib, singles) = match scale {
            Scale::Full => (3, 10, 1, 3000, 64, 20),
            Scale::Quick => (3, 5, 1, 1000, 32, 10),
            Scale::Smoke => (1, 1, 1, 20, 4, 2),
        };
        Place {
            dir,
            outside,
            windows,
            window: Duration::from_millis(window_ms),
            repetitions,
            files,
            sequential_mib,
            singles,
        }
    }

    /// Makes a directory for `name`, works in it, and removes it again.
    pub fn in_fresh_directory<T>(
        &self,
        name: &str,
        work: impl FnOnce(&Path) -> io::Result<T>,
    ) -> io::Result<T> {
        let dir = self.dir.join(name);
        named(&dir, fs::create_dir_all(&dir))?;
        let result = work(&dir);
        // The error of the work matters more than one of the removal.
        let removed = named(&dir, fs::remove_dir_all(&dir));
        result.and_then(|value| removed.map(|()| value))
    }
}

/// Adds the path to an error.
pub fn named<T>(path: &Path, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}
