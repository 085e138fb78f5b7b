//! One run: bridges, clients, and what becomes of them.

use super::agree;
use super::drain;
use super::env::{Alarm, Env, Event};
use super::history::{Action, Call, Outcome, Thing};
use super::linear::{self, Left};
use super::model::Tree;
use super::node::{NEVER_FAILS, Node};
use super::pfs::Pfs;
use super::sync_points::{Asker, SyncPoints};
use super::trace::Trace;
use super::workload::Workload;
use super::{Broken, Plan, Summary};
use forebay_core::drain::Terms;
use forebay_core::membership::Membership;
use forebay_core::ops::Request;
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, ObjectId, Token};
use forebay_core::storage::Wish;
use forebay_core::table::Tables;
use std::cell::RefCell;
use std::rc::Rc;

/// The faults end after this time, or when all clients have finished before, in microseconds.
const STORM_US: u64 = 20_000_000;
/// Then everything has to become quiet within this time in microseconds.
const PATIENCE_US: u64 = 30_000_000;
/// A sync point is done within this time in microseconds, if nothing fails.
const MOST_SYNC_US: u64 = 10_000;
/// A run with more events than this goes round in circles.
const MAX_EVENTS: u64 = 1_000_000;

/// A program on the node of a bridge, which does one thing after the other.
struct Client {
    bridge: BridgeId,
    connection: u32,
    /// The call that waits for its answer.
    call: Option<usize>,
    /// It was sent before.
    retry: bool,
    left: u32,
    seq: u32,
}

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
    /// Nobody knows any more what drains have done.
    forgets_drained: bool,
    losses: Vec<LossOfPower>,
    /// When operations were answered: time, and moment.
    answered: Vec<(u64, u64)>,
}

/// The machine has lost its power.
struct LossOfPower {
    /// When, in the order of all events.
    moment: u64,
    /// What was answered before is not undone.
    durable_before: u64,
    /// What the bridge has shown when it served again.
    left: Option<Tree>,
}

impl World {
    /// The world of one seed. `membership` is that of the bridges of the plan.
    pub(super) fn new(plan: &Plan, membership: &Membership, trace: bool) -> Self {
        let mut env = Env::new(plan, Trace::new(trace));
        let workload = Workload::of(&mut env.random, plan);
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
                if let Some(power) = env.power {
                    node.disk.may_lose_power(power.storage);
                    node.sync_points = Some(SyncPoints::new(power.storage, power.longest_us));
                }
                node
            })
            .collect();
        let clients = (0..plan.clients)
            .map(|c| Client {
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
            forgets_drained: false,
            losses: Vec::new(),
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
        // What is only in memory has to be nothing that matters.
        for bridge in self.ids() {
            self.env.after(0, Event::Crash { bridge });
        }
        self.until(5_000, |_| false)?;
        self.settle()?;
        let before = self.seen()?;
        if self.env.power.is_some() {
            self.at(self.nodes[0].id, Node::sync_now);
            self.lose_power_after_all()?;
            self.same_tree(&before, "what was synced survives a loss of power")?;
        }
        if self.env.drain.loses_tables {
            let bridge = self.nodes[0].id;
            self.forgets_drained = !self.nodes[0].labels_tell_all();
            self.at(bridge, Node::lose_tables);
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
            Event::At {
                bridge,
                life,
                what: Alarm::Act(number),
            } => self.act(bridge, life, number),
            Event::At { bridge, life, what } => self.at(bridge, |n, e| n.on_alarm(life, what, e)),
            Event::Start { bridge } => {
                self.at(bridge, Node::start);
                self.take_up();
            }
            Event::LosePower { bridge } => {
                if let Some(delay) = self.env.power_us() {
                    self.lose_power(bridge);
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

    /// An act of a drain ends. What it does to an object is done by the bridge that keeps it.
    fn act(&mut self, bridge: BridgeId, life: u32, number: u64) {
        let mut others: Vec<_> = self.nodes.iter_mut().collect();
        if let Some(at) = others.iter().position(|n| n.id == bridge) {
            let node = others.swap_remove(at);
            node.on_act_alarm(life, number, &mut others, &mut self.env);
        }
    }

    fn crash(&mut self, bridge: BridgeId) {
        if self.env.loses_power_instead() {
            return self.lose_power(bridge);
        }
        self.at(bridge, Node::crash);
        let outage = self.env.outage_us();
        self.env.after(outage, Event::Start { bridge });
        for client in 0..self.clients.len() {
            if self.clients[client].bridge == bridge {
                let connection = self.clients[client].connection;
                let delay = self.env.socket_us();
                self.env.after(delay, Event::Hangup { client, connection });
            }
        }
    }

    /// The machine of a bridge that is alone loses its power, with all clients. So does the PFS.
    fn lose_power(&mut self, bridge: BridgeId) {
        let mut durable_before = self.env.durable_before;
        if let (Some(power), Some(points)) = (self.env.power, &self.nodes[0].sync_points)
            && !points.has_failed
            && self.nodes[0].is_alive()
        {
            // One sync point was under way, and the next one has just begun.
            let most_us = power.longest_us + 2 * MOST_SYNC_US;
            let since_us = points.since_us.map_or(0, |since| self.env.now - since);
            if since_us > most_us {
                let text = format!("for {since_us} us nothing has become durable");
                self.env.broken(text);
            }
            let old = self.env.now.saturating_sub(most_us);
            let count = self.answered.partition_point(|(time, _)| *time < old);
            if let Some((_, moment)) = self.answered[..count].last() {
                durable_before = durable_before.max(moment + 1);
            }
        }
        self.at(bridge, Node::lose_power);
        self.lower.borrow_mut().lose_power(&mut self.env.random);
        let moment = self.env.moment();
        match self.losses.last_mut().filter(|last| last.left.is_none()) {
            // During the recovery: nothing was served in between.
            Some(last) => last.moment = moment,
            None => self.losses.push(LossOfPower {
                moment,
                durable_before,
                left: None,
            }),
        }
        let outage = self.env.outage_us();
        self.env.after(outage, Event::Start { bridge });
        for client in 0..self.clients.len() {
            let c = &mut self.clients[client];
            c.connection += 1;
            if c.call.take().is_some() {
                self.env.after(outage + 1, Event::Next { client });
            }
        }
    }

    /// Nothing else happens any more, and the power fails.
    fn lose_power_after_all(&mut self) -> Result<(), Broken> {
        self.env.durable_before = self.env.moment() + 1;
        self.env.next_moment();
        self.lose_power(self.nodes[0].id);
        self.settle()
    }

    /// The bridge serves again after a loss of power: what is there now?
    fn take_up(&mut self) {
        let is_waiting = self.losses.last().is_some_and(|loss| loss.left.is_none());
        if !is_waiting || !self.nodes[0].is_alive() {
            return;
        }
        let pfs = self.lower.borrow();
        let tree = match agree::tree(&self.nodes, &pfs.tree()) {
            Ok(tree) => tree,
            Err((text, _)) => return self.env.broken(text),
        };
        let node = &self.nodes[0];
        let lost = |object| !node.disk.objects.contains_key(object);
        if let Some((path, _)) = node.records().iter().find(|(_, r)| lost(&r.object)) {
            let text = format!("after a loss of power {path} has no object");
            return self.env.broken(text);
        }
        let ours = tree.iter().filter(|(_, t)| !pfs.is_foreign_inode(t.ino));
        let mut files = Vec::new();
        for (path, thing) in ours {
            let holds = self.contents_at(path, &pfs);
            match (thing.kind, holds) {
                (Kind::File, Some(holds)) => files.push((thing.ino, holds)),
                (Kind::File | Kind::Symlink, None) | (Kind::Symlink, Some(0)) => {
                    let text = format!("after a loss of power {path} = {thing} holds {holds:?}");
                    self.env.broken(text);
                }
                _ => {}
            }
        }
        if let Some(wrong) = self.env.took_up(&files) {
            self.env.broken(format!("after a loss of power {wrong}"));
        }
        if let Some(loss) = self.losses.last_mut() {
            loss.left = Some(tree);
        }
    }

    /// Somebody asks for a sync of everything, or of names alone.
    fn sync(&mut self, bridge: BridgeId) {
        let Some(power) = self.env.power.filter(|_| !self.env.is_calm()) else {
            return;
        };
        let whole = self.env.random.chance(300_000);
        if whole {
            // The kernel of the client does that.
            self.lower.borrow_mut().sync_all_contents();
        }
        let asker = Asker {
            moment: self.env.moment(),
            versions: match whole {
                true => self.env.versions_now(),
                false => Vec::new(),
            },
        };
        let wish = if whole { Wish::Whole } else { Wish::Durable };
        self.at(bridge, |n, e| n.ask_for_sync(asker, wish, e));
        let delay = self.env.random.between(500, power.syncs_us);
        self.env.after(delay, Event::Sync { bridge });
    }

    /// A client begins its next operation, or has done all.
    fn next(&mut self, client: usize) {
        let c = &mut self.clients[client];
        if c.left == 0 || c.call.is_some() {
            return;
        }
        c.left -= 1;
        c.seq += 1;
        c.retry = false;
        c.call = Some(self.calls.len());
        let call = Call {
            client,
            bridge: c.bridge,
            action: self.workload.action(&mut self.env.random),
            drains: self.env.drain.drains,
            token: Token {
                client: client as u64 + 1,
                seq: c.seq,
            },
            called: self.env.moment(),
            answered: None,
        };
        let connection = c.connection;
        self.say(client, &call.action, || "calls".to_owned());
        self.calls.push(call);
        let delay = self.env.socket_us();
        self.env.after(delay, Event::Call { client, connection });
        if self.env.breaks() {
            let delay = self.env.random.between(1, 5_000);
            self.env.after(delay, Event::Hangup { client, connection });
        }
    }

    fn say(&mut self, client: usize, action: &Action, word: impl FnOnce() -> String) {
        let paths = action.paths();
        self.env.trace.note(
            self.env.now,
            || format!("client {client}"),
            || (format!("{}: {action}", word()), paths),
        );
    }

    /// A call reaches its bridge, unless its connection is gone.
    fn call(&mut self, client: usize, connection: u32) {
        let c = &self.clients[client];
        let Some(call) = c.call.filter(|_| c.connection == connection) else {
            return;
        };
        let call = &self.calls[call];
        let request = Request {
            op: call.action.op(),
            token: call.token,
            retry: c.retry,
        };
        let Some(node) = self.nodes.iter_mut().find(|n| n.id == c.bridge) else {
            return;
        };
        if node.is_alive() {
            node.on_call(request, client, connection, &mut self.env);
        } else {
            self.env.after(500, Event::Hangup { client, connection });
        }
    }

    fn answer(&mut self, client: usize, connection: u32, outcome: Outcome, fd: Option<u64>) {
        let c = &mut self.clients[client];
        let bridge = c.bridge;
        if c.connection != connection || c.call.is_none() {
            if let Some(fd) = fd {
                self.at(bridge, |n, _| n.disk.close(fd));
            }
            return;
        }
        if let Some(fd) = fd {
            let times = self.env.random.below(6).saturating_sub(1) as u32;
            let delay = self.env.random.between(1, 4_000);
            self.env.after(delay, Event::Write { bridge, fd, times });
        }
        let c = &mut self.clients[client];
        let Some(index) = c.call.take() else {
            return;
        };
        let moment = self.env.moment();
        self.answered.push((self.env.now, moment));
        let call = &mut self.calls[index];
        let action = call.action.clone();
        let text = outcome.to_string();
        call.answered = Some((moment, outcome));
        self.say(client, &action, || format!("is told {text}"));
        let pause = self.workload.pause_us(&mut self.env.random);
        self.env.after(pause, Event::Next { client });
    }

    /// A client notices that its connection is gone, and calls again.
    fn hangup(&mut self, client: usize, connection: u32) {
        let c = &mut self.clients[client];
        if c.connection != connection {
            return;
        }
        c.connection += 1;
        let connection = c.connection;
        let Some(index) = c.call else {
            return;
        };
        c.retry = true;
        let action = self.calls[index].action.clone();
        self.say(client, &action, || {
            "lost its connection and repeats".to_owned()
        });
        let delay = self.env.random.between(2, 2_000);
        self.env.after(delay, Event::Call { client, connection });
    }

    /// A client writes, or closes its descriptor.
    fn write(&mut self, bridge: BridgeId, fd: u64, times: u32) {
        self.written += 1;
        let contents = self.written;
        let Some(node) = self.nodes.iter_mut().find(|n| n.id == bridge) else {
            return;
        };
        let Some(oid) = node.disk.of(fd).filter(|_| times > 0) else {
            return node.disk.close(fd);
        };
        node.disk.write(oid, contents);
        let identity = node.disk.identity(oid);
        node.note(&mut self.env, || {
            format!("a client writes {contents} to {identity:x}")
        });
        self.env.wrote(identity, contents, true);
        self.sync_file(bridge, oid, identity);
        let times = times - 1;
        if times == 0 && self.env.random.chance(500_000) {
            return self.at(bridge, |n, _| n.disk.close(fd));
        }
        let most = *self.env.random.pick(&[300, 2_000, 8_000]);
        let delay = self.env.random.between(1, most);
        self.env.after(delay, Event::Write { bridge, fd, times });
    }

    /// A client syncs what it has written, perhaps.
    fn sync_file(&mut self, bridge: BridgeId, oid: ObjectId, identity: u64) {
        let Some(power) = self.env.power else {
            return;
        };
        // Times that are older than the contents matter to what was drained before.
        let records = self.nodes[0].records();
        let mut records = records.iter().filter(|(_, r)| r.object.oid == oid);
        let is_drained = records.any(|(_, r)| r.drained.is_some());
        let chance = if is_drained { 700_000 } else { power.fsyncs };
        if !self.env.random.chance(chance) {
            return;
        }
        let times = self.env.random.chance(500_000);
        let mut versions = self.env.versions_now();
        versions.retain(|(ino, _)| *ino == identity);
        let moment = self.env.moment();
        self.at(bridge, |n, e| {
            n.disk.sync_file(oid, times);
            n.ask_for_sync(Asker { moment, versions }, Wish::Durable, e);
        });
        if is_drained && !times && self.env.power_strikes(900_000) {
            let delay = self.env.random.between(1, 300);
            self.env.after(delay, Event::Crash { bridge });
        }
    }

    fn intrude(&mut self) {
        if self.env.is_calm() {
            return;
        }
        let mut path = self.workload.any_path(&mut self.env.random);
        if self.env.random.chance(500_000) {
            // In the way of something that is to be drained.
            let records = self.nodes[0].records();
            if !records.is_empty() {
                path = self.env.random.pick(&records).0.clone();
            }
        }
        let mut pfs = self.lower.borrow_mut();
        if self.env.random.chance(300_000) {
            pfs.meddle(&path);
        } else if self.env.random.chance(700_000) {
            let dir = self.env.random.chance(300_000);
            let text = self.workload.foreign_link(&path, &mut self.env.random);
            let kind = match (dir, &text) {
                (true, _) => Kind::Dir,
                (false, Some(_)) => Kind::Symlink,
                (false, None) => Kind::File,
            };
            if let (Some(ino), Some(text)) = (pfs.intrude(&path, kind), text) {
                self.env.texts.insert(ino, text);
            }
        } else {
            pfs.leave(&path);
        }
        let delay = self.env.random.between(200, 5_000);
        self.env.after(delay, Event::Intrude);
    }

    /// Somebody asks for a drain, for its end, or for a release.
    fn drain(&mut self) {
        if self.env.is_calm() {
            return;
        }
        let what = self.env.random.below(10);
        let terms = drain::terms(&mut self.env.random);
        let several = self.nodes.len() > 1;
        for bridge in self.ids() {
            // Not all of them are asked, and not always for the same.
            if several && self.env.random.chance(300_000) {
                continue;
            }
            let terms = terms.clone();
            self.at(bridge, |n, e| match what {
                0 => n.stop_drain(false),
                1 | 2 => n.stop_drain(true),
                3..=5 => n.begin_release(e),
                _ => n.begin_drain(terms, e),
            });
        }
        let delay = self.env.random.between(500, self.env.drain.rest_us);
        self.env.after(delay, Event::Drain);
    }

    /// The tables are lost, if they tell nothing at this moment that labels do not.
    fn lose_tables(&mut self) {
        if self.env.is_calm() {
            return;
        }
        let node = &self.nodes[0];
        let is_idle = self.clients.iter().all(|c| c.call.is_none());
        if is_idle && node.is_settled() && node.labels_tell_all() {
            let bridge = node.id;
            self.at(bridge, Node::lose_tables);
            self.crash(bridge);
        }
        let delay = self.env.random.between(100, 3_000);
        self.env.after(delay, Event::LoseTables);
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
            let terms = Terms {
                keep: false,
                batches: 2,
                patient: true,
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
        if self.env.drain.intruders || self.forgets_drained || is_released && is_swept {
            return Ok(());
        }
        let promise =
            "without faults a drain brings everything to the PFS, and leaves nothing behind";
        let detail = format!("after {passes} drains: {report:?}, {reserved:?}");
        Err(Broken::new(promise, detail, reserved))
    }

    /// What users see.
    fn seen(&self) -> Result<Tree, Broken> {
        let ever = self.env.objects.iter().copied();
        let tree = self.lower.borrow().tree();
        agree::check(&self.nodes, &tree, ever).map_err(|(detail, paths)| {
            let promise =
                "after the last recovery the tables of all bridges and their objects agree";
            Broken::new(promise, detail, paths)
        })
    }

    fn same_tree(&self, before: &Tree, promise: &'static str) -> Result<(), Broken> {
        let (mut before, mut after) = (before.clone(), self.seen()?);
        if self.env.drain.intruders {
            // What others have put on the PFS may show now, also in place of what was drained before.
            let pfs = self.lower.borrow();
            let shows = |path: &TreePath, thing: &Thing| {
                before.get(path) != Some(thing) && pfs.is_foreign_inode(thing.ino)
            };
            let showing: Vec<_> = after
                .iter()
                .filter(|(path, thing)| shows(path, thing))
                .map(|(path, _)| path.clone())
                .collect();
            for path in showing {
                after.remove(&path);
                before.remove(&path);
            }
        }
        if before == after {
            return Ok(());
        }
        let all = before.keys().chain(after.keys());
        let differs: Vec<_> = all.filter(|p| before.get(*p) != after.get(*p)).collect();
        let told = |p: &TreePath| format!("{p}: {:?} -> {:?}\n", before.get(p), after.get(p));
        let detail = differs.iter().map(|p| told(p)).collect();
        let paths = differs.into_iter().cloned().collect();
        Err(Broken::new(promise, detail, paths))
    }

    fn check(&mut self) -> Result<(), Broken> {
        let last = self.seen()?;
        self.check_contents(&last)?;
        if self.env.drain.intruders {
            // Others have changed what clients saw.
            return Ok(());
        }
        let made = |call: &Call| self.env.made.get(&call.token).copied();
        let mut first = &self.workload.lower;
        let mut calls = &self.calls[..];
        for loss in &self.losses {
            let Some(tree) = &loss.left else {
                continue;
            };
            let until = calls.partition_point(|call| call.called <= loss.moment);
            let left = Left {
                tree,
                after: loss.durable_before,
            };
            let (before, later) = calls.split_at(until);
            linear::explain(before, first, left, &self.env.texts, made).map_err(|why| {
                let promise =
                    "a loss of power undoes a suffix of what was not synced, and nothing else";
                Broken::new(promise, why.detail, why.paths)
            })?;
            (first, calls) = (tree, later);
        }
        let left = Left {
            tree: &last,
            after: u64::MAX,
        };
        linear::explain(calls, first, left, &self.env.texts, made).map_err(|why| {
            let promise =
                "every operation takes effect once, at one moment between call and answer";
            Broken::new(promise, why.detail, why.paths)
        })
    }

    /// What the file at `path` holds; `None` if there is none.
    fn contents_at(&self, path: &TreePath, pfs: &Pfs) -> Option<u64> {
        let node = |id| self.nodes.iter().find(|n| n.id == id);
        let record = |path: &TreePath| {
            let home = node(self.nodes[0].membership.home(path))?;
            home.tables.get(path).expect(NEVER_FAILS)
        };
        match record(path) {
            Some(r) if r.kind == Kind::Moved => pfs.contents(&r.origin?),
            Some(r) => {
                let oid = r.object.oid;
                node(oid.bridge())?.disk.inode(oid).map(|i| i.contents)
            }
            None => {
                let mut dir = path.parent();
                loop {
                    match record(&dir) {
                        Some(r) => return pfs.contents(&path.rebase(&dir, &r.origin?)?),
                        None if dir.is_root() => return pfs.contents(path),
                        None => dir = dir.parent(),
                    }
                }
            }
        }
    }

    /// Every file holds what was written to it last.
    fn check_contents(&self, last: &Tree) -> Result<(), Broken> {
        let pfs = self.lower.borrow();
        for (path, thing) in last.iter().filter(|(_, thing)| thing.kind == Kind::File) {
            let wanted = self.env.contents.get(&thing.ino).copied().unwrap_or(0);
            let holds = self.contents_at(path, &pfs);
            if holds != Some(wanted) && !pfs.is_foreign_inode(thing.ino) {
                let promise = "nothing that was written is lost";
                let detail = format!("{path} = {thing} holds {holds:?}, not {wanted}");
                return Err(Broken::new(promise, detail, vec![path.clone()]));
            }
        }
        Ok(())
    }

    /// What was run, after [`World::run`].
    pub(super) fn summary(&self) -> Summary {
        Summary {
            seeds: 1,
            operations: self.calls.len() as u64,
            messages: self.env.counts.messages,
            crashes: self.env.counts.crashes,
            losses: self.env.counts.losses,
        }
    }

    /// The trace, shortened to what concerns `paths`.
    pub(super) fn trace(&self, paths: &[TreePath]) -> String {
        self.env.trace.text(paths)
    }
}
