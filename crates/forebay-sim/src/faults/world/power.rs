//! Losses of power: what they take, what has to be there afterwards, and syncs that limit them.

use super::World;
use crate::faults::Broken;
use crate::faults::agree;
use crate::faults::env::Event;
use crate::faults::model::Tree;
use crate::faults::node::Node;
use crate::faults::sync_points::Asker;
use forebay_core::record::{BridgeId, Kind};
use forebay_core::storage::Wish;

/// A sync point is done within this time in microseconds, if nothing fails.
const MOST_SYNC_US: u64 = 10_000;

/// The machine has lost its power.
pub(super) struct LossOfPower {
    /// When, in the order of all events.
    pub(super) moment: u64,
    /// What was answered before is not undone.
    pub(super) durable_before: u64,
    /// What the bridge has shown when it served again.
    pub(super) left: Option<Tree>,
}

impl World {
    /// The machine of a bridge that is alone loses its power, with all clients. So does the PFS.
    pub(super) fn lose_power(&mut self, bridge: BridgeId) {
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
    pub(super) fn lose_power_after_all(&mut self) -> Result<(), Broken> {
        self.env.durable_before = self.env.moment() + 1;
        self.env.next_moment();
        self.lose_power(self.nodes[0].id);
        self.settle()
    }

    /// The bridge serves again after a loss of power: what is there now?
    pub(super) fn take_up(&mut self) {
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
    pub(super) fn sync(&mut self, bridge: BridgeId) {
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
}
