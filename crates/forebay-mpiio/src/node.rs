//! The node that this process runs on.

use std::sync::OnceLock;

/// The most aggregators on a node whose file system has no locks to share. More only take the cores of the program.
const MAX_LOCAL_AGGREGATORS: u32 = 4;

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

/// How many aggregators this node can have where clients share no locks.
pub fn aggregators() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores as u32).clamp(1, MAX_LOCAL_AGGREGATORS)
}
