//! File operations: what each of them does to the namespace.
//!
//! [`decide`] is the one door. It reads [`Facts`] and returns a [`Decision`]:
//! changes for the tables (one atomic batch), an answer for the client, and
//! work on backing objects that follows the commit.

mod change;
mod decision;
mod hidden;
mod make;
mod open;
mod promises;
mod read;
mod remove;
mod rename;
mod transit;
mod unseen;

pub use decision::{
    Answer, Decision, Entry, FollowUp, GrantTarget, Op, Path, Request, Start, Touched,
};

pub use unseen::{Clearance, Leaving, Unseen};

pub(crate) use transit::is_reserved;

use crate::facts::{Cred, Facts, Outcome, Settings, Stop, errno};
use crate::identity::Identity;
use crate::record::Token;
use crate::walk::Walk;
use change::only;
use std::cell::RefCell;
use transit::Watch;

/// Decides one request. What the drain is changing on the PFS at this moment is waited for
/// ([`crate::facts::Need::Settled`]), by the rules that `ops::transit` gives.
///
/// # Errors
/// [`Stop`]: an errno for the client, a redirect, or a fact that is needed first.
pub fn decide(
    request: &Request,
    cred: &Cred,
    settings: &Settings,
    facts: &dyn Facts,
) -> Outcome<Decision> {
    let watch = Watch::new(facts);
    let decision = undisturbed(request, cred, settings, &watch)?;
    watch.check(&decision)?;
    Ok(decision)
}

/// Decides as if no drain were at work.
fn undisturbed(
    request: &Request,
    cred: &Cred,
    settings: &Settings,
    facts: &dyn Facts,
) -> Outcome<Decision> {
    // The user of the bridge sees by a path from the root also what waits for another directory there, and must not change it (`Walk::check_here`).
    let hides_elsewhere = request.op.starts_within() || cred.uid != settings.bridge_uid;
    let ctx = Context {
        request,
        cred,
        settings,
        facts,
        walk: Walk::new(cred, settings, facts, hides_elsewhere),
        seen: RefCell::default(),
        go_along: RefCell::default(),
    };
    if request.retry && facts.was_carried_out(request.token)? {
        let decision = ctx.repeat()?;
        promises::assert_kept(&request.op, &decision);
        return Ok(decision);
    }
    let mut decision = ctx.first()?;
    let mut changes = decision.batch.iter();
    if changes.any(|change| ctx.walk.changes_passed_over(change)) {
        // A name has one record.
        return errno(libc::EBUSY);
    }
    let notes = ctx.notes_of_files(&decision.batch);
    decision.batch.extend(notes);
    promises::assert_kept(&request.op, &decision);
    // A late original: its repetition was carried out and the client has gone on. Refuse it; nobody waits for
    // the answer.
    if !request.retry
        && !decision.batch.is_empty()
        && request.token != Token::default()
        && facts.was_carried_out(request.token)?
    {
        return errno(libc::ESTALE);
    }
    Ok(decision)
}

/// One path inside and one outside is two file systems, as far as programs can see.
fn inside(outcome: Outcome<Decision>) -> Outcome<Decision> {
    match outcome {
        Err(Stop::Redirect(_)) => errno(libc::EXDEV),
        other => other,
    }
}

/// One directory has one path: it was renamed on the PFS between two looks of the client.
fn check_one_place(a: &Path, b: &Path) -> Outcome<()> {
    match (&a.start, &b.start) {
        (Start::Lower(a, inode), Start::Lower(b, other)) if inode == other && a != b => {
            errno(forebay_types::START_TAKEN)
        }
        _ => Ok(()),
    }
}

/// What every operation has at hand.
struct Context<'a> {
    request: &'a Request,
    cred: &'a Cred,
    settings: &'a Settings,
    facts: &'a dyn Facts,
    walk: Walk<'a>,
    /// Files of the PFS with several names that this decision may hide, as they were seen.
    seen: RefCell<Vec<Identity>>,
    /// Such files that go with a directory that is hidden already.
    go_along: RefCell<Vec<Identity>>,
}

impl Context<'_> {
    fn first(&self) -> Outcome<Decision> {
        match &self.request.op {
            Op::Open { path, flags, mode } => self.open(path, *flags, *mode),
            Op::Resolve {
                path,
                follow,
                for_write,
                directory,
            } => self.resolve(path, *follow, *for_write, *directory),
            Op::Stat { path, follow } => self.stat(path, *follow),
            Op::Mkdir { path, mode } => self.mkdir(path, *mode),
            Op::Mknod { path, mode, dev } => self.mknod(path, *mode, *dev),
            Op::Symlink { path, text } => self.symlink(path, text),
            Op::Link { old, new, follow } => {
                check_one_place(old, new)?;
                inside(self.link(old, new, *follow))
            }
            Op::Unlink { path, dir: false } => self.unlink(path),
            Op::Unlink { path, dir: true } => self.rmdir(path),
            Op::Rename { old, new, flags } => {
                check_one_place(old, new)?;
                inside(self.rename(old, new, *flags))
            }
            Op::Readlink { path } => self.readlink(path),
            Op::ReadDir { path, after, limit } => self.readdir(path, after.as_deref(), *limit),
            Op::NameOf { start } => self.name_of(start),
            Op::Realpath { path } => self.realpath(path),
        }
    }

    /// An earlier try has changed the tables already; whatever others did since must stay as it is.
    fn repeat(&self) -> Outcome<Decision> {
        match &self.request.op {
            Op::Open { path, flags, .. } if flags & libc::O_CREAT != 0 => {
                self.open_again(path, *flags)
            }
            // What they changed was only staged, which nobody sees.
            Op::Open { .. } | Op::Resolve { .. } => self.first(),
            _ => Ok(only(Answer::Done)),
        }
    }
}
