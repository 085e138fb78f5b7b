//! The net effect of a sequence of batches.
//!
//! A file that is made, renamed and removed again touches the same few keys over
//! and over; only their last values have to reach the store.

use crate::journaled::READ_AT_ONCE;
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectId, ObjectName, PathRecord};
use forebay_core::table::{Change, KeyValue, Marks, Order, TableError, Tables, WriteTables};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

/// The last values of all keys that some batches have changed; `None` where a key has gone.
#[derive(Debug, Default)]
pub struct Net {
    pub(crate) records: Changed,
    pub(crate) paths: HashMap<ObjectName, Option<TreePath>>,
    pub(crate) doomed: HashMap<ObjectName, bool>,
    pub(crate) relabel: HashMap<ObjectName, bool>,
    pub(crate) meta: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// Tables that take the outcome of many batches at once.
pub trait Base: WriteTables {
    /// Is there space for a batch, as far as that can be known before? `adds` tells whether it adds records and removes
    /// none: then it waits for space, while what changes or removes records may use the last room.
    ///
    /// # Errors
    /// There is none, or `adds` could not tell.
    fn admit(&self, adds: &dyn Fn() -> Result<bool, TableError>) -> Result<(), TableError>;

    /// Writes the outcome of batches, all of it or nothing. [`Base::flush`] makes it durable.
    ///
    /// # Errors
    /// The store failed; nothing of it is visible then.
    fn write_net(&self, net: &Net) -> Result<(), TableError>;

    /// Makes everything durable that was written.
    ///
    /// # Errors
    /// The store failed; perhaps it is durable, perhaps not.
    fn flush(&self) -> Result<(), TableError>;

    /// [`Tables::page`] as it is now: `seen` is called as soon as later writes make no difference to it.
    ///
    /// # Errors
    /// As [`Tables::page`].
    fn page_of_now(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
        seen: &mut dyn FnMut(),
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        let page = self.page(after, order, limit);
        seen();
        page
    }
}

/// Does a batch add records to these tables, and remove none?
pub(crate) fn only_adds(tables: &impl Tables, batch: &[Change]) -> Result<bool, TableError> {
    let mut adds = false;
    for change in batch {
        match change {
            Change::Delete { .. } => return Ok(false),
            Change::Put { path, .. } if !adds => adds = tables.get(path)?.is_none(),
            _ => {}
        }
    }
    Ok(adds)
}

/// Records by [`TreePath::key`]; `None` where one has gone.
pub(crate) type Changed = BTreeMap<Vec<u8>, (TreePath, Option<PathRecord>)>;

/// A page of the tables below, with what has changed of it up to its last entry; to the end of the walk without one.
pub(crate) fn merge(
    entries: Vec<(TreePath, PathRecord)>,
    mut changed: Changed,
    until: Option<&TreePath>,
    order: Order,
) -> Vec<(TreePath, PathRecord)> {
    let until = until.map(TreePath::key);
    let is_in = |key: &Vec<u8>| match (&until, order) {
        (None, _) => true,
        (Some(until), Order::ParentsFirst) => key <= until,
        (Some(until), Order::ChildrenFirst) => key >= until,
    };
    changed.retain(|key, _| is_in(key));
    for (path, record) in entries {
        let key = path.key();
        if !is_in(&key) {
            continue;
        }
        let entry = changed.entry(key);
        entry.or_insert_with(|| (path, Some(record)));
    }
    let entries = changed.into_values();
    let mut page: Vec<_> = entries
        .filter_map(|(path, record)| Some((path, record?)))
        .collect();
    if order == Order::ChildrenFirst {
        page.reverse();
    }
    page
}

/// Of two ends of a walk the one that comes first; `None` is no end.
pub(crate) fn nearer(a: Option<TreePath>, b: Option<TreePath>, order: Order) -> Option<TreePath> {
    let (Some(a), Some(b)) = (&a, &b) else {
        return a.or(b);
    };
    let is_first = match order {
        Order::ParentsFirst => a.key() <= b.key(),
        Order::ChildrenFirst => a.key() >= b.key(),
    };
    Some(if is_first { a } else { b }.clone())
}

/// Entries that have gone, for each that is there, after which a look at changes ends.
const MOST_GONE: usize = 4;

/// One end of a range of keys; open without a path.
fn key_bound(path: Option<&TreePath>, kind: fn(Vec<u8>) -> Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    path.map_or(Bound::Unbounded, |path| kind(path.key()))
}

impl Net {
    /// Keys in it.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
            + self.paths.len()
            + self.doomed.len()
            + self.relabel.len()
            + self.meta.len()
    }

    /// Adds a batch.
    pub(crate) fn absorb(&mut self, batch: &[Change]) {
        for change in batch {
            match change {
                Change::Put { path, record } => {
                    self.paths.insert(record.object, Some(path.clone()));
                    self.put_record(path, Some(record));
                }
                Change::Delete { path, object } => {
                    self.paths.insert(*object, None);
                    self.put_record(path, None);
                }
                Change::Doom(object) => {
                    self.doomed.insert(*object, true);
                }
                Change::Undoom(object) => {
                    self.doomed.insert(*object, false);
                }
                Change::Relabel(object) => {
                    self.relabel.insert(*object, true);
                }
                Change::Relabeled(object) => {
                    self.relabel.insert(*object, false);
                }
                Change::Meta { key, value } => match self.meta.get_mut(key) {
                    // Each commit changes such a value, mostly the same one as the commit before.
                    Some(before) => before.clone_from(value),
                    None => drop(self.meta.insert(key.clone(), value.clone())),
                },
            }
        }
    }

    fn put_record(&mut self, path: &TreePath, record: Option<&PathRecord>) {
        match self.records.entry(path.key()) {
            Entry::Occupied(mut entry) => entry.get_mut().1 = record.cloned(),
            Entry::Vacant(place) => drop(place.insert((path.clone(), record.cloned()))),
        }
    }

    /// Entries whose keys begin with `prefix` and come after `from`.
    fn range<'a>(
        &'a self,
        prefix: &'a [u8],
        from: &'a [u8],
    ) -> impl Iterator<Item = (&'a Vec<u8>, &'a (TreePath, Option<PathRecord>))> {
        self.records
            .range::<[u8], _>((Bound::Excluded(from), Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// [`Tables::children`] of `below` with this on top of it.
    pub(crate) fn children(
        &self,
        below: &(impl Tables + ?Sized),
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, PathRecord)>, TableError> {
        let mut prefix = dir.as_bytes().to_vec();
        prefix.push(0);
        let from = [&prefix[..], after.unwrap_or_default()].concat();
        let changed = self.range(&prefix, &from);
        page_over(
            changed.map(|(key, (_, record))| (&key[prefix.len()..], record.as_ref())),
            limit,
            |last: Option<&Vec<u8>>, most| {
                below.children(dir, last.map(Vec::as_slice).or(after), most)
            },
            Vec::clone,
            |name, record| (name.to_vec(), record.clone()),
        )
    }

    /// What has changed of the records that come after `from` in a walk: not much more than `most` that are there. The path
    /// after which there may be others.
    pub(crate) fn after(
        &self,
        from: Option<&TreePath>,
        order: Order,
        most: usize,
    ) -> (Changed, Option<TreePath>) {
        let end = key_bound(from, Bound::Excluded);
        let range = match order {
            Order::ParentsFirst => (end, Bound::Unbounded),
            Order::ChildrenFirst => (Bound::Unbounded, end),
        };
        let mut range = self.records.range(range);
        let mut changed = Changed::new();
        let mut present = 0;
        while let Some((key, entry)) = match order {
            Order::ParentsFirst => range.next(),
            Order::ChildrenFirst => range.next_back(),
        } {
            changed.insert(key.clone(), entry.clone());
            present += usize::from(entry.1.is_some());
            if present == most || changed.len() == most * MOST_GONE {
                return (changed, Some(entry.0.clone()));
            }
        }
        (changed, None)
    }

    /// [`Tables::names_of`] of `below` with this on top of it.
    pub(crate) fn names_of(
        &self,
        below: &(impl Tables + ?Sized),
        oid: ObjectId,
    ) -> Result<Vec<(ObjectName, TreePath)>, TableError> {
        let mut names: BTreeMap<ObjectName, TreePath> = below.names_of(oid)?.into_iter().collect();
        for (object, path) in self.paths.iter().filter(|(object, _)| object.oid == oid) {
            match path {
                Some(path) => names.insert(*object, path.clone()),
                None => names.remove(object),
            };
        }
        Ok(names.into_iter().collect())
    }

    /// [`Tables::page_below`] of `below` with this on top of it.
    pub(crate) fn page_below(
        &self,
        below: &(impl Tables + ?Sized),
        dir: &TreePath,
        after: Option<&TreePath>,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        // All keys below a directory begin with its path, among some others.
        let after_key = after.map(TreePath::key).unwrap_or_default();
        let from = after_key.max(dir.as_bytes().to_vec());
        let changed = self
            .range(dir.as_bytes(), &from)
            .filter(|(_, (path, _))| path != dir && path.is_within(dir));
        page_over(
            changed.map(|(key, (path, record))| (&key[..], record.as_ref().map(|r| (path, r)))),
            limit,
            |last: Option<&TreePath>, most| below.page_below(dir, last.or(after), most),
            TreePath::key,
            |_, (path, record)| (path.clone(), record.clone()),
        )
    }

    /// [`Tables::marks`] of `below` with this on top of it.
    pub(crate) fn marks(&self, below: &(impl Tables + ?Sized)) -> Result<Marks, TableError> {
        let marks = below.marks()?;
        let mut doomed: BTreeSet<_> = marks.doomed.into_iter().collect();
        for (object, is_doomed) in &self.doomed {
            match is_doomed {
                true => doomed.insert(*object),
                false => doomed.remove(object),
            };
        }
        let mut relabel: BTreeMap<_, _> = marks.relabel.into_iter().map(|o| (o, true)).collect();
        relabel.extend(
            self.relabel
                .iter()
                .map(|(object, wanted)| (*object, *wanted)),
        );
        relabel.retain(|_, wanted| *wanted);
        Ok(Marks {
            doomed: doomed.into_iter().collect(),
            relabel: relabel.into_keys().collect(),
        })
    }

    /// [`Tables::metas`] of `below` with this on top of it.
    pub(crate) fn metas(
        &self,
        below: &(impl Tables + ?Sized),
        prefix: &[u8],
    ) -> Result<Vec<KeyValue>, TableError> {
        let mut merged: BTreeMap<_, _> = below.metas(prefix)?.into_iter().collect();
        let changed = self
            .meta
            .range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        for (key, value) in changed.take_while(|(key, _)| key.starts_with(prefix)) {
            match value {
                Some(value) => merged.insert(key.clone(), value.clone()),
                None => merged.remove(key),
            };
        }
        Ok(merged.into_iter().collect())
    }
}

/// The first `limit` records of `below` with changes on top of them: each what is there now, `None` for what is gone. `below` gives
/// at most so many after a place. Both come in the order of their keys, and no more is read than it takes.
fn page_over<'c, P: Clone, C>(
    changed: impl Iterator<Item = (&'c [u8], Option<C>)>,
    limit: usize,
    below: impl Fn(Option<&P>, usize) -> Result<Vec<(P, PathRecord)>, TableError>,
    key: impl Fn(&P) -> Vec<u8>,
    now: impl Fn(&[u8], C) -> (P, PathRecord),
) -> Result<Vec<(P, PathRecord)>, TableError> {
    let mut changed = changed.peekable();
    let mut last = None;
    let mut page = Vec::new();
    while page.len() < limit {
        // To begin anew for each entry that has gone would cost more.
        let most = (limit - page.len()).max(READ_AT_ONCE);
        let entries = below(last.as_ref(), most)?;
        let ends = entries.len() < most;
        last = entries.last().map(|(place, _)| place.clone()).or(last);
        if changed.peek().is_none() {
            page.extend(entries.into_iter().take(limit - page.len()));
            return Ok(page);
        }
        for entry in entries {
            let key = key(&entry.0);
            while page.len() < limit
                && let Some((at, there)) = changed.next_if(|(at, _)| *at < &key[..])
            {
                page.extend(there.map(|there| now(at, there)));
            }
            if page.len() == limit {
                return Ok(page);
            }
            match changed.next_if(|(at, _)| *at == &key[..]) {
                Some((at, there)) => page.extend(there.map(|there| now(at, there))),
                None => page.push(entry),
            }
        }
        if ends {
            let rest = changed.filter_map(|(at, there)| Some(now(at, there?)));
            page.extend(rest.take(limit - page.len()));
            return Ok(page);
        }
    }
    Ok(page)
}
