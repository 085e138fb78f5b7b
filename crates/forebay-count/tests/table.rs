//! Tables in ordinary memory: counting, folding, side slots, damage.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use forebay_count::busy::BusyMap;
use forebay_count::event::Extra;
use forebay_count::heat::HeatMap;
use forebay_count::layout::{H_LOCK, LOCK};
use forebay_count::posix::{self as p, MEMORY_ALIGNMENT};
use forebay_count::table::{Birth, Bulk, Handle, Host, InMemory, Name};
use forebay_count::track::TRACKED_VALUES;
use forebay_count::{Event, Kind, Op, Table, event, lock, read};

const MS: u64 = 1_000_000;

fn memory(bytes: usize) -> Vec<AtomicU64> {
    (0..bytes / 8).map(|_| AtomicU64::new(0)).collect()
}

fn begin(memory: &[AtomicU64]) -> Table<'_> {
    let birth = Birth {
        pid: 42,
        ppid: 1,
        realtime_ns: 1_000 * 100 * MS,
        monotonic_ns: 5,
        hostname: b"node1",
        exe: b"/usr/bin/prog",
        args: b"prog\0-x\0",
        cwd: b"/work",
        ..Birth::default()
    };
    Table::format(memory, &birth, &InMemory).expect("a table")
}

fn hold(table: &Table<'_>, name: &str) -> Handle {
    table
        .hold(Kind::Posix, &Name::of(name.as_bytes()), &InMemory)
        .expect("a record")
}

fn count(table: &Table<'_>, handle: Handle, event: Event) {
    assert!(table.count(Kind::Posix, handle, &event, &InMemory));
}

fn at(op: Op, offset: i64, bytes: i64, start_ns: u64, end_ns: u64) -> Event {
    Event {
        offset,
        bytes,
        ..Event::plain(op, start_ns, end_ns)
    }
}

/// POSIX counters of all files, by name.
fn files(table: &Table<'_>) -> HashMap<String, Vec<i64>> {
    let mut out = HashMap::new();
    read::each_file(table, |f| {
        if let Some(c) = f.posix() {
            out.insert(
                String::from_utf8_lossy(f.name).into_owned(),
                c.ints.to_vec(),
            );
        }
    });
    out
}

#[test]
fn a_short_history_gives_the_counters_that_darshan_defines() {
    let memory = memory(2 << 20);
    let table = begin(&memory);
    let h = hold(&table, "/data/a");
    let opened = Event {
        offset: 5000,
        aux: Event::opened(0o644, 4096, event::WAS_THERE),
        ..Event::plain(Op::Open, 10, 20)
    };
    count(&table, h, opened);
    // Offset 0 at first is neither sequential nor consecutive, the next one both.
    count(&table, h, at(Op::Read, 0, 100, 30, 40));
    count(&table, h, at(Op::Read, 100, 100, 40, 60));
    count(&table, h, at(Op::Read, 1224, 1, 60, 61));
    count(&table, h, at(Op::Read, 50, 0, 61, 62));
    let unaligned = Event {
        aux: event::MEMORY_NOT_ALIGNED,
        ..at(Op::Write, 4096, 2000, 70, 90)
    };
    count(&table, h, unaligned);
    count(&table, h, at(Op::Seek, 0, 0, 90, 91));
    count(&table, h, at(Op::Sync, 0, 0, 91, 95));
    count(&table, h, at(Op::Close, 0, 0, 95, 99));

    read::each_file(&table, |f| {
        let c = f.posix().expect("POSIX");
        let int = |i: usize| c.ints[i];
        assert_eq!(f.name, b"/data/a");
        assert_eq!(
            [p::OPENS, p::READS, p::WRITES, p::SEEKS, p::FSYNCS].map(int),
            [1, 4, 1, 1, 1]
        );
        assert_eq!([p::BYTES_READ, p::BYTES_WRITTEN].map(int), [201, 2000]);
        assert_eq!(
            [p::MAX_BYTE_READ, p::MAX_BYTE_WRITTEN].map(int),
            [1224, 6095]
        );
        assert_eq!([p::SEQ_READS, p::CONSEC_READS].map(int), [2, 1]);
        assert_eq!(
            [p::SEQ_WRITES, p::CONSEC_WRITES, p::RW_SWITCHES].map(int),
            [1, 0, 1]
        );
        assert_eq!([p::MEM_NOT_ALIGNED, p::FILE_NOT_ALIGNED].map(int), [1, 3]);
        assert_eq!(
            [p::MEM_ALIGNMENT, p::FILE_ALIGNMENT, p::MODE].map(int),
            [MEMORY_ALIGNMENT as i64, 4096, 0o644]
        );
        assert_eq!(c.ints[p::SIZE_READ..][..2], [4, 0]);
        assert_eq!(c.ints[p::SIZE_WRITE..][..3], [0, 0, 1]);
        assert_eq!((int(p::STRIDE), int(p::STRIDE_COUNT)), (1024, 1));
        assert_eq!(c.ints[p::ACCESS..][..4], [100, 2000, 1, 0]);
        assert_eq!(c.ints[p::ACCESS_COUNT..][..4], [2, 1, 1, 1]);
        assert_eq!(
            (int(p::MAX_READ_TIME_SIZE), int(p::MAX_WRITE_TIME_SIZE)),
            (100, 2000)
        );
        let ns = |i: usize| (c.floats[i] * 1e9).round() as u64;
        assert_eq!(
            [p::OPEN_START, p::OPEN_END, p::READ_START, p::READ_END].map(ns),
            [5, 15, 25, 57]
        );
        assert_eq!(
            [p::WRITE_START, p::WRITE_END, p::CLOSE_END].map(ns),
            [65, 90, 94]
        );
        assert_eq!(
            [p::READ_TIME, p::WRITE_TIME, p::META_TIME].map(ns),
            [32, 24, 15]
        );
        assert_eq!([p::MAX_READ_TIME, p::MAX_WRITE_TIME].map(ns), [20, 20]);
        let facts = f.facts();
        assert_eq!(
            (facts.size_at_open, facts.created),
            (Some(5000), Some(false))
        );
    });
}

#[test]
fn up_to_thirty_two_access_sizes_are_known_and_the_most_frequent_come_first() {
    let memory = memory(2 << 20);
    let table = begin(&memory);
    let h = hold(&table, "/data/a");
    for size in 1..=40 {
        for _ in 0..=size {
            count(&table, h, at(Op::Write, 0, size, 1, 2));
        }
    }
    read::each_file(&table, |f| {
        let mut room = [(0, 0); TRACKED_VALUES];
        let all = f.posix_accesses(&mut room);
        assert_eq!(all.len(), 32);
        assert_eq!(all[..2], [(32, 33), (31, 32)]);
        assert_eq!(f.posix().unwrap().ints[p::ACCESS..][..4], [32, 31, 30, 29]);
    });
}

#[test]
fn fifty_thousand_files_leave_exact_totals_and_the_largest_keep_their_records() {
    const FILES: u64 = 50_000;
    let memory = memory(2 << 20);
    let table = begin(&memory);
    let mut bytes = 0;
    for n in 0..FILES {
        let h = hold(&table, &format!("/data/run{}/file{n}", n % 3));
        let size = if n % 1000 == 7 {
            1 << 30
        } else {
            100 + (n % 7) as i64
        };
        bytes += size;
        count(&table, h, Event::plain(Op::Open, n + 10, n + 12));
        count(&table, h, at(Op::Write, 0, size, n + 12, n + 13));
        count(&table, h, Event::plain(Op::Close, n + 13, n + 14));
        table.let_go(Kind::Posix, h);
    }
    // These files were used before: they are no new files.
    for n in 0..1000 {
        let h = hold(&table, &format!("/data/run{}/file{n}", n % 3));
        count(&table, h, Event::plain(Op::Open, 90_000, 90_001));
        table.let_go(Kind::Posix, h);
    }
    let (mut opens, mut writes, mut written, mut own, mut folded, mut large) = (0, 0, 0, 0, 0, 0);
    let mut directories = Vec::new();
    read::each_file(&table, |f| {
        let c = f.posix().unwrap();
        opens += c.ints[p::OPENS];
        writes += c.ints[p::WRITES];
        written += c.ints[p::BYTES_WRITTEN];
        match f.folded {
            Some(n) => {
                folded += n;
                directories.push(String::from_utf8_lossy(f.name).into_owned());
            }
            None if f.counted_before => {}
            None => own += 1,
        }
        if f.folded.is_none() && c.ints[p::BYTES_WRITTEN] == 1 << 30 {
            large += 1;
        }
    });
    directories.sort();
    assert_eq!((opens, writes, written), (51_000, 50_000, bytes));
    assert_eq!(own + folded, FILES);
    assert_eq!(read::unsure_files(&table), 0);
    assert_eq!(large, 50, "none of the large files was folded");
    assert!(own > 1_000, "{own} files have records of their own");
    assert_eq!(
        directories,
        ["/data/run0", "/data/run1", "/data/run2"].map(|d| format!("{d}/<other files>"))
    );
}

#[test]
fn files_that_stay_open_share_a_record_when_there_is_no_room_left() {
    let memory = memory(128 << 10);
    let table = begin(&memory);
    for n in 0..3_000 {
        let h = hold(&table, &format!("/d{n}/x/file"));
        count(&table, h, Event::plain(Op::Open, 1, 2));
        count(&table, h, at(Op::Read, 0, 10, 3, 4));
    }
    let all = files(&table);
    let sum = |i: usize| all.values().map(|c| c[i]).sum::<i64>();
    assert_eq!((sum(p::OPENS), sum(p::BYTES_READ)), (3_000, 30_000));
    assert!(all.contains_key("/<other files>"));
}

#[test]
fn an_event_that_finds_its_record_locked_is_counted_later() {
    let memory = memory(2 << 20);
    let table = begin(&memory);
    let h = hold(&table, "/data/a");
    let record = table.record(Kind::Posix, h.cell).unwrap();
    let held = lock::try_once(&record.words[LOCK]).unwrap();
    // A signal handler that interrupts the holder of the lock does this.
    count(&table, h, at(Op::Write, 0, 10, 1, 2));
    assert!(files(&table).is_empty());
    assert!(lock::release(&record.words[LOCK], held));
    count(&table, h, at(Op::Write, 10, 10, 3, 4));
    let ints = &files(&table)["/data/a"];
    assert_eq!((ints[p::WRITES], ints[p::BYTES_WRITTEN]), (2, 20));
}

#[test]
fn a_table_of_a_process_that_died_while_it_counted_is_read_with_what_lies_beside() {
    let memory = memory(2 << 20);
    let table = begin(&memory);
    let h = hold(&table, "/data/a");
    let record = table.record(Kind::Posix, h.cell).unwrap();
    let _left =
        [&record.words[LOCK], &table.words()[H_LOCK]].map(|word| lock::try_once(word).unwrap());
    for n in 0..100 {
        count(&table, h, at(Op::Write, n, 1, 1, 2));
    }
    let table = read::open(&memory).unwrap();
    let ints = &files(&table)["/data/a"];
    let unplaced = read::totals(&table, Bulk::Unplaced);
    assert_eq!(ints[p::WRITES] as u64 + unplaced.writes, 100);
    assert_eq!(ints[p::WRITES], 64);
    assert_eq!(unplaced.bytes_written, 36);
}

#[test]
fn a_holder_that_was_held_up_for_over_a_second_is_told() {
    let memory = memory(2 << 20);
    let table = begin(&memory);
    let h = hold(&table, "/data/a");
    let ms = 1_000_000;
    let write = |n: u64| count(&table, h, at(Op::Write, n as i64, 1, n * ms, n * ms + 1));
    let looks = table.with(Kind::Posix, h, &InMemory, |record| {
        let mine = record.words[LOCK].load(Relaxed);
        (1..5_000).find(|n| {
            write(20 * n);
            record.words[LOCK].load(Relaxed) != mine
        })
    });
    let looks = looks.flatten().expect("taken over");
    assert_eq!(read::overlaps(&table), 1);
    write(20 * looks + 20);
    assert_eq!(read::overlaps(&table), 1);
    let unplaced = read::totals(&table, Bulk::Unplaced).writes;
    let ints = &files(&table)["/data/a"];
    assert_eq!(ints[p::WRITES] as u64 + unplaced, looks + 1);
}

#[test]
fn a_file_that_was_folded_does_not_get_the_events_of_another() {
    let memory = memory(128 << 10);
    let table = begin(&memory);
    let old = hold(&table, "/data/old");
    table.let_go(Kind::Posix, old);
    for n in 0..500 {
        let h = hold(&table, &format!("/data/{n}"));
        count(&table, h, at(Op::Write, 0, 1, 1, 2));
        table.let_go(Kind::Posix, h);
    }
    assert!(!table.count(Kind::Posix, old, &at(Op::Write, 0, 7, 1, 2), &InMemory));
    let sum: i64 = files(&table).values().map(|c| c[p::BYTES_WRITTEN]).sum();
    assert_eq!(
        (sum, read::totals(&table, Bulk::Unplaced).bytes_written),
        (500, 7)
    );
}

#[test]
fn heat_maps_double_their_bins_and_lose_no_byte() {
    let memory = memory(2 << 20);
    let table = begin(&memory);
    let h = hold(&table, "/data/a");
    let ms = |t: u64| 5 + t * MS;
    count(&table, h, at(Op::Write, 0, 300, ms(10), ms(20)));
    count(&table, h, at(Op::Read, 0, 40, ms(150), ms(160)));
    // From 0.2 s to 0.5 s, a third in each tick.
    count(&table, h, at(Op::Write, 0, 900, ms(200), ms(500)));
    table.settle();
    let map = HeatMap::of(&table, Kind::Posix).unwrap();
    assert_eq!((map.ticks_per_bin, map.first_bin), (1, 1_000));
    assert_eq!(map.written[..6], [300, 0, 300, 300, 300, 0]);
    assert_eq!(map.read[..3], [0, 40, 0]);
    assert_eq!(HeatMap::of(&table, Kind::Stdio), None);
    // 100 s later.
    count(&table, h, at(Op::Write, 0, 1, ms(100_000), ms(100_001)));
    table.settle();
    let map = HeatMap::of(&table, Kind::Posix).unwrap();
    assert_eq!((map.ticks_per_bin, map.first_bin), (8, 125));
    assert_eq!(
        (map.written[0], map.read[0], map.written[125]),
        (1200, 40, 1)
    );
}

#[test]
fn the_header_says_whose_table_it_is() {
    let memory = memory(64 << 10);
    let table = begin(&memory);
    table.set_rank(3, 8, true);
    let process = read::process(&table);
    assert_eq!((process.pid, process.ppid, process.by_fork), (42, 1, false));
    assert_eq!(
        (process.hostname(), process.exe()),
        (&b"node1"[..], &b"/usr/bin/prog"[..])
    );
    assert_eq!(
        process.args().collect::<Vec<_>>(),
        [&b"prog"[..], b"-x", b""][..2].to_vec()
    );
    assert_eq!(process.rank, Some((3, 8, read::RankSource::Mpi)));
    assert_eq!(process.end, read::End::Unsaid);
}

#[test]
fn arbitrary_words_are_no_table_or_a_harmless_one() {
    let pristine = memory(64 << 10);
    let table = begin(&pristine);
    for n in 0..20 {
        let h = hold(&table, &format!("/data/{n}"));
        count(&table, h, at(Op::Write, 0, 10, 1, 2));
    }
    let bytes: Vec<u8> = pristine
        .iter()
        .flat_map(|w| w.load(Relaxed).to_ne_bytes())
        .collect();
    assert!(read::open(&read::words(&bytes[..1000]).collect::<Vec<_>>()).is_err());
    let mut seed = 88172645463325252u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..300 {
        let words: Vec<AtomicU64> = read::words(&bytes).collect();
        for _ in 0..random() % 40 {
            let at = 2 + random() as usize % (words.len() - 2);
            words[at].store(random() >> (random() % 64), Relaxed);
        }
        if let Ok(table) = read::open(&words) {
            let _ = read::process(&table);
            read::each_file(&table, |f| {
                let _ = (f.posix(), f.stdio(), f.facts());
            });
            let _ = Kind::ALL.map(|kind| HeatMap::of(&table, kind));
        }
    }
}

#[test]
fn threads_that_share_a_file_and_files_that_share_a_thread_lose_nothing() {
    const CALLS: i64 = 20_000;
    let memory = memory(2 << 20);
    let table = begin(&memory);
    std::thread::scope(|scope| {
        for t in 0..4 {
            let table = &table;
            scope.spawn(move || {
                let own = hold(table, &format!("/data/own{t}"));
                let shared = hold(table, "/data/shared");
                for n in 0..CALLS {
                    count(table, own, at(Op::Write, n, 1, n as u64, n as u64 + 1));
                    count(table, shared, at(Op::Read, n, 1, n as u64, n as u64 + 1));
                }
            });
        }
    });
    let table = read::open(&memory).unwrap();
    let all = files(&table);
    let unplaced = read::totals(&table, Bulk::Unplaced);
    assert_eq!(
        all["/data/shared"][p::READS] as u64 + unplaced.reads,
        4 * CALLS as u64
    );
    let own: i64 = (0..4)
        .map(|t| all[&format!("/data/own{t}")][p::WRITES])
        .sum();
    assert_eq!(own as u64 + unplaced.writes, 4 * CALLS as u64);
}

/// Milliseconds in calls per bin of a row, from the bin in which the table began.
fn busy(table: &Table<'_>, row: usize) -> Vec<(usize, u64)> {
    table.settle();
    let map = BusyMap::of(table);
    let bins = map.rows[row].iter().enumerate();
    let used = bins.filter(|(_, ns)| **ns > 0);
    used.map(|(bin, ns)| (bin, ns / 1000)).collect()
}

#[test]
fn the_busy_map_tells_when_calls_were_under_way() {
    let memory = memory(2 << 20);
    let table = begin(&memory);
    let file = hold(&table, "/data/a");
    let us = |t: u64| 5 + t * 1000;
    // Two calls in one tick, one that takes three, and one long after.
    count(&table, file, at(Op::Write, 0, 1, us(100), us(150)));
    count(&table, file, at(Op::Read, 0, 1, us(800), us(900)));
    count(&table, file, at(Op::Sync, 0, 0, us(1500), us(3250)));
    count(&table, file, at(Op::Close, 0, 0, us(90_000), us(90_010)));
    table.add_extra(Extra::Mkdir, us(5000), us(5200));
    table.add_extra(Extra::Map, us(6000), us(6200));
    assert_eq!(
        busy(&table, 0),
        [(0, 150), (1, 500), (2, 1000), (3, 250), (5, 200), (90, 10)]
    );
    // What waits on a pipe does no I/O.
    let pipe = hold(&table, "<STDIN>");
    count(&table, pipe, at(Op::Read, 0, 1, us(100_000), us(190_000)));
    assert_eq!(busy(&table, 0).len(), 6);
    // Two minutes later a bin is 512 ms wide.
    count(
        &table,
        file,
        at(Op::Read, 0, 1, us(120_000_000), us(120_000_100)),
    );
    assert_eq!(busy(&table, 0), [(0, 2110), (234, 100)]);
    assert_eq!(BusyMap::of(&table).bin_ns, 512 * MS);
}

#[test]
fn files_that_are_folded_keep_their_time() {
    let memory = memory(128 << 10);
    let table = begin(&memory);
    for n in 0..500 {
        let h = hold(&table, &format!("/data/{n}"));
        let start = 5 + n * 10_000;
        count(&table, h, at(Op::Write, 0, 1, start, start + 1000));
        table.let_go(Kind::Posix, h);
    }
    let sum: u64 = busy(&table, 0).iter().map(|(_, us)| us).sum();
    assert_eq!(sum, 500);
}

/// A clock on which a microsecond passes between two looks.
#[derive(Default)]
struct Looks(AtomicU64);

impl Looks {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) * 1000
    }
}

/// Two threads of a process in which memory comes late: not before the other thread has waited for it.
struct SlowMemory<'a> {
    clock: Looks,
    thread: u64,
    is_asked: &'a AtomicBool,
    is_awaited: &'a AtomicBool,
}

impl Host for SlowMemory<'_> {
    fn back(&self, _: Range<usize>) -> bool {
        self.is_asked.store(true, Relaxed);
        while !self.is_awaited.load(Relaxed) {
            std::thread::yield_now();
        }
        true
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn thread(&self) -> u64 {
        self.thread
    }

    fn give_way(&self) -> bool {
        self.is_awaited.store(true, Relaxed);
        std::thread::yield_now();
        true
    }
}

#[test]
fn a_file_gets_its_record_though_another_thread_waits_for_memory() {
    let memory = memory(1 << 20);
    let table = begin(&memory);
    let (is_asked, is_awaited) = (AtomicBool::new(false), AtomicBool::new(false));
    let host = |thread| SlowMemory {
        clock: Looks::default(),
        thread,
        is_asked: &is_asked,
        is_awaited: &is_awaited,
    };
    let name = |n: u32| format!("/d/{}/{n}", "x".repeat(200));
    let (first, second) = (host(1), host(2));
    let hold = |host: &SlowMemory, n: u32| {
        table
            .hold(Kind::Posix, &Name::of(name(n).as_bytes()), host)
            .is_some()
    };
    std::thread::scope(|scope| {
        let many = scope.spawn(|| (0..100).all(|n| hold(&first, n)));
        while !is_asked.load(Relaxed) && !many.is_finished() {
            std::thread::yield_now();
        }
        let is_held = hold(&second, 1000);
        // A thread that gave up lets the other one go on, too.
        is_awaited.store(true, Relaxed);
        assert!(is_held, "the second thread gave up");
        assert!(many.join().unwrap());
    });
    assert!(is_asked.load(Relaxed), "nobody had to wait");
}

/// A signal handler of the thread that has the lock, which must not wait for itself.
struct Handler<'a, 't>(&'a Table<'t>, AtomicBool);

impl Host for Handler<'_, '_> {
    fn back(&self, _: Range<usize>) -> bool {
        let nested = self
            .0
            .hold(Kind::Posix, &Name::of(b"/opened/by/handler"), self);
        self.1.store(nested.is_none(), Relaxed);
        true
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn thread(&self) -> u64 {
        7
    }

    fn give_way(&self) -> bool {
        panic!("a handler waits for the call that it has interrupted");
    }
}

#[test]
fn a_handler_does_not_wait_for_the_call_that_it_has_interrupted() {
    let memory = memory(1 << 20);
    let table = begin(&memory);
    let host = Handler(&table, AtomicBool::new(false));
    for n in 0..100 {
        let name = format!("/d/{}/{n}", "x".repeat(200));
        let held = table.hold(Kind::Posix, &Name::of(name.as_bytes()), &host);
        assert!(held.is_some());
    }
    assert!(host.1.load(Relaxed), "nothing was interrupted");
}

/// A thread beside one that never releases the lock.
struct Beside<'a> {
    clock: Looks,
    waits: &'a AtomicU64,
}

impl Host for Beside<'_> {
    fn back(&self, _: Range<usize>) -> bool {
        true
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn thread(&self) -> u64 {
        1
    }

    fn give_way(&self) -> bool {
        self.waits.fetch_add(1, Relaxed);
        true
    }
}

#[test]
fn one_file_waits_for_a_thread_that_never_releases_the_lock_and_no_other_one_does() {
    let memory = memory(1 << 20);
    let table = begin(&memory);
    table.put(
        forebay_count::layout::H_LOCK,
        table.get(forebay_count::layout::H_LOCK) | 1,
    );
    let waits = AtomicU64::new(0);
    let hold = |name: &str| {
        let host = Beside {
            clock: Looks::default(),
            waits: &waits,
        };
        table.hold(Kind::Posix, &Name::of(name.as_bytes()), &host)
    };
    assert!(hold("/d/1").is_none());
    let first = waits.load(Relaxed);
    assert!((1000..=10_000).contains(&first), "{first} turns");
    assert!(hold("/d/2").is_none());
    assert_eq!(waits.load(Relaxed), first);
}
