//! Mistakes of users: each gives one clear line, a hint, and the promised exit code.

use crate::stage::{Said, Stage, finish};
use std::fs;
use std::os::unix::process::ExitStatusExt;

/// Checks that one line says what is wrong, with at most a second line that is a hint.
#[track_caller]
fn is_clear(said: &Said) {
    let lines: Vec<&str> = said.err.lines().collect();
    assert!(lines[0].starts_with("forebay: "), "{}", said.err);
    assert!(!said.err.contains("os error"), "{}", said.err);
    match lines[1..] {
        [] => {}
        [hint] => assert!(hint.starts_with("  hint: "), "{}", said.err),
        _ => panic!("{}", said.err),
    }
}

#[test]
fn a_buffer_that_cannot_be_one_is_refused_before_the_command_starts() {
    let stage = Stage::new();
    fs::write(stage.path("file"), "").unwrap();
    for (buffer, text) in [
        ("missing", "--buffer missing: No such file or directory"),
        ("file", "--buffer file is not a directory"),
        ("/", "--buffer / would put the whole system"),
    ] {
        let said = stage
            .say(&["run", "--buffer", buffer, "--", "touch", "ran"])
            .ends_with(125)
            .tells(text)
            .tells("  hint: ");
        is_clear(&said);
        is_clear(&stage.say(&["up", "--buffer", buffer]).ends_with(1));
        is_clear(&stage.say(&["drain", "--buffer", buffer]).ends_with(1));
    }
    assert!(!stage.path("ran").exists());
}

#[test]
fn a_storage_that_cannot_be_one_is_refused_before_the_command_starts() {
    let stage = Stage::new();
    fs::write(stage.path("file"), "").unwrap();
    fs::create_dir_all(stage.path("outer/pfs")).unwrap();
    for (buffer, storage, text) in [
        ("pfs", "pfs/inside", "lies inside the buffer"),
        ("outer/pfs", "outer", "lies inside the storage"),
        ("pfs", "file", "is not a directory"),
        ("pfs", "file/below", "Not a directory"),
        ("pfs", "/proc", "storage /proc"),
    ] {
        let said = stage
            .say(&[
                "run",
                "--buffer",
                buffer,
                "--storage",
                storage,
                "--",
                "touch",
                "ran",
            ])
            .ends_with(125)
            .tells(text)
            .tells("  hint: ");
        is_clear(&said);
    }
    assert!(!stage.path("ran").exists());
}

#[test]
fn a_default_storage_that_belongs_to_somebody_else_is_not_used() {
    let stage = Stage::new();
    let mut command = stage.forebay(&["run", "--buffer", "pfs", "--", "true"]);
    command
        .env("FOREBAY_STORAGE", "/proc")
        .env("LOCAL_SCRATCH", stage.path("scratch"));
    finish(command).ends_with(0);
    // The next candidate was used instead.
    assert!(stage.path("scratch").is_dir());
}

#[test]
fn wrong_options_have_the_promised_codes() {
    let stage = Stage::new();
    for arguments in [
        &["run", "--buffer", "pfs", "--no-such-option", "--", "true"][..],
        &["-v", "run", "--buffer", "pfs", "--no-such-option"],
        &["run", "--buffer", "pfs"],
        &["run", "--", "true"],
        &[
            "run",
            "--buffer",
            "pfs",
            "--keep",
            "--no-drain",
            "--",
            "true",
        ],
        &["run", "--buffer", "pfs", "--mode", "fast", "--", "true"],
        &[
            "run",
            "--buffer",
            "pfs",
            "--drain-rate",
            "many",
            "--",
            "true",
        ],
        &[
            "run",
            "--buffer",
            "pfs",
            "--drain-workers",
            "0",
            "--",
            "true",
        ],
    ] {
        stage.say(arguments).ends_with(125).tells("error: ");
    }
    for arguments in [
        &["up"][..],
        &["drain"],
        &["fsck"],
        &["quarantine"],
        &["quarantine", "take", "--buffer", "pfs"],
        &["quarantine", "drop", "a", "--all", "--buffer", "pfs"],
        &["no-such-verb"],
        &[],
    ] {
        stage.say(arguments).ends_with(2);
    }
    for arguments in [&["--help"][..], &["run", "--help"], &["--version"]] {
        stage.say(arguments).ends_with(0).prints("forebay");
    }
}

#[test]
fn a_reader_that_goes_early_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let said = std::process::Command::new(forebay_testkit::built::forebay())
        .args(["completions", "bash"])
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!(said.status.signal(), Some(libc::SIGPIPE));
    assert_eq!(String::from_utf8_lossy(&said.stderr), "");
}

#[test]
fn a_report_that_cannot_be_written_is_said_before_hours_of_work() {
    let stage = Stage::new();
    let said = stage
        .script(&["--report", "missing/report.json"], "touch ran")
        .ends_with(125)
        .tells("--report missing/report.json: No such file or directory");
    is_clear(&said);
    assert!(!stage.path("ran").exists());
}

#[test]
fn a_preload_library_that_is_not_there_is_named() {
    let stage = Stage::new();
    let mut command = stage.script_command(&[], "touch ran");
    command.env("FOREBAY_PRELOAD", "/no/such/library.so");
    let said = finish(command)
        .ends_with(125)
        .tells("$FOREBAY_PRELOAD is /no/such/library.so: No such file or directory");
    is_clear(&said);
    assert!(!stage.path("ran").exists());
}

#[test]
fn verbose_errors_have_their_causes() {
    let stage = Stage::new();
    stage
        .say(&["-v", "up", "--buffer", "missing"])
        .ends_with(1)
        .tells("forebay: --buffer missing: ");
}

#[test]
fn every_shell_gets_its_completions() {
    let stage = Stage::new();
    for shell in ["bash", "zsh", "fish"] {
        stage
            .say(&["completions", shell])
            .ends_with(0)
            .prints("forebay")
            .prints("no-drain");
    }
}

#[test]
fn a_bridge_of_another_version_is_named_with_both_versions() {
    let stage = Stage::new();
    fs::create_dir(stage.path("run/forebay")).unwrap();
    // This thread refuses one request, as a bridge of protocol 99 does.
    let bridge = "
import socket, struct
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind('run/forebay/other.sock')
s.listen()
print(flush=True)
c, _ = s.accept()
dialect = c.recv(20000)[:4]
c.send(dialect + struct.pack('<iIIQ', 71, 0, 0, 99))
";
    let mut bridge = stage
        .command("python3")
        .args(["-c", bridge])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut listens = [0];
    std::io::Read::read_exact(bridge.stdout.as_mut().unwrap(), &mut listens).unwrap();
    let said = stage
        .say(&["status"])
        .ends_with(0)
        .tells("speaks 99: use the same version of both");
    is_clear(&said);
    assert!(bridge.wait().unwrap().success());
}
