//! Which names a client may look at itself: what the bridge writes into the memory that it shares with clients of its own
//! user (`forebay_wire::NameTable` in the drivers).

use crate::path::TreePath;
use crate::record::{BridgeId, Kind, ObjectName, PathRecord};
use crate::table::{Change, TableError, Tables};

/// A name whose attributes are those of a backing object, whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plain {
    /// The object.
    pub object: ObjectName,
    /// A directory; else a regular file.
    pub is_dir: bool,
}

/// What `stat` of this record shows if the attributes of its object are all of it. That is so for files of this bridge that
/// no drain is working at. Of directories only the mode counts: their times may wait to be written.
pub fn plain(record: &PathRecord, me: BridgeId) -> Option<Plain> {
    let is_dir = match record.kind {
        Kind::File => false,
        Kind::Dir => true,
        Kind::Symlink | Kind::Special | Kind::Moved | Kind::Whiteout => return None,
    };
    // A copy shows the number of its original.
    let is_mine = record.owner == me && record.segments.is_empty() && record.copy_of == 0;
    (is_mine && record.transit.is_none()).then_some(Plain {
        object: record.object,
        is_dir,
    })
}

/// How many directories are above a record, if all of them were made in the buffer. Of a directory of the PFS only the PFS
/// can say whether it is still where it was: else `None`.
///
/// # Errors
/// The tables failed.
pub fn born_above(path: &TreePath, tables: &dyn Tables) -> Result<Option<u16>, TableError> {
    let mut at = path.parent();
    let mut born: u16 = 0;
    while !at.is_root() {
        let is_born = tables
            .get(&at)?
            .is_some_and(|above| above.kind == Kind::Dir);
        match born.checked_add(1).filter(|_| is_born) {
            Some(more) => born = more,
            None => return Ok(None),
        }
        at = at.parent();
    }
    Ok(Some(born))
}

/// The path and the record that a change leaves there, if it changes a record.
pub fn outcome(change: &Change) -> Option<(&TreePath, Option<&PathRecord>)> {
    match change {
        Change::Put { path, record } => Some((path, Some(record))),
        Change::Delete { path, .. } => Some((path, None)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::tests::Table;
    use crate::record::ObjectId;
    use crate::table::WriteTables;

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).unwrap()
    }

    fn record(kind: Kind, number: u64) -> PathRecord {
        PathRecord {
            version: 1,
            ino: number,
            ..PathRecord::new(
                kind,
                ObjectName {
                    oid: ObjectId::new(BridgeId(1), 1, number << 2),
                    link: 0,
                },
                BridgeId(1),
            )
        }
    }

    #[test]
    fn only_files_and_directories_of_this_bridge_are_plain() {
        let me = BridgeId(1);
        assert!(!plain(&record(Kind::File, 1), me).unwrap().is_dir);
        assert!(plain(&record(Kind::Dir, 1), me).unwrap().is_dir);
        for kind in [Kind::Symlink, Kind::Special, Kind::Moved, Kind::Whiteout] {
            assert_eq!(plain(&record(kind, 1), me), None);
        }
        assert_eq!(plain(&record(Kind::File, 1), BridgeId(2)), None);
    }

    /// What is below a directory of the PFS may be anywhere by now: others can rename or remove that.
    #[test]
    fn a_name_is_known_where_its_whole_way_was_made_in_the_buffer() {
        let tables = Table::default();
        let put = |at: &str, kind, number| {
            let change = Change::Put {
                path: path(at),
                record: record(kind, number),
            };
            tables.apply(&[change]).unwrap();
        };
        put("a", Kind::Dir, 1);
        put("a/b", Kind::Dir, 2);
        put("moved", Kind::Moved, 3);
        let born = |at: &str| born_above(&path(at), &tables).unwrap();
        assert_eq!(born("f"), Some(0));
        assert_eq!(born("a/f"), Some(1));
        assert_eq!(born("a/b/f"), Some(2));
        for at in ["pfs/f", "a/pfs/f", "moved/f", "a/b/pfs/c/f"] {
            assert_eq!(born(at), None, "{at}");
        }
    }
}
