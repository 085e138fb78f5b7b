//! What is in the buffer, and what of it the PFS does not have.

use crate::contents::stamp;
use forebay_admin::drain::{Inventory, Named};
use forebay_core::drain::Picture;
use forebay_core::path::TreePath;
use forebay_core::record::{Kind, Record};
use forebay_objects::Objects;

/// As many of the largest files are named.
const NAMED_FILES: usize = 10;

/// Does the PFS differ from what the buffer shows at this path?
pub(crate) fn is_dirty(objects: &Objects, path: &TreePath, record: &Record) -> bool {
    if record.hides.is_some() {
        return true;
    }
    match record.kind {
        Kind::Whiteout => true,
        Kind::Moved => record.origin.as_ref() != Some(path),
        Kind::Dir | Kind::File | Kind::Symlink | Kind::Special => objects
            .attr(record.object)
            .map_or(true, |attr| record.drained != Some(stamp(&attr))),
    }
}

/// Takes stock.
pub fn take(objects: &Objects, picture: &Picture) -> Inventory {
    let mut inv = Inventory::default();
    for contents in picture.contents() {
        let (path, first) = &contents.names[0];
        let dirty = contents
            .names
            .iter()
            .any(|(path, record)| is_dirty(objects, path, record));
        match (first.kind, dirty) {
            (Kind::File, _) => {
                let bytes = objects.attr(first.object).map_or(0, |attr| attr.size);
                if dirty {
                    inv.dirty_files += 1;
                    inv.dirty_bytes += bytes;
                    inv.largest.push(Named {
                        path: path.to_string(),
                        bytes,
                    });
                } else {
                    inv.clean_files += 1;
                    inv.clean_bytes += bytes;
                }
            }
            (Kind::Symlink, true) => inv.symlinks += 1,
            (_, true) => inv.specials += 1,
            (_, false) => {}
        }
        // Never many more than are wanted.
        if inv.largest.len() >= 100 * NAMED_FILES {
            shorten(&mut inv.largest);
        }
    }
    shorten(&mut inv.largest);
    for (path, record) in picture.records() {
        match record.kind {
            Kind::Dir if is_dirty(objects, path, record) => inv.dirs += 1,
            Kind::Moved if is_dirty(objects, path, record) => inv.renamed += 1,
            _ => {}
        }
        if record.hides.is_some() {
            inv.removed += 1;
        }
    }
    inv
}

fn shorten(files: &mut Vec<Named>) {
    files.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
    files.truncate(NAMED_FILES);
}
