//! The facts of one strand where there are several bridges: what its own bridge has at hand, and what was fetched
//! of others for it.

use super::drain_facts::DrainFacts;
use crate::bridge::{Heard, Mutation, RangeRead, ReadSet, SpeakersRead};
use crate::facts::{Attr, Need, Outcome, Stop};
use crate::path::TreePath;
use crate::record::{BridgeId, ObjectId, ObjectName, PathRecord};
use crate::speakers::{Lowers, Speaker};
use crate::table::{KeyValue, Order};

/// [`DrainFacts`] of all bridges. Below it are those of one, which stop where that bridge can't say it alone, or not yet.
pub(super) struct Hearing<'a> {
    pub(super) facts: &'a dyn DrainFacts,
    pub(super) heard: &'a Heard,
}

/// Speakers that are asked for at a time where exactly one path is meant.
const OF_ONE_PATH: usize = 1;

impl Hearing<'_> {
    fn page_of(
        &self,
        of: Lowers,
        before: Option<&TreePath>,
        limit: usize,
    ) -> Outcome<Vec<Speaker>> {
        match self.heard.speakers(&of, before) {
            Some(page) => Ok(page.speakers.clone()),
            None => Err(Stop::Need(Need::Speakers {
                of,
                before: before.cloned(),
                limit,
            })),
        }
    }
}

impl DrainFacts for Hearing<'_> {
    fn knows_dirs(&self) -> bool {
        self.facts.knows_dirs()
    }

    fn is_single(&self) -> bool {
        false
    }

    fn record(&self, path: &TreePath) -> Outcome<Option<PathRecord>> {
        match self.facts.record(path) {
            Err(Stop::Need(need)) => match self.heard.record(path) {
                Some((record, _)) => Ok(record.clone()),
                None => Err(Stop::Need(need)),
            },
            here => here,
        }
    }

    fn absence(&self, path: &TreePath) -> u64 {
        match (self.facts.record(path), self.heard.record(path)) {
            (Err(_), Some((_, absence))) => *absence,
            _ => self.facts.absence(path),
        }
    }

    fn page(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
    ) -> Outcome<Vec<(TreePath, PathRecord)>> {
        self.facts.page(after, order, limit)
    }

    fn speakers_here(&self, before: Option<&TreePath>, limit: usize) -> Outcome<Vec<Speaker>> {
        self.facts.speakers_here(before, limit)
    }

    fn speakers(
        &self,
        lower: &TreePath,
        before: Option<&TreePath>,
        limit: usize,
    ) -> Outcome<Vec<Speaker>> {
        self.page_of(Lowers::Within(lower.clone()), before, limit)
    }

    fn speakers_of(&self, lower: &TreePath) -> Outcome<Vec<Speaker>> {
        self.page_of(Lowers::At(lower.clone()), None, OF_ONE_PATH)
    }

    fn in_transit(&self, after: Option<&TreePath>, limit: usize) -> Outcome<Vec<TreePath>> {
        self.facts.in_transit(after, limit)
    }

    fn below(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, PathRecord)>> {
        let mut all = self.facts.below(dir)?;
        let Some(others) = self.heard.below(dir) else {
            return Err(Stop::Need(Need::Below(dir.clone())));
        };
        all.extend(others.entries.iter().cloned());
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    fn children(&self, dir: &TreePath, limit: usize) -> Outcome<Vec<(Vec<u8>, PathRecord)>> {
        let below = self.below(dir)?.into_iter();
        let children = below.filter(|(path, _)| path.parent() == *dir);
        let named = children.map(|(path, record)| (path.name().to_vec(), record));
        Ok(named.take(limit).collect())
    }

    fn names_of(&self, object: ObjectId) -> Outcome<Vec<(ObjectName, TreePath)>> {
        match self.facts.names_of(object) {
            Err(Stop::Need(need)) => match self.heard.names(object) {
                Some(names) => Ok(names.clone()),
                None => Err(Stop::Need(need)),
            },
            here => here,
        }
    }

    fn notes(&self, prefix: &[u8]) -> Outcome<Vec<KeyValue>> {
        self.facts.notes(prefix)
    }

    fn next_version(&self) -> u64 {
        self.facts.next_version()
    }

    fn me(&self) -> BridgeId {
        self.facts.me()
    }

    fn is_written_in_place(&self, file: &Attr) -> bool {
        self.facts.is_written_in_place(file)
    }

    fn rely_on_range(&self, dir: &TreePath, reads: &mut ReadSet) -> Outcome<()> {
        // What this bridge holds there itself it checks when it proposes the commit.
        self.facts.below(dir)?;
        let Some(others) = self.heard.below(dir) else {
            return Err(Stop::Need(Need::Below(dir.clone())));
        };
        let range = RangeRead {
            dir: dir.clone(),
            seen: others.seen.clone(),
        };
        if !reads.ranges.contains(&range) {
            reads.ranges.push(range);
        }
        Ok(())
    }

    fn rely_on_speakers(&self, of: &Lowers, before: Option<&TreePath>, reads: &mut ReadSet) {
        let Some(page) = self.heard.speakers(of, before) else {
            unreachable!("who relies on speakers has seen them");
        };
        let read = SpeakersRead {
            of: of.clone(),
            seen: page.seen.clone(),
        };
        if !reads.speakers.contains(&read) {
            reads.speakers.push(read);
        }
    }

    fn planted(&self) -> Option<Mutation> {
        self.facts.planted()
    }
}
