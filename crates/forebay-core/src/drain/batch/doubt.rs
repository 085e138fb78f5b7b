//! Copies of which nobody knows whether they have got their names.

use super::{Candidate, CopyBatch, CopyFate, State};
use crate::drain::act::{Act, OTHER_DIR, Trouble, Work};
use crate::drain::sheet::{Reason, Sheet};
use crate::facts::Attr;
use crate::identity::Identity;

/// Can the call that failed so have been done all the same? Then a client may go on showing for a while what was there before. A
/// link that is made a second time may find itself.
fn is_in_doubt(trouble: Trouble) -> bool {
    trouble.may_be_done() || trouble.errno == libc::EEXIST
}

impl CopyBatch {
    fn unclear(&mut self) -> impl Iterator<Item = (&mut Candidate, &mut CopyFate)> {
        let few = self.few.iter_mut().map(|(c, fate)| (c, fate));
        few.filter(|(_, fate)| matches!(fate, CopyFate::Unclear(_) | CopyFate::Supplanted))
    }

    /// Looks where nobody knows whether a copy has got its name, and at the directory of the name. Of one in whose place others have
    /// put something else it is not known either which of its names it has.
    pub(super) fn look_again(&mut self) -> Option<Act> {
        let names = self.unclear().flat_map(|(c, _)| &c.task.ready);
        let paths = names.flat_map(|(path, _)| [path.clone(), path.parent()]);
        let paths: Vec<_> = paths.collect();
        self.state = match paths.is_empty() {
            true => State::Unhide,
            false => State::LookingAgain,
        };
        (!paths.is_empty()).then_some(Act::Look(paths))
    }

    /// A copy found under all its names counts as published, whatever the error said.
    pub(super) fn looked_again(&mut self, seen: Vec<Work<Option<Attr>>>, sheet: &mut Sheet) {
        self.looks += 1;
        let is_last = self.looks >= sheet.looks_in_doubt();
        let is_settled = Sheet::is_settled_by(self.looks);
        let mut seen = seen.into_iter();
        let mut useless = Vec::new();
        let mut is_refused = false;
        for (candidate, fate) in self.unclear() {
            let copy = candidate.copy;
            let names = candidate.task.ready.len();
            let is_placed =
                |look: Work<Option<Attr>>| Some(look.ok()?.is_some_and(|there| copy.is(&there)));
            let looks: Vec<_> = seen.by_ref().take(2 * names).collect();
            assert_eq!(looks.len(), 2 * names, "two looks for each name");
            let is_no_dir = |look: &Work<Option<Attr>>| {
                let found = look.as_ref().ok();
                found.is_some_and(|found| !found.as_ref().is_some_and(Attr::is_dir))
            };
            let is_other_dir = |within: Option<Identity>, look: &Work<Option<Attr>>| {
                let found = look.as_ref().ok().and_then(Option::as_ref);
                let is_other = |dir| within.is_some_and(|within| !within.is_dir_of(dir));
                found.is_some_and(is_other)
            };
            let path_of = |nth: usize| candidate.task.ready[nth].0.clone();
            let dirs = looks.iter().skip(1).step_by(2);
            let lacks_dir = dirs.clone().position(is_no_dir).map(path_of);
            let mut dirs = dirs.zip(&candidate.task.within);
            let is_in_other = |(dir, within): (_, &_)| is_other_dir(*within, dir);
            let other_dir = dirs.position(is_in_other).map(path_of);
            let placed = looks.into_iter().step_by(2).map(is_placed);
            candidate.placed = placed.collect();
            if candidate.placed.iter().all(|placed| *placed == Some(true)) {
                // What was in its place may have got the temporary name.
                useless.extend(candidate.task.temporaries());
                *fate = CopyFate::Good;
            } else if let CopyFate::Unclear(trouble) = *fate
                && (is_last || !is_in_doubt(trouble))
            {
                if trouble.may_be_done() && !is_settled {
                    // What was not seen yet may come.
                    let placed = candidate.placed.iter();
                    candidate.placed = placed.map(|placed| placed.filter(|there| *there)).collect();
                }
                *fate = CopyFate::Failed(match trouble.errno {
                    libc::EEXIST => Reason::Changed,
                    libc::ENOENT | libc::ENOTDIR | libc::ELOOP if lacks_dir.is_some() => {
                        candidate.taken_at = lacks_dir;
                        Reason::NoDirectory
                    }
                    _ => {
                        if trouble.operation == OTHER_DIR {
                            candidate.taken_at = other_dir;
                        }
                        is_refused |= is_in_doubt(trouble) && trouble.errno != libc::ENOENT;
                        Reason::Refused(trouble)
                    }
                });
            }
        }
        self.useless.extend(useless);
        // The copies of a batch have waited at the same time, so they count as one failure.
        if is_refused {
            sheet.stays_in_doubt();
        }
        // To look at the others once is enough.
        let is_unclear = |fate: &CopyFate| matches!(fate, CopyFate::Unclear(_));
        let is_clear = !self.few.iter().any(|(_, fate)| is_unclear(fate));
        self.state = match is_clear {
            true => State::Unhide,
            false => State::Pause,
        };
    }
}
