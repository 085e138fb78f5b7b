//! The driver of one bridge: what a server does around core, without sockets,
//! files and threads.

use super::between::Deed;
use super::disk::{Disk, Work, is_dir};
use super::drain::Draining;
use super::env::{Alarm, Env, Event};
use super::in_place::InPlace;
use super::labels::Labeling;
use super::look::Hand;
use super::pfs::Pfs;
use super::request::Attempt;
use super::sync_points::SyncPoints;
use super::trace::{self, Way};
use super::turns::Turning;
use forebay_core::bridge::{
    self, Bridge, Fact, Message, Mutation, ObjectStanding, Output, Ticket, is_of_others,
};
use forebay_core::drain::DrainReport;
use forebay_core::facts::{Label, Need};
use forebay_core::membership::Membership;
use forebay_core::ops::Leaving;
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, ObjectId, ObjectName, PathRecord, Token};
use forebay_core::recovery::{self, Past, Step, Suspects};
use forebay_core::request::Turns;
use forebay_core::spares::{self, RemovedObject, Slot, Spares, TakenSpare};
use forebay_core::speakers::Speakers;
use forebay_core::table::{Change, Tables, WriteTables};
use forebay_tables::Memory;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// Time between two ticks in microseconds.
const TICK_US: u64 = 10_000;
/// Places in the register of spare files. So few that they run out.
const SLOTS: usize = 4;
pub(super) const NEVER_FAILS: &str = "tables in memory don't fail";

/// Who waits for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waiter {
    Request(Token),
    Label(ObjectName),
    /// The drain can go on.
    Drain,
    /// The drain of this number waits with the act of this ticket: for a fact, or for a verdict.
    DrainFact(u64, u64),
    DrainVerdict(u64, u64),
}

/// Why the disk is at work.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// A request wants an object.
    Make(Token),
    /// A name is gone, and a mark stands until its object is too.
    Unlink(ObjectName),
    /// An object that nobody wants.
    Dispose(ObjectName),
    Label(ObjectName),
}

/// One bridge with its store and its disk.
pub(super) struct Node {
    pub(super) id: BridgeId,
    pub(super) membership: Membership,
    pub(super) mutation: Option<Mutation>,
    /// The PFS below.
    pub(super) lower: Rc<RefCell<Pfs>>,
    /// Looks at it take time.
    pub(super) slow_looks: bool,
    /// Files of the PFS up to this size are staged.
    pub(super) stage_limit: u64,
    /// So many records go with a directory of the PFS in one batch.
    pub(super) removed_at_once: usize,
    /// Records that nobody can see any more.
    pub(super) leaving: Leaving,
    /// What was carried out for them last: the batch with their directory, or a part.
    pub(super) last_removal: Option<Deed>,
    /// Removed files are used again.
    pub(super) spares_files: bool,
    pub(super) tables: Memory,
    pub(super) disk: Disk,
    pub(super) epoch: u32,
    /// `None` while it is dead. All below is gone with it.
    pub(super) bridge: Option<Bridge>,
    pub(super) attempts: BTreeMap<Token, Attempt>,
    pub(super) labels: BTreeMap<ObjectName, Labeling>,
    /// Markers that are made, of which the tables say still that they are to be made.
    pub(super) made_markers: BTreeSet<ObjectName>,
    /// Those who can go on.
    pub(super) ready: VecDeque<Waiter>,
    waiters: BTreeMap<Ticket, Waiter>,
    purposes: BTreeMap<u64, Purpose>,
    /// Objects of earlier lives that can't be judged yet.
    pub(super) suspects: Vec<ObjectName>,
    tickets: Ticket,
    pub(super) versions: Cell<u32>,
    pub(super) objects: Cell<u64>,
    /// Batches written in this life.
    pub(super) commits: u64,
    /// PFS files that are being copied.
    pub(super) turns: Turns<Token>,
    /// The drain at work.
    pub(super) draining: Option<Draining>,
    /// How many there were.
    pub(super) drains: u64,
    /// It is to release some files alone.
    pub(super) releases_some: bool,
    /// What the last drain came to.
    pub(super) report: Option<DrainReport>,
    /// Records that speak of the PFS.
    pub(super) speakers: Speakers,
    /// How often a commit of a drain gave the PFS another meaning.
    pub(super) pfs_changes: u64,
    /// Where the copies of a drain are until they have their names.
    pub(super) temporaries: BTreeMap<ObjectId, TreePath>,
    /// Removed files that wait for another life, with their labels.
    pub(super) spares: Spares<Label>,
    /// The register of spare files, which outlives the process.
    pub(super) register: BTreeMap<ObjectName, Slot>,
    /// Sync points, where the power may fail.
    pub(super) sync_points: Option<SyncPoints>,
    /// Files of the PFS that programs have open.
    pub(super) in_place: InPlace,
    /// Decisions that are made out of turn.
    pub(super) turning: Turning,
    /// Times of directories wait to be written.
    pub(super) times_wait: bool,
    /// The last action was a write or an answer, so a crash now does most harm.
    in_between: bool,
}

impl Node {
    pub(super) fn new(
        membership: Membership,
        lower: Rc<RefCell<Pfs>>,
        mutation: Option<Mutation>,
    ) -> Self {
        Node {
            id: membership.me(),
            membership,
            mutation,
            lower,
            tables: Memory::new(),
            disk: Disk::default(),
            epoch: 0,
            bridge: None,
            attempts: BTreeMap::new(),
            labels: BTreeMap::new(),
            made_markers: BTreeSet::new(),
            ready: VecDeque::new(),
            waiters: BTreeMap::new(),
            purposes: BTreeMap::new(),
            suspects: Vec::new(),
            tickets: 0,
            versions: Cell::new(0),
            objects: Cell::new(0),
            commits: 0,
            turns: Turns::default(),
            slow_looks: false,
            stage_limit: 0,
            removed_at_once: usize::MAX,
            leaving: Leaving::default(),
            last_removal: None,
            spares_files: false,
            draining: None,
            drains: 0,
            releases_some: false,
            report: None,
            speakers: Speakers::default(),
            pfs_changes: 0,
            temporaries: BTreeMap::new(),
            spares: Spares::new(SLOTS),
            register: BTreeMap::new(),
            sync_points: None,
            in_place: InPlace::default(),
            turning: Turning::default(),
            times_wait: false,
            in_between: false,
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.bridge.is_some()
    }

    /// Nothing is under way here.
    pub(super) fn is_quiet(&self) -> bool {
        self.bridge.as_ref().is_some_and(Bridge::is_quiet)
            && self.attempts.is_empty()
            && self.labels.is_empty()
            && self.made_markers.is_empty()
            && self.suspects.is_empty()
            && self.draining.is_none()
            && self.disk.is_idle()
            && self.disk.is_closed()
            && self.in_place.is_closed()
            && self.spares.is_empty()
            && self.register.is_empty()
            && self.leaving.is_empty()
            && self.is_settled_down()
    }

    /// What is under way here, for people.
    pub(super) fn unrest(&self) -> String {
        let bridge = self.bridge.as_ref();
        format!(
            "bridge {}: alive {}, transactions quiet {}, {} requests, {} labels, {} suspects, drains {}, closed {}, {} in the register",
            self.id.0,
            bridge.is_some(),
            bridge.is_some_and(Bridge::is_quiet),
            self.attempts.len(),
            self.labels.len(),
            self.suspects.len(),
            self.draining.is_some(),
            self.disk.is_closed(),
            self.register.len(),
        )
    }

    pub(super) fn note(&self, env: &mut Env, text: impl FnOnce() -> String) {
        let id = self.id.0;
        env.trace
            .note(env.now, || format!("bridge {id}"), || (text(), Vec::new()));
    }

    /// The process dies. What it has written stays.
    pub(super) fn crash(&mut self, env: &mut Env) {
        if self.bridge.take().is_none() {
            return;
        }
        env.counts.crashes += 1;
        self.note(env, || "dies".to_owned());
        self.disk.crash(&mut env.random);
        self.crash_drain(env);
        self.crash_sync_point(env);
        self.spares = Spares::new(SLOTS);
        self.register.clear();
        self.temporaries.clear();
        self.attempts.clear();
        self.labels.clear();
        self.made_markers.clear();
        self.ready.clear();
        self.waiters.clear();
        self.purposes.clear();
        self.turns = Turns::default();
        self.leaving = Leaving::default();
        self.last_removal = None;
        self.turning.crash();
        self.times_wait = false;
        self.in_place.crash();
        self.suspects.clear();
    }

    /// The process starts and takes up what earlier lives have left.
    pub(super) fn start(&mut self, env: &mut Env) {
        if self.is_alive() {
            return;
        }
        self.epoch += 1;
        self.versions.set(0);
        if self.sync_points.is_none() {
            self.objects.set(0);
        }
        let epoch = self.epoch;
        self.note(env, || format!("starts, life {epoch}"));
        let membership = self.membership.clone();
        let bridge = Bridge::recover_with(membership, epoch, &self.tables, env.now, self.mutation)
            .expect(NEVER_FAILS);
        let bridge = self.bridge.insert(bridge);
        if self.sync_points.is_none() {
            bridge.durable(u64::MAX);
        }
        let past = Past::of(&self.tables).expect(NEVER_FAILS);
        self.apply(&recovery::begun(epoch));
        let marks = self.tables.marks().expect(NEVER_FAILS);
        let is_there = |o: &ObjectName| self.disk.objects.contains_key(o);
        let has_removed = marks.doomed.iter().any(is_there);
        if !self.recover(past, env) {
            return;
        }
        self.check_survivors(env);
        self.learn_speakers();
        if env.power_strikes(if has_removed { 400_000 } else { 30_000 }) {
            return self.dies_now(env);
        }
        self.alarm(TICK_US, Alarm::Tick, env);
        if !self.membership.is_single() {
            // The others serve requests meanwhile, and so does this one: marks make them wait.
            self.begin_resume(env);
        } else if !self.resume_drain(env) && self.is_alive() {
            return self.dies_now(env);
        }
        // Nothing is served that a power loss could take back to another life.
        self.sync_now(env);
        self.run(env);
    }

    /// Finishes what earlier lives have left, but for drains; false if the bridge has died.
    fn recover(&mut self, past: Past, env: &mut Env) -> bool {
        if past.loss.is_some() {
            self.note_survivors();
        }
        if !self.finish_removals(env) {
            return false;
        }
        let mut objects: Vec<_> = self.disk.objects.keys().copied().collect();
        match past.suspects() {
            Suspects::All => {}
            Suspects::None => objects.clear(),
            // A link has no number of its own by which it would be found.
            Suspects::From(first) => objects.retain(|o| o.link == 0 && o.oid.seq() >= first),
        }
        self.note(env, || format!("finds {past:?}"));
        self.hold_watermark(past.watermark);
        let mut last = None;
        for step in past.steps(self.mutation) {
            if self.dies_between(last.replace(Deed::Recover), Deed::Recover, env) {
                return false;
            }
            match step {
                Step::DistrustContents => objects.iter().for_each(|o| self.wrote_contents(o.oid)),
                Step::DistrustPfs => self.distrust_pfs(),
                Step::LinkWhatIsAhead => self.link_what_is_ahead(&objects),
                Step::SyncPoint => self.sync_now(env),
                Step::Sweep { judges } => self.sweep(&objects, judges, env),
                Step::RelabelWhatIsAhead => self.relabel_what_is_ahead(&objects, env),
                Step::DoubtWhatWasDrained => self.doubt_what_was_drained(env),
            }
        }
        self.release_watermark(past.watermark);
        for object in self.suspects.clone() {
            self.is_unnamed(object);
        }
        if self.dies_between(last, Deed::Recover, env) {
            return false;
        }
        let marks = recovery::recovered(&past, &self.suspects);
        self.apply(&marks.into_iter().map(Change::from).collect::<Vec<_>>());
        true
    }

    fn sweep(&mut self, suspects: &[ObjectName], judges: bool, env: &mut Env) {
        let Some(bridge) = &self.bridge else {
            return;
        };
        let doomed = self.tables.marks().expect(NEVER_FAILS).doomed;
        let sweep = bridge
            .sweep(suspects.iter().copied(), &self.tables)
            .expect(NEVER_FAILS);
        self.note(env, || format!("of {suspects:?} finds {sweep:?}"));
        self.suspects = sweep.undecided;
        for object in sweep.remove {
            if judges && !doomed.contains(&object) && self.withhold(object, env) {
                continue;
            }
            self.unlink_at_start(object, env);
        }
        for object in sweep.relabel {
            self.relabel(object);
        }
    }

    /// It ends by itself, at a moment that nobody else has chosen.
    pub(super) fn dies_now(&mut self, env: &mut Env) {
        self.crash(env);
        env.after(0, Event::Crash { bridge: self.id });
    }

    /// All records of its tables.
    pub(super) fn records(&self) -> Vec<(TreePath, PathRecord)> {
        self.tables.subtree(&TreePath::root()).expect(NEVER_FAILS)
    }

    /// Makes the index of all records that speak of the PFS.
    pub(super) fn learn_speakers(&mut self) {
        self.speakers = Speakers::default();
        for (path, record) in self.records() {
            self.speakers.learn(&path, &record);
        }
    }

    /// What requests have at hand.
    pub(super) fn hand<'a>(&'a self, bridge: &'a Bridge, pfs: &'a Pfs, env: &'a Env) -> Hand<'a> {
        Hand {
            bridge,
            tables: &self.tables,
            pfs,
            env,
            is_slow: self.slow_looks,
            pfs_fails: None,
            storage_fails: None,
            met: RefCell::default(),
            records_at_once: usize::MAX,
            times_wait: self.times_wait,
            disk: &self.disk,
            speakers: &self.speakers,
            pfs_changes: self.pfs_changes,
            epoch: self.epoch,
            versions: &self.versions,
            objects: &self.objects,
            commits: self.commits,
            mutation: self.mutation,
        }
    }

    pub(super) fn alarm(&self, delay: u64, what: Alarm, env: &mut Env) {
        let (bridge, life) = (self.id, self.epoch);
        env.after(delay, Event::At { bridge, life, what });
    }

    pub(super) fn on_message(&mut self, from: BridgeId, message: Message, env: &mut Env) {
        if let Some(bridge) = &mut self.bridge {
            env.trace
                .message(Way::Received, from, self.id, env.now, &message);
            bridge
                .message(from, message, &self.tables, env.now)
                .expect(NEVER_FAILS);
            self.run(env);
        }
    }

    /// Something at this bridge. What it does to an object of another bridge is done there.
    pub(super) fn on_alarm(
        &mut self,
        life: u32,
        what: Alarm,
        others: &mut [&mut Node],
        env: &mut Env,
    ) {
        if life != self.epoch || !self.is_alive() {
            return;
        }
        match what {
            Alarm::Tick => self.tick(env),
            Alarm::Again(token) => {
                if let Some(attempt) = self.attempts.get_mut(&token)
                    && std::mem::take(&mut attempt.awaits)
                {
                    attempt.pending.woken();
                }
                self.ready.push_back(Waiter::Request(token));
            }
            Alarm::Label(object) => self.ready.push_back(Waiter::Label(object)),
            Alarm::Marked(object) => self.marked(object),
            Alarm::Disk(number) => self.on_disk(number, env),
            Alarm::Act(number) => self.on_act(number, others, env),
            Alarm::Refused(drain, ticket) => self.on_refused(drain, ticket, env),
            Alarm::Effect(token) => self.late_effect(token, others, env),
            Alarm::Part => self.remove_part(env),
            Alarm::Syncing => self.go_on_syncing(env),
            Alarm::SyncStep(number) => self.on_sync_step(number, env),
        }
        self.run(env);
    }

    /// Unlinks an object for good.
    pub(super) fn unlink_for_good(&mut self, object: ObjectName, env: &mut Env) {
        self.settle(object);
        self.begin(Work::Unlink(object), Purpose::Unlink(object), env);
    }

    fn tick(&mut self, env: &mut Env) {
        let Some(bridge) = &mut self.bridge else {
            return;
        };
        bridge.tick(env.now);
        let suspects = std::mem::take(&mut self.suspects).into_iter();
        let judge = |o| (o, bridge.judge(o, &self.tables).expect(NEVER_FAILS));
        for (object, found) in suspects.map(judge).collect::<Vec<_>>() {
            match found {
                ObjectStanding::Undecided => self.suspects.push(object),
                ObjectStanding::Named => self.settle(object),
                ObjectStanding::Orphan if self.is_doomed(object) => self.unlink(object, env),
                // It has no mark, so the watermark stays below it until it is gone.
                ObjectStanding::Orphan => {
                    self.begin(Work::Unlink(object), Purpose::Dispose(object), env)
                }
            }
        }
        self.alarm(TICK_US, Alarm::Tick, env);
    }

    fn is_doomed(&self, object: ObjectName) -> bool {
        let doomed = self.tables.marks().expect(NEVER_FAILS).doomed;
        doomed.contains(&object)
    }

    /// Goes on until nothing is left to do now, or the bridge dies.
    pub(super) fn run(&mut self, env: &mut Env) {
        loop {
            self.carry_out_all(env);
            if !self.is_alive() {
                return;
            }
            match self.ready.pop_front() {
                Some(Waiter::Request(token)) => self.go_on(token, env),
                Some(Waiter::Label(object)) => self.go_on_labeling(object, env),
                Some(Waiter::Drain) => self.drive(env),
                Some(Waiter::DrainFact(..) | Waiter::DrainVerdict(..)) | None => {
                    return self.hurry_for_others(env);
                }
            }
        }
    }

    /// Carries out all that the transaction layer asks for now.
    pub(super) fn carry_out_all(&mut self, env: &mut Env) {
        while let Some(output) = self.poll(env) {
            self.carry_out(output, env);
        }
    }

    /// The bridge dies now as easily as after a write.
    pub(super) fn strike_between_acts(&mut self) {
        self.in_between = true;
    }

    fn poll(&mut self, env: &mut Env) -> Option<Output> {
        let in_between = std::mem::take(&mut self.in_between);
        if self.is_alive() && env.strikes(in_between) {
            self.dies_now(env);
        }
        let bridge = self.bridge.as_mut()?;
        bridge.poll(&self.tables).expect(NEVER_FAILS)
    }

    fn carry_out(&mut self, output: Output, env: &mut Env) {
        match output {
            Output::Commit(changes) => self.commit(&changes, env),
            Output::Send { to, message } => env.send(self.id, to, message),
            Output::Done { ticket, verdict } => {
                self.in_between = true;
                match self.waiters.remove(&ticket) {
                    Some(Waiter::Request(token)) => self.on_verdict(token, verdict, env),
                    Some(Waiter::Label(object)) => self.alarm(1_000, Alarm::Label(object), env),
                    Some(Waiter::DrainFact(drain, ticket)) => {
                        self.alarm(1_000, Alarm::Refused(drain, ticket), env);
                    }
                    Some(Waiter::DrainVerdict(drain, ticket)) => {
                        self.on_drain_verdict(drain, ticket, &verdict, env);
                    }
                    Some(Waiter::Drain) | None => {}
                }
            }
            Output::Fetched { ticket, fact } => self.arrived(ticket, fact),
        }
    }

    /// Something fetched is there: whoever waits for it can go on.
    fn arrived(&mut self, ticket: Ticket, fact: Fact) {
        let Some(waiter) = self.waiters.remove(&ticket) else {
            return;
        };
        match waiter {
            Waiter::Request(token) => {
                if let Some(attempt) = self.attempts.get_mut(&token) {
                    attempt.pending.fetched(fact);
                }
            }
            Waiter::Label(object) => {
                if let Some(labeling) = self.labels.get_mut(&object) {
                    labeling.known.learn(fact);
                }
            }
            Waiter::DrainFact(drain, ticket) => return self.on_drain_fact(drain, ticket, fact),
            Waiter::Drain | Waiter::DrainVerdict(..) => {}
        }
        self.ready.push_back(waiter);
    }

    /// Writes a batch, and begins what its marks ask for.
    fn commit(&mut self, changes: &[Change], env: &mut Env) {
        let id = self.id.0;
        env.trace.note(
            env.now,
            || format!("bridge {id}"),
            || {
                let (text, paths) = trace::changes(changes);
                (format!("writes {text}"), paths)
            },
        );
        self.turning.meanwhile.changed(changes);
        self.times_wait |= self.turning.is_on;
        self.apply(changes);
        self.speakers.follow(changes);
        self.commits += 1;
        self.in_between = true;
        self.committed(env);
        for change in changes {
            match change {
                Change::Put { record, .. } => {
                    self.note_made(record, env);
                }
                Change::Doom(object) => self.unlink(*object, env),
                Change::Relabel(object) if self.comes_later(*object) => {
                    self.mark_later(*object, env);
                }
                Change::Relabel(object) => {
                    self.made_markers.remove(object);
                    self.relabel(*object);
                }
                change => {
                    if let Some(object) = bridge::named_elsewhere(change) {
                        self.settle(object);
                        self.leaves_register(object);
                    }
                }
            }
        }
    }

    /// A record is there: notes what its request has made, unless that is a copy of what was there before.
    fn note_made(&mut self, record: &PathRecord, env: &mut Env) {
        if let Some(thing) = env.made_by(record) {
            env.made.entry(record.token).or_insert(thing);
        }
        self.settle(record.object);
        self.leaves_register(record.object);
        if !matches!(record.kind, Kind::Moved | Kind::Whiteout) {
            env.copy_counts(record.object.oid);
        }
        env.objects.insert(record.object);
    }

    pub(super) fn apply(&self, changes: &[Change]) {
        self.tables.apply(changes).expect(NEVER_FAILS);
    }

    pub(super) fn ticket(&mut self, waiter: Waiter) -> Ticket {
        self.tickets += 1;
        self.waiters.insert(self.tickets, waiter);
        self.tickets
    }

    /// Fetches a fact from other bridges.
    pub(super) fn fetch(&mut self, waiter: Waiter, need: Need, env: &mut Env) {
        let ticket = self.ticket(waiter);
        if let Some(bridge) = &mut self.bridge {
            match is_of_others(&need) {
                true => bridge.fetch(ticket, need, env.now),
                false => env.broken(format!("policy needs {need:?}, which is at hand")),
            }
        }
    }

    pub(super) fn begin(&mut self, work: Work, purpose: Purpose, env: &mut Env) {
        let number = self.disk.begin(work);
        self.purposes.insert(number, purpose);
        let delay = env.disk_us();
        self.alarm(delay, Alarm::Disk(number), env);
    }

    /// A name is gone: its object goes, at once or after a sync point, or becomes a spare one.
    pub(super) fn unlink(&mut self, object: ObjectName, env: &mut Env) {
        if self.waits_for_sync_point(object, env) {
            return;
        }
        let removed = RemovedObject {
            object,
            is_plain: !is_dir(object.oid),
            is_known: self.is_known(object),
        };
        let is_busy = self.register.contains_key(&object) || self.labels.contains_key(&object);
        if self.spares_files
            && !is_busy
            && removed.may_be_reused(self.epoch, || false)
            && self.keep(object)
        {
            return;
        }
        self.unlink_for_good(object, env);
    }

    /// Keeps a removed file as a spare one, if it is as good as new.
    fn keep(&mut self, object: ObjectName) -> bool {
        let Some(slot) = self.spares.reserve() else {
            return false;
        };
        match spares::as_new(&self.disk.opened(object)) {
            Ok(Some((_, label))) => {
                self.register.insert(object, slot);
                self.spares.keep(object, slot, label);
                true
            }
            _ => {
                self.spares.release(slot);
                false
            }
        }
    }

    /// A spare file for a new one with this label. The register names it until the new file has its name.
    pub(super) fn take_spare(&mut self, label: &Label, env: &mut Env) -> Option<ObjectName> {
        let points = self.sync_points.as_ref();
        let may_know = |seq| points.is_some_and(|points| points.may_know(seq));
        match self.spares.take(|_| true, |of| of == label, may_know)? {
            TakenSpare::Again(spare) => Some(spare.object),
            TakenSpare::Known(spare) => {
                self.leaves_register(spare.object);
                self.unlink(spare.object, env);
                None
            }
        }
    }

    /// The object has a name again, or is gone.
    fn leaves_register(&mut self, object: ObjectName) {
        if let Some(slot) = self.register.remove(&object) {
            self.spares.release(slot);
        }
    }

    /// No file is used again from now on.
    pub(super) fn drop_spares(&mut self, env: &mut Env) {
        self.spares_files = false;
        for spare in self.spares.take_all() {
            self.unlink(spare.object, env);
        }
    }

    fn on_disk(&mut self, number: u64, env: &mut Env) {
        let purpose = self.purposes.remove(&number);
        if !matches!(purpose, Some(Purpose::Make(_))) {
            self.disk.finish(number);
        }
        match purpose {
            Some(Purpose::Make(token)) => self.made(token, number, env),
            Some(Purpose::Unlink(object)) => {
                let id = object.oid;
                self.note(env, || format!("has unlinked {id:?}"));
                self.apply(&[Change::Undoom(object)]);
                self.leaves_register(object);
            }
            Some(Purpose::Label(object)) => self.labeled(object),
            Some(Purpose::Dispose(object)) => self.settle(object),
            None => {}
        }
    }
}
