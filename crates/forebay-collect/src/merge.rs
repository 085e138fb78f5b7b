//! Joins the records that several tables of one rank have of the same file, as if one process had done it all. The
//! tables are those of programs executed one after the other, forked children, helpers.
//!
//! Counters and times add up. The highest byte is the maximum. Time stamps are the earliest start and the latest
//! end. The longest call keeps its size. Common values are counted together before the four most frequent are
//! chosen. The layout of a module says which rule a counter follows.

use darshan_log::counters::{Common, FloatRule, Rule};
use darshan_log::{CounterModule, Record};
use forebay_count::track::COMMON_VALUES;
use std::collections::HashMap;

/// A value (an access size, a stride, or the shape of a selection) and how often it came.
pub type Tally = (Vec<i64>, i64);

/// One file as one process saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen<M: CounterModule> {
    /// The counters.
    pub record: Record<M>,
    /// All tracked values of each list of [`Layout::common`](darshan_log::counters::Layout). There may be more than the
    /// four that the record has.
    pub values: Vec<Vec<Tally>>,
}

impl<M: CounterModule> Seen<M> {
    /// Adds the record that another process of the same rank has of the same file. `later` began later.
    pub fn merge(&mut self, later: &Seen<M>) {
        self.record.keep_longest(&later.record);
        let layout = M::layout();
        let floats = self.record.fcounters.as_mut().iter_mut();
        for ((into, from), rule) in floats
            .zip(later.record.fcounters.as_ref())
            .zip(layout.float_rules)
        {
            match rule {
                FloatRule::Sum => *into += from,
                FloatRule::Max => *into = into.max(*from),
                FloatRule::Min if *into == 0.0 => *into = *from,
                FloatRule::Min if *from > 0.0 => *into = into.min(*from),
                FloatRule::Min | FloatRule::Keep | FloatRule::Extreme => {}
            }
        }
        let ints = self.record.counters.as_mut().iter_mut();
        for ((into, &from), rule) in ints.zip(later.record.counters.as_ref()).zip(layout.rules) {
            match rule {
                // Both are -1, so no process has counted it.
                Rule::Sum if *into < 0 && from < 0 => {}
                Rule::Sum => *into = (*into).max(0).saturating_add(from.max(0)),
                Rule::Max => *into = (*into).max(from),
                Rule::Keep if *into == 0 => *into = from,
                Rule::Keep | Rule::OfLongest | Rule::Common | Rule::Extreme => {}
            }
        }
        for (into, from) in self.values.iter_mut().zip(&later.values) {
            add_tallies(into, from);
        }
        self.choose_common();
    }

    /// Puts the most frequent values into the record, among equals the larger.
    pub fn choose_common(&mut self) {
        for (list, place) in self.values.iter_mut().zip(M::layout().common) {
            list.sort_by(|a, b| (b.1, &b.0).cmp(&(a.1, &a.0)));
            write_common(self.record.counters.as_mut(), place, list);
        }
    }
}

fn add_tallies(into: &mut Vec<Tally>, from: &[Tally]) {
    let mut at: HashMap<Vec<i64>, usize> = HashMap::new();
    for (n, (value, _)) in into.iter().enumerate() {
        at.insert(value.clone(), n);
    }
    for (value, count) in from {
        match at.get(value) {
            Some(&n) => into[n].1 = into[n].1.saturating_add(*count),
            None => {
                at.insert(value.clone(), into.len());
                into.push((value.clone(), *count));
            }
        }
    }
}

fn write_common(ints: &mut [i64], place: &Common, list: &[Tally]) {
    for n in 0..COMMON_VALUES {
        let at = place.first + n * place.words;
        let (value, count) = match list.get(n) {
            Some((value, count)) => (value.as_slice(), *count),
            None => (&[][..], 0),
        };
        for word in 0..place.words {
            ints[at + word] = value.get(word).copied().unwrap_or(0);
        }
        ints[place.first_count + n] = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darshan_log::Posix;
    use darshan_log::counters::posix::{Counter as C, FCounter as F};

    fn seen(
        ints: &[(C, i64)],
        floats: &[(F, f64)],
        strides: &[(i64, i64)],
        sizes: &[(i64, i64)],
    ) -> Seen<Posix> {
        let mut record = Record::new(1, 0);
        for &(counter, value) in ints {
            record.set(counter, value);
        }
        for &(counter, value) in floats {
            record.setf(counter, value);
        }
        let list = |of: &[(i64, i64)]| of.iter().map(|&(v, n)| (vec![v], n)).collect();
        let mut seen = Seen {
            record,
            values: vec![list(strides), list(sizes)],
        };
        seen.choose_common();
        seen
    }

    #[test]
    fn counters_add_and_the_highest_byte_is_the_highest() {
        let mut a = seen(
            &[
                (C::Opens, 1),
                (C::BytesRead, 10),
                (C::MaxByteRead, 99),
                (C::Mmaps, -1),
                (C::Mode, 0o644),
            ],
            &[],
            &[],
            &[],
        );
        let b = seen(
            &[
                (C::Opens, 2),
                (C::BytesRead, 5),
                (C::MaxByteRead, 50),
                (C::Mmaps, -1),
                (C::Mode, 0o600),
                (C::RenamedFrom, 7),
            ],
            &[],
            &[],
            &[],
        );
        a.merge(&b);
        let get = |c| a.record.get(c);
        assert_eq!((get(C::Opens), get(C::BytesRead)), (3, 15));
        assert_eq!((get(C::MaxByteRead), get(C::Mmaps)), (99, -1));
        assert_eq!((get(C::Mode), get(C::RenamedFrom)), (0o644, 7));
    }

    #[test]
    fn the_first_start_and_the_last_end_count_and_times_add() {
        let mut a = seen(
            &[],
            &[
                (F::OpenStartTimestamp, 2.0),
                (F::CloseEndTimestamp, 3.0),
                (F::ReadTime, 0.5),
            ],
            &[],
            &[],
        );
        let b = seen(
            &[],
            &[
                (F::OpenStartTimestamp, 1.0),
                (F::ReadStartTimestamp, 4.0),
                (F::CloseEndTimestamp, 5.0),
                (F::ReadTime, 0.25),
            ],
            &[],
            &[],
        );
        a.merge(&b);
        assert_eq!(a.record.getf(F::OpenStartTimestamp), 1.0);
        assert_eq!(a.record.getf(F::ReadStartTimestamp), 4.0);
        assert_eq!(a.record.getf(F::CloseEndTimestamp), 5.0);
        assert_eq!(a.record.getf(F::ReadTime), 0.75);
    }

    #[test]
    fn a_file_that_the_later_process_did_not_touch_keeps_its_start() {
        let mut a = seen(&[], &[(F::OpenStartTimestamp, 2.0)], &[], &[]);
        a.merge(&seen(&[], &[], &[], &[]));
        assert_eq!(a.record.getf(F::OpenStartTimestamp), 2.0);
    }

    #[test]
    fn the_longest_call_brings_its_size() {
        let longest = |time: f64, size: i64| {
            seen(
                &[(C::MaxReadTimeSize, size)],
                &[(F::MaxReadTime, time)],
                &[],
                &[],
            )
        };
        for (a, b, expected) in [((0.1, 1), (0.2, 2), 2), ((0.3, 1), (0.2, 2), 1)] {
            let mut merged = longest(a.0, a.1);
            merged.merge(&longest(b.0, b.1));
            assert_eq!(merged.record.get(C::MaxReadTimeSize), expected);
            assert_eq!(merged.record.getf(F::MaxReadTime), a.0.max(b.0));
        }
    }

    #[test]
    fn a_value_outside_of_both_top_fours_can_be_the_most_frequent_of_all() {
        let sizes = |of: [i64; 4]| [(of[0], 9), (of[1], 9), (of[2], 9), (of[3], 9), (77, 8)];
        let mut a = seen(&[], &[], &[], &sizes([1, 2, 3, 4]));
        assert_eq!(a.record.get(C::Access1Access), 4);
        a.merge(&seen(&[], &[], &[], &sizes([5, 6, 7, 8])));
        assert_eq!(a.record.get(C::Access1Access), 77);
        assert_eq!(a.record.get(C::Access1Count), 16);
        assert_eq!(a.record.get(C::Access2Access), 8);
    }

    #[test]
    fn strides_and_access_sizes_are_lists_of_their_own() {
        let mut a = seen(&[], &[], &[(100, 3)], &[(8, 5)]);
        a.merge(&seen(&[], &[], &[(200, 1)], &[(8, 1)]));
        let get = |c| a.record.get(c);
        assert_eq!((get(C::Stride1Stride), get(C::Stride1Count)), (100, 3));
        assert_eq!((get(C::Stride2Stride), get(C::Stride2Count)), (200, 1));
        assert_eq!((get(C::Access1Access), get(C::Access1Count)), (8, 6));
        assert_eq!((get(C::Access2Access), get(C::Access2Count)), (0, 0));
    }

    #[test]
    fn the_order_of_the_other_processes_does_not_matter() {
        let parts = [
            seen(&[(C::Writes, 1)], &[(F::WriteTime, 0.5)], &[], &[(1, 1)]),
            seen(&[(C::Writes, 2)], &[(F::WriteTime, 0.25)], &[], &[(2, 2)]),
            seen(&[(C::Writes, 4)], &[(F::WriteTime, 2.0)], &[], &[(1, 3)]),
        ];
        let join = |order: [usize; 3]| {
            let mut all = parts[order[0]].clone();
            all.merge(&parts[order[1]]);
            all.merge(&parts[order[2]]);
            all
        };
        assert_eq!(join([0, 1, 2]), join([0, 2, 1]));
        assert_eq!(join([0, 1, 2]), join([2, 1, 0]));
    }
}
