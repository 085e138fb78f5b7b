//! Nodes on which the same work takes much longer than on the others.

use super::pace::{Usual, is_measured, is_stored, lower_median};
use super::places::{Slow, detail, measured, named, worst_of};
use super::{Confidence, Finding, NAMED_FILES, Subject};
use crate::model::{Amount, Interface, Job, Placement};
use crate::units::{self, share};
use std::collections::{BTreeMap, BTreeSet};

/// The rule.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    slow_node(subject).into_iter().collect()
}

/// Least number of nodes. Of two, none is the usual one.
const LEAST_NODES: usize = 3;
/// Ranks of a node do the same work as others if they have no more than this many times their requests and bytes, and no less
/// than one over it. A node with other work (the one that reads the input for all) is not compared.
const SAME_WORK: f64 = 2.0;

/// Work that can be compared: of one interface and mount point, in one direction.
type Lane<'a> = (Interface, &'a str, bool);

/// The ranks of a node with what each has done.
type OfNode = Vec<(u32, Amount)>;

fn sum(of: &[(u32, Amount)]) -> Amount {
    let mut sum = Amount::default();
    for (_, amount) in of {
        sum.add(amount);
    }
    sum
}

/// Steps beside ranks do other work.
fn counts(job: &Job, rank: u32) -> bool {
    job.rank_count() == 0 || job.is_rank(rank)
}

fn lanes<'a>(
    subject: &Subject,
    placement: &'a Placement,
) -> BTreeMap<Lane<'a>, Vec<(usize, OfNode)>> {
    let job = subject.job;
    let mut lanes: BTreeMap<Lane, BTreeMap<usize, OfNode>> = BTreeMap::new();
    for one in placement.work.iter().filter(|one| counts(job, one.rank)) {
        // Where a mount point is not known, file systems may differ.
        let host = placement.host_of.get(&one.rank);
        if let Some(host) = host.filter(|_| !one.mount.is_empty()) {
            let lane = lanes.entry((one.interface, one.mount.as_str(), one.is_write));
            let of_node = lane.or_default().entry(*host).or_default();
            of_node.push((one.rank, one.amount));
        }
    }
    let lanes = lanes.into_iter().map(|(lane, nodes)| {
        let nodes = nodes.into_iter();
        let nodes = nodes.filter(|(_, of)| {
            let of = sum(of);
            is_measured(&of) && is_stored(subject, &of)
        });
        (lane, same_work(nodes.collect()))
    });
    lanes.collect()
}

/// Those nodes of which a rank does as much as on the others.
fn same_work(nodes: Vec<(usize, OfNode)>) -> Vec<(usize, OfNode)> {
    let requests = |of: &OfNode| sum(of).requests as f64 / of.len() as f64;
    let moved = |of: &OfNode| sum(of).bytes as f64 / of.len() as f64;
    let usual = |each: &dyn Fn(&OfNode) -> f64| {
        lower_median(nodes.iter().map(|(_, of)| each(of)).collect())
    };
    let (usual_requests, usual_moved) = (usual(&requests), usual(&moved));
    let is_same = |value: f64, usual: f64| value <= SAME_WORK * usual && usual <= SAME_WORK * value;
    let mut nodes = nodes;
    nodes
        .retain(|(_, of)| is_same(requests(of), usual_requests) && is_same(moved(of), usual_moved));
    nodes
}

/// The nodes of a job.
#[derive(Default)]
struct Nodes {
    /// Those whose work could be compared.
    compared: BTreeSet<usize>,
    slow: BTreeMap<usize, Slow>,
    /// By rank of a slow node what it would save at the usual pace.
    saved: BTreeMap<u32, f64>,
}

impl Nodes {
    fn of(subject: &Subject, placement: &Placement) -> Self {
        let mut found = Nodes::default();
        for (lane, nodes) in lanes(subject, placement) {
            if nodes.len() >= LEAST_NODES {
                found.judge(lane, &nodes, subject.limits.slow_node);
            }
        }
        found
    }

    /// Notes the nodes of one lane that take so many times as long as usual.
    fn judge(&mut self, lane: Lane, nodes: &[(usize, OfNode)], limit: f64) {
        let (interface, mount, is_write) = lane;
        let sums: Vec<Amount> = nodes.iter().map(|(_, of)| sum(of)).collect();
        let usual = Usual::of(sums.iter());
        self.compared.extend(nodes.iter().map(|(host, _)| *host));
        for ((host, of), total) in nodes.iter().zip(&sums) {
            let slow_ranks = of.iter().filter(|(_, one)| usual.is_exceeded(one, limit));
            // One slow rank is no slow node.
            if !usual.is_exceeded(total, limit) || 2 * slow_ranks.count() < of.len() {
                continue;
            }
            for (rank, one) in of {
                *self.saved.entry(*rank).or_default() +=
                    (one.seconds - usual.seconds(one)).max(0.0);
            }
            let ranks = of.len() as f64;
            let seconds = usual.seconds(total) / ranks;
            let one = self.slow.entry(*host).or_default();
            one.seconds += total.seconds / ranks;
            one.usual += seconds;
            one.details
                .push(detail(interface, mount, is_write, total, &usual));
            for ((other, _), other_total) in nodes.iter().zip(&sums) {
                let times = share(other_total.seconds, usual.seconds(other_total));
                one.add_elsewhere(*other, times * seconds);
            }
        }
    }
}

/// A node whose ranks take much longer for the same work than those of the others.
fn slow_node(subject: &Subject) -> Option<Finding> {
    let placement = subject.job.placement.as_ref()?;
    let nodes = Nodes::of(subject, placement);
    let (worst, most) = worst_of(&nodes.slow)?;
    let host = |at: usize| placement.hosts[at].clone();
    let title = format!(
        "Node {} is slow: a rank on it reads and writes for {}, at the pace of the median of {} nodes for {}",
        host(worst),
        units::seconds(most.seconds),
        nodes.compared.len(),
        units::seconds(most.usual)
    );
    let mut finding = Finding::new(
        "slow-node",
        title,
        gained(subject.job, placement, &nodes.saved),
    );
    finding.confidence = Confidence::Medium;
    finding.estimate = "measured: time to read and write of the rank that has most, less that of the rank that would have most if the \
                        ranks on slow nodes took the median of nodes for a request, or for a byte if that is more"
        .to_owned();
    finding.evidence = vec![format!(
        "{} of {} nodes take {} times the median or more, for a request and for a byte, on the same mount point, where a rank has as \
         many requests and bytes as on the others",
        nodes.slow.len(),
        nodes.compared.len(),
        subject.limits.slow_node,
    )];
    let details = most.details.iter().take(NAMED_FILES).cloned();
    finding.evidence.extend(details);
    finding.measured = measured(most, host, "nodes");
    finding.files = named(&nodes.slow, host);
    finding.advice = "Tell the operators which node it is, and leave it out of the next job (Slurm: --exclude): its network or its mount is \
                      slow, or other jobs use it. First make sure that its ranks do not open their files in another way (O_SYNC, O_DIRECT), which \
                      no log tells."
        .to_owned();
    Some(finding)
}

/// Seconds by which the rank with most I/O would be quicker.
fn gained(job: &Job, placement: &Placement, saved: &BTreeMap<u32, f64>) -> f64 {
    let mut totals: BTreeMap<u32, f64> = BTreeMap::new();
    for one in placement.work.iter().filter(|one| counts(job, one.rank)) {
        *totals.entry(one.rank).or_default() += one.amount.seconds;
    }
    let most = totals.values().copied().fold(0.0, f64::max);
    let mended = totals
        .iter()
        .map(|(rank, seconds)| seconds - saved.get(rank).unwrap_or(&0.0));
    most - mended.fold(0.0, f64::max)
}
