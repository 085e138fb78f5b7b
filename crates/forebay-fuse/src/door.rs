//! Asks the bridge. Each thread has a door of its own.

use crate::nodes::Identity;
use forebay_client::{Answer, Client, Entry, Error};
use forebay_hook::path::{Spot, classify};
use forebay_sys::{self as sys, Errno, Sys};
use forebay_types::Attr;
use forebay_wire::{Base, NOFOLLOW, Op, Request, START_MOVED};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// The way to a bridge.
pub struct Door {
    client: Client,
    root: Vec<u8>,
    instance: Vec<u8>,
}

/// A directory, as a request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The buffer root.
    Root,
    /// Made in the buffer.
    Object(u128),
    /// A directory of the PFS, by its path below the root.
    Lower(Vec<u8>),
}

impl Start {
    /// The same, as the protocol has it.
    pub fn base(&self) -> Base<'_> {
        match self {
            Start::Root => Base::Root,
            Start::Object(id) => Base::Object(*id),
            Start::Lower(path) => Base::Lower(path),
        }
    }
}

/// The path by which a descriptor of this process can be opened again.
pub fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// The errno that a program gets. A bridge that is gone is an error of input and output.
fn errno_of(error: &Error) -> Errno {
    match error {
        // It was removed, or a drain has renamed it since its path was read.
        Error::Errno(START_MOVED) => Errno::NOENT,
        Error::Errno(e) => Errno::from_raw_os_error(*e),
        _ => Errno::IO,
    }
}

impl Door {
    /// Connects to the bridge behind a socket. Requests wait up to `patience` for a bridge that is gone.
    ///
    /// # Errors
    /// Those of [`Client::connect`] and [`Client::hello`].
    pub fn open(socket: &Path, patience: Duration) -> Result<Door, Error> {
        let mut client = Client::connect(socket)?;
        client.set_patience(patience);
        let hello = client.hello()?;
        Ok(Door {
            client,
            root: hello.root.as_os_str().as_bytes().to_vec(),
            instance: hello.instance.as_os_str().as_bytes().to_vec(),
        })
    }

    /// The device that holds what is in the buffer.
    pub fn storage_device(&self) -> Sys<u64> {
        let instance = Path::new(std::ffi::OsStr::from_bytes(&self.instance));
        let dir = sys::open_path(instance, libc::O_PATH)?;
        Ok(sys::stat(dir.as_fd(), b"")?.dev)
    }

    /// What a request has to name for the directory `dir`. The kernel is asked each time, because a drain may move a
    /// directory of the PFS.
    pub fn start(&self, dir: BorrowedFd<'_>) -> Sys<Start> {
        let path = sys::readlink(rustix::fs::CWD, proc_path(dir).as_bytes())?;
        match classify(&path, &self.root, &self.instance) {
            Spot::Dir(id) => Ok(Start::Object(id)),
            Spot::Lower(b"") => Ok(Start::Root),
            Spot::Lower(path) => Ok(Start::Lower(path.to_vec())),
            _ => Err(Errno::NOENT),
        }
    }

    fn ask(&mut self, request: Request<'_>) -> Sys<Answer> {
        self.client.ask(request).map_err(|e| errno_of(&e))
    }

    fn descriptor(&mut self, request: Request<'_>) -> Sys<OwnedFd> {
        self.ask(request)?.fd.ok_or(Errno::IO)
    }

    /// A request whose answer is only whether it was carried out.
    pub fn change(&mut self, request: Request<'_>) -> Sys<()> {
        self.ask(request).map(drop)
    }

    /// Attributes of a name.
    pub fn stat(&mut self, dir: &Start, name: &[u8]) -> Sys<Attr> {
        let answer = self.ask(stat_request(dir, name))?;
        Attr::decode(&answer.body).map_err(|_| Errno::IO)
    }

    /// A descriptor of what is at a name, with which nothing can be read or written. `flags` as for [`Op::Resolve`].
    pub fn resolve(&mut self, dir: &Start, name: &[u8], flags: u32) -> Sys<OwnedFd> {
        self.descriptor(Request {
            arg0: flags | NOFOLLOW,
            base1: dir.base(),
            str1: name,
            ..Request::new(Op::Resolve)
        })
    }

    /// Opens or creates a file.
    pub fn open_file(&mut self, dir: &Start, name: &[u8], flags: i32, mode: u32) -> Sys<OwnedFd> {
        self.descriptor(Request {
            arg0: (flags | libc::O_NOFOLLOW | libc::O_CLOEXEC) as u32,
            arg1: mode,
            base1: dir.base(),
            str1: name,
            ..Request::new(Op::Open)
        })
    }

    /// The text of a symbolic link.
    pub fn readlink(&mut self, dir: &Start, name: &[u8]) -> Sys<Vec<u8>> {
        let request = Request {
            base1: dir.base(),
            str1: name,
            ..Request::new(Op::Readlink)
        };
        Ok(self.ask(request)?.body)
    }

    /// Makes the names of the buffer durable; with `flags` see [`Op::Sync`].
    pub fn sync(&mut self, flags: u32) -> Sys<()> {
        self.change(Request {
            arg0: flags,
            ..Request::new(Op::Sync)
        })
    }

    /// All entries of a directory, `.` and `..` included.
    pub fn list(&mut self, dir: &Start) -> Sys<Vec<Entry>> {
        let listed = self.client.list_at(dir.base(), b"");
        listed.map_err(|e| errno_of(&e))
    }

    /// The inodes at these names, several asked for at a time; `None` for a name that is gone.
    pub fn identities(&mut self, dir: &Start, names: &[Entry]) -> Vec<Option<Attr>> {
        let mut found = Vec::with_capacity(names.len());
        for some in names.chunks(AT_A_TIME) {
            let asked: Vec<_> = some
                .iter()
                .map(|entry| self.client.begin(stat_request(dir, &entry.name)))
                .collect();
            for pending in asked {
                let answer = pending.and_then(|pending| self.client.finish(pending));
                found.push(answer.ok().and_then(|a| Attr::decode(&a.body).ok()));
            }
        }
        found
    }
}

/// Requests in flight for one listing. Each needs a connection.
const AT_A_TIME: usize = 8;

fn stat_request<'a>(dir: &'a Start, name: &'a [u8]) -> Request<'a> {
    Request {
        arg0: NOFOLLOW,
        base1: dir.base(),
        str1: name,
        ..Request::new(Op::Stat)
    }
}

/// Attributes and identity of what a descriptor leads to.
pub fn look(fd: BorrowedFd<'_>) -> Sys<(Attr, Identity)> {
    let attr = sys::stat(fd, b"")?;
    Ok((attr, Identity::of(&attr)))
}
