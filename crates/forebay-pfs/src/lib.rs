//! The PFS directory under the buffer, by paths relative to its root.
//!
//! All access goes through one descriptor of the real root, so that a mount or a
//! rename above it does not matter. No open follows a symbolic link: a user who
//! replaces a directory by a link must not lead the bridge out of the buffer.
#![forbid(unsafe_code)]

mod dir_times;
mod first_names;
mod lists;
mod unsynced;

pub use dir_times::Changing;
use dir_times::DirTimes;
use first_names::First;
use forebay_core::access_list;
use forebay_core::facts::{Attr, Cred, Judged, LowerPage, Through, Timestamp};
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_core::pfs_kind::{self, SyncBy};
use forebay_sys::{self as sys, Errno, Sys};
pub use lists::Lists;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The PFS below the buffer.
pub struct Lower {
    root: OwnedFd,
    may_wait: bool,
    fs_type: i64,
    /// The kernel has no `openat2`.
    old_kernel: AtomicBool,
    times: DirTimes,
    unsynced: unsynced::Unsynced,
    lists: Lists,
    /// The directories above the root, nearest first, with their access control lists.
    above: Vec<(OwnedFd, Option<Vec<u8>>)>,
}

impl Lower {
    /// Opens the directory at `root`. `may_wait` says whether the file system may block for long; `None` decides by
    /// its type.
    ///
    /// # Errors
    /// Those of the open.
    pub fn open_root(root: &Path, may_wait: Option<bool>) -> Sys<Self> {
        let mut above = Vec::new();
        for dir in root
            .ancestors()
            .skip(1)
            .filter(|dir| !dir.as_os_str().is_empty())
        {
            let dir = sys::open_path(dir, libc::O_PATH | libc::O_DIRECTORY)?;
            let list = lists::list_of(dir.as_fd())?;
            above.push((dir, list));
        }
        let root = sys::open_path(root, libc::O_PATH | libc::O_DIRECTORY)?;
        let fs_type = sys::fs_type(root.as_fd())?;
        Ok(Lower {
            root,
            may_wait: may_wait.unwrap_or_else(|| pfs_kind::may_wait(fs_type)),
            fs_type,
            old_kernel: AtomicBool::new(false),
            times: DirTimes::default(),
            unsynced: unsynced::Unsynced::default(),
            lists: Lists::default(),
            above,
        })
    }

    /// True if the file system may block for long, so that an event loop must not call it.
    pub fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// How what is written there gets to its disks.
    pub fn sync_by(&self) -> SyncBy {
        pfs_kind::sync_by(self.fs_type)
    }

    /// Has a directory one inode number as long as it is there?
    pub fn keeps_numbers(&self) -> bool {
        pfs_kind::keeps_numbers(self.fs_type)
    }

    /// Copies that a drain makes at a time if nobody says otherwise.
    pub fn workers(&self) -> u32 {
        pfs_kind::workers(self.fs_type)
    }

    /// `O_PATH` descriptor of the root.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Attributes of the directories above the root, for `asker`. Does not wait: their lists are those of the start.
    ///
    /// # Errors
    /// Those of the file systems.
    pub fn above_root(&self, asker: Option<&Cred>) -> Sys<Vec<Attr>> {
        let look = |(dir, list): &(OwnedFd, Option<Vec<u8>>)| {
            let attr = sys::stat_known(dir.as_fd())?;
            Ok(asker.map_or(attr, |asker| {
                access_list::with_list(attr, list.as_deref(), asker)
            }))
        };
        self.above.iter().map(look).collect()
    }

    /// Access control lists that were read lately, of the PFS and of what else is looked at for somebody.
    pub fn lists(&self) -> &Lists {
        &self.lists
    }

    /// `lstat`, which follows no symbolic link before the last component either.
    ///
    /// # Errors
    /// Those of the file system. If nothing is there, the answer is `None`.
    pub fn attr(&self, path: &TreePath) -> Sys<Option<Attr>> {
        self.attr_for(path, None)
    }

    fn attr_for(&self, path: &TreePath, asker: Option<&Cred>) -> Sys<Option<Attr>> {
        let is_deep = path.as_bytes().contains(&b'/');
        let found = if is_deep {
            self.open(path, libc::O_PATH)
                .and_then(|found| self.lists.attr_for(found.as_fd(), b"", asker))
        } else {
            self.lists
                .attr_for(self.root.as_fd(), path.as_bytes(), asker)
        };
        self.shown(path, found)
    }

    /// As [`Lower::attr`], of an entry of this directory, if one is given. In another directory than the one out of which something
    /// was renamed it is not. `asker`: who asks, so that lists say what that user may do; `None`: the bridge itself.
    ///
    /// # Errors
    /// Those of the file system. ENOENT if another directory is there than the request has seen.
    pub fn attr_in(
        &self,
        path: &TreePath,
        through: Option<Through>,
        asker: Option<&Cred>,
    ) -> Sys<Option<Attr>> {
        let (Some(through), Some((parent, name))) = (through, path.split()) else {
            return self.attr_for(path, asker);
        };
        let opened = self.open(&parent, libc::O_PATH | libc::O_DIRECTORY);
        let checked = opened.and_then(|dir| check_through(&dir, Some(through)).map(|()| dir));
        match (checked, through) {
            (Ok(dir), _) => self.shown(path, self.lists.attr_for(dir.as_fd(), name, asker)),
            (Err(e), Through::Known(_)) => self.shown(path, Err(e)),
            (Err(e), Through::Seen(_)) => Err(e),
        }
    }

    /// What is seen of an entry while times wait to be written.
    fn shown(&self, path: &TreePath, found: Sys<Attr>) -> Sys<Option<Attr>> {
        match found {
            Ok(mut attr) => {
                if let Some(at) = self.times.waits(path, &attr) {
                    attr.mtime = attr.mtime.max(at);
                    attr.ctime = attr.ctime.max(at);
                }
                Ok(Some(attr))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Opens the entry at `path`, which may be a symbolic link if `flags` say so.
    ///
    /// # Errors
    /// Those of the file system; ELOOP if a component before it is a symbolic link.
    pub fn open(&self, path: &TreePath, flags: i32) -> Sys<OwnedFd> {
        debug_assert_eq!(
            flags & libc::O_CREAT,
            0,
            "an open makes nothing on the PFS: {path}"
        );
        // `openat2` refuses flags that have no meaning with O_PATH.
        let flags = match flags & libc::O_PATH {
            0 => flags | libc::O_NOFOLLOW | libc::O_NOCTTY,
            path => path | flags & libc::O_DIRECTORY | libc::O_NOFOLLOW,
        };
        let bytes = if path.is_root() {
            b"."
        } else {
            path.as_bytes()
        };
        if !self.old_kernel.load(Ordering::Relaxed) {
            match sys::open_beneath(self.root.as_fd(), bytes, flags) {
                // Container runtimes answer EPERM for calls that they do not know.
                Err(Errno::NOSYS | Errno::PERM) if self.lacks_openat2() => {
                    self.old_kernel.store(true, Ordering::Relaxed);
                }
                other => return other,
            }
        }
        let Some((parent, name)) = path.split() else {
            return sys::open(self.root.as_fd(), b".", flags, 0);
        };
        let mut dir = None;
        for part in parent.components() {
            let at = dir.as_ref().map_or(self.root.as_fd(), OwnedFd::as_fd);
            let steps = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
            dir = Some(sys::open(at, part, steps, 0)?);
        }
        let at = dir.as_ref().map_or(self.root.as_fd(), OwnedFd::as_fd);
        sys::open(at, name, flags, 0)
    }

    /// Opens what was judged at `path`. If something else is there now, nothing is done with that: the open of a FIFO could
    /// block, that of a device could act, and nobody has looked who may read it.
    ///
    /// # Errors
    /// Those of the file system. ENOENT if something else is there.
    pub fn open_judged(&self, path: &TreePath, judged: &Judged, flags: i32) -> Sys<OwnedFd> {
        let found = self.open(path, libc::O_PATH)?;
        if Judged::new(&sys::stat(found.as_fd(), b"")?) != *judged {
            return Err(Errno::NOENT);
        }
        match flags & libc::O_PATH {
            0 => sys::reopen(found.as_fd(), flags | libc::O_NOCTTY),
            _ => Ok(found),
        }
    }

    /// Times of directories that programs changed, or that a drain has to give back.
    pub fn times(&self) -> &DirTimes {
        &self.times
    }

    /// Notes that an entry of this directory has appeared or disappeared in the buffer.
    pub fn touch(&self, path: &TreePath, dir: Option<Identity>) {
        self.times.touch(path, dir);
    }

    /// Writes the time of one directory to the PFS, if it is not there yet.
    pub fn flush_touch(&self, path: &TreePath) {
        self.times
            .write_one(path, |path, at| self.write_touch(path, at));
    }

    /// Writes all times to the PFS that are not there yet.
    pub fn flush_touches(&self) {
        self.times.write_all(|path, at| self.write_touch(path, at));
    }

    fn write_touch(&self, path: &TreePath, (at, known): (Timestamp, Option<Identity>)) {
        // Otherwise it is gone, another one is there, or nobody may look at it.
        if let Ok(dir) = self.open_for_times(path)
            && let Ok(now) = sys::stat(dir.as_fd(), b"")
            && known.is_none_or(|known| known.is_dir_of(&now))
        {
            self.times.write(path, &dir, &now, at);
        }
    }

    /// Remembers the times of a directory. A drain calls this before it changes entries of the directory.
    pub fn keep_times(&self, path: &TreePath) {
        if !self.times.is_kept(path) {
            self.keep_times_now(path);
        }
    }

    fn keep_times_now(&self, path: &TreePath) -> Option<usize> {
        let dir = self.open_for_times(path).ok()?;
        let attr = sys::stat(dir.as_fd(), b"").ok()?;
        self.times.keep(path, dir, &attr)
    }

    /// Opens a directory whose times are to be set: with `O_PATH` if its owner may not read it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open_for_times(&self, path: &TreePath) -> Sys<OwnedFd> {
        match self.open(path, libc::O_RDONLY | libc::O_DIRECTORY) {
            Err(Errno::ACCESS) => self.open(path, libc::O_PATH | libc::O_DIRECTORY),
            opened => opened,
        }
    }

    /// An act of a drain begins that may change entries of these directories. Their times are kept, and what others have
    /// changed before it is told from what the drain changes.
    pub fn begin_act(&self, dirs: &[TreePath]) -> Changing {
        // The drain renames directories: another one may have the path by now.
        let numbers = dirs.iter().filter_map(|dir| self.keep_times_now(dir));
        self.times
            .begin_act(numbers.collect(), |dir| self.look_at_dir(dir))
    }

    /// The act has ended.
    pub fn end_act(&self, changing: Changing) {
        self.times.end_act(changing, |dir| self.look_at_dir(dir));
    }

    fn look_at_dir(&self, path: &TreePath) -> Sys<Attr> {
        let dir = self.open(path, libc::O_PATH | libc::O_DIRECTORY)?;
        sys::stat(dir.as_fd(), b"")
    }

    fn lacks_openat2(&self) -> bool {
        matches!(
            sys::open_beneath(self.root.as_fd(), b".", libc::O_PATH),
            Err(Errno::NOSYS | Errno::PERM)
        )
    }

    /// Text of a symbolic link, of this one, if one is given.
    ///
    /// # Errors
    /// Those of the file system; EINVAL if it is no link, ENOENT if it is another one.
    pub fn link_text(&self, path: &TreePath, through: Option<Through>) -> Sys<Vec<u8>> {
        let fd = self.open(path, libc::O_PATH)?;
        check_through(&fd, through)?;
        match sys::readlink(fd.as_fd(), b"") {
            // `readlinkat` gives ENOENT for a descriptor that is no link.
            Err(Errno::NOENT) => Err(Errno::INVAL),
            other => other,
        }
    }

    /// The first `limit` names after `after`, of this directory, if one is given. `None` if the directory has more than `inline` entries;
    /// it was not read to its end then.
    ///
    /// The whole directory is read for each page, because a file system lists names in no order. At most twice
    /// `limit` entries are in memory.
    ///
    /// # Errors
    /// Those of the file system. ENOENT if it is another directory.
    pub fn list(
        &self,
        path: &TreePath,
        through: Option<Through>,
        after: Option<&[u8]>,
        limit: usize,
        inline: usize,
    ) -> Sys<Option<LowerPage>> {
        let fd = self.open(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
        check_through(&fd, through)?;
        let mut first = First::new(after, limit);
        let mut raw = Vec::new();
        let mut seen = 0;
        while sys::read_dir(fd.as_fd(), &mut raw)? {
            seen += raw.len();
            if seen > inline {
                return Ok(None);
            }
            raw.drain(..).for_each(|entry| first.take(entry));
        }
        raw.drain(..).for_each(|entry| first.take(entry));
        Ok(Some(first.page()))
    }
}

/// ENOENT unless it is this, if something is given.
fn check_through(found: &OwnedFd, through: Option<Through>) -> Sys<()> {
    match through {
        Some(through) if !through.is(&sys::stat(found.as_fd(), b"")?) => Err(Errno::NOENT),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
