//! Reads, writes and metadata by interval of the run, and which ranks were active.

use super::{Drawn, canvas, figure, grid, grid_labels, labels_below, percent, scale, short};
use crate::Report;
use crate::html::units::{self, bytes, seconds};
use crate::model::{Job, Timeline};
use crate::plots::OverTime;
use maud::{Markup, html};

/// Height of a row of columns, pixels.
const ROW: f64 = 52.0;
/// Height of the row of metadata, pixels.
const LOW_ROW: f64 = 30.0;
/// Space above a row, for its label.
const GAP: f64 = 19.0;
/// Height of the strip of ranks, pixels.
const STRIP: f64 = 42.0;
/// Most rows of the strip; more ranks share rows.
const STRIP_ROWS: usize = 14;
/// Shades of the strip; classes `heat-1` to `heat-8` fill them.
const SHADES: usize = 8;
/// Height of the labels of the axis, pixels.
const AXIS: f64 = 18.0;
/// Height of the strip's legend with the space above it, pixels.
const LEGEND: f64 = 17.0;
/// Where the shades of the legend begin, behind the text for the lightest one, pixels.
const LEGEND_LEFT: usize = 92;
/// Width of a shade in the legend, pixels.
const LEGEND_STEP: usize = 14;

/// The picture; nothing if the log has no times.
pub(super) fn picture(report: &Report, sums: Option<&OverTime>) -> Markup {
    let Some(sums) = sums else {
        let says = html! { "The log has no times of reads and writes." };
        return figure("wide-picture", "I/O over the run", &says, &html! {});
    };
    let says = html! {
        "by intervals of " (seconds(sums.interval_seconds))
        @if !sums.interfaces.is_empty() { ", at " (sums.interfaces.join(" and ")) }
        @if !sums.estimated.is_empty() { "; " (sums.estimated.join(" and ")) " estimated from first and last times of files" }
        @if largest(&sums.metadata_seconds) > 0.0 { "; metadata placed by when files were in use" }
        @if strip_lines(&report.job, sums).is_some() { "; each shade is twice the one before" }
        @if sums.bytes_read.len() < 3 { "; the log tells no finer times" }
    };
    figure(
        "wide-picture",
        "I/O over the run",
        &says,
        &plot(report, sums),
    )
}

/// The drawing alone.
pub(super) fn plot(report: &Report, sums: &OverTime) -> Markup {
    let n = sums.bytes_read.len();
    let most_bytes = largest(&sums.bytes_read).max(largest(&sums.bytes_written));
    let series = [
        ("fill-read", "read", "bytes_read", &sums.bytes_read),
        ("fill-write", "write", "bytes_written", &sums.bytes_written),
    ];
    let mut top = 0.0;
    let mut rows = Vec::new();
    for (fill, name, field, values) in series {
        let peak = largest(values);
        if peak <= 0.0 {
            continue;
        }
        // Reads and writes have one scale, so that their heights can be compared.
        let pixels = ROW / most_bytes;
        let rate = |amount: f64| units::rate(amount as u64, sums.interval_seconds);
        let label = format!("{name}, at most {}", rate(peak));
        let ticks: Vec<(f64, String)> = scale::rates(most_bytes / sums.interval_seconds, 2)
            .into_iter()
            .map(|(at, label)| (at * sums.interval_seconds, label))
            .collect();
        let title = |at: usize, amount: f64| {
            let when = interval(sums, at);
            format!("{when}: {name} {}, {}", bytes(amount as u64), rate(amount))
        };
        let place = (top + GAP + ROW, pixels);
        rows.push(columns(fill, field, values, place, &ticks, title));
        rows.push(html! { text .row-name x="100%" y=(short(top + 13.0)) { (label) } });
        top += GAP + ROW;
    }
    let peak = largest(&sums.metadata_seconds);
    if peak > 0.0 {
        let all: f64 = sums.metadata_seconds.iter().sum();
        let ticks = scale::seconds(peak, 1);
        let title = |at: usize, amount: f64| {
            format!("{}: metadata {}", interval(sums, at), seconds(amount))
        };
        let values = &sums.metadata_seconds;
        let place = (top + GAP + LOW_ROW, LOW_ROW / peak);
        let field = "metadata_seconds";
        rows.push(columns("fill-meta", field, values, place, &ticks, title));
        rows.push(html! { text .row-name x="100%" y=(short(top + 13.0)) {
        "metadata, " (seconds(all)) " in all" } });
        top += GAP + LOW_ROW;
    }
    // The legend of the strip stands below the axis.
    let mut below = 0.0;
    if let Some((lines, shown)) = strip_lines(&report.job, sums) {
        rows.push(strip(&lines, shown, &report.job, n, top));
        top += GAP + STRIP;
        below = LEGEND;
    }
    let end = report.job.run_seconds;
    let labels: Vec<(f64, String)> = std::iter::once((0.0, "0".to_owned()))
        .chain(
            scale::seconds(end, 6)
                .into_iter()
                .map(|(at, label)| (at / end * 100.0, label)),
        )
        .collect();
    let content = html! {
        @for row in rows { (row) }
        (labels_below(&labels, top + 14.0))
    };
    let says = format!(
        "Reads, writes and metadata over the run of {}",
        seconds(end)
    );
    canvas(top + AXIS + below, &says, &content)
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn interval(sums: &OverTime, at: usize) -> String {
    let from = at as f64 * sums.interval_seconds;
    format!(
        "{} to {}",
        seconds(from),
        seconds(from + sums.interval_seconds)
    )
}

fn columns(
    fill: &str,
    field: &str,
    values: &[f64],
    (base, pixels): (f64, f64),
    ticks: &[(f64, String)],
    title: impl Fn(usize, f64) -> String,
) -> Markup {
    let width = 100.0 / values.len() as f64;
    html! {
        (grid(ticks, base, pixels))
        g data-side="height" data-scale=(pixels) {
            @for (at, amount) in values.iter().enumerate() {
                (Drawn {
                    pointer: &format!("/plots/over_time/{field}/{at}"),
                    value: *amount,
                    title: &title(at, *amount),
                }.upright(fill, (at as f64 * width, (width * 0.92).max(width - 0.15)), base, pixels).0)
            }
        }
        (grid_labels(ticks, base, pixels))
    }
}

/// The timelines of the plot that tell several ranks apart, so that the strip is of the same bytes, and how many rows
/// are drawn.
fn strip_lines<'a>(job: &'a Job, sums: &OverTime) -> Option<(Vec<&'a Timeline>, usize)> {
    let lines: Vec<&Timeline> = job
        .timelines
        .iter()
        .filter(|line| sums.interfaces.contains(&line.interface.name()))
        .filter(|line| line.rows() > 1 && line.bins > 0)
        .collect();
    let rows = lines.iter().map(|line| line.rows()).max()?;
    Some((lines, rows.min(STRIP_ROWS)))
}

/// A small heat map with its legend. Each shade stands for twice the bytes of the one before.
fn strip(lines: &[&Timeline], shown: usize, job: &Job, n: usize, top: f64) -> Markup {
    let mut cells = vec![0.0; shown * n];
    for line in lines {
        let end = line.bins as f64 * line.bin_seconds;
        for (at, amount) in line.read.iter().zip(&line.written).enumerate() {
            let (row, bin) = (at / line.bins, at % line.bins);
            // The column of the middle of the bin, on the axis of the run.
            let middle = (bin as f64 + 0.5) / line.bins as f64 * end / job.run_seconds;
            let column = ((middle * n as f64) as usize).min(n - 1);
            cells[row * shown / line.rows() * n + column] += amount.0 + amount.1;
        }
    }
    let most = cells.iter().copied().fold(0.0, f64::max);
    let mut paths = vec![String::new(); SHADES];
    for (row, of_row) in cells.chunks(n).enumerate() {
        let mut at = 0;
        for same in
            of_row.chunk_by(|a, b| (*a > 0.0) == (*b > 0.0) && shade(*a, most) == shade(*b, most))
        {
            if same[0] > 0.0 {
                let path = &mut paths[shade(same[0], most) - 1];
                path.push_str(&format!("M{at} {row}h{0}v1h-{0}z", same.len()));
            }
            at += same.len();
        }
    }
    let who = job.who();
    let last = job.ranks.saturating_sub(1);
    let names: Vec<&str> = lines.iter().map(|line| line.interface.name()).collect();
    let label = format!(
        "{} bytes by {who}: 0 at the top, {} at the bottom",
        names.join(" and "),
        units::number(last.into())
    );
    let least = most / f64::from(1u32 << (SHADES - 1));
    let legend = top + GAP + STRIP + AXIS + 4.0;
    html! {
        text .row-name x="100%" y=(short(top + 13.0)) { (label) }
        svg x="0" y=(short(top + GAP)) width=(percent(100.0)) height=(short(STRIP)) viewBox=(format!("0 0 {n} {shown}"))
            preserveAspectRatio="none" {
            rect .heat-0 width=(n) height=(shown) {}
            @for (shade, path) in paths.iter().enumerate() {
                @if !path.is_empty() { path class=(format!("heat-{}", shade + 1)) d=(path) {} }
            }
        }
        text .tick x="0" y=(short(legend + 10.0)) { (bytes(least as u64)) " or less" }
        @for shade in 1..=SHADES {
            rect class=(format!("heat-{shade}")) x=(LEGEND_LEFT + (shade - 1) * LEGEND_STEP) y=(short(legend)) width=(LEGEND_STEP) height="11" {}
        }
        text .tick x=(LEGEND_LEFT + SHADES * LEGEND_STEP + 6) y=(short(legend + 10.0)) { (bytes(most as u64)) }
    }
}

/// The shade of an amount, from 1 on: [`SHADES`] for more than half of the most, one less for each half of that.
fn shade(amount: f64, most: f64) -> usize {
    if amount <= 0.0 {
        return 1;
    }
    let halves = (most / amount).log2().floor().max(0.0) as usize;
    SHADES.saturating_sub(halves).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interface, TimelineSource};
    use crate::sample::plain_job;

    #[test]
    fn each_shade_is_twice_the_one_before() {
        let shades = [64.0, 33.0, 32.0, 16.0, 1.0, 0.4, 0.001].map(|n| shade(n, 64.0));
        assert_eq!(shades, [8, 8, 7, 6, 2, 1, 1]);
    }

    #[test]
    fn the_strip_is_of_the_interfaces_of_the_plot() {
        let mut job = plain_job(2);
        for (interface, amount) in [(Interface::Posix, 1e6), (Interface::MpiIo, 1e9)] {
            job.timelines.push(Timeline {
                interface,
                source: TimelineSource::Heatmap,
                bin_seconds: 50.0,
                bins: 2,
                ranks_per_row: 1,
                read: vec![amount; 4],
                written: vec![0.0; 4],
                last_active: vec![None; 2],
            });
        }
        let sums = OverTime {
            interfaces: vec!["POSIX"],
            ..OverTime::default()
        };
        let (lines, rows) = strip_lines(&job, &sums).unwrap();
        assert_eq!((lines.len(), rows), (1, 2));
        assert_eq!(lines[0].interface, Interface::Posix);
    }
}
