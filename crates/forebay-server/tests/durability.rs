//! Names become durable when a client asks for it, and a page says whether they are.

mod common;

use common::process::{self, Process};
use common::{Folder, Place, read, write};
use forebay_admin::drain::DrainRequest;
use forebay_client::{Client, Control};
use forebay_server::{Server, take_status};
use forebay_wire::{Op, ReplyKind, Request, WHOLE, WORDS_BYTES, WRITTEN};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What the page holds, in the order of `forebay_wire::DurabilityPage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    committed: u64,
    durable: u64,
    owner: u32,
}

impl Said {
    fn names_are_durable(self) -> bool {
        assert!(self.durable <= self.committed, "{self:?}");
        self.durable == self.committed
    }

    /// As the kernel sees it: a thread, and that it has not died.
    fn lives(self) -> bool {
        self.owner & 0x4000_0000 == 0 && self.owner & 0x3fff_ffff != 0
    }
}

/// The memory that clients map.
struct Page(File);

impl Page {
    fn of(client: &mut Client) -> Self {
        let answer = client.ask(Request::new(Op::Words)).unwrap();
        assert_eq!(answer.kind, ReplyKind::Grant);
        let page = Page(answer.fd.unwrap().into());
        assert_eq!(page.0.metadata().unwrap().len(), WORDS_BYTES as u64);
        page
    }

    fn said(&self) -> Said {
        let mut bytes = [0; 20];
        self.0.read_exact_at(&mut bytes, 0).unwrap();
        let word = |at| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        Said {
            committed: word(0),
            durable: word(8),
            owner: u32::from_ne_bytes(bytes[16..].try_into().unwrap()),
        }
    }
}

fn asked(server: &Server, op: &str) -> u64 {
    let status = take_status(server.handle());
    let found = status.operations.iter().find(|(name, _)| **name == *op);
    found.map_or(0, |(_, count)| *count)
}

/// What is done, and how.
type Change<'a> = (&'a str, &'a dyn Fn(&mut Client));

#[test]
fn what_changes_names_counts_as_a_commit_and_is_durable_when_a_client_has_asked() {
    let place = Place::new();
    std::fs::write(place.root().join("old"), "on the PFS").unwrap();
    let server = place.start();
    let mut client = place.client();
    let page = Page::of(&mut client);
    assert!(page.said().lives());
    let changes: [Change; 9] = [
        ("a create", &|c| write(c, "file", b"x")),
        ("a directory", &|c| c.mkdir("dir", 0o755).unwrap()),
        ("a rename", &|c| c.rename("file", "dir/file").unwrap()),
        ("a link", &|c| c.link("dir/file", "link").unwrap()),
        ("a symbolic link", &|c| c.symlink("text", "sym").unwrap()),
        ("an unlink", &|c| c.unlink("dir/file").unwrap()),
        ("a rename on the PFS", &|c| c.rename("old", "new").unwrap()),
        ("a removal on the PFS", &|c| c.unlink("new").unwrap()),
        ("a removed directory", &|c| c.rmdir("dir").unwrap()),
    ];
    for (what, change) in changes {
        client.sync(false).unwrap();
        assert!(page.said().names_are_durable(), "before {what}");
        let before = page.said();
        change(&mut client);
        assert!(page.said().committed > before.committed, "after {what}");
    }
    client.sync(true).unwrap();
    assert!(page.said().names_are_durable());
    assert_eq!(asked(&server, "sync"), 10);
    assert_eq!(asked(&server, "words"), 1);
    server.stop().unwrap();
}

/// How often the thread of sync points has gone to sleep.
fn naps(bridge: &Process) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", bridge.id())).unwrap();
    let read = |task: &std::path::Path, name| std::fs::read_to_string(task.join(name)).unwrap();
    let paths = tasks.map(|task| task.unwrap().path());
    let sync = paths.filter(|task| read(task, "comm").trim() == "sync");
    let status = read(&sync.last().expect("a thread named sync"), "status");
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn a_storage_in_memory_is_not_synced_at_each_commit_when_the_journal_is_half_full() {
    let place = Place::new();
    let storage = Folder::within("/dev/shm");
    let bridge = Process::start_at(&place.root(), storage.path(), &place);
    let mut client = place.client();
    let before = naps(&bridge);
    let commits = 30_000;
    for n in 0..commits {
        client
            .open(format!("file {n}"), libc::O_CREAT | libc::O_WRONLY, 0o644)
            .unwrap();
    }
    let woken = naps(&bridge) - before;
    assert!(
        woken < commits / 10,
        "woken {woken} times by {commits} commits"
    );
    bridge.end();
}

#[test]
fn looks_and_writes_leave_names_durable() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    let page = Page::of(&mut client);
    write(&mut client, "file", b"one");
    client.sync(false).unwrap();
    let before = page.said();
    let file = File::from(client.open("file", libc::O_WRONLY, 0).unwrap());
    file.write_all_at(b"two", 0).unwrap();
    assert_eq!(read(&mut client, "file"), b"two");
    client.stat("file").unwrap();
    client.list("").unwrap();
    assert!(client.unlink("missing").is_err());
    assert_eq!(page.said(), before);
    server.stop().unwrap();
}

#[test]
fn a_drain_is_durable_when_it_has_ended() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    let page = Page::of(&mut client);
    write(&mut client, "file", b"x");
    let before = page.said();
    let mut control = Control::connect(&place.socket()).unwrap();
    control.drain(DrainRequest::default()).unwrap();
    assert!(control.follow_drain().unwrap().all(|state| state.is_ok()));
    assert!(page.said().committed > before.committed);
    assert!(page.said().names_are_durable());
    server.stop().unwrap();
}

#[test]
fn a_commit_gets_durable_although_nobody_asks() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    let page = Page::of(&mut client);
    write(&mut client, "file", b"x");
    let patience = Instant::now() + Duration::from_secs(60);
    while !page.said().names_are_durable() {
        assert!(Instant::now() < patience, "it stays as it is");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop().unwrap();
}

#[test]
fn hundreds_who_wait_at_once_are_all_answered() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 50;
    let place = Place::new();
    let server = place.start();
    let page = Page::of(&mut place.client());
    let start = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (place, page, start) = (&place, &page, &start);
            scope.spawn(move || {
                let mut client = place.client();
                start.wait();
                for round in 0..ROUNDS {
                    write(&mut client, &format!("{number}-{round}"), b"");
                    let mine = page.said().committed;
                    client.sync(round % 7 == 0).unwrap();
                    assert!(page.said().durable >= mine);
                }
            });
        }
    });
    assert!(page.said().names_are_durable());
    server.stop().unwrap();
}

#[test]
fn who_hangs_up_while_it_waits_harms_nobody_and_an_end_meanwhile_waits_for_all() {
    let place = Place::new();
    let server = place.start();
    for _ in 0..100 {
        let mut client = place.client();
        let _dropped = client.begin(Request::new(Op::Sync)).unwrap();
    }
    let mut client = place.client();
    let waiting: Vec<_> = (0..20)
        .map(|_| client.begin(Request::new(Op::Sync)).unwrap())
        .collect();
    for one in waiting {
        client.finish(one).unwrap();
    }
    let last = client.begin(Request::new(Op::Sync)).unwrap();
    server.stop().unwrap();
    // The bridge answers what has arrived, or hangs up on what has not.
    client.set_patience(Duration::ZERO);
    let _ = client.finish(last);
}

#[test]
fn who_is_answered_early_can_tell_when_it_is_durable() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    let page = Page::of(&mut client);
    for n in 0..20 {
        write(&mut client, &format!("file{n}"), b"x");
        let committed = page.said().committed;
        let request = Request {
            arg0: WRITTEN,
            ..Request::new(Op::Sync)
        };
        let commit = client.ask(request).unwrap().aux;
        assert!(commit >= committed, "{commit} {committed}");
        // Later commits do not matter to it.
        write(&mut client, &format!("later{n}"), b"x");
        let request = Request {
            arg2: commit,
            ..Request::new(Op::Sync)
        };
        client.ask(request).unwrap();
        assert!(page.said().durable >= commit);
    }
    server.stop().unwrap();
}

#[test]
fn a_flag_that_nobody_knows_is_refused() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    for arg0 in [WHOLE | WRITTEN, 4, u32::MAX] {
        let request = Request {
            arg0,
            ..Request::new(Op::Sync)
        };
        assert_eq!(client.ask(request).unwrap_err().errno(), Some(libc::EINVAL));
    }
    client.sync(false).unwrap();
    server.stop().unwrap();
}

#[test]
fn the_page_of_a_bridge_that_has_ended_says_nothing() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    let page = Page::of(&mut client);
    client.sync(false).unwrap();
    assert!(page.said().lives() && page.said().names_are_durable());
    server.stop().unwrap();
    assert!(!page.said().lives());
}

#[test]
fn the_page_of_a_bridge_that_was_killed_says_nothing_before_the_next_one_serves() {
    let place = Place::new();
    let mut old: Option<Page> = None;
    for _ in 0..5 {
        let bridge = Process::start(&place);
        if let Some(page) = &old {
            assert!(!page.said().lives(), "{:?}", page.said());
        }
        let mut client = place.client();
        write(&mut client, "file", b"x");
        let page = Page::of(&mut client);
        client.sync(false).unwrap();
        assert!(page.said().lives() && page.said().names_are_durable());
        bridge.kill();
        assert!(!page.said().lives(), "{:?}", page.said());
        old = Some(page);
    }
}

#[test]
#[ignore = "the bridge of the other tests"]
fn bridge_process() {
    process::serve();
}
