//! Collective I/O: properties of file domains, of accesses and of exchange plans, over many random cases, and the
//! examples of the paper.

mod common;

use common::Numbers;
use forebay_core::collective::{
    Access, AccessError, ExchangePlan, Extent, FileDomains, Groups, Layout, LockProtocol,
    MAX_OFFSET, Method, MethodChoice, Situation, aggregators, choose, fitting_count, protocol_of,
};
use std::collections::BTreeSet;

/// A region, aggregators and layout: small, large, unaligned, empty, with more aggregators than granules.
fn case(r: &mut Numbers) -> (Extent, u32, Layout) {
    let granule = [1, 3, 7, 16, 64, 100][r.below(6) as usize];
    let length = match r.below(5) {
        0 => r.below(3),
        1 => r.below(granule + 1),
        _ => r.below(3000),
    };
    let start = r.below(700);
    let layout = Layout::new(granule, r.between(1, 9) as u32);
    (
        Extent::new(start, start + length),
        r.between(1, 20) as u32,
        layout,
    )
}

#[test]
fn domains_are_a_partition_of_the_region_by_every_description_of_them() {
    for seed in 0..3000 {
        let mut r = Numbers(seed, 0);
        let (region, aggregators, layout) = case(&mut r);
        for method in Method::ALL {
            let domains = FileDomains::new(method, region, aggregators, layout);
            let about = format!("seed {seed}: {domains:?}");
            let mut owners = vec![None; region.bytes() as usize];
            for a in 0..aggregators {
                let domain = domains.domain(a);
                let mut position = 0;
                for piece in domain.pieces() {
                    assert!(!piece.is_empty(), "{about}");
                    for offset in piece.start..piece.end {
                        let owner = &mut owners[(offset - region.start) as usize];
                        assert_eq!(owner.replace(a), None, "{about}: byte {offset} twice");
                        assert!(domain.contains(offset), "{about}");
                        assert_eq!(domain.bytes_below(offset), position, "{about}");
                        assert_eq!(domain.offset_of(position), offset, "{about}");
                        position += 1;
                    }
                }
                assert_eq!(domain.bytes(), position, "{about}");
                if domains.group_of(a).is_none() {
                    assert_eq!(position, 0, "{about}: bytes without a group");
                }
            }
            for (offset, owner) in (region.start..).zip(owners) {
                assert!(owner.is_some(), "{about}: byte {offset} missing");
                assert_eq!(domains.owner(offset), owner, "{about}: byte {offset}");
            }
            assert_eq!(domains.owner(region.end), None);
        }
    }
}

#[test]
fn a_window_is_that_run_of_the_bytes_of_its_domain() {
    for seed in 0..1000 {
        let mut r = Numbers(seed, 0);
        let (region, aggregators, layout) = case(&mut r);
        let method = Method::ALL[r.below(5) as usize];
        let domain = FileDomains::new(method, region, aggregators, layout)
            .domain(r.below(aggregators.into()) as u32);
        let bytes: Vec<u64> = domain.pieces().flat_map(|p| p.start..p.end).collect();
        let (first, count) = (r.below(500), r.between(1, 500));
        let window = domain.window(first, count);
        let got: Vec<u64> = window
            .iter()
            .flat_map(|w| w.pieces())
            .flat_map(|p| p.start..p.end)
            .collect();
        let expected: Vec<u64> = bytes
            .into_iter()
            .skip(first as usize)
            .take(count as usize)
            .collect();
        assert_eq!(got, expected, "seed {seed}: {domain:?} {first} {count}");
    }
}

#[test]
fn inner_ends_of_aligned_domains_are_the_nearest_granule_boundaries() {
    for seed in 0..3000 {
        let (region, n, layout) = case(&mut Numbers(seed, 0));
        let g = layout.granule_bytes;
        let size = region.bytes().div_ceil(n.into());
        let domains = FileDomains::new(Method::Aligned, region, n, layout);
        let even = FileDomains::new(Method::Even, region, n, layout);
        assert_eq!(domains.domain(0).span().start, region.start);
        assert_eq!(domains.domain(n - 1).span().end, region.end);
        for a in 0..n - 1 {
            let end = domains.domain(a).span().end;
            assert_eq!(domains.domain(a + 1).span().start, end, "neighbours meet");
            let exact = region.start + u64::from(a + 1) * size;
            assert_eq!(even.domain(a).span().end, exact.min(region.end));
            if end > region.start && end < region.end {
                assert_eq!(end % g, 0, "seed {seed}");
                assert!(2 * end.abs_diff(exact) <= g, "seed {seed}: {end} {exact}");
            }
        }
    }
}

#[test]
fn an_end_in_the_middle_of_a_granule_moves_up_and_a_part_may_be_empty() {
    let ends = |region: Extent, n| -> Vec<u64> {
        let domains = FileDomains::new(Method::Aligned, region, n, Layout::new(8, 1));
        (0..n).map(|a| domains.domain(a).span().end).collect()
    };
    assert_eq!(ends(Extent::new(0, 24), 2), [16, 24]);
    assert_eq!(ends(Extent::new(1, 4), 3), [1, 1, 4]);
    assert_eq!(ends(Extent::new(5, 9), 4), [8, 8, 8, 9]);
}

#[test]
fn stock_romio_divides_a_mebibyte_among_four_in_the_same_way() {
    // Observed by strace: MPICH 4.0.2, 4 processes, with and without striping_unit = 96 KiB.
    let k = 1024;
    let bytes = |method| -> Vec<u64> {
        let layout = Layout::new(96 * k, 1);
        let domains = FileDomains::new(method, Extent::new(0, 1024 * k), 4, layout);
        (0..4).map(|a| domains.domain(a).bytes() / k).collect()
    };
    assert_eq!(bytes(Method::Even), [256, 256, 256, 256]);
    assert_eq!(bytes(Method::Aligned), [288, 192, 288, 256]);
}

#[test]
fn a_static_owner_is_the_same_in_every_call() {
    for seed in 0..1000 {
        let mut r = Numbers(seed, 0);
        let (region, n, layout) = case(&mut r);
        let (other, ..) = case(&mut r);
        let of = |region| FileDomains::new(Method::StaticCyclic, region, n, layout);
        for offset in region.start.max(other.start)..region.end.min(other.end) {
            assert_eq!(of(region).owner(offset), of(other).owner(offset));
            let owner = (layout.granule_of(offset) % u64::from(n)) as u32;
            assert_eq!(of(region).owner(offset), Some(owner));
        }
    }
}

#[test]
fn an_aggregator_of_a_group_meets_its_own_server_only_and_in_one_contiguous_part() {
    for seed in 0..2000 {
        let mut r = Numbers(seed, 0);
        let (region, _, layout) = case(&mut r);
        let groups = r.between(1, 4) as u32;
        let n = groups * layout.servers;
        let method = Method::GroupCyclic(Groups::Concurrent);
        let domains = FileDomains::new(method, region, n, layout);
        assert_eq!(domains.groups(), groups);
        let mut last_group = 0;
        for offset in region.start..region.end {
            let owner = domains.owner(offset).unwrap();
            assert_eq!(owner % layout.servers, layout.server_of(offset), "{seed}");
            let group = domains.group_of(owner).unwrap();
            assert!(group >= last_group, "seed {seed}: groups follow each other");
            if group > last_group && offset > region.start {
                assert_eq!(offset % layout.granule_bytes, 0, "groups share no granule");
            }
            last_group = group;
        }
        let mut sizes = vec![0; groups as usize];
        (0..n).for_each(|a| sizes[domains.group_of(a).unwrap() as usize] += 1);
        assert_eq!(sizes, vec![layout.servers; groups as usize]);
    }
}

#[test]
fn groups_are_those_of_figure_3_of_the_paper() {
    // 8 aggregators, 4 servers, the region begins on server 3.
    let layout = Layout::new(10, 4);
    let method = Method::GroupCyclic(Groups::Sequential);
    let domains = FileDomains::new(method, Extent::new(30, 190), 8, layout);
    let owners: Vec<_> = (3..19).map(|k| domains.owner(k * 10).unwrap()).collect();
    assert_eq!(owners, [7, 0, 1, 2, 7, 0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 6]);
}

#[test]
fn with_no_more_aggregators_than_servers_group_cyclic_is_static_cyclic() {
    for seed in 0..500 {
        let mut r = Numbers(seed, 0);
        let (region, _, layout) = case(&mut r);
        let n = r.between(1, layout.servers.into()) as u32;
        let of = |method| FileDomains::new(method, region, n, layout);
        let group = of(Method::GroupCyclic(Groups::Sequential));
        for offset in region.start..region.end {
            assert_eq!(
                group.owner(offset),
                of(Method::StaticCyclic).owner(offset),
                "{seed}"
            );
        }
    }
}

#[test]
fn a_file_of_eight_exbibytes_is_divided_as_fast_as_a_small_one() {
    let region = Extent::new(12345, MAX_OFFSET);
    for method in Method::ALL {
        let domains = FileDomains::new(method, region, 1 << 20, Layout::new(1 << 20, 1 << 10));
        let sum: u64 = (0..1 << 20).map(|a| domains.domain(a).bytes()).sum();
        assert_eq!(sum, region.bytes(), "{method:?}");
        let owner = domains.owner(MAX_OFFSET - 1).unwrap();
        assert!(domains.domain(owner).contains(MAX_OFFSET - 1));
    }
}

/// A block of an array in row-major order: with each dimension, slowest first, the elements of the array and of the block,
/// and where the block begins.
fn block_of_array(origin: u64, dimensions: &[(u64, u64, u64)], element: u64) -> Access {
    let (mut start, mut stride, mut levels) = (origin, element, Vec::new());
    for &(array, block, first) in dimensions.iter().rev() {
        levels.insert(0, (block, stride));
        start += first * stride;
        stride *= array;
    }
    Access::strided(start, element, &levels).unwrap()
}

/// The bytes of an access, in the order of memory.
fn bytes_of(access: &Access) -> Vec<u64> {
    let all = Extent::new(0, MAX_OFFSET);
    access
        .pieces_within(all)
        .flat_map(|p| p.start..p.end)
        .collect()
}

#[test]
fn strides_describe_the_bytes_of_an_array_block() {
    for seed in 0..1000 {
        let mut r = Numbers(seed, 0);
        let element = r.between(1, 3);
        let mut dimensions = Vec::new();
        for _ in 0..r.between(1, 4) {
            let array = r.between(1, 7);
            let block = r.below(array + 1);
            dimensions.push((array, block, r.below(array - block + 1)));
        }
        let origin = r.below(50);
        let mut expected = vec![origin];
        for &(array, block, first) in &dimensions {
            let inner = expected.iter().flat_map(|&row| {
                (first..first + block).map(move |i| (row - origin) * array + i + origin)
            });
            expected = inner.collect();
        }
        let expected: Vec<u64> = expected
            .iter()
            .map(|&e| origin + (e - origin) * element)
            .flat_map(|start| start..start + element)
            .collect();
        let access = block_of_array(origin, &dimensions, element);
        let about = format!("seed {seed}: {dimensions:?}");
        assert_eq!(bytes_of(&access), expected, "{about}");
        assert_eq!(access.bytes(), expected.len() as u64);
        for _ in 0..20 {
            let (a, b) = (r.below(3000), r.below(3000));
            let extent = Extent::new(a.min(b), a.max(b));
            let inside = |o: &&u64| extent.start <= **o && **o < extent.end;
            let count = expected.iter().filter(inside).count() as u64;
            assert_eq!(access.bytes_within(extent), count, "{about}");
            let pieces: u64 = access.pieces_within(extent).map(|p| p.bytes()).sum();
            assert_eq!(pieces, count, "{about}");
            let below = expected.iter().filter(|o| **o < a).count() as u64;
            assert_eq!(access.bytes_below(a), below, "{about}");
        }
    }
}

#[test]
fn what_is_no_access_is_refused() {
    let overlap = Err(AccessError::Overlap);
    assert_eq!(Access::strided(0, 8, &[(2, 7)]), overlap);
    assert_eq!(Access::strided(0, 8, &[(3, 20), (3, 10)]), overlap);
    let too_large = Err(AccessError::TooLarge);
    assert_eq!(Access::strided(MAX_OFFSET, 1, &[]), too_large);
    assert_eq!(Access::strided(0, 8, &[(u64::MAX, u64::MAX)]), too_large);
    let mut access = Access::strided(0, 8, &[(2, 16)]).unwrap();
    let before = access.clone();
    let refused = access.append(20, 8, &[(2, 16)]);
    assert_eq!(refused, Err(AccessError::Overlap));
    assert_eq!(access, before);
    access.append(24, 8, &[(2, 16)]).unwrap();
    assert_eq!(access.bytes(), 32);
    assert_eq!(Access::strided(0, 0, &[(5, 1)]), Ok(Access::default()));
    assert_eq!(Access::region(&[Access::default()]), Extent::new(0, 0));
}

/// Accesses of several processes that share no byte; some bytes nobody accesses.
fn accesses(r: &mut Numbers) -> Vec<Access> {
    let processes = r.between(1, 6);
    let origin = r.below(300);
    if r.below(2) == 0 {
        // Columns of an array with rows of one block for each process.
        let (block, rows) = (r.between(1, 40), r.between(1, 20));
        let row = block * processes + r.below(10);
        let of = |p: u64| Access::strided(origin + p * block, block, &[(rows, row)]).unwrap();
        return (0..processes).map(of).collect();
    }
    let mut all = vec![Access::default(); processes as usize];
    let mut at = origin;
    for _ in 0..r.below(60) {
        at += r.below(2) * r.below(30);
        let length = r.below(40);
        let process = &mut all[r.below(processes) as usize];
        process.append(at, length, &[]).unwrap();
        at += length;
    }
    all
}

#[test]
fn a_plan_delivers_each_byte_once_to_its_owner_within_the_buffer() {
    for seed in 0..2000 {
        let mut r = Numbers(seed, 0);
        let accesses = accesses(&mut r);
        let layout = Layout::new(r.between(1, 64), r.between(1, 5) as u32);
        let n = r.between(1, 12) as u32;
        let buffer = r.between(1, 300);
        for method in Method::ALL {
            let domains = FileDomains::new(method, Access::region(&accesses), n, layout);
            let plan = ExchangePlan::new(domains, buffer, &accesses);
            let about = format!("seed {seed}: {domains:?}, buffer {buffer}");
            let mut delivered: Vec<Vec<bool>> = accesses
                .iter()
                .map(|a| vec![false; a.bytes() as usize])
                .collect();
            let orders: Vec<_> = accesses.iter().map(bytes_of).collect();
            let mut at_work = vec![BTreeSet::new(); accesses.len()];
            for round in 0..plan.rounds() {
                let mut groups = Vec::new();
                for a in 0..n {
                    let Some(window) = plan.window(a, round) else {
                        continue;
                    };
                    assert!(window.bytes() <= buffer, "{about}");
                    groups.push(domains.group_of(a));
                    let mut filled = vec![false; window.bytes() as usize];
                    for p in 0..accesses.len() {
                        let mut bytes = 0;
                        for t in plan.transfers(p, &window) {
                            for i in 0..t.file.bytes() {
                                let (offset, memory) = (t.file.start + i, (t.memory + i) as usize);
                                assert_eq!(domains.owner(offset), Some(a), "{about}");
                                assert_eq!(orders[p][memory], offset, "{about}");
                                let twice = std::mem::replace(&mut delivered[p][memory], true);
                                let taken =
                                    std::mem::replace(&mut filled[(t.buffer + i) as usize], true);
                                assert!(!twice && !taken, "{about}: byte {offset}");
                            }
                            bytes += t.file.bytes();
                        }
                        assert_eq!(plan.bytes(p, &window), bytes, "{about}");
                        if bytes > 0 {
                            at_work[p].insert(round);
                            at_work[a as usize % accesses.len()].insert(round);
                        }
                    }
                }
                if domains.are_sequential() {
                    groups.dedup();
                    assert!(groups.len() <= 1, "{about}: groups take turns");
                }
            }
            assert!(delivered.iter().flatten().all(|&d| d), "{about}");
            // Aggregator number `a` is process number `a`, as far as there are so many.
            for (p, expected) in at_work
                .iter()
                .enumerate()
                .filter(|_| n as usize <= accesses.len())
            {
                let own = (p < n as usize).then_some(p as u32);
                let rounds: Vec<u64> = plan.rounds_with_work(p, own).collect();
                assert!(
                    rounds.iter().eq(expected),
                    "{about}: process {p}: {rounds:?} {expected:?}"
                );
            }
        }
    }
}

#[test]
fn a_file_that_is_almost_empty_has_few_rounds_with_work() {
    let far = 1 << 61;
    let of = |at| Access::strided(at, 100, &[(3, far)]).unwrap();
    let accesses = [of(0), of(500)];
    for method in Method::ALL {
        let layout = Layout::new(64, 2);
        let domains = FileDomains::new(method, Access::region(&accesses), 4, layout);
        let plan = ExchangePlan::new(domains, 1000, &accesses);
        assert!(plan.rounds() > 1 << 40);
        let rounds = plan.rounds_with_work(0, Some(0)).count();
        assert!((1..=6).contains(&rounds), "{method:?}: {rounds}");
    }
}

#[test]
fn halves_meet_at_a_granule_if_there_is_one_between() {
    let halves = |start, end, granule| Extent::new(start, end).halves(granule);
    let both = |a, b, c| Some((Extent::new(a, b), Extent::new(b, c)));
    assert_eq!(halves(10, 110, 16), both(10, 48, 110));
    assert_eq!(halves(10, 16, 16), both(10, 13, 16));
    assert_eq!(halves(10, 12, 1 << 20), both(10, 11, 12));
    assert_eq!(halves(10, 11, 16), None);
    assert_eq!(halves(10, 10, 16), None);
}

#[test]
fn groups_that_take_turns_begin_one_after_the_other() {
    let accesses = [Access::strided(0, 640, &[]).unwrap()];
    let method = Method::GroupCyclic(Groups::Sequential);
    let domains = FileDomains::new(method, Extent::new(0, 640), 4, Layout::new(10, 2));
    let plan = ExchangePlan::new(domains, 80, &accesses);
    // Two groups of 320 bytes, 160 for each aggregator, two rounds each.
    assert_eq!(plan.rounds(), 4);
    let turns: Vec<_> = (0..4).map(|r| plan.turn_of(r)).collect();
    assert_eq!((turns, plan.turns()), (vec![0, 0, 1, 1], 2));
    let at_work = |round| -> Vec<u32> {
        (0..4)
            .filter(|&a| plan.window(a, round).is_some())
            .collect()
    };
    assert_eq!(at_work(1), [0, 1]);
    assert_eq!(at_work(2), [2, 3]);
}

#[test]
fn each_node_has_one_aggregator_unless_fewer_are_wanted() {
    let nodes = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2];
    assert_eq!(aggregators(&nodes, 1, 99), [0, 4, 8]);
    assert_eq!(aggregators(&nodes, 2, 99), [0, 1, 4, 5, 8, 9]);
    assert_eq!(aggregators(&nodes, 2, 3), [0, 4, 8]);
    assert_eq!(aggregators(&nodes, 1, 2), [0, 4]);
    let round_robin = [0, 1, 2, 0, 1, 2];
    assert_eq!(aggregators(&round_robin, 1, 99), [0, 1, 2]);
    assert!(aggregators(&[], 1, 4).is_empty());
}

#[test]
fn a_fitting_number_of_aggregators_divides_the_servers_or_is_a_multiple_of_them() {
    for servers in 1..100u32 {
        for available in 1..300 {
            for method in Method::ALL {
                let n = fitting_count(method, available, servers);
                assert!((1..=available).contains(&n));
                match method {
                    Method::Even | Method::Aligned => assert_eq!(n, available),
                    _ => assert!(servers.is_multiple_of(n) || n.is_multiple_of(servers)),
                }
            }
        }
    }
    assert_eq!(fitting_count(Method::StaticCyclic, 48, 64), 32);
    assert_eq!(fitting_count(Method::StaticCyclic, 100, 64), 64);
}

#[test]
fn the_method_follows_the_locks_of_the_file_system() {
    let chosen = |protocol, aggregators, servers| -> (Method, u32) {
        let layout = Layout::new(1 << 20, servers);
        let MethodChoice {
            method,
            aggregators: used,
            reason,
        } = choose(&Situation {
            protocol,
            aggregators,
            layout,
            knows_servers: true,
        });
        assert!(!reason.is_empty() && used <= aggregators);
        (method, used)
    };
    let lustre = protocol_of(0x0bd0_0bd0);
    assert_eq!(chosen(lustre, 64, 64), (Method::StaticCyclic, 64));
    assert_eq!(chosen(lustre, 48, 64), (Method::StaticCyclic, 32));
    let group = Method::GroupCyclic(Groups::Sequential);
    assert_eq!(chosen(lustre, 200, 64), (group, 192));
    // A prime number of servers: static-cyclic would leave one aggregator.
    assert_eq!(chosen(lustre, 60, 61), (Method::Aligned, 60));
    assert_eq!(
        chosen(protocol_of(0x4750_4653), 64, 64),
        (Method::Aligned, 64)
    );
    assert_eq!(chosen(protocol_of(0x00c3_6400), 64, 64), (Method::Even, 1));
    assert_eq!(protocol_of(0xef53), LockProtocol::None);
    assert_eq!(chosen(LockProtocol::None, 64, 1), (Method::Aligned, 64));
    assert_eq!(
        chosen(LockProtocol::None, 64, 64),
        (Method::StaticCyclic, 64)
    );
    assert_eq!(protocol_of(0x6969), LockProtocol::Unknown);
    assert_eq!(chosen(LockProtocol::Unknown, 64, 64), (Method::Aligned, 64));
}
