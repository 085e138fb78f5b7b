//! The lock laboratory: counts of lock requests and conflicts against closed forms, and the order of the methods in figures
//! 4 to 7 of the SC'08 paper.

use forebay_core::collective::{Groups, Method};
use forebay_sim::collective::{
    DEFAULT_PARAMETERS, Figure, Locks, Parameters, Point, System, chart, choice, measure,
    run_figure, tables,
};

const GROUP: Method = Method::GroupCyclic(Groups::Concurrent);
const GROUP_IN_TURN: Method = Method::GroupCyclic(Groups::Sequential);

fn system(name: &str) -> System {
    Parameters::default().systems[name].clone()
}

/// All methods at one point, in the order of `Method::ALL`.
fn all(system: &System, side: u64, processes: u32) -> [Point; 5] {
    Method::ALL.map(|method| measure(system, method, u32::MAX, side, processes))
}

fn counts(points: &[Point; 5]) -> [(u64, u64); 5] {
    points.map(|p| (p.write.requests, p.write.conflicts))
}

fn rates(points: &[Point; 5]) -> [f64; 5] {
    points.map(|p| p.write.mb_s())
}

/// The difference of two rates as a share of the smaller one.
fn apart(a: f64, b: f64) -> f64 {
    (a - b).abs() / a.min(b)
}

#[test]
fn locks_of_servers_are_asked_for_and_lost_as_often_as_counted_by_hand() {
    // 1.024e9 bytes are 1954 stripes of 512 KiB on 64 servers. Contiguous domains of 30.5 stripes bring a new client to a
    // server with every stripe, and even ones share 63 stripes; each server grants once for nothing.
    let lustre = system("lustre");
    let [even, aligned, fixed, group, in_turn] = counts(&all(&lustre, 100, 256));
    assert_eq!(even, (2017, 1953));
    assert_eq!(aligned, (1954, 1890));
    assert_eq!([fixed, group, in_turn], [(64, 0); 3]);
    let [even, aligned, _, group, in_turn] = counts(&all(&lustre, 100, 512));
    assert_eq!((even.1, aligned.1), (3970, 3843));
    assert_eq!([group, in_turn], [(128, 64); 2]);
}

#[test]
fn a_lock_moves_as_often_as_the_closed_forms_say() {
    let (lustre, gpfs) = (system("lustre"), system("gpfs"));
    for processes in [16u32, 64, 256, 512, 1024] {
        for side in [100u64, 128] {
            let granules = (side.pow(3) * 4 * u64::from(processes)).div_ceil(lustre.granule_bytes);
            let a = u64::from(processes / lustre.ranks_per_node);
            let servers = u64::from(lustre.servers);
            let [even, aligned, fixed, group, in_turn] =
                counts(&all(&lustre, side, processes)).map(|c| c.1);
            // No server holds two neighbouring stripes of one domain here, so each is a request.
            assert!(granules.div_ceil(a) <= servers);
            assert_eq!(aligned, granules - servers.min(granules), "{processes}");
            let is_shared = side.pow(3) * 16 % lustre.granule_bytes != 0;
            let shared = if is_shared { a - 1 } else { 0 };
            assert_eq!(even, aligned + shared, "{processes}");
            if a <= servers {
                assert_eq!(fixed, 0);
            } else {
                assert!(fixed > group && fixed <= granules - servers);
            }
            // The first client of a server gets its lock for nothing, each other one with one conflict.
            let moves = servers * (a / servers).saturating_sub(1);
            assert_eq!((group, in_turn), (moves, moves), "{processes}");

            let a = u64::from(processes / gpfs.ranks_per_node);
            let tokens = counts(&all(&gpfs, side, processes));
            assert_eq!(tokens[1].1, a - 1, "{processes}");
            let is_shared = side.pow(3) * 8 % gpfs.granule_bytes != 0;
            let shared = if is_shared { a - 1 } else { 0 };
            assert_eq!(tokens[0].1, a - 1 + shared, "{processes}");
            for cyclic in &tokens[2..] {
                assert!(cyclic.1 * 100 >= granules * 85 && cyclic.1 < granules);
            }
        }
    }
}

#[test]
fn figures_4_and_5_have_the_order_of_the_paper_on_servers_with_their_own_locks() {
    let lustre = system("lustre");
    for side in [100, 128, 200] {
        for processes in [16, 64, 256] {
            let points = all(&lustre, side, processes);
            let [even, aligned, fixed, group, in_turn] = rates(&points);
            assert_eq!((fixed, fixed), (group, in_turn), "one method here");
            assert!(fixed > 1.4 * even.max(aligned), "{side} {processes}");
            assert!(apart(even, aligned) < 0.05, "{even} {aligned}");
            let share = points.map(|p| p.write.io_percent());
            assert!(share[2].max(share[3]) < share[0].min(share[1]), "{share:?}");
        }
        for processes in [512, 1024] {
            let points = all(&lustre, side, processes);
            let [even, aligned, fixed, group, in_turn] = rates(&points);
            assert!(
                group.min(in_turn) > 1.15 * fixed.max(even).max(aligned),
                "{side} {processes}"
            );
            let share = points.map(|p| p.write.io_percent());
            assert!(share[3].max(share[4]) < share[0].min(share[1]), "{share:?}");
            // Static-cyclic loses its lead over aligned in one case of these sizes: docs/COLLECTIVE.md.
            assert_eq!(fixed > aligned, (side, processes) != (200, 1024));
        }
    }
}

#[test]
fn figures_6_and_7_have_the_order_of_the_paper_with_tokens_of_clients() {
    let gpfs = system("gpfs");
    for side in [100, 128] {
        for processes in [16, 32, 64, 128, 256, 512, 1024] {
            let points = all(&gpfs, side, processes);
            let [even, aligned, fixed, group, in_turn] = rates(&points);
            assert!(
                aligned >= even && even > 3.0 * fixed.max(group),
                "{points:?}"
            );
            assert!(apart(fixed, in_turn) < 0.05, "{fixed} {in_turn}");
            assert!(apart(fixed, group) < 0.09, "{fixed} {group}");
            let reads = points.map(|p| p.read.mb_s());
            let (least, most) = reads
                .iter()
                .fold((f64::MAX, 0f64), |(l, m), r| (r.min(l), r.max(m)));
            let limit = if processes == 32 { 0.36 } else { 0.25 };
            assert!(apart(least, most) < limit, "{processes}: {reads:?}");
        }
    }
}

#[test]
fn group_cyclic_leads_from_512_processes_on_with_other_costs_too() {
    for cancel_us in [1000, 2000, 5000] {
        for write_seek_us in [1000, 4000] {
            let lustre = System {
                cancel_us,
                write_seek_us,
                ..system("lustre")
            };
            for processes in [512, 1024] {
                let rate = |method| {
                    let point = measure(&lustre, method, u32::MAX, 100, processes);
                    point.write.mb_s()
                };
                assert!(rate(GROUP) > rate(Method::StaticCyclic), "{lustre:?}");
                assert!(rate(GROUP_IN_TURN) > rate(Method::StaticCyclic));
            }
        }
    }
}

#[test]
fn without_locks_nobody_asks_and_only_the_servers_matter() {
    let mut machine = system("lustre");
    machine.locks = Locks::None;
    for point in all(&machine, 100, 256) {
        assert_eq!((point.write.requests, point.write.conflicts), (0, 0));
    }
    // One server without seeks: all methods keep it busy, and it is the bound.
    machine.servers = 1;
    machine.write_seek_us = 0;
    for point in all(&machine, 100, 64) {
        let most = machine.server_mb_s as f64;
        let rate = point.write.mb_s();
        assert!(rate <= most && rate > 0.9 * most, "{point:?}");
    }
}

#[test]
fn what_core_chooses_is_within_a_tenth_of_the_best_method_under_every_lock_manager() {
    for (name, locks) in Locks::ALL {
        for (base, processes) in [("lustre", 64), ("lustre", 512), ("gpfs", 512)] {
            let machine = System {
                locks,
                ..system(base)
            };
            let chosen = choice(&machine, processes);
            let point = measure(&machine, chosen.method, chosen.aggregators, 100, processes);
            let best = rates(&all(&machine, 100, processes))
                .into_iter()
                .fold(0.0, f64::max);
            let rate = point.write.mb_s();
            assert!(
                rate > 0.9 * best,
                "{name} on {base}, {processes}: {} {rate:.0}, best {best:.0}",
                chosen.method.in_words()
            );
        }
    }
}

#[test]
fn a_number_of_processes_that_fits_nothing_is_run_with_fewer_aggregators_for_the_cyclic_methods() {
    let lustre = system("lustre");
    let used = all(&lustre, 20, 7 * 13 * 4).map(|p| p.aggregators);
    assert_eq!(used, [91, 91, 64, 64, 64]);
    assert_eq!(all(&lustre, 20, 13 * 4)[2].aggregators, 8);
    assert_eq!(all(&lustre, 1, 1)[0].write.bytes, 4);
}

#[test]
fn the_same_parameters_give_the_same_figure() {
    let parameters = Parameters::default();
    let figure = Figure {
        processes: vec![16, 64],
        ..parameters.figures[0].clone()
    };
    let points = run_figure(&parameters, &figure);
    assert_eq!(points, run_figure(&parameters, &figure));
    let text = tables(&parameters, &figure, &points);
    for part in [
        "calibration: 64 servers of 150 MB/s",
        "giving up a lock 5000 us",
        "in the paper",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let svg = chart(&parameters, &[(&figure, points)]);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<polyline ").count(), 15);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn parameters_that_are_wrong_are_refused_with_their_line() {
    let line_of = |text: &str| {
        let lines = DEFAULT_PARAMETERS.lines();
        1 + lines.take_while(|line| !line.starts_with(text)).count()
    };
    let servers = line_of("servers");
    for (from, to, expected) in [
        (
            "servers = 64",
            "servers = many",
            format!("line {servers}: servers: `many` is no number"),
        ),
        (
            "servers = 64",
            "servers = 0",
            format!("line {servers}: servers: 0 is not between 1 and 65536"),
        ),
        (
            "servers = 64",
            "servers = 64T",
            format!("line {servers}: servers: `64T` is no number"),
        ),
        (
            "servers = 64",
            "servers 64",
            format!("line {servers}: `servers 64` is not `key = value`"),
        ),
        (
            "servers = 64",
            "servers = 64\nservers = 3",
            format!("line {}: servers is there twice", servers + 1),
        ),
        (
            "servers = 64",
            "",
            format!(
                "line {}: [system lustre] has no servers",
                line_of("[system lustre]")
            ),
        ),
        (
            "servers = 64",
            "disks = 3\nservers = 64",
            format!("line {servers}: [system lustre] has no use for disks"),
        ),
        (
            "locks = server-extents",
            "locks = magic",
            format!("line {}: unknown locks `magic`", line_of("locks")),
        ),
        (
            "[system lustre]",
            "[system]",
            format!("line {}: a section is", line_of("[system lustre]")),
        ),
        (
            "[system lustre]",
            "[disk lustre]",
            format!(
                "line {}: unknown section [disk lustre]",
                line_of("[system lustre]")
            ),
        ),
        (
            "system = lustre",
            "system = beegfs",
            format!(
                "line {}: no section [system beegfs] before it",
                line_of("system =")
            ),
        ),
        (
            "sides = 100",
            "sides =",
            format!("line {}: sides has no number", line_of("sides")),
        ),
        (
            "sides = 100",
            "sides = 2000",
            format!("line {}: a file of more than", line_of("[figure 4]")),
        ),
        (
            "buffer = 4M ",
            "buffer = 4K ",
            format!(
                "line {}: the buffer must hold a granule",
                line_of("[system lustre]")
            ),
        ),
        (
            "[figure 5]",
            "[figure 4]",
            format!("line {}: a second figure 4", line_of("[figure 5]")),
        ),
    ] {
        let text = DEFAULT_PARAMETERS.replacen(from, to, 1);
        assert_ne!(text, DEFAULT_PARAMETERS, "{from}");
        let said = Parameters::parse(&text).unwrap_err().to_string();
        assert!(said.starts_with(&expected), "{said}\n{expected}");
    }
    let none = Parameters::parse("# nothing\n").unwrap_err();
    assert_eq!(none.to_string(), "no section [figure NAME]");
    let early = Parameters::parse("servers = 1").unwrap_err();
    assert_eq!(
        early.to_string(),
        "line 1: servers comes before the first section"
    );
}
