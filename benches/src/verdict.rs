//! Turns the costs of several rounds into a ratio and a verdict.
//!
//! A round holds two native runs and one buffered run of the same calls within
//! seconds. A ratio is taken inside a round, so a machine that gets slower between
//! rounds affects both sides. The difference between the two native runs tells how
//! much of a ratio is noise.

use crate::catalogue::Target;
use crate::sample::Cost;
use crate::statistics::{Spread, median};

/// If two native runs usually differ by more than this part of the native time, a real difference to
/// the buffer could go unseen.
const WIDEST_USEFUL_NOISE: f64 = 0.10;

/// One row in one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    /// The native runs before and after the buffered run.
    pub native: [Cost; 2],
    /// The buffered run.
    pub buffered: Cost,
}

impl Round {
    fn native(&self, of: Clock) -> f64 {
        f64::midpoint(of(&self.native[0]), of(&self.native[1]))
    }

    fn added(&self, of: Clock) -> f64 {
        of(&self.buffered) - self.native(of)
    }
}

/// One row over all rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Cost of one native operation (medians).
    pub native: Cost,
    /// Cost of one buffered operation (medians). The processor time is that of the program alone.
    pub buffered: Cost,
    /// Native wall time over buffered wall time in each round. 1 means as fast as native.
    pub ratio: Spread,
    /// Difference between the two native runs of a round, as a part of the native wall time (median).
    pub noise: f64,
    /// What the buffer adds to one operation (medians of the differences in each round).
    pub added: Cost,
}

/// Whether a row meets its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The row meets its target.
    Met,
    /// The row misses its target.
    Missed,
    /// The row misses its target by no more than the difference between two native runs.
    MissedWithinNoise,
    /// Two native runs differ too much for a verdict.
    TooNoisy,
}

impl Verdict {
    /// The text in the table and in the JSON form.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::MissedWithinNoise => "missed, within noise",
            Verdict::TooNoisy => "too noisy to say",
        }
    }
}

/// Selects one of the two times of a cost.
type Clock = fn(&Cost) -> f64;

fn wall(cost: &Cost) -> f64 {
    cost.wall
}

fn cpu(cost: &Cost) -> f64 {
    cost.cpu
}

impl Comparison {
    /// Compares the rounds of one row.
    ///
    /// # Panics
    /// If there are no rounds.
    pub fn of(rounds: &[Round]) -> Self {
        let each = |f: &dyn Fn(&Round) -> f64| rounds.iter().map(f).collect::<Vec<f64>>();
        let both = |f: &dyn Fn(&Round, Clock) -> f64| Cost {
            wall: median(&each(&|r| f(r, wall))),
            cpu: median(&each(&|r| f(r, cpu))),
        };
        Comparison {
            native: both(&|r, of| r.native(of)),
            buffered: both(&|r, of| of(&r.buffered)),
            ratio: Spread::of(&each(&|r| r.native(wall) / r.buffered.wall)),
            noise: median(&each(&|r| {
                (r.native[0].wall - r.native[1].wall).abs() / r.native(wall)
            })),
            added: both(&Round::added),
        }
    }

    /// Judges the row by a target.
    pub fn judge(&self, target: Target) -> Verdict {
        let decide = |met, within_noise| match (met, within_noise) {
            (true, _) => Verdict::Met,
            (false, true) => Verdict::MissedWithinNoise,
            (false, false) => Verdict::Missed,
        };
        match target {
            Target::Ratio(least) => decide(
                self.ratio.median >= least,
                self.ratio.median >= least * (1.0 - self.noise),
            ),
            Target::AddedMicros(most) => decide(self.added.wall * 1e6 <= most, false),
            Target::NotMeasurable if self.added.wall > self.noise * self.native.wall => {
                Verdict::Missed
            }
            Target::NotMeasurable if self.noise > WIDEST_USEFUL_NOISE => Verdict::TooNoisy,
            Target::NotMeasurable => Verdict::Met,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(all: &[(f64, f64, f64)]) -> Comparison {
        let cost = |micros: f64| Cost {
            wall: micros * 1e-6,
            cpu: micros * 0.5e-6,
        };
        let rounds: Vec<Round> = all
            .iter()
            .map(|&(a, b, buffered)| Round {
                native: [cost(a), cost(b)],
                buffered: cost(buffered),
            })
            .collect();
        Comparison::of(&rounds)
    }

    #[test]
    fn ratios_are_taken_inside_a_round() {
        // The machine became twice as slow after the first round, but the ratio stays the same.
        let c = rounds(&[(1.0, 1.0, 2.0), (2.0, 2.0, 4.0), (2.0, 2.0, 4.0)]);
        assert_eq!(c.ratio.least, 0.5);
        assert_eq!(c.ratio.most, 0.5);
    }

    #[test]
    fn wall_and_processor_time_are_kept_apart() {
        let c = rounds(&[(1.0, 1.0, 3.0)]);
        assert!((c.added.wall - 2e-6).abs() < 1e-12);
        assert!((c.added.cpu - 1e-6).abs() < 1e-12);
    }

    #[test]
    fn a_small_deficit_on_a_noisy_machine_is_called_noise() {
        let noisy = rounds(&[(1.0, 1.1, 1.1), (1.1, 1.0, 1.12), (1.0, 1.05, 1.1)]);
        assert_eq!(noisy.judge(Target::Ratio(0.97)), Verdict::MissedWithinNoise);
        let quiet = rounds(&[(1.0, 1.0, 1.1), (1.0, 1.001, 1.1), (1.0, 1.0, 1.1)]);
        assert_eq!(quiet.judge(Target::Ratio(0.97)), Verdict::Missed);
        assert_eq!(quiet.judge(Target::Ratio(0.9)), Verdict::Met);
    }

    #[test]
    fn an_overhead_is_measurable_if_it_exceeds_what_native_runs_differ_by() {
        let visible = rounds(&[(1.0, 1.01, 1.05), (1.0, 0.99, 1.05), (1.0, 1.0, 1.06)]);
        assert_eq!(visible.judge(Target::NotMeasurable), Verdict::Missed);
        let hidden = rounds(&[(1.0, 1.03, 1.02), (1.0, 0.98, 1.0), (1.0, 1.0, 1.01)]);
        assert_eq!(hidden.judge(Target::NotMeasurable), Verdict::Met);
        let hopeless = rounds(&[(1.0, 1.5, 1.2), (1.0, 0.6, 0.9), (1.0, 1.0, 1.1)]);
        assert_eq!(hopeless.judge(Target::NotMeasurable), Verdict::TooNoisy);
    }

    #[test]
    fn one_wild_round_does_not_hide_an_overhead() {
        let c = rounds(&[(1.0, 9.0, 1.3), (1.0, 1.0, 1.3), (1.0, 1.01, 1.3)]);
        assert_eq!(c.judge(Target::NotMeasurable), Verdict::Missed);
    }

    #[test]
    fn added_time_is_in_microseconds() {
        let c = rounds(&[(0.7, 0.7, 5.5)]);
        assert_eq!(c.judge(Target::AddedMicros(4.9)), Verdict::Met);
        assert_eq!(c.judge(Target::AddedMicros(4.7)), Verdict::Missed);
    }
}
