//! Why nothing is decided, and what to do instead.

use super::conflict::InTwoPlaces;
use super::{Conflict, Side};
use crate::drain::orphans::is_waiting;
use crate::facts::Attr;
use crate::path::TreePath;
use crate::record::{Kind, PathRecord};

impl Conflict {
    /// Why nothing is decided for this side, if so.
    pub(super) fn refusal(&self, side: Side) -> Option<String> {
        let is_ours = side == Side::Ours;
        let is_replaced = self.is_origin_replaced();
        let has_dir_at_origin = self.at_origin.as_ref().is_some_and(Attr::is_dir);
        let all_below = self.ring.iter().map(|one| &one.below).chain([&self.below]);
        if let Some(path) = all_below.filter_map(|below| below.hiding.as_ref()).next() {
            return Some(format!(
                "{path}, below it, still hides something of the PFS: settle that first (if it is not listed any more, drain again), and then this"
            ));
        }
        match &self.in_two_places {
            Some(InTwoPlaces::Itself) => return Some(IS_IN_THEIRS.to_owned()),
            Some(InTwoPlaces::Other(path)) => {
                return Some(format!(
                    "{path} was in it on the PFS, and has not left it yet: settle that first (if it is not listed, drain again), and then this"
                ));
            }
            None => {}
        }
        if let Some(dir) = self.ring.iter().find(|one| one.is_dir || one.below.has_any) {
            let instead = match is_replaced {
                true => IS_DIR_EXCHANGED_AND_GONE,
                false => IS_DIR_EXCHANGED,
            };
            return Some(format!(
                "it has exchanged names with the directory {}: {instead}",
                dir.path
            ));
        }
        if let Some(path) = self.replaced_by.as_ref().filter(|_| !is_replaced) {
            let is_dir = has_dir_at_origin || self.below.has_any;
            let instead = match (self.lacks_dir, is_dir) {
                // It only gets another name.
                (true, _) => "both",
                (false, true) => "ours",
                (false, false) => "both, or ours",
            };
            return Some(format!(
                "{path} has taken its old place, and would replace it: take {instead}"
            ));
        }
        if is_replaced && !has_dir_at_origin && self.below.has_any {
            let why = match self.at_origin {
                Some(_) => IS_NO_DIR,
                None => IS_GONE_ABOVE,
            };
            return Some(why.to_owned());
        }
        let why = match &self.went_to {
            // It would show in two places.
            Some(_)
                if !self.ring.is_empty()
                    && !self.below.has_any
                    && (is_replaced || !has_dir_at_origin) =>
            {
                return None;
            }
            Some(path) if !is_replaced || side == Side::Theirs => {
                return Some(format!("what was there is now {path}: choose about that"));
            }
            _ if self.is_of_both && side != Side::Both => return None,
            _ if self.is_in_other_dir
                && self.record.kind == Kind::Dir
                && (side == Side::Both || side == Side::Theirs && self.below.has_any) =>
            {
                IS_DIR_IN_OTHER
            }
            _ if side == Side::Both && self.record.kind == Kind::Dir => why_no_dir(&self.record),
            // It only gets another name.
            _ if side == Side::Both && self.lacks_dir && !is_replaced => return None,
            _ if !is_ours && (self.below.has_any || has_dir_at_origin && !is_replaced) => {
                why_no_dir(&self.record)
            }
            _ if side == Side::Both
                && is_replaced
                && (self.lacks_dir || self.at_origin.is_none()) =>
            {
                IS_GONE
            }
            _ if side == Side::Both && is_replaced => IS_REPLACED,
            _ if is_ours && is_replaced && self.at_origin.is_none() => IS_GONE,
            _ if side == Side::Theirs && is_waiting(&self.record) && !is_replaced => WAITS,
            _ => return None,
        };
        Some(why.to_owned())
    }

    /// Why there is nothing to choose, if so.
    pub(super) fn nothing_to_choose(&self, side: Side) -> Option<String> {
        let (record, is_replaced) = (&self.record, self.is_origin_replaced());
        // What others have removed is given up.
        if let Some(why) = self.waits_because.as_ref().filter(|_| !is_replaced) {
            return Some(why.clone());
        }
        let covers = record.hides.is_some() || record.drained.is_some();
        let drained = record.drained.and(record.replaces);
        let is_drained_to = |theirs: &Attr| {
            drained.is_some_and(|ours| ours.is_dir_of(theirs) && !record.is_chosen())
        };
        let goes = self.is_of_both || self.lacks_dir;
        let why = match &self.at_theirs {
            // A directory with things in it was refused, but for ours.
            _ if self.is_in_other_dir => return None,
            None if !covers && !is_replaced && !self.lacks_dir => REPLACES_NOTHING,
            // What was drained into it is in the one that others have moved, and must not count as theirs when that is back.
            None if record.kind == Kind::Dir && record.drained.is_some() && side == Side::Ours => {
                HAS_GONE
            }
            _ if record.kind == Kind::Dir && side == Side::Theirs && !goes => why_no_dir(record),
            Some(theirs) if self.is_of_both && is_drained_to(theirs) => REPLACES_NOTHING,
            _ => return None,
        };
        Some(why.to_owned())
    }
}

/// Why a directory that a drain has made is not made anew because somebody says so.
const HAS_GONE: &str = "others have moved or removed the directory that a drain had made: put it back; or drain again, which makes it again where something is to come into it";

/// Why a directory is not chosen about.
const IS_DIR: &str = "it is a directory of the buffer: take ours, and a file of theirs goes; if theirs is a directory as well, take ours or theirs; else move what is theirs out of the way on the PFS and drain again, or rename or remove ours with `forebay run` and take theirs then, if it is still listed";

/// The same of one that was renamed.
const IS_RENAMED_DIR: &str = "it is a directory that was renamed, or others have put one in its old place: take ours, and what of theirs is in its place goes; else move what is theirs out of the way on the PFS and drain again, or rename or remove ours with `forebay run` and take theirs then, if it is still listed";

/// The same of one that was made in a directory which has another one in its place.
const IS_DIR_IN_OTHER: &str = "it is a directory of the buffer: put the right directory back; or take ours, and it is made in the directory that is there now; or take theirs when nothing is in it";

/// The same of one that has come in the place of theirs.
const IS_DIR_OVER: &str = "it is a directory of the buffer in the place of theirs: take ours, and theirs goes with all that is in it; else move what is theirs out of the way on the PFS and drain again, or rename or remove ours with `forebay run` and take theirs then, if it is still listed";

/// Why what has exchanged names with a directory does not get its old one.
const IS_DIR_EXCHANGED: &str = "take ours, or exchange them back with `forebay run`";

/// The same if it is not where it was on the PFS.
const IS_DIR_EXCHANGED_AND_GONE: &str =
    "drain again, and take theirs then; or rename that directory back with `forebay run`";

/// Why this directory is not chosen about.
pub(super) fn why_no_dir(record: &PathRecord) -> &'static str {
    match (&record.hides, record.kind) {
        (Some(_), _) => IS_DIR_OVER,
        (None, Kind::Moved) => IS_RENAMED_DIR,
        (None, _) => IS_DIR,
    }
}

/// Why there is nothing to choose about: the drain does it.
pub(super) const NO_CONFLICT: &str =
    "others have not changed on the PFS what it replaces or removes: there is nothing to choose";

/// The same of what is new.
const REPLACES_NOTHING: &str = "it replaces nothing on the PFS";

/// Why a backing directory does not go.
pub(super) const HAS_STRAYS: &str = "something was made in it past the buffer, and would be lost: `forebay drain` names it; move it to its place by hand";

/// Why nothing is renamed that is not there.
const IS_GONE: &str = "others have removed or renamed what was renamed to it: take theirs";

/// Why the rename of a directory is not given up.
const IS_GONE_ABOVE: &str = "others have removed or renamed what was renamed, and there are changes below it: put it back on the PFS; or make it in the buffer (`forebay run -- mkdir`), and drain again";

/// Why something is not drained to a directory that is not there.
pub(super) const LACKS_DIR: &str = "others have removed or renamed its directory on the PFS: make it there again, and take ours then; or take both for each file, or theirs";

/// The same of what has this in it.
pub(super) fn holds_more(first: &TreePath) -> String {
    format!(
        "{first}, in it, has no place on the PFS either: choose about that first, and then about this; or make their directory there again, or, if it was renamed, in the buffer (`forebay run -- mkdir`)"
    )
}

/// Why no second version is made of what was renamed out of the first.
const IS_IN_THEIRS: &str = "it was renamed out of what it replaces on the PFS, and has not left that yet: drain again, and take both then; if it does not leave, take ours or theirs";

/// Only what is in it can be in conflict.
pub(super) const NOT_ITSELF: &str =
    "nothing of it itself is in the buffer, only things in it: choose about those that are listed";

/// Why something is not renamed in the place of a directory.
const IS_NO_DIR: &str = "others have put something else in the place of the renamed directory, and there are changes below it: move that away on the PFS; then put the directory back there, or make it in the buffer (`forebay run -- mkdir`), and drain again";

/// Why what is in the buffer does not go.
pub(super) const IS_OPEN: &str = "a program has it open: what it writes would be lost; try again when it has ended, or take ours or both (a choice for ours that was taken before stands until then)";

/// Why what is in the buffer does not go, if that was not to be seen.
pub(super) const IS_UNKNOWN: &str =
    "the storage does not say whether a program has it open: try again, or take ours or both";

/// Why what others have in a directory is not replaced.
pub(super) const IS_UNTOLD: &str = "others have something there, and no list has named it, since only now it is decided which directory this goes into: look at it, and take ours again";

/// Why what was renamed does not go back.
const WAITS: &str = "what was renamed waits on the PFS for this name: take ours or both, or remove it with `forebay run`";

/// Why `both` is refused when others have replaced what was renamed.
const IS_REPLACED: &str = "what was renamed is no longer there: take ours, and what is there now is renamed, or theirs, and that stays where it is";
