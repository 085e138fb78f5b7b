//! What acts of a drain do to the simulated PFS and disks.

use crate::faults::disk::Work as DiskWork;
use crate::faults::env::Env;
use crate::faults::history::Thing;
use crate::faults::node::{NEVER_FAILS, Node};
use crate::faults::pfs::Pfs;
use forebay_core::bridge::Mutation;
use forebay_core::drain::{Act, Copied, Copy, Got, Temporary, Trouble, Use, Work};
use forebay_core::facts::Attr;
use forebay_core::identity::Identity;
use forebay_core::label::without_hides;
use forebay_core::path::TreePath;
use forebay_core::record::{Kind, ObjectId, ObjectName, PathRecord};
use forebay_core::table::Tables;

impl Node {
    /// The bridge that keeps an object, if it is alive.
    pub(super) fn keeper<'a>(&'a self, oid: ObjectId, others: &'a [&mut Node]) -> Option<&'a Node> {
        if oid.bridge() == self.id {
            return Some(self);
        }
        let mut others = others.iter();
        let keeper = others.find(|node| node.id == oid.bridge());
        keeper.map(|node| &**node).filter(|node| node.is_alive())
    }

    fn keeper_mut<'a>(
        &'a mut self,
        oid: ObjectId,
        others: &'a mut [&mut Node],
    ) -> Option<&'a mut Node> {
        if oid.bridge() == self.id {
            return Some(self);
        }
        let mut others = others.iter_mut();
        let keeper = others.find(|node| node.id == oid.bridge());
        keeper
            .map(|node| &mut **node)
            .filter(|node| node.is_alive())
    }

    pub(super) fn carry_out_act(
        &mut self,
        act: &Act,
        begun: &[Option<Attr>],
        others: &mut [&mut Node],
        env: &mut Env,
    ) -> Got {
        // Noted before anything can be committed that relies on it, also if a part of it fails.
        self.note_changed_dirs(act);
        let pfs = self.lower.clone();
        let mut pfs = pfs.borrow_mut();
        let changes_names = matches!(
            act,
            Act::Rename { .. } | Act::Remove { .. } | Act::Discard { .. } | Act::Dress { .. }
        );
        let refuses = |pfs: &mut Pfs| changes_names.then(|| pfs.refuses()).flatten();
        let fails = env.fails_on_pfs();
        if let Some(errno) = fails.or_else(|| refuses(&mut pfs)) {
            let trouble = Trouble {
                operation: "on the PFS",
                errno,
            };
            let is_done = fails.is_some_and(|errno| env.is_answer_lost(errno));
            if is_done && (changes_names || matches!(act, Act::MakeDir(_))) {
                let trouble = match act {
                    Act::Rename { .. } => lost("on the PFS", &[libc::EIO, libc::ENOENT], env),
                    _ => trouble,
                };
                if let Act::Remove {
                    path,
                    is,
                    by: Some(by),
                    ..
                } = act
                    && pfs.look(path).is_some_and(|now| is.is(&now))
                    && env.random.below(2) == 0
                {
                    // The second of its calls has failed.
                    let _ = pfs.rename(path, by);
                    return Got::Did(Err(trouble));
                }
                drop(pfs);
                return match self.carry_out_on_pfs(act, begun, others, env) {
                    Got::Did(_) => Got::Did(Err(trouble)),
                    Got::Made(_) => Got::Made(Err(trouble)),
                    other => other,
                };
            }
            match act {
                _ if changes_names => return Got::Did(Err(trouble)),
                Act::MakeDir(_) => return Got::Made(Err(trouble)),
                Act::Look(paths) => {
                    return Got::Seen(paths.iter().map(|_| Err(trouble)).collect());
                }
                Act::SyncDirs(dirs) => {
                    return Got::Each(dirs.iter().map(|_| Err(trouble)).collect());
                }
                _ => {}
            }
        }
        drop(pfs);
        self.carry_out_on_pfs(act, begun, others, env)
    }

    fn carry_out_on_pfs(
        &mut self,
        act: &Act,
        begun: &[Option<Attr>],
        others: &mut [&mut Node],
        env: &mut Env,
    ) -> Got {
        let pfs = self.lower.clone();
        let mut pfs = pfs.borrow_mut();
        match act {
            Act::Fetch(_) | Act::Commit(_) => {
                env.broken(format!("one bridge alone carries out {act:?}"));
                Got::Done
            }
            Act::Examine(objects) => {
                let one = |o: &ObjectName| examine(self.keeper(o.oid, others), *o);
                Got::Attrs(objects.iter().map(one).collect())
            }
            // The programs of the simulator make nothing past the buffer.
            Act::ListBacking(objects) => {
                let one =
                    |o: &ObjectName| self.keeper(o.oid, others).map(|_| Vec::new()).ok_or(AWAY);
                Got::Strays(objects.iter().map(one).collect())
            }
            Act::Look(paths) => Got::Seen(paths.iter().map(|p| Ok(pfs.look(p))).collect()),
            Act::Know {
                path,
                without,
                with_files,
            } => Got::Known(pfs.know(path, without, *with_files)),
            Act::Rename { from, to, .. } => Got::Did(pfs.rename(from, to)),
            Act::Remove { path, is, .. } if pfs.look(path).is_some_and(|now| !is.is(&now)) => {
                Got::Did(Err(Trouble {
                    operation: "unlink",
                    errno: libc::EEXIST,
                }))
            }
            Act::Remove { path, .. } | Act::Discard { path, .. }
                if pfs.is_of_others(path, self.known_at(path, others)) =>
            {
                env.broken(format!(
                    "a drain removes {path}, which somebody else has changed"
                ));
                Got::Did(Ok(()))
            }
            // It died in between.
            Act::Remove {
                path, by: Some(by), ..
            } if !self.is_alive() && env.random.below(2) == 0 => Got::Did(pfs.rename(path, by)),
            Act::Remove { path, .. } => Got::Did(pfs.remove(path)),
            Act::Discard {
                path, is, aside, ..
            } => Got::Did(pfs.discard(path, *is, aside)),
            Act::MakeDir(new) => {
                let keeper = self.keeper(new.object.oid, others);
                let Some(own) = keeper.and_then(|keeper| keeper.disk.attr(new.object)) else {
                    return Got::Made(Err(AWAY));
                };
                let mut new = new.clone();
                if Mutation::TakesDirectoriesOfOthers.is(self.mutation) {
                    new.known = pfs.attr(&new.path).as_ref().map(Identity::of_dir);
                }
                Got::Made(pfs.make_dir(&new, &own))
            }
            Act::Copy { copies, .. } => {
                for c in copies {
                    let Temporary { oid, path } = c.temporary.clone();
                    self.temporaries.insert(oid, path);
                }
                for Copy { object, .. } in copies {
                    let is_own = object.oid.bridge() == self.id;
                    if is_own || Mutation::CopiesElsewhereAreNotSynced.is(self.mutation) {
                        continue;
                    }
                    if let Some(keeper) = self.keeper_mut(object.oid, others) {
                        keeper.disk.sync_file(object.oid, false);
                    }
                }
                let mut begun = begun.iter().copied();
                let one = |c: &Copy| {
                    let keeper = self.keeper(c.object.oid, others);
                    copy(keeper, &mut pfs, c, begun.next().flatten(), env)
                };
                Got::Copies(copies.iter().map(one).collect())
            }
            Act::Sync(oids) | Act::Verify(oids) => {
                let one = |oid: &ObjectId| {
                    let did = fails(env);
                    let temporary = self.temporaries.get(oid);
                    if let (Ok(()), Act::Sync(_), Some(temporary)) = (&did, act, temporary) {
                        pfs.sync_contents(temporary);
                        if !Mutation::CopiesAreDurableOnThePfsAlone.is(self.mutation) {
                            self.wrote_contents(*oid);
                        }
                    }
                    did
                };
                Got::Each(oids.iter().map(one).collect())
            }
            Act::Name(namings) => {
                let ours = |path: &TreePath| {
                    let Some(home) = self.home_of(path, others) else {
                        return true;
                    };
                    let record = home.tables.get(path).expect(NEVER_FAILS);
                    record.is_some_and(|r| r.hides.is_some() || r.drained.is_some())
                };
                let all = namings.iter().flat_map(|naming| {
                    let names = naming.names.iter();
                    names.map(|name| (name, &naming.temporary.path))
                });
                for (name, copy) in all {
                    let path = &name.path;
                    // They have changed it while it was staged, and that is in the copy.
                    if pfs.contents(copy) != pfs.contents(path)
                        && pfs.attr(path).is_some_and(|found| name.may_replace(&found))
                        && pfs.is_of_others(path, self.known_at(path, others))
                    {
                        env.broken(format!(
                            "a drain replaces {path}, which somebody else has changed"
                        ));
                    }
                }
                let named = namings.iter().map(|naming| {
                    let most = match self.is_alive() {
                        true => usize::MAX,
                        // It died between two names.
                        false => env.random.below(3) as usize,
                    };
                    pfs.name(naming, most, ours)
                });
                let mut named: Vec<_> = named.collect();
                for did in &mut named {
                    if env.fails_on_pfs().is_some_and(|e| env.is_answer_lost(e)) {
                        let errnos = [libc::EIO, libc::ENOENT, libc::EEXIST];
                        *did = Err(lost("rename", &errnos, env));
                    }
                }
                if let Some(text) = pfs.broken.take() {
                    env.broken(text);
                }
                Got::Named(named)
            }
            Act::Forget(all) => {
                let mut one = |t: &Temporary| fails(env).inspect(|()| pfs.forget(&t.path));
                Got::Each(all.iter().map(&mut one).collect())
            }
            Act::Unhide(all) => {
                let mut unhide = |object: &ObjectName| {
                    let keeper = self.keeper_mut(object.oid, others).ok_or(AWAY)?;
                    if let Some(label) = keeper.disk.objects.get(object).cloned() {
                        let work = DiskWork::Relabel(*object, without_hides(label));
                        let number = keeper.disk.begin(work);
                        keeper.disk.finish(number);
                    }
                    Ok(())
                };
                Got::Each(all.iter().map(&mut unhide).collect())
            }
            Act::Dress { path, is, object } => {
                if pfs.is_of_another_user(path) {
                    env.broken(format!(
                        "a drain gives away {path}, which is of another user"
                    ));
                }
                let Some(keeper) = self.keeper(object.oid, others) else {
                    return Got::Did(Err(AWAY));
                };
                let thing = Thing {
                    ino: keeper.disk.identity(object.oid),
                    kind: Kind::Dir,
                };
                let mtime = keeper.disk.attr(*object).map_or(0, |a| a.mtime.sec);
                Got::Did(pfs.dress(path, *is, thing, mtime))
            }
            Act::SyncDirs(dirs) => {
                dirs.iter().for_each(|dir| pfs.sync_dir(dir));
                Got::Each(dirs.iter().map(|_| Ok(())).collect())
            }
            Act::Sweep { dirs, of } => {
                let mut one = |dir: &TreePath| {
                    fails(env)?;
                    for path in pfs.sweep(dir, *of) {
                        let is_made =
                            |node: &&&mut Node| node.temporaries.values().any(|t| *t == path);
                        if let Some(maker) = others.iter().find(is_made) {
                            let maker = maker.id.0;
                            env.broken(format!(
                                "a sweep removes {path}, which bridge {maker} makes"
                            ));
                        }
                    }
                    Ok(())
                };
                Got::Each(dirs.iter().map(&mut one).collect())
            }
            Act::Probe(objects) => {
                let by = |o: &ObjectName| -> Work<Use> {
                    let keeper = self.keeper(o.oid, others).ok_or(AWAY)?;
                    keeper.disk.users(*o).ok_or(Trouble {
                        operation: "stat in the buffer",
                        errno: libc::ENOENT,
                    })
                };
                Got::Users(objects.iter().map(by).collect())
            }
            Act::ProbeDirs => Got::Busy(Ok(Vec::new())),
            Act::Pause => Got::Done,
        }
    }

    /// What the record that hides this path of the PFS, or was drained to it, knows of what is there. Nobody asks the tables of
    /// others for a bridge that is dead.
    fn known_at(&self, lower: &TreePath, others: &[&mut Node]) -> Option<Identity> {
        let speaks = |(path, r): &(TreePath, PathRecord)| r.covers(path).as_ref() == Some(lower);
        let here = |node: &Node| node.records().into_iter().find(speaks);
        let found = here(self).or_else(|| others.iter().find_map(|node| here(node)));
        found.and_then(|(_, r)| r.replaces)
    }

    /// The bridge that has the record of a path, if it can be asked.
    fn home_of<'a>(&'a self, path: &TreePath, others: &'a [&mut Node]) -> Option<&'a Node> {
        let home = self.membership.home(path);
        if home == self.id {
            return Some(self);
        }
        let mut others = others.iter().map(|node| &**node);
        others.find(|node| node.id == home)
    }
}

fn fails(env: &mut Env) -> Work<()> {
    match env.fails_on_pfs() {
        Some(errno) => Err(Trouble {
            operation: "sync",
            errno,
        }),
        None => Ok(()),
    }
}

/// The bridge that keeps an object does not answer.
const AWAY: Trouble = Trouble {
    operation: "ask another bridge",
    errno: libc::EHOSTUNREACH,
};

fn examine(keeper: Option<&Node>, object: ObjectName) -> Work<Attr> {
    keeper.ok_or(AWAY)?.disk.attr(object).ok_or(Trouble {
        operation: "stat in the buffer",
        errno: libc::ENOENT,
    })
}

/// What is said of something that was done: that the answer was lost, or what came of it when the kernel did it once more.
fn lost(operation: &'static str, errnos: &[i32], env: &Env) -> Trouble {
    let at = env.now % errnos.len() as u64;
    Trouble {
        operation,
        errno: errnos[at as usize],
    }
}

/// Copies an object, with the attributes that it had when the copy was begun.
fn copy(
    keeper: Option<&Node>,
    pfs: &mut Pfs,
    copy: &Copy,
    begun: Option<Attr>,
    env: &mut Env,
) -> Work<Copied> {
    // Before it has begun, or after.
    let did = fails(env);
    if did.is_err() && env.random.chance(500_000) {
        did?;
    }
    let disk = &keeper.ok_or(AWAY)?.disk;
    if env.drain.sees_writers && disk.is_open(copy.object.oid) {
        return Ok(Copied::InUse);
    }
    let Some((attr, inode)) = begun.zip(disk.inode(copy.object.oid)) else {
        // It is gone.
        examine(keeper, copy.object)?;
        return Ok(Copied::Stopped);
    };
    let thing = Thing {
        ino: inode.identity,
        kind: copy.kind,
    };
    if !pfs.has_dir(&copy.temporary.path) {
        return Ok(Copied::NoDirectory);
    }
    let mtime = attr.mtime.sec;
    pfs.copy(&copy.temporary.path, thing, inode.contents, mtime)?;
    did?;
    let made = pfs.attr(&copy.temporary.path).unwrap_or_default();
    Ok(Copied::Whole {
        of: attr,
        copy: Identity::of_copy(&made),
        bytes: attr.size,
    })
}
