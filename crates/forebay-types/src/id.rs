//! Identities of bridges, objects and requests.

use core::fmt;

/// Number of a bridge server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BridgeId(pub u32);

/// 128-bit identity of an object: the bridge that made it, the bridge's epoch
/// (count of its starts), and a sequence number within the epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectId(pub u128);

/// Bits of a sequence number that say what an object is.
pub const SHAPE_MASK: u64 = 3;
/// What they are of a copy.
pub const COPY: u64 = 3;

impl ObjectId {
    /// Makes an identity from its parts.
    pub fn new(bridge: BridgeId, epoch: u32, seq: u64) -> Self {
        ObjectId(u128::from(bridge.0) << 96 | u128::from(epoch) << 64 | u128::from(seq))
    }
    /// The bridge that made the object.
    pub fn bridge(self) -> BridgeId {
        BridgeId((self.0 >> 96) as u32)
    }
    /// The epoch of that bridge in which it was made.
    pub fn epoch(self) -> u32 {
        (self.0 >> 64) as u32
    }
    /// Its number within the epoch.
    pub fn seq(self) -> u64 {
        self.0 as u64
    }
    /// A plain file that was copied from the PFS. The bridge knows which inode number programs see.
    pub fn is_copy(self) -> bool {
        self.seq() & SHAPE_MASK == COPY
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:x}.{:x}.{:x}",
            self.bridge().0,
            self.epoch(),
            self.seq()
        )
    }
}

/// One name of a backing object. Hard links are further names of one inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectName {
    /// The object.
    pub oid: ObjectId,
    /// 0 for the first name; each further name counts up. One object never uses a number twice.
    pub link: u32,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.link {
            0 => write!(f, "{}", self.oid),
            link => write!(f, "{}.{link}", self.oid),
        }
    }
}

/// Identity of a mutating request. By it a bridge recognises a request that was sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Token {
    /// The client process.
    pub client: u64,
    /// Number of the request within it.
    pub seq: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_id_gives_its_parts_back() {
        let id = ObjectId::new(BridgeId(0xaabb_ccdd), 0x1122_3344, 0x5566_7788_99aa_bbcc);
        assert_eq!(id.bridge(), BridgeId(0xaabb_ccdd));
        assert_eq!(id.epoch(), 0x1122_3344);
        assert_eq!(id.seq(), 0x5566_7788_99aa_bbcc);
    }
}
