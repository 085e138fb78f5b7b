//! Independent MPI-IO where collective calls would gather the requests of all ranks. Nothing is said to programs
//! that do no MPI-IO.

use super::loss::{Part, real_files, slowest_path};
use super::{Finding, Subject};
use crate::model::{FileUse, Flow, Interface, Sharing};
use crate::units::{self, bytes, number, share};

/// The rule, for both directions.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    [independent(subject, false), independent(subject, true)]
        .into_iter()
        .flatten()
        .collect()
}

fn flow(one: &FileUse, is_write: bool) -> &Flow {
    if is_write {
        &one.total.write
    } else {
        &one.total.read
    }
}

fn independent(subject: &Subject, is_write: bool) -> Option<Finding> {
    let limits = subject.limits;
    let layer = subject.job.layer(Interface::MpiIo)?;
    let hits: Vec<&FileUse> = real_files(subject, layer)
        .filter(|one| one.sharing != Sharing::Unique)
        .filter(|one| {
            let flow = flow(one, is_write);
            let all = flow.independent + flow.collective;
            all > 0 && flow.independent as f64 >= limits.independent_share * all as f64
        })
        .collect();
    let total: u64 = hits.iter().map(|one| flow(one, is_write).independent).sum();
    if total < limits.min_requests {
        return None;
    }
    let part = if is_write { Part::Write } else { Part::Read };
    let loss = slowest_path(subject, hits.iter().copied(), part, |one| {
        let flow = flow(one, is_write);
        let gathered = (flow.bytes as f64 / limits.gathered_bytes).ceil();
        let fewer = (flow.independent as f64 - gathered).max(0.0);
        flow.seconds
            * share(
                fewer * limits.request_cost_bytes,
                flow.ops as f64 * limits.request_cost_bytes + flow.bytes as f64,
            )
    });
    let (code, noun, verb) = if is_write {
        ("independent-writes", "writes", "write")
    } else {
        ("independent-reads", "reads", "read")
    };
    let mut finding = Finding::new(
        code,
        format!(
            "Independent MPI-IO {noun} on shared files: {} in {}",
            number(total),
            units::count(hits.len() as u64, "file", "files")
        ),
        loss.seconds,
    );
    finding.estimate = format!(
        "time to {verb} x cost of the requests beyond what they cost gathered into {}; a request is taken to cost as \
         much as moving {}; {}",
        bytes(limits.gathered_bytes as u64),
        bytes(limits.request_cost_bytes as u64),
        loss.where_lost()
    );
    finding.evidence = vec![format!(
        "{} collective {noun} on the same files",
        number(hits.iter().map(|one| flow(one, is_write).collective).sum())
    )];
    finding.files = loss.evidence(subject, |one| {
        let flow = flow(one, is_write);
        format!(
            "{} independent {noun} by {}, mean {}",
            number(flow.independent),
            units::count(one.ranks.into(), "rank", "ranks"),
            bytes(flow.bytes / flow.ops.max(1))
        )
    });
    finding.advice = format!(
        "Use MPI_File_{verb}_at_all or MPI_File_{verb}_all (HDF5: H5Pset_dxpl_mpio with H5FD_MPIO_COLLECTIVE; PnetCDF: \
         the _all calls)."
    );
    Some(finding)
}
