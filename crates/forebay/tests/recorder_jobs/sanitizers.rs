//! Programs built with a sanitizer, whose runtime wants to be the first library and intercepts the same calls.

use crate::job::{Job, only, record};
use crate::stage::{Stage, finish};
use std::path::Path;
use std::process::Command;

/// What `programs/sanitized.c` prints, and with which code it ends.
const SAYS: (&str, i32) = ("000042, 3 of a child, 4 files of 5000 bytes\n", 5);

/// Runs the program bare and recorded; skips if gcc can't build it.
#[track_caller]
fn runs_recorded_as_bare(sanitizer: &str) {
    let stage = Stage::new();
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorder_jobs/programs/sanitized.c");
    let built = Command::new("gcc")
        .args(["-O1", "-g", "-pthread", sanitizer, "-o", "sanitized"])
        .arg(source)
        .current_dir(stage.path(""))
        .output();
    forebay_testkit::skip_unless!(
        built.is_ok_and(|built| built.status.success()),
        "gcc cannot build with {sanitizer}"
    );

    let mut bare = Command::new("timeout");
    bare.args(["-k", "5", "100", "./sanitized"]);
    bare.current_dir(stage.path(""));
    let bare = finish(bare);
    // The thread sanitizer of GCC 12 knows no memory layout of more than 28 random bits (vm.mmap_rnd_bits).
    forebay_testkit::skip_unless!(
        !bare.err.contains("unexpected memory mapping"),
        "{sanitizer} does not run on this kernel"
    );
    let bare = bare.ends_with(SAYS.1);
    assert_eq!((bare.out.as_str(), bare.err.as_str()), (SAYS.0, ""));
    for made in ["stream", "child"] {
        std::fs::remove_file(stage.path(made)).unwrap();
    }

    let said = record(&stage, "exec ./sanitized").ends_with(SAYS.1);
    assert_eq!(said.out, SAYS.0);
    // The recorder says where the log is; a sanitizer would say more.
    let lines: Vec<&str> = said.err.lines().collect();
    assert!(
        matches!(lines[..], [line] if line.starts_with("forebay: log ")),
        "{lines:?}"
    );
    let job = Job::of(&stage);
    for thread in 0..4 {
        let name = format!("thread.{thread}");
        // 50 writes of 100 bytes, then one piece over the first of them, which is read again.
        assert_eq!(job.bytes(&stage, &name), only(0, 100, 5100), "{name}");
    }
    assert_eq!(job.bytes(&stage, "stream"), only(0, 7, 7));
    assert_eq!(job.bytes(&stage, "child"), only(0, 0, 5));
    assert_eq!(job.line("exit"), "code 5");
    assert_eq!(job.line("abnormal_ends"), "");
}

#[test]
fn a_program_with_address_sanitizer_does_the_same_and_its_io_is_in_the_log() {
    runs_recorded_as_bare("-fsanitize=address");
}

#[test]
fn a_program_with_thread_sanitizer_does_the_same_and_its_io_is_in_the_log() {
    runs_recorded_as_bare("-fsanitize=thread");
}
