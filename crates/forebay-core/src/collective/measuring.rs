//! The course of a probe: which writes come next, and when it has seen enough.

use super::probe::{
    Judgement, Pattern, ProbeResult, Sample, TOO_NOISY, TURNS, WARM_UP, Wait, first_patterns,
    further_patterns, judge,
};
use super::{LockProtocol, MeasuredLocks};
use std::collections::VecDeque;

/// Patterns whose times are unclear, or that have waited only once, are measured again in at most so many rounds.
const MAX_ROUNDS: u32 = 6;
/// A pattern whose writes have taken so long together is measured with fewer turns: 1 s. Some file systems take a second to give up
/// a lock.
const LONG_NANOS: u64 = 1_000_000_000;
/// Turns of such a pattern that count.
const LONG_TURNS: usize = 3;
/// When all writes have taken so long, nothing is measured again: 3 min.
const LONGEST_NANOS: u64 = 180 * LONG_NANOS;
/// A write that takes so many times as long has waited: no noise does that, so it need not be seen twice.
const FAR: u64 = 100;
/// Nor does noise slow every write of a pattern down to so many times as long ...
const NEAR: u64 = 5;
/// ... for so long a time together: 5 s.
const LASTING_NANOS: u64 = 5 * LONG_NANOS;

impl Sample {
    /// Does it have all writes that are needed?
    pub fn is_complete(&self) -> bool {
        let all = 2 * TURNS as usize;
        let is_long = self.nanos.iter().sum::<u64>() > LONG_NANOS;
        let is_whole_turn = self.nanos.len().is_multiple_of(2);
        let enough = if is_long {
            2 * (WARM_UP + LONG_TURNS)
        } else {
            all
        };
        is_whole_turn && self.nanos.len() >= enough
    }
}

enum Stage {
    First,
    Further,
}

/// A measurement that goes on.
pub struct Measuring {
    samples: Vec<Sample>,
    /// With each sample: it has waited twice.
    confirmed: Vec<bool>,
    /// What is to be measured, with the number of the sample that it replaces or adds to.
    next: VecDeque<(Pattern, Option<usize>)>,
    rounds: u32,
    stage: Stage,
}

impl Default for Measuring {
    fn default() -> Self {
        let mut next = new(first_patterns());
        // All others are held against this one, so it is measured twice.
        next.push_back((Pattern::Apart, Some(0)));
        Measuring {
            samples: Vec::new(),
            confirmed: Vec::new(),
            next,
            rounds: 0,
            stage: Stage::First,
        }
    }
}

fn new(patterns: Vec<Pattern>) -> VecDeque<(Pattern, Option<usize>)> {
    patterns
        .into_iter()
        .map(|pattern| (pattern, None))
        .collect()
}

impl Measuring {
    /// What to measure next; `None`: that is all.
    pub fn next_pattern(&mut self) -> Option<Pattern> {
        while self.next.is_empty() {
            self.next = self.again();
            if !self.next.is_empty() {
                self.rounds += 1;
            } else if matches!(self.stage, Stage::First) {
                self.stage = Stage::Further;
                self.rounds = 0;
                self.next = new(further_patterns(&self.samples));
            } else {
                return None;
            }
        }
        self.next.front().map(|&(pattern, _)| pattern)
    }

    /// What has come of that pattern; `None` if the file system has no files as large as that.
    pub fn measured(&mut self, sample: Option<Sample>) {
        let Some((pattern, place)) = self.next.pop_front() else {
            return;
        };
        let Some(sample) = sample else {
            return;
        };
        assert_eq!(sample.pattern, pattern, "the pattern that was asked for");
        match place {
            None => {
                self.samples.push(sample);
                self.confirmed.push(false);
            }
            Some(at) if pattern == Pattern::Apart => {
                let mean = |one: &Sample| one.nanos.iter().sum::<u64>() / one.nanos.len() as u64;
                if mean(&sample) < mean(&self.samples[at]) {
                    self.samples[at] = sample;
                }
            }
            Some(at) if self.wait_of(at) == Wait::Waits => {
                self.samples[at].nanos.extend(sample.nanos);
                self.confirmed[at] = true;
            }
            Some(at) => {
                self.samples[at] = sample;
                self.confirmed[at] = false;
            }
        }
    }

    fn wait_of(&self, at: usize) -> Wait {
        judge(&self.samples, 2).patterns[at].2
    }

    /// What has to be measured again, if there is time for that.
    fn again(&self) -> VecDeque<(Pattern, Option<usize>)> {
        let all = self.samples.iter().flat_map(|sample| &sample.nanos);
        match self.rounds >= MAX_ROUNDS || all.sum::<u64>() > LONGEST_NANOS {
            true => VecDeque::new(),
            false => self.doubtful(),
        }
    }

    /// What is unclear, and what has waited once. Something else may have kept it then.
    fn doubtful(&self) -> VecDeque<(Pattern, Option<usize>)> {
        let judged = judge(&self.samples, 2).patterns;
        let base = judged.first().map_or(0, |&(_, median, _)| median);
        let doubtful = |&(at, &(_, median, wait)): &(usize, &(Pattern, u64, Wait))| match wait {
            Wait::Free => false,
            Wait::Unclear => true,
            Wait::Waits => {
                let nanos = self.samples[at]
                    .nanos
                    .get(2 * WARM_UP..)
                    .unwrap_or_default();
                let is_far = median >= FAR * base;
                let is_near = nanos.iter().all(|&one| one >= NEAR * base);
                let lasts = nanos.iter().sum::<u64>() >= LASTING_NANOS;
                !(self.confirmed[at] || is_far || is_near && lasts)
            }
        };
        let each = judged.iter().enumerate().filter(doubtful);
        each.map(|(at, &(pattern, ..))| (pattern, Some(at)))
            .collect()
    }

    /// What was seen. `clients`: see [`judge`].
    pub fn judgement(&self, clients: u32) -> Judgement {
        let judged = judge(&self.samples, clients);
        match self.doubtful().is_empty() {
            true => judged,
            false => Judgement {
                seen: ProbeResult::Unclear,
                reason: TOO_NOISY,
                ..judged
            },
        }
    }
}

/// Are the writes to be measured again so that they wait for the servers (O_SYNC)? A client that writes behind asks for locks when the
/// program has gone on, so ordinary writes do not show them, or only now and then.
/// One client has nobody to wait for.
pub fn may_hide_waits(ordinary: &Judgement, clients: u32) -> bool {
    clients > 1 && (is_none(ordinary) || ordinary.seen == ProbeResult::Unclear)
}

fn is_none(judged: &Judgement) -> bool {
    matches!(
        judged.seen,
        ProbeResult::Locks(MeasuredLocks {
            protocol: LockProtocol::None,
            ..
        })
    )
}

/// Are writes that wait for the servers believed, rather than ordinary ones? Where neither shows a lock, the times of ordinary writes
/// are those of programs.
pub fn believes_waiting(ordinary: &Judgement, waiting: &Judgement) -> bool {
    !(is_none(ordinary) && is_none(waiting))
}
