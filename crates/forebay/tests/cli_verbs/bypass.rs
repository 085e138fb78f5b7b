//! Programs that the library does not reach are named, and the run does not end as if nothing had been missed.

use crate::common;
use crate::stage::{Said, Stage};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// A stage with a static program in the buffer's directory and beside it, which prints a file.
fn stage() -> Option<Stage> {
    let stage = Stage::new();
    let source = stage.path("show.c");
    let text = "#include <stdio.h>\nint main(int n, char **a) { FILE *f = n > 1 ? fopen(a[1], \"r\") : 0; \
        int c; while (f && (c = getc(f)) != EOF) putchar(c); return 0; }\n";
    fs::write(&source, text).unwrap();
    for (to, how) in [
        ("show", "-static"),
        ("pfs/show", "-static"),
        ("dynamic", "-O1"),
    ] {
        let mut cc = Command::new("cc");
        cc.arg(how).arg("-o").arg(stage.path(to)).arg(&source);
        if !cc.status().is_ok_and(|status| status.success()) {
            forebay_testkit::skip("there is no static libc to build a program with");
            return None;
        }
    }
    Some(stage)
}

/// How often it is named on standard error before the report.
fn warnings(said: &Said) -> usize {
    said.err.matches("goes past the buffer").count()
}

fn report(stage: &Stage) -> Value {
    let text = fs::read_to_string(stage.path("report.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_static_program_in_the_buffer_is_named_once_and_the_run_ends_with_76() {
    let Some(stage) = stage() else { return };
    let path = stage.path("report.json").display().to_string();
    let script = "cd pfs; echo new > file; ./show file; ./show file; sh -c 'exec ./show file'";
    let said = stage
        .script(&["--report", &path], script)
        .ends_with(76)
        .tells("./show goes past the buffer (static)")
        .tells("went past    ./show (static) 3 times")
        .tells("--allow-bypass");
    assert_eq!((warnings(&said), said.out.as_str()), (1, ""));
    let past = &report(&stage)["went_past"];
    assert_eq!(past[0]["path"], "./show", "{past}");
    assert_eq!(
        (&past[0]["why"], &past[0]["starts"]),
        (&"static".into(), &3.into())
    );
    // The data is drained all the same.
    assert_eq!(stage.on_pfs()["file"], "new\n");
    stage.script(&["--allow-bypass"], script).ends_with(0);
    // A failure of the command itself is told as ever.
    stage.script(&[], &format!("{script}; exit 3")).ends_with(3);
}

#[test]
fn so_is_the_command_itself_a_script_that_it_runs_and_what_posix_spawn_and_python_start() {
    let Some(stage) = stage() else { return };
    let show = stage.path("show").display().to_string();
    let file = stage.path("pfs/file").display().to_string();
    let run = |command: &[&str]| {
        let all = ["run", "--buffer", "pfs", "--no-record", "--"];
        let all: Vec<_> = all.into_iter().chain(command.iter().copied()).collect();
        stage.say(&all)
    };
    run(&[&show, &file])
        .ends_with(76)
        .tells("show goes past the buffer (static)");
    let script = stage.path("script");
    fs::write(&script, format!("#!{show}\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.display().to_string();
    run(&[&script, &file])
        .ends_with(76)
        .tells("script goes past");
    run(&["sh", "-c", &format!("{script} {file}; true")])
        .ends_with(76)
        .tells("script goes past");
    for start in [
        format!("import subprocess; subprocess.run(['{show}', '{file}'], check=True)"),
        format!("import os; os.waitpid(os.posix_spawn('{show}', ['show', '{file}'], {{}}), 0)"),
        format!(
            "import os; os.environ['PATH'] = os.path.dirname('{show}'); os.waitpid(os.posix_spawnp('show', ['show', '{file}'], os.environ), 0)"
        ),
    ] {
        let said = run(&["python3", "-c", &start]).ends_with(76);
        assert_eq!(warnings(&said), 1, "{start}: {}", said.err);
    }
}

#[test]
fn one_that_hardly_looks_into_the_buffer_is_named_and_changes_no_exit_status() {
    let Some(stage) = stage() else { return };
    let said = stage
        .script(&[], "echo new > pfs/file; ./show /etc/hostname >&2")
        .ends_with(0);
    assert_eq!(warnings(&said), 1, "{}", said.err);
    said.tells("went past    ./show (static)");
    // With -q there is a report for that alone.
    stage
        .script(&["-q"], "./show")
        .ends_with(0)
        .tells("went past");
}

#[test]
fn programs_that_load_the_library_are_not_named() {
    let Some(stage) = stage() else { return };
    let script = "cd pfs; echo new > file; ../dynamic file; env -i ../dynamic file; /lib64/ld-linux-x86-64.so.2 ../dynamic file; \
        python3 -c 'import subprocess; subprocess.run([\"../dynamic\", \"file\"], env={})'";
    let said = stage.script(&[], script).ends_with(0);
    assert_eq!(warnings(&said), 0, "{}", said.err);
    assert_eq!(said.out, "new\n".repeat(4));
}

#[test]
fn through_the_mount_no_program_goes_past() {
    forebay_testkit::skip_unless!(
        forebay_testkit::is_root() && std::path::Path::new("/dev/fuse").exists(),
        "a mount needs root and /dev/fuse"
    );
    let Some(stage) = stage() else { return };
    let said = stage
        .script(&["--via", "mount"], "cd pfs; echo new > file; ./show file")
        .ends_with(0);
    assert_eq!((warnings(&said), said.out.as_str()), (0, "new\n"));
}

#[test]
fn a_program_with_other_rights_is_named_for_who_gets_them() {
    forebay_testkit::skip_unless!(
        forebay_testkit::is_root(),
        "only root can make programs of root"
    );
    let Some(stage) = stage() else { return };
    let program = stage.path("dynamic");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    // Root has these rights already.
    let said = stage
        .script(&[], "cd pfs; echo new > file; ../dynamic file")
        .ends_with(0);
    assert_eq!(warnings(&said), 0, "{}", said.err);
    fs::set_permissions(stage.pfs(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&stage.dir, fs::Permissions::from_mode(0o755)).unwrap();
    // Another user can't spoil the end of root's run: to the bridge it may tell what it likes.
    let script = "setpriv --reuid 1001 --regid 1001 --clear-groups sh -c 'cd pfs; ../dynamic file'";
    stage
        .script(&[], script)
        .ends_with(0)
        .tells("/dynamic goes past the buffer (set-user-id or set-group-id)")
        .tells("/dynamic (set-user-id or set-group-id)\n");
}

#[test]
fn an_argument_that_leads_into_the_buffer_counts_like_one_that_names_it() {
    let Some(stage) = stage() else { return };
    let script = "echo new > pfs/file; ./show pfs/file";
    stage.script(&[], script).ends_with(76);
    let mut command = stage.forebay(&["run", "--buffer", "pfs", "--no-record", "--"]);
    command.args(["./show", "pfs/new"]);
    crate::stage::finish(command).ends_with(76);
}

#[test]
fn a_go_program_with_parts_in_c_is_named_although_it_loads_the_library() {
    let Some(stage) = stage() else { return };
    let source = "package main\nimport \"C\"\nimport (\"fmt\"; \"os\")\n\
        func main() { text, _ := os.ReadFile(os.Args[1]); fmt.Print(string(text)) }\n";
    fs::write(stage.path("main.go"), source).unwrap();
    let Some(go) = common::go_compiler() else {
        return;
    };
    let built = Command::new(go)
        .args(["build", "-o", "withc", "main.go"])
        .current_dir(&stage.dir)
        .env("CGO_ENABLED", "1")
        .env("GOCACHE", stage.path("go-cache"))
        .env("GOPATH", stage.path("go"))
        .env("GO111MODULE", "off")
        .status();
    assert!(built.unwrap().success());
    let said = stage
        .script(&[], "echo new > pfs/file; ./withc pfs/file")
        .ends_with(76)
        .tells("./withc goes past the buffer (Go)");
    assert_eq!(said.out, "", "it has seen the PFS");
}

#[test]
fn the_name_of_a_program_forges_no_line() {
    let Some(stage) = stage() else { return };
    let script = "n=$(printf 'x\\nforebay: all is well\\033[0m'); cp show \"$n\"; \"./$n\"";
    let said = stage.script(&[], script).ends_with(0);
    assert!(!said.err.contains("\nforebay: all is well"), "{}", said.err);
    assert!(!said.err.contains('\u{1b}'), "{}", said.err);
    said.tells("./x?forebay: all is well?[0m goes past the buffer (static)");
}
