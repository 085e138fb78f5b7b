//! Which images are looked at: of the writes since the last flush any subset may have reached the disk.

use crate::log::{BLOCK_BYTES, Event, Log};
use std::fmt;
use std::str::FromStr;

/// Up to so many writes since the last flush, every subset is taken.
const ALL_SUBSETS_UP_TO: usize = 8;

/// A write that reached the disk, or one block of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Index in the log.
    pub event: usize,
    /// Only this block of the disk; `None`: all.
    pub block: Option<u64>,
}

/// A rule that says which writes since the last flush reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Those whose bit is set; for up to 8 writes.
    Bits,
    /// All up to some number.
    Prefix,
    /// None.
    None,
    /// Each with a probability of 10 %.
    Tenth,
    /// Of 50 %.
    Half,
    /// Of 90 %.
    NineTenths,
    /// All but one.
    AllButOne,
    /// Only one.
    OnlyOne,
    /// A prefix, and of the write after it some blocks.
    Torn,
}

const RULES: [(Rule, &str); 9] = [
    (Rule::Bits, "bits"),
    (Rule::Prefix, "prefix"),
    (Rule::None, "none"),
    (Rule::Tenth, "tenth"),
    (Rule::Half, "half"),
    (Rule::NineTenths, "nine-tenths"),
    (Rule::AllButOne, "all-but-one"),
    (Rule::OnlyOne, "only-one"),
    (Rule::Torn, "torn"),
];

/// One image: a moment, and what of the writes since the last flush is on the disk. As text `POINT:RULE:SEED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pick {
    /// The power goes before this event of the log.
    pub point: usize,
    /// What reached the disk.
    pub rule: Rule,
    /// Settles what the rule leaves open.
    pub seed: u64,
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = RULES
            .iter()
            .find(|(rule, _)| *rule == self.rule)
            .map_or("", |(_, name)| name);
        write!(f, "{}:{name}:{}", self.point, self.seed)
    }
}

impl FromStr for Pick {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text} is not POINT:RULE:SEED");
        let mut parts = text.trim().split(':');
        let mut next = || parts.next().ok_or_else(bad);
        let point = next()?.parse().map_err(|_| bad())?;
        let name = next()?;
        let seed = next()?.parse().map_err(|_| bad())?;
        let rule = RULES
            .iter()
            .find(|(_, known)| *known == name)
            .ok_or_else(bad)?
            .0;
        Ok(Pick { point, rule, seed })
    }
}

impl Log {
    /// Index after the last flush of a disk before `point`, and after [`crate::log::START`]; all before is durable.
    pub fn last_flush(&self, disk: u8, point: usize) -> usize {
        let start = self.start().min(point);
        let flush = Event::Flush { disk };
        let since = self.events[start..point]
            .iter()
            .rposition(|event| *event == flush);
        since.map_or(start, |at| start + at + 1)
    }

    /// The writes that may be lost at `point`.
    fn pending(&self, point: usize, disks: u8) -> Vec<usize> {
        let mut found = Vec::new();
        for disk in 0..disks {
            let of_disk = |index: &usize| self.events[*index].changes() == Some(disk);
            found.extend((self.last_flush(disk, point)..point).filter(of_disk));
        }
        found.sort_unstable();
        found
    }

    fn extent(&self, event: usize) -> (u64, u64) {
        match &self.events[event] {
            Event::Write { at, data, .. } => (*at, data.len() as u64),
            Event::Zero { at, bytes, .. } => (*at, *bytes),
            Event::Flush { .. } | Event::Mark(_) => (0, 0),
        }
    }

    /// What a pick leaves of the writes since the last flush.
    pub fn pieces(&self, pick: Pick, disks: u8) -> Vec<Piece> {
        let pending = self.pending(pick.point, disks);
        let mut random = fastrand::Rng::with_seed(pick.seed);
        let whole = |event: usize| Piece { event, block: None };
        let each = |keep: &mut dyn FnMut(usize) -> bool| {
            let kept = pending.iter().enumerate().filter(|(index, _)| keep(*index));
            kept.map(|(_, event)| whole(*event)).collect::<Vec<_>>()
        };
        let one = if pending.is_empty() {
            0
        } else {
            random.usize(..pending.len())
        };
        match pick.rule {
            Rule::Bits => each(&mut |index| pick.seed >> index.min(63) & 1 == 1),
            Rule::Prefix => each(&mut |index| index <= one),
            Rule::None => Vec::new(),
            Rule::Tenth => each(&mut |_| random.f64() < 0.1),
            Rule::Half => each(&mut |_| random.f64() < 0.5),
            Rule::NineTenths => each(&mut |_| random.f64() < 0.9),
            Rule::AllButOne => each(&mut |index| index != one),
            Rule::OnlyOne => each(&mut |index| index == one),
            Rule::Torn => {
                let mut pieces = each(&mut |index| index < one);
                if let Some(event) = pending.get(one) {
                    let (at, bytes) = self.extent(*event);
                    let block = BLOCK_BYTES as u64;
                    for number in at / block..(at + bytes).div_ceil(block) {
                        if random.bool() {
                            pieces.push(Piece {
                                event: *event,
                                block: Some(number),
                            });
                        }
                    }
                }
                pieces
            }
        }
    }

    /// About `count` picks, spread over the log, or all there are if these are fewer. The same seed gives the same picks.
    pub fn picks(&self, count: usize, seed: u64, disks: u8) -> Vec<Pick> {
        let mut random = fastrand::Rng::with_seed(seed);
        let (start, end) = (self.start(), self.events.len());
        let mut all = Vec::new();
        // What is pending is largest before a flush; what is promised changes at a mark.
        for point in start..=end {
            let is_border = self
                .events
                .get(point)
                .is_none_or(|event| event.changes().is_none());
            let pending = self.pending_at_most(point, disks, ALL_SUBSETS_UP_TO);
            if let (true, Some(pending)) = (is_border, pending) {
                all.extend((0..1u64 << pending).map(|seed| Pick {
                    point,
                    rule: Rule::Bits,
                    seed,
                }));
            }
        }
        random.shuffle(&mut all);
        // A third of the picks are drawn where there are too many subsets to take all.
        all.truncate(count - count / 3);
        while all.len() < count && start < end {
            let point = random.usize(start..=end);
            let rule = RULES[random.usize(1..RULES.len())].0;
            all.push(Pick {
                point,
                rule,
                seed: random.u64(..1 << 32),
            });
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    fn pending_at_most(&self, point: usize, disks: u8, most: usize) -> Option<usize> {
        let pending = self.pending(point, disks).len();
        (pending <= most).then_some(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Writer;

    fn log() -> Log {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.write(0, 0, &[9; 4096]).unwrap();
        writer.mark(b"start").unwrap();
        writer.write(0, 4096, &[1; 8192]).unwrap();
        writer.write(1, 0, &[2; 4096]).unwrap();
        writer.flush_of(0).unwrap();
        writer.write(0, 0, &[3; 4096]).unwrap();
        writer.mark(b"ack 0").unwrap();
        Log::read(bytes.as_slice()).unwrap()
    }

    #[test]
    fn a_flush_makes_the_writes_of_its_own_disk_durable() {
        let log = log();
        assert_eq!(log.pending(4, 2), [2, 3]);
        assert_eq!(log.pending(7, 2), [3, 5]);
    }

    #[test]
    fn every_subset_of_a_few_writes_is_picked() {
        let log = log();
        let picks = log.picks(1000, 7, 2);
        let at_the_end = picks
            .iter()
            .filter(|pick| pick.point == 7 && pick.rule == Rule::Bits);
        assert_eq!(at_the_end.count(), 4);
        assert_eq!(picks, log.picks(1000, 7, 2));
        assert_ne!(picks, log.picks(1000, 8, 2));
    }

    #[test]
    fn a_pick_is_read_as_it_is_written() {
        for (rule, _) in RULES {
            let pick = Pick {
                point: 12,
                rule,
                seed: 34,
            };
            assert_eq!(pick.to_string().parse(), Ok(pick));
        }
        assert!("12:all".parse::<Pick>().is_err());
    }

    #[test]
    fn a_torn_write_has_whole_blocks() {
        let log = log();
        for seed in 0..50 {
            let pieces = log.pieces(
                Pick {
                    point: 3,
                    rule: Rule::Torn,
                    seed,
                },
                2,
            );
            assert!(
                pieces
                    .iter()
                    .all(|piece| piece.event == 2 && matches!(piece.block, Some(1 | 2))),
                "{pieces:?}"
            );
        }
    }
}
