//! Names of backing files and directories, and what they say about their objects.

use forebay_core::record::{ObjectId, ObjectName};

/// What an object is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A regular file. A symbolic link and a marker have this shape, too.
    File,
    /// An empty directory.
    Dir,
    /// A FIFO, socket or device beside a file that carries the label.
    Node,
}

pub(super) const SHAPE_BITS: u32 = 2;
/// Binary logarithm of the number of sequence numbers per folder.
pub(super) const FOLDER_BITS: u32 = 12;

/// The shape of an object, which its id tells.
pub fn shape(object: ObjectName) -> Shape {
    match object.oid.seq() & 3 {
        0 => Shape::File,
        1 => Shape::Dir,
        _ => Shape::Node,
    }
}

/// The folder that a sequence number belongs to.
pub fn folder_of(seq: u64) -> u64 {
    seq >> FOLDER_BITS
}

/// The name of an object within its folder, on the stack.
pub(super) struct Name {
    bytes: [u8; 48],
    len: usize,
}

impl Name {
    pub(super) fn new(object: ObjectName, node: bool) -> Self {
        let mut name = Name {
            bytes: [0; 48],
            len: 0,
        };
        for byte in object.oid.0.to_be_bytes() {
            name.hex(byte >> 4);
            name.hex(byte & 15);
        }
        if object.link != 0 {
            name.push(b'.');
            let digits = (35 - object.link.leading_zeros()) / 4;
            for i in (0..digits).rev() {
                name.hex((object.link >> (4 * i)) as u8 & 15);
            }
        }
        if node {
            for b in *b".node" {
                name.push(b);
            }
        }
        name
    }
    fn push(&mut self, b: u8) {
        self.bytes[self.len] = b;
        self.len += 1;
    }
    fn hex(&mut self, digit: u8) {
        self.push(b"0123456789abcdef"[usize::from(digit & 15)]);
    }
}

impl std::ops::Deref for Name {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Reads the name of a backing file: the object, and whether it is its node.
pub fn parse_name(name: &[u8]) -> Option<(ObjectName, bool)> {
    let text = std::str::from_utf8(name).ok()?;
    let (text, node) = match text.strip_suffix(".node") {
        Some(t) => (t, true),
        None => (text, false),
    };
    let (id, link) = text.split_once('.').unwrap_or((text, "0"));
    let object = ObjectName {
        oid: ObjectId(u128::from_str_radix(id, 16).ok()?),
        link: u32::from_str_radix(link, 16).ok()?,
    };
    // Accept only the spelling that `Name` writes.
    (*Name::new(object, node) == *name).then_some((object, node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::record::BridgeId;

    #[test]
    fn backing_names_lead_back_to_their_objects() {
        for (seq, link) in [(0, 0), (5, 1), (u64::MAX, u32::MAX), (1 << 40, 0x10)] {
            let object = ObjectName {
                oid: ObjectId::new(BridgeId(7), 2, seq),
                link,
            };
            for node in [false, true] {
                let name = Name::new(object, node);
                assert_eq!(parse_name(&name), Some((object, node)));
            }
        }
        for bad in ["", "x", "00.1", "0.0.0", "lost+found"] {
            assert_eq!(parse_name(bad.as_bytes()), None);
        }
    }
}
