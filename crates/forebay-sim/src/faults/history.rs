//! What clients asked and what they were told.

use forebay_core::ops::{Op, Path, Start};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, ObjectId, Token};

/// An operation of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// `open` with `O_CREAT`, and `O_EXCL` if so.
    Create(TreePath, bool),
    /// `open` with `O_TRUNC`.
    Truncate(TreePath),
    Mkdir(TreePath),
    Link(TreePath, TreePath),
    Unlink(TreePath),
    Rmdir(TreePath),
    /// With these `RENAME_*` flags.
    Rename(TreePath, TreePath, u32),
    Stat(TreePath),
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
            Action::Create(p, exclusive) => Op::Open {
                path: path(p),
                flags: libc::O_RDWR | libc::O_CREAT | if *exclusive { libc::O_EXCL } else { 0 },
                mode: 0o644,
            },
            Action::Truncate(p) => Op::Open {
                path: path(p),
                flags: libc::O_RDWR | libc::O_TRUNC,
                mode: 0,
            },
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
            Action::Stat(p) => Op::Stat {
                path: path(p),
                follow: false,
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
            | Action::Truncate(p)
            | Action::Mkdir(p)
            | Action::Unlink(p)
            | Action::Rmdir(p)
            | Action::Stat(p)
            | Action::List(p, ..) => vec![p.clone()],
        }
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Action::Create(p, true) => write!(f, "create {p} exclusively"),
            Action::Create(p, false) => write!(f, "create {p}"),
            Action::Truncate(p) => write!(f, "truncate {p}"),
            Action::Mkdir(p) => write!(f, "mkdir {p}"),
            Action::Link(a, b) => write!(f, "link {a} {b}"),
            Action::Unlink(p) => write!(f, "unlink {p}"),
            Action::Rmdir(p) => write!(f, "rmdir {p}"),
            Action::Rename(a, b, 0) => write!(f, "rename {a} {b}"),
            Action::Rename(a, b, libc::RENAME_EXCHANGE) => write!(f, "exchange {a} {b}"),
            Action::Rename(a, b, _) => write!(f, "rename {a} {b} without replacing"),
            Action::Stat(p) => write!(f, "stat {p}"),
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
    pub(super) dir: bool,
}

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
    /// The last name that was listed, if the listing goes on after it.
    Listed(Vec<(Vec<u8>, Thing)>, Option<Vec<u8>>),
    Errno(i32),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Done => f.write_str("done"),
            Outcome::Opened(ino) => write!(f, "inode {ino:x}"),
            Outcome::Seen(thing) => write!(f, "{thing}"),
            Outcome::Listed(entries, _) => {
                let names: Vec<_> = entries
                    .iter()
                    .map(|(name, thing)| format!("{}: {thing}", name.escape_ascii()))
                    .collect();
                write!(f, "[{}]", names.join(", "))
            }
            Outcome::Errno(e) => f.write_str(errno_name(*e)),
        }
    }
}

impl std::fmt::Display for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.dir { "directory" } else { "file" };
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
        libc::ESTALE => "ESTALE",
        libc::EIO => "EIO",
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
