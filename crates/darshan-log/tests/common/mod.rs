//! What the tests share: sample logs, PyDarshan, and a log with every module.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod dump;
pub mod every_module;
pub mod raw;

use std::path::{Path, PathBuf};

/// The sample logs of the Darshan project, if this machine has them: `$FOREBAY_SHARED/data/darshan-logs`
/// or `../shared/data/darshan-logs` beside the workspace.
pub fn sample_logs() -> Vec<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = match std::env::var_os("FOREBAY_SHARED") {
        Some(shared) => PathBuf::from(shared),
        None => workspace.join("../shared"),
    };
    let folder = shared.join("data/darshan-logs");
    let logs = logs_below(&folder);
    if logs.is_empty() {
        eprintln!(
            "skipped: no sample logs in {} (set FOREBAY_SHARED)",
            folder.display()
        );
    }
    logs
}

/// The sample log whose path ends so.
pub fn sample_log(end: &str) -> Option<PathBuf> {
    let found = sample_logs()
        .into_iter()
        .find(|path| path.to_string_lossy().ends_with(end));
    if found.is_none() {
        eprintln!("skipped: no sample log {end}");
    }
    found
}

/// All `.darshan` files below a folder, by name.
pub fn logs_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut logs: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| {
            if path.is_dir() {
                logs_below(&path)
            } else {
                vec![path]
            }
        })
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "darshan")
        })
        .collect();
    logs.sort();
    logs
}

/// PyDarshan as `scripts/setup.sh test` installs it.
pub struct PyDarshan {
    pub folder: PathBuf,
}

impl PyDarshan {
    /// `None`, with the reason printed, if it isn't installed; in continuous integration
    /// (`CI` is set) it must be.
    pub fn find() -> Option<PyDarshan> {
        let cache = std::env::var_os("FOREBAY_CACHE")
            .map(PathBuf::from)
            .unwrap_or_else(|| {
                let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
                let home =
                    || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
                base.unwrap_or_else(home).join("forebay")
            });
        let folder = cache.join("pydarshan");
        if folder.join("bin/python").exists() {
            return Some(PyDarshan { folder });
        }
        assert!(
            std::env::var_os("CI").is_none(),
            "PyDarshan is missing: run scripts/setup.sh test"
        );
        eprintln!(
            "skipped: no PyDarshan in {} (scripts/setup.sh test installs it)",
            folder.display()
        );
        None
    }

    /// Its Python, with nothing of the caller's own settings.
    pub fn python(&self) -> std::process::Command {
        let mut python = std::process::Command::new(self.folder.join("bin/python"));
        python
            .env_remove("PYTHONPATH")
            .env_remove("PYTHONWARNINGS")
            .env("MPLBACKEND", "agg");
        python
    }

    /// The logs that come with it.
    pub fn example_logs(&self) -> Vec<PathBuf> {
        logs_below(&self.folder.join("lib"))
    }
}

/// A folder that is removed at the end.
pub struct TempFolder(pub PathBuf);

impl TempFolder {
    pub fn new(name: &str) -> TempFolder {
        let path = std::env::temp_dir().join(format!("darshan-log-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TempFolder(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
