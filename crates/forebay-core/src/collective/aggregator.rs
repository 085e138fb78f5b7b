//! Which processes are aggregators.
//!
//! A node is one client of the file system, with one set of locks. So by default each node has one aggregator, and
//! more of them would only share its locks.

use super::Method;
use std::collections::BTreeMap;

/// The aggregators among processes, `nodes[i]` being the node of process `i`: the lowest `per_node` processes of each
/// node, then `wanted` of them at equal distances if there are more. By ascending number.
pub fn aggregators(nodes: &[u32], per_node: u32, wanted: u32) -> Vec<u32> {
    let mut taken: BTreeMap<u32, u32> = BTreeMap::new();
    let candidate = |(process, node): (usize, &u32)| {
        let on_node = taken.entry(*node).or_default();
        *on_node += 1;
        (*on_node <= per_node).then_some(process as u32)
    };
    let all: Vec<u32> = nodes.iter().enumerate().filter_map(candidate).collect();
    let keep = all.len().min(wanted as usize);
    (0..keep).map(|i| all[i * all.len() / keep]).collect()
}

/// How many of `available` aggregators fit a file on so many servers. The cyclic methods pay only if every aggregator
/// always meets the same servers: the number must divide that of the servers, or be a multiple of it.
///
/// # Panics
/// If a cyclic method has no server to meet.
pub fn fitting_count(method: Method, available: u32, servers: u32) -> u32 {
    let count = match method {
        Method::Even | Method::Aligned => return available,
        _ if servers == 0 => panic!("a file lies on a server"),
        Method::StaticCyclic | Method::GroupCyclic(_) if available >= servers => {
            available - available % servers
        }
        Method::StaticCyclic | Method::GroupCyclic(_) => (1..=available)
            .rev()
            .find(|n| servers.is_multiple_of(*n))
            .unwrap_or(available),
    };
    assert!(
        count.is_multiple_of(servers) || servers.is_multiple_of(count),
        "{count} aggregators meet the same of {servers} servers"
    );
    count
}
