//! Backing objects that are made for requests.

use super::disk::{Inode, Work};
use super::env::Env;
use super::history::ino;
use super::in_place::CopyOf;
use super::node::{Node, Purpose, Waiter};
use super::request::{Attempt, TEXT};
use forebay_core::facts::{Fresh, Judged, NewKind, NewObject};
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectId, ObjectName, Token};
use forebay_core::table::Change;

/// What the disk is making.
pub(super) struct Making {
    object: ObjectName,
    what: NewKind,
}

/// What becomes of an object that may be a copy of a file of the PFS.
enum Copying {
    /// It is no copy.
    NotOne,
    /// The file is gone, or is another.
    Gone,
    /// Somebody has the file open.
    Held,
    Begun(CopyOf),
}

impl Node {
    /// A name for a link. Never used twice for one object: the numbers of one life grow, and lives follow
    /// each other.
    pub(super) fn new_link(&mut self, of: ObjectName) -> ObjectName {
        self.objects.set(self.objects.get() + 2);
        ObjectName {
            oid: of.oid,
            link: self.epoch << 16 | self.objects.get() as u32,
        }
    }

    /// Makes a backing object, with its label, before any table names it. True if that takes time.
    pub(super) fn make(
        &mut self,
        attempt: &mut Attempt,
        spec: &NewObject,
        link: Option<ObjectName>,
        env: &mut Env,
    ) -> bool {
        self.objects.set(self.objects.get() + 2);
        let number = self.objects.get() + u64::from(spec.what == NewKind::Dir);
        let oid = ObjectId::new(self.id, self.epoch, number);
        let spare = match spec.what {
            NewKind::File => self.take_spare(&spec.label, env),
            _ => None,
        };
        if let Some(object) = spare {
            self.disk.reuse(object, spec.label.clone(), ino(oid));
            env.copies.remove(&object.oid);
            env.identities.insert(object.oid, ino(oid));
            let mut fresh = Fresh::new(object, ino(oid));
            fresh.is_doomed = true;
            attempt.pending.made(Ok(fresh));
            return false;
        }
        let object = link.unwrap_or(ObjectName { oid, link: 0 });
        let shown = match spec.what {
            NewKind::Marker => 0,
            _ => ino(oid),
        };
        let mut inode = link.is_none().then(|| Inode::new(shown, 0));
        if let NewKind::Symlink(text) = &spec.what {
            env.texts.insert(shown, text.clone());
            // It is never empty.
            inode = Some(Inode::new(shown, TEXT));
        }

        self.is_unnamed(object);
        attempt.making = Some(Making {
            object,
            what: spec.what.clone(),
        });
        let token = attempt.pending.request().token;
        let work = Work::Make(object, spec.label.clone(), inode);
        self.begin(work, Purpose::Make(token), env);
        true
    }

    /// The disk has made it, unless what it is to be like is gone.
    pub(super) fn made(&mut self, token: Token, number: u64, env: &mut Env) {
        let Some(attempt) = self.attempts.get_mut(&token) else {
            return self.disk.finish(number);
        };
        let Some(Making { object, what }) = attempt.making.take() else {
            return self.disk.finish(number);
        };
        self.ready.push_back(Waiter::Request(token));
        let copies = matches!(what, NewKind::Staged { .. });
        let failure = copies.then(|| env.pfs_fails_request()).flatten();
        let failure = attempt.note(failure.or_else(|| env.storage_refuses()));
        let copying = match &what {
            NewKind::Staged {
                lower,
                judged,
                bytes,
            } if failure.is_none() => self.copy(object, number, (lower, judged), *bytes > 0, env),
            _ => Copying::NotOne,
        };
        let Some(attempt) = self.attempts.get_mut(&token) else {
            return;
        };
        let is_gone = match &what {
            NewKind::LinkTo(of) => !self.disk.objects.contains_key(of),
            _ => matches!(copying, Copying::Gone),
        };
        if failure.is_some() || is_gone {
            self.disk.abandon(number);
            attempt.pending.made(Err(failure.unwrap_or(libc::ENOENT)));
            self.settle(object);
            if object.link != 0 {
                // It was announced and is not made.
                self.apply(&[Change::Undoom(object)]);
            }
            return;
        }
        if let (NewKind::Staged { lower, .. }, Copying::Held) = (&what, &copying) {
            self.disk.abandon(number);
            attempt.pending.held_in_place(lower.clone());
            return self.settle(object);
        }
        self.disk.finish(number);
        if matches!(what, NewKind::Staged { .. } | NewKind::Symlink(_)) {
            self.wrote_contents(object.oid);
        }
        let fresh = Fresh::new(object, self.disk.identity(object.oid));
        if let Some(attempt) = self.attempts.get_mut(&token) {
            if let Copying::Begun(copy) = copying {
                attempt.copies.push(copy);
            }
            attempt.pending.made(Ok(fresh));
        }
    }

    /// The file of the PFS that was judged is copied to the object that the disk is making, if it is still there.
    fn copy(
        &mut self,
        object: ObjectName,
        number: u64,
        (lower, judged): (&TreePath, &Judged),
        with_contents: bool,
        env: &mut Env,
    ) -> Copying {
        let pfs = self.lower.borrow();
        let attr = pfs.attr(lower).filter(|a| Judged::new(a) == *judged);
        let Some((attr, contents)) = attr.zip(pfs.contents(lower)) else {
            return Copying::Gone;
        };
        let contents = if with_contents { contents } else { 0 };
        let mut inode = Inode::new(attr.ino, contents);
        inode.mtime = attr.mtime.sec;
        env.identities.insert(object.oid, attr.ino);
        env.copies.insert(object.oid, Some(contents));
        self.disk.amend(number, inode);
        let file = (lower, &attr);
        let in_place = &self.in_place;
        match in_place.begin_copy(object, file, &pfs, env.now, self.mutation) {
            Some(copy) => Copying::Begun(copy),
            None => Copying::Held,
        }
    }
}
