//! Requests about open files.

use crate::door::look;
use crate::reply::{Reply, opened};
use crate::server::{OpenFile, Outcome, Worker, locked};
use forebay_core::mounting::{backing_flags, server_moves_bytes};
use forebay_sys::{self as sys, Errno, Sys};
use forebay_types::Attr;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{ReadWriteFlags, retry_on_intr};
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Set-user-id, and set-group-id of a file that its group may execute.
fn without_privileges(mode: u32) -> u32 {
    let group = libc::S_ISGID | libc::S_IXGRP;
    match mode & group == group {
        true => mode & !(libc::S_ISUID | libc::S_ISGID),
        false => mode & !libc::S_ISUID,
    }
}

/// Flags to open a file that is emptied when it is known to be the right one. The kernel sees to it that a program only reads
/// what it has opened to read.
fn without_truncation(flags: i32) -> i32 {
    let access = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => libc::O_RDWR,
        access => access,
    };
    flags & !(libc::O_TRUNC | libc::O_ACCMODE) | access
}

/// Does an open fail so because its name leads to nothing, or to something else?
fn is_elsewhere(e: Errno) -> bool {
    matches!(e, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE)
}

/// Clears the bits by which a program gets privileges, before somebody without any changes the file.
pub fn drop_privileges(file: BorrowedFd<'_>) -> Sys<()> {
    let mode = sys::stat(file, b"")?.mode & 0o7777;
    match without_privileges(mode) {
        kept if kept == mode => Ok(()),
        kept => sys::chmod(file, kept),
    }
}

impl Worker<'_> {
    fn file(&self, handle: u64) -> Sys<Arc<OpenFile>> {
        let found = locked(&self.server.files).get(&handle).cloned();
        found.ok_or(Errno::BADF)
    }

    /// The descriptor of an open file.
    pub fn open_descriptor(&self, handle: u64) -> Sys<Arc<OwnedFd>> {
        Ok(self.file(handle)?.file.clone())
    }

    pub fn open(&mut self, node: u64, flags: i32, kill_suidgid: bool) -> Outcome {
        let file = self.granted(node, flags)?;
        if kill_suidgid {
            drop_privileges(file.as_fd())?;
        }
        self.opened(Reply::new(), node, file, flags)
    }

    /// Opens what the node stands for. If its name leads to something else, because others have renamed it or because
    /// the bridge has just staged it, the kernel looks the path up anew (ESTALE).
    fn granted(&mut self, node: u64, flags: i32) -> Sys<OwnedFd> {
        let flags = backing_flags(flags);
        let (identity, names) = self.whereabouts(node)?;
        let truncates = flags & libc::O_TRUNC != 0;
        for (parent, name) in names {
            let mut asked = flags;
            if truncates {
                // The wrong file must not lose its contents.
                let found = self.within(parent, |door, start| door.resolve(start, &name, 0));
                let found = match found {
                    Ok(found) => found,
                    Err(e) if is_elsewhere(e) => continue,
                    Err(e) => return Err(e),
                };
                if look(found.as_fd())?.1 != identity {
                    continue;
                }
                // Of a file of the PFS the bridge makes a whole copy if it does not know that nothing of it is wanted.
                if self.door.is_stored(found.as_fd()) {
                    asked = without_truncation(flags);
                }
            }
            let opened = self.within(parent, |door, start| door.open_file(start, &name, asked, 0));
            match opened {
                Ok(file) if look(file.as_fd())?.1 == identity => {
                    if asked != flags {
                        sys::set_size(file.as_fd(), 0)?;
                    }
                    return Ok(file);
                }
                Ok(_) => {}
                Err(e) if is_elsewhere(e) => {}
                Err(e) => return Err(e),
            }
        }
        // A file without a name, which somebody opens again through /proc.
        let open = locked(&self.server.nodes)
            .any_open(node)
            .ok_or(Errno::STALE)?;
        sys::open_path(
            Path::new(&sys::proc_link(open.as_fd())),
            flags & !libc::O_NOFOLLOW,
        )
    }

    pub fn create(&mut self, parent: u64, name: &[u8], flags: i32, mode: u32) -> Outcome {
        let asked = backing_flags(flags) | libc::O_CREAT;
        let file = self.within(parent, |door, start| {
            door.open_file(start, name, asked, mode & 0o7777)
        })?;
        let (attr, _) = look(file.as_fd())?;
        let name = (parent, name.to_vec());
        let (node, copy_of) = {
            let mut nodes = locked(&self.server.nodes);
            let node = nodes.looked_up(&attr, name, None);
            (node, nodes.copy_of(node))
        };
        let attr = Attr { copy_of, ..attr };
        let entry = Reply::entry(node, &self.server.shown(&attr));
        self.opened(entry, node, file, flags).inspect_err(|_| {
            locked(&self.server.nodes).forget(node, 1);
        })
    }

    /// Adds an open file to an answer. The kernel reads and writes it itself if it can. If not, it must not keep pages,
    /// because others change the file past it.
    fn opened(&mut self, reply: Reply, node: u64, file: OwnedFd, flags: i32) -> Outcome {
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if writes && flags & libc::O_DSYNC != 0 {
            // Each write is to be durable before it returns, and so must the name be.
            self.door.sync(0)?;
        }
        let (server, file) = (self.server, Arc::new(file));
        let back = || {
            let wanted = server.passthrough.load(Ordering::Relaxed);
            let id = wanted.then(|| sys::fuse_backing_open(server.device.as_fd(), file.as_fd()))?;
            if id == Err(Errno::PERM) {
                // It is not permitted for any other file either.
                server.passthrough.store(false, Ordering::Relaxed);
            }
            id.ok()
        };
        let backing = locked(&server.nodes).opened(node, &file, back);
        let handle = server.handle();
        let backed = backing.is_some();
        locked(&server.files).insert(handle, Arc::new(OpenFile { node, file, backed }));
        let mut how = opened::NO_FLUSH;
        if backed {
            how |= opened::PASSTHROUGH;
        }
        // With both, the kernel maps the backing file and lets the server read and write.
        if !backed || server_moves_bytes(flags) {
            how |= opened::DIRECT_IO | opened::PARALLEL_DIRECT_WRITES;
        }
        Ok(reply.open(handle, how, backing.unwrap_or(0)))
    }

    pub fn release(&mut self, handle: u64) -> Outcome {
        if let Some(open) = locked(&self.server.files).remove(&handle) {
            let unused = locked(&self.server.nodes).closed(open.node, &open.file, open.backed);
            if let Some(id) = unused {
                sys::fuse_backing_close(self.server.device.as_fd(), id);
            }
        }
        Ok(Reply::new())
    }

    pub fn read(&mut self, handle: u64, offset: u64, size: u32) -> Outcome {
        let file = self.open_descriptor(handle)?;
        Reply::filled(size as usize, |room| {
            let mut filled = 0;
            // A file gives all that there is, and fewer bytes only at its end.
            while filled < room.len() {
                let at = offset + filled as u64;
                match retry_on_intr(|| rustix::io::pread(&file, &mut room[filled..], at))? {
                    0 => break,
                    n => filled += n,
                }
            }
            Ok(filled)
        })
    }

    /// Writes at an offset, or at the end of the file. Where that is, the file system knows at the moment of the write: the kernel
    /// does not see what others append past the mount.
    pub fn write(
        &mut self,
        handle: u64,
        at: Option<u64>,
        data: &[u8],
        kill_suidgid: bool,
    ) -> Outcome {
        let file = self.open_descriptor(handle)?;
        if kill_suidgid {
            drop_privileges(file.as_fd())?;
        }
        let written = retry_on_intr(|| match at {
            Some(offset) => rustix::io::pwrite(&file, data, offset),
            None => {
                let data = [IoSlice::new(data)];
                rustix::io::pwritev2(&file, &data, 0, ReadWriteFlags::APPEND)
            }
        })?;
        Ok(Reply::size(written))
    }

    pub fn fsync(&mut self, handle: u64, data_only: bool) -> Outcome {
        let file = self.open_descriptor(handle)?;
        match data_only {
            true => rustix::fs::fdatasync(&file)?,
            false => rustix::fs::fsync(&file)?,
        }
        self.door.sync(0)?;
        Ok(Reply::new())
    }

    pub fn fallocate(&mut self, handle: u64, offset: u64, length: u64, mode: u32) -> Outcome {
        let file = self.open_descriptor(handle)?;
        let how = FallocateFlags::from_bits_retain(mode);
        retry_on_intr(|| rustix::fs::fallocate(&file, how, offset, length))?;
        Ok(Reply::new())
    }

    /// Where data or a hole begins. Other places the kernel finds itself.
    pub fn lseek(&mut self, handle: u64, offset: u64, whence: u32) -> Outcome {
        let file = self.open_descriptor(handle)?;
        let to = match whence as i32 {
            libc::SEEK_DATA => SeekFrom::Data(offset),
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        Ok(Reply::offset(rustix::fs::seek(&file, to)?))
    }

    pub fn copy_file_range(&mut self, from: (u64, u64), to: (u64, u64), length: u64) -> Outcome {
        let (source, target) = (self.open_descriptor(from.0)?, self.open_descriptor(to.0)?);
        let (mut read, mut written) = (from.1, to.1);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let copied = rustix::fs::copy_file_range(
            &source,
            Some(&mut read),
            &target,
            Some(&mut written),
            // The answer has 32 bits.
            length.min(1 << 30),
        )?;
        Ok(Reply::size(copied))
    }
}

#[cfg(test)]
mod tests {
    use super::{without_privileges, without_truncation};

    #[test]
    fn a_file_that_is_to_be_emptied_is_opened_whole_and_for_writing() {
        let also = libc::O_TRUNC | libc::O_APPEND;
        for (access, asked) in [
            (libc::O_RDONLY, libc::O_RDWR),
            (libc::O_WRONLY, libc::O_WRONLY),
            (libc::O_RDWR, libc::O_RDWR),
        ] {
            assert_eq!(without_truncation(access | also), asked | libc::O_APPEND);
        }
    }

    #[test]
    fn a_file_that_somebody_changes_gives_no_privileges() {
        assert_eq!(without_privileges(0o4755), 0o755);
        assert_eq!(without_privileges(0o2755), 0o755);
        assert_eq!(
            without_privileges(0o2745),
            0o2745,
            "mandatory locking, not privileges"
        );
        assert_eq!(without_privileges(0o1644), 0o1644);
    }
}
