//! `forebay probe`, and the collective layer, on a file system whose clients share locks.

mod common;

use common::{Pfs, is_possible};
use forebay_core::collective::{Layout, lustre_attribute};
use forebay_testkit::built::{Library, forebay};
use serde_json::{Value, json};
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Two clients of a stand-in with these options, in a folder of this name.
fn two_clients(name: &str, options: &[&str]) -> (PathBuf, Pfs) {
    let folder = forebay_testkit::new_folder(env!("CARGO_TARGET_TMPDIR"), name);
    let at = ["one", "other"].map(|client| folder.join(client));
    let pfs = Pfs::mount(at.into(), options);
    (folder, pfs)
}

/// What the probe says in JSON, and where it keeps the result.
fn probe(folder: &Path, arguments: &[&Path]) -> (Value, PathBuf) {
    let kept = folder.join("locks");
    let output = Command::new(forebay())
        .args([Path::new("probe"), Path::new("--json")])
        .args(arguments)
        .env("FOREBAY_LOCKS", &kept)
        .output()
        .expect("the command starts");
    let said = serde_json::from_slice(&output.stdout);
    (said.unwrap_or_else(|e| panic!("{e}: {output:?}")), kept)
}

#[test]
fn two_clients_that_share_locks_are_seen_and_the_result_is_kept() {
    forebay_testkit::skip_unless!(
        is_possible(),
        "this needs root, FUSE and {}",
        forebay().display()
    );
    let cases = [
        ("tokens", 1, "token", Some(1 << 18), false),
        ("server-extents", 4, "server", Some(1 << 18), false),
        ("whole-file", 1, "whole-file", None, false),
        ("none", 1, "none", None, false),
        ("whole-file", 1, "whole-file", None, true),
    ];
    for (kind, servers, expected, granule, write_behind) in cases {
        let servers = servers.to_string();
        let options = [
            "--locks",
            kind,
            "--servers",
            &servers,
            "--granule",
            "262144",
        ];
        let behind: &[&str] = if write_behind {
            &["--write-behind"]
        } else {
            &[]
        };
        let (folder, mut pfs) = two_clients(
            "probe",
            &[&options[..], &["--handover-us", "5000"], behind].concat(),
        );
        let (said, kept) = probe(&folder, &[&pfs.at[0], Path::new("--also"), &pfs.at[1]]);
        assert_eq!(said["clients"], 2, "{said:#}");
        let left = fs::read_dir(&pfs.at[0]).expect("the directory").count();
        assert_eq!(left, 0, "files are left");
        // Where the machine is so busy that the times say nothing, the probe has to say so.
        if said["seen"] == "unclear" {
            eprintln!("{kind}: {}", said["reason"]);
            assert!(!kept.exists());
        } else {
            assert_eq!(said["seen"], expected, "{said:#}");
            assert_eq!(said["granule_bytes"].as_u64(), granule, "{said:#}");
            // Ordinary writes show no locks there. (On a busy machine they may show nothing elsewhere either, and it looks further.)
            let waits = said["waits_for_servers"].as_bool().expect("it says so");
            assert!(waits || !write_behind, "{said:#}");
            let kept = fs::read_to_string(kept).expect("it is kept");
            let begin = format!("fuse slow-pfs\t{expected}\t");
            assert!(kept.starts_with(&begin), "{kept}");
        }
        let given_up = &pfs.unmount()["calls"]["lock given up"];
        assert_eq!(
            given_up.as_u64().unwrap_or(0) > 100,
            kind != "none",
            "{given_up}"
        );
        let _ = fs::remove_dir_all(folder);
    }
}

#[test]
fn one_client_says_that_two_nodes_may_differ_and_keeps_nothing() {
    forebay_testkit::skip_unless!(
        is_possible(),
        "this needs root, FUSE and {}",
        forebay().display()
    );
    let (folder, pfs) = two_clients("alone", &["--locks", "tokens"]);
    let (said, kept) = probe(&folder, &[&pfs.at[0]]);
    assert_eq!(said["clients"], 1, "{said:#}");
    let seen = said["seen"].as_str().expect("a word");
    assert!(["one-client", "unclear"].contains(&seen), "{said:#}");
    assert!(!kept.exists());
    drop(pfs);
    let _ = fs::remove_dir_all(folder);
}

#[test]
fn a_second_process_that_sees_another_directory_is_refused() {
    let folder = forebay_testkit::new_folder(env!("CARGO_TARGET_TMPDIR"), "apart");
    let dirs = ["one", "other"].map(|name| folder.join(name));
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let kept = folder.join("locks");
    let output = Command::new(forebay())
        .arg("probe")
        .args([&dirs[0], Path::new("--also"), &dirs[1]])
        .env("FOREBAY_LOCKS", &kept)
        .output()
        .expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("are different directories"), "{said}");
    assert!(!kept.exists());
    for dir in &dirs {
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "files are left");
    }
    let _ = fs::remove_dir_all(folder);
}

/// The collective layer, if two ranks with a file on a stand-in can be started.
fn layer() -> Result<PathBuf, String> {
    let has_mpi = Command::new("mpicc.openmpi")
        .arg("--version")
        .output()
        .is_ok();
    match is_possible() && has_mpi {
        true => Ok(Library::Collective.path()),
        false => Err("this needs root, FUSE and Open MPI".to_owned()),
    }
}

/// Builds `grown.c` in a folder and runs two ranks of it on the files of these clients, with the layer, these variables, and hints and
/// their values that the program gives.
fn grow(
    layer: &Path,
    folder: &Path,
    at: &[PathBuf],
    variables: &[(&str, &str)],
    hints: &[&str],
) -> Output {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/grown.c");
    let program = folder.join("grown");
    let built = Command::new("mpicc.openmpi")
        .arg("-o")
        .arg(&program)
        .arg(source)
        .status();
    assert!(built.expect("the compiler starts").success());
    let start = [
        "-k",
        "5",
        "100",
        "mpiexec.openmpi",
        "--allow-run-as-root",
        "--oversubscribe",
        "-n",
        "2",
        "env",
    ];
    Command::new("timeout")
        .args(start)
        .arg(format!("LD_PRELOAD={}", layer.display()))
        .args(
            variables
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        )
        .arg(&program)
        .args(at.iter().map(|dir| dir.join("file")))
        .args(hints)
        .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
        .env("OMPI_MCA_mpi_yield_when_idle", "1")
        .output()
        .expect("timeout starts")
}

#[test]
fn the_layer_asks_the_file_system_how_a_file_lies_on_its_servers() {
    let layer = layer();
    forebay_testkit::skip_unless!(layer.is_ok(), "{}", layer.unwrap_err());
    let options = [
        "--locks",
        "server-extents",
        "--servers",
        "2",
        "--granule",
        "65536",
    ];
    let (folder, pfs) = two_clients("stripes", &options);
    // This one lies on three servers in stripes of 1 MiB, whatever the others do.
    let own = lustre_attribute(Layout::new(1 << 20, 3));
    let explained = |file: &str, hints: &str, of_the_program: &[&str]| {
        let to = folder.join(format!("{file}.json"));
        let at = [pfs.at[0].join(file), pfs.at[0].join(file)];
        for dir in &at {
            fs::create_dir_all(dir).expect("a directory");
        }
        fs::write(at[0].join("file"), "").expect("a file");
        if file == "own" {
            let made = fs::File::open(at[0].join("file")).expect("the file");
            forebay_sys::set_xattr(made.as_fd(), b"lustre.lov", &own).expect("an attribute");
        }
        let variables = [
            ("FOREBAY_COLLECTIVE_HINTS", hints),
            ("FOREBAY_COLLECTIVE_EXPLAIN", to.to_str().expect("a name")),
        ];
        let output = grow(
            layer.as_ref().expect("it is there"),
            &folder,
            &at,
            &variables,
            of_the_program,
        );
        assert!(output.status.success(), "{output:?}");
        let text = fs::read_to_string(&to).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        let line = text.lines().next().expect("a line");
        let said: Value = serde_json::from_str(line).expect("a line of JSON");
        ["granule_bytes", "granule_known", "servers", "servers_known"]
            .map(|name| said[name].clone())
    };
    let hints = "forebay_collective=always;forebay_locks=server";
    // What the program wishes is not what is.
    let wishes = ["striping_unit", "131072", "striping_factor", "5"];
    for (file, of_the_program) in [("all", &[][..]), ("wished", &wishes)] {
        let of_all = explained(file, hints, of_the_program);
        assert_eq!(
            of_all,
            [
                json!(65536),
                json!("of the file"),
                json!(2),
                json!("of the file")
            ]
        );
    }
    let of_own = explained("own", hints, &[]);
    assert_eq!(
        of_own,
        [
            json!(1 << 20),
            json!("of the file"),
            json!(3),
            json!("of the file")
        ]
    );
    let asked = explained("asked", &format!("{hints};striping_factor=4"), &wishes);
    assert_eq!(
        asked,
        [
            json!(65536),
            json!("of the file"),
            json!(4),
            json!("asked for")
        ]
    );
    drop(pfs);
    let _ = fs::remove_dir_all(folder);
}

#[test]
fn a_collective_read_sees_what_another_client_has_just_added() {
    let layer = layer();
    forebay_testkit::skip_unless!(layer.is_ok(), "{}", layer.unwrap_err());
    let (folder, pfs) = two_clients("grown", &[]);
    let variables = [("FOREBAY_COLLECTIVE_HINTS", "forebay_collective=always")];
    let layer = layer.expect("it is there");
    let output = grow(&layer, &folder, &pfs.at, &variables, &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "16000 bytes\n16000 bytes\n", "{output:?}");
    drop(pfs);
    let _ = fs::remove_dir_all(folder);
}
