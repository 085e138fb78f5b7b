//! What a drain writes into the tables: updates of records, the commit that makes them true, and what follows a rename.

use super::act::DrainCommit;
use super::drain_facts::DrainFacts;
use super::rules::{OURS, all_speakers, is_natural, lower_dir};
use crate::batch;
use crate::bridge::{Mutation, ReadSet};
use crate::facts::Outcome;
use crate::label::renamed;
use crate::ops::FollowUp;
use crate::path::TreePath;
use crate::record::{Dirs, Kind, ObjectName, PathRecord, Transit};
use crate::repair::is_marker;
use crate::table::Change;
use std::collections::BTreeMap;

/// Objects that get a new label although nothing else is new in their records, with their paths.
pub(super) type Labels = Vec<(TreePath, ObjectName)>;

/// What a commit does to one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) path: TreePath,
    pub(super) before: PathRecord,
    /// `None` if it goes, and its object with it.
    pub(super) after: Option<PathRecord>,
}

impl Update {
    /// The record with this mark, or with none.
    pub(super) fn marked(path: TreePath, before: PathRecord, transit: Option<Transit>) -> Self {
        // The identity of a renamed thing; and that of an earlier copy, until another one is on its way.
        let is_release = |mark: Option<Transit>| mark == Some(Transit::Releasing);
        let keeps_arriving =
            before.kind == Kind::Moved || is_release(transit) || is_release(before.transit);
        let after = Some(PathRecord {
            transit,
            arriving: before.arriving.clone().filter(|_| keeps_arriving),
            ..before.clone()
        });
        Update {
            path,
            before,
            after,
        }
    }
}

/// The commit that makes the updates true, if each record still is what it was. Gives also the records
/// as they are afterwards. Labels follow in the order of `labels` and `updates`, and files are removed last: see
/// [`crate::repair::learned`], which sees what a kill in between has left.
pub(super) fn commit_of(
    facts: &dyn DrainFacts,
    mut reads: ReadSet,
    updates: Vec<Update>,
    labels: Labels,
) -> (DrainCommit, Vec<(TreePath, PathRecord)>) {
    let (mut deletes, mut puts) = (Vec::new(), Vec::new());
    let (mut follow_ups, mut afterwards) = (Vec::new(), Vec::new());
    let mut removals = Vec::new();
    for (path, object) in labels {
        puts.push(Change::Relabel(object));
        follow_ups.push(FollowUp::Relabel(object, path));
    }
    for Update {
        path,
        before,
        after,
    } in updates
    {
        reads.saw(&path, Some(&before));
        if !facts.is_single() && matches!(before.kind, Kind::Dir | Kind::Moved) {
            reads.superseded.push((path.clone(), before.version));
        }
        let object = before.object;
        let Some(mut record) = after else {
            deletes.push(Change::Delete {
                path: path.clone(),
                object,
            });
            puts.push(Change::Doom(object));
            if is_marker(before.kind) {
                follow_ups.push(FollowUp::Void(object, path));
            }
            removals.push(FollowUp::Remove(object));
            continue;
        };
        record.version = facts.next_version();
        assert_ne!(record.version, before.version, "a put has a new version");
        let of_label = |r: &PathRecord| (r.kind, r.origin.clone(), r.hides.clone(), renamed(r));
        if of_label(&record) != of_label(&before) {
            puts.push(Change::Relabel(object));
            follow_ups.push(FollowUp::Relabel(object, path.clone()));
        }
        afterwards.push((path.clone(), record.clone()));
        puts.push(Change::Put { path, record });
    }
    follow_ups.append(&mut removals);
    deletes.append(&mut puts);
    batch::assert_well_formed(&deletes);
    let commit = DrainCommit {
        reads,
        batch: deletes,
        follow_ups,
        ..DrainCommit::default()
    };
    (commit, afterwards)
}

/// The record of a renamed thing that has got to its final name.
pub(super) fn arrived(
    facts: &dyn DrainFacts,
    path: &TreePath,
    record: Option<PathRecord>,
    reads: &mut ReadSet,
) -> Outcome<Option<PathRecord>> {
    if is_natural(facts, &path.parent(), reads)? {
        // The PFS shows it there by itself.
        return Ok(None);
    }
    // Through a directory made in the buffer the PFS does not show.
    Ok(record.map(|record| PathRecord {
        drained: Some(OURS),
        replaces: record.arriving.as_deref().copied(),
        chosen: None,
        adopts: false,
        ..record
    }))
}

/// Updates after a move from `from` to `to`: every record that speaks of a path inside it, and every label that
/// names such a directory. `mover` is the path of the record that moved it.
///
/// All of that is one commit, because a record that spoke of the old path a moment longer would speak of
/// something else. It is as large as the number of these records: a directory of the PFS that was renamed
/// with 100,000 changed files in it is one batch of 100,000 records. That is the one step of a
/// drain that is not bounded; it is done with no lock held but that of the commit itself. A rename of a directory by
/// a program is unbounded in the same way (`Context::relocate_below` in [`crate::ops`]).
pub(super) fn relocated(
    facts: &dyn DrainFacts,
    mover: &TreePath,
    from: &TreePath,
    to: &TreePath,
    is_final: bool,
    reads: &mut ReadSet,
) -> Outcome<(Vec<Update>, Labels)> {
    let mut touched: Vec<TreePath> = all_speakers(facts, from, reads)?
        .into_iter()
        .map(|s| s.path)
        .chain([mover.clone()])
        .collect();
    if Mutation::SpeakersKeepOldPaths.is_in(|| facts.planted()) {
        touched.retain(|path| path == mover);
    }
    touched.sort();
    touched.dedup();
    // Its own label comes last: until it is written, a rebuild takes the old places that the others tell for right.
    touched.retain(|path| path != mover);
    touched.push(mover.clone());
    let (mut updates, mut carried) = (Vec::new(), Vec::new());
    for path in touched {
        let Some(before) = facts.record(&path)? else {
            continue;
        };
        // What was renamed out of it, and is still in it, goes with it.
        let is_carried =
            before.kind == Kind::Moved && before.origin.as_ref().is_some_and(|o| o.is_within(from));
        if is_carried {
            carried.push(path.clone());
        }
        let mut record = before.clone();
        if record.origin.as_ref() == Some(from) {
            let within = record.dirs().within;
            record.dirs = Dirs::within(within);
        }
        record.origin = record
            .origin
            .map(|origin| origin.rebase(from, to).unwrap_or(origin));
        // Clears `hides` in every record that hid this very thing: it is no longer there.
        record.hides = record
            .hides
            .filter(|hides| hides != from)
            .map(|hides| hides.rebase(from, to).unwrap_or(hides));
        if record.hides.is_none() && record.drained.is_none() {
            record.replaces = None;
        }
        // A record that speaks of what is hidden here can be in transit by a move of its own.
        if is_carried {
            record.transit = None;
        }
        let mut after = Some(record);
        if is_final && path == *mover {
            after = arrived(facts, &path, after, reads)?;
        }
        updates.push(Update {
            path,
            before,
            after,
        });
    }
    let mut labels = BTreeMap::new();
    for top in carried {
        labels.extend(labels_below(facts, &top, from)?);
    }
    // Those of what is in something carried come before that of the carried one.
    Ok((updates, labels.into_iter().rev().collect()))
}

/// The labels below `top` that name a directory of the PFS at or below `lower`.
pub(super) fn labels_below(
    facts: &dyn DrainFacts,
    top: &TreePath,
    lower: &TreePath,
) -> Outcome<Labels> {
    let mut labels = Labels::new();
    for (path, record) in facts.below(top)? {
        let dir = lower_dir(facts, &path.parent(), &mut ReadSet::default())?;
        if dir.is_some_and(|dir| dir.is_within(lower)) {
            labels.push((path, record.object));
        }
    }
    Ok(labels)
}
