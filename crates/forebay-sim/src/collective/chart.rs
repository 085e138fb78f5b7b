//! Figures and replays as one SVG drawing: for each figure and size three panels, as in the paper; for a replay two or three for
//! each lock manager.

use super::benchmark::Point;
use super::locks::Locks;
use super::parameters::{Figure, Parameters};
use super::replay::{Replay, UnderLocks};
use super::report::calibration;
use forebay_core::collective::Method;
use std::fmt::{self, Write};

const COLORS: [&str; 5] = ["#c0392b", "#e08e0b", "#2471a3", "#1e8449", "#7d3c98"];
/// Width and height of a panel with its labels, and of the drawing area in it.
const PANEL: (f64, f64) = (400.0, 250.0);
const AREA: (f64, f64) = (310.0, 170.0);
/// From the corner of a panel to the corner of its drawing area.
const INSET: (f64, f64) = (60.0, 30.0);
/// Above the panels of a row, for its title.
const HEAD: f64 = 45.0;

/// A panel: its title, what it shows of a point, and the top of its axis if that is fixed.
type Panel = (&'static str, fn(&Point) -> f64, Option<f64>);

const WRITE_RATE: Panel = ("write, 10^6 bytes/s", |p| p.write.mb_s(), None);
const WRITE_SHARE: Panel = (
    "write, I/O phase in %",
    |p| p.write.io_percent(),
    Some(100.0),
);
const CONFLICTS: Panel = ("write, lock conflicts", |p| p.write.conflicts as f64, None);
const READ_RATE: Panel = ("read, 10^6 bytes/s", |p| p.read.mb_s(), None);
const READ_SHARE: Panel = ("read, I/O phase in %", |p| p.read.io_percent(), Some(100.0));

/// The most panels in a row.
const PANELS: usize = 3;

/// Panels of the same points, side by side.
struct Row<'a> {
    title: String,
    calibration: String,
    panels: &'static [Panel],
    points: &'a [Point],
}

/// Draws figures with their points, which are those of [`super::run_figure`].
pub fn chart(parameters: &Parameters, figures: &[(&Figure, Vec<Point>)]) -> String {
    let rows = figures.iter().flat_map(|(figure, points)| {
        let calibration = calibration(&parameters.systems[&figure.system]);
        let of_sides = points.chunks(points.len() / figure.sides.len());
        figure
            .sides
            .iter()
            .zip(of_sides)
            .map(move |(side, points)| Row {
                title: format!(
                    "Figure {}, {}: {side} x {side} x {side} integers a process",
                    figure.name, figure.system
                ),
                calibration: calibration.clone(),
                panels: &[WRITE_RATE, WRITE_SHARE, READ_RATE],
                points,
            })
    });
    drawn(&rows.collect::<Vec<_>>())
}

/// Draws replays with what came out.
pub fn chart_replays(replays: &[(Replay, Vec<UnderLocks>)]) -> String {
    let rows = replays.iter().flat_map(|(replay, under)| {
        under.iter().map(|UnderLocks { locks, points }| Row {
            title: format!("locks {}: {}", locks.name(), replay.title()),
            calibration: calibration(&replay.system(*locks)),
            panels: match (replay.reads(), locks) {
                (true, _) => &[READ_RATE, READ_SHARE],
                (false, Locks::None) => &[WRITE_RATE, WRITE_SHARE],
                (false, _) => &[WRITE_RATE, WRITE_SHARE, CONFLICTS],
            },
            points,
        })
    });
    drawn(&rows.collect::<Vec<_>>())
}

fn drawn(rows: &[Row]) -> String {
    let mut out = String::new();
    draw(&mut out, rows).expect("a string takes any text");
    out
}

fn draw(out: &mut String, rows: &[Row]) -> fmt::Result {
    let width = PANEL.0 * PANELS as f64;
    let height = rows.len() as f64 * (PANEL.1 + HEAD) + 40.0;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>"
    )?;
    for ((i, method), color) in (0..).zip(Method::ALL).zip(COLORS) {
        let x = 20.0 + 160.0 * f64::from(i);
        writeln!(
            out,
            "<line x1=\"{x}\" y1=\"20\" x2=\"{}\" y2=\"20\" stroke=\"{color}\" stroke-width=\"2\"/>",
            x + 20.0
        )?;
        label(out, (x + 26.0, 24.0), "start", method.in_words())?;
    }
    let mut y = 40.0;
    for row in rows {
        label(out, (20.0, y + 14.0), "start", &row.title)?;
        writeln!(
            out,
            "<text x=\"20\" y=\"{}\" font-size=\"8\" fill=\"#555\">{}</text>",
            y + 28.0,
            escaped(&row.calibration)
        )?;
        for (panel, i) in row.panels.iter().zip(0..) {
            draw_panel(out, (PANEL.0 * f64::from(i), y + HEAD), panel, row.points)?;
        }
        y += PANEL.1 + HEAD;
    }
    writeln!(out, "</svg>")
}

fn draw_panel(
    out: &mut String,
    corner: (f64, f64),
    panel: &Panel,
    points: &[Point],
) -> fmt::Result {
    let (title, value, top) = panel;
    let (left, upper) = (corner.0 + INSET.0, corner.1 + INSET.1);
    let (right, lower) = (left + AREA.0, upper + AREA.1);
    let top = top.unwrap_or_else(|| round_up(points.iter().map(value).fold(1.0, f64::max)));
    label(out, (left, upper - 8.0), "start", title)?;
    writeln!(
        out,
        "<path d=\"M{left} {upper}V{lower}H{right}\" fill=\"none\" stroke=\"black\"/>"
    )?;
    for tick in 0..=4 {
        let part = f64::from(tick) / 4.0;
        let y = lower - part * AREA.1;
        label(
            out,
            (left - 5.0, y + 4.0),
            "end",
            &format!("{:.0}", top * part),
        )?;
    }
    let methods = Method::ALL.len();
    let steps = (points.len() / methods).max(2) - 1;
    let x_of = |row: usize| left + AREA.0 * row as f64 / steps as f64;
    for (row, of_row) in points.chunks(methods).enumerate() {
        let processes = of_row[0].processes.to_string();
        label(out, (x_of(row), lower + 15.0), "middle", &processes)?;
    }
    for (method, color) in COLORS.iter().enumerate() {
        let of_method = points.iter().skip(method).step_by(methods).enumerate();
        let mut line = String::new();
        for (row, point) in of_method {
            let y = lower - value(point) / top * AREA.1;
            write!(line, "{:.1},{y:.1} ", x_of(row))?;
        }
        writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>",
            line.trim_end()
        )?;
    }
    Ok(())
}

fn label(out: &mut String, at: (f64, f64), anchor: &str, text: &str) -> fmt::Result {
    let (x, y) = at;
    let text = escaped(text);
    writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
    )
}

/// The next of 1, 2, 4, 6, 8 and 10 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0];
    let step = steps.iter().find(|step| **step * power >= value);
    step.unwrap_or(&10.0) * power
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
