//! What findings on slow nodes and slow mount points have in common: places that take much longer than usual for the same work.

use super::pace::{Usual, mean_size};
use super::{FileEvidence, MOST_MEASURED, Measured, NAMED_FILES};
use crate::model::{Amount, Interface};
use crate::units::{self, bytes, number, share};
use std::collections::BTreeMap;

/// A place that is slow in one lane or several.
#[derive(Default)]
pub(super) struct Slow {
    /// What its work took.
    pub seconds: f64,
    /// What the same work takes in a usual place.
    pub usual: f64,
    /// By lane, in words.
    pub details: Vec<String>,
    /// Seconds that its work would take in each of the places, and in how many lanes those have work.
    elsewhere: BTreeMap<usize, (f64, usize)>,
}

impl Slow {
    /// Adds what its work in one lane would take in another place, or takes in this one.
    pub(super) fn add_elsewhere(&mut self, place: usize, seconds: f64) {
        let (sum, lanes) = self.elsewhere.entry(place).or_default();
        *sum += seconds;
        *lanes += 1;
    }
}

/// The slow place that loses most.
pub(super) fn worst_of(slow: &BTreeMap<usize, Slow>) -> Option<(usize, &Slow)> {
    let lost = |one: &Slow| one.seconds - one.usual;
    let worst = slow
        .iter()
        .max_by(|(at, a), (bt, b)| lost(a).total_cmp(&lost(b)).then(bt.cmp(at)));
    worst.map(|(at, one)| (*at, one))
}

/// What was slow, in words.
pub(super) fn detail(
    interface: Interface,
    place: &str,
    is_write: bool,
    work: &Amount,
    usual: &Usual,
) -> String {
    let noun = if is_write { "writes" } else { "reads" };
    let place = if place.is_empty() {
        "an unknown mount point"
    } else {
        place
    };
    format!(
        "{} {noun} of {} by {} on {place}: {} in all, {} where it is usual",
        number(work.requests),
        bytes(mean_size(work) as u64),
        interface.name(),
        units::seconds(work.seconds),
        units::seconds(usual.seconds(work))
    )
}

/// What the work of a slow place takes in each place, most first, and in the median of them.
pub(super) fn measured(slow: &Slow, name: impl Fn(usize) -> String, places: &str) -> Vec<Measured> {
    let mut measured: Vec<Measured> = slow
        .elsewhere
        .iter()
        // The others can't be compared as a whole.
        .filter(|(_, (_, lanes))| *lanes == slow.details.len())
        .map(|(at, (seconds, _))| Measured {
            name: name(*at),
            seconds: *seconds,
        })
        .collect();
    measured.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then(a.name.cmp(&b.name)));
    let count = measured.len();
    measured.truncate(MOST_MEASURED);
    measured.push(Measured {
        name: format!("median of {count} {places}"),
        seconds: slow.usual,
    });
    measured
}

/// The slow places, those that lose most first.
pub(super) fn named(
    slow: &BTreeMap<usize, Slow>,
    name: impl Fn(usize) -> String,
) -> Vec<FileEvidence> {
    let mut order: Vec<(&usize, &Slow)> = slow.iter().collect();
    order.sort_by(|(at, a), (bt, b)| {
        (b.seconds - b.usual)
            .total_cmp(&(a.seconds - a.usual))
            .then(at.cmp(bt))
    });
    let named = order.into_iter().take(NAMED_FILES);
    named
        .map(|(at, one)| FileEvidence {
            name: name(*at),
            detail: format!(
                "{}, {:.1} times the usual",
                units::seconds(one.seconds),
                share(one.seconds, one.usual)
            ),
        })
        .collect()
}
