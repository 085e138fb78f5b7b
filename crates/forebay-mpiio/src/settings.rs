//! What the environment and the program ask for.

use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

use forebay_core::collective::{MeasuredLocks, SETTINGS, Wishes, measurements_file, mount_name};
use forebay_count::ENV_RECORD_DIR;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

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

fn path_in(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|to| !to.is_empty())
}

/// The file of the report.
pub fn report() -> Option<OsString> {
    path_in(REPORT)
}

/// Where files are to be explained to people.
pub fn explanations() -> Option<OsString> {
    path_in(EXPLAIN)
}

/// The directory of the recorder's tables, if the program is recorded.
pub fn directory_of_tables() -> Option<OsString> {
    path_in(ENV_RECORD_DIR)
}

/// The file of the trace.
pub fn trace() -> Option<OsString> {
    path_in(TRACE)
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

/// More than this is none of the texts below.
const MAX_TEXT_BYTES: usize = 64 << 20;

/// A text, read without libc: the recorder is not to count it as I/O of the program. What is no file, or endless, has none.
fn read(path: &str) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let kind = rustix::fs::fstat(&file).ok()?.st_mode;
    if !FileType::from_raw_mode(kind).is_file() {
        return None;
    }
    let (mut text, mut part) = (Vec::new(), [0; 8192]);
    loop {
        match rustix::io::read(&file, &mut part) {
            Ok(0) => return String::from_utf8(text).ok(),
            Ok(_) if text.len() > MAX_TEXT_BYTES => return None,
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
