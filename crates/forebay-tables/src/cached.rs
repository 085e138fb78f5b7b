//! A bounded cache of records in front of other tables.
//!
//! Every path operation asks for the records of all its directories, most of
//! which say "nothing here, look below"; the store needs microseconds for each.
//! Answers are kept, the negative ones too, and every write goes through.

use forebay_core::path::TreePath;
use forebay_core::record::{ObjectId, ObjectName, PathRecord};
use forebay_core::table::{Change, Marks, Order, TableError, Tables, WriteTables};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use xxhash_rust::xxh3::xxh3_64;

/// Independently locked parts; a power of two.
const PARTS: usize = 64;
/// Memory for all records, in bytes.
const RECORD_BYTES: usize = 12 << 20;
/// Memory for all paths of objects, in bytes.
const PATH_BYTES: usize = 4 << 20;
/// Bytes that the heap needs for a path beside those of the path.
const HEAP_BYTES: usize = 16;

/// What is kept for a key, with the bytes that it takes in all.
struct Kept<V> {
    value: V,
    bytes: u32,
}

/// Two generations: what is asked for moves to the young one; when that is
/// full, the old one is dropped as a whole. Bounded, and no list to maintain.
struct Part<K, V> {
    young: HashMap<K, Kept<V>>,
    old: HashMap<K, Kept<V>>,
    young_bytes: usize,
    /// Counts the writes that passed here, so that an answer which was read
    /// before a write is not kept after it.
    writes: u64,
}

impl<K: Hash + Eq, V> Part<K, V> {
    fn new() -> Self {
        Part {
            young: HashMap::new(),
            old: HashMap::new(),
            young_bytes: 0,
            writes: 0,
        }
    }

    /// What `read` makes of the value that is kept for a key.
    fn get<R>(&mut self, key: &K, limit: usize, read: impl FnOnce(&V) -> R) -> Option<R> {
        if let Some(kept) = self.young.get(key) {
            return Some(read(&kept.value));
        }
        if self.old.is_empty() {
            return None;
        }
        let (key, kept) = self.old.remove_entry(key)?;
        let found = read(&kept.value);
        self.keep(key, kept, limit);
        Some(found)
    }

    fn keep(&mut self, key: K, kept: Kept<V>, limit: usize) {
        self.young_bytes += kept.bytes as usize;
        if let Some(before) = self.young.insert(key, kept) {
            self.young_bytes -= before.bytes as usize;
        }
        if self.young_bytes > limit / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }

    fn insert(&mut self, key: K, value: V, bytes: usize, limit: usize) {
        let bytes = u32::try_from(bytes).expect("a path is short");
        self.keep(key, Kept { value, bytes }, limit);
    }

    fn write(&mut self, key: K, value: V, bytes: usize, limit: usize) {
        self.writes += 1;
        if !self.old.is_empty() {
            self.old.remove(&key);
        }
        self.insert(key, value, bytes, limit);
    }

    /// The value of a key has changed, and is not kept before somebody asks for it.
    fn has_changed(&mut self, key: &K) {
        self.writes += 1;
        if !self.old.is_empty() {
            self.old.remove(key);
        }
        if !self.young.is_empty()
            && let Some(before) = self.young.remove(key)
        {
            self.young_bytes -= before.bytes as usize;
        }
    }

    fn forget(&mut self) {
        self.writes += 1;
        // With its memory.
        self.young = HashMap::new();
        self.old = HashMap::new();
        self.young_bytes = 0;
    }
}

/// Other tables with a cache before them. All access has to go through it.
pub struct Cached<T> {
    below: T,
    /// In boxes: most of what is known is that there is no record.
    records: Vec<Mutex<Part<TreePath, Option<Box<PathRecord>>>>>,
    paths: Vec<Mutex<Part<ObjectName, Option<TreePath>>>>,
}

/// Bytes of an entry of a map in its table, which is half empty at times.
const fn slot_bytes<K, V>() -> usize {
    2 * size_of::<(K, Kept<V>)>()
}

fn heap_bytes(path: &TreePath) -> usize {
    path.as_bytes().len() + HEAP_BYTES
}

/// Bytes of a record in the cache, or of the knowledge that there is none.
fn cost_of_record(path: &TreePath, record: Option<&PathRecord>) -> usize {
    let of_record = record.map_or(0, |r| {
        let others = [&r.origin, &r.hides].into_iter().flatten();
        size_of::<PathRecord>() + HEAP_BYTES + others.map(heap_bytes).sum::<usize>()
    });
    slot_bytes::<TreePath, Option<Box<PathRecord>>>() + heap_bytes(path) + of_record
}

/// Bytes of the path of an object in the cache.
fn cost_of_path(path: Option<&TreePath>) -> usize {
    slot_bytes::<ObjectName, Option<TreePath>>() + path.map_or(0, heap_bytes)
}

/// Names that differ in a few digits only have to be spread evenly as well: the fullest part decides what is forgotten.
fn part_of_path(path: &TreePath) -> usize {
    xxh3_64(path.as_bytes()) as usize % PARTS
}

fn part_of_object(object: ObjectName) -> usize {
    (object.oid.seq() >> 2) as usize % PARTS
}

impl<T: Tables> Cached<T> {
    /// Puts a cache before `below`.
    pub fn new(below: T) -> Self {
        Cached {
            below,
            records: (0..PARTS).map(|_| Mutex::new(Part::new())).collect(),
            paths: (0..PARTS).map(|_| Mutex::new(Part::new())).collect(),
        }
    }

    /// The tables below the cache. They must not be written to directly.
    pub fn below(&self) -> &T {
        &self.below
    }

    /// Gives the memory of the cache back.
    pub fn forget(&self) {
        self.records.iter().for_each(|p| p.lock().forget());
        self.paths.iter().for_each(|p| p.lock().forget());
    }

    fn write_record(&self, path: &TreePath, record: Option<&PathRecord>) {
        self.records[part_of_path(path)].lock().write(
            path.clone(),
            record.cloned().map(Box::new),
            cost_of_record(path, record),
            RECORD_BYTES / PARTS,
        );
    }

    /// Few ask for the path of an object, so it is not kept before somebody does.
    fn path_has_changed(&self, object: ObjectName) {
        self.paths[part_of_object(object)]
            .lock()
            .has_changed(&object);
    }
}

impl<T: Tables> Tables for Cached<T> {
    fn get(&self, path: &TreePath) -> Result<Option<PathRecord>, TableError> {
        let part = &self.records[part_of_path(path)];
        let limit = RECORD_BYTES / PARTS;
        let before = {
            let mut part = part.lock();
            if let Some(found) = part.get(path, limit, |record| record.as_deref().cloned()) {
                return Ok(found);
            }
            part.writes
        };
        let found = self.below.get(path)?;
        let mut part = part.lock();
        if part.writes == before {
            let bytes = cost_of_record(path, found.as_ref());
            let kept = found.clone().map(Box::new);
            part.insert(path.clone(), kept, bytes, limit);
        }
        Ok(found)
    }

    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, PathRecord)>, TableError> {
        self.below.children(dir, after, limit)
    }

    fn page_below(
        &self,
        dir: &TreePath,
        after: Option<&TreePath>,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        self.below.page_below(dir, after, limit)
    }

    fn page(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        self.below.page(after, order, limit)
    }

    fn names_of(&self, oid: ObjectId) -> Result<Vec<(ObjectName, TreePath)>, TableError> {
        self.below.names_of(oid)
    }

    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError> {
        let part = &self.paths[part_of_object(object)];
        let limit = PATH_BYTES / PARTS;
        let before = {
            let mut part = part.lock();
            if let Some(found) = part.get(&object, limit, Option::clone) {
                return Ok(found);
            }
            part.writes
        };
        let found = self.below.path_of(object)?;
        let mut part = part.lock();
        if part.writes == before {
            let bytes = cost_of_path(found.as_ref());
            part.insert(object, found.clone(), bytes, limit);
        }
        Ok(found)
    }

    fn marks(&self) -> Result<Marks, TableError> {
        self.below.marks()
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        self.below.meta(key)
    }

    fn metas(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, TableError> {
        self.below.metas(prefix)
    }
}

impl<T: WriteTables> WriteTables for Cached<T> {
    fn apply(&self, batch: &[Change]) -> Result<(), TableError> {
        if let Err(e) = self.below.apply(batch) {
            // The failed write may have reached the log, so nothing in the cache is known to be right.
            self.forget();
            return Err(e);
        }
        for change in batch {
            match change {
                Change::Put { path, record } => {
                    self.write_record(path, Some(record));
                    self.path_has_changed(record.object);
                }
                Change::Delete { path, object } => {
                    self.write_record(path, None);
                    self.path_has_changed(*object);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_digits_only_fill_all_parts_alike() {
        let mut names = [0; PARTS];
        for dir in 0..4 {
            for file in 0..3000 {
                let path = format!("run/process-{dir}/file.{file:06}");
                names[part_of_path(&TreePath::new(path.into_bytes()).unwrap())] += 1;
            }
        }
        let average = names.iter().sum::<usize>() / PARTS;
        assert!(names.iter().all(|n| *n < average * 3 / 2), "{names:?}");
    }

    #[test]
    fn what_takes_the_place_of_something_smaller_counts_with_all_its_bytes() {
        let mut part = Part::new();
        part.insert(1, "absent", 100, 2000);
        part.write(1, "present", 400, 2000);
        assert_eq!(part.young_bytes, 400);
        part.has_changed(&1);
        assert_eq!(part.young_bytes, 0);
        for key in 0..4 {
            part.write(key, "present", 400, 2000);
        }
        assert_eq!((part.young.len(), part.old.len()), (1, 3));
        assert_eq!(part.get(&0, 2000, |value| *value), Some("present"));
        assert_eq!((part.young.len(), part.old.len()), (2, 2));
        assert_eq!(part.young_bytes, 800);
    }
}
