//! From a run that breaks a promise to a smaller one that breaks the same.

use super::plan::{Calm, Plan};

/// Runs that one search makes at most.
const MOST_RUNS: u32 = 1_500;
/// A smaller shape is tried with the seed at hand, and with so many others: all that a run draws comes
/// from one source, so one operation less makes another run of it.
const OTHER_SEEDS: u64 = 40;

/// The smallest run found that `breaks` the same promise as `plan`.
pub(super) fn smallest(plan: Plan, breaks: impl Fn(&Plan) -> bool) -> Plan {
    let mut best = plan;
    let mut left = MOST_RUNS;
    // Each success begins anew with the boldest step.
    while let Some(better) = shapes(&best).find_map(|shape| try_seeds(shape, &breaks, &mut left)) {
        best = better;
    }
    best
}

fn try_seeds(shape: Plan, breaks: &impl Fn(&Plan) -> bool, left: &mut u32) -> Option<Plan> {
    for offset in 0..=OTHER_SEEDS {
        if *left == 0 {
            return None;
        }
        *left -= 1;
        let seed = shape.seed.wrapping_add(offset);
        let candidate = Plan { seed, ..shape }.as_printed();
        if breaks(&candidate) {
            return Some(candidate);
        }
    }
    None
}

/// Shapes that are smaller than one, the boldest step first.
fn shapes(plan: &Plan) -> impl Iterator<Item = Plan> + use<> {
    let plan = *plan;
    let clients = [plan.clients / 2, plan.clients - 1];
    let clients = clients
        .into_iter()
        .filter(move |n| *n >= 1 && *n < plan.clients);
    let steps = [plan.steps / 2, plan.steps * 3 / 4, plan.steps - 1];
    let steps = steps
        .into_iter()
        .filter(move |n| *n >= 1 && *n < plan.steps);
    let bridges = (1..plan.bridges).rev().take(1);
    let kinds = Calm::kinds().filter(move |kind| !plan.calm.has(*kind));
    let calmer = kinds.map(move |kind| Plan {
        calm: plan.calm.and(kind),
        ..plan
    });
    clients
        .map(move |clients| Plan { clients, ..plan })
        .chain(steps.map(move |steps| Plan { steps, ..plan }))
        .chain(bridges.map(move |bridges| Plan { bridges, ..plan }))
        .chain(calmer)
}
