//! Which logs are of one job.

use super::NamedLog;

/// Groups logs by job. Logs of one job have the same job id and user, and no pause of more than a day between them.
/// Returns indices into `logs`, ordered by the starts of jobs.
pub fn group(logs: &[NamedLog]) -> Vec<Vec<usize>> {
    /// Longest pause within a job. Schedulers use job ids again, after years.
    const MOST_PAUSE_SECONDS: i64 = 86_400;
    let mut order: Vec<usize> = (0..logs.len()).collect();
    order.sort_by_key(|at| (logs[*at].log.job.start, logs[*at].name));
    let mut groups: Vec<(i64, i64, i64, Vec<usize>)> = Vec::new();
    for at in order {
        let job = &logs[at].log.job;
        let end = job.end.sec.max(job.start.sec);
        let known = groups.iter_mut().rev().find(|(id, uid, until, _)| {
            *id == job.id
                && *uid == job.uid
                && job.start.sec <= until.saturating_add(MOST_PAUSE_SECONDS)
        });
        match known {
            Some((_, _, until, members)) => {
                *until = (*until).max(end);
                members.push(at);
            }
            None => groups.push((job.id, job.uid, end, vec![at])),
        }
    }
    groups.into_iter().map(|(.., members)| members).collect()
}
