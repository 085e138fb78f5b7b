//! What the namespace has to look like to its users: a plain tree, and what each
//! operation with each outcome means for it.

use super::history::{Action, Call, Outcome, Texts, Thing, keeper};
use super::request::ROOT;
use forebay_core::path::{TreePath, below};
use forebay_core::record::Kind;
use std::collections::BTreeMap;

/// All names that there are.
pub(super) type Tree = BTreeMap<TreePath, Thing>;

/// As many symbolic links as Linux follows in one path.
const MAX_LINKS: usize = 40;

pub(super) fn is_dir(tree: &Tree, path: &TreePath) -> bool {
    path.is_root() || tree.get(path).is_some_and(Thing::is_dir)
}

fn has_children(tree: &Tree, dir: &TreePath) -> bool {
    tree.keys().any(|p| p != dir && p.is_within(dir))
}

/// Where a path leads: to a name in a directory that exists, or to a directory. `follow`: also through a symbolic
/// link at its end.
///
/// # Errors
/// ENOENT, ENOTDIR and ELOOP, and EXDEV if the path leaves the buffer.
pub(super) fn place(
    tree: &Tree,
    texts: &Texts,
    path: &TreePath,
    follow: bool,
) -> Result<TreePath, i32> {
    let mut dir = TreePath::root();
    let mut links = 0;
    // The next name is the last one here.
    let mut rest: Vec<&[u8]> = path.components().collect();
    rest.reverse();
    while let Some(name) = rest.pop() {
        if name == b".." {
            if dir.is_root() {
                return Err(libc::EXDEV);
            }
            dir = dir.parent();
            continue;
        }
        let at = dir.join(name);
        let is_last = rest.is_empty();
        match tree.get(&at) {
            Some(link) if link.kind == Kind::Symlink && (follow || !is_last) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(libc::ELOOP);
                }
                let mut text = &texts[&link.ino][..];
                if text.starts_with(b"/") {
                    text = below(ROOT, text).ok_or(libc::EXDEV)?;
                    dir = TreePath::root();
                }
                let names = text.rsplit(|b| *b == b'/');
                rest.extend(names.filter(|name| !name.is_empty()));
            }
            _ if is_last => return Ok(at),
            Some(thing) if thing.is_dir() => dir = at,
            Some(_) => return Err(libc::ENOTDIR),
            None => return Err(libc::ENOENT),
        }
    }
    Ok(dir)
}

/// The tree after an operation that changed it with this outcome; `None` if that could not have
/// happened to this tree. `made` is the thing that the operation made.
pub(super) fn apply(call: &Call, made: Option<Thing>, tree: &Tree, texts: &Texts) -> Option<Tree> {
    let follow = call.action.follows();
    let place = |path| place(tree, texts, path, follow).ok();
    let vacant = |path| place(path).filter(|at| !at.is_root() && !tree.contains_key(at));
    let mut after = tree.clone();
    match &call.action {
        Action::Create(path, _) | Action::Mkdir(path) | Action::Symlink(_, path) => {
            after.insert(vacant(path)?, made?);
        }
        Action::Link(old, new) => {
            let linked = *tree.get(&place(old)?).filter(|t| !t.is_dir())?;
            after.insert(vacant(new)?, linked);
        }
        Action::Unlink(path) => {
            after.remove(&place(path)?).filter(|t| !t.is_dir())?;
        }
        Action::Rmdir(path) => {
            let path = place(path)?;
            if has_children(tree, &path) {
                return None;
            }
            after.remove(&path).filter(Thing::is_dir)?;
        }
        Action::Rename(old, new, flags) => {
            return rename(tree, &place(old)?, &place(new)?, *flags);
        }
        Action::Truncate(..) | Action::Stat(..) | Action::Readlink(_) | Action::List(..) => {
            return None;
        }
    }
    Some(after)
}

fn rename(tree: &Tree, old: &TreePath, new: &TreePath, flags: u32) -> Option<Tree> {
    let source = tree.get(old)?;
    let target = tree.get(new);
    let exchange = flags == libc::RENAME_EXCHANGE;
    match target {
        Some(_) if flags == libc::RENAME_NOREPLACE => return None,
        None if exchange => return None,
        Some(t) if t == source && (old == new || !t.is_dir()) => return Some(tree.clone()),
        Some(t) if !exchange && t.is_dir() != source.is_dir() => return None,
        Some(t) if !exchange && t.is_dir() && has_children(tree, new) => return None,
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
pub(super) fn holds(call: &Call, outcome: &Outcome, tree: &Tree, texts: &Texts) -> bool {
    let action = &call.action;
    let way = |path| place(tree, texts, path, action.follows());
    let thing = |path| tree.get(&way(path).ok()?);
    match (outcome, action) {
        // Only the bridge that keeps a file can give it another name.
        (Outcome::Errno(libc::EXDEV), Action::Link(old, new)) => {
            way(old) == Err(libc::EXDEV)
                || way(new) == Err(libc::EXDEV)
                || thing(old).is_some_and(|t| {
                    !t.is_dir() && (call.drains || keeper(t.ino) != Some(call.bridge))
                })
        }
        (Outcome::Errno(e), _) => may_fail(action, *e, tree, texts),
        (Outcome::Failed { .. }, _) => true,
        (Outcome::Outside, Action::Rename(..) | Action::Link(..)) => false,
        (Outcome::Outside, _) => action.paths().iter().any(|p| way(p) == Err(libc::EXDEV)),
        (Outcome::Seen(seen), Action::Stat(path, _)) => thing(path) == Some(seen),
        (Outcome::Text(text), Action::Readlink(path)) => {
            thing(path).is_some_and(|t| t.kind == Kind::Symlink && texts.get(&t.ino) == Some(text))
        }
        (Outcome::Opened(ino), Action::Create(path, flags)) if flags & libc::O_EXCL == 0 => {
            thing(path).is_some_and(|t| t.kind == Kind::File && t.ino == *ino)
        }
        (Outcome::Opened(ino), Action::Truncate(path, _)) => {
            thing(path).is_some_and(|t| t.kind == Kind::File && t.ino == *ino)
        }
        _ => false,
    }
}

fn may_fail(action: &Action, e: i32, tree: &Tree, texts: &Texts) -> bool {
    let paths = action.paths();
    let last = &paths[paths.len() - 1];
    let way = |p: &TreePath| place(tree, texts, p, action.follows());
    let kind = |p: &TreePath| match way(p) {
        Ok(at) if at.is_root() => Some(Kind::Dir),
        Ok(at) => tree.get(&at).map(|thing| thing.kind),
        Err(_) => None,
    };
    let exists = |p: &TreePath| kind(p).is_some();
    let is_dir = |p: &TreePath| kind(p) == Some(Kind::Dir);
    let is_other = |p: &TreePath| exists(p) && !is_dir(p);
    // Whoever sees a directory go from under a path may call the way missing or barred.
    let above_missing = |p: &TreePath| matches!(way(p), Err(libc::ENOENT | libc::ENOTDIR));
    let missing = |p: &TreePath| above_missing(p) || way(p).is_ok() && !exists(p);
    let within = |a: &TreePath, b: &TreePath| match (way(a), way(b)) {
        (Ok(a), Ok(b)) => a.is_within(&b),
        _ => false,
    };
    let full = |p: &TreePath| way(p).is_ok_and(|at| has_children(tree, &at));
    match (e, action) {
        (libc::ENOENT, Action::Create(p, _) | Action::Mkdir(p) | Action::Symlink(_, p)) => {
            above_missing(p)
        }
        (libc::ENOENT, Action::Rename(old, new, flags)) => {
            missing(old) || above_missing(new) || *flags == libc::RENAME_EXCHANGE && missing(new)
        }
        (libc::ENOENT, Action::Link(old, new)) => missing(old) || above_missing(new),
        (libc::ENOENT, _) => missing(last),
        (
            libc::EEXIST,
            Action::Create(p, libc::O_EXCL)
            | Action::Mkdir(p)
            | Action::Symlink(_, p)
            | Action::Link(_, p)
            | Action::Rename(_, p, libc::RENAME_NOREPLACE),
        ) => exists(p),
        (libc::ENOTDIR, Action::Rmdir(p) | Action::List(p, ..)) => {
            is_other(p) || way(p) == Err(libc::ENOTDIR)
        }
        (libc::ENOTDIR, Action::Rename(_, new, _)) if is_other(new) => true,
        (libc::ENOTDIR | libc::ELOOP, _) if paths.iter().any(|p| way(p) == Err(e)) => true,
        (libc::ELOOP, Action::Create(p, libc::O_NOFOLLOW))
        | (libc::ELOOP, Action::Truncate(p, libc::O_NOFOLLOW)) => kind(p) == Some(Kind::Symlink),
        (
            libc::EISDIR,
            Action::Create(..) | Action::Truncate(..) | Action::Unlink(_) | Action::Rename(..),
        ) => is_dir(last),
        (libc::ESTALE, Action::Create(p, 0 | libc::O_NOFOLLOW) | Action::Truncate(p, _)) => {
            kind(p) == Some(Kind::File)
        }
        (libc::ENOTEMPTY, Action::Rmdir(p)) => full(p),
        (libc::ENOTEMPTY, Action::Rename(old, new, _)) => full(new) || within(old, new),
        (libc::EINVAL, Action::Rename(old, new, _)) => within(new, old) || within(old, new),
        (libc::EINVAL, Action::Readlink(p)) => exists(p) && kind(p) != Some(Kind::Symlink),
        (libc::EPERM, Action::Link(old, _)) => is_dir(old),
        (libc::EXDEV, Action::Rename(old, new, _)) => {
            way(old) == Err(libc::EXDEV) || way(new) == Err(libc::EXDEV)
        }
        _ => false,
    }
}
