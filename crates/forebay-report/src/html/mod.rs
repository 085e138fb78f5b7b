//! One self-contained page. Styles, scripts and data are in it, and its policy forbids the network.
//!
//! All text goes through maud, which escapes it. Data for the scripts is JSON that can't end its element
//! ([`json_in_html`]). Scripts put text into the page as text only. On top of that the policy names the hashes of the
//! one style and the one script that may take effect.

mod collective;
mod compare;
mod data;
mod pictures;
mod programs;
mod sections;
mod timeline;
mod units;

use crate::Report;
use crate::sentences::is_unknown;
use crate::text::json_in_html;
use base64::Engine as _;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

pub(crate) use compare::page as compare_page;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = concat!(
    include_str!("common.js"),
    include_str!("heatmap.js"),
    include_str!("files.js"),
    include_str!("trace.js"),
);

/// The page of one job.
pub(crate) fn page(report: &Report) -> String {
    let job = &report.job;
    let title = format!("I/O of {}", crate::text::shorten(&job.exe, 60));
    let data = data::of_report(report);
    let plots = report.plots();
    let has_trace = !job.traces.is_empty();
    let body = html! {
        (navigation(!job.layers.is_empty() && !is_unknown(report), has_trace, job.programs.len() > 1))
        header .job { (sections::head(report)) }
        main #main {
            (sections::cards(report))
            (sections::notices(report))
            (pictures::overview(report, &plots))
            (sections::findings(report, &plots))
            (pictures::access(report, &plots))
            (timeline::timeline(report))
            (sections::interfaces(report))
            (sections::sizes(report))
            (sections::sharing(report))
            (collective::collective(report))
            (sections::slowest(report))
            (sections::files(&data.files_remark, job))
            (programs::programs(job))
            @if has_trace { (sections::trace(job)) }
            (sections::about(report))
        }
    };
    document(&title, &body, &data.json)
}

/// The frame of every page.
fn document(title: &str, body: &Markup, data: &serde_json::Value) -> String {
    let policy = format!(
        "default-src 'none'; img-src data:; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        digest(STYLE),
        digest(SCRIPT)
    );
    let data = json_in_html(&data.to_string());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                // Without this line, browsers ask the server for an icon.
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a .skip href="#main" { "Skip to the report" }
                (patterns())
                (body)
                script #data type="application/json" { (PreEscaped(data)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn digest(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text))
}

fn navigation(has_io: bool, has_trace: bool, has_programs: bool) -> Markup {
    html! {
        nav aria-label="Sections" {
            ul {
                li { a href="#pictures" { "Pictures" } }
                li { a href="#findings" { "Findings" } }
                @if has_io { li { a href="#access" { "Access" } } }
                li { a href="#timeline" { "Timeline" } }
                li { a href="#interfaces" { "Interfaces" } }
                li { a href="#sizes" { "Sizes" } }
                li { a href="#sharing" { "Sharing" } }
                li { a href="#files" { "Files" } }
                @if has_programs { li { a href="#programs" { "Programs" } } }
                @if has_trace { li { a href="#trace" { "Trace" } } }
                li { a href="#about" { "About this report" } }
            }
        }
    }
}

/// Fillings that can be told apart without colour.
fn patterns() -> Markup {
    html! {
        svg .patterns width="0" height="0" aria-hidden="true" focusable="false" {
            defs {
                pattern #hatch width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    rect .hatch-back width="6" height="6" {}
                    line .hatch-line x1="0" y1="0" x2="0" y2="6" {}
                }
                pattern #dots width="5" height="5" patternUnits="userSpaceOnUse" {
                    rect .hatch-back width="5" height="5" {}
                    circle .dot cx="2" cy="2" r="1" {}
                }
            }
        }
    }
}
