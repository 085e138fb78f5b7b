//! A measurement of the locks of a file system: which writes to make, and what their times say.
//!
//! Two clients write in turns, never at the same time. So a write that takes longer than one to a file of its own has waited
//! for the other client to give up a lock. Where the writes lie tells the protocols apart:
//!
//! | pattern | token | on servers | granules | whole file | none |
//! |---|---|---|---|---|---|
//! | each client rewrites its own place | waits below a granule | the same | the same | waits | free |
//! | every other block, ascending | waits | waits | free from a granule on | waits | free |
//! | blocks of different servers, ascending | waits | free from a stripe on | as above | waits | free |
//!
//! What comes after what is in [`measuring`](super::Measuring).
//!
//! Nothing here looks at a clock: times come in as numbers.

use super::{LockProtocol, MeasuredLocks};

/// Bytes of each write: a page, so that no client has to read before it writes.
pub const WRITE_BYTES: u64 = 4096;
/// Turns of a pattern; each client writes once in each.
pub const TURNS: u32 = 20;
/// Blocks between two writes of a client that stay on one server: a multiple of all numbers of servers up to 8.
const ROUND_OF_SERVERS: u64 = 840;
/// The most servers that are counted.
const MAX_SERVERS: u64 = 15;
/// First turns that do not count: a file gets its first locks and blocks.
pub(super) const WARM_UP: usize = 2;
/// A share of the time of a write that is noise in any case: one in so many.
const NOISE_SHARE: u64 = 10;
/// A write that takes at most so much longer has waited for nobody: 20 us, less than a message to another client takes.
const MIN_HANDOVER_NANOS: u64 = 20_000;

/// Why nothing is said.
pub(super) const TOO_NOISY: &str = "the times are too noisy";

/// Where the clients write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// Each to a file of its own: what a write costs that waits for nobody.
    Apart,
    /// Each rewrites one place; the places are so many bytes apart.
    Fixed {
        /// Bytes between the places.
        distance: u64,
    },
    /// Each every other block of so many bytes, ascending.
    Interleaved {
        /// Bytes of a block.
        block: u64,
    },
    /// Each a block in every 840, ascending. The blocks of the two are `step` apart: on one server if the number of
    /// servers divides that, or the blocks are smaller than a stripe.
    Strided {
        /// Bytes of a block.
        block: u64,
        /// Blocks between the two clients.
        step: u64,
    },
}

impl Pattern {
    /// Where a client writes in a turn: the number of the file and the offset.
    pub fn place(self, client: u32, turn: u32) -> (u32, u64) {
        let (client, turn) = (u64::from(client), u64::from(turn));
        match self {
            Pattern::Apart => (client as u32, turn * (64 << 10)),
            Pattern::Fixed { distance } => (0, client * distance),
            Pattern::Interleaved { block } => (0, (2 * turn + client) * block),
            Pattern::Strided { block, step } => {
                (0, (turn * ROUND_OF_SERVERS + client * step) * block)
            }
        }
    }
}

/// The times of all writes of a pattern in nanoseconds, in the order of turns, two in each turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Where they were.
    pub pattern: Pattern,
    /// How long they took.
    pub nanos: Vec<u64>,
}

impl Sample {
    /// The times of each client.
    fn spreads(&self) -> [Spread; 2] {
        let of = |client| self.nanos.iter().copied().skip(client).step_by(2);
        [0, 1].map(|client| Spread::of(&of(client).collect::<Vec<_>>()))
    }
}

/// The patterns to begin with. [`further_patterns`] has those that depend on what they show.
pub fn first_patterns() -> Vec<Pattern> {
    let mut all = vec![Pattern::Apart];
    let distances = [12, 16, 18, 20, 22, 24, 30].map(|power| 1 << power);
    all.extend(distances.map(|distance| Pattern::Fixed { distance }));
    let blocks = [12, 16, 20, 22, 24].map(|power| 1 << power);
    // Blocks of the last size begin on one server, whatever the stripe and the number of servers.
    let blocks = blocks.into_iter().chain([ROUND_OF_SERVERS << 26]);
    all.extend(blocks.map(|block| Pattern::Interleaved { block }));
    all.extend((16..=24).map(|power| Pattern::Strided {
        block: 1 << power,
        step: 1,
    }));
    all
}

/// The patterns that count the servers, if those of [`first_patterns`] show locks on servers.
pub fn further_patterns(samples: &[Sample]) -> Vec<Pattern> {
    match judge(samples, 2).seen {
        ProbeResult::Locks(MeasuredLocks {
            protocol: LockProtocol::ServerSide,
            granule_bytes: Some(block),
            ..
        }) => (2..=MAX_SERVERS)
            .map(|step| Pattern::Strided { block, step })
            .collect(),
        _ => Vec::new(),
    }
}

/// What the writes of a pattern did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// They took as long as those to a file of its own.
    Free,
    /// They took longer.
    Waits,
    /// The times are too noisy to tell.
    Unclear,
}

/// What a measurement has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeResult {
    /// Locks, or that there are none between these clients.
    Locks(MeasuredLocks),
    /// No client had to wait for another one, but for the file system they are one client: two nodes may differ.
    OneClient,
    /// The times fit no protocol, or are too noisy.
    Unclear,
}

/// A measurement, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What it has seen.
    pub seen: ProbeResult,
    /// Why, in words.
    pub reason: &'static str,
    /// Each pattern, with the median of its times in nanoseconds and what it did.
    pub patterns: Vec<(Pattern, u64, Wait)>,
}

/// Judges the samples of two processes. `clients` says how many clients of the file system they are: those of one node that
/// use one mount are one.
pub fn judge(samples: &[Sample], clients: u32) -> Judgement {
    let apart = samples.iter().find(|s| s.pattern == Pattern::Apart);
    // Each client counts for itself: one may be slower, and the first that comes to a server gets its lock for nothing.
    let bases = apart.map_or([Spread::default(); 2], |s| s.spreads());
    let mut handovers = Vec::new();
    let patterns: Vec<_> = samples
        .iter()
        .map(|sample| {
            let spreads = sample.spreads();
            let waits = [0, 1].map(|client| spreads[client].against(&bases[client]));
            let wait = match waits {
                [Wait::Waits, _] | [_, Wait::Waits] => Wait::Waits,
                [Wait::Free, Wait::Free] => Wait::Free,
                _ => Wait::Unclear,
            };
            let more = |client: usize| spreads[client].median - bases[client].median;
            let waited = [0, 1].into_iter().filter(|&n| waits[n] == Wait::Waits);
            handovers.extend(waited.map(more).max());
            let longest = spreads[0].median.max(spreads[1].median);
            (sample.pattern, longest, wait)
        })
        .collect();
    handovers.sort_unstable();
    let times = Times {
        write_nanos: bases[0].median.max(bases[1].median),
        handover_nanos: handovers.get(handovers.len() / 2).copied().unwrap_or(0),
    };
    let (seen, reason) = seen(&patterns, times, clients);
    Judgement {
        seen,
        reason,
        patterns,
    }
}

/// Of the slower client.
#[derive(Clone, Copy)]
struct Times {
    write_nanos: u64,
    handover_nanos: u64,
}

fn seen(
    patterns: &[(Pattern, u64, Wait)],
    times: Times,
    clients: u32,
) -> (ProbeResult, &'static str) {
    // What the writes of a pattern did, by the number in it, ascending.
    let of = |number: fn(Pattern) -> Option<u64>| -> Vec<(u64, Wait)> {
        let each = |&(pattern, _, wait): &(Pattern, u64, Wait)| Some((number(pattern)?, wait));
        let mut all: Vec<_> = patterns.iter().filter_map(each).collect();
        all.sort_unstable_by_key(|&(number, _)| number);
        all
    };
    let fixed = of(|p| match p {
        Pattern::Fixed { distance } => Some(distance),
        _ => None,
    });
    let interleaved = of(|p| match p {
        Pattern::Interleaved { block } => Some(block),
        _ => None,
    });
    let strided = of(|p| match p {
        Pattern::Strided { block, step: 1 } => Some(block),
        _ => None,
    });
    let locks = |protocol, granule_bytes, servers| {
        ProbeResult::Locks(MeasuredLocks {
            protocol,
            granule_bytes,
            servers,
            write_nanos: times.write_nanos,
            handover_nanos: times.handover_nanos,
        })
    };
    if patterns.iter().any(|(.., wait)| *wait == Wait::Unclear) {
        return (ProbeResult::Unclear, TOO_NOISY);
    }
    let all = |list: &[(u64, Wait)], wait| !list.is_empty() && list.iter().all(|&(_, w)| w == wait);
    let unclear = |reason| (ProbeResult::Unclear, reason);
    if all(&fixed, Wait::Free) && all(&interleaved, Wait::Free) && all(&strided, Wait::Free) {
        return match clients {
            0 | 1 => (
                ProbeResult::OneClient,
                "no lock traffic seen from this node; two nodes may differ",
            ),
            _ => (
                locks(LockProtocol::None, None, None),
                "no client has waited for another one, wherever they wrote",
            ),
        };
    }
    let all_wait_below = |list: &[(u64, Wait)], end: u64| {
        let mut below = list.iter().filter(|&&(number, _)| number < end).peekable();
        below.peek().is_some() && below.all(|&(_, wait)| wait == Wait::Waits)
    };
    if let Some(stripe) = free_from_somewhere(&strided)
        && all_wait_below(&interleaved, stripe)
        && all_wait_below(&fixed, stripe)
        && !is_granules(&fixed, &interleaved)
    {
        return (
            locks(
                LockProtocol::ServerSide,
                Some(stripe),
                servers(patterns, stripe),
            ),
            "clients wait where they write blocks of one server in turns, and not where each keeps to servers of its own",
        );
    }
    if all(&fixed, Wait::Waits) && all(&strided, Wait::Waits) {
        return (
            locks(LockProtocol::WholeFile, None, None),
            "clients wait for each other wherever they write in a file",
        );
    }
    let Some(granule) = free_from(&fixed) else {
        return unclear("the times do not say from which distance on two places are apart");
    };
    if is_granules(&fixed, &interleaved) {
        return (
            locks(LockProtocol::Granules, Some(granule), None),
            "clients wait only where they write in one granule",
        );
    }
    let above: Vec<_> = interleaved
        .into_iter()
        .filter(|&(block, _)| block >= granule)
        .collect();
    if all(&above, Wait::Waits) && all(&strided, Wait::Waits) {
        return (
            locks(LockProtocol::ClientToken, Some(granule), None),
            "a client that keeps to its place waits for nobody; where blocks alternate, a lock moves with each of them",
        );
    }
    unclear("the times fit no protocol that this probe knows")
}

/// The smallest number from which on all are free, with all that wait below.
fn free_from(list: &[(u64, Wait)]) -> Option<u64> {
    let first = list.iter().position(|&(_, wait)| wait == Wait::Free)?;
    let (below, above) = list.split_at(first);
    let is_step = below.iter().all(|&(_, wait)| wait == Wait::Waits)
        && above.iter().all(|&(_, wait)| wait == Wait::Free);
    is_step.then_some(list[first].0)
}

/// The smallest number that is free, with all that wait below. Larger ones may be on one server again.
fn free_from_somewhere(list: &[(u64, Wait)]) -> Option<u64> {
    let first = list.iter().position(|&(_, wait)| wait == Wait::Free)?;
    let below = list[..first].iter().all(|&(_, wait)| wait == Wait::Waits);
    below.then_some(list[first].0)
}

/// Is every block from a granule on free, although somebody waits below?
fn is_granules(fixed: &[(u64, Wait)], interleaved: &[(u64, Wait)]) -> bool {
    let Some(granule) = free_from(fixed) else {
        return false;
    };
    let as_granules = |&(block, wait): &(u64, Wait)| (wait == Wait::Free) == (block >= granule);
    fixed
        .first()
        .is_some_and(|&(smallest, _)| smallest < granule)
        && interleaved.iter().all(as_granules)
}

/// The number of servers, or a divisor of it: how far apart blocks of one server are.
fn servers(patterns: &[(Pattern, u64, Wait)], stripe: u64) -> Option<u32> {
    let mut steps: Vec<(u64, Wait)> = patterns
        .iter()
        .filter_map(|&(pattern, _, wait)| match pattern {
            Pattern::Strided { block, step } if block == stripe => Some((step, wait)),
            _ => None,
        })
        .collect();
    steps.sort_unstable_by_key(|&(step, _)| step);
    let first = steps.iter().find(|&&(_, wait)| wait != Wait::Free)?;
    (first.1 == Wait::Waits).then_some(first.0 as u32)
}

/// The middle of the times of a client, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Spread {
    low: u64,
    median: u64,
    high: u64,
}

impl Spread {
    /// Quartiles, without the first turns.
    fn of(nanos: &[u64]) -> Self {
        let mut sorted = nanos[WARM_UP.min(nanos.len())..].to_vec();
        sorted.sort_unstable();
        let at = |quarter: usize| sorted.get(sorted.len() * quarter / 4).copied();
        Spread {
            low: at(1).unwrap_or(0),
            median: at(2).unwrap_or(0),
            high: at(3).unwrap_or(0),
        }
    }

    /// A lock that moves with every write makes all writes longer, not only some.
    fn against(&self, base: &Spread) -> Wait {
        let noise = (base.high - base.low).max(base.median / NOISE_SHARE);
        let more = self.median.saturating_sub(base.median);
        if more <= MIN_HANDOVER_NANOS || more <= 2 * noise {
            Wait::Free
        } else if self.low > base.high && more > 3 * noise {
            Wait::Waits
        } else {
            Wait::Unclear
        }
    }
}
