//! One record: its words, and the values whose frequency it tracks. It does not know what a counter means.

use core::sync::atomic::{AtomicU64, Ordering, Ordering::Relaxed};

use crate::heap;
use crate::layout::*;
use crate::table::{Host, Table};
use crate::track::{self, Tracked};

/// The words of one record.
#[derive(Clone, Copy)]
pub struct Record<'t> {
    /// All of them, the head first.
    pub words: &'t [AtomicU64],
    /// Its kind.
    pub kind: Kind,
}

/// The words that the rules of one kind change, with lengths that the compiler knows.
pub(crate) struct SizedWords<'t, const INTS: usize, const TIMES: usize, const STATE: usize> {
    pub ints: &'t [AtomicU64; INTS],
    pub times: &'t [AtomicU64; TIMES],
    pub state: &'t [AtomicU64; STATE],
}

impl<'t, const INTS: usize, const TIMES: usize, const STATE: usize>
    SizedWords<'t, INTS, TIMES, STATE>
{
    #[inline(always)]
    pub fn of(record: &Record<'t>) -> Option<Self> {
        let (ints, rest) = record.words.get(HEAD_WORDS..)?.split_first_chunk()?;
        let (times, rest) = rest.split_first_chunk()?;
        let state = rest.first_chunk()?;
        Some(SizedWords { ints, times, state })
    }
}

impl<'t> Record<'t> {
    /// Record id; 0 if the record is gone.
    #[inline(always)]
    pub fn id(&self) -> u64 {
        self.words[ID].load(Ordering::Acquire)
    }

    /// True if it stands for several files.
    #[inline(always)]
    pub fn is_folded(&self) -> bool {
        self.words[KIND_FLAGS].load(Relaxed) & FOLDED != 0
    }

    /// True if it has counted anything.
    pub fn is_used(&self) -> bool {
        self.ints()
            .iter()
            .chain(self.times())
            .any(|w| w.load(Relaxed) != 0)
    }

    /// Integer counters.
    #[inline(always)]
    pub fn ints(&self) -> &'t [AtomicU64] {
        &self.words[HEAD_WORDS..HEAD_WORDS + self.kind.shape().ints]
    }

    /// Time counters.
    #[inline(always)]
    pub fn times(&self) -> &'t [AtomicU64] {
        let s = self.kind.shape();
        &self.words[HEAD_WORDS + s.ints..HEAD_WORDS + s.ints + s.times]
    }

    /// What the rules remember.
    #[inline(always)]
    pub fn state(&self) -> &'t [AtomicU64] {
        let s = self.kind.shape();
        &self.words[HEAD_WORDS + s.ints + s.times..]
    }

    /// Counts `n` more of `value` in a set of tracked values. Its four places begin at the given indices of the integer
    /// counters, first those of values, then those of counts. The caller holds the lock of the record.
    #[inline(always)]
    pub fn track(
        &self,
        table: &Table<'t>,
        set: usize,
        (values, counts): (usize, usize),
        value: &[i64],
        n: i64,
        host: &impl Host,
    ) {
        let ints = self.ints();
        let values = &ints[values..values + track::COMMON_VALUES * value.len()];
        let counts = &ints[counts..counts + track::COMMON_VALUES];
        if track::track(values, counts, value, n) == Tracked::NeedsOverflow {
            self.track_overflow(table, set, value, n, host);
        }
    }

    fn track_overflow(
        &self,
        table: &Table<'t>,
        set: usize,
        value: &[i64],
        n: i64,
        host: &impl Host,
    ) {
        let area = self.overflow(table, set, value.len()).or_else(|| {
            let cell = heap::overflow_area(table, value.len(), host)?;
            self.words[OVERFLOW].fetch_or(u64::from(cell) << (32 * set), Relaxed);
            self.overflow(table, set, value.len())
        });
        match area {
            Some(area) => {
                track::track_overflow(area, value, n);
            }
            None => {
                self.words[KIND_FLAGS].fetch_or(VALUES_LOST, Relaxed);
            }
        }
    }

    /// The overflow area of a set, if it has one.
    fn overflow(
        &self,
        table: &Table<'t>,
        set: usize,
        value_words: usize,
    ) -> Option<&'t [AtomicU64]> {
        let cell = self.overflow_cell(set);
        let at = cell as usize * CELL_WORDS;
        (cell != 0).then(|| {
            table
                .words()
                .get(at..at + track::overflow_words(value_words))
        })?
    }

    /// The cell of that area, or 0.
    pub(crate) fn overflow_cell(&self, set: usize) -> u32 {
        (self.words[OVERFLOW].load(Relaxed) >> (32 * set)) as u32
    }

    /// Calls `act` with the `value_words` words of every tracked value of a set and its count; the other arguments are
    /// those of [`Record::track`].
    pub fn tracked(
        &self,
        table: &Table<'t>,
        set: usize,
        (values, counts): (usize, usize),
        value_words: usize,
        mut act: impl FnMut(&[AtomicU64], i64),
    ) {
        let ints = self.ints();
        let values = ints[values..].chunks_exact(value_words);
        let counts = &ints[counts..counts + track::COMMON_VALUES];
        let inside = values.zip(counts);
        let area = self.overflow(table, set, value_words).unwrap_or(&[]);
        let outside = area
            .chunks_exact(value_words + 1)
            .map(|place| (&place[..value_words], &place[value_words]));
        for (value, count) in inside.chain(outside) {
            let n = count.load(Relaxed) as i64;
            if n != 0 {
                act(value, n);
            }
        }
    }
}
