//! A log as the tests read it.

use crate::stage::{Said, Stage, finish};
use darshan_log::{CounterModule, Log, Module, Posix, Record, Stdio};
use std::collections::BTreeMap;
use std::process::Command;

/// Bytes read and written by each rank.
pub type ByRank = BTreeMap<i64, (i64, i64)>;

/// A log and the files in it.
pub struct Job {
    pub log: Log,
}

impl Job {
    /// The log that `--log job.darshan` has left.
    #[track_caller]
    pub fn of(stage: &Stage) -> Job {
        Job::at(stage, "job.darshan")
    }

    #[track_caller]
    pub fn at(stage: &Stage, name: &str) -> Job {
        Job {
            log: Log::open(stage.path(name)).unwrap(),
        }
    }

    /// Bytes of a file in the directory of the stage, for each rank. POSIX and streams are added.
    pub fn bytes(&self, stage: &Stage, name: &str) -> ByRank {
        let path = stage.path(name);
        let mut of = self.bytes_of::<Posix>(&path.to_string_lossy());
        for (rank, (read, written)) in self.bytes_of::<Stdio>(&path.to_string_lossy()) {
            let sum = of.entry(rank).or_default();
            *sum = (sum.0 + read, sum.1 + written);
        }
        of
    }

    /// Bytes that all ranks together have written into a file in the directory of the stage.
    pub fn written(&self, stage: &Stage, name: &str) -> i64 {
        self.bytes(stage, name).values().map(|bytes| bytes.1).sum()
    }

    /// Bytes of the file with this name through one interface, for each rank.
    pub fn bytes_of<M: CounterModule + Module<Record = Record<M>>>(&self, name: &str) -> ByRank {
        let mut of = ByRank::new();
        for record in self.log.records::<M>() {
            let record = record.unwrap();
            if self.log.names.get(record.id).as_deref() == Some(name) {
                let view = record.view();
                let bytes = (view.bytes_read(), view.bytes_written());
                assert!(of.insert(record.rank, bytes).is_none(), "{name} twice");
            }
        }
        of
    }

    /// A line of the metadata.
    pub fn line(&self, key: &str) -> &str {
        self.log.job.metadata.get(key).unwrap_or_default()
    }

    /// A line of coverage: bytes seen, and all bytes.
    pub fn coverage(&self, key: &str) -> (f64, f64) {
        let (seen, total) = self.line(key).split_once('/').expect("two numbers");
        (seen.parse().unwrap(), total.parse().unwrap())
    }
}

/// `forebay record --log job.darshan` with a shell script.
pub fn record_command(stage: &Stage, script: &str) -> Command {
    let arguments = ["record", "--log", "job.darshan", "--", "bash", "-c", script];
    stage.forebay(&arguments)
}

/// Runs [`record_command`] to its end.
pub fn record(stage: &Stage, script: &str) -> Said {
    finish(record_command(stage, script))
}

/// A shell command that writes this many bytes to a new file.
pub fn write(name: &str, bytes: usize) -> String {
    format!("dd if=/dev/zero of={name} bs={bytes} count=1 status=none")
}

/// The bytes by rank if this one rank read and wrote everything.
pub fn only(rank: i64, read: i64, written: i64) -> ByRank {
    [(rank, (read, written))].into()
}
