//! `forebay sim`: the simulators.

use crate::cli::{self, SimVerb, exit};
use crate::error::{Fault, fault};
use forebay_sim::faults::{self, Failure, FaultOptions, Summary};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Seeds between two looks at the clock.
const SEEDS_AT_ONCE: u64 = 50;
/// A run longer than this shows how far it is.
const QUIET: Duration = Duration::from_secs(2);

/// Runs the verb.
pub fn sim(args: &cli::Sim) -> Result<u8, Fault> {
    match &args.what {
        SimVerb::Faults {
            seeds,
            first,
            trace,
            #[cfg(feature = "planted-bugs")]
            mutation,
        } => {
            let options = FaultOptions {
                first_seed: *first,
                seeds: *seeds,
                trace: *trace,
                #[cfg(feature = "planted-bugs")]
                mutation: mutation.as_deref().map(mutation_of).transpose()?,
                ..FaultOptions::default()
            };
            simulate(&options)
        }
    }
}

fn simulate(options: &FaultOptions) -> Result<u8, Fault> {
    let begin = Instant::now();
    let end = options.first_seed.saturating_add(options.seeds);
    let mut total = Summary::default();
    let mut seed = options.first_seed;
    let shows = std::io::stderr().is_terminal() && !options.trace;
    while seed < end {
        let part = FaultOptions {
            first_seed: seed,
            seeds: SEEDS_AT_ONCE.min(end - seed),
            ..options.clone()
        };
        match faults::run(&part, &mut std::io::stdout()) {
            Ok(summary) => total += summary,
            Err(Failure::Broken { seed, promise, .. }) => {
                let bug = options.mutation.map(|m| format!(" --mutation {m:?}"));
                let bug = bug.unwrap_or_default();
                let again = format!("forebay sim faults --first {seed} --seeds 1 --trace{bug}");
                return Err(fault(format!("seed {seed} broke: {promise}")).hint(again));
            }
            Err(e @ Failure::Output(_)) => return Err(fault(e.to_string())),
        }
        seed += part.seeds;
        if shows && begin.elapsed() > QUIET {
            eprint!(
                "\r{} of {} seeds ",
                seed - options.first_seed,
                options.seeds
            );
            let _ = std::io::stderr().flush();
        }
    }
    if shows && begin.elapsed() > QUIET {
        eprint!("\r\x1b[K");
    }
    println!("{total}");
    Ok(exit::OK)
}

#[cfg(feature = "planted-bugs")]
fn mutation_of(name: &str) -> Result<faults::Mutation, Fault> {
    let all = faults::Mutation::ALL;
    let names: Vec<_> = all.iter().map(|m| format!("{m:?}")).collect();
    let found = names.iter().position(|n| n == name).map(|i| all[i]);
    found.ok_or_else(|| fault(format!("no planted bug {name:?}")).hint(names.join(", ")))
}
