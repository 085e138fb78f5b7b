//! `forebay sim`: runs the simulators.

use crate::cli::{self, SimVerb, exit};
use crate::error::{Fault, fault};
use forebay_sim::faults::{self, Calm, Failure, FaultOptions};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A longer simulation shows its progress.
const QUIET: Duration = Duration::from_secs(2);

/// Runs the verb.
pub fn sim(args: &cli::SimArgs) -> Result<u8, Fault> {
    match &args.what {
        SimVerb::Faults {
            seeds,
            first,
            bridges,
            clients,
            steps,
            calm,
            trace,
            #[cfg(feature = "planted-bugs")]
            mutation,
        } => {
            let calm = calm.as_deref().unwrap_or_default();
            let options = FaultOptions {
                first_seed: *first,
                seeds: *seeds,
                bridges: *bridges,
                clients: *clients,
                steps: *steps,
                calm: Calm::parse(calm).map_err(|text| fault(format!("--calm: {text}")))?,
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
    let shows = std::io::stderr().is_terminal() && !options.trace;
    let per_second = |done: u64| done as f64 / begin.elapsed().as_secs_f64().max(0.001);
    let mut progress = |done: u64| {
        if shows && begin.elapsed() > QUIET {
            let all = options.seeds;
            eprint!(
                "\r{done} of {all} seeds, {:.0} per second ",
                per_second(done)
            );
            let _ = std::io::stderr().flush();
        }
    };
    let outcome = faults::run_with_progress(options, &mut std::io::stdout(), &mut progress);
    if shows && begin.elapsed() > QUIET {
        eprint!("\r\x1b[K");
    }
    match outcome {
        Ok(summary) => {
            println!("{summary}");
            println!("{:.0} seeds per second", per_second(summary.seeds));
            Ok(exit::OK)
        }
        Err(Failure::Broken {
            seed,
            promise,
            smallest,
            ..
        }) => {
            let again = format!("forebay sim faults {smallest} --trace");
            Err(fault(format!("seed {seed} broke: {promise}")).hint(again))
        }
        Err(e @ Failure::Output(_)) => Err(fault(e.to_string())),
    }
}

#[cfg(feature = "planted-bugs")]
fn mutation_of(name: &str) -> Result<faults::Mutation, Fault> {
    let all = faults::Mutation::ALL;
    let names: Vec<_> = all.iter().map(|m| format!("{m:?}")).collect();
    let found = names.iter().position(|n| n == name).map(|i| all[i]);
    found.ok_or_else(|| fault(format!("no planted bug {name:?}")).hint(names.join(", ")))
}
