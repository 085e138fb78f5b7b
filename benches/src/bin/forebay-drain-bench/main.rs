//! How long a program waits for the bridge while a drain of many small files is under way.
//!
//! Makes files under `forebay run`, then measures open + close of a buffered file: alone, and while `forebay drain`
//! is at work. What a call has waited for a processor, itself or the bridge's event loops, is told beside its
//! time: on a busy machine the rest says more. Times decide no exit code.

mod client;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use client::Waits;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  forebay-drain-bench                                 200,000 x 4 KiB, from /dev/shm to /var/tmp
  forebay-drain-bench --files 20000 --pause-us 0      one call after the other
  forebay-drain-bench --storage /mnt/nvme --pfs /lustre/me --json";

/// Pauses of a foreground client while many small files are drained.
#[derive(Parser)]
#[command(name = "forebay-drain-bench", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    load: Load,
    /// A directory on local storage; what is made there is removed at the end.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    storage: PathBuf,
    /// A directory on the PFS, best of another file system; what is made there is removed at the end.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pfs: PathBuf,
    /// Seconds for which the client is measured before the drain.
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    alone: u64,
    /// Keep the buffered copies after the drain.
    #[arg(long)]
    keep: bool,
    /// Print one line of JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// The command to measure. Default: `forebay` beside this program.
    #[arg(long, value_name = "FILE")]
    forebay: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Role {
    /// The foreground client, which the benchmark starts itself.
    #[command(hide = true)]
    Client {
        #[command(flatten)]
        load: Load,
        /// The buffer.
        #[arg(long)]
        dir: PathBuf,
    },
}

/// What the client makes and how it calls.
#[derive(clap::Args, Clone, Copy)]
struct Load {
    /// Files to drain.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    files: u32,
    /// Size of each in bytes.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    bytes: usize,
    /// Files in one directory.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    per_dir: u32,
    /// Microseconds between two calls.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pause_us: u64,
    /// Open any of the files instead of one and the same.
    #[arg(long)]
    any: bool,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match &cli.role {
        Some(Role::Client { load, dir }) => client::run(*load, dir),
        None => measure(&cli),
    }
}

/// A directory that goes at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(base: &Path, role: &str) -> Result<Self> {
        let path = base.join(format!("forebay-drain-bench-{}-{role}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Scratch(fs::canonicalize(path)?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("forebay-drain-bench: {}: {e}", self.0.display());
        }
    }
}

/// The client under `forebay run`.
struct Foreground {
    process: Child,
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
    /// Its standard error.
    log: PathBuf,
}

impl Foreground {
    fn start(cli: &Cli, forebay: &Path, buffer: &Path, storage: &Path) -> Result<Self> {
        let load = cli.load;
        let log = storage.join("foreground.log");
        let mut command = Command::new(forebay);
        command
            .args(["run", "--no-drain", "--no-record", "--buffer"])
            .arg(buffer)
            .arg("--storage")
            .arg(storage)
            .arg("--")
            .arg(std::env::current_exe()?)
            .args(["client", "--dir"])
            .arg(buffer)
            .args(["--files", &load.files.to_string()])
            .args(["--bytes", &load.bytes.to_string()])
            .args(["--per-dir", &load.per_dir.to_string()])
            .args(["--pause-us", &load.pause_us.to_string()]);
        if load.any {
            command.arg("--any");
        }
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .with_context(|| forebay.display().to_string())?;
        let (orders, answers) = (process.stdin.take(), process.stdout.take());
        Ok(Foreground {
            orders,
            answers: BufReader::new(answers.context("no pipe")?).lines(),
            process,
            log,
        })
    }

    fn answer(&mut self) -> Result<String> {
        match self.answers.next() {
            Some(line) => Ok(line?),
            None => bail!(
                "the client has ended: {}",
                fs::read_to_string(&self.log)?.trim()
            ),
        }
    }

    fn order(&mut self, word: &str) -> Result<()> {
        let orders = self.orders.as_mut().context("it has been sent home")?;
        Ok(writeln!(orders, "{word}")?)
    }

    /// What its calls took while `work` was done.
    fn while_doing<T>(
        &mut self,
        bridge: u32,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(Waits, T)> {
        self.order(&bridge.to_string())?;
        let outcome = work();
        self.order("enough")?;
        let waits = serde_json::from_str(&self.answer()?)?;
        Ok((waits, outcome?))
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        // The end of its input ends it; `forebay run` then ends the bridge.
        drop(self.orders.take());
        let _ = self.process.wait();
    }
}

fn measure(cli: &Cli) -> Result<()> {
    let forebay = match &cli.forebay {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("forebay"),
    };
    let (pfs, local) = (
        Scratch::new(&cli.pfs, "pfs")?,
        Scratch::new(&cli.storage, "storage")?,
    );
    let mut foreground = Foreground::start(cli, &forebay, &pfs.0, &local.0)?;
    let made = foreground.answer()?;
    let bridge = bridge_of(&forebay, &pfs.0)?;
    let rss_before = peak_rss_mb(bridge)?;
    let rest = Duration::from_secs(cli.alone);
    let (alone, ()) = foreground.while_doing(bridge, || {
        std::thread::sleep(rest);
        Ok(())
    })?;
    let (busy, (seconds, rss)) = foreground.while_doing(bridge, || {
        let start = Instant::now();
        drain(&forebay, &pfs.0, cli.keep)?;
        Ok((start.elapsed().as_secs_f64(), peak_rss_mb(bridge)?))
    })?;
    if cli.json {
        let report = serde_json::json!({
            "files": cli.load.files, "bytes": cli.load.bytes, "pause_us": cli.load.pause_us,
            "alone": alone, "draining": busy, "drain_seconds": seconds,
            "bridge_peak_mib_before": rss_before, "bridge_peak_mib": rss,
        });
        println!("{report}");
        return Ok(());
    }
    println!(
        "{} files of {} bytes made in {made} s, drained in {seconds:.1} s; peak memory of the bridge {rss:.0} MiB \
         ({rss_before:.0} before the drain)",
        cli.load.files, cli.load.bytes
    );
    println!("open + close, ms             calls     p50     p99   p99.9     max   over 20 ms");
    for (name, waits) in [("alone", &alone), ("while draining", &busy)] {
        println!("{name:<24} {}", waits.row());
        println!("  less waits for a cpu   {}", waits.served.row(waits.calls));
    }
    println!("longest: {}", busy.worst_in_words());
    Ok(())
}

fn drain(forebay: &Path, buffer: &Path, keep: bool) -> Result<()> {
    let mut command = Command::new(forebay);
    command.args(["drain", "--json", "--buffer"]).arg(buffer);
    if keep {
        command.arg("--keep");
    }
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "`forebay drain`: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// The process id of the bridge of a buffer.
fn bridge_of(forebay: &Path, buffer: &Path) -> Result<u32> {
    let output = Command::new(forebay)
        .args(["status", "--json", "--buffer"])
        .arg(buffer)
        .output()?;
    let status: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let pid = status["bridges"][0]["pid"].as_u64();
    pid.and_then(|pid| u32::try_from(pid).ok())
        .with_context(|| format!("`forebay status` knows no bridge of {}", buffer.display()))
}

fn peak_rss_mb(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.context("no VmHWM")?.parse::<f64>()? / 1024.0)
}
