//! Makes the calls that `make bench` compares, and prints how long they took.
//!
//! The program knows nothing of Forebay. It calls libc like any program, so the
//! preload library sees what it would see of a simulation. It prints a line of
//! JSON per workload with every repetition, and leaves medians to the reader.

mod crew;
mod data;
mod mapping;
mod names;
mod place;
mod timing;
mod usage;

use clap::{Parser, Subcommand};
use forebay_benches::catalogue::{Scale, WORKLOADS};
use forebay_benches::sample::Sample;
use place::{Place, Series};
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  forebay-load run --dir /tmp/here all
  forebay run --buffer /pfs/me -- forebay-load run --dir /pfs/me one-file triple-2";

#[derive(Parser)]
#[command(name = "forebay-load", version, about = "File system calls, timed", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run workloads one after the other.
    Run {
        #[command(flatten)]
        place: PlaceArgs,
        /// Names of workloads, or `all`.
        #[arg(required = true, value_name = "WORKLOAD")]
        workloads: Vec<String>,
    },
    /// Run the workloads that standard input names, one per line, and answer each with a line.
    Serve {
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// List the workloads.
    List,
    /// Fill a directory, so that there is something to drain.
    Fill {
        /// How many files.
        #[arg(long)]
        files: usize,
        /// Size of each in bytes.
        #[arg(long)]
        bytes: u64,
        /// A directory that does not exist yet.
        dir: PathBuf,
    },
    /// One process of a crew, which gets its orders on standard input.
    #[command(hide = true)]
    Worker {
        #[arg(long)]
        files: usize,
        dir: PathBuf,
    },
}

#[derive(clap::Args)]
struct PlaceArgs {
    /// Directory to work in. Everything that is made there is removed.
    #[arg(long)]
    dir: PathBuf,
    /// A directory outside any buffer. Default: that of `--dir`.
    #[arg(long)]
    outside: Option<PathBuf>,
    /// How much to do.
    #[arg(long, value_enum, default_value_t = Scale::Full)]
    scale: Scale,
}

impl From<PlaceArgs> for Place {
    fn from(args: PlaceArgs) -> Self {
        let outside = args.outside.unwrap_or_else(|| args.dir.clone());
        Place::new(args.dir, outside, args.scale)
    }
}

fn main() -> ExitCode {
    match carry_out(Cli::parse().verb) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("forebay-load: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Carries the verb out. True if everything succeeded.
fn carry_out(verb: Verb) -> io::Result<bool> {
    match verb {
        Verb::Run { place, workloads } => {
            let place = Place::from(place);
            let named = workloads.iter().map(String::as_str);
            let all = WORKLOADS.iter().map(|w| w.name);
            let mut well = true;
            if workloads == ["all"] {
                all.for_each(|name| well &= answer(&place, name));
            } else {
                named.for_each(|name| well &= answer(&place, name));
            }
            Ok(well)
        }
        Verb::Serve { place } => {
            let place = Place::from(place);
            for line in io::stdin().lock().lines() {
                answer(&place, line?.trim());
            }
            Ok(true)
        }
        Verb::List => {
            for workload in WORKLOADS {
                println!("{:<12} {}", workload.name, workload.covers);
            }
            Ok(true)
        }
        Verb::Fill { files, bytes, dir } => data::fill(&dir, files, bytes).map(|()| true),
        Verb::Worker { files, dir } => crew::work(&dir, files).map(|()| true),
    }
}

/// Runs a workload and prints its line. True if it succeeded.
fn answer(place: &Place, name: &str) -> bool {
    let result = place.in_fresh_directory(name, |dir| workload(place, name, dir));
    let sample = match result {
        Ok(series) => Sample {
            workload: name.to_owned(),
            costs: series.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
            error: None,
        },
        Err(e) => Sample {
            workload: name.to_owned(),
            costs: Default::default(),
            error: Some(e.to_string()),
        },
    };
    let well = sample.error.is_none();
    let line = serde_json::to_string(&sample).unwrap_or_default();
    // If the reader is gone, standard input ends as well, and with it the program.
    let _ = writeln!(io::stdout(), "{line}");
    well
}

fn workload(place: &Place, name: &str, dir: &std::path::Path) -> io::Result<Series> {
    match name {
        "blocks" => data::blocks(place, dir),
        "sequential" => data::sequential(place, dir),
        "mmap" => data::mmap(place, dir),
        "one-file" => names::one_file(place, dir),
        "idle" => names::idle(place, dir),
        "files-1" => crew::files(place, dir, 1, ["create-1", "stat-1", "remove-1"]),
        "files-2" => crew::files(place, dir, 2, ["create-2", "stat-2", "remove-2"]),
        "files-4" => crew::files(place, dir, 4, ["create-4", "stat-4", "remove-4"]),
        "triple-1" => crew::triple(place, dir, 1, "triple-1"),
        "triple-2" => crew::triple(place, dir, 2, "triple-2"),
        "triple-4" => crew::triple(place, dir, 4, "triple-4"),
        "small-files" => names::small_files(place, dir),
        "outside" => names::outside(place),
        "exec" => names::exec(place),
        _ => Err(io::Error::other(
            "no such workload; see `forebay-load list`",
        )),
    }
}
