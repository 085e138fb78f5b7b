//! The tables made anew from the labels that all backing objects carry.

use super::FsckReport;
use crate::{Error, durable};
use forebay_core::bridge::version;
use forebay_core::fsck::{is_kept_without_label, may_be_of_rename};
use forebay_core::record::BridgeId;
use forebay_core::recovery;
use forebay_core::repair::{self, Survivor, lost};
use forebay_core::reserve::Purpose;
use forebay_core::table::WriteTables;
use forebay_objects::label::LabelsOf;
use forebay_objects::{LabelError, Objects, Scanned, shape};
use forebay_sys::{self as sys, Errno};
use forebay_tables::{Cached, Journaled, Life};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::Path;

/// Records that one batch puts into the new tables.
const RECORDS_PER_BATCH: usize = 4096;

/// Makes the tables anew. The old ones, if there are any, are kept beside. If it is cut short they are still in place.
pub(super) fn rebuild(
    instance: &Path,
    labels: LabelsOf,
    life: Life,
    report: &mut FsckReport,
) -> Result<(), Error> {
    let (meta, new) = (instance.join("meta"), instance.join("meta.new"));
    match std::fs::remove_dir_all(&new) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            return Err(Error::io("can't remove", &new, e));
        }
        _ => {}
    }
    let me = BridgeId(1);
    let objects = Objects::open(instance, labels, me, 0, 0)
        .map_err(|e| Error::system("can't open the objects", e))?;
    // Removed before the tables were lost, although their labels still tell of them.
    let spare: HashSet<_> = objects.spare_of_last_life().into_iter().collect();
    let (mut survivors, mut unlabelled) = (Vec::new(), Vec::new());
    let (mut epoch, mut lacks_renames) = (0, false);
    let mut seen = HashSet::new();
    let scanned = objects.scan(0);
    for entry in scanned.map_err(|e| Error::system("can't list backing objects", e))? {
        let Scanned::Object(object) = entry else {
            continue;
        };
        if spare.contains(&object) {
            continue;
        }
        epoch = epoch.max(object.oid.epoch());
        if !seen.insert(object) {
            continue;
        }
        let label = match objects.read_label(object) {
            Ok(label) => label,
            // A node without its label file: it was being made or removed.
            Err(LabelError::System(Errno::NOENT)) => continue,
            // Without it the file would have no name any more. Nothing has changed yet.
            Err(cause) => return Err(Error::Label { object, cause }),
        };
        let attr = match objects.attr(object) {
            Ok(attr) => attr,
            // A label file without its node likewise.
            Err(Errno::NOENT) => continue,
            Err(cause) => return Err(Error::Object { object, cause }),
        };
        let Some(label) = label else {
            let text = format!("backing object {object} has no label, or a damaged one");
            report.problems.push(text);
            if is_kept_without_label(shape(object), &attr) {
                unlabelled.push(object);
            }
            lacks_renames |= may_be_of_rename(shape(object), &attr);
            continue;
        };
        survivors.push(Survivor {
            object,
            label,
            ino: attr.ino,
        });
    }
    if lacks_renames {
        report.problems.push(
            "something that was renamed may be lost: a drain takes what was replaced or removed for changed by others, and \
             lists it"
                .to_owned(),
        );
    }
    for object in unlabelled {
        // Before there are tables: a start removes what no record names.
        objects
            .quarantine(object, lost(object).as_bytes())
            .map_err(|cause| Error::Object { object, cause })?;
    }
    for object in spare {
        objects
            .remove(object)
            .map_err(|e| Error::system("can't remove a spare file", e))?;
    }
    let rebuilt = repair::rebuild(survivors, lacks_renames, me, |count| {
        version(epoch, count, me)
    });
    let problems = rebuilt.problems.iter().map(ToString::to_string);
    report.problems.extend(problems);
    report.rebuilt = rebuilt.records.len();
    let mut batch = rebuilt.into_changes();
    batch.push(repair::note_ignorance(true));
    {
        let tables = Cached::new(Journaled::open(&new, life, Purpose::BringAway)?);
        for part in batch.chunks(RECORDS_PER_BATCH) {
            tables.apply(part)?;
        }
        tables.apply(&recovery::begun(epoch.max(1)))?;
        // First what the names rely on: nobody tells what the last bridge had synced.
        objects
            .sync_all()
            .map_err(|e| Error::system("can't sync the backing objects", e))?;
        tables.below().sync()?;
    }
    put_in_place(&new, &meta).map_err(|e| Error::io("can't put in place", &new, e))
}

/// Puts new tables where the old ones are, which get another name.
fn put_in_place(new: &Path, meta: &Path) -> std::io::Result<()> {
    let Some(instance) = meta.parent() else {
        return Err(ErrorKind::InvalidInput.into());
    };
    if meta.exists() {
        // At no moment are there no tables, which would look like a new storage.
        let dir = std::fs::File::open(instance)?;
        sys::exchange(dir.as_fd(), b"meta.new", b"meta")?;
        let aside = (0..)
            .map(|n| instance.join(format!("meta.old{n}")))
            .find(|p| !p.exists())
            .unwrap_or_else(|| instance.join("meta.old"));
        std::fs::rename(new, &aside)?;
        // The space may be needed, and without the tables before it a journal says nothing.
        for part in ["journal", "journal.0", "journal.1"] {
            let _ = std::fs::remove_file(aside.join(part));
        }
    } else {
        std::fs::rename(new, meta)?;
    }
    durable::sync_dir(instance)
}
