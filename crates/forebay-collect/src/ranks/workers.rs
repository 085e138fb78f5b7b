//! Gathers the processes outside of launches into workers: those that do the work, with their helpers.
//!
//! Processes that ran one after the other are one **lane**: the shell waits for each of its commands. Lanes below the same
//! process that ran side by side are workers of their own, if each did a substantial part of the I/O: a pool, commands in
//! the background. All else is folded into the process that started it: `cat` in a script, the shim before an interpreter.
//!
//! What a process did is weighed by bytes and calls, not by time: equal runs have equal workers.

use super::Process;
use std::collections::HashMap;

/// A lane is substantial if it did at least as much as the busiest process beside or above it, divided by this.
const LEAST_PART: u64 = 10;
/// And weighs at least so much ([`Process::weight`]).
const LEAST_WEIGHT: u64 = 256 << 10;

/// A process outside of launches.
pub(super) struct Member {
    /// Its index.
    pub at: usize,
    /// The index of its parent, in a launch or not.
    pub parent: Option<usize>,
    /// True if it only starts ranks, so that it is no part of a worker.
    pub is_launcher: bool,
    /// True if it is a shell, or something like it.
    pub is_wrapper: bool,
}

/// Processes that count as one.
#[derive(Debug, Default)]
struct Lane {
    members: Vec<usize>,
    first_ns: u64,
    last_ns: u64,
    /// The sum of its processes.
    weight: u64,
    /// The busiest of them.
    busiest: u64,
}

impl Lane {
    fn of(process: &Process, at: usize) -> Self {
        Lane {
            members: vec![at],
            first_ns: process.first_ns,
            last_ns: process.last_ns.max(process.first_ns),
            weight: process.weight,
            busiest: process.weight,
        }
    }

    fn take(&mut self, other: Lane) {
        if self.members.is_empty() {
            (self.first_ns, self.last_ns) = (other.first_ns, other.last_ns);
        }
        self.members.extend(other.members);
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.weight = self.weight.saturating_add(other.weight);
        self.busiest = self.busiest.max(other.busiest);
    }
}

/// The members of each worker, in the order in which the workers began to do I/O. Processes without records are in none
/// that has no others. `members` has parents before their children.
pub(super) fn gather(processes: &[Process], members: &[Member]) -> Vec<Vec<usize>> {
    let is_outside: HashMap<usize, ()> = members.iter().map(|m| (m.at, ())).collect();
    // By the index of a process, what its children have become; `None` stands for the job itself.
    let mut below: HashMap<Option<usize>, Vec<Lane>> = HashMap::new();
    for member in members.iter().rev() {
        let process = &processes[member.at];
        let mut own = if member.is_launcher {
            Lane::default()
        } else {
            Lane::of(process, member.at)
        };
        let (found, idle): (Vec<Lane>, Vec<Lane>) = below
            .remove(&Some(member.at))
            .unwrap_or_default()
            .into_iter()
            .partition(|lane| lane.weight > 0);
        idle.into_iter().for_each(|lane| own.take(lane));
        let mut lanes = in_lanes(found);
        // Other programs that did less, all together, than the one that has started them are its helpers.
        let program = |at: usize| processes[at].programs.last();
        let is_other = |&at: &usize| program(at) != program(member.at);
        let are_helpers = lanes.iter().flat_map(|lane| &lane.members).all(is_other);
        let weight = lanes.iter().map(|lane| lane.weight);
        let weight = weight.fold(0, u64::saturating_add);
        if !member.is_wrapper && are_helpers && weight < process.weight {
            lanes.drain(..).for_each(|lane| own.take(lane));
        }
        let parent = member.parent.filter(|at| is_outside.contains_key(at));
        let above = below.entry(parent).or_default();
        above.extend(fold(own, lanes));
    }
    let lanes = in_lanes(below.remove(&None).unwrap_or_default());
    let mut workers = fold(Lane::default(), lanes);
    let began = |lane: &Lane| {
        let times = lane.members.iter().filter_map(|&at| processes[at].io_ns);
        times.min()
    };
    workers.retain(|lane| began(lane).is_some());
    workers.sort_by_key(|lane| (began(lane), lane.first_ns));
    workers.into_iter().map(|lane| lane.members).collect()
}

/// Joins lanes that do not overlap in time.
fn in_lanes(mut found: Vec<Lane>) -> Vec<Lane> {
    found.sort_by_key(|lane| (lane.first_ns, lane.members.first().copied()));
    let mut lanes: Vec<Lane> = Vec::new();
    for lane in found {
        // The one that ended last: so the lanes with most work stay together.
        let free = lanes.iter_mut().filter(|one| one.last_ns <= lane.first_ns);
        match free.max_by_key(|one| one.last_ns) {
            Some(one) => one.take(lane),
            None => lanes.push(lane),
        }
    }
    lanes
}

/// Decides which lanes below a process are workers of their own, and folds the others into it.
fn fold(mut own: Lane, lanes: Vec<Lane>) -> Vec<Lane> {
    let busiest = lanes.iter().map(|lane| lane.busiest);
    let busiest = busiest.fold(own.busiest, u64::max);
    let is_substantial =
        |lane: &Lane| lane.weight >= LEAST_WEIGHT && lane.weight >= busiest / LEAST_PART;
    let (mut workers, helpers): (Vec<Lane>, Vec<Lane>) =
        lanes.into_iter().partition(is_substantial);
    if workers.len() < 2 {
        workers.drain(..).for_each(|lane| own.take(lane));
    }
    helpers.into_iter().for_each(|lane| own.take(lane));
    // A process that did little beside its workers, such as a shell that waits for them, is a helper of theirs.
    match workers.first_mut() {
        Some(first) if !is_substantial(&own) => first.take(own),
        _ => workers.push(own),
    }
    workers.retain(|lane| !lane.members.is_empty());
    workers
}
