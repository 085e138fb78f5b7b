//! Deaths of a bridge between two effects of one request, also where no time passes between them.

use super::env::Env;
use super::node::Node;
use forebay_core::request::Effect;
use std::fmt;

/// What a bridge carries out, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names are those of `forebay_core::request::Effect`
pub enum Deed {
    TakeTurn,
    TakesLong,
    Look,
    Fetch,
    Await,
    Pause,
    Enter,
    Announce,
    Make,
    WriteTimes,
    Grant,
    Commit,
    LookAtLeft,
    Finish,
    /// One part of the records below a removed directory goes.
    Part,
    /// A step of a recovery.
    Recover,
}

impl Deed {
    /// All of them.
    pub const ALL: [Deed; 16] = [
        Deed::TakeTurn,
        Deed::TakesLong,
        Deed::Look,
        Deed::Fetch,
        Deed::Await,
        Deed::Pause,
        Deed::Enter,
        Deed::Announce,
        Deed::Make,
        Deed::WriteTimes,
        Deed::Grant,
        Deed::Commit,
        Deed::LookAtLeft,
        Deed::Finish,
        Deed::Part,
        Deed::Recover,
    ];

    pub(super) fn of(effect: &Effect) -> Self {
        match effect {
            Effect::TakeTurn => Deed::TakeTurn,
            Effect::TakesLong => Deed::TakesLong,
            Effect::Look(_) => Deed::Look,
            Effect::Fetch(_) => Deed::Fetch,
            Effect::Await(_) => Deed::Await,
            Effect::Pause => Deed::Pause,
            Effect::Enter { .. } => Deed::Enter,
            Effect::Announce { .. } => Deed::Announce,
            Effect::Make { .. } => Deed::Make,
            Effect::WriteTimes => Deed::WriteTimes,
            Effect::Grant(_) => Deed::Grant,
            Effect::Commit(_) => Deed::Commit,
            Effect::LookAtLeft(_) => Deed::LookAtLeft,
            Effect::Finish(_) => Deed::Finish,
        }
    }

    /// Does it leave something on the storage or in the tables? A death beside it can do most harm.
    fn leaves_something(self) -> bool {
        matches!(
            self,
            Deed::Announce | Deed::Make | Deed::Grant | Deed::Commit
        )
    }
}

/// How often a bridge has died between two deeds, after one and before the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deaths([[u64; Deed::ALL.len()]; Deed::ALL.len()]);

impl Deaths {
    /// So often right after one and before another.
    pub fn between(&self, after: Deed, before: Deed) -> u64 {
        self.0[after as usize][before as usize]
    }

    fn after(&self, deed: Deed) -> u64 {
        self.0[deed as usize].iter().sum()
    }

    fn before(&self, deed: Deed) -> u64 {
        self.0.iter().map(|row| row[deed as usize]).sum()
    }

    /// So often right before or right after this one.
    pub fn beside(&self, deed: Deed) -> u64 {
        self.before(deed) + self.after(deed)
    }

    /// All of them.
    pub fn count(&self) -> u64 {
        self.0.iter().flatten().sum()
    }

    fn note(&mut self, after: Deed, before: Deed) {
        self.0[after as usize][before as usize] += 1;
    }
}

impl std::ops::AddAssign for Deaths {
    fn add_assign(&mut self, more: Deaths) {
        let all = self.0.iter_mut().flatten();
        for (count, more) in all.zip(more.0.iter().flatten()) {
            *count += more;
        }
    }
}

impl fmt::Display for Deaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} between two effects", self.count())?;
        let beside = |deed: &Deed| (*deed, self.beside(*deed));
        let counts = Deed::ALL.iter().map(beside).filter(|(_, n)| *n > 0);
        let counts: Vec<_> = counts.map(|(d, n)| format!("{d:?} {n}")).collect();
        match counts.is_empty() {
            true => Ok(()),
            false => write!(f, " (each counts on both sides: {})", counts.join(", ")),
        }
    }
}

impl Env {
    /// Does the bridge die after it has carried out one thing and before it begins the next?
    pub(super) fn strikes_between(&mut self, after: Deed, before: Deed) -> bool {
        let chance = match (after, before) {
            // Parts are rare, and second ones more so: they are struck more often. Each start is a recovery, so it is not.
            (Deed::Part, Deed::Part) => 200 * self.hardship.strikes,
            (_, Deed::Part) => 50 * self.hardship.strikes,
            (_, Deed::Recover) => self.hardship.strikes,
            _ if after.leaves_something() || before.leaves_something() => {
                self.hardship.strikes_beside_traces
            }
            _ => self.hardship.strikes,
        };
        let strikes = self.hardship.chance(chance);
        if strikes {
            self.counts.between.note(after, before);
        }
        strikes
    }
}

impl Node {
    /// Dies, or not, after it has carried out one thing and before it begins the next; nothing was before the first one.
    pub(super) fn dies_between(
        &mut self,
        after: Option<Deed>,
        before: Deed,
        env: &mut Env,
    ) -> bool {
        let Some(after) = after.filter(|after| env.strikes_between(*after, before)) else {
            return false;
        };
        self.note(env, || {
            format!("dies after {after:?} and before {before:?}")
        });
        self.dies_now(env);
        true
    }
}
