//! How much of the run a rank, or the whole job, was in I/O by the wall clock, where the log does not tell.
//!
//! A log has the sum of the durations of calls, and the first and last time at which a file was in use. Calls of threads
//! and of processes overlap, so sums may exceed the run. A sum is an upper bound of the time in which any call was under
//! way; the span in which the file was in use is another. Of spans that touch each other both bounds are taken together.

/// A span in which calls of this many seconds, all together, were under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Claim {
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Seconds in calls; after [`join`] at most `end - start`.
    pub seconds: f64,
}

impl Claim {
    /// The claim of calls in a span, which is cut to the run time.
    pub fn new((start, end): (f64, f64), seconds: f64, run_seconds: f64) -> Self {
        let start = start.clamp(0.0, run_seconds);
        Claim {
            start,
            end: end.clamp(start, run_seconds),
            seconds,
        }
    }

    /// The same, made longer where the calls need more time than the span has: some calls (stat, seek) note no time.
    pub fn stretched(self, run_seconds: f64) -> Self {
        let end = self.end.max(self.start + self.seconds).min(run_seconds);
        let start = self.start.min(end - self.seconds).max(0.0);
        Claim { start, end, ..self }
    }
}

/// Joins claims that touch each other. The result is in the order of time, does not overlap, and claims no more seconds
/// than its spans have.
pub(crate) fn join(mut claims: Vec<Claim>) -> Vec<Claim> {
    claims.sort_by(|a, b| a.start.total_cmp(&b.start));
    let mut joined: Vec<Claim> = Vec::with_capacity(claims.len().min(16));
    for claim in claims {
        match joined.last_mut() {
            Some(last) if claim.start <= last.end => {
                last.end = last.end.max(claim.end);
                last.seconds += claim.seconds;
            }
            _ => joined.push(claim),
        }
    }
    for claim in &mut joined {
        claim.seconds = claim.seconds.min(claim.end - claim.start);
    }
    joined
}

/// The seconds of all claims.
pub(crate) fn seconds(claims: &[Claim]) -> f64 {
    claims.iter().map(|claim| claim.seconds).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: f64 = 100.0;

    fn busy(claims: &[((f64, f64), f64)]) -> f64 {
        let claims = claims
            .iter()
            .map(|(span, seconds)| Claim::new(*span, *seconds, RUN));
        seconds(&join(claims.collect()))
    }

    #[test]
    fn calls_one_after_the_other_add_up_and_calls_at_the_same_time_do_not() {
        assert_eq!(busy(&[((0.0, 2.0), 2.0), ((3.0, 5.0), 2.0)]), 4.0);
        assert_eq!(busy(&[((0.0, 2.0), 2.0), ((0.0, 2.0), 2.0)]), 2.0);
        assert_eq!(busy(&[((0.0, 3.0), 3.0), ((2.0, 5.0), 3.0)]), 5.0);
    }

    #[test]
    fn a_file_that_is_open_for_long_and_used_rarely_costs_what_its_calls_cost() {
        assert_eq!(busy(&[((0.0, 100.0), 1.0), ((10.0, 11.0), 0.5)]), 1.5);
    }

    #[test]
    fn what_lies_outside_of_the_run_is_cut() {
        assert_eq!(busy(&[((90.0, f64::INFINITY), 50.0)]), 10.0);
        assert_eq!(busy(&[((500.0, 600.0), 50.0)]), 0.0);
    }

    #[test]
    fn a_claim_is_stretched_to_its_seconds_but_not_beyond_the_run() {
        let claim = |span, seconds| Claim::new(span, seconds, RUN).stretched(RUN);
        let length = |claim: Claim| claim.end - claim.start;
        assert_eq!(length(claim((10.0, 11.0), 5.0)), 5.0);
        assert_eq!(length(claim((99.0, 100.0), 5.0)), 5.0);
        assert_eq!(length(claim((50.0, 51.0), 500.0)), RUN);
    }
}
