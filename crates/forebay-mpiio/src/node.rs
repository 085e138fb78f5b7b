//! The node that this process runs on.

use std::sync::OnceLock;

/// A number that all processes on this node have, and those of no other node: its boot id, or else its name.
pub fn number() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| {
            let names = rustix::system::uname();
            names.nodename().to_bytes().to_vec()
        });
        // FNV-1a
        let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        id.iter().fold(0xcbf2_9ce4_8422_2325, step)
    })
}

/// Processors of this node, whichever of them this process may run on.
pub fn processors() -> u32 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_one = |line: &&str| {
        let number = line.strip_prefix("cpu");
        number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    stat.lines().filter(is_one).count() as u32
}
