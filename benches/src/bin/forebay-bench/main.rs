//! Runs `forebay-load` natively and under `forebay run`, in turns, and prints ratios.
//!
//! Every round runs each workload three times per file system: native, buffered, native. The
//! programs are already started and wait for orders. So the runs follow each other within
//! milliseconds, and other work of the machine affects both sides.

mod ground;
mod machine;
mod player;
mod rounds;
mod table;
mod unix;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use forebay_benches::catalogue::{Scale, WORKLOADS, Workload};
use ground::Ground;
use machine::Machine;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  forebay-bench                                  all of it, about six minutes
  forebay-bench --scale quick --rounds 3 --only one-file --only triple-1
  forebay-bench --dir /dev/shm --loop-ext4       ext4 in an image in memory: no disk in the way
  forebay-bench --json run1.json";

/// The same calls natively and through the buffer, side by side.
///
/// Times decide no exit code: it is 0 if everything could be measured.
#[derive(Parser)]
#[command(name = "forebay-bench", version, after_help = EXAMPLES)]
struct Cli {
    /// A directory on a disk. Everything that is made there is removed at the end.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    /// A directory on a tmpfs.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    tmpfs: PathBuf,
    /// Make an ext4 in an image file in --dir and work there (root only). This is the default for root
    /// if --dir is not on an ext4 with a journal.
    #[arg(long)]
    loop_ext4: bool,
    /// How often each workload is run. More rounds give less noise.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How much a run does.
    #[arg(long, value_enum, default_value_t = Scale::Full)]
    scale: Scale,
    /// Only this workload (may be repeated); `forebay-load list` names them.
    #[arg(long, value_name = "WORKLOAD")]
    only: Vec<String>,
    /// Only one of the two file systems.
    #[arg(long, value_enum)]
    on: Option<On>,
    /// Also write everything that was measured to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The command to measure. Default: `forebay` beside this program.
    #[arg(long, value_name = "FILE")]
    forebay: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum On {
    /// That of --dir.
    Disk,
    /// That of --tmpfs.
    Tmpfs,
}

fn main() -> ExitCode {
    match measure(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("forebay-bench: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints. True if everything could be measured.
fn measure(cli: &Cli) -> Result<bool> {
    let workloads = chosen(&cli.only)?;
    let programs = player::Programs {
        load: beside("forebay-load")?,
        forebay: match &cli.forebay {
            Some(path) => path.clone(),
            None => beside("forebay")?,
        },
    };
    let mut json = cli.json.as_deref().map(create).transpose()?;
    // Ctrl-C ends the measured programs. This one then removes its files, as after any error.
    unix::outlive_interrupts();
    let before = Machine::now();
    let mut grounds = Vec::new();
    if cli.on != Some(On::Tmpfs) {
        grounds.push(Ground::on_disk(&cli.dir, cli.loop_ext4)?);
    }
    if cli.on != Some(On::Disk) {
        grounds.push(Ground::on_tmpfs(&cli.tmpfs)?);
    }
    let results = rounds::run(&programs, &grounds, &workloads, cli.rounds, cli.scale)?;
    let after = Machine::now();

    print!(
        "{}",
        table::text(&before, &after, cli.rounds, cli.scale, &results)
    );
    if let (Some(file), Some(path)) = (&mut json, &cli.json) {
        let value = table::json(&before, &after, cli.rounds, cli.scale, &results);
        serde_json::to_writer_pretty(&mut *file, &value)
            .map_err(anyhow::Error::from)
            .and_then(|()| Ok(file.write_all(b"\n")?))
            .with_context(|| path.display().to_string())?;
    }
    Ok(results.iter().all(rounds::Measured::is_complete))
}

/// Creates a file for results. This happens before the measurement, so that an error does not waste minutes.
fn create(path: &Path) -> Result<std::fs::File> {
    std::fs::File::create(path).with_context(|| format!("--json {}", path.display()))
}

fn chosen(only: &[String]) -> Result<Vec<&'static Workload>> {
    for name in only {
        ensure!(
            WORKLOADS.iter().any(|w| w.name == name),
            "no workload `{name}`; `forebay-load list` names them"
        );
    }
    let is_chosen = |w: &&Workload| only.is_empty() || only.iter().any(|name| name == w.name);
    Ok(WORKLOADS.iter().filter(is_chosen).collect())
}

fn beside(name: &str) -> Result<PathBuf> {
    let me = std::env::current_exe().context("cannot find my own executable")?;
    let path = me.with_file_name(name);
    if !path.is_file() {
        bail!("{} is missing; `make build` makes it", path.display());
    }
    Ok(path)
}
