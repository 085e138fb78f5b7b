//! The programs that a job has run, if the recorder noted them.

use super::Job;
use serde::Serialize;

/// A program that a process has executed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Program {
    /// Index in [`Job::programs`] of the program that started it, less than its own.
    pub parent: Option<usize>,
    /// Process id.
    pub pid: u32,
    /// The rank that it counts for, if it counts for any.
    pub rank: Option<u32>,
    /// How it ended, in a few words.
    pub end: String,
    /// First sign of life, seconds since the job's start.
    pub start_seconds: f64,
    /// Last sign of life, seconds since the job's start.
    pub end_seconds: f64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes written to files.
    pub bytes_written: u64,
    /// Seconds in calls on files, of all threads together.
    pub call_seconds: f64,
    /// Printable command line, which may be cut.
    pub command: String,
}

impl Job {
    /// The program of a rank that spent most time in I/O: its name, without directories.
    pub fn program_of(&self, rank: u32) -> Option<&str> {
        let of_rank = self.programs.iter().filter(|one| one.rank == Some(rank));
        let busiest = of_rank.max_by(|a, b| a.call_seconds.total_cmp(&b.call_seconds))?;
        let name = busiest.command.split(' ').next()?;
        name.rsplit('/').next().filter(|name| !name.is_empty())
    }

    /// By program the indices of those that it has started, in the order of their start; then those that nobody in the
    /// job has started.
    pub fn program_tree(&self) -> (Vec<Vec<usize>>, Vec<usize>) {
        let mut children = vec![Vec::new(); self.programs.len()];
        let mut roots = Vec::new();
        for (at, one) in self.programs.iter().enumerate() {
            match one.parent {
                Some(parent) => children[parent].push(at),
                None => roots.push(at),
            }
        }
        (children, roots)
    }
}
