//! Two writers, one tree, as a test: no script destroys what is the neighbour's, planted bugs are found.

use forebay_sim::faults::two_writers::{NeighbourOptions, Script, play, search};

#[test]
fn explore() {
    let n = std::env::var("N").map_or(2000, |n| n.parse().unwrap());
    let begin = std::time::Instant::now();
    let found = search(
        &NeighbourOptions { first_seed: 1, seeds: n, mutation: None, goes_on: true },
        &mut |_| {},
    );
    println!("{} scripts, {} steps, {:.0} per second", found.scripts, found.steps, found.scripts as f64 / begin.elapsed().as_secs_f64());
    for (count, q) in &found.kinds {
        println!("--- {count}\n{q}\n");
    }
}

#[test]
fn cases() {
    for (name, text) in [
        ("a", "mkdir n; rename d/a n/x; drain keep; unlink n/x; they replace n/x file"),
        ("a2", "mkdir n; rename d/a n/x; drain keep; unlink n/x; they replace n/x directory"),
        ("b", "mkdir n; create n/x; drain keep; they make file n/new; rename n m"),
        ("c", "rename d/a x; remove d; they replace d/a file"),
        ("d", "start d/ d/a d/s/ f g; rename d/s x; rename d x"),
        ("d1", "start d/ d/s/ f g; rename d/s x; rename d x; remove x"),
        ("d2", "start d/ d/s/ f g; rename d/s x; rename d x; remove x; they make file d/s/new"),
        ("d3", "start d/ d/s/ f g; rename d/s x; rename d x; they make file d/s/new; drain keep"),
        ("e0", "unlink d/a; drain keep refused 0; they replace d/a file; remove d"),
        ("e1", "unlink d/a; drain keep refused 0; remove d; they replace d/a file"),
        ("e2", "unlink d/a; drain keep refused 0; they make file d/new; remove d"),
        ("f1", "rename d/s n; mkdir x"),
        ("f2", "mkdir n; rename d/s n/s; drain keep; remove n/s; they make file n/s/new"),
        ("f3", "start d/ d/s/ f; mkdir n; rename d/s n/s; drain keep; remove n/s; they replace n/s file"),
        ("f4", "start d/ d/s/ f; mkdir n; rename d/s n/s; drain keep; remove n/s; they replace n/s directory"),
        ("f5", "start d/ d/s/ f; mkdir n; rename d/s n/s; drain keep; remove n; they make file n/s/new"),
    ] {
        for stage in ["", "stage; "] {
            let script: Script = format!("{stage}{text}").parse().unwrap();
            match play(&script, None) {
                Ok(()) => println!("{name}: ok"),
                Err(q) => println!("{name}: {q}\n"),
            }
        }
    }
}
