//! What the collective layer did, as a section of the page.

use super::units::{number, unbroken};
use crate::Report;
use crate::sentences::{avoided_text, collective_text};
use maud::{Markup, html};

/// Files of the collective layer in the page.
const MOST_COLLECTIVE: usize = 100;

/// What the collective layer did; empty without it.
pub(super) fn collective(report: &Report) -> Markup {
    let told = &report.job.collective;
    if told.is_empty() {
        return html! {};
    }
    html! {
        section aria-labelledby="collective" {
            h2 #collective { "Collective layer" }
            p .hint { "What became of the collective calls of MPI-IO. Conflicts are predicted, for the largest call." }
            ul {
                @for (one, avoided) in told.iter().zip(&report.avoided).take(MOST_COLLECTIVE) { li {
                    code .name { (one.path) } ": " (unbroken(&collective_text(one)))
                    @if let Some(reason) = &one.reason { ". Why so: " (unbroken(reason)) }
                    @if let Some(avoided) = avoided { br; (unbroken(&avoided_text(avoided))) }
                } }
            }
            @if told.len() > MOST_COLLECTIVE { p { (number((told.len() - MOST_COLLECTIVE) as u64)) " more files are in the JSON." } }
        }
    }
}
