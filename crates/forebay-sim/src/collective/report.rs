//! Figures as tables.

use super::benchmark::{self, Point, choice};
use super::locks::Locks;
use super::machine::{Outcome, System};
use super::parameters::{Figure, Parameters};
use forebay_core::collective::{Method, MethodChoice};
use std::fmt::{self, Write};

/// Width of the first column, and of each other one.
const WIDTHS: (usize, usize) = (16, 23);

/// What a table shows of a call.
pub(super) struct Column {
    title: &'static str,
    text: fn(&Point) -> String,
}

/// Those of writes, then those of reads.
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

/// Tables about writes.
const WRITES: usize = 3;

/// What is shown of a call in one direction. The table of lock requests, the last one of writes, is empty without locks.
pub(super) fn columns(reads: bool, locks: Locks) -> &'static [Column] {
    match (reads, locks) {
        (true, _) => &TABLES[WRITES..],
        (false, Locks::None) => &TABLES[..WRITES - 1],
        (false, _) => &TABLES[..WRITES],
    }
}

fn rate(outcome: &Outcome) -> String {
    format!("{:.0}", outcome.mb_s())
}

fn share(outcome: &Outcome) -> String {
    format!("{:.0}", outcome.io_percent())
}

/// The calibration of a system in one line.
pub(super) fn calibration(system: &System) -> String {
    format!("{}, locks {}", costs(system), system.locks.name())
}

/// The calibration without the locks.
pub(super) fn costs(system: &System) -> String {
    format!(
        "{} servers of {} MB/s, seek {} us (read {} us), granule {} KiB, {} processes a node, buffer {} KiB, window {} KiB, \
         network {} MB/s a node, message {} us, round trip {} us, lock request {} us, giving up a lock {} us",
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
    write_choices(out, system, &figure.processes, "  ")?;
    let methods = Method::ALL.len();
    let rows = figure.processes.len() * methods;
    assert_eq!(
        points.len(),
        figure.sides.len() * rows,
        "points of a figure"
    );
    for (side, of_side) in figure.sides.iter().zip(points.chunks(rows)) {
        writeln!(out, "\n  {side} x {side} x {side} integers a process")?;
        write_columns(out, &TABLES, of_side)?;
    }
    Ok(())
}

/// What core would choose for these numbers of processes, and why.
pub(super) fn write_choices(
    out: &mut String,
    system: &System,
    processes: &[u32],
    indent: &str,
) -> fmt::Result {
    let mut reasons: Vec<(MethodChoice, bool)> = Vec::new();
    for &processes in processes {
        let choice = choice(system, processes);
        let used = benchmark::aggregators_of(system, choice.method, u32::MAX, processes);
        let is_shown = choice.aggregators == used;
        match reasons
            .iter_mut()
            .find(|(other, _)| other.method == choice.method)
        {
            Some((_, are_shown)) => *are_shown &= is_shown,
            None => reasons.push((choice, is_shown)),
        }
    }
    for (choice, is_shown) in reasons {
        let method = choice.method.in_words();
        let fewer = match is_shown {
            true => String::new(),
            false => format!(
                " with {} aggregator, where the tables have one on each node",
                choice.aggregators
            ),
        };
        writeln!(
            out,
            "{indent}Forebay would choose {method}{fewer}: {}",
            choice.reason
        )?;
    }
    Ok(())
}

/// Tables with a row for each number of processes.
pub(super) fn write_columns(out: &mut String, tables: &[Column], points: &[Point]) -> fmt::Result {
    let (first, other) = WIDTHS;
    for table in tables {
        writeln!(out, "    {}", table.title)?;
        write!(out, "    {:>first$}", "processes")?;
        for method in Method::ALL {
            write!(out, "{:>other$}", method.in_words())?;
        }
        writeln!(out)?;
        for row in points.chunks(Method::ALL.len()) {
            write!(out, "    {:>first$}", row[0].processes)?;
            for point in row {
                write!(out, "{:>other$}", (table.text)(point))?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}
