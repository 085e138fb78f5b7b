//! What programs may have made of files of the PFS by writing to them in place.

use super::{FileMap, REMEMBERED};
use crate::facts::{Attr, Inode, Timestamp};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::table::Change;
use std::collections::BTreeSet;

/// Files that were granted for writing, the first [`REMEMBERED`] of them.
#[derive(Debug, Default)]
pub struct WrittenInPlace<W> {
    files: W,
    /// The devices on which they are.
    devices: BTreeSet<u64>,
}

/// A file that was granted for writing.
#[derive(Debug)]
pub struct Written {
    /// When it was made: another one may get its number when it is gone. Where the file system does not tell that, it is the same
    /// for all.
    born: Timestamp,
    /// What its writers had left when it was hidden. `None`: one of them may still write to it, or has got it since.
    left: Option<Identity>,
    /// Clients have changed it by its path as well. Nobody can see when such a change is over.
    by_path: bool,
}

impl Written {
    /// Is what its writers leave to be looked at when it is hidden?
    fn is_due(&self) -> bool {
        self.left.is_none() && !self.by_path
    }
}

impl<W: FileMap<Written>> WrittenInPlace<W> {
    fn get(&self, file: Inode) -> Option<&Written> {
        self.files.get(file)
    }

    /// A client may write to the file with these attributes from now on, or changes it by its path.
    pub(super) fn note(&mut self, attr: &Attr, by_path: bool) {
        let file = attr.inode();
        let known = self.get(file);
        if self.files.count() < REMEMBERED || known.is_some() {
            let written = Written {
                born: attr.btime,
                left: None,
                by_path: by_path || known.is_some_and(|k| k.by_path && k.born == attr.btime),
            };
            self.files.insert(file, written);
            self.devices.insert(attr.dev);
        }
    }

    /// Its writers have left this, and no client gets the file under the name that it had.
    pub(super) fn note_left(&mut self, attr: &Attr) {
        let is_due = self.get(attr.inode()).is_some_and(Written::is_due);
        if is_due && self.may_have_made(attr) {
            // Also of a file with several names its contents count: the names may all go at once.
            let left = match attr.nlink > 1 {
                true => Identity::of_copy(attr),
                false => Identity::of(attr),
            };
            let left = Written {
                born: attr.btime,
                left: Some(left),
                by_path: false,
            };
            self.files.insert(attr.inode(), left);
        }
    }

    /// Can clients of this bridge have made the file what it is now, by writing to it in place? Also false where there was no room
    /// to remember it; a drain then takes the write for a change by others and leaves the file.
    pub fn may_have_made(&self, now: &Attr) -> bool {
        let written = self.get(now.inode());
        written.is_some_and(|written| {
            written.born == now.btime && written.left.is_none_or(|left| left.is(now))
        })
    }

    /// Files of the PFS that this batch keeps from view for good, and that clients may have written to: what they have left there is
    /// to be looked at. One that was renamed goes on under its new name.
    pub fn hidden_by<'a>(&self, batch: &'a [Change]) -> Vec<&'a TreePath> {
        let is_due = |known: Identity| {
            let mut devices = self.devices.iter();
            devices.any(|dev| self.get((*dev, known.inode())).is_some_and(Written::is_due))
        };
        let hidden = batch.iter().filter_map(|change| match change {
            Change::Put { record, .. } => record.hides.as_ref().zip(record.replaces),
            _ => None,
        });
        let due = hidden.filter(|(_, known)| !known.is_leaving() && is_due(*known));
        due.map(|(place, _)| place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BridgeId, Kind, ObjectName, PathRecord};
    use std::collections::BTreeMap;

    type WrittenInPlace = super::WrittenInPlace<BTreeMap<Inode, Written>>;

    fn file(ino: u64, changed: i64) -> Attr {
        Attr {
            mode: libc::S_IFREG | 0o644,
            dev: 1,
            ino,
            nlink: 1,
            ctime: Timestamp {
                sec: changed,
                nsec: 0,
            },
            ..Attr::default()
        }
    }

    #[test]
    fn files_that_clients_write_in_place_are_known_while_there_is_room() {
        let mut written = WrittenInPlace::default();
        written.note(&file(8, 1), false);
        assert!(written.may_have_made(&file(8, 2)) && !written.may_have_made(&file(7, 1)));
        (0..REMEMBERED as u64).for_each(|ino| written.note(&file(100 + ino, 1), false));
        assert_eq!(written.files.len(), REMEMBERED);
        let other = Attr {
            btime: Timestamp { sec: 1, nsec: 0 },
            ..file(8, 1)
        };
        assert!(
            !written.may_have_made(&other),
            "it has the number of one that is gone"
        );
        assert!(written.may_have_made(&file(8, 1)));
    }

    #[test]
    fn what_others_make_of_a_file_that_its_writers_have_left_is_theirs() {
        let mut written = WrittenInPlace::default();
        written.note(&file(8, 1), false);
        written.note_left(&file(8, 2));
        assert!(written.may_have_made(&file(8, 2)) && !written.may_have_made(&file(8, 3)));
        // What was left before is not left once more.
        written.note_left(&file(8, 3));
        assert!(!written.may_have_made(&file(8, 3)));
        // By another name it is written once more.
        written.note(&file(8, 3), false);
        assert!(written.may_have_made(&file(8, 4)));
        written.note(&file(8, 4), true);
        written.note_left(&file(8, 4));
        assert!(written.may_have_made(&file(8, 5)), "by its path");
        written.note_left(&file(9, 1));
        assert!(!written.may_have_made(&file(9, 1)), "it was never granted");
    }

    #[test]
    fn of_a_batch_what_hides_a_file_that_was_written_is_told() {
        let mut written = WrittenInPlace::default();
        written.note(&file(8, 1), false);
        let put = |name: &str, known| {
            let path = TreePath::new(name).unwrap();
            let record = PathRecord {
                hides: Some(path.clone()),
                replaces: Some(known),
                ..PathRecord::new(Kind::Whiteout, ObjectName::default(), BridgeId(1))
            };
            Change::Put { path, record }
        };
        let known = |ino| Identity::of(&file(ino, 1));
        let batch = [
            put("other", known(7)),
            put("removed", known(8)),
            put("renamed", known(8).leaving()),
        ];
        let hidden = written.hidden_by(&batch);
        assert_eq!(hidden, [&TreePath::new("removed").unwrap()]);
        written.note_left(&file(8, 1));
        assert!(written.hidden_by(&batch).is_empty(), "that is known");
        assert!(WrittenInPlace::default().hidden_by(&batch).is_empty());
    }
}
