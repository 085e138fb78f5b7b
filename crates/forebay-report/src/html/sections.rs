//! The parts of the page that need no script: all but the drawings and the table of all files.

use super::pictures::{self, ranks_word, value};
use super::units::{self, bytes, in_one_piece, number, percent, share, unbroken};
use crate::Report;
use crate::account::{TimeSplit, split_of};
use crate::findings::{Finding, Severity};
use crate::model::{BUCKET_NAMES, Interface, Job, Layer};
use crate::plots::Plots;
use crate::sentences::{coverage_text, fetched_text, is_unknown, nothing_found, waiting_writes};
use crate::terminal::{least_rate, while_in_io};
use crate::text::shorten;
use maud::{Markup, html};

/// Files in the table of slow ones.
const SLOW_FILES: usize = 10;
/// Characters of the command in the heading; the whole of a longer one is below it.
const COMMAND: usize = 160;
/// Findings that are open at the start.
const OPEN_FINDINGS: usize = 3;

/// The head of the page: what ran.
pub(super) fn head(report: &Report) -> Markup {
    let job = &report.job;
    let logs = match job.logs.as_slice() {
        [log] => format!("{} (format {})", log.name, log.version),
        logs => format!("{} logs of this job, joined", logs.len()),
    };
    let nodes = job
        .nodes
        .map_or("not in the log".to_owned(), |n| number(n.into()));
    let run = if job.run_seconds_rounded {
        format!("{} (whole seconds)", units::seconds(job.run_seconds))
    } else {
        units::seconds(job.run_seconds)
    };
    html! {
        h1 { "I/O report: " code { @if job.exe.is_empty() { "(no command in the log)" } @else { (shorten(&job.exe, COMMAND)) } } }
        @if job.exe.chars().nth(COMMAND).is_some() {
            details .command { summary { "The whole command" } code { (job.exe) } }
        }
        dl .facts {
            (fact("Job", &job.job_id.to_string()))
            (fact("Processes", &job.all_text()))
            (fact("Nodes", &nodes))
            (fact("Start", &units::date(job.start)))
            (fact("Run time", &run))
            (fact("User id", &job.uid.to_string()))
            @if let Some(exit) = job.metadata.get("exit") { (fact("Ended", exit)) }
            (fact("Log", &logs))
        }
    }
}

fn fact(name: &str, text: &str) -> Markup {
    html! { div { dt { (name) } dd { (text) } } }
}

/// The four figures that answer most questions.
pub(super) fn cards(report: &Report) -> Markup {
    if is_unknown(report) {
        return unknown_cards(report);
    }
    let (job, account) = (&report.job, &report.account);
    let at_least = if job.layers.iter().any(|layer| layer.is_partial) {
        "at least "
    } else {
        ""
    };
    let who = job.who();
    html! {
        div .cards {
            section .card {
                h3 { "Moved" }
                div .figure { (at_least) (bytes(account.moved.bytes())) }
                p { "read " (value("/moved/bytes_read", account.moved.bytes_read, &bytes(account.moved.bytes_read)))
                    ", wrote " (value("/moved/bytes_written", account.moved.bytes_written, &bytes(account.moved.bytes_written)))
                    ", " (value("/moved/files", account.moved.files, &number(account.moved.files)))
                    (if account.moved.files == 1 { "\u{a0}file" } else { "\u{a0}files" })
                    @if account.moved.directories > 0 {
                        " and " (value("/moved/directories", account.moved.directories, &number(account.moved.directories)))
                        (if account.moved.directories == 1 { "\u{a0}directory" } else { "\u{a0}directories" })
                    } }
            }
            section .card {
                h3 { "Speed" }
                div .figure {
                    @if let Some(rate) = account.mib_per_second() { (least_rate(report)) (value("/mib_per_second", rate, &mib(rate))) "\u{a0}MiB/s" } @else { "-" }
                }
                p { (unbroken(&while_in_io(report))) }
                @if let Some(rate) = account.mib_per_second_per_node(job) {
                    p { (value("/mib_per_second_per_node", rate, &mib(rate))) "\u{a0}MiB/s per compute node" }
                }
            }
            section .card {
                h3 { "Time of a mean " (who) }
                div .figure { (percent(share(account.time.io(), job.run_seconds))) " in I/O" }
                p {
                    (split_text(&account.time, job.run_seconds))
                    @if let Some(share) = waiting_writes(report) { "; of write\u{a0}" (percent(share)) " in syncs" }
                }
            }
            section .card {
                h3 { "Slowest " (who) }
                @if let Some(slowest) = account.slowest {
                    div .figure { (value("/slowest_rank/seconds", slowest.seconds, &units::seconds(slowest.seconds))) }
                    p {
                        @if job.serial_steps() == 0 || job.is_rank(slowest.rank) {
                            @if job.is_rank(slowest.rank) { "rank " } @else { "process " }
                            (value("/slowest_rank/rank", slowest.rank, &slowest.rank.to_string()))
                        } @else { (job.name_of(slowest.rank)) }
                        ", " (percent(account.slowest_share(job))) " of the run time" }
                } @else {
                    div .figure { "-" }
                    p { "no time was measured" }
                }
            }
        }
    }
}

/// The same for a job of which nothing was recorded: no figure of it is known, not even that it is 0.
fn unknown_cards(report: &Report) -> Markup {
    let who = report.job.who();
    let mean = format!("Time of a mean {who}");
    let slowest = format!("Slowest {who}");
    html! {
        div .cards {
            @for name in ["Moved", "Speed", &mean, &slowest] {
                section .card {
                    h3 { (name) }
                    div .figure { "unknown" }
                    p { "nothing was recorded" }
                }
            }
        }
    }
}

fn mib(rate: f64) -> String {
    if rate >= 1000.0 {
        number(rate.round() as u64)
    } else {
        format!("{rate:.1}")
    }
}

fn split_text(time: &TimeSplit, run: f64) -> String {
    let of = |seconds: f64| percent(share(seconds, run));
    format!(
        "read\u{a0}{}, write\u{a0}{}, metadata\u{a0}{}, else\u{a0}{}",
        of(time.read),
        of(time.write),
        of(time.metadata),
        of(time.other)
    )
}

/// One bar, whose whole length is the run time.
fn time_bar(time: &TimeSplit, run: f64) -> Markup {
    let whole = run.max(time.io()).max(f64::MIN_POSITIVE);
    let mut at = 0.0;
    let parts = [
        ("fill-read", time.read),
        ("fill-write", time.write),
        ("fill-meta", time.metadata),
        ("fill-other", time.other),
    ]
    .map(|(fill, seconds)| {
        let width = seconds / whole * 240.0;
        let x = at;
        at += width;
        (fill, x, width)
    });
    html! {
        svg .bar width="100%" height="16" viewBox="0 0 240 16" preserveAspectRatio="none" role="img"
            aria-label=(split_text(time, run)) {
            @for (fill, x, width) in parts {
                @if width > 0.0 { rect class=(fill) x=(format!("{x:.2}")) y="1" width=(format!("{width:.2}")) height="14" {} }
            }
        }
    }
}

/// Notices on what the numbers leave out.
pub(super) fn notices(report: &Report) -> Markup {
    html! {
        @for finding in report.findings.iter().filter(|one| one.severity == Severity::Data) {
            section .notice aria-label="About the data" {
                p { strong { (unbroken(&finding.title)) } @for evidence in &finding.evidence { "; " (unbroken(evidence)) } ". " (unbroken(&finding.advice)) }
            }
        }
    }
}

/// A text that begins a paragraph.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// All findings, the most costly ones open.
pub(super) fn findings(report: &Report, plots: &Plots) -> Markup {
    let timed = report.timed();
    let (costly, notes): (Vec<&Finding>, Vec<&Finding>) = timed
        .into_iter()
        .partition(|one| one.severity != Severity::Note);
    html! {
        section aria-labelledby="findings" {
            h2 #findings { "Findings" }
            @if costly.is_empty() {
                p { (capitalised(&unbroken(&nothing_found(report)))) }
            } @else {
                @if let Some(unexplained) = &report.unexplained { p { (capitalised(&unbroken(unexplained))) } }
                p .hint { "By seconds lost: how much quicker the slowest " (report.job.who()) " would have been, estimated from the job's own "
                    "times. Estimates overlap and don't add up. Select one for evidence and advice." }
                ol .findings { @for (i, one) in costly.iter().enumerate() { (finding(report, plots, one, i < OPEN_FINDINGS)) } }
            }
            @if !notes.is_empty() {
                details {
                    summary { (units::count(notes.len() as u64, "pattern", "patterns")) " that cost this job next to nothing" }
                    ol .findings { @for one in notes { (finding(report, plots, one, false)) } }
                }
            }
        }
    }
}

fn finding(report: &Report, plots: &Plots, one: &Finding, is_open: bool) -> Markup {
    html! {
        li {
            details .finding .(one.severity.name()) open[is_open] {
                summary {
                    span .level { (one.severity.name()) }
                    span .lost { (unbroken(&one.cost_text(&report.job))) }
                    span { (unbroken(&one.title)) }
                }
                div .body {
                    p .advice { (unbroken(&one.advice)) }
                    (pictures::of_finding(report, plots, one))
                    @if let Some(setting) = &one.setting { p { "With Forebay: " code { (setting) } } }
                    @if !one.evidence.is_empty() { ul { @for evidence in &one.evidence { li { (unbroken(evidence)) } } } }
                    @if !one.files.is_empty() {
                        div .scroll { table {
                            caption { "Most costly files" }
                            thead { tr { th .text scope="col" { "file" } th .text scope="col" { "what it shows" } } }
                            tbody { @for file in &one.files { tr { td .name { (file.name) } td .text { (unbroken(&file.detail)) } } } }
                        } }
                    }
                    p .estimate { "Estimate (" (one.confidence.name()) " confidence): " (unbroken(&one.estimate)) ". Rule: " code { (one.code) } "." }
                }
            }
        }
    }
}

/// One row per interface.
pub(super) fn interfaces(report: &Report) -> Markup {
    let job = &report.job;
    html! {
        section aria-labelledby="interfaces" {
            h2 #interfaces { "Interfaces" }
            p .hint { "What passes through MPI-IO, HDF5 or PnetCDF passes through POSIX again, so rows don't add up. "
                "MiB/s by slowest is Darshan's agg_perf_by_slowest: bytes over the time of the slowest " (job.who()) "." }
            @if job.layers.is_empty() { p { "No interface was used, or none was recorded." } } @else {
                div .scroll { table .wide {
                    caption { "Operations, bytes, and seconds of a mean " (job.who()) " by interface" }
                    thead { tr {
                        th .text scope="col" { "interface" }
                        @for name in ["files", "opens", "reads", "read", "writes", "written", "seconds reading", "writing", "metadata", "MiB/s by slowest"] {
                            th scope="col" { (name) }
                        }
                        th .text scope="col" { "share of the run time" }
                    } }
                    tbody { @for (at, layer) in job.layers.iter().enumerate() { (interface_row(report, at, layer)) } }
                } }
                @if job.layers.iter().any(|layer| layer.is_partial) {
                    p { "* incomplete: the recorder ran out of memory, numbers are lower bounds" }
                }
            }
        }
    }
}

fn interface_row(report: &Report, at: usize, layer: &Layer) -> Markup {
    let (job, total) = (&report.job, &report.account.totals[at]);
    let split = split_of(job, layer.interface);
    let seconds = |value: f64| {
        if value >= 0.000_5 {
            format!("{value:.3}")
        } else if value > 0.0 {
            "< 0.001".to_owned()
        } else {
            "0".to_owned()
        }
    };
    let cell = |field: &str, n: u64, text: fn(u64) -> String| {
        value(&format!("/interfaces/{at}/{field}"), n, &text(n))
    };
    html! {
        tr {
            th .text scope="row" { (layer.interface.name()) @if layer.is_partial { "*" } }
            td { (cell("files", layer.uses.len() as u64, number)) }
            td { (cell("opens", total.opens, number)) }
            td { (cell("read/ops", total.read.ops, number)) }
            td { (cell("read/bytes", total.read.bytes, bytes)) }
            td { (cell("write/ops", total.write.ops, number)) }
            td { (cell("write/bytes", total.write.bytes, bytes)) }
            td { (seconds(split.read)) }
            td { (seconds(split.write)) }
            td { (seconds(split.metadata)) }
            td { @if let Some(rate) = layer.by_slowest { (format!("{:.2}", rate.mib_per_second)) } @else { "-" } }
            td .text { (time_bar(&split, job.run_seconds)) }
        }
    }
}

/// Histograms of request sizes and the most common sizes.
pub(super) fn sizes(report: &Report) -> Markup {
    let all = report.account.totals.iter().enumerate();
    let counted: Vec<usize> = all
        .filter(|(_, total)| pictures::has_sizes(total))
        .map(|(at, _)| at)
        .collect();
    html! {
        section aria-labelledby="sizes" {
            h2 #sizes { "Access sizes" }
            p .hint { "How many requests had which size. Sizes on a border count below it: exactly 1\u{a0}MiB is in 100\u{a0}KiB-1\u{a0}MiB." }
            @if counted.is_empty() { p { "No interface in this log counts sizes of requests." } }
            div .columns { @for at in counted { (histogram(report, at)) } }
        }
    }
}

fn histogram(report: &Report, at: usize) -> Markup {
    let (layer, total) = (&report.job.layers[at], &report.account.totals[at]);
    let cell = |way: &str, bucket: usize, n: u64| {
        value(
            &format!("/interfaces/{at}/{way}/sizes/{bucket}"),
            n,
            &number(n),
        )
    };
    html! {
        div {
            h3 { (layer.interface.name()) " requests by size" }
            (pictures::histogram(report, at))
            details {
                summary { "The same in numbers" }
                div .scroll { table {
                    thead { tr { th .text scope="col" { "size" } th scope="col" { "reads" } th scope="col" { "writes" } } }
                    tbody { @for (bucket, name) in BUCKET_NAMES.iter().enumerate() {
                        @let (reads, writes) = (total.read.sizes[bucket], total.write.sizes[bucket]);
                        @if reads + writes > 0 { tr {
                            th .text scope="row" { (in_one_piece(name)) }
                            td { (cell("read", bucket, reads)) }
                            td { (cell("write", bucket, writes)) }
                        } }
                    } }
                } }
            }
            @if !total.common.is_empty() {
                div .scroll { table {
                    caption { "Most common sizes (" (layer.interface.name()) ", reads and writes)" }
                    thead { tr { th scope="col" { "bytes" } th scope="col" { "size" } th scope="col" { "times, at least" } } }
                    tbody { @for (size, count) in total.common.iter().take(4) { tr {
                        td { (number(*size)) } td { (bytes(*size)) } td { (number(*count)) }
                    } } }
                } }
            }
        }
    }
}

/// Files and bytes by class.
pub(super) fn sharing(report: &Report) -> Markup {
    let all: u64 = report
        .account
        .sharing
        .iter()
        .map(|(_, moved)| moved.bytes())
        .sum();
    html! {
        section aria-labelledby="sharing" {
            h2 #sharing { "Sharing" }
            p .hint { (pictures::sharing_text(&report.job)) " Counted at the interface that the program "
                "calls" @if report.job.layer(Interface::MpiIo).is_some() { ", so a file written by all ranks through MPI-IO is "
                "shared even if one aggregator does the writing" } "." }
            @if is_unknown(report) { p { "Unknown: nothing was recorded." } } @else { div .scroll { table {
                caption { "Files and bytes by how many " (ranks_word(&report.job)) " touch a file" }
                thead { tr { th .text scope="col" { "class" } th scope="col" { "files" } th scope="col" { "read" } th scope="col" { "written" } th scope="col" { "share of bytes" } } }
                tbody { @for (class, moved) in &report.account.sharing { tr {
                    th .text scope="row" { (class.name()) }
                    td { (number(moved.files)) }
                    td { (bytes(moved.bytes_read)) }
                    td { (bytes(moved.bytes_written)) }
                    td { (percent(share(moved.bytes() as f64, all as f64))) }
                } } }
            } } }
        }
    }
}

/// The files that took longest.
pub(super) fn slowest(report: &Report) -> Markup {
    let files = report.slowest_files(SLOW_FILES);
    let who = report.job.who();
    html! {
        section aria-labelledby="slowest" {
            h2 #slowest { "Slowest files" }
            @if files.is_empty() { p { "No time was measured on any file." } } @else {
                div .scroll { table .wide {
                    caption { "By the time of the slowest " (who) " on the file" }
                    thead { tr {
                        th .text scope="col" { "file" } th .text scope="col" { "interface" } th scope="col" { "slowest" }
                        th .text scope="col" { (who) } th scope="col" { "mean " (who) } th scope="col" { "read" } th scope="col" { "written" }
                        th scope="col" { (ranks_word(&report.job)) }
                    } }
                    tbody { @for (layer, one) in files {
                        @let slowest = one.slowest().unwrap_or_default();
                        tr {
                            td .name { (report.job.files[one.file].name) }
                            td .text { (layer.interface.name()) }
                            td { (units::seconds(slowest.seconds)) }
                            td .text { (in_one_piece(&report.job.name_of(slowest.rank))) }
                            td { (units::seconds(one.total.seconds() / f64::from(one.ranks.max(1)))) }
                            td { (bytes(one.total.read.bytes)) }
                            td { (bytes(one.total.write.bytes)) }
                            td { (number(one.ranks.into())) }
                        }
                    } }
                } }
            }
        }
    }
}

/// The frame of the table of all files; a script fills it.
pub(super) fn files(remark: &str, job: &Job) -> Markup {
    let slowest = format!("slowest {}", job.who());
    let columns = [
        ("name", "file"),
        ("sharing", "sharing"),
        ("ranks", ranks_word(job)),
        ("read", "read"),
        ("written", "written"),
        ("ops", "requests"),
        ("opens", "opens"),
        ("seconds", "time of the slowest"),
        ("slowest", &slowest),
    ];
    html! {
        section #files aria-labelledby="files-title" {
            h2 #files-title { "All files" }
            p .hint { (remark) " Bytes and requests at the lowest interface, time at the highest. Select a name for all counters." }
            div .controls {
                label { "Search names " input #file-search type="search" autocomplete="off" spellcheck="false" aria-controls="file-rows"; }
                span { button #file-previous type="button" { "Previous page" } " " button #file-next type="button" { "Next page" } }
                output #file-status aria-live="polite" {}
            }
            div .scroll { table .wide #file-table {
                caption { "Files; the headings sort" }
                thead { tr { @for (key, name) in columns {
                    th scope="col" .name[key == "name"] data-key=(key) aria-sort="none" { button type="button" { (name) } }
                } } }
                tbody #file-rows {}
            } }
            noscript { p { "This table needs scripts; the slowest files are above." } }
        }
    }
}

/// What the buttons of the trace view do, and what they are called.
const ZOOM: [(&str, &str); 5] = [
    ("in", "enlarge"),
    ("out", "shrink"),
    ("earlier", "earlier"),
    ("later", "later"),
    ("all", "whole run"),
];

/// The frame of the trace view; a script draws it.
pub(super) fn trace(job: &Job) -> Markup {
    let who = job.who();
    html! {
        section aria-labelledby="trace" {
            h2 #trace { "Trace (DXT)" }
            p .hint { "Single requests. In the view by " (who) " the upper half of a band is for reads, the lower half, lighter, for "
                "writes; in the view by offset writes are lighter, with an outline." }
            p .hint .screen-only { "Drag over a part of the run to enlarge it. By keyboard, on the picture: + and - enlarge and shrink, "
                "arrows move, Home and End go to the ends, 0 shows the whole run." }
            div #trace-view {
                div .controls {
                    label { "Interface " select .trace {} }
                    label { "View " select .view { option value="rank" { (who) " over time" } option value="offset" { "offset over time" } } }
                    label { "File " select .file {} }
                    span role="group" aria-label="Part of the run" {
                        @for (act, name) in ZOOM { button type="button" data-zoom=(act) { (name) } " " }
                    }
                }
                figure {
                    canvas tabindex="0" role="img" aria-label="Traced requests over time; plus and minus enlarge and shrink, arrows move" {}
                    figcaption .rule {}
                }
                output aria-live="polite" {}
            }
        }
    }
}

/// Where the numbers come from.
pub(super) fn about(report: &Report) -> Markup {
    let job = &report.job;
    html! {
        section aria-labelledby="about" {
            h2 #about { "About this report" }
            div .columns {
                div {
                    h3 { "How to read it" }
                    p { "Times are those that calls took, as the recorder measured them; background write-back is not in them. A "
                        "mean " (job.who()) " is the sum over " (ranks_word(job)) " divided by their number."
                        @if job.rank_count() > 0 { " Of files that all ranks share, the log keeps sums and the fastest and slowest rank only." } }
                    p { "Seconds lost are estimates with a stated formula; they say where to look first, not what a change will bring." }
                    @if let Some(coverage) = job.coverage {
                        p { "Coverage: " (unbroken(&coverage_text(&coverage))) "." }
                        @if let Some(fetched) = coverage.fetched { p { "Storage " (unbroken(&fetched_text(&fetched))) "." } }
                    } @else {
                        p { "Coverage is unknown: this log does not say how many bytes the kernel counted. mmap, io_uring and direct "
                            "system calls may be missing." }
                    }
                    @if !job.hosts.is_empty() { p { "Hosts: " (job.hosts.iter().take(50).cloned().collect::<Vec<_>>().join(", "))
                        @if job.hosts.len() > 50 { " and " (job.hosts.len() - 50) " more" } } }
                }
                div {
                    @if job.modules.is_empty() { p { "The log holds no module." } } @else { div .scroll { table {
                        caption { "Modules in the log" }
                        thead { tr { th .text scope="col" { "module" } th scope="col" { "record version" } th .text scope="col" { "remark" } } }
                        tbody { @for module in &job.modules { tr {
                            td .text { (module.name) } td { (module.version) }
                            td .text { @if module.is_partial { "incomplete" } @else if module.is_unknown { "not understood, left out" } @else { "complete" } }
                        } } }
                    } } }
                    @if !job.metadata.is_empty() {
                        details { summary { "What the logger noted" }
                            div .scroll { table { tbody { @for (key, value) in &job.metadata {
                                tr { th .text scope="row" { (key) } td .name { (value) } }
                            } } } }
                        }
                    }
                    @if job.logs.len() > 1 {
                        details { summary { (job.logs.len()) " logs" }
                            div .scroll { table {
                                thead { tr { th .text scope="col" { "log" } th scope="col" { "format" } th scope="col" { "first process" } } }
                                tbody { @for log in &job.logs { tr { td .name { (log.name) } td { (log.version) } td { (log.first_rank) } } } }
                            } }
                        }
                    }
                }
            }
        }
    }
}
