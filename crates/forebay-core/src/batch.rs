//! What every batch of table changes and every page of a listing keeps to. Whoever hands one over and whoever takes it
//! asserts this in builds with debug assertions; in others it costs nothing.

use crate::path::TreePath;
use crate::record::PathRecord;
use crate::table::Change;
use std::collections::BTreeSet;
use std::fmt;

/// What is wrong with a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchFault {
    /// A deletion comes after a put: it might take away what the batch has just put there.
    DeletionAfterPut(TreePath),
    /// Two deletions name one path.
    DeletedTwice(TreePath),
    /// Two puts name one path.
    PutTwice(TreePath),
    /// The root has no record.
    RecordOfRoot,
}

impl fmt::Display for BatchFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchFault::DeletionAfterPut(path) => write!(f, "{path} is deleted after a put"),
            BatchFault::DeletedTwice(path) => write!(f, "{path} is deleted twice"),
            BatchFault::PutTwice(path) => write!(f, "{path} is put twice"),
            BatchFault::RecordOfRoot => f.write_str("a record of the root"),
        }
    }
}

impl std::error::Error for BatchFault {}

/// Looks whether a batch lists its deletions before its puts, names no path twice among either, and puts no record
/// at the root.
///
/// # Errors
/// The first fault.
pub fn check(batch: &[Change]) -> Result<(), BatchFault> {
    let (mut deleted, mut put) = (BTreeSet::new(), BTreeSet::new());
    for change in batch {
        match change {
            Change::Delete { path, .. } if !put.is_empty() => {
                return Err(BatchFault::DeletionAfterPut(path.clone()));
            }
            Change::Delete { path, .. } if !deleted.insert(path) => {
                return Err(BatchFault::DeletedTwice(path.clone()));
            }
            Change::Put { path, .. } if path.is_root() => return Err(BatchFault::RecordOfRoot),
            Change::Put { path, .. } if !put.insert(path) => {
                return Err(BatchFault::PutTwice(path.clone()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Asserts, in builds with debug assertions, that a batch is what [`check`] asks for. Not for a batch of another
/// bridge or from a disk: the transaction layer refuses such a one with [`check`].
#[track_caller]
pub fn assert_well_formed(batch: &[Change]) {
    if cfg!(debug_assertions)
        && let Err(fault) = check(batch)
    {
        panic!("a batch that is none: {fault}");
    }
}

/// Asserts, in builds with debug assertions, that a page of children is sorted by name, names nothing twice, comes
/// after `after`, and is no longer than `limit`.
#[track_caller]
pub fn assert_page(page: &[(Vec<u8>, PathRecord)], after: Option<&[u8]>, limit: usize) {
    debug_assert!(
        page.len() <= limit,
        "a page of {} names; the limit is {limit}",
        page.len()
    );
    debug_assert!(
        page.is_sorted_by(|(a, _), (b, _)| a < b),
        "a page is sorted by name"
    );
    debug_assert!(
        page.first()
            .is_none_or(|(name, _)| after.is_none_or(|after| name.as_slice() > after)),
        "a page comes after its bound"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BridgeId, Kind, ObjectId, ObjectName};

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).unwrap()
    }

    fn object(seq: u64) -> ObjectName {
        ObjectName {
            oid: ObjectId::new(BridgeId(1), 1, seq),
            link: 0,
        }
    }

    fn record() -> PathRecord {
        let bytes = [
            &[1, Kind::Dir.code(), 0][..],
            &7u64.to_le_bytes(),
            &object(1).oid.0.to_le_bytes(),
            &[0; 4 + 4 + 8 + 12],
        ];
        PathRecord::decode(&bytes.concat()).unwrap()
    }

    fn put(at: &str) -> Change {
        Change::Put {
            path: path(at),
            record: record(),
        }
    }

    fn delete(at: &str) -> Change {
        Change::Delete {
            path: path(at),
            object: object(1),
        }
    }

    #[test]
    fn deletions_come_before_puts_and_no_path_comes_twice() {
        let doom = Change::Doom(object(1));
        assert_eq!(check(&[delete("a"), put("a"), doom, put("b")]), Ok(()));
        for (batch, fault) in [
            (
                [put("a"), delete("b")],
                BatchFault::DeletionAfterPut(path("b")),
            ),
            (
                [delete("a"), delete("a")],
                BatchFault::DeletedTwice(path("a")),
            ),
            ([put("a"), put("a")], BatchFault::PutTwice(path("a"))),
            ([delete("a"), put("")], BatchFault::RecordOfRoot),
        ] {
            assert_eq!(check(&batch), Err(fault));
        }
    }

    #[test]
    #[should_panic(expected = "a batch that is none: b is deleted after a put")]
    fn a_malformed_batch_is_a_broken_assertion() {
        assert_well_formed(&[put("a"), delete("b")]);
    }

    fn page(names: &[&str]) -> Vec<(Vec<u8>, PathRecord)> {
        let entry = |name: &&str| (name.as_bytes().to_vec(), record());
        names.iter().map(entry).collect()
    }

    #[test]
    fn a_page_is_sorted_and_within_its_bounds() {
        assert_page(&page(&["b", "c"]), Some(b"a"), 2);
        assert_page(&page(&[]), Some(b"a"), 0);
    }

    #[test]
    #[should_panic(expected = "a page is sorted by name")]
    fn a_page_out_of_order_is_a_broken_assertion() {
        assert_page(&page(&["c", "b"]), None, 2);
    }

    #[test]
    #[should_panic(expected = "a page comes after its bound")]
    fn a_page_that_repeats_its_bound_is_a_broken_assertion() {
        assert_page(&page(&["b", "c"]), Some(b"b"), 2);
    }

    #[test]
    #[should_panic(expected = "a page of 2 names; the limit is 1")]
    fn a_page_that_is_too_long_is_a_broken_assertion() {
        assert_page(&page(&["b", "c"]), None, 1);
    }
}
