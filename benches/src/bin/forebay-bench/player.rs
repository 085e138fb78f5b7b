//! A `forebay-load` that waits for orders, natively or under `forebay run`.

use crate::ground::Ground;
use anyhow::{Context, Result, anyhow, bail};
use forebay_benches::catalogue::Scale;
use forebay_benches::sample::Sample;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// The programs that are started.
pub struct Programs {
    /// `forebay-load`.
    pub load: PathBuf,
    /// `forebay`.
    pub forebay: PathBuf,
}

/// A process that runs workloads on orders.
pub struct Player {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// The file that takes its standard error.
    log: PathBuf,
    bridge: Option<u32>,
}

/// The result of one run of a workload.
pub struct Played {
    /// What the program measured.
    pub sample: Sample,
    /// Processors that the bridge kept busy during the run; `None` without a bridge.
    pub bridge_cores: Option<f64>,
}

impl Player {
    /// Starts a player on the file system itself.
    pub fn native(programs: &Programs, ground: &Ground, scale: Scale) -> Result<Self> {
        let command = Command::new(&programs.load);
        Self::start(command, &ground.native, ground, scale, "native.log")
    }

    /// Starts a player in a buffer whose storage is on that file system. It is not recorded, because
    /// `forebay-record-bench` measures what the recorder adds to a call.
    pub fn buffered(programs: &Programs, ground: &Ground, scale: Scale) -> Result<Self> {
        let mut command = Command::new(&programs.forebay);
        command
            .args(["run", "--no-drain", "--no-record", "--buffer"])
            .arg(&ground.buffer)
            .arg("--storage")
            .arg(&ground.storage)
            .arg("--")
            .arg(&programs.load);
        let mut player = Self::start(command, &ground.buffer, ground, scale, "buffer.log")?;
        // After the first answer the bridge is certainly running.
        player.order("idle")?;
        player.bridge = Some(bridge_of(&programs.forebay, &ground.buffer)?);
        Ok(player)
    }

    fn start(
        mut command: Command,
        dir: &Path,
        ground: &Ground,
        scale: Scale,
        log: &str,
    ) -> Result<Self> {
        let log = ground.storage.with_file_name(log);
        let mut process = command
            .args(["serve", "--scale", scale.name(), "--dir"])
            .arg(dir)
            .arg("--outside")
            .arg(&ground.native)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).with_context(|| log.display().to_string())?)
            .spawn()
            .with_context(|| format!("{}", command.get_program().display()))?;
        let gone = || anyhow!("a started program has no pipes");
        Ok(Player {
            orders: Some(process.stdin.take().ok_or_else(gone)?),
            answers: BufReader::new(process.stdout.take().ok_or_else(gone)?),
            process,
            log,
            bridge: None,
        })
    }

    fn order(&mut self, workload: &str) -> Result<Sample> {
        let mut line = String::new();
        let written = match &mut self.orders {
            Some(orders) => writeln!(orders, "{workload}"),
            None => bail!("it has been sent home"),
        };
        if written.is_ok() {
            self.answers.read_line(&mut line)?;
        }
        serde_json::from_str(&line).map_err(|_| {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            anyhow!("the program has ended in `{workload}`: {}", said.trim())
        })
    }

    /// Runs a workload.
    ///
    /// # Errors
    /// The program is gone. If a workload fails, that is no error here; the sample says so.
    pub fn play(&mut self, workload: &str) -> Result<Played> {
        let start = Instant::now();
        let before = self.bridge.and_then(cpu_seconds);
        let sample = self.order(workload)?;
        let after = self.bridge.and_then(cpu_seconds);
        let wall = start.elapsed().as_secs_f64();
        Ok(Played {
            sample,
            bridge_cores: before
                .zip(after)
                .map(|(before, after)| (after - before) / wall),
        })
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // The end of its input ends the program, and then `forebay run` ends the bridge.
        drop(self.orders.take());
        let _ = self.process.wait();
    }
}

/// The process id of the bridge of a buffer.
fn bridge_of(forebay: &Path, buffer: &Path) -> Result<u32> {
    let output = Command::new(forebay)
        .args(["status", "--json", "--buffer"])
        .arg(buffer)
        .output()
        .with_context(|| forebay.display().to_string())?;
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).with_context(|| {
        format!(
            "`forebay status`: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })?;
    status["bridges"][0]["pid"]
        .as_u64()
        .and_then(|pid| u32::try_from(pid).ok())
        .with_context(|| format!("`forebay status` knows no bridge of {}", buffer.display()))
}

/// Seconds of processor time of all threads of a process, which must live as long as the process.
fn cpu_seconds(pid: u32) -> Option<f64> {
    let mut nanoseconds = 0u64;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        nanoseconds += text.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(nanoseconds as f64 * 1e-9)
}
