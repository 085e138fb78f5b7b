//! Clients that break the rules get an error, and nobody else notices.

mod common;

use common::process::Process;
use common::raw::{Raw, Said, request};
use common::{Place, read, write};
use forebay_client::{Client, Error};
use forebay_wire::{
    Base, MAX_NAME_BYTES, MAX_PATH_BYTES, MAX_REQUEST_BYTES, Op, PROTOCOL_VERSION, Request, refusal,
};
use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A well-behaved neighbour that must not be harmed.
struct Neighbour(Client);

impl Neighbour {
    fn of(place: &Place) -> Self {
        let mut client = place.client();
        write(&mut client, "neighbour", b"mine");
        Neighbour(client)
    }
    fn is_well(&mut self) {
        self.0.set_patience(Duration::ZERO);
        assert_eq!(read(&mut self.0, "neighbour"), b"mine");
        write(&mut self.0, "scratch", b"x");
        self.0.unlink("scratch").unwrap();
    }
}

fn encoded(request: &Request<'_>) -> Vec<u8> {
    let mut buffer = vec![0; MAX_REQUEST_BYTES];
    let n = request.encode(&mut buffer).unwrap();
    buffer.truncate(n);
    buffer
}

/// Waits until `holds` does; its work goes on in another thread.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_no_request_is_refused_and_ends_the_connection() {
    let place = Place::new();
    let server = place.start();
    let mut neighbour = Neighbour::of(&place);
    let good = encoded(&request(Op::Stat, b"neighbour"));
    let mut no_version = good.clone();
    no_version[3] = 0;
    let mut nul = good.clone();
    *nul.last_mut().unwrap() = 0;
    let mut unknown = good.clone();
    unknown[4] = 200;
    let longer_than_a_path = encoded(&Request {
        str1: &[b'a'; MAX_PATH_BYTES + 1],
        ..Request::new(Op::Stat)
    });
    let bad: &[(&str, &[u8])] = &[
        ("one byte", b"x"),
        ("garbage", &[0xa5; 300]),
        ("truncated", &good[..good.len() - 1]),
        ("cut in the header", &good[..40]),
        ("too long by one", &[good.clone(), vec![0]].concat()),
        ("oversized", &vec![b'F'; MAX_REQUEST_BYTES + 1]),
        ("far oversized", &vec![b'F'; 100_000]),
        ("no version", &no_version),
        ("a NUL in the path", &nul),
        ("an unknown operation", &unknown),
        ("a path that is too long", &longer_than_a_path),
    ];
    for (what, message) in bad {
        let raw = Raw::connect(&place.socket()).unwrap();
        raw.send(message).unwrap();
        assert_eq!(raw.receive(), Said::Status(libc::EPROTO), "{what}");
        assert_eq!(raw.receive(), Said::End, "{what}");
        neighbour.is_well();
    }
    assert!(place.logged().contains("that is no request"));
    server.stop().unwrap();
}

#[test]
fn a_client_of_another_version_is_refused_in_its_own_and_the_log_names_both() {
    let place = Place::new();
    let server = place.start();
    let mut neighbour = Neighbour::of(&place);
    for theirs in [PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 100] {
        let of_theirs = |mut message: Vec<u8>| {
            message[3] = b'0' + theirs;
            message
        };
        let messages = [
            of_theirs(encoded(&request(Op::Hello, b""))),
            of_theirs(encoded(&request(Op::Stat, b"neighbour"))),
            // Nobody knows what follows their first bytes.
            of_theirs(vec![b'F', b'B', b'Y', 0]),
            of_theirs([b"FBY0", &[0xff; 900][..]].concat()),
        ];
        for message in messages {
            let raw = Raw::connect(&place.socket()).unwrap();
            raw.send(&message).unwrap();
            assert_eq!(raw.receive_bytes().unwrap(), refusal(theirs));
            assert_eq!(raw.receive(), Said::End);
            neighbour.is_well();
        }
    }
    let line = format!(
        "speaks protocol {}, this bridge speaks {PROTOCOL_VERSION}: use the same version of both",
        PROTOCOL_VERSION + 1
    );
    assert!(place.logged().contains(&line));
    server.stop().unwrap();
}

#[test]
fn paths_made_to_confuse_stay_in_the_buffer() {
    let place = Place::new();
    std::fs::write(place.root().join("../secret"), b"secret").unwrap();
    let server = place.start();
    let mut client = place.client();
    client.mkdir("d", 0o755).unwrap();
    let deep = "d/../".repeat(600) + "../secret";
    for path in ["../secret", "d/../../secret", "./../pfs/../secret", &deep] {
        for answer in [
            client
                .open(path, libc::O_RDWR | libc::O_CREAT, 0o644)
                .map(drop),
            client.stat(path).map(drop),
            client.mkdir(path, 0o755),
            client.unlink(path),
        ] {
            match answer {
                // The client itself goes on there, with its own rights.
                Err(Error::Redirect(to)) => {
                    let to = to.canonicalize().unwrap();
                    assert!(!to.starts_with(place.root()), "{path}: {}", to.display());
                }
                other => panic!("{path}: {other:?}"),
            }
        }
        assert_eq!(
            client.rename("d", path).unwrap_err().errno(),
            Some(libc::EXDEV)
        );
    }
    let long = vec![b'n'; MAX_NAME_BYTES + 1];
    assert_eq!(
        client.mkdir(&long, 0o755).unwrap_err().errno(),
        Some(libc::ENAMETOOLONG)
    );
    let raw = Raw::connect(&place.socket()).unwrap();
    // Bases as only a forged message has them.
    for lower in [&b"../secret"[..], b"..", b"/etc", b"a//b", b"./d"] {
        let forged = Request {
            base1: Base::Lower(lower, (0, 0)),
            ..request(Op::Open, b"")
        };
        assert_eq!(raw.ask(&forged), Said::Status(libc::ENOENT), "{lower:?}");
    }
    let forged = Request {
        base1: Base::Object(u128::MAX),
        ..request(Op::Open, b"x")
    };
    assert_eq!(raw.ask(&forged), Said::Status(libc::ENOENT));
    server.stop().unwrap();
    let secret = std::fs::read(place.root().join("../secret")).unwrap();
    assert_eq!(secret, b"secret");
}

#[test]
#[ignore = "the bridge of the other tests"]
fn bridge_process() {
    common::process::serve();
}

#[test]
fn descriptors_sent_by_a_client_are_closed() {
    let place = Place::new();
    let bridge = Process::start(&place);
    let mut neighbour = Neighbour::of(&place);
    let raw = Raw::connect(&place.socket()).unwrap();
    let null = File::open("/dev/null").unwrap();
    assert_eq!(raw.ask(&request(Op::Stat, b"")), Said::Status(0));
    neighbour.is_well();
    let before = bridge.descriptors();
    for count in [1, 3, 250] {
        let message = encoded(&request(Op::Stat, b""));
        raw.send_with(&message, null.as_fd(), count).unwrap();
        assert_eq!(raw.receive(), Said::Status(0));
    }
    // The bridge closes its copy after the reply.
    eventually("nothing stays open", || bridge.descriptors() == before);
    neighbour.is_well();
    bridge.end();
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_nobody_waits_for_it() {
    let place = Place::new();
    let server = place.start();
    let mut neighbour = Neighbour::of(&place);
    let deaf: Vec<_> = (0..8)
        .map(|_| Raw::connect(&place.socket()).unwrap())
        .collect();
    for raw in &deaf {
        let mut ended = false;
        for _ in 0..100_000 {
            // Grants, so that descriptors pile up as well as bytes.
            let open = Request {
                arg0: libc::O_RDONLY as u32,
                ..request(Op::Open, b"neighbour")
            };
            if raw.send_request(&open).is_err() {
                ended = true;
                break;
            }
        }
        assert!(ended, "it is cut off");
        neighbour.is_well();
    }
    drop(deaf);
    neighbour.is_well();
    assert!(place.logged().contains("does not read its replies"));
    server.stop().unwrap();
}

#[test]
fn half_a_connection_gets_its_answer_and_goes() {
    let place = Place::new();
    let server = place.start();
    let mut neighbour = Neighbour::of(&place);
    let raw = Raw::connect(&place.socket()).unwrap();
    raw.send_request(&request(Op::Stat, b"")).unwrap();
    raw.shut();
    assert_eq!(raw.receive(), Said::Status(0));
    assert_eq!(raw.receive(), Said::End);
    neighbour.is_well();
    server.stop().unwrap();
}

#[test]
fn a_process_has_only_so_many_connections() {
    let place = Place::new();
    let server = place.start();
    let mut neighbour = Neighbour::of(&place);
    let mut kept = Vec::new();
    let mut refused = 0;
    for _ in 0..1100 {
        let raw = Raw::connect(&place.socket()).unwrap();
        // The refusal may be there before the request, which then finds nobody.
        let _ = raw.send_request(&request(Op::Stat, b""));
        match raw.receive() {
            Said::Status(0) => kept.push(raw),
            Said::Status(libc::EMFILE) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    // The neighbour is a connection of this process, too.
    assert_eq!((kept.len(), refused), (1023, 77));
    neighbour.is_well();
    assert!(place.logged().contains("as many as one process may have"));
    let mut late = place.client();
    assert_eq!(late.stat("").unwrap_err().errno(), Some(libc::EMFILE));
    drop(kept);
    eventually("they are free again", || late.stat("").is_ok());
    server.stop().unwrap();
}

#[test]
fn a_million_opens_leave_nothing_behind() {
    let place = Place::new();
    let bridge = Process::start(&place);
    let mut neighbour = Neighbour::of(&place);
    let raw = Raw::connect(&place.socket()).unwrap();
    let message = encoded(&Request {
        arg0: libc::O_RDONLY as u32,
        ..request(Op::Open, b"neighbour")
    });
    // Whoever answers the next request of a connection has closed its copy of what the last one granted.
    assert_eq!(raw.ask(&request(Op::Stat, b"")), Said::Status(0));
    neighbour.0.stat("neighbour").unwrap();
    let before = bridge.descriptors();
    const OPENS: usize = 1_000_000;
    const BATCH: usize = 32;
    for n in 0..OPENS / BATCH {
        for _ in 0..BATCH {
            raw.send(&message).unwrap();
        }
        for _ in 0..BATCH {
            assert_eq!(raw.receive(), Said::Status(0));
        }
        if n % 4096 == 0 {
            neighbour.is_well();
        }
    }
    // The bridge closes its copy after the reply.
    eventually("nothing stays open", || bridge.descriptors() == before);
    bridge.end();
}

#[test]
fn a_request_that_is_sent_again_is_carried_out_once() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    write(&mut client, "a", b"1");
    let raw = Raw::connect(&place.socket()).unwrap();
    let exclusive = (libc::O_CREAT | libc::O_EXCL | libc::O_RDWR) as u32;
    let requests = [
        Request {
            arg0: exclusive,
            arg1: 0o644,
            seq: 1,
            ..request(Op::Open, b"new")
        },
        Request {
            seq: 2,
            arg1: 0o755,
            ..request(Op::Mkdir, b"dir")
        },
        Request {
            seq: 3,
            str2: b"b",
            ..request(Op::Rename, b"a")
        },
        Request {
            seq: 4,
            str2: b"link",
            ..request(Op::Link, b"b")
        },
        Request {
            seq: 5,
            str2: b"text",
            ..request(Op::Symlink, b"sym")
        },
        Request {
            seq: 6,
            ..request(Op::Unlink, b"new")
        },
        Request {
            seq: 7,
            arg0: forebay_wire::REMOVE_DIR,
            ..request(Op::Unlink, b"dir")
        },
    ];
    for first in requests {
        let again = Request {
            retry: true,
            ..first
        };
        let other = Request { seq: 99, ..again };
        assert_eq!(raw.ask(&first), Said::Status(0), "{first:?}");
        assert_eq!(raw.ask(&again), Said::Status(0), "{first:?}");
        assert_ne!(raw.ask(&other), Said::Status(0), "{first:?}");
    }
    // A first try that was on its way for long comes too late, and changes nothing.
    write(&mut client, "new", b"not the one");
    let late = Request {
        seq: 6,
        ..request(Op::Unlink, b"new")
    };
    assert_eq!(raw.ask(&late), Said::Status(libc::ESTALE));
    assert_eq!(read(&mut client, "new"), b"not the one");
    client.unlink("new").unwrap();
    server.stop().unwrap();
    // Also by a bridge that has no memory but its tables.
    let server = place.start();
    let raw = Raw::connect(&place.socket()).unwrap();
    let again = Request {
        seq: 6,
        retry: true,
        ..request(Op::Unlink, b"new")
    };
    assert_eq!(raw.ask(&again), Said::Status(0));
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
}
