//! Control messages to a running bridge, from peers that mean well and from others.

mod common;

use common::{Place, write};
use forebay_admin::drain::{DrainRequest, DrainState, DrainStatus, Reason, Side, Take};
use forebay_admin::{AdminError, Items, REPORTS_KEPT, RefusalKind, Verb};
use forebay_client::{Client, Control, Error};
use forebay_wire::{Op, Request};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Sends these bytes as a control message.
fn say(client: &mut Client, message: &[u8]) -> forebay_client::Answer {
    client
        .ask(Request {
            str1: message,
            ..Request::new(Op::Admin)
        })
        .unwrap()
}

/// The error of an answer without items.
fn error_of(answer: forebay_client::Answer) -> AdminError {
    let stream = UnixStream::from(answer.fd.expect("an answer is a stream"));
    let mut items = Items::<()>::new(stream, "a bridge".as_ref(), "test");
    let error = items.next().expect("not just an end").unwrap_err();
    assert!(items.next().is_none());
    error
}

#[test]
fn every_request_has_its_answer() {
    let place = Place::new();
    let server = place.start();
    write(&mut place.client(), "d1", b"12345");
    let mut control = Control::connect(&place.socket()).unwrap();
    assert_eq!(control.socket(), place.socket());
    assert_eq!(control.status().unwrap().root, place.root());
    let inventory = control.inventory().unwrap();
    assert_eq!((inventory.dirty_files, inventory.dirty_bytes), (1, 5));
    assert_eq!(control.drain_status().unwrap().state, DrainState::Idle);
    assert_eq!(control.left().unwrap().count(), 0);
    // There is none to follow: that is said at once.
    let idle = control.follow_drain().unwrap().only().unwrap();
    assert_eq!(idle.state, DrainState::Idle);

    let me = std::process::id();
    let life = control.lifetime().unwrap();
    assert_eq!((life.stay, life.ending), (true, false));
    assert_eq!(control.attach(me, Verb::Run).unwrap().runs, [me]);
    let life = control.attach(me, Verb::Drain).unwrap();
    assert_eq!(life.users().collect::<Vec<_>>(), [(me, Verb::Drain)]);
    assert!(!control.set_stay(false).unwrap().stay);
    assert!(control.set_stay(true).unwrap().stay);
    let life = control.detach(me, false).unwrap();
    assert!(!life.ending && life.runs.is_empty(), "{life:?}");
    let nobody = control.attach(u32::MAX >> 1, Verb::Run).unwrap_err();
    assert_eq!(nobody.refusal().unwrap().kind, RefusalKind::Process);

    control.drain(DrainRequest::default()).unwrap();
    let followed: Vec<DrainStatus> = control
        .follow_drain()
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let last = followed.last().unwrap();
    assert_eq!((last.state, last.files_drained), (DrainState::Done, 1));
    assert_eq!(control.stop_drain().unwrap().state, DrainState::Done);
    assert!(!control.inventory().unwrap().is_dirty());

    control.stop().unwrap();
    assert!(server.handle().stopping());
    server.stop().unwrap();
    let gone = control.status().unwrap_err();
    assert!(gone.is_loss(), "{gone}");
}

#[test]
fn a_decision_about_no_path_is_refused() {
    let place = Place::new();
    let server = place.start();
    let mut control = Control::connect(&place.socket()).unwrap();
    for path in [&b"../up"[..], b"a//b", b"/etc/passwd", b"nul\0"] {
        let take = vec![Take {
            path: path.to_vec(),
            side: Side::Ours,
        }];
        let request = DrainRequest {
            take,
            ..DrainRequest::default()
        };
        let error = control.drain(request).unwrap_err();
        let refusal = error.refusal().unwrap();
        assert_eq!(refusal.kind, RefusalKind::Malformed, "{refusal:?}");
        assert!(
            refusal.message.contains("is no path in a buffer"),
            "{refusal:?}"
        );
    }
    assert_eq!(control.drain_status().unwrap().state, DrainState::Idle);
    server.stop().unwrap();
}

#[test]
fn a_bridge_that_nobody_needs_takes_no_run_any_more() {
    let place = Place::new();
    let mut config = place.config();
    config.stay = false;
    let server = forebay_server::start(config).unwrap();
    let mut control = Control::connect(&place.socket()).unwrap();
    let me = std::process::id();
    assert!(!control.attach(me, Verb::Run).unwrap().ending);
    let mut other = Control::connect(&place.socket()).unwrap();
    // Until it has asked for something, a connection may be that of a program.
    other.status().unwrap();
    assert!(control.detach(me, false).unwrap().ending);
    // It may be gone, or say that it is about to.
    match other.attach(me, Verb::Run) {
        Ok(life) => assert!(life.ending && life.runs.is_empty(), "{life:?}"),
        Err(e) => assert!(e.is_loss(), "{e}"),
    }
    assert!(server.handle().stopping());
    server.stop().unwrap();
}

#[test]
fn a_bridge_that_was_started_for_a_run_waits_for_it_whoever_comes_and_goes_before() {
    let place = Place::new();
    let me = std::process::id();
    let mut config = place.config();
    config.stay = false;
    config.run = Some(me);
    let server = forebay_server::start(config).unwrap();
    let mut control = Control::connect(&place.socket()).unwrap();
    // A drain beside the run that starts the bridge; the run itself has not asked it for anything yet.
    let mut other = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    assert!(!control.attach(other.id(), Verb::Run).unwrap().ending);
    let life = control.detach(other.id(), false).unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!((life.ending, life.runs), (false, vec![me]));
    let life = control.attach(me, Verb::Run).unwrap();
    assert_eq!((life.ending, life.runs), (false, vec![me]));
    assert!(control.detach(me, false).unwrap().ending);
    server.stop().unwrap();
}

#[test]
fn another_version_is_refused_in_one_line_that_names_both_and_changes_nothing() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    let newer = say(&mut client, br#"{"version":77,"request":"stop"}"#);
    let error = error_of(newer);
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.kind, RefusalKind::Version);
    assert!(refusal.message.contains("version 77"), "{refusal:?}");
    assert!(refusal.message.contains("version 3"), "{refusal:?}");
    assert!(!refusal.message.contains('\n'), "{refusal:?}");
    // The first version reads its answer from the reply.
    let first = say(&mut client, br#"{"cmd":"stop"}"#);
    assert!(first.fd.is_none());
    let said: serde_json::Value = serde_json::from_slice(&first.body).unwrap();
    let line = said["error"].as_str().unwrap();
    assert!(
        line.contains("version 3") && line.contains("version 1"),
        "{line}"
    );
    assert!(!server.handle().stopping());
    server.stop().unwrap();
}

#[test]
fn what_is_no_request_of_this_version_is_refused_by_its_kind() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    let dance = say(
        &mut client,
        br#"{"version":3,"request":"dance","partner":1}"#,
    );
    let error = error_of(dance);
    assert_eq!(error.refusal().unwrap().kind, RefusalKind::UnknownRequest);
    assert!(error.to_string().contains("dance"), "{error}");
    for garbage in [&b"stop"[..], b"{", b"[[[[", b"\x01\xff\xfe", b""] {
        let error = error_of(say(&mut client, garbage));
        let kind = error.refusal().unwrap().kind;
        assert_eq!(kind, RefusalKind::Malformed, "{}", garbage.escape_ascii());
    }
    // The connection is as good as before.
    assert!(client.hello().is_ok());
    server.stop().unwrap();
}

/// A bridge whose last drain has left so many files.
fn with_left(place: &Place, files: usize) -> (forebay_server::Server, Control) {
    let server = place.start();
    let mut client = place.client();
    for n in 0..files {
        // Long names: few files make a list that is longer than what the system keeps of a stream.
        write(&mut client, &format!("{:x<200}{n:05}", "f"), b"x");
    }
    let mut control = Control::connect(&place.socket()).unwrap();
    control
        .drain(DrainRequest {
            rate: Some(1),
            workers: Some(1),
            ..DrainRequest::default()
        })
        .unwrap();
    control.stop_drain().unwrap();
    let last = control.follow_drain().unwrap().last().unwrap().unwrap();
    assert_eq!(last.state, DrainState::Stopped);
    assert!(last.left > files as u64 / 2, "{last:?}");
    (server, control)
}

#[test]
fn each_drain_is_told_of_by_its_number_also_when_others_have_begun_since() {
    let place = Place::new();
    let server = place.start();
    let mut control = Control::connect(&place.socket()).unwrap();
    let mut end_of = |number: u64| {
        let items = control.follow_drain_of(number)?;
        items.last().expect("its state")
    };
    let mut asking = Control::connect(&place.socket()).unwrap();
    let mut begin = |take: &[&str]| {
        let take = take.iter().map(|path| Take {
            path: path.as_bytes().to_vec(),
            side: Side::Ours,
        });
        let request = DrainRequest {
            take: take.collect(),
            ..DrainRequest::default()
        };
        asking.drain(request).unwrap().status.number
    };
    let first = begin(&["a", "b"]);
    end_of(first).unwrap();
    let others: Vec<u64> = (1..REPORTS_KEPT)
        .map(|_| {
            let other = begin(&["c"]);
            end_of(other).unwrap();
            other
        })
        .collect();
    assert_eq!(end_of(first).unwrap().refused.len(), 2);
    for other in &others {
        assert_eq!(end_of(*other).unwrap().refused.len(), 1);
    }
    let last = begin(&[]);
    assert!(end_of(last).unwrap().refused.is_empty());
    let unknown = end_of(first).unwrap_err();
    assert!(
        unknown.to_string().contains("does not know any more"),
        "{unknown}"
    );
    server.stop().unwrap();
}

#[test]
fn a_list_of_any_length_comes_in_order_and_whole() {
    let place = Place::new();
    let (server, mut control) = with_left(&place, 1500);
    let total = control.drain_status().unwrap().left;
    let left: Vec<_> = control.left().unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(left.len() as u64, total);
    assert!(left.is_sorted_by_key(|l| l.path.clone()));
    assert!(left.iter().any(|l| l.reason == Reason::Stopped));
    server.stop().unwrap();
}

#[test]
fn who_stops_reading_in_the_middle_holds_up_nobody_and_not_the_end() {
    let place = Place::new();
    let (server, mut control) = with_left(&place, 1500);
    let total = control.drain_status().unwrap().left as usize;
    let mut deaf: Vec<_> = (0..20)
        .map(|_| {
            let mut items = control.left().unwrap();
            items.next().unwrap().unwrap();
            items
        })
        .collect();
    // Their answers are longer than what the system keeps for them, so they are not written yet.
    for _ in 0..50 {
        assert_eq!(control.drain_status().unwrap().left as usize, total);
    }
    assert_eq!(control.left().unwrap().count(), total);
    // Nobody has waited until they were given up: one that goes on reading has lost nothing.
    let late = deaf.pop().unwrap();
    assert_eq!(late.map(Result::unwrap).count(), total - 1);
    server.stop().unwrap();
    // Whoever was cut off can tell.
    for items in deaf {
        assert!(items.last().unwrap().is_err());
    }
}

#[test]
fn a_caller_that_sends_into_its_answer_harms_itself_alone() {
    use std::io::Write;
    let place = Place::new();
    let (server, mut control) = with_left(&place, 100);
    let mut client = place.client();
    for _ in 0..100 {
        let answer = say(&mut client, br#"{"version":3,"request":"left"}"#);
        let mut stream = UnixStream::from(answer.fd.unwrap());
        let _ = stream.write_all(&[0xff; 100]);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
    }
    assert!(control.status().is_ok());
    server.stop().unwrap();
}

#[test]
fn however_many_follow_a_drain_others_get_their_answers() {
    let place = Place::new();
    let server = place.start();
    write(&mut place.client(), "f", &[0; 100_000]);
    let mut control = Control::connect(&place.socket()).unwrap();
    let slowly = DrainRequest {
        rate: Some(1),
        ..DrainRequest::default()
    };
    let number = control.drain(slowly).unwrap().status.number;
    let mut followers = Vec::new();
    for _ in 0..100 {
        let mut items = control.follow_drain_of(number).unwrap();
        let first = items.next().unwrap().unwrap();
        assert_eq!(first.state, DrainState::Running);
        followers.push(items);
    }
    control
        .set_answer_limit(Some(Duration::from_secs(30)))
        .unwrap();
    control.status().unwrap();
    control.stop_drain_of(number).unwrap();
    // The first ones learn of the end, and the others have to ask again.
    let ended = followers.into_iter().filter_map(Items::last);
    let ended = ended
        .map(Result::unwrap)
        .filter(|s| s.state == DrainState::Stopped);
    assert!((1..100).contains(&ended.count()));
    server.stop().unwrap();
}

#[test]
fn choices_about_many_long_paths_arrive() {
    let place = Place::new();
    let server = place.start();
    let mut control = Control::connect(&place.socket()).unwrap();
    let request = |paths: usize| {
        let name = |n: usize| format!("{}/{n}", ["d".repeat(250).as_str(); 15].join("/"));
        let take = (0..paths).map(|n| Take {
            path: name(n).into_bytes(),
            side: Side::Ours,
        });
        DrainRequest {
            take: take.collect(),
            ..DrainRequest::default()
        }
    };
    for paths in [1, 10, 500] {
        let number = control.drain(request(paths)).unwrap().status.number;
        let ended = control.follow_drain_of(number).unwrap().last();
        // There is nothing to choose about.
        let refused = ended.unwrap().unwrap().refused;
        let last = refused.last().unwrap();
        match paths {
            500 => assert_eq!(last, &format!("{} more", 501 - refused.len())),
            _ => assert_eq!(refused.len(), paths),
        }
    }
    let too_long = control.drain(request(2000)).unwrap_err();
    assert!(matches!(too_long, AdminError::TooLong { .. }), "{too_long}");
    control.status().unwrap();
    server.stop().unwrap();
}

#[test]
fn there_are_only_so_many_answers_at_the_same_time() {
    let place = Place::new();
    let (server, mut control) = with_left(&place, 1500);
    let mut client = place.client();
    let mut held = Vec::new();
    let refused = loop {
        let request = Request {
            str1: br#"{"version":3,"request":"left"}"#,
            ..Request::new(Op::Admin)
        };
        match client.ask(request) {
            Ok(answer) => held.push(answer),
            Err(e) => break e,
        }
        assert!(held.len() <= 64, "no limit");
    };
    assert!(matches!(refused, Error::Errno(libc::EAGAIN)), "{refused}");
    control
        .set_answer_limit(Some(Duration::from_millis(50)))
        .unwrap();
    let busy = control.status().unwrap_err();
    assert!(matches!(busy, AdminError::Busy { .. }), "{busy}");
    control.set_answer_limit(None).unwrap();
    // Programs notice nothing.
    write(&mut client, "new", b"1");
    held.clear();
    control.status().unwrap();
    server.stop().unwrap();
}
