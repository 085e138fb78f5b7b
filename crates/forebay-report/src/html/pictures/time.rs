//! Where the time of a mean rank went: of the run, and in each interface.

use super::{Drawn, PARTS, figure, interface_pointer, row, row_bar, value};
use crate::Report;
use crate::account::{TimeSplit, split_of};
use crate::html::units::{percent, seconds, share};
use maud::{Markup, html};

/// The picture.
pub(super) fn picture(report: &Report) -> Markup {
    let (job, time) = (&report.job, &report.account.time);
    let who = job.who();
    let says = html! {
        "of a mean " (who) ": "
        (percent(share(time.io(), job.run_seconds))) " of the run is I/O"
    };
    let picture = html! {
        (row(&html! { "run" }, &parts(time, job.run_seconds, "/time", true),
            &value("/job/run_seconds", job.run_seconds, &seconds(job.run_seconds))))
        (by_interface(report))
    };
    figure("", "Where the time went", &says, &picture)
}

/// Seconds in the calls of each interface. A call of an upper one contains those below it.
pub(super) fn by_interface(report: &Report) -> Markup {
    let job = &report.job;
    let splits: Vec<_> = job
        .layers
        .iter()
        .map(|layer| (layer.interface, split_of(job, layer.interface)))
        .filter(|(_, split)| split.io() > 0.0)
        .collect();
    let most = splits
        .iter()
        .map(|(_, split)| split.io())
        .fold(0.0, f64::max);
    html! {
        @if !splits.is_empty() {
            p .bar-head { "Seconds in the calls of each interface, those below it included" }
        }
        // What the program calls comes first.
        @for (interface, split) in splits.iter().rev() {
            @let pointer = format!("{}/mean_rank", interface_pointer(job, *interface));
            (row(&html! { (interface.name()) }, &parts(split, most, &pointer, false), &html! { (seconds(split.io())) }))
        }
    }
}

/// One bar of reads, writes, metadata and, if wanted, the rest of the run.
fn parts(time: &TimeSplit, whole: f64, pointer: &str, with_rest: bool) -> Markup {
    let scale = 100.0 / whole.max(time.io()).max(f64::MIN_POSITIVE);
    let amounts = [time.read, time.write, time.metadata];
    let mut x = 0.0;
    let mut says = Vec::new();
    let mut bars = Vec::new();
    let rest = with_rest.then_some(("fill-other", "other", time.other));
    let all = PARTS
        .iter()
        .zip(amounts)
        .map(|((fill, name), amount)| (*fill, *name, amount))
        .chain(rest);
    for (fill, name, amount) in all {
        let title = format!(
            "{}: {}, {}",
            if name == "other" { "not in I/O" } else { name },
            seconds(amount),
            percent(share(amount, whole))
        );
        let drawn = Drawn {
            pointer: &format!("{pointer}/{name}_seconds"),
            value: amount,
            title: &title,
        };
        let (bar, width) = drawn.along(fill, x, (1.0, 12.0), scale);
        x += width;
        bars.push(bar);
        says.push(title);
    }
    row_bar(
        &says.join("; "),
        scale,
        &html! { @for bar in bars { (bar) } },
    )
}
