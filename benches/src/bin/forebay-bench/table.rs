//! Prints the results: as a table for people, as JSON for programs.

use crate::machine::Machine;
use crate::rounds::{Measured, MeasuredWorkload};
use forebay_benches::catalogue::{Row, Scale, Target, Unit};
use forebay_benches::sample::Cost;
use forebay_benches::statistics::median;
use forebay_benches::verdict::Comparison;
use serde_json::{Value, json};
use std::fmt::Write;

const HEAD: [&str; 10] = [
    "",
    "native",
    "Forebay",
    "ratio",
    "range",
    "noise",
    "CPU of program",
    "bridge",
    "target",
    "verdict",
];
const LEGEND: &str = "\
ratio   native time / time through Forebay: 1 is native speed, 0.5 takes twice as long; median and range of the rounds
noise   what two native runs of the same round usually differ by
CPU     processor time of the program per operation, native -> Forebay
bridge  processors that the bridge kept busy during the whole workload (it spins for a short while before it sleeps)
";

/// The table.
pub fn text(
    before: &Machine,
    after: &Machine,
    rounds: u32,
    scale: Scale,
    results: &[Measured],
) -> String {
    let mut out = format!(
        "{} x {}, Linux {}; load average {:.2} before, {:.2} after; {rounds} rounds, scale {}\n",
        before.processors,
        before.processor,
        before.kernel,
        before.load_average,
        after.load_average,
        scale.name(),
    );
    if scale == Scale::Smoke {
        out.push_str("Scale smoke: these times mean nothing.\n");
    }
    for result in results {
        let _ = writeln!(out, "\nOn {} ({}):", result.ground, result.note);
        out.push_str(&aligned(&lines(result)));
    }
    out.push('\n');
    out.push_str(LEGEND);
    out
}

fn lines(result: &Measured) -> Vec<[String; 10]> {
    let mut lines = vec![HEAD.map(str::to_owned)];
    for measured in &result.workloads {
        for (number, row) in measured.workload.rows.iter().enumerate() {
            lines.push(line(measured, row, number == 0));
        }
    }
    lines
}

fn line(measured: &MeasuredWorkload, row: &Row, is_first: bool) -> [String; 10] {
    let mut cells: [String; 10] = Default::default();
    cells[0] = row.title.to_owned();
    let Some(comparison) = measured.comparison(row) else {
        cells[1] = format!(
            "failed: {}",
            measured.error.as_deref().unwrap_or("no rounds")
        );
        return cells;
    };
    cells[1] = shown(row.unit, comparison.native.wall);
    cells[2] = shown(row.unit, comparison.buffered.wall);
    cells[3] = format!("{:.3}", comparison.ratio.median);
    cells[4] = format!("{:.2}-{:.2}", comparison.ratio.least, comparison.ratio.most);
    cells[5] = format!("{:.1} %", comparison.noise * 100.0);
    cells[6] = format!(
        "{} -> {}",
        micros(comparison.native.cpu),
        micros(comparison.buffered.cpu)
    );
    if is_first && !measured.bridge_cores.is_empty() {
        cells[7] = format!("{:.2}", median(&measured.bridge_cores));
    }
    if let Some(target) = row.target {
        cells[8] = asked(target);
        cells[9] = judged(&comparison, target);
    }
    if let Some(error) = &measured.error {
        cells[9] = format!("then failed: {error}");
    }
    cells
}

fn micros(seconds: f64) -> String {
    let micros = seconds * 1e6;
    match micros {
        m if m < 100.0 => format!("{m:.2} us"),
        m => format!("{m:.0} us"),
    }
}

fn shown(unit: Unit, seconds: f64) -> String {
    match unit {
        Unit::Micros => micros(seconds),
        Unit::MibPerSecond => format!("{:.0} MiB/s", seconds.recip()),
    }
}

fn asked(target: Target) -> String {
    match target {
        Target::Ratio(least) => format!(">= {least}"),
        Target::AddedMicros(most) => format!("+{most} us"),
        Target::NotMeasurable => "+0".to_owned(),
    }
}

fn judged(comparison: &Comparison, target: Target) -> String {
    let verdict = comparison.judge(target).text();
    match target {
        Target::Ratio(_) => verdict.to_owned(),
        Target::AddedMicros(_) | Target::NotMeasurable => {
            format!("{verdict} (+{:.2} us)", comparison.added.wall * 1e6).replace("+-", "-")
        }
    }
}

fn aligned(lines: &[[String; 10]]) -> String {
    // The error of a failed workload is a long cell, which must not widen its column.
    let is_failed = |line: &[String; 10]| line[3].is_empty() && !line[0].is_empty();
    let width = |column: usize| {
        let measured = lines.iter().filter(|line| !is_failed(line));
        measured.map(|line| line[column].len()).max().unwrap_or(0)
    };
    let title = lines.iter().map(|line| line[0].len()).max().unwrap_or(0);
    let mut out = String::new();
    for line in lines {
        let mut text = format!("{:<title$}", line[0]);
        for (column, cell) in line.iter().enumerate().skip(1) {
            let wide = width(column);
            let _ = match column {
                8 | 9 => write!(text, "  {cell:<wide$}"),
                _ => write!(text, "  {cell:>wide$}"),
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// All results as JSON, round by round. Times are seconds per operation.
pub fn json(
    before: &Machine,
    after: &Machine,
    rounds: u32,
    scale: Scale,
    results: &[Measured],
) -> Value {
    json!({
        "before": before,
        "after": after,
        "rounds": rounds,
        "scale": scale.name(),
        "file_systems": results.iter().map(file_system).collect::<Vec<_>>(),
    })
}

fn file_system(result: &Measured) -> Value {
    json!({
        "name": result.ground,
        "note": result.note,
        "workloads": result.workloads.iter().map(|measured| json!({
            "name": measured.workload.name,
            "covers": measured.workload.covers,
            "bridge_cores": measured.bridge_cores,
            "error": measured.error,
            "rows": measured.workload.rows.iter().map(|row| in_json(measured, row)).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

fn in_json(measured: &MeasuredWorkload, row: &Row) -> Value {
    let cost = |c: &Cost| json!({"wall": c.wall, "cpu": c.cpu});
    let rounds = measured.rounds.get(row.name);
    let mut value = json!({
        "name": row.name,
        "title": row.title,
        "rounds": rounds.into_iter().flatten().map(|round| json!({
            "native": [cost(&round.native[0]), cost(&round.native[1])],
            "forebay": cost(&round.buffered),
        })).collect::<Vec<_>>(),
    });
    if let Some(comparison) = measured.comparison(row) {
        value["native"] = cost(&comparison.native);
        value["forebay"] = cost(&comparison.buffered);
        value["added"] = cost(&comparison.added);
        value["noise"] = json!(comparison.noise);
        value["ratio"] = json!({
            "least": comparison.ratio.least,
            "median": comparison.ratio.median,
            "most": comparison.ratio.most,
        });
        if let Some(target) = row.target {
            value["target"] = json!(asked(target));
            value["verdict"] = json!(comparison.judge(target).text());
        }
    }
    value
}
