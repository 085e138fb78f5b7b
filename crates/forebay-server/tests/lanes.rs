//! Requests through memory that a client shares with the bridge: they say what the socket says, and who breaks the
//! rules there harms nobody else.
#![allow(unsafe_code)]

mod common;

use common::lane::{LIMIT, Laned, ask_for_lane, name_in, open_by_name, stat};
use common::load::Random;
use common::{Place, read, write};
use forebay_admin::drain::{DrainRequest, DrainState};
use forebay_client::Control;
use forebay_server::take_status;
use forebay_wire::{Attr, LANE_BYTES, Reply, STATUS_REDIRECT, Seen, Turned};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const NOBODY: u32 = 65_534;

/// Waits until `holds` does; its work goes on in another thread.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_lane_says_what_the_socket_says() {
    let place = Place::new();
    let server = place.start();
    let mut laned = Laned::of(&place);
    write(&mut laned.client, "f", b"contents");
    let bytes = laned.ask(&stat(b"f"));
    let reply = Reply::decode(&bytes).unwrap();
    assert_eq!((reply.status, reply.seq), (0, 1));
    assert_eq!(
        Attr::decode(reply.body).unwrap(),
        laned.client.stat("f").unwrap()
    );
    let bytes = laned.ask(&stat(b"missing"));
    assert_eq!(Reply::decode(&bytes).unwrap().status, libc::ENOENT);
    laned.client.symlink("/elsewhere", "out").unwrap();
    let bytes = laned.ask(&stat(b"out/x"));
    let reply = Reply::decode(&bytes).unwrap();
    assert_eq!(
        (reply.status, reply.body),
        (STATUS_REDIRECT, &b"/elsewhere/x"[..])
    );
    let status = take_status(server.handle());
    assert_eq!(status.lanes, 1);
    assert!(status.requests_by_lane >= 3, "{status:?}");
    server.stop().unwrap();
}

#[test]
fn there_is_one_lane_for_a_connection_and_it_goes_with_it() {
    let place = Place::new();
    let server = place.start();
    let lanes = || take_status(server.handle()).lanes;
    let mut laned = Laned::of(&place);
    let second = ask_for_lane(&mut laned.client).unwrap_err();
    assert_eq!(second.errno(), Some(libc::EALREADY));
    // Whoever could make the memory smaller could kill the bridge.
    // SAFETY: plain integers.
    let shrunk = unsafe { libc::ftruncate(laned.memory.as_raw_fd(), 0) };
    let error = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((shrunk, error), (-1, Some(libc::EPERM)));
    assert_eq!(lanes(), 1);
    let page = laned.page;
    let before = page.words.late_opens_forbidden();
    drop(laned);
    eventually("the lane is given back", || lanes() == 0);
    // A client that still has the memory sees that nobody attends, and that what it was told is old.
    eventually("the memory says so", || {
        page.words.attention().is_none() && page.words.late_opens_forbidden() != before
    });
    server.stop().unwrap();
}

#[test]
fn who_has_waited_in_vain_finds_the_answer_in_the_socket() {
    let place = Place::new();
    let server = place.start();
    let mut laned = Laned::of(&place);
    write(&mut laned.client, "f", b"contents");
    let mut bytes = [0; 256];
    let len = stat(b"f").encode(&mut bytes).unwrap();
    for _ in 0..200 {
        laned.put(&bytes[..len]);
        laned.post(len);
        match laned.page.words.turn() {
            Turned::Withdrawn | Turned::Waiting => {}
            Turned::Answered => assert_ne!(laned.page.words.look(), Seen::Nothing),
        }
        // What comes for a request that nobody waits for is thrown away, and the next is answered all the same.
        assert_eq!(read(&mut laned.client, "f"), b"contents");
        let until = Instant::now() + LIMIT;
        while !laned.page.words.clear() {
            assert!(Instant::now() < until, "the lane stays taken");
        }
    }
    server.stop().unwrap();
}

#[test]
fn who_scribbles_over_his_lane_harms_nobody_else() {
    let place = Place::new();
    let server = place.start();
    let mut neighbour = Laned::of(&place);
    write(&mut neighbour.client, "f", b"mine");
    let mut random = Random::new(7);
    let mut good = [0; 256];
    let good_len = stat(b"f").encode(&mut good).unwrap();
    for _ in 0..40 {
        let mut hostile = Laned::of(&place);
        hostile.client.set_patience(Duration::ZERO);
        for round in 0..20 {
            let len = hostile.put(&good[..good_len]) + random.below(3) as usize - 1;
            hostile.page.words.post(len, Some(round));
            let words = std::ptr::from_ref(hostile.page).cast::<u32>().cast_mut();
            for _ in 0..random.below(200) {
                let word = random.below(LANE_BYTES as u64 / 4) as usize;
                let value = match random.below(3) {
                    0 => random.below(8) as u32,
                    1 => u32::MAX - random.below(8) as u32,
                    _ => random.below(1 << 32) as u32,
                };
                // The first words once more, because there are the states.
                let word = if random.below(2) == 0 {
                    word % 40
                } else {
                    word
                };
                // SAFETY: inside of the page, which others may read at the same time.
                unsafe { words.add(word).write_volatile(value) };
            }
            // Refused or answered, as it comes out.
            let _ = hostile.client.stat("f");
        }
        let bytes = neighbour.ask(&stat(b"f"));
        assert_eq!(Reply::decode(&bytes).unwrap().status, 0);
        assert_eq!(read(&mut neighbour.client, "f"), b"mine");
    }
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
}

#[test]
fn a_lane_is_judged_by_who_asked_for_it() {
    forebay_testkit::skip_unless!(forebay_testkit::is_root(), "only root can be several users");
    let place = Place::new();
    let server = place.start();
    let mut root = Laned::of(&place);
    write(&mut root.client, "secret", b"x");
    root.client.mkdir("private", 0o700).unwrap();
    write(&mut root.client, "private/f", b"x");
    let (client, memory) = std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let keep = u32::MAX;
            // SAFETY: the raw calls change this thread only.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_setgroups, 0, 0), 0);
                assert_eq!(libc::syscall(libc::SYS_setresgid, keep, NOBODY, keep), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, keep, NOBODY, keep), 0);
            }
            let mut client = place.client();
            let memory = ask_for_lane(&mut client).unwrap().fd.unwrap();
            (client, memory)
        });
        made.join().unwrap()
    });
    let mut nobody = Laned::with(client, memory);
    // The thread that posts is root's; the lane is not.
    let bytes = nobody.ask(&stat(b"private/f"));
    assert_eq!(Reply::decode(&bytes).unwrap().status, libc::EACCES);
    let bytes = root.ask(&stat(b"private/f"));
    assert_eq!(Reply::decode(&bytes).unwrap().status, 0);
    // Only to the user of the bridge does it tell where files lie.
    let bytes = root.ask(&open_by_name(b"secret", libc::O_RDONLY));
    assert!(name_in(&Reply::decode(&bytes).unwrap()).exists());
    let len = {
        let mut bytes = [0; 256];
        let len = open_by_name(b"secret", libc::O_RDONLY)
            .encode(&mut bytes)
            .unwrap();
        nobody.put(&bytes[..len])
    };
    nobody.post(len);
    eventually("a descriptor, or a refusal", || {
        match nobody.page.words.look() {
            Seen::Nothing => false,
            Seen::Beside => true,
            Seen::Reply(_) => panic!("a name for nobody"),
        }
    });
    server.stop().unwrap();
}

#[test]
fn a_client_that_opens_after_its_file_was_let_go_can_tell() {
    let place = Place::new();
    let server = place.start();
    let mut laned = Laned::of(&place);
    write(&mut laned.client, "f", b"contents");
    let before = laned.page.words.late_opens_forbidden();
    let bytes = laned.ask(&open_by_name(b"f", libc::O_RDWR));
    let name = name_in(&Reply::decode(&bytes).unwrap());
    assert_eq!(std::fs::read(&name).unwrap(), b"contents");
    // In time: nothing has been let go.
    assert_eq!(laned.page.words.late_opens_forbidden(), before);

    let mut control = Control::connect(&place.socket()).unwrap();
    control.drain(DrainRequest::default()).unwrap();
    let followed: Result<Vec<_>, _> = control.follow_drain().unwrap().collect();
    let last = followed.unwrap().pop().unwrap();
    assert_eq!(last.state, DrainState::Done);
    assert!(last.released, "{last:?}");
    // Whoever opens the name now has nothing, or something that nobody else sees: and knows it.
    assert_ne!(laned.page.words.late_opens_forbidden(), before);
    assert_eq!(read(&mut laned.client, "f"), b"contents");
    server.stop().unwrap();
}
