//! Effects that touch the PFS or the local disk: carried out where the request arrived if they do not
//! wait, else on a thread that may block.

use crate::ServerHandle;
use crate::in_place;
use crate::listings::Session;
use crate::log::Cause;
use forebay_core::facts::{
    Attr, Cred, Inode, Judged, LOWER_PAGE_ENTRIES, NewKind, NewObject, PfsLook, Through,
};
use forebay_core::ops::GrantTarget;
use forebay_core::path::TreePath;
use forebay_core::record::ObjectName;
use forebay_core::request::{Form, Granting, Looked};
use forebay_objects::{Made, Shape, shape};
use forebay_sys::{self as sys, Errno};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// One effect to be carried out.
pub enum Task {
    /// Look at the PFS.
    Look {
        /// At what.
        look: PfsLook,
        /// See [`forebay_core::request::Known::through`].
        through: Option<Through>,
        /// For whom.
        asker: Arc<Cred>,
    },
    /// Write times of directories that wait.
    WriteTimes,
    /// Open what is granted.
    Grant {
        /// What, and how.
        granting: Granting,
        /// The connection of who asks: nothing is emptied for a process that is gone.
        socket: Arc<OwnedFd>,
    },
    /// Make a backing object.
    Make {
        /// What to make.
        spec: Arc<NewObject>,
        /// Flags of a descriptor that is wanted along with it.
        open: Option<i32>,
        /// The announced name of a link.
        link: Option<ObjectName>,
    },
    /// Look at what clients have left in these files of the PFS, to which they may have written in place and which are hidden now.
    LookAtLeft(Vec<TreePath>),
}

/// The outcome of a task.
pub enum Outcome {
    /// A look at the PFS.
    Looked(Result<Looked, i32>),
    /// The times are written.
    TimesWritten,
    /// An open of this; no descriptor if the client opens the file itself.
    Granted(GrantTarget, Result<Option<OwnedFd>, Errno>),
    /// Nothing was opened, since who asked has gone.
    HungUp,
    /// A new object.
    Made(Result<Made, Errno>),
    /// A copy of a file of the PFS that nobody had open.
    Copied(Made, CopyOf),
    /// It was not copied: somebody has it open, or the storage can't keep all of it.
    Held(TreePath),
    /// What clients have left is known, as far as it can be.
    LookedAtLeft,
}

/// The original of a copy.
pub struct CopyOf {
    /// Where it is on the PFS.
    pub lower: TreePath,
    /// Which file it is.
    pub inode: Inode,
    /// The number of grants in place when it was begun.
    pub since: u64,
}

/// What an open does where somebody has a lease on the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnLease {
    /// It gives up, and is carried out where it may block.
    GiveUp,
    /// It waits until the lease is given back or broken.
    Wait,
}

impl OnLease {
    /// Opens a file by `open` with these flags; `None`: later.
    fn open(
        self,
        flags: i32,
        is_file: bool,
        open: impl Fn(i32) -> Result<OwnedFd, Errno>,
    ) -> Result<Option<OwnedFd>, Errno> {
        if self == OnLease::Wait || !is_file || flags & (libc::O_PATH | libc::O_NONBLOCK) != 0 {
            return open(flags).map(Some);
        }
        match sys::open_at_once(flags, open) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            opened => opened.map(Some),
        }
    }
}

impl Task {
    /// Carries it out if that has to wait neither for what the bridge itself is doing nor for a lease of others.
    ///
    /// # Errors
    /// The task, which is to be carried out where it may block.
    pub fn try_run(self, server: &ServerHandle) -> Result<Outcome, Box<Task>> {
        self.attempt(server, OnLease::GiveUp)
            .ok_or_else(|| Box::new(self))
    }

    /// Carries it out, however long that takes.
    pub fn run(self, server: &ServerHandle) -> Outcome {
        let outcome = self.attempt(server, OnLease::Wait);
        outcome.expect("it is put off only if it may not wait")
    }

    /// `None`: it would wait.
    fn attempt(&self, server: &ServerHandle, on_lease: OnLease) -> Option<Outcome> {
        Some(match self {
            Task::Look {
                look,
                through,
                asker,
            } => {
                let by = (*through, &**asker);
                let found = self::look(server, Session::default(), look, by, usize::MAX);
                Outcome::Looked(found.unwrap_or(Err(libc::EIO)))
            }
            Task::WriteTimes => {
                server.objects.flush_touches();
                server.lower.flush_touches();
                Outcome::TimesWritten
            }
            Task::Grant { granting, socket } => {
                let empties =
                    granting.flags & libc::O_TRUNC != 0 && granting.form == Form::Descriptor;
                if empties && sys::has_hung_up(socket.as_fd()) {
                    return Some(Outcome::HungUp);
                }
                if granting.shared
                    && let GrantTarget::Object(object) = granting.target
                {
                    server.objects.never_reuse(object);
                }
                let opened = match granting.form {
                    Form::Descriptor => open(server, granting, on_lease).transpose()?.map(Some),
                    _ => Ok(None),
                };
                Outcome::Granted(granting.target.clone(), opened)
            }
            Task::Make { spec, open, link } => match (&spec.what, link) {
                (NewKind::LinkTo(of), Some(link)) => {
                    Outcome::Made(make_link(server, *of, *link, spec))
                }
                (
                    NewKind::Staged {
                        lower,
                        judged,
                        bytes,
                    },
                    _,
                ) => match copy(server, spec, (lower, judged), *bytes, on_lease) {
                    Ok(outcome) => outcome?,
                    Err(e) => Outcome::Made(Err(e)),
                },
                _ => Outcome::Made(make(server, spec, *open)),
            },
            Task::LookAtLeft(_) if on_lease == OnLease::GiveUp => return None,
            Task::LookAtLeft(files) => {
                for file in files {
                    look_at_left(server, file);
                }
                Outcome::LookedAtLeft
            }
        })
    }
}

/// Looks at the PFS, through what the request has seen and for whom. `None`: the directory has more than `inline` entries.
pub(super) fn look(
    server: &ServerHandle,
    session: Session,
    look: &PfsLook,
    (through, asker): (Option<Through>, &Cred),
    inline: usize,
) -> Option<Result<Looked, i32>> {
    let lower = &server.lower;
    let looked = match look {
        PfsLook::Attr(path) | PfsLook::Renamed { origin: path, .. } => {
            lower.attr_in(path, through, Some(asker)).map(Looked::Attr)
        }
        PfsLook::Link(path) => lower.link_text(path, through).map(Looked::Link),
        PfsLook::List { dir, after } => {
            let after = after.as_deref();
            let kept = server.listings.get(session, dir);
            match kept.filter(|page| page.covers(after)) {
                Some(page) => Ok(Looked::List(page)),
                None => match lower.list(dir, through, after, LOWER_PAGE_ENTRIES, inline) {
                    Ok(page) => Ok(Looked::List(Arc::new(page?))),
                    Err(e) => Err(e),
                },
            }
        }
    };
    Some(looked.map_err(|e| e.raw_os_error()))
}

/// Opens what is granted. `None`: it would wait.
fn open(
    server: &ServerHandle,
    granting: &Granting,
    on_lease: OnLease,
) -> Result<Option<OwnedFd>, Errno> {
    match &granting.target {
        GrantTarget::Object(object) => {
            let open = |flags| server.objects.open_object(*object, flags);
            let file = on_lease.open(granting.flags, shape(*object) == Shape::File, open)?;
            if let Some(file) = file.as_ref().filter(|_| granting.is_stamped) {
                stamp(file)?;
            }
            Ok(file)
        }
        GrantTarget::Lower(path, judged) => {
            server.lower.flush_touch(path);
            let writes = granting.flags & libc::O_ACCMODE != libc::O_RDONLY;
            let is_path = granting.flags & libc::O_PATH != 0;
            // The kernel refuses an access mode beside O_PATH; here it says what the client is going to do.
            let flags = match is_path {
                true => granting.flags & !libc::O_ACCMODE,
                false => granting.flags,
            };
            let open = |flags| server.lower.open_judged(path, judged, flags);
            let file = on_lease.open(flags, judged.is_file(), open)?;
            match &file {
                Some(file) if !is_path => server.in_place.note(file, writes),
                Some(file) if writes => server.in_place.note_change(file),
                _ => {}
            }
            Ok(file)
        }
    }
}

/// Notes what clients have left in a file of the PFS, if it is there and can be opened.
fn look_at_left(server: &ServerHandle, file: &TreePath) {
    let (lower, flags) = (&server.lower, libc::O_RDONLY | libc::O_NONBLOCK);
    // To open a FIFO or a device could act.
    let Ok(Some(attr)) = lower.attr(file).map(|found| found.filter(Attr::is_file)) else {
        return;
    };
    if let Ok(file) = lower.open_judged(file, &Judged::new(&attr), flags) {
        server.in_place.look_at_left(&file, lower.may_wait());
    }
}

/// Gives an open file another time of change, as any change of its attributes does.
fn stamp(file: &OwnedFd) -> Result<(), Errno> {
    let read = sys::stat(file.as_fd(), b"")?.atime;
    match sys::set_times(file.as_fd(), b"", Some(read), None) {
        // Of a file that somebody has given away only its owner can.
        Err(Errno::PERM) => Ok(()),
        stamped => stamped,
    }
}

/// A new object, or a spare file as one.
fn make(server: &ServerHandle, spec: &NewObject, open: Option<i32>) -> Result<Made, Errno> {
    if let Some(made) = reuse(server, spec, open) {
        return Ok(made);
    }
    with_room(server, || server.objects.make(spec, open, None))
}

/// A copy of a file of the PFS, unless somebody has that open, or the storage does not take its extended attributes. `None`: it
/// would wait, because others have a lease on it or the bridge itself has it open for a moment.
fn copy(
    server: &ServerHandle,
    spec: &NewObject,
    (lower, judged): (&TreePath, &Judged),
    bytes: u64,
    on_lease: OnLease,
) -> Result<Option<Outcome>, Errno> {
    let is_network = server.lower.may_wait();
    let look = |file| match on_lease {
        OnLease::GiveUp => server.in_place.look(file, is_network),
        OnLease::Wait => {
            let original = server.in_place.unless_held(file, is_network)?;
            Ok(original.map_or(in_place::Looked::Held, in_place::Looked::Free))
        }
    };
    with_room(server, || {
        let open = |flags| server.lower.open_judged(lower, judged, flags);
        let Some(file) = on_lease.open(libc::O_RDONLY, judged.is_file(), open)? else {
            return Ok(None);
        };
        let held = || Ok(Some(Outcome::Held(lower.clone())));
        let original = match look(file)? {
            in_place::Looked::Free(original) => original,
            in_place::Looked::Held => return held(),
            in_place::Looked::Busy(_) => return Ok(None),
        };
        let made = match server.objects.make(spec, None, Some(original.file.as_fd())) {
            Err(Errno::OPNOTSUPP) => return held(),
            made => made?,
        };
        server.counters.staged(bytes);
        Ok(Some(Outcome::Copied(
            made,
            CopyOf {
                lower: lower.clone(),
                inode: original.inode,
                since: original.since,
            },
        )))
    })
}

/// Makes something. If there is no room for it, the spare files make some.
fn with_room<T>(server: &ServerHandle, make: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match make() {
        Err(Errno::NOSPC | Errno::DQUOT) => {
            for object in server.objects.drop_spares() {
                server.namespace.object_gone(object);
            }
            make()
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

/// A further link to an object, under its announced name.
fn make_link(
    server: &ServerHandle,
    of: ObjectName,
    link: ObjectName,
    spec: &NewObject,
) -> Result<Made, Errno> {
    match server.objects.make_link(of, link, spec) {
        Ok(fresh) => Ok(Made {
            fresh,
            fd: None,
            spare: None,
        }),
        Err(e) => {
            // Whatever part of it exists. The other names of the file may be gone meanwhile, and the last sync point may know
            // one of them. It is announced, so its mark stays until it is gone.
            server.objects.retire_later(link);
            Err(e)
        }
    }
}
