//! A client learns from its bridge whether names are durable, and forgets it when that bridge dies.

mod common;

use common::{Peer, Place, encoded};
use forebay_link::{Answer, Config, Fail, Link};
use forebay_sys::{DurabilityOwner, DurabilityWords};
use forebay_wire::{Names, Op, Reply, ReplyKind, Request};
use std::os::fd::AsRawFd;

fn link() -> &'static Link {
    Box::leak(Box::default())
}

fn sync(link: &Link, config: &Config) -> Result<(), Fail> {
    let mut answer = Answer::new();
    link.ask(config, &mut Request::new(Op::Sync), true, &mut answer)
}

/// Grants a page of which everything is durable. It dies with the value.
fn grant(peer: &Peer) -> (DurabilityWords, DurabilityOwner) {
    let (words, memory) = DurabilityWords::new().unwrap();
    let owner = words.own().unwrap();
    grant_memory(peer, &memory);
    (words, owner)
}

fn grant_memory(peer: &Peer, memory: &impl AsRawFd) {
    let asked = peer.asked();
    assert_eq!(asked.op, Op::Words);
    let grant = Reply {
        kind: ReplyKind::Grant,
        ..Reply::status(asked.seq, 0)
    };
    peer.send_with(&encoded(&grant), Some(memory.as_raw_fd()));
}

fn done(peer: &Peer) {
    let asked = peer.asked();
    assert_eq!(asked.op, Op::Sync);
    peer.refuse(&asked, 0);
}

#[test]
fn names_are_known_after_one_request_and_for_all_requests_after_it() {
    let (config, bridge) = Place::scripted(0, |place| {
        let peer = place.accept();
        let (words, owner) = grant(&peer);
        words.page().commit();
        done(&peer);
        words.page().set_durable(1);
        done(&peer);
        drop(owner);
        done(&peer);
    });
    let link = link();
    assert!(!link.is_attached());
    assert_eq!(link.names(), Names::Unknown);
    let first = link.learn_names(config);
    assert_ne!(first, Names::Unknown);
    assert!(link.is_attached());
    sync(link, config).unwrap();
    assert_ne!(link.names(), Names::Unknown);
    sync(link, config).unwrap();
    sync(link, config).unwrap();
    bridge.join().unwrap();
    assert_eq!(link.names(), Names::Unknown);
}

#[test]
fn a_page_of_a_dead_bridge_says_nothing_and_that_of_the_next_one_is_mapped() {
    let (config, bridge) = Place::scripted(20, |place| {
        let peer = place.accept();
        let (_words, owner) = grant(&peer);
        done(&peer);
        // As the kernel does it: the page dies before the socket closes.
        drop(owner);
        drop(peer);
        let peer = place.accept();
        let (words, owner) = grant(&peer);
        words.page().commit();
        done(&peer);
        done(&peer);
        drop(owner);
    });
    let link = link();
    link.learn_names(config);
    sync(link, config).unwrap();
    while link.names() != Names::Unknown {
        std::thread::yield_now();
    }
    assert_ne!(link.learn_names(config), Names::Unknown);
    sync(link, config).unwrap();
    assert_eq!(link.names(), Names::Pending);
    sync(link, config).unwrap();
    bridge.join().unwrap();
}

#[test]
fn without_a_page_names_stay_unknown() {
    let (config, bridge) = Place::scripted(0, |place| {
        let peer = place.accept();
        let asked = peer.asked();
        peer.refuse(&asked, libc::ENOSYS);
        // Something else, which can't be mapped.
        grant_memory(&peer, &std::fs::File::open("/").unwrap());
        // A page that nobody owns.
        grant_memory(&peer, &DurabilityWords::new().unwrap().1);
        done(&peer);
    });
    let link = link();
    for _ in 0..3 {
        assert_eq!(link.learn_names(config), Names::Unknown);
    }
    sync(link, config).unwrap();
    bridge.join().unwrap();
}

#[test]
fn a_bridge_that_cannot_be_reached_is_an_error_and_not_a_promise() {
    let place = Place::new();
    let config = place.config(0);
    drop(place);
    let link = link();
    assert_eq!(link.learn_names(config), Names::Unknown);
    assert_eq!(sync(link, config), Err(Fail::Errno(libc::EIO)));
    assert!(!link.is_attached());
}
