//! Bytes over time: brings the bins of every process onto one time axis of the job.
//!
//! Bins of different widths and starts are split in proportion to time. No byte is lost or added.

/// Most bins of a log (darshan-runtime, heat map module).
const MOST_BINS: u64 = 200;
/// Width of the narrowest bin.
const LEAST_WIDTH_NS: u64 = 100_000_000;

/// The bins of one process for one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bins {
    /// When the first bin begins, in nanoseconds since 1970.
    pub origin_ns: u64,
    /// Width of each bin in nanoseconds, not 0.
    pub width_ns: u64,
    /// Bytes read in each bin.
    pub read: Vec<u64>,
    /// Bytes written in each bin.
    pub written: Vec<u64>,
}

/// The time axis of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// When the job begins, in nanoseconds since 1970.
    pub start_ns: u64,
    /// Width of each bin in nanoseconds: 0.1 s, doubled as often as the job needs.
    pub width_ns: u64,
    /// How many bins cover the job.
    pub count: usize,
}

impl Axis {
    /// The axis with the narrowest bins that cover the job in at most 200 of them. No bin is narrower than the widest
    /// of the processes (`widest_ns`).
    pub fn of(start_ns: u64, end_ns: u64, widest_ns: u64) -> Self {
        let length_ns = end_ns.saturating_sub(start_ns).max(1);
        let mut width_ns = LEAST_WIDTH_NS;
        let is_wide_enough = |width: u64| {
            width >= widest_ns.min(length_ns) && length_ns.div_ceil(width) <= MOST_BINS
        };
        while !is_wide_enough(width_ns) {
            width_ns = width_ns.saturating_mul(2);
        }
        Axis {
            start_ns,
            width_ns,
            count: length_ns.div_ceil(width_ns) as usize,
        }
    }

    /// Bin width in seconds.
    pub fn width_s(&self) -> f64 {
        self.width_ns as f64 / 1e9
    }

    /// Adds the bins of a process to those of the job. `read` and `written` have [`Axis::count`] elements. Bytes from
    /// before or after the job count in its first or last bin.
    pub fn add(&self, bins: &Bins, read: &mut [u64], written: &mut [u64]) {
        debug_assert_eq!((read.len(), written.len()), (self.count, self.count));
        for (from, to) in [(&bins.read, read), (&bins.written, written)] {
            for (n, &bytes) in from.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
                let start = bins
                    .origin_ns
                    .saturating_add(bins.width_ns.saturating_mul(n as u64));
                self.spread(bytes, start, bins.width_ns.max(1), to);
            }
        }
    }

    fn spread(&self, bytes: u64, from_ns: u64, width_ns: u64, to: &mut [u64]) {
        let Some(last) = to.len().checked_sub(1) else {
            return;
        };
        let bin_of = |t: u64| (t.saturating_sub(self.start_ns) / self.width_ns).min(last as u64);
        let end_ns = from_ns.saturating_add(width_ns);
        let (mut at, mut given) = (bin_of(from_ns), 0);
        while given < bytes {
            let bin_end = self
                .start_ns
                .saturating_add(self.width_ns.saturating_mul(at + 1));
            // The running sum is rounded, not each part, so that the parts add up to the whole.
            let sum = if at == last as u64 || bin_end >= end_ns {
                bytes
            } else {
                let part = bin_end.saturating_sub(from_ns);
                (u128::from(bytes) * u128::from(part) / u128::from(width_ns)) as u64
            };
            to[at as usize] = to[at as usize].saturating_add(sum - given);
            given = sum;
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn rebinned(axis: &Axis, origin_ns: u64, width_ns: u64, read: &[u64]) -> Vec<u64> {
        let bins = Bins {
            origin_ns,
            width_ns,
            read: read.to_vec(),
            written: vec![],
        };
        let mut to = vec![0; axis.count];
        axis.add(&bins, &mut to, &mut vec![0; axis.count]);
        to
    }

    #[test]
    fn a_short_job_has_bins_of_a_tenth_of_a_second_and_a_long_one_at_most_200() {
        let axis = |end_ns, widest| Axis::of(7 * S, 7 * S + end_ns, widest);
        assert_eq!((axis(0, 0).count, axis(0, 0).width_s()), (1, 0.1));
        assert_eq!((axis(S, 0).count, axis(S, 0).width_s()), (10, 0.1));
        assert_eq!(axis(20 * S, 0).count, 200);
        assert_eq!(
            (axis(20 * S + 1, 0).count, axis(20 * S + 1, 0).width_s()),
            (101, 0.2)
        );
        assert_eq!(axis(S, S / 2).width_s(), 0.8);
        for days in 1..400 {
            let axis = axis(days * 86_400 * S, 0);
            assert!((100..=200).contains(&axis.count), "{axis:?}");
        }
    }

    #[test]
    fn bins_that_fit_are_moved_as_they_are() {
        let axis = Axis::of(10 * S, 11 * S, 0);
        let tenth = S / 10;
        assert_eq!(
            rebinned(&axis, 10 * S + 2 * tenth, tenth, &[5, 0, 7]),
            [0, 0, 5, 0, 7, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn wide_bins_are_split_in_proportion_to_time() {
        let axis = Axis::of(0, 4 * S / 10, 0);
        // From 0.05 s to 0.25 s.
        assert_eq!(rebinned(&axis, S / 20, S / 5, &[100]), [25, 50, 25, 0]);
    }

    #[test]
    fn what_lies_outside_of_the_job_counts_at_its_ends() {
        let axis = Axis::of(10 * S, 10 * S + 3 * S / 10, 0);
        assert_eq!(rebinned(&axis, 0, S, &[3]), [3, 0, 0]);
        assert_eq!(rebinned(&axis, 20 * S, S, &[4]), [0, 0, 4]);
        assert_eq!(rebinned(&axis, u64::MAX, u64::MAX, &[4, 5]), [0, 0, 9]);
    }

    #[test]
    fn no_byte_is_lost_or_made() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for _ in 0..2000 {
            let start = random(100 * S);
            let axis = Axis::of(start, start + 1 + random(100 * S), 0);
            let read: Vec<u64> = (0..random(50)).map(|_| random(1 << 40)).collect();
            let to = rebinned(&axis, random(200 * S), 1 + random(10 * S), &read);
            assert_eq!(to.iter().sum::<u64>(), read.iter().sum::<u64>());
        }
    }
}
