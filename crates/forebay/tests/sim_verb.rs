//! `forebay sim collective` as users see it: tables, a drawing, parameters of their own, and mistakes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn forebay(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(forebay_testkit::built::forebay());
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

/// A collective write of 4 processes, records of 64 KiB in turns, in a trace.
const TRACE: &str = r#"{"forebay_collective_trace":1,"file":"/pfs/out.dat","call":1,"direction":"write","ranks":4,"nodes":2,"by":"aggregators","settings":{"method":"aligned","aggregators":2,"buffer_bytes":16777216,"locks":"unknown","locks_known":"by the type of the file system","granule_bytes":1048576,"servers":1},"shapes":[[[0,65536,[100,262144]]]],"at":[[0,0],[0,65536],[0,131072],[0,196608]]}
"#;

#[test]
fn a_trace_is_replayed_as_captured_and_with_more_processes_under_all_lock_managers() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("calls.json"), TRACE).unwrap();
    let of = |more: &[&str]| prints(dir.path(), &[&["--trace", "calls.json"], more].concat());
    let asked = ["--processes", "32,8", "--svg", "a.svg"];
    let text = of(&asked);
    assert_eq!(text, of(&asked));
    for part in [
        "/pfs/out.dat: collective write, 400 pieces, 26214400 bytes, 4 processes\n",
        "  captured: nodes 2, carried out by aggregators; aligned, 2 aggregators",
        "  scaled: records of all processes in turns: ",
        "  processes: 4 as 4, 8 as 8, 32 as 32; each has as many bytes as in the capture\n",
        "  locks server-extents\n",
        "  locks whole-file\n",
        "write, lock requests (of them conflicts)",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(!text.contains("read, "), "{text}");
    let rows = |text: &str| -> Vec<String> {
        let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
        let numbers = text.lines().filter_map(first);
        numbers.filter(|word| word.parse::<u32>().is_ok()).collect()
    };
    let table = ["4", "8", "32"].map(str::to_owned);
    assert_eq!(rows(&text), [&table[..]; 14].concat());
    assert_eq!(rows(&of(&[]))[..4], ["4", "16", "64", "256"]);
    let svg = fs::read_to_string(dir.path().join("a.svg")).unwrap();
    assert_eq!(svg.matches("/pfs/out.dat: collective write").count(), 5);
    assert!(of(&["--system", "gpfs"]).contains("machine: gpfs: 54 servers"));
    assert!(text.contains(
        "Forebay would choose even with 1 aggregator, where the tables have one on each node: "
    ));
}

#[test]
fn a_trace_says_what_of_it_was_not_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let unknown = r#"{"forebay_collective_trace":1,"file":"/pfs/x","call":1,"direction":"read","ranks":4,"nodes":0,"by":"mpi-library","left_out":"unknown"}"#;
    let end = r#"{"forebay_collective_trace":1,"cut_off_at_bytes":67108864}"#;
    let mut text = format!("{unknown}\n");
    for bytes in 1..=9 {
        let shape = format!("[[[0,{}]]]", bytes * 65536);
        text += &TRACE
            .replace("[[[0,65536,[100,262144]]]]", &shape)
            .replace("write", "read");
    }
    let half = &unknown[..60];
    fs::write(
        dir.path().join("calls.json"),
        format!("{text}{end}\n{half}\n"),
    )
    .unwrap();
    let said = prints(dir.path(), &["--trace", "calls.json", "--processes", "8"]);
    assert!(
        said.ends_with(
            "\nnot replayed: 1 more kinds of calls with fewer bytes (--line shows one); 1 calls of which the layer did not know what \
             they access; all that came after the trace had reached 67108864 bytes: it was cut off there; \
             what ends in the middle: line 12\n"
        ),
        "{said}"
    );
    assert!(said.starts_with("/pfs/out.dat: collective read, 4 pieces, 2359296 bytes"));
    let one = prints(dir.path(), &["--trace", "calls.json", "--line", "2"]);
    assert!(one.starts_with("/pfs/out.dat: collective read, 4 pieces, 262144 bytes"));
    let unequal = TRACE.replace("[0,196608]]", "[0,196609]]");
    fs::write(dir.path().join("two.json"), format!("{TRACE}{unequal}")).unwrap();
    let two = prints(dir.path(), &["--trace", "two.json", "--processes", "10"]);
    assert!(
        two.ends_with(
            "\nnot replayed: the call of line 2 with 10 processes: these accesses fit no pattern, so the call is repeated as a whole, \
             for multiples of 4 processes\n"
        ),
        "{two}"
    );
    fs::write(dir.path().join("none.json"), unknown).unwrap();
    for (arguments, expected) in [
        (
            &["--trace", "none.json"][..],
            "forebay: --trace none.json: none of its calls can be replayed: 1 calls of which the layer",
        ),
        (
            &["--trace", "calls.json", "--line", "1"],
            "forebay: --trace calls.json: line 1 has no call that can be replayed",
        ),
        (
            &["--trace", "missing.json"],
            "forebay: --trace missing.json: No such file or directory",
        ),
        (&["--trace", "."], "forebay: --trace .: Is a directory"),
        (
            &["--trace", "/dev/zero"],
            "forebay: --trace /dev/zero: it is larger than any trace",
        ),
        (
            &["--trace", "calls.json", "--system", "none"],
            "forebay: --system none: there is no such system\n  hint: the parameters have: gpfs, lustre",
        ),
        (
            &["--trace", "calls.json", "--processes", "20000"],
            "forebay: --trace calls.json: the call of line 10 with 20000 processes: at most 16384 processes",
        ),
    ] {
        let output = forebay(dir.path(), arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with(expected), "{said}");
    }
    for arguments in [
        &["--processes", "8"][..],
        &["--trace", "calls.json", "--figure", "4"],
        &["--trace", "calls.json", "--processes", "0"],
        &["--trace", "calls.json", "--processes", "1,many"],
    ] {
        assert_eq!(
            forebay(dir.path(), arguments).status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
}
