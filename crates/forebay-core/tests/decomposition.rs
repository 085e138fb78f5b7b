//! Patterns of captured calls, over many random cases: what was captured comes out again, bytes grow with processes, and
//! nobody writes where others do who did not before.

mod common;

use common::Numbers;
use forebay_core::collective::{
    Access, CapturedAccesses, Decomposition, Extent, MAX_OFFSET, ScaleError, TypeMap, View,
    moved_to_front,
};

const ALL: Extent = Extent {
    start: 0,
    end: MAX_OFFSET,
};

fn bytes_of(access: &Access) -> Vec<u64> {
    let pieces = access.pieces_within(ALL);
    pieces.flat_map(|piece| piece.start..piece.end).collect()
}

fn folded(accesses: &[Access]) -> Vec<Access> {
    accesses.iter().map(Access::folded).collect()
}

fn sum(accesses: &[Access]) -> u64 {
    accesses.iter().map(Access::bytes).sum()
}

/// Does a byte belong to two processes?
fn overlap(accesses: &[Access]) -> bool {
    let mut all: Vec<u64> = accesses.iter().flat_map(bytes_of).collect();
    all.sort_unstable();
    all.windows(2).any(|two| two[0] == two[1])
}

/// Blocks of an array: with each direction, slowest first, processes, elements of each and elements behind the last one that
/// nobody has. Ranks count the directions from the last, or from the first.
fn array(directions: &[(u64, u64, u64)], element: u64, base: u64, from_last: bool) -> Vec<Access> {
    let processes: u64 = directions.iter().map(|d| d.0).product();
    let of = |rank: u64| {
        let mut rest = rank;
        let mut at = vec![0; directions.len()];
        let mut order: Vec<usize> = (0..directions.len()).collect();
        if from_last {
            order.reverse();
        }
        for direction in order {
            at[direction] = rest % directions[direction].0;
            rest /= directions[direction].0;
        }
        let (mut start, mut stride, mut levels) = (base, element, Vec::new());
        for (&(count, each, more), at) in directions.iter().zip(at).rev() {
            levels.push((each, stride));
            start += at * each * stride;
            stride *= count * each + more;
        }
        levels.reverse();
        Access::strided(start, element, &levels).unwrap()
    };
    (0..processes).map(of).collect()
}

/// Accesses as programs have them: arrays of one to three directions with and without paddings, records in turns, blocks with
/// gaps, equal ones, overlapping ones, and some that fit no pattern.
fn captured(r: &mut Numbers) -> Vec<Access> {
    let base = r.below(3) * r.below(1000);
    let element = r.between(1, 9);
    match r.below(8) {
        0..=3 => {
            let number = r.between(1, 3);
            let direction = |r: &mut Numbers| (r.between(1, 3), r.between(1, 4), r.below(2) * 2);
            let directions: Vec<_> = (0..number).map(|_| direction(r)).collect();
            array(&directions, element, base, r.below(2) == 0)
        }
        4 => {
            // A view of several blocks in a tile, tiles in turns.
            let (processes, records) = (r.between(1, 5), r.between(1, 4));
            let mut tile = TypeMap::contiguous(element);
            tile.place(&TypeMap::contiguous(1), element as i64 + 3, 1, 0)
                .unwrap();
            let extent = (element + 4) * processes + r.below(5);
            let of = |rank: u64| {
                let begin = base + rank * (element + 4);
                let view = View::new(begin, 1, tile.clone(), extent as i64).unwrap();
                view.access(0, records * tile.bytes()).unwrap()
            };
            (0..processes).map(of).collect()
        }
        5 => {
            // Blocks that share bytes with their neighbours, or all have the same.
            let (processes, distance) = (r.between(1, 5), r.below(element + 2));
            let of = |rank: u64| Access::strided(base + rank * distance, element, &[]).unwrap();
            (0..processes).map(of).collect()
        }
        _ => {
            let processes = r.between(1, 4);
            let mut at = base;
            let mut of = |r: &mut Numbers| {
                let mut access = Access::default();
                for _ in 0..r.below(5) {
                    at += r.below(4);
                    access.append(at, r.between(1, 6), &[]).unwrap();
                    at = access.hull().unwrap().end;
                }
                access
            };
            (0..processes).map(|_| of(r)).collect()
        }
    }
}

#[test]
fn with_the_captured_number_of_processes_a_pattern_is_what_was_captured() {
    for seed in 0..4000 {
        let accesses = captured(&mut Numbers(seed, 0));
        let division = Decomposition::of(&accesses);
        let again = division.scaled(accesses.len() as u32).unwrap();
        assert_eq!(again, folded(&accesses), "seed {seed}: {accesses:?}");
        for (again, access) in again.iter().zip(&accesses) {
            assert_eq!(bytes_of(again), bytes_of(access), "seed {seed}");
        }
    }
}

#[test]
fn bytes_grow_with_processes_and_nobody_writes_where_others_do_who_did_not_before() {
    let mut grids = 0;
    for seed in 0..4000 {
        let mut r = Numbers(seed, 0);
        let accesses = captured(&mut r);
        let captured = accesses.len() as u64;
        let division = Decomposition::of(&accesses);
        grids += u64::from(division.is_grid());
        let processes = match division.is_grid() {
            true => r.between(1, 40),
            false => captured * r.between(1, 6),
        };
        let about = format!("seed {seed}: {processes} of {accesses:?}");
        let scaled = division.scaled(processes as u32).unwrap();
        assert_eq!(scaled.len() as u64, processes, "{about}");
        assert_eq!(
            sum(&scaled) * captured,
            sum(&accesses) * processes,
            "{about}"
        );
        if !overlap(&accesses) {
            assert!(!overlap(&scaled), "{about}\n{scaled:?}");
        }
        if sum(&accesses) > 0 {
            let start = |accesses: &[Access]| Access::region(accesses).start;
            assert_eq!(start(&scaled), start(&accesses), "{about}");
        }
    }
    assert!(grids > 2000, "{grids} grids");
}

#[test]
fn a_full_array_stays_full_and_a_padded_one_keeps_its_paddings() {
    for from_last in [true, false] {
        let of = |processes: [u64; 3], padding| {
            let each = [(processes[0], 3), (processes[1], 2), (processes[2], 5)];
            let directions = each.map(|(count, each)| (count, each, padding));
            array(&directions, 4, 100, from_last)
        };
        for padding in [0, 7] {
            let division = Decomposition::of(&of([2, 2, 2], padding));
            let larger = folded(&of([4, 4, 4], padding));
            assert_eq!(division.scaled(64), Ok(larger), "{from_last} {padding}");
        }
        let full = Decomposition::of(&of([2, 2, 2], 0)).scaled(512).unwrap();
        assert_eq!(Access::region(&full).bytes(), sum(&full));
    }
}

#[test]
fn records_in_turns_get_longer_turns() {
    let of = |processes: u64| -> Vec<Access> {
        let of =
            |rank: u64| Access::strided(50 + rank * 16, 16, &[(1000, processes * 16)]).unwrap();
        (0..processes).map(of).collect()
    };
    let division = Decomposition::of(&of(4));
    assert_eq!(division.scaled(7), Ok(of(7)));
    assert_eq!(division.scaled(4096), Ok(of(4096)));
    assert!(
        division
            .in_words()
            .starts_with("records of all processes in turns")
    );
    assert_eq!(division.grid_in_words(12), "12");
}

#[test]
fn a_call_without_a_pattern_is_repeated_behind_itself() {
    let accesses = [
        Access::strided(10, 5, &[]).unwrap(),
        Access::default(),
        Access::strided(20, 7, &[(3, 10)]).unwrap(),
    ];
    let division = Decomposition::of(&accesses);
    assert!(!division.is_grid());
    let scaled = division.scaled(6).unwrap();
    assert_eq!(scaled[..3], accesses);
    // The region is 10..47.
    assert_eq!(scaled[3], accesses[0].moved_to(47).unwrap());
    assert_eq!(scaled[5], accesses[2].moved_to(57).unwrap());
    assert_eq!(division.scaled(7), Err(ScaleError::NoMultipleOf(3)));
    assert_eq!(division.scaled(0), Err(ScaleError::Nobody));
}

#[test]
fn what_would_go_beyond_a_file_is_an_error() {
    let far = |rank: u64| Access::strided(rank << 60, 8, &[]).unwrap();
    let division = Decomposition::of(&[far(0), far(1)]);
    assert!(division.scaled(7).is_ok());
    assert_eq!(division.scaled(64), Err(ScaleError::TooLarge));
    let sparse = |rank: u64| Access::strided(rank * 8, 8, &[(2, 1 << 62)]).unwrap();
    assert!(
        Decomposition::of(&[sparse(0), sparse(1)])
            .scaled(16_384)
            .is_ok()
    );
    let odd = [Access::strided(0, 1, &[]).unwrap(), far(5)];
    assert_eq!(
        Decomposition::of(&odd).scaled(64),
        Err(ScaleError::TooLarge)
    );
}

#[test]
fn folding_keeps_the_bytes_and_makes_a_three_dimensional_block_one_part() {
    let element = TypeMap::contiguous(4);
    let block = TypeMap::subarray(&element, 4, &[(8, 3, 2), (6, 2, 4), (10, 5, 5)]).unwrap();
    let view = View::new(0, 4, block, 8 * 6 * 10 * 4).unwrap();
    let access = view.access(0, 3 * 2 * 5 * 4).unwrap();
    assert!(access.parts() > 1);
    let folded = access.folded();
    assert_eq!(folded.parts(), 1);
    assert_eq!(bytes_of(&folded), bytes_of(&access));
    for seed in 0..500 {
        for access in captured(&mut Numbers(seed, 0)) {
            let folded = access.folded();
            assert_eq!(bytes_of(&folded), bytes_of(&access));
            assert_eq!(folded.folded(), folded);
        }
    }
}

#[test]
fn a_million_pieces_at_irregular_distances_are_folded_without_looking_at_each_pair() {
    let mut access = Access::default();
    for at in 0..1 << 20 {
        access.append(at * 100 + at * at % 50, 8, &[]).unwrap();
    }
    let folded = access.folded();
    assert_eq!(folded.bytes(), access.bytes());
    assert!(folded.parts() <= access.parts());
}

#[test]
fn a_capture_keeps_the_accesses_and_a_shape_once() {
    for seed in 0..1000 {
        let accesses = captured(&mut Numbers(seed, 0));
        let kept = CapturedAccesses::of(&accesses);
        assert_eq!(kept.accesses(), folded(&accesses), "seed {seed}");
        assert_eq!(kept.bytes(), sum(&accesses));
        let again = CapturedAccesses::new(kept.shapes(), kept.at());
        assert_eq!(again, Ok(kept), "seed {seed}");
        let front = moved_to_front(&accesses);
        assert_eq!(Access::region(&front).start, 0);
        assert_eq!(sum(&front), sum(&accesses));
    }
    let ranks = array(&[(8, 10, 0), (8, 10, 0)], 4, 0, true);
    assert_eq!(CapturedAccesses::of(&ranks).shapes().len(), 1);
}
