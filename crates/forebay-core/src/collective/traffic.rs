//! How much the locks of a file move in a collective write, by each method.

use super::{FileDomains, LockProtocol};
use std::collections::BTreeMap;

/// Granules that are looked at. What lies behind them counts as it does before.
const MAX_GRANULES: u64 = 1 << 17;

/// The locks of one collective write by aggregators that hold none before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockTraffic {
    /// Locks that are asked for.
    pub requests: u64,
    /// Those that another aggregator has to give up for it.
    pub conflicts: u64,
}

/// What a protocol makes of a write that is divided like this, if each aggregator writes its domain from the lowest offset to the
/// highest and a lock grows as far as nobody else is: an aggregator asks once for each stretch of granules of one lock space
/// that it has for itself, and once more for the last granule if it shares that with the next one. Aggregators that work at different times meet less, so this is the most. `None` if the protocol is
/// not known.
///
/// The numbers are those of the paper's policy: with 64 aggregators, 64 servers and 1954 stripes 2017 requests of the even
/// method, 1953 of them in conflict. One lock for the whole file moves with each granule if there are several aggregators.
pub fn lock_traffic(domains: &FileDomains, protocol: LockProtocol) -> Option<LockTraffic> {
    let layout = domains.layout();
    let region = domains.region();
    let space_of = |offset| match protocol {
        LockProtocol::ServerSide => u64::from(layout.server_of(offset)),
        LockProtocol::Granules => layout.granule_of(offset),
        _ => 0,
    };
    match protocol {
        LockProtocol::Unknown => return None,
        LockProtocol::None => return Some(LockTraffic::default()),
        _ => {}
    }
    let mut traffic = LockTraffic::default();
    let mut holders: BTreeMap<u64, u32> = BTreeMap::new();
    let mut steps = 0;
    // The granule that was looked at last, if its first owner came to it with a lock.
    let mut came_with_lock = None;
    let mut at = region.start;
    let last = layout.granule_of(region.start).saturating_add(MAX_GRANULES);
    let end = region.end.min(last.saturating_mul(layout.granule_bytes));
    while at < end {
        let owner = domains.owner(at)?;
        let space = space_of(at);
        steps += 1;
        let granule = layout.granule_of(at);
        match holders.insert(space, owner) {
            Some(before) if before == owner => came_with_lock = Some(granule),
            Some(_) => {
                let asks_again = u64::from(came_with_lock.take() == Some(granule));
                traffic.requests += 1 + asks_again;
                traffic.conflicts += 1 + asks_again;
            }
            None => traffic.requests += 1,
        }
        // A granule may have several owners: on to what comes first, the next one or the next granule.
        let granule_end = (granule + 1).saturating_mul(layout.granule_bytes);
        let piece = domains.domain(owner).pieces_from(at).next()?;
        at = granule_end.min(piece.end).min(end);
    }
    if protocol == LockProtocol::WholeFile && traffic.conflicts > 0 {
        (traffic.requests, traffic.conflicts) = (steps, steps - 1);
    }
    if end < region.end {
        let (done, all) = (u128::from(end - region.start), u128::from(region.bytes()));
        let scaled = |n: u64| (u128::from(n) * all / done) as u64;
        traffic = LockTraffic {
            requests: scaled(traffic.requests),
            conflicts: scaled(traffic.conflicts),
        };
    }
    Some(traffic)
}

#[cfg(test)]
mod tests {
    use super::super::{Extent, Groups, Layout, Method};
    use super::*;

    const GROUP: Method = Method::GroupCyclic(Groups::Concurrent);

    /// The benchmark of the paper: cubes of 100 integers a side.
    fn of(method: Method, protocol: LockProtocol, aggregators: u32, servers: u32) -> (u64, u64) {
        let region = Extent::new(0, u64::from(aggregators) * 4 * 4_000_000);
        let layout = Layout::new(512 << 10, servers);
        let domains = FileDomains::new(method, region, aggregators, layout);
        let traffic = lock_traffic(&domains, protocol).unwrap();
        (traffic.requests, traffic.conflicts)
    }

    #[test]
    fn requests_and_conflicts_on_servers_are_those_of_the_closed_forms() {
        let on = |method, aggregators| of(method, LockProtocol::ServerSide, aggregators, 64);
        assert_eq!(on(Method::Even, 64), (2017, 1953));
        assert_eq!(on(Method::Aligned, 64), (1954, 1890));
        assert_eq!(on(Method::StaticCyclic, 64), (64, 0));
        assert_eq!(on(GROUP, 64), (64, 0));
        // Twice as many aggregators: each server has two, one after the other.
        assert_eq!(on(GROUP, 128), (128, 64));
        assert_eq!(on(Method::StaticCyclic, 128).1, 3907 - 64);
    }

    #[test]
    fn a_token_moves_once_for_each_neighbour_or_with_every_granule() {
        let on = |method| of(method, LockProtocol::ClientToken, 64, 1);
        assert_eq!(on(Method::Aligned), (64, 63));
        assert_eq!(on(Method::Even), (2 * 64 - 1, 2 * 63));
        assert_eq!(on(Method::StaticCyclic), (1954, 1953));
    }

    #[test]
    fn granules_meet_only_where_domains_share_one() {
        let on = |method| of(method, LockProtocol::Granules, 64, 1);
        assert_eq!(on(Method::Aligned), (1954, 0));
        assert_eq!(on(Method::Even), (2017, 63));
        assert_eq!(of(Method::Even, LockProtocol::None, 64, 1), (0, 0));
        let whole = |aggregators| of(Method::Aligned, LockProtocol::WholeFile, aggregators, 1);
        assert_eq!(whole(64), (1954, 1953));
        assert_eq!(whole(1), (1, 0));
    }

    #[test]
    fn a_file_of_any_size_is_judged_by_its_begin() {
        let region = Extent::new(0, 1 << 60);
        let domains = FileDomains::new(Method::StaticCyclic, region, 4, Layout::new(1 << 20, 1));
        let traffic = lock_traffic(&domains, LockProtocol::ClientToken).unwrap();
        assert_eq!(traffic.requests, 1 << 40);
        assert_eq!(lock_traffic(&domains, LockProtocol::Unknown), None);
    }
}
