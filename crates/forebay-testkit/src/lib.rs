//! What the tests of all crates share: when a test may leave without showing anything, and where foreign tools and data
//! are. Only for `[dev-dependencies]`.
//!
//! - What `scripts/setup.sh test` installs, and what root may do, is there in continuous integration. A test that needs
//!   it says [`skip_unless!`] or [`skip`]: it leaves with the reason on the terminal, but fails with the reason if `CI`
//!   is set.
//! - Data that can't be part of the repository may be missing anywhere. A test that needs it says [`optional_data!`]. It
//!   leaves with the reason, also if `CI` is set. CONTRIBUTING.md lists these tests.
//!
//! ```
//! fn a_test() {
//!     forebay_testkit::skip_unless!(std::path::Path::new("/proc").is_dir(), "no {} here", "/proc");
//! }
//! # a_test();
//! ```
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Leaves the test unless a condition holds. The reason is a format string with its arguments.
///
/// # Panics
/// The condition does not hold, and `CI` is set.
#[macro_export]
macro_rules! skip_unless {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            $crate::skip(&::std::format!($($reason)+));
            return;
        }
    };
}

/// Gives the value of a `Result<_, String>`, or says why there is none and leaves the test.
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

/// Says why a test shows nothing here. The caller leaves the test.
///
/// # Panics
/// `CI` is set: there everything must be installed.
pub fn skip(reason: &str) {
    skip_in(in_ci(), reason);
}

/// Says that optional data is missing, see [`optional_data!`]. The caller leaves the test.
pub fn without_data(reason: &str) {
    say("no data", reason);
}

/// Is this a run of continuous integration? `CI` is set then, and not empty.
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

/// Writes past libtest's capture, so that no skip goes unseen.
fn say(what: &str, reason: &str) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    // In one piece: other tests write at the same time.
    let line = format!("{what}: {test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Is this process the superuser, who alone may mount, chown, mknod and change users?
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Where `scripts/setup.sh test` puts what Debian has no package for.
pub fn cache_dir() -> PathBuf {
    let from_env = |name| std::env::var_os(name).map(PathBuf::from);
    from_env("FOREBAY_CACHE")
        .or_else(|| from_env("XDG_CACHE_HOME").map(|dir| dir.join("forebay")))
        .or_else(|| from_env("HOME").map(|dir| dir.join(".cache/forebay")))
        .unwrap_or_default()
}

/// The folder of PyDarshan as `scripts/setup.sh test` installs it, with its Python at `bin/python`; `None` if it is
/// missing. Says why, as [`skip`].
///
/// # Panics
/// It is missing, and `CI` is set.
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

/// The folder with the sample logs of the Darshan project: `data/darshan-logs` below `$FOREBAY_SHARED`, or below
/// `../shared` beside the workspace. For [`optional_data!`].
///
/// # Errors
/// It is not there; the text says where it was looked for.
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
