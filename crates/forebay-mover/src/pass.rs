//! One drain from its beginning to its end: threads that ask the machine what to do, and do it.

use crate::copies::Copies;
use crate::counters::Counters;
use crate::crew::{Crew, Job, Share};
use crate::ground::{Ground, Halt, Points};
use crate::lent_dirs::LentDirs;
use crate::pfs::{During, LastDir, Trouble};
use crate::pfs_acts::Removal;
use crate::throttle::Throttle;
use crate::touched::Touched;
use crate::{aside, known, leftovers, pfs_acts, processes};
use forebay_admin::drain::{self as admin, DrainRequest, Take};
use forebay_core::drain::{
    Act, BATCH_OBJECTS, Drain, DrainReport, DrainVerdict, Got, NameSecret, NextAct, PassTerms,
    Side, SideChoice, StrayEntry,
};
use forebay_core::fault::Fault;
use forebay_core::ops::FollowUp;
use forebay_core::path::TreePath;
use forebay_core::process_limits::{AtOnce, at_once};
use forebay_core::record::{BridgeId, ObjectName};
use forebay_objects::PfsNotes;
use forebay_sys as sys;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Length of [`Act::Pause`].
const MOMENT: Duration = Duration::from_millis(20);

/// Programs in the foreground run first: a mover that never slept would get a quarter of a processor beside one.
const MOVER_NICE: i32 = 5;

/// A decision as core knows it; `None` if its path is none.
fn choice(take: &Take) -> Option<SideChoice> {
    Some(SideChoice {
        path: TreePath::new(&take.path[..])?,
        side: match take.side {
            admin::Side::Ours => Side::Ours,
            admin::Side::Theirs => Side::Theirs,
            admin::Side::Both => Side::Both,
        },
    })
}

/// A drain at work.
pub struct Pass<'g> {
    pub(crate) ground: Ground<'g>,
    pub(crate) counters: &'g Counters,
    pub(crate) points: &'g Points,
    pub(crate) throttle: Throttle,
    pub(crate) copies: Copies,
    /// What it has touched on the PFS in passing.
    touched: Touched,
    /// About what it has put aside there.
    aside_notes: PfsNotes,
    /// Permissions that owners of directories on the PFS have for an act.
    lent: LentDirs,
    /// User and group of what this process makes.
    pub(crate) my_ids: (u32, u32),
    keeps: bool,
    at_once: AtOnce,
    choices: Vec<SideChoice>,
    patience: Duration,
    started: Instant,
    /// True once the directories of the PFS have their times back.
    times_given_back: AtomicBool,
}

/// Drives a machine that copies nothing, by this thread alone, and gives what is told of it.
fn drive_alone<T>(
    ground: Ground<'_>,
    machine: Drain,
    told: impl FnOnce(&Counters) -> T,
) -> Result<T, Halt> {
    let counters = Counters::new(1);
    let points = Points::none();
    let request = DrainRequest::default();
    Pass::new(ground, &request, &counters, &points).drive(machine, 0)?;
    Ok(told(&counters))
}

/// Makes the tables say what the PFS shows, and gives back what was lent, after a drain that was killed in between. Returns what
/// people should know.
///
/// # Errors
/// The tables failed, or the PFS can't be looked at where the drain was killed.
pub fn resume(ground: Ground<'_>) -> Result<Vec<String>, Halt> {
    let counters = Counters::new(1);
    LentDirs::new(ground.instance).restore_all(ground.lower, &counters);
    let mut remarks = counters.status().remarks;
    remarks.extend(drive_alone(ground, Drain::resume(), |counters| {
        counters.status().remarks
    })?);
    Ok(remarks)
}

/// Releases files: they go from the buffer if they are clean and nobody has them open. At most
/// [`forebay_core::drain::RELEASED_AT_ONCE`] at a time, and not while a drain is at work.
///
/// # Errors
/// The tables failed.
pub fn release(ground: Ground<'_>, paths: Vec<TreePath>) -> Result<DrainReport, Halt> {
    drive_alone(ground, Drain::release(paths), Counters::report)
        .map_err(|halt| resume_after(ground, halt))
}

/// Lets copies go that were drained, and that others have changed or removed on the PFS since, so that programs see what is there.
/// Not while a drain is at work.
///
/// # Errors
/// The tables failed.
pub fn refresh(ground: Ground<'_>) -> Result<(), Halt> {
    drive_alone(ground, Drain::refresh(), |_| ()).map_err(|halt| resume_after(ground, halt))
}

/// After what has ended a machine. Requests wait for what is in transit: if it can't be resumed either, the next drain or start
/// does it, and what failed says so.
fn resume_after(ground: Ground<'_>, halt: Halt) -> Halt {
    if halt == Halt::Cut {
        return halt;
    }
    match resume(ground) {
        Ok(_) => halt,
        Err(second) => Halt::Stuck([halt, second].map(|halt| halt.to_string())),
    }
}

impl<'g> Pass<'g> {
    /// A drain of `ground` that is asked for by `request`; where it is shows in `counters`.
    pub fn new(
        ground: Ground<'g>,
        request: &DrainRequest,
        counters: &'g Counters,
        points: &'g Points,
    ) -> Self {
        let workers = request.workers.unwrap_or(ground.lower.workers()).max(1);
        Pass {
            ground,
            counters,
            points,
            throttle: Throttle::new(request.rate),
            copies: Copies::default(),
            touched: Touched::noted(PfsNotes::about_touched(ground.instance)),
            aside_notes: PfsNotes::about_aside(ground.instance),
            lent: LentDirs::new(ground.instance),
            my_ids: sys::my_ids(),
            keeps: request.keep,
            at_once: at_once(workers, BATCH_OBJECTS, sys::free_descriptors()),
            choices: request.take.iter().filter_map(choice).collect(),
            patience: Duration::from_millis(request.patience_ms),
            started: Instant::now(),
            times_given_back: AtomicBool::new(false),
        }
    }

    /// Drains. Notes what cannot be drained, and goes on with the rest.
    ///
    /// # Errors
    /// The tables failed, there are no random bits, or a test has cut the drain short.
    pub fn run(&self) -> Result<(), Halt> {
        let lower = self.ground.lower;
        let random = || sys::random().during("get random bits").map_err(fault);
        let terms = PassTerms {
            keep: self.keeps,
            batches: self.at_once.batches,
            objects: self.at_once.objects,
            patient: !self.patience.is_zero(),
            secret: NameSecret([random()?, random()?]),
        };
        self.counters.syncs_by(lower.sync_by());
        self.counters.keeps_objects_in(self.ground.instance);
        lower.times().begin_drain();
        lower.flush_touches();
        self.lent.restore_all(lower, self.counters);
        lower.keep_times(&TreePath::root());
        let outcome = self.drive(
            Drain::new(terms).choosing(self.choices.clone()),
            self.at_once.batches,
        );
        self.give_times_back();
        let outcome = outcome.map_err(|halt| resume_after(self.ground, halt));
        let withheld = self.ground.objects.withheld().during("quarantine");
        self.counters.withhold(withheld.map_err(fault)?);
        outcome
    }

    /// Gives directories of the PFS their times back, when the drain changes no entries any more.
    fn give_times_back(&self) {
        if !self.times_given_back.swap(true, Ordering::SeqCst) {
            let lower = self.ground.lower;
            lower.times().end_drain(|dir| lower.open_for_times(dir));
        }
    }

    /// Drives a machine to its end. Only this thread asks the machine and commits. The movers beside it, which do
    /// everything else and let others run first, never hold the lock of the namespace. Without movers, also because no thread
    /// can be started, this thread does all.
    fn drive(&self, mut drain: Drain, movers: usize) -> Result<(), Halt> {
        let crew = Crew::default();
        let outcome = std::thread::scope(|scope| {
            let _closing = crew.closing();
            let movers = sys::start_threads(scope, 0..movers, |_| {
                sys::let_others_run_first(MOVER_NICE);
                while let Some(share) = crew.next(movers) {
                    self.carry_out_all(share, &crew);
                }
            });
            self.conduct(&mut drain, &crew, movers)
        });
        // A process that is dead forgets nothing.
        if !matches!(outcome, Err(Halt::Cut)) {
            aside::forget_gone(self.ground.lower, &self.aside_notes, &self.touched);
            if self.aside_notes.names().is_ok_and(|names| names.is_empty()) {
                self.touched.forget_files();
            }
        }
        self.counters.close(&drain);
        outcome
    }

    fn conduct(&self, drain: &mut Drain, crew: &Crew, movers: usize) -> Result<(), Halt> {
        let mut under_way = 0;
        let mut has_more = true;
        loop {
            // With one mover each outcome comes before the next act, so everything happens in one order, also where no more threads
            // could be started.
            let is_full = movers <= 1 && under_way > 0;
            for (ticket, outcome) in crew.take_outcomes(is_full || !has_more) {
                under_way -= 1;
                has_more = true;
                let outcome = outcome?;
                for path in self.counters.take_back_list() {
                    drain.came_back(path);
                }
                drain.done(ticket, outcome);
                self.counters.follow(drain.tally());
            }
            let (ticket, job) = match self.ask(drain).map_err(Halt::Fault)? {
                NextAct::Act(ticket, Act::Commit(commit)) => {
                    self.points.pass()?;
                    let verdict = self.ground.door.commit(&commit)?;
                    if verdict == DrainVerdict::Conflict {
                        drain.done(ticket, Got::Verdict(verdict));
                        continue;
                    }
                    let is_removal =
                        |follow_up: &FollowUp| matches!(follow_up, FollowUp::Remove(_));
                    let (removals, labels): (Vec<_>, _) =
                        commit.follow_ups.into_iter().partition(is_removal);
                    // Labels are written here, because that takes the lock of the namespace.
                    let are_labelled = self.ground.door.follow(&labels);
                    // What is not removed goes with its mark at the next start.
                    if removals.is_empty() || !are_labelled {
                        drain.done(ticket, Got::Verdict(verdict));
                        continue;
                    }
                    (ticket, Job::Follow(removals))
                }
                NextAct::Act(ticket, act) => (ticket, Job::Act(act)),
                NextAct::Wait => {
                    assert!(under_way > 0, "the machine waits for an act under way");
                    has_more = false;
                    continue;
                }
                // What is said of the drain from now on stays true.
                NextAct::End => return self.ground.door.settle(),
            };
            if movers == 0 {
                self.settle_before(job.waits_for_disks())?;
                drain.done(ticket, self.carry_out(&job)?);
                self.counters.follow(drain.tally());
            } else {
                under_way += 1;
                crew.put(ticket, job);
            }
        }
    }

    fn ask(&self, drain: &mut Drain) -> Result<NextAct, Fault> {
        if self.counters.is_stopping() {
            drain.stop();
        }
        if self.started.elapsed() >= self.patience {
            drain.lose_patience();
        }
        drain.next(self.ground.door)
    }

    /// Carries jobs out, as long as nothing ends the drain.
    fn carry_out_all(&self, share: Share, crew: &Crew) {
        // This covers all commits that come before any of the jobs: those were queued after them.
        let mut settled = self.settle_before(share.waits_for_disks);
        for (ticket, job) in share.jobs {
            if crew.is_over() {
                return;
            }
            let outcome = settled.and_then(|()| self.carry_out(&job));
            let has_failed = outcome.is_err();
            crew.ended(ticket, outcome);
            if has_failed {
                return;
            }
            settled = Ok(());
        }
    }

    fn settle_before(&self, waits_for_disks: bool) -> Result<(), Halt> {
        match waits_for_disks {
            true => self.ground.door.settle(),
            false => Ok(()),
        }
    }

    fn carry_out(&self, job: &Job) -> Result<Got, Halt> {
        match job {
            Job::Act(act) => self.act(act),
            Job::Follow(follow_ups) => {
                self.ground.door.follow(follow_ups);
                Ok(Got::Verdict(DrainVerdict::Committed))
            }
        }
    }

    fn act(&self, act: &Act) -> Result<Got, Halt> {
        self.points.pass()?;
        let ground = &self.ground;
        let changing = ground.lower.begin_act(&act.visited_dirs());
        let got = self.permitted(&act.needs_to_change(), |is_lent| {
            self.carry_out_act(act, is_lent)
        });
        ground.lower.end_act(changing);
        // Noted before anything can be committed that relies on it, also if a part of it has failed.
        for dir in act.changed_dirs() {
            ground.lower.note_changed(dir);
        }
        got
    }

    /// Does something while this user may change entries of these directories, if they are the user's own. `work` is told whether it has
    /// a permission for as long as it lasts alone.
    fn permitted<T>(
        &self,
        dirs: &[[TreePath; 2]],
        work: impl FnOnce(bool) -> Result<T, Halt>,
    ) -> Result<T, Halt> {
        let lower = self.ground.lower;
        let needed = self.lent.give(lower, dirs);
        if needed.is_nothing() {
            return work(false);
        }
        self.points.pass()?;
        let did = work(true);
        // A process that is dead gives nothing back; one whose tables have failed does.
        if !matches!(did, Err(Halt::Cut)) {
            self.points.pass()?;
            self.lent.take_back(lower, needed, self.counters);
        }
        did
    }

    fn carry_out_act(&self, act: &Act, is_lent: bool) -> Result<Got, Halt> {
        let ground = &self.ground;
        Ok(match act {
            Act::Fetch(need) => {
                let text = format!("one bridge can't ask others: {need:?}");
                return Err(Halt::Fault(Fault::Mistake(text)));
            }
            Act::Commit(_) => unreachable!("who asks the machine commits"),
            Act::Examine(objects) => Got::Attrs(objects.iter().map(|o| self.examine(*o)).collect()),
            Act::ListBacking(objects) => {
                Got::Strays(objects.iter().map(|o| self.strays(*o)).collect())
            }
            Act::Look(paths) => {
                let mut dirs = LastDir::default();
                let look = |path| dirs.look(ground.lower, path).map_err(Trouble::into_core);
                Got::Seen(paths.iter().map(look).collect())
            }
            Act::Know {
                path,
                without,
                with_files,
            } => Got::Known(known::know(ground.lower, path, without, *with_files)),
            Act::Rename {
                from,
                to,
                is,
                out_of,
                within,
            } => {
                let (notes, touched) = (&self.aside_notes, &self.touched);
                let lower = ground.lower;
                Got::Did(pfs_acts::rename(
                    lower,
                    notes,
                    [from, to],
                    *is,
                    [*out_of, *within],
                    touched,
                    self.counters,
                ))
            }
            Act::Remove {
                path,
                is,
                by,
                within,
            } => {
                let (touched, counters) = (&self.touched, self.counters);
                let by = by.as_ref();
                Got::Did(pfs_acts::remove(
                    ground.lower,
                    path,
                    *is,
                    by,
                    *within,
                    touched,
                    counters,
                ))
            }
            Act::Discard {
                path,
                is,
                aside,
                within,
            } => {
                let removal = Removal {
                    lower: ground.lower,
                    notes: &self.aside_notes,
                    touched: &self.touched,
                    counters: self.counters,
                    is_lent,
                };
                Got::Did(removal.discard(path, *is, aside, *within))
            }
            Act::MakeDir(new) => {
                let own = || {
                    let attr = ground.objects.attr(new.object);
                    attr.during("stat in the buffer")
                };
                Got::Made(pfs_acts::make_dir(ground.lower, new, own))
            }
            Act::Copy {
                copies,
                after_a_pause,
                ..
            } => Got::Copies(self.copy_all(copies, *after_a_pause)?),
            Act::Sync(all) => Got::Each(self.sync(all)),
            Act::Verify(all) => Got::Each(self.verify_all(all)),
            Act::Name(namings) => Got::Named(self.name_all(namings)?),
            Act::Forget(all) => Got::Each(self.forget(all)),
            Act::Unhide(all) => Got::Each(all.iter().map(|o| self.unhide(*o)).collect()),
            Act::Dress { path, is, object } => {
                self.give_times_back();
                let dressed = self.dress_dir(path, *is, *object);
                ground.lower.note_changed(path.clone());
                Got::Did(dressed.map_err(Trouble::into_core))
            }
            Act::SyncDirs(dirs) => Got::Each(pfs_acts::sync(ground.lower, dirs)),
            Act::Sweep { dirs, of } => {
                let mut each = Vec::with_capacity(dirs.len());
                for dir in dirs {
                    each.push(self.sweep(dir, *of)?);
                }
                Got::Each(each)
            }
            Act::Probe(all) => {
                self.give_times_back();
                Got::Users(all.iter().map(|o| self.probe(*o)).collect())
            }
            Act::ProbeDirs => {
                self.give_times_back();
                let dirs = ground.instance.join("dir");
                let busy = processes::directories_in_use(&dirs, || ground.door.passing());
                let busy = busy.during("look who has directories open");
                Got::Busy(busy.map_err(Trouble::into_core))
            }
            Act::Pause => {
                std::thread::sleep(MOMENT);
                Got::Done
            }
        })
    }

    fn sweep(
        &self,
        dir: &TreePath,
        of: Option<BridgeId>,
    ) -> Result<forebay_core::drain::Work<()>, Halt> {
        let (lower, notes) = (self.ground.lower, &self.aside_notes);
        let mut dirs = Vec::new();
        if dir.is_root() {
            // Where it can't be told, the sweep says so.
            let elsewhere = aside::elsewhere(notes).unwrap_or_default();
            dirs.extend(elsewhere.iter().map(TreePath::parent));
            dirs.dedup();
        }
        if self.lent.concerns(lower, dir) && leftovers::has_any(lower, dir, of) {
            dirs.push(dir.clone());
        }
        let dirs: Vec<_> = dirs.into_iter().map(|dir| [dir.clone(), dir]).collect();
        self.permitted(&dirs, |_| {
            let swept = leftovers::sweep(lower, notes, dir, of, &self.touched, self.counters);
            Ok(swept.map_err(Trouble::into_core))
        })
    }

    /// Attributes of an object, with the times that a directory has yet to get.
    fn examine(&self, object: ObjectName) -> forebay_core::drain::Work<forebay_core::facts::Attr> {
        self.ground.objects.flush_touch(object);
        let attr = self.ground.objects.attr(object);
        attr.during("stat in the buffer")
            .map_err(Trouble::into_core)
    }

    /// What is in a backing directory.
    fn strays(&self, object: ObjectName) -> forebay_core::drain::Work<Vec<StrayEntry>> {
        let entries = self.ground.objects.entries(object);
        entries
            .during("list directory in the buffer")
            .map_err(Trouble::into_core)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.counters.is_stopping()
    }
}

/// The local disk or the kernel refuses something without which nothing goes on.
fn fault(trouble: Trouble) -> Halt {
    Halt::Fault(Fault::Disk(trouble.into_core()))
}
