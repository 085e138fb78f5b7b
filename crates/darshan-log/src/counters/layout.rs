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

// The order of floats that POSIX, MPI-IO, H5D, PNETCDF_VAR, DFS and DAOS share.
const COMMON_TIMES: Times = Times {
    read: 8,
    write: 9,
    meta: 10,
};
const COMMON_MAX_READ_TIME: usize = 11;
const COMMON_MAX_WRITE_TIME: usize = 12;

const fn common_extremes(ranks: usize, variances: bool) -> Extremes {
    Extremes {
        ranks,
        times: 13,
        variances: if variances { Some(15) } else { None },
    }
}

pub(crate) static POSIX: Layout = {
    use posix::Counter as C;
    Layout {
        counters: &posix::COUNTERS,
        fcounters: &posix::FCOUNTERS,
        rules: &posix::RULES,
        float_rules: &posix::FLOAT_RULES,
        bytes: Some((C::BytesRead as usize, C::BytesWritten as usize)),
        max_byte: Some((C::MaxByteRead as usize, C::MaxByteWritten as usize)),
        sizes: Some((C::SizeRead0To100 as usize, C::SizeWrite0To100 as usize)),
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
        longest: &[
            (C::MaxReadTimeSize as usize, COMMON_MAX_READ_TIME),
            (C::MaxWriteTimeSize as usize, COMMON_MAX_WRITE_TIME),
        ],
        times: Some(COMMON_TIMES),
        extremes: Some(common_extremes(C::FastestRank as usize, true)),
    }
};

pub(crate) static MPIIO: Layout = {
    use mpiio::Counter as C;
    Layout {
        counters: &mpiio::COUNTERS,
        fcounters: &mpiio::FCOUNTERS,
        rules: &mpiio::RULES,
        float_rules: &mpiio::FLOAT_RULES,
        bytes: Some((C::BytesRead as usize, C::BytesWritten as usize)),
        max_byte: None,
        sizes: Some((
            C::SizeReadAgg0To100 as usize,
            C::SizeWriteAgg0To100 as usize,
        )),
        common: &[Common {
            first: C::Access1Access as usize,
            words: 1,
            first_count: C::Access1Count as usize,
        }],
        longest: &[
            (C::MaxReadTimeSize as usize, COMMON_MAX_READ_TIME),
            (C::MaxWriteTimeSize as usize, COMMON_MAX_WRITE_TIME),
        ],
        times: Some(COMMON_TIMES),
        extremes: Some(common_extremes(C::FastestRank as usize, true)),
    }
};

pub(crate) static STDIO: Layout = {
    use stdio::{Counter as C, FCounter as F};
    Layout {
        counters: &stdio::COUNTERS,
        fcounters: &stdio::FCOUNTERS,
        rules: &stdio::RULES,
        float_rules: &stdio::FLOAT_RULES,
        bytes: Some((C::BytesRead as usize, C::BytesWritten as usize)),
        max_byte: Some((C::MaxByteRead as usize, C::MaxByteWritten as usize)),
        sizes: None,
        common: &[],
        longest: &[],
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
    }
};

pub(crate) static H5F: Layout = Layout {
    counters: &h5f::COUNTERS,
    fcounters: &h5f::FCOUNTERS,
    rules: &h5f::RULES,
    float_rules: &h5f::FLOAT_RULES,
    bytes: None,
    max_byte: None,
    sizes: None,
    common: &[],
    longest: &[],
    times: None,
    extremes: None,
};

pub(crate) static H5D: Layout = {
    use h5d::Counter as C;
    Layout {
        counters: &h5d::COUNTERS,
        fcounters: &h5d::FCOUNTERS,
        rules: &h5d::RULES,
        float_rules: &h5d::FLOAT_RULES,
        bytes: Some((C::BytesRead as usize, C::BytesWritten as usize)),
        max_byte: None,
        sizes: Some((
            C::SizeReadAgg0To100 as usize,
            C::SizeWriteAgg0To100 as usize,
        )),
        common: &[Common {
            first: C::Access1Access as usize,
            words: 11,
            first_count: C::Access1Count as usize,
        }],
        longest: &[
            (C::MaxReadTimeSize as usize, COMMON_MAX_READ_TIME),
            (C::MaxWriteTimeSize as usize, COMMON_MAX_WRITE_TIME),
        ],
        times: Some(COMMON_TIMES),
        extremes: Some(common_extremes(C::FastestRank as usize, true)),
    }
};

pub(crate) static PNETCDF_FILE: Layout = {
    use pnetcdf_file::Counter as C;
    Layout {
        counters: &pnetcdf_file::COUNTERS,
        fcounters: &pnetcdf_file::FCOUNTERS,
        rules: &pnetcdf_file::RULES,
        float_rules: &pnetcdf_file::FLOAT_RULES,
        bytes: Some((C::BytesRead as usize, C::BytesWritten as usize)),
        max_byte: None,
        sizes: None,
        common: &[],
        longest: &[],
        times: None,
        extremes: None,
    }
};

pub(crate) static PNETCDF_VAR: Layout = {
    use pnetcdf_var::Counter as C;
    Layout {
        counters: &pnetcdf_var::COUNTERS,
        fcounters: &pnetcdf_var::FCOUNTERS,
        rules: &pnetcdf_var::RULES,
        float_rules: &pnetcdf_var::FLOAT_RULES,
        bytes: Some((C::BytesRead as usize, C::BytesWritten as usize)),
        max_byte: None,
        sizes: Some((
            C::SizeReadAgg0To100 as usize,
            C::SizeWriteAgg0To100 as usize,
        )),
        common: &[Common {
            first: C::Access1Access as usize,
            words: 11,
            first_count: C::Access1Count as usize,
        }],
        longest: &[
            (C::MaxReadTimeSize as usize, COMMON_MAX_READ_TIME),
            (C::MaxWriteTimeSize as usize, COMMON_MAX_WRITE_TIME),
        ],
        times: Some(COMMON_TIMES),
        extremes: Some(common_extremes(C::FastestRank as usize, true)),
    }
};

pub(crate) static BGQ: Layout = Layout {
    counters: &bgq::COUNTERS,
    fcounters: &bgq::FCOUNTERS,
    rules: &bgq::RULES,
    float_rules: &bgq::FLOAT_RULES,
    bytes: None,
    max_byte: None,
    sizes: None,
    common: &[],
    longest: &[],
    times: None,
    extremes: None,
};

pub(crate) static DFS: Layout = {
    use dfs::Counter as C;
    Layout {
        counters: &dfs::COUNTERS,
        fcounters: &dfs::FCOUNTERS,
        rules: &dfs::RULES,
        float_rules: &dfs::FLOAT_RULES,
        bytes: Some((C::BytesRead as usize, C::BytesWritten as usize)),
        max_byte: None,
        sizes: Some((C::SizeRead0To100 as usize, C::SizeWrite0To100 as usize)),
        common: &[Common {
            first: C::Access1Access as usize,
            words: 1,
            first_count: C::Access1Count as usize,
        }],
        longest: &[
            (C::MaxReadTimeSize as usize, COMMON_MAX_READ_TIME),
            (C::MaxWriteTimeSize as usize, COMMON_MAX_WRITE_TIME),
        ],
        times: Some(COMMON_TIMES),
        extremes: Some(common_extremes(C::FastestRank as usize, false)),
    }
};

pub(crate) static DAOS: Layout = {
    use daos::Counter as C;
    Layout {
        counters: &daos::COUNTERS,
        fcounters: &daos::FCOUNTERS,
        rules: &daos::RULES,
        float_rules: &daos::FLOAT_RULES,
        bytes: Some((C::BytesRead as usize, C::BytesWritten as usize)),
        max_byte: None,
        sizes: Some((C::SizeRead0To100 as usize, C::SizeWrite0To100 as usize)),
        common: &[Common {
            first: C::Access1Access as usize,
            words: 1,
            first_count: C::Access1Count as usize,
        }],
        longest: &[
            (C::MaxReadTimeSize as usize, COMMON_MAX_READ_TIME),
            (C::MaxWriteTimeSize as usize, COMMON_MAX_WRITE_TIME),
        ],
        times: Some(COMMON_TIMES),
        extremes: Some(common_extremes(C::FastestRank as usize, false)),
    }
};
