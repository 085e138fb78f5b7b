//! The page of two runs.

use super::units::{self, in_one_piece, unbroken};
use super::{data, document, timeline};
use crate::Report;
use crate::compare::{Comparison, lost};
use crate::findings::Finding;
use crate::text::shorten;
use maud::{Markup, html};
use serde_json::json;

/// Characters of a command; a longer one is shortened.
const COMMAND: usize = 160;

/// The whole page.
pub(crate) fn page(comparison: &Comparison) -> String {
    let (before, after) = (comparison.before, comparison.after);
    let body = html! {
        header .job {
            h1 { "I/O before and after" }
        }
        main #main {
            div .two { (run("Before", before)) (run("After", after)) }
            @if !comparison.warnings.is_empty() {
                section .notice aria-label="Warnings" {
                    strong { "These runs can't be compared fairly" }
                    ul { @for warning in &comparison.warnings { li { (unbroken(warning)) } } }
                }
            }
            section aria-labelledby="figures" {
                h2 #figures { "Figures" }
                div .scroll { table {
                    caption { "Both runs; rows of an interface that a run did not use are unknown" }
                    thead { tr { th .text scope="col" { "figure" } th scope="col" { "before" } th scope="col" { "after" } th scope="col" { "change" } } }
                    tbody { @for figure in &comparison.figures { tr {
                        th .text scope="row" { (figure.name) }
                        td { (in_one_piece(&figure.show(figure.before))) }
                        td { (in_one_piece(&figure.show(figure.after))) }
                        td { (in_one_piece(&figure.change())) }
                    } } }
                } }
            }
            section aria-labelledby="findings" {
                h2 #findings { "Findings" }
                (list("Gone", &comparison.gone()))
                (list("New", &comparison.new_ones()))
                h3 { "In both" }
                @if comparison.still().is_empty() { p { "None." } } @else {
                    div .scroll { table {
                        caption { "Seconds lost, estimated" }
                        thead { tr { th .text scope="col" { "finding" } th scope="col" { "before" } th scope="col" { "after" } } }
                        tbody { @for (a, b) in comparison.still() { tr { th .text scope="row" { (a.code) } td { (in_one_piece(&lost(a))) } td { (in_one_piece(&lost(b))) } } } }
                    } }
                }
            }
            section aria-labelledby="timeline" {
                h2 #timeline { "Timelines" }
                p .hint { "Each has its own time axis and its own scale." }
                div .two {
                    div { h3 { "Before" } (map(0, before)) }
                    div { h3 { "After" } (map(1, after)) }
                }
            }
        }
    };
    let data = json!({
        "jobs": [data::processes(&before.job), data::processes(&after.job)],
        "timelines": [data::timelines(&before.job), data::timelines(&after.job)],
    });
    document("I/O before and after", &body, &data)
}

fn run(title: &str, report: &Report) -> Markup {
    let job = &report.job;
    html! {
        section .card {
            h3 { (title) }
            p .name title=(job.exe) { (shorten(&job.exe, COMMAND)) }
            p { "job " (job.job_id) ", " (job.all_text()) ", " (units::date(job.start)) }
            p { "ran " (units::seconds(job.run_seconds)) ", log "
                @for log in job.logs.iter().take(1) { span .name { (log.name) } }
                @if job.logs.len() > 1 { " and " (job.logs.len() - 1) " more" } }
        }
    }
}

fn map(at: usize, report: &Report) -> Markup {
    if report.job.timelines.is_empty() {
        return html! { p { "The log has no times." } };
    }
    let when = if at == 0 { "before" } else { "after" };
    timeline::heat_map(
        at,
        &format!("Heat map {when}: bytes by {} and time", report.job.who()),
    )
}

fn list(title: &str, findings: &[&Finding]) -> Markup {
    html! {
        h3 { (title) }
        @if findings.is_empty() { p { "None." } } @else {
            ul { @for one in findings { li { (unbroken(&format!("{}: {}", lost(one), one.title))) } } }
        }
    }
}
