//! What has to be true in the end.

use super::World;
use super::power::LossOfPower;
use crate::faults::Broken;
use crate::faults::agree;
use crate::faults::history::{Call, Thing};
use crate::faults::linear::{self, Left};
use crate::faults::model::Tree;
use crate::faults::node::NEVER_FAILS;
use crate::faults::pfs::Pfs;
use forebay_core::path::TreePath;
use forebay_core::record::Kind;
use forebay_core::table::Tables;

const ONCE: &str = "every operation takes effect once, at one moment between call and answer";

impl World {
    /// What users see.
    pub(super) fn seen(&self) -> Result<Tree, Broken> {
        self.agreed("after the last recovery the tables of all bridges and their objects agree")
    }

    /// What failed, and what is over, has gone without a restart.
    pub(super) fn leaves_nothing(&self) -> Result<(), Broken> {
        let promise = "a request that failed, and all that is over, leaves no object and no mark";
        self.agreed(promise).map(drop)
    }

    fn agreed(&self, promise: &'static str) -> Result<Tree, Broken> {
        let ever = self.env.objects.iter().copied();
        let tree = self.lower.borrow().tree();
        agree::check(&self.nodes, &tree, ever)
            .map_err(|(detail, paths)| Broken::new(promise, detail, paths))
    }

    pub(super) fn same_tree(&self, before: &Tree, promise: &'static str) -> Result<(), Broken> {
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

    pub(super) fn check(&mut self) -> Result<(), Broken> {
        let last = self.seen()?;
        self.take_up();
        self.check_contents(&last)?;
        if self.env.drain.intruders {
            // Others have changed what clients saw.
            return Ok(());
        }
        let made = |call: &Call| self.env.made.get(&call.token).copied();
        let mut first = &self.workload.lower;
        let mut calls = &self.calls[..];
        for loss in self.losses.iter().filter(|_| self.nodes.len() == 1) {
            let Some(tree) = &loss.left else {
                continue;
            };
            let until = calls.partition_point(|call| call.called <= loss.moment);
            let left = Left {
                tree,
                after: loss.durable_before,
            };
            let (before, later) = calls.split_at(until);
            let ended = &self.ended;
            linear::explain(before, first, Some(left), ended, &self.env.texts, made).map_err(
                |why| {
                    let promise =
                        "a loss of power undoes a suffix of what was not synced, and nothing else";
                    Broken::new(promise, why.detail, why.paths)
                },
            )?;
            (first, calls) = (tree, later);
        }
        for loss in self.losses.iter().filter(|_| self.nodes.len() > 1) {
            self.check_until(loss)?;
        }
        let left = Left {
            tree: &last,
            after: u64::MAX,
        };
        let ended = &self.ended;
        linear::explain(calls, first, Some(left), ended, &self.env.texts, made).map_err(|why| {
            let promise = match ended.is_empty() {
                true => ONCE,
                false => "a loss of power undoes a suffix of what each process did, and nobody else has seen it",
            };
            Broken::new(promise, why.detail, why.paths)
        })
    }

    /// What was answered before a loss of power was right then, also what the loss has undone.
    fn check_until(&self, loss: &LossOfPower) -> Result<(), Broken> {
        let until = self.calls.iter().filter(|c| c.called <= loss.moment);
        let calls: Vec<_> = until
            .map(|call| Call {
                answered: call.answered.clone().filter(|(at, _)| *at <= loss.moment),
                ..call.clone()
            })
            .collect();
        // What was decided then, and written later, is known by now; what was answered then, and undone before it was
        // written, from what was prepared.
        let made = |call: &Call| {
            let prepared = || {
                let prepared = self.env.prepared.get(&call.token);
                prepared.filter(|_| call.answered.is_some())
            };
            let made = loss.made.get(&call.token);
            let made = made.or_else(|| self.env.made.get(&call.token));
            made.or_else(prepared).copied()
        };
        let first = &self.workload.lower;
        linear::explain(&calls, first, None, &loss.ended, &self.env.texts, made)
            .map_err(|why| Broken::new(ONCE, why.detail, why.paths))
    }

    /// What the file at `path` holds; `None` if there is none.
    pub(super) fn contents_at(&self, path: &TreePath, pfs: &Pfs) -> Option<u64> {
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
    pub(super) fn check_contents(&self, last: &Tree) -> Result<(), Broken> {
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
}
