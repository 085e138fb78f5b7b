//! What became of processes that runs have left in the background: a file for each in the instance directory, written by the
//! keeper of the run and shown by `forebay status`, also when no bridge runs any more.

use forebay_sys as sys;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The files are `background-<process id of the keeper>.json`.
const STEM: &str = "background-";
const EXTENSION: &str = ".json";

/// A run whose command has ended, and whose processes go on or went on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Background {
    /// The buffer root.
    pub root: PathBuf,
    /// The process that looks after them.
    pub keeper: u32,
    /// The command as it was typed.
    pub command: String,
    /// The processes when the command had ended.
    pub processes: String,
    /// How it ended; `None` as long as it goes on.
    pub result: Option<Outcome>,
}

/// How the drain at the end of the last process ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Seconds since 1970.
    pub at: u64,
    /// Everything is on the PFS.
    pub complete: bool,
    /// One line about the drain.
    pub text: String,
}

impl Background {
    fn file(&self, instance: &Path) -> PathBuf {
        instance.join(format!("{STEM}{}{EXTENSION}", self.keeper))
    }

    /// Writes the file. Not durable: after a power loss there is nothing to go on.
    pub fn save(&self, instance: &Path) -> std::io::Result<()> {
        let path = self.file(instance);
        let temporary = path.with_extension("new");
        let mut file = fs::OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        fs::rename(temporary, path)
    }

    /// Those of all runs over this buffer, in the order of their keepers.
    pub fn all(instance: &Path) -> Vec<Background> {
        let is_one = |name: &str| name.starts_with(STEM) && name.ends_with(EXTENSION);
        let entries = fs::read_dir(instance).into_iter().flatten().flatten();
        let files = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_one));
        let mut all: Vec<Background> = files
            .filter_map(|file| serde_json::from_slice(&fs::read(file.path()).ok()?).ok())
            .collect();
        all.sort_by_key(|run| run.keeper);
        all
    }

    /// Removes the files of runs that nobody looks after any more: the next one tells how things are.
    pub fn forget_old(instance: &Path) {
        for run in Background::all(instance) {
            if run.result.is_some() || !run.goes_on() {
                let _ = fs::remove_file(run.file(instance));
            }
        }
    }

    fn goes_on(&self) -> bool {
        self.result.is_none() && sys::Process::open(self.keeper).is_ok_and(|p| !p.has_ended())
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let which = format!("{}, left by `{}`", self.processes, self.command);
        match &self.result {
            Some(outcome) => format!("{which}; the last drain: {}", outcome.text),
            None if self.goes_on() => {
                format!(
                    "{which}; drained when they end, or at the end of process {}",
                    self.keeper
                )
            }
            None => format!(
                "{which}; nobody looks after them: process {} was killed",
                self.keeper
            ),
        }
    }
}

/// The runs in this storage, with their instance directories, in no order.
pub fn all_in(storage: &Path) -> Vec<(PathBuf, Background)> {
    let instances = fs::read_dir(storage).into_iter().flatten().flatten();
    let of = |instance: PathBuf| {
        let all = Background::all(&instance).into_iter();
        all.map(move |run| (instance.clone(), run))
    };
    instances.flat_map(|entry| of(entry.path())).collect()
}
