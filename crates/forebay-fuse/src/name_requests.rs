//! Requests that look up, make, move and remove names.

use crate::door::ask_where_it_is;
use crate::reply::{Reply, device_from};
use crate::server::{OpenDir, Outcome, Worker, locked};
use forebay_sys::{self as sys, Errno};
use forebay_wire::{Op, REMOVE_DIR, Request};
use rustix::fs::{Access, AtFlags, CWD};
use std::os::fd::AsFd;
use std::sync::Arc;

impl Worker<'_> {
    pub fn lookup(&mut self, parent: u64, name: &[u8]) -> Outcome {
        self.named(parent, name)
    }

    /// The answer to a look-up, or to a request that has made a name.
    fn named(&mut self, parent: u64, name: &[u8]) -> Outcome {
        let (node, attr) = self.entry(parent, name)?;
        Ok(Reply::entry(node, &attr))
    }

    pub fn symlink(&mut self, parent: u64, name: &[u8], text: &[u8]) -> Outcome {
        self.within(parent, |door, start| {
            door.change(Request {
                base1: start.base(),
                str1: name,
                str2: text,
                ..Request::new(Op::Symlink)
            })
        })?;
        self.named(parent, name)
    }

    pub fn mknod(&mut self, parent: u64, name: &[u8], mode: u32, device: u32) -> Outcome {
        self.within(parent, |door, start| {
            door.change(Request {
                arg1: mode,
                arg2: device_from(device),
                base1: start.base(),
                str1: name,
                ..Request::new(Op::Mknod)
            })
        })?;
        self.named(parent, name)
    }

    pub fn mkdir(&mut self, parent: u64, name: &[u8], mode: u32) -> Outcome {
        self.within(parent, |door, start| {
            door.change(Request {
                arg1: mode,
                base1: start.base(),
                str1: name,
                ..Request::new(Op::Mkdir)
            })
        })?;
        self.named(parent, name)
    }

    pub fn remove(&mut self, parent: u64, name: &[u8], directory: bool) -> Outcome {
        self.within(parent, |door, start| {
            door.change(Request {
                arg0: if directory { REMOVE_DIR } else { 0 },
                base1: start.base(),
                str1: name,
                ..Request::new(Op::Unlink)
            })
        })?;
        locked(&self.server.nodes).removed(&(parent, name.to_vec()));
        Ok(Reply::new())
    }

    pub fn rename(&mut self, old: (u64, &[u8]), new: (u64, &[u8]), flags: u32) -> Outcome {
        ask_where_it_is(|| {
            let (from, to) = (self.start(old.0)?, self.start(new.0)?);
            self.door.change(Request {
                arg0: flags,
                base1: from.base(),
                str1: old.1,
                base2: to.base(),
                str2: new.1,
                ..Request::new(Op::Rename)
            })
        })?;
        let exchanged = flags & libc::RENAME_EXCHANGE != 0;
        let (old, new) = ((old.0, old.1.to_vec()), (new.0, new.1.to_vec()));
        if old != new {
            locked(&self.server.nodes).renamed(old, new, exchanged);
        }
        Ok(Reply::new())
    }

    pub fn link(&mut self, old: u64, parent: u64, name: &[u8]) -> Outcome {
        ask_where_it_is(|| {
            let (from, old, _) = self.name_of(old)?;
            let to = self.start(parent)?;
            self.door.change(Request {
                base1: from.base(),
                str1: &old,
                base2: to.base(),
                str2: name,
                ..Request::new(Op::Link)
            })
        })?;
        self.named(parent, name)
    }

    pub fn readlink(&mut self, node: u64) -> Outcome {
        let text = ask_where_it_is(|| {
            let (start, name, _) = self.name_of(node)?;
            self.door.readlink(&start, &name)
        })?;
        Ok(Reply::of(&text))
    }

    pub fn opendir(&mut self, node: u64) -> Outcome {
        let dir = locked(&self.server.nodes).dir(node).ok_or(Errno::STALE)?;
        let path = sys::proc_link(dir.as_fd());
        rustix::fs::accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS)?;
        let handle = self.server.handle();
        locked(&self.server.dirs).insert(handle, Arc::new(OpenDir::default()));
        Ok(Reply::new().open(handle, 0, 0))
    }

    /// A part of a listing. It is read anew from the bridge when somebody begins at its start.
    pub fn readdir(&mut self, node: u64, handle: u64, offset: u64, size: u32) -> Outcome {
        let open = locked(&self.server.dirs).get(&handle).cloned();
        let open = open.ok_or(Errno::BADF)?;
        let mut listing = locked(&open.listing);
        if offset == 0 || listing.is_none() {
            *listing = Some(self.list(node)?);
        }
        let entries = listing.as_deref().unwrap_or_default();
        let mut reply = Reply::new();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, entry) in entries.iter().enumerate().skip(from) {
            let next = at as u64 + 1;
            let name = &entry.name;
            if !reply.push_entry(size as usize, entry.ino, next, entry.dtype, name) {
                break;
            }
        }
        Ok(reply)
    }

    /// A whole listing, with the inode numbers that `stat` shows.
    fn list(&mut self, node: u64) -> forebay_sys::Sys<Vec<forebay_client::Entry>> {
        let listed = self.within(node, |door, start| Ok((door.list(start)?, start.clone())));
        let (mut entries, start) = match listed {
            // A directory that was removed has no entries.
            Err(Errno::NOENT) => return Ok(Vec::new()),
            listed => listed?,
        };
        if self.server.is_apart {
            // A listing does not tell on which device an inode is.
            let inodes = self.door.identities(&start, &entries);
            for (entry, attr) in entries.iter_mut().zip(inodes) {
                if let Some(attr) = attr {
                    entry.ino = self.server.shown(&attr).ino;
                }
            }
        }
        Ok(entries)
    }
}
