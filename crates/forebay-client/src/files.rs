//! File operations of a client, named after the system calls.

use crate::{Answer, Client, Error, Result, path_of};
use forebay_wire::{Attr, Base, DirEntries, NOFOLLOW, Op, REMOVE_DIR, ReplyKind, Request, WHOLE};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// What a bridge says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Canonical path of the buffer root.
    pub root: PathBuf,
    /// Instance directory of the bridge on local storage.
    pub instance: PathBuf,
}

/// An entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: u64,
    /// `DT_*` value.
    pub dtype: u8,
}

impl Client {
    fn ask_of_kind(&mut self, request: Request<'_>, kind: ReplyKind) -> Result<Answer> {
        let answer = self.ask(request)?;
        if answer.kind != kind {
            return Err(Error::Protocol(format!(
                "{:?} to {:?}, not {kind:?}",
                answer.kind, request.op
            )));
        }
        Ok(answer)
    }

    fn descriptor(&mut self, request: Request<'_>) -> Result<OwnedFd> {
        let answer = self.ask_of_kind(request, ReplyKind::Grant)?;
        answer
            .fd
            .ok_or_else(|| Error::Protocol("a grant without a descriptor".into()))
    }

    fn done(&mut self, request: Request<'_>) -> Result<()> {
        self.ask_of_kind(request, ReplyKind::Empty).map(drop)
    }

    /// Asks the bridge which buffer it serves.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn hello(&mut self) -> Result<Hello> {
        let body = self
            .ask_of_kind(Request::new(Op::Hello), ReplyKind::Bytes)?
            .body;
        let nul = body
            .iter()
            .position(|&b| b == 0)
            .ok_or_else(|| Error::Protocol("a greeting without a NUL".into()))?;
        Ok(Hello {
            instance: path_of(body[nul + 1..].to_vec()),
            root: path_of(body[..nul].to_vec()),
        })
    }

    /// `open(2)` with `O_*` flags and a mode. The descriptor closes on exec.
    ///
    /// # Errors
    /// As `open(2)`, and as [`Client::ask`].
    pub fn open(&mut self, path: impl AsRef<[u8]>, flags: i32, mode: u32) -> Result<OwnedFd> {
        self.descriptor(Request {
            arg0: flags as u32,
            arg1: mode,
            str1: path.as_ref(),
            ..Request::new(Op::Open)
        })
    }

    /// An `O_PATH` descriptor of the object. `flags` are those of [`Op::Resolve`].
    ///
    /// # Errors
    /// As `open(2)`, and as [`Client::ask`].
    pub fn resolve(&mut self, path: impl AsRef<[u8]>, flags: u32) -> Result<OwnedFd> {
        self.descriptor(Request {
            arg0: flags,
            str1: path.as_ref(),
            ..Request::new(Op::Resolve)
        })
    }

    fn attributes(&mut self, path: &[u8], flags: u32) -> Result<Attr> {
        let request = Request {
            arg0: flags,
            str1: path,
            ..Request::new(Op::Stat)
        };
        let answer = self.ask_of_kind(request, ReplyKind::Attr)?;
        Attr::decode(&answer.body).map_err(|e| Error::Protocol(e.to_string()))
    }

    /// `stat(2)`.
    ///
    /// # Errors
    /// As `stat(2)`, and as [`Client::ask`].
    pub fn stat(&mut self, path: impl AsRef<[u8]>) -> Result<Attr> {
        self.attributes(path.as_ref(), 0)
    }

    /// `lstat(2)`.
    ///
    /// # Errors
    /// As `lstat(2)`, and as [`Client::ask`].
    pub fn lstat(&mut self, path: impl AsRef<[u8]>) -> Result<Attr> {
        self.attributes(path.as_ref(), NOFOLLOW)
    }

    /// `mkdir(2)`.
    ///
    /// # Errors
    /// As `mkdir(2)`, and as [`Client::ask`].
    pub fn mkdir(&mut self, path: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        self.done(Request {
            arg1: mode,
            str1: path.as_ref(),
            ..Request::new(Op::Mkdir)
        })
    }

    /// `unlink(2)`.
    ///
    /// # Errors
    /// As `unlink(2)`, and as [`Client::ask`].
    pub fn unlink(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        self.done(Request {
            str1: path.as_ref(),
            ..Request::new(Op::Unlink)
        })
    }

    /// `rmdir(2)`.
    ///
    /// # Errors
    /// As `rmdir(2)`, and as [`Client::ask`].
    pub fn rmdir(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        self.done(Request {
            arg0: REMOVE_DIR,
            str1: path.as_ref(),
            ..Request::new(Op::Unlink)
        })
    }

    /// `rename(2)`.
    ///
    /// # Errors
    /// As `rename(2)`, and as [`Client::ask`].
    pub fn rename(&mut self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<()> {
        self.done(Request {
            str1: old.as_ref(),
            str2: new.as_ref(),
            ..Request::new(Op::Rename)
        })
    }

    /// `link(2)`: makes `new` a hard link to `old`.
    ///
    /// # Errors
    /// As `link(2)`, and as [`Client::ask`].
    pub fn link(&mut self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<()> {
        self.done(Request {
            str1: old.as_ref(),
            str2: new.as_ref(),
            ..Request::new(Op::Link)
        })
    }

    /// `symlink(2)`: makes a symbolic link at `path` with the text `text`.
    ///
    /// # Errors
    /// As `symlink(2)`, and as [`Client::ask`].
    pub fn symlink(&mut self, text: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<()> {
        self.done(Request {
            str1: path.as_ref(),
            str2: text.as_ref(),
            ..Request::new(Op::Symlink)
        })
    }

    /// `mkfifo(2)` and `mknod(2)`: `mode` includes the type, and `device` matters for devices only.
    ///
    /// # Errors
    /// As `mknod(2)`, and as [`Client::ask`].
    pub fn mknod(&mut self, path: impl AsRef<[u8]>, mode: u32, device: u64) -> Result<()> {
        self.done(Request {
            arg1: mode,
            arg2: device,
            str1: path.as_ref(),
            ..Request::new(Op::Mknod)
        })
    }

    /// `readlink(2)`.
    ///
    /// # Errors
    /// As `readlink(2)`, and as [`Client::ask`].
    pub fn readlink(&mut self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let request = Request {
            str1: path.as_ref(),
            ..Request::new(Op::Readlink)
        };
        Ok(self.ask_of_kind(request, ReplyKind::Bytes)?.body)
    }

    /// Makes the names of the buffer durable; with `whole` also the data of all files in it, as `syncfs(2)`. The data of
    /// one file is made durable by `fsync(2)` on its descriptor.
    ///
    /// # Errors
    /// As `fsync(2)`, and as [`Client::ask`].
    pub fn sync(&mut self, whole: bool) -> Result<()> {
        self.done(Request {
            arg0: if whole { WHOLE } else { 0 },
            ..Request::new(Op::Sync)
        })
    }

    /// All entries of a directory, without "." and "..", sorted by name.
    ///
    /// # Errors
    /// As `opendir(3)`, and as [`Client::ask`].
    pub fn list(&mut self, path: impl AsRef<[u8]>) -> Result<Vec<Entry>> {
        let mut entries = self.list_at(Base::Root, path.as_ref())?;
        entries.retain(|e| e.name != b"." && e.name != b"..");
        Ok(entries)
    }

    /// All entries of the directory at a path from `base`, with "." and "..".
    ///
    /// # Errors
    /// As [`Client::list`].
    pub fn list_at(&mut self, base: Base<'_>, path: &[u8]) -> Result<Vec<Entry>> {
        let mut entries = Vec::<Entry>::new();
        let mut session = 0;
        loop {
            let last = entries.last().map_or(&b""[..], |e| &e.name);
            let request = Request {
                arg2: session,
                base1: base,
                str1: path,
                str2: last,
                ..Request::new(Op::ReadDir)
            };
            let answer = self.ask_of_kind(request, ReplyKind::Entries)?;
            let before = entries.len();
            entries.extend(DirEntries::new(&answer.body).map(|e| Entry {
                name: e.name.to_vec(),
                ino: e.ino,
                dtype: e.dtype,
            }));
            session = answer.aux;
            if session == 0 || entries.len() == before {
                return Ok(entries);
            }
        }
    }
}
