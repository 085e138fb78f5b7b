//! `forebay quarantine`: what a power loss has left without a name is listed, taken out, or dropped.

use crate::stage::{Said, SmallDisk, Stage, finish, kill};
use forebay_client::Client;
use forebay_sys as sys;
use forebay_testkit::{is_root, skip};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A buffer that has been used and drained, with files in quarantine as a recovery leaves them.
struct Ward {
    stage: Stage,
    folder: PathBuf,
}

impl Ward {
    fn new() -> Ward {
        let stage = Stage::new();
        stage.script(&["--no-record"], "true").ends_with(0);
        let mut instances = fs::read_dir(stage.path("storage")).unwrap();
        let folder = instances.next().unwrap().unwrap().path().join("quarantine");
        fs::create_dir(&folder).unwrap();
        Ward { stage, folder }
    }

    /// Adds a file that has had this path.
    fn hold(&self, number: u32, path: impl AsRef<[u8]>, text: &str) -> String {
        let id = self.hold_unknown(number, text);
        let beside = self.folder.join(format!("{id}.path"));
        fs::write(beside, path).unwrap();
        id
    }

    /// Adds a file without the text that tells its path.
    fn hold_unknown(&self, number: u32, text: &str) -> String {
        // The lowest two bits say that it is a file.
        let id = format!("{:032x}", (1u128 << 96) + u128::from(number) * 4);
        fs::write(self.file(&id), text).unwrap();
        id
    }

    fn file(&self, id: &str) -> PathBuf {
        self.folder.join(id)
    }

    fn say(&self, arguments: &[&str]) -> Said {
        let mut all = vec!["quarantine", "--buffer", "pfs"];
        all.extend(arguments);
        self.stage.say(&all)
    }

    fn listed(&self) -> Vec<Value> {
        let said = self.say(&["--json"]).ends_with(0);
        let all: Value = serde_json::from_str(&said.out).unwrap();
        all["files"].as_array().unwrap().clone()
    }

    fn drain(&self) -> Said {
        self.stage.say(&["drain", "--buffer", "pfs"])
    }

    /// A script in the buffer whose changes are not drained.
    fn change(&self, script: &str) {
        let script = format!("set -e; cd pfs; {script}");
        self.stage
            .script(&["--no-record", "--no-drain"], &script)
            .ends_with(0);
    }
}

/// Copies the files of a directory.
fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_file_whose_name_a_power_loss_has_taken_is_found_and_goes_back() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    let bridge = &stage.bridges()[0];
    let pid = bridge["pid"].as_u64().unwrap().try_into().unwrap();
    let socket = bridge["socket"].as_str().unwrap();
    let tables = PathBuf::from(bridge["instance"].as_str().unwrap()).join("meta");
    let before = tables.with_extension("before");
    copy_dir(&tables, &before);
    let mut client = Client::connect(Path::new(socket)).unwrap();
    let made = client.open("made", libc::O_CREAT | libc::O_WRONLY, 0o640);
    File::from(made.unwrap()).write_all(b"late").unwrap();
    client
        .open("empty", libc::O_CREAT | libc::O_WRONLY, 0o640)
        .unwrap();
    kill("KILL", pid);
    stage.wait_for("the end of the bridge", || stage.bridges().is_empty());
    // The tables of an earlier sync point. A journal that is not there counts as one of a life before this.
    fs::remove_dir_all(&tables).unwrap();
    fs::rename(&before, &tables).unwrap();
    for journal in ["journal.0", "journal.1"] {
        fs::remove_file(tables.join(journal)).unwrap();
    }

    stage
        .say(&["drain", "--buffer", "pfs"])
        .ends_with(75)
        .tells("made: in quarantine as ");
    assert!(stage.on_pfs().is_empty());
    stage
        .say(&["quarantine", "--buffer", "pfs"])
        .ends_with(0)
        .prints("1 file (4 B)")
        .prints("  made\n");
    stage
        .say(&["quarantine", "take", "made", "--buffer", "pfs"])
        .ends_with(0);
    assert_eq!(stage.on_pfs()["made"], "late");
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
}

/// Nothing was taken: the file is in quarantine, and no part of a copy is in the directory.
#[track_caller]
fn is_untouched(ward: &Ward, id: &str, dir: &Path) {
    assert!(ward.file(id).is_file());
    for entry in fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name();
        let is_lock = name == ".forebay-lock";
        assert!(
            is_lock || !name.as_bytes().starts_with(b".forebay"),
            "{name:?}"
        );
    }
}

#[test]
fn a_file_goes_back_to_where_it_was_and_the_next_drain_is_complete() {
    let ward = Ward::new();
    let id = ward.hold(1, "out/a", "what was written");
    fs::create_dir(ward.stage.pfs().join("out")).unwrap();
    let kept = File::options().append(true).open(ward.file(&id)).unwrap();
    sys::set_xattr(kept.as_fd(), b"user.mine", b"1").unwrap();
    sys::set_xattr(kept.as_fd(), b"user.forebay.label", b"2").unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000, 123_456_789);
    kept.set_modified(then).unwrap();
    kept.set_permissions(fs::Permissions::from_mode(0o2640))
        .unwrap();
    drop(kept);

    ward.drain()
        .ends_with(75)
        .tells(&format!(
            "out/a: in quarantine as {id} since a power loss: forebay quarantine shows it"
        ))
        .tells("hint: to see what is in quarantine, run: forebay quarantine --buffer ");
    ward.stage
        .script(&["--no-record"], "true")
        .ends_with(75)
        .tells("out/a: in quarantine");
    ward.say(&[])
        .ends_with(0)
        .prints("1 file (16 B)")
        .prints(&id)
        .prints("  out/a\n");
    let [listed] = &ward.listed()[..] else {
        panic!()
    };
    assert_eq!(listed["path"], "out/a");
    assert_eq!(listed["bytes"], 16);
    assert_eq!(listed["changed_s"], 1_500_000_000);
    assert_eq!(listed["file"], ward.file(&id).to_str().unwrap());

    ward.say(&["take", "out/a"])
        .ends_with(0)
        .prints("/pfs/out/a (16 B)");
    let place = ward.stage.pfs().join("out/a");
    assert_eq!(fs::read_to_string(&place).unwrap(), "what was written");
    let taken = File::open(&place).unwrap();
    let meta = taken.metadata().unwrap();
    assert_eq!(
        (meta.modified().unwrap(), meta.mode() & 0o7777),
        (then, 0o2640)
    );
    assert_eq!(sys::list_xattr(taken.as_fd()).unwrap(), b"user.mine\0");
    assert_eq!(fs::read_dir(&ward.folder).unwrap().count(), 0);

    ward.drain().ends_with(0);
    ward.stage
        .script(&["--no-record"], "cat pfs/out/a")
        .ends_with(0)
        .prints("what was written");
    ward.say(&["list"])
        .ends_with(0)
        .prints("nothing is in quarantine");
    assert!(ward.listed().is_empty());
}

#[test]
fn while_a_bridge_runs_files_are_taken_and_programs_see_them() {
    let ward = Ward::new();
    let [one, two] = [(1, "one"), (2, "two")].map(|(n, path)| ward.hold(n, path, path));
    ward.stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    let pid = ward.stage.bridge_pid();
    ward.stage
        .script(&["--no-record", "--no-drain"], "! cat pfs/one")
        .ends_with(0);
    let said = ward
        .say(&["take", &one, "two", &two, "--json"])
        .ends_with(0);
    let all: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(all["taken"].as_array().unwrap().len(), 2);
    let script = "cat pfs/one pfs/two";
    ward.stage
        .script(&["--no-record"], script)
        .ends_with(0)
        .prints("onetwo");
    assert_eq!(ward.stage.bridge_pid(), pid);
    ward.stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
}

#[test]
fn a_path_that_is_damaged_leads_nowhere_and_its_file_is_taken_by_id() {
    let ward = Ward::new();
    let long = "a/".repeat(4000) + "a";
    let hostile: [&[u8]; 8] = [
        b"../out",
        b"/etc/out",
        b"a/../../out",
        b"a\0b",
        b"",
        b"a//b",
        b".",
        long.as_bytes(),
    ];
    let mut ids = vec![ward.hold_unknown(0, "x")];
    ids.extend((1..).zip(hostile).map(|(n, path)| ward.hold(n, path, "x")));
    let odd = ward.hold_unknown(20, "x");
    symlink("/etc/passwd", ward.folder.join(format!("{odd}.path"))).unwrap();
    ids.push(odd);
    ids.push(ward.hold_unknown(21, "x"));
    let odd = ids.last().unwrap();
    fs::create_dir(ward.folder.join(format!("{odd}.path"))).unwrap();
    // Neither of these is a file in quarantine.
    fs::write(ward.folder.join("notes"), "").unwrap();
    fs::write(ward.folder.join(format!("{:032x}.path", 44)), "gone").unwrap();

    let listed = ward.listed();
    assert_eq!(listed.len(), ids.len());
    assert!(
        listed.iter().all(|file| file["path"].is_null()),
        "{listed:?}"
    );
    ward.drain().ends_with(75).tells("lost-");
    for id in &ids {
        ward.say(&["take", id])
            .ends_with(1)
            .tells("nothing tells which path it had")
            .tells("hint: name a place for it with --to");
        let to = format!("got-{id}");
        ward.say(&["take", id, "--to", &to]).ends_with(0);
        assert_eq!(fs::read_to_string(ward.stage.path(&to)).unwrap(), "x");
    }
    assert!(ward.listed().is_empty());
    assert!(ward.stage.on_pfs().is_empty());
}

#[test]
fn a_path_can_do_nothing_to_a_terminal() {
    let ward = Ward::new();
    let id = ward.hold(1, b"a\x1b[2J\xff\xe2\x80\xaeb", "x");
    for said in [ward.say(&[]).ends_with(0), ward.drain().ends_with(75)] {
        let text = said.out + &said.err;
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        assert!(text.contains("a\\u{1b}[2J"), "{text:?}");
    }
    ward.stage
        .say(&["fsck", "--storage", "storage"])
        .ends_with(0)
        .prints("a\\x1b[2J");
    assert!(
        ward.listed()[0]["path"]
            .as_str()
            .unwrap()
            .starts_with("a\u{1b}[2J")
    );
    let said = ward.say(&["take", &id]).ends_with(0);
    assert!(!said.out.contains('\u{1b}'));
    ward.drain().ends_with(0);
}

#[test]
fn of_two_files_with_one_path_each_is_named_by_its_id() {
    let ward = Ward::new();
    let ids = [1, 2].map(|n| ward.hold(n, "same", &n.to_string()));
    for verb in ["take", "drop"] {
        ward.say(&[verb, "same"])
            .ends_with(1)
            .tells("same: 2 files in quarantine had this path")
            .tells(&format!("{}, {}", ids[0], ids[1]));
    }
    ward.say(&["take", &ids[1]]).ends_with(0);
    assert_eq!(ward.stage.on_pfs()["same"], "2");
    ward.say(&["take", "same"])
        .ends_with(1)
        .tells("pfs/same: something is there now");
    is_untouched(&ward, &ids[0], &ward.stage.pfs());
    let absolute = ward.stage.pfs().join("same");
    ward.say(&["drop", absolute.to_str().unwrap()])
        .ends_with(0)
        .prints("dropped 1 file, 1 B");
    assert_eq!(ward.stage.on_pfs()["same"], "2");
    ward.drain().ends_with(0);
}

#[test]
fn nothing_is_taken_to_where_something_is_on_the_pfs_or_in_the_buffer() {
    let ward = Ward::new();
    let pfs = ward.stage.pfs();
    fs::create_dir_all(pfs.join("old/sub")).unwrap();
    fs::create_dir(pfs.join("gone")).unwrap();
    fs::create_dir(ward.stage.path("elsewhere")).unwrap();
    symlink("../elsewhere", pfs.join("link")).unwrap();
    fs::write(pfs.join("there"), "there").unwrap();
    symlink("nowhere", pfs.join("dangling")).unwrap();
    let refused = [
        ("there", "something is there now"),
        ("dangling", "something is there now"),
        ("made", "something is there now"),
        ("missing/a", "No such file or directory"),
        ("born/a", "No such file or directory"),
        ("there/a", "Not a directory"),
        ("link/a", ""),
        ("gone/a", "has been removed or renamed in the buffer"),
        ("old/a", "has been removed or renamed in the buffer"),
        ("old/sub/a", "has been removed or renamed in the buffer"),
        ("new/a", "No such file or directory"),
    ];
    let ids: Vec<_> = (1..)
        .zip(refused)
        .map(|(n, (path, _))| ward.hold(n, path, "x"))
        .collect();
    ward.change("echo made > made; mkdir born; rmdir gone; mv old new");
    for (id, (_, words)) in ids.iter().zip(refused) {
        ward.say(&["take", id])
            .ends_with(1)
            .tells(words)
            .tells("--to");
        is_untouched(&ward, id, &pfs);
    }
    assert_eq!(
        fs::read_dir(ward.stage.path("elsewhere")).unwrap().count(),
        0
    );
    // What --to names in the buffer is judged alike.
    ward.say(&["take", &ids[0], "--to", "pfs/gone"])
        .ends_with(1)
        .tells("removed or renamed");
    ward.say(&["take", &ids[0], "--to", "pfs/made"])
        .ends_with(1)
        .tells("is there now");
    // The buffer is drained, and what was asked for comes about.
    ward.drain().ends_with(75);
    for path in ["born/a", "new/a"] {
        ward.say(&["take", path]).ends_with(0);
        assert_eq!(fs::read_to_string(pfs.join(path)).unwrap(), "x");
    }
    ward.say(&["take", &ids[0], "--to", "pfs/new/sub"])
        .ends_with(0);
    assert_eq!(fs::read_to_string(pfs.join("new/sub/there")).unwrap(), "x");
    ward.say(&["drop", "--all"])
        .ends_with(0)
        .prints("dropped 8 files, 8 B");
    ward.drain().ends_with(0);
}

#[test]
fn files_are_taken_to_a_new_file_or_into_a_directory_and_replace_nothing() {
    let ward = Ward::new();
    let ids: Vec<_> = (1..=4)
        .map(|n| ward.hold(n, format!("d/{n}"), "x"))
        .collect();
    let dir = ward.stage.path("elsewhere");
    fs::create_dir(&dir).unwrap();
    ward.say(&["take", "d/1", "--to", "elsewhere/new"])
        .ends_with(0);
    ward.say(&["take", "d/2", "--to", "elsewhere/new"])
        .ends_with(1)
        .tells("is there now");
    ward.say(&["take", "d/2", "--to", "missing/new"])
        .ends_with(1)
        .tells("No such file");
    ward.say(&["take", "d/2", "--to", "storage"])
        .ends_with(1)
        .tells("inside the storage");
    ward.say(&["take", "d/2", "d/3", "--to", "new"])
        .ends_with(1)
        .tells("need a directory");
    // One that is not there: nothing is done for the others.
    ward.say(&["take", "d/2", "d/9", "--to", "elsewhere"])
        .ends_with(1)
        .tells("not in quarantine");
    is_untouched(&ward, &ids[1], &dir);
    ward.say(&["take", "d/2", "d/3", "--to", "elsewhere"])
        .ends_with(0);
    let mut names: Vec<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["2", "3", "new"]);
    // What a killed command has left of a copy is replaced.
    fs::write(dir.join(format!(".forebay-taken-{}", ids[3])), "part").unwrap();
    ward.say(&["take", &ids[3], "--to", "elsewhere"])
        .ends_with(0);
    is_untouched(&ward, &ward.hold(5, "e", ""), &dir);
}

#[test]
fn what_is_dropped_is_gone_and_the_bytes_are_told() {
    let ward = Ward::new();
    for n in 1..=4 {
        ward.hold(n, format!("f{n}"), "12345");
    }
    ward.say(&["drop"]).ends_with(2);
    ward.say(&["drop", "f9"])
        .ends_with(1)
        .tells("f9: not in quarantine");
    ward.say(&["drop", "f2", "./f2", "f4"])
        .ends_with(0)
        .prints("dropped 2 files, 10 B");
    let said = ward.say(&["drop", "--all", "--json"]).ends_with(0);
    let all: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        (&all["bytes"], all["dropped"].as_array().unwrap().len()),
        (&10.into(), 2)
    );
    ward.say(&["drop", "--all"])
        .ends_with(0)
        .prints("dropped 0 files");
    assert_eq!(fs::read_dir(&ward.folder).unwrap().count(), 0);
    ward.drain().ends_with(0);
}

#[test]
fn a_file_that_somebody_writes_to_and_a_quarantine_that_somebody_empties_are_left_alone() {
    let ward = Ward::new();
    let id = ward.hold(1, "a", "x");
    let writer = File::options().write(true).open(ward.file(&id)).unwrap();
    ward.say(&["take", "a"])
        .ends_with(1)
        .tells("still has the file open for writing");
    is_untouched(&ward, &id, &ward.stage.pfs());
    drop(writer);
    let folder = File::open(&ward.folder).unwrap();
    sys::lock_file(folder.as_fd()).unwrap();
    for arguments in [&["take", "a"][..], &["drop", "--all"]] {
        ward.say(arguments)
            .ends_with(1)
            .tells("another forebay quarantine is at work");
    }
    assert_eq!(ward.listed().len(), 1);
    drop(folder);
    ward.say(&["take", "a"]).ends_with(0);
}

#[test]
fn a_buffer_without_a_quarantine_is_no_mistake_and_one_without_a_storage_is() {
    let stage = Stage::new();
    let ask =
        |arguments: &[&str]| stage.say(&[&["quarantine", "--buffer", "pfs"], arguments].concat());
    ask(&[]).ends_with(1).tells("holds nothing for");
    stage.script(&["--no-record"], "true").ends_with(0);
    ask(&[]).ends_with(0).prints("nothing is in quarantine");
    ask(&["drop", "--all"])
        .ends_with(0)
        .prints("nothing is in quarantine");
    ask(&["take", "a"])
        .ends_with(1)
        .tells("a: not in quarantine");
    let said = ask(&["--json"]).ends_with(0);
    assert!(said.out.contains("\"files\": []"), "{}", said.out);
}

#[test]
fn when_there_is_no_space_for_a_file_it_stays_in_quarantine() {
    let ward = Ward::new();
    let Some(disk) = SmallDisk::new(ward.stage.path("small"), "size=64k") else {
        return skip("only root can mount a small disk");
    };
    let id = ward.hold(1, "a", &"x".repeat(1 << 20));
    ward.say(&["take", "a", "--to", "small"])
        .ends_with(1)
        .tells("small/a: copy: No space left");
    is_untouched(&ward, &id, disk.path());
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
    ward.say(&["take", "a", "--to", "."]).ends_with(0);
}

#[test]
fn the_quarantine_of_another_user_is_closed_and_root_gives_files_to_their_owners() {
    if !is_root() {
        return skip("only root can be somebody else");
    }
    let ward = Ward::new();
    let id = ward.hold(1, "a", "x");
    std::os::unix::fs::chown(ward.file(&id), Some(4242), Some(4343)).unwrap();
    let open = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(ward.stage.path("storage"), open).unwrap();
    for arguments in [&["list"][..], &["take", "a"], &["drop", "--all"]] {
        let mut command = ward.stage.forebay(&["quarantine", "--buffer", "pfs"]);
        command
            .args(arguments)
            .args(["--storage", "storage"])
            .uid(4242)
            .gid(4343);
        finish(command)
            .ends_with(1)
            .tells("belongs to root")
            .tells("hint: only root");
    }
    ward.say(&["take", "a"]).ends_with(0);
    let meta = fs::metadata(ward.stage.pfs().join("a")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (4242, 4343));
}
