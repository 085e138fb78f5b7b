//! Against a bridge of another version, a process says one line and gets a fixed errno. The tests read standard error
//! of a child process.
#![allow(unsafe_code)]

mod common;

use common::{Peer, Place};
use forebay_link::{Answer, Fail, Link};
use forebay_wire::{Op, PROTOCOL_VERSION, Reply, Request, STATUS_OTHER_VERSION};
use std::process::{Command, Stdio};

const CHILD: &str = "FOREBAY_LINK_TEST_CHILD";

/// Not a test of its own, but the child process that speaks to the bridge of another version.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    static LINK: Link = Link::new();
    let mut config = Box::new(forebay_link::Config::EMPTY);
    // SAFETY: nobody changes the environment.
    let entries = unsafe { forebay_hook::environment::entries(forebay_hook::environment::block()) };
    assert!(config.read(entries));
    for _ in 0..3 {
        let mut answer = Answer::new();
        let asked = LINK.ask(&config, &mut Request::new(Op::Stat), true, &mut answer);
        assert_eq!(asked, Err(Fail::Errno(libc::EPROTO)));
    }
}

/// Output and standard error of a process whose bridge answers with `answer`.
fn said(answer: impl Fn(&Peer) + Send + 'static) -> (String, String) {
    let place = Place::new();
    let socket = place.socket().display().to_string();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, "1")
        .env("FOREBAY_BUFFER", "/buffer")
        .env("FOREBAY_SOCKET", &socket)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let bridge = place.serve(move |place| {
        for _ in 0..3 {
            // A refusal ends the connection, so the client connects for each request.
            let peer = place.accept();
            assert!(peer.receive().is_some());
            answer(&peer);
            assert!(peer.receive().is_none());
        }
    });
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    bridge.join().unwrap();
    (text, socket)
}

fn expected(theirs: u8, socket: &str) -> String {
    format!(
        "forebay: this program's Forebay library speaks protocol {PROTOCOL_VERSION}, the bridge at {socket} speaks \
         {theirs}: use the same version of both; calls on paths in the buffer fail with EPROTO\n"
    )
}

#[test]
fn a_newer_bridge_that_refuses_is_one_line_and_eproto() {
    let theirs = PROTOCOL_VERSION + 3;
    let (text, socket) = said(move |peer| {
        let refusal = Reply {
            aux: u64::from(theirs),
            ..Reply::status(0, STATUS_OTHER_VERSION)
        };
        peer.send(&refusal.header());
    });
    assert_eq!(text, expected(theirs, &socket));
}

#[test]
fn a_bridge_that_answers_in_another_version_is_one_line_and_eproto() {
    let theirs = PROTOCOL_VERSION + 1;
    let (text, socket) = said(move |peer| {
        let mut message = [0xff; 100];
        message[..4].copy_from_slice(&[b'F', b'B', b'Y', b'0' + theirs]);
        peer.send(&message);
    });
    assert_eq!(text, expected(theirs, &socket));
}
