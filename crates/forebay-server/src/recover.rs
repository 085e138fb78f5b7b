//! Makes what is on disk fit to serve from, however the last bridge ended.
//!
//! Three things may be unfinished: names to unlink and labels to write, which have marks in the tables, and objects that were
//! made and never named, which have sequence numbers above the watermark.
//!
//! After a power loss the tables are those of the last sync point, and the objects those of some later moment. Then any
//! object may be without a name. Whatever may hold what somebody has written goes into quarantine.

use crate::ServerHandle;
use crate::follow;
use crate::log::Cause;
use forebay_core::facts::{Label, LabelParent, Stop};
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectName, PathRecord};
use forebay_core::recovery::{self, Fate, Stray};
use forebay_core::table::{Change, Order, TableError, Tables, WriteTables};
use forebay_objects::folder_of;
use forebay_sys::Errno;
use forebay_tables::Loss;

const EPOCH: &[u8] = b"server/epoch";
const CLEAN: &[u8] = b"server/clean";
/// Records that are read at a time.
const PAGE: usize = 1024;
const WATERMARK: &[u8] = b"server/watermark";

/// What the tables say about the life before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    /// Its epoch, 0 if there was none.
    pub epoch: u32,
    /// It ended in order.
    pub clean: bool,
    /// Something that it acknowledged is not in the tables.
    pub loss: Option<Loss>,
    /// Objects with smaller sequence numbers are named, or gone.
    pub watermark: u64,
}

fn number<const N: usize>(tables: &impl Tables, key: &[u8]) -> Result<Option<[u8; N]>, TableError> {
    tables
        .meta(key)?
        .map(|v| <[u8; N]>::try_from(&v[..]).map_err(|_| TableError::damaged("value", key)))
        .transpose()
}

/// Reads what the tables say about it.
///
/// # Errors
/// The tables can't be read, or are damaged.
pub fn past(tables: &impl Tables, loss: Option<Loss>) -> Result<Past, TableError> {
    let epoch = number(tables, EPOCH)?.map_or(0, u32::from_le_bytes);
    let clean = epoch == 0 || tables.meta(CLEAN)?.is_some();
    Ok(Past {
        epoch,
        clean,
        // A start takes the sign of a clean end away, durably, before it serves. Where it is nothing came after it.
        loss: loss.filter(|_| !clean),
        watermark: number(tables, WATERMARK)?.map_or(0, u64::from_le_bytes),
    })
}

fn meta(key: &[u8], value: Option<Vec<u8>>) -> Change {
    Change::Meta {
        key: key.to_vec(),
        value,
    }
}

/// Begins a new epoch. Until its end is written down, it counts as broken off.
///
/// # Errors
/// The store failed.
pub fn begin(tables: &impl WriteTables, epoch: u32) -> Result<(), TableError> {
    tables.apply(&[
        meta(EPOCH, Some(epoch.to_le_bytes().to_vec())),
        meta(CLEAN, None),
    ])
}

/// The watermark as a change.
pub fn watermark(settled: u64) -> Change {
    meta(WATERMARK, Some(settled.to_le_bytes().to_vec()))
}

/// Ends the epoch in order, and durably.
///
/// # Errors
/// The store failed.
pub fn end(server: &ServerHandle) -> Result<(), TableError> {
    server.sync_point()?;
    while server.unlink_removed() {}
    for object in server.objects.drop_spares() {
        server.namespace.object_gone(object);
    }
    let mut changes = server.namespace.all_marks();
    changes.push(watermark(server.objects.settled()));
    changes.push(meta(CLEAN, Some(Vec::new())));
    server.namespace.note(&changes)?;
    let is_empty = server
        .namespace
        .tables()
        .page(None, Order::ParentsFirst, 1)?
        .is_empty();
    match is_empty {
        true => {}
        // What stays in the buffer is durable with its contents.
        false => server.sync_contents()?,
    }
    server.namespace.sync()
}

/// What was found and done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Names unlinked because a mark said so.
    pub removed: usize,
    /// Labels written because a mark said so, or because they told of a later moment than the tables.
    pub relabeled: usize,
    /// Objects removed because no record names them.
    pub orphans: usize,
    /// Objects that no record names and that hold data: where they were. They are in quarantine.
    pub withheld: Vec<String>,
}

/// Finishes what the last life left. No client is connected yet.
///
/// # Errors
/// The tables can't be read.
pub fn recover(server: &ServerHandle, past: Past) -> Result<Recovered, TableError> {
    let suspects = match (past.loss, past.clean) {
        // Any name may have come or gone since.
        (Some(_), _) => on_disk(server, 0)?,
        (None, true) => Vec::new(),
        (None, false) => {
            let mut new = on_disk(server, folder_of(past.watermark))?;
            new.retain(|object| object.oid.seq() >= past.watermark);
            new
        }
    };
    if past.loss.is_some() {
        // Comes first: then a later name of such a file is one of several, and may go.
        link_what_is_ahead(server, &suspects)?;
    }
    let doomed = server.namespace.tables().marks()?.doomed.len();
    let sweep = server.namespace.sweep(suspects.iter().copied())?;
    let mut done = Recovered::default();
    for (n, &object) in sweep.remove.iter().enumerate() {
        let is_orphan = n >= doomed;
        if is_orphan && past.loss.is_some() && withhold(server, object, &mut done)? {
            continue;
        }
        match server.objects.remove(object) {
            Ok(()) if is_orphan => done.orphans += 1,
            Ok(()) => done.removed += 1,
            Err(e) => {
                server.log.limited(
                    Cause::Io,
                    format_args!("backing object {object} could not be removed: {e}"),
                );
                continue;
            }
        }
        server.namespace.object_gone(object);
    }
    server.objects.forget_last_life();
    for object in sweep.relabel {
        follow::relabel(server, object);
        done.relabeled += 1;
    }
    if past.loss.is_some() {
        relabel_what_is_ahead(server, &suspects, &mut done)?;
        doubt_what_was_drained(server)?;
    }
    server.namespace.note(&[Loss::dealt_with()])?;
    if !past.clean {
        server.objects.sweep();
    }
    Ok(done)
}

/// All objects in folders from this one on.
fn on_disk(server: &ServerHandle, folder: u64) -> Result<Vec<ObjectName>, TableError> {
    let found = server
        .objects
        .scan(folder)
        .map_err(|e| TableError::Failed(format!("can't list backing objects: {e}")))?;
    let mut objects: Vec<_> = found.into_iter().flatten().map(|(o, _)| o).collect();
    // A node and its label are two files.
    objects.sort_unstable();
    objects.dedup();
    Ok(objects)
}

/// Puts an object into quarantine if it holds what somebody may have written. False: it may go.
fn withhold(
    server: &ServerHandle,
    object: ObjectName,
    done: &mut Recovered,
) -> Result<bool, TableError> {
    let failed = |e| TableError::Failed(format!("backing object {object}: {e}"));
    let attr = match server.objects.attr(object) {
        Ok(attr) => attr,
        // A part of a node; or it is gone.
        Err(_) => return Ok(false),
    };
    let label = match server.objects.read_label(object) {
        Ok(label) => label,
        Err(Errno::NOENT) => None,
        Err(e) => return Err(failed(e)),
    };
    let hides = label.as_ref().and_then(|label| label.hides.as_ref());
    let original = hides.and_then(|path| server.lower.attr(path).ok().flatten());
    let stray = Stray {
        kind: label.as_ref().map(|label| label.kind),
        bytes: attr.size,
        has_others: attr.nlink > 1,
        // It was copied from there, with its time, and not changed since.
        is_on_pfs: original.is_some_and(|o| (o.size, o.mtime) == (attr.size, attr.mtime)),
    };
    if stray.fate() == Fate::Remove {
        return Ok(false);
    }
    let path = match &label {
        Some(label) => told_path(server, label)?,
        None => return Ok(false),
    };
    server
        .objects
        .quarantine(object, path.as_bytes())
        .map_err(failed)?;
    done.withheld.push(path.to_string());
    Ok(true)
}

/// The path that a label tells, as far as its directory is known.
fn told_path(server: &ServerHandle, label: &Label) -> Result<TreePath, TableError> {
    let dir = match &label.parent {
        LabelParent::Object(oid) => {
            let dir = ObjectName { oid: *oid, link: 0 };
            server.namespace.tables().path_of(dir)?
        }
        LabelParent::Lower(path) => Some(path.clone()),
    };
    Ok(dir.unwrap_or_else(TreePath::root).join(&label.name))
}

/// Calls this with all records, a page at a time.
fn each_page(
    server: &ServerHandle,
    mut of: impl FnMut(&[(TreePath, PathRecord)]) -> Result<(), TableError>,
) -> Result<(), TableError> {
    let mut after = None;
    loop {
        let page = server
            .namespace
            .tables()
            .page(after.as_ref(), Order::ParentsFirst, PAGE)?;
        let Some((last, _)) = page.last() else {
            return Ok(());
        };
        after = Some(last.clone());
        of(&page)?;
    }
}

/// Gives files the names again that were removed after the last sync point while they had others.
fn link_what_is_ahead(server: &ServerHandle, on_disk: &[ObjectName]) -> Result<(), TableError> {
    each_page(server, |page| {
        for (path, PathRecord { object, .. }) in page {
            if on_disk.binary_search(object).is_ok() {
                continue;
            }
            let mut others = on_disk.iter().filter(|other| other.oid == object.oid);
            if others.any(|other| server.objects.link_again(*other, *object).is_ok()) {
                follow::relabel(server, *object);
            } else {
                server.log.line(format_args!(
                    "{path}: its backing object {object} is not there; forebay fsck tells more"
                ));
            }
        }
        Ok(())
    })
}

/// Takes marks away that say that something is drained, where they are not to be believed.
fn doubt_what_was_drained(server: &ServerHandle) -> Result<(), TableError> {
    each_page(server, |page| {
        let mut changes = Vec::new();
        for (path, record) in page.iter().filter(|(_, r)| r.drained.is_some()) {
            let Ok(now) = server.objects.attr(record.object) else {
                continue;
            };
            let found = server
                .lower
                .attr(path)
                .map_err(|e| Stop::Errno(e.raw_os_error()));
            if let Some(record) = recovery::undrained_by_loss(path, record, &now, found) {
                let path = path.clone();
                changes.push(Change::Put { path, record });
            }
        }
        match changes.is_empty() {
            true => Ok(()),
            false => server.namespace.note(&changes),
        }
    })
}

/// Labels anew what was renamed after the last sync point.
fn relabel_what_is_ahead(
    server: &ServerHandle,
    objects: &[ObjectName],
    done: &mut Recovered,
) -> Result<(), TableError> {
    let tables = server.namespace.tables();
    for object in objects {
        let Some(path) = tables.path_of(*object)? else {
            continue;
        };
        let Some(record) = tables.get(&path)? else {
            continue;
        };
        let is_right = match server.objects.read_label(*object) {
            Ok(Some(label)) => {
                server.with_look(|facts| follow::is_right(server, facts, &path, &record, &label))
            }
            _ => false,
        };
        if !is_right {
            follow::relabel(server, *object);
            done.relabeled += 1;
        }
    }
    Ok(())
}

/// Tells what the recovery has found.
pub fn report(server: &ServerHandle, past: Past, done: &Recovered) {
    let work = format_args!(
        "removed {} names and {} orphans, wrote {} labels",
        done.removed, done.orphans, done.relabeled
    )
    .to_string();
    match past.loss {
        None if past.clean => return,
        None => server
            .log
            .line(format_args!("the last bridge ended out of order: {work}")),
        Some(Loss::Power) => server.log.line(format_args!(
            "since the last bridge the power was lost, the storage was moved, or another version took it over: what was \
             not synced in the last second of that bridge is gone; {work}"
        )),
        Some(Loss::Torn) => server.log.line(format_args!(
            "a part of the journal can't be read: the last names of the last bridge are gone; {work}"
        )),
    }
    for path in &done.withheld {
        server.log.line(format_args!(
            "{path}: has no name any more, and is kept in quarantine"
        ));
    }
}
