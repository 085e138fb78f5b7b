//! `forebay probe` measures the locks of a file system, leaves nothing there, and keeps what it has seen.

use crate::stage::{Said, Stage, finish};
use serde_json::Value;
use std::fs;

/// A probe whose result goes to `locks`.
fn probe(stage: &Stage, arguments: &[&str]) -> Said {
    let mut command = stage.forebay(&["probe"]);
    command
        .args(arguments)
        .env("FOREBAY_LOCKS", stage.path("locks"));
    finish(command)
}

fn names(stage: &Stage) -> Vec<String> {
    let entries = fs::read_dir(stage.pfs()).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Another mount of the PFS would be another client; here both processes are one. The times decide what was seen, not the rest.
#[test]
fn a_probe_tells_what_it_has_seen_and_leaves_nothing_on_the_file_system() {
    let stage = Stage::new();
    let said = probe(&stage, &["pfs", "--json"]);
    let found: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    assert_eq!(found["clients"], 1, "{found:#}");
    assert!(!found["patterns"].as_array().unwrap().is_empty());
    assert_eq!(names(&stage), [""; 0]);
    let locks = stage.path("locks");
    let keeps = match found["seen"].as_str().unwrap() {
        // What one client sees does not say what two would.
        "one-client" | "unclear" => false,
        _ => true,
    };
    let unclear = found["seen"] == "unclear";
    assert_eq!(said.code, i32::from(unclear), "{found:#}");
    assert_eq!((keeps, !keeps), (locks.exists(), found["kept"].is_null()));
}

#[test]
fn a_probe_that_is_asked_to_end_leaves_nothing() {
    let stage = Stage::new();
    // What starts the second process passes its questions on, and asks the probe to end after some of them; then that goes on, or
    // answers no more.
    for then in ["cat", "cat > /dev/null"] {
        let some =
            "n=0; while [ $n -lt 20 ] && read -r question; do echo $question; n=$((n + 1)); done";
        let via = format!("{{ {some}; kill -TERM $PPID; {then}; }} |");
        probe(&stage, &["pfs", "--via", &via])
            .ends_with(1)
            .tells("interrupted");
        assert_eq!(names(&stage), [""; 0]);
    }
}

/// Whoever may rename things in the directory may put something else in the place of the folder, at any time.
#[test]
fn a_folder_that_somebody_replaces_leads_the_probe_nowhere() {
    let stage = Stage::new();
    let victim = stage.path("victim");
    fs::create_dir(&victim).unwrap();
    let held = |file: u32| fs::read_to_string(victim.join(file.to_string())).unwrap();
    for file in 0..40 {
        fs::write(victim.join(file.to_string()), format!("file {file}")).unwrap();
    }
    for before in ["", "echo $told; read -r told2; told=$told2; "] {
        let swap = format!(
            "read -r told; folder=${{told%% *}}; {before}mv pfs/$folder pfs/moved; ln -s ../victim pfs/$folder; echo $told; cat"
        );
        let said = probe(&stage, &["pfs", "--via", &format!("{{ {swap}; }} |")]);
        assert!(
            (0..40).all(|file| held(file) == format!("file {file}")),
            "{said:?}"
        );
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 40, "{said:?}");
        assert_eq!(
            fs::read_dir(stage.path("pfs/moved")).unwrap().count(),
            0,
            "{said:?}"
        );
        for name in names(&stage) {
            let path = stage.pfs().join(name);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        }
    }
}

#[test]
fn what_can_not_be_kept_is_told_all_the_same() {
    let stage = Stage::new();
    fs::create_dir(stage.path("locks")).unwrap();
    let said = probe(&stage, &["pfs", "--json"]);
    let found: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    assert!(found["kept"].is_null(), "{found:#}");
}

#[test]
fn different_directories_are_not_measured() {
    let stage = Stage::new();
    fs::create_dir(stage.path("other")).unwrap();
    probe(&stage, &["pfs", "--also", "other"])
        .ends_with(1)
        .tells("are different directories");
    probe(&stage, &["pfs/none"]).ends_with(1).tells("none");
    probe(&stage, &["pfs", "--via", "false"])
        .ends_with(1)
        .tells("ended too early");
    assert_eq!(names(&stage), [""; 0]);
}
