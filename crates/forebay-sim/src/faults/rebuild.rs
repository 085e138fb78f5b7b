//! The tables of a bridge are lost, and made anew from the labels of its objects.
//!
//! Labels do not tell what was drained or which requests were carried out. So tables are lost between requests, and
//! after a drain only before the last one.

use super::env::Env;
use super::node::Node;
use forebay_core::bridge::version;
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectName, PathRecord, Token};
use forebay_core::recovery;
use forebay_core::repair::{Survivor, rebuild};
use forebay_core::table::Tables;
use forebay_tables::Memory;
use std::collections::{BTreeMap, BTreeSet};

/// Notes of drains begin so.
const NOTES: &[u8] = b"drain/";

impl Node {
    /// Do labels and disk tell all that the tables do, but for what was drained?
    pub(super) fn is_settled(&self) -> bool {
        let Ok(marks) = self.tables.marks() else {
            return false;
        };
        let spare = |object: &ObjectName| self.spares.contains(object);
        self.is_alive()
            && self.is_settled_down()
            && self.attempts.is_empty()
            && self.labels.is_empty()
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

    /// The bridge dies, its tables are lost, and they are made anew before it starts again.
    pub(super) fn lose_tables(&mut self, env: &mut Env) {
        let spares: BTreeSet<_> = self.spares.iter().copied().collect();
        self.crash(env);
        // The register of spare files tells that these were removed.
        for object in spares {
            self.disk.unlink(object);
        }
        let survivors = self.disk.objects.iter().map(|(object, label)| Survivor {
            object: *object,
            label: label.clone(),
            ino: self.disk.identity(object.oid),
        });
        let rebuilt = rebuild(survivors.collect(), self.id, |count| {
            version(self.epoch, count, self.id)
        });
        self.note(env, || "loses its tables".to_owned());
        let told = |(path, record): (TreePath, PathRecord)| (path, as_labels_tell(record));
        let before: BTreeMap<_, _> = self.records().into_iter().map(told).collect();
        let after: BTreeMap<_, _> = rebuilt.records.iter().cloned().map(told).collect();
        if before != after || !rebuilt.problems.is_empty() {
            let differs = before.keys().chain(after.keys());
            let differs = differs.filter(|p| before.get(*p) != after.get(*p));
            let told = differs.map(|p| format!("{p}: {:?} -> {:?}\n", before.get(p), after.get(p)));
            let told: String = told.collect();
            env.broken(format!(
                "what was acknowledged comes back from the labels: {:?}\n{told}",
                rebuilt.problems
            ));
        }
        self.tables = Memory::new();
        self.apply(&rebuilt.into_changes());
        self.apply(&recovery::begun(self.epoch));
        self.tables_are_durable();
    }
}

/// A record without what no label says.
fn as_labels_tell(record: PathRecord) -> PathRecord {
    PathRecord {
        version: 0,
        token: Token::default(),
        replaces: None,
        arriving: None,
        drained: None,
        ..record
    }
}
