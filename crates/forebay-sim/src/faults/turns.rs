//! Decisions made before the turn to commit: a `rmdir` that reads many records decides while others commit, as in the server.

use super::env::{Alarm, Env};
use super::node::Node;
use super::request::Attempt;
use forebay_core::bridge::Mutation;
use forebay_core::request::{Effect, Meanwhile};

/// An effect that was decided on while others went on, with the number under which their changes are noted.
pub(super) struct OutOfTurn(u64, Effect);

/// What a bridge knows of such decisions.
#[derive(Default)]
pub(super) struct Turning {
    /// There are any.
    pub(super) is_on: bool,
    /// So many records are read in one step.
    pub(super) records_at_once: Option<usize>,
    /// What others commit meanwhile.
    pub(super) meanwhile: Meanwhile,
}

impl Turning {
    /// The process dies.
    pub(super) fn crash(&mut self) {
        self.meanwhile = Meanwhile::default();
    }
}

impl Node {
    /// The next effect of a request that can be carried out now; `None` if it goes on later, or the bridge is dead.
    pub(super) fn next_effect(&mut self, attempt: &mut Attempt, env: &mut Env) -> Option<Effect> {
        if let Some(OutOfTurn(number, effect)) = attempt.out_of_turn.take() {
            let is_allowed = self.turning.meanwhile.allows(number, &effect);
            self.turning.meanwhile.end(number);
            if is_allowed || Mutation::ChangesMeanwhileAreIgnored.is(self.mutation) {
                return Some(effect);
            }
            attempt.needs_turn = true;
            if let Some(finish) = attempt.pending.overtaken(effect) {
                self.clear_up(finish.unused, finish.turn, env);
            }
        }
        let needs_no_turn = attempt.needs_turn || attempt.pending.is_over();
        if !attempt.is_long || !attempt.pending.is_rmdir() || needs_no_turn {
            return self.step(attempt, env);
        }
        let number = self.turning.meanwhile.begin();
        let effect = self.step(attempt, env)?;
        attempt.out_of_turn = Some(OutOfTurn(number, effect));
        self.waits_for_turn(attempt, env);
        None
    }

    /// The request goes on a little later.
    pub(super) fn waits_for_turn(&self, attempt: &Attempt, env: &mut Env) {
        let token = attempt.pending.request().token;
        let delay = env.hardship.delay_us(1, 3_000);
        self.alarm(delay, Alarm::Again(token), env);
    }
}
