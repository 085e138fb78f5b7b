//! The fault simulator: bridges that crash, a network that loses, doubles, delays
//! and reorders, clients that repeat, and a checker that forgives nothing.
//!
//! # What runs
//!
//! One to four bridges, each core's own transaction layer
//! ([`forebay_core::bridge::Bridge`]) with core's own decisions
//! ([`forebay_core::ops::decide`]) above it, on tables in memory and a disk of
//! labelled objects, over an empty PFS or one that holds files and directories. Everything that a server adds (sockets, files, threads) is
//! replaced by a queue of events in virtual time. A seed gives the number of
//! bridges and clients, the names, the habits of the clients and the weather, and
//! then each single event: the same seed is the same run, to the last message.
//!
//! A bridge can die before each single output of its transaction layer. Batches
//! that were written survive; work of the disk under way has happened or not.
//! Messages already sent arrive late, twice, in another order or never, also in
//! the receiver's next life. A client whose connection breaks repeats its request
//! under the same token.
//!
//! # What is checked
//!
//! - **Every operation takes effect once, at one moment between its call and its
//!   answer**, the whole tree being one object: there is an order of all operations
//!   that explains every answer and what is there in the end. So there is one
//!   winner per exclusive create, a rename is there at both ends or at none,
//!   nothing acknowledged is lost, nothing removed comes back, nothing is done
//!   twice. The search for the order is exact.
//! - A failed operation looked at several places one after the other: the reason
//!   that it gave was true of one of them at some moment. A listing shows each name
//!   as it was at some moment, not all at the same one.
//! - **It ends**: without further faults all requests are answered and no transaction,
//!   promise, lock, mark or waiting reader is left.
//! - **Tables and disks agree** in the end, after one more crash of all bridges at
//!   once: every record is at its home and has its object at its owner, with the
//!   right label, found both ways; every object has its record.
//!
//! # What is not
//!
//! Symbolic links, credentials, bytes and sizes of files, staging and drain,
//! directory descriptors, a disk that loses what was written, a PFS that others
//! change, changes of the membership. Modes: this is `commit`.

mod agree;
mod disk;
mod env;
mod history;
mod labels;
mod linear;
mod look;
mod model;
mod node;
mod random;
mod request;
mod trace;
mod workload;
mod world;

pub use forebay_core::bridge::Mutation;

use forebay_core::membership::Membership;
use forebay_core::path::TreePath;
use forebay_core::record::BridgeId;
use random::Random;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use world::World;

/// What to run.
#[derive(Debug, Clone)]
pub struct FaultOptions {
    /// The first seed.
    pub first_seed: u64,
    /// How many seeds, counted up from the first.
    pub seeds: u64,
    /// Bridges; `None` leaves it to the seed, from 1 to 4.
    pub bridges: Option<u32>,
    /// Clients; `None` leaves it to the seed, from 2 to 5.
    pub clients: Option<usize>,
    /// Operations of each client; `None` leaves it to the seed, from 6 to 30.
    pub steps: Option<u32>,
    /// A planted bug. Without the feature `planted-bugs` it does nothing.
    pub mutation: Option<Mutation>,
    /// Write the whole trace of each seed.
    pub trace: bool,
}

impl Default for FaultOptions {
    fn default() -> Self {
        FaultOptions {
            first_seed: 1,
            seeds: 200,
            bridges: None,
            clients: None,
            steps: None,
            mutation: None,
            trace: false,
        }
    }
}

/// What was run, when all promises were kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Seeds.
    pub seeds: u64,
    /// Operations of clients.
    pub operations: u64,
    /// Messages between bridges.
    pub messages: u64,
    /// Deaths of bridges.
    pub crashes: u64,
}

impl std::ops::AddAssign for Summary {
    fn add_assign(&mut self, more: Summary) {
        self.seeds += more.seeds;
        self.operations += more.operations;
        self.messages += more.messages;
        self.crashes += more.crashes;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} seeds, {} operations, {} messages between bridges, {} crashes: every promise was kept",
            self.seeds, self.operations, self.messages, self.crashes
        )
    }
}

/// Why it ended early.
#[derive(Debug)]
pub enum Failure {
    /// A seed broke a promise. The text is a report with a trace.
    Broken {
        /// Which seed.
        seed: u64,
        /// What was promised.
        promise: String,
        /// What happened, for people.
        report: String,
    },
    /// The output could not be written.
    Output(std::io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Broken { seed, promise, .. } => write!(f, "seed {seed} broke: {promise}"),
            Failure::Output(e) => write!(f, "the report could not be written: {e}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        Failure::Output(e)
    }
}

/// A broken promise, as the check that noticed it describes it.
struct Broken {
    promise: &'static str,
    detail: String,
    paths: Vec<TreePath>,
}

impl Broken {
    fn new(promise: &'static str, detail: String, paths: Vec<TreePath>) -> Self {
        Broken {
            promise,
            detail,
            paths,
        }
    }
}

/// One seed, with all that follows from it and the options.
struct Plan {
    seed: u64,
    bridges: u32,
    clients: usize,
    steps: u32,
    mutation: Option<Mutation>,
}

impl Plan {
    fn of(seed: u64, options: &FaultOptions) -> Self {
        // Not the generator of the run itself, so that an option changes nothing else.
        let mut random = Random::new(!seed);
        let bridges = *random.pick(&[1, 1, 2, 2, 3, 3, 3, 4]);
        let clients = random.between(2, 5) as usize;
        let steps = random.between(6, 30) as u32;
        Plan {
            seed,
            bridges: options.bridges.unwrap_or(bridges).max(1),
            clients: options.clients.unwrap_or(clients),
            steps: options.steps.unwrap_or(steps),
            mutation: options.mutation,
        }
    }
}

/// Runs the seeds one after the other and stops at the first that breaks a promise.
/// Writes the failing seed, the promise, and the trace of what concerns it.
///
/// # Errors
/// [`Failure`]: a broken promise, or `out` failed.
pub fn run(options: &FaultOptions, out: &mut dyn Write) -> Result<Summary, Failure> {
    let mut memberships = BTreeMap::new();
    let mut summary = Summary::default();
    for seed in (options.first_seed..).take(options.seeds as usize) {
        let plan = Plan::of(seed, options);
        let membership = memberships.entry(plan.bridges).or_insert_with(|| {
            let members = (0..plan.bridges).map(BridgeId).collect();
            Membership::new(BridgeId(0), members)
        });
        let mut world = World::new(&plan, membership, options.trace);
        let result = world.run();
        if options.trace {
            writeln!(out, "seed {seed}\n{}", world.trace(&[]))?;
        }
        if let Err(broken) = result {
            return Err(report(&plan, membership, &broken, out)?);
        }
        summary += Summary {
            seeds: 1,
            operations: world.calls.len() as u64,
            messages: world.env.counts.messages,
            crashes: world.env.counts.crashes,
        };
    }
    Ok(summary)
}

/// Runs a failing seed again, this time with a trace, and writes down what went wrong.
fn report(
    plan: &Plan,
    membership: &Membership,
    broken: &Broken,
    out: &mut dyn Write,
) -> Result<Failure, Failure> {
    let mut world = World::new(plan, membership, true);
    let _ = world.run();
    let report = format!(
        "seed {}: {} bridges, {} clients, {} operations each\nbroken promise: {}\n{}\n\n{}",
        plan.seed,
        plan.bridges,
        plan.clients,
        plan.steps,
        broken.promise,
        broken.detail.trim_end(),
        world.trace(&broken.paths),
    );
    writeln!(out, "{report}")?;
    Ok(Failure::Broken {
        seed: plan.seed,
        promise: broken.promise.to_owned(),
        report,
    })
}
