//! The runs that use the bridge. `forebay_core::lifetime` decides when their going ends it.

use crate::ServerHandle;
use crate::status::Clients;
use forebay_admin::{LifetimeStatus, Verb};
use forebay_core::lifetime::{Ending, Lifetime};
use forebay_sys::{self as sys, Errno, Process, Sys};
use parking_lot::Mutex;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Pause between two looks at who uses the bridge.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The runs that are attached.
pub(super) struct Life(Mutex<Lifetime<Guest>>);

/// One of them.
struct Guest {
    /// A hold on its very process, because ids are used again.
    process: Process,
    verb: Verb,
}

impl Guest {
    fn new(pid: u32, verb: Verb) -> Sys<Self> {
        let process = Process::open(pid)?;
        Ok(Guest { process, verb })
    }

    fn has_ended(&self) -> bool {
        self.process.has_ended()
    }
}

impl Life {
    /// `stays`: until it is told to end.
    pub fn new(stays: bool) -> Self {
        Life(Mutex::new(Lifetime::new(stays)))
    }

    /// A run that uses the bridge from its start. One that is gone already does not need it.
    pub fn begin(&self, pid: u32) {
        // It counts as a run until it attaches and says what it is.
        if let Ok(guest) = Guest::new(pid, Verb::Run) {
            let late = self.0.lock().attach(pid, guest);
            assert_ne!(late, Err(Ending), "nothing has ended it yet");
        }
    }

    /// See [`Lifetime::is_alone`].
    pub fn is_alone(&self, pid: u32, clients: &Clients) -> bool {
        let mut life = self.0.lock();
        life.forget_dead(Guest::has_ended);
        life.is_alone(pid, clients.programs().len())
    }

    /// One more run, unless the bridge is about to end: that shows in the status. The process is alive: it
    /// waits for the answer.
    ///
    /// # Errors
    /// There is no such process.
    pub fn attach(&self, pid: u32, verb: Verb, clients: &Clients) -> Sys<LifetimeStatus> {
        let mut life = self.0.lock();
        if !life.is_ending() {
            let guest = Guest::new(pid, verb)?;
            // Under one lock with the question.
            let late = life.attach(pid, guest);
            assert_ne!(late, Err(Ending), "nothing else has changed it");
        }
        Ok(status(&mut life, clients))
    }

    /// One run less. True: the bridge is to end now. If that is so only if `is_clean`, that is asked when no program is
    /// connected any more and none is let in; no run can attach meanwhile.
    pub fn detach(
        &self,
        pid: u32,
        clients: &Clients,
        is_clean: impl FnOnce() -> bool,
    ) -> (LifetimeStatus, bool) {
        let mut life = self.0.lock();
        life.forget_dead(Guest::has_ended);
        let ends = life.detach(pid, || {
            let may_end = clients.close() && is_clean();
            if !may_end {
                clients.open();
            }
            may_end
        });
        (status(&mut life, clients), ends)
    }

    /// Lets it stay until it is told to end, or not.
    pub fn set_stays(&self, stays: bool, clients: &Clients) -> LifetimeStatus {
        let mut life = self.0.lock();
        life.set_stays(stays);
        status(&mut life, clients)
    }

    /// The state as a control message shows it.
    pub fn status(&self, clients: &Clients) -> LifetimeStatus {
        status(&mut self.0.lock(), clients)
    }

    /// The attached processes, to be waited for.
    fn holds(&self) -> Vec<Process> {
        let life = self.0.lock();
        life.runs()
            .filter_map(|(_, guest)| guest.process.try_clone().ok())
            .collect()
    }

    /// So much time has passed. True: the bridge is to end now, and nobody has been told yet.
    fn pass(&self, time: Duration, clients: &Clients) -> bool {
        let mut life = self.0.lock();
        life.forget_dead(Guest::has_ended);
        !life.is_ending() && life.pass(time, clients.programs().len(), || clients.close())
    }
}

fn status(life: &mut Lifetime<Guest>, clients: &Clients) -> LifetimeStatus {
    // A run that was killed has not detached.
    life.forget_dead(Guest::has_ended);
    LifetimeStatus {
        stay: life.stays(),
        ending: life.is_ending(),
        runs: life.runs().map(|(pid, _)| pid).collect(),
        verbs: life.runs().map(|(_, guest)| guest.verb).collect(),
        programs: clients.programs(),
    }
}

/// Waits for the moment in which nobody needs the bridge, without anybody having said so, or for its end.
pub(super) fn watch(server: &ServerHandle) {
    let life = &server.admin.life;
    let mut last = Instant::now();
    while !server.stopping() {
        let holds = life.holds();
        let mut wakers: Vec<BorrowedFd<'_>> = holds.iter().map(AsFd::as_fd).collect();
        wakers.push(server.stopped.as_fd());
        sys::wait_any(&wakers, LOOK_EVERY);
        let now = Instant::now();
        let passed = now - std::mem::replace(&mut last, now);
        // Programs of a killed run may go on.
        if life.pass(passed, &server.clients) {
            server
                .log
                .line(format_args!("nobody uses the bridge any more: it ends"));
            server.ask_to_stop();
        }
    }
}

/// Why a run cannot be attached, in one line.
pub(super) fn no_process(pid: u32, e: Errno) -> String {
    format!("process {pid}: {e}")
}
