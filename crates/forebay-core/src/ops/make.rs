//! New names: directories, nodes, symbolic and hard links.

use super::change::{Plan, type_of};
use super::{Answer, Context, Decision, Path};
use crate::access::{SEARCH, WRITE};
use crate::facts::{NewKind, Outcome, errno};
use crate::record::{Dirs, Kind, PathRecord};
use crate::walk::{Comes, Follow, Found, Last, Node};

impl Context<'_> {
    /// The place for a new name.
    fn vacant(&self, path: &Path, comes: Comes) -> Outcome<Found> {
        let found = self.free(path, comes == Comes::EmptyDir)?;
        self.check_change(&found.dir)?;
        self.walk.check_vacant(&found, comes)?;
        Ok(found)
    }

    /// A name that is not there, whoever may make it.
    fn free(&self, path: &Path, slash_allowed: bool) -> Outcome<Found> {
        let found = self.walk.resolve(path, Follow::No)?;
        if found.node.is_some() || found.last != Last::Name {
            return errno(libc::EEXIST);
        }
        if found.slash && !slash_allowed {
            return errno(libc::ENOENT);
        }
        Ok(found)
    }

    fn new_name(&self, path: &Path, kind: Kind, what: NewKind, mode: u32) -> Outcome<Decision> {
        let comes = match kind {
            Kind::Dir => Comes::EmptyDir,
            _ => Comes::File,
        };
        let found = self.vacant(path, comes)?;
        let hidden = self.hidden_at(&found);
        let owner = self.inherit(&found.dir, mode, kind == Kind::Dir)?;
        let fresh = self.make(&found, kind, what, owner, None, hidden.as_ref())?;
        let plan = self.plant(&found, self.record(kind, fresh, hidden))?;
        Ok(plan.decide(Answer::Done))
    }

    pub(super) fn mkdir(&self, path: &Path, mode: u32) -> Outcome<Decision> {
        // Linux keeps the sticky bit and drops set-user-id and set-group-id here.
        self.new_name(path, Kind::Dir, NewKind::Dir, libc::S_IFDIR | mode & 0o1777)
    }

    pub(super) fn mknod(&self, path: &Path, mode: u32, dev: u64) -> Outcome<Decision> {
        let bits = mode & 0o7777;
        match mode & libc::S_IFMT {
            0 | libc::S_IFREG => {
                self.new_name(path, Kind::File, NewKind::File, libc::S_IFREG | bits)
            }
            t @ (libc::S_IFIFO | libc::S_IFSOCK) => {
                self.new_name(path, Kind::Special, NewKind::Node(0), t | bits)
            }
            t @ (libc::S_IFCHR | libc::S_IFBLK) => {
                if self.cred.uid != 0 {
                    return errno(libc::EPERM);
                }
                self.new_name(path, Kind::Special, NewKind::Node(dev), t | bits)
            }
            libc::S_IFDIR => errno(libc::EPERM),
            _ => errno(libc::EINVAL),
        }
    }

    pub(super) fn symlink(&self, path: &Path, text: &[u8]) -> Outcome<Decision> {
        if text.is_empty() {
            return errno(libc::ENOENT);
        }
        if text.len() > forebay_types::MAX_PATH_BYTES {
            return errno(libc::ENAMETOOLONG);
        }
        // The object is a file with the text in it; `stat` shows 0777 as for any link.
        self.new_name(
            path,
            Kind::Symlink,
            NewKind::Symlink(text.to_vec()),
            libc::S_IFREG | 0o600,
        )
    }

    pub(super) fn link(&self, old: &Path, new: &Path, follow: bool) -> Outcome<Decision> {
        let at_end = if follow {
            Follow::Yes
        } else {
            Follow::BeforeSlash
        };
        let (from, node) = self.existing(old, at_end)?;
        // In the order of Linux.
        let to = self.free(new, false)?;
        let protections = self.settings.protections;
        if protections.hardlinks {
            protections.check_link(self.cred, &self.walk.attr(&node)?)?;
        }
        self.check_change(&to.dir)?;
        self.walk.check_vacant(&to, Comes::File)?;
        if self.walk.is_dir(&node) {
            return errno(libc::EPERM);
        }
        // By its new name it would be changed.
        self.walk.check_here(&from)?;
        self.walk.check_device(&from.dir, &to.dir)?;
        let hidden = self.hidden_at(&to);
        let (mut plan, source) = match &node {
            Node::Born(record) => (Plan::default(), record.clone()),
            Node::Lower(lower, attr) => {
                // A second name needs one object for both: bring the file into the buffer first.
                if type_of(attr) != libc::S_IFREG || !self.stages(&from.dir, lower, attr, 0)? {
                    return errno(libc::EXDEV);
                }
                self.staged(&from, lower, attr, attr.size)?
            }
        };
        if source.object.oid.bridge() != self.facts.me() {
            // Only the bridge that keeps the object can give it another name.
            return errno(libc::EXDEV);
        }
        let attr_of_source = (0, 0, 0);
        let what = NewKind::LinkTo(source.object);
        let fresh = self.make(
            &to,
            source.kind,
            what,
            attr_of_source,
            None,
            hidden.as_ref(),
        )?;
        self.drop_record(&to, &mut plan);
        plan.touch(self.touched(&to.dir)?);
        let record = PathRecord {
            copy_of: source.copy_of,
            dirs: Dirs::within(self.within(&to.dir, WRITE | SEARCH)?),
            ..self.record(source.kind, fresh, hidden)
        };
        plan.put(to.path.clone(), record);
        self.settle_origin(&to, &[], &mut plan)?;
        if matches!(node, Node::Lower(..)) {
            self.settle_origin(&from, &[], &mut plan)?;
        }
        Ok(plan.decide(Answer::Done))
    }
}
