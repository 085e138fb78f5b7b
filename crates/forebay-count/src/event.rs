//! One call, as the rules of counting see it. Nothing here knows how a call is made or where it is counted.

/// What a call did to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// A descriptor or stream was opened. `offset` is the size of the file then, -1 if unknown; `aux` is
    /// [`Event::opened`].
    Open = 1,
    /// A descriptor or stream was closed.
    Close,
    /// `bytes` were moved at `offset`.
    Read,
    /// `bytes` were moved at `offset`.
    Write,
    /// The position was moved.
    Seek,
    /// Attributes were asked for.
    Stat,
    /// `fsync`, or the flush of a stream.
    Sync,
    /// `fdatasync`.
    DataSync,
    /// `bytes` were mapped.
    Map,
    /// `dup` and its kin.
    Dup,
    /// `fileno` of a stream; `fdopen` for a stream.
    Number,
    /// The file was renamed to another name.
    RenameSource,
    /// A file was renamed to this name; `aux` is the id of its old name.
    RenameTarget,
    /// `bytes` were read at `offset` by `copy_file_range`, `sendfile` or `splice`.
    CopyOut,
    /// `bytes` were written at `offset` by the same calls.
    CopyIn,
}

impl Op {
    const ALL: [Op; 15] = [
        Op::Open,
        Op::Close,
        Op::Read,
        Op::Write,
        Op::Seek,
        Op::Stat,
        Op::Sync,
        Op::DataSync,
        Op::Map,
        Op::Dup,
        Op::Number,
        Op::RenameSource,
        Op::RenameTarget,
        Op::CopyOut,
        Op::CopyIn,
    ];

    /// The operation with this number.
    pub fn from_number(n: u64) -> Option<Op> {
        Op::ALL.into_iter().find(|op| *op as u64 == n)
    }
}

/// A call that has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// What it did.
    pub op: Op,
    /// First byte that it concerned.
    pub offset: i64,
    /// Bytes that it moved.
    pub bytes: i64,
    /// Monotonic clock before the call, ns.
    pub start_ns: u64,
    /// Monotonic clock after the call, ns.
    pub end_ns: u64,
    /// More about some operations, see [`Op`]. For reads and writes: [`MEMORY_NOT_ALIGNED`], [`SYNCED`], [`DIRECT`].
    pub aux: u64,
}

/// In `aux` of [`Op::Open`]: the file was not there before.
pub const CREATED: u64 = 1 << 62;
/// In `aux` of [`Op::Open`]: the file was there before.
pub const WAS_THERE: u64 = 1 << 61;
/// In `aux` of [`Op::Read`] and [`Op::Write`]: the program's memory was not aligned.
pub const MEMORY_NOT_ALIGNED: u64 = 1;
/// In `aux` of the same: the descriptor has `O_SYNC` or `O_DSYNC`.
pub const SYNCED: u64 = 2;
/// In `aux` of the same: the descriptor has `O_DIRECT`.
pub const DIRECT: u64 = 4;

impl Event {
    /// A call without offset and bytes.
    pub fn plain(op: Op, start_ns: u64, end_ns: u64) -> Self {
        Event {
            op,
            offset: 0,
            bytes: 0,
            start_ns,
            end_ns,
            aux: 0,
        }
    }

    /// `aux` of [`Op::Open`]: permission bits of the file, alignment of the file system in bytes, and
    /// [`CREATED`] or [`WAS_THERE`], or 0 if that is unknown.
    pub fn opened(mode: u32, alignment: u32, origin: u64) -> u64 {
        u64::from(mode & 0xffff) << 32 | u64::from(alignment) | origin
    }
}

/// Calls on names, and calls that Darshan has no counter for. They are counted per process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Extra {
    /// `mkdir`.
    Mkdir,
    /// `rmdir`.
    Rmdir,
    /// `unlink`, `remove` of a file.
    Unlink,
    /// `rename` and its kin.
    Rename,
    /// `link`.
    Link,
    /// `symlink`.
    Symlink,
    /// `readlink`.
    Readlink,
    /// `opendir`, `fdopendir`.
    Opendir,
    /// `readdir`; `scandir` counts as one.
    Readdir,
    /// `access` and its kin.
    Access,
    /// `chmod`, `chown`, `utimes` and their kin.
    Attributes,
    /// `truncate`, `ftruncate`.
    Truncate,
    /// `posix_fallocate`, `fallocate`.
    Allocate,
    /// `stat` that failed.
    StatMissed,
    /// `open` that failed.
    OpenFailed,
    /// A read or write that failed.
    TransferFailed,
    /// `copy_file_range`.
    CopyRange,
    /// `sendfile`.
    Sendfile,
    /// `splice` from or to a file.
    Splice,
    /// `mmap` of a file.
    Map,
    /// `sync`, `syncfs`, `sync_file_range`, `msync`.
    SyncRange,
    /// Asynchronous reads and writes of POSIX that were submitted.
    Aio,
    /// Extended attributes.
    Xattr,
    /// `stat`, `access` and failed opens of paths that are left out.
    LeftOut,
    /// Programs started by children that count in their parent's table, into which the recorder is not loaded.
    Unreached,
    /// Opens of pipes, sockets and terminals by a path of the job: they may wait for somebody else.
    OpenedPipe,
    /// `flock`, `lockf`, and locks of `fcntl`: they may wait for somebody else.
    Lock,
}

impl Extra {
    /// The name of [`Extra::Unreached`].
    pub const UNREACHED: &'static str = "unreached";

    /// True for a call that takes time and is in no record. Renames are in those of both names. Copies, maps and transfers are in
    /// those of files.
    pub const fn takes_time(self) -> bool {
        use Extra::*;
        matches!(
            self,
            Access
                | StatMissed
                | OpenFailed
                | Readlink
                | Xattr
                | Mkdir
                | Rmdir
                | Unlink
                | Link
                | Symlink
                | Opendir
                | Readdir
                | Attributes
                | Truncate
                | SyncRange
        )
    }

    /// True for a call that may wait for somebody else. That is no time in I/O.
    pub const fn waits(self) -> bool {
        matches!(self, Extra::OpenedPipe | Extra::Lock)
    }

    /// All of them, in the order of their numbers, with the names that a log gives them.
    pub const NAMES: [(&'static str, Extra); 27] = [
        ("mkdir", Extra::Mkdir),
        ("rmdir", Extra::Rmdir),
        ("unlink", Extra::Unlink),
        ("rename", Extra::Rename),
        ("link", Extra::Link),
        ("symlink", Extra::Symlink),
        ("readlink", Extra::Readlink),
        ("opendir", Extra::Opendir),
        ("readdir", Extra::Readdir),
        ("access", Extra::Access),
        ("attributes", Extra::Attributes),
        ("truncate", Extra::Truncate),
        ("allocate", Extra::Allocate),
        ("stat_missed", Extra::StatMissed),
        ("open_failed", Extra::OpenFailed),
        ("transfer_failed", Extra::TransferFailed),
        ("copy_range", Extra::CopyRange),
        ("sendfile", Extra::Sendfile),
        ("splice", Extra::Splice),
        ("map", Extra::Map),
        ("sync_range", Extra::SyncRange),
        ("aio", Extra::Aio),
        ("xattr", Extra::Xattr),
        ("left_out", Extra::LeftOut),
        (Extra::UNREACHED, Extra::Unreached),
        ("opened_pipe", Extra::OpenedPipe),
        ("lock", Extra::Lock),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_extras_find_themselves_by_number() {
        for op in Op::ALL {
            assert_eq!(Op::from_number(op as u64), Some(op));
        }
        assert_eq!(Op::from_number(0), None);
        for (n, (_, extra)) in Extra::NAMES.into_iter().enumerate() {
            assert_eq!(extra as usize, n);
        }
        assert!(2 * Extra::NAMES.len() <= 64);
    }
}
