//! Names of backing files and directories, and what they say about their objects.

use forebay_core::record::{ObjectId, ObjectName, Shape};
use forebay_types::{Backing, COPY, SHAPE_MASK};

pub(super) const SHAPE_BITS: u32 = SHAPE_MASK.count_ones();

/// The shape of an object, which its id tells.
pub fn shape(object: ObjectName) -> Shape {
    match object.oid.seq() & SHAPE_MASK {
        0 | COPY => Shape::File,
        1 => Shape::Dir,
        _ => Shape::Node,
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
    // Accept only the spelling that `Backing` writes.
    (*Backing::name(object, node) == *name).then_some((object, node))
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
                let name = Backing::name(object, node);
                assert_eq!(parse_name(&name), Some((object, node)));
            }
        }
        for bad in ["", "x", "00.1", "0.0.0", "lost+found"] {
            assert_eq!(parse_name(bad.as_bytes()), None);
        }
    }
}
