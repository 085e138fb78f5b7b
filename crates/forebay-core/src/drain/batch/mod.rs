//! Copies on their way to their names.
//!
//! A [`CopyBatch`] copies, syncs and verifies some objects under temporary names, and then publishes them,
//! [`PUBLISHED_AT_ONCE`] at a time: marked, looked at once more, named, committed. At no moment is there half
//! a file under its name.

mod copy;
mod doubt;
mod publish;

use crate::drain::act::{Act, DrainVerdict, Got, Trouble};
use crate::drain::contents::Task;
use crate::drain::copies::{Copy, Name, Naming, Temporary};
use crate::drain::drain_facts::DrainFacts;
use crate::drain::rules::{OURS, is_ours};
use crate::drain::sheet::{Reason, Sheet};
use crate::drain::strand::{Strand, with_outcomes};
use crate::facts::{Attr, Outcome};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{ObjectId, ObjectName, PathRecord};
use copy::Again;

/// A batch is full with so many bytes or objects. Each of them is an open descriptor of the driver.
pub const BATCH_BYTES: u64 = 32 << 20;
/// See [`BATCH_BYTES`].
pub const BATCH_OBJECTS: usize = 512;
/// A batch has at least so many, if there are so many: fewer do not pay for its syncs.
const BATCH_OBJECTS_LEAST: usize = 32;
/// Objects that get their names between two commits: a request that changes one of them waits for all, and for the disk, since
/// the first commit has to be durable before.
const PUBLISHED_AT_ONCE: usize = 128;
/// A file that changes while it is copied gets one more chance.
const COPY_TRIES: u32 = 2;
/// So many copies of one object others may take away, or keep from their temporary names; then it is left.
const MOST_SUPPLANTED: u32 = 4;

/// A task with its copy, and the attributes of the object before it was copied.
struct Candidate {
    task: Task,
    attr: Attr,
    /// What its copy is known by.
    copy: Identity,
    /// Bytes of the copy.
    bytes: u64,
    /// For each of its names: an earlier copy that may have got there.
    earlier: Vec<Option<Identity>>,
    /// For each of its names: that earlier copy, if it was seen there since.
    settled: Vec<Option<Identity>>,
    /// What was found under each of its names.
    found: Vec<Option<Identity>>,
    /// The name under which others have put something, or of which they have taken the directory.
    taken_at: Option<TreePath>,
    /// After a failure, for each of its names: has the copy got there? `None`: nobody can say.
    placed: Vec<Option<bool>>,
    /// Its records carry marks of this batch. A mark on any other is of another bridge, and not to be taken away here.
    is_marked: bool,
}

impl Candidate {
    /// Where on the PFS is what the nth of its names replaces?
    fn place(&self, nth: usize) -> &TreePath {
        let (path, record) = &self.task.ready[nth];
        record.hides.as_ref().unwrap_or(path)
    }

    /// Writes down what is known of the nth of its names after a failure.
    fn failed(&self, n: usize, path: &TreePath, record: &mut PathRecord) {
        let placed = match self.placed.get(n) {
            // It is not there, but an earlier one may be.
            None | Some(Some(false)) => {
                record.arriving = self.earlier[n].map(Box::new);
                return;
            }
            Some(Some(true)) => true,
            // Where nothing of ours was, it counts as there: else it would show when the record goes.
            Some(None) => !is_ours(path, record),
        };
        if placed {
            record.drained = Some(OURS);
            record.is_there_as(self.copy);
            record.hides = None;
        } else {
            // The one or the other is there.
            record.replaces = self.found[n].or(record.replaces);
            record.arriving = Some(Box::new(self.copy));
        }
    }

    fn naming(&self) -> Naming {
        let ready = self.task.ready.iter().zip(&self.found).enumerate();
        Naming {
            temporary: self.task.temporary(),
            names: ready
                .map(|(n, ((path, _), found))| Name {
                    path: path.clone(),
                    replaces: *found,
                    within: self.task.within.get(n).copied().flatten(),
                })
                .collect(),
        }
    }
}

/// A name of a copy with an entry that its record does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Suspect {
    /// Which of the names it is.
    nth: usize,
    record: PathRecord,
    found: Attr,
}

/// What is to become of a copy that is being published.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CopyFate {
    Good,
    /// These of its names hold entries that their records do not know.
    Suspect(Vec<Suspect>),
    /// The object or its records have changed.
    Stale,
    /// Giving it its names has failed. It may have some of them, or all.
    Unclear(Trouble),
    /// Others have put something else in its place before it had all its names.
    Supplanted,
    /// It has failed.
    Failed(Reason),
}

enum State {
    Begin,
    Noting,
    Start,
    Copying,
    Sync,
    Syncing,
    Verify,
    Verifying,
    /// Looks for earlier copies that may have got their names.
    Peek,
    Peeking,
    /// The next few.
    Mark,
    Marking,
    Check,
    Examining,
    Look,
    Looking,
    Judge,
    Name,
    Naming,
    LookAgain,
    Pause,
    Pausing,
    LookingAgain,
    Unhide,
    Unhiding,
    Again,
    ExaminingAgain,
    Finish,
    Finishing,
    Forget,
    Forgetting,
    End,
}

/// Copies some objects and gives the copies their names.
pub(super) struct CopyBatch {
    tasks: Vec<Task>,
    after_a_pause: bool,
    state: State,
    /// The directories in which it makes temporary names, and the place where they are noted.
    workplaces: Vec<TreePath>,
    slot: usize,
    /// They are noted since the batch began.
    is_noted_anew: bool,
    copies: Vec<Candidate>,
    /// What is being published, with what is to become of it.
    few: Vec<(Candidate, CopyFate)>,
    /// What was looked at after the last failure to give names.
    looks: u32,
    /// Tasks that are to be copied once more, until their copies are gone.
    stale: Vec<(Task, Again)>,
    /// Temporary names that may be there and are of no use.
    useless: Vec<Temporary>,
    /// Objects whose labels could not be written: the last commit asks for it.
    unlabelled: Vec<ObjectName>,
    /// The records that a commit marks.
    marked: Vec<(TreePath, PathRecord)>,
}

impl CopyBatch {
    /// Takes tasks from the front: one large file, or small ones up to the size of a batch. Files that
    /// were in use a moment ago wait for all others.
    pub(super) fn take_from(sheet: &mut Sheet) -> Option<Self> {
        let waits = sheet.tasks.iter().all(|task| task.in_use);
        if waits && (sheet.tasks.is_empty() || sheet.batches > 0) {
            return None;
        }
        let mut tasks: Vec<Task> = Vec::new();
        let mut bytes = 0;
        let mut passed_over = Vec::new();
        // All movers get something of what is there.
        let share = sheet.tasks.len() / sheet.terms.batches;
        let most = sheet.terms.objects.min(BATCH_OBJECTS);
        while tasks.len() < share.clamp(BATCH_OBJECTS_LEAST.min(most), most) {
            let Some(task) = sheet.tasks.pop_front() else {
                break;
            };
            if task.in_use && !waits {
                passed_over.push(task);
                continue;
            }
            if !tasks.is_empty() && bytes + task.bytes > BATCH_BYTES {
                sheet.tasks.push_front(task);
                break;
            }
            bytes += task.bytes;
            tasks.push(task);
        }
        sheet.tasks.extend(passed_over);
        sheet.batches += 1;
        Some(CopyBatch {
            tasks,
            after_a_pause: waits,
            state: State::Begin,
            workplaces: Vec::new(),
            slot: sheet.workplaces.take(),
            is_noted_anew: false,
            copies: Vec::new(),
            few: Vec::new(),
            looks: 0,
            stale: Vec::new(),
            useless: Vec::new(),
            unlabelled: Vec::new(),
            marked: Vec::new(),
        })
    }

    fn oids(&self) -> Vec<ObjectId> {
        self.copies.iter().map(|c| c.task.oid()).collect()
    }
}

impl CopyBatch {
    /// The act for a state in which no fact is needed; the state after it.
    fn act(&mut self, sheet: &mut Sheet) -> Option<Act> {
        let good = || {
            self.few
                .iter()
                .filter(|(_, fate)| *fate == CopyFate::Good)
                .map(|(candidate, _)| &candidate.task)
        };
        let objects = || good().map(|task| task.object).collect::<Vec<_>>();
        let (act, state) = match self.state {
            State::Start => {
                let copies = self.tasks.iter().map(|task| Copy {
                    object: task.object,
                    kind: task.kind,
                    temporary: task.temporary(),
                    within: task.within.first().copied().flatten(),
                });
                let act = Act::Copy {
                    copies: copies.collect(),
                    after_a_pause: self.after_a_pause,
                    is_noted_anew: self.is_noted_anew,
                };
                (act, State::Copying)
            }
            State::Sync | State::Verify if self.copies.is_empty() => {
                self.state = State::Mark;
                return None;
            }
            State::Sync => (Act::Sync(self.oids()), State::Syncing),
            State::Verify => (Act::Verify(self.oids()), State::Verifying),
            State::Peek => {
                let doubtful = self.doubtful();
                if doubtful.is_empty() {
                    self.state = State::Mark;
                    return None;
                }
                (Act::Look(doubtful), State::Peeking)
            }
            State::Check | State::Look | State::Name | State::Unhide if good().next().is_none() => {
                self.state = State::Finish;
                return None;
            }
            State::Check => (Act::Examine(objects()), State::Examining),
            State::Look => {
                let ready = good().flat_map(|task| &task.ready);
                let paths = ready.map(|(path, _)| path.clone()).collect();
                (Act::Look(paths), State::Looking)
            }
            State::Name => {
                let good = self.few.iter().filter(|(_, fate)| *fate == CopyFate::Good);
                let namings = good.map(|(candidate, _)| candidate.naming());
                (Act::Name(namings.collect()), State::Naming)
            }
            State::LookAgain => return self.look_again(),
            State::Pause => (Act::Pause, State::Pausing),
            State::Unhide => {
                let hiding = self.hiding();
                if hiding.is_empty() {
                    self.state = State::Finish;
                    return None;
                }
                (Act::Unhide(hiding), State::Unhiding)
            }
            State::Again => (Act::Examine(objects()), State::ExaminingAgain),
            State::Forget => match self.forget(sheet) {
                Some(act) => (act, State::Forgetting),
                None => {
                    self.state = State::Mark;
                    return None;
                }
            },
            _ => unreachable!("a state that waits, or that needs facts"),
        };
        self.state = state;
        Some(act)
    }
}

impl Strand for CopyBatch {
    fn take(&mut self, got: Got, sheet: &mut Sheet) {
        match (std::mem::replace(&mut self.state, State::End), got) {
            (State::Noting, Got::Verdict(DrainVerdict::Committed)) => {
                let noted = self.workplaces.clone();
                sheet.workplaces.noted(self.slot, noted);
                self.state = State::Start;
            }
            // Nothing else can change this, so the store refused; try again.
            (State::Noting, Got::Verdict(DrainVerdict::Conflict)) => self.state = State::Begin,
            (State::Copying, Got::Copies(copies)) => {
                self.copied(copies, sheet);
                self.state = State::Sync;
            }
            (State::Syncing, Got::Each(each)) => {
                self.keep(each, sheet);
                self.state = State::Verify;
            }
            (State::Verifying, Got::Each(each)) => {
                self.keep(each, sheet);
                self.state = State::Peek;
            }
            (State::Peeking, Got::Seen(seen)) => self.peeked(seen, sheet),
            (State::Marking, Got::Verdict(DrainVerdict::Committed)) => self.marks_committed(),
            (State::Marking, Got::Verdict(DrainVerdict::Conflict)) => self.state = State::Mark,
            (State::Examining, Got::Attrs(attrs)) => self.examined(attrs, sheet.planted),
            (State::Looking, Got::Seen(seen)) => self.looked(seen, sheet),
            (State::Naming, Got::Named(each)) => self.named(each, sheet),
            (State::LookingAgain, Got::Seen(seen)) => {
                self.looked_again(seen, sheet);
            }
            (State::Pausing, Got::Done) => self.state = State::LookAgain,
            (State::Unhiding, Got::Each(each)) => {
                let hiding = with_outcomes(self.hiding(), each);
                let failed = hiding.filter(|(_, did)| did.is_err());
                self.unlabelled = failed.map(|(object, _)| object).collect();
                self.state = State::Again;
            }
            (State::ExaminingAgain, Got::Attrs(attrs)) => self.examined_again(attrs),
            (State::Finishing, Got::Verdict(DrainVerdict::Committed)) => self.state = State::Forget,
            // Nothing else can change this, so the store refused; try again.
            (State::Finishing, Got::Verdict(DrainVerdict::Conflict)) => self.state = State::Finish,
            (State::Forgetting, Got::Each(each)) => {
                if each.iter().any(Result::is_err) {
                    sheet.workplaces.doubt(self.slot);
                }
                // Not earlier: another batch may take them at once, and an object has one copy at a time.
                for (task, again) in std::mem::take(&mut self.stale) {
                    again.take_up(task, sheet);
                }
                self.state = State::Mark;
            }
            (_, got) => unreachable!("{got:?} answers nothing that was asked"),
        }
    }

    fn next(&mut self, facts: &dyn DrainFacts, sheet: &mut Sheet) -> Outcome<Option<Act>> {
        loop {
            let act = match self.state {
                State::Begin => self.begin(facts, sheet)?,
                State::Mark if self.few.is_empty() && self.copies.is_empty() => {
                    self.state = match self.useless.is_empty() {
                        true => State::End,
                        false => State::Forget,
                    };
                    None
                }
                State::Mark => self.mark(facts)?,
                State::Judge => {
                    self.judge(facts, sheet)?;
                    None
                }
                State::Finish => match self.conclude(facts)? {
                    Some(commit) => {
                        self.state = State::Finishing;
                        Some(Act::Commit(commit))
                    }
                    None => {
                        self.state = State::Forget;
                        None
                    }
                },
                State::End => {
                    sheet.workplaces.give_back(self.slot);
                    sheet.batches -= 1;
                    return Ok(None);
                }
                _ => self.act(sheet),
            };
            if act.is_some() {
                return Ok(act);
            }
        }
    }
}
