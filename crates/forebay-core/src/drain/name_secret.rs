//! The part of a temporary name that nobody can tell in advance.

use crate::record::ObjectId;
use std::fmt;

/// What the temporary names of one pass are made from. The driver draws it at random, and nobody else learns it: whoever sees some
/// of the names can't tell the next ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NameSecret(pub [u64; 2]);

/// It does not get into a log.
impl fmt::Debug for NameSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameSecret")
    }
}

impl NameSecret {
    /// For the copy that is made of this object at this attempt.
    pub(super) fn token(&self, oid: ObjectId, attempt: u32) -> u64 {
        sip_hash(
            self.0,
            &[(oid.0 >> 64) as u64, oid.0 as u64, u64::from(attempt)],
        )
    }
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

/// SipHash-2-4 (Aumasson and Bernstein, 2012) of whole words.
fn sip_hash(key: [u64; 2], words: &[u64]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let end = (words.len() as u64 * 8) << 56;
    for word in words.iter().copied().chain([end]) {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_hash_of_its_authors() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        // Theirs for no bytes, and for 0 to 7.
        assert_eq!(sip_hash(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(sip_hash(key, &key[..1]), 0x93f5_f579_9a93_2462);
    }
}
