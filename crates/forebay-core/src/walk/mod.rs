//! From a path as a program wrote it to a place in the merged namespace.
//!
//! The merged namespace is the buffer's records over the PFS below. A directory
//! is either *born* in the buffer (only records count in it) or *merged* (a
//! directory of the PFS, with records over its entries). Symbolic links and
//! `..` are followed component by component here and nowhere else; a path that
//! leaves the buffer ends in [`Stop::Redirect`].

use crate::access::{self, SEARCH};
use crate::facts::{Attr, Cred, Facts, LabelParent, Need, Outcome, Settings, Stop, errno};
use crate::ops::{Path, Start};
use crate::path::{TreePath, below};
use crate::record::{Kind, ObjectName, PathRecord};
use std::cell::RefCell;
use std::collections::BTreeMap;

mod elsewhere;
mod start;

pub use elsewhere::Comes;

/// Names that the drain uses on the PFS begin with this; they are not part of the namespace.
pub const RESERVED_PREFIX: &[u8] = b".forebay-";

/// As many symbolic links as Linux follows in one path.
const MAX_LINKS: u32 = 40;
const MAX_NAME_BYTES: usize = forebay_types::MAX_NAME_BYTES;
const MAX_PATH_BYTES: usize = forebay_types::MAX_PATH_BYTES;

/// Where the entries of a directory come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Made in the buffer.
    Born(ObjectName),
    /// This directory of the PFS, with records over it.
    Merged(TreePath),
}

impl Place {
    /// How labels of entries name this directory.
    pub fn label(&self) -> LabelParent {
        match self {
            Place::Born(object) => LabelParent::Object(object.oid),
            Place::Merged(lower) => LabelParent::Lower(lower.clone()),
        }
    }
}

/// A directory in the merged namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dir {
    /// Its path in the buffer.
    pub path: TreePath,
    /// Where its entries come from.
    pub place: Place,
}

/// Something that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Made (or staged) in the buffer.
    Born(PathRecord),
    /// On the PFS, at this path there.
    Lower(TreePath, Attr),
}

/// How the path ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// With a name.
    Name,
    /// With `.`, or it was empty.
    Dot,
    /// With `..`.
    DotDot,
}

/// What to do with a symbolic link at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// Follow it.
    Yes,
    /// Follow it only if a slash comes after it (`lstat`, `open` with `O_NOFOLLOW`).
    BeforeSlash,
    /// Never (operations on the name itself: `unlink`, `rename`, `mkdir`).
    No,
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Path in the buffer, free of links.
    pub path: TreePath,
    /// The directory that holds the name (for the root: the root).
    pub dir: Dir,
    /// The record at the path, whiteouts included.
    pub record: Option<PathRecord>,
    /// What is there.
    pub node: Option<Node>,
    /// How the path ended.
    pub last: Last,
    /// A slash came after the last component.
    pub slash: bool,
}

impl Found {
    /// The name in its directory.
    pub fn name(&self) -> &[u8] {
        self.path.name()
    }
}

/// One walk.
pub struct Walk<'a> {
    /// Who walks.
    pub cred: &'a Cred,
    /// Settings of the buffer.
    pub settings: &'a Settings,
    /// State of the world.
    pub facts: &'a dyn Facts,
    /// What waits for another directory than the one that is there now does not show.
    hides_elsewhere: bool,
    seen: RefCell<Seen>,
}

/// What a walk has seen.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// By its path in the buffer: which directory of the PFS is there.
    dirs: BTreeMap<TreePath, (TreePath, Attr)>,
    /// Names of which the records belong in another directory: they are not in this one, nor is anything below.
    passed_over: Vec<TreePath>,
}

impl<'a> Walk<'a> {
    /// A new one. `hides_elsewhere`: what waits for another directory than the one that is there now does not show, where that can be
    /// told.
    pub fn new(
        cred: &'a Cred,
        settings: &'a Settings,
        facts: &'a dyn Facts,
        hides_elsewhere: bool,
    ) -> Self {
        Walk {
            cred,
            settings,
            facts,
            hides_elsewhere: hides_elsewhere && settings.keeps_numbers,
            seen: RefCell::default(),
        }
    }

    /// Attributes of a node as `stat` shows them.
    pub fn attr(&self, node: &Node) -> Outcome<Attr> {
        match node {
            Node::Lower(_, attr) => Ok(*attr),
            Node::Born(record) => {
                let mut attr = Attr {
                    copy_of: record.copy_of,
                    ..self.facts.attr(record.object)?
                };
                if record.kind == Kind::Symlink {
                    // The backing object is a regular file with the text in it.
                    attr.mode = libc::S_IFLNK | 0o777;
                }
                Ok(attr)
            }
        }
    }

    /// Attributes of a directory.
    pub fn dir_attr(&self, dir: &Dir) -> Outcome<Attr> {
        match &dir.place {
            Place::Born(object) => self.facts.attr(*object),
            Place::Merged(lower) => match self.merged_attr(dir, lower)? {
                Some(attr) => Ok(attr),
                None => errno(libc::ENOENT),
            },
        }
    }

    /// The same of a directory that is `lower` on the PFS, if it is there. It is looked at once for all that is decided about the
    /// directory that holds a name.
    pub fn merged_attr(&self, dir: &Dir, lower: &TreePath) -> Outcome<Option<Attr>> {
        if let Some((seen, attr)) = self.seen.borrow().dirs.get(&dir.path)
            && seen == lower
        {
            return Ok(Some(*attr));
        }
        let record = match self.is_passed_over(&dir.path) {
            true => None,
            false => self.facts.record(&dir.path)?,
        };
        let renamed = record.filter(|record| record.origin.as_ref() == Some(lower));
        let found = match renamed {
            Some(record) => self.facts.renamed(&record)?,
            None => self.facts.lower(lower)?,
        };
        if let Some(attr) = found {
            self.saw_dir(&dir.path, lower, attr);
        }
        Ok(found)
    }

    fn saw_dir(&self, path: &TreePath, lower: &TreePath, attr: Attr) {
        let mut seen = self.seen.borrow_mut();
        seen.dirs.insert(path.clone(), (lower.clone(), attr));
    }

    /// EXDEV where the directories of two names are on different file systems of the PFS: something is mounted there. A directory that was
    /// made in the buffer comes where the one above it is.
    pub fn check_device(&self, a: &Dir, b: &Dir) -> Outcome<()> {
        if a.path == b.path {
            return Ok(());
        }
        let (a, b) = (self.merged_above(a)?, self.merged_above(b)?);
        if a == b {
            return Ok(());
        }
        let device = |(dir, lower): &(Dir, TreePath)| -> Outcome<Option<u64>> {
            Ok(self.merged_attr(dir, lower)?.map(|attr| attr.dev))
        };
        match (device(&a)?, device(&b)?) {
            (Some(a), Some(b)) if a != b => errno(libc::EXDEV),
            _ => Ok(()),
        }
    }

    /// The directory of the PFS in which this one is, or comes, and where that is.
    fn merged_above(&self, dir: &Dir) -> Outcome<(Dir, TreePath)> {
        let mut dir = dir.clone();
        loop {
            match &dir.place {
                Place::Merged(lower) => {
                    let lower = lower.clone();
                    return Ok((dir, lower));
                }
                Place::Born(_) => dir = self.dir_shown_at(&dir.path.parent())?,
            }
        }
    }

    /// May the caller do `want` in this directory?
    pub fn check_dir(&self, dir: &Dir, want: u32) -> Outcome<()> {
        if self.cred.uid == 0 {
            return Ok(());
        }
        access::check(self.cred, &self.dir_attr(dir)?, want)
    }

    /// May this link in `dir`, at the end of a path, be followed?
    fn check_follow(&self, dir: &Dir, link: &Node) -> Outcome<()> {
        let protections = self.settings.protections;
        if !protections.symlinks {
            return Ok(());
        }
        protections.check_follow(self.cred, &self.dir_attr(dir)?, &self.attr(link)?)
    }

    /// Is the node a directory?
    pub fn is_dir(&self, node: &Node) -> bool {
        match node {
            Node::Born(record) => record.kind == Kind::Dir,
            Node::Lower(_, attr) => attr.is_dir(),
        }
    }

    fn is_symlink(&self, node: &Node) -> bool {
        match node {
            Node::Born(record) => record.kind == Kind::Symlink,
            Node::Lower(_, attr) => attr.mode & libc::S_IFMT == libc::S_IFLNK,
        }
    }

    /// Text of a symbolic link.
    pub fn link_text(&self, node: &Node) -> Outcome<Vec<u8>> {
        match node {
            Node::Born(record) if record.kind == Kind::Symlink => {
                self.facts.link_text(record.object)
            }
            Node::Lower(path, attr) if attr.mode & libc::S_IFMT == libc::S_IFLNK => {
                self.facts.lower_link(path)
            }
            _ => errno(libc::EINVAL),
        }
    }

    fn root(&self) -> Dir {
        Dir {
            path: TreePath::root(),
            place: Place::Merged(TreePath::root()),
        }
    }

    /// The directory at a path that is known to be one (no links, no missing parts),
    /// or ENOENT if it is not one any more. Looks at records only.
    pub fn dir_at(&self, path: &TreePath) -> Outcome<Dir> {
        // A record exists only where all of its ancestors are directories. So the nearest one above tells all. (What others have
        // taken the directory of, by putting a file there that a program then replaced, is in none.)
        let mut above = None;
        let place = loop {
            let at = above.as_ref().unwrap_or(path);
            break match self.facts.record(at)? {
                None if at.is_root() => Place::Merged(path.clone()),
                None => {
                    above = Some(at.parent());
                    continue;
                }
                Some(PathRecord {
                    kind: Kind::Moved,
                    origin: Some(origin),
                    ..
                }) => Place::Merged(path.rebase(at, &origin).unwrap_or(origin)),
                Some(r) if r.kind == Kind::Dir && at == path => Place::Born(r.object),
                Some(_) => return errno(libc::ENOENT),
            };
        };
        Ok(Dir {
            path: path.clone(),
            place,
        })
    }

    /// The same, where what waits for another directory does not show.
    fn dir_shown_at(&self, path: &TreePath) -> Outcome<Dir> {
        let found = self.dir_at(path);
        // Where no record is on the way, nothing can be elsewhere.
        let is_plain = |dir: &Dir| matches!(&dir.place, Place::Merged(lower) if lower == path);
        match found {
            Ok(dir) if !self.hides_elsewhere || is_plain(&dir) => Ok(dir),
            Err(e) if !self.hides_elsewhere => Err(e),
            _ => self.dir_below(self.root(), path.components()),
        }
    }

    /// The same of a way down from a directory.
    fn dir_below<'n>(&self, mut dir: Dir, names: impl Iterator<Item = &'n [u8]>) -> Outcome<Dir> {
        for name in names {
            let record = self.record_in(&dir, name)?;
            dir = Self::entered(&dir, name, record.as_ref())?;
        }
        Ok(dir)
    }

    /// The directory of this name in `dir`, which has this record.
    fn entered(dir: &Dir, name: &[u8], record: Option<&PathRecord>) -> Outcome<Dir> {
        let place = match (record, &dir.place) {
            (None, Place::Merged(lower)) => Place::Merged(lower.join(name)),
            (Some(record), _) if record.kind == Kind::Dir => Place::Born(record.object),
            (
                Some(PathRecord {
                    kind: Kind::Moved,
                    origin: Some(origin),
                    ..
                }),
                _,
            ) => Place::Merged(origin.clone()),
            _ => return errno(libc::ENOENT),
        };
        Ok(Dir {
            path: dir.path.join(name),
            place,
        })
    }

    /// What `name` is in `dir`: the record and the node.
    pub fn lookup(&self, dir: &Dir, name: &[u8]) -> Outcome<(Option<PathRecord>, Option<Node>)> {
        let record = self.record_in(dir, name)?;
        let node = match &record {
            Some(r) => match (r.kind, &r.origin) {
                (Kind::Whiteout, _) => None,
                (Kind::Moved, Some(origin)) => {
                    let attr = self.facts.renamed(r)?;
                    attr.map(|a| Node::Lower(origin.clone(), a))
                }
                _ => Some(Node::Born(r.clone())),
            },
            None => match &dir.place {
                Place::Born(_) => None,
                Place::Merged(_) if name.starts_with(RESERVED_PREFIX) => None,
                Place::Merged(lower) => {
                    let path = lower.join(name);
                    self.facts.lower(&path)?.map(|a| Node::Lower(path, a))
                }
            },
        };
        Ok((record, node))
    }

    /// The directory that a node is, or ENOTDIR.
    pub fn enter(&self, path: TreePath, node: &Node) -> Outcome<Dir> {
        let place = match node {
            Node::Born(r) if r.kind == Kind::Dir => Place::Born(r.object),
            Node::Lower(lower, attr) if attr.is_dir() => {
                self.saw_dir(&path, lower, *attr);
                Place::Merged(lower.clone())
            }
            _ => return errno(libc::ENOTDIR),
        };
        Ok(Dir { path, place })
    }

    /// The directory itself as the end of a path.
    fn found_dir(&self, dir: Dir, above: Option<Dir>, last: Last, slash: bool) -> Outcome<Found> {
        let is_other = matches!(dir.place, Place::Merged(_)) && self.is_passed_over(&dir.path);
        let record = match is_other {
            true => None,
            false => self.facts.record(&dir.path)?,
        };
        let node = match &dir.place {
            Place::Born(_) => record.clone().map(Node::Born),
            Place::Merged(lower) => self
                .merged_attr(&dir, lower)?
                .map(|a| Node::Lower(lower.clone(), a)),
        };
        let parent = match above {
            Some(above) => above,
            None if dir.path.is_root() => dir.clone(),
            None => self.dir_shown_at(&dir.path.parent())?,
        };
        Ok(Found {
            path: dir.path,
            dir: parent,
            record,
            node,
            last,
            slash,
        })
    }

    /// The common case without a walk: a plain path, no permission to check on the way, and a
    /// record at the path or at its directory. Records exist only under real directories,
    /// so no link can be on the way.
    fn quick(&self, path: &Path) -> Outcome<Option<Found>> {
        if self.cred.uid != 0 || self.hides_elsewhere {
            return Ok(None);
        }
        let Some(tail) = TreePath::new(&path.bytes[..]).filter(|p| !p.is_root()) else {
            return Ok(None);
        };
        let full = match &path.start {
            Start::Root => tail,
            Start::Object(_) => tail
                .rebase(&TreePath::root(), &self.start(&path.start)?.path)
                .unwrap_or(tail),
            Start::Lower(..) => return Ok(None),
        };
        let found = |path, dir, record, node| Found {
            path,
            dir,
            record,
            node,
            last: Last::Name,
            slash: false,
        };
        match self.facts.record(&full)? {
            Some(r) if matches!(r.kind, Kind::File | Kind::Dir | Kind::Special) => {
                match self.dir_at(&full.parent()) {
                    Ok(dir) => Ok(Some(found(full, dir, Some(r.clone()), Some(Node::Born(r))))),
                    // Another bridge told of the record before its directory became something else.
                    Err(Stop::Errno(_)) => Ok(None),
                    Err(stop) => Err(stop),
                }
            }
            None if full.name().len() <= MAX_NAME_BYTES => {
                let parent = full.parent();
                match self.facts.record(&parent)? {
                    Some(r) if r.kind == Kind::Dir => {
                        let dir = Dir {
                            path: parent,
                            place: Place::Born(r.object),
                        };
                        Ok(Some(found(full, dir, None, None)))
                    }
                    _ => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    /// The path outside to which `..` in the root leads, and then `rest`. It does not go through the buffer. Where `..` is the end
    /// it stays so: no call removes, moves or makes `..`, but some would the directory above by its own name.
    fn above_root(&self, rest: &[u8]) -> Vec<u8> {
        let root = &self.settings.root[..];
        if rest.iter().all(|&b| b == b'/') {
            return [root, b"/..", rest].concat();
        }
        let slash = root.iter().rposition(|&b| b == b'/').unwrap_or(0);
        [&root[..slash], rest].concat()
    }

    /// Walks `path`. A missing last component is no error: `node` is `None` then.
    pub fn resolve(&self, path: &Path, follow: Follow) -> Outcome<Found> {
        if let Some(found) = self.quick(path)? {
            return Ok(found);
        }
        let (mut above, mut dir) = self.begin(&path.start)?;
        let mut rest = path.bytes.clone();
        let mut at = 0;
        let mut links = 0;
        let mut last = Last::Dot;
        loop {
            while rest.get(at) == Some(&b'/') {
                at += 1;
            }
            if at == rest.len() {
                let slash = rest.last() == Some(&b'/');
                return self.found_dir(dir, above.pop(), last, slash);
            }
            let end = rest[at..]
                .iter()
                .position(|&b| b == b'/')
                .map_or(rest.len(), |i| at + i);
            let name = &rest[at..end];
            let slash = end < rest.len();
            let is_last = rest[end..].iter().all(|&b| b == b'/');
            // Even `.` and `..` need the directory to be searchable.
            self.check_dir(&dir, SEARCH)?;
            match name {
                b"." => {
                    last = Last::Dot;
                    at = end;
                    continue;
                }
                b".." => {
                    if dir.path.is_root() {
                        return leads_out(self.above_root(&rest[end..]));
                    }
                    let Some(parent) = above.pop() else {
                        // Once for all that follow: each time it is decided anew.
                        let names = rest[at..].split(|&b| b == b'/');
                        let levels = names.filter(|name| name == b"..").count();
                        return Err(Stop::Need(Need::FurtherUp(levels)));
                    };
                    dir = parent;
                    last = Last::DotDot;
                    at = end;
                    continue;
                }
                _ => {}
            }
            if name.len() > MAX_NAME_BYTES {
                return errno(libc::ENAMETOOLONG);
            }
            let (record, node) = self.lookup(&dir, name)?;
            if let Some(link) = node.as_ref().filter(|n| self.is_symlink(n)) {
                let through = !is_last
                    || match follow {
                        Follow::Yes => true,
                        Follow::BeforeSlash => slash,
                        Follow::No => false,
                    };
                if through {
                    links += 1;
                    if links > MAX_LINKS {
                        return errno(libc::ELOOP);
                    }
                    if is_last {
                        self.check_follow(&dir, link)?;
                    }
                    self.facts.followed(&dir.path.join(name));
                    let mut text = self.link_text(link)?;
                    if text.is_empty() {
                        return errno(libc::ENOENT);
                    }
                    text.extend_from_slice(&rest[end..]);
                    if text[0] == b'/' {
                        let Some(inside) = below(&self.settings.root, &text) else {
                            return leads_out(text);
                        };
                        text = inside.to_vec();
                        dir = self.start(&Start::Root)?;
                        above.clear();
                    }
                    rest = text;
                    at = 0;
                    last = Last::Dot;
                    continue;
                }
            }
            let path = dir.path.join(name);
            if is_last {
                return Ok(Found {
                    path,
                    dir,
                    record,
                    node,
                    last: Last::Name,
                    slash,
                });
            }
            let Some(node) = node else {
                return errno(libc::ENOENT);
            };
            above.push(dir);
            dir = self.enter(path, &node)?;
            last = Last::Name;
            at = end;
        }
    }
}

/// The path goes on outside, at this absolute path.
fn leads_out<T>(path: Vec<u8>) -> Outcome<T> {
    if path.len() > MAX_PATH_BYTES {
        return errno(libc::ENAMETOOLONG);
    }
    Err(Stop::Redirect(path))
}
