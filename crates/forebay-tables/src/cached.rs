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

/// Independently locked parts; a power of two.
const PARTS: usize = 64;
/// Memory for all records, in bytes.
const RECORD_BYTES: usize = 16 << 20;
/// Memory for all paths of objects, in bytes.
const PATH_BYTES: usize = 4 << 20;
/// Bytes that the heap needs for a path beside those of the path.
const HEAP_BYTES: usize = 16;

/// Two generations: what is asked for moves to the young one; when that is
/// full, the old one is dropped as a whole. Bounded, and no list to maintain.
struct Part<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    young_bytes: usize,
    /// Counts the writes that passed here, so that an answer which was read
    /// before a write is not kept after it.
    writes: u64,
}

impl<K: Hash + Eq, V: Clone> Part<K, V> {
    fn new() -> Self {
        Part {
            young: HashMap::new(),
            old: HashMap::new(),
            young_bytes: 0,
            writes: 0,
        }
    }

    fn get(&mut self, key: &K, cost: impl Fn(&K, &V) -> usize, limit: usize) -> Option<V> {
        if let Some(v) = self.young.get(key) {
            return Some(v.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        let bytes = cost(&key, &value);
        self.insert(key, value.clone(), bytes, limit);
        Some(value)
    }

    fn insert(&mut self, key: K, value: V, bytes: usize, limit: usize) {
        if self.young.insert(key, value).is_none() {
            self.young_bytes += bytes;
        }
        if self.young_bytes > limit / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }

    fn write(&mut self, key: K, value: V, bytes: usize, limit: usize) {
        self.writes += 1;
        self.old.remove(&key);
        self.insert(key, value, bytes, limit);
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
    records: Vec<Mutex<Part<TreePath, Option<PathRecord>>>>,
    paths: Vec<Mutex<Part<ObjectName, Option<TreePath>>>>,
}

/// Bytes of an entry of a map in its table, which is half empty at times.
const fn slot_bytes<K, V>() -> usize {
    2 * size_of::<(K, V)>()
}

fn heap_bytes(path: &TreePath) -> usize {
    path.as_bytes().len() + HEAP_BYTES
}

/// Bytes of a record in the cache, or of the knowledge that there is none.
fn cost_of_record(path: &TreePath, record: Option<&PathRecord>) -> usize {
    let others = record.map_or(0, |r| {
        [&r.origin, &r.hides]
            .into_iter()
            .flatten()
            .map(heap_bytes)
            .sum()
    });
    slot_bytes::<TreePath, Option<PathRecord>>() + heap_bytes(path) + others
}

/// Bytes of the path of an object in the cache.
fn cost_of_path(path: Option<&TreePath>) -> usize {
    slot_bytes::<ObjectName, Option<TreePath>>() + path.map_or(0, heap_bytes)
}

/// Not the hash of the map: only to spread names, which differ at their ends.
fn part_of_path(path: &TreePath) -> usize {
    let tail = path.as_bytes().iter().rev().take(8);
    let mix = tail.fold(path.as_bytes().len(), |h, &b| {
        h.wrapping_mul(31).wrapping_add(usize::from(b))
    });
    mix % PARTS
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
            record.cloned(),
            cost_of_record(path, record),
            RECORD_BYTES / PARTS,
        );
    }

    fn write_path(&self, object: ObjectName, path: Option<&TreePath>) {
        self.paths[part_of_object(object)].lock().write(
            object,
            path.cloned(),
            cost_of_path(path),
            PATH_BYTES / PARTS,
        );
    }
}

impl<T: Tables> Tables for Cached<T> {
    fn get(&self, path: &TreePath) -> Result<Option<PathRecord>, TableError> {
        let part = &self.records[part_of_path(path)];
        let limit = RECORD_BYTES / PARTS;
        let before = {
            let mut part = part.lock();
            let cost = |path: &TreePath, record: &Option<_>| cost_of_record(path, record.as_ref());
            if let Some(found) = part.get(path, cost, limit) {
                return Ok(found);
            }
            part.writes
        };
        let found = self.below.get(path)?;
        let mut part = part.lock();
        if part.writes == before {
            let bytes = cost_of_record(path, found.as_ref());
            part.insert(path.clone(), found.clone(), bytes, limit);
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
            let cost = |_: &_, path: &Option<_>| cost_of_path(path.as_ref());
            if let Some(found) = part.get(&object, cost, limit) {
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
                    self.write_path(record.object, Some(path));
                }
                Change::Delete { path, object } => {
                    self.write_record(path, None);
                    self.write_path(*object, None);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
