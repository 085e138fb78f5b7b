//! The probe of lock behaviour tells the protocols of the lock laboratory apart, by noisy times alone.

use forebay_core::collective::{
    Judgement, Layout, LockProtocol, Measuring, Pattern, ProbeResult, Sample, TURNS,
    believes_waiting, first_patterns, judge, may_hide_waits,
};
use forebay_core::home::mix;
use forebay_sim::collective::{LockTable, Locks};

/// A machine: its locks, and what writes cost, in nanoseconds.
struct Machine {
    locks: Locks,
    layout: Layout,
    write: u64,
    handover: u64,
    seed: u64,
    drawn: u64,
    /// One pattern in so many meets something that has nothing to do with locks, and makes all of its writes longer; 0: none.
    bursts: u64,
    /// The second client's writes take so many times as long.
    slower: u64,
}

impl Machine {
    /// With one server, granules of 1 MiB and no bursts.
    fn new(locks: Locks, write: u64, handover: u64, seed: u64) -> Self {
        Machine {
            locks,
            layout: Layout::new(1 << 20, 1),
            write,
            handover,
            seed,
            drawn: 0,
            bursts: 0,
            slower: 1,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.drawn += 1;
        mix(self.seed, self.drawn) % n
    }

    /// A time around `nanos`: mostly up to a fifth longer, one in ten up to five times as long.
    fn noisy(&mut self, nanos: u64) -> u64 {
        let spike = self.below(10) == 0;
        let most = if spike { 4 * nanos } else { nanos / 5 };
        nanos + self.below(most + 1)
    }

    fn measure(&mut self, pattern: Pattern) -> Sample {
        let mut files = [0, 1].map(|_| LockTable::new(self.locks, self.layout, false));
        let is_met = self.bursts > 0 && self.below(self.bursts) == 0;
        let burst = if is_met { 8 * self.write } else { 0 };
        let mut sample = Sample {
            pattern,
            nanos: Vec::new(),
        };
        for (turn, client) in (0..TURNS).flat_map(|turn| [(turn, 0), (turn, 1)]) {
            let (file, offset) = pattern.place(client, turn);
            let waits = files[file as usize].take(client as usize, offset);
            let handover = if waits { self.handover } else { 0 };
            let write = self.write * if client == 1 { self.slower } else { 1 };
            let time = write + handover + burst;
            sample.nanos.push(self.noisy(time));
            if sample.is_complete() {
                break;
            }
        }
        sample
    }

    /// What the probe makes of it.
    fn probe(&mut self) -> ProbeResult {
        let mut measuring = Measuring::default();
        while let Some(pattern) = measuring.next_pattern() {
            let sample = self.measure(pattern);
            measuring.measured(Some(sample));
        }
        measuring.judgement(2).seen
    }
}

fn probed(locks: Locks, layout: Layout, seed: u64) -> ProbeResult {
    let write = 100_000 + mix(seed, 901) % 400_000;
    let handover = 800_000 + mix(seed, 902) % 5_000_000;
    let mut machine = Machine {
        layout,
        ..Machine::new(locks, write, handover, seed)
    };
    machine.probe()
}

#[test]
fn every_lock_manager_is_recognised_with_its_granule_and_its_servers() {
    for seed in 0..60 {
        for (name, locks) in Locks::ALL {
            for (granule, servers) in [(16, 2), (20, 4), (20, 3), (18, 8), (22, 5), (20, 1)] {
                let layout = Layout::new(1 << granule, servers);
                let about = format!("{name}, seed {seed}, {layout:?}");
                let ProbeResult::Locks(measured) = probed(locks, layout, seed) else {
                    panic!("{about}: nothing recognised");
                };
                let on_servers = locks.protocol() == LockProtocol::ServerSide;
                // With one server a lock of the server is one of the whole file.
                let expected = match (on_servers, servers, locks) {
                    (true, 1, Locks::ServerGrown) => LockProtocol::WholeFile,
                    (true, 1, _) => LockProtocol::ClientToken,
                    _ => locks.protocol(),
                };
                assert_eq!(measured.protocol, expected, "{about}");
                let has_granule = matches!(
                    expected,
                    LockProtocol::ServerSide | LockProtocol::ClientToken
                );
                let granule = has_granule.then_some(layout.granule_bytes);
                assert_eq!(measured.granule_bytes, granule, "{about}");
                let counted = (expected == LockProtocol::ServerSide).then_some(servers);
                assert_eq!(measured.servers, counted, "{about}");
            }
        }
    }
}

#[test]
fn many_servers_are_recognised_and_a_divisor_of_their_number_is_found() {
    for (servers, divisor) in [(64, 8), (16, 8), (12, 12), (9, 3), (60, 0)] {
        let layout = Layout::new(1 << 20, servers);
        let ProbeResult::Locks(measured) = probed(Locks::ServerExtents, layout, 5) else {
            panic!("{servers}: nothing recognised");
        };
        assert_eq!(measured.protocol, LockProtocol::ServerSide, "{servers}");
        assert_eq!(measured.servers.unwrap_or(0), divisor, "{servers}");
    }
}

#[test]
fn one_client_sees_no_locks_and_says_that_two_nodes_may_differ() {
    let mut machine = Machine::new(Locks::None, 5_000, 0, 3);
    let samples: Vec<_> = first_patterns()
        .into_iter()
        .map(|pattern| machine.measure(pattern))
        .collect();
    let judged = judge(&samples, 1);
    assert_eq!(judged.seen, ProbeResult::OneClient);
    assert!(judged.reason.contains("two nodes may differ"));
}

#[test]
fn times_of_pure_chance_are_no_protocol() {
    for seed in 0..200 {
        let chance = |pattern, number: u64| {
            // Each write takes 0.1 ms or 5 ms.
            let time = |at: u64| {
                if mix(seed, number * 100 + at).is_multiple_of(2) {
                    100_000
                } else {
                    5_000_000
                }
            };
            Sample {
                pattern,
                nanos: (0..24_u64).map(time).collect(),
            }
        };
        let patterns = first_patterns().into_iter().zip(0_u64..);
        let mut samples: Vec<_> = patterns.map(|(p, number)| chance(p, number)).collect();
        samples[0].nanos = vec![100_000; 24];
        let seen = judge(&samples, 2).seen;
        assert_eq!(seen, ProbeResult::Unclear, "seed {seed}");
    }
}

#[test]
fn something_else_that_keeps_writes_now_and_then_makes_no_locks_of_none_and_no_others_of_some() {
    let mut recognised = 0;
    for seed in 0..300 {
        for locks in [Locks::None, Locks::Tokens, Locks::WholeFile] {
            let mut machine = Machine {
                bursts: 12,
                ..Machine::new(locks, 60_000, 2_000_000, seed)
            };
            match machine.probe() {
                ProbeResult::Locks(seen) => {
                    assert_eq!(seen.protocol, locks.protocol(), "seed {seed}");
                    recognised += 1;
                }
                seen => assert_eq!(seen, ProbeResult::Unclear, "seed {seed}"),
            }
        }
    }
    assert!(recognised > 600, "{recognised} of 900");
}

#[test]
fn a_client_that_is_slower_than_the_other_hides_no_waits_and_makes_none() {
    for seed in 0..60 {
        for (name, locks) in Locks::ALL {
            let mut machine = Machine {
                layout: Layout::new(1 << 20, 4),
                slower: 8,
                ..Machine::new(locks, 100_000, 2_000_000, seed)
            };
            let ProbeResult::Locks(seen) = machine.probe() else {
                panic!("{name}, seed {seed}: nothing recognised");
            };
            assert_eq!(seen.protocol, locks.protocol(), "{name}, seed {seed}");
            // What a wait costs, and not how much slower the client is.
            let costs = match locks.protocol() {
                LockProtocol::None => 0..1,
                _ => 1_800_000..3_000_000,
            };
            let about = format!("{name}, seed {seed}: {}", seen.handover_nanos);
            assert!(costs.contains(&seen.handover_nanos), "{about}");
        }
    }
}

#[test]
fn locks_that_take_a_second_are_seen_with_few_writes() {
    let mut machine = Machine::new(Locks::WholeFile, 1_000_000, 1_000_000_000, 1);
    let sample = machine.measure(Pattern::Fixed { distance: 1 << 20 });
    assert_eq!(sample.nanos.len(), 10);
    // Also where each write waits for disks.
    for write in [1_000_000, 20_000_000] {
        let mut machine = Machine::new(Locks::WholeFile, write, 1_000_000_000, 1);
        let ProbeResult::Locks(seen) = machine.probe() else {
            panic!("nothing recognised");
        };
        assert_eq!(seen.protocol, LockProtocol::WholeFile);
    }
}

#[test]
fn what_ordinary_writes_hide_those_that_wait_for_the_servers_show() {
    let of = |locks, write| {
        let mut machine = Machine::new(locks, write, 2_000_000, 9);
        let samples: Vec<_> = first_patterns()
            .into_iter()
            .map(|pattern| machine.measure(pattern))
            .collect();
        judge(&samples, 2)
    };
    let (free, locked) = (of(Locks::None, 40_000), of(Locks::WholeFile, 300_000));
    assert!(may_hide_waits(&free, 2) && !may_hide_waits(&locked, 2));
    assert!(!may_hide_waits(&free, 1));
    assert!(believes_waiting(&free, &locked));
    assert!(!believes_waiting(&free, &of(Locks::None, 300_000)));
    let noisy = Judgement {
        seen: ProbeResult::Unclear,
        ..free.clone()
    };
    assert!(may_hide_waits(&noisy, 2) && believes_waiting(&noisy, &free));
}
