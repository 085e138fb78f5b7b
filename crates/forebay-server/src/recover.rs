//! From what is on disk to a bridge that can serve, whatever ended the last one.
//!
//! Three things may be unfinished: names to unlink and labels to write, which
//! have marks in the tables, and objects that were made and never named, which
//! have sequence numbers above the watermark.

use crate::ServerHandle;
use crate::execute;
use crate::log::Cause;
use crate::objects::folder_of;
use forebay_core::table::{Change, TableError, Tables};

const EPOCH: &[u8] = b"bridge/epoch";
const CLEAN: &[u8] = b"bridge/clean";
const WATERMARK: &[u8] = b"bridge/watermark";

/// What the tables say about the life before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    /// Its epoch, 0 if there was none.
    pub epoch: u32,
    /// It ended in order.
    pub clean: bool,
    /// Objects with smaller sequence numbers are named, or gone.
    pub watermark: u64,
}

fn number<const N: usize>(tables: &impl Tables, key: &[u8]) -> Result<Option<[u8; N]>, TableError> {
    tables
        .meta(key)?
        .map(|v| {
            <[u8; N]>::try_from(&v[..])
                .map_err(|_| TableError(format!("damaged value of {}", key.escape_ascii())))
        })
        .transpose()
}

/// Reads it.
///
/// # Errors
/// The tables can't be read, or are damaged.
pub fn past(tables: &impl Tables) -> Result<Past, TableError> {
    let epoch = number(tables, EPOCH)?.map_or(0, u32::from_le_bytes);
    Ok(Past {
        epoch,
        clean: epoch == 0 || tables.meta(CLEAN)?.is_some(),
        watermark: number(tables, WATERMARK)?.map_or(0, u64::from_le_bytes),
    })
}

fn meta(key: &[u8], value: Option<Vec<u8>>) -> Change {
    Change::Meta {
        key: key.to_vec(),
        value,
    }
}

/// The new epoch begins; until its end is written down, it counts as broken off.
///
/// # Errors
/// The store failed.
pub fn begin(tables: &impl Tables, epoch: u32) -> Result<(), TableError> {
    tables.apply(&[
        meta(EPOCH, Some(epoch.to_le_bytes().to_vec())),
        meta(CLEAN, None),
    ])
}

/// The watermark as a change.
pub fn watermark(settled: u64) -> Change {
    meta(WATERMARK, Some(settled.to_le_bytes().to_vec()))
}

/// The epoch ends in order.
///
/// # Errors
/// The store failed.
pub fn end(server: &ServerHandle) -> Result<(), TableError> {
    let mut changes = server.namespace.all_marks();
    changes.push(watermark(server.objects.settled()));
    changes.push(meta(CLEAN, Some(Vec::new())));
    server.namespace.note(&changes)
}

/// What was found and done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Names unlinked because a mark said so.
    pub removed: usize,
    /// Labels written because a mark said so.
    pub relabeled: usize,
    /// Objects removed because no record names them.
    pub orphans: usize,
}

/// Finishes what the last life left. No client is connected yet.
///
/// # Errors
/// The tables can't be read.
pub fn recover(server: &ServerHandle, past: Past) -> Result<Recovered, TableError> {
    let mut done = Recovered::default();
    let tables = server.namespace.tables();
    let mut marks = tables.marks()?;
    for &(object, _) in &marks.doomed {
        // A link is announced by such a mark before it is made, and the commit that names
        // it takes the mark away. So a name in the tables always wins.
        if tables.path_of(object)?.is_some() {
            continue;
        }
        match server.objects.remove(object) {
            Ok(()) => done.removed += 1,
            Err(e) => server.log.limited(
                Cause::Io,
                format_args!("backing object {object} could not be removed: {e}"),
            ),
        }
    }
    // Those are written, and entered among the finished ones, one by one.
    for object in std::mem::take(&mut marks.relabel) {
        execute::relabel(server, object);
        done.relabeled += 1;
    }
    server.namespace.adopt(&marks);
    if !past.clean {
        let scanned = server.objects.scan(folder_of(past.watermark));
        let found = scanned.map_err(|e| TableError(format!("can't list backing objects: {e}")))?;
        for (object, _) in found.into_iter().flatten() {
            if object.oid.seq() < past.watermark || tables.path_of(object)?.is_some() {
                continue;
            }
            match server.objects.remove(object) {
                Ok(()) => done.orphans += 1,
                Err(e) => server.log.limited(
                    Cause::Io,
                    format_args!("orphan {object} could not be removed: {e}"),
                ),
            }
        }
        server.objects.sweep();
    }
    Ok(done)
}
