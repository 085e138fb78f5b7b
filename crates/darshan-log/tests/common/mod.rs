//! What the tests share: sample logs, PyDarshan, and a log with every module.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod dump;
pub mod every_module;
pub mod raw;

use std::path::{Path, PathBuf};

/// The sample logs of the Darshan project, if this machine has them. For `optional_data!`.
pub fn sample_logs() -> Result<Vec<PathBuf>, String> {
    let logs = logs_below(&forebay_testkit::sample_logs()?);
    assert!(!logs.is_empty(), "a folder for samples without a sample");
    Ok(logs)
}

/// The sample log whose path ends in `end`. Panics if there are samples and it is none of them.
pub fn sample_log(end: &str) -> Result<PathBuf, String> {
    let found = sample_logs()?
        .into_iter()
        .find(|path| path.to_string_lossy().ends_with(end));
    Ok(found.unwrap_or_else(|| panic!("no sample log {end}")))
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
    /// `None`, with the reason printed, if it isn't installed. Panics instead if `CI` is set.
    pub fn find() -> Option<PyDarshan> {
        forebay_testkit::pydarshan().map(|folder| PyDarshan { folder })
    }

    /// The Python of its installation, without the caller's own settings.
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
