//! One thing after the other: a bridge in good weather, told step by step what happens ([`crate::faults::two_writers`]).

use super::World;
use crate::faults::env::{Env, Event};
use crate::faults::history::{Action, Call, Outcome, Thing};
use crate::faults::model::Tree;
use crate::faults::node::Node;
use crate::faults::pfs::Pfs;
use crate::faults::plan::{Calm, Plan};
use crate::faults::random::Random;
use crate::faults::trace::Trace;
use crate::faults::workload::Workload;
use crate::faults::{Broken, Mutation, agree};
use forebay_core::drain::{BATCH_OBJECTS, DrainReport, NameSecret, PassTerms, SideChoice};
use forebay_core::membership::Membership;
use forebay_core::path::TreePath;
use forebay_core::record::{PathRecord, Token};
use std::cell::{Ref, RefMut};

/// Delays are drawn anew for each step, so that a step that is left out changes none of another.
const DELAYS: u64 = 1;

impl World {
    /// One bridge with one client over a PFS that holds `lower`. Files up to `stage_limit` bytes are staged.
    pub(in crate::faults) fn step_by_step(
        lower: Tree,
        stage_limit: u64,
        mutation: Option<Mutation>,
        membership: &Membership,
    ) -> Result<Self, Broken> {
        let plan = Plan {
            seed: DELAYS,
            bridges: 1,
            clients: 1,
            steps: 0,
            calm: Calm::all(),
            mutation,
        };
        let mut env = Env::new(&plan, Trace::new(false));
        env.calm_down();
        env.drain.drains = true;
        env.drain.stage_limit = stage_limit;
        let mut world = World::with(&plan, membership, env, Workload::none(lower));
        world.writes = Some(1);
        world.lower.borrow_mut().is_judged_later = true;
        let bridge = world.nodes[0].id;
        world.env.after(0, Event::Start { bridge });
        world.settle()?;
        Ok(world)
    }

    /// The client asks for something and waits until it is done; the call, and what it made. It writes once to what it opens.
    pub(in crate::faults) fn ask(
        &mut self,
        action: Action,
    ) -> Result<(Call, Option<Thing>), Broken> {
        self.env.random = Random::new(DELAYS);
        let client = &mut self.clients[0];
        client.seq += 1;
        client.call = Some(self.calls.len());
        let connection = client.connection;
        let token = Token {
            client: 1,
            seq: client.seq,
        };
        self.calls.push(Call {
            client: 0,
            bridge: client.bridge,
            action,
            drains: true,
            token,
            called: self.env.moment(),
            answered: None,
        });
        let client = 0;
        self.env.after(1, Event::Call { client, connection });
        self.settle()?;
        let call = self.calls[self.calls.len() - 1].clone();
        Ok((call, self.env.made.get(&token).copied()))
    }

    /// A whole pass, which begins with these decisions. `refused`: after so many changes of names the PFS refuses one.
    pub(in crate::faults) fn drain_once(
        &mut self,
        choices: Vec<SideChoice>,
        keep: bool,
        refused: Option<u32>,
    ) -> Result<DrainReport, Broken> {
        self.env.random = Random::new(DELAYS);
        self.lower.borrow_mut().refuse_after(refused);
        let terms = PassTerms {
            keep,
            // What moves goes one after the other in one of the two kinds, and together in the other.
            batches: if keep { 2 } else { 1 },
            objects: BATCH_OBJECTS,
            patient: true,
            secret: NameSecret([0, 0]),
        };
        self.at(self.nodes[0].id, |node, env| {
            node.report = None;
            node.begin_choosing(terms, choices, env);
        });
        self.settle()?;
        self.lower.borrow_mut().refuse_after(None);
        self.nodes[0].report.clone().ok_or_else(|| {
            let promise = "a drain comes to its end";
            Broken::new(promise, "it can't go on".to_owned(), Vec::new())
        })
    }

    /// The bridge dies while nothing is under way, and starts again.
    pub(in crate::faults) fn restart(&mut self) -> Result<(), Broken> {
        self.env.random = Random::new(DELAYS);
        self.crash(self.nodes[0].id);
        self.settle()
    }

    /// What users see, whatever else is so.
    pub(in crate::faults) fn shown(&self) -> Result<Tree, Broken> {
        agree::tree(&self.nodes, &self.lower.borrow().tree())
            .map_err(|(detail, paths)| Broken::new("the tables describe a tree", detail, paths))
    }

    /// Tables and objects agree, and every file holds what was written to it last, where nobody has taken anything away below.
    pub(in crate::faults) fn is_whole(&self) -> Result<(), Broken> {
        let tree = self.seen()?;
        self.check_contents(&tree)
    }

    /// What a file holds for users.
    pub(in crate::faults) fn holds(&self, path: &TreePath) -> Option<u64> {
        self.contents_at(path, &self.lower.borrow())
    }

    pub(in crate::faults) fn pfs(&self) -> Ref<'_, Pfs> {
        self.lower.borrow()
    }

    pub(in crate::faults) fn pfs_mut(&mut self) -> RefMut<'_, Pfs> {
        self.lower.borrow_mut()
    }

    /// All records of the bridge.
    pub(in crate::faults) fn all_records(&self) -> Vec<(TreePath, PathRecord)> {
        self.nodes.iter().flat_map(Node::records).collect()
    }
}

/// Was it done?
pub(in crate::faults) fn is_done(call: &Call) -> bool {
    let outcome = call.answered.as_ref().map(|(_, outcome)| outcome);
    matches!(outcome, Some(Outcome::Done | Outcome::Opened(_)))
}
