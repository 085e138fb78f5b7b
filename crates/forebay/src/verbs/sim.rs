//! `forebay sim`: runs the simulators.

use crate::cli::{self, SimVerb, exit};
use crate::error::{Fault, fault};
use crate::place::plain;
use crate::verbs::tell;
use forebay_core::collective::MAX_TRACE_BYTES;
use forebay_sim::collective::{self, NotReplayed, Parameters, Replay, System, Trace};
use forebay_sim::faults::two_writers::{self, NeighbourOptions, Script};
use forebay_sim::faults::{self, Calm, Failure, FaultOptions};
use std::fs;
use std::io::{IsTerminal, Read, Write};
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
            trace,
            processes,
            line,
            system,
            svg,
            print_parameters,
        } => {
            if *print_parameters {
                tell(collective::DEFAULT_PARAMETERS)?;
                return Ok(exit::OK);
            }
            let parameters = laboratory_parameters(parameters.as_deref())?;
            let drawing = match trace {
                None => laboratory(&parameters, figures)?,
                Some(file) => {
                    let replayed = Replayed {
                        parameters: &parameters,
                        file,
                        processes,
                        line: *line,
                        system: system.as_deref(),
                    };
                    replayed.run()?
                }
            };
            if let Some(svg) = svg {
                fs::write(svg, drawing)
                    .map_err(|e| fault(format!("--svg {}: {}", svg.display(), plain(&e))))?;
            }
            Ok(exit::OK)
        }
    }
}

/// The parameters in a file, or those that are compiled in.
fn laboratory_parameters(file: Option<&Path>) -> Result<Parameters, Fault> {
    let Some(file) = file else {
        return Ok(Parameters::default());
    };
    let cannot = |e: String| fault(format!("--parameters {}: {e}", file.display()));
    let text = fs::read_to_string(file).map_err(|e| cannot(plain(&e)))?;
    Parameters::parse(&text).map_err(|e| {
        cannot(e.to_string())
            .hint("`forebay sim collective --print-parameters` shows a file that is right")
    })
}

/// Runs figures of the lock laboratory. Returns their drawing.
fn laboratory(parameters: &Parameters, names: &[String]) -> Result<String, Fault> {
    let known = |name: &&String| !parameters.figures.iter().any(|f| f.name == **name);
    if let Some(name) = names.iter().find(known) {
        let all: Vec<_> = parameters.figures.iter().map(|f| f.name.as_str()).collect();
        let hint = format!("the parameters have: {}", all.join(", "));
        return Err(fault(format!("--figure {name}: there is no such figure")).hint(hint));
    }
    let mut done = Vec::new();
    for figure in &parameters.figures {
        if names.is_empty() || names.contains(&figure.name) {
            let points = collective::run_figure(parameters, figure);
            let end = if done.is_empty() { "" } else { "\n" };
            tell(&format!(
                "{end}{}",
                collective::tables(parameters, figure, &points)
            ))?;
            done.push((figure, points));
        }
    }
    Ok(collective::chart(parameters, &done))
}

/// Kinds of calls that are replayed without a word about which.
const SHOWN_CALLS: usize = 8;
/// More than this is no trace: each program that found it full has left a line there.
const MOST_TRACE_BYTES: u64 = 2 * MAX_TRACE_BYTES;

/// A trace of the collective layer, to be replayed.
struct Replayed<'a> {
    parameters: &'a Parameters,
    file: &'a Path,
    processes: &'a [u32],
    line: Option<usize>,
    system: Option<&'a str>,
}

impl Replayed<'_> {
    /// Replays it. Returns the drawing.
    fn run(&self) -> Result<String, Fault> {
        let (name, system) = self.system()?;
        let trace = self.trace()?;
        let (mut alike, not) = collective::alike(&trace);
        if let Some(line) = self.line {
            alike.retain(|calls| calls.lines.contains(&line));
            if alike.is_empty() {
                return Err(self.wrong(&format!("line {line} has no call that can be replayed")));
            }
        }
        if alike.is_empty() {
            let why = format!("none of its calls can be replayed: {}", in_words(not));
            return Err(self.wrong(&why));
        }
        let plan = |calls| Replay::new(calls, (name, system), self.processes);
        let (mut shown, mut missing) = (Vec::new(), Vec::new());
        for planned in alike.iter().take(SHOWN_CALLS).map(plan) {
            match planned {
                Ok(replay) => shown.push(replay),
                Err(e) => missing.push(e.to_string()),
            }
        }
        if shown.is_empty() {
            return Err(self.wrong(&missing[0]));
        }
        let mut done = Vec::new();
        for replay in shown {
            let progress = Progress::begin(true);
            let mut rows = 0;
            let under = replay.run(&mut || {
                rows += 1;
                let all = replay.rows();
                progress.tell(format_args!("{rows} of {all} numbers of processes"));
            });
            progress.end();
            let end = if done.is_empty() { "" } else { "\n" };
            tell(&format!("{end}{}", replay.tables(&under)))?;
            done.push((replay, under));
        }
        if alike.len() > SHOWN_CALLS {
            let more = alike.len() - SHOWN_CALLS;
            missing.push(format!(
                "{more} more kinds of calls with fewer bytes (--line shows one)"
            ));
        }
        if not != NotReplayed::default() && self.line.is_none() {
            missing.push(in_words(not));
        }
        if let Some(bytes) = trace.cut_off_at {
            missing.push(format!(
                "all that came after the trace had reached {bytes} bytes: it was cut off there"
            ));
        }
        if !trace.unfinished.is_empty() {
            let lines: Vec<String> = trace.unfinished.iter().map(usize::to_string).collect();
            missing.push(format!(
                "what ends in the middle: line {}",
                lines.join(", ")
            ));
        }
        if !missing.is_empty() {
            tell(&format!("\nnot replayed: {}\n", missing.join("; ")))?;
        }
        Ok(collective::chart_replays(&done))
    }

    fn wrong(&self, what: &str) -> Fault {
        fault(format!("--trace {}: {what}", self.file.display()))
    }

    fn trace(&self) -> Result<Trace, Fault> {
        let file = fs::File::open(self.file).map_err(|e| self.wrong(&plain(&e)))?;
        let mut text = Vec::new();
        let read = file.take(MOST_TRACE_BYTES + 1).read_to_end(&mut text);
        read.map_err(|e| self.wrong(&plain(&e)))?;
        if text.len() as u64 > MOST_TRACE_BYTES {
            return Err(self.wrong("it is larger than any trace"));
        }
        Trace::parse(&text).map_err(|e| {
            self.wrong(&e.to_string())
                .hint("`forebay run --collective --trace FILE` writes traces")
        })
    }

    fn system(&self) -> Result<(&str, &System), Fault> {
        let systems = &self.parameters.systems;
        let name = self.system.unwrap_or(&self.parameters.figures[0].system);
        systems.get_key_value(name).map_or_else(
            || {
                let all: Vec<_> = systems.keys().map(String::as_str).collect();
                let hint = format!("the parameters have: {}", all.join(", "));
                Err(fault(format!("--system {name}: there is no such system")).hint(hint))
            },
            |(name, system)| Ok((name.as_str(), system)),
        )
    }
}

/// The calls that can't be replayed, and why.
fn in_words(not: NotReplayed) -> String {
    let kinds = [
        (not.empty, "without a byte"),
        (
            not.irregular,
            "with too many pieces without a pattern to be captured",
        ),
        (
            not.unknown,
            "of which the layer did not know what they access",
        ),
    ];
    let told = kinds.iter().filter(|(count, _)| *count > 0);
    let told = told.map(|(count, why)| format!("{count} calls {why}"));
    told.collect::<Vec<_>>().join(", ")
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

    fn tell(&self, how_far: std::fmt::Arguments) {
        if self.is_long() {
            eprint!("\r{how_far} ");
            let _ = std::io::stderr().flush();
        }
    }

    fn tell_seeds(&self, done: u64, all: u64) {
        let per_second = self.per_second(done);
        self.tell(format_args!(
            "{done} of {all} seeds, {per_second:.0} per second"
        ));
    }

    fn end(&self) {
        if self.is_long() {
            eprint!("\r\x1b[K");
        }
    }
}

fn simulate(options: &FaultOptions) -> Result<u8, Fault> {
    let progress = Progress::begin(!options.trace);
    let mut tell = |done: u64| progress.tell_seeds(done, options.seeds);
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
    let mut hear = |done: u64| progress.tell_seeds(done, options.seeds);
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
