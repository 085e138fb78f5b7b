//! A strand of a pass: a piece of its work, from the first act to the last.

use super::act::{Act, DrainCommit, DrainVerdict, Got};
use super::drain_facts::DrainFacts;
use super::sheet::Sheet;
use crate::facts::Outcome;

/// One piece of work. It has at most one act under way.
pub(super) trait Strand: Send {
    /// Takes the outcome of the last act. It has no facts: [`Strand::next`] reads them, because it can stop for one
    /// and be called again.
    fn take(&mut self, got: Got, sheet: &mut Sheet);

    /// The next act; `None` at the end. If it stops for a fact, it is called again and must then give the same act.
    fn next(&mut self, facts: &dyn DrainFacts, sheet: &mut Sheet) -> Outcome<Option<Act>>;
}

/// Each thing of an act with its outcome.
///
/// # Panics
/// The iterator, if the driver has told fewer outcomes or more.
pub(super) fn with_outcomes<T, O>(
    things: impl IntoIterator<Item = T>,
    outcomes: impl IntoIterator<Item = O>,
) -> impl Iterator<Item = (T, O)> {
    let (mut things, mut outcomes) = (things.into_iter(), outcomes.into_iter());
    std::iter::from_fn(move || match (things.next(), outcomes.next()) {
        (Some(thing), Some(outcome)) => Some((thing, outcome)),
        (None, None) => None,
        (Some(_), None) => panic!("an act with fewer outcomes than things"),
        (None, Some(_)) => panic!("an act with more outcomes than things"),
    })
}

/// One act, of which nothing follows.
pub(super) struct Once(Option<Act>, Act);

impl Once {
    pub(super) fn new(act: Act) -> Self {
        Once(Some(act.clone()), act)
    }

    pub(super) fn commit(commit: DrainCommit) -> Self {
        Once::new(Act::Commit(commit))
    }
}

impl Strand for Once {
    fn take(&mut self, got: Got, _sheet: &mut Sheet) {
        if got == Got::Verdict(DrainVerdict::Conflict) {
            // Nothing else can change this, so the store refused; try again.
            self.0 = Some(self.1.clone());
        }
    }

    fn next(&mut self, _facts: &dyn DrainFacts, _sheet: &mut Sheet) -> Outcome<Option<Act>> {
        Ok(self.0.take())
    }
}
