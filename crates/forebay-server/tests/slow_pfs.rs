//! A PFS that may keep the bridge waiting: every look at it happens outside the event
//! loops, and the answers are the same.

mod common;

use common::load::Load;
use common::{Place, names, read, write};
use forebay_client::Control;
use forebay_server::{Server, start};
use std::thread;

const CLIENTS: usize = 3;
const STEPS: usize = 2000;

fn slow(place: &Place) -> Server {
    let mut config = place.config();
    config.pfs_may_wait = Some(true);
    start(config).unwrap()
}

#[test]
fn clients_at_work_over_a_slow_pfs_find_everything_as_they_left_it() {
    let place = Place::new();
    for n in 0..CLIENTS {
        Load::prepare(&place.root(), &format!("w{n}"));
    }
    let server = slow(&place);
    let mut loads: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let client = place.client();
                scope.spawn(move || {
                    let mut load = Load::new(client, &format!("w{n}"), 7 + n as u64);
                    for _ in 0..STEPS {
                        load.step();
                    }
                    load
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    for load in &mut loads {
        load.verify();
    }
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
    let server = slow(&place);
    for load in &mut loads {
        load.verify();
    }
    server.stop().unwrap();
}

#[test]
fn a_large_directory_of_a_slow_pfs_is_listed_in_parts() {
    let place = Place::new();
    const FILES: usize = 3000;
    for n in 0..FILES {
        std::fs::write(place.root().join(format!("f{n:05}")), b"").unwrap();
    }
    let server = slow(&place);
    let mut client = place.client();
    write(&mut client, "g", b"new");
    client.unlink("f00000").unwrap();
    client.rename("f00001", "h").unwrap();
    let listed = names(&mut client, "");
    assert_eq!(listed.len(), FILES);
    assert_eq!(listed[0], "f00002");
    assert_eq!(listed[FILES - 2..], ["g", "h"]);
    assert!(listed.is_sorted());
    // One process copies it, the others wait for the copy.
    std::fs::write(place.root().join("big"), vec![3; 4 << 20]).unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            let mut client = place.client();
            scope.spawn(move || client.open("big", libc::O_RDWR, 0).unwrap());
        }
    });
    assert_eq!(read(&mut client, "big"), vec![3; 4 << 20]);
    let mut control = Control::connect(&place.socket()).unwrap();
    let status = control.status().unwrap();
    assert_eq!((status.staged_files, status.staged_bytes), (1, 4 << 20));
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
}
