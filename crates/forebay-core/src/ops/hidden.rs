//! What of the PFS a decision keeps from view, and what that is known by.
//!
//! Whatever goes from a name may still be on the PFS there until a drain has removed it. The record that keeps it from
//! view has its [`Identity`]: what others have made of it since is not removed.

use super::Context;
use super::change::Plan;
use crate::bridge::Mutation;
use crate::drain::{OURS, note_file};
use crate::facts::Outcome;
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Kind, PathRecord};
use crate::table::Change;
use crate::walk::{Found, Node};
use std::collections::{BTreeMap, BTreeSet};

/// Records below a directory.
pub(super) type Below = Vec<(TreePath, PathRecord)>;

/// Something on the PFS that is kept from view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hidden {
    pub(super) path: TreePath,
    /// What it was when it was last seen.
    pub(super) entry: Option<Identity>,
    /// See [`PathRecord::chosen`].
    pub(super) chosen: Option<Box<Identity>>,
}

/// What of the PFS a record keeps from view, if it is at `path`.
pub(super) fn hidden_by(record: &PathRecord, path: &TreePath) -> Option<Hidden> {
    let path = record.covers(path)?;
    let entry = match record.kind {
        Kind::Dir if record.hides.is_none() => Some(match record.drained {
            // The PFS may have refused to make it.
            Some(OURS) => Identity::MADE_DIR.doubtful(),
            _ => Identity::MADE_DIR,
        }),
        _ => record.replaces,
    };
    let chosen = record.chosen.clone();
    Some(Hidden {
        path,
        entry,
        chosen,
    })
}

/// Is it a directory that a drain has made at its own place?
fn is_made(record: &PathRecord) -> bool {
    record.kind == Kind::Dir && record.hides.is_none() && record.drained.is_some()
}

/// The records below a directory, by the directory that they are in.
pub(super) struct Contents<'a>(BTreeMap<TreePath, Vec<(&'a TreePath, &'a PathRecord)>>);

impl<'a> Contents<'a> {
    pub(super) fn of(below: &'a [(TreePath, PathRecord)]) -> Self {
        let mut dirs = BTreeMap::<_, Vec<_>>::new();
        for (path, record) in below {
            dirs.entry(path.parent()).or_default().push((path, record));
        }
        Contents(dirs)
    }
}

/// What is below a directory that is renamed.
pub(super) struct Moving {
    pub(super) below: Below,
    /// Directories among it, and itself, that a drain had made: they go from the PFS with all that was drained into them.
    made: BTreeSet<TreePath>,
    /// Things renamed into it. The drain moves them out first, with what it drained into them.
    renamed: BTreeSet<TreePath>,
}

impl Moving {
    /// Is this a directory that a drain had made, so that the next one makes another one under the new name?
    pub(super) fn makes_anew(&self, dir: &TreePath) -> bool {
        self.made.contains(dir)
    }

    /// Does the record at this path hide something in a directory that goes as a whole?
    pub(super) fn takes(&self, path: &TreePath, hidden: &TreePath) -> bool {
        let mut at = path.parent();
        while !at.is_root() && !self.renamed.contains(&at) {
            if self.made.contains(&at) {
                return hidden.is_within(&at);
            }
            at = at.parent();
        }
        false
    }
}

impl Context<'_> {
    /// What of the PFS a new thing at `found` would hide.
    pub(super) fn hidden_at(&self, found: &Found) -> Option<Hidden> {
        match (&found.record, &found.node) {
            // A new thing hides whatever is visible there, also if others put it there.
            (record, Some(Node::Lower(lower, attr))) if is_at(record.as_ref(), found, lower) => {
                let entry = Some(self.sees(Identity::of(attr)));
                let path = lower.clone();
                Some(Hidden {
                    path,
                    entry,
                    chosen: None,
                })
            }
            (Some(record), _) => hidden_by(record, &found.path),
            (None, _) => None,
        }
    }

    /// This was seen on the PFS just now.
    fn sees(&self, known: Identity) -> Identity {
        if known.is_of_several_names() {
            self.seen.borrow_mut().push(known);
        }
        known
    }

    /// Notes for the drain, how files with several names were when this batch has hidden one of them.
    pub(super) fn notes_of_files(&self, batch: &[Change]) -> Vec<Change> {
        let replaces = |change: &Change| match change {
            Change::Put { record, .. } => record.replaces,
            _ => None,
        };
        let go_along = std::mem::take(&mut *self.go_along.borrow_mut());
        let hides = |known: &Identity| {
            go_along.contains(known) || batch.iter().any(|change| replaces(change) == Some(*known))
        };
        let mut seen = std::mem::take(&mut *self.seen.borrow_mut());
        seen.sort_by_key(|known| known.inode());
        seen.dedup();
        let hidden = seen.into_iter().filter(hides);
        hidden.map(note_file).collect()
    }

    /// What of the PFS is to be hidden where something has been renamed.
    pub(super) fn left_behind(&self, src: &Found, moving: &Moving) -> Outcome<Option<Hidden>> {
        let Some(mut hidden) = self.hidden_at(src) else {
            return Ok(None);
        };
        match (&src.node, hidden.entry) {
            (Some(Node::Lower(lower, attr)), Some(_)) if is_at(src.record.as_ref(), src, lower) => {
                hidden.entry = Some(Identity::of_leaving(attr));
            }
            (_, Some(entry)) if moving.made.contains(&src.path) => {
                let contents = Contents::of(&moving.below);
                hidden.entry = Some(self.with_contents(entry, &src.path, &src.path, &contents)?);
            }
            _ => {}
        }
        Ok(Some(hidden))
    }

    /// What is below something that is renamed.
    pub(super) fn moving(&self, src: &Found, is_dir: bool) -> Outcome<Moving> {
        let below = match is_dir {
            true => self.facts.subtree(&src.path)?,
            false => Vec::new(),
        };
        if matches!(src.node, Some(Node::Lower(..))) {
            self.walk.check_all_here(&src.path, &below)?;
        }
        let itself = src.record.iter().map(|record| (&src.path, record));
        let all = itself.chain(below.iter().map(|(path, record)| (path, record)));
        let paths = |is_meant: fn(&PathRecord) -> bool| {
            let meant = all.clone().filter(|(_, record)| is_meant(record));
            meant.map(|(path, _)| path.clone()).collect()
        };
        Ok(Moving {
            made: paths(is_made),
            renamed: paths(|record| record.kind == Kind::Moved),
            below,
        })
    }

    /// What of the PFS a record at `path`, below something that is renamed, hides from then on: what it was drained to, too.
    /// Nothing, if that goes with a directory as a whole.
    pub(super) fn hidden_below(
        &self,
        path: &TreePath,
        record: &PathRecord,
        moving: &Moving,
        contents: &Contents<'_>,
    ) -> Outcome<Option<Hidden>> {
        let hidden = hidden_by(record, path);
        let Some(mut hidden) = hidden.filter(|hidden| !moving.takes(path, &hidden.path)) else {
            return Ok(None);
        };
        if let Some(entry) = hidden.entry.filter(|_| is_made(record)) {
            hidden.entry = Some(self.with_contents(entry, &hidden.path, path, contents)?);
        }
        Ok(Some(hidden))
    }

    /// A directory of the PFS at `place`, with what the records below its path `dir` in the buffer cover of it.
    pub(super) fn with_contents(
        &self,
        entry: Identity,
        place: &TreePath,
        dir: &TreePath,
        contents: &Contents<'_>,
    ) -> Outcome<Identity> {
        if Mutation::RemovedDirsForgetContents.is_in(|| self.facts.planted()) {
            return Ok(entry);
        }
        let mut entries = Vec::new();
        for (path, record) in contents.0.get(dir).into_iter().flatten() {
            // A record that hides another place says nothing of this one.
            let hidden = hidden_by(record, path).filter(|h| h.path == place.join(path.name()));
            let Some(Hidden {
                path: at, entry, ..
            }) = hidden
            else {
                continue;
            };
            if record.origin.as_ref() == Some(&at) {
                // It leaves before the directory goes.
                continue;
            }
            let may_be_gone = entry.is_some_and(Identity::may_be_gone);
            if may_be_gone && self.facts.lower(&at)?.is_none() {
                continue;
            }
            let known = match entry.map(Identity::certain) {
                Some(known) if is_made(record) => {
                    Some(self.with_contents(known, &at, path, contents)?)
                }
                known => known,
            };
            entries.push((path.name(), known));
        }
        Ok(entry.with_contents(entries))
    }

    /// Settles what becomes of the old place of a renamed thing that this plan removes, replaces or copies. A record there or above
    /// hides it. If the thing still lies there, that record takes its identity of today, because no other name can change it any
    /// more; if not, whatever comes there is of others. `below` are the records below what goes, which nobody sees. To be called when the
    /// plan is complete otherwise.
    pub(super) fn settle_origin(
        &self,
        found: &Found,
        below: &[(TreePath, PathRecord)],
        plan: &mut Plan,
    ) -> Outcome<()> {
        for (_, record) in below {
            // What others have removed goes with its directory.
            if let Some(origin) = &record.origin {
                self.settle(origin, None, plan)?;
            }
        }
        let record = found.record.as_ref();
        let Some((record, origin)) = record.and_then(|r| Some((r, r.origin.as_ref()?))) else {
            return Ok(());
        };
        let renamed = record.arriving.as_deref();
        let known = match &found.node {
            Some(Node::Lower(_, attr)) if renamed.is_none_or(|renamed| renamed.is(attr)) => {
                let contents = Contents::of(below);
                let known = self.sees(Identity::of(attr));
                let known = self.with_contents(known, origin, &found.path, &contents)?;
                plan.abandons(record, known);
                Some(known)
            }
            // Others have replaced it, or taken it away: what they bring back is theirs.
            _ => None,
        };
        self.settle(origin, known, plan)
    }

    /// What was renamed from this place is known as this, or others have it.
    fn settle(&self, origin: &TreePath, known: Option<Identity>, plan: &mut Plan) -> Outcome<()> {
        let is_planted = |bug: Mutation| bug.is_in(|| self.facts.planted());
        if is_planted(Mutation::OriginsAreNotSettled)
            || known.is_none() && is_planted(Mutation::OriginsThatReturnAreTaken)
        {
            return Ok(());
        }
        let change = |hider: &mut PathRecord| match known {
            Some(known) => {
                let goes_along = hider.hides.as_ref() != Some(origin);
                if goes_along && !known.is_dir() && known.is_of_several_names() {
                    self.go_along.borrow_mut().push(known);
                }
                hider.keeps(origin, known);
            }
            None => hider.leaves(origin),
        };
        let mut lower = origin.clone();
        while !lower.is_root() {
            if let Some(record) = plan.hiding(&lower) {
                change(record);
                return Ok(());
            }
            let at = self.walk.path_of_lower(&lower.parent())?.join(lower.name());
            let record = self.facts.record(&at)?;
            let record = record.filter(|r| r.hides.as_ref() == Some(&lower));
            if let Some(mut record) = record.filter(|_| !plan.changes(&at)) {
                change(&mut record);
                record.version = self.facts.next_version();
                plan.put(at, record);
                return Ok(());
            }
            lower = lower.parent();
        }
        Ok(())
    }
}

/// Is this place of the PFS the one that would be kept from view at `found`? Then that is what is seen there.
fn is_at(record: Option<&PathRecord>, found: &Found, lower: &TreePath) -> bool {
    match record {
        Some(record) => {
            record.hides.is_none() && record.covers(&found.path).as_ref() == Some(lower)
        }
        None => true,
    }
}
