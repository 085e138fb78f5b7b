//! The commit that a choice is.

use super::below::Below;
use super::{Choose, Conflict, Side};
use crate::bridge::ReadSet;
use crate::drain::act::{BelowRead, DrainCommit};
use crate::drain::commits::{Update, commit_of};
use crate::drain::drain_facts::DrainFacts;
use crate::drain::release::opened;
use crate::drain::rules::{OURS, read, speakers_of, upwards};
use crate::facts::Outcome;
use crate::identity::Identity;
use crate::ops::FollowUp;
use crate::path::TreePath;
use crate::record::{Dirs, Kind, PathRecord};
use crate::speakers::Word;
use crate::table::Change;

impl Choose {
    /// The record that keeps from view what lies at this place of the PFS, if somebody has renamed it from there.
    pub(super) fn hider(
        &self,
        facts: &dyn DrainFacts,
        origin: &TreePath,
        reads: &mut ReadSet,
    ) -> Outcome<Option<(TreePath, PathRecord)>> {
        for lower in upwards(origin) {
            let speakers = speakers_of(facts, &lower, reads)?;
            if let Some(hider) = speakers.into_iter().find(|s| s.word == Word::Hides)
                && hider.path != self.choice.path
            {
                let record = read(facts, &hider.path, reads)?;
                return Ok(record.map(|record| (hider.path, record)));
            }
        }
        Ok(None)
    }

    /// The change to the record that hides the renamed thing at its old path; `None` if there is none. `is_ours`: the rename
    /// goes ahead.
    fn update_of_hider(
        conflict: &Conflict,
        hider: Option<(TreePath, PathRecord)>,
        is_ours: bool,
    ) -> Option<Update> {
        let (Some(origin), Some((path, before))) = (&conflict.origin, hider) else {
            return None;
        };
        let mut record = before.clone();
        let hides_it = before.hides.as_ref() == Some(origin);
        let now = conflict.at_origin.as_ref().map(Identity::of);
        let after = match (conflict.is_origin_replaced(), is_ours) {
            // It shows again where it is.
            (_, false) if hides_it && before.kind == Kind::Whiteout => None,
            (true, true) if hides_it => {
                record.replaces = now.map(Identity::leaving);
                Some(record)
            }
            // What they bring back is theirs.
            (true, false) if hides_it => {
                record.leaves(origin);
                Some(record)
            }
            // Its directory was removed. Others may have changed it since it was renamed.
            (false, false) => {
                let then = conflict.record.arriving.as_deref();
                record.keeps(origin, then.map(|then| then.staying()).or(now)?);
                Some(record)
            }
            _ => return None,
        };
        Some(Update {
            path,
            before,
            after,
        })
    }

    /// Programs may make something at any time below renamed things that do not get their new names, and below a directory that is
    /// given up. Gives what the commit relies on there; `None`: it has changed.
    fn relies_below(
        &self,
        conflict: &Conflict,
        facts: &dyn DrainFacts,
        reads: &mut ReadSet,
    ) -> Outcome<Option<Vec<BelowRead>>> {
        let holds_things = matches!(conflict.record.kind, Kind::Moved | Kind::Dir);
        if !holds_things || conflict.is_of_both || self.choice.side == Side::Ours {
            return Ok(Some(Vec::new()));
        }
        let ring = conflict.ring.iter().map(|one| (&one.path, &one.below));
        let mut relied = Vec::new();
        for (path, below) in ring.chain([(&self.choice.path, &conflict.below)]) {
            let now = Below::of(facts, path)?;
            if now.seen != below.seen {
                return Ok(None);
            }
            facts.rely_on_range(path, reads)?;
            if facts.is_single() {
                relied.push(BelowRead {
                    dir: path.clone(),
                    seen: now.seen,
                });
            }
        }
        Ok(Some(relied))
    }

    /// `None`: a record that has to change as well is in transit, or there is something new below it.
    pub(super) fn decide(
        &self,
        conflict: Conflict,
        now: Option<Identity>,
        facts: &dyn DrainFacts,
    ) -> Outcome<Option<DrainCommit>> {
        let mut reads = conflict.reads.clone();
        let Some(below) = self.relies_below(&conflict, facts, &mut reads)? else {
            return Ok(None);
        };
        let path = self.choice.path.clone();
        if let Some((second, _)) = conflict.beside {
            reads.saw(&path, Some(&conflict.record));
            let object = conflict.record.object;
            let put = PathRecord {
                version: facts.next_version(),
                hides: None,
                replaces: None,
                drained: None,
                dirs: self.dirs_for(&second, &conflict.record, facts),
                ..conflict.record
            };
            return Ok(Some(DrainCommit {
                reads,
                below,
                batch: vec![
                    Change::Delete { path, object },
                    Change::Put {
                        path: second.clone(),
                        record: put,
                    },
                    Change::Relabel(object),
                ],
                follow_ups: vec![FollowUp::Relabel(object, second)],
                forbids_late_opens: true,
            }));
        }
        let is_ours = self.choice.side == Side::Ours;
        let hider = match &conflict.origin {
            // The one in the ring goes as well.
            Some(origin) if conflict.ring.is_empty() => self.hider(facts, origin, &mut reads)?,
            _ => None,
        };
        if hider.as_ref().is_some_and(|(_, r)| r.transit.is_some()) {
            return Ok(None);
        }
        let other = Self::update_of_hider(&conflict, hider, is_ours);
        let is_replaced = conflict.is_origin_replaced();
        let exchanged = conflict.ring.into_iter().map(|one| Update {
            path: one.path,
            before: one.record,
            after: None,
        });
        let record = conflict.record;
        // Something new that goes into another directory than its own: no list has named what is in its place there, so this choice does
        // not replace that. The next drain lists it.
        let is_told = conflict.is_of_both || !conflict.is_in_other_dir;
        let now = now.filter(|_| is_told || record.covers(&path).is_some());
        let goes = now.map_or(Identity::NOTHING, Identity::strictly);
        let after = match (self.choice.side, conflict.at_origin) {
            // Their directory stays, and is dressed with the attributes of ours.
            (Side::Ours, _) if conflict.is_of_both => Some(PathRecord {
                replaces: now,
                chosen: now.map(Box::new),
                drained: Some(OURS),
                dirs: self.dirs_for(&path, &record, facts),
                ..record.clone()
            }),
            (_, _) if conflict.is_of_both => {
                let known = PathRecord {
                    replaces: now,
                    ..record.clone()
                };
                Some(opened(&path, &known))
            }
            (Side::Ours, at_origin) => {
                let mut after = record.clone();
                after.dirs = self.dirs_for(&path, &record, facts);
                if let Some(attr) = at_origin.filter(|_| is_replaced) {
                    after.arriving = Some(Box::new(Identity::of_leaving(&attr)));
                    after.adopts = true;
                    after.dirs = Dirs::within(after.dirs().within);
                }
                // Decided for this name: it tells others of the same file nothing. If nothing is there, then nothing that comes is
                // meant.
                if now.is_some() || record.covers(&path).is_some() {
                    after.replaces = Some(goes);
                    after.chosen = Some(Box::new(goes));
                    after.hides = Some(conflict.theirs);
                    after.drained = None;
                }
                Some(after)
            }
            (Side::Theirs | Side::Both, _) => None,
        };
        let update = Update {
            path,
            before: record,
            after,
        };
        let updates = other.into_iter().chain(exchanged).chain([update]).collect();
        let (mut commit, _) = commit_of(facts, reads, updates, Vec::new());
        commit.forbids_late_opens = true;
        commit.below = below;
        Ok(Some(commit))
    }

    /// [`PathRecord::dirs`] of what is decided for the directory in which it gets this name now.
    fn dirs_for(
        &self,
        name: &TreePath,
        record: &PathRecord,
        facts: &dyn DrainFacts,
    ) -> Option<Box<Dirs>> {
        let is_there = facts.knows_dirs() && name.parent() == self.choice.path.parent();
        let dir = self.dir.as_ref().filter(|_| is_there);
        let within = dir.map(Identity::of_dir);
        let out_of = record.dirs().out_of;
        Dirs { within, out_of }.boxed()
    }
}
