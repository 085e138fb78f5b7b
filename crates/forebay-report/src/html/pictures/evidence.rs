//! The picture that proves a finding: the counters that its rule looked at.

use super::{access, over_time, overview, ranks, row, row_bar, time};
use crate::Report;
use crate::findings::Finding;
use crate::plots::Plots;
use crate::units::{percent, seconds, share};
use maud::{Markup, html};

/// What the finding costs as a part of the run, and what proves it.
pub(in crate::html) fn of_finding(report: &Report, plots: &Plots, one: &Finding) -> Markup {
    html! {
        div .evidence {
            (cost(report, one))
            @if let Some((says, picture)) = proof(report, plots, one.code) {
                p .bar-head { (says) }
                (picture)
            }
        }
    }
}

/// The seconds that it is about, beside those of the slowest rank and the run.
fn cost(report: &Report, one: &Finding) -> Markup {
    let run = report.job.run_seconds;
    let Some(lost) = one.seconds_lost.or(one.concerned_seconds) else {
        return html! {};
    };
    if run <= 0.0 {
        return html! {};
    }
    let spent = report.account.slowest.map_or(0.0, |one| one.seconds);
    let bar = |seconds: f64, fill: &str| {
        html! {
            rect class=(fill) x="0%" width=(super::percent((share(seconds, run) * 100.0).clamp(0.4, 100.0))) y="1" height="12" {}
        }
    };
    let says = format!("{} of a run of {}", seconds(lost), seconds(run));
    let name = if one.seconds_lost.is_some() {
        "lost, at most"
    } else {
        "concerned"
    };
    row(
        &html! { (name) },
        // No value of its own: three lengths over each other.
        &row_bar(
            &says,
            100.0 / run,
            &html! { (bar(run, "fill-other")) (bar(spent, "fill-part")) (bar(lost, "fill-lost")) },
        ),
        &html! { (percent(share(lost, run))) span .hint { " of the run; I/O of the slowest: " (percent(share(spent, run))) } },
    )
}

fn proof(report: &Report, plots: &Plots, code: &str) -> Option<(&'static str, Markup)> {
    let picture = match code {
        "small-reads"
        | "small-writes"
        | "small-reads-shared"
        | "small-writes-shared"
        | "collective-reads-not-gathered"
        | "collective-writes-not-gathered" => {
            let at = overview::interface_with_sizes(report)?;
            (
                "Requests by size, all files",
                overview::histogram(report, at),
            )
        }
        "random-reads" | "random-writes" | "misaligned-writes" | "read-write-switches" => {
            ("Order of requests, all files", access::order_plot(report)?)
        }
        "repeated-reads" | "read-by-many" | "read-modify-write" => {
            ("Bytes by interface, all files", access::bytes_plot(report))
        }
        "frequent-fsync" => (
            "Writes and syncs, all files",
            access::calls_plot(report, &["write", "sync"]),
        ),
        "stdio-bulk" => (
            "Calls by interface",
            access::calls_plot(report, &["read", "write"]),
        ),
        "metadata-time" | "stat-storm" | "repeated-opens" | "many-small-files" | "import-storm"
        | "file-per-process" | "waiting-opens" => (
            "Calls, all files",
            access::calls_plot(report, &["read", "write", "open", "stat", "seek"]),
        ),
        "library-time" => ("", time::by_interface(report)),
        "independent-reads" | "independent-writes" => {
            ("MPI-IO requests", access::collective_plot(report)?)
        }
        "straggler-shared-file"
        | "straggler-ranks"
        | "uneven-bytes"
        | "rank-0-io"
        | "slow-target" => {
            if plots.ranks.len() < 2 {
                return None;
            }
            (
                "Seconds in I/O by rank; the line is the mean",
                ranks::plot(report, &plots.ranks),
            )
        }
        "idle-tail" | "ranks-take-turns" | "write-bursts" => (
            "I/O over the run",
            over_time::plot(report, plots.over_time.as_ref()?),
        ),
        _ => return None,
    };
    Some(picture)
}
