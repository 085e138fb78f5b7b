//! Where a path begins: in the root, or in what the caller says it has open.

use super::{Dir, Found, Last, Node, Place, Walk};
use crate::access::{self, SEARCH};
use crate::facts::{Attr, Inode, Outcome, Stop, errno};
use crate::ops::{Start, is_reserved};
use crate::path::TreePath;
use crate::record::{Kind, ObjectName};
use forebay_types::{START_MOVED, START_TAKEN};

/// A directory of the PFS that was renamed in the buffer, and its new path.
type Moved = (TreePath, TreePath);

impl Walk<'_> {
    /// The directory where a path starts, if the caller may start there.
    pub fn start(&self, start: &Start) -> Outcome<Dir> {
        match start {
            Start::Root => {
                let dir = self.root();
                self.check_start(&dir.path, |_| true, || self.dir_attr(&dir))?;
                Ok(dir)
            }
            Start::Lower(lower, inode) => {
                self.lower_start(lower, |moved| self.lower_start_at(lower, *inode, moved))
            }
            Start::Object(object) => {
                let Some(path) = self.facts.path_of(*object)? else {
                    return errno(libc::ENOENT);
                };
                // Whatever is at its path now.
                let record = self.facts.record(&path)?;
                let dir = match record.filter(|record| record.kind == Kind::Dir) {
                    Some(record) => Dir {
                        path,
                        place: Place::Born(record.object),
                    },
                    None => self.dir_shown_at(&path)?,
                };
                self.check_object(*object, &dir.path, || self.dir_attr(&dir))?;
                Ok(dir)
            }
        }
    }

    /// The same, and the directories above it, if the way up from it has to be known.
    pub(super) fn begin(&self, start: &Start) -> Outcome<(Vec<Dir>, Dir)> {
        let levels = self.facts.levels_above();
        match start {
            Start::Lower(lower, inode) if levels > 0 => self.lower_start(lower, |moved| {
                let path = path_of(lower, moved.as_ref());
                self.begin_at(&path, levels, || self.lower_start_at(lower, *inode, moved))
            }),
            Start::Object(object) if levels > 0 => match self.facts.path_of(*object)? {
                Some(path) => self.begin_at(&path, levels, || self.start(start)),
                None => errno(libc::ENOENT),
            },
            _ => Ok((Vec::new(), self.start(start)?)),
        }
    }

    /// The same of a directory that has this path.
    fn begin_at(
        &self,
        path: &TreePath,
        levels: usize,
        start: impl FnOnce() -> Outcome<Dir>,
    ) -> Outcome<(Vec<Dir>, Dir)> {
        let mut top = path.clone();
        for _ in 0..levels {
            if top.is_root() {
                break;
            }
            top = top.parent();
        }
        // Each is in the one above, since it was looked at after that.
        let way = self.apart(|| self.descend(self.dir_shown_at(&top)?, path, false));
        let dir = start()?;
        let (above, found) = or_moved(way)?;
        let there = found.node.map(|node| self.enter(found.path, &node));
        match there {
            Some(Ok(there)) if there == dir => Ok((above, dir)),
            _ => errno(START_TAKEN),
        }
    }

    /// Begins in a directory of the PFS, at the first of its places where that is. The errors are those of the first place.
    fn lower_start<T>(
        &self,
        lower: &TreePath,
        begin: impl Fn(Option<Moved>) -> Outcome<T>,
    ) -> Outcome<T> {
        let seen = self.seen.borrow().clone();
        let mut first = None;
        for moved in self.places(lower) {
            match begin(moved?) {
                Err(Stop::Errno(e)) => first = first.or(Some(e)),
                begun => return begun,
            }
            self.seen.replace(seen.clone());
        }
        errno(first.unwrap_or(libc::ENOENT))
    }

    /// Where a directory of the PFS starts: this one, which the caller says it has open, whatever others put in its place.
    fn lower_start_at(
        &self,
        lower: &TreePath,
        (dev, ino): Inode,
        moved: Option<Moved>,
    ) -> Outcome<Dir> {
        if ino == 0 {
            // The caller's kernel has not told which one it is: its file system has failed.
            return errno(libc::ESTALE);
        }
        // Before anything is told of what is there. And it is looked at in the directories above it that the caller may search:
        // others may exchange those as well.
        let path = path_of(lower, moved.as_ref());
        let told = Attr {
            dev,
            ino,
            ..Attr::default()
        };
        let is_it = |found: &Found| matches!(&found.node, Some(Node::Lower(at, _)) if at == lower);
        let may_go_there = or_moved(self.check_start(&path, is_it, || Ok(told)))?;
        let found = self.dir_of_lower(lower, moved).and_then(|dir| {
            let is_it = self.dir_attr(&dir)?.inode() == (dev, ino);
            Ok((dir, is_it))
        });
        match or_moved(found) {
            Ok((dir, true)) => Ok(dir),
            Ok((_, false)) => errno(START_TAKEN),
            // Who may not go there is not told what is there.
            Err(Stop::Errno(_)) if !may_go_there => errno(START_TAKEN),
            Err(stop) => Err(stop),
        }
    }

    /// Where this directory of the PFS may be in the buffer: where it, or one above it, was renamed to, the nearest first; and, since
    /// others may have put another directory where that was, at its own path. Whether it is there is not said.
    fn places<'l>(
        &'l self,
        lower: &TreePath,
    ) -> impl Iterator<Item = Outcome<Option<Moved>>> + use<'l> {
        let mut next = Some(lower.clone());
        let mut is_over = false;
        std::iter::from_fn(move || {
            while let Some(at) = next.take() {
                next = at.split().map(|(above, _)| above);
                match self.facts.moved(&at) {
                    Ok(Some(now)) => return Some(Ok(Some((at, now)))),
                    Ok(None) => {}
                    Err(stop) => return Some(Err(stop)),
                }
            }
            (!std::mem::replace(&mut is_over, true)).then_some(Ok(None))
        })
    }

    /// The path in the buffer at which this directory of the PFS would show, if nothing is in its place: directories above it
    /// may have been renamed.
    pub(crate) fn path_of_lower(&self, lower: &TreePath) -> Outcome<TreePath> {
        let first = self.places(lower).next().transpose()?;
        Ok(path_of(lower, first.flatten().as_ref()))
    }

    /// Where the PFS directory `lower` is in the buffer now, if it is at this one of its [`Walk::places`].
    fn dir_of_lower(&self, lower: &TreePath, moved: Option<Moved>) -> Outcome<Dir> {
        let dir = match moved {
            // It waits for its removal: it is in the namespace no more.
            None if is_reserved(lower) => return errno(libc::ENOENT),
            None => self.dir_shown_at(lower)?,
            Some((at, now)) => {
                let below = lower.components().skip(at.components().count());
                let renamed = Dir {
                    path: now,
                    place: Place::Merged(at.clone()),
                };
                // What others have put where it was is not below its new path.
                if self.merged_attr(&renamed, &at)?.is_none() {
                    return errno(libc::ENOENT);
                }
                self.dir_below(renamed, below)?
            }
        };
        match dir.place == Place::Merged(lower.clone()) {
            true => Ok(dir),
            // Something else has taken its path: the directory is gone from the namespace.
            false => errno(libc::ENOENT),
        }
    }

    /// May the caller start at this object, which has this path?
    pub fn check_object(
        &self,
        object: ObjectName,
        path: &TreePath,
        attr: impl FnOnce() -> Outcome<Attr>,
    ) -> Outcome<()> {
        let is_it = |found: &Found| {
            let record = found.record.as_ref();
            record.is_some_and(|record| record.object.oid == object.oid)
        };
        self.check_start(path, is_it, attr).map(drop)
    }

    /// May the caller start here without a path? A message only claims that it has a descriptor. Yes if its user could open the
    /// directory by its path, or if it has it open: a descriptor is a right, also of a process that could not open it any more. `is_it`:
    /// is it what the path leads to now? False: it may start there only because it has it open.
    fn check_start(
        &self,
        path: &TreePath,
        is_it: impl FnOnce(&Found) -> bool,
        attr: impl FnOnce() -> Outcome<Attr>,
    ) -> Outcome<bool> {
        // The bridge can do no more than its own user.
        if self.cred.uid == 0 || self.cred.uid == self.settings.bridge_uid {
            return Ok(true);
        }
        let refused = match self.apart(|| self.reached(path)) {
            Ok(found) if is_it(&found) => return Ok(true),
            Ok(_) => errno(libc::EACCES),
            Err(Stop::Errno(e)) => errno(e),
            Err(stop) => return Err(stop),
        };
        match self.facts.has_open(&attr()?) {
            true => Ok(false),
            false => refused,
        }
    }

    /// What is at this path, if the caller may search all directories on the way to it, from the root of the system on.
    fn reached(&self, path: &TreePath) -> Outcome<Found> {
        for above in self.facts.above_root()? {
            access::check(self.cred, &above, SEARCH)?;
        }
        Ok(self.descend(self.root(), path, true)?.1)
    }

    /// The directories on the way to this path from one above it on, each looked at in the one above, and what is at its end. `checks`:
    /// the caller has to be able to search them.
    fn descend(&self, mut dir: Dir, path: &TreePath, checks: bool) -> Outcome<(Vec<Dir>, Found)> {
        let mut above = Vec::new();
        let mut names = path
            .components()
            .skip(dir.path.components().count())
            .peekable();
        while let Some(name) = names.next() {
            if checks {
                self.check_dir(&dir, SEARCH)?;
            }
            let at = dir.path.join(name);
            let (record, node) = self.lookup(&dir, name)?;
            if names.peek().is_none() {
                above.push(dir.clone());
                let found = Found {
                    path: at,
                    dir,
                    record,
                    node,
                    last: Last::Name,
                    slash: false,
                };
                return Ok((above, found));
            }
            let Some(node) = node else {
                return errno(libc::ENOENT);
            };
            let next = self.enter(at, &node)?;
            above.push(std::mem::replace(&mut dir, next));
        }
        let found = self.found_dir(dir, None, Last::Dot, false)?;
        Ok((above, found))
    }
}

/// The path in the buffer of this directory of the PFS, at this one of its [`Walk::places`].
fn path_of(lower: &TreePath, moved: Option<&Moved>) -> TreePath {
    let now = moved.map(|(at, now)| lower.rebase(at, now).unwrap_or_else(|| now.clone()));
    now.unwrap_or_else(|| lower.clone())
}

/// Of a directory that a client has open: what is not found there has moved.
fn or_moved<T>(found: Outcome<T>) -> Outcome<T> {
    match found {
        Err(Stop::Errno(libc::ENOENT)) => errno(START_MOVED),
        found => found,
    }
}
