//! What the environment and the program ask for.

use std::io::Write as _;
use std::sync::OnceLock;

use forebay_core::collective::{SETTINGS, Wishes};

use crate::mpi::Mpi;

/// Switches the layer off in a process. All processes of a program must have the same.
const SWITCH: &str = "FOREBAY_COLLECTIVE";
/// Settings by name, `name=value;name=value`. They go over the hints of the program.
const HINTS: &str = "FOREBAY_COLLECTIVE_HINTS";

/// A file that gets a line for each file of a program that is closed: what the layer did with it.
const REPORT: &str = "FOREBAY_COLLECTIVE_REPORT";

/// Adds a line to the report.
pub fn report(line: std::fmt::Arguments) {
    let Some(path) = std::env::var_os(REPORT) else {
        return;
    };
    let file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path);
    // A report that can't be written is not worth failing a program.
    let _ = file.and_then(|mut file| file.write_all(line.to_string().as_bytes()));
}

/// Is the layer switched on?
pub fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| {
        let value = std::env::var(SWITCH).unwrap_or_default();
        !matches!(value.as_str(), "off" | "0" | "no")
    })
}

/// What is wished for a file that the program opens with these hints.
pub fn wishes(mpi: &Mpi, info: usize) -> Wishes {
    let mut wishes = Wishes::default();
    for name in SETTINGS {
        if let Some(value) = mpi.hint(info, name) {
            wishes.set(name, &value);
        }
    }
    let hints = std::env::var(HINTS).unwrap_or_default();
    for (name, value) in hints.split(';').filter_map(|hint| hint.split_once('=')) {
        wishes.set(name.trim(), value);
    }
    wishes
}
