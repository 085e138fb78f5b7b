//! What has to be true in the end, whatever the records knew.

use super::play::{Play, Theirs, View};
use crate::faults::Broken;
use crate::faults::history::Thing;
use forebay_core::drain::DrainReport;
use forebay_core::path::TreePath;
use forebay_core::walk::RESERVED_PREFIX;

const THEIRS: &str = "nothing of others is destroyed";
const TAKEN: &str = "what others have made is not given another name";
const WAITS: &str = "what others have made does not stay under a name of a drain";
const EMPTY: &str = "an empty directory that others have made stays";
const OURS: &str = "what programs have made is on the PFS, or stays in the buffer";
const LISTED: &str = "what a drain does not bring to the PFS is listed";
const REPORT: &str = "a drain that says that all is released has brought everything";
const REFUSED: &str = "where nobody is in its way a drain brings everything";

pub(super) fn is_reserved(path: &TreePath) -> bool {
    path.components().any(|n| n.starts_with(RESERVED_PREFIX))
}

/// What is under the names of the PFS.
fn lower(play: &Play) -> View {
    let pfs = play.world.pfs();
    let version = |(path, number): (&TreePath, u64)| {
        let (thing, contents) = pfs.version(number)?;
        let contents = if thing.is_dir() { 0 } else { contents };
        Some((path.clone(), (thing, contents)))
    };
    pfs.numbers().filter_map(version).collect()
}

fn all(paths: &[TreePath]) -> String {
    let all: Vec<_> = paths.iter().map(ToString::to_string).collect();
    match all.is_empty() {
        true => "no name".to_owned(),
        false => all.join(" or "),
    }
}

fn told(shown: Option<&(Thing, u64)>) -> String {
    match shown {
        Some((thing, contents)) => format!("{thing} with {contents}"),
        None => "nothing".to_owned(),
    }
}

impl Play {
    /// Drains twice, and holds what is there then against what users saw before.
    pub(super) fn end(&mut self) -> Result<(), Broken> {
        let before = self.view()?;
        self.drain(false, None)?;
        let report = self.drain(false, None)?;
        self.keeps_theirs()?;
        self.brings_ours(&before, &report)?;
        let is_undisturbed = self.only_adds && !self.had_refusal && !self.has_chosen;
        if is_undisturbed && !report.released {
            let paths = report.left.iter().map(|left| left.path.clone()).collect();
            return Err(Broken::new(REFUSED, said(&report), paths));
        }
        Ok(())
    }

    fn keeps_theirs(&self) -> Result<(), Broken> {
        let pfs = self.world.pfs();
        let is_dir = |theirs: &Theirs| theirs.thing.is_dir();
        let files = self.theirs.iter().filter(|(_, theirs)| !is_dir(theirs));
        let dirs = self.theirs.iter().filter(|(_, theirs)| is_dir(theirs));
        for (number, theirs) in files.chain(dirs) {
            // Nothing else holds what their files hold.
            let is_it = |at: u64| match is_dir(theirs) {
                true => at == *number,
                false => pfs.version(at).is_some_and(|(_, c)| c == theirs.contents),
            };
            let names = pfs.numbers().filter(|(_, at)| is_it(*at));
            let names: Vec<_> = names.map(|(path, _)| path.clone()).collect();
            let is_there = |path: &TreePath| match theirs.is_placed {
                true => theirs.at.contains(path),
                false => !is_reserved(path),
            };
            if names.iter().any(is_there) {
                continue;
            }
            let promise = match () {
                // Files come first: nothing else of theirs was in it.
                () if names.is_empty() && is_dir(theirs) => EMPTY,
                () if names.is_empty() => THEIRS,
                // The same file may have other names.
                () if names.iter().any(is_reserved) => WAITS,
                () => TAKEN,
            };
            let paths: Vec<_> = theirs.at.iter().cloned().collect();
            let detail = format!(
                "the neighbour's {} at {} is at {}",
                told(Some(&(theirs.thing, theirs.contents))),
                all(&paths),
                all(&names)
            );
            return Err(Broken::new(promise, detail, paths));
        }
        Ok(())
    }

    fn brings_ours(&self, before: &View, report: &DrainReport) -> Result<(), Broken> {
        let lower = lower(self);
        let fail = |promise, path: &TreePath| {
            let (was, is) = (before.get(path), lower.get(path));
            let detail = format!(
                "{path}: users saw {}, the PFS has {}; {}",
                told(was),
                told(is),
                said(report)
            );
            Err(Broken::new(promise, detail, vec![path.clone()]))
        };
        let records = self.world.all_records();
        for (path, shown) in before {
            let (thing, contents) = *shown;
            let is = lower.get(path);
            let is_their_dir = is.is_some_and(|now| now.0.is_dir() && self.is_theirs(*now));
            if is == Some(shown)
                || self.undone.contains(&(thing.ino, contents))
                || thing.is_dir() && is_their_dir
            {
                continue;
            }
            let is_elsewhere = lower.values().any(|now| now == shown);
            let is_kept = records.iter().any(|(at, _)| at == path);
            if !is_elsewhere && !is_kept {
                return fail(OURS, path);
            }
            if report.released {
                return fail(REPORT, path);
            }
            let is_named = |at: &TreePath| path.is_within(at);
            let left = report.left.iter().map(|left| &left.path);
            let refused = report.refused.iter().map(|(path, _)| path);
            if !left.chain(refused).any(is_named) {
                return fail(LISTED, path);
            }
        }
        let strays = lower.iter().filter(|(path, now)| {
            let is_known = before.contains_key(*path)
                || self.is_theirs(**now)
                || self.was_brought(**now, path);
            is_reserved(path) || !is_known
        });
        match strays.map(|(path, _)| path).next() {
            Some(path) if report.released => fail(REPORT, path),
            _ => Ok(()),
        }
    }
}

/// What a drain says, for people.
fn said(report: &DrainReport) -> String {
    if report.released {
        return "the drain says that all is released".to_owned();
    }
    let left = report.left.iter();
    let left: Vec<_> = left
        .map(|l| format!("{}: {:?}", l.path, l.reason))
        .collect();
    let kept = report.kept_because.as_deref().unwrap_or("nothing");
    format!("the drain lists {left:?} and keeps copies because of {kept}")
}
