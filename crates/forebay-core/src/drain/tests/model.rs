//! A world for the drain: a PFS, records over it, and the contents of their objects, all in memory.

use super::super::*;
use crate::facts::{Attr, Outcome, Timestamp};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{BridgeId, Kind, ObjectId, ObjectName, PathRecord, Transit};
use crate::speakers::{Speaker, Speakers};
use crate::table::{Change, KeyValue, Order};
use crate::walk::RESERVED_PREFIX;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// The user who owns what is in the buffer.
pub(super) const OWNER: u32 = 1001;

/// A directory or the number of some contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(u64),
}

pub(super) type Tree = BTreeMap<TreePath, Node>;

pub(super) fn p(s: &str) -> TreePath {
    TreePath::new(s.as_bytes()).unwrap()
}

#[derive(Clone)]
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % n as u64) as usize
    }
    pub(super) fn path(&mut self) -> TreePath {
        let depth = 1 + self.below(3);
        let parts: Vec<&str> = (0..depth)
            .map(|_| ["a", "b", "c", "a!"][self.below(4)])
            .collect();
        p(&parts.join("/"))
    }
}

pub(super) fn subtree<V: Clone>(
    tree: &BTreeMap<TreePath, V>,
    dir: &TreePath,
) -> Vec<(TreePath, V)> {
    let within = tree.iter().filter(|(path, _)| path.is_within(dir));
    within.map(|(path, v)| (path.clone(), v.clone())).collect()
}

pub(super) fn move_tree(tree: &mut Tree, from: &TreePath, to: &TreePath) {
    for (path, _) in subtree(tree, to) {
        tree.remove(&path);
    }
    for (path, node) in subtree(tree, from) {
        tree.remove(&path);
        tree.insert(path.rebase(from, to).unwrap(), node);
    }
}

/// What is in a backing object, and when it changed last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Object {
    pub(super) node: Node,
    pub(super) changed: i64,
    links: u32,
}

#[derive(Clone, Default)]
pub(super) struct World {
    pub(super) pfs: Tree,
    pub(super) records: BTreeMap<TreePath, PathRecord>,
    pub(super) speakers: Speakers,
    pub(super) objects: BTreeMap<ObjectId, Object>,
    pub(super) notes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Objects that somebody has open.
    pub(super) open: BTreeSet<ObjectId>,
    /// Objects that the storage does not let anybody look at.
    pub(super) unreadable: BTreeSet<ObjectId>,
    /// What was made in backing directories past the buffer.
    pub(super) strays: BTreeMap<ObjectId, Vec<StrayEntry>>,
    /// Modes of directories on the PFS, and what changed last in them.
    pub(super) dressed: BTreeMap<TreePath, i64>,
    pub(super) next: Cell<u64>,
    /// Operations on the PFS fail with this errno.
    pub(super) broken: Option<i32>,
    /// So many looks at the PFS fail, the next ones.
    pub(super) blind: u32,
    /// What is done on the PFS is said to have failed with this errno: the answer is lost.
    pub(super) lost_answers: Option<i32>,
    /// After a lost answer so many looks show what was there before.
    pub(super) stale_looks: u32,
    /// What they show, and how many are left.
    pub(super) shown_before: Option<(Tree, u32)>,
    /// So many copies are taken away from their temporary names by others before they have this number of names.
    pub(super) supplanting: (u32, usize),
    /// A copy gets no name but the first one: the PFS refuses the others with this errno.
    pub(super) refuses_links: Option<i32>,
    /// So many renames find something of others in the place of what they were to rename.
    pub(super) usurped: u32,
    /// What others have put under temporary names.
    pub(super) foreign: BTreeSet<TreePath>,
    /// Directories that a drain has made on the PFS, with their inode numbers.
    pub(super) made: BTreeMap<TreePath, u64>,
    /// Directories of the PFS that another user owns.
    pub(super) of_another_user: BTreeSet<TreePath>,
    /// Objects whose labels say that nothing is hidden, since they were written last.
    pub(super) unhidden: BTreeSet<ObjectName>,
}

fn key_order(a: &TreePath, b: &TreePath) -> std::cmp::Ordering {
    a.key().cmp(&b.key())
}

impl World {
    pub(super) fn number(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    pub(super) fn random(rng: &mut Rng) -> World {
        let mut world = World::default();
        for _ in 0..12 {
            let path = rng.path();
            if path.parent().is_root() || world.pfs.get(&path.parent()) == Some(&Node::Dir) {
                let node = if rng.below(2) == 0 {
                    Node::Dir
                } else {
                    Node::File(world.number())
                };
                world.pfs.entry(path).or_insert(node);
            }
        }
        world
    }

    /// A record goes, and its object with it, by a request.
    fn discard(&mut self, path: &TreePath) {
        let Some(gone) = self.delete(path) else {
            return;
        };
        self.drop_object(gone.object.oid);
        if let Some(Change::Meta {
            key,
            value: Some(value),
        }) = abandon(&gone, None)
        {
            self.notes.insert(key, value);
        }
    }

    pub(super) fn put(&mut self, path: TreePath, record: PathRecord) {
        self.speakers.learn(&path, &record);
        self.records.insert(path, record);
    }

    pub(super) fn delete(&mut self, path: &TreePath) -> Option<PathRecord> {
        let record = self.records.remove(path)?;
        let object = record.object;
        self.speakers.follow(&[Change::Delete {
            path: path.clone(),
            object,
        }]);
        Some(record)
    }

    pub(super) fn drop_object(&mut self, oid: ObjectId) {
        if let Some(object) = self.objects.get_mut(&oid) {
            object.links -= 1;
            object.changed = self.next.get() as i64 + 1;
            self.next.set(self.next.get() + 1);
            if object.links == 0 {
                self.objects.remove(&oid);
            }
        }
    }

    pub(super) fn lower_dir(&self, path: &TreePath) -> Option<TreePath> {
        match self.records.get(path) {
            Some(r) if r.kind == Kind::Moved => r.origin.clone(),
            Some(_) => None,
            None => match path.split() {
                None => Some(TreePath::root()),
                Some((parent, name)) => Some(self.lower_dir(&parent)?.join(name)),
            },
        }
    }

    fn node_at(&self, path: &TreePath) -> Option<Node> {
        if path.is_root() {
            return Some(Node::Dir);
        }
        let (dir, name) = path.split()?;
        if self.node_at(&dir)? != Node::Dir {
            return None;
        }
        match self.records.get(path) {
            Some(r) => match r.kind {
                Kind::Whiteout => None,
                Kind::Moved => self.pfs.get(r.origin.as_ref()?).copied(),
                _ => self.objects.get(&r.object.oid).map(|o| o.node),
            },
            None => self.pfs.get(&self.lower_dir(&dir)?.join(name)).copied(),
        }
    }

    pub(super) fn view(&self) -> Tree {
        let mut view = Tree::new();
        self.collect(&TreePath::root(), &mut view);
        view
    }

    fn collect(&self, dir: &TreePath, view: &mut Tree) {
        let mut names: BTreeSet<Vec<u8>> = BTreeSet::new();
        for path in self.records.keys() {
            if !path.is_root() && path.parent() == *dir {
                names.insert(path.name().to_vec());
            }
        }
        if let Some(lower) = self.lower_dir(dir) {
            for path in self.pfs.keys() {
                if path.parent() == lower && !path.name().starts_with(RESERVED_PREFIX) {
                    names.insert(path.name().to_vec());
                }
            }
        }
        for name in names {
            let path = dir.join(&name);
            if let Some(node) = self.node_at(&path) {
                view.insert(path.clone(), node);
                if node == Node::Dir {
                    self.collect(&path, view);
                }
            }
        }
    }

    /// What would lie open if the record at `path` were not there.
    fn hidden_under(&self, path: &TreePath) -> Option<TreePath> {
        match self.records.get(path) {
            Some(r) if r.hides.is_some() => r.hides.clone(),
            Some(r) => r.drained.is_some().then(|| path.clone()),
            None => {
                let lower = self.lower_dir(&path.parent())?.join(path.name());
                self.pfs.contains_key(&lower).then_some(lower)
            }
        }
    }

    /// What is hidden there, as it is now.
    fn replaced(&self, hides: Option<&TreePath>) -> Option<Identity> {
        let attr = self.lower_attr(hides?)?;
        Some(Identity::of(&attr))
    }

    fn record_of(&self, kind: Kind, hides: Option<TreePath>) -> PathRecord {
        PathRecord {
            version: self.number(),
            ino: 1,
            replaces: self.replaced(hides.as_ref()),
            hides,
            ..PathRecord::new(
                kind,
                ObjectName {
                    oid: ObjectId::new(BridgeId(0), 1, self.number()),
                    link: 0,
                },
                BridgeId(0),
            )
        }
    }

    pub(super) fn create(&mut self, path: &TreePath, node: Node) {
        let hides = self.hidden_under(path);
        self.discard(path);
        let kind = if node == Node::Dir {
            Kind::Dir
        } else {
            Kind::File
        };
        let record = self.record_of(kind, hides);
        let changed = self.number() as i64;
        let object = Object {
            node,
            changed,
            links: 1,
        };
        self.objects.insert(record.object.oid, object);
        self.put(path.clone(), record);
    }

    /// Writes to what is at `path`: staged first if it is on the PFS.
    pub(super) fn write(&mut self, path: &TreePath, contents: u64) {
        let oid = self.records.get(path).map(|r| r.object.oid);
        match oid.and_then(|oid| self.objects.get(&oid).map(|_| oid)) {
            Some(oid) => {
                let changed = self.number() as i64;
                let object = self.objects.get_mut(&oid).unwrap();
                object.node = Node::File(contents);
                object.changed = changed;
            }
            None => self.create(path, Node::File(contents)),
        }
    }

    /// A further name for the file at `old`, if it is one in the buffer.
    pub(super) fn link(&mut self, old: &TreePath, new: &TreePath) -> bool {
        let Some(of) = self.records.get(old).filter(|r| r.kind == Kind::File) else {
            return false;
        };
        let oid = of.object.oid;
        let hides = self.hidden_under(new);
        self.discard(new);
        let mut record = self.record_of(Kind::File, hides);
        record.object = ObjectName {
            oid,
            link: self.number() as u32,
        };
        let changed = self.number() as i64;
        let object = self.objects.get_mut(&oid).unwrap();
        object.links += 1;
        object.changed = changed;
        self.put(new.clone(), record);
        true
    }

    pub(super) fn remove(&mut self, path: &TreePath) {
        let hides = self.hidden_under(path);
        for (at, _) in subtree(&self.records, path) {
            self.discard(&at);
        }
        if hides.is_some() {
            let record = self.record_of(Kind::Whiteout, hides);
            self.put(path.clone(), record);
        }
    }

    pub(super) fn rename(&mut self, from: &TreePath, to: &TreePath) {
        let hides = self.hidden_under(to);
        let replaces = self.replaced(hides.as_ref());
        for (at, _) in subtree(&self.records, to) {
            self.discard(&at);
        }
        let left = self.hidden_under(from);
        let moved = match self.records.get(from) {
            Some(r) => r.clone(),
            None => {
                let origin = self.lower_dir(&from.parent()).unwrap();
                let mut r = self.record_of(Kind::Moved, None);
                let origin = origin.join(from.name());
                let known = self.lower_attr(&origin).as_ref().map(Identity::of_copy);
                r.arriving = known.map(|known| Box::new(known.leaving()));
                r.origin = Some(origin);
                r
            }
        };
        for (at, mut r) in subtree(&self.records, from) {
            if at == *from {
                continue;
            }
            self.delete(&at);
            if r.drained.take().is_some() && r.hides.is_none() {
                r.hides = Some(at.clone());
            }
            r.version = self.number();
            self.unhidden.remove(&r.object);
            self.put(at.rebase(from, to).unwrap(), r);
        }
        self.delete(from);
        if left.is_some() {
            let record = self.record_of(Kind::Whiteout, left);
            self.put(from.clone(), record);
        }
        let version = self.number();
        self.unhidden.remove(&moved.object);
        self.put(
            to.clone(),
            PathRecord {
                version,
                hides,
                replaces,
                drained: None,
                ..moved
            },
        );
    }

    /// Would the requests' own rules let something at or below this path be changed now?
    pub(super) fn is_free(&self, path: &TreePath) -> bool {
        let waits = |(at, record): (&TreePath, &PathRecord)| {
            let Some(transit) = record.transit else {
                return false;
            };
            // A look at something renamed waits, wherever it is in the way.
            record.kind == Kind::Moved
                || at.is_within(path)
                || transit == Transit::Releasing && path.parent() == *at
        };
        !self.records.iter().any(waits)
    }

    pub(super) fn attr(&self, oid: ObjectId) -> Work<Attr> {
        if self.unreadable.contains(&oid) {
            return Err(Trouble {
                operation: "stat in the buffer",
                errno: libc::EIO,
            });
        }
        let object = self.objects.get(&oid);
        // A mark has an object, too, which nobody asks anything of but that it is there.
        let object = object.copied().unwrap_or(Object {
            node: Node::File(0),
            changed: 1,
            links: 1,
        });
        Ok(Attr {
            uid: OWNER,
            mode: match object.node {
                Node::Dir => libc::S_IFDIR | 0o755,
                Node::File(_) => libc::S_IFREG | 0o644,
            },
            size: match object.node {
                Node::Dir => 0,
                Node::File(contents) => contents,
            },
            blocks: 8,
            nlink: object.links,
            mtime: Timestamp {
                sec: match object.node {
                    Node::Dir => object.changed,
                    Node::File(contents) => contents as i64,
                },
                nsec: 0,
            },
            ctime: Timestamp {
                sec: object.changed,
                nsec: 0,
            },
            ..Attr::default()
        })
    }
}

impl DrainFacts for World {
    fn record(&self, path: &TreePath) -> Outcome<Option<PathRecord>> {
        Ok(self.records.get(path).cloned())
    }
    fn page(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
    ) -> Outcome<Vec<(TreePath, PathRecord)>> {
        // Short pages, so that walks have several.
        let limit = limit.min(3);
        let mut all: Vec<_> = subtree(&self.records, &TreePath::root());
        all.sort_by(|a, b| key_order(&a.0, &b.0));
        if order == Order::ChildrenFirst {
            all.reverse();
        }
        let is_after = |path: &TreePath| match (after, order) {
            (None, _) => true,
            (Some(after), Order::ParentsFirst) => key_order(path, after).is_gt(),
            (Some(after), Order::ChildrenFirst) => key_order(path, after).is_lt(),
        };
        Ok(all
            .into_iter()
            .filter(|(path, _)| is_after(path))
            .take(limit)
            .collect())
    }
    fn speakers_here(&self, before: Option<&TreePath>, limit: usize) -> Outcome<Vec<Speaker>> {
        Ok(self.speakers.within(&TreePath::root(), before, limit))
    }
    fn speakers(
        &self,
        lower: &TreePath,
        before: Option<&TreePath>,
        _: usize,
    ) -> Outcome<Vec<Speaker>> {
        Ok(self.speakers.within(lower, before, 2))
    }
    fn speakers_of(&self, lower: &TreePath) -> Outcome<Vec<Speaker>> {
        Ok(self.speakers.of(lower))
    }
    fn in_transit(&self, after: Option<&TreePath>, limit: usize) -> Outcome<Vec<TreePath>> {
        Ok(self.speakers.in_transit(after, limit))
    }
    fn below(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, PathRecord)>> {
        let mut below = subtree(&self.records, dir);
        below.retain(|(path, _)| path != dir);
        Ok(below)
    }
    fn children(&self, dir: &TreePath, limit: usize) -> Outcome<Vec<(Vec<u8>, PathRecord)>> {
        let below = self.below(dir)?.into_iter();
        let children = below.filter(|(path, _)| path.parent() == *dir);
        Ok(children
            .map(|(path, r)| (path.name().to_vec(), r))
            .take(limit)
            .collect())
    }
    fn names_of(&self, object: ObjectId) -> Outcome<Vec<(ObjectName, TreePath)>> {
        let named = self.records.iter().filter(|(_, r)| r.object.oid == object);
        Ok(named.map(|(path, r)| (r.object, path.clone())).collect())
    }
    fn notes(&self, prefix: &[u8]) -> Outcome<Vec<KeyValue>> {
        let notes = self.notes.iter().filter(|(k, _)| k.starts_with(prefix));
        Ok(notes.map(|(k, v)| (k.clone(), v.clone())).collect())
    }
    fn next_version(&self) -> u64 {
        self.number()
    }
    fn me(&self) -> BridgeId {
        BridgeId(0)
    }
}
