//! Where logs go, and what happens if they cannot.

use crate::common;
use crate::job::{Job, record, write};
use crate::stage::{Stage, finish};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// All files below a directory.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn a_log_is_named_as_darshan_names_it_and_read_only() {
    let stage = Stage::new();
    let mut command = stage.forebay(&[
        "record",
        "--log-dir",
        "here",
        "--",
        "bash",
        "-c",
        "echo > f",
    ]);
    command.env("LOGNAME", "ada").env("SLURM_JOB_ID", "4711");
    finish(command).ends_with(0);
    let logs = files_below(&stage.path("here"));
    assert_eq!(logs.len(), 1, "{logs:?}");
    let name = logs[0].file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("ada_bash_id4711-"), "{name}");
    assert!(name.ends_with(".darshan"), "{name}");
    assert_eq!(name.split('_').count(), 5, "{name}");
    let mode = fs::metadata(&logs[0]).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o400);
}

#[test]
fn without_a_directory_logs_go_where_the_site_wants_them_by_day() {
    let stage = Stage::new();
    stage.say(&["record", "--", "true"]).ends_with(0);
    let logs = files_below(&stage.path("logs"));
    assert_eq!(logs.len(), 1, "{logs:?}");
    let below = logs[0].strip_prefix(stage.path("logs")).unwrap();
    assert_eq!(below.components().count(), 4, "year, month, day: {below:?}");
}

#[test]
fn a_log_that_exists_is_refused_before_the_command_is_started() {
    let stage = Stage::new();
    fs::write(stage.path("job.darshan"), "mine").unwrap();
    record(&stage, "echo > ran")
        .ends_with(125)
        .tells("job.darshan: it exists");
    assert!(!stage.path("ran").exists());
    assert_eq!(fs::read(stage.path("job.darshan")).unwrap(), b"mine");
}

#[test]
fn a_log_directory_that_cannot_be_written_is_refused_before_the_command_is_started() {
    let stage = Stage::new();
    fs::write(stage.path("file"), "").unwrap();
    for dir in ["file", "file/below", "/proc/nowhere"] {
        let arguments = ["record", "--log-dir", dir, "--", "touch", "ran"];
        stage.say(&arguments).ends_with(125).tells("--log-dir ");
    }
    assert!(!stage.path("ran").exists());
}

#[test]
fn a_full_log_directory_keeps_the_tables_and_says_how_to_go_on() {
    forebay_testkit::skip_unless!(
        forebay_testkit::is_root(),
        "only root may mount a small file system"
    );
    let stage = Stage::new();
    fs::create_dir(stage.path("small")).unwrap();
    // The mount happens in a mount namespace of its own, so that it ends with the process.
    let script = format!(
        "mount -t tmpfs -o size=16k tmpfs small && head -c 8k /dev/zero > small/half; \
         {} record --log-dir small -- bash -c 'head -c 8k /dev/zero > small/rest; echo 1 > out; exit 5'; \
         code=$?; ls small > left; exit $code",
        common::forebay().display()
    );
    let mut command = stage.command("unshare");
    command.args(["--mount", "bash", "-c", &script]);
    let said = finish(command)
        .ends_with(5)
        .tells("No space left on device")
        .tells("the tables are kept; to try again, run: forebay collect ");
    assert_eq!(
        fs::read_to_string(stage.path("left")).unwrap(),
        "half\nrest\n"
    );
    let retry = said.err.rsplit("run: forebay ").next().unwrap().trim();
    let retry = retry.replace("--log FILE", "--log job.darshan");
    let words: Vec<&str> = retry.split(' ').collect();
    stage.say(&words).ends_with(0);
    let job = Job::of(&stage);
    assert_eq!(job.line("exit"), "code 5");
    assert!(!job.bytes(&stage, "out").is_empty());
    assert_eq!(fs::read_dir(stage.path("tables")).unwrap().count(), 0);
}

#[test]
fn garbage_among_the_tables_is_named_and_the_rest_is_in_the_log() {
    let stage = Stage::new();
    let script = "head -c 100000 /dev/urandom > $FOREBAY_RECORD/9-9-0.table; \
                  head -c 3 /dev/zero > $FOREBAY_RECORD/8-8-0.table; \
                  ln -s /dev/zero $FOREBAY_RECORD/7-7-0.table; \
                  mkfifo $FOREBAY_RECORD/6-6-0.table";
    record(&stage, &format!("{}; {script}", write("out", 2)))
        .ends_with(0)
        .tells("9-9-0.table is damaged")
        .tells("8-8-0.table is damaged")
        .tells("7-7-0.table is damaged")
        .tells("6-6-0.table is damaged");
    let job = Job::of(&stage);
    assert!(job.line("degraded").starts_with("4 tables unreadable"));
    assert_eq!(job.written(&stage, "out"), 2);
}

#[test]
fn a_directory_that_is_no_recording_is_an_error() {
    let stage = Stage::new();
    stage
        .say(&["collect", "pfs"])
        .ends_with(1)
        .tells("job.json")
        .tells("hint: name a directory that `forebay record` has made");
    stage.say(&["collect", "none"]).ends_with(1).tells("none");
}
