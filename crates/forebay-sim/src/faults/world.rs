//! One run: bridges, clients, and what becomes of them.

use super::agree;
use super::env::{Env, Event};
use super::history::{Action, Call, Outcome, Thing, ino};
use super::linear;
use super::look::is_dir;
use super::node::Node;
use super::trace::Trace;
use super::workload::Workload;
use super::{Broken, Plan, Summary};
use forebay_core::membership::Membership;
use forebay_core::ops::Request;
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Token};

/// The faults end after this time, or when all clients have finished before, in microseconds.
const STORM_US: u64 = 20_000_000;
/// Then everything has to become quiet within this time in microseconds.
const PATIENCE_US: u64 = 30_000_000;
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
}

impl World {
    /// The world of one seed. `membership` is that of the bridges of the plan.
    pub(super) fn new(plan: &Plan, membership: &Membership, trace: bool) -> Self {
        let mut env = Env::new(plan, Trace::new(trace));
        let workload = Workload::of(&mut env.random);
        let members = membership.members();
        let nodes = members
            .iter()
            .map(|id| {
                let lower = workload.lower.clone();
                Node::new(membership.seen_from(*id), lower, plan.mutation)
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
        self.until(STORM_US, |w| {
            w.clients.iter().all(|c| c.left == 0 && c.call.is_none())
        })?;
        self.env.calm_down();
        self.settle()?;
        // What is only in memory has to be nothing that matters.
        for bridge in self.ids() {
            self.env.after(0, Event::Crash { bridge });
        }
        self.until(5_000, |_| false)?;
        self.settle()?;
        self.check()
    }

    fn ids(&self) -> Vec<BridgeId> {
        self.nodes.iter().map(|n| n.id).collect()
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
            Event::At { bridge, life, what } => self.at(bridge, |n, e| n.on_alarm(life, what, e)),
            Event::Start { bridge } => self.at(bridge, Node::start),
            Event::Crash { bridge } => self.crash(bridge),
            Event::Next { client } => self.next(client),
            Event::Call { client, connection } => self.call(client, connection),
            Event::Answer {
                client,
                connection,
                outcome,
            } => self.answer(client, connection, outcome),
            Event::Hangup { client, connection } => self.hangup(client, connection),
        }
    }

    fn at(&mut self, id: BridgeId, act: impl FnOnce(&mut Node, &mut Env)) {
        if let Some(node) = self.nodes.iter_mut().find(|n| n.id == id) {
            act(node, &mut self.env);
        }
    }

    fn crash(&mut self, bridge: BridgeId) {
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

    fn answer(&mut self, client: usize, connection: u32, outcome: Outcome) {
        let c = &mut self.clients[client];
        if c.connection != connection {
            return;
        }
        let Some(index) = c.call.take() else {
            return;
        };
        let moment = self.env.moment();
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

    fn check(&mut self) -> Result<(), Broken> {
        let ever = self.env.made.values().copied();
        let last =
            agree::check(&self.nodes, &self.workload.lower, ever).map_err(|(detail, paths)| {
                let promise =
                    "after the last recovery the tables of all bridges and their objects agree";
                Broken::new(promise, detail, paths)
            })?;
        let made = |call: &Call| {
            let object = self.env.made.get(&call.token)?;
            Some(Thing {
                ino: ino(object.oid),
                dir: is_dir(object.oid),
            })
        };
        linear::explain(&self.calls, &self.workload.lower, &last, made).map_err(|why| {
            let promise =
                "every operation takes effect once, at one moment between call and answer";
            Broken::new(promise, why.detail, why.paths)
        })
    }

    /// What was run, after [`World::run`].
    pub(super) fn summary(&self) -> Summary {
        Summary {
            seeds: 1,
            operations: self.calls.len() as u64,
            messages: self.env.counts.messages,
            crashes: self.env.counts.crashes,
        }
    }

    /// The trace, shortened to what concerns `paths`.
    pub(super) fn trace(&self, paths: &[TreePath]) -> String {
        self.env.trace.text(paths)
    }
}
