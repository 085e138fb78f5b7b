//! Moves of which nobody knows whether they have been done: the PFS said that they failed.

use super::{Move, State, What};
use crate::drain::act::Work;
use crate::drain::sheet::{Reason, Sheet};
use crate::facts::Attr;
use crate::path::TreePath;

impl Move {
    /// Paths that show whether the move happened: source, target and, unless it is the root, the target's directory.
    pub(super) fn places_in_doubt(&self) -> Vec<TreePath> {
        let mut places = match &self.way {
            Some(way) => vec![way.from.clone(), way.to.clone()],
            None => vec![self.path.clone()],
        };
        let dir = places[places.len() - 1].parent();
        if !dir.is_root() {
            places.push(dir);
        }
        places
    }

    /// Evidence that the move happened counts at once. Evidence against it may come from a stale client cache, so the drain
    /// looks again.
    pub(super) fn looked_in_doubt(&mut self, seen: &[Work<Option<Attr>>], sheet: &mut Sheet) {
        self.looks += 1;
        let is_no_dir = |dir: &Work<Option<Attr>>| matches!(dir, Ok(found) if !found.is_some_and(|found| found.is_dir()));
        let (is_done, dir) = match (&self.way, seen) {
            (Some(_), [Ok(None), Ok(Some(there)), dir @ ..]) => {
                let is_it = match self.what {
                    What::Place => self.is_renamed_inode(there),
                    _ => self.is_renamed(there),
                };
                (is_it, dir)
            }
            (Some(_), [_, _, dir @ ..]) => (false, dir),
            (None, [Ok(Some(there)), dir @ ..]) => (there.is_dir(), dir),
            (None, [_, dir @ ..]) => (false, dir),
            _ => unreachable!("one look for each place"),
        };
        match self.way {
            Some(_) if is_done => {
                self.note(sheet);
                self.outcome = Ok(());
            }
            Some(_) => {}
            // A directory found there may belong to others; one that cannot be looked at, or was looked at too early, may exist.
            None => {
                let is_early = !Sheet::is_settled_by(self.looks);
                self.may_be_made = is_done || seen[0].is_err() || is_early;
            }
        }
        if is_done && self.way.is_none() && !self.is_made_again {
            // Which it is, and whose, is told where it is made again.
            self.is_made_again = true;
            self.state = State::Marked;
            return;
        }
        let is_known = is_done || dir.iter().any(is_no_dir);
        // Taken for not done, a rename that was done would leave its record leading to nothing: that is always waited for.
        let is_last = match self.way {
            Some(_) => Sheet::is_settled_by(self.looks),
            None => self.looks >= sheet.looks_in_doubt(),
        };
        if !is_known && is_last && matches!(self.outcome, Err(Some(Reason::Refused(_)))) {
            sheet.stays_in_doubt();
        }
        self.state = match is_known || is_last {
            true => State::Finish,
            false => State::DoubtLater,
        };
    }
}
