//! Compares all implementations with each other, and damages what they store.

use crate::{Base, Cached, Journaled, Life, Memory, Net, Rocks};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, ObjectId, ObjectName, PathRecord, Token};
use forebay_core::recovery::Loss;
use forebay_core::reserve::Purpose;
use forebay_core::table::{Change, Marks, Order, TableError, Tables, WriteTables};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const LIFE: Life = [1; 16];

/// A temporary folder of a test.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        let scratch = Scratch(tempfile::tempdir().unwrap());
        std::fs::create_dir(scratch.tables()).unwrap();
        scratch
    }

    /// The folder for tables. It is not the temporary folder itself, because a reserve lies beside its tables.
    fn tables(&self) -> PathBuf {
        self.0.path().join("tables")
    }
}

/// xorshift64*: a failing seed must give the same run everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % n
    }
}

fn object(n: u64) -> ObjectName {
    ObjectName {
        oid: ObjectId::new(BridgeId(1), 2, n),
        link: (n % 3) as u32,
    }
}

fn record(n: u64) -> PathRecord {
    PathRecord {
        version: n,
        ino: n * 7,
        hides: TreePath::new(*b"low/er").filter(|_| n.is_multiple_of(5)),
        token: Token { client: n, seq: 1 },
        ..PathRecord::new(
            if n.is_multiple_of(2) {
                Kind::File
            } else {
                Kind::Whiteout
            },
            object(n),
            BridgeId(1),
        )
    }
}

fn path(random: &mut Random) -> TreePath {
    let names: [&[u8]; 6] = [b"a", b"b", b"a!", b"a0", b"\xff\xff", b"zz"];
    let mut path = TreePath::root();
    for _ in 0..random.below(4) {
        path = path.join(names[random.below(6) as usize]);
    }
    path
}

/// As core makes them: deletions first, and no path twice among them or among the puts.
fn batch(random: &mut Random) -> Vec<Change> {
    let mut batch = changes(random);
    batch.sort_by_key(|change| !matches!(change, Change::Delete { .. }));
    let (mut deleted, mut put) = (BTreeSet::new(), BTreeSet::new());
    batch.retain(|change| match change {
        Change::Delete { path, .. } => deleted.insert(path.clone()),
        Change::Put { path, .. } => !path.is_root() && put.insert(path.clone()),
        _ => true,
    });
    batch
}

fn changes(random: &mut Random) -> Vec<Change> {
    (0..1 + random.below(4))
        .map(|_| {
            let n = random.below(40);
            match random.below(8) {
                0..=2 => Change::Put {
                    path: path(random),
                    record: record(n),
                },
                3 => Change::Delete {
                    path: path(random),
                    object: object(n),
                },
                4 => Change::Doom(object(n)),
                5 => Change::Undoom(object(n)),
                6 => {
                    if n < 20 {
                        Change::Relabel(object(n))
                    } else {
                        Change::Relabeled(object(n - 20))
                    }
                }
                _ => Change::Meta {
                    key: format!("key{}", n % 7).into_bytes(),
                    value: (n < 20).then(|| vec![n as u8; 3]),
                },
            }
        })
        .collect()
}

fn compare(model: &Memory, real: &dyn Tables, random: &mut Random) {
    let p = path(random);
    assert_eq!(model.get(&p), real.get(&p), "get {p:?}");
    let after = [None, Some(&b"a"[..]), Some(b"a5"), Some(b"\xff\xff")][random.below(4) as usize];
    let limit = random.below(5) as usize;
    assert_eq!(
        model.children(&p, after, limit),
        real.children(&p, after, limit),
        "children {p:?} {after:?}"
    );
    let all = model.subtree(&p).unwrap();
    assert_eq!(Ok(&all), real.subtree(&p).as_ref(), "subtree {p:?}");
    let first = path(random);
    for (table, limit) in [(model as &dyn Tables, limit), (real, limit)] {
        let page = table.page_below(&p, Some(&first), limit).unwrap();
        let expected = all.iter().filter(|(at, _)| at.key() > first.key());
        let expected: Vec<_> = expected.take(limit).cloned().collect();
        assert_eq!(page, expected, "{limit} below {p:?} after {first:?}");
    }
    let after = path(random);
    for order in [Order::ParentsFirst, Order::ChildrenFirst] {
        for after in [None, Some(&after)] {
            let limit = 1 + random.below(6) as usize;
            let page = real.page(after, order, limit);
            assert_eq!(model.page(after, order, limit), page, "{order:?} {after:?}");
        }
    }
    let o = object(random.below(40));
    assert_eq!(model.names_of(o.oid), real.names_of(o.oid));
    assert_eq!(model.path_of(o), real.path_of(o));
    assert_eq!(model.marks(), real.marks());
    assert_eq!(model.metas(b"key"), real.metas(b"key"));
    assert_eq!(model.meta(b"key3"), real.meta(b"key3"));
}

#[test]
fn all_implementations_answer_alike_also_after_they_were_opened_anew() {
    for seed in 1..=8 {
        let scratch = Scratch::new();
        let mut random = Random(seed);
        let model = Memory::new();
        for _life in 0..3 {
            let cached =
                Cached::new(Journaled::open(&scratch.tables(), LIFE, Purpose::Serve).unwrap());
            for n in 0..150 {
                let batch = batch(&mut random);
                model.apply(&batch).unwrap();
                cached.apply(&batch).unwrap();
                compare(&model, &cached, &mut random);
                if n == 75 {
                    cached.below().sync().unwrap();
                }
            }
        }
        let journaled = Journaled::open(&scratch.tables(), LIFE, Purpose::Serve).unwrap();
        for _ in 0..50 {
            compare(&model, &journaled, &mut random);
        }
        journaled.sync().unwrap();
        drop(journaled);
        let rocks = Rocks::open(&scratch.tables()).unwrap();
        for _ in 0..100 {
            compare(&model, &rocks, &mut random);
        }
    }
}

#[test]
fn parents_come_before_children_in_a_subtree() {
    let scratch = Scratch::new();
    let rocks = Rocks::open(&scratch.tables()).unwrap();
    let mut random = Random(99);
    for n in 0..300 {
        let path = path(&mut random);
        let put = Change::Put {
            path,
            record: record(n),
        };
        rocks.apply(&[put]).unwrap();
    }
    let all = rocks.subtree(&TreePath::root()).unwrap();
    for (i, (path, _)) in all.iter().enumerate() {
        let parent = path.parent();
        assert!(
            all[i + 1..].iter().all(|(later, _)| *later != parent),
            "{parent:?} after {path:?}"
        );
    }
}

#[test]
fn a_damaged_record_is_an_error() {
    let scratch = Scratch::new();
    {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let families = ["global", "local", "mark", "meta"];
        let db = rocksdb::DB::open_cf(&options, scratch.tables(), families).unwrap();
        db.put_cf(db.cf_handle("global").unwrap(), b"\0a", b"nonsense")
            .unwrap();
        db.put_cf(db.cf_handle("mark").unwrap(), b"d1", b"x")
            .unwrap();
    }
    let rocks = Rocks::open(&scratch.tables()).unwrap();
    let a = TreePath::new(*b"a").unwrap();
    assert!(rocks.get(&a).is_err());
    assert!(rocks.children(&TreePath::root(), None, 9).is_err());
    assert!(rocks.subtree(&TreePath::root()).is_err());
    assert!(rocks.marks().is_err());
}

#[test]
fn a_damaged_database_is_an_error() {
    for damage in ["CURRENT", "MANIFEST", ".sst"] {
        let scratch = Scratch::new();
        for life in 0..2 {
            let rocks = Rocks::open(&scratch.tables()).unwrap();
            for n in 0..50 {
                let path = TreePath::new(format!("{life}-{n}").into_bytes()).unwrap();
                let put = Change::Put {
                    path,
                    record: record(n),
                };
                rocks.apply(&[put]).unwrap();
            }
        }
        let mut hit = 0;
        for entry in std::fs::read_dir(scratch.tables()).unwrap() {
            let file = entry.unwrap().path();
            if file.to_string_lossy().contains(damage) {
                let bytes = std::fs::read(&file).unwrap();
                let broken: Vec<u8> = bytes.iter().map(|b| b ^ 0x5a).collect();
                std::fs::write(&file, broken).unwrap();
                hit += 1;
            }
        }
        assert!(hit > 0, "nothing like {damage} to damage");
        let outcome = Rocks::open(&scratch.tables())
            .and_then(|rocks| rocks.subtree(&TreePath::root()).map(|_| ()));
        assert!(outcome.is_err(), "{damage}");
    }
}

#[test]
fn a_database_has_one_user_at_a_time() {
    let scratch = Scratch::new();
    let _first = Rocks::open(&scratch.tables()).unwrap();
    assert!(Rocks::open(&scratch.tables()).is_err());
}

/// Tables that end with nothing, shared by the lives of a journal before them.
#[derive(Clone, Default)]
struct Disk {
    tables: Arc<Memory>,
    /// What a power loss leaves of them.
    durable: Arc<Mutex<Memory>>,
    /// What becomes of the next write of a journal: 0 it works, 1 it fails, 2 it fails although
    /// it has been carried out, 3 it is carried out and can't be made durable.
    trouble: Arc<AtomicU32>,
    /// What happens while the next page is read, as soon as later writes make no difference to it.
    meanwhile: Arc<Mutex<Option<Meanwhile>>>,
}

type Meanwhile = Box<dyn FnOnce() + Send>;

impl Disk {
    /// What was written and not flushed is lost, or is not. True if it is.
    fn lose_power(&self, random: &mut Random) -> bool {
        let is_lost = random.below(2) == 0;
        if is_lost {
            self.tables.become_like(&self.durable.lock());
        }
        is_lost
    }

    fn write_down(&self) {
        self.durable.lock().become_like(&self.tables);
    }
}

impl Base for Disk {
    fn admit(&self, _adds: &dyn Fn() -> Result<bool, TableError>) -> Result<(), TableError> {
        Ok(())
    }
    fn write_net(&self, net: &Net) -> Result<(), TableError> {
        match self.trouble.load(Ordering::Relaxed) {
            1 => return Err(TableError::no_space()),
            2 => self.tables.write_net(net)?,
            _ => return self.tables.write_net(net),
        }
        Err(TableError::Failed("who knows".into()))
    }
    fn flush(&self) -> Result<(), TableError> {
        match self.trouble.load(Ordering::Relaxed) {
            3 => return Err(TableError::Failed("the disk".into())),
            _ => self.write_down(),
        }
        Ok(())
    }
    fn page_of_now(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
        seen: &mut dyn FnMut(),
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        let page = self.page(after, order, limit);
        seen();
        let meanwhile = self.meanwhile.lock().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        page
    }
}

impl Tables for Disk {
    fn get(&self, path: &TreePath) -> Result<Option<PathRecord>, TableError> {
        self.tables.get(path)
    }
    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, PathRecord)>, TableError> {
        self.tables.children(dir, after, limit)
    }
    fn page_below(
        &self,
        dir: &TreePath,
        after: Option<&TreePath>,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        self.tables.page_below(dir, after, limit)
    }
    fn page(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        self.tables.page(after, order, limit)
    }

    fn names_of(&self, oid: ObjectId) -> Result<Vec<(ObjectName, TreePath)>, TableError> {
        self.tables.names_of(oid)
    }

    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError> {
        self.tables.path_of(object)
    }
    fn marks(&self) -> Result<Marks, TableError> {
        self.tables.marks()
    }
    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        self.tables.meta(key)
    }
    fn metas(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, TableError> {
        self.tables.metas(prefix)
    }
}

impl WriteTables for Disk {
    fn apply(&self, batch: &[Change]) -> Result<(), TableError> {
        self.tables.apply(batch)?;
        self.write_down();
        Ok(())
    }
}

#[test]
fn a_journal_survives_crashes_and_trouble_below_it() {
    for seed in 1..=40 {
        let scratch = Scratch::new();
        let dir = scratch.tables();
        let mut random = Random(seed);
        let (model, disk) = (Memory::new(), Disk::default());
        for life in 0..20 {
            let journaled = Journaled::new(disk.clone(), &dir, LIFE).unwrap();
            for _ in 0..4 {
                compare(&model, &journaled, &mut random);
            }
            for _ in 0..random.below(12) {
                let mut batch = batch(&mut random);
                if random.below(16) == 0 {
                    // More than an entry of the journal should hold.
                    batch.push(Change::Meta {
                        key: b"key6".to_vec(),
                        value: Some(vec![life; 300 << 10]),
                    });
                }
                let trouble = random.below(4) as u32;
                disk.trouble.store(trouble, Ordering::Relaxed);
                if random.below(3) == 0 {
                    let _ = journaled.sync();
                }
                if journaled.apply(&batch).is_ok() {
                    model.apply(&batch).unwrap();
                } else {
                    assert_ne!(trouble, 0);
                }
                compare(&model, &journaled, &mut random);
            }
            // A crash: the next life finds what is in the file and below it.
        }
    }
}

fn name(n: u64) -> TreePath {
    TreePath::new(format!("f{n}").into_bytes()).unwrap()
}

fn put(n: u64) -> [Change; 1] {
    [Change::Put {
        path: name(n),
        record: record(n),
    }]
}

fn names(tables: &impl Tables) -> usize {
    tables.subtree(&TreePath::root()).unwrap().len()
}

#[test]
fn damage_to_the_journal_takes_a_suffix_and_is_said_until_it_is_dealt_with() {
    let scratch = Scratch::new();
    let dir = scratch.tables();
    let disk = Disk::default();
    let journaled = Journaled::new(disk.clone(), &dir, LIFE).unwrap();
    for n in 0..10 {
        journaled.apply(&put(n)).unwrap();
    }
    drop(journaled);
    let file = dir.join("journal.0");
    let bytes = std::fs::read(&file).unwrap();
    let end = bytes.iter().rposition(|&b| b != 0).unwrap();
    for at in (64..=end).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        std::fs::write(&file, damaged).unwrap();
        for _ in 0..2 {
            let journaled = Journaled::new(disk.clone(), &dir, LIFE).unwrap();
            let names = names(&journaled);
            assert!(names < 10, "{at}");
            let is_suffix =
                (0..10).all(|n| journaled.get(&name(n)).unwrap().is_some() == (n < names as u64));
            assert!(is_suffix, "{at}");
            assert_eq!(Loss::of(&journaled), Ok(Some(Loss::Torn)), "{at}");
        }
        let journaled = Journaled::new(disk.clone(), &dir, LIFE).unwrap();
        journaled.apply(&[Loss::dealt_with().into()]).unwrap();
        drop(journaled);
        let journaled = Journaled::new(disk.clone(), &dir, LIFE).unwrap();
        assert_eq!(Loss::of(&journaled), Ok(None), "{at}");
    }
}

#[test]
fn after_a_power_loss_the_tables_are_those_of_the_last_sync_point() {
    for seed in 1..=30 {
        let scratch = Scratch::new();
        let mut random = Random(seed);
        let (mut model, disk) = (Memory::new(), Disk::default());
        for life in 0..12 {
            let journaled = Journaled::new(disk.clone(), &scratch.tables(), [life; 16]).unwrap();
            if life == 0 {
                // As each bridge does before it serves.
                journaled.apply(&put(1)).unwrap();
                journaled.sync().unwrap();
                model.apply(&put(1)).unwrap();
            } else {
                assert_eq!(Loss::of(&journaled), Ok(Some(Loss::Power)));
                journaled.apply(&[Loss::dealt_with().into()]).unwrap();
                journaled.sync().unwrap();
            }
            let mut synced = model.clone();
            let mut tried = Vec::new();
            for _ in 0..random.below(20) {
                let batch = batch(&mut random);
                journaled.apply(&batch).unwrap();
                model.apply(&batch).unwrap();
                if random.below(4) == 0 {
                    let trouble = [0, 1, 3][random.below(3) as usize];
                    disk.trouble.store(trouble, Ordering::Relaxed);
                    let mut is_written = false;
                    match journaled.sync_telling(&mut || is_written = true) {
                        Ok(()) => (synced, tried) = (model.clone(), Vec::new()),
                        Err(_) => tried.push(model.clone()),
                    }
                    assert!(!is_written || trouble != 1);
                    disk.trouble.store(0, Ordering::Relaxed);
                }
                compare(&model, &journaled, &mut random);
            }
            drop(journaled);
            let is_lost = disk.lose_power(&mut random);
            let all = |tables: &dyn Tables| {
                let records = tables.subtree(&TreePath::root());
                (records, tables.marks(), tables.metas(b"key"))
            };
            let same = |one: &Memory| all(one) == all(&disk);
            // The last sync point, or a later one that was written and can't have been told of.
            model = match tried.into_iter().rfind(same) {
                Some(later) if !is_lost => later,
                _ => synced,
            };
            let lost = Journaled::new(disk.clone(), &scratch.tables(), [100 + life; 16]).unwrap();
            for _ in 0..20 {
                compare(&model, &lost, &mut random);
            }
        }
    }
}

#[test]
fn an_entry_that_is_whole_but_no_sound_batch_is_an_error_that_says_why() {
    let scratch = Scratch::new();
    let dir = scratch.tables();
    let journaled = Journaled::new(Disk::default(), &dir, LIFE).unwrap();
    let path = TreePath::new(*b"twice").unwrap();
    let deletion = Change::Delete {
        path,
        object: object(1),
    };
    journaled.apply(&[deletion.clone(), deletion]).unwrap();
    drop(journaled);
    let error = Journaled::new(Disk::default(), &dir, LIFE).err().unwrap();
    let text = error.to_string();
    assert!(text.contains("twice is deleted twice"), "{text}");
}

#[test]
fn more_names_than_a_journal_holds_reach_the_tables_below() {
    let scratch = Scratch::new();
    let dir = scratch.tables();
    let disk = Disk::default();
    let journaled = Journaled::new(disk.clone(), &dir, LIFE).unwrap();
    const NAMES: usize = 100_000;
    for n in 0..NAMES {
        journaled.apply(&put(n as u64)).unwrap();
    }
    assert!(names(&disk) > NAMES / 4);
    assert_eq!(names(&journaled), NAMES);
    drop(journaled);
    assert_eq!(names(&Journaled::new(disk, &dir, LIFE).unwrap()), NAMES);
}

#[test]
fn a_page_holds_up_no_change_and_shows_none_that_came_meanwhile() {
    let scratch = Scratch::new();
    let disk = Disk::default();
    let journaled = Journaled::new(disk.clone(), scratch.0.path(), LIFE).unwrap();
    let journaled = Arc::new(journaled);
    journaled.apply(&put(1)).unwrap();
    let theirs = journaled.clone();
    *disk.meanwhile.lock() = Some(Box::new(move || {
        let (tell, hear) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            theirs.apply(&put(2)).unwrap();
            theirs.sync().unwrap();
            tell.send(()).unwrap();
        });
        let patience = std::time::Duration::from_secs(60);
        hear.recv_timeout(patience).expect("the change goes on");
    }));
    let page = || journaled.page(None, Order::ParentsFirst, 10).unwrap();
    assert_eq!(page().len(), 1);
    assert_eq!(page().len(), 2);

    let rocks = Rocks::open(&scratch.0.path().join("rocks")).unwrap();
    rocks.apply(&put(1)).unwrap();
    let mut change = || rocks.apply(&put(2)).unwrap();
    let page = rocks.page_of_now(None, Order::ChildrenFirst, 10, &mut change);
    assert_eq!(page.unwrap().len(), 1);
}

#[test]
fn when_the_tables_below_are_full_names_are_refused_and_removals_have_room() {
    let scratch = Scratch::new();
    let disk = Disk::default();
    let journaled = Journaled::new(disk.clone(), &scratch.tables(), LIFE).unwrap();
    disk.trouble.store(1, Ordering::Relaxed);
    let taken = (0..1_000_000)
        .take_while(|n| journaled.apply(&put(*n)).is_ok())
        .count() as u64;
    assert!(taken > 200);
    for n in 0..100 {
        let delete = Change::Delete {
            path: TreePath::new(format!("f{n}").into_bytes()).unwrap(),
            object: object(n),
        };
        journaled.apply(&[delete]).unwrap();
        assert!(journaled.apply(&put(n)).is_err_and(|e| e.is_no_space()));
    }
    assert_eq!(names(&journaled) as u64, taken - 100);
    disk.trouble.store(0, Ordering::Relaxed);
    journaled.apply(&put(0)).unwrap();
    assert_eq!(names(&journaled) as u64, taken - 99);
}

#[test]
fn garbage_in_the_file_is_no_entry() {
    let scratch = Scratch::new();
    let dir = scratch.tables();
    let journal = std::fs::File::create(dir.join("journal.0")).unwrap();
    // A journal with nothing in it but what an earlier file has left on the disk.
    journal.write_all_at(b"FBYJ garbage", 4).unwrap();
    let journaled = Journaled::new(Disk::default(), &dir, LIFE).unwrap();
    assert_eq!(Loss::of(&journaled), Ok(None));
    assert_eq!(names(&journaled), 0);
    journaled.apply(&put(1)).unwrap();
    assert_eq!(names(&journaled), 1);
}
