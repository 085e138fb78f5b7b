//! Requests: what a client asks of its bridge, and the layout of the message.

use crate::{
    BY_NAME, DecodeError, Inode, MAGIC, MAX_PATH_BYTES, MAX_REQUEST_BYTES, NoRoom, u16_at, u32_at,
    u64_at, u128_at, version,
};

/// Size of the fixed part of a request in bytes.
pub(crate) const REQUEST_HEADER_BYTES: usize = 72;
/// Place of [`Request::retry`] in a message.
const RETRY_AT: usize = 7;
/// Place of the lowest byte of [`Request::arg2`] in a message.
const ARG2_AT: usize = 32;

/// What a request asks for. Each operation names the arguments it takes beside `base1` and `str1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Which buffer does this bridge serve? Reply: [`crate::ReplyKind::Bytes`] `root NUL instance-directory`.
    Hello = 1,
    /// Open or create. `arg0` O_* flags, `arg1` mode after umask, `arg2` BY_NAME. Reply: a grant.
    Open = 2,
    /// An `O_PATH` descriptor of an object. `arg0` NOFOLLOW, FOR_WRITE, DIRECTORY. Reply: a grant. The bridge has written the time of
    /// a directory by then, of which it had told alone.
    Resolve = 3,
    /// Attributes. `arg0` NOFOLLOW. Without a path and with a file at [`Request::base1`] those of the file, of which `arg1` is the
    /// link. Reply: [`crate::ReplyKind::Attr`].
    Stat = 4,
    /// Make a directory. `arg1` mode after umask.
    Mkdir = 5,
    /// Make a FIFO, socket, device node or empty file. `arg1` type and mode after umask, `arg2` device.
    Mknod = 6,
    /// Make a symbolic link at `str1` with the text `str2`.
    Symlink = 7,
    /// Make the hard link `base2`/`str2` to `base1`/`str1`. `arg0` FOLLOW.
    Link = 8,
    /// Remove a name. `arg0` REMOVE_DIR.
    Unlink = 9,
    /// Rename `base1`/`str1` to `base2`/`str2`. `arg0` RENAME_* flags of `renameat2`.
    Rename = 10,
    /// Text of a symbolic link. Reply: bytes.
    Readlink = 11,
    /// List a directory. `arg2` listing session (0 for a new one), `str2` last name seen.
    /// Reply: [`crate::ReplyKind::Entries`].
    ReadDir = 12,
    /// Absolute path of the directory or file that `base1` names (getcwd). `str1` empty; `arg0` which of its hard links,
    /// 0 for the first. Reply: bytes.
    NameOf = 13,
    /// Absolute path without symbolic links. Reply: bytes.
    Realpath = 14,
    /// A control message: `str1` is a request of `forebay-admin` in JSON. Reply: a grant of the stream that carries
    /// the answer.
    Admin = 15,
    /// Memory to share beside this connection, for requests with the credentials of this message.
    /// Reply: a grant of that memory, [`crate::LANE_BYTES`] long and all zeroes.
    Lane = 16,
    /// Makes durable what was committed before: the names of the buffer, and what their records say. `arg0` WHOLE
    /// or WRITTEN. The reply comes when that is done; with `arg2` when this commit is durable.
    Sync = 17,
    /// The memory that says whether names are durable. Reply: a grant of that memory, [`crate::WORDS_BYTES`] long and
    /// read-only. It holds a [`crate::DurabilityPage`].
    Words = 18,
    /// The memory that says which objects names stand for. Reply: a grant of that memory, [`crate::NAME_TABLE_BYTES`] long and
    /// read-only. It holds a [`crate::NameTable`]. EPERM for another user than the bridge's own.
    NameTable = 19,
    /// A program is about to start that a preloaded library does not reach. `str1` its path as it was given, `arg0` why
    /// ([`crate::Bypass`]), `arg1` 1 if it may look into the buffer. EEXIST: that is known already.
    Bypass = 20,
}

impl Op {
    fn from_u8(v: u8) -> Result<Self, DecodeError> {
        Ok(match v {
            1 => Op::Hello,
            2 => Op::Open,
            3 => Op::Resolve,
            4 => Op::Stat,
            5 => Op::Mkdir,
            6 => Op::Mknod,
            7 => Op::Symlink,
            8 => Op::Link,
            9 => Op::Unlink,
            10 => Op::Rename,
            11 => Op::Readlink,
            12 => Op::ReadDir,
            13 => Op::NameOf,
            14 => Op::Realpath,
            15 => Op::Admin,
            16 => Op::Lane,
            17 => Op::Sync,
            18 => Op::Words,
            19 => Op::NameTable,
            20 => Op::Bypass,
            other => return Err(DecodeError::UnknownTag(other)),
        })
    }
}

/// Where the relative path of a request starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base<'a> {
    /// The buffer root.
    Root,
    /// A directory that was made in the buffer, by object id (from the name of its backing directory).
    Object(u128),
    /// A directory of the PFS (from a descriptor or working directory): its path below the buffer root, and which one it is, since
    /// another one may have got that path. [`crate::START_TAKEN`] then.
    Lower(&'a [u8], Inode),
}

/// A request, borrowed from the message or from the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Operation.
    pub op: Op,
    /// The client sends this request again because the connection broke before the reply.
    pub retry: bool,
    /// Identity of the client process (random, 64 bits). Together with `seq` it is the token of a mutation.
    pub client: u64,
    /// Number of the request within the client process.
    pub seq: u32,
    /// See [`Op`].
    pub arg0: u32,
    /// See [`Op`].
    pub arg1: u32,
    /// See [`Op`].
    pub arg2: u64,
    /// Start of `str1`.
    pub base1: Base<'a>,
    /// Start of `str2`, where it is a path.
    pub base2: Base<'a>,
    /// First path, relative to `base1`; not normalised.
    pub str1: &'a [u8],
    /// Second path, link text or name.
    pub str2: &'a [u8],
}

impl<'a> Request<'a> {
    /// An empty request for `op`, at the root.
    pub const fn new(op: Op) -> Self {
        Request {
            op,
            retry: false,
            client: 0,
            seq: 0,
            arg0: 0,
            arg1: 0,
            arg2: 0,
            base1: Base::Root,
            base2: Base::Root,
            str1: b"",
            str2: b"",
        }
    }

    /// Writes the message into `out` and returns its length in bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if `out`, or a length field of the header, is too small.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let (kind1, oid1, prefix1) = split(self.base1);
        let (kind2, oid2, prefix2) = split(self.base2);
        let len1 = joined_len(prefix1, self.str1);
        let len2 = joined_len(prefix2, self.str2);
        let total = REQUEST_HEADER_BYTES + len1 + len2;
        if total > out.len() || len1 > u16::MAX as usize || len2 > u16::MAX as usize {
            return Err(NoRoom);
        }
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4] = self.op as u8;
        out[5] = kind1;
        out[6] = kind2;
        out[RETRY_AT] = u8::from(self.retry);
        out[8..12].copy_from_slice(&self.seq.to_le_bytes());
        out[12..14].copy_from_slice(&(len1 as u16).to_le_bytes());
        out[14..16].copy_from_slice(&(len2 as u16).to_le_bytes());
        out[16..24].copy_from_slice(&self.client.to_le_bytes());
        out[24..28].copy_from_slice(&self.arg0.to_le_bytes());
        out[28..32].copy_from_slice(&self.arg1.to_le_bytes());
        out[ARG2_AT..ARG2_AT + 8].copy_from_slice(&self.arg2.to_le_bytes());
        out[40..56].copy_from_slice(&oid1.to_le_bytes());
        out[56..72].copy_from_slice(&oid2.to_le_bytes());
        let at = put(out, REQUEST_HEADER_BYTES, prefix1, self.str1);
        let at = put(out, at, prefix2, self.str2);
        debug_assert_eq!(at, total);
        Ok(total)
    }

    /// Marks the encoded `message` as a retry, as if [`Request::retry`] had been set before it was encoded.
    pub fn mark_retry(message: &mut [u8]) {
        debug_assert!(Request::decode(message).is_ok());
        message[RETRY_AT] = 1;
    }

    /// Sets or clears [`BY_NAME`] in `message`, an encoded [`Op::Open`].
    pub fn mark_by_name(message: &mut [u8], may_be_name: bool) {
        debug_assert!(Request::decode(message).is_ok_and(|request| request.op == Op::Open));
        let low = &mut message[ARG2_AT];
        *low = *low & !(BY_NAME as u8) | if may_be_name { BY_NAME as u8 } else { 0 };
    }

    /// Reads a message. Nothing in it is trusted.
    ///
    /// # Errors
    /// [`DecodeError`] says what is wrong with it.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        version::check(message)?;
        if message.len() < REQUEST_HEADER_BYTES {
            return Err(DecodeError::Truncated {
                got: message.len(),
                want: REQUEST_HEADER_BYTES,
            });
        }
        if message.len() > MAX_REQUEST_BYTES {
            return Err(DecodeError::TooLong(message.len()));
        }
        let len1 = usize::from(u16_at(message, 12));
        let len2 = usize::from(u16_at(message, 14));
        let want = REQUEST_HEADER_BYTES + len1 + len2;
        if message.len() != want {
            return Err(DecodeError::BadLength {
                got: message.len(),
                want,
            });
        }
        let op = Op::from_u8(message[4])?;
        if message[RETRY_AT] > 1 {
            return Err(DecodeError::UnknownTag(message[RETRY_AT]));
        }
        let (first, second) = message[REQUEST_HEADER_BYTES..].split_at(len1);
        let (base1, str1) = join(message[5], u128_at(message, 40), first)?;
        let (base2, str2) = join(message[6], u128_at(message, 56), second)?;
        Ok(Request {
            op,
            retry: message[RETRY_AT] == 1,
            client: u64_at(message, 16),
            seq: u32_at(message, 8),
            arg0: u32_at(message, 24),
            arg1: u32_at(message, 28),
            arg2: u64_at(message, ARG2_AT),
            base1,
            base2,
            str1,
            str2,
        })
    }
}

fn split(base: Base<'_>) -> (u8, u128, Option<&[u8]>) {
    match base {
        Base::Root => (0, 0, None),
        Base::Object(oid) => (1, oid, None),
        Base::Lower(path, (dev, ino)) => (2, u128::from(dev) << 64 | u128::from(ino), Some(path)),
    }
}

/// Length of a string with the path of its lower base before it. A NUL separates the two, because no path holds one.
fn joined_len(prefix: Option<&[u8]>, s: &[u8]) -> usize {
    prefix.map_or(0, |p| p.len() + 1) + s.len()
}

fn put(out: &mut [u8], mut at: usize, prefix: Option<&[u8]>, s: &[u8]) -> usize {
    if let Some(p) = prefix {
        out[at..at + p.len()].copy_from_slice(p);
        at += p.len();
        out[at] = 0;
        at += 1;
    }
    out[at..at + s.len()].copy_from_slice(s);
    at + s.len()
}

fn join(kind: u8, oid: u128, bytes: &[u8]) -> Result<(Base<'_>, &[u8]), DecodeError> {
    let (base, s) = match kind {
        0 => (Base::Root, bytes),
        1 => (Base::Object(oid), bytes),
        2 => {
            let nul = bytes
                .iter()
                .position(|&b| b == 0)
                .ok_or(DecodeError::BadNul)?;
            let inode = ((oid >> 64) as u64, oid as u64);
            (Base::Lower(&bytes[..nul], inode), &bytes[nul + 1..])
        }
        other => return Err(DecodeError::UnknownTag(other)),
    };
    if s.contains(&0) {
        return Err(DecodeError::BadNul);
    }
    let prefix_len = if let Base::Lower(p, _) = base {
        p.len()
    } else {
        0
    };
    if s.len() > MAX_PATH_BYTES || prefix_len > MAX_PATH_BYTES {
        return Err(DecodeError::TooLong(s.len().max(prefix_len)));
    }
    Ok((base, s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_survives_a_round_trip() {
        let r = Request {
            op: Op::Rename,
            retry: true,
            client: 7,
            seq: 8,
            arg0: 9,
            arg1: 10,
            arg2: 11,
            base1: Base::Object(12),
            base2: Base::Lower(b"x/y", (13, u64::MAX)),
            str1: b"one",
            str2: b"two\xff",
        };
        let mut buffer = [0; 256];
        let n = r.encode(&mut buffer).unwrap();
        assert_eq!(Request::decode(&buffer[..n]), Ok(r));
    }

    #[test]
    fn marks_set_in_the_message_are_those_of_its_fields() {
        let mut buffer = [0; 256];
        for arg2 in [0, BY_NAME, u64::MAX] {
            let r = Request {
                client: u64::MAX,
                seq: u32::MAX,
                arg1: u32::MAX,
                arg2,
                str1: b"file",
                ..Request::new(Op::Open)
            };
            let n = r.encode(&mut buffer).unwrap();
            let message = &mut buffer[..n];
            Request::mark_by_name(message, true);
            let arg2 = arg2 | BY_NAME;
            assert_eq!(Request::decode(message), Ok(Request { arg2, ..r }));
            Request::mark_retry(message);
            Request::mark_by_name(message, false);
            let (retry, arg2) = (true, arg2 & !BY_NAME);
            assert_eq!(Request::decode(message), Ok(Request { retry, arg2, ..r }));
        }
    }

    #[test]
    fn every_truncation_and_every_single_byte_change_is_refused_or_decodes() {
        let r = Request {
            base2: Base::Lower(b"l", (1, 2)),
            str1: b"abc",
            str2: b"d",
            ..Request::new(Op::Link)
        };
        let mut buffer = [0; 256];
        let n = r.encode(&mut buffer).unwrap();
        for cut in 0..n {
            assert!(Request::decode(&buffer[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..n {
            for bit in 0..8 {
                let mut changed = buffer;
                changed[at] ^= 1 << bit;
                let _ = Request::decode(&changed[..n]);
            }
        }
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        let long = [b'a'; MAX_PATH_BYTES + 1];
        let r = Request {
            str1: &long,
            ..Request::new(Op::Stat)
        };
        let mut buffer = [0; MAX_REQUEST_BYTES];
        let n = r.encode(&mut buffer).unwrap();
        assert_eq!(
            Request::decode(&buffer[..n]),
            Err(DecodeError::TooLong(MAX_PATH_BYTES + 1))
        );
    }
}
