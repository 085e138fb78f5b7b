//! How the records of each module are read and written. One trait serves records of a fixed size
//! and records of a variable one.

use crate::region::RegionReader;
use crate::{CounterModule, Error, ModuleId, Record, Region, Result, newest_version};

/// A module whose records this crate reads and writes. Implemented by the markers of
/// [`CounterModule`], and by [`Lustre`](crate::Lustre), [`Heatmap`](crate::Heatmap),
/// [`DxtPosix`](crate::DxtPosix) and [`DxtMpiio`](crate::DxtMpiio).
pub trait Module: 'static {
    /// One record.
    type Record;
    /// The module.
    const ID: ModuleId;
    /// The version that the writer writes.
    const WRITTEN_VERSION: u32;

    /// The next record, or `None` at the region's end.
    #[doc(hidden)]
    fn decode(reader: &mut Decoder) -> Result<Option<Self::Record>>;

    /// Appends a record as the writer writes it.
    ///
    /// # Errors
    /// [`Error::Unwritable`] if the record can't be written.
    #[doc(hidden)]
    fn encode(record: &Self::Record, out: &mut Vec<u8>) -> Result<()>;
}

/// A region that is being read, and the version of its records.
pub struct Decoder {
    pub(crate) reader: RegionReader,
    pub(crate) version: u32,
    /// Limit of one record in bytes.
    pub(crate) record_limit: u64,
    /// Bins and bin width of the first heat map, see [`Heatmap`](crate::Heatmap).
    pub(crate) first_heatmap: Option<(u64, f64)>,
}

impl Decoder {
    /// Checks a length in 8-byte words that a record claims to have.
    pub(crate) fn check_words(&self, words: Option<u64>) -> Result<u64> {
        match words {
            Some(words) if words <= self.record_limit / 8 => Ok(words),
            _ => Err(self.reader.over_limit("a record", self.record_limit)),
        }
    }

    /// A count that can't be negative.
    pub(crate) fn count(&self, word: u64, what: &str) -> Result<u64> {
        if word as i64 >= 0 {
            Ok(word)
        } else {
            Err(self.reader.corrupt(format!("{} {what}", word as i64)))
        }
    }
}

/// Text before the first NUL, with bytes that are not UTF-8 replaced.
pub(crate) fn until_nul(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// As much of `text` as fits into `N` bytes, filled up with NULs. The last byte is always NUL.
pub(crate) fn nul_padded<const N: usize>(text: &str) -> [u8; N] {
    let mut padded = [0; N];
    for (to, from) in padded[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from;
    }
    padded
}

impl<M: CounterModule> Module for M {
    type Record = Record<M>;
    const ID: ModuleId = <M as CounterModule>::ID;
    const WRITTEN_VERSION: u32 = M::VERSION;

    fn decode(decoder: &mut Decoder) -> Result<Option<Record<M>>> {
        let newest = Record::<M>::words();
        let stored = M::upgrade().words(decoder.version, newest);
        while let Some(mut words) = decoder.reader.read_words(stored)? {
            if M::upgrade().apply(decoder.version, &mut words) {
                return Ok(Some(Record::from_words(&words)));
            }
        }
        Ok(None)
    }

    fn encode(record: &Record<M>, out: &mut Vec<u8>) -> Result<()> {
        record.encode(out);
        Ok(())
    }
}

/// The records of one module of a log, read and decompressed as they are asked for. The iterator
/// ends after the first error.
pub struct Records<M: Module> {
    state: State,
    module: std::marker::PhantomData<fn() -> M>,
}

enum State {
    Reading(Box<Decoder>),
    Failed(Error),
    Done,
}

impl<M: Module> Records<M> {
    /// Iterates over `decoder`'s region. `None` stands for a module that the log does not have.
    pub(crate) fn new(decoder: Option<Decoder>) -> Self {
        let state = match decoder {
            None => State::Done,
            Some(decoder) => match newest_version(M::ID) {
                Some(newest) if (1..=newest).contains(&decoder.version) => {
                    State::Reading(Box::new(decoder))
                }
                _ => State::Failed(Error::Version {
                    module: M::ID,
                    version: decoder.version,
                }),
            },
        };
        Records {
            state,
            module: std::marker::PhantomData,
        }
    }
}

impl<M: Module> Iterator for Records<M> {
    type Item = Result<M::Record>;

    fn next(&mut self) -> Option<Self::Item> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Done => None,
            State::Failed(error) => Some(Err(error)),
            State::Reading(mut decoder) => {
                debug_assert_eq!(decoder.reader.region, Region::Module(M::ID));
                let next = M::decode(&mut decoder).transpose();
                if matches!(next, Some(Ok(_))) {
                    self.state = State::Reading(decoder);
                }
                next
            }
        }
    }
}
