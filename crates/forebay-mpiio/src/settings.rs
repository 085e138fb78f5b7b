//! What the environment and the program ask for.

use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use forebay_core::collective::{MeasuredLocks, SETTINGS, Wishes, measurements_file, mount_name};
use forebay_count::{COLLECTIVE_PREFIX, ENV_RECORD_DIR};

use crate::explain::Explanation;
use crate::mpi::Mpi;

/// Switches the layer off in a process. All processes of a program must have the same.
const SWITCH: &str = "FOREBAY_COLLECTIVE";
/// Settings by name, `name=value;name=value`. They go over the hints of the program.
const HINTS: &str = "FOREBAY_COLLECTIVE_HINTS";

/// A file with settings for paths, which go over the hints of the program, and below those of [`HINTS`].
const POLICY: &str = "FOREBAY_COLLECTIVE_POLICY";

/// A file that gets a line for each file of a program that is closed: what the layer did with it.
const REPORT: &str = "FOREBAY_COLLECTIVE_REPORT";
/// Where each file of a program that is closed is explained: `-` for the standard error, or a file; JSON if its name ends so.
const EXPLAIN: &str = "FOREBAY_COLLECTIVE_EXPLAIN";

/// Adds a line to the report.
pub fn report(line: std::fmt::Arguments) {
    if let Some(path) = std::env::var_os(REPORT) {
        append(Path::new(&path), &line.to_string());
    }
}

/// Are files to be explained?
pub fn explains() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|to| !to.is_empty());
    is_set(EXPLAIN) || is_set(ENV_RECORD_DIR)
}

/// Tells the recorder, if there is one, of a file: the log of the job gets it. Like [`read`] without libc: it is no I/O of the program.
fn record(explanation: &Explanation) {
    use rustix::fs::{Mode, OFlags};
    let Some(tables) = std::env::var_os(ENV_RECORD_DIR).filter(|tables| !tables.is_empty()) else {
        return;
    };
    let path = Path::new(&tables).join(format!("{COLLECTIVE_PREFIX}{}", std::process::id()));
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)) else {
        return;
    };
    let line = explanation.to_json();
    let mut rest = line.as_bytes();
    while let Ok(written @ 1..) = rustix::io::write(&file, rest) {
        rest = &rest[written..];
    }
}

/// Explains a file.
pub fn explain(explanation: &Explanation) {
    record(explanation);
    let Some(to) = std::env::var_os(EXPLAIN).filter(|to| !to.is_empty()) else {
        return;
    };
    match Path::new(&to) {
        to if to == Path::new("-") => {
            // Nobody else can be told.
            let _ = std::io::stderr().write_all(explanation.to_text().as_bytes());
        }
        to if to.extension().is_some_and(|e| e == "json") => append(to, &explanation.to_json()),
        to => append(to, &explanation.to_text()),
    }
}

fn append(path: &Path, text: &str) {
    let file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path);
    // A report that can't be written is not worth failing a program.
    let _ = file.and_then(|mut file| file.write_all(text.as_bytes()));
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

/// Takes over the hints in an info object of the program.
pub fn take_hints(mpi: &Mpi, info: usize, wishes: &mut Wishes) {
    for name in SETTINGS {
        if let Some(value) = mpi.hint(info, name) {
            wishes.set(name, &value);
        }
    }
}

/// What is wished for a file for which the program asks `asked`.
pub fn wishes(asked: Wishes, path: &Path) -> Wishes {
    let mut wishes = asked;
    let policy = std::env::var(POLICY).ok().and_then(|policy| read(&policy));
    if let (Some(policy), Some(path)) = (policy, path.to_str()) {
        wishes.set_by_policy(&policy, path);
    }
    wishes.set_all(&std::env::var(HINTS).unwrap_or_default());
    wishes
}
