//! What a start believes of what the last life has left.
//!
//! A power loss leaves the tables of the last sync point, and of each object some state that it has had since.

use crate::drain::{OURS, is_dirty};
use crate::facts::{Attr, Outcome};
use crate::path::TreePath;
use crate::record::{Kind, PathRecord};

/// An object that no record names, although records may have been lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stray {
    /// What its label says; `None` if it has none.
    pub kind: Option<Kind>,
    /// Bytes in it.
    pub bytes: u64,
    /// Other names lead to the same file. They are judged on their own.
    pub has_others: bool,
    /// What is in it is on the PFS as well.
    pub is_on_pfs: bool,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes: nothing is lost with it that was ever synced, and nothing that somebody has written.
    Remove,
    /// Somebody may have written what is in it. It is kept, and listed.
    Quarantine,
}

impl Stray {
    /// Judges it. An object gets its label before anybody is given it, and a name before it is synced.
    pub fn fate(self) -> Fate {
        let is_data = self.kind == Some(Kind::File) && self.bytes > 0;
        match is_data && !self.has_others && !self.is_on_pfs {
            true => Fate::Quarantine,
            false => Fate::Remove,
        }
    }
}

/// The record of a file whose mark "drained" is not to be believed after a power loss; `None` if the record stays.
///
/// Contents reach a disk before times do, and `fdatasync` leaves the times behind. So an object that looks as it did when
/// it was drained may hold other bytes. It is drained once more, unless others have changed what is on the PFS: `found`, an
/// error if nobody can tell.
pub fn undrained_by_loss(
    path: &TreePath,
    record: &PathRecord,
    now: &Attr,
    found: Outcome<Option<Attr>>,
) -> Option<PathRecord> {
    let is_as_drained = match found {
        Ok(found) => found.is_some_and(|found| match record.replaces {
            Some(known) => known.is(&found),
            None => (found.size, found.mtime) == (now.size, now.mtime),
        }),
        Err(_) => true,
    };
    let is_doubtful =
        record.kind == Kind::File && !is_dirty(path, record, Some(now)) && is_as_drained;
    is_doubtful.then(|| PathRecord {
        drained: Some(OURS),
        ..record.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::stamp;
    use crate::facts::Stop;
    use crate::record::{BridgeId, ObjectName, Token};

    const ALL_KINDS: [Kind; 6] = [
        Kind::File,
        Kind::Dir,
        Kind::Symlink,
        Kind::Special,
        Kind::Moved,
        Kind::Whiteout,
    ];

    const WRITTEN: Stray = Stray {
        kind: Some(Kind::File),
        bytes: 1,
        has_others: false,
        is_on_pfs: false,
    };

    #[test]
    fn a_stray_file_with_bytes_of_its_own_is_kept() {
        assert_eq!(WRITTEN.fate(), Fate::Quarantine);
        let large = Stray {
            bytes: u64::MAX,
            ..WRITTEN
        };
        assert_eq!(large.fate(), Fate::Quarantine);
    }

    #[test]
    fn a_stray_whose_bytes_are_nowhere_or_also_elsewhere_goes() {
        for stray in [
            Stray {
                bytes: 0,
                ..WRITTEN
            },
            Stray {
                has_others: true,
                ..WRITTEN
            },
            Stray {
                is_on_pfs: true,
                ..WRITTEN
            },
            // A part of a copy that nobody was given.
            Stray {
                kind: None,
                ..WRITTEN
            },
        ] {
            assert_eq!(stray.fate(), Fate::Remove, "{stray:?}");
        }
    }

    #[test]
    fn of_all_kinds_only_a_file_holds_what_somebody_has_written() {
        let kept: Vec<_> = ALL_KINDS
            .into_iter()
            .filter(|&kind| {
                let stray = Stray {
                    kind: Some(kind),
                    ..WRITTEN
                };
                stray.fate() == Fate::Quarantine
            })
            .collect();
        assert_eq!(kept, [Kind::File]);
    }

    fn path() -> TreePath {
        TreePath::new(b"f").unwrap()
    }

    /// A drained file and its attributes.
    fn drained() -> (PathRecord, Attr) {
        let now = Attr {
            size: 4096,
            ..Attr::default()
        };
        let record = PathRecord {
            version: 1,
            kind: Kind::File,
            object: ObjectName::default(),
            owner: BridgeId(0),
            ino: 0,
            origin: None,
            hides: None,
            replaces: None,
            arriving: None,
            token: Token::default(),
            drained: Some(stamp(&now)),
            transit: None,
            segments: Vec::new(),
        };
        (record, now)
    }

    #[test]
    fn after_a_power_loss_what_looks_drained_is_drained_once_more() {
        let (record, now) = drained();
        for found in [Ok(Some(now)), Err(Stop::Errno(5))] {
            let after = undrained_by_loss(&path(), &record, &now, found).unwrap();
            assert!(is_dirty(&path(), &after, Some(&now)), "it is drained again");
            assert!(
                after.drained.is_some(),
                "what is on the PFS is still known as ours"
            );
        }
    }

    #[test]
    fn after_a_power_loss_the_changes_of_others_stay_on_the_pfs() {
        let (record, now) = drained();
        let mut changed = now;
        changed.mtime.sec += 1;
        for found in [None, Some(changed)] {
            assert_eq!(undrained_by_loss(&path(), &record, &now, Ok(found)), None);
        }
    }
}
