//! Random histories against a tree that simply does what it is told: the view must not change
//! at any committed step of a drain, and in the end the PFS must be the view.

use super::*;
use crate::record::{BridgeId, Token};

/// A directory or the number of some contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Dir,
    File(u64),
}

type Tree = BTreeMap<TreePath, Node>;

fn p(s: &str) -> TreePath {
    TreePath::new(s.as_bytes()).unwrap()
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
    fn path(&mut self) -> TreePath {
        let depth = 1 + self.below(3);
        let parts: Vec<&str> = (0..depth)
            .map(|_| ["a", "b", "c", "a!"][self.below(4)])
            .collect();
        p(&parts.join("/"))
    }
}

fn subtree(tree: &Tree, dir: &TreePath) -> Vec<(TreePath, Node)> {
    within(tree, dir).map(|(p, n)| (p.clone(), *n)).collect()
}

fn move_tree(tree: &mut Tree, from: &TreePath, to: &TreePath) {
    for (path, _) in subtree(tree, to) {
        tree.remove(&path);
    }
    for (path, node) in subtree(tree, from) {
        tree.remove(&path);
        tree.insert(path.rebase(from, to).unwrap(), node);
    }
}

/// The PFS, the records over it, and the contents of their objects.
#[derive(Clone)]
struct World {
    pfs: Tree,
    picture: Picture,
    objects: BTreeMap<ObjectId, Node>,
    next: u64,
}

impl World {
    fn node_at(&self, path: &TreePath) -> Option<Node> {
        if path.is_root() {
            return Some(Node::Dir);
        }
        let (dir, name) = path.split()?;
        if self.node_at(&dir)? != Node::Dir {
            return None;
        }
        match self.picture.get(path) {
            Some(r) => match r.kind {
                Kind::Whiteout => None,
                Kind::Moved => self.pfs.get(r.origin.as_ref()?).copied(),
                _ => self.objects.get(&r.object.oid).copied(),
            },
            None => self
                .pfs
                .get(&self.picture.lower_dir(&dir)?.join(name))
                .copied(),
        }
    }

    fn view(&self) -> Tree {
        let mut view = Tree::new();
        self.collect(&TreePath::root(), &mut view);
        view
    }

    fn collect(&self, dir: &TreePath, view: &mut Tree) {
        let mut names: BTreeSet<Vec<u8>> = BTreeSet::new();
        for path in self.picture.records().keys() {
            if !path.is_root() && path.parent() == *dir {
                names.insert(path.name().to_vec());
            }
        }
        if let Some(lower) = self.picture.lower_dir(dir) {
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
        match self.picture.get(path) {
            Some(r) if r.drained.is_some() => Some(path.clone()),
            Some(r) => r.hides.clone(),
            None => {
                let lower = self.picture.lower_dir(&path.parent())?.join(path.name());
                self.pfs.contains_key(&lower).then_some(lower)
            }
        }
    }

    fn record(&mut self, kind: Kind, hides: Option<TreePath>) -> Record {
        self.next += 1;
        Record {
            version: self.next,
            kind,
            object: ObjectName {
                oid: ObjectId::new(BridgeId(0), 1, self.next),
                link: 0,
            },
            owner: BridgeId(0),
            ino: self.next,
            origin: None,
            hides,
            token: Token::default(),
            drained: None,
            transit: None,
            segments: Vec::new(),
        }
    }

    fn create(&mut self, path: &TreePath, node: Node) {
        let hides = self.hidden_under(path);
        let kind = if node == Node::Dir {
            Kind::Dir
        } else {
            Kind::File
        };
        let record = self.record(kind, hides);
        self.objects.insert(record.object.oid, node);
        self.picture.put(path.clone(), record);
    }

    fn remove(&mut self, path: &TreePath) {
        let hides = self.hidden_under(path);
        for (at, _) in within(&self.picture.records.clone(), path) {
            self.picture.remove(at);
        }
        if hides.is_some() {
            let record = self.record(Kind::Whiteout, hides);
            self.picture.put(path.clone(), record);
        }
    }

    fn rename(&mut self, from: &TreePath, to: &TreePath) {
        let hides = self.hidden_under(to);
        for (at, _) in within(&self.picture.records.clone(), to) {
            self.picture.remove(at);
        }
        let left = self.hidden_under(from);
        let moved = match self.picture.get(from) {
            Some(r) => r.clone(),
            None => {
                let origin = self.picture.lower_dir(&from.parent()).unwrap();
                let mut r = self.record(Kind::Moved, None);
                r.origin = Some(origin.join(from.name()));
                r
            }
        };
        for (at, mut r) in within(&self.picture.records.clone(), from)
            .filter(|(at, _)| *at != from)
            .map(|(at, r)| (at.clone(), r.clone()))
        {
            self.picture.remove(&at);
            if r.drained.take().is_some() && r.kind != Kind::Moved {
                r.hides = Some(at.clone());
            }
            self.picture.put(at.rebase(from, to).unwrap(), r);
        }
        self.picture.remove(from);
        if left.is_some() {
            let record = self.record(Kind::Whiteout, left);
            self.picture.put(from.clone(), record);
        }
        self.picture.put(
            to.clone(),
            Record {
                hides,
                drained: None,
                ..moved
            },
        );
    }

    fn erase(&mut self, target: &TreePath) {
        for (path, _) in subtree(&self.pfs, target) {
            self.pfs.remove(&path);
        }
    }

    fn commit(&mut self, step: &Step, view: &Tree) {
        self.picture.advance(step);
        assert_eq!(&self.view(), view, "the view changed at {step:?}");
    }

    fn make_dir(&mut self, path: &TreePath) -> bool {
        if !self.picture.is_settled(&path.parent()) || self.picture.is_obstructed(path) {
            return false;
        }
        assert_ne!(
            self.pfs.get(path).map(|n| *n == Node::Dir),
            Some(false),
            "a file is in the way of {path}"
        );
        self.pfs.insert(path.clone(), Node::Dir);
        let mut r = self.picture.get(path).unwrap().clone();
        r.drained = Some(Stamp::default());
        self.picture.put(path.clone(), r);
        true
    }

    /// Drains; stops where `fuel` runs out: before, between or after the two halves of a step.
    fn drain(&mut self, fuel: &mut usize, view: &Tree) -> Option<()> {
        let burn = |fuel: &mut usize| {
            *fuel = fuel.checked_sub(1)?;
            Some(())
        };
        loop {
            let steps = self.picture.evacuations();
            if steps.is_empty() {
                break;
            }
            for step in steps {
                let Step::Evacuate { from, to, .. } = &step else {
                    unreachable!()
                };
                burn(fuel)?;
                if !self.pfs.contains_key(to) {
                    assert!(self.pfs.contains_key(from), "{step:?}: nothing is there");
                    move_tree(&mut self.pfs, from, to);
                }
                burn(fuel)?;
                self.commit(&step, view);
            }
        }
        for step in self.picture.clearances() {
            let Step::Clear {
                target, replaced, ..
            } = &step
            else {
                unreachable!()
            };
            if let Some(target) = target {
                assert!(!self.picture.holds_something_moved(target), "{step:?}");
                if *replaced && matches!(self.pfs.get(target), Some(Node::File(_))) {
                    continue;
                }
                burn(fuel)?;
                self.erase(target);
            }
            burn(fuel)?;
            self.commit(&step, view);
        }
        for step in self.picture.placements() {
            let Step::Place { path, from } = &step else {
                unreachable!()
            };
            for dir in self.picture.born_dirs_above(path) {
                burn(fuel)?;
                assert!(self.make_dir(&dir), "{dir} is blocked");
            }
            assert!(self.picture.is_settled(&path.parent()), "{step:?}");
            burn(fuel)?;
            if self.pfs.contains_key(from) {
                assert!(!self.pfs.contains_key(path), "{step:?}: occupied");
                move_tree(&mut self.pfs, from, path);
            }
            burn(fuel)?;
            self.commit(&step, view);
        }
        let dirs: Vec<TreePath> = self.picture.born_dirs().map(|(p, _)| p.clone()).collect();
        for dir in dirs {
            burn(fuel)?;
            assert!(self.make_dir(&dir), "{dir} is blocked");
        }
        for contents in self.picture.contents() {
            for (path, mut r) in contents.names {
                assert!(self.picture.is_settled(&path.parent()));
                assert!(!self.picture.is_obstructed(&path), "{path} is obstructed");
                burn(fuel)?;
                assert_ne!(self.pfs.get(&path), Some(&Node::Dir), "{path}");
                self.pfs.insert(path.clone(), self.objects[&r.object.oid]);
                burn(fuel)?;
                r.drained = Some(Stamp::default());
                r.hides = None;
                self.picture.put(path, r);
                assert_eq!(&self.view(), view);
            }
        }
        assert!(self.picture.names_are_settled());
        Some(())
    }
}

fn random_history(rng: &mut Rng, world: &mut World, model: &mut Tree, ops: usize) {
    for _ in 0..ops {
        let (a, b) = (rng.path(), rng.path());
        let is_dir = |t: &Tree, path: &TreePath| path.is_root() || t.get(path) == Some(&Node::Dir);
        match rng.below(6) {
            0 if is_dir(model, &a.parent()) && !is_dir(model, &a) => {
                world.next += 1;
                let node = Node::File(world.next);
                world.create(&a, node);
                model.insert(a, node);
            }
            1 if is_dir(model, &a.parent()) && !model.contains_key(&a) => {
                world.create(&a, Node::Dir);
                model.insert(a, Node::Dir);
            }
            2 if model.contains_key(&a) => {
                world.remove(&a);
                for (path, _) in subtree(model, &a) {
                    model.remove(&path);
                }
            }
            3..=5
                if model.contains_key(&a)
                    && is_dir(model, &b.parent())
                    && !b.is_within(&a)
                    && !a.is_within(&b)
                    && subtree(model, &b).len() <= 1
                    && model
                        .get(&b)
                        .is_none_or(|n| (*n == Node::Dir) == (model[&a] == Node::Dir)) =>
            {
                world.rename(&a, &b);
                move_tree(model, &a, &b);
            }
            _ => {}
        }
        assert_eq!(&world.view(), model, "the test's own policy is wrong");
    }
}

fn random_world(rng: &mut Rng) -> World {
    let mut pfs = Tree::new();
    for _ in 0..12 {
        let path = rng.path();
        if path.parent().is_root() || pfs.get(&path.parent()) == Some(&Node::Dir) {
            let node = if rng.below(2) == 0 {
                Node::Dir
            } else {
                Node::File(rng.0)
            };
            pfs.entry(path).or_insert(node);
        }
    }
    World {
        pfs,
        picture: Picture::default(),
        objects: BTreeMap::new(),
        next: 0,
    }
}

#[test]
fn a_drain_never_changes_the_view_and_ends_with_the_pfs_equal_to_it() {
    for seed in 1..=400 {
        let mut rng = Rng(u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15));
        let mut world = random_world(&mut rng);
        let mut model = world.pfs.clone();
        // The second and third rounds meet records that are drained already.
        for _ in 0..3 {
            random_history(&mut rng, &mut world, &mut model, 25);
            world.drain(&mut usize::MAX.clone(), &model).unwrap();
            assert_eq!(world.pfs, model, "seed {seed}");
        }
    }
}

#[test]
fn a_drain_that_is_cut_short_anywhere_and_run_again_ends_the_same() {
    for seed in 1..=60 {
        let mut rng = Rng(u64::wrapping_mul(seed, 0xD134_2543_DE82_EF95));
        let mut world = random_world(&mut rng);
        let mut model = world.pfs.clone();
        random_history(&mut rng, &mut world, &mut model, 30);
        for cut in 0.. {
            let mut world = world.clone();
            let mut fuel = cut;
            if world.drain(&mut fuel, &model).is_some() {
                break;
            }
            world.drain(&mut usize::MAX.clone(), &model).unwrap();
            assert_eq!(world.pfs, model, "seed {seed}, cut {cut}");
        }
    }
}

#[test]
fn a_swap_of_two_files_destroys_neither() {
    let mut world = World {
        pfs: Tree::from([(p("a"), Node::File(1)), (p("b"), Node::File(2))]),
        picture: Picture::default(),
        objects: BTreeMap::new(),
        next: 0,
    };
    world.rename(&p("a"), &p("c"));
    world.rename(&p("b"), &p("a"));
    world.rename(&p("c"), &p("b"));
    let view = world.view();
    world.drain(&mut usize::MAX.clone(), &view).unwrap();
    assert_eq!(
        world.pfs,
        Tree::from([(p("a"), Node::File(2)), (p("b"), Node::File(1))])
    );
}

#[test]
fn only_what_holds_nothing_of_value_is_a_leftover() {
    let oid = ObjectId::new(BridgeId(1), 2, 3);
    assert!(is_leftover(&copy_name(oid)));
    assert!(is_leftover(&discarded_name(oid)));
    assert!(is_leftover(&[&discarded_name(oid)[..], b"1"].concat()));
    assert!(!is_leftover(&waiting_name(oid)));
    assert!(!is_leftover(b".forebay-notes.tmp"));
}
