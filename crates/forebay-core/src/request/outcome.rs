//! What the driver tells a request: the outcome of the effect that it has carried out.

use super::effect::{Effect, Failure, Finish, Looked};
use super::grant::Form;
use super::pending::{Committing, MAX_LOST_RACES, Pending, RACES_BEFORE_A_PAUSE, Stage};
use crate::bridge::{Fact, Verdict};
use crate::facts::{Fresh, NewKind, PfsLook};
use crate::fault::Fault;
use crate::ops::Op;
use crate::path::TreePath;
use crate::record::ObjectName;
use crate::table::Mark;

impl Pending {
    /// The effect that was under way; the next step may come unless the outcome says otherwise.
    fn under_way(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Ready)
    }

    fn has_waited(&mut self) {
        let stage = self.under_way();
        assert!(matches!(stage, Stage::Waiting), "told in {stage:?}");
    }

    /// The PFS was looked at.
    pub fn looked(&mut self, outcome: Result<Looked, i32>) {
        let Stage::Looking(look) = self.under_way() else {
            panic!("no look was under way");
        };
        match (look, outcome) {
            (look @ (PfsLook::Attr(_) | PfsLook::Renamed { .. }), Ok(Looked::Attr(attr))) => {
                self.known.put_attr(look, attr);
            }
            (PfsLook::Link(path), Ok(Looked::Link(text))) => self.known.put_link(path, text),
            (PfsLook::List { dir, .. }, Ok(Looked::List(page))) => self.known.put_list(dir, page),
            // A drain may have moved it since its record was read.
            (_, Err(libc::ENOENT | libc::ENOTDIR | libc::EINVAL | libc::ELOOP))
                if self.lost_looks < MAX_LOST_RACES =>
            {
                self.lost_looks += 1;
                self.known.forget_pfs();
                self.decides_after(self.lost_looks);
            }
            (_, Err(libc::ENOENT)) if self.known.starts_within => {
                // Perhaps that directory is there again when the client asks again.
                self.stage = Stage::Over(Err(Failure::Errno(forebay_types::START_TAKEN)));
            }
            (_, Err(e)) => self.stage = Stage::Over(Err(Failure::Errno(e))),
            (look, outcome) => panic!("asked for {look:?} and told {outcome:?}"),
        }
    }

    /// Other bridges have said what was asked for.
    pub fn fetched(&mut self, fact: Fact) {
        self.has_waited();
        self.known.learn(fact);
    }

    /// It has the turn to copy this file.
    pub fn has_turn(&mut self, path: TreePath) {
        self.has_waited();
        self.copy_turn = Some(path);
    }

    /// The mark that [`super::Effect::Announce`] asks for.
    pub fn announcement(link: ObjectName) -> Mark {
        Mark::Doom(link)
    }

    /// It is committed that a link of this name may be made.
    pub fn announced(&mut self, link: ObjectName) {
        assert_ne!(link.link, 0, "a link has a number");
        let Stage::Announcing(spec) = self.under_way() else {
            panic!("no link was to be announced");
        };
        self.stage = Stage::Announced(spec, link);
    }

    /// An object was made. A failure with ENOENT for a link or a copy means that the other name, or the file on the PFS,
    /// has gone meanwhile.
    pub fn made(&mut self, outcome: Result<Fresh, i32>) {
        let Stage::Making(spec) = self.under_way() else {
            panic!("nothing was to be made");
        };
        match outcome {
            Ok(mut fresh) => {
                fresh.is_doomed |= fresh.object.link != 0;
                self.known.has_copied(fresh.object);
                self.fresh.push((spec, fresh));
            }
            Err(libc::ENOENT)
                if matches!(spec.what, NewKind::LinkTo(_) | NewKind::Staged { .. }) =>
            {
                self.lost_race();
            }
            Err(e) => self.stage = Stage::Over(Err(Failure::Errno(e))),
        }
    }

    /// The PFS file that was to be copied stays where it is: somebody has it open or opened it during the copy, or the
    /// storage can't keep all of it. Called instead of the outcome of [`super::Effect::Make`] or
    /// [`super::Effect::Commit`]; that commit has not happened.
    pub fn held_in_place(&mut self, lower: TreePath) {
        let stage = self.under_way();
        assert!(
            matches!(stage, Stage::Making(_) | Stage::Committing(_)),
            "a copy was refused in {stage:?}"
        );
        self.known.put_held(lower);
    }

    /// What it waited for has happened: the record at a path has changed, or the turn of another request has
    /// ended and what that has copied may be in the tables.
    pub fn woken(&mut self) {
        self.has_waited();
        if !self.known.is_alone {
            // What another bridge has marked is asked for again and again. That bridge may be down for long, and
            // waiting is no step.
            self.steps = 0;
        }
        self.known.decide_anew();
    }

    /// Times that waited are written.
    pub fn times_written(&mut self) {
        self.has_waited();
        self.known.forget_attrs();
    }

    /// What is granted was opened, or could not be. ENOENT means that it has gone since the decision: an object was
    /// removed, or a drain has moved what is on the PFS.
    pub fn granted(&mut self, outcome: Result<(), i32>) {
        let Stage::Opening(opening) = self.under_way() else {
            panic!("nothing was to be opened");
        };
        match outcome {
            Ok(()) if opening.is_whole && opening.is_last && self.truncates() => {
                // The file was known to be the right one before it was truncated. Later changes come after this
                // request.
                self.stage = Stage::Over(Ok(opening.answer));
            }
            Ok(()) => self.stage = Stage::Open(opening),
            Err(libc::ENOENT) => self.lost_race(),
            Err(e) => self.stage = Stage::Over(Err(Failure::Errno(e))),
        }
    }

    /// Is a file truncated when it is opened for this request by the bridge?
    fn truncates(&self) -> bool {
        let asked = matches!(self.request.op, Op::Open { flags, .. } if flags & libc::O_TRUNC != 0);
        asked && self.form == Form::Descriptor
    }

    /// Something went while its name was being looked at: decide anew.
    pub(super) fn lost_race(&mut self) {
        self.lost_races += 1;
        self.known.forget_attrs();
        self.decides_after(self.lost_races);
        if self.lost_races > MAX_LOST_RACES {
            self.stage = Stage::Over(Err(Failure::Fault(Fault::NamesVanish)));
        }
    }

    /// Others have changed what this effect rests on, which was decided before the turn to commit. The request decides anew,
    /// under the turn. Gives what has ended with this try, to be cleared up.
    pub fn overtaken(&mut self, effect: Effect) -> Option<Finish> {
        match effect {
            Effect::Finish(finish) => {
                *self = self.anew();
                Some(finish)
            }
            _ => {
                let named = self.committed(Verdict::Conflict(Vec::new()));
                assert!(named.is_empty(), "nothing is committed");
                None
            }
        }
    }

    /// How the commit ended. Gives the objects that it has named: they are settled.
    pub fn committed(&mut self, verdict: Verdict) -> Vec<Fresh> {
        let Stage::Committing(Committing {
            answer,
            follow,
            named,
        }) = self.under_way()
        else {
            panic!("nothing was to be committed");
        };
        match verdict {
            Verdict::Committed => {
                self.follow = follow;
                self.stage = Stage::Over(Ok(answer));
                let mut used = Vec::new();
                self.fresh.retain(|(_, fresh)| {
                    let is_named = named.contains(&fresh.object);
                    used.extend(is_named.then_some(*fresh));
                    !is_named
                });
                used
            }
            Verdict::Conflict(_) | Verdict::Failed(_) => {
                self.decides_later();
                Vec::new()
            }
        }
    }

    /// What it has committed keeps these files of the PFS from view, to which clients may have written in place.
    pub fn hides_written(&mut self, files: Vec<TreePath>) {
        if files.is_empty() {
            return;
        }
        self.stage = match self.under_way() {
            Stage::Over(Ok(answer)) => Stage::Hiding(Box::new((files, answer))),
            stage => panic!("files are hidden in {stage:?}"),
        };
    }

    /// There is no room for its effect now: EAGAIN. What is committed already has its answer.
    pub fn gives_up(&mut self) {
        if !matches!(self.stage, Stage::Over(Ok(_))) {
            self.fails(Failure::Errno(libc::EAGAIN));
        }
    }

    /// The transaction layer has no room for a fetch or a commit now: a later step tries again.
    pub fn refused(&mut self) {
        let stage = self.under_way();
        assert!(
            matches!(stage, Stage::Waiting | Stage::Committing(_)),
            "refused in {stage:?}"
        );
        self.decides_later();
    }

    /// The commit was refused because a removal must finish first. A later step decides again.
    pub fn held_up(&mut self) {
        self.refused();
        // Waiting is no step.
        self.steps = 0;
    }

    /// Decides anew, after so many lost races: at once, or after a pause.
    fn decides_after(&mut self, races: u32) {
        self.known.decide_anew();
        self.pause |= races.is_multiple_of(RACES_BEFORE_A_PAUSE);
    }

    fn decides_later(&mut self) {
        self.known.decide_anew();
        self.pause = true;
    }

    /// An effect failed for good: the request ends.
    pub fn fails(&mut self, failure: Failure) {
        let stage = self.under_way();
        assert!(
            !matches!(stage, Stage::Over(_) | Stage::Finished),
            "a request ends once"
        );
        self.stage = Stage::Over(Err(failure));
    }
}
