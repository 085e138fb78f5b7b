//! What rebuilt records know of the PFS: how it is when they are made.

use crate::{Error, ServerHandle};
use forebay_core::facts::Attr;
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_core::record::PathRecord;
use forebay_core::repair;
use forebay_core::table::{Change, Tables};
use std::collections::BTreeSet;

/// Records that one batch changes.
const RECORDS_PER_BATCH: usize = 4096;

/// Looks at what the records hide and rename on the PFS: labels do not tell what that was. What others change from now on is found
/// to be theirs.
pub(super) fn learn(server: &ServerHandle) -> Result<(), Error> {
    let records = server.namespace.tables().subtree(&TreePath::root())?;
    let origins = records
        .iter()
        .filter_map(|(_, record)| record.origin.clone());
    let leaving: BTreeSet<_> = origins.collect();
    let ignorant: Vec<_> = records
        .into_iter()
        .filter(|(_, record)| repair::is_ignorant(record))
        .collect();
    for part in ignorant.chunks(RECORDS_PER_BATCH) {
        let learned = part.iter().map(|(path, record)| Change::Put {
            path: path.clone(),
            record: learned(server, record, &leaving),
        });
        server.namespace.mend(learned.collect())?;
    }
    Ok(())
}

fn learned(server: &ServerHandle, record: &PathRecord, leaving: &BTreeSet<TreePath>) -> PathRecord {
    // What can't be looked at is known as little as what is not there.
    let there = |path: &TreePath| server.lower.attr(path).ok().flatten();
    let known = |path: &TreePath, attr: &Attr| {
        let with_contents = attr
            .is_dir()
            .then(|| forebay_mover::know(&server.lower, path, leaving, false).ok());
        let known = with_contents.flatten().map(|known| known.is);
        known.unwrap_or_else(|| Identity::of(attr))
    };
    let hidden = record.hides.as_ref();
    let hidden = hidden.and_then(|path| there(path).map(|attr| known(path, &attr)));
    let origin = record.origin.as_ref().and_then(there);
    PathRecord {
        version: server.namespace.next_version(),
        ..repair::learned(record, hidden, origin.as_ref())
    }
}
