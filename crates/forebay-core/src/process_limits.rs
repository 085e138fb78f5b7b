//! What a bridge makes of the limits of its process: is it fit to start, and how much can a drain do at a time?

use std::fmt;

/// Why a bridge does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLow {
    /// It may have so many descriptors.
    Descriptors(u64),
    /// A file may have so many bytes.
    FileBytes(u64),
}

/// A bridge with fewer descriptors could not serve a few clients and drain.
pub const FEWEST_DESCRIPTORS: u64 = 256;
/// The tables have files of up to 64 MiB and what is written at once; room that is kept back is one file as well.
pub const LEAST_FILE_BYTES: u64 = 128 << 20;

/// Can a bridge start that may have so many open descriptors?
///
/// # Errors
/// It can't.
pub fn check_descriptors(most: u64) -> Result<(), TooLow> {
    match most < FEWEST_DESCRIPTORS {
        true => Err(TooLow::Descriptors(most)),
        false => Ok(()),
    }
}

/// Can a bridge start whose files may have so many bytes? `None`: there is no limit.
///
/// # Errors
/// It can't.
pub fn check_file_bytes(most: Option<u64>) -> Result<(), TooLow> {
    match most {
        Some(bytes) if bytes < LEAST_FILE_BYTES => Err(TooLow::FileBytes(bytes)),
        _ => Ok(()),
    }
}

impl TooLow {
    /// What raises the limit.
    pub fn remedy(self) -> &'static str {
        match self {
            TooLow::Descriptors(_) => {
                "raise the hard limit: LimitNOFILE of the service, `nofile` in limits.conf"
            }
            TooLow::FileBytes(_) => {
                "raise the hard limit: `ulimit -f unlimited` before the start, `fsize` in limits.conf"
            }
        }
    }
}

impl fmt::Display for TooLow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TooLow::Descriptors(limit) => write!(
                f,
                "a process may open {limit} files here, and a bridge needs {FEWEST_DESCRIPTORS}"
            ),
            TooLow::FileBytes(limit) => write!(
                f,
                "a file may have {limit} bytes here (ulimit -f), and the tables of a bridge need {LEAST_FILE_BYTES}"
            ),
        }
    }
}

/// What a drain does at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtOnce {
    /// Batches of copies.
    pub batches: usize,
    /// Objects of one batch at most.
    pub objects: usize,
}

/// Each copy of a batch is an open file and, at most, its directory.
const PER_OBJECT: u64 = 2;
/// What a batch has open beside its copies: the source, and what is looked at.
const PER_BATCH: u64 = 8;
/// Smaller batches do not pay for their syncs; rather fewer of them.
const FEW_OBJECTS: u64 = 8;

/// How much a drain does at a time that was asked for so many batches of at most `objects`, if so many descriptors are free.
/// It takes half of them at most: requests need some as well.
pub fn at_once(batches: u32, objects: usize, free_descriptors: u64) -> AtOnce {
    let budget = free_descriptors / 2;
    let few = PER_BATCH + PER_OBJECT * FEW_OBJECTS;
    let batches = u64::from(batches).min(budget / few).max(1);
    let fit = (budget / batches).saturating_sub(PER_BATCH) / PER_OBJECT;
    let fit = usize::try_from(fit).unwrap_or(usize::MAX);
    AtOnce {
        batches: usize::try_from(batches).unwrap_or(1),
        objects: fit.clamp(1, objects.max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_keeps_within_half_of_the_free_descriptors_and_always_does_something() {
        for free in 0..5000 {
            for wanted in [1, 4, 32, 64] {
                let some = at_once(wanted, 512, free);
                assert!((1..=wanted as usize).contains(&some.batches));
                assert!((1..=512).contains(&some.objects));
                let open = some.batches as u64 * (PER_BATCH + PER_OBJECT * some.objects as u64);
                assert!(free < 48 || open <= free / 2, "{free} {wanted} {some:?}");
            }
        }
    }

    #[test]
    fn a_drain_with_many_descriptors_does_all_that_was_asked_for() {
        let all = AtOnce {
            batches: 32,
            objects: 512,
        };
        assert_eq!(at_once(32, 512, 500_000), all);
    }

    #[test]
    fn a_bridge_does_not_start_where_a_limit_is_below_what_it_needs() {
        assert_eq!(check_descriptors(256), Ok(()));
        assert_eq!(check_descriptors(255), Err(TooLow::Descriptors(255)));
        assert_eq!(check_file_bytes(None), Ok(()));
        assert_eq!(check_file_bytes(Some(128 << 20)), Ok(()));
        let small = check_file_bytes(Some((128 << 20) - 1));
        assert_eq!(small, Err(TooLow::FileBytes((128 << 20) - 1)));
    }
}
