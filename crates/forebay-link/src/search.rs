//! Where a directory is that a program has open: the kernel tells it by its path, and the bridge whether it is still that one.

use crate::Fail;
use forebay_wire::{START_MOVED, START_TAKEN};

/// A drain that renames a directory does so twice. After more looks it was removed.
const MOST_LOOKS: u32 = 8;
/// Others may exchange it with another one again and again, as fast as they can.
const MOST_LOOKS_AT_OTHERS: u32 = 2048;

/// Asks again for a directory that the bridge has not found where the kernel has shown it.
#[derive(Default)]
pub struct Search {
    gone: u32,
    others: u32,
}

impl Search {
    /// Is another one due, after this answer? If not, [`Search::told`] is what the program gets.
    pub fn again(&mut self, errno: i32) -> bool {
        let (looks, most) = match errno {
            START_MOVED => (&mut self.gone, MOST_LOOKS),
            START_TAKEN => (&mut self.others, MOST_LOOKS_AT_OTHERS),
            _ => return false,
        };
        *looks += 1;
        *looks < most
    }

    /// What the program gets: it knows neither code.
    pub fn told(errno: i32) -> i32 {
        match errno {
            START_MOVED | START_TAKEN => libc::ENOENT,
            other => other,
        }
    }

    /// The same of a failure.
    pub fn failure(fail: Fail) -> Fail {
        match fail {
            Fail::Errno(e) => Fail::Errno(Self::told(e)),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_removed_is_looked_for_less_often_than_one_that_others_exchange() {
        let looks_at = |errnos: &[i32]| {
            let mut search = Search::default();
            let mut errnos = errnos.iter().cycle();
            let mut count = 1;
            while search.again(*errnos.next().unwrap()) {
                count += 1;
            }
            count
        };
        assert_eq!(looks_at(&[START_MOVED]), MOST_LOOKS);
        assert_eq!(looks_at(&[START_TAKEN]), MOST_LOOKS_AT_OTHERS);
        assert_eq!(looks_at(&[START_TAKEN, START_MOVED]), 2 * MOST_LOOKS);
        assert_eq!(looks_at(&[libc::ENOENT]), 1);
        // Neither can be the error of something else, and programs see neither.
        for code in [START_MOVED, START_TAKEN] {
            assert!(![libc::ENOENT, libc::ESTALE, libc::EACCES].contains(&code));
            assert_eq!(Search::told(code), libc::ENOENT);
        }
        assert_eq!(Search::told(libc::EACCES), libc::EACCES);
    }
}
