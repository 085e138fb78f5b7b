//! Figures as tables.

use super::benchmark::{Point, choice};
use super::machine::{Outcome, System};
use super::parameters::{Figure, Parameters};
use forebay_core::collective::Method;
use std::fmt::{self, Write};

/// Width of the first column, and of each other one.
const WIDTHS: (usize, usize) = (16, 23);

/// What a table shows of a call.
struct Column {
    title: &'static str,
    text: fn(&Point) -> String,
}

const TABLES: [Column; 5] = [
    Column {
        title: "write, 10^6 bytes/s",
        text: |p| rate(&p.write),
    },
    Column {
        title: "write, I/O phase in % of the time",
        text: |p| share(&p.write),
    },
    Column {
        title: "write, lock requests (of them conflicts)",
        text: |p| format!("{} ({})", p.write.requests, p.write.conflicts),
    },
    Column {
        title: "read, 10^6 bytes/s",
        text: |p| rate(&p.read),
    },
    Column {
        title: "read, I/O phase in % of the time",
        text: |p| share(&p.read),
    },
];

fn rate(outcome: &Outcome) -> String {
    format!("{:.0}", outcome.mb_s())
}

fn share(outcome: &Outcome) -> String {
    format!("{:.0}", outcome.io_percent())
}

/// The calibration of a system in one line.
pub(super) fn calibration(system: &System) -> String {
    format!(
        "{} servers of {} MB/s, seek {} us (read {} us), granule {} KiB, {} processes a node, buffer {} KiB, window {} KiB, \
         network {} MB/s a node, message {} us, round trip {} us, lock request {} us, giving up a lock {} us, locks {}",
        system.servers,
        system.server_mb_s,
        system.write_seek_us,
        system.read_seek_us,
        system.granule_bytes >> 10,
        system.ranks_per_node,
        system.buffer_bytes >> 10,
        system.window_bytes >> 10,
        system.network_mb_s,
        system.message_us,
        system.round_trip_us,
        system.lock_us,
        system.cancel_us,
        system.locks.name(),
    )
}

/// A figure as text: what it is, its calibration, what core would choose and why, then tables with a row for each number
/// of processes.
///
/// # Panics
/// If the points are not those of [`super::run_figure`] for these arguments.
pub fn tables(parameters: &Parameters, figure: &Figure, points: &[Point]) -> String {
    let mut out = String::new();
    write_tables(&mut out, parameters, figure, points).expect("a string takes any text");
    out
}

fn write_tables(
    out: &mut String,
    parameters: &Parameters,
    figure: &Figure,
    points: &[Point],
) -> fmt::Result {
    let system = &parameters.systems[&figure.system];
    let Figure { name, expected, .. } = figure;
    writeln!(out, "Figure {name}: system {}", figure.system)?;
    writeln!(out, "  in the paper: {expected}")?;
    writeln!(out, "  calibration: {}", calibration(system))?;
    let mut reasons: Vec<(Method, &str)> = Vec::new();
    for &processes in &figure.processes {
        let choice = choice(system, processes);
        if !reasons.iter().any(|(method, _)| *method == choice.method) {
            reasons.push((choice.method, choice.reason));
        }
    }
    for (method, reason) in reasons {
        writeln!(
            out,
            "  Forebay would choose {}: {reason}",
            method.in_words()
        )?;
    }
    let methods = Method::ALL.len();
    let rows = figure.processes.len() * methods;
    assert_eq!(
        points.len(),
        figure.sides.len() * rows,
        "points of a figure"
    );
    let (first, other) = WIDTHS;
    for of_side in points.chunks(rows) {
        let side = of_side[0].side;
        writeln!(out, "\n  {side} x {side} x {side} integers a process")?;
        for table in &TABLES {
            writeln!(out, "    {}", table.title)?;
            write!(out, "    {:>first$}", "processes")?;
            for method in Method::ALL {
                write!(out, "{:>other$}", method.in_words())?;
            }
            writeln!(out)?;
            for row in of_side.chunks(methods) {
                write!(out, "    {:>first$}", row[0].processes)?;
                for point in row {
                    write!(out, "{:>other$}", (table.text)(point))?;
                }
                writeln!(out)?;
            }
        }
    }
    Ok(())
}
