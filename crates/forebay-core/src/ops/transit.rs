//! Records in transit: who waits for the PFS, and who goes on.
//!
//! The drain changes the PFS without a lock. Before it does, it marks the records ([`Transit`]), and
//! afterwards it takes the marks away together with what has become of the work. In between:
//!
//! - **A look at something renamed waits** (a [`Kind::Moved`] record): it may be at one place on the PFS or at
//!   the other, and so may all that lies in it.
//! - **A change of a record in transit waits**, and so does a change of an entry of a directory that is being
//!   released. The work has been decided on what the records say.
//! - **A grant of an object that is being released waits**, and so does a further name of it: whoever got it now could write into
//!   a file that is about to go, and the new name would keep the old copy, while the others show the file of the PFS.
//! - **Everything else goes on**: what the record says is still so.
//!
//! [`Watch`] stands between a decision and its facts, and notes what of it is in transit.

use super::{Answer, Decision, GrantTarget};
use crate::bridge::Mutation;
use crate::facts::{Attr, Facts, Fresh, LowerPage, Need, NewObject, Outcome, Stop};
use crate::path::TreePath;
use crate::record::{BridgeId, Kind, ObjectName, PathRecord, Token, Transit};
use crate::table::Change;
use crate::walk::RESERVED_PREFIX;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

fn wait<T>(path: &TreePath) -> Outcome<T> {
    Err(Stop::Need(Need::Settled(path.clone())))
}

/// The facts of one decision, with a note of all records in transit among them.
pub(super) struct Watch<'a> {
    facts: &'a dyn Facts,
    met: RefCell<BTreeMap<TreePath, (ObjectName, Transit)>>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(facts: &'a dyn Facts) -> Self {
        Watch {
            facts,
            met: RefCell::default(),
        }
    }

    fn note(&self, path: &TreePath, record: &PathRecord) {
        if let Some(transit) = record.transit {
            let met = (record.object, transit);
            self.met.borrow_mut().insert(path.clone(), met);
        }
    }

    /// Does a look at this record have to wait?
    fn look(&self, path: &TreePath, record: &PathRecord) -> Outcome<()> {
        self.note(path, record);
        match record.kind {
            Kind::Moved if record.transit.is_some() => wait(path),
            _ => Ok(()),
        }
    }

    /// Does a decision have to wait with what it changes or grants?
    pub(super) fn check(&self, decision: &Decision) -> Outcome<()> {
        let met = self.met.borrow();
        if met.is_empty() || Mutation::MarksAreNotWaitedFor.is_in(|| self.facts.planted()) {
            return Ok(());
        }
        let is_going = |what: ObjectName| {
            let goes = |(object, transit): &(ObjectName, Transit)| {
                object.oid == what.oid && *transit == Transit::Releasing
            };
            met.iter().find_map(|(path, met)| goes(met).then_some(path))
        };
        for change in &decision.batch {
            let (Change::Put { path, .. } | Change::Delete { path, .. }) = change else {
                continue;
            };
            if met.contains_key(path) {
                return wait(path);
            }
            let dir = path.parent();
            if let Some((_, Transit::Releasing)) = met.get(&dir) {
                return wait(&dir);
            }
            if let Change::Put { record, .. } = change
                && let Some(path) = is_going(record.object)
            {
                return wait(path);
            }
        }
        if let Answer::Grant {
            target: GrantTarget::Object(granted),
            ..
        } = &decision.answer
            && let Some(path) = is_going(*granted)
        {
            return wait(path);
        }
        Ok(())
    }
}

impl Facts for Watch<'_> {
    fn record(&self, path: &TreePath) -> Outcome<Option<PathRecord>> {
        let record = self.facts.record(path)?;
        if let Some(record) = &record {
            self.look(path, record)?;
        }
        Ok(record)
    }

    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Outcome<Vec<(Vec<u8>, PathRecord)>> {
        let children = self.facts.children(dir, after, limit)?;
        for (name, record) in children.iter().filter(|(_, r)| r.transit.is_some()) {
            self.look(&dir.join(name), record)?;
        }
        Ok(children)
    }

    fn subtree(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, PathRecord)>> {
        let below = self.facts.subtree(dir)?;
        // Does not wait here; `check` waits if the batch changes one of these records.
        for (path, record) in &below {
            self.note(path, record);
        }
        Ok(below)
    }

    fn path_of(&self, object: ObjectName) -> Outcome<Option<TreePath>> {
        self.facts.path_of(object)
    }

    fn moved(&self, origin: &TreePath) -> Outcome<Option<TreePath>> {
        let moved = self.facts.moved(origin)?;
        if moved.is_none()
            && origin.depth() == 1
            && let Some(oid) = crate::drain::waits_under(origin.name())
            && let Some(path) = self.facts.path_of(ObjectName { oid, link: 0 })?
        {
            // The drain has renamed it on the PFS and not yet updated the record. Reading the record makes the
            // request wait.
            self.record(&path)?;
        }
        Ok(moved)
    }

    fn attr(&self, object: ObjectName) -> Outcome<Attr> {
        self.facts.attr(object)
    }

    fn link_text(&self, object: ObjectName) -> Outcome<Vec<u8>> {
        self.facts.link_text(object)
    }

    fn has_strays(&self, dir: ObjectName) -> Outcome<bool> {
        self.facts.has_strays(dir)
    }

    fn lower(&self, path: &TreePath) -> Outcome<Option<Attr>> {
        self.facts.lower(path)
    }

    fn renamed(&self, record: &PathRecord) -> Outcome<Option<Attr>> {
        self.facts.renamed(record)
    }

    fn lower_link(&self, path: &TreePath) -> Outcome<Vec<u8>> {
        self.facts.lower_link(path)
    }

    fn lower_list(&self, path: &TreePath, after: Option<&[u8]>) -> Outcome<Arc<LowerPage>> {
        self.facts.lower_list(path, after)
    }

    fn followed(&self, path: &TreePath) {
        self.facts.followed(path);
    }

    fn levels_above(&self) -> usize {
        self.facts.levels_above()
    }

    fn is_held_in_place(&self, path: &TreePath) -> bool {
        self.facts.is_held_in_place(path)
    }

    fn above_root(&self) -> Outcome<Vec<Attr>> {
        self.facts.above_root()
    }

    fn has_open(&self, what: &Attr) -> bool {
        self.facts.has_open(what)
    }

    fn fresh(&self, spec: &NewObject) -> Outcome<Fresh> {
        self.facts.fresh(spec)
    }

    fn new_marker(&self) -> ObjectName {
        self.facts.new_marker()
    }

    fn next_version(&self) -> u64 {
        self.facts.next_version()
    }

    fn me(&self) -> BridgeId {
        self.facts.me()
    }

    fn was_carried_out(&self, token: Token) -> Outcome<bool> {
        self.facts.was_carried_out(token)
    }

    fn planted(&self) -> Option<Mutation> {
        self.facts.planted()
    }
}

/// Is this a directory of the PFS that only the drain has a use for?
pub(crate) fn is_reserved(lower: &TreePath) -> bool {
    let first = lower.components().next();
    first.is_some_and(|name| name.starts_with(RESERVED_PREFIX))
}
