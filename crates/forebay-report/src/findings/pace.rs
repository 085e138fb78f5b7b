//! Compares how long the same work takes in several places: on nodes, on mount points.
//!
//! A place is slow if its requests take longer each, **and** its bytes do, by a factor. Whatever a request and a byte cost, it is
//! slower then by that factor at least. No cost has to be assumed, and a place with more or larger requests is not taken for a slow one.

use super::Subject;
use crate::model::Amount;

/// Fewer requests are no measurement of a place, unless they move [`LEAST_BYTES`].
const LEAST_REQUESTS: u64 = 100;
/// See [`LEAST_REQUESTS`].
const LEAST_BYTES: u64 = 64 << 20;
/// A place that flushes its files more often than this many times the usual does other work.
const MOST_SYNCS: f64 = 2.0;
/// So many flushes for each request make no difference.
const FEW_SYNCS: f64 = 0.01;

/// Seconds of a request below which it has ended in the memory of its node.
pub(super) const MEMORY_SECONDS: f64 = 20e-6;

/// What the same work takes in a usual place: the median of places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usual {
    /// Seconds of a request.
    per_request: f64,
    /// Seconds of a byte.
    per_byte: f64,
    /// Flushes for each request.
    syncs: f64,
}

/// True if a place has done enough to be compared.
pub(super) fn is_measured(amount: &Amount) -> bool {
    let is_much = amount.requests >= LEAST_REQUESTS || amount.bytes >= LEAST_BYTES;
    is_much && amount.requests > 0 && amount.bytes > 0 && amount.seconds > 0.0
}

/// True if storage, and not memory alone, can have served this.
pub(super) fn is_stored(subject: &Subject, work: &Amount) -> bool {
    let is_quick = work.bytes as f64 >= subject.limits.local_bytes_per_second * work.seconds;
    !is_quick && work.seconds >= MEMORY_SECONDS * work.requests as f64
}

/// Bytes of a mean request.
pub(super) fn mean_size(amount: &Amount) -> f64 {
    amount.bytes as f64 / amount.requests.max(1) as f64
}

impl Usual {
    /// The usual of these places, all of them measured; of an even number the quicker of the two in the middle.
    pub(super) fn of<'a>(places: impl Iterator<Item = &'a Amount> + Clone) -> Self {
        let median = |of: fn(&Amount) -> f64| lower_median(places.clone().map(of).collect());
        Usual {
            per_request: median(|one| one.seconds / one.requests as f64),
            per_byte: median(|one| one.seconds / one.bytes as f64),
            syncs: median(|one| one.syncs as f64 / one.requests as f64),
        }
    }

    /// Seconds that this work takes in a usual place, at most.
    pub(super) fn seconds(&self, work: &Amount) -> f64 {
        let by_requests = work.requests as f64 * self.per_request;
        by_requests.max(work.bytes as f64 * self.per_byte)
    }

    /// True if this work took so many times as long as usual, and is not of another kind.
    pub(super) fn is_exceeded(&self, work: &Amount, times: f64) -> bool {
        let requests = work.requests as f64;
        let flushes = work.syncs as f64 > (MOST_SYNCS * self.syncs + FEW_SYNCS) * requests;
        !flushes && work.seconds > 0.0 && work.seconds >= times * self.seconds(work)
    }
}

/// The middle value; of an even number the lower one of two.
pub(super) fn lower_median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(requests: u64, size: u64, seconds: f64) -> Amount {
        Amount {
            requests,
            bytes: requests * size,
            seconds,
            syncs: 0,
        }
    }

    #[test]
    fn work_is_slow_by_its_requests_and_by_its_bytes() {
        let places = [1.0, 2.0, 30.0].map(|seconds| amount(1000, 4096, seconds));
        let usual = Usual::of(places.iter());
        assert!((usual.seconds(&amount(2000, 4096, 0.0)) - 4.0).abs() < 1e-9);
        assert!(usual.is_exceeded(&amount(1000, 4096, 6.0), 3.0));
        assert!(!usual.is_exceeded(&amount(1000, 4096, 5.9), 3.0));
        // Larger requests may take longer, and smaller ones longer for a byte.
        assert!(!usual.is_exceeded(&amount(1000, 65_536, 30.0), 3.0));
        assert!(!usual.is_exceeded(&amount(16_000, 256, 90.0), 3.0));
        let once = Amount {
            syncs: 10,
            ..amount(1000, 4096, 60.0)
        };
        assert!(usual.is_exceeded(&once, 3.0));
        let flushed = Amount {
            syncs: 11,
            ..amount(1000, 4096, 60.0)
        };
        assert!(!usual.is_exceeded(&flushed, 3.0));
        assert_eq!(lower_median(vec![4.0, 1.0, 2.0, 3.0]), 2.0);
        assert_eq!(lower_median(Vec::new()), 0.0);
    }

    #[test]
    fn few_requests_measure_nothing_unless_they_are_large() {
        assert!(is_measured(&amount(100, 1, 1.0)));
        assert!(!is_measured(&amount(99, 1, 1.0)));
        assert!(is_measured(&amount(1, 64 << 20, 1.0)));
        assert!(!is_measured(&amount(100, 0, 1.0)));
    }
}
