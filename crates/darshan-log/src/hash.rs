//! The hash that turns a name into a record id.

/// Record id of a name: Bob Jenkins' 64-bit hash of 1997 ("lookup8", public domain) with
/// level 0, over the bytes of the cleaned absolute path (or of names such as `<STDOUT>` and
/// `heatmap:POSIX`).
///
/// ```
/// assert_eq!(darshan_log::record_id(b"<STDIN>"), 14734109647742566553);
/// assert_eq!(darshan_log::record_id(b"<STDOUT>"), 15920181672442173319);
/// assert_eq!(darshan_log::record_id(b"<STDERR>"), 7238257241479193519);
/// ```
pub fn record_id(name: &[u8]) -> u64 {
    let (mut a, mut b, mut c) = (0u64, 0u64, 0x9e37_79b9_7f4a_7c13u64);
    let mut blocks = name.chunks_exact(24);
    for block in &mut blocks {
        a = a.wrapping_add(little_endian(&block[..8]));
        b = b.wrapping_add(little_endian(&block[8..16]));
        c = c.wrapping_add(little_endian(&block[16..]));
        (a, b, c) = mix(a, b, c);
    }
    let tail = blocks.remainder();
    let (first, rest) = tail.split_at(tail.len().min(8));
    let (second, third) = rest.split_at(rest.len().min(8));
    a = a.wrapping_add(little_endian(first));
    b = b.wrapping_add(little_endian(second));
    // The lowest byte of c is kept for the length.
    c = c
        .wrapping_add(name.len() as u64)
        .wrapping_add(little_endian(third) << 8);
    mix(a, b, c).2
}

/// Up to eight bytes as a number.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn mix(mut a: u64, mut b: u64, mut c: u64) -> (u64, u64, u64) {
    for (right_a, left_b, right_c) in [(43, 9, 8), (38, 23, 5), (35, 49, 11), (12, 18, 22)] {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> right_a);
        b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << left_b);
        c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> right_c);
    }
    (a, b, c)
}
