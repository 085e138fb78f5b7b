//! `forebay-powerloss`: takes the power away from Forebay, and looks what is left.
#![forbid(unsafe_code)]

use anyhow::{Context, bail, ensure};
use clap::{Parser, Subcommand};
use forebay_powerloss::hunt::{self, Outcome, Plan, log_name, read_log};
use forebay_powerloss::judge::Judge;
use forebay_powerloss::pick::Pick;
use forebay_powerloss::rig::{self, BASE};
use forebay_powerloss::workload::{Situation, Workload};
use forebay_powerloss::{disk, recorder};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Set in the process that has namespaces of its own.
const ENCLOSED: &str = "FOREBAY_POWERLOSS_ENCLOSED";

#[derive(Debug, Parser)]
#[command(name = "forebay-powerloss", about, disable_help_subcommand = true)]
struct Cli {
    /// The executable under test. Default: `forebay` beside this one, or of the release build.
    #[arg(long, value_name = "FILE", global = true)]
    forebay: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Record workloads, judge images of them, and print a table.
    Hunt {
        /// SITUATION/PROGRAM; all if none is named.
        workloads: Vec<Workload>,
        /// Recordings of each workload; those that a seed does not change are recorded anew.
        #[arg(long, default_value_t = 1)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Images of each recording, before equal ones are taken out.
        #[arg(long, default_value_t = 300)]
        images: usize,
        /// Images that are judged at the same time.
        #[arg(long, default_value_t = 2)]
        workers: usize,
        /// Share of flushes that the disk ignores, 0 to 1.
        #[arg(long, default_value_t = 0.0)]
        lies: f64,
        /// Where logs with faults are kept, for `replay`.
        #[arg(long, value_name = "DIR", default_value = "target/powerloss")]
        keep: PathBuf,
        /// For scripts.
        #[arg(long)]
        json: bool,
    },
    /// Show one image: what its recovery says, and what is wrong.
    Replay {
        /// SITUATION/PROGRAM.
        workload: Workload,
        /// The seed of the recording.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The image, as `hunt` names it: POINT:RULE:SEED.
        #[arg(long)]
        point: Pick,
        /// Share of flushes that the disk ignores, 0 to 1.
        #[arg(long, default_value_t = 0.0)]
        lies: f64,
        /// Where `hunt` has kept the log. Points of another recording are others.
        #[arg(long, value_name = "DIR", default_value = "target/powerloss")]
        keep: PathBuf,
    },
    /// The process of the disks.
    #[command(hide = true)]
    Disk {
        #[arg(long)]
        at: PathBuf,
        #[arg(long)]
        log: PathBuf,
        sizes: Vec<u64>,
    },
    /// The process of a recording.
    #[command(hide = true)]
    Record {
        workload: Workload,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        log: PathBuf,
    },
    /// A process that judges the images named on its standard input.
    #[command(hide = true)]
    Judge {
        workload: Workload,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        log: PathBuf,
        #[arg(long, default_value_t = 0.0)]
        lies: f64,
    },
}

fn main() -> ExitCode {
    match carry_out(Cli::parse()) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("powerloss: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn forebay_of(cli: &Cli) -> anyhow::Result<PathBuf> {
    if let Some(forebay) = &cli.forebay {
        return Ok(std::path::absolute(forebay)?);
    }
    // The preload library is only in the release build.
    let own = std::env::current_exe()?;
    let target = own
        .ancestors()
        .nth(2)
        .context("an executable of cargo lies two folders below target")?;
    Ok(target.join("release/forebay"))
}

fn carry_out(cli: Cli) -> anyhow::Result<ExitCode> {
    let forebay = forebay_of(&cli)?;
    match cli.verb {
        Verb::Disk { at, log, sizes } => {
            disk::serve(&at, &log, &sizes)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Record {
            workload,
            seed,
            log,
        } => {
            recorder::record(workload, seed, &forebay, &log)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Judge {
            workload,
            seed,
            log,
            lies,
        } => {
            let log = read_log(&log, lies, seed)?;
            let mut judge = Judge::new(workload, seed, &log, &forebay, false)?;
            for line in std::io::stdin().lock().lines() {
                let pick: Pick = line?.parse().map_err(anyhow::Error::msg)?;
                let verdict = judge.judge(pick).with_context(|| pick.to_string())?;
                println!("{}", serde_json::to_string(&verdict)?);
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Hunt { .. } | Verb::Replay { .. } if std::env::var_os(ENCLOSED).is_none() => {
            enclose()
        }
        Verb::Replay {
            workload,
            seed,
            point,
            lies,
            keep,
        } => replay(workload, seed, point, lies, &keep, forebay),
        Verb::Hunt {
            workloads,
            seeds,
            first,
            images,
            workers,
            lies,
            keep,
            json,
        } => {
            let plan = Plan {
                forebay,
                images,
                workers,
                lies,
                logs: logs()?,
            };
            let named = if workloads.is_empty() {
                Workload::all()
            } else {
                workloads
            };
            hunt_all(&named, first..first + seeds, &plan, &keep, json)
        }
    }
}

/// Runs the same command with namespaces of its own; when it ends, however it does, nothing of it is left.
fn enclose() -> anyhow::Result<ExitCode> {
    rig::check().map_err(anyhow::Error::msg)?;
    let mut command = rig::enclosed(&std::env::current_exe()?);
    let status = command
        .args(std::env::args_os().skip(1))
        .env(ENCLOSED, "1")
        .status()?;
    Ok(ExitCode::from(
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1),
    ))
}

/// A directory for logs, in memory.
fn logs() -> anyhow::Result<PathBuf> {
    rig::mount_memory(Path::new(BASE))?;
    let logs = Path::new(BASE).join("logs");
    std::fs::create_dir(&logs)?;
    Ok(logs)
}

fn replay(
    workload: Workload,
    seed: u64,
    pick: Pick,
    lies: f64,
    keep: &Path,
    forebay: PathBuf,
) -> anyhow::Result<ExitCode> {
    let kept = std::path::absolute(keep)?.join(log_name(workload, seed));
    let logs = logs()?;
    let path = if kept.exists() {
        kept
    } else {
        println!(
            "{} is not there; recording anew, with other points",
            kept.display()
        );
        let plan = Plan {
            forebay: forebay.clone(),
            images: 0,
            workers: 1,
            lies,
            logs,
        };
        hunt::record(workload, seed, &plan)?
    };
    let log = read_log(&path, lies, seed)?;
    ensure!(
        pick.point <= log.events.len(),
        "the log ends at {}",
        log.events.len()
    );
    let mut judge = Judge::new(workload, seed, &log, &forebay, true)?;
    let Some(verdict) = judge.judge(pick)? else {
        bail!("a fault that did not show again")
    };
    for (fault, seen) in &verdict.faults {
        println!("{}: {seen}", name(fault));
    }
    println!(
        "{workload}, seed {seed}, {pick}: {} faults",
        verdict.faults.len()
    );
    Ok(if verdict.faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The name of a kind, as in JSON.
fn name(fault: &forebay_powerloss::oracle::Fault) -> String {
    serde_json::to_value(fault)
        .ok()
        .and_then(|value| Some(value.as_str()?.to_owned()))
        .unwrap_or_default()
}

fn hunt_all(
    workloads: &[Workload],
    seeds: std::ops::Range<u64>,
    plan: &Plan,
    keep: &Path,
    json: bool,
) -> anyhow::Result<ExitCode> {
    if workloads
        .iter()
        .any(|workload| workload.situation != Situation::Native)
    {
        ensure!(
            plan.forebay.exists(),
            "{} is missing: `make build` makes it",
            plan.forebay.display()
        );
    }
    let begun = Instant::now();
    let (mut images, mut bad) = (0, 0);
    for workload in workloads {
        let mut all = Outcome::default();
        let mut replays = Vec::new();
        for seed in seeds.clone() {
            let outcome = hunt::hunt(*workload, seed, plan)?;
            let log = plan.logs.join(log_name(*workload, seed));
            let mut is_new = false;
            for (fault, (_, pick, _)) in &outcome.faults {
                if !all.faults.contains_key(fault) {
                    is_new = true;
                    let lies = if plan.lies > 0.0 {
                        format!(" --lies {}", plan.lies)
                    } else {
                        String::new()
                    };
                    replays.push((
                        *fault,
                        format!("replay {workload} --seed {seed} --point {pick}{lies}"),
                    ));
                }
            }
            if is_new {
                std::fs::create_dir_all(keep)?;
                std::fs::copy(&log, keep.join(log_name(*workload, seed)))?;
            }
            std::fs::remove_file(&log)?;
            all.add(outcome);
        }
        images += all.distinct;
        bad += all.bad;
        show(workload, &all, &replays, json)?;
    }
    if !json {
        let minutes = begun.elapsed().as_secs_f64() / 60.0;
        println!(
            "{images} distinct images, {bad} bad, {:.0} images a minute with recording",
            images as f64 / minutes
        );
    }
    Ok(if bad == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn show(
    workload: &Workload,
    all: &Outcome,
    replays: &[(forebay_powerloss::oracle::Fault, String)],
    json: bool,
) -> anyhow::Result<()> {
    if json {
        let faults: serde_json::Map<_, _> = all
            .faults
            .iter()
            .map(|(kind, (count, ..))| (name(kind), (*count).into()))
            .collect();
        let line = serde_json::json!({
            "workload": workload.to_string(), "distinct": all.distinct, "bad": all.bad, "withheld": all.withheld,
            "unconfirmed": all.unconfirmed, "images_a_minute": all.images_a_minute(), "faults": faults,
        });
        println!("{line}");
        return Ok(());
    }
    println!(
        "{workload:<18} {:>5} distinct {:>5} bad {:>4} withheld {:>3} unconfirmed {:>6.0} images a minute, recorded in {:.1} s",
        all.distinct,
        all.bad,
        all.withheld,
        all.unconfirmed,
        all.images_a_minute(),
        all.recording.as_secs_f64(),
        workload = workload.to_string()
    );
    for (fault, (count, _, seen)) in &all.faults {
        let command = replays
            .iter()
            .find(|(kind, _)| kind == fault)
            .map_or("", |(_, command)| command);
        let first = seen.lines().next().unwrap_or_default();
        println!(
            "    {:<22} {count:>5}  {command}\n        {first}",
            name(fault)
        );
    }
    Ok(())
}
