//! Several processes at once, each in its own directory, like the ranks of mdtest.
//!
//! First the processes are started and prepare themselves. Then a line in its pipe
//! starts each of them, and the time ends with the last answer.

use crate::place::{Place, Series, named};
use crate::usage::cpu_seconds;
use forebay_benches::sample::Cost;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// A line that a worker writes when it is ready, and after each phase.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// The phase succeeded, and took this many seconds of processor time.
    Done { cpu: f64 },
    /// The phase failed.
    Failed { error: String },
}

struct Worker {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(dir: &Path, files: usize) -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["worker", "--files", &files.to_string()])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let gone = || io::Error::other("a worker has no pipes");
        let orders = process.stdin.take().ok_or_else(gone)?;
        let answers = BufReader::new(process.stdout.take().ok_or_else(gone)?);
        Ok(Worker {
            process,
            orders,
            answers,
        })
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line)
            .map_err(|_| io::Error::other(format!("a worker has ended early: `{line}`")))
    }

    /// Waits for an answer. Returns the seconds of processor time since the last one.
    fn finished(&mut self) -> io::Result<f64> {
        match self.answer()? {
            Answer::Done { cpu } => Ok(cpu),
            Answer::Failed { error } => Err(io::Error::other(error)),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A worker that waits for orders would wait for ever.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Crew {
    workers: Vec<Worker>,
    files: usize,
}

impl Crew {
    fn start(dir: &Path, processes: usize, files: usize) -> io::Result<Self> {
        let mut workers = (0..processes)
            .map(|number| Worker::start(&dir.join(format!("process-{number}")), files))
            .collect::<io::Result<Vec<_>>>()?;
        for worker in &mut workers {
            worker.finished()?;
        }
        Ok(Crew { workers, files })
    }

    /// The cost of one operation: the time of the whole crew over its number of operations.
    fn phase(&mut self, name: &str) -> io::Result<Cost> {
        let start = Instant::now();
        for worker in &mut self.workers {
            worker.orders.write_all(format!("{name}\n").as_bytes())?;
        }
        let mut cpu = 0.0;
        for worker in &mut self.workers {
            cpu += worker.finished()?;
        }
        let operations = (self.files * self.workers.len()) as f64;
        Ok(Cost {
            wall: start.elapsed().as_secs_f64() / operations,
            cpu: cpu / operations,
        })
    }
}

/// Creates all files, then stats all, then removes all.
pub fn files(
    place: &Place,
    dir: &Path,
    processes: usize,
    rows: [&'static str; 3],
) -> io::Result<Series> {
    let mut crew = Crew::start(dir, processes, place.files)?;
    let mut series: Series = rows.map(|row| (row, Vec::new())).into();
    for _ in 0..place.repetitions {
        for (phase, (_, times)) in ["create", "stat", "remove"].into_iter().zip(&mut series) {
            times.push(crew.phase(phase)?);
        }
    }
    Ok(series)
}

/// Creates, stats and unlinks one name, over and over.
pub fn triple(
    place: &Place,
    dir: &Path,
    processes: usize,
    row: &'static str,
) -> io::Result<Series> {
    let mut crew = Crew::start(dir, processes, place.files)?;
    let times: io::Result<Vec<Cost>> = (0..place.repetitions)
        .map(|_| crew.phase("triple"))
        .collect();
    Ok(vec![(row, times?)])
}

/// The worker's side: one process that gets its orders as lines on standard input.
pub fn work(dir: &Path, files: usize) -> io::Result<()> {
    named(dir, fs::create_dir(dir))?;
    // The names are made in advance, so that only the calls are timed.
    let paths: Vec<PathBuf> = (0..files)
        .map(|number| dir.join(format!("file.{number:06}")))
        .collect();
    // The first path call connects to a bridge, which must not be timed.
    fs::metadata(dir)?;
    say(&Answer::Done { cpu: 0.0 })?;
    for order in io::stdin().lock().lines() {
        let order = order?;
        let before = cpu_seconds();
        say(&match phase(&order, &paths) {
            Ok(()) => Answer::Done {
                cpu: cpu_seconds() - before,
            },
            Err(e) => Answer::Failed {
                error: e.to_string(),
            },
        })?;
    }
    Ok(())
}

fn say(answer: &Answer) -> io::Result<()> {
    let line = serde_json::to_string(answer)?;
    writeln!(io::stdout(), "{line}")
}

fn phase(name: &str, paths: &[PathBuf]) -> io::Result<()> {
    let each = |call: &dyn Fn(&Path) -> io::Result<()>| {
        paths.iter().try_for_each(|path| named(path, call(path)))
    };
    match name {
        "create" => each(&create),
        "stat" => each(&stat),
        "remove" => each(&|path| fs::remove_file(path)),
        "triple" => {
            let path = &paths[0];
            paths.iter().try_for_each(|_| {
                create(path)?;
                stat(path)?;
                fs::remove_file(path)
            })
        }
        _ => Err(io::Error::other(format!("no phase `{name}`"))),
    }
}

fn create(path: &Path) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map(drop)
}

fn stat(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}
