//! Replies: the layout of a bridge's answers. Their meaning stands at [`crate::Op`].

use crate::{DecodeError, MAGIC, MAX_REPLY_BYTES, NoRoom, u32_at, u64_at, version};

/// Size of the fixed part of a reply in bytes.
pub const REPLY_HEADER_BYTES: usize = 24;

/// What the body of a reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ReplyKind {
    /// Nothing.
    Empty = 0,
    /// A descriptor travels beside the message (SCM_RIGHTS); no body, unless [`crate::GRANT_BY_NAME`].
    Grant = 1,
    /// An [`crate::Attr`].
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
    /// [`DecodeError`] says what is wrong with the message. If a bridge of another version refused the request,
    /// the error is [`DecodeError::Version`].
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

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::{Attr, Timestamp};

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
            copy_of: 12,
            granted: None,
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
