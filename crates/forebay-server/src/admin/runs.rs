//! Who uses the bridge, and therefore how long it lives.

use forebay_admin::drain::Users;
use forebay_sys::{Process, Sys};
use std::collections::BTreeMap;

/// Processes of `forebay run` that are attached.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// It lives until `forebay down`.
    pub stay: bool,
    /// Nobody needed it any more: it is on its way out and takes no further run.
    ending: bool,
    /// By process id, with a hold on the very process, because ids are used again.
    attached: BTreeMap<u32, Process>,
}

/// The bridge is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ending;

impl Runs {
    pub fn new(stay: bool) -> Self {
        Runs {
            stay,
            ..Runs::default()
        }
    }

    /// One more run. The process is alive: it waits for the answer.
    pub fn attach(&mut self, pid: u32) -> Result<Sys<()>, Ending> {
        if self.ending {
            return Err(Ending);
        }
        Ok(Process::open(pid).map(|hold| {
            self.attached.insert(pid, hold);
        }))
    }

    /// One run less. True: nobody needs the bridge any more, and it takes no further run.
    pub fn detach(&mut self, pid: u32) -> bool {
        self.attached.remove(&pid);
        self.end_if_unused()
    }

    /// Is it to stay, or is a run attached?
    pub fn is_needed(&mut self) -> bool {
        self.forget_dead();
        self.stay || !self.attached.is_empty()
    }

    /// See [`Runs::detach`].
    pub fn end_if_unused(&mut self) -> bool {
        self.forget_dead();
        self.ending |= !self.stay && self.attached.is_empty();
        self.ending
    }

    /// Runs that were killed have not said good-bye.
    fn forget_dead(&mut self) {
        self.attached.retain(|_, process| !process.has_ended());
    }

    /// The processes that are attached, to be waited for.
    pub fn holds(&self) -> Vec<Process> {
        self.attached
            .values()
            .filter_map(|hold| hold.try_clone().ok())
            .collect()
    }

    /// For whoever asks.
    pub fn users(&mut self, mode: &str) -> Users {
        self.forget_dead();
        Users {
            mode: mode.to_owned(),
            stay: self.stay,
            ending: self.ending,
            runs: self.attached.keys().copied().collect(),
        }
    }
}
