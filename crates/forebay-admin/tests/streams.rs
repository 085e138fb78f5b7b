//! Answers that go wrong, on either side.

use forebay_admin::{
    AdminError, AnswerError, AnswerWriter, Garbled, Items, MAX_FRAME_BYTES, Refusal, RefusalKind,
};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

fn items(stream: UnixStream) -> Items<u32> {
    Items::new(stream, "/run/socket".as_ref(), "left")
}

/// What a caller reads from a stream of these bytes: the items, and the error if there is one.
fn outcome(bytes: &[u8]) -> (Vec<u32>, Option<AdminError>) {
    let (mut bridge, caller) = UnixStream::pair().unwrap();
    bridge.write_all(bytes).unwrap();
    drop(bridge);
    let mut good = Vec::new();
    let mut all = items(caller);
    let error = loop {
        match all.next() {
            Some(Ok(item)) => good.push(item),
            Some(Err(e)) => break Some(e),
            None => break None,
        }
    };
    assert!(all.next().is_none(), "something came after the end");
    (good, error)
}

fn frame(kind: u8, contents: &str) -> Vec<u8> {
    let len = (contents.len() as u32).to_le_bytes();
    [&len[..], &[kind], contents.as_bytes()].concat()
}

fn head() -> Vec<u8> {
    frame(1, r#"{"version":3}"#)
}

/// An answer with the items 1 and 2.
fn whole_answer() -> Vec<u8> {
    let end = frame(3, r#"{"items":2}"#);
    [head(), frame(2, "1"), frame(2, "2"), end].concat()
}

#[test]
fn a_whole_answer_has_its_items_and_no_error() {
    let (good, error) = outcome(&whole_answer());
    assert_eq!(good, [1, 2]);
    assert!(error.is_none(), "{error:?}");
}

#[test]
fn an_answer_that_is_cut_off_anywhere_is_an_error() {
    let bytes = whole_answer();
    for len in 0..bytes.len() {
        let (_, error) = outcome(&bytes[..len]);
        match error {
            Some(AdminError::Lost { .. } | AdminError::Garbled { .. }) => {}
            other => panic!("{other:?} after {len} bytes"),
        }
    }
}

#[test]
fn another_version_is_one_line_that_names_both() {
    let newer = frame(1, r#"{"version":9,"compressed":true}"#);
    let (_, error) = outcome(&[newer, frame(2, "\"never read\"")].concat());
    let error = error.unwrap();
    assert!(matches!(error, AdminError::Version { theirs: 9, .. }));
    let line = error.to_string();
    assert!(
        line.contains("version 9") && line.contains("version 3"),
        "{line}"
    );
    assert!(
        line.contains("/run/socket") && !line.contains('\n'),
        "{line}"
    );
}

#[test]
fn garbage_is_named_and_ends_the_answer() {
    let count = frame(3, r#"{"items":7}"#);
    type IsNamed = fn(&Garbled) -> bool;
    let cases: [(Vec<u8>, IsNamed); 7] = [
        (vec![0xff; 100], |g| matches!(g, Garbled::UnknownFrame(255))),
        (frame(2, "1"), |g| matches!(g, Garbled::Misplaced("item"))),
        ([head(), head()].concat(), |g| {
            matches!(g, Garbled::Misplaced("head"))
        }),
        ([head(), frame(2, "\"text\"")].concat(), |g| {
            matches!(g, Garbled::Contents(_))
        }),
        ([head(), frame(2, "\0\x01")].concat(), |g| {
            matches!(g, Garbled::Contents(_))
        }),
        ([head(), vec![0, 0, 0, 0x80, 2]].concat(), |g| {
            matches!(g, Garbled::TooLong(_))
        }),
        ([head(), frame(2, "1"), count].concat(), |g| {
            matches!(g, Garbled::Count { got: 1, want: 7 })
        }),
    ];
    for (n, (bytes, is_named)) in cases.into_iter().enumerate() {
        match outcome(&bytes).1 {
            Some(AdminError::Garbled { what, .. }) if is_named(&what) => {}
            other => panic!("case {n}: {other:?}"),
        }
    }
}

#[test]
fn an_answer_with_one_item_has_exactly_one() {
    for (n, is_right) in [(0, false), (1, true), (2, false)] {
        let (bridge, caller) = UnixStream::pair().unwrap();
        let mut answer = AnswerWriter::begin(bridge).unwrap();
        for item in 0..n {
            answer.item(&item).unwrap();
        }
        answer.end().unwrap();
        let only = items(caller).only();
        assert_eq!(only.is_ok(), is_right, "{only:?}");
    }
}

#[test]
fn a_refusal_in_the_middle_keeps_its_kind() {
    let (bridge, caller) = UnixStream::pair().unwrap();
    let mut answer = AnswerWriter::begin(bridge).unwrap();
    answer.item(&1).unwrap();
    let refusal = Refusal {
        kind: RefusalKind::Tables,
        message: "they are gone".into(),
    };
    answer.refuse(&refusal).unwrap();
    let mut all = items(caller);
    assert_eq!(all.next().unwrap().unwrap(), 1);
    let error = all.next().unwrap().unwrap_err();
    assert_eq!(error.refusal(), Some(&refusal));
    assert_eq!(
        error.to_string(),
        "the bridge refuses `left`: they are gone"
    );
    assert!(all.next().is_none());
}

#[test]
fn a_peer_that_stops_reading_is_given_up() {
    let (bridge, caller) = UnixStream::pair().unwrap();
    bridge
        .set_write_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let mut answer = AnswerWriter::begin(bridge).unwrap();
    let text = "x".repeat(1000);
    let lost = (0..1_000_000).find_map(|_| answer.item(&text).err());
    assert!(matches!(lost, Some(AnswerError::Lost(_))), "{lost:?}");
    drop(answer);
    // A caller that reads again learns that the answer is incomplete.
    let all = Items::<String>::new(caller, "a bridge".as_ref(), "left");
    assert!(all.last().unwrap().is_err());
}

#[test]
fn a_peer_that_goes_away_ends_the_answer() {
    let (bridge, caller) = UnixStream::pair().unwrap();
    let mut answer = AnswerWriter::begin(bridge).unwrap();
    answer.item(&1).unwrap();
    answer.flush().unwrap();
    let mut all = items(caller);
    assert_eq!(all.next().unwrap().unwrap(), 1);
    drop(all);
    let lost = (0..1_000_000).find_map(|n| answer.item(&n).err());
    assert!(matches!(lost, Some(AnswerError::Lost(_))), "{lost:?}");
}

#[test]
fn a_peer_that_sends_nothing_can_be_waited_for_in_vain() {
    let (bridge, caller) = UnixStream::pair().unwrap();
    caller
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let error = items(caller).only().unwrap_err();
    assert!(error.is_loss(), "{error}");
    drop(bridge);
}

#[test]
fn an_item_that_does_not_fit_is_not_sent_and_the_caller_can_be_told() {
    let (bridge, caller) = UnixStream::pair().unwrap();
    let mut answer = AnswerWriter::begin(bridge).unwrap();
    let unfit = answer.item(&"x".repeat(MAX_FRAME_BYTES));
    assert!(matches!(unfit, Err(AnswerError::Unfit(_))), "{unfit:?}");
    let unfit = answer.item(&Path::new(OsStr::from_bytes(b"\xff")));
    assert!(matches!(unfit, Err(AnswerError::Unfit(_))), "{unfit:?}");
    answer.item(&Path::new("f")).unwrap();
    answer
        .refuse(&Refusal {
            kind: RefusalKind::Unfit,
            message: "too long".into(),
        })
        .unwrap();
    let mut all = Items::<String>::new(caller, "a bridge".as_ref(), "left");
    assert_eq!(all.next().unwrap().unwrap(), "f");
    let error = all.next().unwrap().unwrap_err();
    assert_eq!(error.refusal().unwrap().kind, RefusalKind::Unfit);
}

#[test]
fn what_the_caller_sends_into_an_answer_is_never_read() {
    let (bridge, mut caller) = UnixStream::pair().unwrap();
    caller.write_all(b"garbage").unwrap();
    let mut answer = AnswerWriter::begin(bridge).unwrap();
    answer.item(&3).unwrap();
    answer.end().unwrap();
    let mut all = Vec::new();
    let _ = caller.read_to_end(&mut all);
    assert_eq!(outcome(&all).0, [3]);
}
