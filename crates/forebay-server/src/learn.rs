//! Records that were rebuilt from labels get to know the PFS: how it is at the first start after that. What others change later is found
//! to be theirs.

use crate::{Error, ServerHandle};
use forebay_core::facts::Attr;
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_core::record::PathRecord;
use forebay_core::repair::{IGNORANT, Sight, learned, note_ignorance};
use forebay_core::table::{Change, Tables};
use forebay_pfs::Lower;
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
    let learned = learned(&records, &Look(&server.lower));
    for part in learned.chunks(RECORDS_PER_BATCH) {
        let puts = part.iter().map(|(path, record)| Change::Put {
            path: path.clone(),
            record: PathRecord {
                version: server.namespace.next_version(),
                ..record.clone()
            },
        });
        server.namespace.mend(puts.collect())?;
    }
    server.namespace.mend(vec![note_ignorance(false)])?;
    Ok(())
}

struct Look<'a>(&'a Lower);

impl Sight for Look<'_> {
    fn there(&self, path: &TreePath) -> Option<Attr> {
        self.0.attr(path).ok().flatten()
    }

    fn dir(&self, path: &TreePath, without: &BTreeSet<TreePath>) -> Option<Identity> {
        let known = forebay_mover::know(self.0, path, without, false);
        known.ok().map(|known| known.is)
    }
}
