//! How files were accessed: calls, order of requests, kinds of files, places.

use super::{Drawn, figure, ranks_word, row, row_bar, value};
use crate::Report;
use crate::account::Moved;
use crate::html::units::{bytes, count, number, seconds};
use crate::model::{Job, Sharing};
use crate::plots::{Place, Plots};
use crate::sentences::is_unknown;
use crate::text::shorten;
use maud::{Markup, html};

/// The section below the findings.
pub(in crate::html) fn section(report: &Report, plots: &Plots) -> Markup {
    if report.job.layers.is_empty() || is_unknown(report) {
        return html! {};
    }
    html! {
        section aria-labelledby="access" {
            h2 #access { "How files were accessed" }
            div .pictures {
                @if plots.ranks.len() > 1 { (operations(report)) }
                (order(report))
                (classes(plots))
                (sharing(report))
                (places(&report.job, "Directories", "/plots/directories", &plots.directories))
                @if plots.mounts_are_told() {
                    (places(&report.job, "Mount points", "/plots/mounts", &plots.mounts))
                }
                @if plots.file_systems_are_told() {
                    (places(&report.job, "File systems", "/plots/file_systems", &plots.file_systems))
                }
                (places(&report.job, "Storage targets", "/plots/targets", &plots.targets))
            }
        }
    }
}

/// One bar of a list: its name, its value, where that is in the JSON, and how it is filled.
struct Line {
    name: String,
    pointer: String,
    value: u64,
    fill: &'static str,
}

/// Bars of counts, all on the scale of the largest.
fn lines(all: &[Line]) -> Markup {
    let most = all.iter().map(|line| line.value).max().unwrap_or(0);
    let scale = 100.0 / most.max(1) as f64;
    html! { @for one in all { (line(one, scale)) } }
}

/// One of these bars, `scale` percent long for each unit.
fn line(line: &Line, scale: f64) -> Markup {
    let title = format!("{}: {}", line.name, number(line.value));
    let drawn = Drawn {
        pointer: &line.pointer,
        value: line.value as f64,
        title: &title,
    };
    row(
        &html! { (line.name) },
        &row_bar(
            &title,
            scale,
            &drawn.along(line.fill, 0.0, (1.0, 12.0), scale).0,
        ),
        &value(&line.pointer, line.value, &number(line.value)),
    )
}

/// How often each kind of call was made, by interface.
pub(super) fn operations(report: &Report) -> Markup {
    let says = html! { "how often, by interface" };
    let all: Vec<Line> = (0..report.job.layers.len())
        .flat_map(|at| {
            calls(
                report,
                at,
                &["read", "write", "open", "stat", "seek", "sync", "mmap"],
            )
        })
        .collect();
    figure("", "Calls", &says, &lines(&all))
}

/// The calls of some kinds at one interface, without those that never happened.
fn calls(report: &Report, at: usize, kinds: &[&str]) -> Vec<Line> {
    let layer = &report.job.layers[at];
    let total = &report.account.totals[at];
    let all = [
        ("read", "read/ops", total.read.ops, "fill-read"),
        ("write", "write/ops", total.write.ops, "fill-write"),
        ("open", "opens", total.opens, "fill-meta"),
        ("stat", "stats", total.stats, "fill-meta"),
        ("seek", "seeks", total.seeks, "fill-meta"),
        ("sync", "syncs", total.syncs, "fill-write"),
        ("mmap", "mmaps", total.mmaps, "fill-read"),
    ];
    all.into_iter()
        .filter(|(kind, _, n, _)| kinds.contains(kind) && *n > 0)
        .map(|(kind, field, n, fill)| Line {
            name: format!("{} {kind}", layer.interface.name()),
            pointer: format!("/interfaces/{at}/{field}"),
            value: n,
            fill,
        })
        .collect()
}

/// Calls of some kinds at all interfaces, as bars alone.
pub(super) fn calls_plot(report: &Report, kinds: &[&str]) -> Markup {
    let all = (0..report.job.layers.len()).flat_map(|at| calls(report, at, kinds));
    lines(&all.collect::<Vec<_>>())
}

/// Requests behind, or right behind, the one before.
fn order(report: &Report) -> Markup {
    let says = html! {
        "sequential: somewhere behind the request before; consecutive: right behind it; off the block: not at a multiple of the file's block"
    };
    let picture = order_plot(report);
    html! { @if let Some(picture) = picture { (figure("wide-text", "Order of requests", &says, &picture)) } }
}

/// The bars of the order of requests; `None` if no interface counts it.
pub(super) fn order_plot(report: &Report) -> Option<Markup> {
    let mut layers = report.job.layers.iter().zip(&report.account.totals);
    let at = layers.position(|(layer, total)| layer.interface.has_pattern() && total.ops() > 0)?;
    let total = &report.account.totals[at];
    let mut all = Vec::new();
    for (way, fill, flow) in [
        ("read", "fill-read", &total.read),
        ("write", "fill-write", &total.write),
    ] {
        if flow.ops == 0 {
            continue;
        }
        for (name, field, n) in [
            ("all", "ops", flow.ops),
            ("sequential", "sequential", flow.sequential),
            ("consecutive", "consecutive", flow.consecutive),
        ] {
            all.push(Line {
                name: format!("{way}s, {name}"),
                pointer: format!("/interfaces/{at}/{way}/{field}"),
                value: n,
                fill,
            });
        }
    }
    for (name, field, n) in [
        ("off the block", "misaligned", total.misaligned),
        ("read/write switches", "switches", total.switches),
    ] {
        all.push(Line {
            name: name.to_owned(),
            pointer: format!("/interfaces/{at}/{field}"),
            value: n,
            fill: "fill-time",
        });
    }
    Some(lines(&all))
}

/// Independent and collective requests of MPI-IO.
pub(super) fn collective_plot(report: &Report) -> Option<Markup> {
    let at = report
        .job
        .layers
        .iter()
        .position(|layer| layer.interface == crate::model::Interface::MpiIo)?;
    let total = &report.account.totals[at];
    let mut all = Vec::new();
    for (way, fill, flow) in [
        ("read", "fill-read", &total.read),
        ("write", "fill-write", &total.write),
    ] {
        for (name, n) in [
            ("independent", flow.independent),
            ("collective", flow.collective),
        ] {
            if flow.ops > 0 {
                all.push(Line {
                    name: format!("{name} {way}s"),
                    pointer: format!("/interfaces/{at}/{way}/{name}"),
                    value: n,
                    fill,
                });
            }
        }
    }
    Some(lines(&all))
}

/// Bytes written at each interface: more below than above is amplification.
pub(super) fn bytes_plot(report: &Report) -> Markup {
    let most = report.account.totals.iter();
    let most = most
        .map(|total| total.read.bytes.max(total.write.bytes))
        .max()
        .unwrap_or(0);
    let scale = 100.0 / most.max(1) as f64;
    html! {
        @for (at, layer) in report.job.layers.iter().enumerate().rev() {
            @let total = &report.account.totals[at];
            @for (way, fill, n) in [("read", "fill-read", total.read.bytes), ("write", "fill-write", total.write.bytes)] {
                @if n > 0 {
                    @let pointer = format!("/interfaces/{at}/{way}/bytes");
                    @let title = format!("{} {way}: {}", layer.interface.name(), bytes(n));
                    @let drawn = Drawn { pointer: &pointer, value: n as f64, title: &title };
                    (row(&html! { (layer.interface.name()) " " (way) },
                        &row_bar(&title, scale, &drawn.along(fill, 0.0, (1.0, 12.0), scale).0),
                        &value(&pointer, n, &bytes(n))))
                }
            }
        }
    }
}

fn classes(plots: &Plots) -> Markup {
    let most = plots
        .file_classes
        .iter()
        .map(|one| one.files)
        .max()
        .unwrap_or(0);
    let scale = 100.0 / most.max(1) as f64;
    let says = html! { "files by what was done with their data, with mean and largest size" };
    let picture = html! {
        @for (at, one) in plots.file_classes.iter().enumerate() {
            @if one.files > 0 {
                @let pointer = format!("/plots/file_classes/{at}/files");
                @let title = format!("{}: {}", one.class, count(one.files, "file", "files"));
                @let fill = match at { 0 => "fill-read", 1 => "fill-write", 2 => "fill-time", _ => "fill-other" };
                @let drawn = Drawn { pointer: &pointer, value: one.files as f64, title: &title };
                (row(&html! { (one.class) }, &row_bar(&title, scale, &drawn.along(fill, 0.0, (1.0, 12.0), scale).0), &html! {
                    (value(&pointer, one.files, &number(one.files)))
                    @if one.largest_bytes > 0 {
                        span .hint { "; " (bytes(one.bytes / one.files)) ", "
                            (value(&format!("/plots/file_classes/{at}/largest_bytes"), one.largest_bytes, &bytes(one.largest_bytes))) }
                    }
                }))
            }
        }
    };
    html! { @if most > 0 { (figure("wide-numbers", "Kinds of files", &says, &picture)) } }
}

/// What the classes of sharing mean.
pub(in crate::html) fn sharing_text(job: &Job) -> String {
    job.say("Unique: one rank only. Shared: all ranks. Partly shared: some.")
}

/// Files and bytes by how many ranks touch a file; nothing for a job of one process.
fn sharing(report: &Report) -> Markup {
    let all = &report.account.sharing;
    let most = all.iter().map(|(_, sums)| sums.files).max().unwrap_or(0);
    if report.job.ranks < 2 || most == 0 {
        return html! {};
    }
    let of_files = 100.0 / most as f64;
    let most_bytes = all.iter().map(|(_, sums)| sums.bytes()).max().unwrap_or(0);
    let of_bytes = 100.0 / most_bytes.max(1) as f64;
    let picture = html! {
        p .bar-head { "Files" }
        @for (at, (class, sums)) in all.iter().enumerate() {
            (line(&Line {
                name: class.name().to_owned(),
                pointer: format!("/sharing/{at}/files"),
                value: sums.files,
                fill: "fill-time",
            }, of_files))
        }
        @if most_bytes > 0 {
            p .bar-head { "Bytes read, written" }
            @for (at, (class, sums)) in all.iter().enumerate() { (shared_bytes(at, *class, sums, of_bytes)) }
        }
    };
    let says = html! { (sharing_text(&report.job)) };
    figure("wide-numbers wide-text", "Sharing", &says, &picture)
}

/// Reads and writes of a class of sharing, one behind the other.
fn shared_bytes(at: usize, class: Sharing, sums: &Moved, scale: f64) -> Markup {
    let ways = [
        ("read", "fill-read", sums.bytes_read),
        ("written", "fill-write", sums.bytes_written),
    ];
    let says = format!(
        "{}: read {}, written {}",
        class.name(),
        bytes(sums.bytes_read),
        bytes(sums.bytes_written)
    );
    let pointer = |way: &str| format!("/sharing/{at}/bytes_{way}");
    let mut x = 0.0;
    let bars = ways.map(|(way, fill, n)| {
        let drawn = Drawn {
            pointer: &pointer(way),
            value: n as f64,
            title: &says,
        };
        let (bar, width) = drawn.along(fill, x, (1.0, 12.0), scale);
        x += width;
        bar
    });
    let numbers = html! {
        @for (i, (way, _, n)) in ways.into_iter().enumerate() {
            @if i > 0 { ", " }
            (value(&pointer(way), n, &bytes(n)))
        }
    };
    row(
        &html! { (class.name()) },
        &row_bar(&says, scale, &html! { @for bar in bars { (bar) } }),
        &numbers,
    )
}

fn places(job: &Job, title: &str, pointer: &str, places: &[Place]) -> Markup {
    let most = places.iter().map(|one| one.seconds).fold(0.0, f64::max);
    let scale = 100.0 / most.max(f64::MIN_POSITIVE);
    let says = html! { "seconds of all " (ranks_word(job)) " together; bytes; files" };
    let picture = html! {
        @for (at, one) in places.iter().enumerate() {
            @let of = format!("{pointer}/{at}/seconds");
            @let tells = format!("{}: {}, read {}, wrote {}, {}", one.name, seconds(one.seconds), bytes(one.bytes_read),
                bytes(one.bytes_written), count(one.files, "file", "files"));
            @let drawn = Drawn { pointer: &of, value: one.seconds, title: &tells };
            (row(&html! {
                    span .name title=(one.name) { (shorten(&one.name, 40)) }
                    @if let Some(kind) = &one.file_system { " (" (kind) ")" }
                },
                &row_bar(&tells, scale, &drawn.along("fill-time", 0.0, (1.0, 12.0), scale).0), &html! {
                (value(&of, one.seconds, &seconds(one.seconds)))
                span .hint { "; " (bytes(one.bytes_read + one.bytes_written)) "; "
                    (value(&format!("{pointer}/{at}/files"), one.files, &number(one.files))) }
            }))
        }
    };
    html! { @if places.len() > 1 && most > 0.0 { (figure("wide-labels wide-numbers", title, &says, &picture)) } }
}
