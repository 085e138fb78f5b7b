//! Records workloads, judges images by several workers, and counts what they find.

use crate::case::{Case, Interrupted, Recovery};
use crate::image::Image;
use crate::log::Log;
use crate::oracle::Fault;
use crate::pick::Pick;
use crate::rig;
use crate::verdict::Verdict;
use crate::workload::Workload;
use anyhow::{Context, bail, ensure};
use rustix::fs::FlockOperation;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How to hunt.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The executable under test.
    pub forebay: PathBuf,
    /// Processes that judge at the same time.
    pub workers: usize,
    /// Share of flushes that the disk ignores, 0 to 1.
    pub lies: f64,
    /// Where logs are, in memory.
    pub logs: PathBuf,
    /// Where logs with faults are kept.
    pub keep: PathBuf,
}

/// A row of the table: recordings of one workload, and images of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What runs.
    pub workload: Workload,
    /// A recording for each.
    pub seeds: Range<u64>,
    /// Images of each recording, before equal ones are taken out.
    pub images: usize,
    /// How they are recovered.
    pub recovery: Recovery,
    /// Not the workload loses the power, but so many recoveries after each recording of it.
    pub interrupt: Option<(Recovery, usize)>,
}

/// A kind of fault.
#[derive(Debug, Clone)]
pub struct Found {
    /// In so many images.
    pub count: usize,
    /// The first of them.
    pub case: Case,
    /// Which image of it.
    pub pick: Pick,
    /// What was seen.
    pub seen: String,
}

/// What was found with recordings.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Recordings.
    pub recordings: usize,
    /// Images that differ by content or by what was acknowledged.
    pub distinct: usize,
    /// Those with a fault.
    pub bad: usize,
    /// Those whose recovery said that it withholds something.
    pub withheld: usize,
    /// Faults that did not show again, and were not counted.
    pub unconfirmed: usize,
    /// Why recordings, or the judging of them, failed.
    pub failures: Vec<String>,
    /// By kind.
    pub faults: BTreeMap<Fault, Found>,
    /// Time of the recording.
    pub recording: Duration,
    /// Time of the judging.
    pub judging: Duration,
}

impl Outcome {
    /// Adds those of another recording.
    pub fn add(&mut self, other: Outcome) {
        self.recordings += other.recordings;
        self.distinct += other.distinct;
        self.bad += other.bad;
        self.withheld += other.withheld;
        self.unconfirmed += other.unconfirmed;
        self.failures.extend(other.failures);
        self.recording += other.recording;
        self.judging += other.judging;
        for (fault, found) in other.faults {
            let count = found.count;
            self.faults
                .entry(fault)
                .or_insert(Found { count: 0, ..found })
                .count += count;
        }
    }

    fn note(&mut self, case: Case, pick: Pick, verdict: Option<Verdict>) {
        let Some(verdict) = verdict else {
            self.unconfirmed += 1;
            return;
        };
        self.withheld += usize::from(verdict.withheld);
        self.bad += usize::from(!verdict.faults.is_empty());
        let kinds: BTreeMap<Fault, String> = verdict.faults.into_iter().rev().collect();
        for (kind, seen) in kinds {
            let first = Found {
                count: 0,
                case,
                pick,
                seen,
            };
            self.faults.entry(kind).or_insert(first).count += 1;
        }
    }
}

/// Reads a log.
///
/// # Errors
/// It can't be read.
pub fn read_log(path: &Path, lies: f64, seed: u64) -> anyhow::Result<Log> {
    let file = File::open(path).with_context(|| format!("can't open {}", path.display()))?;
    let log = Log::read(file).with_context(|| path.display().to_string())?;
    Ok(if lies > 0.0 {
        log.with_lies(lies, seed)
    } else {
        log
    })
}

/// Records a case by a process of its own; gives the path of the log. A recovery needs the log of what was before it.
///
/// One recording at a time on a machine: the `sync` of a workload is for all disks, and would hide what others do not sync.
///
/// # Errors
/// The workload failed.
pub fn record(case: Case, before: Option<&Path>, plan: &Plan) -> anyhow::Result<PathBuf> {
    let log = plan.logs.join(case.log_name());
    let program = std::env::current_exe()?;
    let turn = File::open(&program)?;
    rustix::fs::flock(&turn, FlockOperation::LockExclusive)?;
    let mut command = rig::enclosed(&program);
    command.arg("record").args(case.arguments());
    command.arg("--log").arg(&log);
    command.arg("--forebay").arg(&plan.forebay);
    command.args(["--lies", &plan.lies.to_string()]);
    if let Some(before) = before {
        command.arg("--before").arg(before);
    }
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(
        output.status.success(),
        "recording {case}: {}",
        rig::both(&output)
    );
    Ok(log)
}

/// Takes out picks whose disks and acknowledgements are those of another.
pub fn distinct(case: Case, log: &Log, picks: Vec<Pick>) -> Vec<Pick> {
    let disks = case.workload.disks().len();
    let mut image = Image::new(log, disks);
    let mut seen = HashSet::new();
    let is_new = |pick: &Pick| {
        image.make(pick.point, &log.pieces(*pick, disks as u8));
        seen.insert((image.hash(), case.progress(log, pick.point)))
    };
    picks.into_iter().filter(is_new).collect()
}

/// Hunts, with several recordings at a time. `show` gets what was found of each row when all of it is done.
///
/// # Errors
/// The machine or a workload failed.
pub fn hunt(
    rows: &[Row],
    plan: &Plan,
    show: &(dyn Fn(&Row, &Outcome) -> anyhow::Result<()> + std::marker::Sync),
) -> anyhow::Result<Outcome> {
    let jobs: Vec<(usize, u64)> = rows
        .iter()
        .enumerate()
        .flat_map(|(index, row)| row.seeds.clone().map(move |seed| (index, seed)))
        .collect();
    let at_once = plan.workers.min(jobs.len()).max(1);
    let judges = (plan.workers / at_once).max(1);
    let open = rows
        .iter()
        .map(|row| (row.seeds.end - row.seeds.start, Outcome::default()));
    let open: Mutex<Vec<_>> = Mutex::new(open.collect());
    let queue = Mutex::new(jobs.into_iter());
    let all = Mutex::new(Outcome::default());
    let work = || -> anyhow::Result<()> {
        while let Some((index, seed)) = next_of(&queue) {
            let row = &rows[index];
            // Two rows may record the same workload.
            let logs = plan.logs.join(format!("{index}-{seed}"));
            std::fs::create_dir(&logs)?;
            let plan = Plan {
                logs,
                ..plan.clone()
            };
            // The others go on.
            let outcome = one(row, seed, &plan, judges).unwrap_or_else(|e| Outcome {
                failures: vec![format!("{}, seed {seed}: {e:#}", row.workload)],
                ..Outcome::default()
            });
            std::fs::remove_dir_all(&plan.logs)?;
            let mut open = open.lock().map_err(|_| poisoned())?;
            let (left, of_row) = &mut open[index];
            of_row.add(outcome);
            *left -= 1;
            if *left == 0 {
                show(row, of_row)?;
                all.lock()
                    .map_err(|_| poisoned())?
                    .add(std::mem::take(of_row));
            }
        }
        Ok(())
    };
    in_parallel(at_once, &work)?;
    all.into_inner().map_err(|_| poisoned())
}

fn poisoned() -> anyhow::Error {
    anyhow::anyhow!("a worker panicked")
}

fn next_of<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    queue.lock().ok()?.next()
}

fn in_parallel(
    count: usize,
    work: &(dyn Fn() -> anyhow::Result<()> + std::marker::Sync),
) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        let joined = started.into_iter().map(std::thread::ScopedJoinHandle::join);
        let results: Vec<_> = joined
            .map(|result| result.unwrap_or_else(|_| bail!("a worker panicked")))
            .collect();
        results.into_iter().collect()
    })
}

/// One recording of a row, and its images.
fn one(row: &Row, seed: u64, plan: &Plan, judges: usize) -> anyhow::Result<Outcome> {
    let case = Case {
        workload: row.workload,
        seed,
        interrupted: None,
        recovery: row.recovery,
    };
    let begun = Instant::now();
    let path = record(case, None, plan)?;
    let recording = begun.elapsed();
    let log = read_log(&path, plan.lies, seed)?;
    let picks = |log: &Log, count: usize, seed: u64| {
        log.picks(count, seed, case.workload.disks().len() as u8)
    };
    let mut outcome = Outcome {
        recording,
        recordings: 1,
        ..Outcome::default()
    };
    let Some((recovery, firsts)) = row.interrupt else {
        let picks = distinct(case, &log, picks(&log, row.images, seed));
        outcome.add(judge(case, &path, picks, plan, judges)?);
        return Ok(outcome);
    };
    let mut first = distinct(case, &log, picks(&log, 8 * firsts, seed));
    fastrand::Rng::with_seed(seed).shuffle(&mut first);
    for first in first.into_iter().take(firsts) {
        let case = Case {
            interrupted: Some(Interrupted { recovery, first }),
            ..case
        };
        let begun = Instant::now();
        let of_recovery = record(case, Some(&path), plan)?;
        outcome.recording += begun.elapsed();
        let log = read_log(&of_recovery, plan.lies, seed)?;
        let count = row.images.div_ceil(firsts);
        let picks = distinct(case, &log, picks(&log, count, first.seed ^ seed));
        outcome.add(judge(case, &of_recovery, picks, plan, judges)?);
        std::fs::remove_file(of_recovery)?;
    }
    Ok(outcome)
}

/// Judges images of a recording; keeps its log if there is a fault.
fn judge(
    case: Case,
    path: &Path,
    picks: Vec<Pick>,
    plan: &Plan,
    judges: usize,
) -> anyhow::Result<Outcome> {
    let outcome = Outcome {
        distinct: picks.len(),
        ..Outcome::default()
    };
    let (outcome, queue) = (Mutex::new(outcome), Mutex::new(picks.into_iter()));
    let begun = Instant::now();
    let work = || worker(case, plan, path, &|| next_of(&queue), &outcome);
    in_parallel(judges, &work)?;
    let mut outcome = outcome.into_inner().map_err(|_| poisoned())?;
    outcome.judging = begun.elapsed();
    if outcome.bad > 0 {
        std::fs::create_dir_all(&plan.keep)?;
        std::fs::copy(path, plan.keep.join(case.log_name()))?;
    }
    Ok(outcome)
}

/// Ends a worker whatever happens; everything in its namespaces ends with it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn worker(
    case: Case,
    plan: &Plan,
    log: &Path,
    next: &dyn Fn() -> Option<Pick>,
    outcome: &Mutex<Outcome>,
) -> anyhow::Result<()> {
    let mut command = rig::enclosed(&std::env::current_exe()?);
    command.arg("judge").args(case.arguments());
    command.arg("--log").arg(log);
    command.args(["--lies", &plan.lies.to_string(), "--forebay"]);
    command.arg(&plan.forebay);
    let mut child = Ended(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?,
    );
    let mut to = child.0.stdin.take().context("no standard input")?;
    let mut from = BufReader::new(child.0.stdout.take().context("no standard output")?);
    while let Some(pick) = next() {
        writeln!(to, "{pick}").with_context(|| format!("the worker ended before {pick}"))?;
        let mut line = String::new();
        from.read_line(&mut line)?;
        let verdict = serde_json::from_str(&line)
            .with_context(|| format!("the worker ended at {case} --point {pick} ({line})"))?;
        outcome
            .lock()
            .map_err(|_| poisoned())?
            .note(case, pick, verdict);
    }
    drop(to);
    ensure!(child.0.wait()?.success(), "a worker ended with an error");
    Ok(())
}
