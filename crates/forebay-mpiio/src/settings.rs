//! What the environment and the program ask for.

use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::collective::{
    MAX_TRACE_BYTES, MeasuredLocks, SETTINGS, Wishes, cut_off_line, measurements_file, mount_name,
};
use forebay_count::{COLLECTIVE_PREFIX, ENV_RECORD_DIR};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

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
/// A file that gets a line for each collective call: what each rank accesses.
const TRACE: &str = "FOREBAY_COLLECTIVE_TRACE";

/// Adds a line to the report.
pub fn report(line: std::fmt::Arguments) {
    if let Some(path) = std::env::var_os(REPORT) {
        append(Path::new(&path), &line.to_string());
    }
}

/// Room for the mark of a trace that ends.
const MARK_BYTES: u64 = 100;

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|to| !to.is_empty())
}

/// Are files to be explained?
pub fn explains() -> bool {
    is_set(EXPLAIN) || is_set(ENV_RECORD_DIR)
}

/// Are collective calls to be traced?
pub fn traces() -> bool {
    is_set(TRACE)
}

/// Adds a line to the trace. Once that has failed, or the trace is full, this process adds nothing more: said once, and no
/// reason to fail a program.
pub fn trace(line: &str) {
    static ENDED: AtomicBool = AtomicBool::new(false);
    let Some(to) = std::env::var_os(TRACE).filter(|to| !to.is_empty()) else {
        return;
    };
    if ENDED.load(Ordering::Relaxed) {
        return;
    }
    let path = Path::new(&to);
    let why = match append_bounded(path, line) {
        Ok(true) => return,
        Ok(false) => format!(
            "it has {} MiB, the most that it may have",
            MAX_TRACE_BYTES >> 20
        ),
        Err(error) => std::io::Error::from(error).to_string(),
    };
    if !ENDED.swap(true, Ordering::Relaxed) {
        let said = format!(
            "forebay: trace of collective calls {}: {why}; it ends here\n",
            path.display()
        );
        // Nobody else can be told.
        let _ = std::io::stderr().write_all(said.as_bytes());
    }
}

/// Adds a line to a file, or says in it that it ends here. Like [`read`] without libc: it is no I/O of the program. Did the
/// line find room?
fn append_bounded(path: &Path, line: &str) -> Result<bool, Errno> {
    // A FIFO without a reader is an error and no wait.
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o666))?;
    let size = rustix::fs::fstat(&file)?.st_size as u64;
    let after = size.saturating_add(line.len() as u64);
    // Beyond its limit of file sizes a program gets a signal, which ends it.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if limit.is_some_and(|limit| after.max(size.saturating_add(MARK_BYTES)) > limit) {
        return Err(Errno::FBIG);
    }
    let has_room = after <= MAX_TRACE_BYTES;
    match has_room {
        true => write_all(&file, line.as_bytes())?,
        false => write_all(&file, cut_off_line().as_bytes())?,
    }
    Ok(has_room)
}

fn write_all(file: impl std::os::fd::AsFd, bytes: &[u8]) -> Result<(), Errno> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(&file, rest) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Tells the recorder, if there is one, of a file: the log of the job gets it. Like [`read`] without libc: it is no I/O of the program.
fn record(explanation: &Explanation) {
    let Some(tables) = std::env::var_os(ENV_RECORD_DIR).filter(|tables| !tables.is_empty()) else {
        return;
    };
    let path = Path::new(&tables).join(format!("{COLLECTIVE_PREFIX}{}", std::process::id()));
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)) else {
        return;
    };
    // The log then has no word of this file.
    let _ = write_all(&file, explanation.to_json().as_bytes());
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
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let (mut text, mut part) = (Vec::new(), [0; 8192]);
    loop {
        match rustix::io::read(&file, &mut part) {
            Ok(0) => return String::from_utf8(text).ok(),
            Ok(bytes) => text.extend(&part[..bytes]),
            Err(Errno::INTR) => {}
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
