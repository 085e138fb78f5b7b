//! The drains of which a bridge can tell.

use crate::limits::LEFT_LISTED;
use forebay_admin::REPORTS_KEPT;
use forebay_mover::Counters;
use std::collections::VecDeque;
use std::sync::Arc;

/// The last drains, each by its counters. The last one of all may be running.
pub(super) struct Drains(VecDeque<Arc<Counters>>);

impl Drains {
    /// None has begun yet.
    pub fn new() -> Self {
        Drains([Arc::new(Counters::new(0))].into())
    }

    pub fn last(&self) -> &Arc<Counters> {
        self.0
            .back()
            .expect("it begins with number 0, and the last two stay")
    }

    pub fn find(&self, number: u64) -> Option<&Arc<Counters>> {
        self.0.iter().find(|drain| drain.number() == number)
    }

    /// This one begins. Those of long ago are forgotten.
    pub fn push(&mut self, drain: Arc<Counters>) {
        self.0.push_back(drain);
        let listed: Vec<usize> = self.0.iter().map(|drain| drain.listed()).collect();
        self.0.drain(..to_forget(&listed));
    }
}

/// How many of the first are forgotten, of drains that have left so many: all but [`REPORTS_KEPT`], and more while all lists together
/// are longer than [`LEFT_LISTED`]. The last two stay: one that begins, and one about whose end somebody may be about to ask.
fn to_forget(listed: &[usize]) -> usize {
    let mut sum: usize = listed.iter().sum();
    let mut gone = 0;
    for (one, kept) in listed.iter().zip((1..=listed.len()).rev()) {
        if kept <= REPORTS_KEPT && (kept <= 2 || sum <= LEFT_LISTED) {
            break;
        }
        sum -= one;
        gone += 1;
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drains_of_long_lists_are_forgotten_earlier() {
        let short = [3; REPORTS_KEPT + 2];
        assert_eq!(to_forget(&short), 2);
        assert_eq!(to_forget(&short[2..]), 0);
        let long = [LEFT_LISTED / 2 + 1; 5];
        assert_eq!(to_forget(&long), 3);
        assert_eq!(to_forget(&[LEFT_LISTED + 1, 0]), 0);
        assert_eq!(to_forget(&[1, LEFT_LISTED, 1, 0]), 2);
    }
}
