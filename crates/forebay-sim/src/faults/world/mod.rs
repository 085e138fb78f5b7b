//! One run: bridges, clients, and what becomes of them.

mod checks;
mod clients;
mod neighbours;
mod power;
mod storm;

use super::env::{Alarm, Env, Event};
use super::history::Call;
use super::node::Node;
use super::pfs::Pfs;
use super::sync_points::SyncPoints;
use super::trace::Trace;
use super::workload::Workload;
use super::{Broken, Plan, Summary};
use forebay_core::drain::{BATCH_OBJECTS, Left, NameSecret, PassTerms, Reason};
use forebay_core::membership::Membership;
use forebay_core::path::TreePath;
use forebay_core::record::BridgeId;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use clients::Client;
pub(super) use neighbours::is_done;
use power::LossOfPower;

/// The faults end after this time, or when all clients have finished before, in microseconds.
const STORM_US: u64 = 20_000_000;
/// Then everything has to become quiet within this time in microseconds.
const PATIENCE_US: u64 = 30_000_000;
/// A run with more events than this goes round in circles.
const MAX_EVENTS: u64 = 1_000_000;

/// Everything.
pub(super) struct World {
    env: Env,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    calls: Vec<Call>,
    workload: Workload,
    lower: Rc<RefCell<Pfs>>,
    /// Counts what clients write.
    written: u64,
    /// So often a client writes to what it has opened; `None`: by chance.
    writes: Option<u32>,
    /// Nobody knows any more what drains have done.
    forgets_drained: bool,
    losses: Vec<LossOfPower>,
    /// Clients that a loss of power has ended, where there are several bridges: from which moment on what they were told may
    /// be undone.
    ended: BTreeMap<usize, u64>,
    /// Bridges whose machines have lost their power, until they serve again, and files that this may have taken back.
    powerless: BTreeSet<BridgeId>,
    reverted: BTreeSet<u64>,
    /// When operations were answered: time, moment, and by which bridge.
    answered: Vec<(u64, u64, BridgeId)>,
}

impl World {
    /// The world of one seed. `membership` is that of the bridges of the plan.
    pub(super) fn new(plan: &Plan, membership: &Membership, trace: bool) -> Self {
        let mut env = Env::new(plan, Trace::new(trace));
        let workload = Workload::of(&mut env.random, plan);
        World::with(plan, membership, env, workload)
    }

    fn with(plan: &Plan, membership: &Membership, mut env: Env, workload: Workload) -> Self {
        env.texts.extend(workload.lower_texts.clone());
        let mut pfs = Pfs::of(&workload.lower);
        let begun = workload.lower.iter().filter(|(_, t)| !t.is_dir());
        env.contents.extend(begun.map(|(_, t)| (t.ino, t.ino)));
        pfs.capacity = env.drain.capacity.map(|room| room + workload.lower.len());
        if env.power.is_some() {
            pfs.may_lose_power();
        }
        let lower = Rc::new(RefCell::new(pfs));
        let habits = env.drain;
        let members = membership.members();
        let nodes = members
            .iter()
            .map(|id| {
                let membership = membership.seen_from(*id);
                let mut node = Node::new(membership, lower.clone(), plan.mutation);
                node.slow_looks = habits.slow_looks;
                node.spares_files = habits.spares;
                node.stage_limit = habits.stage_limit;
                node.removed_at_once = habits.removed_at_once;
                node.in_place.is_on = env.hardship.writes_in_place;
                node.turning.is_on = env.hardship.takes_turns;
                node.turning.records_at_once = env.hardship.records_at_once(members.len());
                if let Some(power) = env.power {
                    node.disk.may_lose_power(power.storage);
                    node.sync_points = Some(SyncPoints::new(power.storage, power.longest_us));
                }
                node
            })
            .collect();
        let clients = (0..plan.clients)
            .map(|c| Client {
                lane: c,
                bridge: members[c % members.len()],
                connection: 0,
                call: None,
                retry: false,
                left: plan.steps,
                seq: 0,
            })
            .collect();
        World {
            env,
            nodes,
            clients,
            calls: Vec::new(),
            workload,
            lower,
            written: 1_000_000,
            writes: None,
            forgets_drained: false,
            losses: Vec::new(),
            ended: BTreeMap::new(),
            powerless: BTreeSet::new(),
            reverted: BTreeSet::new(),
            answered: Vec::new(),
        }
    }

    /// Runs to the end and holds everything against what is promised.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        for bridge in self.ids() {
            self.env.after(0, Event::Start { bridge });
        }
        for client in 0..self.clients.len() {
            self.env.after(1, Event::Next { client });
        }
        if self.env.drain.drains {
            let delay = self.env.random.between(1_000, 10_000);
            self.env.after(delay, Event::Drain);
        }
        if self.env.drain.intruders {
            self.env.after(500, Event::Intrude);
        }
        if self.env.drain.loses_tables {
            self.env.after(1_000, Event::LoseTables);
        }
        if let Some(power) = self.env.power {
            let bridge = self.nodes[0].id;
            if let Some(delay) = self.env.power_us() {
                self.env.after(delay, Event::LosePower { bridge });
            }
            if power.syncs_us > 0 {
                self.env.after(power.syncs_us, Event::Sync { bridge });
            }
        }
        self.until(STORM_US, |w| {
            w.clients.iter().all(|c| c.left == 0 && c.call.is_none())
        })?;
        self.calm_down();
        self.settle()?;
        self.leaves_nothing()?;
        // What is only in memory has to be nothing that matters.
        for bridge in self.ids() {
            self.env.after(0, Event::Crash { bridge });
        }
        self.until(5_000, |_| false)?;
        self.settle()?;
        let before = self.seen()?;
        if self.env.power.is_some() {
            for bridge in self.ids() {
                self.at(bridge, Node::sync_now);
            }
            self.lose_power_after_all()?;
            self.same_tree(&before, "what was synced survives a loss of power")?;
        }
        if self.env.drain.loses_tables {
            let bridge = self.another(self.nodes[0].id);
            self.forgets_drained = !self.nodes.iter().all(Node::labels_tell_all);
            self.lose_tables_of(bridge);
            self.env.after(0, Event::Start { bridge });
            self.settle()?;
            self.same_tree(&before, "tables that were lost come back from the labels")?;
        }
        if self.env.drain.drains {
            self.finish_drains()?;
            self.same_tree(&before, "a drain changes nothing that users see")?;
            if self.env.power.is_some() {
                self.lose_power_after_all()?;
                self.same_tree(&before, "what was drained survives a loss of power")?;
                self.finish_drains()?;
                self.same_tree(&before, "a drain after a loss of power changes nothing")?;
            }
        }
        self.check()
    }

    fn ids(&self) -> Vec<BridgeId> {
        self.nodes.iter().map(|n| n.id).collect()
    }

    /// Any bridge, if this is not the only one.
    fn another(&mut self, bridge: BridgeId) -> BridgeId {
        match self.nodes.len() {
            1 => bridge,
            bridges => self.nodes[self.env.random.below(bridges as u64) as usize].id,
        }
    }

    fn calm_down(&mut self) {
        self.env.calm_down();
        self.lower.borrow_mut().capacity = None;
        for node in &mut self.nodes {
            node.drop_spares(&mut self.env);
        }
    }

    fn is_quiet(&self) -> bool {
        self.env.is_silent()
            && self.clients.iter().all(|c| c.left == 0 && c.call.is_none())
            && self.nodes.iter().all(Node::is_quiet)
    }

    fn settle(&mut self) -> Result<(), Broken> {
        self.until(PATIENCE_US, World::is_quiet)?;
        if self.is_quiet() {
            return Ok(());
        }
        let mut detail = String::new();
        for node in self.nodes.iter().filter(|n| !n.is_quiet()) {
            detail += &format!("{}\n", node.unrest());
        }
        let mut paths = Vec::new();
        for call in self.clients.iter().filter_map(|c| c.call) {
            let call = &self.calls[call];
            detail += &format!("client {} waits: {}\n", call.client, call.action);
            paths.extend(call.action.paths());
        }
        let promise =
            "without further faults everything ends: no transaction, lock or request is stuck";
        Err(Broken::new(promise, detail, paths))
    }

    /// Lets things happen for some time, or until something is the case.
    fn until(&mut self, time: u64, end: impl Fn(&World) -> bool) -> Result<(), Broken> {
        let deadline = self.env.now + time;
        while self.env.now < deadline && !end(self) {
            let Some(event) = self.env.next() else {
                break;
            };
            self.happen(event);
            if let Some(fault) = self.env.fault() {
                return Err(Broken::new("policy knows what to do", fault, Vec::new()));
            }
            if self.env.counts.events > MAX_EVENTS {
                let detail = format!("{MAX_EVENTS} events and no end");
                return Err(Broken::new("everything ends", detail, Vec::new()));
            }
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Message { from, to, message } => {
                self.at(to, |n, e| n.on_message(from, message, e))
            }
            Event::At { bridge, life, what } => self.alarm(bridge, life, what),
            Event::Start { bridge } => {
                self.at(bridge, Node::start);
                self.take_up();
            }
            Event::LosePower { bridge } => {
                if let Some(delay) = self.env.power_us() {
                    self.lose_power(bridge);
                    let bridge = self.another(bridge);
                    self.env.after(delay, Event::LosePower { bridge });
                }
            }
            Event::Sync { bridge } => self.sync(bridge),
            Event::Crash { bridge } => self.crash(bridge),
            Event::Next { client } => self.next(client),
            Event::Call { client, connection } => self.call(client, connection),
            Event::Answer {
                client,
                connection,
                outcome,
                fd,
            } => self.answer(client, connection, outcome, fd),
            Event::Write { bridge, fd, times } => self.write(bridge, fd, times),
            Event::Intrude => self.intrude(),
            Event::Drain => self.drain(),
            Event::LoseTables => self.lose_tables(),
            Event::Hangup { client, connection } => self.hangup(client, connection),
        }
    }

    fn at(&mut self, id: BridgeId, act: impl FnOnce(&mut Node, &mut Env)) {
        if let Some(node) = self.nodes.iter_mut().find(|n| n.id == id) {
            act(node, &mut self.env);
        }
    }

    fn alarm(&mut self, bridge: BridgeId, life: u32, what: Alarm) {
        let mut others: Vec<_> = self.nodes.iter_mut().collect();
        if let Some(at) = others.iter().position(|n| n.id == bridge) {
            let node = others.swap_remove(at);
            node.on_alarm(life, what, &mut others, &mut self.env);
        }
    }

    /// Drains everything, now that nothing disturbs it.
    fn finish_drains(&mut self) -> Result<(), Broken> {
        // Rounds of different bridges are not in step: what one has to wait for another does in its next pass.
        let passes = match self.nodes.len() {
            1 => 4,
            bridges => 8 * bridges,
        };
        let is_released = |node: &Node| node.report.as_ref().is_some_and(|r| r.released);
        for _ in 0..passes {
            let terms = PassTerms {
                keep: false,
                batches: 2,
                objects: BATCH_OBJECTS,
                patient: true,
                secret: NameSecret([0, 0]),
            };
            for bridge in self.ids() {
                let terms = terms.clone();
                self.at(bridge, |n, e| n.begin_drain(terms, e));
            }
            self.settle()?;
            if self.nodes.iter().all(is_released) && self.nodes.iter().all(Node::is_empty) {
                break;
            }
        }
        let report: Vec<_> = self.nodes.iter().map(|n| n.report.clone()).collect();
        let reserved = self.lower.borrow().reserved();
        let is_released = self.nodes.iter().all(is_released);
        // What was drained before its tables were lost stands in the way of itself.
        // A temporary name that was removed may be back after a loss of power, where no later drain looks.
        let is_swept = reserved.is_empty() || self.env.counts.losses > 0;
        // A bridge that has died does not know any more that a program has written in place to what was removed.
        let pfs = self.lower.borrow();
        let is_excused = |left: &Left| left.reason == Reason::Changed && pfs.holds_ours(&left.path);
        let mut unfinished = report
            .iter()
            .filter(|r| !r.as_ref().is_some_and(|r| r.released));
        let is_forgotten = self.env.counts.crashes > 0
            && unfinished.all(|report| {
                let left = report.iter().flat_map(|report| &report.left);
                left.clone().next().is_some() && left.clone().all(is_excused)
            });
        if self.env.drain.intruders || self.forgets_drained {
            return Ok(());
        }
        if is_swept && (is_released || is_forgotten) {
            return Ok(());
        }
        let promise =
            "without faults a drain brings everything to the PFS, and leaves nothing behind";
        let detail = format!("after {passes} drains: {report:?}, {reserved:?}");
        Err(Broken::new(promise, detail, reserved))
    }

    /// What was run, after [`World::run`].
    pub(super) fn summary(&self) -> Summary {
        Summary {
            seeds: 1,
            operations: self.calls.len() as u64,
            messages: self.env.counts.messages,
            crashes: self.env.counts.crashes,
            between: self.env.counts.between,
            failures: self.env.counts.failures,
            losses: self.env.counts.losses,
        }
    }

    /// The trace, shortened to what concerns `paths`.
    pub(super) fn trace(&self, paths: &[TreePath]) -> String {
        self.env.trace.text(paths)
    }
}
