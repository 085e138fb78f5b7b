//! What a drain reads at its own bridge.

use super::PAGE;
use crate::faults::in_place::InPlace;
use forebay_core::bridge::{Bridge, Mutation, version};
use forebay_core::drain::DrainFacts;
use forebay_core::facts::{Attr, Need, Outcome, Stop};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, ObjectId, ObjectName, PathRecord};
use forebay_core::speakers::{Speaker, Speakers};
use forebay_core::table::{KeyValue, Order, Tables};
use std::cell::Cell;

/// Read access for the machine.
pub(super) struct Ground<'a> {
    pub(super) bridge: &'a Bridge,
    pub(super) tables: &'a dyn Tables,
    pub(super) speakers: &'a Speakers,
    pub(super) epoch: u32,
    pub(super) versions: &'a Cell<u32>,
    pub(super) me: BridgeId,
    pub(super) mutation: Option<Mutation>,
    pub(super) in_place: &'a InPlace,
}

impl DrainFacts for Ground<'_> {
    fn is_single(&self) -> bool {
        self.bridge.membership().is_single()
    }

    fn absence(&self, path: &TreePath) -> u64 {
        self.bridge.absence(path)
    }

    fn record(&self, path: &TreePath) -> Outcome<Option<PathRecord>> {
        if !self.bridge.membership().is_home(path) || self.bridge.is_held(path) {
            return Err(Stop::Need(Need::Record(path.clone())));
        }
        self.tables.get(path).map_err(Stop::from)
    }

    fn page(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
    ) -> Outcome<Vec<(TreePath, PathRecord)>> {
        let limit = limit.min(PAGE);
        self.tables.page(after, order, limit).map_err(Stop::from)
    }

    fn speakers_here(&self, before: Option<&TreePath>, limit: usize) -> Outcome<Vec<Speaker>> {
        Ok(self.speakers.within(&TreePath::root(), before, limit))
    }

    fn speakers(
        &self,
        lower: &TreePath,
        before: Option<&TreePath>,
        limit: usize,
    ) -> Outcome<Vec<Speaker>> {
        Ok(self.speakers.within(lower, before, limit.min(PAGE)))
    }

    fn speakers_of(&self, lower: &TreePath) -> Outcome<Vec<Speaker>> {
        Ok(self.speakers.of(lower))
    }

    fn in_transit(&self, after: Option<&TreePath>, limit: usize) -> Outcome<Vec<TreePath>> {
        Ok(self.speakers.in_transit(after, limit))
    }

    fn below(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, PathRecord)>> {
        if self.bridge.is_held_below(dir) {
            return Err(Stop::Need(Need::Below(dir.clone())));
        }
        self.tables.subtree(dir).map_err(Stop::from)
    }

    fn children(&self, dir: &TreePath, limit: usize) -> Outcome<Vec<(Vec<u8>, PathRecord)>> {
        self.tables.children(dir, None, limit).map_err(Stop::from)
    }

    fn names_of(&self, object: ObjectId) -> Outcome<Vec<(ObjectName, TreePath)>> {
        if object.bridge() != self.me {
            return Err(Stop::Need(Need::Names(object)));
        }
        self.bridge
            .names_of(object, self.tables)
            .map_err(Stop::from)
    }

    fn notes(&self, prefix: &[u8]) -> Outcome<Vec<KeyValue>> {
        self.tables.metas(prefix).map_err(Stop::from)
    }

    fn next_version(&self) -> u64 {
        self.versions.set(self.versions.get() + 1);
        version(self.epoch, self.versions.get(), self.me)
    }

    fn is_written_in_place(&self, file: &Attr) -> bool {
        self.in_place.may_have_made(file)
    }

    fn planted(&self) -> Option<Mutation> {
        self.mutation
    }

    fn me(&self) -> BridgeId {
        self.me
    }
}
