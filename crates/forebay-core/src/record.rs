//! What the tables hold about one path.
//!
//! A record says *which* object a path names and what the PFS below has to do
//! with it. It holds no size, owner or time: those live in the inode of the
//! backing object, because programs change them there, through real descriptors.

use crate::path::TreePath;
use std::fmt;

pub use forebay_types::{BridgeId, ObjectId, ObjectName, Stamp, Token};

/// What kind of thing a record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file whose bytes are in the backing object.
    File,
    /// A directory made in the buffer. Nothing of the PFS shows through it.
    Dir,
    /// A symbolic link; the backing object holds its text.
    Symlink,
    /// A FIFO, socket or device node.
    Special,
    /// Something of the PFS that was renamed: it is still at `origin` there.
    Moved,
    /// Nothing is here, although the PFS has something at `hides`.
    Whiteout,
}

impl Kind {
    /// Its number in tables and labels.
    pub const fn code(self) -> u8 {
        match self {
            Kind::File => 1,
            Kind::Dir => 2,
            Kind::Symlink => 3,
            Kind::Special => 4,
            Kind::Moved => 5,
            Kind::Whiteout => 6,
        }
    }

    /// The kind with this number, if there is one.
    pub const fn from_code(code: u8) -> Option<Kind> {
        Some(match code {
            1 => Kind::File,
            2 => Kind::Dir,
            3 => Kind::Symlink,
            4 => Kind::Special,
            5 => Kind::Moved,
            6 => Kind::Whiteout,
            _ => return None,
        })
    }
}

/// Everything a table says about one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Grows with each change of this path's record; never reused for a path.
    pub version: u64,
    /// What it is.
    pub kind: Kind,
    /// The backing object (for `Moved` and `Whiteout` a file that only carries the label).
    pub object: ObjectName,
    /// The bridge that keeps the object.
    pub owner: BridgeId,
    /// Inode number that `stat` shows, for directory listings; 0 for `Moved` and `Whiteout`.
    pub ino: u64,
    /// For `Moved`: where on the PFS the thing still is.
    pub origin: Option<TreePath>,
    /// What on the PFS lies hidden under this path and has to go when this is drained.
    pub hides: Option<TreePath>,
    /// The request that made this path name this object.
    pub token: Token,
    /// Set once drained.
    pub drained: Option<Stamp>,
}

impl Record {
    /// Does a program see something here?
    pub fn is_visible(&self) -> bool {
        self.kind != Kind::Whiteout
    }
}

/// Why bytes are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadRecord;

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("damaged record")
    }
}

impl std::error::Error for BadRecord {}

const FORMAT: u8 = 1;

impl Record {
    /// Bytes for the table. The first one is the format version.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::with_capacity(96);
        w.push(FORMAT);
        w.push(self.kind.code());
        w.push(
            u8::from(self.origin.is_some())
                | u8::from(self.hides.is_some()) << 1
                | u8::from(self.drained.is_some()) << 2,
        );
        w.extend_from_slice(&self.version.to_le_bytes());
        w.extend_from_slice(&self.object.oid.0.to_le_bytes());
        w.extend_from_slice(&self.object.link.to_le_bytes());
        w.extend_from_slice(&self.owner.0.to_le_bytes());
        w.extend_from_slice(&self.ino.to_le_bytes());
        w.extend_from_slice(&self.token.client.to_le_bytes());
        w.extend_from_slice(&self.token.seq.to_le_bytes());
        if let Some(d) = self.drained {
            w.extend_from_slice(&d.size.to_le_bytes());
            w.extend_from_slice(&d.ctime_ns.to_le_bytes());
        }
        for path in [&self.origin, &self.hides].into_iter().flatten() {
            w.extend_from_slice(&(path.as_bytes().len() as u16).to_le_bytes());
            w.extend_from_slice(path.as_bytes());
        }
        w
    }

    /// Reads what [`Record::encode`] wrote.
    ///
    /// # Errors
    /// [`BadRecord`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let mut r = Reader(bytes);
        if r.u8()? != FORMAT {
            return Err(BadRecord);
        }
        let kind = Kind::from_code(r.u8()?).ok_or(BadRecord)?;
        let has = r.u8()?;
        let mut record = Record {
            version: u64::from_le_bytes(r.array()?),
            kind,
            object: ObjectName {
                oid: ObjectId(u128::from_le_bytes(r.array()?)),
                link: u32::from_le_bytes(r.array()?),
            },
            owner: BridgeId(u32::from_le_bytes(r.array()?)),
            ino: u64::from_le_bytes(r.array()?),
            token: Token {
                client: u64::from_le_bytes(r.array()?),
                seq: u32::from_le_bytes(r.array()?),
            },
            origin: None,
            hides: None,
            drained: None,
        };
        if has & 4 != 0 {
            record.drained = Some(Stamp {
                size: u64::from_le_bytes(r.array()?),
                ctime_ns: i128::from_le_bytes(r.array()?),
            });
        }
        if has & 1 != 0 {
            record.origin = Some(r.path()?);
        }
        if has & 2 != 0 {
            record.hides = Some(r.path()?);
        }
        r.0.is_empty().then_some(record).ok_or(BadRecord)
    }
}

/// Takes bytes off the front, never past the end.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], BadRecord> {
        if self.0.len() < n {
            return Err(BadRecord);
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Ok(head)
    }
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], BadRecord> {
        let mut a = [0; N];
        a.copy_from_slice(self.take(N)?);
        Ok(a)
    }
    pub(crate) fn u8(&mut self) -> Result<u8, BadRecord> {
        Ok(self.array::<1>()?[0])
    }
    pub(crate) fn path(&mut self) -> Result<TreePath, BadRecord> {
        let len = usize::from(u16::from_le_bytes(self.array()?));
        TreePath::new(self.take(len)?).ok_or(BadRecord)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_encoding_and_every_truncation_is_refused() {
        let r = Record {
            version: 3,
            kind: Kind::Moved,
            object: ObjectName {
                oid: ObjectId::new(BridgeId(1), 2, 3),
                link: 4,
            },
            owner: BridgeId(5),
            ino: 6,
            origin: TreePath::new(*b"a/b"),
            hides: TreePath::new(*b"c"),
            token: Token { client: 7, seq: 8 },
            drained: Some(Stamp {
                size: 9,
                ctime_ns: -10,
            }),
        };
        let bytes = r.encode();
        assert_eq!(Record::decode(&bytes), Ok(r));
        for cut in 0..bytes.len() {
            assert_eq!(Record::decode(&bytes[..cut]), Err(BadRecord), "cut {cut}");
        }
    }
}
