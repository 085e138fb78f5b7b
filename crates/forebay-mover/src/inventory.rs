//! What is in the buffer, and what of it the PFS does not have.

use crate::ground::{Ground, Halt};
use forebay_admin::drain::{FileSize, Inventory};
use forebay_core::drain::is_dirty;
use forebay_core::facts::Attr;
use forebay_core::path::TreePath;
use forebay_core::record::{Kind, PathRecord};
use forebay_core::table::Order;

/// Number of largest files that are named.
const NAMED_FILES: usize = 10;
/// Records that a walk over all of them reads at a time.
const RECORDS_PER_PAGE: usize = 256;
/// Files that are kept until the list is cut to [`NAMED_FILES`].
const KEPT_FILES: usize = 100 * NAMED_FILES;

/// Takes stock.
///
/// # Errors
/// The tables failed.
pub fn take(ground: Ground<'_>) -> Result<Inventory, Halt> {
    let mut inv = Inventory::default();
    let mut after: Option<TreePath> = None;
    loop {
        let page = ground
            .door
            .page(after.as_ref(), Order::ParentsFirst, RECORDS_PER_PAGE)?;
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        for (path, record) in &page {
            count(ground, &mut inv, path, record)?;
        }
        if inv.largest.len() >= KEPT_FILES {
            shorten(&mut inv.largest);
        }
    }
    shorten(&mut inv.largest);
    Ok(inv)
}

fn count(
    ground: Ground<'_>,
    inv: &mut Inventory,
    path: &TreePath,
    record: &PathRecord,
) -> Result<(), Halt> {
    let attr = ground.objects.attr(record.object).ok();
    let dirty = is_dirty(path, record, attr.as_ref());
    if record.hides.is_some() {
        match record.is_removal() {
            true => inv.removed += 1,
            false => inv.replaced += 1,
        }
    }
    match record.kind {
        Kind::Dir => inv.dirs += u64::from(dirty),
        Kind::Moved => inv.renamed += u64::from(dirty || record.hides.is_some()),
        Kind::Whiteout => {}
        Kind::File | Kind::Symlink | Kind::Special => {
            count_object(ground, inv, path, record, attr.as_ref())?;
        }
    }
    Ok(())
}

/// An object counts once, at its first name, and is dirty if it is under one of its names.
fn count_object(
    ground: Ground<'_>,
    inv: &mut Inventory,
    path: &TreePath,
    record: &PathRecord,
    attr: Option<&Attr>,
) -> Result<(), Halt> {
    let mut dirty = is_dirty(path, record, attr);
    if attr.is_some_and(|attr| attr.nlink > 1) {
        for (_, other) in ground.door.names_of(record.object.oid)? {
            let Some(record) = ground.door.record(&other)? else {
                continue;
            };
            if other < *path {
                return Ok(());
            }
            dirty |= is_dirty(&other, &record, attr);
        }
    }
    let bytes = attr.map_or(0, |attr| attr.size);
    match (record.kind, dirty) {
        (Kind::File, true) => {
            inv.dirty_files += 1;
            inv.dirty_bytes += bytes;
            inv.largest.push(FileSize {
                path: path.to_string(),
                bytes,
            });
        }
        (Kind::File, false) => {
            inv.clean_files += 1;
            inv.clean_bytes += bytes;
        }
        (Kind::Symlink, true) => inv.symlinks += 1,
        (_, true) => inv.specials += 1,
        (_, false) => {}
    }
    Ok(())
}

fn shorten(files: &mut Vec<FileSize>) {
    files.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
    files.truncate(NAMED_FILES);
}
