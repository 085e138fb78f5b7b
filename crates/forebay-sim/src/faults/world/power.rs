//! Losses of power: what they take, what has to be there afterwards, and syncs that limit them.

use super::World;
use crate::faults::Broken;
use crate::faults::agree;
use crate::faults::env::Event;
use crate::faults::history::Thing;
use crate::faults::model::Tree;
use crate::faults::node::Node;
use crate::faults::sync_points::Asker;
use forebay_core::bridge::Bridge;
use forebay_core::markers::may_be_unmade;
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, PathRecord, Token};
use forebay_core::storage::Wish;
use forebay_core::table::Tables;
use std::collections::{BTreeMap, BTreeSet};

/// A sync point is done within this time in microseconds, if nothing fails.
const MOST_SYNC_US: u64 = 10_000;

/// A machine has lost its power, or all of them have.
pub(super) struct LossOfPower {
    /// When, in the order of all events.
    pub(super) moment: u64,
    pub(super) time_us: u64,
    /// What was answered before is not undone.
    pub(super) durable_before: u64,
    /// What a bridge that is alone has shown when it served again.
    pub(super) left: Option<Tree>,
    /// Of several: what requests had made, and which clients earlier losses had ended.
    pub(super) made: BTreeMap<Token, Thing>,
    pub(super) ended: BTreeMap<usize, u64>,
}

impl World {
    /// The machine of a bridge loses its power, with all its clients, or all machines do. So does the PFS, if no machine is left.
    pub(super) fn lose_power(&mut self, bridge: BridgeId) {
        let is_alone = self.nodes.len() == 1;
        let mut gone = vec![bridge];
        if !is_alone && self.env.all_lose_power() {
            gone = self.ids();
        }
        self.machines_lose_power(&gone);
    }

    fn machines_lose_power(&mut self, gone: &[BridgeId]) {
        self.take_up();
        let is_alone = self.nodes.len() == 1;
        let moment = self.env.moment();
        let durable_before: Vec<_> = gone.iter().map(|b| self.durable_before(*b)).collect();
        match self
            .losses
            .last_mut()
            .filter(|last| is_alone && last.left.is_none())
        {
            // During the recovery: nothing was served in between.
            Some(last) => (last.moment, last.time_us) = (moment, self.env.now),
            None => self.losses.push(LossOfPower {
                moment,
                time_us: self.env.now,
                durable_before: durable_before[0],
                left: None,
                made: match is_alone {
                    true => BTreeMap::new(),
                    false => self.env.made.clone(),
                },
                ended: self.ended.clone(),
            }),
        }
        let before: Vec<_> = self.nodes.iter().flat_map(Node::records).collect();
        for bridge in gone {
            if let Some(node) = self.nodes.iter().find(|n| n.id == *bridge) {
                self.reverted.extend(node.disk.identities());
            }
            self.powerless.insert(*bridge);
            self.at(*bridge, Node::lose_power);
        }
        if gone.len() == self.nodes.len() {
            let mut pfs = self.lower.borrow_mut();
            pfs.lose_power(&mut self.env.random);
            self.reverted.extend(pfs.identities());
        }
        if !is_alone {
            // What requests have made is not there any more where no record is left of it.
            let records = self.nodes.iter().flat_map(Node::records);
            let named: BTreeSet<_> = records.map(|(_, r)| r.object).collect();
            let lost = before.iter().filter(|(_, r)| !named.contains(&r.object));
            for (_, record) in lost {
                self.env.made.remove(&record.token);
            }
        }
        for (bridge, durable_before) in gone.iter().zip(durable_before) {
            self.end_clients(*bridge, durable_before);
        }
    }

    /// What a bridge has answered before this moment is not undone by a loss of power now.
    fn durable_before(&mut self, bridge: BridgeId) -> u64 {
        let before = self.env.durable_before(bridge);
        let node = self.nodes.iter().find(|n| n.id == bridge);
        let points = node
            .filter(|n| n.is_alive())
            .and_then(|n| n.sync_points.as_ref());
        let points = points.filter(|points| !points.has_failed);
        let (Some(power), Some(points)) = (self.env.power, points) else {
            return before;
        };
        // One sync point was under way, and the next one has just begun.
        let most_us = power.longest_us + 2 * MOST_SYNC_US;
        let since_us = points.since_us.map_or(0, |since| self.env.now - since);
        if since_us > most_us {
            let text = format!("for {since_us} us nothing has become durable");
            self.env.broken(text);
        }
        let old = self.env.now.saturating_sub(most_us);
        let count = self.answered.partition_point(|(time, ..)| *time < old);
        let mut answered = self.answered[..count].iter().rev();
        let last = answered.find(|(_, _, by)| *by == bridge);
        before.max(last.map_or(0, |(_, moment, _)| moment + 1))
    }

    /// The clients of a bridge end with their machine; others come when it is there again.
    fn end_clients(&mut self, bridge: BridgeId, durable_before: u64) {
        let outage = self.env.outage_us();
        self.env.after(outage, Event::Start { bridge });
        let clients = self.clients.len();
        for client in 0..clients {
            let c = &mut self.clients[client];
            if c.bridge != bridge {
                continue;
            }
            c.connection += 1;
            if c.call.take().is_some() {
                self.env.after(outage + 1, Event::Next { client });
            }
            if self.nodes.len() > 1 {
                self.ended.insert(c.lane, durable_before);
                c.lane = clients + self.ended.len();
            }
        }
    }

    /// Nothing else happens any more, and the power fails: of one machine, or of all.
    pub(super) fn lose_power_after_all(&mut self) -> Result<(), Broken> {
        let moment = self.env.moment() + 1;
        let ids = self.ids();
        for bridge in &ids {
            self.env.is_durable_before(*bridge, moment);
        }
        self.env.next_moment();
        match ids.len() {
            1 => self.machines_lose_power(&ids),
            _ if self.env.random.chance(500_000) => self.machines_lose_power(&ids),
            _ => {
                let one = *self.env.random.pick(&ids);
                self.machines_lose_power(&[one]);
            }
        }
        self.settle()
    }

    /// A bridge serves again after a loss of power: what is there now?
    pub(super) fn take_up(&mut self) {
        let is_alone = self.nodes.len() == 1;
        let is_back = |node: &Node| node.is_alive() || !self.powerless.contains(&node.id);
        let is_over = self.powerless.is_empty() && self.reverted.is_empty();
        if is_over || !self.nodes.iter().all(is_back) {
            return;
        }
        let pfs = self.lower.borrow();
        let tree = match agree::tree(&self.nodes, &pfs.tree()) {
            Ok(tree) => tree,
            Err((text, _)) => return self.env.broken(text),
        };
        if let Some(path) = self.nodes.iter().find_map(|node| self.without_object(node)) {
            let text = format!("after a loss of power {path} has no object");
            return self.env.broken(text);
        }
        if !is_alone {
            drop(pfs);
            return self.take_up_files(&tree);
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
        if let Some(wrong) = self.env.took_up(&files, false, u64::MAX) {
            self.env.broken(format!("after a loss of power {wrong}"));
        }
        self.env.forget_versions();
        self.powerless.clear();
        self.reverted.clear();
        if let Some(loss) = self.losses.last_mut() {
            loss.left = Some(tree);
        }
    }

    /// With several bridges a transaction may be half done. What can't be found yet is looked for later.
    fn take_up_files(&mut self, tree: &Tree) {
        let is_late = self.powerless.is_empty();
        let lost_us = self.losses.last().map_or(0, |loss| loss.time_us);
        self.powerless.clear();
        let keeper = |id| self.nodes.iter().find(|n| n.id == id);
        let records = self.nodes.iter().flat_map(Node::records);
        let mut found = BTreeMap::new();
        for (path, record) in records {
            let oid = record.object.oid;
            match (
                record.kind,
                keeper(oid.bridge()).and_then(|n| n.disk.inode(oid)),
            ) {
                (Kind::File, Some(inode)) => drop(found.insert(inode.identity, inode.contents)),
                (Kind::Symlink, Some(inode)) if inode.contents == 0 => {
                    let text = format!("after a loss of power the link {path} has no text");
                    return self.env.broken(text);
                }
                _ => {}
            }
        }
        let pfs = self.lower.borrow();
        let is_quiet = |node: &Node| node.bridge.as_ref().is_some_and(Bridge::is_quiet);
        let below = tree.iter().filter(|(_, t)| !pfs.is_foreign_inode(t.ino));
        for (path, thing) in below.filter(|_| self.nodes.iter().all(is_quiet)) {
            if let (Kind::File, Some(holds)) = (thing.kind, self.contents_at(path, &pfs)) {
                found.entry(thing.ino).or_insert(holds);
            }
        }
        found.retain(|identity, _| self.reverted.remove(identity));
        let found: Vec<_> = found.into_iter().collect();
        if let Some(wrong) = self.env.took_up(&found, is_late, lost_us) {
            self.env.broken(format!("after a loss of power {wrong}"));
        }
    }

    /// A path of this bridge whose object is not at the bridge that keeps it, and that no transaction is about to change.
    fn without_object(&self, node: &Node) -> Option<TreePath> {
        let bridge = node.bridge.as_ref()?;
        // The marker of a removal is made again, if a mark says so, or will when the transaction is over.
        let is_announced = |keeper: &Node, record: &PathRecord| {
            let object = record.object;
            let is_marked = || {
                let marks = keeper.tables.marks();
                marks.is_ok_and(|marks| marks.relabel.contains(&object))
            };
            let is_open = || {
                keeper
                    .bridge
                    .as_ref()
                    .is_none_or(|bridge| !bridge.is_quiet())
            };
            may_be_unmade(record.kind) && (is_marked() || is_open())
        };
        let is_there = |record: &PathRecord| {
            let object = record.object;
            let keeper = self.nodes.iter().find(|n| n.id == object.oid.bridge());
            keeper.is_none_or(|keeper| {
                keeper.disk.objects.contains_key(&object) || is_announced(keeper, record)
            })
        };
        let records = node.records().into_iter();
        let mut lost = records.filter(|(path, r)| !is_there(r) && !bridge.is_held(path));
        lost.next().map(|(path, _)| path)
    }

    /// Somebody asks for a sync of everything, or of names alone.
    pub(super) fn sync(&mut self, bridge: BridgeId) {
        let Some(power) = self.env.power.filter(|_| !self.env.is_calm()) else {
            return;
        };
        let whole = self.env.random.chance(300_000);
        if whole {
            // The kernel of the client does that.
            self.lower.borrow_mut().sync_all_contents();
        }
        let mut versions = self.env.versions_now();
        // What is with other bridges is not synced here.
        let elsewhere = self.nodes.iter().filter(|node| node.id != bridge);
        let elsewhere: BTreeSet<_> = elsewhere.flat_map(|n| n.disk.identities()).collect();
        versions.retain(|(identity, _)| {
            whole && !elsewhere.contains(identity) && !self.reverted.contains(identity)
        });
        let asker = Asker {
            moment: self.env.moment(),
            versions,
        };
        let wish = if whole { Wish::Whole } else { Wish::Durable };
        self.at(bridge, |n, e| n.ask_for_sync(asker, wish, e));
        let delay = self.env.random.between(500, power.syncs_us);
        let bridge = self.another(bridge);
        self.env.after(delay, Event::Sync { bridge });
    }
}
