//! From the end of a request to what its client gets.

use super::Work;
use crate::ServerHandle;
use crate::answer::{Answered, Body};
use crate::log::Cause;
use forebay_core::ops::{Answer, Entry, GrantTarget};
use forebay_core::record::{ObjectId, ObjectName};
use forebay_core::request::{Failure, Finish, Form, GRANT_FLAGS};
use forebay_objects::{Shape, path_of_file, shape};
use forebay_wire::{GRANT_BY_NAME, GRANT_REOPEN, ReplyKind};
use std::os::unix::ffi::OsStrExt;

pub(super) fn answered(server: &ServerHandle, work: &mut Work, finish: Finish) -> Answered {
    let answer = match finish.outcome {
        Ok(answer) => answer,
        Err(failure) => return failed(server, failure),
    };
    match answer {
        Answer::Done => Answered::status(0),
        Answer::Grant { target, flags } => match finish.form {
            Form::Name(object) => granted_by_name(server, object, flags & GRANT_FLAGS),
            Form::Descriptor => Answered {
                kind: ReplyKind::Grant,
                aux: if finish.reopen { GRANT_REOPEN } else { 0 },
                fd: work.descriptor(&target),
                dir: directory(&target),
                ..Answered::status(0)
            },
        },
        Answer::Attr(attr) => Answered {
            kind: ReplyKind::Attr,
            body: Body::Attr(attr.encode()),
            ..Answered::status(0)
        },
        Answer::Bytes(bytes) => Answered::bytes(bytes),
        Answer::Entries { entries, more } => listing(server, work, &entries, more),
    }
}

/// The backing directory that is granted, if it is one.
fn directory(target: &GrantTarget) -> Option<ObjectId> {
    match target {
        GrantTarget::Object(object) if shape(*object) == Shape::Dir => Some(object.oid),
        _ => None,
    }
}

fn failed(server: &ServerHandle, failure: Failure) -> Answered {
    match failure {
        Failure::Errno(e) => Answered::status(e),
        Failure::Redirect(path) => Answered {
            status: forebay_wire::STATUS_REDIRECT,
            ..Answered::bytes(path)
        },
        Failure::Fault(fault) => {
            server.log.limited(Cause::Fault, format_args!("{fault}"));
            Answered::status(libc::EIO)
        }
        Failure::GaveUp => {
            server.log.limited(
                Cause::Limit,
                format_args!("a request was given up after too many steps"),
            );
            Answered::status(libc::EAGAIN)
        }
    }
}

fn granted_by_name(server: &ServerHandle, object: ObjectName, flags: i32) -> Answered {
    let place = server.instance_dir().as_os_str().as_bytes();
    let path = [place, b"/", &path_of_file(object), b"\0"].concat();
    Answered {
        kind: ReplyKind::Grant,
        aux: GRANT_BY_NAME | (flags as u64) << 32,
        ..Answered::bytes(path)
    }
}

fn listing(server: &ServerHandle, work: &Work, entries: &[Entry], more: bool) -> Answered {
    let (mut answered, all_fit) = Answered::entries(entries);
    if more || !all_fit {
        let kept = work.pending.known().last_list();
        let kept = kept.map(|(dir, page)| (dir.clone(), page.clone()));
        answered.aux = server.listings.keep(work.session(), kept);
    } else {
        server.listings.end(work.session());
    }
    answered
}
