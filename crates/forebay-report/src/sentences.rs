//! Sentences that terminal and page share.

use crate::Report;
use crate::findings::NOTHING_RECORDED;
use crate::model::{Avoided, Collective, Coverage, Fetched};
use crate::units::{self, bytes, number, percent};

/// How much of the kernel's count was recorded.
pub(crate) fn coverage_text(coverage: &Coverage) -> String {
    let (seen, total) = (bytes(coverage.seen), bytes(coverage.total));
    if coverage.is_known() {
        let elsewhere = match coverage.elsewhere {
            0 => String::new(),
            n => format!(
                "; {} of them went to pipes and terminals, to files of the system, or are those of launchers, and are in no other number",
                bytes(n)
            ),
        };
        format!(
            "{}: {seen} seen of {total} that the kernel counted{elsewhere}",
            percent(coverage.share())
        )
    } else {
        format!("unknown: {seen} seen, the kernel's count ({total}) is older")
    }
}

/// For how much of their time writes wait for storage, if that is known and worth a word.
pub(crate) fn waiting_writes(report: &Report) -> Option<f64> {
    let waiting = report.account.waiting_writes;
    waiting.filter(|share| *share >= LEAST_WAITING)
}

/// A smaller share of the time of writes that waits for storage is not told.
const LEAST_WAITING: f64 = 0.01;

/// How much of what the job read came from storage.
pub(crate) fn fetched_text(fetched: &Fetched) -> String {
    let (delivered, asked) = (bytes(fetched.bytes), bytes(fetched.asked));
    if fetched.bytes >= fetched.asked {
        return format!(
            "delivered {delivered} by the kernel's count; calls read {asked} from files and devices"
        );
    }
    format!(
        "delivered {delivered}, by the kernel's count, of the {asked} that calls read; the rest was in memory, of devices such as \
         /dev/zero, or on a file system without this count (FUSE)"
    )
}

/// What the collective layer did with a file.
pub(crate) fn collective_text(one: &Collective) -> String {
    let Some(method) = &one.method else {
        return "left to the MPI library as a whole".to_owned();
    };
    let gathered = match one.calls.exchanged {
        0 => "no call gathered".to_owned(),
        calls => format!(
            "{} gathered by {} ({method})",
            units::count(calls, "call", "calls"),
            units::count(one.aggregators.len() as u64, "aggregator", "aggregators"),
        ),
    };
    let mut text = format!(
        "{gathered}, {} by each rank for itself, {} left to the MPI library",
        number(one.calls.direct),
        number(one.left()),
    );
    if one.calls.exchanged + one.calls.direct > 0 {
        text += &format!(
            "; {} ({}) became {} of the file",
            units::count(one.pieces, "piece", "pieces"),
            bytes(one.bytes),
            units::count(one.file_calls, "read or write", "reads and writes"),
        );
    }
    if one.rounds > 0 {
        text += &format!(" in {}", units::count(one.rounds, "round", "rounds"));
    }
    if let Some((chosen, even)) = one.conflicts() {
        text += &match even.checked_sub(chosen) {
            Some(avoided @ 1..) => format!(
                "; {} avoided ({} where equal domains have {}, predicted for the largest call)",
                units::count(avoided, "lock conflict", "lock conflicts"),
                number(chosen),
                number(even)
            ),
            _ => format!(
                "; {}, as with equal domains (predicted)",
                units::count(chosen, "lock conflict", "lock conflicts")
            ),
        };
    }
    text
}

/// What there would have been without the collective layer.
pub(crate) fn avoided_text(avoided: &Avoided) -> String {
    format!(
        "each rank for itself: {}, the finding {} (seconds not estimated: the MPI library might have gathered them, too)",
        units::count(avoided.requests, "request", "requests"),
        avoided.code
    )
}

/// True if nothing was recorded of the job, so that its numbers mean nothing.
pub(crate) fn is_unknown(report: &Report) -> bool {
    report
        .findings
        .iter()
        .any(|one| one.code == NOTHING_RECORDED)
}

/// Codes of findings by which a part of the job's I/O is missing.
const MISSING_PARTS: [&str; 5] = [
    "lost-data",
    "unplaced-data",
    "partial-data",
    "damaged-log",
    "low-coverage",
];

/// What is known if no finding is costly. A job that spends much of its run in I/O is never told that this costs nothing,
/// and no more is said than was recorded.
pub(crate) fn nothing_found(report: &Report) -> String {
    if is_unknown(report) {
        return "UNKNOWN: nothing was recorded of what this job read and wrote, so nothing can be said of what costs it time"
            .to_owned();
    }
    if let Some(unexplained) = &report.unexplained {
        return unexplained.clone();
    }
    let mut data = report.findings.iter();
    if data.any(|one| MISSING_PARTS.contains(&one.code)) {
        return "none in the part that was recorded: a part of this job's I/O is in no record of the log"
            .to_owned();
    }
    "none: no known pattern costs this job time".to_owned()
}
