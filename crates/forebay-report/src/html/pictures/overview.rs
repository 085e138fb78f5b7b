//! The first screen: where the seconds of I/O went.

use super::{
    Drawn, access, canvas, figure, grid, grid_labels, labels_below, over_time, ranks, row, row_bar,
    scale, time, value,
};
use crate::Report;
use crate::html::units::{self, number, percent, seconds, share};
use crate::model::{BUCKET_NAMES, Counters};
use crate::plots::Plots;
use crate::sentences::is_unknown;
use crate::text::shorten;
use maud::{Markup, html};

/// Files in the picture of slow ones.
const SLOW_FILES: usize = 5;
/// Height of the columns of sizes, pixels.
const HEIGHT: f64 = 130.0;
/// Space above the highest column.
const TOP: f64 = 14.0;
/// The bounds between two buckets of sizes, as short as axes need them.
const BOUNDS: [&str; 9] = ["100", "1K", "10K", "100K", "1M", "4M", "10M", "100M", "1G"];

/// All pictures of the first screen.
pub(in crate::html) fn section(report: &Report, plots: &Plots) -> Markup {
    let nothing = if is_unknown(report) {
        Some("Unknown: nothing was recorded of this job's I/O, so there is nothing to draw.")
    } else if report.job.layers.is_empty() {
        Some("This log holds no I/O, so there is nothing to draw.")
    } else {
        None
    };
    html! {
        section aria-label="Pictures" #pictures {
            @if let Some(nothing) = nothing {
                p .nothing { (nothing) }
            } @else {
                ul .legend aria-label="Key of the pictures" {
                    @for (fill, name) in [("fill-read", "read"), ("fill-write", "write"),
                        ("fill-meta", "metadata (open, close, stat, seek)"), ("fill-other", "not in I/O")] {
                        li { svg width="22" height="12" aria-hidden="true" { rect class=(fill) width="22" height="12" {} } (name) }
                    }
                }
                div .pictures {
                    (over_time::picture(report, plots.over_time.as_ref()))
                    (time::picture(report))
                    (sizes(report))
                    @if plots.ranks.len() > 1 { (ranks::picture(report, &plots.ranks)) } @else { (access::operations(report)) }
                    (slowest_files(report))
                }
            }
        }
    }
}

/// The place of the lowest interface that had requests whose sizes were counted.
pub(super) fn interface_with_sizes(report: &Report) -> Option<usize> {
    report.account.totals.iter().position(has_sizes)
}

/// True if sizes of requests were counted.
pub(in crate::html) fn has_sizes(total: &Counters) -> bool {
    let mut sizes = total.read.sizes.iter().chain(&total.write.sizes);
    sizes.any(|n| *n > 0)
}

fn sizes(report: &Report) -> Markup {
    let title = "Sizes of requests in bytes";
    let Some(at) = interface_with_sizes(report) else {
        let says = html! { "No interface of this log counts sizes of requests." };
        return figure("", title, &says, &html! {});
    };
    let total = &report.account.totals[at];
    let small: u64 = total.read.sizes[..4]
        .iter()
        .chain(&total.write.sizes[..4])
        .sum();
    let all: u64 = total.read.sizes.iter().chain(&total.write.sizes).sum();
    let says = html! {
        (number(all)) " requests at " (report.job.layers[at].interface.name()) ", "
        (percent(share(small as f64, all as f64))) " of them up to 100\u{a0}KiB"
    };
    figure("", title, &says, &histogram(report, at))
}

/// Requests of one direction by size, and where they are in the JSON.
pub(super) struct Series<'a> {
    pub(super) pointer: &'a str,
    pub(super) way: &'static str,
    pub(super) fill: &'static str,
    pub(super) sizes: &'a [u64],
}

/// Requests by size at the interface that stands at `at` in the job.
pub(in crate::html) fn histogram(report: &Report, at: usize) -> Markup {
    let total = &report.account.totals[at];
    let pointers = ["read", "write"].map(|way| format!("/interfaces/{at}/{way}/sizes"));
    let series = [
        Series {
            pointer: &pointers[0],
            way: "read",
            fill: "fill-read",
            sizes: &total.read.sizes,
        },
        Series {
            pointer: &pointers[1],
            way: "write",
            fill: "fill-write",
            sizes: &total.write.sizes,
        },
    ];
    let says = format!(
        "Requests by size at {}, in bytes",
        report.job.layers[at].interface.name()
    );
    columns_by_size(&series, &says)
}

/// Columns of all series, those of one bucket side by side.
pub(super) fn columns_by_size(all: &[Series], says: &str) -> Markup {
    let counts = all.iter().flat_map(|series| series.sizes);
    let most = counts.copied().max().unwrap_or(0).max(1) as f64;
    let (base, pixels) = (TOP + HEIGHT, HEIGHT / most);
    // A bucket is a tenth of the width; a little space is left between buckets.
    let width = 8.6 / all.len().max(1) as f64;
    let labels: Vec<(f64, String)> = (1u8..)
        .zip(BOUNDS)
        .map(|(at, name)| (f64::from(at) * 10.0, name.to_owned()))
        .collect();
    let ticks = scale::counts(most, 3);
    let content = html! {
        (grid(&ticks, base, pixels))
        g data-side="height" data-scale=(pixels) {
            @for (n, series) in all.iter().enumerate() {
                @for (bucket, count) in series.sizes.iter().enumerate() {
                    (Drawn {
                        pointer: &format!("{}/{bucket}", series.pointer),
                        value: *count as f64,
                        title: &format!("{} of {}", count_of(*count, series.way), BUCKET_NAMES[bucket]),
                    }.upright(series.fill, (bucket as f64 * 10.0 + 0.7 + n as f64 * width, width - 0.2), base, pixels).0)
                }
            }
        }
        (grid_labels(&ticks, base, pixels))
        (labels_below(&labels, base + 14.0))
    };
    canvas(base + 18.0, says, &content)
}

/// `1 read`, `5 writes`.
fn count_of(n: u64, way: &str) -> String {
    units::count(n, way, &format!("{way}s"))
}

fn slowest_files(report: &Report) -> Markup {
    let files = report.slowest_files(SLOW_FILES);
    let who = report.job.who();
    let most = files.first().and_then(|(_, one)| one.slowest());
    let most = most.map_or(0.0, |one| one.seconds);
    if most <= 0.0 {
        let says = html! { "No time was measured on any file." };
        return figure("", "Slowest files", &says, &html! {});
    }
    let scale = 100.0 / most;
    let says = html! { "seconds of the slowest " (who) " on each" };
    let picture = html! {
        @for (at, (layer, one)) in files.iter().enumerate() {
            @let slowest = one.slowest().unwrap_or_default();
            @let name = &report.job.files[one.file].name;
            @let title = format!("{name}: {} {} at {}", report.job.name_of(slowest.rank), seconds(slowest.seconds), layer.interface.name());
            @let pointer = format!("/slowest_files/{at}/slowest/seconds");
            @let drawn = Drawn { pointer: &pointer, value: slowest.seconds, title: &title };
            (row(
                &html! { span .name title=(name) { (shorten(name, 42)) } },
                &row_bar(&title, scale, &drawn.along("fill-time", 0.0, (1.0, 12.0), scale).0),
                &value(&pointer, slowest.seconds, &seconds(slowest.seconds)),
            ))
        }
    };
    figure("wide-labels", "Slowest files", &says, &picture)
}
