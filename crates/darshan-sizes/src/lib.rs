//! The buckets of Darshan's access size histograms: what a recorder counts by and what a reader of logs shows.
//!
//! A crate of its own, because a recorder has no std and a reader of logs knows of no recorder.
//!
//! ```
//! assert_eq!(darshan_sizes::size_bucket(100), 0);
//! assert_eq!(darshan_sizes::size_bucket(101), 1);
//! assert_eq!(darshan_sizes::size_bucket(1 << 40), 9);
//! ```
#![no_std]
#![forbid(unsafe_code)]

/// Upper bounds, inclusive, in bytes, of the ten buckets of the access size histograms; the
/// last one has none.
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

    #[test]
    fn a_bound_belongs_to_its_bucket_and_one_byte_more_to_the_next() {
        for (at, bound) in SIZE_BUCKETS[..9].iter().enumerate() {
            assert_eq!(size_bucket(*bound), at);
            assert_eq!(size_bucket(bound + 1), at + 1);
        }
        assert_eq!((size_bucket(0), size_bucket(u64::MAX)), (0, 9));
    }
}
