//! The exchange plan: who sends what to whom in which round.
//!
//! An aggregator handles at most one buffer of its domain in a round. In a write the processes send it what they have of
//! that window, then it writes; in a read it reads the window, then sends the parts to their processes. A process works out its own
//! part of the plan from its access, an aggregator from the accesses of all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Access, Extent, FileDomain, FileDomains, MAX_OFFSET};

/// A contiguous piece of the file that goes between the memory of a process and the buffer of an aggregator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Which bytes of the file.
    pub file: Extent,
    /// Where they begin in the memory of the process, in bytes.
    pub memory: u64,
    /// Where they begin in the buffer of the aggregator, in bytes.
    pub buffer: u64,
}

/// The plan of one collective call.
#[derive(Debug, Clone)]
pub struct ExchangePlan<'a> {
    domains: FileDomains,
    buffer_bytes: u64,
    accesses: &'a [Access],
    /// The first round of each group whose turn it is, and the number of rounds at the end. One entry and the end if
    /// the groups do not take turns.
    turns: Vec<u64>,
}

impl<'a> ExchangePlan<'a> {
    /// Plans what process number `i` accesses by `accesses[i]`, as far as that lies in the region of the domains.
    ///
    /// # Panics
    /// If the buffer has no byte.
    pub fn new(domains: FileDomains, buffer_bytes: u64, accesses: &'a [Access]) -> Self {
        assert!(buffer_bytes > 0, "an aggregator has a buffer");
        let mut rounds = vec![
            0;
            if domains.are_sequential() {
                domains.groups() as usize
            } else {
                1
            }
        ];
        for aggregator in 0..domains.aggregators() {
            let turn = turn_of(&domains, aggregator);
            let needed = domains.domain(aggregator).bytes().div_ceil(buffer_bytes);
            rounds[turn] = needed.max(rounds[turn]);
        }
        let mut turns = vec![0];
        let mut sum = 0;
        turns.extend(rounds.iter().map(|r| {
            sum += r;
            sum
        }));
        ExchangePlan {
            domains,
            buffer_bytes,
            accesses,
            turns,
        }
    }

    /// The domains that it follows.
    pub fn domains(&self) -> &FileDomains {
        &self.domains
    }

    /// Processes of the call.
    pub fn processes(&self) -> usize {
        self.accesses.len()
    }

    /// Rounds of the whole call.
    pub fn rounds(&self) -> u64 {
        self.turns[self.turns.len() - 1]
    }

    /// Turns that groups of aggregators take; one if they do not.
    pub fn turns(&self) -> usize {
        self.turns.len() - 1
    }

    /// The turn of a round. It begins when all processes have done their rounds of the turn before.
    pub fn turn_of(&self, round: u64) -> usize {
        self.turns.partition_point(|&first| first <= round) - 1
    }

    /// The rounds in which a process has anything to do, ascending: it accesses bytes that an aggregator handles then, or it is
    /// aggregator number `own`, and others do. Long stretches of the file that nobody accesses cost nothing.
    pub fn rounds_with_work(
        &self,
        process: usize,
        own: Option<u32>,
    ) -> impl Iterator<Item = u64> + '_ {
        let as_process = (0..self.domains.aggregators()).map(|a| (process, a));
        let as_aggregator = own
            .into_iter()
            .flat_map(|a| (0..self.accesses.len()).map(move |p| (p, a)));
        let pairs = as_process.chain(as_aggregator);
        let mut next: BinaryHeap<_> = pairs
            .filter_map(|(p, a)| Some(Reverse((self.next_round(p, a, 0)?, p, a))))
            .collect();
        std::iter::from_fn(move || {
            let Reverse((round, ..)) = *next.peek()?;
            while let Some(&Reverse((same, p, a))) = next.peek()
                && same == round
            {
                next.pop();
                let later = self.next_round(p, a, round + 1);
                next.extend(later.map(|later| Reverse((later, p, a))));
            }
            Some(round)
        })
    }

    /// The first round from `from` on in which bytes go between a process and an aggregator.
    fn next_round(&self, process: usize, aggregator: u32, from: u64) -> Option<u64> {
        let access = &self.accesses[process];
        let domain = self.domains.domain(aggregator);
        let first = self.turns[turn_of(&self.domains, aggregator)];
        let position = from.saturating_sub(first).checked_mul(self.buffer_bytes)?;
        if position >= domain.bytes() {
            return None;
        }
        let mut offset = domain.offset_of(position);
        loop {
            let rest = Extent::new(offset, MAX_OFFSET);
            let accessed = access.pieces_within(rest).next()?.start;
            offset = domain.pieces_from(accessed).next()?.start;
            if offset == accessed {
                return Some(first + domain.bytes_below(offset) / self.buffer_bytes);
            }
        }
    }

    /// Windows of the domain of an aggregator; some of them may have nothing that anybody accesses.
    pub fn windows(&self, aggregator: u32) -> u64 {
        self.domains
            .domain(aggregator)
            .bytes()
            .div_ceil(self.buffer_bytes)
    }

    /// What an aggregator handles in a round: a part of its domain, at most a buffer; `None` if it has nothing to do.
    pub fn window(&self, aggregator: u32, round: u64) -> Option<FileDomain> {
        let turn = turn_of(&self.domains, aggregator);
        if !(self.turns[turn]..self.turns[turn + 1]).contains(&round) {
            return None;
        }
        let first = (round - self.turns[turn]).checked_mul(self.buffer_bytes)?;
        self.domains
            .domain(aggregator)
            .window(first, self.buffer_bytes)
    }

    /// Bytes that go between a process and the aggregator of a window.
    pub fn bytes(&self, process: usize, window: &FileDomain) -> u64 {
        let access = &self.accesses[process];
        if !access.hull().is_some_and(|hull| hull.meets(window.span())) {
            return 0;
        }
        window
            .pieces()
            .map(|piece| access.bytes_within(piece))
            .sum()
    }

    /// The same bytes as ranges of the memory of the process: begin and length of each, ascending.
    pub fn memory<'p>(
        &'p self,
        process: usize,
        window: &FileDomain,
    ) -> impl Iterator<Item = (u64, u64)> + use<'a, 'p> {
        let access = &self.accesses[process];
        pieces_about(access, window).filter_map(|piece| {
            let begin = access.bytes_below(piece.start);
            let bytes = access.bytes_below(piece.end) - begin;
            (bytes > 0).then_some((begin, bytes))
        })
    }

    /// The pieces that go between a process and the aggregator of a window, by offset.
    pub fn transfers<'p>(
        &'p self,
        process: usize,
        window: &FileDomain,
    ) -> impl Iterator<Item = Transfer> + use<'a, 'p> {
        let access = &self.accesses[process];
        let window = *window;
        pieces_about(access, &window).flat_map(move |piece| {
            // In a piece of the window, buffer and file have the same distances; memory has the pieces one by one.
            let shift = piece.start - window.bytes_below(piece.start);
            let mut memory = None;
            access.pieces_within(piece).map(move |file| {
                let at = memory.unwrap_or_else(|| access.bytes_below(file.start));
                memory = Some(at + file.bytes());
                Transfer {
                    file,
                    memory: at,
                    buffer: file.start - shift,
                }
            })
        })
    }
}

/// The pieces of a window between the first byte of an access and its last one.
fn pieces_about(access: &Access, window: &FileDomain) -> impl Iterator<Item = Extent> + use<> {
    let hull = access.hull();
    let start = hull.map_or(u64::MAX, |hull| hull.start);
    let end = hull.map_or(0, |hull| hull.end);
    window
        .pieces_from(start)
        .take_while(move |piece| piece.start < end)
}

/// The number of the turn in which an aggregator works. One without a group has no bytes, so its turn does not matter.
fn turn_of(domains: &FileDomains, aggregator: u32) -> usize {
    match domains.are_sequential() {
        true => domains.group_of(aggregator).unwrap_or(0) as usize,
        false => 0,
    }
}
