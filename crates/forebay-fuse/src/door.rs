//! Asks the bridge. Each thread has a door of its own.
//!
//! Most requests go by the link that the libraries in programs use as well: it has lanes, by which a request costs no system
//! call and wakes nobody while the bridge attends. Listings, whose answers are long, go by a client.

use crate::nodes::Identity;
use forebay_client::{Client, Entry, Error};
use forebay_hook::path::{Spot, classify};
use forebay_link::{Answer, Config, ENV_RECONNECT, Fail, Link};
use forebay_sys::{self as sys, Errno, Sys};
use forebay_types::{Attr, Inode};
use forebay_wire::{Base, ENV_BUFFER, ENV_SOCKET, NOFOLLOW, Op, Request};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// The connections of this process, for all threads.
static LINK: Link = Link::new();

/// Closes the connections, when no thread asks any more: a bridge does not end while a program is connected.
pub fn close() {
    LINK.make_way_for_range(0, u32::MAX);
}

/// The way to a bridge.
pub struct Door {
    client: Client,
    config: Box<Config>,
    answer: Box<Answer>,
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
    /// A directory of the PFS, by its path below the root, and which one it is.
    Lower(Vec<u8>, Inode),
}

impl Start {
    /// The same, as the protocol has it.
    pub fn base(&self) -> Base<'_> {
        match self {
            Start::Root => Base::Root,
            Start::Object(id) => Base::Object(*id),
            Start::Lower(path, inode) => Base::Lower(path, *inode),
        }
    }
}

/// Asks the bridge, and asks anew if a directory has moved. `ask` begins with [`Door::start`].
///
/// # Errors
/// ENOENT if the directory was removed.
pub fn ask_where_it_is<T>(mut ask: impl FnMut() -> Sys<T>) -> Sys<T> {
    forebay_link::ask_where_it_is(|| ask().map_err(|e| e.raw_os_error().into())).map_err(|fail| {
        match fail {
            Fail::Errno(e) => Errno::from_raw_os_error(e),
            Fail::Redirect => unreachable!("errors of this door are numbers"),
        }
    })
}

/// The errno that a program gets. A bridge that is gone is an error of input and output.
fn errno_of(error: &Error) -> Errno {
    match error {
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
        let entry = |name: &str, value: &Path| {
            [name.as_bytes(), b"=", value.as_os_str().as_bytes()].concat()
        };
        let entries = [
            entry(ENV_BUFFER, &hello.root),
            entry(ENV_SOCKET, socket),
            format!("{ENV_RECONNECT}={}", patience.as_secs()).into_bytes(),
        ];
        let mut config = Box::new(Config::EMPTY);
        if !config.read(entries.iter().map(Vec::as_slice)) {
            let why = format!("{} is too long, or not absolute", socket.display());
            return Err(Error::Protocol(why));
        }
        Ok(Door {
            client,
            config,
            answer: Box::new(Answer::new()),
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
        let path = sys::readlink(rustix::fs::CWD, sys::proc_link(dir).as_bytes())?;
        match classify(&path, &self.root, &self.instance) {
            Spot::Dir(id) => Ok(Start::Object(id)),
            Spot::Lower(b"") => Ok(Start::Root),
            Spot::Lower(path) => {
                let inode = sys::stat(dir, b"")?.inode();
                Ok(Start::Lower(path.to_vec(), inode))
            }
            _ => Err(Errno::NOENT),
        }
    }

    /// Is this a file in the buffer, and not on the PFS?
    pub fn is_stored(&self, file: BorrowedFd<'_>) -> bool {
        let path = sys::readlink(rustix::fs::CWD, sys::proc_link(file).as_bytes());
        path.is_ok_and(|path| {
            let spot = classify(&path, &self.root, &self.instance);
            matches!(spot, Spot::File(..))
        })
    }

    /// Asks, and gives the body of the answer.
    fn ask(&mut self, mut request: Request<'_>) -> Sys<&[u8]> {
        let asked = LINK.ask(&self.config, &mut request, true, &mut self.answer);
        match asked {
            Ok(()) => Ok(self.answer.body()),
            Err(Fail::Errno(e)) => Err(Errno::from_raw_os_error(e)),
            Err(Fail::Redirect) => Err(Errno::IO),
        }
    }

    fn descriptor(&mut self, request: Request<'_>) -> Sys<OwnedFd> {
        self.ask(request)?;
        let granted = self.answer.take_fd();
        sys::inherited_descriptor(granted.map_err(Errno::from_raw_os_error)?.into_raw())
    }

    /// A request whose answer is only whether it was carried out.
    pub fn change(&mut self, request: Request<'_>) -> Sys<()> {
        self.ask(request).map(drop)
    }

    /// Attributes of a name.
    pub fn stat(&mut self, dir: &Start, name: &[u8]) -> Sys<Attr> {
        let body = self.ask(stat_request(dir, name))?;
        Attr::decode(body).map_err(|_| Errno::IO)
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
        self.ask(request).map(<[u8]>::to_vec)
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

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_wire::{START_MOVED, START_TAKEN};

    #[test]
    fn a_directory_that_has_moved_is_asked_for_again_and_one_that_was_removed_is_gone() {
        let [moved, taken] = [START_MOVED, START_TAKEN].map(Errno::from_raw_os_error);
        let asked = |answers: &[Sys<u32>]| {
            let mut answers = answers.iter();
            ask_where_it_is(|| *answers.next().unwrap_or(&Err(moved)))
        };
        assert_eq!(asked(&[Err(moved), Err(taken), Ok(5)]), Ok(5));
        assert_eq!(asked(&[Err(Errno::ACCESS), Ok(5)]), Err(Errno::ACCESS));
        assert_eq!(asked(&[]), Err(Errno::NOENT));
    }
}
