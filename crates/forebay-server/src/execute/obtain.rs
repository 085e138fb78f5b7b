//! What a decision has asked for, and what becomes of it when nobody wants it any more.

use super::{Halt, Job, not_written};
use crate::ServerHandle;
use crate::limits::{INLINE_LISTING, INLINE_STAGE_BYTES};
use crate::log::Cause;
use forebay_core::facts::{Need, NewKind, NewObject};
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectName, Token};
use forebay_core::table::Change;
use forebay_objects::Made;
use forebay_sys::Errno;

/// Obtains one fact, outside any lock.
pub(super) fn obtain(
    server: &ServerHandle,
    job: &mut Job,
    need: Need,
    may_block: bool,
) -> Result<(), Halt> {
    let waits = server.lower.may_wait();
    match need {
        Need::Lower(_) | Need::LowerLink(_) | Need::LowerList(_) if waits && !may_block => {
            Err(Halt::MustBlock)
        }
        Need::Lower(path) => {
            let attr = server.lower.attr(&path)?;
            job.memo.put_attr(path, attr);
            Ok(())
        }
        Need::LowerLink(path) => {
            let text = server.lower.link_text(&path)?;
            job.memo.put_link(path, text);
            Ok(())
        }
        Need::LowerList(path) => {
            let kept = server.listings.get(job.session, &path);
            let limit = if may_block {
                usize::MAX
            } else {
                INLINE_LISTING
            };
            let list = match kept {
                Some(list) => list,
                None => server.lower.list(&path, limit)?.ok_or(Halt::MustBlock)?,
            };
            job.memo.put_list(path, list);
            Ok(())
        }
        Need::Object(spec) => obtain_object(server, job, *spec, may_block),
        Need::Settled(_) if !may_block => Err(Halt::MustBlock),
        Need::Settled(path) => server
            .namespace
            .await_settled(&path)
            .map_err(|e| not_written(server, &e)),
        // One bridge is home of every path.
        Need::Record(_) | Need::Range(_) => Err(Halt::Fail(Errno(libc::EIO))),
    }
}

fn obtain_object(
    server: &ServerHandle,
    job: &mut Job,
    spec: NewObject,
    may_block: bool,
) -> Result<(), Halt> {
    let made = match &spec.what {
        NewKind::LinkTo(old) => make_link(server, *old, &spec)?,
        NewKind::Staged { lower, bytes } => {
            if !may_block && (server.lower.may_wait() || *bytes > INLINE_STAGE_BYTES) {
                return Err(Halt::MustBlock);
            }
            take_turn(server, job, lower, may_block)?;
            let made = server.objects.make(&spec, None, &server.lower)?;
            server.counters.staged(*bytes);
            made
        }
        NewKind::File => match reuse(server, &spec, job.open_flags) {
            Some(made) => made,
            None => make(server, &spec, job.open_flags)?,
        },
        _ => make(server, &spec, None)?,
    };
    job.memo.put_fresh(spec, made);
    Ok(())
}

/// A new object. Where there is no room for one, the spare files make some.
fn make(server: &ServerHandle, spec: &NewObject, open: Option<i32>) -> Result<Made, Errno> {
    match server.objects.make(spec, open, &server.lower) {
        Err(Errno(libc::ENOSPC | libc::EDQUOT)) => {
            for object in server.objects.drop_spares() {
                server.namespace.object_gone(object);
            }
            server.objects.make(spec, open, &server.lower)
        }
        other => other,
    }
}

/// A new file that is a spare one, if there is one of use.
fn reuse(server: &ServerHandle, spec: &NewObject, open: Option<i32>) -> Option<Made> {
    let object = match server.objects.reuse(spec, open?) {
        Ok(made) => return made,
        Err(object) => object,
    };
    match server.objects.remove(object) {
        Ok(()) => server.namespace.object_gone(object),
        // The mark stays, and the next start tries again.
        Err(e) => server.log.limited(
            Cause::Io,
            format_args!("spare backing object {object} could not be removed: {e}"),
        ),
    }
    None
}

/// Of many clients that want one file, one copies and the others wait until it is in the
/// tables. Whoever gets the turn decides anew first: it may be there already.
fn take_turn(
    server: &ServerHandle,
    job: &mut Job,
    lower: &TreePath,
    may_block: bool,
) -> Result<(), Halt> {
    if job
        .staging
        .as_ref()
        .is_some_and(|turn| turn.path() == lower)
    {
        return Ok(());
    }
    job.staging = None;
    job.staging = server.staging.enter(lower, may_block);
    match job.staging {
        None if !may_block => Err(Halt::MustBlock),
        _ => Err(Halt::Again),
    }
}

/// A link is announced before it is made: it has no sequence number of its own by
/// which a start after a crash would find it.
fn make_link(server: &ServerHandle, old: ObjectName, spec: &NewObject) -> Result<Made, Halt> {
    let new = server.objects.new_link(old);
    let announce = Change::Doom {
        object: new,
        token: Token::default(),
    };
    if let Err(e) = server.namespace.note(&[announce]) {
        return Err(not_written(server, &e));
    }
    match server.objects.make_link(old, new, spec) {
        Ok(fresh) => Ok(Made {
            fresh,
            fd: None,
            spare: None,
        }),
        Err(e) => {
            let _ = server.objects.remove(new);
            server.namespace.object_gone(new);
            match e.0 {
                // The other name was removed after the decision.
                libc::ENOENT => Err(Halt::LostRace),
                _ => Err(Halt::Fail(e)),
            }
        }
    }
}

/// Removes new objects that no commit has named.
pub(super) fn discard(server: &ServerHandle, job: &Job) {
    for (_, made) in job.memo.take_fresh() {
        let object = made.fresh.object;
        if let Err(e) = server.objects.remove(object) {
            server.log.limited(
                Cause::Io,
                format_args!("unused backing object {object} could not be removed: {e}"),
            );
            // Not settled: the next start looks at it again.
            continue;
        }
        server.objects.settle(&made);
        if made.is_doomed() {
            server.namespace.object_gone(object);
        }
    }
}
