//! What the namespace has to look like to its users: a plain tree, and what each
//! operation with each outcome means for it.

use super::history::{Action, Call, Outcome, Thing, keeper};
use forebay_core::path::TreePath;
use std::collections::BTreeMap;

/// All names that there are.
pub(super) type Tree = BTreeMap<TreePath, Thing>;

pub(super) fn is_dir(tree: &Tree, path: &TreePath) -> bool {
    path.is_root() || tree.get(path).is_some_and(|t| t.dir)
}

fn is_file(tree: &Tree, path: &TreePath) -> bool {
    tree.get(path).is_some_and(|t| !t.dir)
}

fn has_children(tree: &Tree, dir: &TreePath) -> bool {
    tree.keys().any(|p| p != dir && p.is_within(dir))
}

/// A file stands where the path needs a directory.
fn passes_file(tree: &Tree, path: &TreePath) -> bool {
    tree.iter()
        .any(|(p, thing)| !thing.dir && p != path && path.is_within(p))
}

fn is_vacant(tree: &Tree, path: &TreePath) -> bool {
    !tree.contains_key(path) && is_dir(tree, &path.parent())
}

/// The tree after an operation that changed it with this outcome; `None` if that could not have
/// happened to this tree. `made` is the thing that the operation made.
pub(super) fn apply(call: &Call, made: Option<Thing>, tree: &Tree) -> Option<Tree> {
    let mut after = tree.clone();
    match &call.action {
        Action::Create(path, _) | Action::Mkdir(path) => {
            if !is_vacant(tree, path) {
                return None;
            }
            after.insert(path.clone(), made?);
        }
        Action::Link(old, new) => {
            if !is_file(tree, old) || !is_vacant(tree, new) {
                return None;
            }
            after.insert(new.clone(), tree[old]);
        }
        Action::Unlink(path) => {
            if !is_file(tree, path) {
                return None;
            }
            after.remove(path);
        }
        Action::Rmdir(path) => {
            if !is_dir(tree, path) || has_children(tree, path) {
                return None;
            }
            after.remove(path)?;
        }
        Action::Rename(old, new, flags) => return rename(tree, old, new, *flags),
        Action::Truncate(_) | Action::Stat(_) | Action::List(..) => return None,
    }
    Some(after)
}

fn rename(tree: &Tree, old: &TreePath, new: &TreePath, flags: u32) -> Option<Tree> {
    let source = tree.get(old)?;
    let target = tree.get(new);
    let exchange = flags == libc::RENAME_EXCHANGE;
    if !is_dir(tree, &new.parent()) {
        return None;
    }
    match target {
        Some(_) if flags == libc::RENAME_NOREPLACE => return None,
        None if exchange => return None,
        Some(t) if t == source && (old == new || !t.dir) => return Some(tree.clone()),
        Some(t) if !exchange && t.dir != source.dir => return None,
        Some(t) if !exchange && t.dir && has_children(tree, new) => return None,
        _ => {}
    }
    if new.is_within(old) || old.is_within(new) {
        return None;
    }
    let moved = |p: &TreePath| {
        if p.is_within(old) {
            p.rebase(old, new)
        } else if exchange && p.is_within(new) {
            p.rebase(new, old)
        } else if p == new {
            None
        } else {
            Some(p.clone())
        }
    };
    Some(
        tree.iter()
            .filter_map(|(p, t)| Some((moved(p)?, *t)))
            .collect(),
    )
}

/// Is the reason that a failed or reading operation gave true of this tree? An operation that fails
/// looks at several places, one after the other, and names one of them.
pub(super) fn holds(call: &Call, outcome: &Outcome, tree: &Tree) -> bool {
    match outcome {
        Outcome::Errno(libc::EXDEV) => match &call.action {
            // Only the bridge that keeps a file can give it another name.
            Action::Link(old, _) => tree
                .get(old)
                .is_some_and(|t| !t.dir && (call.drains || keeper(t.ino) != Some(call.bridge))),
            _ => false,
        },
        Outcome::Errno(e) => may_fail(&call.action, *e, tree),
        Outcome::Seen(thing) => match &call.action {
            Action::Stat(path) => tree.get(path) == Some(thing),
            _ => false,
        },
        Outcome::Opened(ino) => match &call.action {
            Action::Create(path, false) | Action::Truncate(path) => {
                let thing = Thing {
                    ino: *ino,
                    dir: false,
                };
                tree.get(path) == Some(&thing)
            }
            _ => false,
        },
        Outcome::Done | Outcome::Listed(..) => false,
    }
}

fn may_fail(action: &Action, e: i32, tree: &Tree) -> bool {
    let paths = action.paths();
    let last = &paths[paths.len() - 1];
    let exists = |p: &TreePath| p.is_root() || tree.contains_key(p);
    // Whoever sees a directory go from under a path may call the way missing or barred.
    let above_missing = |p: &TreePath| !exists(&p.parent()) || passes_file(tree, p);
    match (e, action) {
        (libc::ENOENT, Action::Create(p, _) | Action::Mkdir(p)) => above_missing(p),
        (libc::ENOENT, Action::Rename(old, new, flags)) => {
            !exists(old) || above_missing(new) || *flags == libc::RENAME_EXCHANGE && !exists(new)
        }
        (libc::ENOENT, Action::Link(old, new)) => !exists(old) || above_missing(new),
        (libc::ENOENT, _) => !exists(last),
        (libc::EEXIST, Action::Create(p, true) | Action::Mkdir(p) | Action::Link(_, p)) => {
            exists(p)
        }
        (libc::EEXIST, Action::Rename(_, new, libc::RENAME_NOREPLACE)) => exists(new),
        (libc::ENOTDIR, Action::Rmdir(p) | Action::List(p, ..)) => {
            is_file(tree, p) || passes_file(tree, p)
        }
        (libc::ENOTDIR, Action::Rename(old, new, _)) => {
            passes_file(tree, old) || passes_file(tree, new) || is_file(tree, new)
        }
        (libc::ENOTDIR, _) => paths.iter().any(|p| passes_file(tree, p)),
        (
            libc::EISDIR,
            Action::Create(..) | Action::Truncate(_) | Action::Unlink(_) | Action::Rename(..),
        ) => is_dir(tree, last),
        (libc::ESTALE, Action::Create(p, false) | Action::Truncate(p)) => is_file(tree, p),
        (libc::ENOTEMPTY, Action::Rmdir(p)) => has_children(tree, p),
        (libc::ENOTEMPTY, Action::Rename(old, new, _)) => {
            has_children(tree, new) || old.is_within(new)
        }
        (libc::EINVAL, Action::Rename(old, new, _)) => new.is_within(old) || old.is_within(new),
        (libc::EPERM, Action::Link(old, _)) => is_dir(tree, old),
        _ => false,
    }
}
