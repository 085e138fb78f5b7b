//! Collective I/O that fits the locks of the file system (Liao and Choudhary, SC'08).
//!
//! In a collective write many processes hold small pieces of one file. In two-phase I/O a few of them, the
//! *aggregators*, collect the pieces and write them in large runs. Which bytes go to which aggregator decides how
//! often the file system has to move a lock from one client to another. This room decides that, and nothing else:
//!
//! - [`Access`]: what one process reads or writes, as strides where there is a pattern.
//! - [`FileDomains`]: which aggregator has which bytes of the aggregate access region, by one of four methods.
//! - [`ExchangePlan`]: who sends what to whom in which round.
//! - [`encode`], [`decode`]: the part of an access that an aggregator needs, as a message.
//! - [`TypeMap`], [`View`]: where the bytes of MPI data types lie, and what a process sees of a file.
//! - [`way`]: whether a call is worth an exchange at all. [`Coverage`]: which bytes of a buffer hold data.
//! - [`aggregators`]: which processes are aggregators. [`choose`]: which method fits which locks, with the reason.
//! - [`KNOWN_FILE_SYSTEMS`]: which file systems have which locks. [`Striping`]: how a file lies on them. [`judge`]: what measured times say of them.
//! - [`CallToCapture`]: what a call was, as text to keep. [`Decomposition`]: what it would be with other numbers of processes.
//! - [`lock_traffic`]: how often locks move in a call, by each method. It looks at the granules one by one, up to a limit.
//!
//! Domains are closed forms. What looks at the pieces of one process in a window takes as many steps as there are granules between the
//! first of them and the last.
//!
//! ```
//! use forebay_core::collective::{Access, Extent, ExchangePlan, FileDomains, Layout, Method};
//! // Two processes, each with every other KiB of 8 KiB; granule 4 KiB; two aggregators.
//! let of = |rank: u64| Access::strided(rank * 1024, 1024, &[(4, 2048)]).unwrap();
//! let accesses = [of(0), of(1)];
//! let layout = Layout::new(4096, 2);
//! let domains = FileDomains::new(Method::Aligned, Access::region(&accesses), 2, layout);
//! assert_eq!(domains.domain(1).span(), Extent::new(4096, 8192));
//! let plan = ExchangePlan::new(domains, 1 << 20, &accesses);
//! let window = plan.window(1, 0).unwrap();
//! assert_eq!(plan.bytes(0, &window), 2048);
//! ```

mod access;
mod aggregator;
mod arrange;
mod capture;
mod choice;
mod coverage;
mod decomposition;
mod domain;
mod exchange;
mod locks;
mod measuring;
mod message;
mod probe;
mod striping;
mod traffic;
mod typemap;
mod view;
mod worth;

pub use access::{Access, AccessError};
pub use aggregator::{aggregators, fitting_count};
pub use arrange::{Arrangement, LayoutSource, LockSource, PfsFacts, SETTINGS, TakeOver, Wishes};
pub use capture::{
    CallToCapture, CapturedAccesses, CarriedOutBy, LeftOut, MAX_CAPTURED_PARTS, MAX_TRACE_BYTES,
    TRACE_VERSION, cut_off_line, json_string,
};
pub use choice::{MethodChoice, Situation, choose};
pub use coverage::Coverage;
pub use decomposition::{Decomposition, ScaleError, moved_to_front};
pub use domain::{FileDomain, FileDomains, Groups, Layout, Method};
pub use exchange::{ExchangePlan, Transfer};
pub use locks::{
    KNOWN_FILE_SYSTEMS, KnownFileSystem, LockProtocol, MeasuredLocks, file_system_name,
    measurements_file, mount_name, protocol_of,
};
pub use measuring::{Measuring, believes_waiting, may_hide_waits};
pub use message::{MAX_PIECES, decode, decode_nested, encode, encode_nested};
pub use probe::{
    Judgement, Pattern, ProbeResult, Sample, TURNS, WRITE_BYTES, Wait, first_patterns, judge,
};
pub use striping::{Striping, lustre_attribute};
pub use traffic::{LockTraffic, lock_traffic};
pub use typemap::{Dimension, Run, TypeMap};
pub use view::View;
pub use worth::{FREE_READ_GAP_BYTES, READ_GAP_BYTES, SIEVE_BYTES, Share, Terms, Way, way};

/// The largest end of a file region: offsets of MPI and POSIX are signed.
pub const MAX_OFFSET: u64 = i64::MAX as u64;

/// The bytes of a file from `start` up to, and without, `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

impl Extent {
    /// The bytes from `start` up to `end`.
    ///
    /// # Panics
    /// If the end is before the start, or after [`MAX_OFFSET`].
    pub fn new(start: u64, end: u64) -> Self {
        assert!(
            start <= end && end <= MAX_OFFSET,
            "no extent: {start}..{end}"
        );
        Extent { start, end }
    }

    /// Its length in bytes.
    pub fn bytes(self) -> u64 {
        self.end - self.start
    }

    /// Holds no byte.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Its two halves, cut at a multiple of `granule` if there is one inside. One byte has no halves.
    pub fn halves(self, granule: u64) -> Option<(Extent, Extent)> {
        let middle = self.start + self.bytes() / 2;
        let rounded = middle - middle % granule;
        let cut = if rounded > self.start {
            rounded
        } else {
            middle
        };
        let inside = self.start < cut && cut < self.end;
        inside.then(|| (Extent::new(self.start, cut), Extent::new(cut, self.end)))
    }

    /// Has a byte in common with another one.
    pub fn meets(self, other: Extent) -> bool {
        self.start.max(other.start) < self.end.min(other.end)
    }
}
