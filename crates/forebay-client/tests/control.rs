//! How the command reacts to bridges that answer control messages wrongly.

use forebay_admin::{AdminError, Garbled};
use forebay_client::Control;
use forebay_wire::{
    MAX_REQUEST_BYTES, Op, PROTOCOL_VERSION, Reply, ReplyKind, Request, STATUS_OTHER_VERSION,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept, bind, listen, recv, sendmsg, socket_with,
};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// What a test's bridge does with one request.
type Answer = fn(&OwnedFd, &Request<'_>);

/// Asks for the status of a bridge that answers its first request with `answer`.
fn ask(answer: Answer, limit: Option<Duration>) -> AdminError {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let flags = SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = accept(&listener).unwrap();
            let mut buffer = [0; MAX_REQUEST_BYTES];
            let (len, _) = recv(&client, &mut buffer, RecvFlags::empty()).unwrap();
            let request = Request::decode(&buffer[..len]).unwrap();
            assert_eq!(request.op, Op::Admin);
            answer(&client, &request);
            // The connection stays open until the client closes it, so that the client does not see its end.
            let _ = recv(&client, &mut buffer, RecvFlags::empty());
        });
        let mut control = Control::connect(&path).unwrap();
        control.set_answer_limit(limit).unwrap();
        control.status().unwrap_err()
    })
}

fn send(client: &OwnedFd, reply: Reply<'_>, fd: Option<&UnixStream>) {
    let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    }
    let parts = [reply.header().to_vec(), reply.body.to_vec()].concat();
    let parts = [IoSlice::new(&parts)];
    sendmsg(client, &parts, &mut control, SendFlags::empty()).unwrap();
}

fn reply<'a>(request: &Request<'_>, kind: ReplyKind, body: &'a [u8]) -> Reply<'a> {
    Reply {
        kind,
        body,
        ..Reply::status(request.seq, 0)
    }
}

/// Grants a stream with these bytes, which then ends.
fn stream(client: &OwnedFd, request: &Request<'_>, bytes: &[u8]) {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(bytes).unwrap();
    send(client, reply(request, ReplyKind::Grant, b""), Some(&theirs));
}

#[test]
fn a_bridge_of_the_first_version_is_told_apart_in_one_line_that_names_both() {
    let error = ask(
        |client, request| {
            let body = br#"{"error":"not a command: missing field `cmd`"}"#;
            send(client, reply(request, ReplyKind::Bytes, body), None);
        },
        None,
    );
    assert!(matches!(error, AdminError::Version { theirs: 1, .. }));
    let line = error.to_string();
    assert!(
        line.contains("version 1") && line.contains("version 3"),
        "{line}"
    );
    assert!(!line.contains('\n'), "{line}");
}

#[test]
fn a_bridge_of_a_version_to_come_is_told_apart_too() {
    let error = ask(
        |client, request| {
            let head = br#"{"version":4}"#;
            let bytes = [&[head.len() as u8, 0, 0, 0, 1][..], head].concat();
            stream(client, request, &bytes);
        },
        None,
    );
    assert!(matches!(error, AdminError::Version { theirs: 4, .. }));
}

#[test]
fn a_bridge_of_another_protocol_is_told_apart_in_one_line_that_names_both() {
    let error = ask(
        |client, _| {
            let refusal = Reply {
                aux: 99,
                ..Reply::status(0, STATUS_OTHER_VERSION)
            };
            send(client, refusal, None);
        },
        None,
    );
    assert!(
        matches!(error, AdminError::OtherProtocol { ours, theirs: 99, .. } if ours == PROTOCOL_VERSION),
        "{error:?}"
    );
    assert!(error.is_other_version());
    let line = error.to_string();
    let ours = format!("speaks protocol {PROTOCOL_VERSION},");
    assert!(line.contains(&ours) && line.contains("speaks 99"), "{line}");
    assert!(!line.contains('\n'), "{line}");
}

#[test]
fn a_stream_of_garbage_is_no_answer() {
    let error = ask(
        |client, request| stream(client, request, b"HTTP/1.1 200 OK\r\n\r\n"),
        None,
    );
    let AdminError::Garbled { request, what, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*request, "status");
    assert_eq!(*what, Garbled::UnknownFrame(b'/'));
}

#[test]
fn a_stream_without_an_end_is_no_answer() {
    let error = ask(|client, request| stream(client, request, b""), None);
    assert!(error.is_loss() && !error.is_timeout(), "{error:?}");
}

#[test]
fn a_bridge_that_says_nothing_is_waited_for_as_long_as_was_said() {
    let limit = Some(Duration::from_millis(50));
    let error = ask(|_, _| (), limit);
    assert!(error.is_timeout(), "{error:?}");
    // The limit also holds for a bridge that grants a stream and then sends nothing.
    let error = ask(
        |client, request| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            send(client, reply(request, ReplyKind::Grant, b""), Some(&theirs));
            // Nothing is written to the stream, and it is never closed.
            std::mem::forget(ours);
        },
        limit,
    );
    assert!(error.is_timeout(), "{error:?}");
}

#[test]
fn what_the_bridge_says_no_with_has_its_kind() {
    let error = ask(
        |client, request| send(client, Reply::status(request.seq, libc::EPERM), None),
        None,
    );
    assert!(
        matches!(error, AdminError::NotPermitted { .. }),
        "{error:?}"
    );
    let always_busy = |client: &OwnedFd, request: &Request<'_>| {
        let mut seq = request.seq;
        let mut buffer = [0; MAX_REQUEST_BYTES];
        // It is asked again for as long as it may take to answer.
        loop {
            send(client, Reply::status(seq, libc::EAGAIN), None);
            let (len, _) = recv(client, &mut buffer, RecvFlags::empty()).unwrap();
            match Request::decode(&buffer[..len]) {
                Ok(request) => seq = request.seq,
                Err(_) => break,
            }
        }
    };
    let error = ask(always_busy, Some(Duration::from_millis(200)));
    assert!(matches!(error, AdminError::Busy { .. }), "{error:?}");
}
