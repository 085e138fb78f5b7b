//! Records of a fixed size: one file (dataset, variable, object) as one rank saw it.

use std::fmt;

use crate::counters::{
    CounterName, Layout, bgq, daos, dfs, h5d, h5f, layout, mpiio, pnetcdf_file, pnetcdf_var, posix,
    stdio,
};
use crate::upgrade::Upgrade;
use crate::{ModuleId, upgrade};

/// The names of a module's counters as enums.
pub trait Typed {
    /// Integer counters.
    type Counter: CounterName;
    /// Floating point counters.
    type FCounter: CounterName;
}

/// A module whose records are a fixed number of counters. Implemented by the marker types
/// [`Posix`], [`MpiIo`], [`Stdio`], [`H5f`], [`H5d`], [`PnetcdfFile`], [`PnetcdfVar`], [`Bgq`],
/// [`Dfs`] and [`Daos`].
pub trait CounterModule: Typed + Copy + fmt::Debug + PartialEq + 'static {
    /// `[i64; number of integer counters]`.
    type Ints: AsRef<[i64]> + AsMut<[i64]> + Copy + fmt::Debug + PartialEq;
    /// `[f64; number of floating point counters]`.
    type Floats: AsRef<[f64]> + AsMut<[f64]> + Copy + fmt::Debug + PartialEq;
    /// What a record has besides counters.
    type Extra: Extra;
    /// The module.
    const ID: ModuleId;
    /// Record version that [`LogWriter`](crate::LogWriter) writes, and to which older ones
    /// are converted.
    const VERSION: u32;
    /// All counters zero.
    const ZERO: (Self::Ints, Self::Floats);
    /// Names and meaning of the counters.
    fn layout() -> &'static Layout;
    /// How records of older versions become current ones.
    #[doc(hidden)]
    fn upgrade() -> &'static Upgrade;
}

/// What a record has besides id, rank and counters, as 8-byte words before and behind them.
pub trait Extra: Copy + Default + fmt::Debug + PartialEq {
    /// Words between rank and counters.
    const HEAD: usize;
    /// Words behind the counters.
    const TAIL: usize;
    /// Decodes `HEAD` and `TAIL` words, which are in the log's own byte order.
    #[doc(hidden)]
    fn from_words(head: &[u64], tail: &[u64]) -> Self;
    /// Encodes the words that `from_words` takes.
    #[doc(hidden)]
    fn push_words(&self, head: &mut Vec<u64>, tail: &mut Vec<u64>);
}

impl Extra for () {
    const HEAD: usize = 0;
    const TAIL: usize = 0;
    fn from_words(_: &[u64], _: &[u64]) {}
    fn push_words(&self, _: &mut Vec<u64>, _: &mut Vec<u64>) {}
}

/// The file that a dataset or variable lies in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parent {
    /// Record id of the file; 0 if the log is too old to say (H5D version 1).
    pub file_id: u64,
}

impl Extra for Parent {
    const HEAD: usize = 1;
    const TAIL: usize = 0;
    fn from_words(head: &[u64], _: &[u64]) -> Self {
        Parent { file_id: head[0] }
    }
    fn push_words(&self, head: &mut Vec<u64>, _: &mut Vec<u64>) {
        head.push(self.file_id);
    }
}

/// Where a DAOS file lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DaosContainer {
    /// UUID of the pool, as two little-endian words.
    pub pool: [u64; 2],
    /// UUID of the container, as two little-endian words.
    pub container: [u64; 2],
}

impl Extra for DaosContainer {
    const HEAD: usize = 0;
    const TAIL: usize = 4;
    fn from_words(_: &[u64], tail: &[u64]) -> Self {
        DaosContainer {
            pool: [tail[0], tail[1]],
            container: [tail[2], tail[3]],
        }
    }
    fn push_words(&self, _: &mut Vec<u64>, tail: &mut Vec<u64>) {
        tail.extend(self.pool.iter().chain(&self.container));
    }
}

/// Which DAOS object a record is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DaosObject {
    /// Pool and container.
    pub place: DaosContainer,
    /// Upper half of the object id.
    pub oid_hi: u64,
    /// Lower half of the object id.
    pub oid_lo: u64,
}

impl Extra for DaosObject {
    const HEAD: usize = 0;
    const TAIL: usize = 6;
    fn from_words(_: &[u64], tail: &[u64]) -> Self {
        DaosObject {
            place: DaosContainer::from_words(&[], &tail[..4]),
            oid_hi: tail[4],
            oid_lo: tail[5],
        }
    }
    fn push_words(&self, head: &mut Vec<u64>, tail: &mut Vec<u64>) {
        self.place.push_words(head, tail);
        tail.extend([self.oid_hi, self.oid_lo]);
    }
}

macro_rules! modules {
    ($( $(#[$doc:meta])* $marker:ident, $names:ident, $layout:ident, $extra:ty, $version:literal; )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $marker;

            impl CounterModule for $marker {
                type Ints = $names::Ints;
                type Floats = $names::Floats;
                type Extra = $extra;
                const ID: ModuleId = ModuleId::$marker;
                const VERSION: u32 = $version;
                const ZERO: (Self::Ints, Self::Floats) =
                    ([0; $names::COUNTERS.len()], [0.0; $names::FCOUNTERS.len()]);
                fn layout() -> &'static Layout {
                    &layout::$layout
                }
                fn upgrade() -> &'static Upgrade {
                    &upgrade::$layout
                }
            }
        )*
    };
}

modules! {
    /// POSIX: open, read, write, stat ... of one file.
    Posix, posix, POSIX, (), 4;
    /// MPI-IO.
    MpiIo, mpiio, MPIIO, (), 3;
    /// C streams.
    Stdio, stdio, STDIO, (), 2;
    /// HDF5 files.
    H5f, h5f, H5F, (), 3;
    /// HDF5 datasets.
    H5d, h5d, H5D, Parent, 2;
    /// PnetCDF files.
    PnetcdfFile, pnetcdf_file, PNETCDF_FILE, (), 3;
    /// PnetCDF variables.
    PnetcdfVar, pnetcdf_var, PNETCDF_VAR, Parent, 1;
    /// Blue Gene/Q.
    Bgq, bgq, BGQ, (), 2;
    /// DAOS files (DFS API).
    Dfs, dfs, DFS, DaosContainer, 1;
    /// DAOS objects.
    Daos, daos, DAOS, DaosObject, 1;
}

/// One record: a file (dataset, variable, object) as one rank saw it, or, with rank -1, as all
/// ranks did.
///
/// ```
/// use darshan_log::counters::posix::{Counter, FCounter};
/// use darshan_log::{Posix, Record, record_id};
/// let mut record = Record::<Posix>::new(record_id(b"/scratch/out"), 3);
/// record.set(Counter::BytesWritten, 4096);
/// record.setf(FCounter::WriteTime, 0.25);
/// assert_eq!(record.get(Counter::BytesWritten), 4096);
/// assert_eq!(record.view().counter("POSIX_BYTES_WRITTEN"), Some(4096));
/// assert_eq!(record.view().io_time(), 0.25);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<M: CounterModule> {
    /// Record id, the [hash](crate::record_id) of the name.
    pub id: u64,
    /// Rank in `MPI_COMM_WORLD`; -1 if all ranks were reduced to this record.
    pub rank: i64,
    /// Integer counters; the module's `Counter` names the places. -1: not collected.
    pub counters: M::Ints,
    /// Floating point counters; the module's `FCounter` names the places. Seconds; time
    /// stamps count from the start of the job. -1: not collected.
    pub fcounters: M::Floats,
    /// What records of the module have besides counters.
    pub extra: M::Extra,
}

impl<M: CounterModule> Record<M> {
    /// A record with all counters zero.
    pub fn new(id: u64, rank: i64) -> Self {
        Record {
            id,
            rank,
            counters: M::ZERO.0,
            fcounters: M::ZERO.1,
            extra: M::Extra::default(),
        }
    }

    /// An integer counter.
    pub fn get(&self, counter: M::Counter) -> i64 {
        self.counters.as_ref()[counter.index()]
    }

    /// A floating point counter.
    pub fn getf(&self, counter: M::FCounter) -> f64 {
        self.fcounters.as_ref()[counter.index()]
    }

    /// Sets an integer counter.
    pub fn set(&mut self, counter: M::Counter, value: i64) {
        self.counters.as_mut()[counter.index()] = value;
    }

    /// Sets a floating point counter.
    pub fn setf(&mut self, counter: M::FCounter, value: f64) {
        self.fcounters.as_mut()[counter.index()] = value;
    }

    /// Takes over the sizes of the longest read and write of `other` where these took longer. The times decide, so
    /// they must not be joined before.
    pub fn keep_longest(&mut self, other: &Self) {
        for &(size, time) in M::layout().longest {
            if other.fcounters.as_ref()[time] > self.fcounters.as_ref()[time] {
                self.counters.as_mut()[size] = other.counters.as_ref()[size];
            }
        }
    }

    /// The record without its type.
    pub fn view(&self) -> RecordView<'_> {
        RecordView {
            id: self.id,
            rank: self.rank,
            counters: self.counters.as_ref(),
            fcounters: self.fcounters.as_ref(),
            layout: M::layout(),
        }
    }

    /// Decodes the 8-byte words of a record of the current version.
    pub(crate) fn from_words(words: &[u64]) -> Self {
        let mut record = Self::new(words[0], words[1] as i64);
        let (ints, floats) = (
            record.counters.as_ref().len(),
            record.fcounters.as_ref().len(),
        );
        let (head, rest) = words[2..].split_at(M::Extra::HEAD);
        let (int_words, rest) = rest.split_at(ints);
        let (float_words, tail) = rest.split_at(floats);
        for (counter, word) in record.counters.as_mut().iter_mut().zip(int_words) {
            *counter = *word as i64;
        }
        for (counter, word) in record.fcounters.as_mut().iter_mut().zip(float_words) {
            *counter = f64::from_bits(*word);
        }
        record.extra = M::Extra::from_words(head, tail);
        record
    }

    /// Appends the record, current version, little endian.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (mut head, mut tail) = (vec![self.id, self.rank as u64], Vec::new());
        self.extra.push_words(&mut head, &mut tail);
        let ints = self.counters.as_ref().iter().map(|c| *c as u64);
        let floats = self.fcounters.as_ref().iter().map(|c| c.to_bits());
        for word in head.into_iter().chain(ints).chain(floats).chain(tail) {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Words of a record of the current version.
    pub(crate) fn words() -> usize {
        2 + M::Extra::HEAD + M::ZERO.0.as_ref().len() + M::ZERO.1.as_ref().len() + M::Extra::TAIL
    }
}

/// A record of any [`CounterModule`], for code that treats all modules alike.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    /// Record id.
    pub id: u64,
    /// Rank; -1 if reduced over all ranks.
    pub rank: i64,
    /// Integer counters.
    pub counters: &'a [i64],
    /// Floating point counters.
    pub fcounters: &'a [f64],
    /// Names and meaning of the counters.
    pub layout: &'static Layout,
}

impl RecordView<'_> {
    /// An integer counter by its Darshan name.
    pub fn counter(&self, name: &str) -> Option<i64> {
        self.layout.counter(name).map(|i| self.counters[i])
    }

    /// A floating point counter by its Darshan name.
    pub fn fcounter(&self, name: &str) -> Option<f64> {
        self.layout.fcounter(name).map(|i| self.fcounters[i])
    }

    /// Bytes read; 0 if the module counts none.
    pub fn bytes_read(&self) -> i64 {
        self.layout.bytes.map_or(0, |(read, _)| self.counters[read])
    }

    /// Bytes written; 0 if the module counts none.
    pub fn bytes_written(&self) -> i64 {
        self.layout
            .bytes
            .map_or(0, |(_, written)| self.counters[written])
    }

    /// The highest offset read or written, if the module has it.
    pub fn max_offset(&self) -> Option<i64> {
        self.layout
            .max_byte
            .map(|(read, written)| self.counters[read].max(self.counters[written]))
    }

    /// Seconds spent reading and writing, over all ranks of the record.
    pub fn transfer_time(&self) -> f64 {
        self.layout
            .times
            .map_or(0.0, |t| self.fcounters[t.read] + self.fcounters[t.write])
    }

    /// Seconds spent in all else (open, close, stat, seek), over all ranks of the record.
    pub fn meta_time(&self) -> f64 {
        self.layout.times.map_or(0.0, |t| self.fcounters[t.meta])
    }

    /// Seconds spent reading, writing and in all else, over all ranks of the record.
    pub fn io_time(&self) -> f64 {
        // In the order in which darshan-util adds, so that the last bit agrees.
        self.layout.times.map_or(0.0, |t| {
            self.fcounters[t.meta] + self.fcounters[t.read] + self.fcounters[t.write]
        })
    }

    /// Time of the slowest rank, if ranks were reduced and the module has it.
    pub fn slowest_rank_time(&self) -> Option<f64> {
        let extremes = self.layout.extremes.filter(|_| self.rank < 0)?;
        Some(self.fcounters[extremes.times + 1])
    }

    /// The most frequent access sizes in bytes and how often each came, most frequent first;
    /// without empty places.
    pub fn common_accesses(&self) -> Vec<(i64, i64)> {
        self.layout.common.last().map_or(Vec::new(), |list| {
            (0..4)
                .map(|i| {
                    (
                        self.counters[list.first + i * list.words],
                        self.counters[list.first_count + i],
                    )
                })
                .filter(|(_, count)| *count > 0)
                .collect()
        })
    }

    /// Reads and writes by size bucket ([`SIZE_BUCKETS`](crate::SIZE_BUCKETS)), if the module has them.
    pub fn size_histograms(&self) -> Option<([i64; 10], [i64; 10])> {
        let (read, write) = self.layout.sizes?;
        let buckets = |first: usize| std::array::from_fn(|i| self.counters[first + i]);
        Some((buckets(read), buckets(write)))
    }
}
