//! The rules of Darshan that a recorder and a reader of logs must agree on: the id of a name, and the buckets of
//! access sizes.
//!
//! They are a crate of their own because a recorder has no std, and a reader of logs knows of no recorder.
//!
//! ```
//! assert_eq!(darshan_rules::record_id(b"<STDIN>"), 14734109647742566553);
//! assert_eq!(darshan_rules::size_bucket(100), 0);
//! assert_eq!(darshan_rules::size_bucket(101), 1);
//! ```
#![no_std]
#![forbid(unsafe_code)]

/// Record id of a name.
///
/// It is Bob Jenkins' 64-bit hash of 1997 ("lookup8", public domain) with level 0. The name is a cleaned absolute path,
/// or one such as `<STDOUT>` and `heatmap:POSIX`.
pub fn record_id(name: &[u8]) -> u64 {
    let (mut a, mut b, mut c) = (0u64, 0u64, 0x9e37_79b9_7f4a_7c13_u64);
    let mut blocks = name.chunks_exact(24);
    for block in &mut blocks {
        a = a.wrapping_add(word(&block[..8]));
        b = b.wrapping_add(word(&block[8..16]));
        c = c.wrapping_add(word(&block[16..]));
        (a, b, c) = mix(a, b, c);
    }
    let tail = blocks.remainder();
    let part = |from: usize| tail.get(from..tail.len().min(from + 8)).map_or(0, word);
    a = a.wrapping_add(part(0));
    b = b.wrapping_add(part(8));
    // The lowest byte of `c` is kept for the length.
    c = c
        .wrapping_add(name.len() as u64)
        .wrapping_add(part(16) << 8);
    mix(a, b, c).2
}

/// Up to eight bytes as a number, the first byte lowest.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    if let Ok(eight) = bytes.try_into() {
        return u64::from_le_bytes(eight);
    }
    bytes.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b))
}

fn mix(mut a: u64, mut b: u64, mut c: u64) -> (u64, u64, u64) {
    const RIGHT_LEFT_RIGHT: [[u32; 3]; 4] = [[43, 9, 8], [38, 23, 5], [35, 49, 11], [12, 18, 22]];
    for [x, y, z] in RIGHT_LEFT_RIGHT {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> x);
        b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << y);
        c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> z);
    }
    (a, b, c)
}

/// Upper bounds, inclusive, in bytes, of the ten buckets of the access size histograms; the last one has none.
pub const SIZE_BUCKETS: [u64; 10] = [
    100,
    1 << 10,
    10 << 10,
    100 << 10,
    1 << 20,
    4 << 20,
    10 << 20,
    100 << 20,
    1 << 30,
    u64::MAX,
];

/// The bucket of the access size histograms that `bytes` falls into, 0 to 9.
#[inline]
pub fn size_bucket(bytes: u64) -> usize {
    let [bounds @ .., _] = &SIZE_BUCKETS;
    bounds.iter().take_while(|bound| bytes > **bound).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids that Darshan gave to these names in its own logs.
    #[test]
    fn ids_are_those_of_darshan() {
        for (name, id) in [
            ("<STDIN>", 14734109647742566553),
            ("<STDOUT>", 15920181672442173319),
            ("<STDERR>", 7238257241479193519),
            ("heatmap:POSIX", 16592106915301738621),
            ("/tmp/test/mpi-io-test.tmp.dat", 6331129185542144414),
            (
                "/home/wkliao/Darshan/TEST/mpi-io-test.tmp.dat",
                9347516096890457488,
            ),
            (
                "/home/shane/software/ior/build/testFile:data_var",
                13643764139999164549,
            ),
        ] {
            assert_eq!(record_id(name.as_bytes()), id, "{name}");
        }
    }

    #[test]
    fn a_bound_belongs_to_its_bucket_and_one_byte_more_to_the_next() {
        for (at, bound) in SIZE_BUCKETS[..9].iter().enumerate() {
            assert_eq!(size_bucket(*bound), at);
            assert_eq!(size_bucket(bound + 1), at + 1);
        }
        assert_eq!((size_bucket(0), size_bucket(u64::MAX)), (0, 9));
    }
}
