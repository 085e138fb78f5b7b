//! What programs make in a directory of the buffer without a call that the library sees.

use crate::stage::{Said, Stage, finish};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where this thing lies, as a drain or a check tells.
fn place(told: &str, name: &str) -> PathBuf {
    let words = format!("{name}: made past the buffer, it lies in ");
    let mut lines = told.lines();
    let place = lines.find_map(|line| line.trim().strip_prefix(&words));
    PathBuf::from(place.unwrap_or_else(|| panic!("no place of {name} in:\n{told}")))
}

/// Moves it where it belongs, from one file system to another.
fn bring(from: &Path, to: &Path) {
    let moved = Command::new("mv").arg(from).arg(to).status();
    assert!(moved.unwrap().success());
}

fn fsck(stage: &Stage) -> Said {
    let storage = stage.path("storage");
    stage.say(&["fsck", "--storage", storage.to_str().unwrap()])
}

#[test]
fn what_is_made_through_links_of_proc_is_named_kept_and_checked_until_somebody_moves_it() {
    let stage = Stage::new();
    let said = stage
        .script(
            &[],
            "cd pfs; mkdir new; cd new; echo known > known
             echo precious > /proc/$$/cwd/result; mkdir /proc/$$/cwd/sub; cd ..; mkdir empty",
        )
        .ends_with(75)
        .tells("left in the buffer");
    assert!(!said.err.contains("nothing\n"), "{}", said.err);
    let result = place(&said.err, "new/result");
    let sub = place(&said.err, "new/sub");
    assert_eq!(fs::read_to_string(&result).unwrap(), "precious\n");
    let on_pfs = |name: &str| fs::read_to_string(stage.pfs().join(name)).unwrap();
    assert_eq!(on_pfs("new/known"), "known\n");
    assert_eq!(place(&fsck(&stage).ends_with(1).out, "new/result"), result);
    // Not the next run and not a drain loses it.
    let said = stage.script(&[], "true").ends_with(75);
    assert_eq!(place(&said.err, "new/result"), result);
    let said = stage.say(&["drain", "--buffer", "pfs"]).ends_with(75);
    assert_eq!(place(&said.err, "new/sub"), sub);
    assert_eq!(fs::read_to_string(&result).unwrap(), "precious\n");
    // As the hint says.
    bring(&result, &stage.path("pfs/new/result"));
    bring(&sub, &stage.path("pfs/new/sub"));
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(on_pfs("new/result"), "precious\n");
    assert!(stage.path("pfs/new/sub").is_dir());
    fsck(&stage).ends_with(0);
    assert!(stage.path("pfs/empty").is_dir());
}

#[test]
fn a_directory_with_something_that_was_made_past_the_buffer_is_not_given_up_for_theirs() {
    let stage = Stage::new();
    fs::create_dir(stage.path("pfs/d")).unwrap();
    let script = "mkdir pfs/d/new; cd pfs/d/new; echo precious > /proc/$$/cwd/result";
    stage.script(&["--no-drain"], script).ends_with(0);
    fs::remove_dir(stage.path("pfs/d")).unwrap();
    let take = ["drain", "--buffer", "pfs", "--take", "theirs", "d/new"];
    let said = stage.say(&take).ends_with(75).tells("would be lost");
    let result = place(&said.err, "d/new/result");
    assert_eq!(fs::read_to_string(&result).unwrap(), "precious\n");
    fs::remove_file(&result).unwrap();
    stage.say(&take).ends_with(0);
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
}

#[test]
fn a_directory_with_something_that_was_made_past_the_buffer_is_not_removed() {
    let stage = Stage::new();
    let script = "cd pfs; mkdir d other; cd d; echo precious > /proc/$$/cwd/result; cd ..
        if rmdir d; then exit 3; fi
        if mv -T other d; then exit 4; fi
        if rm -r d; then exit 5; fi
        rmdir other";
    let said = stage.script(&[], script).ends_with(75);
    assert_eq!(
        said.err.matches("Directory not empty").count(),
        3,
        "{}",
        said.err
    );
    let result = place(&said.err, "d/result");
    assert_eq!(fs::read_to_string(&result).unwrap(), "precious\n");
    bring(&result, &stage.path("pfs/result"));
    stage.script(&[], "rmdir pfs/d").ends_with(0);
}

#[test]
fn a_list_of_what_the_profiler_of_libc_has_written_is_in_the_report() {
    let stage = Stage::new();
    fs::write(stage.path("m.c"), "int main(void) { return 0; }").unwrap();
    let mut compiler = stage.command("cc");
    compiler.args(["-pg", "m.c", "-o", "m"]);
    if finish(compiler).code != 0 {
        forebay_testkit::skip("no compiler that links for gprof");
        return;
    }
    let said = stage
        .script(
            &["--report", "report.json"],
            "cd pfs; mkdir run1; cd run1; ../../m",
        )
        .ends_with(75);
    let profile = place(&said.err, "run1/gmon.out");
    let report = fs::read_to_string(stage.path("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let left = &report["drain"]["left"][0];
    assert_eq!(left["path"], "run1/gmon.out", "{report:#}");
    assert_eq!(left["reason"], "stray");
    assert_eq!(left["cause"], profile.to_str().unwrap());
    assert_eq!(left["bytes"], profile.metadata().unwrap().size());
}
