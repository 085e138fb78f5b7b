//! Tables in RocksDB.
//!
//! The write-ahead log is on and never flushed by hand: a batch is in the page
//! cache when `apply` returns, so it survives the death of the process. It need
//! not survive the death of the machine, and so nothing waits for the disk.

use forebay_core::path::TreePath;
use forebay_core::record::{ObjectId, ObjectName, Record, Token};
use forebay_core::table::{Change, Marks, TableError, Tables};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBIterator, DBRecoveryMode, Direction, IteratorMode, LogLevel, Options, ReadOptions,
    WriteBatch, WriteOptions,
};
use std::path::Path;

/// Path key to record.
const GLOBAL: &str = "global";
/// Object name to path.
const LOCAL: &str = "local";
/// Unfinished work on objects.
const MARK: &str = "mark";
/// Named values of the bridge.
const META: &str = "meta";

/// Uncompressed blocks kept in memory.
const BLOCK_CACHE_BYTES: usize = 64 << 20;
/// Size of a table in memory before it is written out.
const WRITE_BUFFER_BYTES: usize = 32 << 20;
/// Logs beyond this size in sum force the oldest memory table out.
const WAL_LIMIT_BYTES: u64 = 256 << 20;
const BLOOM_BITS_PER_KEY: f64 = 10.0;
/// An object name as key: identity, then link number, both big endian.
const OBJECT_KEY_BYTES: usize = 20;

/// Tables in a RocksDB database.
pub struct Rocks {
    db: DB,
    write: WriteOptions,
}

fn failed(e: rocksdb::Error) -> TableError {
    TableError(e.into_string())
}

fn damaged(what: &str, key: &[u8]) -> TableError {
    TableError(format!("damaged {what} at key {}", key.escape_ascii()))
}

impl Rocks {
    /// Opens the database in `dir`, or makes one.
    ///
    /// # Errors
    /// RocksDB can't open it: damaged, locked by another process, no space.
    pub fn open(dir: &Path) -> Result<Self, TableError> {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&Cache::new_lru_cache(BLOCK_CACHE_BYTES).map_err(failed)?);
        table.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_block_based_table_factory(&table);
        options.set_compression_type(DBCompressionType::None);
        options.set_write_buffer_size(WRITE_BUFFER_BYTES);
        options.set_max_total_wal_size(WAL_LIMIT_BYTES);
        // One writer at a time, under the namespace lock: the machinery for more only costs.
        options.set_allow_concurrent_memtable_write(false);
        options.set_enable_write_thread_adaptive_yield(false);
        // A record cut off at the end was never acknowledged; any other damage must be seen.
        options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
        options.set_log_level(LogLevel::Warn);
        options.set_keep_log_file_num(2);
        let families = [GLOBAL, LOCAL, MARK, META].map(|name| {
            ColumnFamilyDescriptor::new(name, {
                let mut o = Options::default();
                o.set_block_based_table_factory(&table);
                o.set_compression_type(DBCompressionType::None);
                o.set_write_buffer_size(WRITE_BUFFER_BYTES);
                o
            })
        });
        let db = DB::open_cf_descriptors(&options, dir, families).map_err(failed)?;
        Ok(Rocks {
            db,
            write: WriteOptions::default(),
        })
    }

    fn family(&self, name: &str) -> Result<&ColumnFamily, TableError> {
        self.db
            .cf_handle(name)
            .ok_or_else(|| TableError(format!("no column family {name}")))
    }

    /// Entries of a family whose keys begin with `prefix`, from `from` on.
    fn range(
        &self,
        family: &str,
        prefix: &[u8],
        from: &[u8],
    ) -> Result<DBIterator<'_>, TableError> {
        let mut options = ReadOptions::default();
        if let Some(end) = end_of_prefix(prefix) {
            options.set_iterate_upper_bound(end);
        }
        let mode = IteratorMode::From(from, Direction::Forward);
        Ok(self.db.iterator_cf_opt(self.family(family)?, options, mode))
    }
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

fn token_bytes(token: Token) -> [u8; 12] {
    let mut b = [0; 12];
    b[..8].copy_from_slice(&token.client.to_le_bytes());
    b[8..].copy_from_slice(&token.seq.to_le_bytes());
    b
}

fn token_of_bytes(bytes: &[u8]) -> Option<Token> {
    let (client, seq) = bytes.split_first_chunk::<8>()?;
    Some(Token {
        client: u64::from_le_bytes(*client),
        seq: u32::from_le_bytes(seq.try_into().ok()?),
    })
}

impl Tables for Rocks {
    fn get(&self, path: &TreePath) -> Result<Option<Record>, TableError> {
        let key = path.key();
        self.db
            .get_pinned_cf(self.family(GLOBAL)?, &key)
            .map_err(failed)?
            .map(|v| Record::decode(&v).map_err(|_| damaged("record", &key)))
            .transpose()
    }

    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Record)>, TableError> {
        let mut prefix = dir.as_bytes().to_vec();
        prefix.push(0);
        let mut from = prefix.clone();
        from.extend_from_slice(after.unwrap_or_default());
        let mut found = Vec::new();
        for entry in self.range(GLOBAL, &prefix, &from)? {
            let (key, value) = entry.map_err(failed)?;
            if found.len() == limit {
                break;
            }
            // The bound itself was seen already; without one it is the root's own key.
            if *key == *from {
                continue;
            }
            let record = Record::decode(&value).map_err(|_| damaged("record", &key))?;
            found.push((key[prefix.len()..].to_vec(), record));
        }
        Ok(found)
    }

    fn subtree(&self, dir: &TreePath) -> Result<Vec<(TreePath, Record)>, TableError> {
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
        for prefix in prefixes {
            for entry in self.range(GLOBAL, prefix, prefix)? {
                let (key, value) = entry.map_err(failed)?;
                let path = TreePath::from_key(&key).ok_or_else(|| damaged("path", &key))?;
                if path == *dir {
                    continue;
                }
                let record = Record::decode(&value).map_err(|_| damaged("record", &key))?;
                found.push((path, record));
            }
        }
        Ok(found)
    }

    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError> {
        let key = object_key(object);
        self.db
            .get_pinned_cf(self.family(LOCAL)?, key)
            .map_err(failed)?
            .map(|v| TreePath::new(&*v).ok_or_else(|| damaged("path of an object", &key)))
            .transpose()
    }

    fn marks(&self) -> Result<Marks, TableError> {
        let mut marks = Marks::default();
        for entry in self.range(MARK, b"", b"")? {
            let (key, value) = entry.map_err(failed)?;
            let bad = || damaged("mark", &key);
            let (mark, object) = key.split_first().ok_or_else(bad)?;
            let object = object_of_key(object).ok_or_else(bad)?;
            match *mark {
                DOOMED => marks
                    .doomed
                    .push((object, token_of_bytes(&value).ok_or_else(bad)?)),
                RELABEL => marks.relabel.push(object),
                _ => return Err(bad()),
            }
        }
        Ok(marks)
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        self.db.get_cf(self.family(META)?, key).map_err(failed)
    }

    fn metas(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, TableError> {
        self.range(META, prefix, prefix)?
            .map(|e| e.map(|(k, v)| (k.into_vec(), v.into_vec())).map_err(failed))
            .collect()
    }

    fn apply(&self, batch: &[Change]) -> Result<(), TableError> {
        let (global, local) = (self.family(GLOBAL)?, self.family(LOCAL)?);
        let (mark, meta) = (self.family(MARK)?, self.family(META)?);
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
                Change::Doom { object, token } => {
                    writes.put_cf(mark, mark_key(DOOMED, *object), token_bytes(*token));
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
        self.db.write_opt(writes, &self.write).map_err(failed)
    }
}
