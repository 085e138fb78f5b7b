//! Opening, creating, and descriptors for operations on the object itself.

use super::change::{Plan, only, type_of};
use super::read::follow_if;
use super::{Answer, Context, Decision, GrantTarget, Path};
use crate::access::{self, READ, SEARCH, WRITE};
use crate::facts::{Attr, Judged, NewKind, Outcome, Stop, errno};
use crate::path::TreePath;
use crate::record::{Dirs, Kind, PathRecord};
use crate::walk::{Comes, Dir, Follow, Found, Last, Node};

/// Flags that the decision has used up. They are removed before the target is opened.
const SPENT: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;

impl Context<'_> {
    pub(super) fn open(&self, path: &Path, flags: i32, mode: u32) -> Outcome<Decision> {
        if flags & libc::O_TMPFILE == libc::O_TMPFILE {
            // Programs fall back to a named temporary file.
            return errno(libc::EOPNOTSUPP);
        }
        if flags & libc::O_PATH != 0 {
            let follow = flags & libc::O_NOFOLLOW == 0;
            return self.resolve(path, follow, false, flags & libc::O_DIRECTORY != 0);
        }
        let create = flags & libc::O_CREAT != 0;
        if create && flags & libc::O_DIRECTORY != 0 {
            return errno(libc::EINVAL);
        }
        let follow = if create && path.bytes.ends_with(b"/") {
            // Refused, whatever a link there leads to.
            Follow::No
        } else {
            follow_of(flags)
        };
        let found = self.walk.resolve(path, follow)?;
        if create && (found.slash || found.last != Last::Name) {
            // Linux looks at the slash after a name before it looks whether something is there.
            return errno(if found.last != Last::Name && flags & libc::O_EXCL != 0 {
                libc::EEXIST
            } else {
                libc::EISDIR
            });
        }
        match &found.node {
            Some(node) => {
                if create && flags & libc::O_EXCL != 0 {
                    return errno(libc::EEXIST);
                }
                self.open_existing(&found, node, flags)
            }
            None if create => self.create(&found, flags, mode),
            None => errno(libc::ENOENT),
        }
    }

    /// Opens what an earlier try of this request has created. If it has lost its name meanwhile, there
    /// is nothing to open, and to create it again would bring back what was removed.
    pub(super) fn open_again(&self, path: &Path, flags: i32) -> Outcome<Decision> {
        let found = match self.walk.resolve(path, follow_of(flags)) {
            // There is no such way any more.
            Err(Stop::Errno(_) | Stop::Redirect(_)) => return errno(libc::ESTALE),
            other => other?,
        };
        match (&found.record, &found.node) {
            (Some(record), Some(node)) if record.token == self.request.token => {
                self.open_existing(&found, node, flags)
            }
            _ => errno(libc::ESTALE),
        }
    }

    fn create(&self, found: &Found, flags: i32, mode: u32) -> Outcome<Decision> {
        self.check_change(&found.dir)?;
        self.walk.check_vacant(found, Comes::File)?;
        let hidden = self.hidden_at(found);
        let owner = self.inherit(&found.dir, libc::S_IFREG | mode & 0o7777, false)?;
        let fresh = self.make(
            found,
            Kind::File,
            NewKind::File,
            owner,
            None,
            hidden.as_ref(),
        )?;
        let plan = self.plant(found, self.record(Kind::File, fresh, hidden))?;
        Ok(plan.decide(Answer::Grant {
            target: GrantTarget::Object(fresh.object),
            flags: flags & !SPENT,
        }))
    }

    fn open_existing(&self, found: &Found, node: &Node, flags: i32) -> Outcome<Decision> {
        let is_dir = self.walk.is_dir(node);
        if !is_dir && (flags & libc::O_DIRECTORY != 0 || found.slash) {
            return errno(libc::ENOTDIR);
        }
        let write = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        if is_dir && (write || flags & libc::O_CREAT != 0) {
            return errno(libc::EISDIR);
        }
        if flags & libc::O_CREAT != 0 {
            self.check_create_over(found, node)?;
        }
        // In a directory everything would be changed by its descriptor then.
        if write || is_dir {
            self.walk.check_here(found)?;
        }
        if self.cred.uid != 0 {
            self.check_open(&self.walk.attr(node)?, flags)?;
        }
        let flags = flags & !SPENT;
        match node {
            Node::Born(record) => match record.kind {
                Kind::Symlink => errno(libc::ELOOP),
                Kind::Special => Ok(special(GrantTarget::Object(record.object))),
                _ => Ok(grant(GrantTarget::Object(record.object), flags)),
            },
            Node::Lower(lower, attr) => match type_of(attr) {
                libc::S_IFLNK => errno(libc::ELOOP),
                libc::S_IFREG if write && self.stages(&found.dir, lower, attr, flags)? => {
                    self.stage(found, lower, attr, flags)
                }
                libc::S_IFREG | libc::S_IFDIR => Ok(grant(in_place(lower, attr), flags)),
                _ => Ok(special(in_place(lower, attr))),
            },
        }
    }

    /// May what is there be opened by a call that would have created it?
    fn check_create_over(&self, found: &Found, node: &Node) -> Outcome<()> {
        let there = self.walk.attr(node)?;
        if there.uid == self.cred.uid {
            return Ok(());
        }
        let dir = self.walk.dir_attr(&found.dir)?;
        let protections = self.settings.protections;
        protections.check_create(self.cred, &dir, &there)
    }

    fn check_open(&self, attr: &Attr, flags: i32) -> Outcome<()> {
        let mut want = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => READ,
            libc::O_WRONLY => WRITE,
            _ => READ | WRITE,
        };
        if flags & libc::O_TRUNC != 0 {
            want |= WRITE;
        }
        access::check(self.cred, attr, want)?;
        if flags & libc::O_NOATIME != 0 && self.cred.uid != attr.uid {
            return errno(libc::EPERM);
        }
        Ok(())
    }

    /// True if the file is copied into the buffer. Not: large files (unless truncated), files with several names on
    /// the PFS, and files that somebody has open in place. A copy would part one name, or one user, from the others.
    /// Nor what the drain could not put back as it was.
    pub(super) fn stages(
        &self,
        dir: &Dir,
        lower: &TreePath,
        attr: &Attr,
        flags: i32,
    ) -> Outcome<bool> {
        Ok(attr.nlink <= 1
            && (flags & libc::O_TRUNC != 0 || attr.size <= self.settings.stage_limit_bytes)
            && !self.facts.is_held_in_place(lower)
            && self.can_put_back(dir, attr)?)
    }

    /// Can the user of the bridge make a file there that has the owner and the group of this one, and put it in its place? Who
    /// is not root serves nobody else, so the caller is that user.
    fn can_put_back(&self, dir: &Dir, attr: &Attr) -> Outcome<bool> {
        if self.settings.bridge_uid == 0 {
            return Ok(true);
        }
        if attr.uid != self.settings.bridge_uid || !self.cred.in_group(attr.gid) {
            return Ok(false);
        }
        let dir = self.walk.dir_attr(dir)?;
        Ok(access::may(self.cred, &dir, WRITE | SEARCH))
    }

    /// Copies a PFS file into the buffer, so that it can be written there.
    fn stage(&self, found: &Found, lower: &TreePath, attr: &Attr, flags: i32) -> Outcome<Decision> {
        let bytes = if flags & libc::O_TRUNC != 0 {
            0
        } else {
            attr.size
        };
        let (mut plan, copy) = self.staged(found, lower, attr, bytes)?;
        self.settle_origin(found, &[], &mut plan)?;
        Ok(plan.decide(Answer::Grant {
            target: GrantTarget::Object(copy.object),
            flags,
        }))
    }

    /// The change that puts a staged copy of `lower` at `found`, without what is known of `lower` from then on
    /// ([`Context::settle_origin`]).
    pub(super) fn staged(
        &self,
        found: &Found,
        lower: &TreePath,
        attr: &Attr,
        bytes: u64,
    ) -> Outcome<(Plan, PathRecord)> {
        let hidden = self.hidden_at(found);
        let mut plan = Plan::default();
        let what = NewKind::Staged {
            lower: lower.clone(),
            judged: Judged::new(attr),
            bytes,
        };
        let owner = (attr.uid, attr.gid, attr.mode);
        let fresh = self.make(found, Kind::File, what, owner, None, hidden.as_ref())?;
        self.drop_record(found, &mut plan);
        // Numbers of a file system that is mounted below the buffer may be those of others here.
        let is_on_pfs = attr.dev == self.settings.devices.pfs;
        let record = PathRecord {
            copy_of: if is_on_pfs { attr.ino } else { 0 },
            dirs: Dirs::within(self.within(&found.dir, SEARCH)?),
            ..self.record(Kind::File, fresh, hidden)
        };
        plan.put(found.path.clone(), record.clone());
        Ok((plan, record))
    }

    pub(super) fn resolve(
        &self,
        path: &Path,
        follow: bool,
        for_write: bool,
        directory: bool,
    ) -> Outcome<Decision> {
        let (found, node) = self.existing(path, follow_if(follow))?;
        if directory && !self.walk.is_dir(&node) {
            return errno(libc::ENOTDIR);
        }
        if for_write || self.walk.is_dir(&node) {
            self.walk.check_here(&found)?;
        }
        let o_path = libc::O_PATH | libc::O_NOFOLLOW;
        match &node {
            Node::Born(record) => Ok(grant(GrantTarget::Object(record.object), o_path)),
            Node::Lower(lower, attr) => {
                if for_write
                    && type_of(attr) == libc::S_IFREG
                    && self.stages(&found.dir, lower, attr, 0)?
                {
                    access::check(self.cred, attr, WRITE)?;
                    let (mut plan, copy) = self.staged(&found, lower, attr, attr.size)?;
                    self.settle_origin(&found, &[], &mut plan)?;
                    return Ok(plan.decide(Answer::Grant {
                        target: GrantTarget::Object(copy.object),
                        flags: o_path,
                    }));
                }
                let mode = if for_write { libc::O_WRONLY } else { 0 };
                Ok(grant(in_place(lower, attr), o_path | mode))
            }
        }
    }
}

/// What to do with a symbolic link at the end of a path that is opened with these flags.
fn follow_of(flags: i32) -> Follow {
    let exclusive = libc::O_CREAT | libc::O_EXCL;
    if flags & libc::O_NOFOLLOW != 0 || flags & exclusive == exclusive {
        Follow::BeforeSlash
    } else {
        Follow::Yes
    }
}

fn grant(target: GrantTarget, flags: i32) -> Decision {
    only(Answer::Grant { target, flags })
}

/// What has these attributes on the PFS.
fn in_place(lower: &TreePath, attr: &Attr) -> GrantTarget {
    GrantTarget::Lower(lower.clone(), Judged::new(attr))
}

/// Opening it may block or act, so the client does that itself, through an `O_PATH` descriptor.
fn special(target: GrantTarget) -> Decision {
    grant(target, libc::O_PATH | libc::O_NOFOLLOW)
}
