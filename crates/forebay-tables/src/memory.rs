//! Tables in memory.

use crate::net::{Base, Net};
use forebay_core::batch;
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectId, ObjectName, PathRecord};
use forebay_core::table::{Change, Marks, Order, TableError, Tables, WriteTables};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeInclusive};

#[derive(Debug, Clone, Default)]
struct Inner {
    /// By [`TreePath::key`], so that ranges are those of the real store.
    global: BTreeMap<Vec<u8>, (TreePath, PathRecord)>,
    local: BTreeMap<ObjectName, TreePath>,
    doomed: BTreeSet<ObjectName>,
    relabel: BTreeSet<ObjectName>,
    meta: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Tables in memory: they end with the value. A clone of the value is a
/// snapshot, which a simulator uses as what survives a crash.
#[derive(Debug, Default)]
pub struct Memory(RwLock<Inner>);

impl Clone for Memory {
    fn clone(&self) -> Self {
        Memory(RwLock::new(self.0.read().clone()))
    }
}

impl Memory {
    /// Takes the content of others.
    #[cfg(test)]
    pub(crate) fn become_like(&self, other: &Memory) {
        *self.0.write() = other.0.read().clone();
    }

    /// Empty tables.
    pub fn new() -> Self {
        Self::default()
    }
}

/// All names that an object can have.
pub(crate) fn links(oid: ObjectId) -> RangeInclusive<ObjectName> {
    ObjectName { oid, link: 0 }..=ObjectName {
        oid,
        link: u32::MAX,
    }
}

impl Tables for Memory {
    fn get(&self, path: &TreePath) -> Result<Option<PathRecord>, TableError> {
        Ok(self.0.read().global.get(&path.key()).map(|e| e.1.clone()))
    }

    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, PathRecord)>, TableError> {
        let mut prefix = dir.as_bytes().to_vec();
        prefix.push(0);
        // The root's own key is the bare prefix, and no child has an empty name.
        let mut from = prefix.clone();
        from.extend_from_slice(after.unwrap_or_default());
        let page: Vec<_> = self
            .0
            .read()
            .global
            .range((Bound::Excluded(from), Bound::Unbounded))
            .take_while(|(k, _)| k.starts_with(&prefix))
            .take(limit)
            .map(|(k, e)| (k[prefix.len()..].to_vec(), e.1.clone()))
            .collect();
        batch::assert_page(&page, after, limit);
        Ok(page)
    }

    fn page_below(
        &self,
        dir: &TreePath,
        after: Option<&TreePath>,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        let mut first = dir.as_bytes().to_vec();
        first.push(0);
        let first = after.map(TreePath::key).unwrap_or_default().max(first);
        Ok(self
            .0
            .read()
            .global
            .range((Bound::Excluded(first), Bound::Unbounded))
            .take_while(|(k, _)| k.starts_with(dir.as_bytes()))
            .filter(|(_, (path, _))| path != dir && path.is_within(dir))
            .take(limit)
            .map(|(_, e)| e.clone())
            .collect())
    }

    fn page(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        let inner = self.0.read();
        let after = match after {
            Some(after) => Bound::Excluded(after.key()),
            None => Bound::Unbounded,
        };
        let entries = |(_, entry): (&Vec<u8>, &(TreePath, PathRecord))| entry.clone();
        Ok(match order {
            Order::ParentsFirst => {
                let range = inner.global.range((after, Bound::Unbounded));
                range.take(limit).map(entries).collect()
            }
            Order::ChildrenFirst => {
                let range = inner.global.range((Bound::Unbounded, after)).rev();
                range.take(limit).map(entries).collect()
            }
        })
    }

    fn names_of(&self, oid: ObjectId) -> Result<Vec<(ObjectName, TreePath)>, TableError> {
        let inner = self.0.read();
        let names = inner.local.range(links(oid));
        Ok(names.map(|(o, path)| (*o, path.clone())).collect())
    }

    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError> {
        Ok(self.0.read().local.get(&object).cloned())
    }

    fn marks(&self) -> Result<Marks, TableError> {
        let inner = self.0.read();
        Ok(Marks {
            doomed: inner.doomed.iter().copied().collect(),
            relabel: inner.relabel.iter().copied().collect(),
        })
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        Ok(self.0.read().meta.get(key).cloned())
    }

    fn metas(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, TableError> {
        Ok(self
            .0
            .read()
            .meta
            .range(prefix.to_vec()..)
            .take_while(|(k, _)| k.starts_with(prefix))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect())
    }
}

impl WriteTables for Memory {
    fn apply(&self, batch: &[Change]) -> Result<(), TableError> {
        let mut inner = self.0.write();
        for change in batch {
            match change {
                Change::Put { path, record } => {
                    inner.local.insert(record.object, path.clone());
                    inner
                        .global
                        .insert(path.key(), (path.clone(), record.clone()));
                }
                Change::Delete { path, object } => {
                    inner.local.remove(object);
                    inner.global.remove(&path.key());
                }
                Change::Doom(object) => {
                    inner.doomed.insert(*object);
                }
                Change::Undoom(object) => {
                    inner.doomed.remove(object);
                }
                Change::Relabel(object) => {
                    inner.relabel.insert(*object);
                }
                Change::Relabeled(object) => {
                    inner.relabel.remove(object);
                }
                Change::Meta { key, value } => match value {
                    Some(v) => {
                        inner.meta.insert(key.clone(), v.clone());
                    }
                    None => {
                        inner.meta.remove(key);
                    }
                },
            }
        }
        Ok(())
    }
}

impl Base for Memory {
    fn admit(&self, _adds: &dyn Fn() -> Result<bool, TableError>) -> Result<(), TableError> {
        Ok(())
    }

    fn write_net(&self, net: &Net) -> Result<(), TableError> {
        let mut inner = self.0.write();
        for (key, (path, record)) in &net.records {
            match record {
                Some(record) => inner
                    .global
                    .insert(key.clone(), (path.clone(), record.clone())),
                None => inner.global.remove(key),
            };
        }
        for (object, path) in &net.paths {
            match path {
                Some(path) => inner.local.insert(*object, path.clone()),
                None => inner.local.remove(object),
            };
        }
        for (object, is_doomed) in &net.doomed {
            match is_doomed {
                true => inner.doomed.insert(*object),
                false => inner.doomed.remove(object),
            };
        }
        for (object, wanted) in &net.relabel {
            match wanted {
                true => inner.relabel.insert(*object),
                false => inner.relabel.remove(object),
            };
        }
        for (key, value) in &net.meta {
            match value {
                Some(value) => inner.meta.insert(key.clone(), value.clone()),
                None => inner.meta.remove(key),
            };
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), TableError> {
        Ok(())
    }
}
