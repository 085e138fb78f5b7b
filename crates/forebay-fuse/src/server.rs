//! The server: threads that read requests of the kernel and answer them.

use crate::device::Device;
use crate::door::{self, Door, Start, ask_where_it_is, look};
use crate::nodes::{Identity, Name, Nodes};
use crate::protocol::{
    self, Call, MAJOR, NEWEST_MINOR, OLDEST_MINOR, REQUEST_BYTES, ROOT, Request, capability,
};
use crate::reply::Reply;
use forebay_core::mounting::MappedIds;
use forebay_sys::{self as sys, Errno, Sys};
use forebay_types::Attr;
use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads that answer. One request may wait for the PFS while others go on.
const THREADS: usize = 8;
/// How long a request waits for a bridge that is gone. Then the program gets EIO.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the server asks of the kernel, if it has it.
const WANTED: u64 = capability::ASYNC_READ
    | capability::ATOMIC_O_TRUNC
    | capability::BIG_WRITES
    | capability::PARALLEL_DIROPS
    | capability::MAX_PAGES
    | capability::HANDLE_KILLPRIV_V2
    | capability::INIT_EXT
    | capability::PASSTHROUGH;
/// Backing files may not be on a file system that is stacked on another one.
const STACKED: u32 = 1;
/// Bits by which inode numbers of several devices are kept apart.
const DEVICE_SHIFT: u32 = 56;

/// Why a server cannot begin.
#[derive(Debug)]
pub enum Error {
    /// The bridge does not answer.
    Bridge(forebay_client::Error),
    /// A system call has failed.
    System(&'static str, Errno),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Bridge(e) => e.fmt(f),
            Error::System(what, e) => write!(f, "{what}: {}", std::io::Error::from(*e)),
        }
    }
}

impl std::error::Error for Error {}

/// An open file.
pub struct OpenFile {
    pub node: u64,
    pub file: Arc<OwnedFd>,
    /// The kernel reads and writes it itself.
    pub backed: bool,
}

/// An open directory: what its last listing has shown, inode numbers as programs see them.
#[derive(Default)]
pub struct OpenDir {
    pub listing: Mutex<Option<Vec<forebay_client::Entry>>>,
}

/// Serves one mount.
pub struct Server {
    pub(crate) device: Device,
    socket: PathBuf,
    /// Who has numbers in the user namespace of the mount, if it is in one.
    mapped: Option<MappedIds>,
    pub(crate) nodes: Mutex<Nodes>,
    pub(crate) files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    pub(crate) dirs: Mutex<HashMap<u64, Arc<OpenDir>>>,
    last_handle: AtomicU64,
    pub(crate) passthrough: AtomicBool,
    /// Devices that were seen; the first is that of the PFS directory.
    devices: Mutex<Vec<u64>>,
    /// The storage is on another device than the PFS directory.
    pub(crate) is_apart: bool,
}

/// What a thread that carries a request out has at hand.
pub struct Worker<'a> {
    pub server: &'a Server,
    pub door: Door,
}

/// The value behind a lock. No thread panics while it holds one: the process would end.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// A server for `device` that asks the bridge behind `socket`. `mapped` is who has numbers in the user namespace of the
    /// mount, if it is in one.
    ///
    /// # Errors
    /// [`Error`]: the bridge does not answer, or its root cannot be opened.
    pub fn new(device: Device, socket: &Path, mapped: Option<MappedIds>) -> Result<Server, Error> {
        let mut door = Door::open(socket, PATIENCE).map_err(Error::Bridge)?;
        let failed = |e| Error::System("the buffer root", e);
        let root = door.resolve(&Start::Root, b"", 0).map_err(failed)?;
        let (attr, _) = look(root.as_fd()).map_err(failed)?;
        let storage = door
            .storage_device()
            .map_err(|e| Error::System("the storage", e))?;
        Ok(Server {
            device,
            socket: socket.to_owned(),
            mapped,
            nodes: Mutex::new(Nodes::new(root, &attr)),
            files: Mutex::default(),
            dirs: Mutex::default(),
            last_handle: AtomicU64::new(0),
            passthrough: AtomicBool::new(false),
            devices: Mutex::new(vec![attr.dev, storage]),
            is_apart: attr.dev != storage,
        })
    }

    /// What it serves.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Answers requests until the file system is unmounted and nobody uses it any more.
    ///
    /// # Errors
    /// [`Error`]: the bridge refuses further connections.
    pub fn serve(&self) -> Result<(), Error> {
        let doors: Result<Vec<_>, _> = (0..THREADS)
            .map(|_| Door::open(&self.socket, PATIENCE).map_err(Error::Bridge))
            .collect();
        side_by_side(doors?, |door| Worker { server: self, door }.run());
        door::close();
        Ok(())
    }

    /// A number for an open file or directory.
    pub(crate) fn handle(&self) -> u64 {
        self.last_handle.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The attributes as programs see them. All is on one device for them, so the inode numbers of several are kept apart.
    /// A copy shows the number of its original.
    /// What belongs to a group without a number shows another one.
    pub(crate) fn shown(&self, attr: &Attr) -> Attr {
        if attr.copy_of != 0 {
            return self.mapped_group(Attr {
                ino: attr.copy_of,
                ..*attr
            });
        }
        let mut devices = locked(&self.devices);
        let which = devices.iter().position(|&dev| dev == attr.dev);
        let which = which.unwrap_or_else(|| {
            devices.push(attr.dev);
            devices.len() - 1
        });
        self.mapped_group(Attr {
            ino: attr.ino ^ (which as u64) << DEVICE_SHIFT,
            ..*attr
        })
    }

    fn mapped_group(&self, attr: Attr) -> Attr {
        let mapped = self.mapped;
        Attr {
            gid: mapped.map_or(attr.gid, |ids| ids.shown_group(attr.uid, attr.gid)),
            ..attr
        }
    }
}

/// Does `work` with each of `all` at once: with one of them in this thread, with the others in threads of their own, as far as
/// those can be started.
fn side_by_side<T: Send>(mut all: Vec<T>, work: impl Fn(T) + Sync) {
    let Some(own) = all.pop() else {
        return;
    };
    std::thread::scope(|scope| {
        sys::start_threads(scope, all, &work);
        work(own);
    });
}

/// The answer to the first request of the kernel, and whether it reads and writes backing files itself.
pub(crate) fn agree(
    major: u32,
    minor: u32,
    readahead: u32,
    capabilities: u64,
) -> Sys<(Reply, bool)> {
    if major != MAJOR || minor < OLDEST_MINOR {
        eprintln!(
            "forebay: the kernel speaks FUSE {major}.{minor}; {MAJOR}.{OLDEST_MINOR} is needed"
        );
        return Err(Errno::PROTO);
    }
    let both = capabilities & WANTED;
    let passes_through = both & capability::PASSTHROUGH != 0;
    let stacked = if passes_through { STACKED } else { 0 };
    let reply = Reply::init(minor.min(NEWEST_MINOR), readahead, both, stacked);
    Ok((reply, passes_through))
}

/// What became of a request.
pub type Outcome = Sys<Reply>;

impl Worker<'_> {
    fn run(mut self) {
        let mut room = vec![0; REQUEST_BYTES];
        loop {
            match rustix::io::read(&self.server.device, &mut room[..]) {
                Ok(len) => self.answer(&room[..len]),
                // Unmounted.
                Err(Errno::NODEV) => return,
                // A signal, or a request that was called off before it was read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                Err(e) => {
                    eprintln!("forebay: /dev/fuse: {}", std::io::Error::from(e));
                    return;
                }
            }
        }
    }

    fn answer(&mut self, message: &[u8]) {
        let Ok(request) = protocol::decode(message) else {
            // The kernel keeps to its protocol, so this is one that the server does not know.
            eprintln!(
                "forebay: a request of {} bytes makes no sense",
                message.len()
            );
            // Whoever has asked must not wait for ever.
            if let Some(unique) = protocol::awaits_answer(message) {
                let failed = Reply::failed(unique, Errno::IO.raw_os_error());
                let _ = rustix::io::write(&self.server.device, &failed);
            }
            return;
        };
        match request.call {
            Call::Forget { lookups } => {
                locked(&self.server.nodes).forget(request.node, lookups);
                return;
            }
            Call::BatchForget { pairs } => {
                let mut nodes = locked(&self.server.nodes);
                protocol::forgotten(pairs).for_each(|(node, lookups)| nodes.forget(node, lookups));
                return;
            }
            _ => {}
        }
        let message = match self.carry_out(&request) {
            Ok(reply) => reply.message(request.unique),
            Err(e) => Reply::failed(request.unique, e.raw_os_error()),
        };
        // ENOENT: whoever has asked is gone. What was opened or looked up for it is not told to be closed or forgotten,
        // which costs its memory until the mount ends.
        let _ = rustix::io::write(&self.server.device, &message);
    }

    fn carry_out(&mut self, request: &Request<'_>) -> Outcome {
        let node = request.node;
        match request.call {
            Call::Init {
                major,
                minor,
                readahead,
                capabilities,
            } => self.init(major, minor, readahead, capabilities),
            Call::Lookup { name } => self.lookup(node, name),
            Call::Getattr { handle } => self.getattr(node, handle),
            Call::Setattr(change) => self.setattr(node, &change),
            Call::Readlink => self.readlink(node),
            Call::Symlink { name, text } => self.symlink(node, name, text),
            Call::Mknod { name, mode, device } => self.mknod(node, name, mode, device),
            Call::Mkdir { name, mode } => self.mkdir(node, name, mode),
            Call::Unlink { name } => self.remove(node, name, false),
            Call::Rmdir { name } => self.remove(node, name, true),
            Call::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => self.rename((node, name), (new_parent, new_name), flags),
            Call::Link { old, name } => self.link(old, node, name),
            Call::Open {
                flags,
                kill_suidgid,
            } => self.open(node, flags as i32, kill_suidgid),
            Call::Create { name, flags, mode } => self.create(node, name, flags as i32, mode),
            Call::Read {
                handle,
                offset,
                size,
            } => self.read(handle, offset, size),
            Call::Write {
                handle,
                offset,
                data,
                appends,
                kill_suidgid,
            } => {
                let at = if appends { None } else { Some(offset) };
                self.write(handle, at, data, kill_suidgid)
            }
            Call::Statfs => self.statfs(node),
            Call::Release { handle } => self.release(handle),
            Call::Fsync { handle, data_only } => self.fsync(handle, data_only),
            Call::Fsyncdir => self.door.sync(0).map(|()| Reply::new()),
            Call::Syncfs => self.door.sync(forebay_wire::WHOLE).map(|()| Reply::new()),
            Call::Setxattr { name, value, flags } => self.setxattr(node, name, value, flags),
            Call::Getxattr { name, size } => self.getxattr(node, name, size),
            Call::Listxattr { size } => self.listxattr(node, size),
            Call::Removexattr { name } => self.removexattr(node, name),
            Call::Opendir => self.opendir(node),
            Call::Readdir {
                handle,
                offset,
                size,
            } => self.readdir(node, handle, offset, size),
            Call::Releasedir { handle } => {
                locked(&self.server.dirs).remove(&handle);
                Ok(Reply::new())
            }
            Call::Access { mask } => self.access(node, mask),
            Call::Fallocate {
                handle,
                offset,
                length,
                mode,
            } => self.fallocate(handle, offset, length, mode),
            Call::Lseek {
                handle,
                offset,
                whence,
            } => self.lseek(handle, offset, whence),
            Call::CopyFileRange {
                from,
                from_offset,
                to,
                to_offset,
                length,
            } => self.copy_file_range((from, from_offset), (to, to_offset), length),
            Call::Tmpfile => Err(Errno::OPNOTSUPP),
            Call::Unknown => Err(Errno::NOSYS),
            Call::Forget { .. } | Call::BatchForget { .. } => unreachable!("they have no answer"),
        }
    }

    fn init(&mut self, major: u32, minor: u32, readahead: u32, capabilities: u64) -> Outcome {
        let (reply, passes_through) = agree(major, minor, readahead, capabilities)?;
        self.server
            .passthrough
            .store(passes_through, Ordering::Relaxed);
        Ok(reply)
    }

    /// The directory of a node, as a request names it.
    pub fn start(&self, node: u64) -> Sys<Start> {
        let dir = locked(&self.server.nodes).dir(node).ok_or(Errno::STALE)?;
        self.door.start(dir.as_fd())
    }

    /// Asks the bridge about something in the directory of a node.
    pub fn within<T>(
        &mut self,
        node: u64,
        mut ask: impl FnMut(&mut Door, &Start) -> Sys<T>,
    ) -> Sys<T> {
        ask_where_it_is(|| {
            let start = self.start(node)?;
            ask(&mut self.door, &start)
        })
    }

    /// A node that the kernel gets to know by a name.
    pub fn entry(&mut self, parent: u64, name: &[u8]) -> Sys<(u64, Attr)> {
        let mut attr = self.within(parent, |door, start| door.stat(start, name))?;
        let mut dir = None;
        if attr.is_dir() {
            dir = locked(&self.server.nodes).known_dir(&attr);
            if dir.is_none() {
                let found = self.within(parent, |door, start| {
                    door.resolve(start, name, forebay_wire::DIRECTORY)
                })?;
                attr = sys::stat(found.as_fd(), b"")?;
                dir = Some(Arc::new(found));
            }
        }
        let name = (parent, name.to_vec());
        let node = locked(&self.server.nodes).looked_up(&attr, name, dir);
        Ok((node, self.server.shown(&attr)))
    }

    /// What a node is, and its names.
    pub fn whereabouts(&self, node: u64) -> Sys<(Identity, Vec<Name>)> {
        let found = locked(&self.server.nodes).whereabouts(node);
        found.ok_or(Errno::STALE)
    }

    /// A name at which the node is now, with its attributes.
    ///
    /// # Errors
    /// ESTALE: none of those that are known leads to it. Then the kernel looks its path up anew.
    pub fn name_of(&mut self, node: u64) -> Sys<(Start, Vec<u8>, Attr)> {
        let (identity, names) = self.whereabouts(node)?;
        for (parent, name) in names {
            let found = self.within(parent, |door, start| {
                Ok((start.clone(), door.stat(start, &name)?))
            });
            match found {
                Ok((start, attr)) if Identity::of(&attr) == identity => {
                    return Ok((start, name, attr));
                }
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => {}
                Err(e) => return Err(e),
            }
        }
        Err(Errno::STALE)
    }

    /// A descriptor of a node: that of the directory, one that somebody has open, or one with which nothing can be
    /// read or written. `flags` as for [`forebay_wire::Op::Resolve`].
    pub fn object(&mut self, node: u64, flags: u32) -> Sys<Arc<OwnedFd>> {
        {
            let nodes = locked(&self.server.nodes);
            if let Some(known) = nodes.dir(node).or_else(|| nodes.any_open(node)) {
                return Ok(known);
            }
        }
        debug_assert_ne!(node, ROOT, "the root is a directory");
        let (identity, names) = self.whereabouts(node)?;
        for (parent, name) in names {
            match self.within(parent, |door, start| door.resolve(start, &name, flags)) {
                Ok(found) => {
                    if identity.is_backed_by(&sys::stat(found.as_fd(), b"")?) {
                        return Ok(Arc::new(found));
                    }
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => {}
                Err(e) => return Err(e),
            }
        }
        Err(Errno::STALE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_also_where_no_thread_can_be_started() {
        let test = "server::tests::requests_are_answered_also_where_no_thread_can_be_started";
        forebay_testkit::without_threads(test, || {
            let served = Mutex::new(Vec::new());
            side_by_side(vec![1, 2, 3], |door| locked(&served).push(door));
            assert_eq!(served.into_inner().unwrap(), [3]);
        });
    }
}
