//! Work on backing objects that follows a commit. Until it is done, a mark in the tables tells the next start to do it.

use crate::ServerHandle;
use crate::log::Cause;
use forebay_core::facts::{Cred, Facts, Label, Stop};
use forebay_core::label;
use forebay_core::markers::{Unmade, may_be_unmade};
use forebay_core::ops::{FollowUp, Touched};
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectName, PathRecord};
use forebay_core::table::{TableError, Tables};
use forebay_core::walk::Walk;
use forebay_objects::Retired;
use forebay_sys::Errno;
use std::fmt;

/// Markers of one round. A sync point may come between rounds.
const MARKED_AT_ONCE: usize = 256;

/// What is unlinked after the next sync point, and before the request is answered.
#[derive(Default)]
pub(crate) struct AfterSync {
    /// Objects that a program has open: it sees that they have no name any more.
    objects: Vec<ObjectName>,
    /// All else that waits for a sync point, too.
    all: bool,
}

/// Work on backing objects that a commit has announced, as far as it need not wait for the disk. False: a label could not be written, and
/// nothing that a rebuild can see was done after it.
pub(crate) fn begin(server: &ServerHandle, follow_ups: &[FollowUp], after: &mut AfterSync) -> bool {
    // A rebuild relies on their order. The marks stay.
    let mut are_labelled = true;
    for follow_up in follow_ups {
        match follow_up {
            FollowUp::Remove(_) | FollowUp::Void(..) | FollowUp::Relabel(..) if !are_labelled => {}
            FollowUp::Remove(object) => match server.objects.retire(*object) {
                Ok(Retired::Gone) => server.namespace.object_gone(*object),
                Ok(Retired::Unmade) => server.namespace.unmade_marker_gone(*object),
                Ok(Retired::Kept) => {}
                // Whoever removes files of a full disk may write in the next moment.
                Ok(Retired::Waits) => {
                    after.all |= server.objects.is_short_of_space();
                    server.durability.rouse();
                }
                Ok(Retired::InUse) => after.objects.push(*object),
                // The mark stays, and the next start tries again.
                Err(e) => server.log.limited(
                    Cause::Io,
                    format_args!("backing object {object} could not be removed: {e}"),
                ),
            },
            // It gets the label that is right when it is made.
            FollowUp::Relabel(object, _) if server.objects.is_unmade(*object) => {}
            FollowUp::Relabel(object, _) => are_labelled = relabel(server, *object),
            FollowUp::Void(object, _) if server.objects.is_unmade(*object) => {}
            FollowUp::Void(object, path) => {
                let written = server
                    .objects
                    .write_label(*object, &label::void_label(path));
                if let Err(e) = written {
                    say_unlabelled(server, *object, &Unlabelled::Object(e));
                    are_labelled = false;
                }
            }
            // It waits since before the commit.
            FollowUp::Mark(_) => {}
            FollowUp::Touch(Touched::Object(object)) => server.objects.touch(*object),
            FollowUp::Touch(Touched::Lower(path, dir)) => server.lower.touch(path, *dir),
        }
    }
    are_labelled
}

/// [`begin`], and what waits for a sync point, where it may block.
pub(crate) fn follow_up(server: &ServerHandle, follow_ups: &[FollowUp]) -> bool {
    let mut after = AfterSync::default();
    let are_labelled = begin(server, follow_ups, &mut after);
    after.at_once(server);
    are_labelled
}

impl AfterSync {
    /// Is there nothing that has to wait?
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && !self.all
    }

    /// Reaches a sync point, then unlinks. It waits for the disk.
    pub fn at_once(self, server: &ServerHandle) {
        if self.is_empty() {
            return;
        }
        let reached = server.sync_point();
        if let Err(e) = &reached {
            server.log.limited(Cause::Fault, format_args!("{e}"));
        }
        self.unlink(server, reached.is_ok());
    }

    /// Unlinks. `reached`: a sync point after the commit. Without one the objects wait for the next.
    pub fn unlink(self, server: &ServerHandle, reached: bool) {
        for object in self.objects {
            match reached.then(|| server.objects.remove(object)) {
                Some(Ok(())) => server.namespace.object_gone(object),
                outcome => {
                    server.objects.retire_later(object);
                    server.durability.rouse();
                    if let Some(Err(e)) = outcome {
                        server
                            .log
                            .limited(Cause::Io, format_args!("{object} is not unlinked yet: {e}"));
                    }
                }
            }
        }
        if self.all && reached {
            while server.unlink_removed() {}
        }
    }
}

/// Writes the label of an object as the tables have it now. False: that has failed, as the log says.
#[must_use]
pub(crate) fn relabel(server: &ServerHandle, object: ObjectName) -> bool {
    let labelled = try_to_relabel(server, object);
    if let Err(why) = &labelled {
        say_unlabelled(server, object, why);
    }
    labelled.is_ok()
}

/// The mark stays: the next start tries again, or removes it.
fn say_unlabelled(server: &ServerHandle, object: ObjectName, why: &Unlabelled) {
    server.log.limited(
        Cause::Io,
        format_args!("backing object {object} could not be labelled: {why}"),
    );
}

/// These markers are to be made later. To be called when nobody can see yet the commit that names them, or before anybody is served.
pub(crate) fn mark_later(server: &ServerHandle, markers: &[ObjectName]) {
    for marker in markers {
        if server.objects.mark_later(*marker) {
            server.durability.markers_wait();
        }
    }
}

/// Makes some of the markers that wait.
pub(crate) fn make_markers(server: &ServerHandle) {
    make(server, server.objects.due_markers(MARKED_AT_ONCE));
    // Without this, a start after a kill looks at each finished mark before it serves anybody.
    while server.namespace.note_finished(MARKED_AT_ONCE) {}
}

/// Makes all markers that wait; false if that has failed for one. The tables tell the next start of it.
pub(crate) fn make_all_markers(server: &ServerHandle) -> bool {
    // Those that were due, and then all others.
    for _ in 0..2 {
        make(server, server.objects.due_markers(usize::MAX));
    }
    server.objects.unmade() == Unmade::None
}

fn make(server: &ServerHandle, markers: Vec<ObjectName>) {
    for marker in markers {
        match try_to_relabel(server, marker) {
            // Its directory is being removed, and it goes as well.
            Ok(()) | Err(Unlabelled::NoDirectory(_)) => {}
            Err(why) => {
                say_unlabelled(server, marker, &why);
                if matches!(why, Unlabelled::Object(Errno::NOSPC | Errno::DQUOT)) {
                    return server.objects.put_off_markers();
                }
            }
        }
        server.objects.put_off_marker(marker);
    }
}

/// As [`relabel`], for callers that say themselves what has failed.
pub(crate) fn try_to_relabel(server: &ServerHandle, object: ObjectName) -> Result<(), Unlabelled> {
    // The lock is held while the label is made equal to the table and until that is noted, so that no later rename comes between.
    server.with_look(|facts, locked| {
        let done = label_anew(server, facts, object);
        done.map(|()| server.namespace.object_relabeled(object, locked))
    })
}

/// Why an object does not get the label that it should carry.
#[derive(Debug)]
pub(crate) enum Unlabelled {
    Tables(TableError),
    /// The label can't be told: the directory of the path is not known.
    NoDirectory(Stop),
    Object(Errno),
}

impl fmt::Display for Unlabelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unlabelled::Tables(e) => e.fmt(f),
            Unlabelled::NoDirectory(stop) => write!(f, "its directory is not known ({stop:?})"),
            Unlabelled::Object(e) => e.fmt(f),
        }
    }
}

fn label_anew(
    server: &ServerHandle,
    facts: &dyn Facts,
    object: ObjectName,
) -> Result<(), Unlabelled> {
    let tables = server.namespace.tables();
    let path = tables.path_of(object).map_err(Unlabelled::Tables)?;
    let record = match &path {
        Some(path) => tables.get(path).map_err(Unlabelled::Tables)?,
        None => None,
    };
    let (Some(path), Some(record)) = (path, record) else {
        server.objects.forget_marker(object);
        return Ok(());
    };
    let label = label_for(server, facts, &path, &record)?;
    let written = match may_be_unmade(record.kind) {
        true => server.objects.make_marker(object, &label),
        false => server.objects.write_label(object, &label),
    };
    written.map_err(Unlabelled::Object)
}

/// The label that the object of a record should carry.
pub(crate) fn label_for(
    server: &ServerHandle,
    facts: &dyn Facts,
    path: &TreePath,
    record: &PathRecord,
) -> Result<Label, Unlabelled> {
    label::label_at(&walk(server, facts, &Cred::default()), path, record)
        .map_err(Unlabelled::NoDirectory)
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
    Walk::new(cred, &server.settings, facts, false)
}
