//! The picture that proves a finding: the counters that its rule looked at.

use super::{Drawn, access, over_time, overview, ranks, row, row_bar, time, value};
use crate::Report;
use crate::findings::Finding;
use crate::html::units::{percent, seconds, share};
use crate::plots::Plots;
use crate::text::shorten;
use maud::{Markup, html};

/// What the finding costs as a part of the run, and what proves it.
pub(in crate::html) fn of_finding(report: &Report, plots: &Plots, one: &Finding) -> Markup {
    html! {
        div .evidence {
            (cost(report, one))
            @if let Some((says, picture)) = proof(report, plots, one) {
                p .bar-head { (says) }
                div .bars .(if needs_wide_labels(one) { "wide-labels" } else { "" }) { (picture) }
            }
        }
    }
}

/// Do the names of what it compares need a line of their own?
fn needs_wide_labels(one: &Finding) -> bool {
    let codes = [
        "waiting-opens",
        "fsync-bursts",
        "slow-mount",
        "lock-ping-pong",
    ];
    codes.contains(&one.code)
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

fn proof(report: &Report, plots: &Plots, one: &Finding) -> Option<(String, Markup)> {
    let all = report.findings.iter();
    let at = all.take_while(|other| !std::ptr::eq(*other, one)).count();
    if let Some(sizes) = &one.sizes {
        let (fill, way) = if one.code.contains("writes") {
            ("fill-write", "write")
        } else {
            ("fill-read", "read")
        };
        let says = match way {
            "write" => "Writes by size in bytes, of the files of this finding",
            _ => "Reads by size in bytes, of the files of this finding",
        };
        let pointer = format!("/findings/{at}/sizes");
        let series = overview::Series {
            pointer: &pointer,
            way,
            fill,
            sizes,
        };
        return Some((says.to_owned(), overview::columns_by_size(&[series], says)));
    }
    let picture = match one.code {
        "waiting-opens" => ("Seconds of opening each file", measured(one, at)),
        "fsync-bursts" => ("Seconds in fsync, at least", measured(one, at)),
        "slow-target" => (
            "Seconds of a file on each storage target",
            measured(one, at),
        ),
        "slow-node" => (
            "Seconds of a rank for the same work on each node",
            measured(one, at),
        ),
        "slow-mount" => (
            "Seconds of the same work on each mount point",
            measured(one, at),
        ),
        "lock-ping-pong" if one.measured.is_empty() => return None,
        "lock-ping-pong" => ("Seconds of a write", measured(one, at)),
        "random-reads"
        | "random-writes"
        | "misaligned-writes"
        | "read-write-switches"
        | "read-ahead" => ("Order of requests, all files", access::order_plot(report)?),
        "repeated-reads" | "read-by-many" | "read-modify-write" | "data-set-amplification" => {
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
        | "file-per-process" | "directory-walk" => (
            "Calls, all files",
            access::calls_plot(report, &["read", "write", "open", "stat", "seek"]),
        ),
        "library-time" | "data-set-time" => ("", time::by_interface(report)),
        "independent-reads" | "independent-writes" => {
            ("MPI-IO requests", access::collective_plot(report)?)
        }
        "late-ranks"
        | "straggler-shared-file"
        | "straggler-ranks"
        | "uneven-bytes"
        | "rank-0-io" => {
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
    Some((report.job.say(picture.0), picture.1))
}

/// The seconds that the finding compares.
fn measured(one: &Finding, at: usize) -> Markup {
    let most = one.measured.iter().map(|it| it.seconds).fold(0.0, f64::max);
    let scale = 100.0 / most.max(f64::MIN_POSITIVE);
    html! {
        @for (i, it) in one.measured.iter().enumerate() {
            @let pointer = format!("/findings/{at}/measured/{i}/seconds");
            @let title = format!("{}: {}", it.name, seconds(it.seconds));
            @let drawn = Drawn { pointer: &pointer, value: it.seconds, title: &title };
            (row(
                &html! { span .name title=(it.name) { (shorten(&it.name, 40)) } },
                &row_bar(&title, scale, &drawn.along("fill-time", 0.0, (1.0, 12.0), scale).0),
                &value(&pointer, it.seconds, &seconds(it.seconds)),
            ))
        }
    }
}
