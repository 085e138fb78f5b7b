//! From a message to a request of core.

use crate::limits::ENTRIES_PER_REPLY;
use forebay_core::ops::{Op, Path, Request, Start};
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectId, ObjectName, Token};
use forebay_sys::Errno;
use forebay_wire::Base;

/// What a message asks for.
pub(super) struct Asked {
    pub request: Request,
    /// The client would rather open a backing file itself.
    pub by_name: bool,
    /// Listing session, 0 for none.
    pub session: u64,
}

fn start(base: Base<'_>) -> Result<Start, Errno> {
    Ok(match base {
        Base::Root => Start::Root,
        Base::Object(oid) => Start::Object(ObjectName {
            oid: ObjectId(oid),
            link: 0,
        }),
        Base::Lower(path, inode) => Start::Lower(TreePath::new(path).ok_or(Errno::NOENT)?, inode),
    })
}

/// The same for a file of which the caller has a descriptor: it may be any of its links.
fn start_at_link(base: Base<'_>, link: u32) -> Result<Start, Errno> {
    Ok(match start(base)? {
        Start::Object(first) => Start::Object(ObjectName { link, ..first }),
        other => other,
    })
}

fn path(base: Base<'_>, bytes: &[u8]) -> Result<Path, Errno> {
    Ok(Path {
        start: start(base)?,
        bytes: bytes.to_vec(),
    })
}

/// What a message asks for. `Hello`, `Admin`, `Lane`, `Sync` and `Words` are no requests.
///
/// # Errors
/// An argument can't be right.
pub(super) fn read(message: &forebay_wire::Request<'_>) -> Result<Asked, Errno> {
    use forebay_wire::Op as Wire;
    let first = || path(message.base1, message.str1);
    let second = || path(message.base2, message.str2);
    let has = |flag: u32| message.arg0 & flag != 0;
    let mut session = 0;
    let op = match message.op {
        Wire::Open => Op::Open {
            path: first()?,
            flags: message.arg0 as i32,
            mode: message.arg1,
        },
        Wire::Resolve => Op::Resolve {
            path: first()?,
            follow: !has(forebay_wire::NOFOLLOW),
            for_write: has(forebay_wire::FOR_WRITE),
            directory: has(forebay_wire::DIRECTORY),
        },
        Wire::Stat => Op::Stat {
            path: match message.str1 {
                b"" => Path {
                    start: start_at_link(message.base1, message.arg1)?,
                    bytes: Vec::new(),
                },
                _ => first()?,
            },
            follow: !has(forebay_wire::NOFOLLOW),
        },
        Wire::Mkdir => Op::Mkdir {
            path: first()?,
            mode: message.arg1,
        },
        Wire::Mknod => Op::Mknod {
            path: first()?,
            mode: message.arg1,
            dev: message.arg2,
        },
        Wire::Symlink => Op::Symlink {
            path: first()?,
            text: message.str2.to_vec(),
        },
        Wire::Link => Op::Link {
            old: first()?,
            new: second()?,
            follow: has(forebay_wire::FOLLOW),
        },
        Wire::Unlink => Op::Unlink {
            path: first()?,
            dir: has(forebay_wire::REMOVE_DIR),
        },
        Wire::Rename => Op::Rename {
            old: first()?,
            new: second()?,
            flags: message.arg0,
        },
        Wire::Readlink => Op::Readlink { path: first()? },
        Wire::ReadDir => {
            session = message.arg2;
            Op::ReadDir {
                path: first()?,
                after: (!message.str2.is_empty()).then(|| message.str2.to_vec()),
                limit: ENTRIES_PER_REPLY,
            }
        }
        Wire::NameOf => Op::NameOf {
            start: start_at_link(message.base1, message.arg0)?,
        },
        Wire::Realpath => Op::Realpath { path: first()? },
        Wire::Hello
        | Wire::Admin
        | Wire::Lane
        | Wire::Sync
        | Wire::Words
        | Wire::NameTable
        | Wire::Bypass => {
            return Err(Errno::INVAL);
        }
    };
    Ok(Asked {
        request: Request {
            op,
            token: Token {
                client: message.client,
                seq: message.seq,
            },
            retry: message.retry,
        },
        by_name: message.op == Wire::Open && message.arg2 & forebay_wire::BY_NAME != 0,
        session,
    })
}
