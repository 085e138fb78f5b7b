//! Renames: files, directories with all below them, and exchanges.
//!
//! The name moves, the object stays. What lies on the PFS is not touched: a
//! record [`Kind::Moved`] says where it still is, and the drain carries the
//! rename out.

use super::change::{Plan, check_length, check_name, only};
use super::hidden::{Contents, Hidden, Moving};
use super::{Answer, Context, Decision, Path};
use crate::access::{SEARCH, WRITE};
use crate::facts::{NewKind, Outcome, errno};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Dirs, Kind, PathRecord};
use crate::walk::{Comes, Follow, Found, Last, Node};

impl Context<'_> {
    pub(super) fn rename(&self, old: &Path, new: &Path, flags: u32) -> Outcome<Decision> {
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        let keep = flags & libc::RENAME_NOREPLACE != 0;
        if flags & !(libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE) != 0 || exchange && keep {
            return errno(libc::EINVAL);
        }
        let src = self.walk.resolve(old, Follow::No)?;
        let dst = self.walk.resolve(new, Follow::No)?;
        if src.last != Last::Name || src.path.is_root() {
            return errno(libc::EBUSY);
        }
        if dst.last != Last::Name || dst.path.is_root() {
            return errno(if keep { libc::EEXIST } else { libc::EBUSY });
        }
        let Some(node) = &src.node else {
            return errno(libc::ENOENT);
        };
        match &dst.node {
            Some(_) if keep => return errno(libc::EEXIST),
            None if exchange => return errno(libc::ENOENT),
            _ => {}
        }
        let is_dir = self.walk.is_dir(node);
        let dst_is_dir = dst.node.as_ref().is_some_and(|n| self.walk.is_dir(n));
        if !is_dir && (src.slash || dst.slash && !exchange) || exchange && dst.slash && !dst_is_dir
        {
            return errno(libc::ENOTDIR);
        }
        if src.path != dst.path {
            if dst.path.is_within(&src.path) {
                // Below a file nothing can be: the walk would have ended in ENOTDIR.
                return errno(libc::EINVAL);
            }
            if src.path.is_within(&dst.path) {
                return errno(if exchange {
                    libc::EINVAL
                } else {
                    libc::ENOTEMPTY
                });
            }
        }
        // Nothing to do takes no permission.
        if src.path == dst.path || dst.node.as_ref().is_some_and(|n| same_object(node, n)) {
            return Ok(only(Answer::Done));
        }
        // As on Linux, before permissions.
        self.walk.check_device(&src.dir, &dst.dir)?;
        self.check_change(&src.dir)?;
        self.check_change(&dst.dir)?;
        self.check_removal(&src.dir, node)?;
        if let Some(replaced) = &dst.node {
            self.check_removal(&dst.dir, replaced)?;
            if !exchange && is_dir && !dst_is_dir {
                return errno(libc::ENOTDIR);
            }
            if !exchange && !is_dir && dst_is_dir {
                return errno(libc::EISDIR);
            }
        }
        self.walk.check_here(&src)?;
        self.walk.check_vacant(&dst, comes(is_dir))?;
        self.check_new_parent(&src, node, &dst)?;
        if let Some(replaced) = &dst.node
            && exchange
        {
            self.check_new_parent(&dst, replaced, &src)?;
            self.walk.check_vacant(&src, comes(dst_is_dir))?;
            return self.exchange((&src, is_dir), (&dst, dst_is_dir));
        }
        check_name(&dst)?;
        let mut plan = Plan::default();
        let (hidden, below) = match dst_is_dir {
            true => self.drop_below(&dst, &mut plan)?,
            false => (self.hidden_at(&dst), Vec::new()),
        };
        let moving = self.moving(&src, is_dir)?;
        let behind = self.left_behind(&src, &moving)?;
        self.drop_record(&dst, &mut plan);
        self.relocate(&src, &dst, &moving, hidden, &mut plan)?;
        self.vacate(&src, behind, &mut plan)?;
        self.settle_origin(&dst, &below, &mut plan)?;
        plan.touch(self.touched(&src.dir)?);
        plan.touch(self.touched(&dst.dir)?);
        Ok(plan.decide(Answer::Done))
    }

    /// A directory that gets another parent has its `..` changed, which takes write permission.
    fn check_new_parent(&self, src: &Found, node: &Node, dst: &Found) -> Outcome<()> {
        if self.walk.is_dir(node) && src.dir.path != dst.dir.path {
            let dir = self.walk.enter(src.path.clone(), node)?;
            self.walk.check_dir(&dir, WRITE)?;
        }
        Ok(())
    }

    /// Each of the two comes with whether it is a directory.
    fn exchange(&self, a: (&Found, bool), b: (&Found, bool)) -> Outcome<Decision> {
        let mut plan = Plan::default();
        let (from_a, from_b) = (self.moving(a.0, a.1)?, self.moving(b.0, b.1)?);
        let (a, b) = (a.0, b.0);
        self.relocate(a, b, &from_a, self.left_behind(b, &from_b)?, &mut plan)?;
        self.relocate(b, a, &from_b, self.left_behind(a, &from_a)?, &mut plan)?;
        plan.touch(self.touched(&a.dir)?);
        plan.touch(self.touched(&b.dir)?);
        Ok(plan.decide(Answer::Done))
    }

    /// Gives what is at `src` the name `dst`, with everything below it.
    fn relocate(
        &self,
        src: &Found,
        dst: &Found,
        moving: &Moving,
        hidden: Option<Hidden>,
        plan: &mut Plan,
    ) -> Outcome<()> {
        let Some(node) = &src.node else {
            return errno(libc::ENOENT);
        };
        check_length(&dst.path)?;
        match (&src.record, node) {
            (Some(record), _) => {
                plan.forget(&src.path, record.object);
                let moved = PathRecord {
                    version: self.facts.next_version(),
                    token: self.request.token,
                    arriving: arriving(&src.path, record),
                    dirs: Dirs {
                        within: self.within(&dst.dir, WRITE | SEARCH)?,
                        ..record.dirs()
                    }
                    .boxed(),
                    ..record.clone().over(hidden)
                };
                plan.relabel(moved.object, &dst.path);
                plan.put(dst.path.clone(), moved);
            }
            (None, Node::Lower(lower, attr)) => {
                let known = Identity::of_leaving(attr);
                let fresh = self.make(
                    dst,
                    Kind::Moved,
                    NewKind::Marker,
                    (self.cred.uid, self.cred.gid, 0),
                    Some((lower, known)),
                    hidden.as_ref(),
                )?;
                let record = PathRecord {
                    ino: 0,
                    origin: Some(lower.clone()),
                    arriving: Some(Box::new(known)),
                    dirs: Dirs {
                        within: self.within(&dst.dir, WRITE | SEARCH)?,
                        out_of: self.within(&src.dir, WRITE | SEARCH)?,
                    }
                    .boxed(),
                    ..self.record(Kind::Moved, fresh, hidden)
                };
                plan.put(dst.path.clone(), record);
            }
            // A born node is known by its record.
            (None, Node::Born(_)) => return errno(libc::ENOENT),
        }
        self.relocate_below(&src.path, &dst.path, moving, plan)
    }

    /// Moves the records below a renamed directory. All of them are one batch, because a reader must not find the
    /// directory at both paths or at none. So its size is that of the subtree; no constant bounds it.
    fn relocate_below(
        &self,
        from: &TreePath,
        to: &TreePath,
        moving: &Moving,
        plan: &mut Plan,
    ) -> Outcome<()> {
        let contents = Contents::of(&moving.below);
        for (path, record) in &moving.below {
            let Some(new_path) = path.rebase(from, to) else {
                continue;
            };
            check_length(&new_path)?;
            let hidden = self.hidden_below(path, record, moving, &contents)?;
            if record.kind == Kind::Whiteout && hidden.is_none() {
                plan.delete(path, record);
                continue;
            }
            plan.forget(path, record.object);
            // Of a directory that has opened it is that directory, not the one around it.
            let is_new_place = moving.makes_anew(&path.parent()) || record.is_open_at(path);
            let dirs = record.dirs();
            let moved = PathRecord {
                version: self.facts.next_version(),
                arriving: arriving(path, record),
                dirs: Dirs {
                    within: dirs.within.filter(|_| !is_new_place),
                    ..dirs
                }
                .boxed(),
                ..record.clone().over(hidden)
            };
            if (&moved.hides, &moved.arriving) != (&record.hides, &record.arriving) {
                plan.relabel(moved.object, &new_path);
            }
            plan.put(new_path, moved);
        }
        Ok(())
    }
}

/// [`PathRecord::arriving`] of what gets another path. A directory that has opened is known from where it is.
fn arriving(from: &TreePath, record: &PathRecord) -> Option<Box<Identity>> {
    let opened = record.dirs().within.filter(|_| record.is_open_at(from));
    let opened = opened.map(|dir| Box::new(dir.leaving()));
    opened.or_else(|| record.arriving.clone())
}

fn comes(is_dir: bool) -> Comes {
    match is_dir {
        true => Comes::Dir,
        false => Comes::File,
    }
}

/// Two names of one object: POSIX asks that a rename of one to the other does nothing.
fn same_object(a: &Node, b: &Node) -> bool {
    match (a, b) {
        (Node::Born(a), Node::Born(b)) => a.object.oid == b.object.oid,
        (Node::Lower(_, a), Node::Lower(_, b)) => a.inode() == b.inode() && !a.is_dir(),
        _ => false,
    }
}
