//! Work on backing objects that follows a commit. Until it is done, a mark in the tables tells the next start to do it.

use crate::ServerHandle;
use crate::log::Cause;
use forebay_core::facts::{Cred, Facts, Label};
use forebay_core::label;
use forebay_core::ops::FollowUp;
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectName, PathRecord};
use forebay_core::table::{TableError, Tables};
use forebay_core::walk::{Place, Walk};
use forebay_objects::Retired;

/// Work on backing objects that a commit has announced.
pub(crate) fn follow_up(server: &ServerHandle, follow_ups: &[FollowUp]) {
    for follow_up in follow_ups {
        match follow_up {
            FollowUp::Remove(object) => match server.objects.retire(*object) {
                Ok(Retired::Gone) => server.namespace.object_gone(*object),
                Ok(Retired::Kept) => {}
                Ok(Retired::Waits) if !server.objects.is_short_of_space() => {}
                // Whoever removes files of a full disk may write in the next moment.
                Ok(Retired::Waits) => unlink_all(server),
                Ok(Retired::InUse) => unlink(server, *object),
                // The mark stays, and the next start tries again.
                Err(e) => server.log.limited(
                    Cause::Io,
                    format_args!("backing object {object} could not be removed: {e}"),
                ),
            },
            FollowUp::Relabel(object, _) => relabel(server, *object),
            FollowUp::Touch(Place::Born(object)) => server.objects.touch(*object),
            FollowUp::Touch(Place::Merged(path)) => server.lower.touch(path),
        }
    }
}

/// Reaches a sync point, then unlinks everything that waited for it.
fn unlink_all(server: &ServerHandle) {
    match server.sync_point() {
        Ok(()) => while server.unlink_removed() {},
        Err(e) => server.log.limited(Cause::Fault, format_args!("{e}")),
    }
}

/// Unlinks one object after a sync point.
fn unlink(server: &ServerHandle, object: ObjectName) {
    let reached = server.sync_point();
    match reached.map(|()| server.objects.remove(object)) {
        Ok(Ok(())) => server.namespace.object_gone(object),
        outcome => {
            server.objects.retire_later(object);
            server.log.limited(
                Cause::Io,
                format_args!("{object} is not unlinked yet: {outcome:?}"),
            );
        }
    }
}

/// Writes the label of an object as the tables have it now.
pub(crate) fn relabel(server: &ServerHandle, object: ObjectName) {
    // The lock is held while the label is made equal to the table, so that no later rename comes between.
    let outcome = server.with_look(|facts| {
        let tables = server.namespace.tables();
        let fault = |e: TableError| e.to_string();
        let Some(path) = tables.path_of(object).map_err(fault)? else {
            return Ok(());
        };
        let Some(record) = tables.get(&path).map_err(fault)? else {
            return Ok(());
        };
        let label = label_for(server, facts, &path, &record)?;
        server
            .objects
            .write_label(object, &label)
            .map_err(|e| e.to_string())
    });
    match outcome {
        Ok(()) => server.namespace.object_relabeled(object),
        // The mark stays, and the next start tries again.
        Err(text) => server.log.limited(
            Cause::Io,
            format_args!("backing object {object} could not be labelled: {text}"),
        ),
    }
}

/// The label that the object of a record should carry.
pub(crate) fn label_for(
    server: &ServerHandle,
    facts: &dyn Facts,
    path: &TreePath,
    record: &PathRecord,
) -> Result<Label, String> {
    label::label_at(&walk(server, facts, &Cred::default()), path, record)
        .map_err(|stop| format!("no directory for {path:?}: {stop:?}"))
}

/// Is a label right for the object of a record?
pub(crate) fn is_right(
    server: &ServerHandle,
    facts: &dyn Facts,
    path: &TreePath,
    record: &PathRecord,
    found: &Label,
) -> bool {
    let cred = Cred::default();
    label::is_right(&walk(server, facts, &cred), path, record, found).unwrap_or(false)
}

fn walk<'a>(server: &'a ServerHandle, facts: &'a dyn Facts, cred: &'a Cred) -> Walk<'a> {
    Walk {
        cred,
        settings: &server.settings,
        facts,
    }
}
