//! Locks between the clients of the stand-in: who writes where another client holds the lock waits until that one has given
//! it up. They follow a lock manager of the lock laboratory.

use forebay_core::collective::Layout;
use forebay_sim::collective::{LockTable, Locks};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The locks of all files.
pub(crate) struct FileLocks {
    kind: Locks,
    layout: Layout,
    handover: Duration,
    tables: Mutex<BTreeMap<u64, Arc<Mutex<LockTable>>>>,
}

impl FileLocks {
    /// Nobody holds a lock. Giving one up takes so long.
    pub(crate) fn new(kind: Locks, layout: Layout, handover: Duration) -> Self {
        FileLocks {
            kind,
            layout,
            handover,
            tables: Mutex::default(),
        }
    }

    /// Returns when a client holds the locks for some bytes of a file. Requests for a file wait for each other. Returns how
    /// many locks others have given up.
    pub(crate) fn wait(&self, client: usize, file: u64, offset: u64, bytes: u64) -> u64 {
        let table = {
            let mut tables = super::lock(&self.tables);
            let new = || Arc::new(Mutex::new(LockTable::new(self.kind, self.layout, false)));
            Arc::clone(tables.entry(file).or_insert_with(new))
        };
        let mut table = super::lock(&table);
        let granule = self.layout.granule_bytes;
        let granules = offset / granule..(offset + bytes).div_ceil(granule);
        let mut given_up = 0;
        for at in granules {
            if table.take(client, (at * granule).max(offset)) {
                given_up += 1;
                std::thread::sleep(self.handover);
            }
        }
        given_up
    }
}
