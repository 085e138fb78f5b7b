//! What each counter of a module means. Derived figures and the reduction read it here, so they
//! are written once for all modules.

use super::{bgq, daos, dfs, h5d, h5f, mpiio, pnetcdf_file, pnetcdf_var, posix, stdio};

/// What becomes of an integer counter when the records of several ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Added up; a negative sum (something was not collected) becomes -1.
    Sum,
    /// The largest.
    Max,
    /// Taken from one of the records: they should agree.
    Keep,
    /// Taken from the record with the longest read or write ([`Layout::longest`]).
    OfLongest,
    /// Part of a list of the four most frequent values ([`Layout::common`]).
    Common,
    /// Rank or bytes of the fastest or slowest rank ([`Layout::extremes`]).
    Extreme,
}

/// What becomes of a floating point counter when the records of several ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatRule {
    /// Added up.
    Sum,
    /// The smallest that is greater than zero.
    Min,
    /// The largest.
    Max,
    /// Taken from one of the records.
    Keep,
    /// Time of the fastest or slowest rank, variance over ranks.
    Extreme,
}

/// Places of a list of the four most frequent values: value `i` (of `words` numbers)
/// starts at `first + i * words`, its count is at `first_count + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// Place of the first value.
    pub first: usize,
    /// Numbers in one value: 1, or 11 (size, five lengths, five strides).
    pub words: usize,
    /// Place of the first count.
    pub first_count: usize,
}

/// Places of the times that a rank spent, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Reading.
    pub read: usize,
    /// Writing.
    pub write: usize,
    /// All else: open, close, stat, seek.
    pub meta: usize,
}

/// Places of the figures about ranks that only a reduced record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extremes {
    /// Four integers in a row: fastest rank, its bytes, slowest rank, its bytes.
    pub ranks: usize,
    /// Two floats in a row: time of the fastest and of the slowest rank.
    pub times: usize,
    /// Two floats in a row, if the module has them: population variance over ranks of
    /// the time (s²) and of the bytes.
    pub variances: Option<usize>,
}

/// Names and meaning of the counters of one module.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// Names of the integer counters.
    pub counters: &'static [&'static str],
    /// Names of the floating point counters.
    pub fcounters: &'static [&'static str],
    /// Rule of each integer counter.
    pub rules: &'static [Rule],
    /// Rule of each floating point counter.
    pub float_rules: &'static [FloatRule],
    /// Places of bytes read and written.
    pub bytes: Option<(usize, usize)>,
    /// Places of the highest byte read and written.
    pub max_byte: Option<(usize, usize)>,
    /// Place of the first of ten size buckets of reads, and of writes.
    pub sizes: Option<(usize, usize)>,
    /// Lists of most frequent values; the last one is that of access sizes.
    pub common: &'static [Common],
    /// The longest read and write, each as (place of the size among the integers, place of the
    /// time among the floats).
    pub longest: &'static [(usize, usize)],
    /// Time spent.
    pub times: Option<Times>,
    /// Figures of reduced records.
    pub extremes: Option<Extremes>,
}

impl Layout {
    /// Place of the integer counter `name`.
    pub fn counter(&self, name: &str) -> Option<usize> {
        self.counters.iter().position(|c| *c == name)
    }

    /// Place of the floating point counter `name`.
    pub fn fcounter(&self, name: &str) -> Option<usize> {
        self.fcounters.iter().position(|c| *c == name)
    }
}

/// The layout of a module with names and rules alone.
macro_rules! names {
    ($module:ident) => {
        Layout {
            counters: &$module::COUNTERS,
            fcounters: &$module::FCOUNTERS,
            rules: &$module::RULES,
            float_rules: &$module::FLOAT_RULES,
            bytes: None,
            max_byte: None,
            sizes: None,
            common: &[],
            longest: &[],
            times: None,
            extremes: None,
        }
    };
}

/// The layout of a module that counts single reads and writes. All these modules have the same order of floats. Given
/// are the first size buckets of reads and of writes, the words of an access, and the place of the variances.
macro_rules! transfers {
    ($module:ident, $read:ident, $write:ident, $access_words:literal, $variances:expr) => {{
        use $module::Counter as C;
        Layout {
            bytes: Some((C::BytesRead as usize, C::BytesWritten as usize)),
            sizes: Some((C::$read as usize, C::$write as usize)),
            common: &[Common {
                first: C::Access1Access as usize,
                words: $access_words,
                first_count: C::Access1Count as usize,
            }],
            longest: &[
                (C::MaxReadTimeSize as usize, 11),
                (C::MaxWriteTimeSize as usize, 12),
            ],
            times: Some(Times {
                read: 8,
                write: 9,
                meta: 10,
            }),
            extremes: Some(Extremes {
                ranks: C::FastestRank as usize,
                times: 13,
                variances: $variances,
            }),
            ..names!($module)
        }
    }};
}

pub(crate) static POSIX: Layout = {
    use posix::Counter as C;
    Layout {
        max_byte: Some((C::MaxByteRead as usize, C::MaxByteWritten as usize)),
        common: &[
            Common {
                first: C::Stride1Stride as usize,
                words: 1,
                first_count: C::Stride1Count as usize,
            },
            Common {
                first: C::Access1Access as usize,
                words: 1,
                first_count: C::Access1Count as usize,
            },
        ],
        ..transfers!(posix, SizeRead0To100, SizeWrite0To100, 1, Some(15))
    }
};

pub(crate) static STDIO: Layout = {
    use stdio::{Counter as C, FCounter as F};
    Layout {
        bytes: Some((C::BytesRead as usize, C::BytesWritten as usize)),
        max_byte: Some((C::MaxByteRead as usize, C::MaxByteWritten as usize)),
        times: Some(Times {
            read: F::ReadTime as usize,
            write: F::WriteTime as usize,
            meta: F::MetaTime as usize,
        }),
        extremes: Some(Extremes {
            ranks: C::FastestRank as usize,
            times: F::FastestRankTime as usize,
            variances: Some(F::VarianceRankTime as usize),
        }),
        ..names!(stdio)
    }
};

pub(crate) static PNETCDF_FILE: Layout = {
    use pnetcdf_file::Counter as C;
    Layout {
        bytes: Some((C::BytesRead as usize, C::BytesWritten as usize)),
        ..names!(pnetcdf_file)
    }
};

pub(crate) static MPIIO: Layout =
    transfers!(mpiio, SizeReadAgg0To100, SizeWriteAgg0To100, 1, Some(15));
pub(crate) static H5D: Layout =
    transfers!(h5d, SizeReadAgg0To100, SizeWriteAgg0To100, 11, Some(15));
pub(crate) static PNETCDF_VAR: Layout = transfers!(
    pnetcdf_var,
    SizeReadAgg0To100,
    SizeWriteAgg0To100,
    11,
    Some(15)
);
pub(crate) static DFS: Layout = transfers!(dfs, SizeRead0To100, SizeWrite0To100, 1, None);
pub(crate) static DAOS: Layout = transfers!(daos, SizeRead0To100, SizeWrite0To100, 1, None);
pub(crate) static H5F: Layout = names!(h5f);
pub(crate) static BGQ: Layout = names!(bgq);
