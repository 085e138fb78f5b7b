//! Makes what is on disk fit to serve from, however the last bridge ended.
//!
//! Three things may be unfinished: names to unlink and labels to write, which
//! have marks in the tables, and objects that were made and never named, which
//! have sequence numbers above the watermark.

use crate::ServerHandle;
use crate::follow;
use crate::log::Cause;
use forebay_core::record::ObjectName;
use forebay_core::table::{Change, TableError, Tables, WriteTables};
use forebay_objects::folder_of;

const EPOCH: &[u8] = b"server/epoch";
const CLEAN: &[u8] = b"server/clean";
const WATERMARK: &[u8] = b"server/watermark";

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
        .map(|v| <[u8; N]>::try_from(&v[..]).map_err(|_| TableError::damaged("value", key)))
        .transpose()
}

/// Reads what the tables say about it.
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

/// Ends the epoch in order.
///
/// # Errors
/// The store failed.
pub fn end(server: &ServerHandle) -> Result<(), TableError> {
    for object in server.objects.drop_spares() {
        server.namespace.object_gone(object);
    }
    let mut changes = server.namespace.all_marks();
    changes.push(watermark(server.objects.settled()));
    changes.push(meta(CLEAN, Some(Vec::new())));
    server.namespace.note(&changes)?;
    server.namespace.flush()
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
    let suspects = if past.clean {
        Vec::new()
    } else {
        suspects(server, past.watermark)?
    };
    let doomed = server.namespace.tables().marks()?.doomed.len();
    let sweep = server.namespace.sweep(suspects)?;
    let mut done = Recovered::default();
    for (n, &object) in sweep.remove.iter().enumerate() {
        match server.objects.remove(object) {
            Ok(()) if n < doomed => done.removed += 1,
            Ok(()) => done.orphans += 1,
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
    if !past.clean {
        server.objects.sweep();
    }
    Ok(done)
}

/// Objects on disk that may have been made without ever being named.
fn suspects(server: &ServerHandle, watermark: u64) -> Result<Vec<ObjectName>, TableError> {
    let found = server
        .objects
        .scan(folder_of(watermark))
        .map_err(|e| TableError::Failed(format!("can't list backing objects: {e}")))?;
    let objects = found.into_iter().flatten().map(|(object, _)| object);
    Ok(objects.filter(|o| o.oid.seq() >= watermark).collect())
}
