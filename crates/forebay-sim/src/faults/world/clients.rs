//! Programs on the nodes of bridges: what they call, what they are told, and what they write.

use super::World;
use crate::faults::env::Event;
use crate::faults::history::{Action, Call, Outcome};
use crate::faults::node::Node;
use crate::faults::sync_points::Asker;
use forebay_core::ops::Request;
use forebay_core::record::{BridgeId, ObjectId, Token};
use forebay_core::storage::Wish;

/// A program on the node of a bridge, which does one thing after the other.
pub(super) struct Client {
    pub(super) bridge: BridgeId,
    /// The number of its process: it is another one after a loss of power of one of several machines.
    pub(super) lane: usize,
    pub(super) connection: u32,
    /// The call that waits for its answer.
    pub(super) call: Option<usize>,
    /// It was sent before.
    pub(super) retry: bool,
    pub(super) left: u32,
    pub(super) seq: u32,
}

impl World {
    /// A client begins its next operation, or has done all.
    pub(super) fn next(&mut self, client: usize) {
        let c = &mut self.clients[client];
        if c.left == 0 || c.call.is_some() {
            return;
        }
        c.left -= 1;
        c.seq += 1;
        c.retry = false;
        c.call = Some(self.calls.len());
        let call = Call {
            client: c.lane,
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
    pub(super) fn call(&mut self, client: usize, connection: u32) {
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

    pub(super) fn answer(
        &mut self,
        client: usize,
        connection: u32,
        outcome: Outcome,
        fd: Option<u64>,
    ) {
        let c = &mut self.clients[client];
        let bridge = c.bridge;
        if c.connection != connection || c.call.is_none() {
            if let Some(fd) = fd {
                self.at(bridge, |n, _| n.close(fd));
            }
            return;
        }
        if let Some(fd) = fd {
            let times = match self.writes {
                Some(times) => times,
                None => self.env.random.below(6).saturating_sub(1) as u32,
            };
            let delay = self.env.random.between(1, 4_000);
            self.env.after(delay, Event::Write { bridge, fd, times });
        }
        let c = &mut self.clients[client];
        let Some(index) = c.call.take() else {
            return;
        };
        let moment = self.env.moment();
        self.answered.push((self.env.now, moment, bridge));
        let call = &mut self.calls[index];
        let action = call.action.clone();
        let text = outcome.to_string();
        call.answered = Some((moment, outcome));
        self.say(client, &action, || format!("is told {text}"));
        let pause = self.workload.pause_us(&mut self.env.random);
        self.env.after(pause, Event::Next { client });
    }

    /// A client notices that its connection is gone, and calls again.
    pub(super) fn hangup(&mut self, client: usize, connection: u32) {
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
    pub(super) fn write(&mut self, bridge: BridgeId, fd: u64, times: u32) {
        self.written += 1;
        let contents = self.written;
        let Some(node) = self.nodes.iter_mut().find(|n| n.id == bridge) else {
            return;
        };
        if times == 0 {
            return node.close(fd);
        }
        if let Some(inode) = node.in_place.of(fd) {
            self.write_in_place(inode, contents);
            return self.write_again(bridge, fd, times);
        }
        let Some(oid) = node.disk.of(fd) else {
            return;
        };
        node.disk.write(oid, contents);
        let identity = node.disk.identity(oid);
        node.note(&mut self.env, || {
            format!("a client writes {contents} to {identity:x}")
        });
        // Whoever can write to a copy was told that it is committed; the home of its path may hear that later.
        self.env.copy_counts(oid);
        self.env.wrote(identity, contents, true);
        self.sync_file(bridge, oid, identity);
        self.write_again(bridge, fd, times);
    }

    fn write_in_place(&mut self, inode: u64, contents: u64) {
        let mut pfs = self.lower.borrow_mut();
        let Some(identity) = pfs.write(inode, contents) else {
            return;
        };
        self.env.wrote(identity, contents, true);
        let fsyncs = self.env.power.map_or(0, |power| power.fsyncs);
        if self.env.hardship.chance(fsyncs) {
            pfs.sync_inode(inode);
            self.env.synced_contents(identity, contents);
        }
    }

    /// A client has written through a descriptor, and writes once more later, or closes it.
    fn write_again(&mut self, bridge: BridgeId, fd: u64, times: u32) {
        let times = times - 1;
        if times == 0 && self.env.random.chance(500_000) {
            return self.at(bridge, |n, _| n.close(fd));
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
        let mut records = self.nodes.iter().flat_map(Node::records);
        let mut records = records.by_ref().filter(|(_, r)| r.object.oid == oid);
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
}
