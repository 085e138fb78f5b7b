//! Records that were rebuilt from labels get to know the PFS: how it is at the first start after that. What others change later is found
//! to be theirs.

use crate::{Error, ServerHandle};
use forebay_core::facts::Attr;
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_core::record::PathRecord;
use forebay_core::repair::{IGNORANT, Ignorance, note_ignorance};
use forebay_core::table::{Change, Tables};
use std::collections::BTreeSet;

/// Records that one batch changes.
const RECORDS_PER_BATCH: usize = 4096;

/// Looks at what records hide and rename on the PFS, if some have been rebuilt.
pub(crate) fn learn(server: &ServerHandle) -> Result<(), Error> {
    let tables = server.namespace.tables();
    if tables.meta(IGNORANT)?.is_none() {
        return Ok(());
    }
    let records = tables.subtree(&TreePath::root())?;
    let origins = records
        .iter()
        .filter_map(|(_, record)| record.origin.clone());
    let look = Look {
        server,
        leaving: origins.collect(),
    };
    let ignorant: Vec<_> = records
        .into_iter()
        .filter_map(|(path, record)| Some((Ignorance::of(&record)?, path, record)))
        .collect();
    for part in ignorant.chunks(RECORDS_PER_BATCH) {
        let learned = part.iter().map(|(ignorance, path, record)| Change::Put {
            path: path.clone(),
            record: look.end(ignorance, record),
        });
        server.namespace.mend(learned.collect())?;
    }
    server.namespace.mend(vec![note_ignorance(false)])?;
    Ok(())
}

struct Look<'a> {
    server: &'a ServerHandle,
    /// From where things were renamed.
    leaving: BTreeSet<TreePath>,
}

impl Look<'_> {
    fn end(&self, ignorance: &Ignorance, record: &PathRecord) -> PathRecord {
        let hidden = ignorance.hides.as_ref().and_then(|path| self.known(path));
        let renamed = ignorance.origin.as_ref().and_then(|path| self.there(path));
        let waiting = self.there(&ignorance.waits);
        let record = PathRecord {
            version: self.server.namespace.next_version(),
            ..record.clone()
        };
        ignorance.end(record, hidden, renamed.as_ref(), waiting.as_ref())
    }

    /// What can't be looked at is known as little as what is not there.
    fn there(&self, path: &TreePath) -> Option<Attr> {
        self.server.lower.attr(path).ok().flatten()
    }

    fn known(&self, path: &TreePath) -> Option<Identity> {
        let attr = self.there(path)?;
        if self.leaving.contains(path) {
            return Some(Identity::of_leaving(&attr));
        }
        if !attr.is_dir() {
            return Some(Identity::of(&attr));
        }
        let known = forebay_mover::know(&self.server.lower, path, &self.leaving, false);
        known.ok().map(|known| known.is)
    }
}
