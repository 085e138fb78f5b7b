//! What comes over the bridges from outside: deaths, others on the PFS, drains that somebody asks for, lost tables.

use super::World;
use crate::faults::drain;
use crate::faults::env::Event;
use crate::faults::node::Node;
use forebay_core::record::{BridgeId, Kind};

impl World {
    pub(super) fn crash(&mut self, bridge: BridgeId) {
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

    pub(super) fn intrude(&mut self) {
        if self.env.is_calm() {
            return;
        }
        let mut path = self.workload.any_path(&mut self.env.random);
        if self.env.random.chance(500_000) {
            // In the way of something that is to be drained.
            let records: Vec<_> = self.nodes.iter().flat_map(Node::records).collect();
            if !records.is_empty() {
                path = self.env.random.pick(&records).0.clone();
            }
        }
        let mut pfs = self.lower.borrow_mut();
        if self.env.random.chance(300_000) {
            pfs.meddle(&path);
        } else if self.env.random.chance(700_000) {
            // Between the look at the PFS and the commit of another bridge a directory can appear, and another commit puts
            // something into it. The first one then makes a directory over both.
            let dir = self.env.random.chance(300_000) && self.nodes.len() == 1;
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
    pub(super) fn drain(&mut self) {
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

    /// The tables of a bridge are lost, if they tell nothing at this moment that labels do not: nor may any bridge have an open
    /// transaction.
    pub(super) fn lose_tables(&mut self) {
        if self.env.is_calm() {
            return;
        }
        let bridge = self.another(self.nodes[0].id);
        let is_idle = self.clients.iter().all(|c| c.call.is_none());
        let mut nodes = self.nodes.iter();
        let tell_all = |n: &Node| n.id != bridge || n.labels_tell_all();
        if is_idle && nodes.all(|n| n.is_settled() && tell_all(n)) {
            self.lose_tables_of(bridge);
            self.crash(bridge);
        }
        let delay = self.env.random.between(100, 3_000);
        self.env.after(delay, Event::LoseTables);
    }

    pub(super) fn lose_tables_of(&mut self, bridge: BridgeId) {
        // Whoever reads the labels of all has everything synced before.
        let others: Vec<_> = self.ids().into_iter().filter(|id| *id != bridge).collect();
        for id in others {
            self.at(id, Node::sync_now);
        }
        let others = self.nodes.iter().filter(|n| n.id != bridge);
        let told = others.map(Node::told).collect();
        self.at(bridge, |n, e| n.lose_tables(told, e));
    }
}
