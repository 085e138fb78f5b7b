//! The PFS: one tree below all bridges, with names, inodes and contents.
//!
//! An inode has an *identity* beside its number: what users see as the same file before and after it was drained.
//! A number stands for the bytes of a file. What others put there is remembered as foreign.

mod neighbour;
mod permissions;

use super::history::{Texts, Thing};
use super::model::Tree;
use super::pfs_log::PfsLog;
use super::random::Random;
use forebay_core::drain::{
    KnownDir, KnownFiles, Named, Naming, NewDir, Trouble, Work, is_going, is_leftover,
    is_leftover_of,
};
use forebay_core::facts::{Attr, LowerEntry, LowerPage, Timestamp};
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind};
use forebay_core::walk::RESERVED_PREFIX;
use permissions::Permissions;
use std::collections::{BTreeMap, BTreeSet};

/// As many names of a directory are read at a time: few, so that listings have several pages.
const PAGE_ENTRIES: usize = 2;
/// Identity of the root.
const ROOT: Thing = Thing {
    ino: 1,
    kind: Kind::Dir,
};

#[derive(Debug, Clone)]
struct Inode {
    thing: Thing,
    contents: u64,
    /// Contents that are on the disks of the PFS.
    durable: u64,
    /// Time of the contents.
    mtime: i64,
    /// Somebody else has put it there.
    is_foreign: bool,
    /// A drain has looked at it since.
    is_seen: bool,
    /// It is a directory that another user owns.
    is_of_another_user: bool,
    /// Somebody has decided that it is the one in the buffer.
    is_given: bool,
    /// A program of the buffer could write to it in place. From then on nobody can tell whether that or others have changed it.
    is_ours: bool,
}

/// The tree.
#[derive(Debug, Clone, Default)]
pub(super) struct Pfs {
    names: BTreeMap<TreePath, u64>,
    inodes: BTreeMap<u64, Inode>,
    count: u64,
    /// Inodes that fit beside those of the beginning; then it is full.
    pub(super) capacity: Option<usize>,
    /// What a drain did that it must not do.
    pub(super) broken: Option<String>,
    /// Where the power may fail: what is durable.
    log: Option<PfsLog>,
    /// So many changes of names by drains are left before one is refused.
    refuses_after: Option<u32>,
    permissions: Permissions,
    /// Somebody else judges in the end what has become of what others have made.
    pub(super) is_judged_later: bool,
}

fn refuse<T>(operation: &'static str, errno: i32) -> Work<T> {
    Err(Trouble { operation, errno })
}

impl Pfs {
    /// A PFS with these things. Files are not empty.
    pub(super) fn of(tree: &Tree) -> Self {
        let mut pfs = Pfs::default();
        for (path, thing) in tree {
            let contents = if thing.is_dir() { 0 } else { thing.ino };
            pfs.add(path.clone(), *thing, contents);
        }
        pfs
    }

    fn add(&mut self, path: TreePath, thing: Thing, contents: u64) -> u64 {
        self.count += 1;
        // A copy has the number of its file here, so a bridge can't tell whether a program has the one open or the other.
        let is_ours = self
            .inodes
            .values()
            .any(|i| i.is_ours && i.thing.ino == thing.ino);
        let inode = Inode {
            thing,
            contents,
            durable: contents,
            mtime: if thing.is_dir() { -1 } else { contents as i64 },
            is_foreign: false,
            is_seen: false,
            is_of_another_user: false,
            is_given: false,
            is_ours,
        };
        self.inodes.insert(self.count, inode);
        self.change(vec![(path, Some(self.count))]);
        self.count
    }

    /// Changes some names at one moment; what is below a renamed directory comes after it.
    fn change(&mut self, names: Vec<(TreePath, Option<u64>)>) {
        for (path, number) in &names {
            match number {
                Some(number) => drop(self.names.insert(path.clone(), *number)),
                None => drop(self.names.remove(path)),
            }
        }
        if let Some(log) = &mut self.log {
            let top = |path: &TreePath| !names.iter().any(|(p, _)| p != path && path.is_within(p));
            let tops = names.iter().filter(|(path, _)| top(path));
            let dirs: BTreeSet<_> = tops.map(|(path, _)| path.parent()).collect();
            log.did(dirs, names);
        }
    }

    /// From now on the power may fail. What is there is durable.
    pub(super) fn may_lose_power(&mut self) {
        self.log = Some(PfsLog::new(self.names.clone()));
    }

    /// The power fails: what nobody has synced is there or not.
    pub(super) fn lose_power(&mut self, random: &mut Random) {
        if let Some(log) = &mut self.log {
            self.names = log.lose(random);
        }
        for inode in self.inodes.values_mut() {
            if inode.contents != inode.durable && random.chance(500_000) {
                inode.contents = inode.durable;
            }
            inode.durable = inode.contents;
        }
    }

    /// Brings the entries of a directory to the disks.
    pub(super) fn sync_dir(&mut self, dir: &TreePath) {
        if let Some(log) = &mut self.log {
            log.sync_dir(dir);
        }
    }

    /// Brings all names to the disks.
    pub(super) fn sync_names(&mut self) {
        if let Some(log) = &mut self.log {
            *log = PfsLog::new(self.names.clone());
        }
    }

    /// Brings the contents of a file to the disks.
    pub(super) fn sync_contents(&mut self, path: &TreePath) {
        if let Some(inode) = self.inode_mut(path) {
            inode.durable = inode.contents;
        }
    }

    /// Brings the contents of all files to the disks.
    pub(super) fn sync_all_contents(&mut self) {
        for inode in self.inodes.values_mut() {
            inode.durable = inode.contents;
        }
    }

    /// What users know things by that are here.
    pub(super) fn identities(&self) -> impl Iterator<Item = u64> {
        self.inodes.values().map(|inode| inode.thing.ino)
    }

    /// What is known by this number holds these contents, durably and under a name for users.
    pub(super) fn durable_files(&self) -> impl Iterator<Item = (u64, u64)> {
        let inodes = self.names.iter().filter(|(path, _)| !is_reserved(path));
        inodes.filter_map(|(_, number)| {
            let inode = self.inodes.get(number)?;
            let is_durable = inode.durable == inode.contents && inode.thing.kind == Kind::File;
            is_durable.then_some((inode.thing.ino, inode.contents))
        })
    }

    fn inode(&self, path: &TreePath) -> Option<&Inode> {
        self.inodes.get(self.names.get(path)?)
    }

    fn inode_mut(&mut self, path: &TreePath) -> Option<&mut Inode> {
        self.inodes.get_mut(self.names.get(path)?)
    }

    pub(super) fn get(&self, path: &TreePath) -> Option<Thing> {
        match path.is_root() {
            true => Some(ROOT),
            false => self.inode(path).map(|i| i.thing),
        }
    }

    pub(super) fn contents(&self, path: &TreePath) -> Option<u64> {
        self.inode(path).map(|i| i.contents)
    }

    pub(super) fn set_contents(&mut self, path: &TreePath, contents: u64) {
        if let Some(inode) = self.inode_mut(path) {
            inode.contents = contents;
        }
    }

    /// A program gets a descriptor.
    pub(super) fn opened(&mut self, number: u64) {
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.is_ours = true;
        }
    }

    /// A program writes by a descriptor; what users know the file by.
    pub(super) fn write(&mut self, number: u64, contents: u64) -> Option<u64> {
        self.count += 1;
        let inode = self.inodes.get_mut(&number)?;
        inode.contents = contents;
        inode.mtime = -1 - self.count as i64;
        Some(inode.thing.ino)
    }

    /// Brings the contents of an inode to the disks.
    pub(super) fn sync_inode(&mut self, number: u64) {
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.durable = inode.contents;
        }
    }

    pub(super) fn is_foreign(&self, path: &TreePath) -> bool {
        self.inode(path).is_some_and(|i| i.is_foreign)
    }

    /// Is this what somebody else made?
    pub(super) fn is_foreign_inode(&self, ino: u64) -> bool {
        self.inodes
            .values()
            .any(|i| i.is_foreign && i.thing.ino == ino)
    }

    /// All names.
    pub(super) fn tree(&self) -> Tree {
        self.names
            .iter()
            .filter_map(|(p, n)| Some((p.clone(), self.inodes.get(n)?.thing)))
            .collect()
    }

    /// Names that only a drain has a use for.
    pub(super) fn reserved(&self) -> Vec<TreePath> {
        self.names
            .keys()
            .filter(|p| is_reserved(p))
            .cloned()
            .collect()
    }

    /// Names that a drain has made and that hold nothing of value.
    pub(super) fn leftovers(&self) -> Vec<TreePath> {
        let paths = self.names.keys().filter(|p| !p.is_root());
        let leftovers = paths.filter(|p| is_leftover(p.name()) || is_going(p.name()));
        leftovers.cloned().collect()
    }

    pub(super) fn has_dir(&self, path: &TreePath) -> bool {
        self.get(&path.parent()).is_some_and(|t| t.is_dir())
    }

    fn is_full(&self) -> bool {
        let used: std::collections::BTreeSet<_> = self.names.values().collect();
        self.capacity.is_some_and(|most| used.len() >= most)
    }

    fn below(&self, dir: &TreePath) -> Vec<TreePath> {
        self.names
            .keys()
            .filter(|p| p.is_within(dir))
            .cloned()
            .collect()
    }

    pub(super) fn attr(&self, path: &TreePath) -> Option<Attr> {
        let (thing, contents, mtime) = match self.inode(path) {
            Some(i) => (i.thing, i.contents, i.mtime),
            None if path.is_root() => (ROOT, 0, -1),
            None => return None,
        };
        let number = self.names.get(path);
        let names = self.names.values().filter(|n| Some(*n) == number).count();
        Some(Attr {
            mode: thing.type_bits() | 0o755,
            ino: thing.ino,
            size: contents.min(1),
            nlink: names.max(1) as u32,
            uid: u32::from(self.inode(path).is_some_and(|i| i.is_of_another_user)),
            mtime: Timestamp {
                sec: mtime,
                nsec: 0,
            },
            ..Attr::default()
        })
    }

    /// Text of a symbolic link.
    pub(super) fn link_text(&self, path: &TreePath, texts: &Texts) -> Result<Vec<u8>, i32> {
        let thing = self.get(path).ok_or(libc::ENOENT)?;
        texts.get(&thing.ino).cloned().ok_or(libc::EINVAL)
    }

    /// The names of a directory after one.
    pub(super) fn list(&self, dir: &TreePath, after: Option<&[u8]>) -> LowerPage {
        let children = self.names.iter().filter(|(p, _)| p.parent() == *dir);
        let children = children.filter(|(p, _)| after.is_none_or(|after| p.name() > after));
        let mut entries: Vec<_> = children
            .filter_map(|(p, n)| {
                let thing = self.inodes.get(n)?.thing;
                Some(LowerEntry {
                    name: p.name().to_vec(),
                    ino: thing.ino,
                    // As the kernel's own IFTODT.
                    dtype: (thing.type_bits() >> 12) as u8,
                })
            })
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let ends = entries.len() <= PAGE_ENTRIES;
        entries.truncate(PAGE_ENTRIES);
        LowerPage {
            entries,
            after: after.map(<[u8]>::to_vec),
            ends,
        }
    }

    /// A look of a drain: from now on it knows of what is there.
    pub(super) fn look(&mut self, path: &TreePath) -> Option<Attr> {
        if let Some(inode) = self.inode_mut(path) {
            inode.is_seen = true;
        }
        self.attr(path)
    }

    /// Would somebody else's change be lost with what is at `path`, although a drain has looked at it since? `known` is what
    /// the drain has to find there.
    pub(super) fn is_of_others(&self, path: &TreePath, known: Option<Identity>) -> bool {
        let (Some(attr), Some(known)) = (self.attr(path), known) else {
            return false;
        };
        if self.is_judged_later {
            return false;
        }
        let is_theirs = |i: &Inode| i.is_foreign && i.is_seen && !i.is_ours;
        let is_seen = |path: &TreePath| self.inode(path).is_some_and(is_theirs);
        let is_another = match known.has_contents() && self.get(path).is_some_and(|t| t.is_dir()) {
            true => self
                .identity(path, &BTreeSet::new())
                .is_ok_and(|now| !known.strictly().is_same(now)),
            false => !known.is(&attr),
        };
        // A file that has another name is not lost.
        let stays = |at: &TreePath| {
            let number = self.names.get(at);
            let mut names = self.names.iter().filter(|(_, n)| Some(*n) == number);
            names.any(|(name, _)| !name.is_within(path) && !is_reserved(name))
        };
        // Others may have changed times of the directory that was to go. What they have put into it is asked for by itself.
        let is_the_one = |at: &TreePath| at == path && attr.is_dir() && known.is_inode_of(&attr);
        let lost = |at: &TreePath| is_seen(at) && !stays(at) && !is_the_one(at);
        is_another && self.below(path).iter().any(lost)
    }

    /// Is there a file at or below this path to which a program of the buffer could write in place?
    pub(super) fn holds_ours(&self, path: &TreePath) -> bool {
        let ours = |at: &TreePath| self.inode(at).is_some_and(|inode| inode.is_ours);
        self.below(path).iter().any(ours)
    }

    /// Somebody else writes to a file, whoever made it.
    pub(super) fn meddle(&mut self, path: &TreePath) {
        self.count += 1;
        let contents = u64::MAX - self.count;
        let at = self.count as i64;
        if let Some(inode) = self.inode_mut(path).filter(|i| i.thing.kind == Kind::File) {
            inode.contents = contents;
            inode.mtime = -1 - at;
            inode.is_foreign = true;
            inode.is_seen = false;
        }
    }

    /// [`Pfs::identity`] as a look of a drain, with the files.
    pub(super) fn know(
        &mut self,
        dir: &TreePath,
        without: &BTreeSet<TreePath>,
        with_files: bool,
    ) -> Work<KnownDir> {
        let mut files = KnownFiles::new(dir, with_files);
        for path in self.below(dir) {
            let attr = self.look(&path).unwrap_or_default();
            let depth = dir.components().count();
            let is_left = path.components().skip(depth).any(is_leftover);
            let leaves = without.iter().any(|leaving| path.is_within(leaving));
            if !attr.is_dir() && !is_left && !leaves {
                files.add(&attr, &path.parent(), path.name());
            }
        }
        let is = self.identity(dir, without)?;
        Ok(KnownDir { is, files })
    }

    /// What a directory is known by, with what is in it but `without` these.
    fn identity(&self, dir: &TreePath, without: &BTreeSet<TreePath>) -> Work<Identity> {
        let Some(attr) = self.attr(dir) else {
            return refuse("open directory", libc::ENOENT);
        };
        let children = self
            .names
            .keys()
            .filter(|p| !p.is_root() && p.parent() == *dir);
        let mut entries = Vec::new();
        for path in children.filter(|p| !is_leftover(p.name()) && !without.contains(*p)) {
            let known = match self.get(path).is_some_and(|thing| thing.is_dir()) {
                true => self.identity(path, without)?,
                false => Identity::of_entry(&self.attr(path).unwrap_or_default()),
            };
            entries.push((path.name(), Some(known)));
        }
        Ok(Identity::of(&attr).with_contents(entries))
    }

    pub(super) fn rename(&mut self, from: &TreePath, to: &TreePath) -> Work<()> {
        if let Some(errno) = self.forbids(from, to) {
            return refuse("rename", errno);
        }
        self.rename_freely(from, to)
    }

    fn rename_freely(&mut self, from: &TreePath, to: &TreePath) -> Work<()> {
        if !self.names.contains_key(from) || !self.has_dir(to) {
            return refuse("rename", libc::ENOENT);
        }
        if self.names.contains_key(to) {
            return refuse("rename", libc::EEXIST);
        }
        let mut names = Vec::new();
        for path in self.below(from) {
            if let (Some(number), Some(now)) = (self.names.get(&path), path.rebase(from, to)) {
                names.push((now, Some(*number)));
                names.push((path, None));
            }
        }
        self.change(names);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &TreePath) -> Work<()> {
        if let Some(errno) = self.keeps(path) {
            return refuse("unlink", errno);
        }
        match self.get(path) {
            None => refuse("unlink", libc::ENOENT),
            Some(thing) if thing.is_dir() => refuse("unlink", libc::EISDIR),
            Some(_) => {
                self.change(vec![(path.clone(), None)]);
                Ok(())
            }
        }
    }

    /// Takes a directory away, by way of `aside` if it is not empty.
    pub(super) fn discard(
        &mut self,
        path: &TreePath,
        is: Option<Identity>,
        aside: &TreePath,
    ) -> Work<()> {
        if self.get(path).is_none_or(|thing| !thing.is_dir()) {
            return refuse("rmdir", libc::ENOTDIR);
        }
        if let Some(errno) = self.keeps(path) {
            return refuse("rmdir", errno);
        }
        if self.below(path).len() == 1 {
            self.change(vec![(path.clone(), None)]);
            return Ok(());
        }
        if let Some(is) = is
            && !is.is_same(self.identity(path, &BTreeSet::new())?)
        {
            return refuse("rename", libc::EEXIST);
        }
        let mut free = aside.clone();
        let mut n = 0;
        while self.names.contains_key(&free) {
            n += 1;
            let name = [aside.name(), format!("{n}").as_bytes()].concat();
            free = aside.parent().join(&name);
        }
        // Where that is forbidden a drain finds another place.
        self.rename_freely(path, &free)
    }

    /// `own`: what is in the buffer.
    pub(super) fn make_dir(&mut self, new: &NewDir, own: &Attr) -> Work<Identity> {
        let path = &new.path;
        let is_empty = self.below(path).len() == 1;
        match self.attr(path) {
            // In no directory others may put what is its owner's.
            Some(found) if new.may_be(&found, own, 0, own, || is_empty, || true) => {
                Ok(Identity::of_dir(&found))
            }
            Some(_) => refuse("mkdir", libc::EEXIST),
            None if new.was_made || !self.has_dir(path) => refuse("mkdir", libc::ENOENT),
            None if self.is_full() => refuse("mkdir", libc::ENOSPC),
            None => {
                // It has the number of the directory that it stands for, and keeps it when it is dressed.
                let (ino, kind) = (own.ino, Kind::Dir);
                self.add(path.clone(), Thing { ino, kind }, 0);
                Ok(Identity::of_dir(&self.attr(path).unwrap_or_default()))
            }
        }
    }

    /// A copy under a temporary name. What is there is left over. Its directory is there.
    pub(super) fn copy(
        &mut self,
        temporary: &TreePath,
        thing: Thing,
        contents: u64,
        mtime: i64,
    ) -> Work<()> {
        self.forget(temporary);
        if self.is_full() {
            return refuse("create", libc::ENOSPC);
        }
        let number = self.add(temporary.clone(), thing, contents);
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.durable = 0;
            inode.mtime = mtime;
        }
        Ok(())
    }

    pub(super) fn forget(&mut self, temporary: &TreePath) {
        if self.names.contains_key(temporary) {
            self.change(vec![(temporary.clone(), None)]);
        }
    }

    /// Gives a copy its first `most` names. `ours`: may what is under a name be replaced?
    pub(super) fn name(
        &mut self,
        naming: &Naming,
        most: usize,
        ours: impl Fn(&TreePath) -> bool,
    ) -> Work<Named> {
        let temporary = &naming.temporary.path;
        let Some(copy) = self.names.get(temporary).copied() else {
            return refuse("rename", libc::ENOENT);
        };
        for name in naming.names.iter().take(most) {
            let path = &name.path;
            if !self.has_dir(path) || self.get(path).is_some_and(|t| t.is_dir()) {
                return refuse("rename", libc::EISDIR);
            }
            if self
                .attr(path)
                .is_some_and(|found| !name.may_replace(&found))
            {
                return refuse("rename", libc::EEXIST);
            }
            let is_foreign = self.is_foreign(path) && !self.is_judged_later;
            if is_foreign && !ours(path) {
                self.broken = Some(format!(
                    "a drain has replaced {path}, which somebody else made"
                ));
            }
            let mut names = vec![(path.clone(), Some(copy))];
            if self.names.contains_key(temporary) {
                names.push((temporary.clone(), None));
            }
            self.change(names);
        }
        let named = naming.names.first().and_then(|name| self.attr(&name.path));
        let named = named.unwrap_or_default();
        Ok(Named::Whole(Identity::of_named(&named, &named, true)))
    }

    /// Does somebody else own this directory, who has not been decided about?
    pub(super) fn is_of_another_user(&self, path: &TreePath) -> bool {
        let has_not_decided = |i: &Inode| i.is_of_another_user && !i.is_given;
        self.inode(path).is_some_and(has_not_decided)
    }

    /// Gives a directory the attributes, and so the identity, of one in the buffer.
    pub(super) fn dress(
        &mut self,
        path: &TreePath,
        is: Identity,
        thing: Thing,
        mtime: i64,
    ) -> Work<()> {
        if self.attr(path).is_some_and(|found| !is.is_dir_of(&found)) {
            return refuse("open directory", libc::EEXIST);
        }
        match self.inode_mut(path) {
            Some(inode) if inode.thing.is_dir() => {
                inode.mtime = mtime;
                inode.thing = thing;
                inode.is_of_another_user = false;
                Ok(())
            }
            _ => refuse("open directory", libc::ENOENT),
        }
    }

    /// Removes what earlier drains have left in a directory; the names that it found.
    pub(super) fn sweep(&mut self, dir: &TreePath, of: Option<BridgeId>) -> Vec<TreePath> {
        let here = self
            .names
            .keys()
            .filter(|p| !p.is_root() && p.parent() == *dir);
        let is_left = |name: &[u8]| match of {
            Some(maker) => is_leftover_of(name, maker),
            None => is_leftover(name),
        };
        let left: Vec<_> = here.filter(|p| is_left(p.name())).cloned().collect();
        for path in &left {
            let below = self.below(path).into_iter();
            self.change(below.map(|path| (path, None)).collect());
        }
        left
    }

    /// Somebody else makes something where there is nothing; its inode number.
    pub(super) fn intrude(&mut self, path: &TreePath, kind: Kind) -> Option<u64> {
        if !self.has_dir(path) || self.names.contains_key(path) {
            return None;
        }
        let ino = u64::MAX - self.count;
        let number = self.add(path.clone(), Thing { ino, kind }, ino);
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.is_foreign = true;
            inode.is_of_another_user = kind == Kind::Dir && number % 2 == 1;
        }
        self.sync_last();
        Some(ino)
    }

    /// Somebody else removes a file that they made. Directories stay: what clients have made in them meanwhile
    /// would lie nowhere.
    pub(super) fn leave(&mut self, path: &TreePath) {
        if self.is_foreign(path) && self.get(path).is_some_and(|thing| !thing.is_dir()) {
            self.change(vec![(path.clone(), None)]);
            self.sync_last();
        }
    }

    /// What others do is durable at once.
    fn sync_last(&mut self) {
        if let Some(log) = &mut self.log {
            log.sync_last();
        }
    }
}

fn is_reserved(path: &TreePath) -> bool {
    path.components()
        .any(|name| name.starts_with(RESERVED_PREFIX))
}
