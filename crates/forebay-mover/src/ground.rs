//! What the mover stands on: the namespace of a bridge, its objects, and the PFS.

use forebay_core::drain::{Picture, Update};
use forebay_core::ops::Effect;
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectName, Record, Token};
use forebay_core::table::{Change, Tables};
use forebay_objects::Objects;
use forebay_pfs::Lower;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

/// A drain cannot go on at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    /// The tables or the local disk failed.
    Fault(String),
    /// A test has cut it short here.
    Cut,
}

impl From<forebay_core::table::TableError> for Halt {
    fn from(e: forebay_core::table::TableError) -> Self {
        Halt::Fault(e.to_string())
    }
}

/// The namespace while nobody else can change it.
pub trait Namespace {
    /// The tables.
    fn tables(&self) -> &dyn Tables;
    /// Next version of a record.
    fn next_version(&self) -> u64;
    /// Commits a batch, then does the work on backing objects.
    ///
    /// # Errors
    /// Nothing of the batch is visible then.
    fn commit(&mut self, batch: Vec<Change>, effects: Vec<Effect>) -> Result<(), Halt>;
    /// Whoever has decided what to open before now, and has not opened it yet, must decide anew.
    fn forbid_late_grants(&mut self);
}

/// A bridge, as far as the mover needs it.
pub trait Ground: Send + Sync {
    /// Backing objects.
    fn objects(&self) -> &Objects;
    /// The PFS directory.
    fn lower(&self) -> &Lower;
    /// The instance directory.
    fn instance(&self) -> &Path;
    /// Runs `work` while it alone can change the namespace.
    ///
    /// # Errors
    /// What `work` returns.
    fn exclusively(
        &self,
        work: &mut dyn FnMut(&mut dyn Namespace) -> Result<(), Halt>,
    ) -> Result<(), Halt>;
}

/// A copy of all records, taken while nobody changes them.
pub fn picture(ns: &dyn Namespace) -> Result<Picture, Halt> {
    Ok(Picture::new(ns.tables().subtree(&TreePath::root())?))
}

/// Commits what a step has done to records, and rewrites the labels that follow from it.
pub fn commit(
    ns: &mut dyn Namespace,
    updates: Vec<Update>,
    labels: Vec<(TreePath, ObjectName)>,
) -> Result<(), Halt> {
    let mut deletes = Vec::new();
    let mut puts = Vec::new();
    let mut effects = Vec::new();
    for Update {
        path,
        before,
        after,
    } in updates
    {
        match after {
            None => {
                deletes.push(Change::Delete {
                    path,
                    object: before.object,
                });
                puts.push(Change::Doom {
                    object: before.object,
                    token: Token::default(),
                });
                effects.push(Effect::Remove(before.object));
            }
            Some(mut record) => {
                record.version = ns.next_version();
                if record.origin != before.origin || record.hides != before.hides {
                    puts.push(Change::Relabel(record.object));
                    effects.push(Effect::Relabel(record.object, path.clone()));
                }
                puts.push(Change::Put { path, record });
            }
        }
    }
    for (path, object) in labels {
        puts.push(Change::Relabel(object));
        effects.push(Effect::Relabel(object, path));
    }
    deletes.append(&mut puts);
    ns.commit(deletes, effects)
}

/// Takes all records away, and their objects.
pub fn forget(ns: &mut dyn Namespace, records: &BTreeMap<TreePath, Record>) -> Result<(), Halt> {
    let updates = records
        .iter()
        .map(|(path, record)| Update {
            path: path.clone(),
            before: record.clone(),
            after: None,
        })
        .collect();
    commit(ns, updates, Vec::new())
}

/// Places at which a test can end a drain, counted through.
pub struct Points {
    left: AtomicI64,
    /// End the process instead of the drain.
    aborts: bool,
}

/// Environment variable for tests: abort the process at the n-th point of a drain.
pub const ENV_ABORT_AT: &str = "FOREBAY_TEST_ABORT_DRAIN_AT";

impl Points {
    /// Never ends anything, unless the environment says so.
    pub fn from_env() -> Self {
        let at = std::env::var(ENV_ABORT_AT)
            .ok()
            .and_then(|v| v.parse().ok());
        Points {
            left: AtomicI64::new(at.unwrap_or(i64::MAX)),
            aborts: true,
        }
    }

    /// Ends the drain with [`Halt::Cut`] at the n-th point.
    #[doc(hidden)]
    pub fn cut_at(n: i64) -> Self {
        Points {
            left: AtomicI64::new(n),
            aborts: false,
        }
    }

    /// One point. From the fatal one on every further one is fatal, too: a dead process does nothing more.
    pub fn pass(&self) -> Result<(), Halt> {
        if self.left.fetch_sub(1, Ordering::SeqCst) > 0 {
            return Ok(());
        }
        if self.aborts {
            std::process::abort();
        }
        Err(Halt::Cut)
    }
}
