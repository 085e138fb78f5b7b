//! Records that go with a directory of the PFS in parts, as by a server: others commit in between.

use super::between::Deed;
use super::env::{Alarm, Env};
use super::node::{NEVER_FAILS, Node, Waiter};
use forebay_core::bridge::{Mutation, Proposal, ReadSet};
use forebay_core::ops::{Clearance, Leaving, Unseen};
use forebay_core::record::Token;
use forebay_core::table::Change;

impl Node {
    /// Does this batch have to wait until such records have gone?
    pub(super) fn is_held_up(&mut self, batch: &[Change], env: &mut Env) -> bool {
        if Mutation::RemovalsAreNotWaitedFor.is(self.mutation) {
            return false;
        }
        match self.leaving.clearance_for(batch) {
            Clearance::Free => false,
            Clearance::HeldUp => true,
            Clearance::Stuck => {
                while self.try_next_part(env) {}
                true
            }
        }
    }

    /// A directory goes with the batch that is proposed now.
    pub(super) fn begin_removal(&mut self, unseen: Unseen, env: &mut Env) {
        self.leaving.begin(unseen);
        self.last_removal = Some(Deed::Commit);
        let delay = env.random.between(1, 200_000);
        self.alarm(delay, Alarm::Part, env);
    }

    /// The next part goes.
    pub(super) fn remove_part(&mut self, env: &mut Env) {
        self.try_next_part(env);
        if !self.leaving.is_empty() {
            let delay = env.random.between(1, 200_000);
            self.alarm(delay, Alarm::Part, env);
        }
    }

    /// All that is left goes, before something that relies on it.
    pub(super) fn remove_all_parts(&mut self, env: &mut Env) {
        while self.next_part(env) {}
    }

    /// The next part goes, unless the tables refuse it; false if that was not so.
    fn try_next_part(&mut self, env: &mut Env) -> bool {
        if !self.leaving.is_empty() && env.tables_refuse().is_some() {
            self.leaving.part_ended(None, false);
            return false;
        }
        self.next_part(env)
    }

    /// The next part goes; false if there was none, or the bridge has died.
    fn next_part(&mut self, env: &mut Env) -> bool {
        let Some(part) = self.leaving.part(None) else {
            return false;
        };
        let last = self.last_removal.replace(Deed::Part);
        if self.dies_between(last, Deed::Part, env) {
            return false;
        }
        // If the bridge dies, the next life begins with what is in the tables.
        self.leaving.part_ended(None, true);
        self.commit_alone(part, false, env)
    }

    /// What an earlier life has left goes, before anything is served; false if the bridge has died.
    pub(super) fn finish_removals(&mut self, env: &mut Env) -> bool {
        if Mutation::RemovalsAreNotFinished.is(self.mutation) {
            return true;
        }
        let per_part = self.removed_at_once.max(1);
        self.leaving = Leaving::of_earlier(&self.tables, per_part).expect(NEVER_FAILS);
        let mut last = None;
        while let Some(part) = self.leaving.part(None) {
            if self.dies_between(last.replace(Deed::Part), Deed::Part, env) {
                return false;
            }
            self.apply(&part);
            self.leaving.part_ended(None, true);
        }
        true
    }

    /// Commits what relies on nothing; false if the bridge has died.
    pub(super) fn commit_alone(
        &mut self,
        batch: Vec<Change>,
        uncovers: bool,
        env: &mut Env,
    ) -> bool {
        let proposal = Proposal {
            ticket: self.ticket(Waiter::Drain),
            reads: ReadSet::default(),
            batch,
            token: Token::default(),
            uncovers,
        };
        let Some(bridge) = &mut self.bridge else {
            return false;
        };
        bridge
            .propose(proposal, &self.tables, env.now)
            .expect(NEVER_FAILS);
        self.carry_out_all(env);
        self.is_alive()
    }
}
