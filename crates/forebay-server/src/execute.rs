//! One request from its arrival to its answer: the turns of decide, obtain,
//! commit.

mod obtain;

use crate::ServerHandle;
use crate::answer::{Answered, Body};
use crate::facts::{Memo, RequestFacts};
use crate::follow::follow_up;
use crate::limits::{ENTRIES_PER_REPLY, LOST_RACES, TURNS};
use crate::log::Cause;
use crate::staging::Turn;
use forebay_core::facts::{Cred, Need, Outcome, Stop};
use forebay_core::ops::{self, Answer, Decision, Entry, GrantTarget, Op, Path, Request, Start};
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectId, ObjectName, Token};
use forebay_core::table::{Change, TableError};
use forebay_objects::{Shape, path_of_file, shape};
use forebay_sys::Errno;
use forebay_wire::{BY_NAME, Base, GRANT_BY_NAME, GRANT_REOPEN, ReplyKind};
use obtain::{discard, obtain};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Status flags of a descriptor that a client may have. `O_ASYNC` is not among them.
const GRANT_FLAGS: i32 = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_TRUNC
    | libc::O_NONBLOCK
    | libc::O_DSYNC
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_DIRECTORY
    | libc::O_NOATIME
    | libc::O_NOFOLLOW
    | libc::O_PATH;

/// What an answer grants.
enum Grant {
    Descriptor(OwnedFd),
    /// The client opens the backing file himself, with these flags.
    Name(ObjectName, i32),
}

/// A request in progress. Moves to a thread that may block when it has to.
pub struct Job {
    request: Request,
    cred: Arc<Cred>,
    memo: Memo,
    /// Flags for the descriptor of a new file.
    open_flags: Option<i32>,
    /// The client would rather open a backing file himself.
    by_name: bool,
    /// Listing session, 0 for none.
    session: u64,
    /// It is known to change something.
    changes: bool,
    turns: u32,
    /// Turns that ended because an object had gone between decision and open.
    lost_races: u32,
    /// It is this job's turn to copy a file of the PFS.
    staging: Option<Turn>,
    /// See [`settle_times`].
    times_settled: bool,
}

fn start(base: Base<'_>) -> Result<Start, Errno> {
    Ok(match base {
        Base::Root => Start::Root,
        Base::Object(oid) => Start::Object(ObjectName {
            oid: ObjectId(oid),
            link: 0,
        }),
        Base::Lower(path) => Start::Lower(TreePath::new(path).ok_or(Errno(libc::ENOENT))?),
    })
}

fn path(base: Base<'_>, bytes: &[u8]) -> Result<Path, Errno> {
    Ok(Path {
        start: start(base)?,
        bytes: bytes.to_vec(),
    })
}

impl Job {
    /// The job that a message asks for. `Hello` and `Admin` are none.
    ///
    /// # Errors
    /// An argument can't be right.
    pub fn new(message: &forebay_wire::Request<'_>, cred: Arc<Cred>) -> Result<Self, Errno> {
        use forebay_wire::Op as Wire;
        let first = || path(message.base1, message.str1);
        let second = || path(message.base2, message.str2);
        let has = |flag: u32| message.arg0 & flag != 0;
        let mut open_flags = None;
        let mut changes = false;
        let mut session = 0;
        let by_name = message.op == Wire::Open && message.arg2 & BY_NAME != 0;
        let op = match message.op {
            Wire::Open => {
                let flags = message.arg0 as i32;
                if flags & libc::O_CREAT != 0 {
                    open_flags = Some(new_file_flags(flags));
                }
                Op::Open {
                    path: first()?,
                    flags,
                    mode: message.arg1,
                }
            }
            Wire::Resolve => Op::Resolve {
                path: first()?,
                follow: !has(forebay_wire::NOFOLLOW),
                for_write: has(forebay_wire::FOR_WRITE),
                directory: has(forebay_wire::DIRECTORY),
            },
            Wire::Stat => Op::Stat {
                path: first()?,
                follow: !has(forebay_wire::NOFOLLOW),
            },
            Wire::Mkdir => Op::Mkdir {
                path: first()?,
                mode: message.arg1,
            },
            Wire::Mknod => Op::Mknod {
                path: first()?,
                mode: message.arg1,
                dev: message.arg2,
            },
            Wire::Symlink => Op::Symlink {
                path: first()?,
                text: message.str2.to_vec(),
            },
            Wire::Link => Op::Link {
                old: first()?,
                new: second()?,
                follow: has(forebay_wire::FOLLOW),
            },
            Wire::Unlink => {
                changes = true;
                Op::Unlink {
                    path: first()?,
                    dir: has(forebay_wire::REMOVE_DIR),
                }
            }
            Wire::Rename => {
                changes = true;
                Op::Rename {
                    old: first()?,
                    new: second()?,
                    flags: message.arg0,
                }
            }
            Wire::Readlink => Op::Readlink { path: first()? },
            Wire::ReadDir => {
                session = message.arg2;
                Op::ReadDir {
                    path: first()?,
                    after: (!message.str2.is_empty()).then(|| message.str2.to_vec()),
                    limit: ENTRIES_PER_REPLY,
                }
            }
            Wire::NameOf => Op::NameOf {
                start: start(message.base1)?,
            },
            Wire::Realpath => Op::Realpath { path: first()? },
            Wire::Hello | Wire::Admin | Wire::Lane => return Err(Errno(libc::EINVAL)),
        };
        Ok(Job {
            request: Request {
                op,
                token: Token {
                    client: message.client,
                    seq: message.seq,
                },
                retry: message.retry,
            },
            cred,
            memo: Memo::default(),
            open_flags,
            by_name,
            session,
            changes,
            turns: 0,
            lost_races: 0,
            staging: None,
            times_settled: false,
        })
    }
}

impl Job {
    /// The client asked for more than an `O_PATH` descriptor, and gets one, because only
    /// he may do the open itself (it may block, or act).
    fn wants_reopening(&self, granted: i32) -> bool {
        let asked = match &self.request.op {
            Op::Open { flags, .. } => *flags,
            _ => return false,
        };
        granted & libc::O_PATH != 0 && asked & libc::O_PATH == 0
    }
}

/// The status flags of a descriptor for a file that is being made.
fn new_file_flags(flags: i32) -> i32 {
    flags & GRANT_FLAGS & !(libc::O_TRUNC | libc::O_DIRECTORY | libc::O_NOFOLLOW)
}

/// What stands in the way of an answer.
enum Halt {
    /// The client gets this errno.
    Fail(Errno),
    /// Something would block, and may not here.
    MustBlock,
    /// A fact has been obtained: decide anew.
    Again,
    /// The object went while its name was being looked at: decide anew.
    LostRace,
}

impl From<Errno> for Halt {
    fn from(e: Errno) -> Self {
        Halt::Fail(e)
    }
}

/// Goes on with a job until it is answered. `None`: it has to go on where it may block.
pub fn advance(server: &ServerHandle, job: &mut Job, may_block: bool) -> Option<Answered> {
    loop {
        job.turns += 1;
        let outcome = if job.turns > TURNS {
            server.log.limited(
                Cause::Limit,
                format_args!("a request was given up after {TURNS} turns"),
            );
            Err(Halt::Fail(Errno(libc::EAGAIN)))
        } else {
            turn(server, job, may_block)
        };
        let answered = match outcome {
            Ok(answered) => answered,
            Err(Halt::Again) => continue,
            Err(Halt::LostRace) if job.lost_races < LOST_RACES => {
                job.lost_races += 1;
                continue;
            }
            Err(Halt::LostRace) => {
                server.log.limited(
                    Cause::Fault,
                    format_args!("a record names a backing object that is not there"),
                );
                Answered::status(libc::EIO)
            }
            Err(Halt::MustBlock) => return None,
            Err(Halt::Fail(e)) => Answered::status(e.0),
        };
        discard(server, job);
        return Some(answered);
    }
}

fn turn(server: &ServerHandle, job: &mut Job, may_block: bool) -> Result<Answered, Halt> {
    let pinned;
    let outcome = if job.changes {
        let guard = server.namespace.upgradable();
        job.memo.refresh(server.namespace.lower_changes());
        let facts = RequestFacts {
            server,
            memo: &job.memo,
            state: &guard,
        };
        match ops::decide(&job.request, &job.cred, &server.settings, &facts) {
            Ok(decision) if !decision.batch.is_empty() => {
                // First the descriptor, then the commit: what can fail fails before.
                let granted = grant(server, job, &decision.answer, may_block)?;
                commit(server, job, guard, &decision)?;
                follow_up(server, &decision.effects);
                return Ok(answer(server, job, decision.answer, granted));
            }
            other => {
                pinned = pin(server, job, &other, may_block)?;
                other
            }
        }
    } else {
        let guard = server.namespace.read();
        job.memo.refresh(server.namespace.lower_changes());
        let facts = RequestFacts {
            server,
            memo: &job.memo,
            state: &guard,
        };
        let outcome = ops::decide(&job.request, &job.cred, &server.settings, &facts);
        pinned = pin(server, job, &outcome, may_block)?;
        outcome
    };
    match outcome {
        Ok(decision) if !decision.batch.is_empty() => {
            job.changes = true;
            Err(Halt::Again)
        }
        Ok(decision) => {
            if is_directory(&decision.answer) {
                settle_times(server, job, may_block)?;
            }
            let granted = match pinned {
                Some(Pinned::Whole(granted)) => Some(granted),
                _ => grant(server, job, &decision.answer, may_block)?,
            };
            // The lock is free again: a drain may have let go of the object between the decision
            // and the open. Whoever has the old one open now would write into nothing.
            if granted.is_some() && job.memo.is_stale(server.namespace.lower_changes()) {
                // No lost race: with a drain at work that may happen often to who waits for a slow PFS.
                return Err(Halt::Again);
            }
            Ok(answer(server, job, decision.answer, granted))
        }
        Err(Stop::Need(need)) => {
            // Nobody asks for a new object who does not want to put its record into the tables.
            job.changes |= matches!(need, Need::Object(_));
            obtain(server, job, need, may_block)?;
            Err(Halt::Again)
        }
        Err(Stop::Errno(e)) => Err(Halt::Fail(Errno(e))),
        Err(Stop::Redirect(path)) => Ok(Answered {
            status: forebay_wire::STATUS_REDIRECT,
            ..Answered::bytes(path)
        }),
        Err(Stop::Fault(text)) => {
            server.log.limited(Cause::Fault, format_args!("{text}"));
            Err(Halt::Fail(Errno(libc::EIO)))
        }
    }
}

fn is_directory(answer: &Answer) -> bool {
    matches!(answer, Answer::Attr(attr) if attr.mode & libc::S_IFMT == libc::S_IFDIR)
}

/// Times of directories go to disk late, and the kernel stamps the inode once more then.
/// What a program has seen must not change by itself: before it looks, they are written.
fn settle_times(server: &ServerHandle, job: &mut Job, may_block: bool) -> Result<(), Halt> {
    let below = server.lower.times().any_waits();
    if job.times_settled || !below && !server.objects.has_touched() {
        return Ok(());
    }
    if below && server.lower.may_wait() && !may_block {
        return Err(Halt::MustBlock);
    }
    // Once: others may go on changing entries all the time.
    job.times_settled = true;
    server.objects.flush_touches();
    server.lower.flush_touches();
    job.memo.forget_attrs();
    Err(Halt::Again)
}

/// May the client be told where the file lies, instead of being handed a descriptor? He must be the user to whom the
/// bridge's storage belongs, and it is a plain file: opening a FIFO or a device may block, or act.
fn may_open_himself(server: &ServerHandle, job: &Job, object: ObjectName, flags: i32) -> bool {
    job.by_name
        && job.cred.uid == server.uid()
        && shape(object) == Shape::File
        && flags & libc::O_PATH == 0
}

/// An object that was opened under the lock, so that its file can't have become another's.
enum Pinned {
    /// As the answer grants it.
    Whole(Grant),
    /// Without the truncation that was asked for, which may take long. As long as it is open, its
    /// file stays what it is.
    #[allow(dead_code)] // it is the descriptor that matters
    Open(Grant),
}

/// Opens the object that an answer grants; to be called under the lock. What is made by the
/// request itself needs no pin, nor does what is not an object.
fn pin(
    server: &ServerHandle,
    job: &Job,
    outcome: &Outcome<Decision>,
    may_block: bool,
) -> Result<Option<Pinned>, Halt> {
    let Ok(decision) = outcome else {
        return Ok(None);
    };
    let Answer::Grant {
        target: GrantTarget::Object(object),
        flags,
    } = decision.answer
    else {
        return Ok(None);
    };
    if !decision.batch.is_empty() {
        return Ok(None);
    }
    let without = Answer::Grant {
        target: GrantTarget::Object(object),
        flags: flags & !libc::O_TRUNC,
    };
    let granted = grant(server, job, &without, may_block)?;
    Ok(granted.map(match flags & libc::O_TRUNC {
        0 => Pinned::Whole,
        _ => Pinned::Open,
    }))
}

/// Opens what the answer grants.
fn grant(
    server: &ServerHandle,
    job: &Job,
    answer: &Answer,
    may_block: bool,
) -> Result<Option<Grant>, Halt> {
    let Answer::Grant { target, flags } = answer else {
        return Ok(None);
    };
    let flags = flags & GRANT_FLAGS;
    let opened = match target {
        GrantTarget::Object(object) => {
            if flags & libc::O_PATH != 0 {
                server.objects.never_reuse(*object);
            }
            if job.open_flags == Some(new_file_flags(flags))
                && let Some(fd) = job.memo.take_fd(*object)
            {
                return Ok(Some(Grant::Descriptor(fd)));
            }
            if may_open_himself(server, job, *object, flags) {
                server.objects.never_reuse(*object);
                return Ok(Some(Grant::Name(*object, flags)));
            }
            server.objects.open_object(*object, flags)
        }
        GrantTarget::Lower(_) if server.lower.may_wait() && !may_block => {
            return Err(Halt::MustBlock);
        }
        GrantTarget::Lower(path) => {
            server.lower.flush_touch(path);
            server.lower.open(path, flags)
        }
    };
    match opened {
        Ok(fd) => Ok(Some(Grant::Descriptor(fd))),
        Err(Errno(libc::ENOENT)) if matches!(target, GrantTarget::Object(_)) => Err(Halt::LostRace),
        Err(e) => {
            if matches!(e.0, libc::EMFILE | libc::ENFILE) {
                server
                    .log
                    .limited(Cause::Limit, format_args!("no descriptor left for a grant"));
            }
            Err(Halt::Fail(e))
        }
    }
}

fn commit(
    server: &ServerHandle,
    job: &Job,
    guard: parking_lot::RwLockUpgradableReadGuard<'_, crate::namespace::State>,
    decision: &Decision,
) -> Result<(), Halt> {
    let named = |object: ObjectName| {
        decision
            .batch
            .iter()
            .any(|c| matches!(c, Change::Put { record, .. } if record.object == object))
    };
    let (used, unused): (Vec<_>, Vec<_>) = job
        .memo
        .take_fresh()
        .into_iter()
        .partition(|(_, made)| named(made.fresh.object));
    for (spec, made) in unused {
        job.memo.put_fresh(spec, made);
    }
    let mut own: Vec<Change> = used
        .iter()
        .filter(|(_, made)| made.is_doomed())
        .map(|(_, made)| Change::Undoom(made.fresh.object))
        .collect();
    own.extend(server.watermark());
    if let Err(e) = server
        .namespace
        .commit(guard, job.request.token, &decision.batch, own)
    {
        for (spec, made) in used {
            job.memo.put_fresh(spec, made);
        }
        return Err(not_written(server, &e));
    }
    for (_, made) in used {
        server.objects.settle(&made);
    }
    Ok(())
}

/// The tables did not take a batch.
fn not_written(server: &ServerHandle, e: &TableError) -> Halt {
    server.log.limited(Cause::Fault, format_args!("{e}"));
    let errno = if e.is_no_space() {
        libc::ENOSPC
    } else {
        libc::EIO
    };
    Halt::Fail(Errno(errno))
}

fn answer(server: &ServerHandle, job: &Job, answer: Answer, granted: Option<Grant>) -> Answered {
    let fd = match granted {
        Some(Grant::Name(object, flags)) => {
            let place = server.instance_dir().as_os_str().as_bytes();
            let path = [place, b"/", &path_of_file(object), b"\0"].concat();
            return Answered {
                kind: ReplyKind::Grant,
                aux: GRANT_BY_NAME | (flags as u64) << 32,
                ..Answered::bytes(path)
            };
        }
        Some(Grant::Descriptor(fd)) => Some(fd),
        None => None,
    };
    match answer {
        Answer::Done => Answered::status(0),
        Answer::Grant { flags, .. } => Answered {
            kind: ReplyKind::Grant,
            aux: if job.wants_reopening(flags) {
                GRANT_REOPEN
            } else {
                0
            },
            fd,
            ..Answered::status(0)
        },
        Answer::Attr(attr) => Answered {
            kind: ReplyKind::Attr,
            body: Body::Attr(attr.encode()),
            ..Answered::status(0)
        },
        Answer::Bytes(bytes) => Answered::bytes(bytes),
        Answer::Entries { entries, more } => listing(server, job, &entries, more),
    }
}

fn listing(server: &ServerHandle, job: &Job, entries: &[Entry], more: bool) -> Answered {
    let (mut answered, all_fit) = Answered::entries(entries);
    if more || !all_fit {
        answered.aux = server.listings.keep(job.session, job.memo.any_list());
    } else {
        server.listings.end(job.session);
    }
    answered
}
