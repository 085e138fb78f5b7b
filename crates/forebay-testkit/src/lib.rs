//! What the tests of all crates share: when a test may be skipped, and where foreign tools and data are. Only for
//! `[dev-dependencies]`.
//!
//! - Continuous integration has everything that `scripts/setup.sh test` installs, and runs as root. A test that needs
//!   one of these calls [`skip_unless!`] or [`skip`]. If it is missing, the test prints the reason and returns; if `CI`
//!   is set, it fails.
//! - Data that can't be part of the repository may be missing anywhere. A test that needs it calls [`optional_data!`].
//!   If it is missing, the test prints the reason and returns, even if `CI` is set. CONTRIBUTING.md lists these tests.
//!
//! ```
//! fn a_test() {
//!     forebay_testkit::skip_unless!(std::path::Path::new("/proc").is_dir(), "no {} here", "/proc");
//! }
//! # a_test();
//! ```
#![forbid(unsafe_code)]

pub mod built;

use std::fs::Metadata;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Skips the test unless a condition holds. The reason is a format string with its arguments.
///
/// # Panics
/// If the condition does not hold, and `CI` is set.
#[macro_export]
macro_rules! skip_unless {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            $crate::skip(&::std::format!($($reason)+));
            return;
        }
    };
}

/// The value of a `Result<_, String>`. If there is none, prints the error and skips the test.
#[macro_export]
macro_rules! optional_data {
    ($data:expr) => {
        match $data {
            ::std::result::Result::Ok(data) => data,
            ::std::result::Result::Err(reason) => {
                $crate::without_data(&reason);
                return;
            }
        }
    };
}

/// Does `work` where no thread can be started: in a process of its own that runs the same test again. `test` is the path of
/// that test in its crate, as `--exact` takes it.
///
/// # Panics
/// If the test fails there, or a thread can be started after all.
pub fn without_threads(test: &str, work: impl FnOnce()) {
    const WITHIN: &str = "FOREBAY_TEST_WITHOUT_THREADS";
    if std::env::var_os(WITHIN).is_some() {
        let started = std::thread::Builder::new().spawn(|| ());
        assert!(started.is_err(), "a thread can be started");
        return work();
    }
    let me = std::env::current_exe().expect("the path of the test");
    let mut command = std::process::Command::new(me);
    // The standard library makes its stacks this large, and the test runner does without a thread then.
    command.env("RUST_MIN_STACK", (1_u64 << 62).to_string());
    command.env(WITHIN, "1");
    let ran = command.args(["--exact", test, "--nocapture"]).output();
    assert_passed(test, &ran.expect("run the test once more"));
}

/// Does `work` as a user without privileges: if this is root, in a process of its own that runs the same test again. `test` is the
/// path of that test in its crate, as `--exact` takes it.
///
/// # Panics
/// If the test fails there.
pub fn without_privileges(test: &str, work: impl FnOnce()) {
    if !is_root() {
        return work();
    }
    let me = std::env::current_exe().expect("the path of the test");
    // Another user may not be able to reach the folder of the build.
    let folder = new_folder(&std::env::temp_dir().to_string_lossy(), "fby-user");
    let copy = folder.join("test");
    std::fs::copy(me, &copy).expect("copy the test");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&folder, everybody).expect("open the folder of the test");
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(copy).args(["--exact", test, "--nocapture"]);
    let ran = command.current_dir("/").output();
    let _ = std::fs::remove_dir_all(&folder);
    assert_passed(test, &ran.expect("run the test once more"));
}

fn assert_passed(test: &str, ran: &std::process::Output) {
    let text = String::from_utf8_lossy(&ran.stdout);
    let passed = ran.status.success() && text.contains("1 passed");
    assert!(
        passed,
        "{test}: {text}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// A new folder for one test, `NAME.PROCESS.NUMBER`, in the one that `FOREBAY_TEST_DIR` names or else in `otherwise`, which is
/// `env!("CARGO_TARGET_TMPDIR")` of the test.
///
/// # Panics
/// If it can't be made.
pub fn new_folder(otherwise: &str, name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let base = std::env::var_os("FOREBAY_TEST_DIR").unwrap_or_else(|| otherwise.into());
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = Path::new(&base).join(format!("{name}.{}.{number}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("make the folder of the test");
    dir.canonicalize().expect("it is there")
}

/// Prints why a test is skipped. The caller then returns from the test.
///
/// # Panics
/// If `CI` is set, because everything must be installed there.
pub fn skip(reason: &str) {
    skip_in(in_ci(), reason);
}

/// Prints that optional data is missing; see [`optional_data!`]. The caller then returns from the test.
pub fn without_data(reason: &str) {
    say("no data", reason);
}

/// True in continuous integration, where `CI` is set and not empty.
fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty())
}

fn skip_in(ci: bool, reason: &str) {
    assert!(
        !ci,
        "with CI set no test may be skipped, and this one would be: {reason}"
    );
    say("skipped", reason);
}

/// Writes a line to standard error past libtest's capture, so that every log has it: what is said, the name of the test, and
/// more of it.
pub fn say(what: &str, reason: &str) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    // The line is written in one piece, because other tests write at the same time.
    let line = format!("{what}: {test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Every entry below `dir`, with its path relative to `dir`, sorted by path. Links are not followed.
///
/// # Panics
/// If a folder can't be listed, or an entry can't be looked at.
pub fn entries_below(dir: &Path) -> Vec<(PathBuf, Metadata)> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let listing = dir.join(&folder).read_dir();
        for entry in listing.unwrap_or_else(|e| panic!("list {}: {e}", folder.display())) {
            let path = folder.join(entry.expect("a directory entry").file_name());
            let metadata = dir.join(&path).symlink_metadata();
            let metadata = metadata.unwrap_or_else(|e| panic!("stat {}: {e}", path.display()));
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            found.push((path, metadata));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// True if this process is root. Only root may mount, chown, mknod and change users.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// The folder in which `scripts/setup.sh test` installs tools that Debian has no package for.
pub fn cache_dir() -> PathBuf {
    let from_env = |name| std::env::var_os(name).map(PathBuf::from);
    from_env("FOREBAY_CACHE")
        .or_else(|| from_env("XDG_CACHE_HOME").map(|dir| dir.join("forebay")))
        .or_else(|| from_env("HOME").map(|dir| dir.join(".cache/forebay")))
        .unwrap_or_default()
}

/// The folder of PyDarshan as `scripts/setup.sh test` installs it, with its Python at `bin/python`. If it is missing,
/// prints the reason like [`skip`], and returns `None`.
///
/// # Panics
/// If PyDarshan is missing, and `CI` is set.
pub fn pydarshan() -> Option<PathBuf> {
    let folder = cache_dir().join("pydarshan");
    if folder.join("bin/python").is_file() {
        return Some(folder);
    }
    skip(&format!(
        "no PyDarshan in {} (scripts/setup.sh test installs it)",
        folder.display()
    ));
    None
}

/// The folder of an MPI library of the standard ABI as `scripts/setup.sh test` installs it, with `bin`, `include` and `lib`.
///
/// # Errors
/// A text that says where it is missing.
pub fn standard_mpi() -> Result<PathBuf, String> {
    let folder = cache_dir().join("standard-mpi");
    match folder.join("lib/libmpi_abi.so.1").is_file() {
        true => Ok(folder),
        false => Err(format!(
            "no MPI library of the standard ABI in {} (scripts/setup.sh test installs it)",
            folder.display()
        )),
    }
}

/// The folder with the sample logs of the Darshan project: `data/darshan-logs` below `$FOREBAY_SHARED`, or below
/// `../shared` beside the workspace. For [`optional_data!`].
///
/// # Errors
/// The folder is missing. The text names the place.
pub fn sample_logs() -> Result<PathBuf, String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let beside = || workspace.map_or(PathBuf::new(), |dir| dir.join("../shared"));
    let shared = std::env::var_os("FOREBAY_SHARED").map_or_else(beside, PathBuf::from);
    let folder = shared.join("data/darshan-logs");
    if folder.is_dir() {
        return Ok(folder);
    }
    Err(format!(
        "no sample logs in {} (set FOREBAY_SHARED)",
        folder.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_holds_skips_nothing() {
        fn test(reached: &mut bool) {
            skip_unless!(1 + 1 == 2, "{} is missing", "arithmetic");
            *reached = true;
        }
        let mut reached = false;
        test(&mut reached);
        assert!(reached);
    }

    #[test]
    #[should_panic(
        expected = "with CI set no test may be skipped, and this one would be: no compiler"
    )]
    fn a_skip_is_a_failure_in_continuous_integration() {
        skip_in(true, "no compiler");
    }

    #[test]
    fn missing_data_is_no_failure() {
        fn test(data: Result<u8, String>, seen: &mut Option<u8>) {
            *seen = Some(optional_data!(data));
        }
        let mut seen = None;
        test(Err("it is elsewhere".into()), &mut seen);
        assert_eq!(seen, None);
        test(Ok(3), &mut seen);
        assert_eq!(seen, Some(3));
    }
}
