//! Where backing objects lie below the instance directory of their bridge, and what they are called there.

use crate::ObjectName;
use core::ops::Deref;

/// Binary logarithm of the number of sequence numbers per folder.
pub const FOLDER_BITS: u32 = 12;
/// Longest path in bytes.
const MOST_BYTES: usize = 80;

/// The folder that a sequence number belongs to.
pub const fn folder_of(seq: u64) -> u64 {
    seq >> FOLDER_BITS
}

/// A name or a path below the instance directory, on the stack.
#[derive(Clone)]
pub struct Backing {
    bytes: [u8; MOST_BYTES],
    len: usize,
}

impl Backing {
    fn empty() -> Self {
        Backing {
            bytes: [0; MOST_BYTES],
            len: 0,
        }
    }

    /// The name of an object within its folder; `node`: of its FIFO, socket or device.
    pub fn name(object: ObjectName, node: bool) -> Self {
        let mut name = Backing::empty();
        name.push_name(object);
        if node {
            name.push(b".node");
        }
        name
    }

    /// The path of a backing file.
    pub fn file(object: ObjectName) -> Self {
        Backing::path(b"obj/", object)
    }

    /// The path of a backing directory.
    pub fn dir(object: ObjectName) -> Self {
        Backing::path(b"dir/", object)
    }

    fn path(kind: &[u8], object: ObjectName) -> Self {
        let mut path = Backing::empty();
        path.push(kind);
        path.push_hex(folder_of(object.oid.seq()).into());
        path.push(b"/");
        path.push_name(object);
        path
    }

    fn push_name(&mut self, object: ObjectName) {
        for byte in object.oid.0.to_be_bytes() {
            self.push_digit(byte >> 4);
            self.push_digit(byte);
        }
        if object.link != 0 {
            self.push(b".");
            self.push_hex(object.link.into());
        }
    }

    /// Without zeroes in front.
    fn push_hex(&mut self, number: u128) {
        let digits = (u128::BITS - number.leading_zeros()).div_ceil(4).max(1);
        for i in (0..digits).rev() {
            self.push_digit((number >> (4 * i)) as u8);
        }
    }

    fn push_digit(&mut self, digit: u8) {
        self.push(&[b"0123456789abcdef"[usize::from(digit & 15)]]);
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
    }
}

impl Deref for Backing {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BridgeId, ObjectId};

    #[test]
    fn a_path_names_kind_folder_object_and_link() {
        let oid = ObjectId::new(BridgeId(1), 2, 0x1234);
        let object = ObjectName { oid, link: 0 };
        let name = b"00000001000000020000000000001234";
        assert!(Backing::file(object).strip_prefix(b"obj/1/") == Some(&name[..]));
        assert!(Backing::dir(object).strip_prefix(b"dir/1/") == Some(&name[..]));
        let link = ObjectName { oid, link: 0x1f };
        assert!(Backing::name(link, true).strip_prefix(name) == Some(b".1f.node"));
    }

    #[test]
    fn the_longest_fits() {
        let object = ObjectName {
            oid: ObjectId(u128::MAX),
            link: u32::MAX,
        };
        assert!(Backing::file(object).len() < MOST_BYTES);
        assert!(Backing::name(object, true).len() < MOST_BYTES);
    }
}
