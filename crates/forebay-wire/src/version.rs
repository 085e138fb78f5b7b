//! The version of the protocol. Every message says it, so no greeting of its own costs a round trip.
//!
//! Whatever a later version changes, two things stay as they are, so that two versions can always tell each other apart:
//! a message begins with `FBY` and the byte `'0' + version`; and a refusal of a version is a reply header with status
//! [`STATUS_OTHER_VERSION`], number 0, kind 0 and the version of the bridge in `aux` ([`refusal`]).

use crate::{DecodeError, REPLY_HEADER_BYTES, Reply};

/// The version that this crate speaks. Raise it by one whenever an older client or bridge would take a message, a
/// lane, or an environment variable of this file for something else than it means now: a field that moves, a flag or
/// an operation that is no longer optional, another layout of the shared page. An addition that the other side may
/// refuse (a new operation, a flag that it may ignore) needs no new version.
pub const PROTOCOL_VERSION: u8 = 1;

/// `Reply::status` of a refusal because the two sides speak different versions: `EPROTO` of Linux, which is what a
/// program gets from its call.
pub const STATUS_OTHER_VERSION: i32 = 71;

/// First four bytes of every message.
pub const MAGIC: u32 = magic(PROTOCOL_VERSION);

/// What stands before the byte of the version.
const NAME: [u8; 3] = *b"FBY";
/// The byte of version 0, which there never was.
const ZERO: u8 = b'0';

const _: () = assert!(PROTOCOL_VERSION > 0 && PROTOCOL_VERSION <= u8::MAX - ZERO);

const fn magic(version: u8) -> u32 {
    u32::from_le_bytes([NAME[0], NAME[1], NAME[2], ZERO + version])
}

/// Looks at the first bytes of a message: before anything else, because another version may have another layout.
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

/// What a bridge answers to a message of version `theirs`: a whole message, which begins as theirs do, so that a
/// client of that version reads it as a reply.
pub fn refusal(theirs: u8) -> [u8; REPLY_HEADER_BYTES] {
    let mut header = Reply {
        aux: u64::from(PROTOCOL_VERSION),
        ..Reply::status(0, STATUS_OTHER_VERSION)
    }
    .header();
    header[..4].copy_from_slice(&magic(theirs.min(u8::MAX - ZERO)).to_le_bytes());
    header
}

/// The version of a bridge whose reply says that it speaks another one.
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

    /// A message of this version as another one would begin it.
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
    fn a_refusal_reads_as_a_reply_for_whom_it_is_meant_and_names_the_bridges_version() {
        let theirs = PROTOCOL_VERSION + 6;
        let mut refusal = refusal(theirs);
        // A client of that version sees its own magic, and the fields where they have always been.
        assert_eq!(refusal[..4], magic(theirs).to_le_bytes());
        of_version(&mut refusal, PROTOCOL_VERSION);
        // The bridge names our own version, so this is not a refusal of our version.
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
