//! What the mover stands on: the records of a bridge, its objects, and the PFS.

use forebay_core::drain::{DrainCommit, DrainFacts, DrainVerdict};
use forebay_core::facts::Stop;
use forebay_core::fault::Fault;
use forebay_core::ops::FollowUp;
use forebay_core::record::ObjectId;
use forebay_objects::Objects;
use forebay_pfs::Lower;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

/// A drain cannot go on at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    /// The tables or the local disk failed.
    Fault(Fault),
    /// It failed, and what it was about could not be looked through afterwards: what each of the two said.
    Stuck([String; 2]),
    /// A test has cut it short here.
    Cut,
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Halt::Fault(fault) => fault.fmt(f),
            Halt::Stuck([first, second]) => write!(
                f,
                "{first}; then: {second}; programs that use what was being drained wait until the next drain"
            ),
            Halt::Cut => f.write_str("cut short by a test"),
        }
    }
}

impl From<forebay_core::table::TableError> for Halt {
    fn from(e: forebay_core::table::TableError) -> Self {
        Halt::Fault(e.into())
    }
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Halt::Fault(match stop {
            Stop::Fault(fault) => fault,
            other => Fault::Mistake(format!("{other:?}")),
        })
    }
}

/// The records of a bridge, to be read, and the one way to change them.
pub trait Door: DrainFacts + Sync {
    /// Commits, and wakes the requests that wait for it. The caller does the work on backing objects that follows, with
    /// [`Door::follow`]; marks stand for it until it is done.
    ///
    /// # Errors
    /// The tables failed; nothing of it is visible then.
    fn commit(&self, commit: &DrainCommit) -> Result<DrainVerdict, Halt>;

    /// Backing directories of which a descriptor was sent to a client that has not received it: no process has
    /// it open.
    fn passing(&self) -> Vec<ObjectId>;

    /// Makes everything durable that is committed.
    ///
    /// # Errors
    /// It is not durable.
    fn settle(&self) -> Result<(), Halt>;

    /// Does the work on backing objects that follows a commit. False: a label could not be written, and what comes after it was not done.
    fn follow(&self, follow_ups: &[FollowUp]) -> bool;
}

/// A bridge, as far as the mover needs it.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// Backing objects.
    pub objects: &'a Objects,
    /// The PFS directory.
    pub lower: &'a Lower,
    /// The instance directory.
    pub instance: &'a Path,
    /// Its records.
    pub door: &'a dyn Door,
}

/// Places at which a test can interfere with a drain, counted through.
pub struct Points {
    left: AtomicI64,
    then: Then,
}

/// What happens at the point that was asked for.
enum Then {
    /// The process ends.
    Abort,
    /// The drain ends there, and at each further one: a dead process does nothing more.
    Cut,
    /// This is called once, and the drain goes on.
    Call(Box<dyn Fn() + Send + Sync>),
}

/// Environment variable for tests: abort the process at the n-th point of a drain.
const ENV_ABORT_AT: &str = "FOREBAY_TEST_ABORT_DRAIN_AT";

impl Points {
    /// Never ends anything, unless the environment says so.
    pub fn from_env() -> Self {
        let at = std::env::var(ENV_ABORT_AT)
            .ok()
            .and_then(|v| v.parse().ok());
        Points {
            left: AtomicI64::new(at.unwrap_or(i64::MAX)),
            then: Then::Abort,
        }
    }

    /// Ends the drain with [`Halt::Cut`] at the n-th point.
    #[doc(hidden)]
    pub fn cut_at(n: i64) -> Self {
        Points {
            left: AtomicI64::new(n),
            then: Then::Cut,
        }
    }

    /// Calls `then` at the n-th point.
    #[doc(hidden)]
    pub fn calling_at(n: i64, then: impl Fn() + Send + Sync + 'static) -> Self {
        Points {
            left: AtomicI64::new(n),
            then: Then::Call(Box::new(then)),
        }
    }

    /// Never ends anything.
    pub(crate) fn none() -> Self {
        Points::cut_at(i64::MAX)
    }

    /// Passes one point.
    pub fn pass(&self) -> Result<(), Halt> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        match &self.then {
            _ if left > 0 => Ok(()),
            Then::Abort => std::process::abort(),
            Then::Cut => Err(Halt::Cut),
            Then::Call(then) => {
                if left == 0 {
                    then();
                }
                Ok(())
            }
        }
    }
}
