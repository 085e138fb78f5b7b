//! When all is quiet: do the tables of all bridges and the objects on their disks agree?

use super::history::{Thing, ino};
use super::model::Tree;
use super::node::Node;
use forebay_core::facts::{Label, LabelParent};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, ObjectName, Record};
use forebay_core::table::{Marks, Tables};
use std::collections::{BTreeMap, BTreeSet};

/// What does not agree, and where.
pub(super) type Disagreement = (String, Vec<TreePath>);

/// Checks everything; gives the tree that the tables describe. `ever` are objects that any table has
/// ever named.
pub(super) fn check(
    nodes: &[Node],
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
        let parent = path.parent();
        let above = records.get(&parent).map(|r| r.kind);
        if !parent.is_root() && above != Some(Kind::Dir) {
            return Err(here(format!("it lies in {above:?}")));
        }
        check_object(nodes, path, record, &records).map_err(here)?;
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
    let visible = records.into_iter().filter(|(_, r)| r.is_visible());
    let thing = |r: Record| Thing {
        ino: r.ino,
        dir: r.kind == Kind::Dir,
    };
    Ok(visible.map(|(path, r)| (path, thing(r))).collect())
}

fn all_records(nodes: &[Node]) -> Result<BTreeMap<TreePath, Record>, Disagreement> {
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
    path: &TreePath,
    record: &Record,
    records: &BTreeMap<TreePath, Record>,
) -> Result<(), String> {
    let object = record.object;
    let node = |id: BridgeId| nodes.iter().find(|n| n.id == id);
    let owner = node(object.oid.bridge()).ok_or("nobody owns its object")?;
    if record.ino != ino(object.oid) {
        return Err(format!("it shows inode {:x}", record.ino));
    }
    let Some(label) = owner.disk.objects.get(&object) else {
        return Err(format!("its object {object} is missing"));
    };
    let parent = match records.get(&path.parent()) {
        Some(dir) => LabelParent::Object(dir.object.oid),
        None => LabelParent::Lower(TreePath::root()),
    };
    let right = Label {
        kind: record.kind,
        parent,
        name: path.name().to_vec(),
        origin: record.origin.clone(),
        hides: record.hides.clone(),
    };
    if *label != right {
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
