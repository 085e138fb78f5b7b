//! Requests about the attributes of a node.

use crate::door::look;
use crate::files::drop_privileges;
use crate::protocol::{ROOT, Setattr, set};
use crate::reply::Reply;
use crate::server::{Outcome, Worker, locked};
use forebay_sys::{self as sys, Errno, Sys};
use forebay_types::{Attr, is_own_attribute};
use forebay_wire::FOR_WRITE;
use rustix::fs::{
    Access, AtFlags, CWD, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags,
};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Longest value, and longest list of names, that Linux allows.
const XATTR_BYTES: usize = 64 << 10;

/// The path of a directory from itself, for which it need not be searchable.
const ITSELF: &[u8] = b"";

impl Worker<'_> {
    /// Attributes of a node. The bridge is asked about directories, because it writes their times later than it tells them; a file
    /// that somebody has open tells its own.
    fn attr(&mut self, node: u64) -> Sys<Attr> {
        let (dir, open) = {
            let nodes = locked(&self.server.nodes);
            (nodes.dir(node), nodes.any_open(node))
        };
        if dir.is_some()
            && let Ok(attr) = self.within(node, |door, start| door.stat(start, ITSELF))
        {
            return Ok(attr);
        }
        match dir.or(open) {
            // Of a directory that is gone, or while no bridge answers.
            Some(known) => sys::stat(known.as_fd(), b""),
            None => self.name_of(node).map(|(_, _, attr)| attr),
        }
    }

    /// Makes the bridge write the pending time of a directory: written later, it would replace the one that the program sets.
    fn write_pending_time(&mut self, node: u64) {
        let is_dir = locked(&self.server.nodes).dir(node).is_some();
        if is_dir {
            // One that is gone has no times that anybody sees.
            let _ = self.within(node, |door, start| door.resolve(start, ITSELF, 0));
        }
    }

    pub fn getattr(&mut self, node: u64, handle: Option<u64>) -> Outcome {
        let open = handle.and_then(|handle| self.open_descriptor(handle).ok());
        let attr = match open {
            Some(open) => look(open.as_fd())?.0,
            None => self.attr(node)?,
        };
        let mut copy_of = locked(&self.server.nodes).copy_of(node);
        if copy_of != 0
            && let Ok((_, _, now)) = self.name_of(node)
        {
            // A drain may have given it another one.
            copy_of = now.copy_of;
        }
        let attr = Attr { copy_of, ..attr };
        Ok(Reply::attributes(&self.server.shown(&attr)))
    }

    pub fn setattr(&mut self, node: u64, change: &Setattr) -> Outcome {
        let has = |bit: u32| change.valid & bit != 0;
        let open = match has(set::HANDLE) {
            true => self.open_descriptor(change.handle).ok(),
            false => None,
        };
        let flags = if has(set::SIZE) { FOR_WRITE } else { 0 };
        let object = match &open {
            Some(open) => open.clone(),
            None => self.object(node, flags)?,
        };
        let path = sys::proc_link(object.as_fd());
        if has(set::UID | set::GID) {
            let id = |bit: u32, id: u32| if has(bit) { id } else { u32::MAX };
            let (uid, gid) = (id(set::UID, change.uid), id(set::GID, change.gid));
            sys::chown(object.as_fd(), b"", uid, gid)?;
        }
        if has(set::SIZE) {
            set_size(open.as_ref(), &path, change)?;
        }
        // After the owner, whose change clears bits of the mode.
        if has(set::MODE) {
            let mode = Mode::from_raw_mode(change.mode & 0o7777);
            rustix::fs::chmodat(CWD, &path, mode, AtFlags::empty())?;
        }
        if has(set::ATIME | set::MTIME) {
            self.write_pending_time(node);
            let time = |bit: u32, now: u32, (sec, nsec): (i64, u32)| Timespec {
                tv_sec: sec,
                tv_nsec: match (has(bit), has(now)) {
                    (false, _) => UTIME_OMIT,
                    (true, true) => UTIME_NOW,
                    (true, false) => i64::from(nsec),
                },
            };
            let times = Timestamps {
                last_access: time(set::ATIME, set::ATIME_NOW, change.atime),
                last_modification: time(set::MTIME, set::MTIME_NOW, change.mtime),
            };
            rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty())?;
        }
        self.getattr(node, has(set::HANDLE).then_some(change.handle))
    }

    pub fn access(&mut self, node: u64, mask: u32) -> Outcome {
        let object = self.object(node, 0)?;
        let mask = Access::from_bits_retain(mask);
        rustix::fs::accessat(CWD, sys::proc_link(object.as_fd()), mask, AtFlags::EACCESS)?;
        Ok(Reply::new())
    }

    /// The space where the node is. A file that nobody has open counts as being where the root is.
    pub fn statfs(&mut self, node: u64) -> Outcome {
        let known = {
            let nodes = locked(&self.server.nodes);
            let own = nodes.dir(node).or_else(|| nodes.any_open(node));
            own.or_else(|| nodes.dir(ROOT)).ok_or(Errno::STALE)?
        };
        Ok(Reply::space(&rustix::fs::fstatfs(&known)?))
    }

    pub fn setxattr(&mut self, node: u64, name: &[u8], value: &[u8], flags: u32) -> Outcome {
        if is_own_attribute(name) {
            return Err(Errno::PERM);
        }
        let object = self.object(node, 0)?;
        let how = XattrFlags::from_bits_retain(flags);
        rustix::fs::setxattr(sys::proc_link(object.as_fd()), name, value, how)?;
        Ok(Reply::new())
    }

    pub fn getxattr(&mut self, node: u64, name: &[u8], size: u32) -> Outcome {
        if is_own_attribute(name) {
            return Err(Errno::NODATA);
        }
        let object = self.object(node, 0)?;
        let mut value = vec![0; XATTR_BYTES];
        let len = rustix::fs::getxattr(sys::proc_link(object.as_fd()), name, &mut value[..])?;
        of_size(&value[..len], size)
    }

    pub fn listxattr(&mut self, node: u64, size: u32) -> Outcome {
        let object = self.object(node, 0)?;
        let mut names = vec![0; XATTR_BYTES];
        let len = rustix::fs::listxattr(sys::proc_link(object.as_fd()), &mut names[..])?;
        let shown = names[..len]
            .split_inclusive(|&b| b == 0)
            .filter(|name| !is_own_attribute(name));
        of_size(&shown.collect::<Vec<_>>().concat(), size)
    }

    pub fn removexattr(&mut self, node: u64, name: &[u8]) -> Outcome {
        if is_own_attribute(name) {
            return Err(Errno::NODATA);
        }
        let object = self.object(node, 0)?;
        rustix::fs::removexattr(sys::proc_link(object.as_fd()), name)?;
        Ok(Reply::new())
    }
}

/// Sets the size by the open file that the request names, or by opening the object at `path`.
fn set_size(open: Option<&Arc<OwnedFd>>, path: &str, change: &Setattr) -> Sys<()> {
    let file = match open {
        Some(open) => open.clone(),
        None => Arc::new(sys::open_path(Path::new(path), libc::O_WRONLY)?),
    };
    if change.valid & set::KILL_SUIDGID != 0 {
        drop_privileges(file.as_fd())?;
    }
    sys::set_size(file.as_fd(), change.size)
}

/// A value, or its size if the caller has no room for any.
fn of_size(value: &[u8], room: u32) -> Outcome {
    match room as usize {
        0 => Ok(Reply::size(value.len())),
        room if room < value.len() => Err(Errno::RANGE),
        _ => Ok(Reply::of(value)),
    }
}
