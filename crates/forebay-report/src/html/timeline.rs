//! The heat map's frame, which a script fills, and the same in numbers for those who have none.

use super::pictures::ranks_word;
use super::units::{bytes, number, seconds};
use crate::Report;
use crate::model::{Job, Timeline};
use maud::{Markup, html};

/// The heat map's frame; a script draws it.
pub(super) fn timeline(report: &Report) -> Markup {
    html! {
        section aria-labelledby="timeline" {
            h2 #timeline { "Timeline" }
            @if report.job.timelines.is_empty() {
                p { "The log has neither heat maps nor times of reads and writes." }
            } @else {
                p .hint { "Bytes by " (report.job.who()) " (down) and time (across); the stronger the shade, the more. The bars are the sums over all "
                    (ranks_word(&report.job)) " (top) and over time (right). Point at a cell, or move with the arrow keys." }
                (heat_map(0, &format!("Heat map of bytes by {} and time", report.job.who())))
                details {
                    summary { "The same in numbers: tenths of the run time" }
                    @for line in &report.job.timelines { (tenths(line, &report.job)) }
                }
            }
        }
    }
}

/// Canvas and controls of a heat map; `at` is its place in the data.
pub(super) fn heat_map(at: usize, label: &str) -> Markup {
    html! {
        div data-heatmap=(at) {
            div .controls {
                label { "Interface " select .line {} }
                label { "Show " select .way {
                    option value="both" { "reads and writes" } option value="read" { "reads" } option value="write" { "writes" }
                } }
                label { "Scale " select .scale { option value="log" { "logarithmic" } option value="linear" { "linear" } } }
            }
            figure {
                canvas tabindex="0" role="img" aria-label=(label) {}
                figcaption .source {}
            }
            output aria-live="polite" {}
        }
        noscript { p { "The drawing needs scripts; the numbers below don't." } }
    }
}

fn tenths(line: &Timeline, job: &Job) -> Markup {
    let end = line.bins as f64 * line.bin_seconds;
    let mut sums = [(0.0, 0.0); 10];
    for (at, (read, written)) in line.columns().into_iter().enumerate() {
        let tenth = (at * 10 / line.bins.max(1)).min(9);
        sums[tenth].0 += read;
        sums[tenth].1 += written;
    }
    let active = line.last_active.iter().flatten().count();
    html! {
        div .scroll { table {
            caption { (line.interface.name()) ": " (number(active as u64)) " of " (job.count_of(job.ranks)) " active; " (line.source.remark()) }
            thead { tr { th scope="col" { "from" } th scope="col" { "to" } th scope="col" { "read" } th scope="col" { "written" } } }
            tbody { @for (i, (read, written)) in (0u8..).zip(sums) { tr {
                td { (seconds(end * f64::from(i) / 10.0)) }
                td { (seconds(end * f64::from(i + 1) / 10.0)) }
                td { (bytes(read as u64)) }
                td { (bytes(written as u64)) }
            } } }
        } }
    }
}
