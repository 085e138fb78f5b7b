//! The program in the foreground: makes files, then opens and closes one over and over.

use crate::Load;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A pause that a user notices.
const LONG_NS: u64 = 20_000_000;
/// Longest calls that are told one by one.
const WORST: usize = 8;

/// Times of many calls, in milliseconds.
#[derive(Serialize, Deserialize)]
pub struct Times {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
    over_20_ms: usize,
}

impl Times {
    fn of(mut ns: Vec<u64>) -> Self {
        ns.sort_unstable();
        let ms = |part: f64| {
            let at = ((ns.len() as f64 * part) as usize).min(ns.len().saturating_sub(1));
            ns.get(at).map_or(0.0, |&ns| ns as f64 * 1e-6)
        };
        Times {
            p50: ms(0.5),
            p99: ms(0.99),
            p999: ms(0.999),
            max: ms(1.0),
            over_20_ms: ns.iter().filter(|&&ns| ns > LONG_NS).count(),
        }
    }

    /// For the table.
    pub fn row(&self, calls: usize) -> String {
        let Times {
            p50,
            p99,
            p999,
            max,
            over_20_ms,
        } = self;
        format!("{calls:>9} {p50:>7.3} {p99:>7.2} {p999:>7.2} {max:>7.1} {over_20_ms:>12}")
    }
}

/// A call that took long.
#[derive(Serialize, Deserialize)]
struct Slow {
    at_s: f64,
    ms: f64,
    /// Of these, the client and the event loops were ready to run and had no processor.
    no_cpu_ms: f64,
}

/// What calls took.
#[derive(Serialize, Deserialize)]
pub struct Waits {
    pub calls: usize,
    wall: Times,
    /// Without what client and event loops waited for a processor.
    pub served: Times,
    worst: Vec<Slow>,
}

impl Waits {
    /// For the table.
    pub fn row(&self) -> String {
        self.wall.row(self.calls)
    }

    /// The longest calls.
    pub fn worst_in_words(&self) -> String {
        let one = |slow: &Slow| {
            let Slow {
                at_s,
                ms,
                no_cpu_ms,
            } = slow;
            format!("{ms:.1} ms at {at_s:.2} s ({no_cpu_ms:.1} without a cpu)")
        };
        self.worst.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// The time that some threads have waited for a processor.
struct Queues(Vec<File>);

impl Queues {
    fn of(bridge: &str) -> Result<Self> {
        let mut files = vec![File::open("/proc/thread-self/schedstat")?];
        for task in fs::read_dir(format!("/proc/{bridge}/task"))? {
            let task = task?.path();
            if fs::read_to_string(task.join("comm"))?.starts_with("shard") {
                files.push(File::open(task.join("schedstat"))?);
            }
        }
        Ok(Queues(files))
    }

    fn waited_ns(&self) -> u64 {
        let mut text = [0; 64];
        let one = |file: &File| {
            let len = file.read_at(&mut text, 0).unwrap_or(0);
            let text = str::from_utf8(&text[..len]).unwrap_or("");
            let waited = text
                .split(' ')
                .nth(1)
                .and_then(|word| word.parse::<u64>().ok());
            waited.unwrap_or(0)
        };
        self.0.iter().map(one).sum()
    }
}

/// Makes the files, then measures for as often as it is told to.
pub fn run(load: Load, dir: &Path) -> Result<()> {
    let start = Instant::now();
    let contents = vec![b'x'; load.bytes];
    let path = |n: u32| dir.join(format!("d{}/f{n}", n / load.per_dir));
    for n in 0..load.files {
        let path = path(n);
        if n % load.per_dir == 0 {
            fs::create_dir(path.parent().context("no directory")?)?;
        }
        fs::write(&path, &contents).with_context(|| path.display().to_string())?;
    }
    let one = dir.join("one");
    fs::write(&one, &contents)?;
    say(&format!("{:.1}", start.elapsed().as_secs_f64()))?;
    let mut lines = BufReader::new(std::io::stdin()).lines();
    while let Some(bridge) = lines.next().transpose()? {
        let queues = Queues::of(&bridge)?;
        let enough = AtomicBool::new(false);
        let mut seed = 1u64;
        let mut next = || -> PathBuf {
            if !load.any {
                return one.clone();
            }
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            path((seed >> 33) as u32 % load.files)
        };
        let waits = std::thread::scope(|scope| -> Result<Waits> {
            scope.spawn(|| {
                let _ = lines.next();
                enough.store(true, Ordering::Relaxed);
            });
            measure(
                &queues,
                Duration::from_micros(load.pause_us),
                &mut next,
                &enough,
            )
        })?;
        say(&serde_json::to_string(&waits)?)?;
    }
    Ok(())
}

fn measure(
    queues: &Queues,
    pause: Duration,
    next: &mut dyn FnMut() -> PathBuf,
    enough: &AtomicBool,
) -> Result<Waits> {
    let begin = Instant::now();
    let (mut wall, mut served) = (Vec::new(), Vec::new());
    let mut slow: Vec<Slow> = Vec::new();
    while !enough.load(Ordering::Relaxed) {
        let path = next();
        let waited = queues.waited_ns();
        let start = Instant::now();
        drop(File::open(&path).with_context(|| path.display().to_string())?);
        let took = start.elapsed().as_nanos() as u64;
        let no_cpu = queues.waited_ns().saturating_sub(waited).min(took);
        wall.push(took);
        served.push(took - no_cpu);
        if took > LONG_NS / 4 {
            slow.push(Slow {
                at_s: (start - begin).as_secs_f64(),
                ms: took as f64 * 1e-6,
                no_cpu_ms: no_cpu as f64 * 1e-6,
            });
        }
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    slow.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    slow.truncate(WORST);
    Ok(Waits {
        calls: wall.len(),
        wall: Times::of(wall),
        served: Times::of(served),
        worst: slow,
    })
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
