//! Directories go, with all that is in them.

use super::Work;
use crate::aside::{self, GoingDir, Refused};
use crate::counters::Counters;
use crate::known;
use crate::pfs::{self, During, Trouble};
use crate::removal::{self, Spared};
use crate::touched::Touched;
use forebay_core::drain;
use forebay_core::facts::Attr;
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_objects::PfsNotes;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno};
use std::cell::RefCell;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};

/// What takes a directory away.
pub(crate) struct Removal<'r> {
    pub(crate) lower: &'r Lower,
    pub(crate) notes: &'r PfsNotes,
    pub(crate) touched: &'r Touched,
    pub(crate) counters: &'r Counters,
    /// Only as long as this lasts may names change where the directory is.
    pub(crate) is_lent: bool,
}

/// Is it that this user may not do so there?
fn may_not(trouble: &Trouble) -> bool {
    matches!(trouble.errno, Errno::ACCESS | Errno::PERM)
}

impl Removal<'_> {
    /// See [`drain::Act::Discard`].
    pub(crate) fn discard(
        &self,
        path: &TreePath,
        is: Option<Identity>,
        aside: &TreePath,
        within: Option<Identity>,
    ) -> Work<()> {
        let taken = self.take_away(path, is, aside, within);
        taken.map_err(Trouble::into_core)
    }

    pub(super) fn take_away(
        &self,
        path: &TreePath,
        is: Option<Identity>,
        aside: &TreePath,
        within: Option<Identity>,
    ) -> pfs::Work<()> {
        let lower = self.lower;
        aside::sweep_in(lower, self.notes, path, self.touched, self.counters)?;
        let dir = pfs::parent(lower, path)?;
        pfs::check_within(dir.as_fd(), within)?;
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let taken = match sys::open(dir.as_fd(), path.name(), flags, 0) {
            Err(Errno::NOENT) => return Ok(()),
            // A file that somebody has put in its place is not ours to take away.
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(Errno::EXIST).during("open directory"),
            taken => taken.during("open directory")?,
        };
        // An empty one needs no detour.
        if sys::unlink(dir.as_fd(), path.name(), true).is_ok() {
            return Ok(());
        }
        let ino = sys::stat(taken.as_fd(), b"").during("stat")?.ino;
        let in_it = RefCell::new(None);
        let check = || {
            let Some(is) = is else {
                return Ok(());
            };
            let mut dirs = HashSet::new();
            if !is.is_same(known::known(lower, path, &mut dirs)?) {
                return Err(Errno::EXIST).during("rename");
            }
            in_it.replace(Some(dirs));
            Ok(())
        };
        let going = GoingDir {
            dir: dir.as_fd(),
            path,
            ino,
            within,
        };
        let put = |aside: &TreePath| {
            let put = aside::put(lower, self.notes, &going, aside, check)?;
            if let Some(dirs) = in_it.take() {
                self.touched.has_put_aside(ino, dirs);
            }
            Ok(put)
        };
        if self.may_be_aside_in_root(path)? {
            match put(aside) {
                Ok(aside) => return self.give_back_another(&taken, &going, &aside),
                // This user may make no names there. A directory that its owner has locked can't get another parent.
                Err(Refused::Moment(e)) if may_not(&e) => {}
                Err(Refused::Rename(e, _)) if may_not(&e) || e.errno == Errno::XDEV => {}
                Err(
                    Refused::Check(e)
                    | Refused::Moment(e)
                    | Refused::Note(e)
                    | Refused::Rename(e, _),
                ) => return Err(e),
            }
        }
        // Who may remove it may make names where it is.
        let beside = path.parent().join(aside.name());
        match put(&beside) {
            Ok(aside) => {
                self.touched.has_put_beside(aside.clone());
                self.give_back_another(&taken, &going, &aside)?;
                // Else a sweep of the root finds it by its note, as does whoever moves or removes the directory that it is in.
                if self.is_lent {
                    // What fails is tried again by those, and told.
                    let _ = aside::sweep(lower, self.notes, &aside, self.touched, self.counters);
                }
                Ok(())
            }
            Err(Refused::Rename(e, since)) if may_not(&e) || e.errno == Errno::XDEV => {
                let dirs = in_it.take();
                let touched = self.touched;
                let spared = Spared {
                    since,
                    dirs,
                    touched,
                };
                match removal::remove_dir_but(dir.as_fd(), path.name(), ino, &spared)? {
                    true => Ok(()),
                    false => Err(Errno::NOTEMPTY).during("rmdir"),
                }
            }
            Err(
                Refused::Check(e) | Refused::Moment(e) | Refused::Note(e) | Refused::Rename(e, _),
            ) => Err(e),
        }
    }

    fn may_be_aside_in_root(&self, path: &TreePath) -> pfs::Work<bool> {
        let (mut around, mut dir) = (Vec::new(), path.parent());
        while !dir.is_root() {
            around.extend(pfs::look(self.lower, &dir)?);
            dir = dir.parent();
        }
        Ok(drain::may_be_aside_in_root(around))
    }

    /// Puts back what is aside if it is not the directory that was to be taken away: somebody has put something else in
    /// its place at the last moment, and what is aside is going to be swept.
    pub(super) fn give_back_another(
        &self,
        taken: &OwnedFd,
        going: &GoingDir<'_>,
        aside: &TreePath,
    ) -> pfs::Work<()> {
        let expected = sys::stat(taken.as_fd(), b"").during("stat")?;
        let is_it = |found: Attr| found.inode() == expected.inode();
        if pfs::look(self.lower, aside)?.is_none_or(is_it) {
            return Ok(());
        }
        let place = aside::put_back(self.lower, self.notes, aside, going)?;
        if place != *going.path {
            self.counters.came_back(place);
        }
        Err(Errno::NOTDIR).during("rename")
    }
}
