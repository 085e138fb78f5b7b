//! What clients of the bridge's own user may look at themselves ([`NameTable`]), kept in step with the tables.

use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, PathRecord};
use forebay_core::shown::{born_above, outcome, plain};
use forebay_core::table::{Change, Tables};
use forebay_sys::{SharedNames, Sys};
use forebay_wire::{NameTable, Shown};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The memory, and what has to be known to write it. One thread at a time writes.
pub(crate) struct NameBoard {
    names: SharedNames,
    for_clients: OwnedFd,
    me: BridgeId,
}

impl NameBoard {
    /// A board for the bridge of this user that names nothing yet. `life` as in the page beside it.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub fn new(me: BridgeId, user: u32, life: u64) -> Sys<Self> {
        let (names, for_clients) = SharedNames::new()?;
        names.table().begin(life, forebay_sys::random()?, user);
        Ok(NameBoard {
            names,
            for_clients,
            me,
        })
    }

    /// The memory that clients may map to read it.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.for_clients.as_fd()
    }

    fn table(&self) -> &NameTable {
        self.names.table()
    }

    /// These changes are about to be committed.
    pub fn cover(&self, changes: &[Change]) {
        let table = self.table();
        let mut is_any = false;
        for (path, _) in changes.iter().filter_map(outcome) {
            is_any |= table.cover(path.as_bytes());
        }
        if is_any {
            table.covered();
        }
    }

    /// They are committed.
    pub fn show(&self, changes: &[Change], tables: &dyn Tables) {
        for (path, record) in changes.iter().filter_map(outcome) {
            self.show_one(path, record, tables);
        }
    }

    /// The record at this path.
    pub fn show_one(&self, path: &TreePath, record: Option<&PathRecord>, tables: &dyn Tables) {
        let shown = record.and_then(|record| self.shown(path, record, tables));
        self.table().show(path.as_bytes(), shown);
    }

    fn shown(&self, path: &TreePath, record: &PathRecord, tables: &dyn Tables) -> Option<Shown> {
        let plain = plain(record, self.me)?;
        // If the tables can't be read, the bridge is asked, and says so.
        let born_above = born_above(path, tables).ok()??;
        Some(Shown {
            object: plain.object,
            is_dir: plain.is_dir,
            born_above,
        })
    }

    /// The commit of these changes has failed, and nobody knows whether they were made: the bridge is asked.
    pub fn hide(&self, changes: &[Change]) {
        for (path, _) in changes.iter().filter_map(outcome) {
            self.table().show(path.as_bytes(), None);
        }
    }
}
