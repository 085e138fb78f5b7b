//! Which method fits which locks (the guidance of SC'08, and where it does not apply, why).

use super::domain::{Groups, Layout, Method};
use super::fitting_count;
use super::locks::LockProtocol;

/// What a choice depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// The locks of the file system.
    pub protocol: LockProtocol,
    /// Aggregators that there may be: one for each node by default.
    pub aggregators: u32,
    /// How the file lies on the servers.
    pub layout: Layout,
    /// Somebody has told on how many servers it lies.
    pub knows_servers: bool,
}

/// A method, with what it needs and why it was chosen. It serves reads as well: with one owner for each granule, reads,
/// writes and later calls find their locks where they left them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodChoice {
    /// The method.
    pub method: Method,
    /// Aggregators to use, at most as many as there may be.
    pub aggregators: u32,
    /// Why, for a report.
    pub reason: &'static str,
}

/// Chooses the method for a file.
///
/// # Panics
/// If there is no aggregator.
pub fn choose(situation: &Situation) -> MethodChoice {
    let Situation {
        protocol,
        aggregators,
        layout,
        knows_servers,
    } = *situation;
    assert!(aggregators > 0, "a collective call has an aggregator");
    match protocol {
        LockProtocol::ServerSide if !knows_servers => with(
            Method::Aligned,
            aggregators,
            "every server is on its own, but on how many the file lies is not known; aligned domains share no granule",
        ),
        LockProtocol::ServerSide => by_server(aggregators, layout.servers),
        LockProtocol::None if layout.servers > 1 => by_server(aggregators, layout.servers),
        LockProtocol::ClientToken => with(
            Method::Aligned,
            aggregators,
            "tokens cover ranges of the whole file: with one contiguous aligned range an aggregator negotiates once",
        ),
        LockProtocol::Granules => with(
            Method::Aligned,
            aggregators,
            "every granule has a lock of its own: aligned domains share none",
        ),
        LockProtocol::WholeFile => with(
            Method::Even,
            1,
            "any two writers exclude each other, however the file is divided: one writer never waits",
        ),
        LockProtocol::None => with(
            Method::Aligned,
            aggregators,
            "there is one server and no lock between clients; aligned domains share no block",
        ),
        LockProtocol::Unknown => with(
            Method::Aligned,
            aggregators,
            "the locks of this file system are not known; aligned domains share no granule under any of them",
        ),
    }
}

/// Where every server is on its own: as few clients for each as possible.
fn by_server(aggregators: u32, servers: u32) -> MethodChoice {
    let fitting = fitting_count(Method::StaticCyclic, aggregators, servers);
    if fitting * 2 < aggregators {
        with(
            Method::Aligned,
            aggregators,
            "every server is on its own, but no useful number of aggregators divides the servers, so every aggregator \
             would meet every server; aligned domains at least share no granule",
        )
    } else if fitting <= servers {
        with(
            Method::StaticCyclic,
            fitting,
            "every server is on its own, and there are no more aggregators than servers: each aggregator has its servers \
             for itself, and no lock moves",
        )
    } else {
        with(
            Method::GroupCyclic(Groups::Sequential),
            fitting,
            "every server is on its own, and there are more aggregators than servers: groups take turns, so a server has \
             one client at a time, and a lock moves once for each aggregator",
        )
    }
}

fn with(method: Method, aggregators: u32, reason: &'static str) -> MethodChoice {
    MethodChoice {
        method,
        aggregators,
        reason,
    }
}
