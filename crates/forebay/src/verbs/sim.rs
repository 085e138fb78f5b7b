//! `forebay sim`: runs the simulators.

use crate::cli::{self, SimVerb, exit};
use crate::error::{Fault, fault};
use crate::place::plain;
use crate::verbs::tell;
use forebay_sim::collective::{self, Parameters};
use forebay_sim::faults::two_writers::{self, NeighbourOptions, Script};
use forebay_sim::faults::{self, Calm, Failure, FaultOptions};
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;
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
        SimVerb::Neighbours {
            seeds,
            seed,
            script,
            #[cfg(feature = "planted-bugs")]
            mutation,
        } => {
            let options = NeighbourOptions {
                first_seed: *seed,
                seeds: *seeds,
                #[cfg(feature = "planted-bugs")]
                mutation: mutation.as_deref().map(mutation_of).transpose()?,
                #[cfg(not(feature = "planted-bugs"))]
                mutation: None,
                goes_on: true,
            };
            match script {
                Some(text) => play(text, &options),
                None => neighbours(&options),
            }
        }
        SimVerb::Collective {
            figures,
            parameters,
            svg,
            print_parameters,
        } => {
            match print_parameters {
                true => tell(collective::DEFAULT_PARAMETERS)?,
                false => laboratory(figures, parameters.as_deref(), svg.as_deref())?,
            }
            Ok(exit::OK)
        }
    }
}

/// Runs figures of the lock laboratory.
fn laboratory(names: &[String], file: Option<&Path>, svg: Option<&Path>) -> Result<(), Fault> {
    let parameters = match file {
        None => Parameters::default(),
        Some(file) => {
            let cannot = |e: String| fault(format!("--parameters {}: {e}", file.display()));
            let text = fs::read_to_string(file).map_err(|e| cannot(plain(&e)))?;
            Parameters::parse(&text).map_err(|e| {
                cannot(e.to_string())
                    .hint("`forebay sim collective --print-parameters` shows a file that is right")
            })?
        }
    };
    let known = |name: &&String| !parameters.figures.iter().any(|f| f.name == **name);
    if let Some(name) = names.iter().find(known) {
        let all: Vec<_> = parameters.figures.iter().map(|f| f.name.as_str()).collect();
        let hint = format!("the parameters have: {}", all.join(", "));
        return Err(fault(format!("--figure {name}: there is no such figure")).hint(hint));
    }
    let mut done = Vec::new();
    for figure in &parameters.figures {
        if names.is_empty() || names.contains(&figure.name) {
            let points = collective::run_figure(&parameters, figure);
            let end = if done.is_empty() { "" } else { "\n" };
            tell(&format!(
                "{end}{}",
                collective::tables(&parameters, figure, &points)
            ))?;
            done.push((figure, points));
        }
    }
    if let Some(svg) = svg {
        fs::write(svg, collective::chart(&parameters, &done))
            .map_err(|e| fault(format!("--svg {}: {}", svg.display(), plain(&e))))?;
    }
    Ok(())
}

/// How far a simulation is, on a terminal.
struct Progress {
    begin: Instant,
    shows: bool,
}

impl Progress {
    fn begin(shows: bool) -> Self {
        Progress {
            begin: Instant::now(),
            shows: shows && std::io::stderr().is_terminal(),
        }
    }

    fn per_second(&self, done: u64) -> f64 {
        done as f64 / self.begin.elapsed().as_secs_f64().max(0.001)
    }

    fn is_long(&self) -> bool {
        self.shows && self.begin.elapsed() > QUIET
    }

    fn tell(&self, done: u64, all: u64) {
        if self.is_long() {
            let per_second = self.per_second(done);
            eprint!("\r{done} of {all} seeds, {per_second:.0} per second ");
            let _ = std::io::stderr().flush();
        }
    }

    fn end(&self) {
        if self.is_long() {
            eprint!("\r\x1b[K");
        }
    }
}

fn simulate(options: &FaultOptions) -> Result<u8, Fault> {
    let progress = Progress::begin(!options.trace);
    let mut tell = |done: u64| progress.tell(done, options.seeds);
    let outcome = faults::run_with_progress(options, &mut std::io::stdout(), &mut tell);
    progress.end();
    match outcome {
        Ok(summary) => {
            println!("{summary}");
            println!("{:.0} seeds per second", progress.per_second(summary.seeds));
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

/// Looks for scripts of two writers that break a promise, and shows the smallest of each kind.
fn neighbours(options: &NeighbourOptions) -> Result<u8, Fault> {
    let progress = Progress::begin(true);
    let mut hear = |done: u64| progress.tell(done, options.seeds);
    let found = two_writers::search(options, &mut hear);
    progress.end();
    for (count, quarrel) in &found.kinds {
        tell(&format!("{quarrel}\n{count} of this kind\n\n"))?;
    }
    let per_second = progress.per_second(found.scripts);
    let (scripts, steps) = (found.scripts, found.steps);
    tell(&format!(
        "{scripts} scripts, {steps} steps; {per_second:.0} scripts per second\n"
    ))?;
    match &found.kinds[..] {
        [] => Ok(exit::OK),
        [(_, first), ..] => {
            let kinds = found.kinds.len();
            let again = format!("forebay sim neighbours --script '{}'", first.script);
            Err(fault(format!("{kinds} kinds of scripts break a promise")).hint(again))
        }
    }
}

/// Runs one script of two writers.
fn play(text: &str, options: &NeighbourOptions) -> Result<u8, Fault> {
    let script: Script = text.parse().map_err(|e| fault(format!("--script: {e}")))?;
    match two_writers::play(&script, options.mutation) {
        Ok(()) => {
            tell("every promise was kept\n")?;
            Ok(exit::OK)
        }
        Err(quarrel) => Err(fault(quarrel.to_string())),
    }
}

#[cfg(feature = "planted-bugs")]
fn mutation_of(name: &str) -> Result<faults::Mutation, Fault> {
    let all = faults::Mutation::ALL;
    let names: Vec<_> = all.iter().map(|m| format!("{m:?}")).collect();
    let found = names.iter().position(|n| n == name).map(|i| all[i]);
    found.ok_or_else(|| fault(format!("no planted bug {name:?}")).hint(names.join(", ")))
}
