//! The tables of a bridge are lost, and made anew from the labels of its objects.
//!
//! Labels do not tell what was drained or which requests were carried out. So tables are lost between requests, and
//! after a drain only before the last one.

use super::env::Env;
use super::node::{NEVER_FAILS, Node};
use forebay_core::bridge::{self, Bridge, rebuilt_of_one, version};
use forebay_core::label::renamed;
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, ObjectName, PathRecord, Token};
use forebay_core::recovery;
use forebay_core::repair::{Survivor, rebuild};
use forebay_core::table::Tables;
use forebay_tables::Memory;
use std::collections::{BTreeMap, BTreeSet};

/// Notes of drains begin so.
const NOTES: &[u8] = b"drain/";

/// What one bridge has to say when the tables of another one are made anew.
#[derive(Default)]
pub(super) struct Told {
    survivors: Vec<Survivor>,
    settled: Option<(BridgeId, u64)>,
}

impl Node {
    /// Do labels and disk tell all that the tables do, but for what was drained?
    pub(super) fn is_settled(&self) -> bool {
        let Ok(marks) = self.tables.marks() else {
            return false;
        };
        let spare = |object: &ObjectName| self.register.contains_key(object);
        self.bridge.as_ref().is_some_and(Bridge::is_quiet)
            && self.is_settled_down()
            && self.leaving.is_empty()
            && self.attempts.is_empty()
            && self.labels.is_empty()
            && self.suspects.is_empty()
            && self.disk.is_idle()
            && marks.relabel.is_empty()
            && marks.doomed.iter().all(spare)
            && self.speakers.in_transit(None, 1).is_empty()
    }

    /// Does nobody but the labels have to know what drains have put on the PFS?
    pub(super) fn labels_tell_all(&self) -> bool {
        self.tables.metas(NOTES).is_ok_and(|notes| notes.is_empty())
            && self.records().iter().all(|(_, r)| r.drained.is_none())
    }

    /// What the labels of this bridge tell, and below which number its transactions are over.
    pub(super) fn told(&self) -> Told {
        let doomed = self.tables.marks().expect(NEVER_FAILS).doomed;
        let labelled = self
            .disk
            .objects
            .iter()
            .filter(|(o, _)| !doomed.contains(o));
        let survivors = labelled.map(|(object, label)| Survivor {
            object: *object,
            label: label.clone(),
            ino: self.disk.identity(object.oid),
        });
        Told {
            survivors: survivors.collect(),
            settled: self.bridge.as_ref().map(|b| (self.id, b.settled())),
        }
    }

    /// The bridge dies, its tables are lost, and they are made anew before it starts again. `others`: what the labels of the
    /// other bridges tell.
    pub(super) fn lose_tables(&mut self, others: Vec<Told>, env: &mut Env) {
        let spares: Vec<_> = self.register.keys().copied().collect();
        let elsewhere: BTreeSet<_> = self.named_elsewhere().into_iter().collect();
        let mut survivors = self.told().survivors;
        self.crash(env);
        // The register of spare files tells that these were removed.
        for object in spares {
            self.disk.unlink(object);
        }
        survivors.retain(|s| self.disk.objects.contains_key(&s.object));
        let mut settled = Vec::new();
        for told in others {
            survivors.extend(told.survivors);
            settled.extend(told.settled);
        }
        if !self.membership.is_single() {
            self.epoch += 1;
        }
        let mut rebuilt = rebuild(survivors, false, self.id, |count| {
            version(self.epoch, count, self.id)
        });
        self.note(env, || "loses its tables".to_owned());
        env.counts.rebuilds += 1;
        let problems = std::mem::take(&mut rebuilt.problems);
        let before: BTreeMap<_, _> = self.records().into_iter().map(as_labels_tell).collect();
        self.tables = Memory::new();
        let changes = match self.membership.is_single() {
            true => rebuilt.into_changes(),
            false => rebuilt_of_one(
                rebuilt,
                &self.membership,
                self.epoch,
                settled,
                self.mutation,
            ),
        };
        self.apply(&changes);
        self.apply(&recovery::begun(self.epoch));
        self.tables_are_durable();
        let after: BTreeMap<_, _> = self.records().into_iter().map(as_labels_tell).collect();
        let anew = changes.iter().filter_map(bridge::named_elsewhere);
        let anew: BTreeSet<_> = anew.collect();
        if before != after || !problems.is_empty() || elsewhere != anew {
            let differs = before.keys().chain(after.keys());
            let differs = differs.filter(|p| before.get(*p) != after.get(*p));
            let told = differs.map(|p| format!("{p}: {:?} -> {:?}\n", before.get(p), after.get(p)));
            let told: String = told.collect();
            env.broken(format!(
                "what was acknowledged comes back from the labels: {problems:?}\n{told}\
                 of its objects at other homes {elsewhere:?} -> {anew:?}"
            ));
        }
    }
}

/// A record without what no label says.
fn as_labels_tell((path, record): (TreePath, PathRecord)) -> (TreePath, PathRecord) {
    let record = PathRecord {
        version: 0,
        token: Token::default(),
        copy_of: 0,
        replaces: None,
        arriving: renamed(&record).map(Box::new),
        dirs: None,
        drained: None,
        ..record
    };
    (path, record)
}
