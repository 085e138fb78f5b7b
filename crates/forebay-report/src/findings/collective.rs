//! Independent MPI-IO where collective calls would gather the requests of all ranks. Programs without MPI-IO get no
//! finding.

use super::loss::{real_files, slowest_path};
use super::requests::{Direction, READS, WRITES, model, request_seconds};
use super::{Finding, Subject};
use crate::model::{FileUse, Interface, Sharing};
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
    let loss = slowest_path(subject, hits.iter().copied(), direction.part, |one| {
        let flow = direction.of(one);
        let gathered = (flow.bytes as f64 / limits.gathered_bytes).ceil();
        let fewer = (flow.independent as f64 - gathered).max(0.0);
        request_seconds(flow, fewer, limits)
    });
    let Direction { noun, verb, .. } = direction;
    let code = if direction.is_write {
        "independent-writes"
    } else {
        "independent-reads"
    };
    let mut finding = Finding::of_loss(
        code,
        format!(
            "Independent MPI-IO {noun} on shared files: {} in {}",
            number(total),
            units::count(hits.len() as u64, "file", "files")
        ),
        &loss,
        format!(
            "time to {verb} x cost of the requests beyond their cost when gathered into {}; {}",
            bytes(limits.gathered_bytes as u64),
            model(limits)
        ),
    );
    finding.evidence = vec![format!(
        "{} collective {noun} on the same files",
        number(hits.iter().map(|one| direction.of(one).collective).sum())
    )];
    finding.files = loss.evidence(subject, |one| {
        let flow = direction.of(one);
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
