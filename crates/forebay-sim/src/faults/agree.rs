//! When all is quiet: do the tables of all bridges and the objects on their disks agree?

use super::history::Thing;
use super::model::{Tree, is_dir};
use super::node::Node;
use forebay_core::facts::{Attr, Label, LabelParent};
use forebay_core::label::renamed;
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, ObjectName, PathRecord};
use forebay_core::table::{Marks, Tables};
use forebay_core::walk::RESERVED_PREFIX;
use std::collections::{BTreeMap, BTreeSet};

/// What does not agree, and where.
pub(super) type Disagreement = (String, Vec<TreePath>);

/// Checks everything; gives the tree that the tables describe. `ever` are objects that any table has
/// ever named.
pub(super) fn check(
    nodes: &[Node],
    lower: &Tree,
    ever: impl Iterator<Item = ObjectName>,
) -> Result<Tree, Disagreement> {
    let records = all_records(nodes)?;
    let mut named = BTreeSet::new();
    let mut remote: BTreeMap<BridgeId, usize> = BTreeMap::new();
    for (path, record) in &records {
        let here = |what: String| (format!("{path}: {what}"), vec![path.clone()]);
        if !named.insert(record.object) {
            return Err(here(format!("its object {} has two names", record.object)));
        }
        let Some(parent) = place_of(&records, lower, &path.parent()) else {
            return Err(here("it lies in no directory".to_owned()));
        };
        if record.transit.is_some() {
            return Err(here("it is in transit".to_owned()));
        }
        check_object(nodes, &records, path, record, parent).map_err(here)?;
        let owner = record.object.oid.bridge();
        if nodes[0].membership.home(path) != owner {
            *remote.entry(owner).or_default() += 1;
        }
    }
    for node in nodes {
        check_leftovers(node, &named, remote.get(&node.id).copied().unwrap_or(0))
            .map_err(|what| (format!("bridge {}: {what}", node.id.0), Vec::new()))?;
    }
    for object in ever.filter(|o| !named.contains(o)) {
        if let Some(node) = nodes.iter().find(|n| n.tables.path_of(object) != Ok(None)) {
            let what = format!(
                "bridge {}: its local table finds {object}, which is gone",
                node.id.0
            );
            return Err((what, Vec::new()));
        }
    }
    Ok(tree_of(&records, lower))
}

/// The tree that the tables describe, whatever else is under way.
pub(super) fn tree(nodes: &[Node], lower: &Tree) -> Result<Tree, Disagreement> {
    Ok(tree_of(&all_records(nodes)?, lower))
}

fn tree_of(records: &Records, lower: &Tree) -> Tree {
    let mut tree = Tree::new();
    look_into(&TreePath::root(), records, lower, &mut tree);
    tree
}

/// All records, by path.
type Records = BTreeMap<TreePath, PathRecord>;

/// The directory at `path`, as labels name it: made in a buffer, or one of the PFS.
fn place_of(records: &Records, lower: &Tree, path: &TreePath) -> Option<LabelParent> {
    match records.get(path) {
        Some(record) => match (record.kind, &record.origin) {
            (Kind::Dir, _) => Some(LabelParent::Object(record.object.oid)),
            (Kind::Moved, Some(origin)) => {
                let there = still_there(record, lower).filter(|there| there.is_dir());
                there.map(|_| LabelParent::Lower(origin.clone()))
            }
            _ => None,
        },
        None if path.is_root() => Some(LabelParent::Lower(TreePath::root())),
        None => match place_of(records, lower, &path.parent())? {
            LabelParent::Object(_) => None,
            LabelParent::Lower(dir) => {
                let below = dir.join(path.name());
                is_dir(lower, &below).then_some(LabelParent::Lower(below))
            }
        },
    }
}

/// What was renamed, if it is still where it was on the PFS, and what others have put there only if somebody has chosen so.
fn still_there(record: &PathRecord, lower: &Tree) -> Option<Thing> {
    let there = lower.get(record.origin.as_ref()?)?;
    let known = record.arriving.as_ref().filter(|_| !record.adopts);
    let now = Attr {
        ino: there.ino,
        mode: there.type_bits(),
        ..Attr::default()
    };
    known
        .is_none_or(|known| known.is_inode_of(&now))
        .then_some(*there)
}

/// Adds what a user sees below `dir` to `tree`.
fn look_into(dir: &TreePath, records: &Records, lower: &Tree, tree: &mut Tree) {
    let mut here: BTreeMap<Vec<u8>, Thing> = BTreeMap::new();
    if let Some(LabelParent::Lower(below)) = place_of(records, lower, dir) {
        let children = lower.iter().filter(|(p, _)| p.parent() == below);
        let children = children.filter(|(p, _)| !p.name().starts_with(RESERVED_PREFIX));
        here.extend(children.map(|(p, thing)| (p.name().to_vec(), *thing)));
    }
    for (path, record) in records.iter().filter(|(p, _)| p.parent() == *dir) {
        let thing = match (record.kind, &record.origin) {
            (Kind::Whiteout, _) => None,
            (Kind::Moved, _) => still_there(record, lower),
            (kind, _) => Some(Thing {
                ino: record.ino,
                kind,
            }),
        };
        match thing {
            Some(thing) => here.insert(path.name().to_vec(), thing),
            None => here.remove(path.name()),
        };
    }
    for (name, thing) in here {
        let path = dir.join(&name);
        tree.insert(path.clone(), thing);
        if thing.is_dir() {
            look_into(&path, records, lower, tree);
        }
    }
}

fn all_records(nodes: &[Node]) -> Result<Records, Disagreement> {
    let mut all = BTreeMap::new();
    for node in nodes {
        let entries = node.tables.subtree(&TreePath::root());
        for (path, record) in entries.map_err(|e| (e.to_string(), Vec::new()))? {
            if !node.membership.is_home(&path) {
                let what = format!("{path}: bridge {} has it and is not its home", node.id.0);
                return Err((what, vec![path]));
            }
            all.insert(path, record);
        }
    }
    Ok(all)
}

/// The object of a record: it is there, it carries the right label, and it is found both ways.
fn check_object(
    nodes: &[Node],
    records: &Records,
    path: &TreePath,
    record: &PathRecord,
    parent: LabelParent,
) -> Result<(), String> {
    let object = record.object;
    let node = |id: BridgeId| nodes.iter().find(|n| n.id == id);
    let owner = node(object.oid.bridge()).ok_or("nobody owns its object")?;
    let shown = match record.kind {
        Kind::Moved | Kind::Whiteout => 0,
        _ => owner.disk.identity(object.oid),
    };
    if record.ino != shown {
        return Err(format!("it shows inode {:x}", record.ino));
    }
    let Some(label) = owner.disk.objects.get(&object) else {
        return Err(format!("its object {object} is missing"));
    };
    let right = Label {
        kind: record.kind,
        parent,
        name: path.name().to_vec(),
        origin: record.origin.clone(),
        hides: record.hides.clone(),
        renamed: renamed(record),
    };
    // What lies in a directory that has opened to the PFS may still name it by its object.
    let dir = records.get(&path.parent());
    let opened = dir.filter(|dir| dir.kind == Kind::Moved).map(|dir| Label {
        parent: LabelParent::Object(dir.object.oid),
        ..right.clone()
    });
    let is_right = |right: &Label| label == right;
    if !is_right(&right) && !opened.as_ref().is_some_and(is_right) {
        return Err(format!("its label is {label:?}, not {right:?}"));
    }
    let found = owner
        .bridge
        .as_ref()
        .map(|b| b.path_of(object, &owner.tables));
    if found != Some(Ok(Some(path.clone()))) {
        return Err(format!("the owner finds its object at {found:?}"));
    }
    let home = node(owner.membership.home(path)).ok_or("nobody is its home")?;
    let found = home.tables.path_of(object);
    if found != Ok(Some(path.clone())) {
        return Err(format!("the local table of its home finds it at {found:?}"));
    }
    Ok(())
}

/// Nothing is left of what is over.
fn check_leftovers(node: &Node, named: &BTreeSet<ObjectName>, remote: usize) -> Result<(), String> {
    let text = |e: forebay_core::table::TableError| e.to_string();
    if let Some(object) = node.disk.objects.keys().find(|o| !named.contains(o)) {
        return Err(format!("object {object} belongs to nothing"));
    }
    let Marks { doomed, relabel } = node.tables.marks().map_err(text)?;
    if !doomed.is_empty() || !relabel.is_empty() {
        return Err(format!("marks are left: {doomed:?} {relabel:?}"));
    }
    for prefix in ["bridge/intent/", "bridge/prepared/"] {
        let left = node.tables.metas(prefix.as_bytes()).map_err(text)?;
        if !left.is_empty() {
            return Err(format!("{} values {prefix} are left", left.len()));
        }
    }
    let owned = node.tables.metas(b"bridge/owned/").map_err(text)?.len();
    if owned != remote {
        return Err(format!(
            "it knows {owned} paths of its objects at other homes, there are {remote}"
        ));
    }
    Ok(())
}
