//! The reader's side of I/O libraries: their records as values.

use core::sync::atomic::Ordering::Relaxed;

use crate::layout::Kind;
use crate::library::{durations, places};
use crate::read::{Counters, File, Frequency};
use crate::track::{COMMON_VALUES, TRACKED_VALUES};

/// Words by which accesses of datasets and variables differ: bytes, five lengths, five strides.
pub const WIDE_WORDS: usize = 11;
/// An access of that many words, and how often it occurred.
pub type WideAccess = ([i64; WIDE_WORDS], i64);

const _: () = assert!(WIDE_WORDS == Kind::H5d.shape().value_words);
const _: () = assert!(WIDE_WORDS == Kind::PnetcdfVar.shape().value_words);

/// Puts the most frequent first, among equals the larger. Accesses of no bytes are not shown, so they go last.
fn sort(all: &mut [WideAccess]) {
    all.sort_unstable_by(|a, b| (b.0[0] != 0, b.1, b.0).cmp(&(a.0[0] != 0, a.1, a.0)));
}

impl File<'_, '_> {
    /// Counters of MPI-IO.
    pub fn mpiio(&self) -> Option<Counters<51, 17>> {
        let mut counters = self.library(Kind::Mpiio)?;
        let (values, counts) = places(Kind::Mpiio)?.access;
        let mut room = [(0, 0); TRACKED_VALUES];
        let shown = self
            .mpiio_accesses(&mut room)
            .iter()
            .filter(|(bytes, _)| *bytes != 0);
        let mut shown = shown.take(COMMON_VALUES);
        for at in 0..COMMON_VALUES {
            (counters.ints[values + at], counters.ints[counts + at]) =
                shown.next().copied().unwrap_or_default();
        }
        Some(counters)
    }

    /// Counters of an HDF5 file.
    pub fn h5f(&self) -> Option<Counters<3, 5>> {
        self.library(Kind::H5f)
    }

    /// Counters of an HDF5 dataset.
    pub fn h5d(&self) -> Option<Counters<94, 17>> {
        self.with_wide(Kind::H5d)
    }

    /// Counters of a PnetCDF file.
    pub fn pnetcdf_file(&self) -> Option<Counters<9, 8>> {
        self.library(Kind::PnetcdfFile)
    }

    /// Counters of a PnetCDF variable.
    pub fn pnetcdf_var(&self) -> Option<Counters<120, 17>> {
        self.with_wide(Kind::PnetcdfVar)
    }

    /// All sizes of MPI-IO accesses whose frequency is known, the most frequent first.
    pub fn mpiio_accesses<'o>(&self, room: &'o mut [Frequency; TRACKED_VALUES]) -> &'o [Frequency] {
        match (self.kind, places(self.kind)) {
            (Kind::Mpiio, Some(places)) => self.common(0, places.access, room),
            _ => &[],
        }
    }

    /// All accesses of a dataset or variable whose frequency is known, the most frequent first.
    pub fn wide_accesses<'o>(
        &self,
        room: &'o mut [WideAccess; TRACKED_VALUES],
    ) -> &'o [WideAccess] {
        let mut n = 0;
        if let (Kind::H5d | Kind::PnetcdfVar, Some(places)) = (self.kind, places(self.kind)) {
            let (record, table) = self.record();
            record.tracked(table, 0, places.access, WIDE_WORDS, |words, count| {
                if let Some(place) = room.get_mut(n) {
                    *place = (
                        core::array::from_fn(|at| words[at].load(Relaxed) as i64),
                        count,
                    );
                    n += 1;
                }
            });
        }
        sort(&mut room[..n]);
        &room[..n]
    }

    fn library<const I: usize, const F: usize>(&self, kind: Kind) -> Option<Counters<I, F>> {
        let mut counters = self.counters(kind, durations(kind))?;
        // The counters after the lengths of time are found out when ranks are joined.
        counters.floats[durations(kind).end..].fill(0.0);
        Some(counters)
    }

    fn with_wide<const I: usize>(&self, kind: Kind) -> Option<Counters<I, 17>> {
        let mut counters = self.library::<I, 17>(kind)?;
        let (values, counts) = places(kind)?.access;
        let mut room = [([0; WIDE_WORDS], 0); TRACKED_VALUES];
        let shown = self
            .wide_accesses(&mut room)
            .iter()
            .filter(|(words, _)| words[0] != 0);
        let mut shown = shown.take(COMMON_VALUES);
        for at in 0..COMMON_VALUES {
            let (words, count) = shown.next().copied().unwrap_or_default();
            counters.ints[values + at * WIDE_WORDS..][..WIDE_WORDS].copy_from_slice(&words);
            counters.ints[counts + at] = count;
        }
        Some(counters)
    }
}
