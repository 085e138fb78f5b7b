//! Who uses a backing object while a drain looks at it.

use crate::facts::Attr;

/// Who has an object open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Nobody. The attributes are those of a moment at which that was so.
    Free(Attr),
    /// A process has.
    Held,
    /// Only the bridge itself has, on the way to a client or back. It will be known soon.
    Passing,
}

/// The mode of a file was changed for a moment, to open it: its owner may not read it. That alone gives it another change
/// time, by which it would count as changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LentMode {
    /// Its attributes before.
    pub before: Attr,
    /// Its attributes when it was open, with its own mode again.
    pub opened: Attr,
}

impl Use {
    /// Nobody has the file open, and it had the attributes `now` after that was seen. If it was only opened since
    /// `lent.before`, these are the ones that count.
    pub fn free(now: Attr, lent: Option<LentMode>) -> Use {
        let only_opened = lent.filter(|LentMode { before, opened }| {
            (now.ctime, now.size) == (opened.ctime, opened.size)
                && (before.size, before.mtime) == (opened.size, opened.mtime)
        });
        Use::Free(only_opened.map_or(now, |lent| lent.before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Timestamp;

    fn at(mtime: i64, ctime: i64, size: u64) -> Attr {
        let moment = |sec| Timestamp { sec, nsec: 0 };
        Attr {
            mtime: moment(mtime),
            ctime: moment(ctime),
            size,
            ..Attr::default()
        }
    }

    #[test]
    fn a_file_that_was_only_opened_counts_as_it_was_before() {
        let lent = LentMode {
            before: at(1, 2, 10),
            opened: at(1, 5, 10),
        };
        assert_eq!(Use::free(at(1, 5, 10), Some(lent)), Use::Free(lent.before));
        let now = at(1, 2, 10);
        assert_eq!(Use::free(now, None), Use::Free(now));
    }

    #[test]
    fn a_file_that_somebody_has_changed_meanwhile_counts_as_it_is() {
        let lent = |before, opened| Some(LentMode { before, opened });
        let before = at(1, 2, 10);
        let opened = at(1, 5, 10);
        for (now, lent) in [
            // Since it was opened.
            (at(1, 6, 10), lent(before, opened)),
            (at(1, 5, 11), lent(before, opened)),
            // Between the look before and the open.
            (at(3, 5, 10), lent(before, at(3, 5, 10))),
            (at(1, 5, 11), lent(before, at(1, 5, 11))),
        ] {
            assert_eq!(Use::free(now, lent), Use::Free(now));
        }
    }
}
