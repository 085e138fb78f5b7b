//! The drain: what makes the PFS equal to what the buffer shows, as a machine without I/O.
//!
//! A [`Drain`] is one pass over the records whose home is this bridge. It knows no clock, file or thread. Its
//! driver asks it for acts and tells what they came to, in any order:
//!
//! ```text
//! loop {
//!     match drain.next(&facts)? {
//!         NextAct::Act(ticket, act) => carry it out, now or meanwhile; then drain.done(ticket, got)
//!         NextAct::Wait             => nothing can begin before one of the acts under way has ended
//!         NextAct::End              => it is over, see drain.report()
//!     }
//! }
//! ```
//!
//! # The contract
//!
//! - **Every act is told of once**, with the kind of [`Got`] that [`Act`] names for it, and one outcome for
//!   each thing in a list, in its order. An outcome of another kind is a fault of the driver, and panics.
//! - **Acts may be lost in a crash**, done or not, each one, but for commits, which happen or don't. After it
//!   the next start drives a [`Drain::resume`] before it serves requests; marks need nothing else. If the PFS can't
//!   be looked at where a mark is, the machine fails and the mark stays: no request may be served then.
//! - **A commit** is carried out if what it relies on is so at that moment, all of it or nothing.
//! - **Facts** may be of different moments. They are asked in [`Drain::next`] only. After
//!   [`Got::Fetched`] the fact is at hand in the next call; after a conflict it is forgotten.
//! - **One machine at a time** changes the records of one home: marks are told apart by nothing.
//! - A limited number of acts is under way: at most 128 while names change, else [`PassTerms::batches`], and two more. Their
//!   outcomes may come in any order. Where [`PassTerms::batches`] is one, and with a driver that tells each outcome before it asks
//!   again, everything happens in one order; the same facts and outcomes give the same acts.
//! - [`Drain::stop`] and [`Drain::lose_patience`] may come at any time.
//!
//! # What it does, in this order
//!
//! The rounds are in `round`.
//!
//! 0. Ends the transit of records that an earlier pass has left ([`Drain::resume`]), decides what somebody has chosen about
//!    changes of others ([`SideChoice`]), and sweeps temporary names.
//! 1. What was renamed goes to its final name, if that is free, gets free by that, or only holds what goes just before. What still
//!    lies where a directory or something else renamed is to come goes to a waiting name, what lies deepest first (*evacuate*).
//!    Waiting things that no record speaks of go.
//! 2. What is hidden goes away (*clear*), unless something renamed still lies in it; a directory that is not empty is put aside. So no
//!    round destroys what a later one needs: swaps and chains need no special case.
//! 3. All other renamed things take their final names and directories come into being, parents first. Then what step 2 has passed
//!    over goes away, and what is aside is removed.
//! 4. Contents are copied, verified and named. Where a temporary name may be left, it is looked for.
//! 5. Changed directories are synced, and then get their attributes, children first. What was made in a backing
//!    directory past the buffer is noted: such a directory stays dirty.
//! 6. What is left is listed.
//! 7. If nothing is left, the buffered copies go, each by itself (`release`).
//!
//! Each step reads its own preconditions when it begins, from the records of whichever bridge, and its commits
//! rely on them; a step that can't be done is left, with a reason, and the others go on.
//!
//! # Marks
//!
//! What changes the PFS where requests could notice is bracketed by two commits. The first one marks the records
//! ([`crate::record::Transit`]), which is the durable intent; then the PFS is changed, with no lock held; the
//! second one says what came of it and takes the marks away. Which requests wait in between, and which go on,
//! is decided in `ops::transit`.
//!
//! Records speak of *PFS paths as they are now*. So a step that renames a directory of the PFS rewrites
//! `origin` and `hides` of every record that speaks of something inside it.

mod act;
mod aside;
mod batch;
mod beside;
mod choose;
mod commits;
mod contents;
mod copies;
mod dir_times;
mod drain_facts;
mod finish;
mod going;
mod hearing;
mod known_dir;
mod lent_dirs;
mod moves;
mod name_secret;
mod new_dir;
mod orphans;
mod pass;
mod release;
mod reserved_names;
mod resume;
mod round;
mod rules;
mod shared_files;
mod sheet;
mod strand;
#[cfg(test)]
mod tests;
mod usage;
mod workplaces;

pub use act::{
    Act, ActTicket, DrainCommit, DrainVerdict, Got, OTHER_DIR, StrayEntry, Trouble, Work,
};
pub use aside::{
    AsideFate, AsideNote, Tick, clock_path, is_aside, is_for_the_drain_alone, is_old_note,
    may_be_aside_in_root, paths_aside,
};
pub use batch::{BATCH_BYTES, BATCH_OBJECTS};
pub use beside::{Places, names_beside};
pub use choose::{NOT_TRIED, Side, SideChoice};
pub use copies::{Copied, Copy, Name, Named, Naming, Temporary};
pub use dir_times::{DirLook, DirSeen, VisitedDir, VisitedDirs};
pub use drain_facts::DrainFacts;
pub use known_dir::{KnownDir, KnownFiles};
pub use lent_dirs::{Lender, LentDir};
pub use name_secret::NameSecret;
pub use new_dir::{NEW_DIR_MODE, NewDir, is_put_by, made_for};
pub use orphans::abandon;
pub use pass::{Drain, NextAct};
pub use release::RELEASED_AT_ONCE;
pub use reserved_names::{
    discarded_name, is_apart, is_going, is_leftover, is_leftover_of, waiting_name,
};
pub(crate) use reserved_names::{waiting_path, waits_under};
pub(crate) use rules::OURS;
pub use rules::{
    CopyFacts, first_mode, is_dirty, is_last_sync, is_of_others_since, may_be_open_to_others,
    mode_without_list, stamp,
};
pub(crate) use shared_files::note_file;
pub use sheet::{DrainReport, Left, PassTerms, Reason, Tally};
pub use usage::{LentMode, Use};

/// Looks, with a pause after each, before it counts that what failed has not been done: a client may go on showing for a second
/// or more what was there before.
const LOOKS_IN_DOUBT: u32 = 75;
/// Failures of one pass that stayed in doubt through all looks. After so many the PFS is taken to fail, and what fails from then on
/// is looked at once: each would wait as long again. It stays uncertain then whether it has been done.
const MOST_IN_DOUBT: u32 = 4;
