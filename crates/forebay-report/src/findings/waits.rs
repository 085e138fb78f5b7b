//! What waits for somebody else: opens of pipes, locks on files. It is no time in I/O, but the program stands still.

use super::{Finding, Subject};
use crate::units::{count, seconds, share};
use std::collections::BTreeMap;

/// The code of these findings.
pub(super) const CODE: &str = "waiting-calls";

/// Fires where a rank waits for a substantial part of the run.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    let mut by_kind: BTreeMap<&str, Vec<(u32, u64, f64)>> = BTreeMap::new();
    for wait in &subject.job.waits {
        let of_kind = by_kind.entry(wait.what).or_default();
        of_kind.push((wait.rank, wait.calls, wait.seconds));
    }
    let found = by_kind.into_iter().filter_map(|(what, waits)| {
        let longest = waits.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
        let (rank, calls, most) = *longest;
        if share(most, subject.job.run_seconds) < subject.limits.low_share {
            return None;
        }
        let name = subject.job.name_of(rank);
        let mut finding = Finding::not_estimated(
            CODE,
            format!("{name} waits in {what} for {}", seconds(most)),
            most,
        );
        finding.estimate = "not estimated: the log does not tell for whom it waits; not part of the time in I/O".to_owned();
        let all: u64 = waits.iter().map(|wait| wait.1).sum();
        finding.evidence = vec![
            format!(
                "{name}: {} in {}",
                count(calls, "call", "calls"),
                seconds(most)
            ),
            format!(
                "all: {} by {}, {}",
                count(all, "call", "calls"),
                count(waits.len() as u64, "rank", "ranks"),
                seconds(waits.iter().map(|wait| wait.2).sum())
            ),
        ];
        finding.advice = match what {
            "opens of pipes" => {
                "An open of a pipe waits for whoever opens the other end: start that one earlier, or do without the pipe."
            }
            _ => {
                "Hold locks for a shorter time, lock ranges that do not overlap, or give each process a file of its own."
            }
        }
        .to_owned();
        Some(finding)
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Thresholds;
    use crate::model::Wait;
    use crate::sample::plain_job;

    #[test]
    fn a_rank_that_waits_is_named_although_it_does_no_io() {
        let mut job = plain_job(2);
        let wait = |rank, what, seconds| Wait {
            rank,
            what,
            calls: 3,
            seconds,
        };
        job.waits = vec![
            wait(0, "calls for locks on files", 0.01),
            wait(1, "calls for locks on files", 40.0),
            wait(1, "opens of pipes", 0.001),
        ];
        let report = crate::Report::new(job, &Thresholds::default());
        let found: Vec<_> = report
            .findings
            .iter()
            .filter(|one| one.code == CODE)
            .collect();
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].title,
            "process 1 waits in calls for locks on files for 40.0 s"
        );
        assert_eq!(found[0].concerned_seconds, Some(40.0));
        assert_eq!(report.account.io_seconds, 0.0);
    }
}
