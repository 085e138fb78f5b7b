//! Copies on their way to their names.
//!
//! A [`CopyBatch`] copies, syncs and verifies some objects under temporary names, and then publishes them,
//! [`PUBLISHED_AT_ONCE`] at a time: marked, looked at once more, named, committed. At no moment is there half
//! a file under its name.

use super::act::{Act, Commit, Copied, Copy, Got, Name, Naming, Temporary, Trouble, Verdict, Work};
use super::contents::Task;
use super::facts::Facts;
use super::moves::{is_dir, may_be_done};
use super::rules::{
    OURS, Update, commit_of, is_changed, is_ours, is_ours_in_place, obstacle, stamp,
};
use super::sheet::{Reason, Sheet};
use super::strand::{Strand, with_outcomes};
use super::workplaces::Workplaces;
use crate::bridge::{Mutation, ReadSet};
use crate::facts::{Attr, Outcome};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{ObjectId, ObjectName, PathRecord, Transit};

/// A batch is full with so many bytes or objects. Each of them is an open descriptor of the driver.
pub const BATCH_BYTES: u64 = 32 << 20;
/// See [`BATCH_BYTES`].
pub const BATCH_OBJECTS: usize = 512;
/// A batch has at least so many, if there are so many: fewer do not pay for its syncs.
const BATCH_OBJECTS_LEAST: usize = 32;
/// Objects that get their names between two commits: a request that changes one of them waits for all, and for the disk, since
/// the first commit has to be durable before.
pub const PUBLISHED_AT_ONCE: usize = 128;
/// Looks, with a pause after each, before it counts that a copy has not got its name: a client may go on showing for a
/// second or more what was there before.
const LOOKS_IN_DOUBT: u32 = 75;
/// A file that changes while it is copied gets one more chance.
pub const COPY_TRIES: u32 = 2;

/// A task with its copy, and the attributes of the object before it was copied.
struct Candidate {
    task: Task,
    attr: Attr,
    /// What its copy is known by.
    copy: Identity,
    /// For each of its names: an earlier copy that may have got there.
    earlier: Vec<Option<Identity>>,
    /// For each of its names: that earlier copy, if it was seen there since.
    settled: Vec<Option<Identity>>,
    /// What was found under each of its names.
    found: Vec<Option<Identity>>,
    /// The name under which others have put something.
    taken_at: Option<TreePath>,
    /// After a failure, for each of its names: has the copy got there? `None`: nobody can say.
    placed: Vec<Option<bool>>,
    /// Its records carry marks of this batch. A mark on any other is of another bridge, and not to be taken away here.
    is_marked: bool,
}

impl Candidate {
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
            record.replaces = Some(self.copy);
            record.hides = None;
        } else {
            // The one or the other is there.
            record.replaces = self.found[n].or(record.replaces);
            record.arriving = Some(Box::new(self.copy));
        }
    }

    fn naming(&self) -> Naming {
        let ready = self.task.ready.iter().zip(&self.found);
        Naming {
            temporary: self.task.temporary(),
            names: ready
                .map(|((path, _), found)| Name {
                    path: path.clone(),
                    replaces: *found,
                })
                .collect(),
        }
    }
}

/// What is to become of a copy that is being published.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Good,
    /// It would replace this, which is not what the record knows.
    Suspect(Box<(PathRecord, Attr)>),
    /// The object or its records have changed.
    Stale,
    /// Giving it its names has failed, but may have been done.
    Unclear(Trouble),
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
    few: Vec<(Candidate, Fate)>,
    /// What was looked at after the last failure to give names.
    looks: u32,
    /// Tasks that changed while they were copied, until their copies are gone.
    stale: Vec<Task>,
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

    /// Reads the records of tasks again that changed while they were copied.
    fn refresh(&mut self, facts: &dyn Facts, sheet: &mut Sheet) -> Outcome<()> {
        let mut fresh = Vec::with_capacity(self.tasks.len());
        for task in &self.tasks {
            let mut task = task.clone();
            if task.tries > 0 {
                let mut ready = Vec::new();
                for (path, _) in &task.ready {
                    match facts.record(path)? {
                        Some(r) if r.object.oid == task.oid() && r.transit.is_none() => {
                            ready.push((path.clone(), r));
                        }
                        _ => {}
                    }
                }
                task.ready = ready;
            }
            fresh.push(task);
        }
        let (tasks, gone): (Vec<_>, Vec<_>) =
            fresh.into_iter().partition(|task| !task.ready.is_empty());
        for _ in gone {
            sheet.count_done();
        }
        self.tasks = tasks;
        Ok(())
    }

    fn begin(&mut self, facts: &dyn Facts, sheet: &mut Sheet) -> Outcome<Option<Act>> {
        self.refresh(facts, sheet)?;
        if self.tasks.is_empty() {
            self.state = State::End;
            return Ok(None);
        }
        let dirs_of = |tasks: &mut dyn Iterator<Item = &Task>| {
            let names = tasks.flat_map(|task| &task.ready);
            let mut dirs: Vec<_> = names.map(|(path, _)| path.parent()).collect();
            dirs.sort();
            dirs.dedup();
            dirs
        };
        self.workplaces = match facts.is_single() {
            true => dirs_of(&mut self.tasks.iter()),
            false => vec![TreePath::root()],
        };
        let note = match sheet.workplaces.has_noted(self.slot, &self.workplaces) {
            true => None,
            false => {
                // Those of the next batches as well: each note has to become durable.
                if facts.is_single() {
                    let all = &mut self.tasks.iter().chain(&sheet.tasks);
                    let dirs = dirs_of(all);
                    self.workplaces = sheet.workplaces.with_doubtful(self.slot, dirs);
                }
                Some(Workplaces::note(self.slot, &self.workplaces))
            }
        };
        self.is_noted_anew = note.is_some();
        self.state = match note {
            Some(_) => State::Noting,
            None => State::Start,
        };
        Ok(note.map(Act::Commit))
    }

    fn copied(&mut self, copies: Vec<Work<Copied>>, sheet: &mut Sheet) {
        for (mut task, copied) in with_outcomes(std::mem::take(&mut self.tasks), copies) {
            match copied {
                Ok(Copied::Whole { of: attr, copy }) => {
                    let earlier = task
                        .ready
                        .iter()
                        .map(|(_, r)| r.arriving.as_deref().copied());
                    self.copies.push(Candidate {
                        settled: vec![None; task.ready.len()],
                        earlier: earlier.collect(),
                        task,
                        attr,
                        copy,
                        found: Vec::new(),
                        taken_at: None,
                        placed: Vec::new(),
                        is_marked: false,
                    });
                }
                Ok(Copied::Short) => {
                    self.useless.extend(task.temporaries());
                    self.stale.push(task);
                }
                Ok(Copied::InUse) if sheet.patient && !sheet.stopping => {
                    task.in_use = true;
                    sheet.tasks.push_back(task);
                }
                Ok(Copied::InUse) => task.give_up(&Reason::Open, sheet),
                Ok(Copied::Stopped) => {
                    self.useless.extend(task.temporaries());
                    task.give_up(&Reason::Stopped, sheet);
                }
                Ok(Copied::NoDirectory) => {
                    self.useless.extend(task.temporaries());
                    task.give_up(&Reason::NoDirectory, sheet);
                }
                Err(trouble) => {
                    self.useless.extend(task.temporaries());
                    task.give_up(&Reason::Refused(trouble), sheet);
                }
            }
        }
    }

    /// What failed leaves the batch.
    fn keep(&mut self, each: Vec<Work<()>>, sheet: &mut Sheet) {
        for (candidate, did) in with_outcomes(std::mem::take(&mut self.copies), each) {
            match did {
                Ok(()) => self.copies.push(candidate),
                Err(trouble) => {
                    self.useless.extend(candidate.task.temporaries());
                    candidate.task.give_up(&Reason::Refused(trouble), sheet);
                }
            }
        }
    }

    fn oids(&self) -> Vec<ObjectId> {
        self.copies.iter().map(|c| c.task.oid()).collect()
    }

    /// Names at which an earlier copy may be.
    fn doubtful(&self) -> Vec<TreePath> {
        let names = self
            .copies
            .iter()
            .flat_map(|c| c.task.ready.iter().zip(&c.earlier));
        let doubtful = names.filter(|(_, earlier)| earlier.is_some());
        doubtful.map(|((path, _), _)| path.clone()).collect()
    }

    /// Where nobody can say whether an earlier copy is there, no other one follows.
    fn peeked(&mut self, seen: Vec<Work<Option<Attr>>>, sheet: &mut Sheet) {
        let mut seen = seen.into_iter();
        for mut candidate in std::mem::take(&mut self.copies) {
            let mut unknown = None;
            let names = candidate.earlier.iter().zip(&mut candidate.settled);
            for (earlier, settled) in names {
                let Some(earlier) = earlier else { continue };
                match seen.next().expect("one look for each doubtful name") {
                    Ok(Some(found)) if earlier.is(&found) => *settled = Some(Identity::of(&found)),
                    Ok(_) => {}
                    Err(trouble) => unknown = Some(trouble),
                }
            }
            match unknown {
                None => self.copies.push(candidate),
                Some(trouble) => {
                    self.useless.extend(candidate.task.temporaries());
                    candidate.task.give_up(&Reason::Refused(trouble), sheet);
                }
            }
        }
        self.state = State::Mark;
    }

    /// Marks the next few, if they still are what they were when they were copied.
    fn mark(&mut self, facts: &dyn Facts) -> Outcome<Option<Act>> {
        if self.few.is_empty() {
            let some = self.copies.len().min(PUBLISHED_AT_ONCE);
            let few = self.copies.drain(..some);
            self.few = few.map(|c| (c, Fate::Good)).collect();
        }
        let mut reads = ReadSet::default();
        let mut updates = Vec::new();
        let mut fates = Vec::with_capacity(self.few.len());
        for (candidate, _) in &self.few {
            let mut fate = Fate::Good;
            for (path, record) in &candidate.task.ready {
                if facts.record(path)?.as_ref() != Some(record) || record.transit.is_some() {
                    fate = Fate::Stale;
                } else if let Some(cause) = obstacle(facts, path, &mut reads)? {
                    fate = Fate::Failed(Reason::Blocked(cause));
                }
            }
            if fate == Fate::Good {
                let ready = candidate.task.ready.iter().cloned();
                updates.extend(ready.zip(&candidate.settled).map(|((path, r), settled)| {
                    let mut update = Update::marked(path, r, Some(Transit::Placing));
                    if let Some(after) = &mut update.after {
                        // From now on a third one may be there.
                        after.replaces = settled.or(after.replaces);
                        after.arriving = Some(Box::new(candidate.copy));
                    }
                    update
                }));
            }
            fates.push(fate);
        }
        for ((_, fate), now) in self.few.iter_mut().zip(fates) {
            *fate = now;
        }
        if updates.is_empty() {
            self.state = State::Forget;
            return Ok(None);
        }
        let (commit, marked) = commit_of(facts, reads, updates, Vec::new());
        self.marked = marked;
        self.state = State::Marking;
        Ok(Some(Act::Commit(commit)))
    }

    /// The marks are there.
    fn marks_committed(&mut self) {
        let mut marked = std::mem::take(&mut self.marked).into_iter();
        for (candidate, _) in good(&mut self.few) {
            candidate.is_marked = true;
            for ready in &mut candidate.task.ready {
                if let Some(now) = marked.next() {
                    assert_eq!(now.0, ready.0, "marks come in the order of the records");
                    *ready = now;
                }
            }
        }
        self.state = State::Check;
    }

    fn examined(&mut self, attrs: Vec<Work<Attr>>, planted: Option<Mutation>) {
        for ((candidate, fate), attr) in with_outcomes(good(&mut self.few), attrs) {
            match attr {
                Ok(attr) if stamp(&attr) == stamp(&candidate.attr) => {}
                Ok(now) if Mutation::PublishesWhatHasChanged.is(planted) => candidate.attr = now,
                Ok(_) => *fate = Fate::Stale,
                Err(trouble) => *fate = Fate::Failed(Reason::Refused(trouble)),
            }
        }
        self.state = State::Look;
    }

    /// Holds back what would replace a stranger's file: one may have appeared on the PFS since.
    fn looked(&mut self, seen: Vec<Work<Option<Attr>>>, planted: Option<Mutation>) {
        let names = good(&mut self.few).map(|(candidate, _)| candidate.task.ready.len());
        assert_eq!(names.sum::<usize>(), seen.len(), "one look for each name");
        let mut seen = seen.into_iter();
        for (candidate, fate) in good(&mut self.few) {
            candidate.found.clear();
            let names = candidate.task.ready.iter().zip(&candidate.earlier);
            for (((path, record), earlier), found) in names.zip(seen.by_ref()) {
                let is_earlier = |now: &Attr| earlier.is_some_and(|copy| copy.is(now));
                let there = found.as_ref().ok().and_then(Option::as_ref);
                candidate.found.push(there.map(Identity::of));
                let trusts = |bug: Mutation| bug.is(planted);
                let now = match found {
                    Ok(Some(found)) if is_dir(&found) => Fate::Failed(Reason::Taken),
                    Ok(Some(_))
                        if !is_ours(path, record) && !trusts(Mutation::ReplacesStrangers) =>
                    {
                        Fate::Failed(Reason::Taken)
                    }
                    Ok(Some(found))
                        if is_changed(record, &found)
                            && !is_earlier(&found)
                            && !trusts(Mutation::ReplacesWhatOthersChanged) =>
                    {
                        Fate::Suspect(Box::new((record.clone(), found)))
                    }
                    Ok(_) => continue,
                    Err(trouble) => Fate::Failed(Reason::Refused(trouble)),
                };
                // A failure outranks a suspicion; of two alike the first stays.
                let is_worse = *fate == Fate::Good
                    || matches!(fate, Fate::Suspect(_)) && matches!(now, Fate::Failed(..));
                if is_worse {
                    candidate.taken_at = Some(path.clone());
                    *fate = now;
                }
            }
        }
        self.state = State::Judge;
    }

    /// What is to be replaced was changed: by others?
    fn judge(&mut self, facts: &dyn Facts) {
        for (candidate, fate) in &mut self.few {
            if let Fate::Suspect(suspect) = fate {
                let (record, found) = &**suspect;
                *fate = match is_ours_in_place(record, found, facts) {
                    true => Fate::Good,
                    false => Fate::Failed(Reason::Changed),
                };
                if *fate == Fate::Good {
                    candidate.taken_at = None;
                }
                // Our own programs may go on writing to it.
                for found in candidate.found.iter_mut().flatten() {
                    *found = found.leaving();
                }
            }
        }
        self.state = State::Name;
    }

    fn named(&mut self, each: Vec<Work<()>>, sheet: &mut Sheet) {
        for ((candidate, fate), did) in with_outcomes(good(&mut self.few), each) {
            for (path, _) in &candidate.task.ready {
                sheet.note_unsynced(path);
            }
            match did {
                Ok(()) => {}
                // A link that is made a second time may find itself.
                Err(trouble) if may_be_done(trouble.errno) || trouble.errno == libc::EEXIST => {
                    *fate = Fate::Unclear(trouble);
                }
                Err(trouble) => *fate = Fate::Failed(Reason::Refused(trouble)),
            }
        }
        self.looks = 0;
        self.state = State::LookAgain;
    }

    fn unclear(&mut self) -> impl Iterator<Item = (&mut Candidate, &mut Fate)> {
        let few = self.few.iter_mut().map(|(c, fate)| (c, fate));
        few.filter(|(_, fate)| matches!(fate, Fate::Unclear(_)))
    }

    /// Looks where nobody knows whether a copy has got its name.
    fn look_again(&mut self) -> Option<Act> {
        let names = self.unclear().flat_map(|(c, _)| &c.task.ready);
        let paths: Vec<_> = names.map(|(path, _)| path.clone()).collect();
        self.state = match paths.is_empty() {
            true => State::Unhide,
            false => State::LookingAgain,
        };
        (!paths.is_empty()).then_some(Act::Look(paths))
    }

    /// What has its names has them, whatever was said of it.
    fn looked_again(&mut self, seen: Vec<Work<Option<Attr>>>) {
        self.looks += 1;
        let is_last = self.looks == LOOKS_IN_DOUBT;
        let mut seen = seen.into_iter();
        let mut useless = Vec::new();
        for (candidate, fate) in self.unclear() {
            let copy = candidate.copy;
            let is_placed = |found: Work<Option<Attr>>| {
                let found = found.ok()?;
                Some(found.is_some_and(|there| copy.is(&there)))
            };
            let names = seen.by_ref().take(candidate.task.ready.len());
            candidate.placed = names.map(is_placed).collect();
            if candidate.placed.iter().all(|placed| *placed == Some(true)) {
                // What was in its place may have got the temporary name.
                useless.extend(candidate.task.temporaries());
                *fate = Fate::Good;
            } else if let (true, Fate::Unclear(trouble)) = (is_last, &*fate) {
                *fate = Fate::Failed(match trouble.errno {
                    libc::EEXIST => Reason::Changed,
                    _ => Reason::Refused(*trouble),
                });
            }
        }
        self.useless.extend(useless);
        let is_clear = self.unclear().next().is_none();
        self.state = match is_clear {
            true => State::Unhide,
            false => State::Pause,
        };
    }

    /// Objects whose labels still say what their names have replaced.
    fn hiding(&self) -> Vec<ObjectName> {
        let good = self.few.iter().filter(|(_, fate)| *fate == Fate::Good);
        let ready = good.flat_map(|(candidate, _)| &candidate.task.ready);
        let hiding = ready.filter(|(_, record)| record.hides.is_some());
        hiding.map(|(_, record)| record.object).collect()
    }

    /// A new label changes the inode, and so what counts as clean.
    fn examined_again(&mut self, attrs: Vec<Work<Attr>>) {
        for ((candidate, _), attr) in with_outcomes(good(&mut self.few), attrs) {
            let before = &mut candidate.attr;
            let of_contents = |a: &Attr| (a.size, a.mtime, a.mode, a.uid, a.gid);
            match attr {
                // Otherwise the file changed just now; the old stamp keeps it dirty.
                Ok(now) if of_contents(&now) == of_contents(before) => *before = now,
                // So it does if nobody can say: it has its name on the PFS, and that is noted.
                Ok(_) | Err(_) => {}
            }
        }
        self.state = State::Finish;
    }

    /// What became of the few, and the end of the marks.
    fn conclude(&self, facts: &dyn Facts) -> Option<Commit> {
        let (mut updates, mut labels) = (Vec::new(), Vec::new());
        for (candidate, fate) in self.few.iter().filter(|(c, _)| c.is_marked) {
            for (n, (path, before)) in candidate.task.ready.iter().cloned().enumerate() {
                let mut update = Update::marked(path, before, None);
                match (fate, &mut update.after) {
                    (Fate::Good, Some(record)) => {
                        record.drained = Some(stamp(&candidate.attr));
                        record.replaces = Some(candidate.copy);
                        // The new name has replaced what was hidden, and the label says so already.
                        record.hides = None;
                        if !self.unlabelled.contains(&record.object) {
                            update.before.hides = None;
                        }
                    }
                    (Fate::Failed(_) | Fate::Stale, Some(record)) => {
                        let hid = record.hides.clone();
                        candidate.failed(n, &update.path, record);
                        if record.hides != hid {
                            labels.push((update.path.clone(), record.object));
                        }
                    }
                    _ => {}
                }
                updates.push(update);
            }
        }
        let (commit, _) = commit_of(facts, ReadSet::default(), updates, labels);
        (!commit.batch.is_empty()).then_some(commit)
    }

    /// The copies that were not named, and what is told of all.
    fn forget(&mut self, sheet: &mut Sheet) -> Option<Act> {
        let mut useless = std::mem::take(&mut self.useless);
        for (candidate, fate) in std::mem::take(&mut self.few) {
            let Candidate { task, taken_at, .. } = candidate;
            match fate {
                Fate::Good => {
                    sheet.tally.files_drained += 1;
                    sheet.count_done();
                }
                Fate::Stale => {
                    useless.extend(task.temporaries());
                    self.stale.push(task);
                }
                Fate::Suspect(_) | Fate::Unclear(_) => {
                    unreachable!("it is known what it is before the end")
                }
                Fate::Failed(reason) => {
                    task.give_up_at(taken_at.as_ref(), &reason, sheet);
                    useless.extend(task.temporaries());
                }
            }
        }
        (!useless.is_empty()).then_some(Act::Forget(useless))
    }
}

/// Those of the few with which nothing is wrong.
fn good(few: &mut [(Candidate, Fate)]) -> impl Iterator<Item = (&mut Candidate, &mut Fate)> {
    few.iter_mut()
        .filter(|(_, fate)| *fate == Fate::Good)
        .map(|(candidate, fate)| (candidate, fate))
}

/// It changed while it was copied.
fn changed(mut task: Task, sheet: &mut Sheet) {
    task.tries += 1;
    if task.tries < COPY_TRIES {
        sheet.tally.bytes_total += task.bytes;
        sheet.tasks.push_back(task);
    } else {
        task.give_up(&Reason::Changing, sheet);
    }
}

impl CopyBatch {
    /// The act for a state in which no fact is needed; the state after it.
    fn act(&mut self, sheet: &mut Sheet) -> Option<Act> {
        let good = || {
            self.few
                .iter()
                .filter(|(_, fate)| *fate == Fate::Good)
                .map(|(candidate, _)| &candidate.task)
        };
        let objects = || good().map(|task| task.object).collect::<Vec<_>>();
        let (act, state) = match self.state {
            State::Start => {
                let copies = self.tasks.iter().map(|task| Copy {
                    object: task.object,
                    kind: task.kind,
                    temporary: task.temporary(),
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
                let good = self.few.iter().filter(|(_, fate)| *fate == Fate::Good);
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
            (State::Noting, Got::Verdict(Verdict::Committed)) => {
                let noted = self.workplaces.clone();
                sheet.workplaces.noted(self.slot, noted);
                self.state = State::Start;
            }
            // Nothing else can change this, so the store refused; try again.
            (State::Noting, Got::Verdict(Verdict::Conflict)) => self.state = State::Begin,
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
            (State::Marking, Got::Verdict(Verdict::Committed)) => self.marks_committed(),
            (State::Marking, Got::Verdict(Verdict::Conflict)) => self.state = State::Mark,
            (State::Examining, Got::Attrs(attrs)) => self.examined(attrs, sheet.planted),
            (State::Looking, Got::Seen(seen)) => self.looked(seen, sheet.planted),
            (State::Naming, Got::Each(each)) => self.named(each, sheet),
            (State::LookingAgain, Got::Seen(seen)) => {
                self.looked_again(seen);
            }
            (State::Pausing, Got::Done) => self.state = State::LookAgain,
            (State::Unhiding, Got::Each(each)) => {
                let hiding = with_outcomes(self.hiding(), each);
                let failed = hiding.filter(|(_, did)| did.is_err());
                self.unlabelled = failed.map(|(object, _)| object).collect();
                self.state = State::Again;
            }
            (State::ExaminingAgain, Got::Attrs(attrs)) => self.examined_again(attrs),
            (State::Finishing, Got::Verdict(Verdict::Committed)) => self.state = State::Forget,
            // Nothing else can change this, so the store refused; try again.
            (State::Finishing, Got::Verdict(Verdict::Conflict)) => self.state = State::Finish,
            (State::Forgetting, Got::Each(each)) => {
                if each.iter().any(Result::is_err) {
                    sheet.workplaces.doubt(self.slot);
                }
                // Not earlier: another batch may take them at once, and an object has one copy at a time.
                for task in std::mem::take(&mut self.stale) {
                    changed(task, sheet);
                }
                self.state = State::Mark;
            }
            (_, got) => unreachable!("{got:?} answers nothing that was asked"),
        }
    }

    fn next(&mut self, facts: &dyn Facts, sheet: &mut Sheet) -> Outcome<Option<Act>> {
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
                    self.judge(facts);
                    None
                }
                State::Finish => match self.conclude(facts) {
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
