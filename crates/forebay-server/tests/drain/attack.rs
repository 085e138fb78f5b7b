//! Files are released one by one while many clients write to them, through descriptors and by names that they open
//! themselves. No write that was acknowledged may be lost.

use super::common::Place;
use super::common::lane::{Laned, name_in, open_by_name};
use super::common::load::Random;
use super::common::raw::{Raw, Said, request};
use forebay_admin::drain::{DrainRequest, DrainStatus};
use forebay_core::bridge::ReadSet;
use forebay_core::drain::{DrainCommit, DrainFacts, DrainVerdict};
use forebay_core::facts::Outcome;
use forebay_core::ops::FollowUp;
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, ObjectId, ObjectName, PathRecord};
use forebay_core::speakers::Speaker;
use forebay_core::table::{Change, KeyValue, Order};
use forebay_mover::{Counters, Door, Ground, Halt, Pass, Points, release};
use forebay_server::{Server, ServerHandle};
use forebay_wire::{GRANT_BY_NAME, Op, Reply, Request};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const FILES: usize = 40;
/// Clients that get descriptors, and clients that open files by their names.
const WITH_DESCRIPTORS: usize = 3;
const BY_NAME: usize = 2;
const WRITERS: usize = WITH_DESCRIPTORS + BY_NAME;
/// A planted bug has to be found within this time.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long the attack goes on when nothing is wrong.
const ATTACK: Duration = Duration::from_secs(4);

fn name(file: usize) -> String {
    format!("f{file}")
}

/// The last number that each writer has written to each file, and knows to be written.
struct Acknowledged([[AtomicU64; WRITERS]; FILES]);

impl Acknowledged {
    fn new() -> Self {
        Acknowledged(std::array::from_fn(|_| {
            std::array::from_fn(|_| AtomicU64::new(0))
        }))
    }
}

/// What the writers are to do.
#[derive(Default)]
struct Orders {
    /// Wait: the files get clean, else none could be released.
    truce: AtomicBool,
    stop: AtomicBool,
}

impl Orders {
    /// Waits for the end of a truce; false at the end of it all.
    fn go_on(&self) -> bool {
        while self.truce.load(Ordering::SeqCst) && !self.stop.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        !self.stop.load(Ordering::SeqCst)
    }
}

/// Writes a number to the place of this writer.
fn write(file: &File, writer: usize, number: u64) {
    let at = writer as u64 * 8;
    file.write_all_at(&number.to_le_bytes(), at).unwrap();
}

fn attack_with_descriptors(place: &Place, writer: usize, done: &Acknowledged, orders: &Orders) {
    let mut client = place.client();
    let mut random = Random::new(writer as u64 + 1);
    for number in 1.. {
        if !orders.go_on() {
            return;
        }
        let file = random.below(FILES as u64) as usize;
        let fd = client.open(name(file), libc::O_WRONLY, 0).unwrap();
        write(&fd.into(), writer, number);
        done.0[file][writer].store(number, Ordering::SeqCst);
    }
}

fn attack_by_name(place: &Place, writer: usize, done: &Acknowledged, orders: &Orders) {
    let mut laned = Laned::of(place);
    let mut random = Random::new(writer as u64 + 1);
    for number in 1.. {
        if !orders.go_on() {
            return;
        }
        let file = random.below(FILES as u64) as usize;
        let path = name(file);
        let forbidden = laned.page.words.late_opens_forbidden();
        let request = Request {
            client: 1000 + writer as u64,
            seq: number as u32,
            ..open_by_name(path.as_bytes(), libc::O_WRONLY)
        };
        let Some(bytes) = laned.try_ask(&request) else {
            // A descriptor comes through the socket: that is what others try.
            laned = Laned::of(place);
            continue;
        };
        let reply = Reply::decode(&bytes).unwrap();
        if reply.status != 0 || reply.aux & GRANT_BY_NAME == 0 {
            continue;
        }
        let Ok(opened) = File::options().write(true).open(name_in(&reply)) else {
            continue;
        };
        // The rule for whoever opens by name: it holds if nothing was let go meanwhile.
        if laned.page.words.late_opens_forbidden() == forbidden {
            write(&opened, writer, number);
            done.0[file][writer].store(number, Ordering::SeqCst);
        }
    }
}

/// Drains, keeps, and releases each file by itself, again and again; how many were released.
fn let_go(ground: Ground<'_>, orders: &Orders, until: &dyn Fn(u64) -> bool) -> u64 {
    let mut released = 0;
    while !until(released) {
        let keep = DrainRequest {
            keep: true,
            workers: Some(2),
            ..DrainRequest::default()
        };
        orders.truce.store(true, Ordering::SeqCst);
        let (counters, points) = (Counters::new(1), Points::cut_at(i64::MAX));
        Pass::new(ground, &keep, &counters, &points).run().unwrap();
        orders.truce.store(false, Ordering::SeqCst);
        for file in 0..FILES {
            let path = TreePath::new(name(file)).unwrap();
            let was_there = DrainFacts::record(ground.door, &path).unwrap().is_some();
            let is_gone = release(ground, vec![path]).unwrap().released;
            released += u64::from(was_there && is_gone);
        }
    }
    released
}

/// What is missing of what was acknowledged.
fn lost(place: &Place, done: &Acknowledged) -> Vec<String> {
    let mut client = place.client();
    let mut lost = Vec::new();
    for (file, writers) in done.0.iter().enumerate() {
        let fd = client.open(name(file), libc::O_RDONLY, 0).unwrap();
        let found = File::from(fd);
        for (writer, number) in writers.iter().enumerate() {
            let mut bytes = [0; 8];
            // A file may be shorter than the place of a writer that has not come yet.
            let _ = found.read_exact_at(&mut bytes, writer as u64 * 8);
            let (found, expected) = (u64::from_le_bytes(bytes), number.load(Ordering::SeqCst));
            if found < expected {
                lost.push(format!("{file}: {writer} wrote {expected}, found {found}"));
            }
        }
    }
    lost
}

/// Attacks until `until`, which is told how many files were released; gives what was lost, and that number.
fn attack(
    place: &Place,
    ground: Ground<'_>,
    until: &dyn Fn(&Acknowledged, u64) -> bool,
) -> (Vec<String>, u64) {
    let (done, orders) = (Acknowledged::new(), Orders::default());
    let mut client = place.client();
    for file in 0..FILES {
        super::common::write(&mut client, &name(file), &[0; WRITERS * 8]);
    }
    let mut released = 0;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (done, orders) = (&done, &orders);
            scope.spawn(move || match writer < WITH_DESCRIPTORS {
                true => attack_with_descriptors(place, writer, done, orders),
                false => attack_by_name(place, writer, done, orders),
            });
        }
        released = let_go(ground, &orders, &|released| until(&done, released));
        orders.stop.store(true, Ordering::SeqCst);
    });
    (lost(place, &done), released)
}

#[test]
fn no_acknowledged_write_is_lost_while_files_are_released_one_by_one() {
    let place = Place::new();
    let server = place.start();
    let (end, patience) = (Instant::now() + ATTACK, Instant::now() + PATIENCE);
    // On a busy machine it takes longer until it has shown anything.
    let until = |_: &Acknowledged, released| {
        let now = Instant::now();
        now > patience || now > end && released > 50
    };
    let (lost, released) = attack(&place, server.handle().ground(), &until);
    assert_eq!(lost, Vec::<String>::new());
    assert!(released > 50, "only {released} files were released");
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
}

/// A door that forgets to mark what is about to be released: nobody waits, and nobody is told to ask again.
struct Careless<'s>(&'s ServerHandle);

impl Door for Careless<'_> {
    fn commit(&self, commit: &DrainCommit) -> Result<DrainVerdict, Halt> {
        let mut commit = commit.clone();
        if std::mem::take(&mut commit.forbids_late_opens) {
            for change in &mut commit.batch {
                if let Change::Put { record, .. } = change {
                    record.transit = None;
                }
            }
        }
        if commit
            .batch
            .iter()
            .any(|c| matches!(c, Change::Delete { .. }))
        {
            // As it would be on a busy machine.
            std::thread::sleep(Duration::from_millis(2));
        }
        self.0.commit(&commit)
    }

    fn passing(&self) -> Vec<ObjectId> {
        self.0.passing()
    }

    fn settle(&self) -> Result<(), Halt> {
        self.0.settle()
    }

    fn follow(&self, follow_ups: &[FollowUp]) -> bool {
        self.0.follow(follow_ups)
    }
}

#[test]
fn the_attack_finds_it_if_nobody_waits_for_what_is_being_released() {
    let place = Place::new();
    let server = place.start();
    let careless = Careless(server.handle());
    let ground = Ground {
        door: &careless,
        ..server.handle().ground()
    };
    let end = Instant::now() + PATIENCE;
    // A write that is lost shows as soon as a look finds an older number; a later write may cover it again.
    let was_seen = AtomicBool::new(false);
    let until = |done: &Acknowledged, _| {
        if !lost_for_good(&place, done).is_empty() {
            was_seen.store(true, Ordering::SeqCst);
        }
        was_seen.load(Ordering::SeqCst) || Instant::now() > end
    };
    let (lost, _) = attack(&place, ground, &until);
    assert!(
        was_seen.into_inner() || !lost.is_empty(),
        "the bug stays unnoticed"
    );
    server.stop().unwrap();
}

/// What is missing, although nobody is at work on it: numbers are read before the files are.
fn lost_for_good(place: &Place, done: &Acknowledged) -> Vec<String> {
    let before = Acknowledged::new();
    for (to, from) in before.0.iter().flatten().zip(done.0.iter().flatten()) {
        to.store(from.load(Ordering::SeqCst), Ordering::SeqCst);
    }
    lost(place, &before)
}

impl DrainFacts for Careless<'_> {
    fn record(&self, path: &TreePath) -> Outcome<Option<PathRecord>> {
        DrainFacts::record(self.0, path)
    }
    fn page(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
    ) -> Outcome<Vec<(TreePath, PathRecord)>> {
        self.0.page(after, order, limit)
    }
    fn speakers_here(&self, before: Option<&TreePath>, limit: usize) -> Outcome<Vec<Speaker>> {
        self.0.speakers_here(before, limit)
    }
    fn speakers(
        &self,
        lower: &TreePath,
        before: Option<&TreePath>,
        limit: usize,
    ) -> Outcome<Vec<Speaker>> {
        self.0.speakers(lower, before, limit)
    }
    fn speakers_of(&self, lower: &TreePath) -> Outcome<Vec<Speaker>> {
        self.0.speakers_of(lower)
    }
    fn in_transit(&self, after: Option<&TreePath>, limit: usize) -> Outcome<Vec<TreePath>> {
        self.0.in_transit(after, limit)
    }
    fn below(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, PathRecord)>> {
        self.0.below(dir)
    }
    fn children(&self, dir: &TreePath, limit: usize) -> Outcome<Vec<(Vec<u8>, PathRecord)>> {
        self.0.children(dir, limit)
    }
    fn names_of(&self, object: ObjectId) -> Outcome<Vec<(ObjectName, TreePath)>> {
        self.0.names_of(object)
    }
    fn notes(&self, prefix: &[u8]) -> Outcome<Vec<KeyValue>> {
        self.0.notes(prefix)
    }
    fn next_version(&self) -> u64 {
        self.0.next_version()
    }
    fn me(&self) -> BridgeId {
        self.0.me()
    }

    fn rely_on_range(&self, dir: &TreePath, reads: &mut ReadSet) -> Outcome<()> {
        self.0.rely_on_range(dir, reads)
    }
}

/// A drain after which `d/sub/held` is kept, because somebody reads it, and nothing else.
fn keeps_one(place: &Place) {
    let server = place.start();
    let mut client = place.client();
    client.mkdir("d", 0o755).unwrap();
    client.mkdir("d/sub", 0o755).unwrap();
    super::common::write(&mut client, "d/sub/held", b"held");
    super::common::write(&mut client, "d/free", b"free");
    let held = client.open("d/sub/held", libc::O_RDONLY, 0).unwrap();
    let status = drain(&server);
    let kept = status.kept_because.as_deref();
    assert_eq!(kept, Some("d/sub/held is still open"));
    drop(held);
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
}

fn drain(server: &Server) -> DrainStatus {
    let (counters, points) = (Counters::new(1), Points::cut_at(i64::MAX));
    let (ground, request) = (server.handle().ground(), DrainRequest::default());
    let pass = Pass::new(ground, &request, &counters, &points);
    pass.run().unwrap();
    counters.status()
}

fn shows_all(place: &Place) {
    let mut client = place.client();
    assert_eq!(super::common::read(&mut client, "d/sub/held"), b"held");
    assert_eq!(super::common::read(&mut client, "d/free"), b"free");
    let names = super::common::names(&mut client, "d");
    assert_eq!(names, ["free", "sub"]);
}

#[test]
fn a_directory_that_has_opened_to_the_pfs_is_sound_and_goes_with_the_next_drain() {
    let place = Place::new();
    keeps_one(&place);
    let server = place.start();
    shows_all(&place);
    let status = drain(&server);
    assert!(status.released, "{status:?}");
    shows_all(&place);
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
}

#[test]
fn a_directory_that_has_opened_to_the_pfs_is_found_again_without_tables() {
    let place = Place::new();
    keeps_one(&place);
    assert_eq!(place.rebuilt(), Vec::<String>::new());
    let server = place.start();
    shows_all(&place);
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
}

/// Does this process, which has the bridge in it, have a backing directory open?
fn has_directory_open(place: &Place) -> bool {
    let dirs = place.instance().join("dir");
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .filter_map(|target| Some(target.strip_prefix(&dirs).ok()?.components().count()))
        .any(|depth| depth == 2)
}

#[test]
fn a_directory_that_is_on_its_way_to_a_client_does_not_open_to_the_pfs() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    client.mkdir("d", 0o755).unwrap();
    client.mkdir("d/sub", 0o755).unwrap();
    let slow = Raw::connect(&place.socket()).unwrap();
    let open = Request {
        arg0: (libc::O_RDONLY | libc::O_DIRECTORY) as u32,
        ..request(Op::Open, b"d")
    };
    slow.send_request(&open).unwrap();
    let end = Instant::now() + PATIENCE;
    // The bridge has sent it and closed its own copy: now only the queue of the socket has it.
    while !slow.has_mail() || has_directory_open(&place) {
        assert!(Instant::now() < end, "the bridge does not answer");
        std::thread::yield_now();
    }
    let kept = drain(&server).kept_because;
    let expected = "a process is in a directory that was made in the buffer";
    assert_eq!(kept.as_deref(), Some(expected));
    let is_record = |path| {
        let path = TreePath::new(path).unwrap();
        let record = DrainFacts::record(server.handle().as_ref(), &path).unwrap();
        record.is_some_and(|record| record.kind == Kind::Dir)
    };
    assert!(is_record("d"), "it is still a directory of the buffer");
    // Nobody waits for it any more: there is no room for the descriptor, so it is closed.
    assert_eq!(slow.receive(), Said::Status(0));
    let status = drain(&server);
    assert!(status.released, "{status:?}");
    assert!(!is_record("d") && !is_record("d/sub"));
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
}
