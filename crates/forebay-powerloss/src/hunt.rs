//! Records workloads, judges images by several workers, and counts what they find.

use crate::image::Image;
use crate::log::Log;
use crate::oracle::{Fault, Progress};
use crate::pick::Pick;
use crate::rig;
use crate::verdict::Verdict;
use crate::workload::Workload;
use anyhow::{Context, bail, ensure};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How to hunt.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The executable under test.
    pub forebay: PathBuf,
    /// Images of each recording, before equal ones are taken out.
    pub images: usize,
    /// Processes that judge at the same time.
    pub workers: usize,
    /// Share of flushes that the disk ignores, 0 to 1.
    pub lies: f64,
    /// Where logs are, in memory.
    pub logs: PathBuf,
}

/// What was found with one recording.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Images that differ by content or by what was acknowledged.
    pub distinct: usize,
    /// Those with a fault.
    pub bad: usize,
    /// Those whose recovery said that it withholds something.
    pub withheld: usize,
    /// Faults that did not show again, and were not counted.
    pub unconfirmed: usize,
    /// By kind: how many images, and the first of them with what was seen.
    pub faults: BTreeMap<Fault, (usize, Pick, String)>,
    /// Time of the recording.
    pub recording: Duration,
    /// Time of the judging.
    pub judging: Duration,
}

impl Outcome {
    /// Images a minute, while they were judged.
    pub fn images_a_minute(&self) -> f64 {
        self.distinct as f64 * 60.0 / self.judging.as_secs_f64().max(1e-3)
    }

    /// Adds those of another recording.
    pub fn add(&mut self, other: Outcome) {
        self.distinct += other.distinct;
        self.bad += other.bad;
        self.withheld += other.withheld;
        self.unconfirmed += other.unconfirmed;
        self.recording += other.recording;
        self.judging += other.judging;
        for (fault, (count, pick, seen)) in other.faults {
            self.faults.entry(fault).or_insert((0, pick, seen)).0 += count;
        }
    }

    fn note(&mut self, pick: Pick, verdict: Option<Verdict>) {
        let Some(verdict) = verdict else {
            self.unconfirmed += 1;
            return;
        };
        self.withheld += usize::from(verdict.withheld);
        self.bad += usize::from(!verdict.faults.is_empty());
        let kinds: BTreeMap<Fault, String> = verdict.faults.into_iter().rev().collect();
        for (kind, seen) in kinds {
            self.faults.entry(kind).or_insert((0, pick, seen)).0 += 1;
        }
    }
}

/// Name of the log of a recording.
pub fn log_name(workload: Workload, seed: u64) -> String {
    format!("{}-{seed}.log", workload.to_string().replace('/', "-"))
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

/// Records a workload by a process of its own; gives the path of the log.
///
/// # Errors
/// The workload failed.
pub fn record(workload: Workload, seed: u64, plan: &Plan) -> anyhow::Result<PathBuf> {
    let log = plan.logs.join(log_name(workload, seed));
    let output = rig::enclosed(&std::env::current_exe()?)
        .arg("record")
        .arg(workload.to_string())
        .args(["--seed", &seed.to_string(), "--log"])
        .arg(&log)
        .arg("--forebay")
        .arg(&plan.forebay)
        .stdin(Stdio::null())
        .output()?;
    ensure!(
        output.status.success(),
        "recording {workload} with seed {seed}: {}",
        rig::both(&output)
    );
    Ok(log)
}

/// Takes out picks whose disks and acknowledgements are those of another.
pub fn distinct(log: &Log, picks: Vec<Pick>, disks: usize) -> Vec<Pick> {
    let mut image = Image::new(log, disks);
    let mut seen = HashSet::new();
    let is_new = |pick: &Pick| {
        image.make(pick.point, &log.pieces(*pick, disks as u8));
        let progress = Progress::of(log.said(pick.point));
        seen.insert((image.hash(), progress.acknowledged, progress.begun))
    };
    picks.into_iter().filter(is_new).collect()
}

/// Records a workload and judges images of it.
///
/// # Errors
/// The machine or the workload failed.
pub fn hunt(workload: Workload, seed: u64, plan: &Plan) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
    let path = record(workload, seed, plan)?;
    let recording = begun.elapsed();
    let log = read_log(&path, plan.lies, seed)?;
    let disks = workload.disks().len();
    let picks = distinct(&log, log.picks(plan.images, seed, disks as u8), disks);
    let outcome = Outcome {
        distinct: picks.len(),
        recording,
        ..Outcome::default()
    };
    let (outcome, queue) = (Mutex::new(outcome), Mutex::new(picks.into_iter()));
    let begun = Instant::now();
    let next = || queue.lock().ok()?.next();
    let results: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
        let start = |_| scope.spawn(|| worker(workload, seed, plan, &path, &next, &outcome));
        let started: Vec<_> = (0..plan.workers).map(start).collect();
        let joined = started.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .map(|result| result.unwrap_or_else(|_| bail!("a worker panicked")))
            .collect()
    });
    results.into_iter().collect::<anyhow::Result<()>>()?;
    let mut outcome = outcome
        .into_inner()
        .map_err(|_| anyhow::anyhow!("a worker panicked"))?;
    outcome.judging = begun.elapsed();
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
    workload: Workload,
    seed: u64,
    plan: &Plan,
    log: &Path,
    next: &(dyn Fn() -> Option<Pick> + std::marker::Sync),
    outcome: &Mutex<Outcome>,
) -> anyhow::Result<()> {
    let mut command = rig::enclosed(&std::env::current_exe()?);
    command
        .arg("judge")
        .arg(workload.to_string())
        .args(["--seed", &seed.to_string(), "--log"])
        .arg(log);
    command
        .args(["--lies", &plan.lies.to_string(), "--forebay"])
        .arg(&plan.forebay);
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
            .with_context(|| format!("the worker ended at {pick} of {workload} ({line})"))?;
        outcome
            .lock()
            .map_err(|_| anyhow::anyhow!("a worker panicked"))?
            .note(pick, verdict);
    }
    drop(to);
    ensure!(child.0.wait()?.success(), "a worker ended with an error");
    Ok(())
}
