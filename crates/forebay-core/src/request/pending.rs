//! One request under way: what it does next, from what it has seen and what was done for it.

use super::grant::{self, Form, Granting};
use super::known::{Known, OthersBelow};
use super::look::{Look, World};
use crate::bridge::{ReadSet, Verdict};
use crate::facts::{Attr, Cred, Fresh, LowerPage, Need, NewKind, NewObject, Settings, Stop};
use crate::ops::{self, Answer, Decision, GrantTarget, Op, Request};
use crate::path::TreePath;
use crate::record::{ObjectName, Record, Token};
use crate::table::Change;
use std::sync::Arc;

/// Steps that one request may take until it is answered EAGAIN. Each step but the last one obtained a
/// fact, or lost a race.
pub const TURNS: u32 = 10_000;
/// Races with removals that one request may lose until it is answered EIO.
pub const LOST_RACES: u32 = 100;

/// Who asks, and how it wants its grants.
#[derive(Debug, Clone)]
pub struct Caller {
    /// From the kernel.
    pub cred: Arc<Cred>,
    /// It would rather open a backing file itself than be handed a descriptor.
    pub by_name: bool,
}

/// A look at the PFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PfsLook {
    /// `lstat`.
    Attr(TreePath),
    /// Text of a symbolic link.
    Link(TreePath),
    /// The first names of a directory after one, sorted: at most [`crate::facts::LOWER_PAGE_ENTRIES`].
    List {
        /// Which directory.
        dir: TreePath,
        /// After this name.
        after: Option<Vec<u8>>,
    },
}

/// What a look at the PFS has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked {
    /// For [`PfsLook::Attr`].
    Attr(Option<Attr>),
    /// For [`PfsLook::Link`].
    Link(Vec<u8>),
    /// For [`PfsLook::List`].
    List(Arc<LowerPage>),
}

/// A decision that is to become true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// What it relied on; empty with one bridge.
    pub reads: ReadSet,
    /// What it changes, with the marks that go along.
    pub batch: Vec<Change>,
    /// The request behind it.
    pub token: Token,
}

/// Why a request ends without an answer of policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The operation fails with this errno.
    Errno(i32),
    /// The path leaves the buffer: go on natively with this absolute path.
    Redirect(Vec<u8>),
    /// The tables or the local disk failed: EIO, and the text for the log.
    Fault(String),
    /// It has taken [`TURNS`] steps: EAGAIN.
    GaveUp,
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// What the client gets.
    pub outcome: Result<Answer, Failure>,
    /// How it gets what is granted.
    pub form: Form,
    /// It has to open the object anew through the descriptor.
    pub reopen: bool,
    /// Work that follows the commit, before the answer.
    pub follow: Vec<ops::Effect>,
    /// Objects that were made and are of no use: to be removed.
    pub unused: Vec<Fresh>,
    /// A turn to copy that ends with the request.
    pub turn: Option<TreePath>,
}

/// What the driver does next for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The decision changes something: step again while holding the turn to commit.
    TakeTurn,
    /// Look at the PFS; ends in [`Pending::looked`].
    Look(PfsLook),
    /// Ask the other bridges for a record, children or all below; ends in [`Pending::fetched_record`],
    /// [`Pending::fetched_children`] or [`Pending::fetched_below`].
    Fetch(Need),
    /// What is at this path is being carried out on the PFS; ends in [`Pending::woken`] when its record has
    /// changed.
    Await(TreePath),
    /// Something is undecided or others were faster: step again a little later.
    Pause,
    /// Take the turn to copy this file of the PFS; ends in [`Pending::has_turn`], or in
    /// [`Pending::woken`] when another request's turn has ended.
    Enter(TreePath),
    /// Commit that this link may have been made, before it is: a link has no number of its own by which a
    /// start after a crash would find it. Ends in [`Pending::announced`].
    Announce {
        /// A name for the link, from the driver's count, is to be chosen for this object.
        of: ObjectName,
    },
    /// Make a backing object; ends in [`Pending::made`].
    Make {
        /// What to make.
        spec: Box<NewObject>,
        /// Flags of a descriptor that is wanted along with a plain new file.
        open: Option<i32>,
        /// The announced name of a link.
        link: Option<ObjectName>,
    },
    /// Write the times of directories that wait; ends in [`Pending::times_written`].
    WriteTimes,
    /// Open what is granted; ends in [`Pending::granted`].
    Grant(Granting),
    /// Commit; ends in [`Pending::committed`] or [`Pending::fails`].
    Commit(Commit),
    /// The end.
    Finish(Finish),
}

/// What a request waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// Nothing: the next step decides.
    Ready,
    /// The outcome of an effect.
    Busy,
    /// What an answer grants is open.
    Open(Opening),
    /// The decision is committed, or it ends for another reason.
    Over(Result<Answer, Failure>),
    /// It has been answered.
    Finished,
}

/// A request from its arrival to its answer.
#[derive(Debug)]
pub struct Pending {
    request: Request,
    caller: Caller,
    known: Known,
    fresh: Vec<(NewObject, Fresh)>,
    stage: Stage,
    /// It is known to change something.
    changes: bool,
    /// Step again a little later.
    pause: bool,
    steps: u32,
    lost_races: u32,
    times_written: bool,
    turn: Option<TreePath>,
    /// The link that was announced for this specification.
    announced: Option<ObjectName>,
    making: Option<NewObject>,
    looking: Option<PfsLook>,
    granting: Option<Opening>,
    /// When the last decision was made.
    moment: u64,
    form: Form,
    reopen: bool,
    /// The decision that is being committed.
    committing: Option<Committing>,
    follow: Vec<ops::Effect>,
}

/// An open for a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Opening {
    /// The answer that grants it.
    answer: Answer,
    /// When that was decided.
    moment: u64,
    /// Nothing is left to do with the file; else a truncation that was asked for.
    is_whole: bool,
    /// The decision changes nothing, so the answer may be given at the same moment.
    is_last: bool,
}

/// A decision on its way.
#[derive(Debug)]
struct Committing {
    answer: Answer,
    follow: Vec<ops::Effect>,
    /// Objects of this request that the batch names.
    named: Vec<ObjectName>,
}

impl Pending {
    /// A request that has arrived.
    pub fn new(request: Request, caller: Caller) -> Self {
        // Most of these change something; a decision under the turn to commit is never wasted then.
        let changes = matches!(request.op, Op::Unlink { .. } | Op::Rename { .. });
        Pending {
            request,
            caller,
            known: Known::default(),
            fresh: Vec::new(),
            stage: Stage::Ready,
            changes,
            pause: false,
            steps: 0,
            lost_races: 0,
            times_written: false,
            turn: None,
            announced: None,
            making: None,
            looking: None,
            granting: None,
            moment: 0,
            form: Form::Descriptor,
            reopen: false,
            committing: None,
            follow: Vec::new(),
        }
    }

    /// The request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// What was obtained for it.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// [`World::moment`] of the last step.
    pub fn moment(&self) -> u64 {
        self.moment
    }

    /// Is it known to change something, so that a step without the turn to commit would be wasted?
    pub fn changes(&self) -> bool {
        self.changes
    }

    /// Does its end need no look at the tables, because nothing was committed since what is granted was
    /// decided? `moment` is [`World::moment`], read after the grant.
    pub fn finish_if_unchanged(&mut self, moment: u64) -> Option<Finish> {
        match &self.stage {
            Stage::Open(open) if open.moment == moment && open.is_whole && open.is_last => {}
            _ => return None,
        }
        let Stage::Open(open) = std::mem::replace(&mut self.stage, Stage::Ready) else {
            unreachable!("it was just looked at");
        };
        Some(self.finish(Ok(open.answer)))
    }

    /// What to do next. `turn`: the driver holds the turn to commit.
    ///
    /// # Panics
    /// If an effect is still under way, or the request has been answered.
    pub fn step(&mut self, settings: &Settings, world: &dyn World, turn: bool) -> Effect {
        assert!(
            !matches!(self.stage, Stage::Busy | Stage::Finished),
            "a request is stepped while it waits, or after its end"
        );
        if let Stage::Over(_) = self.stage
            && let Stage::Over(outcome) = std::mem::replace(&mut self.stage, Stage::Ready)
        {
            return Effect::Finish(self.finish(outcome));
        }
        self.steps += 1;
        if self.steps > TURNS {
            return Effect::Finish(self.finish(Err(Failure::GaveUp)));
        }
        if std::mem::take(&mut self.pause) || world.is_undecided(self.request.token) {
            return Effect::Pause;
        }
        self.known.refresh(world.pfs_changes());
        self.moment = world.moment();
        let look = Look::with_fresh(world, &self.known, &self.fresh);
        let decided = ops::decide(&self.request, &self.caller.cred, settings, &look);
        let several = look.rests_on_several();
        let reads = look.into_reads();
        let is_final = match &decided {
            Ok(decision) => decision.batch.is_empty(),
            Err(stop) => matches!(stop, Stop::Errno(_)),
        };
        if several && is_final && self.known.first_look.as_ref() != Some(&reads) {
            // If a second look sees the very same, then all of it was there at once.
            self.known.first_look = Some(reads);
            self.known.forget_others();
            return self.step(settings, world, turn);
        }
        match decided {
            Ok(decision) => self.decided(decision, reads, settings, world, turn),
            Err(Stop::Need(need)) => self.needs(need),
            Err(Stop::Errno(e)) => Effect::Finish(self.finish(Err(Failure::Errno(e)))),
            Err(Stop::Redirect(path)) => Effect::Finish(self.finish(Err(Failure::Redirect(path)))),
            Err(Stop::Fault(text)) => Effect::Finish(self.finish(Err(Failure::Fault(text)))),
        }
    }

    fn decided(
        &mut self,
        decision: Decision,
        reads: ReadSet,
        settings: &Settings,
        world: &dyn World,
        turn: bool,
    ) -> Effect {
        let Decision {
            batch,
            effects,
            answer,
        } = decision;
        if !batch.is_empty() && !turn {
            self.changes = true;
            return Effect::TakeTurn;
        }
        if batch.is_empty() && is_directory(&answer) && !self.times_written && world.times_wait() {
            // Times of directories go to disk late, and the kernel stamps the inode once more then.
            // What a program has seen must not change by itself: they are written before it looks.
            // Once: others may go on changing entries all the time.
            self.times_written = true;
            self.stage = Stage::Busy;
            return Effect::WriteTimes;
        }
        // First the descriptor, then the commit: what can fail fails before.
        if let Some((granting, is_whole)) = self.to_open(&answer, settings, world) {
            self.granting = Some(Opening {
                answer,
                moment: self.moment,
                is_whole,
                is_last: batch.is_empty(),
            });
            self.stage = Stage::Busy;
            return Effect::Grant(granting);
        }
        // An answer that relies on nothing, or on what was there at one moment, needs no proposal.
        if batch.is_empty() && (reads.records.is_empty() || !self.request.op.compares()) {
            return Effect::Finish(self.finish(Ok(answer)));
        }
        self.stage = Stage::Busy;
        let named = self.named(&batch);
        self.committing = Some(Committing {
            answer,
            follow: effects,
            named,
        });
        Effect::Commit(Commit {
            reads,
            batch: self.with_marks(batch),
            token: self.request.token,
        })
    }

    /// What has to be opened before the answer may be given, and whether that is all; nothing if it is
    /// open already.
    fn to_open(
        &mut self,
        answer: &Answer,
        settings: &Settings,
        world: &dyn World,
    ) -> Option<(Granting, bool)> {
        let Answer::Grant { target, flags } = answer else {
            return None;
        };
        let is_open = match &self.stage {
            Stage::Open(open) if open.answer == *answer && open.is_whole => return None,
            Stage::Open(open) => open.answer == *answer,
            _ => false,
        };
        self.reopen = grant::wants_reopening(&self.request.op, *flags);
        let mut is_fresh = false;
        let is_plain = match target {
            GrantTarget::Object(object) => {
                if self.was_opened_when_made(*object, *flags) {
                    self.form = Form::Descriptor;
                    return None;
                }
                is_fresh = self.fresh.iter().any(|(_, fresh)| fresh.object == *object);
                world.is_plain(*object)
            }
            GrantTarget::Lower(_) => false,
        };
        let caller = &self.caller;
        let mut granting = grant::form(
            target,
            *flags,
            caller.by_name,
            is_plain,
            &caller.cred,
            settings,
        );
        self.form = granting.form;
        // Before anything is lost it has to be certain that this is the file that is meant. As long as it
        // is open, its object stays what it is.
        let is_whole = is_open || is_fresh || granting.form != Form::Descriptor;
        if !is_whole {
            granting.flags &= !libc::O_TRUNC;
        }
        Some((granting, is_whole || flags & libc::O_TRUNC == 0))
    }

    fn was_opened_when_made(&self, object: ObjectName, flags: i32) -> bool {
        let wanted = self.wanted_descriptor();
        wanted == Some(grant::new_file_flags(flags & grant::GRANT_FLAGS))
            && self
                .fresh
                .iter()
                .any(|(_, fresh)| fresh.object == object && fresh.is_open)
    }

    /// Flags of the descriptor that a new file is best made with.
    fn wanted_descriptor(&self) -> Option<i32> {
        match self.request.op {
            Op::Open { flags, .. } if flags & libc::O_CREAT != 0 => {
                Some(grant::new_file_flags(flags))
            }
            _ => None,
        }
    }

    /// Objects made for this request that a batch names.
    fn named(&self, batch: &[Change]) -> Vec<ObjectName> {
        let objects = self.fresh.iter().map(|(_, fresh)| fresh.object);
        objects
            .filter(|object| {
                batch
                    .iter()
                    .any(|c| matches!(c, Change::Put { record, .. } if record.object == *object))
            })
            .collect()
    }

    /// The batch, and that what it names is doomed no more.
    fn with_marks(&self, mut batch: Vec<Change>) -> Vec<Change> {
        let named = self.named(&batch);
        let doomed = self.fresh.iter().filter(|(_, fresh)| fresh.is_doomed);
        let doomed = doomed.map(|(_, fresh)| fresh.object);
        batch.extend(doomed.filter(|o| named.contains(o)).map(Change::Undoom));
        batch
    }

    fn needs(&mut self, need: Need) -> Effect {
        // Nobody asks for a new object who does not want to put its record into the tables.
        self.changes |= matches!(need, Need::Object(_));
        self.stage = Stage::Busy;
        match need {
            Need::Lower(path) => self.look_at(PfsLook::Attr(path)),
            Need::LowerLink(path) => self.look_at(PfsLook::Link(path)),
            Need::LowerList { dir, after } => self.look_at(PfsLook::List { dir, after }),
            Need::Object(spec) => self.make(*spec),
            Need::Settled(path) => Effect::Await(path),
            need @ (Need::Record(_) | Need::Children { .. } | Need::Below(_)) => {
                Effect::Fetch(need)
            }
        }
    }

    fn look_at(&mut self, look: PfsLook) -> Effect {
        self.looking = Some(look.clone());
        Effect::Look(look)
    }

    fn make(&mut self, spec: NewObject) -> Effect {
        let mut link = None;
        match &spec.what {
            // Whoever gets the turn to copy decides anew first: the file may be there already.
            NewKind::Staged { lower, .. } if self.turn.as_ref() != Some(lower) => {
                assert!(self.turn.is_none(), "a request stages one file");
                return Effect::Enter(lower.clone());
            }
            NewKind::LinkTo(of) => match self.announced.take() {
                Some(name) => link = Some(name),
                None => return Effect::Announce { of: *of },
            },
            _ => {}
        }
        let open = match spec.what {
            NewKind::File => self.wanted_descriptor(),
            _ => None,
        };
        self.making = Some(spec.clone());
        Effect::Make {
            spec: Box::new(spec),
            open,
            link,
        }
    }

    fn finish(&mut self, outcome: Result<Answer, Failure>) -> Finish {
        self.stage = Stage::Finished;
        Finish {
            outcome,
            form: self.form,
            reopen: self.reopen,
            follow: std::mem::take(&mut self.follow),
            unused: self.fresh.drain(..).map(|(_, fresh)| fresh).collect(),
            turn: self.turn.take(),
        }
    }

    fn is_ready(&mut self) {
        assert_eq!(
            self.stage,
            Stage::Busy,
            "an outcome comes for an effect that is under way"
        );
        self.stage = Stage::Ready;
    }

    /// The PFS was looked at.
    pub fn looked(&mut self, outcome: Result<Looked, i32>) {
        self.is_ready();
        let looking = self.looking.take();
        match (looking, outcome) {
            (Some(PfsLook::Attr(path)), Ok(Looked::Attr(attr))) => self.known.put_attr(path, attr),
            (Some(PfsLook::Link(path)), Ok(Looked::Link(text))) => self.known.put_link(path, text),
            (Some(PfsLook::List { dir, .. }), Ok(Looked::List(page))) => {
                self.known.put_list(dir, page);
            }
            (Some(_), Err(e)) => self.stage = Stage::Over(Err(Failure::Errno(e))),
            (looking, outcome) => panic!("asked for {looking:?} and told {outcome:?}"),
        }
    }

    /// What the home of a path says.
    pub fn fetched_record(&mut self, path: TreePath, record: Option<Record>) {
        self.is_ready();
        self.known.put_record(path, record);
    }

    /// The first children of a directory after a name that other bridges hold.
    pub fn fetched_children(
        &mut self,
        dir: TreePath,
        after: Option<Vec<u8>>,
        children: Vec<(Vec<u8>, Record)>,
    ) {
        self.is_ready();
        self.known.put_children(dir, after, children);
    }

    /// What other bridges hold below a directory.
    pub fn fetched_below(&mut self, dir: TreePath, below: OthersBelow) {
        self.is_ready();
        self.known.put_below(dir, below);
    }

    /// It has the turn to copy this file.
    pub fn has_turn(&mut self, path: TreePath) {
        self.is_ready();
        self.turn = Some(path);
    }

    /// It is committed that a link of this name may be made.
    pub fn announced(&mut self, link: ObjectName) {
        self.is_ready();
        assert_ne!(link.link, 0, "a link has a number");
        self.announced = Some(link);
    }

    /// An object was made. A failure with ENOENT for a link means that the other name has gone meanwhile.
    pub fn made(&mut self, outcome: Result<Fresh, i32>) {
        self.is_ready();
        let Some(spec) = self.making.take() else {
            panic!("nothing was to be made");
        };
        match outcome {
            Ok(mut fresh) => {
                fresh.is_doomed |= fresh.object.link != 0;
                self.fresh.push((spec, fresh));
            }
            Err(libc::ENOENT) if matches!(spec.what, NewKind::LinkTo(_)) => self.lost_race(),
            Err(e) => self.stage = Stage::Over(Err(Failure::Errno(e))),
        }
    }

    /// What it waited for has happened: the record at a path has changed, or the turn of another request has
    /// ended and what that has copied may be in the tables.
    pub fn woken(&mut self) {
        self.is_ready();
        self.known.forget_others();
    }

    /// Times that waited are written.
    pub fn times_written(&mut self) {
        self.is_ready();
        self.known.forget_attrs();
    }

    /// What is granted was opened, or could not be. ENOENT of an object means that it has gone since the
    /// decision.
    pub fn granted(&mut self, outcome: Result<(), i32>) {
        self.is_ready();
        let Some(opening) = self.granting.take() else {
            panic!("nothing was to be opened");
        };
        let is_object = matches!(
            opening.answer,
            Answer::Grant {
                target: GrantTarget::Object(_),
                ..
            }
        );
        match outcome {
            Ok(()) if opening.is_whole && opening.is_last && self.truncates() => {
                // It was certain that this is the file before it was truncated; whatever comes now comes
                // after that.
                self.stage = Stage::Over(Ok(opening.answer));
            }
            Ok(()) => self.stage = Stage::Open(opening),
            Err(libc::ENOENT) if is_object => self.lost_race(),
            Err(e) => self.stage = Stage::Over(Err(Failure::Errno(e))),
        }
    }

    /// Is a file truncated when it is opened for this request by the bridge?
    fn truncates(&self) -> bool {
        let asked = matches!(self.request.op, Op::Open { flags, .. } if flags & libc::O_TRUNC != 0);
        asked && self.form == Form::Descriptor
    }

    /// An object went while its name was being looked at: decide anew.
    fn lost_race(&mut self) {
        self.lost_races += 1;
        self.known.forget_others();
        if self.lost_races > LOST_RACES {
            let text = "a record names a backing object that is not there".to_owned();
            self.stage = Stage::Over(Err(Failure::Fault(text)));
        }
    }

    /// How the commit ended. Gives the objects that it has named: they are settled.
    pub fn committed(&mut self, verdict: Verdict) -> Vec<Fresh> {
        self.is_ready();
        let Some(Committing {
            answer,
            follow,
            named,
        }) = self.committing.take()
        else {
            panic!("nothing was to be committed");
        };
        match verdict {
            Verdict::Committed => {
                self.follow = follow;
                self.stage = Stage::Over(Ok(answer));
                let (used, unused): (Vec<_>, _) = std::mem::take(&mut self.fresh)
                    .into_iter()
                    .partition(|(_, fresh)| named.contains(&fresh.object));
                self.fresh = unused;
                used.into_iter().map(|(_, fresh)| fresh).collect()
            }
            Verdict::Conflict(_) | Verdict::Failed(_) => {
                self.known.forget_others();
                self.known.first_look = None;
                self.pause = true;
                Vec::new()
            }
        }
    }

    /// The transaction layer has no room for a fetch or a commit now: a later step tries again.
    pub fn refused(&mut self) {
        self.is_ready();
        self.committing = None;
        self.known.forget_others();
        self.known.first_look = None;
        self.pause = true;
    }

    /// An effect failed for good: the request ends.
    pub fn fails(&mut self, failure: Failure) {
        self.is_ready();
        self.stage = Stage::Over(Err(failure));
    }
}

fn is_directory(answer: &Answer) -> bool {
    matches!(answer, Answer::Attr(attr) if attr.mode & libc::S_IFMT == libc::S_IFDIR)
}
