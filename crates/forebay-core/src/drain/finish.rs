//! The end of a pass: attributes of directories, what is on the disks of the PFS, and what is left.

use super::act::{Act, DrainVerdict, Got, StrayEntry, Trouble, Work};
use super::commits::{Update, commit_of};
use super::drain_facts::DrainFacts;
use super::rules::{OURS, has_contents, is_dirty, stamp, unsettled};
use super::sheet::{Reason, Sheet};
use super::strand::{Strand, with_outcomes};
use crate::bridge::ReadSet;
use crate::facts::{Attr, Outcome};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Kind, PathRecord};
use std::collections::VecDeque;

/// Directories that are synced by one act.
pub(super) const SYNCED_AT_ONCE: usize = 64;

enum DressState {
    Begin,
    Examining,
    Look,
    Looking,
    ListBacking,
    ListingBacking,
    Next,
    Dressing(Box<Wearer>),
    Dressed(Box<Wearer>),
    Committing,
    End,
}

/// A directory, and what it is to look like.
struct Wearer {
    path: TreePath,
    record: PathRecord,
    attr: Attr,
    found: Work<Option<Attr>>,
    has_strays: bool,
}

/// Gives the directories made in the buffer their attributes, for one page of records. Children come
/// before parents: a directory may be one that even its owner can't search.
///
/// A backing directory is empty, unless something was made in it past the buffer. Then it never counts as drained. What is
/// made there after the look changes its change time, and so makes it dirty.
pub(super) struct Dress {
    entries: Vec<(TreePath, PathRecord)>,
    attrs: Vec<Attr>,
    wearers: VecDeque<Wearer>,
    state: DressState,
}

impl Dress {
    pub(super) fn new(entries: impl IntoIterator<Item = (TreePath, PathRecord)>) -> Self {
        let is_due = |(_, r): &(TreePath, PathRecord)| r.kind == Kind::Dir && r.drained.is_some();
        Dress {
            entries: entries.into_iter().filter(is_due).collect(),
            attrs: Vec::new(),
            wearers: VecDeque::new(),
            state: DressState::Begin,
        }
    }

    fn examined(&mut self, attrs: Vec<Work<Attr>>) {
        let entries = std::mem::take(&mut self.entries);
        for (entry, attr) in with_outcomes(entries, attrs) {
            // A directory whose attributes can't be read is dirty, and is listed as left.
            if let Ok(attr) = attr {
                self.entries.push(entry);
                self.attrs.push(attr);
            }
        }
    }

    fn looked(&mut self, seen: Vec<Work<Option<Attr>>>) {
        let entries = std::mem::take(&mut self.entries).into_iter();
        let attrs = std::mem::take(&mut self.attrs);
        assert_eq!(entries.len(), attrs.len(), "entries with their attributes");
        for (((path, record), attr), found) in with_outcomes(entries.zip(attrs), seen) {
            self.wearers.push_back(Wearer {
                path,
                record,
                attr,
                found,
                has_strays: false,
            });
        }
    }

    fn listed(&mut self, lists: Vec<Work<Vec<StrayEntry>>>, sheet: &mut Sheet) {
        let wearers = std::mem::take(&mut self.wearers);
        for (mut wearer, list) in with_outcomes(wearers, lists) {
            match list {
                Ok(strays) => {
                    wearer.has_strays = !strays.is_empty();
                    if wearer.has_strays {
                        sheet.note_strays(&wearer.path, wearer.record.object, strays);
                    }
                    self.wearers.push_back(wearer);
                }
                // Without its stamp it is dirty, and is listed as left.
                Err(trouble) => sheet.refuse(&wearer.path, 0, trouble),
            }
        }
    }
}

impl Wearer {
    /// True if the PFS already shows its attributes, or others have moved it since it got them. Every entry that came or went has
    /// changed its times.
    fn is_dressed(&self, is: Identity, knows_dirs: bool) -> bool {
        let shown = |attr: &Attr| (attr.mode & 0o7777, attr.mtime);
        let is_there = |found: &Attr| !knows_dirs || is.is_dir_of(found);
        let looks_so = |found: &Attr| shown(found) == shown(&self.attr);
        !self.has_strays
            && self.record.drained == Some(stamp(&self.attr))
            && self
                .found
                .as_ref()
                .is_ok_and(|found| found.as_ref().is_none_or(|f| !is_there(f) || looks_so(f)))
    }
}

impl Strand for Dress {
    fn take(&mut self, got: Got, sheet: &mut Sheet) {
        match (std::mem::replace(&mut self.state, DressState::End), got) {
            (DressState::Examining, Got::Attrs(attrs)) => {
                self.examined(attrs);
                self.state = DressState::Look;
            }
            (DressState::Looking, Got::Seen(seen)) => {
                self.looked(seen);
                self.state = DressState::ListBacking;
            }
            (DressState::ListingBacking, Got::Strays(lists)) => {
                self.listed(lists, sheet);
                self.state = DressState::Next;
            }
            (DressState::Dressing(wearer), Got::Did(Ok(()))) => {
                sheet.tally.dirs += 1;
                self.state = DressState::Dressed(wearer);
            }
            (DressState::Dressing(wearer), Got::Did(Err(trouble))) => {
                match trouble.errno {
                    libc::EEXIST => sheet.leave(&wearer.path, 0, Reason::Changed),
                    _ => sheet.refuse(&wearer.path, 0, trouble),
                }
                self.state = DressState::Next;
            }
            // A directory whose record has changed is dirty, and is listed as left.
            (
                DressState::Committing,
                Got::Verdict(DrainVerdict::Committed | DrainVerdict::Conflict),
            ) => {
                self.state = DressState::Next;
            }
            (_, got) => unreachable!("{got:?} answers nothing that was asked"),
        }
    }

    fn next(&mut self, facts: &dyn DrainFacts, _sheet: &mut Sheet) -> Outcome<Option<Act>> {
        loop {
            match &self.state {
                DressState::Begin | DressState::Look if self.entries.is_empty() => {
                    return Ok(None);
                }
                DressState::Begin => {
                    self.state = DressState::Examining;
                    let objects = self.entries.iter().map(|(_, r)| r.object);
                    return Ok(Some(Act::Examine(objects.collect())));
                }
                DressState::Look => {
                    self.state = DressState::Looking;
                    let paths = self.entries.iter().map(|(path, _)| path.clone());
                    return Ok(Some(Act::Look(paths.collect())));
                }
                DressState::ListBacking => {
                    self.state = DressState::ListingBacking;
                    let objects = self.wearers.iter().map(|wearer| wearer.record.object);
                    return Ok(Some(Act::ListBacking(objects.collect())));
                }
                DressState::Next => {
                    let Some(first) = self.wearers.front() else {
                        return Ok(None);
                    };
                    let parent = first.path.parent();
                    let is_put_off = unsettled(facts, &parent, &mut ReadSet::default())?.is_some();
                    let Some(wearer) = self.wearers.pop_front() else {
                        return Ok(None);
                    };
                    // One that is not known could not be made, or looked at: it has been told.
                    let Some(is) = wearer.record.replaces else {
                        continue;
                    };
                    if is_put_off || wearer.is_dressed(is, facts.knows_dirs()) {
                        continue;
                    }
                    let act = Act::Dress {
                        path: wearer.path.clone(),
                        is,
                        object: wearer.record.object,
                    };
                    self.state = DressState::Dressing(Box::new(wearer));
                    return Ok(Some(act));
                }
                DressState::Dressed(wearer) => {
                    let update = Update {
                        path: wearer.path.clone(),
                        before: wearer.record.clone(),
                        after: Some(PathRecord {
                            chosen: None,
                            drained: Some(match wearer.has_strays {
                                true => OURS,
                                false => stamp(&wearer.attr),
                            }),
                            ..wearer.record.clone()
                        }),
                    };
                    let (commit, _) =
                        commit_of(facts, ReadSet::default(), vec![update], Vec::new());
                    self.state = DressState::Committing;
                    return Ok(Some(Act::Commit(commit)));
                }
                DressState::End => return Ok(None),
                _ => unreachable!("it waits for its outcome"),
            }
        }
    }
}

/// Brings the entries of directories to the disks of the PFS.
pub(super) struct SyncDirs {
    todo: VecDeque<TreePath>,
    under_way: Vec<TreePath>,
}

impl SyncDirs {
    pub(super) fn new(dirs: Vec<TreePath>) -> Self {
        SyncDirs {
            todo: dirs.into(),
            under_way: Vec::new(),
        }
    }
}

impl Strand for SyncDirs {
    fn take(&mut self, got: Got, sheet: &mut Sheet) {
        let Got::Each(each) = got else {
            unreachable!("{got:?} answers nothing that was asked");
        };
        for (dir, did) in with_outcomes(&std::mem::take(&mut self.under_way), each) {
            match did {
                Ok(()) => {}
                // Gone meanwhile, or of a file system that does not sync directories.
                Err(Trouble {
                    errno: libc::ENOENT | libc::ENOTDIR | libc::EINVAL,
                    ..
                }) => {}
                Err(trouble) => sheet.leave_without_record(dir, Reason::Refused(trouble)),
            }
        }
    }

    fn next(&mut self, _facts: &dyn DrainFacts, _sheet: &mut Sheet) -> Outcome<Option<Act>> {
        let some = self.todo.len().min(SYNCED_AT_ONCE);
        self.under_way = self.todo.drain(..some).collect();
        Ok((some > 0).then(|| Act::SyncDirs(self.under_way.clone())))
    }
}

/// Looks at one page of records again. Skips failures that have disappeared since; adds entries that appeared since.
pub(super) struct List {
    entries: Vec<(TreePath, PathRecord)>,
    has_asked: bool,
}

impl List {
    pub(super) fn new(entries: Vec<(TreePath, PathRecord)>) -> Self {
        List {
            entries,
            has_asked: false,
        }
    }
}

impl Strand for List {
    fn take(&mut self, got: Got, sheet: &mut Sheet) {
        let Got::Attrs(attrs) = got else {
            unreachable!("{got:?} answers nothing that was asked");
        };
        for ((path, record), attr) in with_outcomes(&self.entries, attrs) {
            // Of these no attributes are asked to tell whether they are dirty.
            let is_mark = matches!(record.kind, Kind::Moved | Kind::Whiteout);
            let attr = match attr {
                Err(trouble) if !is_mark => {
                    sheet.refuse(path, 0, trouble);
                    None
                }
                attr => attr.ok(),
            };
            // Renamed away and back to its old name, in another directory, it differs from the PFS only if others have removed it.
            let is_lost =
                record.kind == Kind::Moved && sheet.has_failed_for(path, &Reason::Changed);
            // It keeps back the other names of its object.
            let has_others =
                has_contents(record) && attr.as_ref().is_some_and(|attr| attr.nlink > 1);
            let lacks_dir = has_others && sheet.has_failed_for(path, &Reason::NoDirectory);
            if is_lost || lacks_dir || is_dirty(path, record, attr.as_ref()) {
                let contents = attr.filter(|_| has_contents(record));
                sheet.list_left(path, contents.map(|attr| attr.size));
            }
        }
    }

    fn next(&mut self, _facts: &dyn DrainFacts, _sheet: &mut Sheet) -> Outcome<Option<Act>> {
        if self.has_asked || self.entries.is_empty() {
            return Ok(None);
        }
        self.has_asked = true;
        let objects = self.entries.iter().map(|(_, r)| r.object);
        Ok(Some(Act::Examine(objects.collect())))
    }
}
