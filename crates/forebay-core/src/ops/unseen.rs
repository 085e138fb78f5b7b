//! Records that go with a directory of the PFS: removals of what was in it, in any number.
//!
//! Once the directory is gone nobody can see them. So a driver takes them away after the batch, in parts, and others need
//! not wait for all of them, unless they change something there. A mark in the batch tells the next start to go on.

use crate::path::TreePath;
use crate::record::ObjectName;
use crate::table::{Change, TableError, Tables};

/// Directories with records that are still to go.
const MARKS: &[u8] = b"ops/unseen/";

/// What nobody can see below a directory that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// The directory. The batch puts a whiteout in its place.
    pub dir: TreePath,
    /// All records below it, with their objects.
    pub records: Vec<(TreePath, ObjectName)>,
    /// Records of one part.
    pub per_part: usize,
}

impl Unseen {
    /// Goes with the batch that removes the directory.
    pub fn mark(&self) -> Change {
        mark(&self.dir, Some(Vec::new()))
    }

    /// Is one of these paths that of the directory, or below it, or above it?
    pub fn is_touched_by<'p>(&self, paths: impl IntoIterator<Item = &'p TreePath>) -> bool {
        let mut paths = paths.into_iter();
        paths.any(|path| path.is_within(&self.dir) || self.dir.is_within(path))
    }

    /// The next part of what follows the batch. The last one takes the mark away.
    pub fn part(&self) -> Vec<Change> {
        let from = self.before_part();
        let records = &self.records[from..];
        let mut part: Vec<_> = deletions(records).chain(dooms(records)).collect();
        part.extend((from == 0).then(|| mark(&self.dir, None)));
        part
    }

    /// The part was committed. True if it was the last one.
    pub fn is_last(&mut self) -> bool {
        let from = self.before_part();
        self.records.truncate(from);
        from == 0
    }

    fn before_part(&self) -> usize {
        self.records.len().saturating_sub(self.per_part)
    }

    /// The batch with all of it.
    pub fn in_one(&self, batch: Vec<Change>) -> Vec<Change> {
        let all = deletions(&self.records).chain(batch);
        all.chain(dooms(&self.records)).collect()
    }

    /// What an earlier life has left, to go in parts of so many records.
    ///
    /// # Errors
    /// The tables failed.
    pub fn left(tables: &dyn Tables, per_part: usize) -> Result<Vec<Self>, TableError> {
        let mut left = Vec::new();
        for (key, _) in tables.metas(MARKS)? {
            let Some(dir) = key.strip_prefix(MARKS).and_then(TreePath::new) else {
                return Err(TableError::damaged("mark of a removed directory", &key));
            };
            let records = tables.subtree(&dir)?.into_iter();
            let records = records.map(|(path, record)| (path, record.object));
            let records = records.collect();
            left.push(Unseen {
                dir,
                records,
                per_part,
            });
        }
        Ok(left)
    }
}

/// Directories that went, whose records are still going.
///
/// As long as records are left nobody else may change what is there: the next start takes away all that is below the
/// directory. If taking them away has failed, they go before anything else is committed: their objects may be used again.
#[derive(Debug, Default)]
pub struct Leaving(Vec<Remainder>);

#[derive(Debug)]
struct Remainder {
    unseen: Unseen,
    is_stuck: bool,
}

/// May a batch be committed, as far as records that are going are concerned?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clearance {
    /// It may.
    Free,
    /// When those who take records away have done so.
    HeldUp,
    /// When somebody has taken all of them away.
    Stuck,
}

impl Leaving {
    /// What an earlier life has left, to go in parts of so many records.
    ///
    /// # Errors
    /// The tables failed.
    pub fn of_earlier(tables: &dyn Tables, per_part: usize) -> Result<Self, TableError> {
        let left = Unseen::left(tables, per_part)?.into_iter();
        let stuck = |unseen| Remainder {
            unseen,
            is_stuck: true,
        };
        Ok(Leaving(left.map(stuck).collect()))
    }

    /// Is nothing left?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The directory went.
    pub fn begin(&mut self, unseen: Unseen) {
        self.0.push(Remainder {
            unseen,
            is_stuck: false,
        });
    }

    /// Is the way free for this batch?
    pub fn clearance_for(&self, batch: &[Change]) -> Clearance {
        let paths = || batch.iter().filter_map(Change::path);
        if self.0.iter().any(|left| left.is_stuck) {
            Clearance::Stuck
        } else if self.0.iter().any(|l| l.unseen.is_touched_by(paths())) {
            Clearance::HeldUp
        } else {
            Clearance::Free
        }
    }

    fn find(&self, dir: Option<&TreePath>) -> Option<usize> {
        let is_it = |left: &Remainder| dir.is_none_or(|dir| left.unseen.dir == *dir);
        self.0.iter().position(is_it)
    }

    /// The next part of what is below `dir`, or below any directory; `None` if nothing is left.
    pub fn part(&self, dir: Option<&TreePath>) -> Option<Vec<Change>> {
        self.find(dir).map(|at| self.0[at].unseen.part())
    }

    /// That part was committed, or could not be.
    pub fn part_ended(&mut self, dir: Option<&TreePath>, did: bool) {
        let Some(at) = self.find(dir) else {
            panic!("a part of {dir:?} that was never given");
        };
        if !did {
            self.0[at].is_stuck = true;
        } else if self.0[at].unseen.is_last() {
            self.0.swap_remove(at);
        }
    }
}

fn mark(dir: &TreePath, value: Option<Vec<u8>>) -> Change {
    Change::Meta {
        key: [MARKS, dir.as_bytes()].concat(),
        value,
    }
}

fn deletions(records: &[(TreePath, ObjectName)]) -> impl Iterator<Item = Change> {
    records.iter().map(|(path, object)| Change::Delete {
        path: path.clone(),
        object: *object,
    })
}

fn dooms(records: &[(TreePath, ObjectName)]) -> impl Iterator<Item = Change> {
    records.iter().map(|(_, object)| Change::Doom(*object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BridgeId, ObjectId};

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).unwrap()
    }

    fn unseen(dir: &str, records: usize) -> Unseen {
        let object = |n| ObjectName {
            oid: ObjectId::new(BridgeId(1), 1, n),
            link: 0,
        };
        let below = |n| (path(&format!("{dir}/f{n}")), object(n as u64));
        Unseen {
            dir: path(dir),
            records: (0..records).map(below).collect(),
            per_part: 2,
        }
    }

    fn change(at: &str) -> Vec<Change> {
        let (_, object) = unseen("x", 1).records[0].clone();
        let path = path(at);
        vec![Change::Delete { path, object }]
    }

    #[test]
    fn who_changes_something_there_waits_until_all_records_have_gone() {
        let mut leaving = Leaving::default();
        leaving.begin(unseen("p/d", 5));
        leaving.begin(unseen("other", 1));
        for (at, way) in [
            ("p/d", Clearance::HeldUp),
            ("p/d/new", Clearance::HeldUp),
            ("p", Clearance::HeldUp),
            ("p/e", Clearance::Free),
            ("p/dd", Clearance::Free),
            ("q", Clearance::Free),
        ] {
            assert_eq!(leaving.clearance_for(&change(at)), way, "{at}");
        }
        let dir = path("p/d");
        let mut gone = 0;
        while let Some(part) = leaving.part(Some(&dir)) {
            assert_eq!(leaving.clearance_for(&change("p/d/new")), Clearance::HeldUp);
            let deleted = |c: &&Change| matches!(c, Change::Delete { .. });
            gone += part.iter().filter(deleted).count();
            leaving.part_ended(Some(&dir), true);
        }
        assert_eq!(gone, 5);
        assert_eq!(leaving.clearance_for(&change("p/d/new")), Clearance::Free);
        assert!(!leaving.is_empty(), "the other one");
    }

    #[test]
    fn after_a_part_has_failed_all_records_go_before_anything_else() {
        let mut leaving = Leaving::default();
        leaving.begin(unseen("d", 1));
        let dir = path("d");
        assert!(leaving.part(Some(&dir)).is_some());
        leaving.part_ended(Some(&dir), false);
        assert_eq!(
            leaving.clearance_for(&change("elsewhere")),
            Clearance::Stuck
        );
        assert_eq!(leaving.clearance_for(&[]), Clearance::Stuck);
        assert!(leaving.part(None).is_some(), "the same part once more");
        leaving.part_ended(None, true);
        assert!(leaving.is_empty());
        assert_eq!(leaving.clearance_for(&change("elsewhere")), Clearance::Free);
    }
}
