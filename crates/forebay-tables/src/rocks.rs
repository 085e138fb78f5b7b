//! Tables in RocksDB.
//!
//! A batch is on the disk when its write returns, and a net ([`Base::write_net`]) after [`Base::flush`]: the write-ahead log
//! is synced. On file systems that keep the order of changes of names (ext4, XFS) all that was done to files before the
//! write is on the disk then as well, because the log has grown, and its new length is a later change than theirs.
//!
//! After a failed write RocksDB accepts no other, so the database is closed and
//! opened again; see [`Rocks::apply`]. So that this works on a full disk, and
//! removals as well, some space is kept back, see [`crate::reserve`].

use crate::net::{Base, Net, only_adds};
use crate::reserve::Reserve;
use forebay_core::batch;
use forebay_core::path::TreePath;
use forebay_core::record::{BadRecord, ObjectId, ObjectName, PathRecord};
use forebay_core::reserve::Purpose;
use forebay_core::table::{Change, Marks, Order, TableError, Tables, WriteTables};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBIterator, DBRecoveryMode, Direction, IteratorMode, LogLevel, Options, ReadOptions,
    WriteBatch, WriteOptions,
    perf::{self, PerfStatsLevel},
};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Path key to record.
const GLOBAL: &str = "global";
/// Object name to path.
const LOCAL: &str = "local";
/// Unfinished work on objects.
const MARK: &str = "mark";
/// Named values of the bridge.
const META: &str = "meta";

/// Uncompressed blocks kept in memory.
const BLOCK_CACHE_BYTES: usize = 16 << 20;
/// Size of all tables in memory before the largest is written out.
const WRITE_BUFFERS_BYTES: usize = 12 << 20;
/// Size of one of them before it is written out.
const WRITE_BUFFER_BYTES: usize = 8 << 20;
/// Logs beyond this size in sum force the oldest memory table out.
const WAL_LIMIT_BYTES: u64 = 64 << 20;
/// The same when the disk has little room. A log gets no more room than this set aside.
const SHORT_WAL_LIMIT_BYTES: u64 = 2 << 20;
/// Room that the list of the files of the database gets at a time.
const MANIFEST_STEP_BYTES: usize = 64 << 10;
const BLOOM_BITS_PER_KEY: f64 = 10.0;
/// An object name as key: identity, then link number, both big endian.
const OBJECT_KEY_BYTES: usize = 20;

/// Tables in a RocksDB database.
pub struct Rocks {
    dir: PathBuf,
    db: RwLock<State>,
    cache: Cache,
    reserve: Reserve,
    log: Mutex<Option<Log>>,
}

/// What RocksDB says as a kind of error. Its errors carry no error number: that there is no space shows in
/// the words of `strerror`, which are those of the C locale because nothing here ever sets another one.
fn failed(e: rocksdb::Error) -> TableError {
    const NO_SPACE: [&str; 2] = ["No space left on device", "Disk quota exceeded"];
    let said = e.into_string();
    if NO_SPACE.iter().any(|words| said.contains(words)) {
        TableError::NoSpace(said)
    } else {
        TableError::Failed(said)
    }
}

fn bad_record(why: BadRecord, key: &[u8]) -> TableError {
    TableError::unread("record", format!("key {}", key.escape_ascii()), why)
}

/// Are tables in `dir`? Where they are not, [`Rocks::open`] makes new ones.
pub fn are_in(dir: &Path) -> bool {
    // The file that names the state of the database. RocksDB makes a new database where it is missing.
    dir.join("CURRENT").exists()
}

impl Rocks {
    /// Opens the database in `dir`, or makes one, to serve programs. Keeps files beside it.
    ///
    /// # Errors
    /// RocksDB can't open it: damaged, locked by another process, no space.
    pub fn open(dir: &Path) -> Result<Self, TableError> {
        Rocks::open_for(dir, Purpose::Serve)
    }

    /// [`Rocks::open`] for this purpose.
    ///
    /// # Errors
    /// As [`Rocks::open`].
    pub fn open_for(dir: &Path, purpose: Purpose) -> Result<Self, TableError> {
        let rocks = Rocks {
            dir: dir.to_owned(),
            db: RwLock::new(State::Closed),
            cache: Cache::new_lru_cache(BLOCK_CACHE_BYTES).map_err(failed)?,
            reserve: Reserve::beside(dir, purpose),
            log: Mutex::default(),
        };
        // To open the database takes room.
        rocks.reserve.restore();
        rocks.open_again()?;
        Ok(rocks)
    }

    /// Says what the tables are for from now on: it decides which part of the reserve they may spend.
    pub fn serve_for(&self, purpose: Purpose) {
        self.reserve.serve_for(purpose);
    }

    /// Opens the database, after closing it if it is open. On a full disk it takes what it may of the
    /// reserve; if even that is not enough, the database can at least be read.
    fn open_again(&self) -> Result<(), TableError> {
        let mut place = self.db.write();
        *place = State::Closed;
        let open = || {
            let is_short = self.reserve.is_released();
            open_database(&self.dir, &self.cache, Access::Write { is_short })
        };
        let mut opened = open();
        if opened.as_ref().is_err_and(TableError::is_no_space) && self.reserve.release() {
            opened = open();
        }
        match opened {
            Ok(db) => {
                *place = State::Open(db);
                Ok(())
            }
            Err(e) => {
                *place = State::ReadOnly(open_database(&self.dir, &self.cache, Access::Read)?);
                Err(e)
            }
        }
    }

    fn db(&self) -> Result<Open<'_>, TableError> {
        // RocksDB counts each comparison of keys, by thread, if it is not told otherwise: a tenth of a write.
        perf::set_perf_stats(PerfStatsLevel::Disable);
        let guard = self.db.read();
        if !matches!(*guard, State::Closed) {
            return Ok(Open(guard));
        }
        drop(guard);
        self.open_again()?;
        Ok(Open(self.db.read()))
    }

    fn write(
        &self,
        is_synced: bool,
        encode: impl Fn(&DB) -> Result<WriteBatch, TableError>,
    ) -> Result<(), TableError> {
        let mut options = WriteOptions::default();
        options.set_sync(is_synced);
        let open = self.db()?;
        let db = open.db()?;
        db.write_opt(encode(db)?, &options).map_err(failed)
    }

    /// Writes the pages of the log out, so that the file system can make their place in the file durable together with
    /// other changes. This is advice: [`Base::flush`] does all that is needed.
    fn write_log_out(&self) {
        let mut log = self.log.lock();
        let has_grown = log.as_mut().is_some_and(Log::has_grown);
        if !has_grown {
            *log = Log::last_in(&self.dir);
        }
        if let Some(log) = &*log {
            let _ = forebay_sys::write_out(log.file.as_fd());
        }
    }
}

/// The write-ahead log that RocksDB writes to.
struct Log {
    file: File,
    bytes: u64,
}

impl Log {
    fn last_in(dir: &Path) -> Option<Self> {
        let paths = std::fs::read_dir(dir)
            .ok()?
            .flatten()
            .map(|file| file.path());
        let logs = paths.filter(|path| path.extension().is_some_and(|e| e == "log"));
        // Their names are numbers of the same length.
        let file = File::open(logs.max()?).ok()?;
        let bytes = file.metadata().ok()?.len();
        Some(Log { file, bytes })
    }

    /// Has it grown since the last look? Else it is the last one no more.
    fn has_grown(&mut self) -> bool {
        let bytes = self.file.metadata().map_or(0, |m| m.len());
        std::mem::replace(&mut self.bytes, bytes) < bytes
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        *self.db.get_mut() = State::Closed;
        self.reserve.leave();
    }
}

impl Base for Rocks {
    fn admit(&self, adds: &dyn Fn() -> Result<bool, TableError>) -> Result<(), TableError> {
        if !self.reserve.is_released() {
            return Ok(());
        }
        let restored = self.reserve.restore();
        let is_open = matches!(*self.db.read(), State::Open(_));
        if !is_open {
            if !restored && self.reserve.purpose() == Purpose::Serve {
                return Err(TableError::no_space());
            }
            self.open_again()?;
        }
        match restored || !adds()? {
            true => Ok(()),
            false => Err(TableError::no_space()),
        }
    }

    fn write_net(&self, net: &Net) -> Result<(), TableError> {
        let encode = |db: &DB| encode_net(db, net);
        self.write(false, encode).or_else(|_| {
            self.open_again()?;
            self.write(false, encode)
        })?;
        self.write_log_out();
        Ok(())
    }

    fn flush(&self) -> Result<(), TableError> {
        let flushed = self.db()?.db()?.flush_wal(true).map_err(failed);
        // A second attempt might succeed without the pages that the first one has dropped. Opening writes them anew.
        flushed.or_else(|e| self.open_again().and(Err(e)))
    }

    fn page_of_now(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
        seen: &mut dyn FnMut(),
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        let from = after.map(TreePath::key);
        let (direction, end) = match order {
            Order::ParentsFirst => (Direction::Forward, IteratorMode::Start),
            Order::ChildrenFirst => (Direction::Reverse, IteratorMode::End),
        };
        let mode = from
            .as_ref()
            .map_or(end, |from| IteratorMode::From(from, direction));
        let open = self.db()?;
        let db = open.db()?;
        let mut found = Vec::new();
        // An iterator shows what was there when it was made.
        let entries = db.iterator_cf(family(db, GLOBAL)?, mode);
        seen();
        for entry in entries {
            let (key, value) = entry.map_err(failed)?;
            if found.len() == limit {
                break;
            }
            if from.as_deref() == Some(&*key) {
                continue;
            }
            let path = TreePath::from_key(&key).ok_or_else(|| TableError::damaged("path", &key))?;
            let record = PathRecord::decode(&value).map_err(|why| bad_record(why, &key))?;
            found.push((path, record));
        }
        Ok(found)
    }
}

enum State {
    Open(DB),
    /// True if the database is open for reading alone, for want of space.
    ReadOnly(DB),
    Closed,
}

/// The database while nobody closes it.
struct Open<'a>(RwLockReadGuard<'a, State>);

impl Open<'_> {
    fn db(&self) -> Result<&DB, TableError> {
        match &*self.0 {
            State::Open(db) | State::ReadOnly(db) => Ok(db),
            State::Closed => Err(TableError::Failed(
                "the database could not be opened again".into(),
            )),
        }
    }
}

/// A file system in memory, and the beginning of names there.
const IN_MEMORY: &str = "/dev/shm";
const MESSAGES: &str = "forebay-";

/// The beginning of names of processes that this one can see: a number says something only in its PID namespace, and those of
/// other containers may share the memory.
fn own_messages() -> String {
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
    format!("{MESSAGES}{namespace:x}-")
}

/// Names that are tried for a directory in memory.
const MOST_NAMES: u32 = 100;

enum Access {
    Read,
    /// `is_short`: the disk has little room.
    Write {
        is_short: bool,
    },
}

/// Where RocksDB writes messages while it opens: in memory, and gone when it is open. On
/// the disk of the tables, a message that finds no space would end the process. Errors are
/// not lost: they come back from the calls, and the bridge logs them.
struct MessageLog(PathBuf);

impl MessageLog {
    /// `None` where there is no memory for it. Everybody may write there, so the directory is made here or not used.
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self::sweep();
        (0..MOST_NAMES).find_map(|_| {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}{}-{count}", own_messages(), std::process::id());
            let dir = Path::new(IN_MEMORY).join(name);
            let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
            made.is_ok().then_some(MessageLog(dir))
        })
    }

    /// Removes those of processes of this user that were killed while they opened their tables.
    fn sweep() {
        let Ok(entries) = std::fs::read_dir(IN_MEMORY) else {
            return;
        };
        let own = own_messages();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let parts = name.to_str().and_then(|name| {
                let (pid, count) = name.strip_prefix(&own)?.split_once('-')?;
                Some((pid.parse::<u32>().ok()?, count.parse::<u32>().ok()?))
            });
            let Some((pid, _)) = parts else {
                continue;
            };
            let is_gone = !Path::new("/proc").join(pid.to_string()).exists();
            let is_own =
                |meta: std::fs::Metadata| meta.is_dir() && meta.uid() == forebay_sys::my_ids().0;
            if is_gone && entry.metadata().is_ok_and(is_own) {
                // Nothing is lost if it stays.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Drop for MessageLog {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open_database(dir: &Path, cache: &Cache, access: Access) -> Result<DB, TableError> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_db_write_buffer_size(WRITE_BUFFERS_BYTES);
    // RocksDB sets room aside by these: 4 MiB for the list of its files, if not told otherwise.
    options.set_manifest_preallocation_size(MANIFEST_STEP_BYTES);
    options.set_max_total_wal_size(match access {
        Access::Write { is_short: true } => SHORT_WAL_LIMIT_BYTES,
        _ => WAL_LIMIT_BYTES,
    });
    // One writer at a time, under the namespace lock: the machinery for more only costs.
    options.set_allow_concurrent_memtable_write(false);
    options.set_enable_write_thread_adaptive_yield(false);
    // The last write may be there in parts, if the power failed before it was synced. It was not acknowledged then, and
    // comes last. The number of the lap, which each write has, tells the journal if more than that is missing.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options.set_log_level(LogLevel::Header);
    let log = MessageLog::new();
    if let Some(log) = &log {
        options.set_db_log_dir(&log.0);
    }
    let families = [GLOBAL, LOCAL, MARK, META].map(|name| {
        ColumnFamilyDescriptor::new(name, {
            let mut o = Options::default();
            o.set_block_based_table_factory(&table);
            o.set_compression_type(DBCompressionType::None);
            o.set_write_buffer_size(WRITE_BUFFER_BYTES);
            o
        })
    });
    match access {
        Access::Write { .. } => DB::open_cf_descriptors(&options, dir, families),
        Access::Read => DB::open_cf_descriptors_read_only(&options, dir, families, false),
    }
    .map_err(failed)
}

fn family<'a>(db: &'a DB, name: &str) -> Result<&'a ColumnFamily, TableError> {
    db.cf_handle(name)
        .ok_or_else(|| TableError::Failed(format!("no column family {name}")))
}

/// Entries of a family whose keys begin with `prefix`, from `from` on.
fn range<'a>(
    db: &'a DB,
    name: &str,
    prefix: &[u8],
    from: &[u8],
) -> Result<DBIterator<'a>, TableError> {
    let mut options = ReadOptions::default();
    if let Some(end) = end_of_prefix(prefix) {
        options.set_iterate_upper_bound(end);
    }
    let mode = IteratorMode::From(from, Direction::Forward);
    Ok(db.iterator_cf_opt(family(db, name)?, options, mode))
}

fn encode(db: &DB, batch: &[Change]) -> Result<WriteBatch, TableError> {
    let (global, local) = (family(db, GLOBAL)?, family(db, LOCAL)?);
    let (mark, meta) = (family(db, MARK)?, family(db, META)?);
    let mut writes = WriteBatch::default();
    for change in batch {
        match change {
            Change::Put { path, record } => {
                writes.put_cf(global, path.key(), record.encode());
                writes.put_cf(local, object_key(record.object), path.as_bytes());
            }
            Change::Delete { path, object } => {
                writes.delete_cf(global, path.key());
                writes.delete_cf(local, object_key(*object));
            }
            Change::Doom(object) => {
                writes.put_cf(mark, mark_key(DOOMED, *object), DOOMED_VALUE);
            }
            Change::Undoom(object) => writes.delete_cf(mark, mark_key(DOOMED, *object)),
            Change::Relabel(object) => {
                writes.put_cf(mark, mark_key(RELABEL, *object), b"");
            }
            Change::Relabeled(object) => writes.delete_cf(mark, mark_key(RELABEL, *object)),
            Change::Meta { key, value } => match value {
                Some(v) => writes.put_cf(meta, key, v),
                None => writes.delete_cf(meta, key),
            },
        }
    }
    Ok(writes)
}

/// In the order of the keys: the store finds the place of a key beside that of the last one.
fn sorted<V>(map: &HashMap<ObjectName, V>) -> Vec<(&ObjectName, &V)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(object, _)| **object);
    entries
}

fn encode_net(db: &DB, net: &Net) -> Result<WriteBatch, TableError> {
    let (global, local) = (family(db, GLOBAL)?, family(db, LOCAL)?);
    let (mark, meta) = (family(db, MARK)?, family(db, META)?);
    let mut writes = WriteBatch::default();
    for (key, (_, record)) in &net.records {
        match record {
            Some(record) => writes.put_cf(global, key, record.encode()),
            None => writes.delete_cf(global, key),
        }
    }
    for (object, path) in sorted(&net.paths) {
        match path {
            Some(path) => writes.put_cf(local, object_key(*object), path.as_bytes()),
            None => writes.delete_cf(local, object_key(*object)),
        }
    }
    for (object, is_doomed) in sorted(&net.doomed) {
        match is_doomed {
            true => writes.put_cf(mark, mark_key(DOOMED, *object), DOOMED_VALUE),
            false => writes.delete_cf(mark, mark_key(DOOMED, *object)),
        }
    }
    for (object, wanted) in sorted(&net.relabel) {
        match wanted {
            true => writes.put_cf(mark, mark_key(RELABEL, *object), b""),
            false => writes.delete_cf(mark, mark_key(RELABEL, *object)),
        }
    }
    for (key, value) in &net.meta {
        match value {
            Some(value) => writes.put_cf(meta, key, value),
            None => writes.delete_cf(meta, key),
        }
    }
    Ok(writes)
}

/// The first key greater than all that begin with `prefix`.
fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=keep].to_vec();
    end[keep] += 1;
    Some(end)
}

fn object_key(object: ObjectName) -> [u8; OBJECT_KEY_BYTES] {
    let mut key = [0; OBJECT_KEY_BYTES];
    key[..16].copy_from_slice(&object.oid.0.to_be_bytes());
    key[16..].copy_from_slice(&object.link.to_be_bytes());
    key
}

fn object_of_key(key: &[u8]) -> Option<ObjectName> {
    let (oid, link) = key.split_first_chunk::<16>()?;
    Some(ObjectName {
        oid: ObjectId(u128::from_be_bytes(*oid)),
        link: u32::from_be_bytes(link.try_into().ok()?),
    })
}

fn mark_key(mark: u8, object: ObjectName) -> [u8; OBJECT_KEY_BYTES + 1] {
    let mut key = [mark; OBJECT_KEY_BYTES + 1];
    key[1..].copy_from_slice(&object_key(object));
    key
}

const DOOMED: u8 = b'd';
const RELABEL: u8 = b'r';

/// Value of a doom mark. Earlier programs wrote the token of a request here, and read one; nobody needs it.
const DOOMED_VALUE: [u8; 12] = [0; 12];

impl Tables for Rocks {
    fn get(&self, path: &TreePath) -> Result<Option<PathRecord>, TableError> {
        let key = path.key();
        let open = self.db()?;
        let db = open.db()?;
        db.get_pinned_cf(family(db, GLOBAL)?, &key)
            .map_err(failed)?
            .map(|v| PathRecord::decode(&v).map_err(|e| bad_record(e, &key)))
            .transpose()
    }

    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, PathRecord)>, TableError> {
        let mut prefix = dir.as_bytes().to_vec();
        prefix.push(0);
        let mut from = prefix.clone();
        from.extend_from_slice(after.unwrap_or_default());
        let mut found = Vec::new();
        let open = self.db()?;
        for entry in range(open.db()?, GLOBAL, &prefix, &from)? {
            let (key, value) = entry.map_err(failed)?;
            if found.len() == limit {
                break;
            }
            // The bound itself was seen already; without one it is the root's own key.
            if *key == *from {
                continue;
            }
            let record = PathRecord::decode(&value).map_err(|e| bad_record(e, &key))?;
            found.push((key[prefix.len()..].to_vec(), record));
        }
        batch::assert_page(&found, after, limit);
        Ok(found)
    }

    fn page_below(
        &self,
        dir: &TreePath,
        after: Option<&TreePath>,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        let mut found = Vec::new();
        // Direct children have the key `dir NUL name`, all others begin with `dir/`.
        let prefixes: &[Vec<u8>] = if dir.is_root() {
            &[Vec::new()]
        } else {
            &[
                [dir.as_bytes(), b"\0"].concat(),
                [dir.as_bytes(), b"/"].concat(),
            ]
        };
        let after = after.map(TreePath::key).unwrap_or_default();
        let open = self.db()?;
        for prefix in prefixes {
            if after.as_slice() > prefix.as_slice() && !after.starts_with(prefix) {
                continue;
            }
            let from = prefix.max(&after);
            for entry in range(open.db()?, GLOBAL, prefix, from)? {
                let (key, value) = entry.map_err(failed)?;
                if found.len() == limit {
                    return Ok(found);
                }
                let path =
                    TreePath::from_key(&key).ok_or_else(|| TableError::damaged("path", &key))?;
                // The bound itself was seen already.
                if path == *dir || *key == *after {
                    continue;
                }
                let record = PathRecord::decode(&value).map_err(|e| bad_record(e, &key))?;
                found.push((path, record));
            }
        }
        Ok(found)
    }

    fn page(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        self.page_of_now(after, order, limit, &mut || {})
    }

    fn names_of(&self, oid: ObjectId) -> Result<Vec<(ObjectName, TreePath)>, TableError> {
        let mut found = Vec::new();
        let prefix = oid.0.to_be_bytes();
        let open = self.db()?;
        for entry in range(open.db()?, LOCAL, &prefix, &prefix)? {
            let (key, value) = entry.map_err(failed)?;
            let object = object_of_key(&key)
                .ok_or_else(|| TableError::damaged("name of an object", &key))?;
            let path = TreePath::new(&*value)
                .ok_or_else(|| TableError::damaged("path of an object", &key))?;
            found.push((object, path));
        }
        Ok(found)
    }

    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError> {
        let key = object_key(object);
        let open = self.db()?;
        let db = open.db()?;
        db.get_pinned_cf(family(db, LOCAL)?, key)
            .map_err(failed)?
            .map(|v| {
                TreePath::new(&*v).ok_or_else(|| TableError::damaged("path of an object", &key))
            })
            .transpose()
    }

    fn marks(&self) -> Result<Marks, TableError> {
        let mut marks = Marks::default();
        let open = self.db()?;
        for entry in range(open.db()?, MARK, b"", b"")? {
            let (key, value) = entry.map_err(failed)?;
            let bad = || TableError::damaged("mark", &key);
            let (mark, object) = key.split_first().ok_or_else(bad)?;
            let object = object_of_key(object).ok_or_else(bad)?;
            match *mark {
                DOOMED if value.len() == DOOMED_VALUE.len() => marks.doomed.push(object),
                RELABEL => marks.relabel.push(object),
                _ => return Err(bad()),
            }
        }
        Ok(marks)
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        let open = self.db()?;
        let db = open.db()?;
        db.get_cf(family(db, META)?, key).map_err(failed)
    }

    fn metas(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, TableError> {
        let open = self.db()?;
        range(open.db()?, META, prefix, prefix)?
            .map(|e| e.map(|(k, v)| (k.into_vec(), v.into_vec())).map_err(failed))
            .collect()
    }
}

impl WriteTables for Rocks {
    /// Writes a batch. If RocksDB can't, it is closed, opened, and tried once more; a batch
    /// that was written in spite of the error is only written again.
    fn apply(&self, batch: &[Change]) -> Result<(), TableError> {
        let encode = |db: &DB| encode(db, batch);
        let adds = || only_adds(self, batch);
        self.admit(&adds)?;
        self.write(true, encode).or_else(|_| {
            self.open_again()?;
            self.admit(&adds)?;
            self.write(true, encode)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_process_that_was_killed_go_with_the_next_one_that_opens_tables() {
        let mut killed = std::process::Command::new("true").spawn().unwrap();
        killed.wait().unwrap();
        let of = |pid: u32| Path::new(IN_MEMORY).join(format!("{}{pid}-4711", own_messages()));
        let (dead, alive) = (of(killed.id()), of(std::process::id()));
        // Its number means nothing here.
        let elsewhere = format!("{MESSAGES}0-{}-4711", killed.id());
        let elsewhere = Path::new(IN_MEMORY).join(elsewhere);
        for dir in [&dead, &alive, &elsewhere] {
            std::fs::create_dir(dir).unwrap();
            std::fs::write(dir.join("LOG"), "x").unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        drop(Rocks::open(dir.path()).unwrap());
        assert!(!dead.exists());
        for dir in [&alive, &elsewhere] {
            assert!(dir.exists());
            std::fs::remove_dir_all(dir).unwrap();
        }
    }
}
