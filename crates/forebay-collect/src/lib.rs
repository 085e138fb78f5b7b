//! Joins the tables that the recorder has left of a job's processes into one Darshan log. It counts nothing itself.
//!
//! Everything that decides is pure: which process is a rank ([`ranks`]), how records of one file become one
//! ([`merge`]), how bytes over time come onto one axis ([`heatmap`]), which mounts ([`mounts`]) and lines
//! ([`metadata`]) a log has, and its name ([`naming`]). docs/COLLECTOR.md explains what a log says.
//!
//! ```no_run
//! use forebay_collect::{collect, naming::Moment, recording::Recording};
//! let recording = Recording::open("/dev/shm/forebay-tables-1000/node1-4711-123456".as_ref())?;
//! let utc = |_ns| Moment { year: 2026, month: 1, day: 1, second_of_day: 0 };
//! let collected = collect(&[recording], Some("job.darshan".as_ref()), utc)?;
//! println!("{} ranks", collected.ranks);
//! # Ok::<(), forebay_collect::Error>(())
//! ```
#![forbid(unsafe_code)]

mod busy;
mod coverage;
mod error;
mod flushing;
mod heatmap;
mod image;
mod job;
mod job_facts;
mod log;
mod merge;
mod metadata;
mod mounts;
pub mod naming;
mod nodes;
mod programs;
mod ranks;
pub mod recording;
mod sharing;
mod store;
mod tables;
mod uncounted_calls;

pub use coverage::Coverage;
pub use error::Error;

use job::Job;
use naming::{Moment, Named};
use recording::Recording;
use std::path::{Path, PathBuf};
use store::Partial;

/// A log that was written.
#[derive(Debug, Clone)]
pub struct Collected {
    /// Where it is.
    pub log: PathBuf,
    /// How many ranks it has; without MPI, workers.
    pub ranks: u32,
    /// It is a parallel program, whose ranks wait for each other.
    pub is_parallel: bool,
    /// How many processes have left a table.
    pub processes: u64,
    /// How much of the I/O the log covers.
    pub coverage: Coverage,
    /// Sentences on what is not as it should be: unreadable tables, processes that still run, and the like.
    pub remarks: Vec<String>,
}

/// Writes the log of one job to `log`, else to where the first recording wants it. The tables stay.
///
/// # Errors
/// There is nothing to collect, or the log can't be written. A table that can't be read is a remark and no error.
pub fn collect(
    recordings: &[Recording],
    log: Option<&Path>,
    local_time: impl Fn(u64) -> Moment,
) -> Result<Collected, Error> {
    let job = Job::read(recordings)?;
    let path = match log {
        Some(path) => path.to_owned(),
        None => path_of(&job, local_time)?,
    };
    let (partial, file) = Partial::create(&path)?;
    let file = log::write(&job, file)?;
    let log = partial.publish(&file)?;
    let mut remarks = job.tables.remarks.clone();
    if job.processes() == 0 {
        remarks.push(
            "no process has left a table: the program is linked statically, or runs without LD_PRELOAD"
                .to_owned(),
        );
    }
    if job.alive() > 0 {
        remarks.push(format!(
            "{} of the command's processes still run; what they do from now on is not in the log",
            job.alive()
        ));
    }
    Ok(Collected {
        log,
        ranks: job.ranks.count(),
        is_parallel: job.ranks.is_parallel(),
        processes: job.processes(),
        coverage: coverage::of(&job),
        remarks,
    })
}

/// Where the recording wants the log.
fn path_of(job: &Job, local_time: impl Fn(u64) -> Moment) -> Result<PathBuf, Error> {
    let note = job.note();
    if let Some(log) = &note.log {
        return Ok(log.clone());
    }
    let Some(dir) = &note.log_dir else {
        return Err(Error::Nothing("no place for the log is set".to_owned()));
    };
    let command = job.command_line();
    let distinct = format!("{} {} {}", note.host, note.recorder.0, job.start_ns);
    let name = naming::file_name(&Named {
        user: &note.user,
        program: command.split(' ').next().unwrap_or_default(),
        job_id: log::job_id(job),
        pid: note.pid,
        start: local_time(job.start_ns),
        hash: darshan_log::record_id(distinct.as_bytes()),
        seconds: (job.end_ns - job.start_ns).div_ceil(1_000_000_000),
    });
    Ok(dir.join(name))
}

/// Rank and size of the launch that this process itself belongs to, by its environment. The processes that it
/// starts inherit these variables without being ranks.
pub fn outer_rank(env: &dyn Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    let number = |name: &str| env(name)?.parse().ok();
    RANK_VARIABLES
        .iter()
        .find_map(|(rank, size)| Some((number(rank)?, number(size).unwrap_or(0).max(1))))
}

/// Variables in which launchers tell a process its rank and the number of ranks, in the order of forebay-record.
const RANK_VARIABLES: [(&str, &str); 5] = [
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("RANK", "WORLD_SIZE"),
];
