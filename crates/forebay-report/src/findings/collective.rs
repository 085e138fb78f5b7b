//! Independent MPI-IO where collective calls would gather the requests of all ranks. Programs without MPI-IO get no
//! finding.

use super::calibration::RequestCost;
use super::loss::{real_files, slowest_path};
use super::pace::MEMORY_SECONDS;
use super::requests::{Direction, READS, WRITES, request_seconds};
use super::{Finding, Subject, Thresholds};
use crate::model::{Avoided, Collective, FileUse, Flow, Interface, Job, Sharing};
use crate::units::{self, bytes, number};

/// The rule, for both directions.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    [independent(subject, READS), independent(subject, WRITES)]
        .into_iter()
        .flatten()
        .collect()
}

fn independent(subject: &Subject, direction: Direction) -> Option<Finding> {
    let limits = subject.limits;
    let layer = subject.job.layer(Interface::MpiIo)?;
    let hits: Vec<&FileUse> = real_files(subject, layer)
        .filter(|one| one.sharing != Sharing::Unique)
        .filter(|one| {
            let flow = direction.of(one);
            let all = flow.independent + flow.collective;
            all > 0 && flow.independent as f64 >= limits.independent_share * all as f64
        })
        .collect();
    let total: u64 = hits.iter().map(|one| direction.of(one).independent).sum();
    if total < limits.min_requests {
        return None;
    }
    let Direction { noun, verb, .. } = direction;
    let code = if direction.is_write {
        "independent-writes"
    } else {
        "independent-reads"
    };
    let title = format!(
        "Independent MPI-IO {noun} on shared files: {} in {}",
        number(total),
        units::count(hits.len() as u64, "file", "files")
    );
    let requests = Requests {
        of: |flow| flow.independent,
        name: format!("independent {noun}"),
    };
    let uses = hits.iter().copied();
    let mut finding = gathered(subject, code, title, uses, direction, &requests);
    finding.evidence = vec![format!(
        "{} collective {noun} on the same files",
        number(hits.iter().map(|one| direction.of(one).collective).sum())
    )];
    finding.advice = format!(
        "Use MPI_File_{verb}_at_all or MPI_File_{verb}_all (HDF5: H5Pset_dxpl_mpio with H5FD_MPIO_COLLECTIVE; PnetCDF: \
         the _all calls)."
    );
    Some(finding)
}

/// Requests that should have been gathered.
pub(super) struct Requests {
    /// How many of a flow are such.
    pub of: fn(&Flow) -> u64,
    /// What they are called.
    pub name: String,
}

/// A finding on requests that cost more than they would if they were gathered, with the files that have them.
pub(super) fn gathered<'a>(
    subject: &Subject,
    code: &'static str,
    title: String,
    uses: impl Iterator<Item = &'a FileUse> + Clone,
    direction: Direction,
    requests: &Requests,
) -> Finding {
    let limits = subject.limits;
    let (ops, seconds) = uses.clone().fold((0, 0.0), |(ops, seconds), one| {
        let more = direction.of(one).ops;
        (more.saturating_add(ops), seconds + direction.seconds(one))
    });
    // In files of several ranks a request costs locks, too, of which the others tell nothing.
    let request = RequestCost::assumed(limits);
    let loss = slowest_path(subject, uses, direction.part, |one| {
        let flow = direction.of(one);
        let gathered = (flow.bytes as f64 / limits.gathered_bytes).ceil();
        let fewer = ((requests.of)(flow) as f64 - gathered).max(0.0);
        request_seconds(direction.seconds(one), flow, fewer, request)
    });
    // To gather such requests takes messages that take as long (measured: two ranks over a page cache gain nothing).
    let mut finding = if seconds < MEMORY_SECONDS * ops as f64 {
        let why = "the requests are so quick that they end in the memory of the node, and to gather them takes messages";
        Finding::not_estimated_for(subject, code, title, &loss, why)
    } else {
        let estimate = format!(
            "time to {} x cost of the requests beyond their cost when gathered into {}; {}",
            direction.verb,
            bytes(limits.gathered_bytes as u64),
            request.text()
        );
        Finding::of_loss(subject, code, title, &loss, estimate)
    };
    finding.files = loss.evidence(subject, |one| {
        let flow = direction.of(one);
        format!(
            "{} {} by {}, mean {}",
            number((requests.of)(flow)),
            requests.name,
            subject.job.count_of(one.ranks),
            bytes(flow.bytes / flow.ops.max(1))
        )
    });
    finding
}

/// The finding that there would have been if nobody had gathered the calls of a file that the collective layer has gathered;
/// `None` if its pieces are few or large. Its seconds are not estimated: the MPI library might have gathered them, too.
pub(crate) fn avoided(one: &Collective, job: &Job, limits: &Thresholds) -> Option<Avoided> {
    let calls = one.calls.exchanged;
    let is_small = (one.bytes as f64) < limits.gathered_bytes / 4.0 * one.pieces as f64;
    if calls == 0 || one.pieces < limits.min_requests || !is_small {
        return None;
    }
    let layer = job.layer(Interface::MpiIo);
    let mut uses = layer.into_iter().flat_map(|layer| &layer.uses);
    let of_file = uses.find(|of| job.files[of.file].name == one.path);
    let reads = of_file.is_some_and(|of| of.total.read.collective > of.total.write.collective);
    Some(Avoided {
        code: if reads {
            "collective-reads-not-gathered"
        } else {
            "collective-writes-not-gathered"
        },
        requests: one.pieces,
    })
}
