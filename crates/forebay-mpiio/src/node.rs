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

/// Processors of this node, whichever of them this process may run on; at least 1.
pub fn processors() -> u32 {
    static PROCESSORS: OnceLock<u32> = OnceLock::new();
    *PROCESSORS.get_or_init(|| {
        let list = std::fs::read_to_string("/sys/devices/system/cpu/online");
        list.ok().and_then(|list| count(&list)).unwrap_or(1)
    })
}

/// How many numbers a list such as `0-3,8` has; `None` if it is none.
fn count(list: &str) -> Option<u32> {
    let ranges = list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    ranges.sum()
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn processors_are_counted_in_lists_of_ranges() {
        assert_eq!(count("0\n"), Some(1));
        assert_eq!(count("0-3,8,10-11\n"), Some(7));
        for nonsense in ["", "a", "3-1", "0-4294967295"] {
            assert_eq!(count(nonsense), None, "{nonsense}");
        }
    }
}
