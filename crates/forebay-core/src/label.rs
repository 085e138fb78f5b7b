//! What the label on a backing object says: which name it has, without the tables.
//!
//! Whoever keeps an object writes its label from the record that names it, when the object is made and
//! whenever one of the things that a label speaks of has changed. [`crate::repair`] is the way back.

use crate::facts::{Label, Outcome};
use crate::path::TreePath;
use crate::record::Record;
use crate::walk::{Place, Walk};

/// The label of the object that `record` names at `path`, in a directory that is `place`.
pub fn label_of(path: &TreePath, record: &Record, place: &Place) -> Label {
    Label {
        kind: record.kind,
        parent: place.label(),
        name: path.name().to_vec(),
        origin: record.origin.clone(),
        hides: record.hides.clone(),
    }
}

/// The label that the object of the record at `path` should carry now.
///
/// # Errors
/// There is no such directory, or a fact is needed first.
pub fn label_at(walk: &Walk<'_>, path: &TreePath, record: &Record) -> Outcome<Label> {
    let dir = walk.dir_at(&path.parent())?;
    Ok(label_of(path, record, &dir.place))
}

/// The label after the PFS has got what the record had hidden replaced: nothing is hidden any more.
pub fn without_hides(label: Label) -> Label {
    Label {
        hides: None,
        ..label
    }
}
