//! What the environment and the program ask for.

use std::io::Write as _;
use std::sync::OnceLock;

use forebay_core::collective::{MeasuredLocks, SETTINGS, Wishes, measurements_file, mount_name};

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

/// What `forebay probe` has measured of the file system on a device.
pub fn measured(device: (u32, u32)) -> Option<MeasuredLocks> {
    let path = measurements_file(|name| std::env::var(name).ok())?;
    let kept = read(&path)?;
    let mounts = read("/proc/self/mountinfo")?;
    MeasuredLocks::find(&kept, &mount_name(&mounts, device)?)
}

/// A text, read without libc: the recorder is not to count it as I/O of the program.
fn read(path: &str) -> Option<String> {
    use rustix::fs::{Mode, OFlags};
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let (mut text, mut part) = (Vec::new(), [0; 8192]);
    loop {
        match rustix::io::read(&file, &mut part) {
            Ok(0) => return String::from_utf8(text).ok(),
            Ok(bytes) => text.extend(&part[..bytes]),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
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
