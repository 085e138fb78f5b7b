//! Frames: the pieces of an answer. Neither side ever holds more than one.
//!
//! A frame is the length of its contents (4 bytes, little endian), its kind (1 byte), and the contents.

use crate::Garbled;
use std::io::{self, Read, Write};

/// Longest contents of a frame in bytes. The longest paths, written as JSON, fit several times.
pub const MAX_FRAME_BYTES: usize = 1 << 20;
/// Length and kind.
const HEADER_BYTES: usize = 5;

/// What a frame is. The numbers never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// The first one: [`Head`].
    Head = 1,
    /// One item of the answer.
    Item = 2,
    /// The last frame of a complete answer: [`End`].
    End = 3,
    /// The last frame of a refused answer: [`crate::Refusal`].
    Refusal = 4,
}

impl FrameKind {
    fn of(number: u8) -> Result<Self, Garbled> {
        [
            FrameKind::Head,
            FrameKind::Item,
            FrameKind::End,
            FrameKind::Refusal,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == number)
        .ok_or(Garbled::UnknownFrame(number))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            FrameKind::Head => "head",
            FrameKind::Item => "item",
            FrameKind::End => "end",
            FrameKind::Refusal => "refusal",
        }
    }
}

/// The head of every answer, in this version and in all later ones.
#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct Head {
    pub version: u32,
}

/// Ends an answer.
#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct End {
    /// Number of items before it.
    pub items: u64,
}

/// Why no frame was read.
#[derive(Debug)]
pub(crate) enum FrameError {
    /// The stream failed, or ended between two frames.
    Io(io::Error),
    /// What came is no frame.
    Garbled(Garbled),
}

impl From<Garbled> for FrameError {
    fn from(what: Garbled) -> Self {
        FrameError::Garbled(what)
    }
}

/// Writes a frame.
///
/// # Panics
/// If the contents are longer than [`MAX_FRAME_BYTES`].
pub(crate) fn write(out: &mut impl Write, kind: FrameKind, contents: &[u8]) -> io::Result<()> {
    assert!(contents.len() <= MAX_FRAME_BYTES);
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&(contents.len() as u32).to_le_bytes());
    header[4] = kind as u8;
    out.write_all(&header)?;
    out.write_all(contents)
}

/// Reads the next frame into `contents`. Allocates for the bytes that came, not for those that the frame announces.
pub(crate) fn read(from: &mut impl Read, contents: &mut Vec<u8>) -> Result<FrameKind, FrameError> {
    contents.clear();
    fill(from, contents, HEADER_BYTES)?;
    let (len, kind) = match contents[..] {
        [a, b, c, d, kind] => (u32::from_le_bytes([a, b, c, d]) as usize, kind),
        [] => {
            return Err(FrameError::Io(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "it ended before its answer",
            )));
        }
        _ => return Err(cut_off(contents, HEADER_BYTES)),
    };
    let kind = FrameKind::of(kind)?;
    if len > MAX_FRAME_BYTES {
        return Err(Garbled::TooLong(len).into());
    }
    contents.clear();
    fill(from, contents, len)?;
    if contents.len() < len {
        return Err(cut_off(contents, len));
    }
    Ok(kind)
}

fn fill(from: &mut impl Read, contents: &mut Vec<u8>, len: usize) -> Result<(), FrameError> {
    from.take(len as u64)
        .read_to_end(contents)
        .map(drop)
        .map_err(FrameError::Io)
}

fn cut_off(contents: &[u8], want: usize) -> FrameError {
    let got = contents.len();
    Garbled::CutOff { got, want }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn garbled(bytes: &[u8]) -> Garbled {
        match read(&mut &bytes[..], &mut Vec::new()) {
            Err(FrameError::Garbled(what)) => what,
            other => panic!("{other:?} of {}", bytes.escape_ascii()),
        }
    }

    #[test]
    fn frames_come_back_as_they_were_written() {
        let mut bytes = Vec::new();
        let long = vec![7; MAX_FRAME_BYTES];
        let frames = [
            (FrameKind::Head, &b"{}"[..]),
            (FrameKind::Item, &long),
            (FrameKind::Refusal, b"x"),
            (FrameKind::End, b""),
        ];
        for (kind, contents) in frames {
            write(&mut bytes, kind, contents).unwrap();
        }
        let mut from = &bytes[..];
        let mut read_back = Vec::new();
        for (kind, contents) in frames {
            assert_eq!(read(&mut from, &mut read_back).unwrap(), kind);
            assert_eq!(read_back, contents);
        }
        // An end between two frames is not garbage.
        assert!(matches!(
            read(&mut from, &mut read_back),
            Err(FrameError::Io(e)) if e.kind() == io::ErrorKind::UnexpectedEof
        ));
    }

    #[test]
    fn a_frame_that_was_cut_off_anywhere_is_no_frame() {
        let mut bytes = Vec::new();
        write(&mut bytes, FrameKind::Item, b"0123456789").unwrap();
        for len in 1..bytes.len() {
            let what = garbled(&bytes[..len]);
            assert!(matches!(what, Garbled::CutOff { .. }), "{what:?} at {len}");
        }
    }

    #[test]
    fn a_frame_that_announces_too_much_takes_no_memory() {
        let mut contents = Vec::new();
        let bytes = [&u32::MAX.to_le_bytes()[..], &[2], &[0; 100]].concat();
        let outcome = read(&mut &bytes[..], &mut contents);
        assert!(matches!(
            outcome,
            Err(FrameError::Garbled(Garbled::TooLong(_)))
        ));
        let bytes = [&(MAX_FRAME_BYTES as u32).to_le_bytes()[..], &[2], &[0; 100]].concat();
        assert!(matches!(garbled(&bytes), Garbled::CutOff { got: 100, .. }));
        let _ = read(&mut &bytes[..], &mut contents);
        assert!(contents.capacity() < 64 << 10, "{}", contents.capacity());
    }

    #[test]
    fn garbage_is_no_frame() {
        assert_eq!(garbled(b"\0\0\0\0\0"), Garbled::UnknownFrame(0));
        assert_eq!(garbled(b"{\"error\":\"x\"}"), Garbled::UnknownFrame(b'r'));
        assert_eq!(garbled(b"\x01\0\0\0\x09x"), Garbled::UnknownFrame(9));
    }
}
