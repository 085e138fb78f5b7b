//! What goes back to a client.

use forebay_core::ops::Entry;
use forebay_core::record::ObjectId;
use forebay_wire::{
    ATTR_BYTES, DirEntry, DirEntryWriter, MAX_REPLY_BYTES, REPLY_HEADER_BYTES, ReplyKind,
};
use std::os::fd::OwnedFd;

/// The answer to a request.
#[derive(Debug)]
pub struct Answered {
    /// 0, an errno, or [`forebay_wire::STATUS_REDIRECT`].
    pub status: i32,
    /// What the body is.
    pub kind: ReplyKind,
    /// See [`ReplyKind::Entries`].
    pub aux: u64,
    /// The body.
    pub body: Body,
    /// The descriptor of a grant.
    pub fd: Option<OwnedFd>,
    /// The backing directory of which it is one.
    pub dir: Option<ObjectId>,
}

/// Body of a reply; the common one without allocation.
#[derive(Debug)]
pub enum Body {
    /// Nothing.
    Empty,
    /// Attributes.
    Attr([u8; ATTR_BYTES]),
    /// Anything else.
    Bytes(Vec<u8>),
}

impl Body {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Body::Empty => b"",
            Body::Attr(a) => a,
            Body::Bytes(b) => b,
        }
    }
}

impl Answered {
    /// Only a status.
    pub fn status(status: i32) -> Self {
        Answered {
            status,
            kind: ReplyKind::Empty,
            aux: 0,
            body: Body::Empty,
            fd: None,
            dir: None,
        }
    }

    /// Success with bytes.
    pub fn bytes(bytes: Vec<u8>) -> Self {
        Answered {
            kind: ReplyKind::Bytes,
            body: Body::Bytes(bytes),
            ..Answered::status(0)
        }
    }

    /// A part of a listing, as many entries as fit: and whether all did.
    pub fn entries(entries: &[Entry]) -> (Self, bool) {
        let mut body = vec![0; MAX_REPLY_BYTES - REPLY_HEADER_BYTES];
        let mut writer = DirEntryWriter::new(&mut body);
        let all_fit = entries.iter().all(|entry| {
            writer.push(&DirEntry {
                ino: entry.ino,
                dtype: entry.dtype,
                name: &entry.name,
            })
        });
        let len = writer.len();
        body.truncate(len);
        let answered = Answered {
            kind: ReplyKind::Entries,
            body: Body::Bytes(body),
            ..Answered::status(0)
        };
        (answered, all_fit)
    }
}
