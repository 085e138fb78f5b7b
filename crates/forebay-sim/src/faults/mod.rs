//! The fault simulator: bridges that crash, a network that loses, doubles, delays
//! and reorders, clients that repeat, and a checker that forgives nothing.
//!
//! # What runs
//!
//! One to four bridges, each core's own transaction layer
//! ([`forebay_core::bridge::Bridge`]) with core's own decisions
//! ([`forebay_core::ops::decide`]) above it, on tables in memory and a disk of
//! labelled objects, over a PFS that lives (`pfs`). Everything that a server adds (sockets, files, threads) is
//! replaced by a queue of events in virtual time. A seed gives the number of
//! bridges and clients, the names, the habits of the clients and the weather, and
//! then each single event: the same seed is the same run, to the last message.
//!
//! A bridge can die before each single output of its transaction layer, and between any two effects of one
//! request, of the removal of a directory and of its recovery, also where no time passes between them. Batches
//! that were written survive; work of the disk under way has happened or not.
//! Messages already sent arrive late, twice, in another order or never, also in
//! the receiver's next life. A client whose connection breaks repeats its request
//! under the same token.
//!
//! Requests meet what fails below them (`hardship`): looks at the PFS, opens and copies there, work on the storage, which is
//! full for a while, and batches that the tables refuse. Where one bridge is alone, requests also decide before it is their turn
//! to commit (`turns`), and programs write to files of the PFS in place (`in_place`).
//!
//! Bridges also drain, release and resume, by core's own machine ([`forebay_core::drain::Drain`]),
//! while clients are at work: acts take time and fail, the PFS is full, bridges die between any two of them. Others put things
//! of their own on the PFS. Clients write through what they were granted, files of the PFS are staged and truncated, also by a
//! bridge that does not keep them, and removed files are used again. The tables of a bridge are lost and made
//! anew from the labels of all, while no transaction is open.
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
//! - **What failed has changed nothing**, unless an earlier try of the same request had been carried out. It leaves no object
//!   and no mark, without a restart, and nobody waits for it.
//! - **It ends**: without further faults all requests are answered and no transaction,
//!   promise, lock, mark or waiting reader is left.
//! - **Tables and disks agree** in the end, after one more crash of all bridges at
//!   once: every record is at its home and has its object at its owner, with the
//!   right label, found both ways; every object has its record.
//! - **Symbolic links lead where they say**, relative and absolute, also within a path, in circles and out of the
//!   buffer: the model follows them by itself, for answers and for failures.
//! - **A drain changes nothing that users see**, loses nothing that was written, replaces nothing that it knows
//!   another has put on the PFS, and without faults it brings everything there and leaves nothing behind. Where others
//!   change the PFS, the order of operations and that the last drain releases everything are not checked.
//!
//! - **A loss of power**, of a bridge that is alone, with its clients and the PFS, leaves a tree that was there at one moment:
//!   not before the last sync that was answered, and not longer before the loss than it may be. So it is a look at the whole
//!   tree in that interval; what was not answered has happened or not. Files hold what was synced last or what was written
//!   since, no labelled file with contents goes, and what was drained stays.
//!
//! - **A loss of power of one of several**, or of all: what was answered before was right then; of each process that ended with
//!   it a suffix is undone, and nobody else has seen that; all the rest has one order. The PFS loses its power with the last bridge.
//!
//! # What is not
//!
//! Tables that are lost while a transaction is open: what bridges have promised each other is in no label. Hard links and contents in the same run, with several bridges. Writes through a descriptor of another bridge's
//! object. What others make past the buffer in its storage. What a drain does
//! to an object of another bridge happens there at once, if that is alive. Texts of symbolic
//! links do not travel: every bridge has all of them at hand. An object that is left over because its removal failed, and tables
//! that refuse a batch where there are several bridges: that bridge would end. Special files, credentials, directory descriptors,
//! a PFS that loses its power while bridges go on, a journal that is torn, a storage that is new, an object without its label,
//! changes of the membership. Modes: this is `commit`.

mod agree;
mod between;
mod disk;
mod disk_log;
mod drain;
mod env;
mod hardship;
mod history;
mod in_place;
mod labels;
mod leaving;
mod linear;
mod look;
mod making;
mod model;
mod node;
mod pfs;
mod pfs_log;
mod plan;
mod random;
mod rebuild;
mod request;
mod runner;
mod shrink;
mod sync_points;
mod trace;
mod turns;
pub mod two_writers;
mod workload;
mod world;

pub use forebay_core::bridge::Mutation;

pub use between::{Deaths, Deed};
pub use plan::{Calm, FaultOptions, Plan};
pub use runner::{run, run_with_progress};

use forebay_core::path::TreePath;
use std::fmt;

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
    /// Those between two effects of a request, of the removal of a directory, or of a recovery.
    pub between: Deaths,
    /// Requests that failed because the PFS, the storage or the tables did.
    pub failures: u64,
    /// Losses of power.
    pub losses: u64,
}

impl std::ops::AddAssign for Summary {
    fn add_assign(&mut self, more: Summary) {
        self.seeds += more.seeds;
        self.operations += more.operations;
        self.messages += more.messages;
        self.crashes += more.crashes;
        self.between += more.between;
        self.failures += more.failures;
        self.losses += more.losses;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} seeds, {} operations, {} of them failed with the PFS or the storage, {} messages between bridges, {} crashes, {}, \
             {} losses of power: every promise was kept",
            self.seeds,
            self.operations,
            self.failures,
            self.messages,
            self.crashes,
            self.between,
            self.losses
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
        /// What happened, for people: the smallest run that was found, with its trace.
        report: String,
        /// The smallest run that was found to break the same promise.
        smallest: Plan,
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
