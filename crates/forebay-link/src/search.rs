//! Where a directory is that a program has open: the kernel tells it by its path, and the bridge whether it is still that one.

use crate::Fail;
use forebay_wire::{START_MOVED, START_TAKEN};

/// A drain that renames a directory does so twice, and others may rename it to and fro. After more looks it was removed.
const MOST_LOOKS: u32 = 32;
/// Others may exchange it with another one again and again, as fast as they can.
const MOST_LOOKS_AT_OTHERS: u32 = 2048;

/// Asks the bridge for something in a directory that the program has open, again and again while the bridge does not find it where
/// `ask` says that it is: `ask` asks the kernel for its path each time.
///
/// # Errors
/// Those of `ask`; ENOENT if the directory was removed.
#[inline(always)]
pub fn ask_where_it_is<T>(mut ask: impl FnMut() -> Result<T, Fail>) -> Result<T, Fail> {
    let mut search = Search::default();
    loop {
        match ask() {
            Err(Fail::Errno(e)) if search.again(e) => {}
            Err(Fail::Errno(e)) => return Err(Search::told(e).into()),
            done => return done,
        }
    }
}

#[derive(Default)]
struct Search {
    gone: u32,
    others: u32,
}

impl Search {
    /// Is another look due, after this answer?
    fn again(&mut self, errno: i32) -> bool {
        let (looks, most) = match errno {
            START_MOVED => (&mut self.gone, MOST_LOOKS),
            START_TAKEN => (&mut self.others, MOST_LOOKS_AT_OTHERS),
            _ => return false,
        };
        *looks += 1;
        *looks < most
    }

    /// What the program gets: it knows neither code.
    fn told(errno: i32) -> i32 {
        match errno {
            START_MOVED | START_TAKEN => libc::ENOENT,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_removed_is_looked_for_less_often_than_one_that_others_exchange() {
        let looks_at = |answers: &[i32]| {
            let (mut answers, mut count) = (answers.iter().cycle(), 0);
            let told = ask_where_it_is(|| {
                count += 1;
                Err::<(), _>(Fail::Errno(*answers.next().unwrap()))
            });
            // Programs see neither code.
            assert!(matches!(told, Err(Fail::Errno(libc::ENOENT))));
            count
        };
        assert_eq!(looks_at(&[START_MOVED]), MOST_LOOKS);
        assert_eq!(looks_at(&[START_TAKEN]), MOST_LOOKS_AT_OTHERS);
        assert_eq!(looks_at(&[START_TAKEN, START_MOVED]), 2 * MOST_LOOKS);
        assert_eq!(looks_at(&[libc::ENOENT]), 1);
        let refused = ask_where_it_is(|| Err::<(), _>(Fail::Errno(libc::EACCES)));
        assert!(matches!(refused, Err(Fail::Errno(libc::EACCES))));
    }
}
