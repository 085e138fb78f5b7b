//! Which bridge is home of a path.
//!
//! Paths fall into a fixed number of virtual shards, and each shard goes to the
//! bridge with the highest hash of (shard, bridge): rendezvous hashing (Thaler
//! and Ravishankar, 1998). When a bridge joins, only the shards that it wins
//! move; `hash % N` would move nearly all.

use crate::path::TreePath;
use crate::record::BridgeId;

/// Virtual shards of a namespace. With 1,200 bridges each still gets dozens.
pub const VIRTUAL_SHARDS: usize = 1 << 16;

/// The homes of all paths under one set of bridges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Homes {
    only: Option<BridgeId>,
    shards: Vec<BridgeId>,
}

impl Homes {
    /// The homes under `members`, in any order.
    ///
    /// # Panics
    /// If there is no member.
    pub fn new(members: &[BridgeId]) -> Self {
        assert!(!members.is_empty(), "a namespace has at least one bridge");
        if let [only] = members {
            return Homes {
                only: Some(*only),
                shards: Vec::new(),
            };
        }
        let winner = |shard: usize| {
            members
                .iter()
                .copied()
                .max_by_key(|b| (mix(shard as u64, u64::from(b.0)), *b))
                .unwrap_or_default()
        };
        Homes {
            only: None,
            shards: (0..VIRTUAL_SHARDS).map(winner).collect(),
        }
    }

    /// The bridge whose global table holds `path`.
    pub fn of(&self, path: &TreePath) -> BridgeId {
        match self.only {
            Some(bridge) => bridge,
            None => self.shards[shard(path)],
        }
    }
}

/// The virtual shard of a path.
pub fn shard(path: &TreePath) -> usize {
    (hash_bytes(path.as_bytes()) % VIRTUAL_SHARDS as u64) as usize
}

/// A 64-bit hash of bytes that is the same in every build and on every machine
/// (FNV-1a, closed by the finaliser of splitmix64 because FNV's low bits are weak).
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let fnv = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, &b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    finish(fnv)
}

/// A 64-bit hash of two numbers.
pub fn mix(a: u64, b: u64) -> u64 {
    finish(finish(a).wrapping_add(b))
}

fn finish(v: u64) -> u64 {
    let v = v.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let v = (v ^ (v >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let v = (v ^ (v >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    v ^ (v >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bridges(n: u32) -> Vec<BridgeId> {
        (0..n).map(BridgeId).collect()
    }

    #[test]
    fn a_bridge_that_joins_takes_its_share_and_nothing_moves_between_the_others() {
        for n in [1, 2, 3, 7, 20] {
            let before = Homes::new(&bridges(n));
            let after = Homes::new(&bridges(n + 1));
            let mut moved = 0;
            for i in 0..20_000 {
                let path = TreePath::new(format!("run/step{i}/rank{}", i * 7)).unwrap();
                let (old, new) = (before.of(&path), after.of(&path));
                if old != new {
                    assert_eq!(new, BridgeId(n), "{path} moved between old bridges");
                    moved += 1;
                }
            }
            let share = 20_000 / (n + 1);
            assert!(
                moved > share * 8 / 10 && moved < share * 12 / 10,
                "{moved} of 20000 moved to bridge {n}, its share is {share}"
            );
        }
    }

    #[test]
    fn the_order_of_the_members_does_not_matter() {
        let mut members = bridges(5);
        let a = Homes::new(&members);
        members.reverse();
        assert_eq!(a, Homes::new(&members));
    }

    #[test]
    fn homes_do_not_change_between_builds() {
        // Stored tables depend on these: a change needs a new table format.
        let p = Homes::new(&bridges(4));
        let homes: Vec<_> = ["", "a", "a/b", "a_b", "out/step.1"]
            .iter()
            .map(|s| p.of(&TreePath::new(s.as_bytes()).unwrap()).0)
            .collect();
        assert_eq!(homes, HOMES_OF_FOUR);
    }

    const HOMES_OF_FOUR: [u32; 5] = [0, 3, 2, 0, 0];
}
