//! The version of the protocol. Every message carries it, so no greeting costs a round trip.
//!
//! Two things stay the same in every version, so that two sides can always tell that their versions differ. A message
//! begins with `FBY` and the byte `'0' + version`. A refusal is a reply header with status [`STATUS_OTHER_VERSION`],
//! number 0, kind 0 and the version of the bridge in `aux` ([`refusal`]).

use crate::{DecodeError, REPLY_HEADER_BYTES, Reply};

/// The version that this crate speaks. Raise it by one when an older client or bridge would misread a message, a
/// lane or an environment variable of this crate: a field moves, a flag or an operation is no longer optional, the
/// shared page has another layout, a promise to programs comes to need an operation that an older bridge lacks. An
/// addition that the other side may refuse or ignore (an operation that clients can do without, an optional flag) needs
/// no new version.
///
/// Version 2 has [`crate::Op::Sync`]: without it, a client cannot keep what `fsync` promises. Version 3 has
/// [`crate::WRITTEN`]. Version 4 answers [`crate::START_MOVED`]. Version 5 has [`Attr::copy_of`](crate::Attr::copy_of). Version 6
/// has the inode of [`crate::Base::Lower`].
pub const PROTOCOL_VERSION: u8 = 6;

/// [`Reply::status`] when bridge and client speak different versions: `EPROTO` of Linux. The program gets it as the
/// error of its call.
pub const STATUS_OTHER_VERSION: i32 = 71;

/// First four bytes of every message.
pub const MAGIC: u32 = magic(PROTOCOL_VERSION);

/// The bytes before the byte of the version.
const NAME: [u8; 3] = *b"FBY";
/// The byte of version 0, which no message has.
const ZERO: u8 = b'0';

const _: () = assert!(PROTOCOL_VERSION > 0 && PROTOCOL_VERSION <= u8::MAX - ZERO);

const fn magic(version: u8) -> u32 {
    u32::from_le_bytes([NAME[0], NAME[1], NAME[2], ZERO + version])
}

/// Checks the first four bytes of a message. Callers do this first, because another version may have another layout.
pub(crate) fn check(message: &[u8]) -> Result<(), DecodeError> {
    let Some(&first) = message.first_chunk::<4>() else {
        return Err(DecodeError::Truncated {
            got: message.len(),
            want: 4,
        });
    };
    let [name @ .., version] = first;
    match version {
        _ if name != NAME || version <= ZERO => {
            Err(DecodeError::BadMagic(u32::from_le_bytes(first)))
        }
        _ if version - ZERO != PROTOCOL_VERSION => Err(DecodeError::Version(version - ZERO)),
        _ => Ok(()),
    }
}

/// The whole message with which a bridge refuses a client of version `theirs`. It begins with the magic of that
/// version, so that the client reads it as a reply.
pub fn refusal(theirs: u8) -> [u8; REPLY_HEADER_BYTES] {
    let mut header = Reply {
        aux: u64::from(PROTOCOL_VERSION),
        ..Reply::status(0, STATUS_OTHER_VERSION)
    }
    .header();
    header[..4].copy_from_slice(&magic(theirs.min(u8::MAX - ZERO)).to_le_bytes());
    header
}

/// The bridge's version, if `reply` is a refusal of another version.
pub(crate) fn refused_by(reply: &Reply<'_>) -> Option<u8> {
    let version = u8::try_from(reply.aux).ok()?;
    let refusal = Reply {
        aux: reply.aux,
        ..Reply::status(0, STATUS_OTHER_VERSION)
    };
    (*reply == refusal && version != 0 && version != PROTOCOL_VERSION).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_REQUEST_BYTES, Op, Request};

    /// Makes `message` begin as one of `version` would.
    fn of_version(message: &mut [u8], version: u8) {
        message[3] = ZERO + version;
    }

    #[test]
    fn another_version_is_told_whatever_follows_it() {
        let mut buffer = [0; MAX_REQUEST_BYTES];
        let n = Request::new(Op::Hello).encode(&mut buffer).unwrap();
        of_version(&mut buffer, PROTOCOL_VERSION + 1);
        let other = DecodeError::Version(PROTOCOL_VERSION + 1);
        assert_eq!(Request::decode(&buffer[..n]), Err(other));
        assert_eq!(Request::decode(&buffer[..4]), Err(other));
        assert_eq!(Reply::decode(&buffer[..4]), Err(other));
    }

    #[test]
    fn a_message_without_a_version_is_none_of_ours() {
        for version in [0, b' ', b'0'] {
            let message = [b'F', b'B', b'Y', version, 1, 0, 0, 0];
            let what = DecodeError::BadMagic(u32::from_le_bytes([b'F', b'B', b'Y', version]));
            assert_eq!(Request::decode(&message), Err(what));
        }
        assert!(matches!(
            Request::decode(b"XBY1"),
            Err(DecodeError::BadMagic(_))
        ));
        assert!(matches!(
            Request::decode(b"FBY"),
            Err(DecodeError::Truncated { got: 3, .. })
        ));
    }

    #[test]
    fn a_client_of_another_version_reads_the_refusal_as_a_reply_that_names_the_bridges_version() {
        let theirs = PROTOCOL_VERSION + 6;
        let mut refusal = refusal(theirs);
        // A client of that version sees its own magic, and the fields where they have always been.
        assert_eq!(refusal[..4], magic(theirs).to_le_bytes());
        of_version(&mut refusal, PROTOCOL_VERSION);
        // The bridge names the client's version, so for this client the reply is no refusal.
        let reply = Reply::decode(&refusal).unwrap();
        assert_eq!(reply.status, STATUS_OTHER_VERSION);
        assert_eq!(reply.aux, u64::from(PROTOCOL_VERSION));
        // A bridge of another version says the same with its own number.
        refusal[16] = theirs;
        assert_eq!(Reply::decode(&refusal), Err(DecodeError::Version(theirs)));
    }

    #[test]
    fn a_reply_that_only_resembles_a_refusal_is_a_reply() {
        for aux in [0, u64::from(PROTOCOL_VERSION), 256] {
            let like = Reply {
                aux,
                ..Reply::status(0, STATUS_OTHER_VERSION)
            };
            assert_eq!(Reply::decode(&like.header()), Ok(like));
        }
        let answer = Reply {
            aux: 9,
            ..Reply::status(5, STATUS_OTHER_VERSION)
        };
        assert_eq!(Reply::decode(&answer.header()), Ok(answer));
    }
}
