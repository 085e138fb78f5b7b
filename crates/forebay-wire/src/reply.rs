//! Replies: what a bridge answers.

use crate::{DecodeError, MAGIC, MAX_REPLY_BYTES, NoRoom, u32_at, u64_at, version};

/// Size of the fixed part of a reply in bytes.
pub const REPLY_HEADER_BYTES: usize = 24;
/// Size of an encoded [`Attr`] in bytes.
pub const ATTR_BYTES: usize = 128;

/// What the body of a reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ReplyKind {
    /// Nothing.
    Empty = 0,
    /// A descriptor travels beside the message (SCM_RIGHTS); no body, unless [`crate::GRANT_BY_NAME`].
    Grant = 1,
    /// An [`Attr`].
    Attr = 2,
    /// A path, link text or JSON.
    Bytes = 3,
    /// [`crate::DirEntries`]; `aux` is the listing session, 0 after the last entry.
    Entries = 4,
}

/// A reply, borrowed from the message or from the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// 0, an errno, or [`crate::STATUS_REDIRECT`].
    pub status: i32,
    /// Number of the request that this answers.
    pub seq: u32,
    /// What `body` is.
    pub kind: ReplyKind,
    /// See [`ReplyKind::Entries`].
    pub aux: u64,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> Reply<'a> {
    /// A reply with only a status.
    pub const fn status(seq: u32, status: i32) -> Self {
        Reply {
            status,
            seq,
            kind: ReplyKind::Empty,
            aux: 0,
            body: b"",
        }
    }

    /// Writes the header alone; the body follows it in the message.
    pub fn header(&self) -> [u8; REPLY_HEADER_BYTES] {
        let mut h = [0; REPLY_HEADER_BYTES];
        h[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        h[4..8].copy_from_slice(&self.status.to_le_bytes());
        h[8..12].copy_from_slice(&self.seq.to_le_bytes());
        h[12] = self.kind as u8;
        h[16..24].copy_from_slice(&self.aux.to_le_bytes());
        h
    }

    /// Writes the message into `out` and returns its length in bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too small or the body too long.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let total = REPLY_HEADER_BYTES + self.body.len();
        if total > out.len() || total > MAX_REPLY_BYTES {
            return Err(NoRoom);
        }
        out[..REPLY_HEADER_BYTES].copy_from_slice(&self.header());
        out[REPLY_HEADER_BYTES..total].copy_from_slice(self.body);
        Ok(total)
    }

    /// Reads a message. Nothing in it is trusted.
    ///
    /// # Errors
    /// [`DecodeError`] says what is wrong with it. A refusal by a bridge of another version is
    /// [`DecodeError::Version`], too.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        version::check(message)?;
        if message.len() < REPLY_HEADER_BYTES {
            return Err(DecodeError::Truncated {
                got: message.len(),
                want: REPLY_HEADER_BYTES,
            });
        }
        let kind = match message[12] {
            0 => ReplyKind::Empty,
            1 => ReplyKind::Grant,
            2 => ReplyKind::Attr,
            3 => ReplyKind::Bytes,
            4 => ReplyKind::Entries,
            other => return Err(DecodeError::UnknownTag(other)),
        };
        let reply = Reply {
            status: u32_at(message, 4) as i32,
            seq: u32_at(message, 8),
            kind,
            aux: u64_at(message, 16),
            body: &message[REPLY_HEADER_BYTES..],
        };
        match version::refused_by(&reply) {
            Some(theirs) => Err(DecodeError::Version(theirs)),
            None => Ok(reply),
        }
    }
}

/// Seconds and nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Timestamp {
    /// Seconds; may be negative.
    pub sec: i64,
    /// Nanoseconds, 0..1e9.
    pub nsec: u32,
}

/// Attributes of an object, as `stat` gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attr {
    /// Type and permission bits.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device that holds the object (`st_dev`).
    pub dev: u64,
    /// Device that the object is (`st_rdev`).
    pub rdev: u64,
    /// Inode number of the backing object.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Birth; zero where the file system does not tell.
    pub btime: Timestamp,
}

impl Attr {
    /// The encoded form.
    pub fn encode(&self) -> [u8; ATTR_BYTES] {
        let mut out = [0; ATTR_BYTES];
        let words = [
            u64::from(self.mode) | u64::from(self.nlink) << 32,
            u64::from(self.uid) | u64::from(self.gid) << 32,
            self.dev,
            self.rdev,
            self.ino,
            self.size,
            self.blocks,
            u64::from(self.blksize),
            self.atime.sec as u64,
            u64::from(self.atime.nsec),
            self.mtime.sec as u64,
            u64::from(self.mtime.nsec),
            self.ctime.sec as u64,
            u64::from(self.ctime.nsec),
            self.btime.sec as u64,
            u64::from(self.btime.nsec),
        ];
        for (i, w) in words.iter().enumerate() {
            out[i * 8..i * 8 + 8].copy_from_slice(&w.to_le_bytes());
        }
        out
    }

    /// Reads the encoded form.
    ///
    /// # Errors
    /// [`DecodeError::BadLength`] unless `body` has [`ATTR_BYTES`].
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        if body.len() != ATTR_BYTES {
            return Err(DecodeError::BadLength {
                got: body.len(),
                want: ATTR_BYTES,
            });
        }
        let w = |i: usize| u64_at(body, i * 8);
        let time = |i: usize| Timestamp {
            sec: w(i) as i64,
            nsec: w(i + 1) as u32,
        };
        Ok(Attr {
            mode: w(0) as u32,
            nlink: (w(0) >> 32) as u32,
            uid: w(1) as u32,
            gid: (w(1) >> 32) as u32,
            dev: w(2),
            rdev: w(3),
            ino: w(4),
            size: w(5),
            blocks: w(6),
            blksize: w(7) as u32,
            atime: time(8),
            mtime: time(10),
            ctime: time(12),
            btime: time(14),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_and_attributes_survive_a_round_trip() {
        let attr = Attr {
            mode: 0o100_644,
            nlink: 3,
            uid: 4,
            gid: 5,
            dev: 6,
            rdev: 7,
            ino: 8,
            size: 9,
            blocks: 10,
            blksize: 4096,
            atime: Timestamp { sec: -1, nsec: 2 },
            mtime: Timestamp { sec: 3, nsec: 4 },
            ctime: Timestamp { sec: 5, nsec: 6 },
            btime: Timestamp { sec: 7, nsec: 8 },
        };
        let body = attr.encode();
        let reply = Reply {
            status: 0,
            seq: 42,
            kind: ReplyKind::Attr,
            aux: 7,
            body: &body,
        };
        let mut buffer = [0; 512];
        let n = reply.encode(&mut buffer).unwrap();
        let back = Reply::decode(&buffer[..n]).unwrap();
        assert_eq!(back, reply);
        assert_eq!(Attr::decode(back.body), Ok(attr));
    }
}
