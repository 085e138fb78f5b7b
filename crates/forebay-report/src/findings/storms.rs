//! The parts of a program that its processes load: modules, libraries, classes.

use super::loss::{Part, slowest_path};
use super::metadata::{is_waited_for, lowest};
use super::{Confidence, Finding, Subject};
use crate::model::FileUse;
use crate::units::{self, bytes, number, share};
use std::collections::BTreeSet;

/// The rule.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    import_storm(subject).into_iter().collect()
}

/// True for a file that a program is made of, and that this job only reads.
pub(super) fn is_code(subject: &Subject, one: &FileUse) -> bool {
    let name = &subject.job.files[one.file].name;
    let file = name.rsplit('/').next().unwrap_or_default();
    let endings = [
        ".py", ".pyc", ".pyi", ".so", ".jar", ".class", ".jl", ".R", ".js",
    ];
    let has_name = endings.iter().any(|ending| file.ends_with(ending)) || file.contains(".so.");
    has_name && one.total.write.ops == 0
}

/// Seconds of a call on a file from which on the calls are what an import waits for. Python itself takes about as long to
/// find a module and to run it (measured: 65 us for each of 1,000 modules).
const COSTLY_CALL_SECONDS: f64 = 1e-4;

/// Fires if each rank loads many parts of a program from the file system, one by one.
fn import_storm(subject: &Subject) -> Option<Finding> {
    let parts: Vec<&FileUse> = lowest(subject)
        .filter(|one| one.total.opens > 0 && !is_waited_for(subject, one))
        .filter(|one| is_code(subject, one))
        .collect();
    let distinct: BTreeSet<usize> = parts.iter().map(|one| one.file).collect();
    let loads: u64 = parts.iter().map(|one| u64::from(one.ranks.max(1))).sum();
    let per_rank = loads as f64 / f64::from(subject.job.ranks.max(1));
    if per_rank < subject.limits.files_per_rank {
        return None;
    }
    // Whoever looks for a part asks for many names that are not there.
    let missed: Vec<&FileUse> = lowest(subject)
        .filter(|one| one.total.asked > 0 && !is_waited_for(subject, one))
        .collect();
    let of = |part: Part| {
        let uses = parts.iter().chain(&missed).copied();
        slowest_path(subject, uses, part, |one| {
            part.of_use(one) * (1.0 - 1.0 / per_rank)
        })
    };
    let (opening, reading) = (of(Part::Metadata), of(Part::Read));
    let lost = opening.seconds + reading.seconds;
    let calls: u64 = parts
        .iter()
        .map(|one| 2 * one.total.opens + one.total.stats + one.total.seeks + one.total.read.ops)
        .sum();
    let all: f64 = parts.iter().map(|one| one.total.seconds()).sum();
    let title = format!(
        "Parts of a program are loaded one by one: {} files by {}",
        number(distinct.len() as u64),
        subject.job.all_text()
    );
    let mut finding = if share(all, calls as f64) < COSTLY_CALL_SECONDS {
        Finding {
            estimate: "not estimated: these calls are so quick that the program's own work for each part (search, \
                       parsing) takes longer, which is in no log"
                .to_owned(),
            ..Finding::not_estimated("import-storm", title, lost)
        }
    } else {
        Finding::of_loss(
            subject,
            "import-storm",
            title,
            &opening,
            "measured time to look for, open and read these files x (1 - 1 / files per rank), as if each rank loaded one".to_owned(),
        )
    };
    if finding.seconds_lost.is_some() {
        finding.seconds_lost = Some(lost);
    }
    finding.confidence = Confidence::Medium;
    finding.evidence = vec![format!(
        "{per_rank:.0} files per rank, {} calls in all, {} each",
        number(calls),
        units::seconds(share(all, calls as f64))
    )];
    let asked: u64 = missed.iter().map(|one| one.total.asked).sum();
    if asked > 0 {
        let seconds = missed.iter().map(|one| one.total.meta_seconds).sum();
        finding.evidence.push(format!(
            "besides {} of names that were not there or had no file opened, {}",
            units::count(asked, "question", "questions"),
            units::seconds(seconds)
        ));
    }
    finding.files = opening.evidence(subject, |one| {
        format!(
            "{} by {}, {} in metadata",
            bytes(one.total.bytes()),
            subject.job.count_of(one.ranks),
            units::seconds(one.total.meta_seconds)
        )
    });
    finding.advice = "Keep the program on node-local storage, in a container image, or in one archive (Python: a zip file); or \
                      let one rank per node load it and share it."
        .to_owned();
    Some(finding)
}
