//! What a drain writes down before it acts, for the drain after one that was killed.

use crate::ground::{Halt, Namespace};
use forebay_core::path::TreePath;
use forebay_core::table::Change;
use std::collections::BTreeSet;

/// Paths whose contents are about to get their names: what is there afterwards is ours.
pub(crate) const INTENDED: &[u8] = b"drain/intended";
/// Directories of the PFS in which temporary names may be left.
pub(crate) const WORKPLACES: &[u8] = b"drain/workplaces";

/// Reads one of the notes.
pub(crate) fn read(ns: &dyn Namespace, key: &[u8]) -> Result<BTreeSet<TreePath>, Halt> {
    let Some(bytes) = ns.tables().meta(key)? else {
        return Ok(BTreeSet::new());
    };
    bytes
        .split(|&b| b == 0)
        .map(|path| {
            TreePath::new(path)
                .ok_or_else(|| Halt::Fault(format!("damaged value of {}", key.escape_ascii())))
        })
        .collect()
}

/// One of the notes as a change; an empty one goes away.
pub(crate) fn change(key: &[u8], paths: &BTreeSet<TreePath>) -> Change {
    let value: Vec<&[u8]> = paths.iter().map(TreePath::as_bytes).collect();
    Change::Meta {
        key: key.to_vec(),
        value: (!paths.is_empty()).then(|| value.join(&0)),
    }
}
