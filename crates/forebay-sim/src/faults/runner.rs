//! Many seeds, on all cores, with the results in the order of the seeds.

use super::plan::{FaultOptions, Plan};
use super::world::World;
use super::{Broken, Failure, Summary, shrink};
use forebay_core::membership::Membership;
use forebay_core::record::BridgeId;
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds that are under way, or wait for one before them, at a time.
const SEEDS_AT_ONCE: u64 = 256;
pub(super) const NO_ASSERTION: &str = "policy asserts what must hold, and it holds";

/// What became of one seed.
struct Ran {
    result: Result<Summary, Broken>,
    trace: Option<String>,
}

/// What a trace is of.
#[derive(Debug, Clone, Copy)]
enum Of {
    Everything,
    Promise,
}

/// Memberships of one to several bridges: to make one takes longer than a run.
#[derive(Default)]
struct Memberships(BTreeMap<u32, Membership>);

impl Memberships {
    fn of(&mut self, bridges: u32) -> &Membership {
        self.0.entry(bridges).or_insert_with(|| {
            let members = (0..bridges).map(BridgeId).collect();
            Membership::new(BridgeId(0), members)
        })
    }

    /// `traces`: with a trace; of everything, or of what concerns a broken promise.
    fn run(&mut self, plan: &Plan, traces: Option<Of>) -> Ran {
        let membership = self.of(plan.bridges);
        let mut world = World::new(plan, membership, traces.is_some());
        let result = catch_unwind(AssertUnwindSafe(|| world.run()));
        let result = result.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            let detail = text.unwrap_or_else(|| "a panic".to_owned());
            Err(Broken::new(NO_ASSERTION, detail, Vec::new()))
        });
        let trace = traces.map(|of| match (of, &result) {
            (Of::Promise, Err(broken)) => world.trace(&broken.paths),
            _ => world.trace(&[]),
        });
        let result = result.map(|()| world.summary());
        Ran { result, trace }
    }
}

/// Runs the seeds and stops at the first that breaks a promise. Writes the promise, the smallest run that was
/// found to break it, and the trace of what concerns it.
///
/// # Errors
/// [`Failure`]: a broken promise, or `out` failed.
pub fn run(options: &FaultOptions, out: &mut dyn Write) -> Result<Summary, Failure> {
    run_with_progress(options, out, &mut |_| {})
}

/// [`run`], which tells from time to time how many seeds are done.
///
/// # Errors
/// As [`run`].
pub fn run_with_progress(
    options: &FaultOptions,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary, Failure> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or_else(cores).max(1);
    let mut summary = Summary::default();
    let mut done = 0;
    while done < options.seeds {
        let first = options.first_seed + done;
        let count = SEEDS_AT_ONCE.min(options.seeds - done);
        for (seed, ran) in several(first, count, threads, options) {
            if let (true, Some(trace)) = (options.trace, &ran.trace) {
                writeln!(out, "seed {seed}\n{trace}")?;
            }
            match ran.result {
                Ok(more) => summary += more,
                Err(broken) => return Err(report(Plan::of(seed, options), broken, options, out)?),
            }
        }
        done += count;
        progress(done);
    }
    Ok(summary)
}

/// Runs some seeds, up to the first that breaks a promise.
fn several(first: u64, count: u64, threads: usize, options: &FaultOptions) -> BTreeMap<u64, Ran> {
    let next = AtomicU64::new(first);
    let end = AtomicU64::new(first + count);
    let all = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut memberships = Memberships::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= end.load(Ordering::SeqCst) {
                        return;
                    }
                    let ran = memberships.run(
                        &Plan::of(seed, options),
                        options.trace.then_some(Of::Everything),
                    );
                    if ran.result.is_err() {
                        end.fetch_min(seed + 1, Ordering::SeqCst);
                    }
                    let mut all = all.lock().unwrap_or_else(|e| e.into_inner());
                    all.insert(seed, ran);
                }
            });
        }
    });
    all.into_inner().unwrap_or_else(|e| e.into_inner())
}

/// Looks for the smallest run that breaks the same promise, and writes down what goes wrong in it.
fn report(
    plan: Plan,
    broken: Broken,
    options: &FaultOptions,
    out: &mut dyn Write,
) -> Result<Failure, Failure> {
    let memberships = std::cell::RefCell::new(Memberships::default());
    let breaks = |plan: &Plan| {
        let ran = memberships.borrow_mut().run(plan, None);
        ran.result.is_err_and(|b| b.promise == broken.promise)
    };
    let smallest = match options.shrink {
        true => shrink::smallest(plan, breaks),
        false => plan,
    };
    let ran = memberships.borrow_mut().run(&smallest, Some(Of::Promise));
    let again = ran.result.err().unwrap_or(broken);
    let report = format!(
        "seed {}: {} bridges, {} clients, {} operations each\nbroken promise: {}\n\
         the smallest run that was found: forebay sim faults {smallest}\n{}\n\n{}",
        plan.seed,
        plan.bridges,
        plan.clients,
        plan.steps,
        again.promise,
        again.detail.trim_end(),
        ran.trace.unwrap_or_default(),
    );
    writeln!(out, "{report}")?;
    Ok(Failure::Broken {
        seed: plan.seed,
        promise: again.promise.to_owned(),
        report,
        smallest,
    })
}
