//! The acts of a drain, carried out in memory.

use super::super::act::BelowRead;
use super::super::*;
use super::model::{Node, OWNER, Tree, World, move_tree, subtree};
use crate::facts::{Attr, Timestamp};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::ObjectName;
use crate::table::Change;
use std::collections::BTreeSet;

/// The user of the drain.
const ROOT: u32 = 0;

impl World {
    pub(super) fn lower_attr(&self, path: &TreePath) -> Option<Attr> {
        self.attr_in(&self.pfs, path)
    }

    fn attr_in(&self, tree: &Tree, path: &TreePath) -> Option<Attr> {
        let node = tree.get(path)?;
        Some(Attr {
            mode: match node {
                Node::Dir if self.made.contains_key(path) && !self.dressed.contains_key(path) => {
                    libc::S_IFDIR | NEW_DIR_MODE
                }
                Node::Dir => libc::S_IFDIR | 0o755,
                Node::File(_) => libc::S_IFREG | 0o644,
            },
            size: match node {
                Node::Dir => 0,
                Node::File(contents) => *contents,
            },
            mtime: Timestamp {
                sec: self.dressed.get(path).copied().unwrap_or(-1),
                nsec: 0,
            },
            uid: match node {
                _ if self.of_another_user.contains(path) => 1,
                Node::Dir if self.made.contains_key(path) && !self.dressed.contains_key(path) => {
                    ROOT
                }
                _ => OWNER,
            },
            // Nothing else has one.
            ino: match self.of_another_user.contains(path) {
                true => 1,
                false => self.made.get(path).copied().unwrap_or_default(),
            },
            ..Attr::default()
        })
    }

    fn make_dir(&mut self, new: &NewDir) -> Work<Identity> {
        let path = &new.path;
        let own = Attr {
            uid: OWNER,
            ..Attr::default()
        };
        let is_empty = !self.pfs.keys().any(|p| p != path && p.is_within(path));
        match self.lower_attr(path) {
            _ if self.broken.is_some() || !self.has_dir(path) => self.fails("mkdir"),
            Some(found) if new.may_be(&found, &own, ROOT, &own, || is_empty, || true) => {
                Ok(Identity::of_dir(&found))
            }
            Some(_) => Err(Trouble {
                operation: "mkdir",
                errno: libc::EEXIST,
            }),
            None if new.was_made => Err(Trouble {
                operation: "open directory",
                errno: libc::ENOENT,
            }),
            None => {
                let before = self.pfs.clone();
                self.pfs.insert(path.clone(), Node::Dir);
                let number = self.number();
                self.made.insert(path.clone(), number);
                let made = Identity::of_dir(&self.lower_attr(path).unwrap_or_default());
                self.answer("mkdir", before, made)
            }
        }
    }

    pub(super) fn know(&self, dir: &TreePath, without: &BTreeSet<TreePath>) -> KnownDir {
        let mut files = KnownFiles::new(dir, true);
        let within = self
            .pfs
            .iter()
            .filter(|(path, node)| path.is_within(dir) && !matches!(node, Node::Dir));
        for (path, _) in within {
            let attr = self.lower_attr(path).unwrap_or_default();
            files.add(&attr, &path.parent(), path.name());
        }
        KnownDir {
            is: self.identity_of(dir, without),
            files,
        }
    }

    fn identity_of(&self, dir: &TreePath, without: &BTreeSet<TreePath>) -> Identity {
        let itself = Identity::of(&self.lower_attr(dir).unwrap_or_default());
        let children = self
            .pfs
            .keys()
            .filter(|p| !p.is_root() && p.parent() == *dir && !without.contains(*p));
        let children: Vec<_> = children.collect();
        itself.with_contents(children.into_iter().map(|path| {
            let known = match self.pfs.get(path) {
                Some(Node::Dir) => self.identity_of(path, without),
                _ => Identity::of_entry(&self.lower_attr(path).unwrap_or_default()),
            };
            (path.name(), Some(known))
        }))
    }

    fn commit(&mut self, commit: &DrainCommit) -> DrainVerdict {
        let version = |path: &TreePath| self.records.get(path).map(|r| r.version);
        let is_so = |(path, seen): (&TreePath, &crate::bridge::Seen)| version(path) == seen.version;
        let is_below = |relied: &BelowRead| {
            let below = subtree(&self.records, &relied.dir).into_iter();
            let below = below.filter(|(path, _)| *path != relied.dir);
            let mut now: Vec<_> = below.map(|(path, record)| (path, record.version)).collect();
            now.sort_by_cached_key(|(path, _)| path.key());
            now == relied.seen
        };
        let holds = commit.reads.records.iter().all(is_so) && commit.below.iter().all(is_below);
        if !holds {
            return DrainVerdict::Conflict;
        }
        let mut puts_began = false;
        for change in &commit.batch {
            match change {
                Change::Delete { path, object } => {
                    assert!(!puts_began, "deletions come first");
                    let gone = self.delete(path).expect("deletes what is there");
                    assert_eq!(gone.object, *object);
                }
                Change::Put { path, record } => {
                    puts_began = true;
                    let before = self.records.get(path).map_or(0, |r| r.version);
                    assert!(record.version > before, "versions grow");
                    self.put(path.clone(), record.clone());
                }
                Change::Meta { key, value } => match value {
                    Some(value) => {
                        self.notes.insert(key.clone(), value.clone());
                    }
                    None => {
                        self.notes.remove(key);
                    }
                },
                Change::Doom(object) => {
                    puts_began = true;
                    self.drop_object(object.oid);
                }
                Change::Relabel(object) => {
                    puts_began = true;
                    self.unhidden.remove(object);
                }
                _ => puts_began = true,
            }
        }
        DrainVerdict::Committed
    }

    fn fails<T>(&self, operation: &'static str) -> Work<T> {
        Err(Trouble {
            operation,
            errno: self.broken.unwrap_or(libc::ENOENT),
        })
    }

    fn rename_on_pfs(&mut self, from: &TreePath, to: &TreePath) -> Work<()> {
        if self.broken.is_some() || !self.pfs.contains_key(from) || !self.has_dir(to) {
            return self.fails("rename");
        }
        let onto = self.pfs.get(to).copied();
        assert!(
            !matches!(onto, Some(Node::Dir)) || self.pfs.get(from) == Some(&Node::Dir),
            "{from} would replace the directory {to}"
        );
        let before = self.pfs.clone();
        move_tree(&mut self.pfs, from, to);
        let rebased = |path: TreePath| path.rebase(from, to).unwrap_or(path);
        let made = std::mem::take(&mut self.made).into_iter();
        self.made = made.map(|(path, n)| (rebased(path), n)).collect();
        let dressed = std::mem::take(&mut self.dressed).into_iter();
        self.dressed = dressed.map(|(path, at)| (rebased(path), at)).collect();
        self.answer("rename", before, ())
    }

    /// What is told of what has been done. `before`: the tree until then.
    fn answer<T>(&mut self, operation: &'static str, before: Tree, done: T) -> Work<T> {
        let Some(errno) = self.lost_answers else {
            return Ok(done);
        };
        self.shown_before = Some((before, self.stale_looks));
        Err(Trouble { operation, errno })
    }

    fn has_dir(&self, path: &TreePath) -> bool {
        let dir = path.parent();
        dir.is_root() || self.pfs.get(&dir) == Some(&Node::Dir)
    }

    fn erase(&mut self, target: &TreePath) -> Work<()> {
        if self.broken.is_some() {
            return self.fails("unlink");
        }
        for (path, _) in subtree(&self.pfs, target) {
            self.pfs.remove(&path);
            self.made.remove(&path);
            self.dressed.remove(&path);
        }
        Ok(())
    }

    fn name(&mut self, naming: &Naming) -> Work<Named> {
        let temporary = &naming.temporary.path;
        let Some(&copy) = self.pfs.get(temporary) else {
            return self.fails("rename");
        };
        if self.broken.is_some() {
            self.pfs.remove(temporary);
            return self.fails("rename");
        }
        let before = self.pfs.clone();
        let (left, most) = self.supplanting;
        for (n, path) in naming.names.iter().map(|name| &name.path).enumerate() {
            if left > 0 && n == most {
                self.supplanting.0 -= 1;
                assert!(self.foreign.insert(temporary.clone()), "a name of its own");
                return Ok(Named::Supplanted);
            }
            if let Some(errno) = self.refuses_links
                && n > 0
            {
                self.pfs.remove(temporary);
                return Err(Trouble {
                    operation: "link",
                    errno,
                });
            }
            if self.pfs.get(path) == Some(&Node::Dir) || !self.has_dir(path) {
                self.pfs.remove(temporary);
                return self.fails("rename");
            }
            self.pfs.insert(path.clone(), copy);
            self.dressed.remove(path);
        }
        self.pfs.remove(temporary);
        let named = naming
            .names
            .last()
            .and_then(|name| self.lower_attr(&name.path));
        let named = named.unwrap_or_default();
        let named = Named::Whole(Identity::of_named(&named, &named, true));
        self.answer("rename", before, named)
    }

    /// Carries an act out.
    pub(super) fn carry_out(&mut self, act: &Act) -> Got {
        match act {
            Act::Fetch(need) => panic!("one bridge needs nothing of others: {need:?}"),
            Act::Commit(commit) => Got::Verdict(self.commit(commit)),
            Act::Examine(objects) => Got::Attrs(objects.iter().map(|o| self.attr(o.oid)).collect()),
            Act::ListBacking(objects) => {
                let strays = |o: &ObjectName| self.strays.get(&o.oid).cloned().unwrap_or_default();
                Got::Strays(objects.iter().map(|o| Ok(strays(o))).collect())
            }
            Act::Look(paths) if self.blind > 0 => {
                self.blind -= 1;
                let refused = Trouble {
                    operation: "stat",
                    errno: libc::EIO,
                };
                Got::Seen(paths.iter().map(|_| Err(refused)).collect())
            }
            Act::Look(paths) => {
                let is_stale = match &mut self.shown_before {
                    Some((_, left)) if *left > 0 => {
                        *left -= 1;
                        true
                    }
                    _ => false,
                };
                let tree = match &self.shown_before {
                    Some((before, _)) if is_stale => before,
                    _ => &self.pfs,
                };
                let look = |path| Ok(self.attr_in(tree, path));
                Got::Seen(paths.iter().map(look).collect())
            }
            Act::Know { path, without, .. } => Got::Known(Ok(self.know(path, without))),
            Act::Rename { .. } if self.usurped > 0 => {
                self.usurped -= 1;
                Got::Did(Err(Trouble {
                    operation: "rename",
                    errno: libc::EEXIST,
                }))
            }
            // What comes back is given the first name that is free.
            Act::Rename { from, to, .. } if is_going(from.name()) && self.pfs.contains_key(to) => {
                Got::Did(Err(Trouble {
                    operation: "rename",
                    errno: libc::EEXIST,
                }))
            }
            Act::Rename { from, to, .. } => {
                assert!(!self.pfs.contains_key(to), "{to} is occupied");
                Got::Did(self.rename_on_pfs(from, to))
            }
            Act::Remove { path, .. } => {
                assert_ne!(self.pfs.get(path), Some(&Node::Dir), "{path}");
                Got::Did(self.erase(path))
            }
            Act::Discard { path, .. } => Got::Did(self.erase(path)),
            Act::MakeDir(new) => Got::Made(self.make_dir(new)),
            Act::Copy { copies, .. } => {
                let one = |copy: &Copy| {
                    let place = &copy.temporary.path;
                    if self.open.contains(&copy.object.oid) {
                        return Ok(Copied::InUse);
                    }
                    if self.broken.is_some() {
                        return self.fails("create");
                    }
                    if !self.has_dir(place) {
                        return Ok(Copied::NoDirectory);
                    }
                    let attr = self.attr(copy.object.oid)?;
                    self.pfs.insert(place.clone(), Node::File(attr.size));
                    let made = self.lower_attr(place).unwrap_or_default();
                    Ok(Copied::Whole {
                        of: attr,
                        copy: Identity::of_copy(&made),
                        bytes: attr.size,
                    })
                };
                Got::Copies(copies.iter().map(one).collect())
            }
            Act::Sync(all) | Act::Verify(all) => Got::Each(all.iter().map(|_| Ok(())).collect()),
            Act::Name(namings) => Got::Named(namings.iter().map(|n| self.name(n)).collect()),
            Act::Forget(all) => {
                for temporary in all {
                    if !self.foreign.contains(&temporary.path) {
                        self.pfs.remove(&temporary.path);
                    }
                }
                Got::Each(all.iter().map(|_| Ok(())).collect())
            }
            Act::Unhide(all) => {
                for object in all {
                    self.unhidden.insert(*object);
                    let changed = self.number() as i64;
                    if let Some(o) = self.objects.get_mut(&object.oid) {
                        o.changed = changed;
                    }
                }
                Got::Each(all.iter().map(|_| Ok(())).collect())
            }
            Act::Dress { path, .. } if self.broken.is_some() && !self.pfs.contains_key(path) => {
                Got::Did(self.fails("open directory"))
            }
            Act::Dress { path, is, object } => {
                // A program may have removed it since.
                let Some(changed) = self.objects.get(&object.oid).map(|object| object.changed)
                else {
                    return Got::Did(Err(Trouble {
                        operation: "stat in the buffer",
                        errno: libc::ENOENT,
                    }));
                };
                let found = self.lower_attr(path).unwrap_or_default();
                assert!(found.is_dir() && is.is_dir_of(&found), "{path}");
                self.of_another_user.remove(path);
                self.dressed.insert(path.clone(), changed);
                Got::Did(Ok(()))
            }
            Act::SyncDirs(all) => Got::Each(all.iter().map(|_| Ok(())).collect()),
            Act::Sweep { dirs, .. } => {
                let gone: Vec<_> = self
                    .pfs
                    .keys()
                    .filter(|path| !path.is_root() && dirs.contains(&path.parent()))
                    .filter(|path| is_leftover(path.name()))
                    .cloned()
                    .collect();
                for path in gone {
                    for (path, _) in subtree(&self.pfs, &path) {
                        self.pfs.remove(&path);
                    }
                }
                Got::Each(dirs.iter().map(|_| Ok(())).collect())
            }
            Act::Probe(all) => {
                let by = |o: &ObjectName| match self.open.contains(&o.oid) {
                    true => Ok(Use::Held),
                    false => self.attr(o.oid).map(Use::Free),
                };
                Got::Users(all.iter().map(by).collect())
            }
            Act::ProbeDirs => Got::Busy(Ok(self.open.iter().copied().collect())),
            Act::Pause => Got::Done,
        }
    }
}
