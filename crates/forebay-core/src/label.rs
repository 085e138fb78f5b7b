//! What the label on a backing object says: which name it has, without the tables.
//!
//! Whoever keeps an object writes its label from the record that names it, when the object is made and
//! whenever one of the things that a label speaks of has changed. [`crate::repair`] is the way back.

use crate::facts::{Label, LabelParent, Outcome, Stop};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Kind, PathRecord};
use crate::walk::{Place, Walk};

/// The label of the object that `record` names at `path`, in a directory that is `place`.
pub fn label_of(path: &TreePath, record: &PathRecord, place: &Place) -> Label {
    Label {
        kind: record.kind,
        parent: place.label(),
        name: path.name().to_vec(),
        origin: record.origin.clone(),
        hides: record.hides.clone(),
        renamed: renamed(record),
    }
}

/// The label of a marker that speaks of nothing any more, and was at `path` in the buffer. It names no directory of the PFS: nobody
/// looks for its place. See [`crate::ops::FollowUp::Void`].
pub fn void_label(path: &TreePath) -> Label {
    Label {
        kind: Kind::Moved,
        parent: LabelParent::Lower(path.parent()),
        name: path.name().to_vec(),
        origin: None,
        hides: None,
        renamed: None,
    }
}

/// Is it such a label?
pub(crate) fn is_void(label: &Label) -> bool {
    label.kind == Kind::Moved && label.origin.is_none()
}

/// What was renamed, if the record is one of something renamed.
pub fn renamed(record: &PathRecord) -> Option<Identity> {
    let arriving = record.arriving.as_deref().copied();
    arriving.filter(|_| record.kind == Kind::Moved)
}

/// The label that the object of the record at `path` should carry now. What is in no directory any more, because others have taken it
/// away, is called by its path.
///
/// # Errors
/// A fact is needed first.
pub fn label_at(walk: &Walk<'_>, path: &TreePath, record: &PathRecord) -> Outcome<Label> {
    let place = match walk.dir_at(&path.parent()) {
        Err(Stop::Errno(libc::ENOENT)) => Place::Merged(path.parent()),
        dir => dir?.place,
    };
    Ok(label_of(path, record, &place))
}

/// Is this label right for the object of the record at `path`?
///
/// Four labels are right beside [`label_at`]. One of an older version does not tell what was renamed. When a directory that was made in
/// the buffer opens to the PFS, what lies in it keeps its label, which names the directory by its object. Its record keeps
/// that object until nothing lies in it. What waits for a directory of the PFS goes on naming that by its path, when one that was made in
/// the buffer has come there. And what is in no directory any more may name any: nobody can tell which one it was in.
///
/// # Errors
/// As [`label_at`].
pub fn is_right(
    walk: &Walk<'_>,
    path: &TreePath,
    record: &PathRecord,
    label: &Label,
) -> Outcome<bool> {
    let right = label_at(walk, path, record)?;
    let right = Label {
        renamed: right.renamed.filter(|_| label.renamed.is_some()),
        ..right
    };
    if *label == right {
        return Ok(true);
    }
    if let Err(Stop::Errno(libc::ENOENT)) = walk.dir_at(&path.parent()) {
        let of_then = Label {
            parent: label.parent.clone(),
            ..right
        };
        return Ok(*label == of_then);
    }
    let dir = walk.facts.record(&path.parent())?;
    let by_path = Label {
        parent: LabelParent::Lower(path.parent()),
        ..right.clone()
    };
    if record.dirs().within.is_some() && *label == by_path {
        return Ok(true);
    }
    let by_object = dir.filter(|dir| dir.kind == Kind::Moved).map(|dir| Label {
        parent: LabelParent::Object(dir.object.oid),
        ..right
    });
    Ok(by_object.as_ref() == Some(label))
}

/// The label after the PFS has got what the record had hidden replaced: nothing is hidden any more.
pub fn without_hides(label: Label) -> Label {
    Label {
        hides: None,
        ..label
    }
}
