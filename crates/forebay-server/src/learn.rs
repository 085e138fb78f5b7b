//! What records know of the PFS at a start. Those that were rebuilt from labels get to know how it is at the first start after that: what
//! others change later is found to be theirs. Of directories nothing is known any more if the root is another one.

use crate::{Error, ServerHandle};
use forebay_core::facts::Attr;
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_core::record::PathRecord;
use forebay_core::repair::{IGNORANT, Sight, learned, note_ignorance};
use forebay_core::root_dir::{KNOWN_IN, RootNote, knows_dirs_of};
use forebay_core::table::{Change, Order, Tables};
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

/// Notes in which root directories are known by their numbers. If it was another one, none is.
pub(crate) fn forget_dirs(server: &ServerHandle, now: &Attr) -> Result<(), Error> {
    let tables = server.namespace.tables();
    let noted = tables.meta(KNOWN_IN)?;
    if !knows_dirs_of(noted.as_deref(), now) {
        let mut after = None;
        loop {
            let page = tables.page(after.as_ref(), Order::ParentsFirst, RECORDS_PER_BATCH)?;
            let Some((last, _)) = page.last() else {
                break;
            };
            after = Some(last.clone());
            let mut puts = Vec::new();
            for (path, mut record) in page {
                if record.forget_dirs() {
                    record.version = server.namespace.next_version();
                    puts.push(Change::Put { path, record });
                }
            }
            if !puts.is_empty() {
                server.namespace.mend(puts)?;
            }
        }
    }
    let text = RootNote::of(now).to_text().into_bytes();
    if noted.as_ref() != Some(&text) {
        server.namespace.mend(vec![Change::Meta {
            key: KNOWN_IN.to_vec(),
            value: Some(text),
        }])?;
    }
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
