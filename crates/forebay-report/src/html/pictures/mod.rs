//! The pictures: SVG in the page itself, which needs no script and prints as it is.
//!
//! A picture draws values of the JSON report and no others. Every bar and every number of it names the place of its
//! value there (`data-json`, a JSON pointer) beside the value; `tests/pictures.rs` compares them, and the lengths of the
//! bars with both. Lengths across are percentages, so that a picture fits any width while its text stays readable.

mod access;
mod evidence;
mod over_time;
mod overview;
mod ranks;
mod scale;
mod time;

pub(super) use access::{section as access, sharing_text};
pub(super) use evidence::of_finding;
pub(super) use overview::{has_sizes, histogram, section as overview};

use crate::model::{Interface, Job};
use maud::{Markup, html};
use serde::Serialize;

/// Height of a bar that stands for little, in pixels. What is not nothing must be seen.
const LEAST_HEIGHT: f64 = 1.0;
/// Length of a bar that stands for little, in percent of the picture.
const LEAST_WIDTH: f64 = 0.4;

/// A number as text that names its place in the JSON report.
pub(super) fn value(pointer: &str, number: impl Serialize, text: &str) -> Markup {
    html! { data value=(exact(&number)) data-json=(pointer) { (text) } }
}

/// A number as the JSON has it.
fn exact(number: &impl Serialize) -> String {
    serde_json::to_string(number).unwrap_or_default()
}

/// A value that a bar stands for.
struct Drawn<'a> {
    /// Where it is in the JSON.
    pointer: &'a str,
    /// The value.
    value: f64,
    /// What the reader sees when pointing at it.
    title: &'a str,
}

impl Drawn<'_> {
    /// An upright bar on a base line; `x` and `width` in percent, `base` and `scale` in pixels. Returns its height, too.
    fn upright(&self, fill: &str, (x, width): (f64, f64), base: f64, scale: f64) -> (Markup, f64) {
        if self.value <= 0.0 {
            return (html! {}, 0.0);
        }
        let height = (self.value * scale).max(LEAST_HEIGHT);
        let bar = html! {
            rect class=(fill) x=(percent(x)) width=(percent(width)) y=(short(base - height)) height=(short(height))
                data-json=(self.pointer) data-value=(exact(&self.value)) { title { (self.title) } }
        };
        (bar, height)
    }

    /// A bar along a row, from `x` percent on, `scale` percent for each unit. Returns its length, too.
    fn along(&self, fill: &str, x: f64, (y, height): (f64, f64), scale: f64) -> (Markup, f64) {
        if self.value <= 0.0 {
            return (html! {}, 0.0);
        }
        let width = (self.value * scale).max(LEAST_WIDTH).min(100.0 - x);
        let bar = html! {
            rect class=(fill) x=(percent(x)) width=(percent(width)) y=(short(y)) height=(short(height))
                data-json=(self.pointer) data-value=(exact(&self.value)) { title { (self.title) } }
        };
        (bar, width)
    }
}

/// A length across.
fn percent(value: f64) -> String {
    format!("{}%", short(value))
}

/// A length with as many digits as can be seen.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A picture with its heading and what it says in words.
fn figure(class: &str, title: &str, says: &Markup, picture: &Markup) -> Markup {
    html! {
        figure .picture .(class) {
            figcaption { strong { (title) } " " span .hint { (says) } }
            (picture)
        }
    }
}

/// A label, a bar and a number in a line.
fn row(label: &Markup, bar: &Markup, number: &Markup) -> Markup {
    html! { div .bar-row { div .bar-label { (label) } (bar) div .bar-number { (number) } } }
}

/// The frame of the bar in a row.
fn row_bar(says: &str, scale: f64, bars: &Markup) -> Markup {
    html! {
        svg .bar width="100%" height="14" role="img" aria-label=(says) {
            g data-side="width" data-scale=(scale) { (bars) }
        }
    }
}

/// The frame of a picture over the whole width.
fn canvas(height: f64, says: &str, content: &Markup) -> Markup {
    html! {
        svg .plot width="100%" height=(short(height)) role="img" aria-label=(says) { (content) }
    }
}

/// Lines across at round values, and the base line; `scale` is the height of one unit in pixels.
fn grid(ticks: &[(f64, String)], base: f64, scale: f64) -> Markup {
    html! {
        @for (at, _) in ticks {
            @let y = short(base - at * scale);
            line .grid x1="0%" x2="100%" y1=(y) y2=(y) {}
        }
        line .base x1="0%" x2="100%" y1=(short(base)) y2=(short(base)) {}
    }
}

/// The labels of these lines. They are drawn after the bars, so that none hides them.
fn grid_labels(ticks: &[(f64, String)], base: f64, scale: f64) -> Markup {
    html! {
        @for (at, label) in ticks {
            text .tick x="0%" y=(short(base - at * scale - 3.0)) { (label) }
        }
    }
}

/// Labels below the base line; the first and the last stay inside.
fn labels_below(labels: &[(f64, String)], y: f64) -> Markup {
    html! {
        @for (at, label) in labels {
            text .tick .end[*at > 97.0] .middle[(3.0..=97.0).contains(at)] x=(percent(*at)) y=(short(y)) { (label) }
        }
    }
}

/// What fills a bar of the interface's reads, writes or metadata, and its name.
const PARTS: [(&str, &str); 3] = [
    ("fill-read", "read"),
    ("fill-write", "write"),
    ("fill-meta", "metadata"),
];

/// The word for several of the job's processes: "ranks" if all of them are.
pub(super) fn ranks_word(job: &Job) -> &'static str {
    match job.who() {
        "rank" => "ranks",
        _ => "processes",
    }
}

/// Where an interface stands in the JSON.
fn interface_pointer(job: &Job, interface: Interface) -> String {
    let at = job
        .layers
        .iter()
        .position(|layer| layer.interface == interface);
    format!("/interfaces/{}", at.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_value_and_never_too_small_to_see() {
        let drawn = |value| Drawn {
            pointer: "/a/0",
            value,
            title: "<b>",
        };
        let (bar, height) = drawn(3.0).upright("f", (10.0, 2.5), 100.0, 20.0);
        assert!((height - 60.0).abs() < 1e-9);
        assert_eq!(
            bar.into_string(),
            "<rect class=\"f\" x=\"10%\" width=\"2.5%\" y=\"40\" height=\"60\" data-json=\"/a/0\" \
             data-value=\"3.0\"><title>&lt;b&gt;</title></rect>"
        );
        assert!((drawn(1e-9).upright("f", (0.0, 1.0), 9.0, 1.0).1 - LEAST_HEIGHT).abs() < 1e-9);
        assert_eq!(
            drawn(0.0).along("f", 0.0, (0.0, 1.0), 1.0).0.into_string(),
            ""
        );
        // It ends with the picture, whatever stood before it.
        assert!((drawn(50.0).along("f", 80.0, (0.0, 1.0), 1.0).1 - 20.0).abs() < 1e-9);
    }
}
