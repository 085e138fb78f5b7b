//! Records that go with a directory of the PFS: removals of what was in it, in any number.
//!
//! Once the directory is gone nobody can see them. So a driver takes them away after the batch, in parts, and others need
//! not wait for all of them, unless they change something there. A mark in the batch tells the next start to go on.

use crate::path::TreePath;
use crate::record::ObjectName;
use crate::table::{Change, TableError, Tables};

/// Records of one part.
pub const RECORDS_PER_PART: usize = 256;

/// Directories with records that are still to go.
const MARKS: &[u8] = b"ops/unseen/";

/// What nobody can see below a directory that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// The directory. The batch puts a whiteout in its place.
    pub dir: TreePath,
    /// All records below it, with their objects.
    pub records: Vec<(TreePath, ObjectName)>,
}

impl Unseen {
    /// Goes with the batch that removes the directory.
    pub fn mark(&self) -> Change {
        mark(&self.dir, Some(Vec::new()))
    }

    /// Is one of these paths that of the directory, or below it, or above it? As long as records are left nobody else may
    /// change what is there: the next start takes away all that is below the directory.
    pub fn is_touched_by<'p>(&self, paths: impl IntoIterator<Item = &'p TreePath>) -> bool {
        let mut paths = paths.into_iter();
        paths.any(|path| path.is_within(&self.dir) || self.dir.is_within(path))
    }

    /// Are there so many records that they go in several parts?
    pub fn is_large(&self) -> bool {
        self.records.len() > RECORDS_PER_PART
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
        self.records.len().saturating_sub(RECORDS_PER_PART)
    }

    /// The batch with all of it.
    pub fn in_one(&self, batch: Vec<Change>) -> Vec<Change> {
        let all = deletions(&self.records).chain(batch);
        all.chain(dooms(&self.records)).collect()
    }

    /// What an earlier life has left.
    ///
    /// # Errors
    /// The tables failed.
    pub fn left(tables: &dyn Tables) -> Result<Vec<Self>, TableError> {
        let mut left = Vec::new();
        for (key, _) in tables.metas(MARKS)? {
            let Some(dir) = key.strip_prefix(MARKS).and_then(TreePath::new) else {
                return Err(TableError::damaged("mark of a removed directory", &key));
            };
            let records = tables.subtree(&dir)?.into_iter();
            let records = records.map(|(path, record)| (path, record.object));
            let records = records.collect();
            left.push(Unseen { dir, records });
        }
        Ok(left)
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
