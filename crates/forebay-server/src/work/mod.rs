//! The driver of core's request machine: carries out its effects on real tables, objects and a PFS.
//!
//! What does not wait is carried out where the request arrived. What may wait becomes a
//! [`Task`] for a thread that may block, and the request is parked meanwhile; its
//! [`Outcome`] comes back to the shard.

mod arrival;
mod reply;
mod task;

pub use task::{CopyOf, Outcome, Task};

use crate::ServerHandle;
use crate::answer::Answered;
use crate::follow::{self, AfterSync};
use crate::limits::{INLINE_LISTING, INLINE_REMOVAL, INLINE_STAGE_BYTES};
use crate::listings::Session;
use crate::log::Cause;
use crate::namespace::Committed;
use crate::wakers::Waker;
use crate::world::{Asker, Hand};
use forebay_core::bridge::Verdict;
use forebay_core::facts::{Cred, NewKind, NewObject, PfsLook, Through};
use forebay_core::fault::Fault;
use forebay_core::ops::{self, GrantTarget};
use forebay_core::path::TreePath;
use forebay_core::record::ObjectName;
use forebay_core::request::{
    Caller, Commit, Effect, Entered, Failure, Finish, Form, Granting, Pending,
};
use forebay_core::table::{Change, TableError};
use forebay_objects::Made;
use forebay_sys::{self as sys, Errno};
use parking_lot::RwLockUpgradableReadGuard;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// A request in progress, with what belongs to it outside core.
pub struct Work {
    pending: Pending,
    /// The process that asks.
    pid: u32,
    /// The connection that they ask through.
    socket: Arc<OwnedFd>,
    /// It has been closed.
    is_orphaned: bool,
    /// Listing session, 0 for none.
    session: u64,
    /// Objects made for it.
    made: Vec<Made>,
    /// The originals of those objects that are copies.
    copies: Vec<(ObjectName, CopyOf)>,
    /// What was opened for it last, and what that is.
    opened: Option<Box<(GrantTarget, OwnedFd)>>,
    /// Its steps take long.
    is_long: bool,
    /// Others have changed what it relied on: it decides while nobody else commits.
    needs_turn: bool,
    /// Its end, which waits for a sync point.
    ending: Option<Box<(Finish, AfterSync)>>,
}

/// glibc keeps freed blocks up to this size at hand, by thread. A request takes one.
const MOST_WORK_BYTES: usize = 1032;
const _: () = assert!(size_of::<Work>() <= MOST_WORK_BYTES);

/// Where a request stands.
pub enum Stand {
    /// It has ended, with this answer; without one if whoever asked does not hear it: its connection has been closed.
    Ended(Option<Answered>),
    /// Something is to be done where it may block; then [`Work::take`] its outcome.
    Blocks(Task),
    /// Its next steps take long: they go where it may block, after this if there is something to be done; see
    /// [`Work::advance_long`].
    Long(Option<Task>),
    /// It waits until it is woken; see [`Work::woken`].
    Waits,
    /// It goes on after a short time.
    Pauses,
    /// It waits for a sync point; then [`Work::synced`].
    Syncs,
}

/// A step's effect, and the turn to commit if it was held.
enum Step<'s> {
    Free(Effect),
    Commit(
        Commit,
        RwLockUpgradableReadGuard<'s, crate::namespace::State>,
    ),
}

impl Work {
    /// The request that a message makes. `Hello`, `Admin` and `Lane` are none. What the process has asked for through `socket`
    /// is not done any more when that was closed.
    ///
    /// # Errors
    /// An argument can't be right.
    pub fn new(
        message: &forebay_wire::Request<'_>,
        cred: Arc<Cred>,
        pid: i32,
        socket: Arc<OwnedFd>,
    ) -> Result<Box<Self>, Errno> {
        let asked = arrival::read(message)?;
        let caller = Caller {
            cred,
            by_name: asked.by_name,
        };
        // In a box, because it is large and moves often.
        Ok(Box::new(Work {
            pending: Pending::new(asked.request, caller),
            pid: u32::try_from(pid).unwrap_or(0),
            socket,
            is_orphaned: false,
            session: asked.session,
            made: Vec::new(),
            copies: Vec::new(),
            opened: None,
            is_long: false,
            needs_turn: false,
            ending: None,
        }))
    }

    fn asker(&self) -> Asker {
        Asker {
            pid: self.pid,
            cred: self.pending.cred().clone(),
        }
    }

    /// The user that asks.
    pub fn user(&self) -> u32 {
        self.pending.cred().uid
    }

    /// Its listing.
    fn session(&self) -> Session {
        Session {
            user: self.user(),
            number: self.session,
        }
    }

    /// Goes on until it is answered or has to wait. `waker` is told who waits.
    pub fn advance(&mut self, server: &ServerHandle, waker: Waker) -> Stand {
        match self.is_long {
            true => Stand::Long(None),
            false => self.go_on(server, waker),
        }
    }

    /// Goes on where it may block, after `task`.
    pub fn advance_long(
        &mut self,
        server: &ServerHandle,
        waker: Waker,
        mut task: Option<Task>,
    ) -> Stand {
        loop {
            if let Some(task) = task.take() {
                self.take(server, task.run(server));
            }
            match self.go_on(server, waker) {
                Stand::Blocks(next) => task = Some(next),
                Stand::Long(next) => task = next,
                Stand::Syncs => {
                    let status = match server.sync_point() {
                        Ok(()) => 0,
                        Err(e) => errno_of(server, &e),
                    };
                    self.synced(server, status);
                }
                // A waker does not find a request that was lent to a thread, so it tries again shortly.
                Stand::Waits => {
                    self.woken();
                    return Stand::Pauses;
                }
                stand => return stand,
            }
        }
    }

    fn go_on(&mut self, server: &ServerHandle, waker: Waker) -> Stand {
        if let Some(ending) = self.ending.take() {
            // What waited for a sync point has been done.
            return Stand::Ended(self.answer(server, ending.0));
        }
        loop {
            if let Some(finish) = self.pending.finish_without_step(server.namespace.moment()) {
                return self.finish(server, finish);
            }
            let effect = match self.step(server) {
                Step::Free(effect) => effect,
                Step::Commit(commit, turn) => match self.commit(server, commit, turn) {
                    Some(stand) => return stand,
                    None => continue,
                },
            };
            match effect {
                Effect::TakeTurn => {}
                Effect::TakesLong => {
                    self.is_long = true;
                    return Stand::Long(None);
                }
                Effect::Look(look) => {
                    let removes = self.pending.removes_a_directory();
                    let inline = if removes {
                        INLINE_REMOVAL
                    } else {
                        INLINE_LISTING
                    };
                    let several = server.serves_several_users();
                    let through = self.pending.through(&look, several);
                    let looked = match self.blocks_on(server, &look) {
                        true => None,
                        false => {
                            let by = (through, &**self.pending.cred());
                            task::look(server, self.session(), &look, by, inline)
                        }
                    };
                    match looked {
                        Some(outcome) => self.take(server, Outcome::Looked(outcome)),
                        None if removes && matches!(look, PfsLook::List { .. }) => {
                            self.is_long = true;
                            return Stand::Long(Some(self.to_look(look, through)));
                        }
                        None => return Stand::Blocks(self.to_look(look, through)),
                    }
                }
                Effect::WriteTimes => {
                    let blocks = server.lower.times().any_waits() && server.lower.may_wait();
                    if let Some(stand) = self.run(server, Task::WriteTimes, blocks) {
                        return stand;
                    }
                }
                Effect::Grant(granting) => {
                    let blocks = is_lower(&granting) && server.lower.may_wait();
                    let socket = self.socket.clone();
                    let task = Task::Grant { granting, socket };
                    if let Some(stand) = self.run(server, task, blocks) {
                        return stand;
                    }
                }
                Effect::Announce { of } => self.announce(server, of),
                Effect::Make { spec, open, link } => {
                    let blocks = copies_much(server, &spec);
                    let task = Task::Make { spec, open, link };
                    if let Some(stand) = self.run(server, task, blocks) {
                        return stand;
                    }
                }
                Effect::Enter { path, leaves } => {
                    leave(server, leaves);
                    match server.turns.lock().enter(&path, || waker) {
                        Entered::Mine => self.pending.has_turn(path),
                        Entered::Waits => return Stand::Waits,
                    }
                }
                Effect::Await(path) => {
                    let namespace = &server.namespace;
                    let is_current = || namespace.read().speakers().is_in_transit(&path);
                    if server.wakers.wait(&path, waker, is_current) {
                        return Stand::Waits;
                    }
                    self.pending.woken();
                }
                Effect::Pause => return Stand::Pauses,
                Effect::LookAtLeft(files) => return Stand::Blocks(Task::LookAtLeft(files)),
                Effect::Fetch(need) => {
                    let text = format!("a bridge that is alone needs {need:?}");
                    self.pending.fails(Failure::Fault(Fault::Mistake(text)));
                }
                Effect::Commit(_) => unreachable!("a commit comes with its turn"),
                Effect::Finish(finish) => return self.finish(server, finish),
            }
        }
    }

    /// Carries a task out here, unless it may block or would have to wait. Gives where the request stands then.
    fn run(&mut self, server: &ServerHandle, task: Task, blocks: bool) -> Option<Stand> {
        if blocks {
            return Some(Stand::Blocks(task));
        }
        match task.try_run(server) {
            Ok(outcome) => self.take(server, outcome),
            Err(task) => return Some(Stand::Blocks(*task)),
        }
        None
    }

    /// The sync point that it waited for has been reached, if `status` is 0; else holds an errno.
    pub fn synced(&mut self, server: &ServerHandle, status: i32) {
        match &mut self.ending {
            Some(ending) => std::mem::take(&mut ending.1).unlink(server, status == 0),
            // It decides again.
            None if status == 0 => {}
            None => self.pending.fails(Failure::Errno(status)),
        }
    }

    /// One step, under the lock that it needs.
    fn step<'s>(&mut self, server: &'s ServerHandle) -> Step<'s> {
        if self.is_long && self.pending.is_rmdir() && !self.needs_turn {
            return self.step_free(server);
        }
        let asker = self.asker();
        if !self.pending.changes() {
            let state = server.namespace.read();
            let hand = Hand {
                server,
                state: Some(&state),
                asker: Some(&asker),
                is_long: self.is_long,
            };
            return Step::Free(self.pending.step(&server.settings, &hand, false));
        }
        let turn = server.namespace.upgradable();
        let hand = Hand {
            server,
            state: Some(&turn),
            asker: Some(&asker),
            is_long: self.is_long,
        };
        match self.pending.step(&server.settings, &hand, true) {
            Effect::Commit(commit) => Step::Commit(commit, turn),
            effect => Step::Free(effect),
        }
    }

    /// A decision to remove a large directory takes long, so that it is made while others go on. If they have changed
    /// something meanwhile that matters, it is made once more while they wait.
    fn step_free<'s>(&mut self, server: &'s ServerHandle) -> Step<'s> {
        let others = server.namespace.note_others();
        let asker = self.asker();
        let hand = Hand {
            server,
            state: None,
            asker: Some(&asker),
            is_long: self.is_long,
        };
        let effect = self.pending.step(&server.settings, &hand, true);
        let commits = matches!(effect, Effect::Commit(_));
        let turn = commits.then(|| server.namespace.upgradable());
        if others.allow(&effect) {
            return match (effect, turn) {
                (Effect::Commit(commit), Some(turn)) => Step::Commit(commit, turn),
                (effect, _) => Step::Free(effect),
            };
        }
        drop(turn);
        self.needs_turn = true;
        if let Some(mut finish) = self.pending.overtaken(effect) {
            self.clear_up(server, &mut finish).at_once(server);
            leave(server, finish.turn);
        }
        Step::Free(Effect::TakeTurn)
    }

    /// Carries a commit out. Gives where the request stands if it does not go on here.
    fn commit(
        &mut self,
        server: &ServerHandle,
        commit: Commit,
        turn: RwLockUpgradableReadGuard<'_, crate::namespace::State>,
    ) -> Option<Stand> {
        // If the client has died, nothing of its request may happen after others know of its death. Nobody else commits
        // between this look and the commit. A process that goes on asks once more, by another connection.
        if sys::has_hung_up(self.socket.as_fd()) {
            drop(turn);
            self.is_for_nobody();
            return None;
        }
        let Commit {
            batch,
            unseen,
            token,
            ..
        } = commit;
        let copy = self
            .copies
            .iter()
            .find(|(object, _)| names(&batch, *object));
        let markers = self.pending.new_markers();
        let may_happen = || {
            let granted = |of: &CopyOf| server.in_place.was_granted_since(of.inode, of.since);
            let may = copy.is_none_or(|(_, of)| !granted(of));
            if may {
                follow::mark_later(server, &markers);
            }
            may
        };
        match server
            .namespace
            .commit(turn, token, batch, unseen, self.is_long, may_happen)
        {
            Ok(Committed::HeldUp) => self.pending.held_up(),
            Ok(Committed::NeedsSync) => {
                self.pending.held_up();
                return Some(Stand::Syncs);
            }
            Ok(Committed::Blocks) => {
                self.pending.held_up();
                self.is_long = true;
                return Some(Stand::Long(None));
            }
            Ok(Committed::Refused) => {
                let held = copy.map(|(_, of)| of.lower.clone());
                self.pending
                    .held_in_place(held.expect("only a copy is refused"));
            }
            Ok(Committed::Yes(changes)) => {
                server.wake_for(&changes);
                for fresh in self.pending.committed(Verdict::Committed) {
                    // The descriptor of a new file is still to be granted.
                    if let Some(made) = self.made.iter().find(|m| m.fresh.object == fresh.object) {
                        server.objects.settle(made);
                    }
                }
                let hidden = server.in_place.hidden_by(&changes);
                self.pending.hides_written(hidden);
            }
            Err(e) => self.pending.fails(not_written(server, &e)),
        }
        None
    }

    /// Who asked has gone: nothing happens any more, and nobody hears of it.
    fn is_for_nobody(&mut self) {
        self.is_orphaned = true;
        self.pending.fails(Failure::Errno(libc::EPIPE));
    }

    /// A link is announced before it is made.
    fn announce(&mut self, server: &ServerHandle, of: ObjectName) {
        let link = server.objects.new_link(of);
        match server.namespace.note([Pending::announcement(link)]) {
            Ok(()) => self.pending.announced(link),
            Err(e) => self.pending.fails(not_written(server, &e)),
        }
    }

    fn to_look(&self, look: PfsLook, through: Option<Through>) -> Task {
        let asker = self.pending.cred().clone();
        Task::Look {
            look,
            through,
            asker,
        }
    }

    /// Does this look have to go where it may block?
    fn blocks_on(&self, server: &ServerHandle, look: &PfsLook) -> bool {
        let is_kept = match look {
            PfsLook::List { dir, after } => {
                let kept = server.listings.get(self.session(), dir);
                kept.is_some_and(|page| page.covers(after.as_deref()))
            }
            _ => false,
        };
        server.lower.may_wait() && !is_kept
    }

    /// Takes the outcome of a task.
    pub fn take(&mut self, server: &ServerHandle, outcome: Outcome) {
        match outcome {
            Outcome::Looked(outcome) => self.pending.looked(outcome),
            Outcome::TimesWritten => self.pending.times_written(),
            Outcome::HungUp => self.is_for_nobody(),
            Outcome::Granted(target, opened) => {
                let outcome = opened.map(|fd| self.opened = fd.map(|fd| Box::new((target, fd))));
                self.note_descriptors(server, &outcome);
                self.pending.granted(outcome.map_err(|e| e.raw_os_error()));
            }
            Outcome::Made(made) => match made {
                Ok(made) => {
                    self.pending.made(Ok(made.fresh));
                    self.made.push(made);
                }
                Err(e) => self.pending.made(Err(e.raw_os_error())),
            },
            Outcome::Copied(made, of) => {
                self.copies.push((made.fresh.object, of));
                self.pending.made(Ok(made.fresh));
                self.made.push(made);
            }
            Outcome::Held(lower) => self.pending.held_in_place(lower),
            Outcome::LookedAtLeft => {}
        }
    }

    fn note_descriptors(&self, server: &ServerHandle, outcome: &Result<(), Errno>) {
        if matches!(outcome, Err(Errno::MFILE | Errno::NFILE)) {
            server
                .log
                .limited(Cause::Limit, format_args!("no descriptor left for a grant"));
        }
    }

    /// The queue for its task is full.
    pub fn gives_up(&mut self) {
        // What is left of it takes no time.
        self.is_long = false;
        self.pending.gives_up();
    }

    /// Tells the request that the event it waited for has happened.
    pub fn woken(&mut self) {
        self.pending.woken();
    }

    /// Ends a request, or lets it wait for a sync point before.
    fn finish(&mut self, server: &ServerHandle, mut finish: Finish) -> Stand {
        let after = self.clear_up(server, &mut finish);
        if after.is_empty() {
            return Stand::Ended(self.answer(server, finish));
        }
        self.ending = Some(Box::new((finish, after)));
        Stand::Syncs
    }

    /// Does the work at the end of a request. Gives what is left for after a sync point.
    fn clear_up(&mut self, server: &ServerHandle, finish: &mut Finish) -> AfterSync {
        let mut after = AfterSync::default();
        follow::begin(server, &finish.follow, &mut after);
        for fresh in &finish.unused {
            if let Some(n) = self
                .made
                .iter()
                .position(|m| m.fresh.object == fresh.object)
            {
                discard(server, &self.made.swap_remove(n), &mut after);
            }
        }
        after
    }

    /// The answer of a request that has ended, if somebody hears it.
    fn answer(&mut self, server: &ServerHandle, finish: Finish) -> Option<Answered> {
        leave(server, finish.turn.clone());
        let answered = reply::answered(server, self, finish);
        (!self.is_orphaned).then_some(answered)
    }

    /// The descriptor that a grant passes.
    fn descriptor(&mut self, target: &GrantTarget) -> Option<OwnedFd> {
        if let Some(opened) = self.opened.take_if(|opened| opened.0 == *target) {
            return Some(opened.1);
        }
        let GrantTarget::Object(object) = target else {
            return None;
        };
        let made = self.made.iter_mut();
        made.filter(|made| made.fresh.object == *object)
            .find_map(|made| made.fd.take())
    }
}

/// Does the batch put a record of this object into the tables?
fn names(batch: &[Change], object: ObjectName) -> bool {
    batch
        .iter()
        .any(|change| matches!(change, Change::Put { record, .. } if record.object == object))
}

/// Ends a copy turn, if there is one: the requests that wait for it go on.
fn leave(server: &ServerHandle, turn: Option<TreePath>) {
    let waiting = turn.map(|path| server.turns.lock().leave(&path));
    for waker in waiting.unwrap_or_default() {
        server.wake(waker);
    }
}

fn is_lower(granting: &Granting) -> bool {
    matches!(granting.target, GrantTarget::Lower(..)) && granting.form == Form::Descriptor
}

/// Is so much copied from the PFS that it has to happen where it may block?
fn copies_much(server: &ServerHandle, spec: &NewObject) -> bool {
    match spec.what {
        NewKind::Staged { bytes, .. } => server.lower.may_wait() || bytes > INLINE_STAGE_BYTES,
        _ => false,
    }
}

/// The failure of a request whose batch the tables did not take.
fn not_written(server: &ServerHandle, e: &TableError) -> Failure {
    Failure::Errno(errno_of(server, e))
}

/// What a client is told of a failure of the tables, which the log tells of.
fn errno_of(server: &ServerHandle, e: &TableError) -> i32 {
    server.log.limited(Cause::Fault, format_args!("{e}"));
    e.errno()
}

/// Removes a new object that no commit has named.
fn discard(server: &ServerHandle, made: &Made, after: &mut AfterSync) {
    let object = made.fresh.object;
    if object.link != 0 {
        // The other names of the file may be gone meanwhile, and the last sync point may know one of them.
        follow::begin(server, &[ops::FollowUp::Remove(object)], after);
        return;
    }
    if let Err(e) = server.objects.remove(object) {
        server.log.limited(
            Cause::Io,
            format_args!("unused backing object {object} could not be removed: {e}"),
        );
        // Not settled: the next start looks at it again.
        return;
    }
    server.objects.settle(made);
    if made.fresh.is_doomed {
        server.namespace.object_gone(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::facts::Fresh;
    use forebay_core::record::{BridgeId, ObjectId, Token};
    use std::os::fd::AsRawFd;

    /// A file was there when a create began, and was opened. It was removed before that was certain, and a new one made.
    #[test]
    fn a_create_does_not_pass_what_had_the_name_before() {
        let object = |n| ObjectName {
            oid: ObjectId::new(BridgeId(1), 1, n),
            link: 0,
        };
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let request = ops::Request {
            op: ops::Op::NameOf {
                start: ops::Start::Root,
            },
            token: Token::default(),
            retry: false,
        };
        let caller = Caller {
            cred: Arc::default(),
            by_name: false,
        };
        let (before, new) = (file(), file());
        let (old_number, number) = (before.as_raw_fd(), new.as_raw_fd());
        let mut work = Work {
            pending: Pending::new(request, caller),
            pid: 1,
            socket: Arc::new(file()),
            is_orphaned: false,
            session: 0,
            made: vec![Made {
                fresh: Fresh::new(object(2), 2),
                fd: Some(new),
                spare: None,
            }],
            copies: Vec::new(),
            opened: Some(Box::new((GrantTarget::Object(object(1)), before))),
            is_long: false,
            needs_turn: false,
            ending: None,
        };
        let passed = work.descriptor(&GrantTarget::Object(object(2))).unwrap();
        assert_eq!(passed.as_raw_fd(), number);
        let passed = work.descriptor(&GrantTarget::Object(object(1))).unwrap();
        assert_eq!(passed.as_raw_fd(), old_number);
    }
}
