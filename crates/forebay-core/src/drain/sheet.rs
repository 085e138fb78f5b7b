//! What all strands of one pass share: what was asked for, what has been done, and what is left.

use super::act::{OTHER_DIR, StrayEntry, Trouble};
use super::contents::Task;
use super::name_secret::NameSecret;
use super::shared_files::SharedFiles;
use super::workplaces::Workplaces;
use super::{LOOKS_IN_DOUBT, MOST_IN_DOUBT};
use crate::bridge::Mutation;
use crate::path::TreePath;
use crate::record::ObjectId;
use crate::record::ObjectName;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most things in [`DrainReport::left`]; all are counted.
const MOST_LEFT: usize = 1 << 16;
/// Most failures that are remembered beyond these.
const MOST_FAILED: usize = 1 << 18;
/// Most directories of the PFS that wait to be synced.
pub(super) const MOST_UNSYNCED: usize = 1024;

/// What a pass is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassTerms {
    /// Keep the buffered copies.
    pub keep: bool,
    /// Batches of contents that are under way at a time; at least one. If it is one, names change one after the other, too.
    pub batches: usize,
    /// Objects of one batch at most; at least one. Each is an open descriptor of the driver, or two.
    pub objects: usize,
    /// Wait for files that are open for writing, until [`super::Drain::lose_patience`].
    pub patient: bool,
    /// What temporary names are made from.
    pub secret: NameSecret,
}

/// Why something is not on the PFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A process has it open for writing, or mapped.
    Open,
    /// Programs were changing it, as often as it was tried.
    Changing,
    /// Others have changed or replaced on the PFS what it would replace or remove.
    Changed,
    /// Others have put something there that it would replace.
    Taken,
    /// Others have removed or renamed the directory on the PFS that it would be in, or put something else there.
    NoDirectory,
    /// On the PFS another directory has the place of the one that it goes into, or comes out of.
    OtherDirectory,
    /// The PFS or the local disk refused.
    Refused(Trouble),
    /// What a drain has left in this directory of the PFS under names of its own could not be removed.
    Leftovers(Trouble),
    /// Something that had to come first did not come about, in words.
    Blocked(String),
    /// Nothing of the buffer: others have changed it while it was removed or replaced, and it is on the PFS, here.
    CameBack,
    /// The pass was stopped before its turn.
    Stopped,
    /// A recovery has put this object into quarantine: no name leads to it.
    Withheld(ObjectName),
    /// It was made past the buffer: it lies under its name in this backing directory, and no record knows it.
    Stray(ObjectName),
}

/// One thing that is not on the PFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Its path in the buffer.
    pub path: TreePath,
    /// Its bytes.
    pub bytes: u64,
    /// Why.
    pub reason: Reason,
}

/// What a pass has done so far. All are counts, but for those in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files, symbolic links and nodes to copy, as far as they have been found.
    pub files_total: u64,
    /// Of these, done or given up.
    pub files_done: u64,
    /// Of these, on the PFS under their names.
    pub files_drained: u64,
    /// Bytes of these.
    pub bytes_drained: u64,
    /// Bytes to copy (data, without holes), as far as they have been found.
    pub bytes_total: u64,
    /// Directories that got their attributes.
    pub dirs: u64,
    /// Names renamed on the PFS.
    pub renamed: u64,
    /// Names removed from the PFS.
    pub removed: u64,
    /// Records that were released, with their objects.
    pub released: u64,
}

/// What a pass came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainReport {
    /// How many things are not on the PFS: exact, also where `left` has not all of them.
    pub left_count: u64,
    /// Their bytes.
    pub left_bytes: u64,
    /// The first [`MOST_LEFT`] of them, by path.
    pub left: Vec<Left>,
    /// The buffered copies are gone; the PFS alone shows the same tree.
    pub released: bool,
    /// Choices that were not carried out, and why.
    pub refused: Vec<(TreePath, String)>,
    /// Paths that were settled for both, and the names that ours have now.
    pub second_names: Vec<(TreePath, TreePath)>,
    /// Why copies were kept although nobody asked for it: the first reason.
    pub kept_because: Option<String>,
}

impl DrainReport {
    /// Adds something that a recovery has put into quarantine.
    pub fn withhold(&mut self, path: TreePath, bytes: u64, object: ObjectName) {
        self.left_count += 1;
        self.left_bytes += bytes;
        if self.left.len() < MOST_LEFT {
            let reason = Reason::Withheld(object);
            let at = self.left.partition_point(|left| left.path <= path);
            self.left.insert(
                at,
                Left {
                    path,
                    bytes,
                    reason,
                },
            );
        }
    }
}

/// The shared state of a pass.
pub(super) struct Sheet {
    pub(super) terms: PassTerms,
    pub(super) stopping: bool,
    /// Failures that stayed in doubt.
    in_doubt: u32,
    /// A bug that the simulator has to find.
    pub(super) planted: Option<Mutation>,
    pub(super) patient: bool,
    pub(super) tally: Tally,
    /// The first reason for each thing that failed.
    failed: BTreeMap<TreePath, Left>,
    /// What has failed beyond these, which is not listed.
    also_failed: BTreeSet<TreePath>,
    /// More than that has failed.
    many_have_failed: bool,
    /// What was made past the buffer, by its directory.
    strays: BTreeMap<TreePath, (ObjectName, Vec<StrayEntry>)>,
    /// What is left on the PFS at paths that no record has: directories that could not be synced, and what nothing speaks of any
    /// more and could not be removed.
    without_record: BTreeMap<TreePath, Reason>,
    /// The list has ended.
    is_listed: bool,
    pub(super) report: DrainReport,
    /// Directories of the PFS whose entries are not known to be on its disks.
    unsynced: BTreeSet<TreePath>,
    /// Directories of the PFS in which temporary names may be.
    pub(super) workplaces: Workplaces,
    /// Where files were on the PFS that may have stayed on their way out ([`super::going`]).
    on_their_way: BTreeSet<TreePath>,
    /// Objects to be copied.
    pub(super) tasks: VecDeque<Task>,
    /// Objects that this pass has taken up for a copy.
    pub(super) taken_up: BTreeSet<ObjectId>,
    /// Batches under way.
    pub(super) batches: usize,
    /// What is in the way of something goes to a waiting name.
    pub(super) may_wait: bool,
    /// What was renamed has its final name, if it could get it.
    pub(super) has_settled: bool,
    /// A file was passed over because something renamed still lay in what it replaces: files are looked at again. Otherwise they
    /// are not, because each costs a call on the PFS.
    pub(super) clears_files_again: bool,
    /// Files with several names, some of which are to go.
    pub(super) shared_files: SharedFiles,
    /// The walk under way.
    pub(super) walk: Walk,
    /// Files that only the bridge itself had open when they were to be released, with the number of tries.
    pub(super) passing: BTreeMap<TreePath, u32>,
    /// New directories of which this pass has been told where on the PFS they go. No list has named what is in those.
    pub(super) chosen_dirs: BTreeSet<TreePath>,
}

/// One walk through what was renamed.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// What was looked at.
    pub(super) looked: u64,
    /// What has left its place.
    pub(super) has_left: u64,
}

impl Walk {
    /// Does a walk by which things go straight to their final names pay for another one? In a long chain, each thing renamed to
    /// the name of the one before, each walk frees a single name: the rest of one goes by waiting names, which takes two walks.
    pub(super) fn is_worth_another(&self) -> bool {
        const FEW: u64 = 300;
        const SHARE: u64 = 64;
        self.looked <= FEW || self.has_left * SHARE >= self.looked
    }
}

/// Another directory is a reason of its own, and no error of the PFS.
fn as_told(reason: Reason) -> Reason {
    match reason {
        Reason::Refused(trouble) if trouble.operation == OTHER_DIR => Reason::OtherDirectory,
        reason => reason,
    }
}

impl Sheet {
    pub(super) fn new(terms: PassTerms) -> Self {
        Sheet {
            patient: terms.patient,
            terms,
            stopping: false,
            in_doubt: 0,
            planted: None,
            tally: Tally::default(),
            failed: BTreeMap::new(),
            also_failed: BTreeSet::new(),
            many_have_failed: false,
            strays: BTreeMap::new(),
            without_record: BTreeMap::new(),
            is_listed: false,
            report: DrainReport::default(),
            unsynced: BTreeSet::new(),
            workplaces: Workplaces::default(),
            on_their_way: BTreeSet::new(),
            tasks: VecDeque::new(),
            taken_up: BTreeSet::new(),
            batches: 0,
            may_wait: false,
            has_settled: false,
            clears_files_again: false,
            shared_files: SharedFiles::unswept(),
            walk: Walk::default(),
            chosen_dirs: BTreeSet::new(),
            passing: BTreeMap::new(),
        }
    }

    /// Something that has a record fails to get to the PFS. It is listed if the record is dirty in the end. The first reason counts.
    pub(super) fn leave(&mut self, path: &TreePath, bytes: u64, reason: Reason) {
        let reason = as_told(reason);
        if self.failed.len() < MOST_LEFT {
            let left = Left {
                path: path.clone(),
                bytes,
                reason,
            };
            self.failed.entry(path.clone()).or_insert(left);
        } else if self.also_failed.len() < MOST_FAILED {
            self.also_failed.insert(path.clone());
        } else {
            self.many_have_failed = true;
        }
    }

    /// All looks are used up, and nobody knows whether the PFS has done what it says has failed.
    pub(super) fn stays_in_doubt(&mut self) {
        self.in_doubt += 1;
    }

    /// So many looks a failure in doubt is worth.
    pub(super) fn looks_in_doubt(&self) -> u32 {
        match self.in_doubt < MOST_IN_DOUBT {
            true => LOOKS_IN_DOUBT,
            false => 1,
        }
    }

    /// Is it certain after so many looks that what they did not show has not been done?
    pub(super) fn is_settled_by(looks: u32) -> bool {
        looks >= LOOKS_IN_DOUBT
    }

    /// Has something gone wrong with this already? Of more failures than are remembered it may have been one.
    pub(super) fn has_failed(&self, path: &TreePath) -> bool {
        self.many_have_failed || self.failed.contains_key(path) || self.also_failed.contains(path)
    }

    /// Has nothing come of this for this reason?
    pub(super) fn has_failed_for(&self, path: &TreePath, reason: &Reason) -> bool {
        let left = self.failed.get(path);
        left.is_some_and(|left| left.reason == *reason)
    }

    pub(super) fn refuse(&mut self, path: &TreePath, bytes: u64, trouble: Trouble) {
        self.leave(path, bytes, Reason::Refused(trouble));
    }

    /// These entries of the backing directory of `dir` were made past the buffer.
    pub(super) fn note_strays(
        &mut self,
        dir: &TreePath,
        object: ObjectName,
        strays: Vec<StrayEntry>,
    ) {
        self.strays.insert(dir.clone(), (object, strays));
    }

    /// This is dirty at the end of the pass. A directory that only holds strays is not named beside them. `bytes`: the size of its
    /// contents, if it has any, and that is known.
    pub(super) fn list_left(&mut self, path: &TreePath, bytes: Option<u64>) {
        if let Some((object, strays)) = self.strays.remove(path) {
            for stray in strays {
                self.count_left(Left {
                    path: path.join(&stray.name),
                    bytes: stray.bytes,
                    reason: Reason::Stray(object),
                });
            }
            if !self.failed.contains_key(path) {
                return;
            }
        }
        let unknown = match self.stopping {
            true => Reason::Stopped,
            false => Reason::Changing,
        };
        let mut left = self.failed.remove(path).unwrap_or(Left {
            path: path.clone(),
            bytes: 0,
            reason: unknown,
        });
        // It may have changed since it failed.
        left.bytes = bytes.unwrap_or(left.bytes);
        self.count_left(left);
    }

    fn count_left(&mut self, left: Left) {
        self.report.left_count += 1;
        self.report.left_bytes += left.bytes;
        if self.report.left.len() < MOST_LEFT {
            self.report.left.push(left);
        }
    }

    /// Ends the list. A failure that was not listed has disappeared since.
    pub(super) fn close_list(&mut self) {
        self.is_listed = true;
        self.failed.clear();
        self.also_failed.clear();
        self.many_have_failed = false;
        self.strays.clear();
        let listed: BTreeSet<_> = self.report.left.iter().map(|l| l.path.clone()).collect();
        let mut without_record = std::mem::take(&mut self.without_record);
        for (dir, trouble) in self.workplaces.unswept() {
            without_record.insert(dir.clone(), Reason::Leftovers(*trouble));
        }
        for (path, reason) in without_record {
            if !listed.contains(&path) {
                self.count_left(Left {
                    path,
                    bytes: 0,
                    reason,
                });
            }
        }
        self.report.left.sort_by(|a, b| a.path.cmp(&b.path));
    }

    pub(super) fn keep_because(&mut self, reason: impl FnOnce() -> String) {
        self.report.kept_because.get_or_insert_with(reason);
    }

    /// The directory around `path` has got or lost an entry, now or in an earlier pass that did not come
    /// to its end.
    pub(super) fn note_unsynced(&mut self, path: &TreePath) {
        self.unsynced.insert(path.parent());
    }

    /// Directories that are to be synced now: all of them, or only if there are too many.
    pub(super) fn take_unsynced(&mut self, all: bool) -> Option<Vec<TreePath>> {
        let due = match all {
            true => !self.unsynced.is_empty(),
            false => self.unsynced.len() >= MOST_UNSYNCED,
        };
        due.then(|| std::mem::take(&mut self.unsynced).into_iter().collect())
    }

    /// Something is left on the PFS at a path that no record has: [`Sheet::leave`] would not list it. The first reason counts.
    pub(super) fn leave_without_record(&mut self, path: &TreePath, reason: Reason) {
        let reason = as_told(reason);
        self.without_record.entry(path.clone()).or_insert(reason);
    }

    /// See [`super::Drain::came_back`]. After the list has ended it is listed all the same.
    pub(super) fn came_back(&mut self, path: TreePath) {
        let reason = Reason::CameBack;
        if !self.is_listed {
            return self.leave_without_record(&path, reason);
        }
        self.count_left(Left {
            path,
            bytes: 0,
            reason,
        });
        self.report.left.sort_by(|a, b| a.path.cmp(&b.path));
    }

    /// What was at this path of the PFS may have stayed on its way out.
    pub(super) fn stays_on_its_way(&mut self, place: TreePath) {
        self.on_their_way.insert(place);
    }

    /// May it have, or something in it?
    pub(super) fn is_on_its_way(&self, place: &TreePath) -> bool {
        self.on_their_way.iter().any(|at| at.is_within(place))
    }

    /// A directory in this one, or this one itself, in which something of a drain may be left that could not be removed.
    pub(super) fn left_in(&self, dir: &TreePath) -> Option<TreePath> {
        let mut on_their_way = self.on_their_way.iter();
        let on_its_way = on_their_way.find(|place| place.is_within(dir));
        let unswept = self.workplaces.unswept_in(dir).cloned();
        unswept.or_else(|| on_its_way.map(TreePath::parent))
    }

    /// An object is drained or given up.
    pub(super) fn count_done(&mut self) {
        self.tally.files_done += 1;
    }
}
