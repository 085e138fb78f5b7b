//! A world in memory for `decide`: a PFS tree, tables and backing objects, with
//! every fact at hand at once.
#![allow(dead_code)] // each test file uses its part

use forebay_core::facts::{
    Attr, Cred, Facts, Fresh, Judged, Label, LabelParent, LowerEntry, LowerPage, Need, NewKind,
    NewObject, Outcome, Settings, Stop,
};
use forebay_core::fault::Fault;
use forebay_core::ops::{
    Answer, Decision, FollowUp, GrantTarget, Op, Path, Request, Start, decide,
};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, ObjectId, ObjectName, PathRecord, Token};
use forebay_core::table::Change;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lower {
    Dir,
    File(u64),
    Link(Vec<u8>),
}

#[derive(Default)]
pub struct World {
    pub lower: BTreeMap<TreePath, Lower>,
    /// Directories of `lower` that only their owner, root, may use.
    pub locked: Vec<TreePath>,
    /// Callers have open whatever they say they have.
    pub have_all_open: bool,
    /// Files of `lower` that have a second name somewhere.
    pub linked: Vec<TreePath>,
    pub table: BTreeMap<TreePath, PathRecord>,
    pub objects: RefCell<BTreeMap<ObjectName, NewObject>>,
    next: Cell<u64>,
    pub last_seq: u32,
    pub retry: bool,
    /// Directories of the PFS may get other numbers.
    pub renumbers: bool,
    pub carried_out: Vec<Token>,
    levels_above: Cell<usize>,
}

pub fn p(s: &str) -> TreePath {
    TreePath::new(s.as_bytes()).unwrap()
}

pub fn path(s: &str) -> Path {
    Path {
        start: Start::Root,
        bytes: s.as_bytes().to_vec(),
    }
}

pub fn root() -> Cred {
    Cred::default()
}

impl World {
    pub fn with_lower(entries: &[(&str, Lower)]) -> World {
        let mut w = World::default();
        for (s, l) in entries {
            w.lower.insert(p(s), l.clone());
        }
        w
    }

    /// What is granted of a file of the PFS.
    pub fn in_place(&self, s: &str) -> GrantTarget {
        let attr = Facts::lower(self, &p(s)).unwrap().unwrap();
        GrantTarget::Lower(p(s), Judged::new(&attr))
    }

    /// Where a descriptor of this directory of the PFS leads.
    pub fn held(&self, s: &str) -> Start {
        let attr = Facts::lower(self, &p(s)).unwrap().unwrap();
        Start::Lower(p(s), attr.inode())
    }

    fn number(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    /// Decides and, on success, commits.
    pub fn run_as(&mut self, cred: &Cred, op: Op) -> Outcome<Answer> {
        if !self.retry {
            self.last_seq += 1;
        }
        let request = Request {
            op,
            token: Token {
                client: 1,
                seq: self.last_seq,
            },
            retry: self.retry,
        };
        let settings = Settings {
            root: b"/pfs/run".to_vec(),
            stage_limit_bytes: 1000,
            stamps_mapped_writes: true,
            bridge_uid: 0,
            removed_at_once: 256,
            devices: Default::default(),
            keeps_numbers: !self.renumbers,
            protections: Default::default(),
        };
        self.levels_above.set(0);
        let decided = loop {
            match decide(&request, cred, &settings, self) {
                Err(Stop::Need(Need::FurtherUp(levels))) => {
                    self.levels_above.update(|above| above + levels);
                }
                decided => break decided,
            }
        };
        let decision = match decided {
            Ok(decision) => decision,
            Err(stop) => {
                // What was made for it goes again.
                let named = |o: &ObjectName| self.table.values().any(|r| r.object == *o);
                self.objects.borrow_mut().retain(|object, _| named(object));
                return Err(stop);
            }
        };
        self.commit(&decision);
        if !decision.batch.is_empty() {
            self.carried_out.push(request.token);
        }
        Ok(decision.answer)
    }

    pub fn run(&mut self, op: Op) -> Outcome<Answer> {
        self.run_as(&root(), op)
    }

    fn commit(&mut self, decision: &Decision) {
        let mut puts_began = false;
        let batch = match &decision.unseen {
            Some(unseen) => unseen.in_one(decision.batch.clone()),
            None => decision.batch.clone(),
        };
        for change in &batch {
            match change {
                Change::Delete { path, object } => {
                    assert!(!puts_began, "deletions come first");
                    let old = self.table.remove(path).expect("deletes what is there");
                    assert_eq!(old.object, *object);
                }
                Change::Put { path, record } => {
                    puts_began = true;
                    self.table.insert(path.clone(), record.clone());
                }
                _ => {}
            }
        }
        for follow_up in &decision.follow_ups {
            if let FollowUp::Remove(object) = follow_up {
                self.objects
                    .borrow_mut()
                    .remove(object)
                    .expect("removes an object once");
            }
        }
        self.check();
    }

    /// What must hold between any two operations.
    pub fn check(&self) {
        for (path, record) in &self.table {
            assert!(
                self.objects.borrow().contains_key(&record.object),
                "{path:?} has its object"
            );
            let mut at = path.parent();
            while !at.is_root() {
                if let Some(above) = self.table.get(&at) {
                    assert!(
                        matches!(above.kind, Kind::Dir | Kind::Moved),
                        "{path:?} lies below {at:?}, a {:?}",
                        above.kind
                    );
                }
                at = at.parent();
            }
        }
        assert_eq!(
            self.objects.borrow().len(),
            self.table.len(),
            "as many objects as records"
        );
    }

    /// Every visible path with its type, by listing directory after directory.
    pub fn tree(&mut self) -> BTreeMap<TreePath, u8> {
        let mut out = BTreeMap::new();
        let mut todo = vec![TreePath::root()];
        while let Some(dir) = todo.pop() {
            let mut after = None;
            loop {
                let op = Op::ReadDir {
                    path: Path {
                        start: Start::Root,
                        bytes: dir.as_bytes().to_vec(),
                    },
                    after: after.clone(),
                    limit: 3,
                };
                let Ok(Answer::Entries { entries, more }) = self.run(op) else {
                    panic!("{dir:?} lists");
                };
                for e in &entries {
                    after = Some(e.name.clone());
                    if e.name == b"." || e.name == b".." {
                        after = Some(Vec::new());
                        continue;
                    }
                    let path = dir.join(&e.name);
                    assert_eq!(out.insert(path.clone(), e.dtype), None, "{path:?} twice");
                    if e.dtype == libc::DT_DIR {
                        todo.push(path);
                    }
                }
                if !more {
                    break;
                }
            }
        }
        out
    }
}

impl Facts for World {
    fn record(&self, path: &TreePath) -> Outcome<Option<PathRecord>> {
        Ok(self.table.get(path).cloned())
    }
    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Outcome<Vec<(Vec<u8>, PathRecord)>> {
        let mut all: Vec<_> = self
            .table
            .iter()
            .filter(|(p, _)| !p.is_root() && p.parent() == *dir)
            .map(|(p, r)| (p.name().to_vec(), r.clone()))
            .filter(|(n, _)| after.is_none_or(|a| n.as_slice() > a))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.truncate(limit);
        Ok(all)
    }
    fn subtree(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, PathRecord)>> {
        Ok(self
            .table
            .iter()
            .filter(|(p, _)| *p != dir && p.is_within(dir))
            .map(|(p, r)| (p.clone(), r.clone()))
            .collect())
    }
    fn path_of(&self, object: ObjectName) -> Outcome<Option<TreePath>> {
        Ok(self
            .table
            .iter()
            .find(|(_, r)| r.object == object)
            .map(|(p, _)| p.clone()))
    }
    fn moved(&self, origin: &TreePath) -> Outcome<Option<TreePath>> {
        Ok(self
            .table
            .iter()
            .find(|(_, r)| r.kind == Kind::Moved && r.origin.as_ref() == Some(origin))
            .map(|(p, _)| p.clone()))
    }
    fn attr(&self, object: ObjectName) -> Outcome<Attr> {
        let objects = self.objects.borrow();
        let o = objects
            .get(&object)
            .ok_or_else(|| Stop::from(Fault::ObjectGone(object)))?;
        Ok(Attr {
            mode: o.mode,
            uid: o.uid,
            gid: o.gid,
            nlink: 1,
            ..Attr::default()
        })
    }
    fn link_text(&self, object: ObjectName) -> Outcome<Vec<u8>> {
        match &self.objects.borrow()[&object].what {
            NewKind::Symlink(t) => Ok(t.clone()),
            other => panic!("{other:?} is no link"),
        }
    }
    fn lower(&self, path: &TreePath) -> Outcome<Option<Attr>> {
        let node = if path.is_root() {
            Some(&Lower::Dir)
        } else {
            self.lower.get(path)
        };
        Ok(node.map(|l| Attr {
            mode: match l {
                Lower::Dir if self.locked.contains(path) => libc::S_IFDIR | 0o700,
                Lower::Dir => libc::S_IFDIR | 0o755,
                Lower::File(_) => libc::S_IFREG | 0o644,
                Lower::Link(_) => libc::S_IFLNK | 0o777,
            },
            size: if let Lower::File(n) = l { *n } else { 0 },
            nlink: 1 + u32::from(self.linked.contains(path)),
            // Position in the tree: unique, as an inode number is.
            ino: 1 + self.lower.range(..path.clone()).count() as u64,
            ..Attr::default()
        }))
    }
    fn renamed(&self, record: &PathRecord) -> Outcome<Option<Attr>> {
        let origin = record.origin.as_ref().expect("it was renamed");
        let dir = self.lower(&origin.parent())?;
        let out_of = record.dirs.as_deref().and_then(|dirs| dirs.out_of);
        let is_there = out_of.is_none_or(|known| dir.is_some_and(|dir| known.is_dir_of(&dir)));
        let known = record.arriving.as_deref();
        let found = self.lower(origin)?.filter(|_| is_there);
        Ok(found.filter(|attr| known.is_none_or(|known| known.is_inode_of(attr))))
    }
    fn has_open(&self, _: &Attr) -> bool {
        self.have_all_open
    }
    fn levels_above(&self) -> usize {
        self.levels_above.get()
    }
    fn lower_link(&self, path: &TreePath) -> Outcome<Vec<u8>> {
        match &self.lower[path] {
            Lower::Link(t) => Ok(t.clone()),
            other => panic!("{other:?} is no link"),
        }
    }
    fn lower_list(&self, path: &TreePath, after: Option<&[u8]>) -> Outcome<Arc<LowerPage>> {
        let mut entries: Vec<_> = self
            .lower
            .iter()
            .filter(|(p, _)| p.parent() == *path && after.is_none_or(|after| p.name() > after))
            .map(|(p, l)| LowerEntry {
                name: p.name().to_vec(),
                ino: 1,
                dtype: match l {
                    Lower::Dir => libc::DT_DIR,
                    Lower::File(_) => libc::DT_REG,
                    Lower::Link(_) => libc::DT_LNK,
                },
            })
            .collect();
        // Small pages, so that every listing has several.
        let ends = entries.len() <= 2;
        entries.truncate(2);
        Ok(Arc::new(LowerPage {
            entries,
            after: after.map(<[u8]>::to_vec),
            ends,
        }))
    }
    fn fresh(&self, spec: &NewObject) -> Outcome<Fresh> {
        let n = self.number();
        let object = match spec.what {
            NewKind::LinkTo(of) => ObjectName {
                oid: of.oid,
                link: n as u32,
            },
            _ => ObjectName {
                oid: ObjectId::new(BridgeId(1), 1, n),
                link: 0,
            },
        };
        self.objects.borrow_mut().insert(object, spec.clone());
        Ok(Fresh::new(object, n))
    }
    fn new_marker(&self) -> ObjectName {
        // It is there at once, and gets its label from its record.
        let label = Label {
            kind: Kind::Whiteout,
            parent: LabelParent::Lower(TreePath::root()),
            name: Vec::new(),
            origin: None,
            hides: None,
            renamed: None,
        };
        let spec = NewObject {
            what: NewKind::Marker,
            label,
            mode: 0,
            uid: 0,
            gid: 0,
        };
        let fresh = self.fresh(&spec).expect("nothing is asked for");
        fresh.object
    }
    fn next_version(&self) -> u64 {
        self.number()
    }
    fn me(&self) -> BridgeId {
        BridgeId(1)
    }
    fn was_carried_out(&self, token: Token) -> Outcome<bool> {
        Ok(self.carried_out.contains(&token))
    }
}
