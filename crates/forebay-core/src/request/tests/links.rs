//! Symbolic links that others change while a request is on its way.

use super::*;

fn link(version: u64, seq: u64) -> PathRecord {
    PathRecord {
        kind: Kind::Symlink,
        ..file(version, seq)
    }
}

/// One of several bridges. The link with object 2 leads to `d/f`, that with object 3 out of the buffer.
fn world() -> Hand {
    Hand {
        has_peers: true,
        texts: BTreeMap::from([
            (object(2), b"d/f".to_vec()),
            (object(3), b"/elsewhere".to_vec()),
        ]),
        ..Hand::new()
    }
}

fn stat(name: &str) -> Pending {
    pending(Op::Stat {
        path: path(name),
        follow: true,
    })
}

/// Steps to the end. `told`: what homes say now.
fn run(world: &Hand, p: &mut Pending, told: &[(&str, PathRecord)]) -> Finish {
    loop {
        match world.step(p) {
            Effect::Fetch(Need::Record(path)) => {
                let record = told.iter().find(|(at, _)| super::at(at) == path);
                p.fetched(said(path, record.map(|(_, record)| record.clone())));
            }
            effect => return finished(effect),
        }
    }
}

#[test]
fn a_file_that_came_after_its_link_had_gone_is_not_found_through_it() {
    let world = world();
    let mut p = stat("l");
    let first = world.step(&mut p);
    assert_eq!(first, Effect::Fetch(Need::Record(at("l"))));
    p.fetched(said(at("l"), Some(link(1, 2))));
    // Meanwhile the link is removed, and then the file made.
    let finish = run(&world, &mut p, &[("d/f", file(3, 5))]);
    assert_eq!(finish.outcome, Err(Failure::Errno(libc::ENOENT)));
}

#[test]
fn a_way_out_that_never_was_is_not_taken() {
    let world = world();
    let mut p = stat("l");
    assert!(matches!(world.step(&mut p), Effect::Fetch(_)));
    p.fetched(said(at("l"), Some(link(1, 2))));
    let finish = run(&world, &mut p, &[("d/f", link(3, 3))]);
    assert_eq!(finish.outcome, Err(Failure::Errno(libc::ENOENT)));
}

#[test]
fn a_link_that_took_the_place_of_a_directory_is_followed() {
    let world = world();
    let mut p = stat("l/f");
    assert!(matches!(world.step(&mut p), Effect::Fetch(_)));
    p.fetched(said(at("l/f"), Some(file(1, 5))));
    let told = [("l", link(3, 3))];
    let finish = run(&world, &mut p, &told);
    let outside = b"/elsewhere/f".to_vec();
    assert_eq!(finish.outcome, Err(Failure::Redirect(outside)));
}
