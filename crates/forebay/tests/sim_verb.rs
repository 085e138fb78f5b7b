//! `forebay sim collective` as users see it: tables, a drawing, parameters of their own, and mistakes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn forebay(dir: &Path, arguments: &[&str]) -> Output {
    let program = std::env::var_os("FOREBAY_BIN").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_forebay")),
        PathBuf::from,
    );
    let mut command = Command::new(program);
    command.args(["sim", "collective"]).args(arguments);
    command.current_dir(dir).output().unwrap()
}

/// What a command prints that succeeds without a word of complaint.
#[track_caller]
fn prints(dir: &Path, arguments: &[&str]) -> String {
    let output = forebay(dir, arguments);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stderr, b"", "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_figure_is_the_same_tables_and_drawing_each_time_with_its_calibration() {
    let dir = tempfile::tempdir().unwrap();
    let first = prints(dir.path(), &["--figure", "6", "--svg", "a.svg"]);
    let second = prints(dir.path(), &["--figure", "6", "--svg", "b.svg"]);
    assert_eq!(first, second);
    for part in [
        "Figure 6: system gpfs\n",
        "  calibration: 54 servers of 150 MB/s",
        "Forebay would choose aligned",
        "write, I/O phase in % of the time",
        "1023 (1022)",
    ] {
        assert!(first.contains(part), "no {part:?} in\n{first}");
    }
    assert!(!first.contains("Figure 4"), "{first}");
    let svg = |name| fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(svg("a.svg").contains("Figure 6, gpfs"));
    assert_eq!(svg("a.svg"), svg("b.svg"));
}

#[test]
fn the_parameters_that_are_printed_can_be_changed_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let text = prints(dir.path(), &["--print-parameters"]);
    fs::write(dir.path().join("same.txt"), &text).unwrap();
    let of = |file| prints(dir.path(), &["--figure", "6", "--parameters", file]);
    assert_eq!(of("same.txt"), prints(dir.path(), &["--figure", "6"]));
    let changed = text.replace("locks = tokens ", "locks = none ");
    fs::write(dir.path().join("changed.txt"), changed).unwrap();
    assert!(of("changed.txt").contains("locks none\n"));
}

#[test]
fn mistakes_are_told_in_one_line_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("bad.txt"), "[system x]\nservers = many\n").unwrap();
    fs::write(dir.path().join("binary"), [0xff, 0xfe]).unwrap();
    for (arguments, expected) in [
        (
            ["--parameters", "bad.txt"],
            "forebay: --parameters bad.txt: line 1: [system x] has no locks\n  hint: ",
        ),
        (
            ["--parameters", "missing"],
            "forebay: --parameters missing: No such file or directory\n",
        ),
        (
            ["--parameters", "binary"],
            "forebay: --parameters binary: stream did not contain valid UTF-8\n",
        ),
        (
            ["--figure", "9"],
            "forebay: --figure 9: there is no such figure\n  hint: the parameters have: 4, 5, 6, 7\n",
        ),
    ] {
        let output = forebay(dir.path(), &arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with(expected), "{said}");
        assert!(
            said.lines().count() <= 2 && output.stdout.is_empty(),
            "{said}"
        );
    }
    let output = forebay(dir.path(), &["--figure", "6", "--svg", "no/such/dir.svg"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("forebay: --svg no/such/dir.svg: No such file"),
        "{said}"
    );
}
