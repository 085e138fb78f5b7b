//! Gathers on which node each rank ran, and what it read and wrote there. Forebay's recorder notes both. Of other logs a trace
//! names the host of each rank. Then the work of a rank is what the trace has, if it has every request, and else what records of this
//! rank alone tell: a sum over ranks does not tell one from another.

use super::counters::{natural, seconds};
use super::{Intake, MOST_HOSTS, Seat};
use crate::model::{Amount, Counters, Interface, Placement, Work};
use crate::text::printable;
use darshan_log::{DxtRecord, Log, Segment as DxtSegment};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The name of the note.
pub(super) const NOTE: &str = "nodes";
/// Most ranks, and sums of ranks, that are read of a note.
const MOST: usize = 1 << 20;

/// The note of a log.
#[derive(Deserialize)]
struct Told {
    hosts: Vec<String>,
    mounts: Vec<String>,
    ranks: Vec<(u32, usize)>,
    work: Vec<ToldWork>,
}

/// Rank, interface, place of the mount; reads, bytes, nanoseconds; writes, bytes, nanoseconds, syncs; direct requests.
type ToldWork = (u32, String, usize, u64, u64, u64, u64, u64, u64, u64, u64);

/// Rank, interface, place of the mount, and whether it is written.
type Key = (u32, Interface, usize, bool);

/// A placement that is being filled.
#[derive(Default)]
pub(super) struct PlacementBuilder {
    hosts: Names,
    mounts: Names,
    host_of: BTreeMap<u32, usize>,
    /// Ranks whose work the recorder has noted.
    noted: BTreeSet<u32>,
    work: BTreeMap<Key, Amount>,
    traced: BTreeMap<Key, Amount>,
    recorded: BTreeMap<Key, Amount>,
}

/// Names, each once, by their place.
#[derive(Default)]
struct Names {
    places: HashMap<String, usize>,
    names: Vec<String>,
}

impl Names {
    fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        self.places.insert(name.to_owned(), self.names.len());
        self.names.push(name.to_owned());
        self.names.len() - 1
    }
}

impl PlacementBuilder {
    /// Notes the host of a rank; the first one that is told counts.
    fn place(&mut self, rank: u32, host: &str) {
        if host.is_empty() || self.host_of.contains_key(&rank) {
            return;
        }
        let host = printable(host.as_bytes());
        if self.hosts.places.contains_key(&host) || self.hosts.names.len() < MOST_HOSTS {
            let place = self.hosts.place(&host);
            self.host_of.insert(rank, place);
        }
    }

    /// Reads the note of a log.
    pub(super) fn add_note(&mut self, note: &str, seat: Seat) {
        let Ok(told) = serde_json::from_str::<Told>(note) else {
            return;
        };
        for (rank, host) in told.ranks.into_iter().take(MOST) {
            if let Some(host) = told.hosts.get(host) {
                self.place(seat.rank(rank.into()), host);
                self.noted.insert(seat.rank(rank.into()));
            }
        }
        for told_work in told.work.into_iter().take(MOST) {
            let (rank, interface, mount, reads, read, read_ns, ..) = told_work;
            let (.., writes, written, write_ns, syncs, direct) = told_work;
            let interface = match interface.as_str() {
                "POSIX" => Interface::Posix,
                "STDIO" => Interface::Stdio,
                _ => continue,
            };
            let Some(mount) = told.mounts.get(mount) else {
                continue;
            };
            let mount = self.mounts.place(&printable(mount.as_bytes()));
            let rank = seat.rank(rank.into());
            for (is_write, requests, bytes, ns, syncs) in [
                (false, reads, read, read_ns, 0u64),
                (true, writes, written, write_ns, syncs),
            ] {
                let amount = Amount {
                    requests,
                    bytes,
                    seconds: seconds(ns as f64 / 1e9),
                    syncs: syncs.saturating_add(direct.min(requests)),
                };
                let sum = self.work.entry((rank, interface, mount, is_write));
                sum.or_default().add(&amount);
            }
        }
    }

    /// A log whose ranks were all on one host says so in its metadata.
    pub(super) fn add_log(&mut self, log: &Log, seat: Seat) {
        let of = |key| log.job.metadata.get(key);
        let (Some("1"), Some(host)) = (of("nnodes"), of("hosts")) else {
            return;
        };
        for rank in seat.range() {
            self.place(rank, host);
        }
    }

    /// Adds what a trace has of a rank and a file.
    pub(super) fn add_trace(
        &mut self,
        rank: u32,
        interface: Interface,
        mount: &str,
        record: &DxtRecord,
    ) {
        self.place(rank, &record.hostname);
        let mount = self.mounts.place(mount);
        for (requests, is_write) in [(&record.reads, false), (&record.writes, true)] {
            let sum = self.traced.entry((rank, interface, mount, is_write));
            sum.or_default().add(&amount_of(requests));
        }
    }

    /// Adds what a record has of one rank.
    fn add_record(&mut self, rank: u32, interface: Interface, mount: &str, counters: &Counters) {
        // Records come after notes and traces. Who knows of one host only compares nothing.
        if self.hosts.names.len() < 2 {
            return;
        }
        let mount = self.mounts.place(mount);
        for is_write in [false, true] {
            let amount = Amount::of(counters, is_write);
            let sum = self.recorded.entry((rank, interface, mount, is_write));
            sum.or_default().add(&amount);
        }
    }

    /// The placement; `None` if it is unknown, or one node. `is_traced` if the trace of system calls has every request.
    pub(super) fn finish(self, is_traced: bool) -> Option<Placement> {
        if self.hosts.names.len() < 2 {
            return None;
        }
        let noted = &self.noted;
        let by_trace = |key: &Key| is_traced && key.1 == Interface::Posix;
        let traced = self.traced.into_iter().filter(|(key, _)| by_trace(key));
        let recorded = self.recorded.into_iter().filter(|(key, _)| !by_trace(key));
        let others = traced.chain(recorded);
        let others = others.filter(|(key, _)| !noted.contains(&key.0));
        let work = self.work.into_iter().chain(others);
        let work = work
            .filter(|(_, amount)| amount.requests > 0 || amount.seconds > 0.0)
            .map(|((rank, interface, mount, is_write), amount)| Work {
                rank,
                interface,
                mount: self.mounts.names[mount].clone(),
                is_write,
                amount,
            });
        let work = work.collect();
        Some(Placement {
            hosts: self.hosts.names,
            host_of: self.host_of,
            work,
        })
    }
}

fn amount_of(requests: &[DxtSegment]) -> Amount {
    let mut sum = Amount::default();
    for one in requests {
        sum.add(&Amount {
            requests: 1,
            bytes: natural(one.length),
            seconds: (seconds(one.end) - seconds(one.start)).max(0.0),
            syncs: 0,
        });
    }
    sum
}

impl Intake {
    /// Adds the record of one rank to what it did on its node. Nothing may be below the interface.
    pub(super) fn place_record(
        &mut self,
        rank: u32,
        interface: Interface,
        file: usize,
        counters: &Counters,
    ) {
        let file = &self.job.files[file];
        let is_base = matches!(interface, Interface::Posix | Interface::Stdio);
        if is_base && !file.is_std_stream {
            let mount = &file.mount;
            self.placement.add_record(rank, interface, mount, counters);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Flow;

    const SEAT: Seat = Seat {
        first_rank: 10,
        ranks: 4,
        launched: 4,
        shift: 0.0,
    };

    fn built(add: impl FnOnce(&mut PlacementBuilder)) -> Option<Placement> {
        let mut builder = PlacementBuilder::default();
        add(&mut builder);
        builder.finish(false)
    }

    #[test]
    fn a_note_tells_hosts_and_work_of_ranks() {
        let note = r#"{"hosts":["a","b"],"mounts":["/","/pfs"],"ranks":[[0,1],[1,0],[2,9]],
            "work":[[0,"POSIX",1,1,10,1000000000,2,20,3000000000,4,2],[1,"STDIO",0,0,0,0,1,1,1,0,0],[1,"TAPE",0,1,1,1,1,1,1,1,0]]}"#;
        let placement = built(|builder| builder.add_note(note, SEAT)).expect("two hosts");
        assert_eq!(placement.host_of.len(), 2);
        assert_eq!(placement.hosts[placement.host_of[&10]], "b");
        let work = |rank, interface, mount: &str, is_write, amount| Work {
            rank,
            interface,
            mount: mount.to_owned(),
            is_write,
            amount,
        };
        let amount = |requests, bytes, seconds, syncs| Amount {
            requests,
            bytes,
            seconds,
            syncs,
        };
        let expected = [
            work(10, Interface::Posix, "/pfs", false, amount(1, 10, 1.0, 1)),
            work(10, Interface::Posix, "/pfs", true, amount(2, 20, 3.0, 6)),
            work(11, Interface::Stdio, "/", true, amount(1, 1, 1e-9, 0)),
        ];
        assert_eq!(placement.work, expected);
    }

    #[test]
    fn what_is_no_note_of_nodes_is_none() {
        for nonsense in [
            "",
            "[]",
            "{}",
            r#"{"hosts":["a"],"mounts":[],"ranks":[[-1,0]],"work":[]}"#,
        ] {
            assert_eq!(
                built(|builder| builder.add_note(nonsense, SEAT)),
                None,
                "{nonsense}"
            );
        }
    }

    #[test]
    fn a_note_counts_before_records_and_a_whole_trace_before_records() {
        let record = |host: &str| DxtRecord {
            hostname: host.to_owned(),
            writes: vec![DxtSegment {
                length: 5,
                start: 1.0,
                end: 3.0,
                ..DxtSegment::default()
            }],
            ..DxtRecord::default()
        };
        let counters = Counters {
            write: Flow {
                ops: 7,
                ..Flow::default()
            },
            ..Counters::default()
        };
        let build = |is_traced| {
            let mut builder = PlacementBuilder::default();
            for (rank, host) in [(0, "a"), (1, "b")] {
                builder.add_trace(rank, Interface::Posix, "/pfs", &record(host));
            }
            for rank in 0..2 {
                builder.add_record(rank, Interface::Posix, "/pfs", &counters);
            }
            let work = builder.finish(is_traced).expect("two hosts").work;
            let requests = work.iter().map(|one| one.amount.requests);
            requests.collect::<Vec<_>>()
        };
        assert_eq!(build(true), [1, 1]);
        assert_eq!(build(false), [7, 7]);
        let one_host = built(|builder| {
            builder.add_trace(0, Interface::Posix, "/pfs", &record("a"));
            builder.add_trace(1, Interface::Posix, "/pfs", &record("a"));
        });
        assert_eq!(one_host, None);
    }
}
