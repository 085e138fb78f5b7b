//! Runs the link against a scripted bridge: errors on the way, and many requests at once.
#![allow(unsafe_code)]

mod common;

use common::{Asked, Peer, Place, Shared, encoded};
use forebay_link::{Answer, Config, Fail, Link, Ticket};
use forebay_wire::{BY_NAME, GRANT_BY_NAME, MAX_REQUEST_BYTES, Op, Reply, ReplyKind, Request};
use std::os::fd::AsRawFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Requests before the ninth through the socket ask for no shared memory.
const BEFORE_LANE: usize = 8;

fn link() -> &'static Link {
    Box::leak(Box::default())
}

fn request(op: Op, path: &str) -> Request<'_> {
    Request {
        str1: path.as_bytes(),
        ..Request::new(op)
    }
}

/// Asks for the text that an echoing bridge gives back.
fn ask(link: &Link, config: &Config, path: &str) -> Result<String, Fail> {
    let mut answer = Answer::new();
    link.ask(config, &mut request(Op::Readlink, path), true, &mut answer)?;
    Ok(String::from_utf8(answer.body().to_vec()).unwrap())
}

/// The memory that a request in flight needs.
struct Flight {
    message: Vec<u8>,
    answer: Box<Answer>,
}

impl Flight {
    fn new() -> Self {
        Flight {
            message: vec![0; MAX_REQUEST_BYTES],
            answer: Box::default(),
        }
    }

    fn begin<'a>(&'a mut self, link: &'a Link, config: &'a Config, path: &str) -> Ticket<'a> {
        let mut request = request(Op::Readlink, path);
        link.begin(
            config,
            &mut request,
            true,
            &mut self.message,
            &mut self.answer,
        )
        .ok()
        .unwrap()
    }

    fn text(&self) -> &str {
        std::str::from_utf8(self.answer.body()).unwrap()
    }
}

/// Asks through shared memory, however late the bridge looks there. [`ask`] would turn to the socket after a while.
fn ask_in_lane(link: &Link, config: &Config, path: &str) -> Result<String, Fail> {
    let mut flight = Flight::new();
    let ticket = flight.begin(link, config, path);
    eventually(|| ticket.is_ready());
    ticket.finish()?;
    Ok(flight.text().to_owned())
}

/// Runs `script` as a bridge that shares memory with its client, and a client up to its first request after that.
fn sharing<R: Send + 'static>(
    script: impl FnOnce(&Peer, Shared) -> R + Send + 'static,
) -> (&'static Config, &'static Link, JoinHandle<R>) {
    let (config, bridge) = Place::scripted(0, |place| {
        let peer = place.accept();
        let shared = peer.share();
        peer.echo(&peer.asked());
        script(&peer, shared)
    });
    let link = link();
    for n in 0..BEFORE_LANE + 1 {
        let name = n.to_string();
        assert_eq!(ask(link, config, &name), Ok(name));
    }
    (config, link, bridge)
}

fn eventually(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
}

#[test]
fn an_answer_that_comes_late_is_waited_for() {
    let (config, bridge) = Place::scripted(0, |place| {
        let peer = place.accept();
        let asked = peer.asked();
        // Longer than a client polls before it sleeps.
        std::thread::sleep(Duration::from_millis(50));
        peer.echo(&asked);
        asked
    });
    assert_eq!(ask(link(), config, "late"), Ok("late".into()));
    let asked = bridge.join().unwrap();
    assert!(!asked.retry && asked.seq != 0 && asked.client != 0);
}

#[test]
fn an_answer_to_an_older_number_is_thrown_away() {
    let (config, bridge) = Place::scripted(0, |place| {
        let peer = place.accept();
        let asked = peer.asked();
        let old = Asked {
            seq: asked.seq.wrapping_sub(1),
            path: "x".repeat(5000),
            ..asked.clone()
        };
        // The older one is longer than this request's answer may be.
        peer.echo(&old);
        let file = std::fs::File::open("/dev/null").unwrap();
        peer.send_with(&encoded(&Reply::status(old.seq, 0)), Some(file.as_raw_fd()));
        peer.echo(&asked);
    });
    assert_eq!(ask(link(), config, "mine"), Ok("mine".into()));
    bridge.join().unwrap();
}

#[test]
fn a_bridge_that_hangs_up_in_mid_air_gets_the_request_again_under_its_token() {
    let (config, bridge) = Place::scripted(20, |place| {
        let first = place.accept().asked();
        let peer = place.accept();
        let second = peer.asked();
        peer.echo(&second);
        (first, second)
    });
    assert_eq!(ask(link(), config, "again"), Ok("again".into()));
    let (first, second) = bridge.join().unwrap();
    assert!(!first.retry && second.retry);
    assert_eq!((first.client, first.seq), (second.client, second.seq));
}

#[test]
fn a_bridge_that_stays_away_is_eio_and_waited_for_only_once() {
    let place = Place::new();
    let config = place.config(1);
    drop(place);
    let link = link();
    let start = Instant::now();
    assert_eq!(ask(link, config, "x"), Err(Fail::Errno(libc::EIO)));
    assert!(start.elapsed() >= Duration::from_secs(1));
    let start = Instant::now();
    for _ in 0..5 {
        assert_eq!(ask(link, config, "x"), Err(Fail::Errno(libc::EIO)));
    }
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_reply_that_is_none_is_eio_and_the_next_request_goes_on() {
    let (config, bridge) = Place::scripted(0, |place| {
        let peer = place.accept();
        peer.asked();
        peer.send(&forebay_wire::MAGIC.to_le_bytes());
        let asked = peer.asked();
        let mut unknown = asked.echo();
        unknown[12] = 99;
        peer.send(&unknown);
        peer.asked();
        peer.send(&[0xa5; 64]);
        let asked = peer.asked();
        peer.echo(&asked);
    });
    let link = link();
    for _ in 0..3 {
        assert_eq!(ask(link, config, "x"), Err(Fail::Errno(libc::EIO)));
    }
    assert_eq!(ask(link, config, "well"), Ok("well".into()));
    bridge.join().unwrap();
}

#[test]
fn a_reply_longer_than_its_room_is_eio_at_once() {
    let (config, bridge) = Place::scripted(20, |place| {
        let peer = place.accept();
        let asked = peer.asked();
        peer.echo(&Asked {
            path: "x".repeat(5000),
            ..asked
        });
        let asked = peer.asked();
        peer.echo(&asked);
    });
    let link = link();
    let start = Instant::now();
    assert_eq!(ask(link, config, "x"), Err(Fail::Errno(libc::EIO)));
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(ask(link, config, "well"), Ok("well".into()));
    bridge.join().unwrap();
}

#[test]
fn a_status_of_the_bridge_is_the_programs_errno() {
    let (config, bridge) = Place::scripted(0, |place| {
        let peer = place.accept();
        for status in [libc::ENOENT, 1_000_000] {
            let asked = peer.asked();
            peer.refuse(&asked, status);
        }
    });
    let link = link();
    assert_eq!(ask(link, config, "x"), Err(Fail::Errno(libc::ENOENT)));
    assert_eq!(ask(link, config, "x"), Err(Fail::Errno(libc::EIO)));
    bridge.join().unwrap();
}

#[test]
fn two_in_flight_are_answered_in_reverse_order() {
    let (config, bridge) = Place::scripted(0, |place| {
        let (a, b) = (place.accept(), place.accept());
        let (first, second) = (a.asked(), b.asked());
        b.echo(&second);
        // The client asks the third after it has collected the second. The first is still open.
        let third = b.asked();
        b.echo(&third);
        a.echo(&first);
        (first, second)
    });
    let link = link();
    let (mut one, mut two) = (Flight::new(), Flight::new());
    let first = one.begin(link, config, "first");
    let second = two.begin(link, config, "second");
    second.finish().unwrap();
    assert_eq!(two.text(), "second");
    assert!(!first.is_ready());
    assert_eq!(ask(link, config, "third"), Ok("third".into()));
    eventually(|| first.is_ready());
    first.finish().unwrap();
    assert_eq!(one.text(), "first");
    let (first, second) = bridge.join().unwrap();
    assert_ne!(first.seq, second.seq);
}

#[test]
fn more_requests_in_flight_than_connections_that_stay_are_all_answered() {
    const MANY: usize = 40;
    let (config, bridge) = Place::scripted(0, |place| {
        let all: Vec<_> = (0..MANY)
            .map(|_| {
                let peer = place.accept();
                let asked = peer.asked();
                (peer, asked)
            })
            .collect();
        for (peer, asked) in all.iter().rev() {
            peer.echo(asked);
        }
        // The client closes the connections that do not stay.
        all.iter()
            .filter(|(peer, _)| peer.receive().is_none())
            .count()
    });
    let link: &'static Link = link();
    let mut flights: Vec<_> = (0..MANY).map(|_| Flight::new()).collect();
    let names: Vec<_> = (0..MANY).map(|n| format!("file {n}")).collect();
    let begin = |(flight, name): (_, &String)| Flight::begin(flight, link, config, name);
    let tickets: Vec<_> = flights.iter_mut().zip(&names).map(begin).collect();
    for ticket in tickets {
        ticket.finish().unwrap();
    }
    for (flight, name) in flights.iter().zip(&names) {
        assert_eq!(flight.text(), name);
    }
    link.make_way_for_range(0, u32::MAX);
    assert_eq!(bridge.join().unwrap(), MANY);
}

#[test]
fn an_answer_that_nobody_collects_disturbs_nobody() {
    let (config, bridge) = Place::scripted(0, |place| {
        let peer = place.accept();
        let (dropped, asked) = (peer.asked(), peer.asked());
        peer.echo(&dropped);
        peer.echo(&asked);
    });
    let link = link();
    let mut one = Flight::new();
    drop(one.begin(link, config, "dropped"));
    assert_eq!(ask(link, config, "mine"), Ok("mine".into()));
    bridge.join().unwrap();
}

#[test]
fn a_request_in_flight_survives_the_bridge_that_had_it() {
    let (config, bridge) = Place::scripted(20, |place| {
        let first = place.accept().asked();
        let peer = place.accept();
        let again = peer.asked();
        peer.echo(&again);
        assert!(again.retry && again.seq == first.seq);
    });
    let link = link();
    let mut one = Flight::new();
    let ticket = one.begin(link, config, "held");
    eventually(|| ticket.is_ready());
    ticket.finish().unwrap();
    assert_eq!(one.text(), "held");
    bridge.join().unwrap();
}

#[test]
fn a_request_that_does_not_fit_its_room_is_enametoolong() {
    let place = Place::new();
    let config = place.config(0);
    let link = link();
    let (mut answer, mut small) = (Answer::new(), [0; 10]);
    let begun = link.begin(
        config,
        &mut request(Op::Stat, "path"),
        true,
        &mut small,
        &mut answer,
    );
    assert_eq!(begun.err(), Some(Fail::Errno(libc::ENAMETOOLONG)));
}

#[test]
fn a_ticket_in_a_forked_child_belongs_to_its_parent() {
    let (config, bridge) = Place::scripted(0, |place| {
        let peer = place.accept();
        let asked = peer.asked();
        // The parent's next request goes out when the child has ended.
        let second = place.accept();
        let after = second.asked();
        second.echo(&after);
        peer.echo(&asked);
    });
    let link = link();
    let mut one = Flight::new();
    let ticket = one.begin(link, config, "parent's");
    // SAFETY: the child makes no call but that of the link, which is made for it, and _exit.
    unsafe {
        match libc::fork() {
            0 => {
                let refused = ticket.finish() == Err(Fail::Errno(libc::ECHILD));
                libc::_exit(i32::from(!refused));
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                assert_eq!(status, 0);
            }
        }
    }
    assert_eq!(ask(link, config, "after"), Ok("after".into()));
    ticket.finish().unwrap();
    assert_eq!(one.text(), "parent's");
    bridge.join().unwrap();
}

#[test]
fn a_descriptor_comes_with_its_answer() {
    let (config, bridge) = Place::scripted(0, |place| {
        let peer = place.accept();
        let asked = peer.asked();
        assert_eq!(asked.op, Op::Open);
        let file = std::fs::File::open("/dev/zero").unwrap();
        let grant = Reply {
            kind: ReplyKind::Grant,
            ..Reply::status(asked.seq, 0)
        };
        peer.send_with(&encoded(&grant), Some(file.as_raw_fd()));
    });
    let mut answer = Answer::new();
    link()
        .ask(config, &mut request(Op::Open, "zero"), true, &mut answer)
        .unwrap();
    let fd = answer.take_fd().unwrap();
    // SAFETY: plain integers.
    let flags = unsafe { libc::fcntl(fd.0, libc::F_GETFD) };
    assert_eq!(flags, libc::FD_CLOEXEC);
    assert!(answer.take_fd().is_err());
    bridge.join().unwrap();
}

#[test]
fn who_gets_no_shared_memory_goes_on_by_the_socket() {
    let (config, bridge) = Place::scripted(0, |place| {
        let peer = place.accept();
        let asked = peer.echo_until_lane();
        peer.refuse(&asked, libc::ENOSPC);
        for _ in 0..20 {
            // The client does not ask for shared memory again.
            let asked = peer.asked();
            assert_eq!(asked.op, Op::Readlink);
            peer.echo(&asked);
        }
    });
    let link = link();
    for n in 0..BEFORE_LANE + 20 {
        let name = n.to_string();
        assert_eq!(ask(link, config, &name), Ok(name));
    }
    bridge.join().unwrap();
}

#[test]
fn requests_go_through_shared_memory_while_the_bridge_attends_and_by_the_socket_when_it_does_not() {
    let (config, link, bridge) = sharing(|peer, shared| {
        for _ in 0..3 {
            let asked = shared.take().unwrap();
            assert!(shared.answer(&asked.echo()));
        }
        // A reply with another number is an error in the lane; on the socket it would be skipped.
        let mut asked = shared.take().unwrap();
        asked.seq += 1;
        assert!(!shared.words().leave());
        assert!(shared.answer(&asked.echo()));
        peer.echo(&peer.asked());
    });
    for name in ["a", "b", "c"] {
        assert_eq!(ask_in_lane(link, config, name), Ok(name.into()));
    }
    assert_eq!(ask_in_lane(link, config, "x"), Err(Fail::Errno(libc::EIO)));
    assert_eq!(ask(link, config, "y"), Ok("y".into()));
    bridge.join().unwrap();
}

#[test]
fn a_request_in_flight_is_answered_in_shared_memory_before_it_is_collected() {
    let (config, link, bridge) = sharing(|_, shared| {
        let asked = shared.take().unwrap();
        assert!(shared.answer(&asked.echo()));
    });
    let mut one = Flight::new();
    let ticket = one.begin(link, config, "lane");
    bridge.join().unwrap();
    // The bridge is gone, but its answer lies in the shared memory.
    assert!(ticket.is_ready());
    ticket.finish().unwrap();
    assert_eq!(one.text(), "lane");
}

#[test]
fn a_request_that_the_bridge_does_not_take_from_shared_memory_is_sent_once_by_the_socket() {
    let (config, link, bridge) = sharing(|peer, shared| {
        // The bridge says that it attends, but looks only at the socket.
        let asked = peer.asked();
        assert!(!asked.retry);
        assert!(shared.words().take().is_none());
        peer.echo(&asked);
    });
    assert_eq!(ask(link, config, "sent"), Ok("sent".into()));
    bridge.join().unwrap();
}

#[test]
fn a_name_that_can_not_be_opened_is_asked_for_again_as_a_descriptor() {
    let (config, link, bridge) = sharing(|peer, shared| {
        let asked = shared.take().unwrap();
        assert_eq!((asked.op, asked.arg2 & BY_NAME), (Op::Open, BY_NAME));
        let named = Reply {
            kind: ReplyKind::Grant,
            aux: GRANT_BY_NAME,
            body: b"/nowhere/at/all\0",
            ..Reply::status(asked.seq, 0)
        };
        assert!(shared.answer(&encoded(&named)));
        let again = peer.asked();
        assert!(again.retry && again.seq == asked.seq && again.arg2 & BY_NAME == 0);
        let grant = Reply {
            kind: ReplyKind::Grant,
            ..Reply::status(asked.seq, 0)
        };
        let file = std::fs::File::open("/dev/null").unwrap();
        peer.send_with(&encoded(&grant), Some(file.as_raw_fd()));
    });
    let (mut answer, mut message) = (Answer::new(), [0; MAX_REQUEST_BYTES]);
    let mut open = request(Op::Open, "file");
    let ticket = link
        .begin(config, &mut open, true, &mut message, &mut answer)
        .ok()
        .unwrap();
    eventually(|| ticket.is_ready());
    ticket.finish().unwrap();
    assert!(answer.take_fd().is_ok());
    bridge.join().unwrap();
}
