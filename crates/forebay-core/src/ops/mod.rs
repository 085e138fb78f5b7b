//! File operations: what each of them does to the namespace.
//!
//! [`decide`] is the one door. It reads [`Facts`] and returns a [`Decision`]:
//! changes for the tables (one atomic batch), an answer for the client, and
//! work on backing objects that follows the commit.

mod change;
mod decision;
mod make;
mod open;
mod read;
mod remove;
mod rename;

pub use decision::{Answer, Decision, Effect, Entry, GrantTarget, Op, Path, Request, Start};

use crate::facts::{Cred, Facts, Outcome, Settings, Stop, errno};
use crate::walk::Walk;

/// Decides one request.
///
/// # Errors
/// [`Stop`]: an errno for the client, a redirect, or a fact that is needed first.
pub fn decide(
    request: &Request,
    cred: &Cred,
    settings: &Settings,
    facts: &dyn Facts,
) -> Outcome<Decision> {
    let ctx = Context {
        request,
        cred,
        settings,
        facts,
        walk: Walk {
            cred,
            settings,
            facts,
        },
    };
    match &request.op {
        Op::Open { path, flags, mode } => ctx.open(path, *flags, *mode),
        Op::Resolve {
            path,
            follow,
            for_write,
            directory,
        } => ctx.resolve(path, *follow, *for_write, *directory),
        Op::Stat { path, follow } => ctx.stat(path, *follow),
        Op::Mkdir { path, mode } => ctx.mkdir(path, *mode),
        Op::Mknod { path, mode, dev } => ctx.mknod(path, *mode, *dev),
        Op::Symlink { path, text } => ctx.symlink(path, text),
        Op::Link { old, new, follow } => inside(ctx.link(old, new, *follow)),
        Op::Unlink { path, dir: false } => ctx.unlink(path),
        Op::Unlink { path, dir: true } => ctx.rmdir(path),
        Op::Rename { old, new, flags } => inside(ctx.rename(old, new, *flags)),
        Op::Readlink { path } => ctx.readlink(path),
        Op::ReadDir { path, after, limit } => ctx.readdir(path, after.as_deref(), *limit),
        Op::NameOf { start } => ctx.name_of(start),
        Op::Realpath { path } => ctx.realpath(path),
    }
}

/// One path inside and one outside is two file systems, as far as programs can see.
fn inside(outcome: Outcome<Decision>) -> Outcome<Decision> {
    match outcome {
        Err(Stop::Redirect(_)) => errno(libc::EXDEV),
        other => other,
    }
}

/// What every operation has at hand.
struct Context<'a> {
    request: &'a Request,
    cred: &'a Cred,
    settings: &'a Settings,
    facts: &'a dyn Facts,
    walk: Walk<'a>,
}
