//! `forebay-powerloss`: takes the power away from Forebay, and looks what is left.
#![forbid(unsafe_code)]

use anyhow::{Context, bail, ensure};
use clap::{Args, Parser, Subcommand};
use forebay_powerloss::case::{Case, Interrupted, Recovery};
use forebay_powerloss::hunt::{self, Outcome, Plan, Row, read_log};
use forebay_powerloss::judge::Judge;
use forebay_powerloss::oracle::Fault;
use forebay_powerloss::pick::Pick;
use forebay_powerloss::preset::Preset;
use forebay_powerloss::rig::{self, BASE};
use forebay_powerloss::workload::Workload;
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
    Hunt(HuntArgs),
    /// Show one image: what its recovery says, and what is wrong.
    Replay {
        #[command(flatten)]
        case: CaseArgs,
        /// The image, as `hunt` names it: POINT:RULE:SEED.
        #[arg(long)]
        point: Pick,
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
        #[arg(long)]
        from: Vec<PathBuf>,
        sizes: Vec<u64>,
    },
    /// The process of a recording.
    #[command(hide = true)]
    Record {
        #[command(flatten)]
        case: CaseArgs,
        #[arg(long)]
        log: PathBuf,
        #[arg(long)]
        before: Option<PathBuf>,
    },
    /// A process that judges the images named on its standard input.
    #[command(hide = true)]
    Judge {
        #[command(flatten)]
        case: CaseArgs,
        #[arg(long)]
        log: PathBuf,
    },
}

#[derive(Debug, Args)]
struct HuntArgs {
    /// SITUATION/PROGRAM; all if none is named.
    #[arg(conflicts_with = "preset")]
    workloads: Vec<Workload>,
    /// A list instead: `ci` (3,000 images) or `night` (50,000).
    #[arg(long, conflicts_with_all = ["seeds", "first", "images", "recovery", "interrupt"])]
    preset: Option<Preset>,
    /// Recordings of each workload; those that a seed does not change are recorded anew.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Images of each recording, before equal ones are taken out.
    #[arg(long, default_value_t = 300)]
    images: usize,
    /// How images are recovered: `drain`, `start` (of a bridge, then drain), `rebuild` (of the tables, then drain).
    #[arg(long, default_value_t = Recovery::Drain)]
    recovery: Recovery,
    /// The power goes once more, during a recovery of this kind; the images are of that.
    #[arg(long, value_name = "RECOVERY")]
    interrupt: Option<Recovery>,
    /// So many recoveries after each recording; they share its images.
    #[arg(long, default_value_t = 8, requires = "interrupt")]
    recoveries: usize,
    /// Recordings or images that are worked on at the same time.
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
}

#[derive(Debug, Args)]
struct CaseArgs {
    /// SITUATION/PROGRAM.
    workload: Workload,
    /// The seed of the recording.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The recovery that lost the power, too: RECOVERY@POINT:RULE:SEED.
    #[arg(long)]
    interrupted: Option<Interrupted>,
    /// How the image is recovered.
    #[arg(long, default_value_t = Recovery::Drain)]
    recovery: Recovery,
    /// Share of flushes that the disk ignores, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    lies: f64,
}

impl CaseArgs {
    fn case(&self) -> Case {
        Case {
            workload: self.workload,
            seed: self.seed,
            interrupted: self.interrupted,
            recovery: self.recovery,
        }
    }
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
        Verb::Disk {
            at,
            log,
            sizes,
            from,
        } => {
            disk::serve(&at, &log, &sizes, &from)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Record { case, log, before } => {
            let (lies, case) = (case.lies, case.case());
            match (case.interrupted, before) {
                (Some(interrupted), Some(before)) => {
                    let before = read_log(&before, lies, case.seed)?;
                    recorder::record_recovery(case, interrupted, &before, &forebay, &log)?;
                }
                _ => recorder::record(case, &forebay, &log)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Judge { case, log } => {
            let (lies, case) = (case.lies, case.case());
            let log = read_log(&log, lies, case.seed)?;
            let mut judge = Judge::new(case, &log, &forebay, false)?;
            for line in std::io::stdin().lock().lines() {
                let pick: Pick = line?.parse().map_err(anyhow::Error::msg)?;
                let verdict = judge.judge(pick).with_context(|| pick.to_string())?;
                println!("{}", serde_json::to_string(&verdict)?);
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Hunt(_) | Verb::Replay { .. } if std::env::var_os(ENCLOSED).is_none() => enclose(),
        Verb::Replay { case, point, keep } => {
            let plan = Plan {
                forebay,
                workers: 1,
                lies: case.lies,
                logs: logs()?,
                keep: std::path::absolute(keep)?,
            };
            replay(case.case(), point, &plan)
        }
        Verb::Hunt(args) => hunt_all(&args, forebay),
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

fn replay(case: Case, pick: Pick, plan: &Plan) -> anyhow::Result<ExitCode> {
    let kept = plan.keep.join(case.log_name());
    let path = if kept.exists() {
        kept
    } else {
        ensure!(
            case.interrupted.is_none(),
            "{} is not there",
            kept.display()
        );
        println!(
            "{} is not there; recording anew, with other points",
            kept.display()
        );
        hunt::record(case, None, plan)?
    };
    let log = read_log(&path, plan.lies, case.seed)?;
    ensure!(
        pick.point <= log.events.len(),
        "the log ends at {}",
        log.events.len()
    );
    let mut judge = Judge::new(case, &log, &plan.forebay, true)?;
    let Some(verdict) = judge.judge(pick)? else {
        bail!("a fault that did not show again")
    };
    for (fault, seen) in &verdict.faults {
        println!("{}: {seen}", name(fault));
    }
    println!("{case}, {pick}: {} faults", verdict.faults.len());
    Ok(if verdict.faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The name of a kind, as in JSON.
fn name(fault: &Fault) -> String {
    serde_json::to_value(fault)
        .ok()
        .and_then(|value| Some(value.as_str()?.to_owned()))
        .unwrap_or_default()
}

fn rows_of(args: &HuntArgs) -> Vec<Row> {
    if let Some(preset) = args.preset {
        return preset.rows();
    }
    let named = if args.workloads.is_empty() {
        Workload::all()
    } else {
        args.workloads.clone()
    };
    let one = |workload| Row {
        workload,
        seeds: args.first..args.first + args.seeds,
        images: args.images,
        recovery: args.recovery,
        interrupt: args.interrupt.map(|kind| (kind, args.recoveries)),
    };
    named.into_iter().map(one).collect()
}

fn hunt_all(args: &HuntArgs, forebay: PathBuf) -> anyhow::Result<ExitCode> {
    let mut rows = rows_of(args);
    let is_needed = rows.iter().any(|row| !row.workload.is_native());
    ensure!(
        !is_needed || forebay.exists(),
        "{} is missing: `make build` makes it",
        forebay.display()
    );
    rows.retain(|row| match row.workload.missing() {
        Some(reason) => {
            eprintln!("skipped: {}: {reason}", row.workload);
            false
        }
        None => true,
    });
    let plan = Plan {
        forebay,
        workers: args.workers,
        lies: args.lies,
        logs: logs()?,
        keep: std::path::absolute(&args.keep)?,
    };
    let begun = Instant::now();
    let all = hunt::hunt(&rows, &plan, &|row, outcome| {
        show(row, outcome, args.lies, args.json)
    })?;
    if !args.json {
        let minutes = begun.elapsed().as_secs_f64() / 60.0;
        println!(
            "{} distinct images of {} recordings, {} bad, {} failures, {:.0} images a minute with recording",
            all.distinct,
            all.recordings,
            all.bad,
            all.failures.len(),
            all.distinct as f64 / minutes
        );
        for (fault, found) in &all.faults {
            println!("    {:<22} {:>5}", name(fault), found.count);
        }
    }
    Ok(if all.bad == 0 && all.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A workload, and what is special about its images.
fn title(row: &Row) -> String {
    let mut title = row.workload.to_string();
    if let Some((recovery, count)) = row.interrupt {
        title += &format!(" interrupt {recovery} x {count}");
    }
    if row.recovery != Recovery::Drain {
        title += &format!(" recovery {}", row.recovery);
    }
    title
}

fn show(row: &Row, all: &Outcome, lies: f64, json: bool) -> anyhow::Result<()> {
    if json {
        let faults: serde_json::Map<_, _> = all
            .faults
            .iter()
            .map(|(kind, found)| (name(kind), found.count.into()))
            .collect();
        let line = serde_json::json!({
            "workload": title(row), "recordings": all.recordings, "distinct": all.distinct, "bad": all.bad,
            "withheld": all.withheld, "unconfirmed": all.unconfirmed, "failures": all.failures, "faults": faults,
            "recording_seconds": all.recording.as_secs_f64(), "judging_seconds": all.judging.as_secs_f64(),
        });
        println!("{line}");
        return Ok(());
    }
    let judging = all.judging.as_secs_f64().max(1e-3);
    println!(
        "{:<34} {:>5} distinct {:>5} bad {:>4} withheld {:>3} unconfirmed; {:>3} recorded in {:>4.1} s, judged {:>5.0} a minute",
        title(row),
        all.distinct,
        all.bad,
        all.withheld,
        all.unconfirmed,
        all.recordings,
        all.recording.as_secs_f64(),
        all.distinct as f64 * 60.0 / judging,
    );
    let lies = if lies > 0.0 {
        format!(" --lies {lies}")
    } else {
        String::new()
    };
    for failure in &all.failures {
        println!("    failed: {failure}");
    }
    for (fault, found) in &all.faults {
        println!(
            "    {:<22} {:>5}  replay {} --point {}{lies}\n        {}",
            name(fault),
            found.count,
            found.case,
            found.pick,
            found.seen.lines().next().unwrap_or_default()
        );
    }
    Ok(())
}
