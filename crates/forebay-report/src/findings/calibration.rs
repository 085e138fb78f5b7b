//! What a request costs beside its bytes, fitted over the files of the log where that can be done.
//!
//! The model is `seconds = requests x a + bytes x b` for each direction. It is fitted by least squares of relative errors, over
//! the files that one interface has seen with requests of different sizes. The cost is told in bytes, `a / b`. A fit counts if it
//! tells most files right. Else the cost is assumed.

use super::requests::{Direction, lowest};
use super::{Subject, Thresholds};
use crate::model::{FileUse, Interface};
use crate::units::{bytes, count};

/// Files, and requests, that a fit needs.
const LEAST_FILES: usize = 10;
const LEAST_REQUESTS: u64 = 1000;
/// The largest mean size of requests, as a multiple of the smallest: else the two parts can't be told apart.
const LEAST_SPREAD: f64 = 16.0;
/// Half of the files are told with at most this error.
const MOST_ERROR: f64 = 0.3;
/// Time of a file from which on it counts: a look at the clock is no noise then.
const LEAST_SECONDS: f64 = 20e-6;

/// The cost of a request beside its bytes, as so many bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RequestCost {
    /// In bytes.
    pub bytes: f64,
    /// The number of files over which it was fitted; `None` if it is assumed.
    pub files: Option<usize>,
}

impl RequestCost {
    /// The cost for the requests of one direction.
    pub(super) fn of(subject: &Subject, direction: Direction) -> Self {
        let limits = subject.limits;
        let assumed = RequestCost::assumed(limits);
        // Who sets the cost means it.
        if limits.request_cost_bytes != Thresholds::default().request_cost_bytes {
            return assumed;
        }
        let flows = lowest(subject, |interface| interface == Interface::Posix);
        // Files of several ranks have locks, and times that are sums.
        let flows = flows.filter(|one| one.ranks == 1 && one.by_rank.len() == 1);
        let points: Vec<Point> = flows.filter_map(|one| Point::of(one, direction)).collect();
        fit(&points).unwrap_or(assumed)
    }

    /// The cost that is assumed.
    pub(super) fn assumed(limits: &Thresholds) -> Self {
        RequestCost {
            bytes: limits.request_cost_bytes,
            files: None,
        }
    }

    /// How the cost was found, for the text of an estimate.
    pub(super) fn text(self) -> String {
        let size = bytes(self.bytes as u64);
        match self.files {
            Some(files) => format!(
                "a request costs as much as moving {size}, beside its own bytes, fitted over {} of this job",
                count(files as u64, "file", "files")
            ),
            None => format!(
                "a request is assumed to cost as much as moving {size}, beside its own bytes"
            ),
        }
    }
}

/// One file.
#[derive(Debug, Clone, Copy)]
struct Point {
    requests: f64,
    bytes: f64,
    seconds: f64,
}

impl Point {
    fn of(one: &FileUse, direction: Direction) -> Option<Self> {
        let flow = direction.of(one);
        let (total, seconds) = (&one.total, direction.seconds(one));
        let is_usual = total.flushing.direct == 0 && total.flushing.synced_writes == 0;
        // Where it is not known, the time of syncs is among that of writes.
        let is_pure = is_usual && (!direction.is_write || total.has_timed_syncs());
        (is_pure && flow.ops > 0 && seconds >= LEAST_SECONDS).then_some(Point {
            requests: flow.ops as f64,
            bytes: flow.bytes as f64,
            seconds,
        })
    }
}

fn fit(points: &[Point]) -> Option<RequestCost> {
    let requests: f64 = points.iter().map(|p| p.requests).sum();
    let sizes = points.iter().map(|p| p.bytes / p.requests);
    let (least, most) = sizes.fold((f64::INFINITY, 0.0f64), |(least, most), size| {
        (least.min(size.max(1.0)), most.max(size))
    });
    if points.len() < LEAST_FILES || requests < LEAST_REQUESTS as f64 || most < LEAST_SPREAD * least
    {
        return None;
    }
    // Normal equations of sum((a n + b v - s)^2 / s^2).
    let [mut nn, mut nv, mut vv, mut ns, mut vs] = [0.0; 5];
    for p in points {
        let (n, v) = (p.requests / p.seconds, p.bytes / p.seconds);
        nn += n * n;
        nv += n * v;
        vv += v * v;
        ns += n;
        vs += v;
    }
    let det = nn * vv - nv * nv;
    let (a, b) = ((ns * vv - vs * nv) / det, (vs * nn - ns * nv) / det);
    // A cost below 0 is none at all; a byte that costs nothing tells nothing.
    let (a, b) = if a < 0.0 { (0.0, vs / vv) } else { (a, b) };
    if !(a.is_finite() && b.is_finite() && b > 0.0) {
        return None;
    }
    let mut errors: Vec<f64> = points
        .iter()
        .map(|p| (a * p.requests + b * p.bytes - p.seconds).abs() / p.seconds)
        .collect();
    errors.sort_by(f64::total_cmp);
    (errors[errors.len() / 2] <= MOST_ERROR).then_some(RequestCost {
        bytes: a / b,
        files: Some(points.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files with requests of 100 B to 1 MiB, where a request takes `a` and a byte `b` seconds, more or less.
    fn files(n: usize, a: f64, b: f64, noise: f64) -> Vec<Point> {
        (0..n)
            .map(|i| {
                let requests = 100.0 + (i * 37 % 100) as f64;
                let size = 100.0 * f64::from(1u32 << (i * 5 % 14));
                let error = 1.0 + noise * (((i * 7919) % 200) as f64 / 100.0 - 1.0);
                Point {
                    requests,
                    bytes: requests * size,
                    seconds: (requests * a + requests * size * b) * error,
                }
            })
            .collect()
    }

    fn cost(points: &[Point]) -> Option<f64> {
        fit(points).map(|cost| cost.bytes)
    }

    #[test]
    fn the_cost_of_a_request_is_found_where_files_tell_it() {
        let near = |found: Option<f64>, expected: f64| {
            let found = found.expect("a fit");
            assert!((found / expected - 1.0).abs() < 0.25, "{found} {expected}");
        };
        near(cost(&files(40, 1e-6, 1e-10, 0.0)), 1e4);
        near(cost(&files(40, 1e-6, 1e-10, 0.2)), 1e4);
        near(cost(&files(40, 2e-3, 1e-9, 0.2)), 2e6);
        // Requests cost nothing beside their bytes.
        let free = cost(&files(40, 0.0, 1e-9, 0.2)).expect("a fit");
        assert!(free < 1000.0, "{free}");
    }

    #[test]
    fn what_files_do_not_tell_is_not_fitted() {
        assert_eq!(cost(&files(5, 1e-6, 1e-10, 0.0)), None, "few files");
        let same_size: Vec<Point> = files(40, 1e-6, 1e-10, 0.0)
            .into_iter()
            .map(|p| Point {
                bytes: p.requests * 4096.0,
                ..p
            })
            .collect();
        assert_eq!(cost(&same_size), None, "one size");
        let mut wild = files(40, 1e-6, 1e-10, 0.0);
        for (i, p) in wild.iter_mut().enumerate() {
            p.seconds *= f64::from(1u32 << (i * 11 % 8));
        }
        assert_eq!(cost(&wild), None, "no pattern");
        assert_eq!(cost(&[]), None);
    }
}
