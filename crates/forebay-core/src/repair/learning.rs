//! What rebuilt records do not know of the PFS, because no label tells it.
//!
//! Of something renamed the label tells what it was. It may lie elsewhere than its label tells, if a drain was killed before it
//! had written that: it is looked for. Of what is hidden no label tells what it was: it is taken for what is there at
//! the first start after, unless that can be something renamed that was not found.

use crate::drain::waiting_path;
use crate::facts::Attr;
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Kind, PathRecord, Transit};
use std::collections::{BTreeMap, BTreeSet};

/// A look at the PFS. What can't be looked at is known as little as what is not there.
pub trait Sight {
    /// The attributes of what is there.
    fn there(&self, path: &TreePath) -> Option<Attr>;

    /// What this directory is known by, with all that is in it but what is at the paths `without`.
    fn dir(&self, path: &TreePath, without: &BTreeSet<TreePath>) -> Option<Identity>;
}

/// Of these records, which are all that there are, those that are others now: what they hide and rename is known.
///
/// A record of something that is not where it says gets a mark as if a drain had been killed in the move, so that whoever resumes
/// that finds out what else is to be said otherwise. It relies on the order in which labels are written after a move: first those
/// of what went along, then that of what was renamed.
pub fn learned(
    records: &[(TreePath, PathRecord)],
    sight: &dyn Sight,
) -> Vec<(TreePath, PathRecord)> {
    let renamed = Renamed::find(records, sight);
    let learned = records.iter().filter_map(|(path, record)| {
        let mut after = record.clone();
        if let Some(at) = renamed.by_path.get(path) {
            renamed.all[*at].tell(&mut after);
        }
        if let (Some(hides), None) = (&after.hides, &after.replaces) {
            after.replaces = Some(renamed.hidden(path, hides, sight));
        }
        (after != *record).then(|| (path.clone(), after))
    });
    learned.collect()
}

/// Something renamed.
struct Moved {
    path: TreePath,
    origin: TreePath,
    /// What it is; `None`: neither its label tells it, nor is anything where it can be.
    known: Option<Identity>,
    at: Option<At>,
}

/// Where it is.
#[derive(Clone, PartialEq, Eq)]
enum At {
    Origin,
    /// Under the name under which a drain lets it wait, or its final one.
    Further(TreePath),
    /// Its directory, or one above it, was renamed, and is further.
    Along(TreePath),
}

impl Moved {
    fn place(&self) -> Option<&TreePath> {
        match self.at.as_ref()? {
            At::Origin => Some(&self.origin),
            At::Further(path) | At::Along(path) => Some(path),
        }
    }

    /// Is this its final name, and has it got that?
    fn has_arrived_at(&self, path: &TreePath) -> bool {
        matches!(&self.at, Some(At::Further(at)) if at == path) && self.path == *path
    }

    /// To its record.
    fn tell(&self, record: &mut PathRecord) {
        record.arriving = Some(Box::new(self.known.unwrap_or(Identity::NOTHING)));
        if let Some(At::Further(_)) = &self.at {
            record.transit = Some(Transit::Placing);
        }
        if record
            .hides
            .as_ref()
            .is_some_and(|hides| self.has_arrived_at(hides))
        {
            // What was there before has gone.
            (record.hides, record.replaces) = (None, None);
        }
    }
}

/// All that is renamed.
#[derive(Default)]
struct Renamed {
    all: Vec<Moved>,
    by_path: BTreeMap<TreePath, usize>,
    by_origin: BTreeMap<TreePath, usize>,
    by_place: BTreeMap<TreePath, usize>,
    /// Where they are and, by the labels, were.
    places: BTreeSet<TreePath>,
    /// Of those that were not found: what they are.
    lost: Vec<Option<Identity>>,
}

impl Renamed {
    fn find(records: &[(TreePath, PathRecord)], sight: &dyn Sight) -> Self {
        let moved = records.iter().filter(|(_, r)| r.kind == Kind::Moved);
        let mut moved: Vec<_> = moved
            .filter_map(|(path, record)| Some((record.origin.as_ref()?, path, record)))
            .collect();
        // What is above comes first, so that it is known where that is.
        moved.sort_by_key(|(origin, ..)| *origin);
        let mut renamed = Renamed::default();
        for (origin, path, record) in moved {
            let moved = renamed.find_one(path, record, origin, sight);
            renamed.add(moved);
        }
        renamed
    }

    fn add(&mut self, moved: Moved) {
        let at = self.all.len();
        match moved.place() {
            Some(place) => {
                self.by_place.insert(place.clone(), at);
                self.places.insert(place.clone());
            }
            // Nothing can be it that comes, but what is there can.
            None => self
                .lost
                .push(moved.known.filter(|known| *known != Identity::NOTHING)),
        }
        self.places.insert(moved.origin.clone());
        self.by_origin.insert(moved.origin.clone(), at);
        self.by_path.insert(moved.path.clone(), at);
        self.all.push(moved);
    }

    fn find_one(
        &self,
        path: &TreePath,
        record: &PathRecord,
        origin: &TreePath,
        sight: &dyn Sight,
    ) -> Moved {
        let known = record.arriving.as_deref().copied();
        let is_it = |attr: &Attr| known.is_none_or(|known| known.is(attr));
        // Nobody but a drain gives the first name. The last one can be anybody's, as long as no label tells what was renamed.
        let waits = At::Further(waiting_path(record.object.oid));
        let along = self.along(origin).into_iter().map(At::Along);
        let end = known.map(|_| At::Further(path.clone()));
        let mut moved = Moved {
            path: path.clone(),
            origin: origin.clone(),
            known,
            at: None,
        };
        for at in [waits, At::Origin].into_iter().chain(along).chain(end) {
            moved.at = Some(at);
            let found = moved.place().and_then(|place| sight.there(place));
            if let Some(attr) = found.filter(is_it) {
                moved.known = Some(known.unwrap_or(Identity::of_leaving(&attr)));
                return moved;
            }
        }
        moved.at = None;
        moved
    }

    /// Where what was at this path can be now, because something above it was renamed and is further. The nearest comes first.
    fn along(&self, path: &TreePath) -> Vec<TreePath> {
        let mut places = Vec::new();
        let mut at = path.clone();
        while !at.is_root() {
            at = at.parent();
            let moved = self.by_origin.get(&at).map(|at| &self.all[*at]);
            let further = moved.and_then(Moved::place).filter(|place| **place != at);
            places.extend(further.and_then(|place| path.rebase(&at, place)));
        }
        places
    }

    /// What the record at `path` hides at `hides`.
    fn hidden(&self, path: &TreePath, hides: &TreePath, sight: &dyn Sight) -> Identity {
        // What went along is there, whatever has come to the place before.
        let places = self.along(hides).into_iter().chain([hides.clone()]);
        let mut found = places.filter_map(|place| Some((sight.there(&place)?, place)));
        let Some((attr, place)) = found.next() else {
            return Identity::NOTHING;
        };
        if let Some(at) = self.by_place.get(&place) {
            // Where something has arrived nothing of what was there before is left.
            return match self.all[*at].has_arrived_at(&place) && *path != place {
                true => Identity::NOTHING,
                false => Identity::of_leaving(&attr),
            };
        }
        let known = match attr.is_dir() {
            true if self.lost.is_empty() => sight.dir(&place, &self.places),
            // One of them may be in it.
            true => None,
            false => {
                let mut lost = self.lost.iter();
                let is_lost = lost.any(|lost| lost.is_none_or(|known| known.is(&attr)));
                (!is_lost).then(|| Identity::of(&attr))
            }
        };
        known.unwrap_or(Identity::NOTHING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BridgeId, ObjectId, ObjectName};

    /// Paths with their inode numbers; directories have those from 100 on.
    struct Pfs(BTreeMap<TreePath, u64>);

    impl Sight for Pfs {
        fn there(&self, path: &TreePath) -> Option<Attr> {
            self.0.get(path).map(|ino| attr(*ino))
        }

        fn dir(&self, path: &TreePath, without: &BTreeSet<TreePath>) -> Option<Identity> {
            let counts = |p: &&TreePath| p.parent() == *path && !without.contains(p);
            let entries = self.0.keys().filter(counts);
            let entries = entries.map(|p| (p.name(), Some(Identity::of(&attr(self.0[p])))));
            Some(Identity::of(&attr(self.0[path])).with_contents(entries))
        }
    }

    fn attr(ino: u64) -> Attr {
        let kind = match ino < 100 {
            true => libc::S_IFREG,
            false => libc::S_IFDIR,
        };
        Attr {
            ino,
            mode: kind | 0o644,
            nlink: 1,
            ..Attr::default()
        }
    }

    fn p(path: &str) -> TreePath {
        TreePath::new(path.as_bytes()).unwrap()
    }

    fn pfs<const N: usize>(there: [(&str, u64); N]) -> Pfs {
        Pfs(there.map(|(path, ino)| (p(path), ino)).into())
    }

    fn record(kind: Kind, seq: u64) -> PathRecord {
        let object = ObjectName {
            oid: ObjectId::new(BridgeId(1), 1, seq),
            link: 0,
        };
        PathRecord::new(kind, object, BridgeId(1))
    }

    fn removed(seq: u64, path: &str) -> PathRecord {
        PathRecord {
            hides: Some(p(path)),
            ..record(Kind::Whiteout, seq)
        }
    }

    /// It was at `origin`, and has this inode number if its label tells that.
    fn moved(seq: u64, origin: &str, ino: Option<u64>) -> PathRecord {
        PathRecord {
            origin: Some(p(origin)),
            arriving: ino.map(|ino| Box::new(Identity::of_leaving(&attr(ino)))),
            ..record(Kind::Moved, seq)
        }
    }

    fn waits(seq: u64) -> String {
        let path = waiting_path(ObjectId::new(BridgeId(1), 1, seq));
        String::from_utf8(path.as_bytes().to_vec()).unwrap()
    }

    fn learn<const N: usize>(records: [(&str, PathRecord); N], pfs: &Pfs) -> [PathRecord; N] {
        let mut records = records.map(|(path, record)| (p(path), record));
        for (path, record) in learned(&records, pfs) {
            let at = records.iter().position(|(p, _)| *p == path).unwrap();
            records[at].1 = record;
        }
        records.map(|(_, record)| record)
    }

    #[test]
    fn what_was_renamed_is_found_where_a_killed_drain_has_left_it() {
        for (place, is_further) in [("a", false), (&*waits(1), true), ("b", true)] {
            for told in [Some(7), None] {
                let [b] = learn([("b", moved(1, "a", told))], &pfs([(place, 7)]));
                // What is at its final name can be anything.
                let is_found = told.is_some() || place != "b";
                assert_eq!(b.arriving.unwrap().is(&attr(7)), is_found);
                assert_eq!(b.transit.is_some(), is_further && is_found, "{place}");
            }
        }
    }

    #[test]
    fn what_was_renamed_is_not_taken_for_what_is_hidden() {
        // Two have exchanged their names in the buffer. On the PFS the first waits then, and the second arrives.
        for (x, y) in [("x", "y"), (&*waits(2), "y"), (&*waits(2), "x")] {
            let exchanged = |path: &str, moved| PathRecord {
                hides: Some(p(path)),
                ..moved
            };
            let learned = learn(
                [
                    ("x", exchanged("x", moved(1, "y", Some(8)))),
                    ("y", exchanged("y", moved(2, "x", Some(7)))),
                ],
                &pfs([(x, 7), (y, 8)]),
            );
            assert_eq!(learned[0].hides.is_none(), y == "x");
            for record in &learned {
                let known = record.replaces.filter(|_| record.hides.is_some());
                let may_go = |ino| known.is_some_and(|k| k.is(&attr(ino)) && !k.is_leaving());
                assert!(!may_go(7) && !may_go(8), "{record:?}");
            }
        }
    }

    #[test]
    fn what_went_along_is_found_in_what_was_renamed() {
        let waiting = waits(1);
        let [f, g] = ["f", "g"].map(|name| format!("{waiting}/{name}"));
        let [d, f, g] = learn(
            [
                ("d", moved(1, "old", Some(100))),
                ("f", moved(2, "old/f", Some(7))),
                ("d/g", removed(3, "old/g")),
            ],
            &pfs([(&waiting, 100), (&f, 7), (&g, 8)]),
        );
        assert!(d.transit.is_some() && f.transit.is_none());
        assert!(g.replaces.unwrap().is(&attr(8)));
    }

    #[test]
    fn nothing_goes_that_can_be_something_renamed() {
        let there = pfs([("d", 100), ("d/f", 7), ("g", 8), ("h", 9)]);
        let goes = |renamed: PathRecord| {
            let records = [
                ("d", removed(2, "d")),
                ("g", removed(3, "g")),
                ("h", removed(4, "h")),
                ("x", renamed),
            ];
            let [d, g, h, _] = learn(records, &there);
            [d, g, h].map(|record| record.replaces != Some(Identity::NOTHING))
        };
        assert_eq!(goes(moved(1, "d/f", Some(7))), [true, true, true]);
        // Its label tells another place.
        assert_eq!(goes(moved(1, "else/f", Some(7))), [false, true, true]);
        assert_eq!(goes(moved(1, "else/f", Some(8))), [false, false, true]);
        // An older label does not even tell what it was.
        assert_eq!(goes(moved(1, "else/f", None)), [false, false, false]);
    }
}
