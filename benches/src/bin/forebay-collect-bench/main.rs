//! Measures the end of a recorded run, when the tables of many processes become one log.
//!
//! The tables are synthetic, and lie in shared memory as those of a run do. So only the collector is measured. In one
//! job each process has its own files; in the other job all processes share their files.

use anyhow::{Context, Result};
use clap::Parser;
use forebay_collect::naming::Moment;
use forebay_collect::recording::{CommandEnd, Note, Recording};
use forebay_count::table::{Birth, InMemory, Name};
use forebay_count::{Event, Kind, Op, Table};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Start of the jobs, in nanoseconds since 1970.
const START: u64 = 1_700_000_000_000_000_000;
/// Duration of a call in nanoseconds.
const CALL_NS: u64 = 10_000;
/// The goal for a job of [`GOAL_SIZE`].
const GOAL: Duration = Duration::from_secs(2);
/// Number of processes, and of files per process.
const GOAL_SIZE: (u32, u32) = (64, 1000);

/// Measures the collector.
#[derive(Parser)]
struct Options {
    /// Processes of the job.
    #[arg(long, default_value_t = 64)]
    processes: u32,
    /// Files of each process.
    #[arg(long, default_value_t = 1000)]
    files: u32,
    /// Number of rounds; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Bytes of each table (the recorder's are 2 MiB). Default: as many as the files need.
    #[arg(long)]
    memory: Option<usize>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let dir = Path::new("/dev/shm").join(format!("forebay-collect-bench-{}", std::process::id()));
    let _scratch = Scratch(dir.clone());
    println!(
        "collect: {} processes x {} files, tables in /dev/shm, middle of {} rounds",
        options.processes, options.files, options.rounds
    );
    for (name, is_shared) in [("a file per process", false), ("shared files", true)] {
        let recording = record(&dir, &options, is_shared)?;
        let log = dir.with_extension("darshan");
        let (mut times, mut processor) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds.max(1) {
            let (started, ran) = (Instant::now(), processor_ns()?);
            forebay_collect::collect(std::slice::from_ref(&recording), Some(&log), midnight)?;
            times.push(started.elapsed());
            processor.push(processor_ns()? - ran);
            fs::remove_file(&log)?;
        }
        times.sort();
        let least = processor.into_iter().min().unwrap_or(0) as f64 * 1e-9;
        let middle = times[times.len() / 2];
        let share = middle.as_secs_f64() / GOAL.as_secs_f64();
        let goal = if (options.processes, options.files) == GOAL_SIZE {
            format!(" ({share:.2} of the goal)")
        } else {
            String::new()
        };
        println!(
            "  {name:<20} {:.3} s{goal}; processor time at least {least:.3} s, {:.0} us for each process",
            middle.as_secs_f64(),
            least * 1e6 / f64::from(options.processes.max(1))
        );
        recording.remove()?;
    }
    Ok(())
}

fn midnight(_: u64) -> Moment {
    Moment {
        year: 2026,
        month: 1,
        day: 1,
        second_of_day: 0,
    }
}

fn record(dir: &Path, options: &Options, is_shared: bool) -> Result<Recording> {
    let mut note = Note::new(vec!["made up".to_owned()]);
    note.start_ns = START;
    note.end = Some(CommandEnd {
        end_ns: START + 60_000_000_000,
        code: Some(0),
        ..CommandEnd::default()
    });
    let recording = Recording::create(dir, note)?;
    // A record and its name take less than 1.1 KiB, and three quarters of a table are for records.
    let bytes = options
        .memory
        .unwrap_or(options.files as usize * 1536 + (1 << 19));
    for rank in 0..options.processes {
        let words: Vec<AtomicU64> = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        let birth = Birth {
            pid: 1000 + rank,
            ppid: 1,
            start_ticks: u64::from(rank) + 1,
            realtime_ns: START,
            monotonic_ns: 1,
            hostname: b"node1",
            exe: b"/usr/bin/sim",
            args: b"sim\0",
            ..Birth::default()
        };
        let table = Table::format(&words, &birth, &InMemory).context("a table")?;
        table.set_rank(rank, options.processes, true);
        for n in 0..options.files {
            let owner = if is_shared { 0 } else { rank };
            fill(
                &table,
                &format!("/scratch/project/run/out.{owner:05}.{n:06}"),
                n,
            )?;
        }
        let path = dir.join(format!("{}-{rank}-0.table", 1000 + rank));
        write_sparse(&path, &words).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(recording)
}

/// Words of a page.
const PAGE_WORDS: usize = 512;

/// Writes a table with holes where the recorder leaves some: where nothing was counted.
fn write_sparse(path: &Path, words: &[AtomicU64]) -> io::Result<()> {
    let file = File::create_new(path)?;
    file.set_len(words.len() as u64 * 8)?;
    for (n, page) in words.chunks(PAGE_WORDS).enumerate() {
        let values = page.iter().map(|word| word.load(Ordering::Relaxed));
        if values.clone().any(|value| value != 0) {
            let bytes: Vec<u8> = values.flat_map(u64::to_ne_bytes).collect();
            file.write_all_at(&bytes, (n * PAGE_WORDS * 8) as u64)?;
        }
    }
    Ok(())
}

/// Nanoseconds that this process has had a processor, in user and system mode. It has one thread.
fn processor_ns() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/schedstat")?;
    let first = text.split(' ').next().context("an empty schedstat")?;
    Ok(first.parse()?)
}

/// Records a file that is opened, written in pieces of several sizes, and closed.
fn fill(table: &Table<'_>, path: &str, n: u32) -> Result<()> {
    let name = Name::of(path.as_bytes());
    let handle = table
        .hold(Kind::Posix, &name, &InMemory)
        .context("a record")?;
    let mut at = 1 + u64::from(n) * 10 * CALL_NS;
    let mut call = |op, offset, bytes| {
        let event = Event {
            offset,
            bytes,
            ..Event::plain(op, at, at + CALL_NS)
        };
        at += CALL_NS;
        table.count(Kind::Posix, handle, &event, &InMemory);
    };
    call(Op::Open, 0, 0);
    for (piece, size) in [4096, 4096, 100_000, 8, 1 << 20].into_iter().enumerate() {
        call(Op::Write, (piece as i64) << 21, size);
    }
    call(Op::Close, 0, 0);
    table.let_go(Kind::Posix, handle);
    Ok(())
}

/// A directory that is removed when the program ends.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
