//! The command on storages of other formats: it drains an older one, and names a newer one and leaves it alone.

use crate::stage::{Stage, finish};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A PFS directory and the storage of a buffer over it, as the program wrote them in format 1.
fn format_1() -> (Stage, PathBuf) {
    // The archive is unpacked beside it.
    let stage = Stage::without_storage();
    // The run makes an instance directory, whose contents are then replaced by those of format 1.
    stage.script(&["--no-drain"], "echo 1 > pfs/f").ends_with(0);
    let mut entries = fs::read_dir(stage.path("storage")).unwrap();
    let instance = entries.next().unwrap().unwrap().path();
    fs::remove_dir_all(&instance).unwrap();
    fs::remove_dir_all(stage.pfs()).unwrap();
    let archive =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../forebay-server/tests/data/format-1.tar.gz");
    let mut tar = stage.command("tar");
    tar.args(["--xattrs", "--xattrs-include=user.*", "-xzf"])
        .arg(archive);
    finish(tar).ends_with(0);
    fs::rename(stage.path("instance"), &instance).unwrap();
    fs::write(instance.join("root"), stage.pfs().as_os_str().as_bytes()).unwrap();
    (stage, instance)
}

#[test]
fn a_storage_of_format_1_is_drained_to_the_pfs() {
    let (stage, instance) = format_1();
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    let mut names: Vec<_> = crate::stage::tree(&stage.pfs()).into_keys().collect();
    names.retain(|name| !name.starts_with("moved-again/"));
    assert_eq!(
        names,
        [
            "after",
            "dir",
            "dir/deep",
            "dir/deep/x5000",
            "dir/late",
            "dir/late/twin",
            "empty",
            "late",
            "moved-again",
            "new",
            "pipe2",
            "soft"
        ]
    );
    let on_pfs = |name: &str| stage.pfs().join(name);
    for (name, text) in [
        ("after", "renamed\n"),
        ("late", "late\n"),
        ("new", "first\n"),
        ("soft", "first\n"),
        ("dir/late/twin", "first\n"),
        ("dir/deep/x5000", &"x".repeat(5000)),
        ("moved-again/b", "second\n"),
        ("moved-again/sub/a", "from the PFS\n"),
    ] {
        assert_eq!(fs::read_to_string(on_pfs(name)).unwrap(), text, "{name}");
    }
    let kind = |name: &str| fs::symlink_metadata(on_pfs(name)).unwrap().file_type();
    assert!(kind("soft").is_symlink() && kind("pipe2").is_fifo());
    let mut getfattr = stage.command("getfattr");
    getfattr
        .args(["--only-values", "-n", "user.colour"])
        .arg(on_pfs("new"));
    finish(getfattr).ends_with(0).prints("blue");
    stage
        .say(&["fsck", "--storage", instance.to_str().unwrap()])
        .ends_with(0)
        .prints("nothing wrong");
}

#[test]
fn a_check_says_that_it_has_brought_a_storage_up() {
    let (stage, _) = format_1();
    stage
        .say(&["fsck", "--storage", "storage", "--mend"])
        .ends_with(0)
        .prints("the storage had format 1 and has format 7 now");
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    let late = fs::read_to_string(stage.path("pfs/late")).unwrap();
    assert_eq!(late, "late\n");
}

#[test]
fn every_verb_names_both_versions_of_a_newer_storage_and_leaves_it_alone() {
    let (stage, instance) = format_1();
    let later = "{\"format\": 9, \"written_by\": \"forebay 2.0.0\"}";
    fs::write(instance.join("format.json"), later).unwrap();
    let words = "storage format 9, written by forebay 2.0.0; this is forebay ";
    for (verb, code) in [("up", 1), ("drain", 1), ("run", 125)] {
        let mut arguments = vec![verb, "--buffer", "pfs"];
        if verb == "run" {
            arguments.extend(["--", "touch", "ran"]);
        }
        stage.say(&arguments).ends_with(code).tells(words);
    }
    stage
        .say(&["fsck", "--storage", "storage"])
        .ends_with(1)
        .prints(words);
    assert!(!stage.path("ran").exists());
    assert_eq!(
        fs::read_to_string(instance.join("format.json")).unwrap(),
        later
    );
    assert!(
        !instance.join("meta.reserve").exists(),
        "the tables were opened"
    );
}
