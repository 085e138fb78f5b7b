//! What clients asked and what they were told.

use forebay_core::ops::{Op, Path, Start};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, ObjectId, Token};
use std::collections::BTreeMap;

/// An operation of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// `open` with `O_CREAT`, and with `O_EXCL` or `O_NOFOLLOW`.
    Create(TreePath, i32),
    /// `open` with `O_TRUNC`, and with `O_NOFOLLOW`.
    Truncate(TreePath, i32),
    Mkdir(TreePath),
    /// A symbolic link with this text.
    Symlink(Vec<u8>, TreePath),
    Readlink(TreePath),
    Link(TreePath, TreePath),
    Unlink(TreePath),
    Rmdir(TreePath),
    /// With these `RENAME_*` flags.
    Rename(TreePath, TreePath, u32),
    /// `stat`, or `lstat` if it does not follow.
    Stat(TreePath, bool),
    /// The names of a directory after one, so many of them.
    List(TreePath, Option<Vec<u8>>, usize),
}

impl Action {
    /// As a request to policy.
    pub(super) fn op(&self) -> Op {
        let path = |p: &TreePath| Path {
            start: Start::Root,
            bytes: p.as_bytes().to_vec(),
        };
        match self {
            Action::Create(p, flags) => Op::Open {
                path: path(p),
                flags: libc::O_RDWR | libc::O_CREAT | flags,
                mode: 0o644,
            },
            Action::Truncate(p, flags) => Op::Open {
                path: path(p),
                flags: libc::O_RDWR | libc::O_TRUNC | flags,
                mode: 0,
            },
            Action::Symlink(text, p) => Op::Symlink {
                path: path(p),
                text: text.clone(),
            },
            Action::Readlink(p) => Op::Readlink { path: path(p) },
            Action::Mkdir(p) => Op::Mkdir {
                path: path(p),
                mode: 0o755,
            },
            Action::Link(old, new) => Op::Link {
                old: path(old),
                new: path(new),
                follow: false,
            },
            Action::Unlink(p) => Op::Unlink {
                path: path(p),
                dir: false,
            },
            Action::Rmdir(p) => Op::Unlink {
                path: path(p),
                dir: true,
            },
            Action::Rename(old, new, flags) => Op::Rename {
                old: path(old),
                new: path(new),
                flags: *flags,
            },
            Action::Stat(p, follow) => Op::Stat {
                path: path(p),
                follow: *follow,
            },
            Action::List(p, after, limit) => Op::ReadDir {
                path: path(p),
                after: after.clone(),
                limit: *limit,
            },
        }
    }

    /// The paths in it.
    pub(super) fn paths(&self) -> Vec<TreePath> {
        match self {
            Action::Link(a, b) | Action::Rename(a, b, _) => vec![a.clone(), b.clone()],
            Action::Create(p, _)
            | Action::Truncate(p, _)
            | Action::Mkdir(p)
            | Action::Symlink(_, p)
            | Action::Readlink(p)
            | Action::Unlink(p)
            | Action::Rmdir(p)
            | Action::Stat(p, _)
            | Action::List(p, ..) => vec![p.clone()],
        }
    }

    /// Does it follow a symbolic link at the end of its paths?
    pub(super) fn follows(&self) -> bool {
        match self {
            Action::Create(_, flags) | Action::Truncate(_, flags) => *flags == 0,
            Action::Stat(_, follow) => *follow,
            Action::List(..) => true,
            _ => false,
        }
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Action::Create(p, libc::O_EXCL) => write!(f, "create {p} exclusively"),
            Action::Create(p, 0) => write!(f, "create {p}"),
            Action::Create(p, _) => write!(f, "create {p} where no link is"),
            Action::Truncate(p, 0) => write!(f, "truncate {p}"),
            Action::Truncate(p, _) => write!(f, "truncate {p} if it is no link"),
            Action::Symlink(text, p) => write!(f, "symlink {} at {p}", text.escape_ascii()),
            Action::Readlink(p) => write!(f, "readlink {p}"),
            Action::Mkdir(p) => write!(f, "mkdir {p}"),
            Action::Link(a, b) => write!(f, "link {a} {b}"),
            Action::Unlink(p) => write!(f, "unlink {p}"),
            Action::Rmdir(p) => write!(f, "rmdir {p}"),
            Action::Rename(a, b, 0) => write!(f, "rename {a} {b}"),
            Action::Rename(a, b, libc::RENAME_EXCHANGE) => write!(f, "exchange {a} {b}"),
            Action::Rename(a, b, _) => write!(f, "rename {a} {b} without replacing"),
            Action::Stat(p, true) => write!(f, "stat {p}"),
            Action::Stat(p, false) => write!(f, "lstat {p}"),
            Action::List(p, after, limit) => {
                let after = after.as_deref().unwrap_or_default().escape_ascii();
                write!(f, "list {p}, {limit} after \"{after}\"")
            }
        }
    }
}

/// Something in the namespace, as clients can tell it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Thing {
    /// Inode number.
    pub(super) ino: u64,
    pub(super) kind: Kind,
}

impl Thing {
    pub(super) fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }

    /// Its file type in a mode.
    pub(super) fn type_bits(&self) -> u32 {
        match self.kind {
            Kind::Dir => libc::S_IFDIR,
            Kind::Symlink => libc::S_IFLNK,
            _ => libc::S_IFREG,
        }
    }

    /// What `stat` or a listing shows, with this file type.
    pub(super) fn shown(ino: u64, type_bits: u32) -> Self {
        let kind = match type_bits {
            libc::S_IFDIR => Kind::Dir,
            libc::S_IFLNK => Kind::Symlink,
            _ => Kind::File,
        };
        Thing { ino, kind }
    }
}

/// Texts of symbolic links by their inode numbers. A text never changes.
pub(super) type Texts = BTreeMap<u64, Vec<u8>>;

/// The inode number of an object: simulated disks have one each, and no two bridges share them.
pub(super) fn ino(oid: ObjectId) -> u64 {
    u64::from(oid.bridge().0) << 48 | u64::from(oid.epoch()) << 32 | oid.seq()
}

/// The bridge that keeps an object with this inode number; `None` for one of the PFS.
pub(super) fn keeper(ino: u64) -> Option<BridgeId> {
    // Epochs begin with 1.
    (ino >> 32 != 0).then_some(BridgeId((ino >> 48) as u32))
}

/// What a client was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// A descriptor of this inode.
    Opened(u64),
    Seen(Thing),
    /// Of a symbolic link.
    Text(Vec<u8>),
    /// The path leaves the buffer.
    Outside,
    /// The last name that was listed, if the listing goes on after it.
    Listed(Vec<(Vec<u8>, Thing)>, Option<Vec<u8>>),
    Errno(i32),
    /// The PFS, the storage or the tables have failed, with this errno. `after_all`: an earlier try of the same call had been
    /// carried out. Else nothing has happened.
    Failed {
        errno: i32,
        after_all: bool,
    },
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Done => f.write_str("done"),
            Outcome::Opened(ino) => write!(f, "inode {ino:x}"),
            Outcome::Seen(thing) => write!(f, "{thing}"),
            Outcome::Text(text) => write!(f, "{}", text.escape_ascii()),
            Outcome::Outside => f.write_str("outside"),
            Outcome::Listed(entries, _) => {
                let names: Vec<_> = entries
                    .iter()
                    .map(|(name, thing)| format!("{}: {thing}", name.escape_ascii()))
                    .collect();
                write!(f, "[{}]", names.join(", "))
            }
            Outcome::Errno(e) => f.write_str(errno_name(*e)),
            Outcome::Failed { errno, .. } => {
                write!(f, "{}, because a call below has failed", errno_name(*errno))
            }
        }
    }
}

impl std::fmt::Display for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            Kind::Dir => "directory",
            Kind::Symlink => "link",
            _ => "file",
        };
        write!(f, "{kind} {:x}", self.ino)
    }
}

fn errno_name(e: i32) -> &'static str {
    match e {
        libc::ENOENT => "ENOENT",
        libc::EEXIST => "EEXIST",
        libc::ENOTDIR => "ENOTDIR",
        libc::EISDIR => "EISDIR",
        libc::ENOTEMPTY => "ENOTEMPTY",
        libc::EINVAL => "EINVAL",
        libc::EPERM => "EPERM",
        libc::EXDEV => "EXDEV",
        libc::ELOOP => "ELOOP",
        libc::ESTALE => "ESTALE",
        libc::EIO => "EIO",
        libc::ENOSPC => "ENOSPC",
        libc::EDQUOT => "EDQUOT",
        libc::ENFILE => "ENFILE",
        libc::ETIMEDOUT => "ETIMEDOUT",
        _ => "another errno",
    }
}

/// One operation from its call to its answer.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) client: usize,
    /// The bridge of the client's node.
    pub(super) bridge: BridgeId,
    pub(super) action: Action,
    /// Its files may be on the PFS, where nobody keeps them.
    pub(super) drains: bool,
    pub(super) token: Token,
    /// When it was called, as a number in the order of all events.
    pub(super) called: u64,
    /// When it was answered, and how.
    pub(super) answered: Option<(u64, Outcome)>,
}
