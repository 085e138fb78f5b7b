//! Makes what is on disk fit to serve from, however the last bridge ended: carries out what [`forebay_core::recovery`] decides.

use crate::ServerHandle;
use crate::follow;
use crate::log::Cause;
use forebay_core::facts::{Attr, Judged, Label, LabelParent, Stop};
use forebay_core::path::TreePath;
use forebay_core::record::{Kind, ObjectName, PathRecord};
use forebay_core::recovery::{
    self, Fate, LabelStanding, Loss, Past, SeenLabel, Step, Stray, Suspects,
};
use forebay_core::repair::lost;
use forebay_core::reserve::Purpose;
use forebay_core::table::{Change, Order, TableError, Tables};
use forebay_objects::{LabelError, Scanned, folder_of};
use forebay_sys::Errno;
use std::fs::File;
use std::io::{BufReader, Read};

/// Records that are read at a time.
const PAGE: usize = 1024;
/// Bytes of two files that are compared at a time.
const COMPARED_BYTES: usize = 1 << 18;

/// Ends the epoch in order, and durably.
///
/// # Errors
/// The store failed.
pub fn end(server: &ServerHandle) -> Result<(), TableError> {
    server.namespace.serve_for(Purpose::BringAway);
    if !follow::make_all_markers(server) {
        server.log.line(format_args!(
            "of some removals the tables alone tell: their markers could not be made; the next start tries again"
        ));
    }
    server.sync_point()?;
    while server.unlink_removed() {}
    for object in server.objects.drop_spares() {
        server.namespace.object_gone(object);
    }
    let mut marks = server.namespace.all_marks();
    marks.extend(recovery::ended(
        server.objects.settled(),
        server.objects.has_unnamed(),
    ));
    server.namespace.note(marks)?;
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
    server.namespace.sync()?;
    if is_empty {
        server.hold.release();
        let withheld = server.objects.withheld();
        if withheld.is_ok_and(|withheld| withheld.is_empty()) {
            server.namespace.serve_for(Purpose::EndEmpty);
        }
    }
    Ok(())
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
    server.namespace.finish_removals()?;
    let suspects = match past.suspects() {
        Suspects::None => Vec::new(),
        Suspects::From(first) => {
            let mut new = on_disk(server, folder_of(first))?;
            new.retain(|object| object.oid.seq() >= first);
            new
        }
        Suspects::All => on_disk(server, 0)?,
    };
    server.objects.hold_watermark(past.watermark);
    let mut done = Recovered::default();
    for step in past.steps(None) {
        match step {
            Step::DistrustContents => server.objects.distrust_contents(suspects.iter().copied()),
            Step::DistrustPfs => server.lower.note_all_changed(),
            Step::LinkWhatIsAhead => link_what_is_ahead(server, &suspects)?,
            Step::SyncPoint => server.namespace.sync()?,
            Step::Sweep { judges } => sweep(server, &suspects, judges, &mut done)?,
            Step::RelabelWhatIsAhead => relabel_what_is_ahead(server, &suspects, &mut done)?,
            Step::DoubtWhatWasDrained => doubt_what_was_drained(server)?,
        }
    }
    server.objects.release_watermark(past.watermark);
    server.namespace.note(recovery::recovered(&past, &[]))?;
    if !past.clean {
        server.objects.sweep();
    }
    Ok(done)
}

fn sweep(
    server: &ServerHandle,
    suspects: &[ObjectName],
    judges: bool,
    done: &mut Recovered,
) -> Result<(), TableError> {
    let doomed = server.namespace.tables().marks()?.doomed.len();
    let sweep = server.namespace.sweep(suspects.iter().copied())?;
    for (n, &object) in sweep.remove.iter().enumerate() {
        let is_orphan = n >= doomed;
        if is_orphan && judges && withhold(server, object, done)? {
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
        match standing(server, object)? {
            LabelStanding::Unmade => follow::mark_later(server, &[object]),
            LabelStanding::Right => {
                server.with_look(|_, locked| server.namespace.object_relabeled(object, locked))
            }
            LabelStanding::Wrong => {
                done.relabeled += usize::from(follow::relabel(server, object));
            }
        }
    }
    Ok(())
}

fn standing(server: &ServerHandle, object: ObjectName) -> Result<LabelStanding, TableError> {
    let tables = server.namespace.tables();
    let Some(path) = tables.path_of(object)? else {
        return Ok(LabelStanding::Right);
    };
    let Some(record) = tables.get(&path)? else {
        return Ok(LabelStanding::Right);
    };
    let is_right = |label: &Label| {
        server.with_look(|facts, _| follow::is_right(server, facts, &path, &record, label))
    };
    let found = match server.objects.read_label(object) {
        Ok(Some(label)) if is_right(&label) => SeenLabel::Right,
        Err(LabelError::System(Errno::NOENT)) => SeenLabel::NoObject,
        _ => SeenLabel::Other,
    };
    Ok(LabelStanding::of(record.kind, found))
}

/// All objects in folders from this one on.
fn on_disk(server: &ServerHandle, folder: u64) -> Result<Vec<ObjectName>, TableError> {
    let found = server
        .objects
        .scan(folder)
        .map_err(|e| TableError::Failed(format!("can't list backing objects: {e}")))?;
    let object = |entry| match entry {
        Scanned::Object(object) => Some(object),
        Scanned::Strange(_) => None,
    };
    let mut objects: Vec<_> = found.into_iter().filter_map(object).collect();
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
        Err(Errno::NOENT) => return Ok(false),
        Err(e) => return Err(failed(e)),
    };
    let label = match server.objects.read_label(object) {
        Ok(label) => label,
        Err(LabelError::System(Errno::NOENT)) => None,
        // Nobody knows what it tells, so what is in the file counts as data of a file that was in the root.
        Err(LabelError::Format(_)) => Some(Label {
            kind: Kind::File,
            parent: LabelParent::Lower(TreePath::root()),
            name: lost(object).name().to_vec(),
            origin: None,
            hides: None,
            renamed: None,
        }),
        Err(LabelError::System(e)) => return Err(failed(e)),
    };
    let hides = label.as_ref().and_then(|label| label.hides.as_ref());
    // Another directory tells nothing about the one that it is for.
    let hides = hides.filter(|_| server.left_alone.is_none());
    let original = hides.and_then(|path| server.lower.attr(path).ok().flatten());
    let is_same = || {
        let both = hides.zip(original.as_ref());
        both.is_some_and(|(path, original)| has_bytes_of(server, object, (path, original)))
    };
    let stray = Stray::of(label.as_ref(), &attr, original.as_ref(), is_same);
    if stray.fate() == Fate::Remove {
        return Ok(false);
    }
    let path = match &label {
        Some(label) => recovery::told_path(server.namespace.tables(), label)?,
        None => return Ok(false),
    };
    server
        .objects
        .quarantine(object, path.as_bytes())
        .map_err(failed)?;
    done.withheld.push(path.to_string());
    Ok(true)
}

/// Does this file of the PFS hold the same bytes? If nobody can tell it does not.
fn has_bytes_of(
    server: &ServerHandle,
    object: ObjectName,
    (path, original): (&TreePath, &Attr),
) -> bool {
    let here = server.objects.open_object(object, libc::O_RDONLY);
    let judged = Judged::new(original);
    let below = server.lower.open_judged(path, &judged, libc::O_RDONLY);
    let (Ok(here), Ok(below)) = (here, below) else {
        return false;
    };
    let bytes = |fd| BufReader::with_capacity(COMPARED_BYTES, File::from(fd)).bytes();
    let (mut here, mut below) = (bytes(here), bytes(below));
    loop {
        match (here.next(), below.next()) {
            (None, None) => return true,
            (Some(Ok(a)), Some(Ok(b))) if a == b => {}
            _ => return false,
        }
    }
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
        for (path, object, others) in recovery::lost_names(page, on_disk) {
            let mut others = others.iter();
            if others.any(|other| server.objects.link_again(*other, object).is_ok()) {
                let _ = follow::relabel(server, object);
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
            let found = match server.left_alone {
                None => server.lower.attr(path),
                // Another directory tells nothing about the one that it is for.
                Some(_) => Err(Errno::STALE),
            };
            let found = found.map_err(|e| Stop::Errno(e.raw_os_error()));
            if let Some(record) = recovery::undrained_by_loss(path, record, &now, found) {
                let path = path.clone();
                changes.push(Change::Put { path, record });
            }
        }
        match changes.is_empty() {
            true => Ok(()),
            false => server.namespace.mend(changes),
        }
    })
}

/// Labels anew what was renamed after the last sync point.
fn relabel_what_is_ahead(
    server: &ServerHandle,
    objects: &[ObjectName],
    done: &mut Recovered,
) -> Result<(), TableError> {
    for object in objects {
        if standing(server, *object)? == LabelStanding::Wrong {
            done.relabeled += usize::from(follow::relabel(server, *object));
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
