//! Several requests of one client at once, and bridges of other versions.

#[path = "../../forebay-link/tests/common/mod.rs"]
mod common;

use common::Place;
use forebay_client::{Client, Error, MAX_IN_FLIGHT, Pending};
use forebay_wire::{Op, PROTOCOL_VERSION, Reply, Request, STATUS_OTHER_VERSION};
use std::time::Duration;

fn readlink(path: &str) -> Request<'_> {
    Request {
        str1: path.as_bytes(),
        ..Request::new(Op::Readlink)
    }
}

fn begin(client: &mut Client, path: &str) -> Pending {
    client.begin(readlink(path)).unwrap()
}

/// A client with one connection, which is the first that the bridge accepts.
fn client(place: &Place) -> Client {
    Client::connect(&place.socket()).unwrap()
}

#[test]
fn answers_come_and_are_collected_in_any_order() {
    let place = Place::new();
    let mut client = client(&place);
    let bridge = place.serve(|place| {
        let peers: Vec<_> = (0..3).map(|_| place.accept()).collect();
        let asked: Vec<_> = peers.iter().map(|peer| peer.asked()).collect();
        for at in [2, 0, 1] {
            peers[at].echo(&asked[at]);
        }
        asked.into_iter().map(|asked| asked.seq).collect::<Vec<_>>()
    });
    let [a, b, c] = ["a", "b", "c"].map(|path| begin(&mut client, path));
    let mut body = |pending| client.finish(pending).unwrap().body;
    assert_eq!(body(b), b"b");
    assert_eq!(body(a), b"a");
    assert_eq!(body(c), b"c");
    assert_eq!(bridge.join().unwrap(), [1, 2, 3]);
}

#[test]
fn a_slow_answer_holds_up_no_other() {
    let place = Place::new();
    let mut client = client(&place);
    let bridge = place.serve(|place| {
        let slow = place.accept();
        let asked = slow.asked();
        let quick = place.accept();
        for _ in 0..10 {
            quick.echo(&quick.asked());
        }
        slow.echo(&asked);
    });
    let slow = begin(&mut client, "slow");
    for n in 0..10 {
        let path = n.to_string();
        assert_eq!(client.readlink(&path).unwrap(), path.as_bytes());
    }
    assert_eq!(client.finish(slow).unwrap().body, b"slow");
    bridge.join().unwrap();
}

#[test]
fn there_is_a_limit_to_what_is_in_flight_and_a_dropped_request_frees_its_place() {
    let place = Place::new();
    let mut client = client(&place);
    let mut all: Vec<_> = (0..MAX_IN_FLIGHT)
        .map(|n| begin(&mut client, &n.to_string()))
        .collect();
    let over = client.begin(readlink("over"));
    assert!(matches!(over, Err(Error::TooManyInFlight)));
    drop(all.pop());
    let _again = begin(&mut client, "again");
    let over = client.begin(readlink("over"));
    assert!(matches!(over, Err(Error::TooManyInFlight)));
}

#[test]
fn a_bridge_that_hangs_up_gets_each_request_again_under_its_token() {
    let place = Place::new();
    let mut client = client(&place);
    client.set_patience(Duration::from_secs(30));
    let bridge = place.serve(|place| {
        let first: Vec<_> = {
            let peers = [place.accept(), place.accept()];
            peers.iter().map(|peer| peer.asked()).collect()
        };
        let second: Vec<_> = (0..2)
            .map(|_| {
                let peer = place.accept();
                let asked = peer.asked();
                peer.echo(&asked);
                asked
            })
            .collect();
        for (first, second) in first.iter().zip(&second) {
            assert!(!first.retry && second.retry);
            assert_eq!((first.client, first.seq), (second.client, second.seq));
            assert_eq!(first.path, second.path);
        }
    });
    let (a, b) = (begin(&mut client, "a"), begin(&mut client, "b"));
    assert_eq!(client.finish(a).unwrap().body, b"a");
    assert_eq!(client.finish(b).unwrap().body, b"b");
    bridge.join().unwrap();
}

#[test]
fn without_patience_a_bridge_that_hangs_up_is_lost() {
    let place = Place::new();
    let mut client = client(&place);
    client.set_patience(Duration::ZERO);
    let bridge = place.serve(|place| drop(place.accept().asked()));
    let pending = begin(&mut client, "x");
    assert!(matches!(client.finish(pending), Err(Error::Lost { .. })));
    bridge.join().unwrap();
}

#[test]
fn it_is_seen_when_an_answer_is_there() {
    let place = Place::new();
    let mut client = client(&place);
    let (go, gone) = std::sync::mpsc::channel();
    let bridge = place.serve(move |place| {
        let peer = place.accept();
        let asked = peer.asked();
        gone.recv().unwrap();
        peer.echo(&asked);
    });
    let pending = begin(&mut client, "x");
    assert!(!pending.is_ready());
    go.send(()).unwrap();
    bridge.join().unwrap();
    assert!(pending.is_ready());
    assert_eq!(client.finish(pending).unwrap().body, b"x");
}

#[test]
#[should_panic(expected = "another client")]
fn a_request_is_collected_by_the_client_that_made_it() {
    let place = Place::new();
    let (mut one, mut other) = (client(&place), client(&place));
    let pending = begin(&mut one, "x");
    let _ = other.finish(pending);
}

#[test]
fn a_bridge_of_another_version_is_named_with_both_versions() {
    let theirs = PROTOCOL_VERSION + 1;
    let refusal = Reply {
        aux: u64::from(theirs),
        ..Reply::status(0, STATUS_OTHER_VERSION)
    };
    let answers = [
        refusal.header().to_vec(),
        vec![b'F', b'B', b'Y', b'0' + theirs],
    ];
    for answer in answers {
        let place = Place::new();
        let socket = place.socket();
        let mut client = client(&place);
        let bridge = place.serve(move |place| {
            let peer = place.accept();
            peer.asked();
            peer.send(&answer);
        });
        let error = client.hello().unwrap_err();
        assert_eq!(error.errno(), Some(libc::EPROTO));
        let expected = format!(
            "this program's Forebay client speaks protocol {PROTOCOL_VERSION}, the bridge at {} speaks {theirs}: use \
             the same version of both",
            socket.display()
        );
        assert_eq!(error.to_string(), expected);
        bridge.join().unwrap();
    }
}
