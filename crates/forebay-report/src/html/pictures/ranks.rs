//! Seconds in I/O by rank.

use super::{
    Drawn, PARTS, canvas, figure, grid, grid_labels, labels_below, percent, ranks_word, scale,
    short,
};
use crate::Report;
use crate::html::units::{number, seconds};
use crate::plots::RankGroup;
use maud::{Markup, html};

/// Up to so many columns have a label each.
const FEW: usize = 10;
/// Height of the columns, pixels.
const HEIGHT: f64 = 130.0;
/// Space above the highest column.
const TOP: f64 = 14.0;

/// The picture of several ranks.
pub(super) fn picture(report: &Report, groups: &[RankGroup]) -> Markup {
    let who = report.job.who();
    let per_group = groups.first().map_or(1, |one| one.ranks);
    let says = html! {
        @if let Some(slowest) = report.account.slowest {
            "slowest: " (report.job.name_of(slowest.rank)) ", " (seconds(slowest.seconds)) "; mean (line): "
            (seconds(report.account.time.io()))
        } @else { "no time was measured" }
        @if per_group > 1 {
            "; a column is the mean of " (per_group) " " (ranks_word(&report.job))
            ", its mark the slowest of them"
        }
    };
    let title = format!("Seconds in I/O by {who}");
    figure("", &title, &says, &plot(report, groups))
}

/// The drawing alone.
pub(super) fn plot(report: &Report, groups: &[RankGroup]) -> Markup {
    let most = groups
        .iter()
        .map(|one| one.most_seconds)
        .fold(0.0, f64::max);
    if most <= 0.0 {
        return html! {};
    }
    let (base, pixels) = (TOP + HEIGHT, HEIGHT / most);
    let width = 100.0 / groups.len() as f64;
    let mean = report.account.time.io();
    let y = short(base - mean * pixels);
    let last = groups.len() - 1;
    let labelled = if last < FEW {
        (0..=last).collect()
    } else {
        vec![0, groups.len() / 2, last]
    };
    let labels: Vec<(f64, String)> = labelled
        .into_iter()
        .map(|at| {
            let middle = (at as f64 + 0.5) * width;
            (middle, number(groups[at].first_rank.into()))
        })
        .collect();
    let ticks = scale::seconds(most, 3);
    let content = html! {
        (grid(&ticks, base, pixels))
        g data-side="height" data-scale=(pixels) {
            @for (at, group) in groups.iter().enumerate() { (column(report, at, group, (width, base, pixels))) }
        }
        (grid_labels(&ticks, base, pixels))
        line .mean x1="0%" x2="100%" y1=(y) y2=(y) {}
        (labels_below(&labels, base + 14.0))
    };
    let says = format!(
        "Seconds in I/O of {} groups of {}",
        groups.len(),
        ranks_word(&report.job)
    );
    canvas(base + 18.0, &says, &content)
}

fn column(
    report: &Report,
    at: usize,
    group: &RankGroup,
    (width, base, pixels): (f64, f64, f64),
) -> Markup {
    let x = at as f64 * width + width * 0.06;
    let wide = width * 0.88;
    let amounts = [
        ("read_seconds", group.read_seconds),
        ("write_seconds", group.write_seconds),
        ("metadata_seconds", group.metadata_seconds),
    ];
    let last = group.first_rank + group.ranks - 1;
    let name = if group.ranks > 1 {
        format!("{} {} to {last}", ranks_word(&report.job), group.first_rank)
    } else {
        report.job.name_of(group.first_rank)
    };
    let title = format!(
        "{name}: read {}, write {}, metadata {}; slowest {}",
        seconds(group.read_seconds),
        seconds(group.write_seconds),
        seconds(group.metadata_seconds),
        seconds(group.most_seconds)
    );
    let mut floor = base;
    let mut bars = Vec::new();
    for ((fill, _), (field, amount)) in PARTS.iter().zip(amounts) {
        let drawn = Drawn {
            pointer: &format!("/plots/ranks/{at}/{field}"),
            value: amount,
            title: &title,
        };
        let (bar, height) = drawn.upright(fill, (x, wide), floor, pixels);
        floor -= height;
        bars.push(bar);
    }
    html! {
        @for bar in bars { (bar) }
        @if group.ranks > 1 && group.most_seconds > 0.0 {
            rect .mark x=(percent(x)) width=(percent(wide)) y=(short(base - group.most_seconds * pixels - 1.0)) height="2" {
                title { (title) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Thresholds;
    use crate::model::Interface;
    use crate::sample::{by_rank, mpi_job, writes};

    #[test]
    fn a_serial_step_beside_ranks_has_its_own_name() {
        let mut job = mpi_job(4);
        job.ranks = 6;
        for rank in 0..6 {
            let counters = writes(10, 1 << 20, f64::from(rank + 1));
            by_rank(&mut job, Interface::Posix, "/pfs/out", rank, counters);
        }
        let report = Report::new(job, &Thresholds::default());
        let page = picture(&report, &report.plots().ranks).into_string();
        assert!(page.contains("slowest: serial step 1, "), "{page}");
        assert!(page.contains("Seconds in I/O by process"), "{page}");
        assert!(page.contains("<title>rank 3: "), "{page}");
        assert!(page.contains("<title>serial step 0: "), "{page}");
    }
}
