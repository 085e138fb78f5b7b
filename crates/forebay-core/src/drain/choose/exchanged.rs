//! Renamed things that have exchanged their names: none can have its old name back unless all get theirs.

use super::below::Below;
use crate::bridge::ReadSet;
use crate::drain::drain_facts::DrainFacts;
use crate::drain::rules::{read, speakers_of};
use crate::facts::Outcome;
use crate::path::TreePath;
use crate::record::{Kind, PathRecord};
use crate::speakers::Word;

/// Things that have exchanged their names and can get them back together.
const MOST_EXCHANGED: usize = 100;

/// One of several renamed things that have exchanged their names.
#[derive(Clone)]
pub(super) struct Exchanged {
    pub(super) path: TreePath,
    pub(super) record: PathRecord,
    pub(super) below: Below,
    /// It is a directory.
    pub(super) is_dir: bool,
    /// On the PFS it is still where it was.
    pub(super) is_in_place: bool,
}

/// Where what was at this place of the PFS, at or beside `path`, is in the buffer now, if somebody has renamed it.
pub(super) fn went_to(
    facts: &dyn DrainFacts,
    path: &TreePath,
    lower: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<Option<TreePath>> {
    let speakers = speakers_of(facts, lower, reads)?;
    let mut renamed = speakers.into_iter().filter(|s| s.word == Word::Origin);
    Ok(renamed.find(|s| s.path != *path).map(|s| s.path))
}

/// What has exchanged names with `path`, from `first` on, which is what was where its version is: each of them is where the next one
/// was, and the last one where `path` was. Empty if they do not lead back.
pub(super) fn ring(
    facts: &dyn DrainFacts,
    path: &TreePath,
    first: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<Vec<Exchanged>> {
    let mut ring: Vec<Exchanged> = Vec::new();
    let mut next = Some(first.clone());
    while let Some(at) = next {
        let is_known = ring.iter().any(|one| one.path == at);
        let record = read(facts, &at, reads)?.filter(|record| record.kind == Kind::Moved);
        let Some(record) = record.filter(|_| !is_known && ring.len() < MOST_EXCHANGED) else {
            break;
        };
        next = match record.covers(&at) {
            Some(covered) => went_to(facts, &at, &covered, reads)?,
            None => None,
        };
        ring.push(Exchanged {
            below: Below::of(facts, &at)?,
            is_dir: false,
            is_in_place: false,
            path: at,
            record,
        });
        if next.as_ref() == Some(path) {
            return Ok(ring);
        }
    }
    Ok(Vec::new())
}
