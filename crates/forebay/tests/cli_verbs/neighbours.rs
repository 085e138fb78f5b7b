//! Others who work on the PFS while it is buffered: nothing of theirs is destroyed, nothing of ours is lost, and the drain
//! says what it did not do.

use crate::stage::{Stage, finish, kill, start, wait};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Operations on the small tree of [`scene`], as a shell does them. `W` stands for who does it.
const OPERATIONS: [(&str, &str); 13] = [
    ("create", "echo W > new"),
    ("write", "printf W | dd of=f conv=notrunc status=none"),
    ("append", "echo W >> f"),
    ("truncate", "truncate -s 2 f"),
    ("replace by rename", "echo W > W.tmp && mv W.tmp f"),
    ("rename away", "mv f W.away"),
    ("unlink", "rm f"),
    ("mkdir", "mkdir new"),
    ("rmdir", "rm -r d"),
    ("create in a directory", "echo W > d/W"),
    ("rename a directory", "mv d W.dir"),
    ("chmod", "chmod 640 f"),
    ("link", "ln f W.link"),
];

/// Where the PFS is: not on the file system of the storage, if there are two here.
fn other_file_system() -> Option<PathBuf> {
    let dir = PathBuf::from("/dev/shm");
    fs::metadata(&dir).is_ok_and(|d| d.is_dir()).then_some(dir)
}

/// A small tree on the PFS, and a storage.
pub struct Scene {
    pub stage: Stage,
    pub pfs: PathBuf,
}

impl Scene {
    pub fn new() -> Scene {
        let stage = Stage::without_storage();
        let pfs = match other_file_system() {
            Some(dir) => dir.join(stage.dir.file_name().unwrap()),
            None => stage.pfs(),
        };
        let _ = fs::remove_dir_all(&pfs);
        fs::create_dir_all(pfs.join("d")).unwrap();
        for (path, text) in [("f", "first\n"), ("d/a", "a\n"), ("d/b", "b\n")] {
            fs::write(pfs.join(path), text).unwrap();
        }
        Scene { stage, pfs }
    }

    pub fn root(&self) -> &str {
        self.pfs.to_str().unwrap()
    }

    /// In the buffer; nothing is drained.
    pub fn inside(&self, script: &str) {
        let options = [
            "run",
            "--buffer",
            self.root(),
            "--no-drain",
            "--no-record",
            "--",
            "sh",
            "-c",
        ];
        let script = format!("cd '{}' && {{ {script}; }}", self.root());
        let all: Vec<_> = options.into_iter().chain([script.as_str()]).collect();
        self.stage.say(&all).ends_with(0);
    }

    /// On the PFS, past the buffer.
    pub fn outside(&self, script: &str) {
        let mut sh = Command::new("sh");
        let status = sh
            .args(["-c", script])
            .current_dir(&self.pfs)
            .status()
            .unwrap();
        assert!(status.success(), "{script}");
    }

    pub fn drain(&self, more: &[&str]) -> (i32, String) {
        let mut all = vec!["drain", "--buffer", self.root()];
        all.extend(more);
        let said = self.stage.say(&all);
        assert!([0, 1, 75].contains(&said.code), "{said:?}");
        (said.code, said.err)
    }

    /// Drains, and kills the bridge at the `at`th of these system calls of one of its threads. False if the drain has ended before.
    pub fn is_killed_in_drain(&self, calls: &str, at: u32) -> bool {
        let bridge = self.stage.bridge_pid();
        let mut strace = self.stage.command("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e"]);
        strace.arg(format!("trace={calls}"));
        let inject = format!("inject={calls}:signal=KILL:when={at}");
        strace.args(["-e", &inject, "-p", &bridge.to_string()]);
        let mut strace = start(strace);
        self.stage.wait_for_tracer(bridge);
        let (code, said) = self.drain(&[]);
        let is_killed = self.stage.bridges().is_empty();
        kill("TERM", strace.id());
        strace.wait().unwrap();
        assert!(is_killed || code == 0, "{said}");
        is_killed
    }

    /// What the buffer shows.
    fn view(&self) -> BTreeMap<String, String> {
        let copy = self.stage.path("view");
        let _ = fs::remove_dir_all(&copy);
        self.inside(&format!("cp -a . '{}'", copy.display()));
        tree(&copy)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.pfs);
    }
}

/// All paths with their contents; directories with a slash.
pub fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if name == ".forebay-lock" {
                continue;
            }
            if path.is_dir() {
                found.insert(name + "/", String::new());
                dirs.push(path);
            } else {
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// The paths that the drain has listed because others have changed them.
pub fn changed(said: &str) -> Vec<&str> {
    let listed = said
        .lines()
        .filter(|line| line.contains("others have changed it"));
    listed
        .filter_map(|line| line.trim().split_once(": "))
        .map(|(path, _)| path)
        .collect()
}

/// All paths that a drain has listed.
fn listed(said: &str) -> Vec<String> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("  "));
    let listed = lines.filter(|line| !line.starts_with("hint: "));
    let paths = listed.filter_map(|line| line.split_once(": "));
    paths.map(|(path, _)| path.to_owned()).collect()
}

pub fn holds(tree: &BTreeMap<String, String>, text: &str) -> bool {
    tree.values().any(|contents| contents == text)
}

#[test]
fn two_who_change_one_tree_destroy_nothing_of_each_other() {
    let mut conflicts = 0;
    for (ours, inside) in OPERATIONS {
        for (theirs, outside) in OPERATIONS {
            let what = format!("{ours} in the buffer, {theirs} on the PFS");
            let scene = Scene::new();
            let first = tree(&scene.pfs);
            scene.inside(&inside.replace('W', "ours"));
            scene.outside(&outside.replace('W', "theirs"));
            let (before, view) = (tree(&scene.pfs), scene.view());
            let (code, said) = scene.drain(&[]);
            let after = tree(&scene.pfs);
            // What they wrote is there, under whichever name.
            let written = before
                .iter()
                .filter(|(path, text)| first.get(*path) != Some(text));
            for (path, text) in written.clone() {
                // A directory is known by its path alone.
                let has_moved = !path.ends_with('/') && holds(&after, text);
                let is_kept = after.get(path) == Some(text) || has_moved;
                assert!(is_kept, "{what}: their {path} is gone: {after:?}\n{said}");
            }
            // A drain changes nothing that the buffer shows.
            let in_buffer = scene.view();
            assert_eq!(in_buffer, view, "{what}: {after:?}\n{said}");
            match code {
                0 => assert_eq!(
                    after, in_buffer,
                    "{what}: exit 0, but the PFS differs\n{said}"
                ),
                _ => assert!(said.contains("left in the buffer"), "{what}: {said}"),
            }
            // Both stay if somebody asks for that.
            let paths = changed(&said);
            conflicts += paths.len();
            if !paths.is_empty() && !paths.contains(&"d") {
                let take: Vec<_> = ["--take", "both"].into_iter().chain(paths).collect();
                let (_, said) = scene.drain(&take);
                let settled = tree(&scene.pfs);
                for (path, text) in written {
                    assert!(
                        holds(&settled, text),
                        "{what}: both: their {path}: {settled:?}\n{said}"
                    );
                }
                for (path, text) in &view {
                    let is_new = first.get(path) != Some(text) && !text.is_empty();
                    assert!(
                        !is_new || holds(&settled, text),
                        "{what}: both: our {path}: {settled:?}\n{said}"
                    );
                }
            }
        }
    }
    assert!(
        conflicts > 20,
        "{conflicts} conflicts are too few to show anything"
    );
}

#[test]
fn a_conflict_is_settled_for_either_side() {
    for (side, stays) in [("ours", "first\nours\n"), ("theirs", "first\ntheirs\n")] {
        let scene = Scene::new();
        scene.inside("echo ours >> f");
        scene.outside("echo theirs >> f");
        let (code, said) = scene.drain(&[]);
        assert_eq!((code, changed(&said)), (75, vec!["f"]), "{said}");
        assert!(said.contains("--take ours|theirs|both f"), "{said}");
        // A path as it is, and below the root of the buffer.
        let path = match side {
            "ours" => scene.pfs.join("f").display().to_string(),
            _ => "f".to_owned(),
        };
        let (code, said) = scene.drain(&["--take", side, &path]);
        assert_eq!(code, 0, "{said}");
        assert_eq!(tree(&scene.pfs)["f"], stays);
        assert_eq!(scene.view()["f"], stays);
    }
}

#[test]
fn the_hint_settles_a_conflict_whatever_its_name_is() {
    let scene = Scene::new();
    let names: [&[u8]; 6] = [
        b"f",
        b"-x",
        b"a b",
        b"it's \"q\" $HOME",
        b"\x1b[2J\n",
        b"\xff",
    ];
    let path = |name: &[u8]| scene.pfs.join(std::ffi::OsStr::from_bytes(name));
    for name in names {
        fs::write(path(name), "first\n").unwrap();
    }
    scene.inside("for n in *; do [ -d \"$n\" ] || echo ours >> \"./$n\"; done");
    for name in names {
        fs::write(path(name), "theirs\n").unwrap();
    }
    for settled in 0..names.len() {
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 75, "{said}");
        assert_eq!(changed(&said).len(), names.len() - settled, "{said}");
        assert!(!said.contains('\x1b'), "{said:?}");
        let hint = said
            .lines()
            .find_map(|l| l.split_once("to settle it, run: "))
            .unwrap();
        let hint = hint.1.replace("ours|theirs|both", "theirs");
        let words = format!("forebay() {{ \"$FOREBAY\" \"$@\"; }}; {hint}");
        let mut bash = scene.stage.command("bash");
        bash.args(["-c", &words]);
        let said = finish(bash);
        assert!(!said.err.contains("not taken"), "{hint}: {said:?}");
    }
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 0, "{said}");
    for name in names {
        assert_eq!(fs::read_to_string(path(name)).unwrap(), "theirs\n");
    }
}

#[test]
fn a_file_that_a_program_writes_is_not_given_up_for_theirs() {
    let scene = Scene::new();
    let stage = &scene.stage;
    let mut run = stage.forebay(&["run", "--no-drain", "--no-record", "--buffer", scene.root()]);
    let script = "exec 3>> \"$0/f\"; echo one >&3; : > started; while [ ! -e go ]; do sleep 0.02; done; echo two >&3";
    run.args(["--", "sh", "-c", script, scene.root()]);
    let run = start(run);
    stage.wait_for_file("started");
    scene.outside("echo theirs >> f");
    let (code, said) = scene.drain(&["--take", "theirs", "f"]);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("f: a program has it open"), "{said}");
    fs::write(stage.path("go"), "").unwrap();
    wait(run).ends_with(0);
    assert_eq!(scene.view()["f"], "first\none\ntwo\n");
    let (code, said) = scene.drain(&["--take", "theirs", "f"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(tree(&scene.pfs)["f"], "first\ntheirs\n");
}

#[test]
fn a_directory_that_was_removed_stays_if_others_have_put_something_into_it() {
    let scene = Scene::new();
    scene.inside("rm -r d");
    scene.outside("echo theirs > d/new");
    let (code, said) = scene.drain(&[]);
    assert_eq!((code, changed(&said)), (75, vec!["d"]), "{said}");
    assert_eq!(tree(&scene.pfs)["d/new"], "theirs\n");
    assert_eq!(tree(&scene.pfs)["d/a"], "a\n");
    // Whoever asks for it knows what goes; but not what comes after that.
    scene.outside("echo later > d/later");
    let (code, said) = scene.drain(&["--take", "ours", "d"]);
    assert_eq!(code, 0, "{said}");
    assert!(!scene.pfs.join("d").exists());
}

#[test]
fn a_directory_that_was_removed_after_renames_or_with_links_in_it_stays_if_others_have_put_something_into_it()
 {
    // What is done inside, and which directory of the PFS goes by it.
    let cases = [
        ("mv d/a moved; rm -r d", "d"),
        ("mv d/a d/other; rm -r d", "d"),
        ("mv d/a moved; rm moved; rm -r d", "d"),
        ("mv d/a moved; rm -r d; rm moved", "d"),
        ("mv d/a moved; echo more >> moved; rm -r d", "d"),
        ("mv d elsewhere; rm -r elsewhere", "d"),
        ("mv d e; mv e/a x; rm -r e; mkdir d", "d"),
        ("rm -r links", "links"),
    ];
    for (inside, dir) in cases {
        for others in [false, true] {
            let scene = Scene::new();
            scene.outside("mkdir links second; echo one > links/one; ln links/one second/one; echo two > links/two");
            scene.inside(inside);
            if others {
                scene.outside("for d in d links; do echo theirs > $d/new; done");
            }
            // The other name goes as well: what is left has one name only.
            scene.inside("rm -r second");
            let (code, said) = scene.drain(&[]);
            if !others {
                assert_eq!(code, 0, "{inside}, others: {others}: {said}");
                continue;
            }
            assert_eq!((code, changed(&said)), (75, vec![dir]), "{inside}: {said}");
            let new = format!("{dir}/new");
            assert_eq!(tree(&scene.pfs)[&new], "theirs\n", "{inside}: {said}");
        }
    }
}

#[test]
fn what_both_have_made_is_settled_for_either_side_or_both() {
    // What is done inside and outside, the path of the conflict, and what is there for each side.
    let cases = [
        ("echo ours > new", "echo theirs > new", "new", "ours\n"),
        (
            "echo ours > d/new",
            "echo theirs > d/new",
            "d/new",
            "ours\n",
        ),
        ("mv f new", "echo theirs > new", "new", "first\n"),
        (
            "echo ours > new",
            "mkdir new; echo theirs > new/x",
            "new",
            "ours\n",
        ),
    ];
    for (inside, outside, path, ours) in cases {
        for side in ["ours", "theirs", "both"] {
            let scene = Scene::new();
            scene.inside(inside);
            scene.outside(outside);
            let (code, said) = scene.drain(&[]);
            assert_eq!(code, 75, "{said}");
            assert!(said.contains("something else has appeared there"), "{said}");
            assert!(
                said.contains(&format!("--take ours|theirs|both {path}")),
                "{said}"
            );
            let (code, said) = scene.drain(&["--take", side, path]);
            assert_eq!(code, 0, "{inside}, {side}: {said}");
            let now = tree(&scene.pfs);
            let second = now.get(&format!("{path}.ours")).map(String::as_str);
            assert_eq!(second, (side == "both").then_some(ours), "{inside}, {side}");
            let first = now.get(path).map(String::as_str);
            assert_eq!(
                first == Some(ours),
                side == "ours",
                "{inside}, {side}: {now:?}"
            );
            assert_eq!(
                holds(&now, "theirs\n"),
                side != "ours",
                "{inside}, {side}: {now:?}"
            );
        }
    }
}

/// What is in the buffer has no place on the PFS any more, and no name in the buffer leads to it.
#[test]
fn what_others_have_taken_the_directory_from_gets_a_place_or_goes() {
    // What is done inside and outside, the path in question, and what makes its directory again.
    let cases = [
        ("echo ours > d/new", "rm -r d", "d/new", "mkdir d"),
        ("echo ours > d/a", "mv d elsewhere", "d/a", "mkdir d"),
        (
            "echo ours > d/new",
            "rm -r d; echo theirs > d",
            "d/new",
            "rm d; mkdir d",
        ),
        (
            "mkdir d/s; echo ours > d/s/new",
            "rm -r d",
            "d/s/new",
            "mkdir d",
        ),
        (
            "mv d n; echo ours > n/new",
            "mv d elsewhere",
            "n/new",
            "mv elsewhere d",
        ),
        (
            "mkdir d/s; echo ours > d/s/new",
            "mv d elsewhere; ln -s elsewhere d",
            "d/s/new",
            "rm d; mv elsewhere d",
        ),
    ];
    for (inside, outside, path, mended) in cases {
        let name = path.rsplit('/').next().unwrap();
        let new = || {
            let scene = Scene::new();
            scene.inside(inside);
            scene.outside(outside);
            let (code, said) = scene.drain(&[]);
            assert_eq!(code, 75, "{inside}, {outside}: {said}");
            assert!(said.contains(path), "{said}");
            scene
        };
        let scene = new();
        let (code, said) = scene.drain(&["--take", "ours", path]);
        assert_eq!(code, 75, "{inside}, {outside}: {said}");
        assert!(said.contains("make it there again"), "{said}");
        scene.outside(mended);
        let (mut code, mut said) = scene.drain(&[]);
        // That it is for a new directory has to be said.
        assert_eq!(code == 75, mended.ends_with("mkdir d"), "{said}");
        if code == 75 {
            let (_, hint) = said.split_once("--take ours|both|theirs ").unwrap();
            let waits = hint.lines().next().unwrap();
            (code, said) = scene.drain(&["--take", "ours", waits]);
        }
        assert_eq!(code, 0, "{inside}, {outside}: {said}");
        assert_eq!(tree(&scene.pfs)[path], "ours\n");
        let scene = new();
        let (_, said) = scene.drain(&["--take", "both", path]);
        assert!(!said.contains("not taken"), "{said}");
        let now = tree(&scene.pfs);
        assert_eq!(
            now[&format!("{name}.ours")],
            "ours\n",
            "{inside}, {outside}: {now:?}"
        );
        let scene = new();
        let (_, said) = scene.drain(&["--take", "theirs", path]);
        assert!(!said.contains("not taken"), "{said}");
        assert!(!said.contains(path), "{said}");
        assert!(!holds(&tree(&scene.pfs), "ours\n"));
    }
}

/// What was to be removed is not there, but in the right directory it is.
#[test]
fn what_was_removed_from_a_directory_stays_removed_when_that_comes_back() {
    let new = || {
        let scene = Scene::new();
        scene.inside("rm d/a");
        scene.outside("mv d away; mkdir d");
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 75, "{said}");
        assert!(said.contains("d/a: on the PFS another directory"), "{said}");
        scene
    };
    let scene = new();
    scene.outside("rmdir d; mv away d");
    assert_eq!(scene.drain(&[]).0, 0);
    assert!(!tree(&scene.pfs).contains_key("d/a"));
    for side in ["ours", "theirs"] {
        let scene = new();
        let (code, said) = scene.drain(&["--take", side, "d/a"]);
        assert_eq!(code, 0, "{side}: {said}");
        assert_eq!(tree(&scene.pfs)["away/a"], "a\n");
    }
}

/// The file of the same name in the other directory was never renamed by anybody.
#[test]
fn nothing_is_taken_out_of_another_directory_than_that_out_of_which_it_was_renamed() {
    let scene = Scene::new();
    scene.inside("mv d/a g");
    scene.outside("mv d away; mkdir d; echo other > d/a");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    let (code, said) = scene.drain(&["--take", "ours", "g"]);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("not taken: g: "), "{said}");
    assert_eq!(tree(&scene.pfs)["d/a"], "other\n");
    let (code, said) = scene.drain(&["--take", "theirs", "g"]);
    assert_eq!(code, 0, "{said}");
    let now = tree(&scene.pfs);
    assert_eq!((&*now["d/a"], &*now["away/a"]), ("other\n", "a\n"));
}

/// Others put a file where its directory was, and a program changes that one.
#[test]
fn what_lay_in_a_directory_that_is_a_file_now_gets_a_place_or_goes() {
    let new = || {
        let scene = Scene::new();
        scene.inside("mkdir d/s; echo ours > d/s/new");
        scene.outside("mv d elsewhere; echo theirs > d");
        scene.inside("echo more >> d");
        for _ in 0..2 {
            let (code, said) = scene.drain(&[]);
            assert_eq!(code, 75, "{said}");
            assert!(said.contains("or put something else there"), "{said}");
        }
        assert_eq!(tree(&scene.pfs)["d"], "theirs\nmore\n");
        scene
    };
    for (side, is_there) in [("both", true), ("theirs", false)] {
        let scene = new();
        for path in ["d/s/new", "d/s"] {
            let side = if path == "d/s" { "theirs" } else { side };
            let (_, said) = scene.drain(&["--take", side, path]);
            assert!(!said.contains("not taken"), "{side} {path}: {said}");
        }
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 0, "{said}");
        assert_eq!(holds(&tree(&scene.pfs), "ours\n"), is_there);
    }
}

/// Others put a file where a directory was in which something was renamed or made, a program ends that file, and perhaps
/// others bring the directory back: theirs can be taken.
#[test]
fn what_was_renamed_or_made_in_a_directory_that_became_a_file_can_be_settled() {
    let begins = ["mv d/b d/c", "echo ours > d/new"];
    let ends = ["rm d", "echo more >> d", "mv f d", "ln -sf f d"];
    let backs = [
        "true",
        "mv -f d y 2> moved; mv aside d; echo w > d/w",
        "rm -f d; mkdir d; echo w > d/w",
    ];
    let cases = begins.iter().flat_map(|begin| ends.map(|end| (begin, end)));
    for (begin, end) in cases {
        for (back, drains_before) in backs.iter().flat_map(|back| [(back, false), (back, true)]) {
            let what = format!("{begin}, {end}, {back}, {drains_before}");
            let scene = Scene::new();
            scene.outside("echo b > d/b");
            scene.inside(begin);
            scene.outside("mv d aside; echo y > d");
            scene.inside(end);
            if drains_before {
                scene.drain(&[]);
            }
            scene.outside(back);
            let mut all = String::new();
            let mut code = 75;
            for _ in 0..4 {
                let said;
                (code, said) = scene.drain(&[]);
                for path in listed(&said) {
                    all += &scene.drain(&["--take", "theirs", &path]).1;
                }
            }
            assert_eq!(code, 0, "{what}: {all}");
            let now = tree(&scene.pfs);
            let mut expected = vec!["a\n", "b\n"];
            if *back != "true" {
                expected.push("w\n");
            }
            // They have removed what a drain had renamed.
            if !(end == "mv f d" && back.starts_with("rm") && drains_before) {
                expected.push("first\n");
            }
            for text in expected {
                assert!(holds(&now, text), "{what}: {now:?}: {all}");
            }
        }
    }
}

/// A program carries something over to a new directory of the old name, and others remove it, or the old directory.
#[test]
fn what_others_remove_after_it_was_carried_over_can_be_given_up() {
    let carried = [
        "mv d t; mkdir d; mv t/a d/zz; rm -r t",
        "mv d t; mkdir d; mv t/a d/a; rm -r t",
        "mv d t; mkdir d; mv t/s d/s; rm -r t",
        "mv d t; mkdir d; mv t/s/c d/c; rm -r t",
        "mv d/a d/w; mkdir d/a; mv d/w d/a/w",
        "mv d/s s2; rm -r d; mv s2 d",
        "mv d n; mv n/s d; mv n d/n",
    ];
    let removed = [
        "rm d/a",
        "rm -r d/s",
        "rm -r d",
        "mv d aside; mkdir d",
        "mv d aside; cp -r aside d; rm -r aside",
        "mv d aside; echo theirs > d",
    ];
    let pairs = carried
        .iter()
        .flat_map(|inside| removed.map(|outside| (inside, outside)));
    for (inside, outside) in pairs {
        let scene = Scene::new();
        scene.outside("mkdir -p d/s; echo c > d/s/c");
        scene.inside(inside);
        scene.outside(outside);
        let theirs = tree(&scene.pfs);
        let mut all = String::new();
        for _ in 0..4 {
            let (code, said) = scene.drain(&[]);
            if code == 0 {
                break;
            }
            for path in listed(&said) {
                let (_, more) = scene.drain(&["--take", "theirs", &path]);
                all += &more;
                if more.contains("(`forebay run -- mkdir`)") {
                    scene.inside(&format!("mkdir -p '{path}' || true"));
                } else if more.contains("take ours") {
                    all += &scene.drain(&["--take", "ours", &path]).1;
                }
            }
        }
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 0, "{inside}, {outside}: {all}{said}");
        let now = tree(&scene.pfs);
        let aside = theirs.iter().filter(|(path, _)| path.starts_with("aside"));
        for (path, contents) in aside {
            assert_eq!(
                now.get(path),
                Some(contents),
                "{inside}, {outside}: {now:?}"
            );
        }
    }
    // A renamed directory in which a program has made something, and another one in its place.
    let scene = Scene::new();
    scene.inside("mv d m; echo x > m/x");
    scene.outside("mv d aside; mkdir d; echo y > d/y");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    for side in ["theirs", "both"] {
        let (code, said) = scene.drain(&["--take", side, "m"]);
        assert_eq!(code, 75, "{side}: {said}");
        assert!(said.contains("not taken: m: "), "{side}: {said}");
    }
    // What was made in it was not made in theirs.
    let (code, said) = scene.drain(&["--take", "ours", "m"]);
    assert_eq!(code, 75, "{said}");
    assert_eq!(listed(&said), ["m/x"], "{said}");
    let (code, said) = scene.drain(&["--take", "ours", "m/x"]);
    assert_eq!(code, 0, "{said}");
    let now = tree(&scene.pfs);
    assert_eq!(
        (&*now["m/x"], &*now["m/y"], &*now["aside/a"]),
        ("x\n", "y\n", "a\n")
    );
    // The same, in which a program has removed or replaced something: that is not done to what is in the other one.
    for inside in ["rm m/a", "echo x > m/a"] {
        let scene = Scene::new();
        scene.inside(&format!("mv d m; {inside}"));
        scene.outside("mv d aside; mkdir d; echo y > d/a; mv d g");
        let (code, said) = scene.drain(&["--take", "theirs", "m"]);
        assert_eq!(code, 75, "{inside}: {said}");
        assert!(said.contains("not taken: m: "), "{inside}: {said}");
        scene.outside("mv g d");
        scene.drain(&[]);
        let now = tree(&scene.pfs);
        assert_eq!((&*now["d/a"], &*now["aside/a"]), ("y\n", "a\n"));
    }
    // Two that change places.
    let scene = Scene::new();
    scene.outside("echo b > d/b");
    scene.inside("mv d t; mkdir d; mv t/a d/b; mv t/b d/a; rm -r t");
    scene.outside("rm -r d");
    for path in ["d/a", "d/b"] {
        let (_, said) = scene.drain(&["--take", "theirs", path]);
        assert!(!said.contains("not taken"), "{said}");
    }
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 0, "{said}");
    // Nobody sees it any more.
    let scene = Scene::new();
    scene.inside("mkdir e; mv f e/zz");
    scene.outside("mv f aside");
    scene.inside("rmdir e");
    scene.outside("mv aside f; echo w >> f");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    assert_eq!(tree(&scene.pfs)["f"], "first\nw\n");
}

/// Others put it aside, and back after it has ended under its new name.
#[test]
fn what_was_renamed_and_comes_back_with_something_new_in_it_is_not_lost() {
    // What is in its place is not what was renamed, so nothing is there.
    let ends = [
        "echo z >> c",
        "echo z > c",
        "truncate -s 0 c",
        "mv f c",
        "exec 3<> c",
        "ln -sf f c",
    ];
    let replaced = ends.map(|end| ("echo y > d/a", end));
    // Where nothing is, something new takes the place.
    let removed = ["touch c", "mv f c", "mkdir c"].map(|end| ("true", end));
    for (in_its_place, end) in replaced.into_iter().chain(removed) {
        let scene = Scene::new();
        scene.inside("mv d/a c");
        scene.outside(&format!("mv d/a aside; {in_its_place}"));
        scene.inside(end);
        scene.outside("rm -f d/a; mv aside d/a; echo w >> d/a");
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 75, "{in_its_place}, {end}: {said}");
        assert!(
            holds(&tree(&scene.pfs), "a\nw\n"),
            "{in_its_place}, {end}: {said}"
        );
    }
    let dirs = [
        ("echo y > d", "echo z > c"),
        ("echo y > d", "mv f c"),
        ("true", "touch c"),
        ("true", "mkdir c"),
        ("mkdir d; echo y > d/a", "mkdir c"),
        ("ln -s f d", "ln -s f c"),
    ];
    for (in_its_place, end) in dirs {
        for new in ["echo w > d/w", "true"] {
            let scene = Scene::new();
            scene.inside("mv d c");
            scene.outside(&format!("mv d aside; {in_its_place}"));
            scene.inside(end);
            scene.outside(&format!("rm -rf d; mv aside d; {new}"));
            let (code, said) = scene.drain(&[]);
            assert_eq!(code, 75, "{in_its_place}, {end}: {said}");
            let now = tree(&scene.pfs);
            assert!(holds(&now, "a\n"), "{in_its_place}, {end}: {now:?}");
            assert_eq!(holds(&now, "w\n"), new != "true", "{now:?}");
        }
    }
    // A program has written to it in place before, and nobody has changed it since.
    let scene = Scene::new();
    let bridge = ["up", "--buffer", scene.root()];
    scene.stage.say(&bridge).ends_with(0);
    scene.inside("exec 3< f; echo more >> f; exec 3<&-; mv f c");
    scene.outside("mv f aside; echo y > f");
    scene.inside("mkdir c");
    scene.outside("mv aside f");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    assert_eq!(tree(&scene.pfs)["f"], "first\nmore\n");
    let end = ["down", "--no-drain", "--buffer", scene.root()];
    scene.stage.say(&end).ends_with(0);
}

#[test]
fn what_was_renamed_or_made_where_no_directory_is_any_more_holds_up_nothing_else() {
    let scene = Scene::new();
    scene.inside("mv f d/moved");
    scene.outside("rm -r d");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    let (code, said) = scene.drain(&["--take", "both", "d/moved"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(tree(&scene.pfs)["moved.ours"], "first\n");
    let scene = Scene::new();
    scene.inside("mkdir d/s; echo ours > d/s/new; echo ours > other");
    scene.outside("mv d elsewhere; ln -s elsewhere d");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    assert_eq!(tree(&scene.pfs)["other"], "ours\n", "{said}");
    // A new directory with nothing in it can be given up.
    let scene = Scene::new();
    scene.inside("mkdir d/s");
    scene.outside("rm -r d");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("--take both|theirs d/s"), "{said}");
    let (code, said) = scene.drain(&["--take", "theirs", "d/s"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_decision_about_what_is_no_conflict_is_refused() {
    for (path, why) in [
        ("f", "there is nothing of it in the buffer"),
        (
            "d",
            "nothing of it itself is in the buffer, only things in it: choose about those that are listed",
        ),
        ("new", "it replaces nothing on the PFS"),
    ] {
        let scene = Scene::new();
        scene.inside("echo ours > new; echo more >> d/a");
        let (code, said) = scene.drain(&["--take", "ours", path]);
        assert_eq!(code, 1, "{said}");
        assert!(
            said.contains(&format!("not taken: {path}: {why}")),
            "{said}"
        );
        assert_eq!(tree(&scene.pfs)["new"], "ours\n", "the rest is drained");
    }
    let scene = Scene::new();
    scene.inside("echo ours > new");
    let (code, said) = scene.drain(&["--take", "ours", "/etc/passwd"]);
    assert_eq!(code, 1);
    assert!(said.contains("is no path in"), "{said}");
}

#[test]
fn what_others_have_not_changed_is_drained_whatever_is_chosen() {
    let cases = [
        ("echo new > f", "f"),
        ("rm f", "f"),
        ("rm -r d", "d"),
        ("mv d/a m; mv m d/a; echo n > n", "d/a"),
        ("mv d/a m; mv m d/a; echo more >> d/a", "d/a"),
        ("ln f g; echo more >> f; rm f", "f"),
        ("mv f d/b", "d/b"),
        ("mv -n f t; mv d/b f; mv t d/b", "f"),
        ("mv d/a t; mv d/b d/a; mv f d/b; mv t f", "d/a"),
        ("rm -r d; echo new > d", "d"),
        ("rm -r d; mkdir d; echo new > d/new", "d"),
        ("mkdir n; rm -r d; mv n d", "d"),
    ];
    for (inside, path) in cases {
        let natively = Scene::new();
        natively.outside(inside);
        for side in ["ours", "theirs", "both"] {
            let scene = Scene::new();
            scene.inside(inside);
            let (code, said) = scene.drain(&["--take", side, path]);
            assert_eq!(code, 1, "{inside}, {side}: {said}");
            let is_refused = |why| said.contains(&format!("not taken: {path}: {why}"));
            let is_there = is_refused("others have not changed") || is_refused("what was there is");
            assert!(is_there, "{inside}, {side}: {said}");
            assert_eq!(tree(&scene.pfs), tree(&natively.pfs), "{inside}, {side}");
        }
    }
    // What a drain has kept, and a program has changed since.
    let scene = Scene::new();
    scene.inside("echo ours > f; echo ours > new; mkdir n; mv d/a n/a");
    assert_eq!(scene.drain(&["--keep"]).0, 0);
    let (code, said) = scene.drain(&["--keep", "--take", "theirs", "n/a"]);
    assert_eq!((code, &*tree(&scene.pfs)["n/a"]), (1, "a\n"), "{said}");
    scene.inside("echo more >> f; echo more >> new");
    let (code, said) = scene.drain(&["--take", "both", "f", "new", "n/a"]);
    assert_eq!((code, &*tree(&scene.pfs)["n/a"]), (1, "a\n"), "{said}");
    let now = tree(&scene.pfs);
    assert_eq!((&*now["f"], &*now["new"]), ("ours\nmore\n", "ours\nmore\n"));
}

#[test]
fn ours_of_a_file_that_is_open_can_be_revoked_whatever_the_program_does_then() {
    for then in [":", "echo new > n; mv n f", "rm f", "rm f; echo new > f"] {
        let scene = Scene::new();
        let [ready, go] = ["ready", "go"].map(|name| scene.stage.path(name));
        let script = format!(
            "cd '{}'; exec 3>>f; echo ours >&3; : > '{}'; until test -e '{}'; do sleep 0.01; done; {then}",
            scene.root(),
            ready.display(),
            go.display()
        );
        let run = [
            "run",
            "--no-drain",
            "--buffer",
            scene.root(),
            "--",
            "sh",
            "-ec",
        ];
        let run = start(scene.stage.forebay(&[&run[..], &[&script]].concat()));
        scene.stage.wait_for_file("ready");
        scene.outside("echo theirs > new; mv new f");
        let (code, said) = scene.drain(&["--take", "ours", "f"]);
        assert_eq!(code, 75, "{then}: {said}");
        assert!(!said.contains("not taken"), "{then}: {said}");
        fs::write(&go, "").unwrap();
        wait(run);
        let (code, said) = scene.drain(&["--take", "theirs", "f"]);
        assert_eq!(code, 0, "{then}: {said}");
        assert_eq!(tree(&scene.pfs)["f"], "theirs\n", "{then}");
    }
}

#[test]
fn what_has_not_left_a_directory_comes_before_a_choice_about_that() {
    for side in ["ours", "theirs"] {
        let scene = Scene::new();
        scene.inside("mv d/a x; rm -r d");
        scene.outside("echo theirs > x");
        let (code, said) = scene.drain(&[]);
        assert_eq!((code, changed(&said)), (75, vec![]), "{said}");
        let (code, said) = scene.drain(&["--take", side, "d"]);
        assert_eq!(code, 75, "{said}");
        let refusal = "not taken: d: others have not changed";
        assert!(said.contains(refusal), "{said}");
        let (code, said) = scene.drain(&["--take", "both", "x"]);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("ours of x is x.ours now"), "{said}");
        let now = tree(&scene.pfs);
        assert_eq!((&*now["x"], &*now["x.ours"]), ("theirs\n", "a\n"));
        assert!(!scene.pfs.join("d").exists());
    }
    // Also where it goes to, or comes back to, is still to be made.
    for (inside, side, refusal) in [
        (
            "mkdir e; mv d/a e/x; rm -r d",
            "theirs",
            "not taken: d: e/x was in it",
        ),
        (
            "mv d/a t; rm -r d; mv t d",
            "both",
            "not taken: d: it was renamed out of what it replaces",
        ),
    ] {
        let scene = Scene::new();
        scene.inside(inside);
        scene.outside("echo theirs > d/new");
        let (code, said) = scene.drain(&["--take", side, "d"]);
        assert_eq!((code, said.contains(refusal)), (75, true), "{said}");
        let (code, said) = scene.drain(&["--take", side, "d"]);
        assert_eq!(code, 0, "{said}");
        let now = tree(&scene.pfs);
        assert_eq!((&*now["d/new"], holds(&now, "a\n")), ("theirs\n", true));
    }
    // Both at once: what leaves does not count in what is there now.
    let scene = Scene::new();
    scene.inside("mv d/a x; rm -r d");
    scene.outside("echo theirs > x; echo theirs > d/new");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    let (code, said) = scene.drain(&["--take", "ours", "x", "d"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(tree(&scene.pfs)["x"], "a\n");
    assert!(!scene.pfs.join("d").exists());
}

#[test]
fn a_directory_in_which_a_conflict_was_listed_is_not_removed_with_what_is_theirs() {
    let scene = Scene::new();
    scene.inside("rm -r d/*");
    scene.outside("echo theirs > d/a");
    let (code, said) = scene.drain(&[]);
    assert_eq!((code, changed(&said)), (75, vec!["d/a"]), "{said}");
    scene.inside("rmdir d");
    scene.outside("echo theirs too > d/c");
    let (code, said) = scene.drain(&[]);
    assert_eq!((code, changed(&said)), (75, vec!["d"]), "{said}");
    let after = tree(&scene.pfs);
    assert!(
        holds(&after, "theirs\n") && holds(&after, "theirs too\n"),
        "{after:?}"
    );
}

/// What happens in the buffer, the letters of `keep` between: a drain that keeps what it has drained.
struct Sequence {
    inside: &'static [&'static str],
    outside: &'static str,
    /// Where theirs is in the end, and what the drain lists.
    theirs: &'static str,
    listed: &'static [&'static str],
}

const KEEP: &str = "drain --keep";
/// The others act here, and not at the end.
const OTHERS: &str = "others";

/// Each lost theirs, with exit status 0, or would have been refused without a reason.
const SEQUENCES: [Sequence; 11] = [
    // Of a copy with two names a change is seen as of one with a single name.
    Sequence {
        inside: &["echo ours > n; ln n m", KEEP, "echo more >> n"],
        outside: "echo theirs > n",
        theirs: "m",
        listed: &["m"],
    },
    // A new name in a directory that the drain has made has an identity as well.
    Sequence {
        inside: &["mkdir n; mv d/a n/x", KEEP, "rm n/x"],
        outside: "rm n/x; echo theirs > n/x",
        theirs: "n/x",
        listed: &["n/x"],
    },
    Sequence {
        inside: &["mkdir n; mv d n/x", KEEP, "rm -r n/x"],
        outside: "echo theirs > n/x/new",
        theirs: "n/x/new",
        listed: &["n/x"],
    },
    Sequence {
        inside: &["mkdir n; mv d/a n/x", KEEP, "echo ours > n/x"],
        outside: "rm n/x; echo theirs > n/x",
        theirs: "n/x",
        listed: &["n/x"],
    },
    // A directory that was drained is one of the PFS for the next run. Renamed there, it takes along what others have put into it.
    Sequence {
        inside: &[
            "mkdir -p n/s; echo ours > n/s/a; echo ours > n/b",
            KEEP,
            "mv n m",
        ],
        outside: "echo theirs > n/s/new",
        theirs: "m/s/new",
        listed: &[],
    },
    Sequence {
        inside: &["mkdir -p d/s; echo ours > d/s/a", KEEP, "mv d m"],
        outside: "echo theirs > d/s/new",
        theirs: "m/s/new",
        listed: &[],
    },
    // What was renamed is known by its number, also when the directory that it was in has gone.
    Sequence {
        inside: &["mv d/a x; rm -r d"],
        outside: "rm d/a; echo theirs > d/a",
        theirs: "d/a",
        listed: &["x"],
    },
    // The record of what was in a directory goes with the directory.
    Sequence {
        inside: &[
            "mkdir d/s",
            KEEP,
            "mv d/s x; mv -T d/s x || mv d y; rm -r y; rmdir x",
        ],
        outside: "echo theirs > d/new",
        theirs: "d/new",
        listed: &["d"],
    },
    Sequence {
        inside: &["mv d/a x; rm d/b; mv d y; rm x; rm -r y"],
        outside: "echo theirs > d/new",
        theirs: "d/new",
        listed: &["d"],
    },
    // What others have put in the place of something renamed does not become ours when that is removed.
    Sequence {
        inside: &["mv d/a x; rm -r d", OTHERS, "echo new > y; mv y x"],
        outside: "rm -f d/a; echo theirs > d/a",
        theirs: "d/a",
        listed: &["d"],
    },
    Sequence {
        inside: &["mv e/s x; mv -T e x; rm -r x"],
        outside: "echo theirs > e/s/new",
        theirs: "e/s/new",
        listed: &["e"],
    },
];

#[test]
fn what_others_do_after_renames_and_kept_drains_is_not_lost_and_without_them_nothing_is_refused() {
    for case in SEQUENCES {
        for others in [false, true] {
            let scene = Scene::new();
            scene.outside("mkdir -p e/s");
            for step in case.inside {
                match *step {
                    KEEP => assert_eq!(scene.drain(&["--keep"]).0, 0),
                    OTHERS if others => scene.outside(case.outside),
                    OTHERS => {}
                    script => scene.inside(script),
                }
            }
            if others && !case.inside.contains(&OTHERS) {
                scene.outside(case.outside);
            }
            let (code, said) = scene.drain(&[]);
            let now = tree(&scene.pfs);
            let told = format!("{:?}, others: {others}: {said}{now:?}", case.inside);
            if !others {
                assert_eq!(code, 0, "{told}");
                continue;
            }
            let expected = if case.listed.is_empty() { 0 } else { 75 };
            assert_eq!(
                (code, changed(&said)),
                (expected, case.listed.to_vec()),
                "{told}"
            );
            let theirs = now.get(case.theirs).map(String::as_str);
            assert_eq!(theirs, Some("theirs\n"), "{told}");
        }
    }
}

/// While a run goes on, a directory that was drained is known by what was drained into it.
#[test]
fn a_directory_that_was_drained_in_this_run_and_then_renamed_does_not_take_along_what_is_theirs() {
    for (made, renamed, theirs, listed) in [
        (
            "mkdir -p n/s; echo ours > n/s/a; echo ours > n/b",
            "mv n m",
            "n/s/new",
            "n",
        ),
        (
            "mkdir -p d/s; echo ours > d/s/a",
            "mv d m",
            "m/s/new",
            "m/s",
        ),
    ] {
        for others in [false, true] {
            let scene = Scene::new();
            let root = scene.root();
            scene.inside(&format!(
                "{made}; \"$FOREBAY\" drain --keep --buffer '{root}'; {renamed}"
            ));
            let place = theirs.replace("m/s", "d/s");
            if others {
                scene.outside(&format!("echo theirs > {place}"));
            }
            let (code, said) = scene.drain(&[]);
            let now = tree(&scene.pfs);
            match others {
                false => assert_eq!(code, 0, "{said}"),
                true => {
                    assert_eq!((code, changed(&said)), (75, vec![listed]), "{said}{now:?}");
                    assert_eq!(
                        now.get(theirs).map(String::as_str),
                        Some("theirs\n"),
                        "{now:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_was_renamed_and_replaced_by_others_is_settled_for_either_side() {
    for (side, path, other) in [("ours", "x", "d/a"), ("theirs", "d/a", "x")] {
        let scene = Scene::new();
        scene.inside("mv d/a x");
        scene.outside("rm d/a; echo theirs > d/a");
        let (code, said) = scene.drain(&[]);
        assert_eq!((code, changed(&said)), (75, vec!["x"]), "{said}");
        let (code, said) = scene.drain(&["--take", "both", "x"]);
        assert_eq!(code, 75, "{said}");
        assert!(
            said.contains("what was renamed is no longer there"),
            "{said}"
        );
        let (code, said) = scene.drain(&["--take", side, "x"]);
        assert_eq!(code, 0, "{said}");
        let now = tree(&scene.pfs);
        assert_eq!(now[path], "theirs\n");
        assert!(!now.contains_key(other), "{now:?}");
    }
}

#[test]
fn their_side_of_a_renamed_file_leaves_nothing_to_settle() {
    let scene = Scene::new();
    scene.inside("mv d/a x; rm -r d");
    scene.outside("echo theirs > x");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    let (code, said) = scene.drain(&["--take", "theirs", "x"]);
    assert_eq!(code, 0, "{said}");
    let now = tree(&scene.pfs);
    assert_eq!(now["x"], "theirs\n");
    assert!(!scene.pfs.join("d").exists(), "{now:?}");
}

#[test]
fn a_file_in_the_place_of_a_directory_of_others_is_settled_also_if_it_was_drained_before() {
    let scene = Scene::new();
    scene.inside("echo ours > x");
    assert_eq!(scene.drain(&["--keep"]).0, 0);
    scene.inside("echo more >> x");
    scene.outside("rm x; mkdir x; echo theirs > x/a");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    let (code, said) = scene.drain(&["--take", "ours", "x"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(tree(&scene.pfs)["x"], "ours\nmore\n");
}

#[test]
fn a_directory_that_both_have_made_is_no_conflict() {
    let scene = Scene::new();
    scene.inside("mkdir both; echo ours > both/a; echo ours > both/b");
    scene.outside("mkdir both; echo theirs > both/a; echo theirs > both/c");
    let (code, said) = scene.drain(&["--take", "ours", "both"]);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("both/a: "), "{said}");
    let now = tree(&scene.pfs);
    let both = ["both/a", "both/b", "both/c"].map(|path| now[path].as_str());
    assert_eq!(both, ["theirs\n", "ours\n", "theirs\n"]);
}

/// Where others may rename it could be one that somebody has moved there, so that is not for the drain to say.
#[test]
fn in_a_directory_of_a_group_either_side_of_one_that_both_have_made_settles_it() {
    for side in ["ours", "theirs"] {
        let scene = Scene::new();
        scene.outside("mkdir project; chmod 2775 project");
        scene.inside("mkdir project/run; echo ours > project/run/a");
        scene.outside("mkdir project/run; echo theirs > project/run/b");
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 75, "{said}");
        assert!(
            said.contains("--take ours|theirs|both project/run"),
            "{said}"
        );
        let (code, said) = scene.drain(&["--take", side, "project/run"]);
        assert_eq!(code, 0, "{side}: {said}");
        let now = tree(&scene.pfs);
        let both = ["project/run/a", "project/run/b"].map(|path| now[path].as_str());
        assert_eq!(both, ["ours\n", "theirs\n"]);
    }
    // What others have in it was in no list before.
    let scene = Scene::new();
    scene.outside("mkdir project; chmod 2775 project");
    scene.inside("mkdir project/run; echo ours > project/run/a");
    scene.outside("mkdir project/run; echo theirs > project/run/a");
    let all = ["--take", "ours", "project/run", "project/run/a"];
    let (code, said) = scene.drain(&all);
    assert_eq!(code, 75, "{said}");
    assert_eq!(tree(&scene.pfs)["project/run/a"], "theirs\n");
    let (code, said) = scene.drain(&["--take", "ours", "project/run/a"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(tree(&scene.pfs)["project/run/a"], "ours\n");
    // What was chosen is known: nothing comes into another one that has its place since.
    let scene = Scene::new();
    scene.outside("mkdir project; chmod 2775 project");
    scene.inside("mkdir project/run; echo ours > project/run/a");
    scene.outside("mkdir project/run; echo theirs > project/run/a");
    let (code, said) = scene.drain(&["--take", "theirs", "project/run"]);
    assert_eq!(code, 75, "{said}");
    scene.outside("cd project; mv run run.1; mkdir run");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    assert!(!tree(&scene.pfs).contains_key("project/run/a"));
}

/// A bridge that lives knows the program that wrote to the file, one that comes after it does not.
#[test]
fn a_file_of_several_names_that_a_program_wrote_by_one_of_them_goes_with_all() {
    for (workers, lives) in [("2", true), ("2", false), ("1", true), ("1", false)] {
        let bridge = |scene: &Scene, words: &[&str]| {
            if lives {
                let words = [words, &["--buffer", scene.root()]].concat();
                scene.stage.say(&words).ends_with(0);
            }
        };
        let written = || {
            let scene = Scene::new();
            scene.outside("echo first > a; ln a z");
            bridge(&scene, &["up"]);
            scene.inside("rm z; echo more >> a; rm a");
            let now = tree(&scene.pfs);
            assert_eq!(now["a"], "first\nmore\n", "it was not written in place");
            scene
        };
        let drain = ["--drain-workers", workers];
        let scene = written();
        let (code, said) = scene.drain(&drain);
        assert_eq!(code, 0, "{workers} {lives}: {said}");
        let now = tree(&scene.pfs);
        assert!(!now.contains_key("a") && !now.contains_key("z"), "{now:?}");
        bridge(&scene, &["down"]);

        // What others write after that is theirs, and stays under one name.
        let scene = written();
        scene.outside("echo theirs >> a");
        let (code, said) = scene.drain(&drain);
        assert_eq!(code, 75, "{workers} {lives}: {said}");
        let now = tree(&scene.pfs);
        let left = ["a", "z"].map(|name| now.get(name));
        let theirs = "first\nmore\ntheirs\n".to_owned();
        assert!(left.contains(&Some(&theirs)), "{workers} {lives}: {now:?}");
        bridge(&scene, &["down", "--no-drain"]);
    }
}

/// Names in a removed directory tell as much of a file as those outside, whichever goes first.
#[test]
fn what_others_write_to_a_file_of_several_names_in_a_removed_directory_is_not_lost() {
    let removals = [
        "rm FILE; rm -r r",
        "rm -r r; rm FILE",
        "rm FILE; touch -d 2003-01-01 r/b; rm -r r",
        "rm -r r; echo more >> FILE; rm FILE",
        "rm FILE; echo other > FILE; touch -d 2003-01-01 r/b; rm -r r",
        "mv r s; rm -r s; rm FILE",
        "ln -s FILE l; rm -r r",
    ];
    let removals = removals.iter().flat_map(|removal| {
        let files = ["a", "z"].into_iter();
        files.flat_map(move |file| ["1", "2"].map(|workers| (removal, file, workers)))
    });
    for (removal, file, workers) in removals {
        let removal = removal.replace("FILE", file);
        let removed = || {
            let scene = Scene::new();
            scene.outside(&format!(
                "mkdir r; echo first > {file}; ln {file} r/b; echo by itself > r/single"
            ));
            scene.inside(&removal);
            scene
        };
        let drain = ["--drain-workers", workers];
        let scene = removed();
        let (code, said) = scene.drain(&drain);
        assert_eq!(code, 0, "{removal}: {said}");
        let names: Vec<_> = tree(&scene.pfs).into_keys().collect();
        assert!(!names.iter().any(|name| name.starts_with('r')), "{names:?}");

        let scene = removed();
        scene.outside("echo theirs >> r/b");
        let (code, said) = scene.drain(&drain);
        let now = tree(&scene.pfs);
        let is_there = now.values().any(|holds| holds.ends_with("theirs\n"));
        assert!(is_there, "{removal} {workers}: {said}; {now:?}");
        // Where its name outside stays, one in the directory may go.
        let expected = if now.contains_key("l") { 0 } else { 75 };
        assert_eq!(code, expected, "{removal} {workers}: {said}");
    }
}

/// A program that lives goes on writing to what it removed: that is nobody else's change.
#[test]
fn a_directory_goes_with_a_file_of_several_names_that_its_program_goes_on_writing_to() {
    for removal in ["rm -r r", "rm r/a r/b; rmdir r", "mv r s; rm -r s"] {
        for workers in ["1", "2"] {
            let removed = |theirs: &str| {
                let scene = Scene::new();
                scene.outside("mkdir r; echo first > r/a; ln r/a r/b; echo by itself > r/single");
                scene
                    .stage
                    .say(&["up", "--buffer", scene.root()])
                    .ends_with(0);
                let removal = removal.replace("r/b", "r/b r/single");
                scene.inside(&format!("exec 3>>r/a; {removal}; echo more >&3"));
                scene.outside(theirs);
                let (code, said) = scene.drain(&["--drain-workers", workers]);
                scene
                    .stage
                    .say(&["down", "--no-drain", "--buffer", scene.root()]);
                (code, said, tree(&scene.pfs))
            };
            let (code, said, now) = removed("");
            assert_eq!(code, 0, "{removal} {workers}: {said}");
            assert!(
                !now.contains_key("r/a") && !now.contains_key("r/b"),
                "{now:?}"
            );

            let (code, said, now) = removed("echo theirs >> r/single");
            assert_eq!(code, 75, "{removal} {workers}: {said}");
            assert_eq!(now["r/single"], "by itself\ntheirs\n");
        }
    }
}

/// A file of several names is no excuse for what others do to the rest of a removed directory.
#[test]
fn what_others_write_beside_a_file_of_several_names_is_not_lost() {
    for (choice, single) in [("ours", None), ("theirs", Some("before\ntheirs\n"))] {
        let scene = Scene::new();
        scene.outside("mkdir r; echo first > a; ln a r/z; echo before > r/single");
        scene.inside("rm -r r");
        scene.outside("echo theirs >> r/single");
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 75, "{said}");
        assert_eq!(tree(&scene.pfs)["r/single"], "before\ntheirs\n");
        let (code, said) = scene.drain(&["--take", choice, "r"]);
        assert_eq!(code, 0, "{said}");
        let now = tree(&scene.pfs);
        assert_eq!(now.get("r/single").map(String::as_str), single);
        assert_eq!(now["a"], "first\n");
    }
}

/// Another directory has the place of the one in which it was made.
#[test]
fn a_new_directory_in_another_one_is_made_there_or_given_up() {
    let swapped = |inside: &str| {
        let scene = Scene::new();
        scene.outside("mkdir e");
        scene.inside(inside);
        scene.outside("mv e aside; mkdir e");
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 75, "{said}");
        scene
    };
    for side in ["theirs", "both"] {
        let scene = swapped("mkdir e/n; echo x > e/n/x");
        let (code, said) = scene.drain(&["--take", side, "e/n"]);
        assert_eq!(code, 75, "{side}: {said}");
        assert!(
            said.contains("or take theirs when nothing is in it"),
            "{said}"
        );
        scene.outside("rmdir e; mv aside e");
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 0, "{side}: {said}");
        assert_eq!(tree(&scene.pfs)["e/n/x"], "x\n");
    }
    let scene = swapped("mkdir e/n");
    let (code, said) = scene.drain(&["--take", "theirs", "e/n"]);
    assert_eq!(code, 0, "{said}");
    assert!(!tree(&scene.pfs).contains_key("e/n/"));
    let scene = swapped("mkdir e/n; echo x > e/n/x");
    let (code, said) = scene.drain(&["--take", "ours", "e/n"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(tree(&scene.pfs)["e/n/x"], "x\n");
    // Of a file with several names those are named that have no place.
    let scene = swapped("echo n > e/n; ln e/n e/n2; ln e/n d/n3");
    for at in ["e/n", "e/n2"] {
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 75, "{said}");
        let of = |path: &str| {
            said.lines()
                .find(|line| line.contains(&format!(" {path}: ")))
                .unwrap()
        };
        assert!(of(at).contains("another directory has the place"), "{said}");
        assert!(
            of("d/n3").contains(&format!("{at} is another name of it")),
            "{said}"
        );
        scene.drain(&["--take", "ours", at]);
    }
    let now = tree(&scene.pfs);
    assert_eq!(
        (&*now["e/n"], &*now["e/n2"], &*now["d/n3"]),
        ("n\n", "n\n", "n\n")
    );
}

/// Programs set times as they like, to later ones too: Mercurial does.
#[test]
fn a_file_of_several_names_with_a_time_that_is_yet_to_come_is_removed_as_any_other() {
    for make in ["r/g", "z", "r/g; ln r/f r/h"] {
        for inside in ["rm -r r", "mv r s; rm s/f; rm -r s"] {
            let scene = Scene::new();
            scene.outside(&format!(
                "mkdir r; echo f > r/f; ln r/f {make}; touch -d '1 hour' r/f"
            ));
            scene.inside(inside);
            let (code, said) = scene.drain(&[]);
            assert_eq!(code, 0, "{make}, {inside}: {said}");
            let mut left: Vec<_> = tree(&scene.pfs).into_keys().collect();
            left.retain(|path| path.starts_with(['r', 's', 'z']));
            let expected: &[&str] = if make == "z" { &["z"] } else { &[] };
            assert_eq!(left, expected, "{make}, {inside}: {said}");
        }
    }
}

/// What the refusal advises works.
#[test]
fn a_directory_in_the_place_of_one_that_others_have_changed_is_settled_as_the_refusal_says() {
    let changed = || {
        let scene = Scene::new();
        scene.outside("mkdir g; echo f > g/f");
        scene.inside("rm -r g; mkdir g; echo ours > g/x");
        scene.outside("echo theirs > g/n");
        let (code, said) = scene.drain(&["--take", "theirs", "g"]);
        assert_eq!(code, 75, "{said}");
        assert!(said.contains("in the place of theirs: take ours"), "{said}");
        assert_eq!(tree(&scene.pfs)["g/n"], "theirs\n");
        scene
    };
    let scene = changed();
    let (code, said) = scene.drain(&["--take", "ours", "g"]);
    assert_eq!(code, 0, "{said}");
    let now = tree(&scene.pfs);
    assert_eq!(now["g/x"], "ours\n");
    assert!(!now.contains_key("g/n") && !now.contains_key("g/f"));

    let scene = changed();
    scene.outside("mv g theirs");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 0, "{said}");
    let now = tree(&scene.pfs);
    assert_eq!([&now["g/x"], &now["theirs/n"]], ["ours\n", "theirs\n"]);

    let scene = changed();
    scene.inside("rm -r g");
    let (code, said) = scene.drain(&["--take", "theirs", "g"]);
    assert_eq!(code, 0, "{said}");
    let now = tree(&scene.pfs);
    assert_eq!([&now["g/f"], &now["g/n"]], ["f\n", "theirs\n"]);
    assert!(!now.contains_key("g/x"));
}

#[test]
fn of_a_file_with_several_names_the_one_that_others_have_taken_is_hinted() {
    let scene = Scene::new();
    scene.inside("echo ours > m; ln m a; ln m z");
    scene.outside("echo theirs > m");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("--take ours|theirs|both m"), "{said}");
    let (code, said) = scene.drain(&["--take", "ours", "m"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(tree(&scene.pfs)["m"], "ours\n");
}

/// A file that somebody reads is written in place.
#[test]
fn what_others_make_of_a_file_that_was_written_in_place_and_removed_is_not_lost() {
    for (outside, code) in [("echo theirs >> f", 75), ("true", 0)] {
        let scene = Scene::new();
        let bridge = ["up", "--buffer", scene.root()];
        scene.stage.say(&bridge).ends_with(0);
        scene.inside("exec 3< f; echo more >> f; exec 3<&-; rm f");
        let on_pfs = tree(&scene.pfs)["f"].clone();
        assert_eq!(on_pfs, "first\nmore\n", "it was not written in place");
        scene.outside(outside);
        let (ended, said) = scene.drain(&[]);
        assert_eq!(ended, code, "{outside}: {said}");
        let now = tree(&scene.pfs);
        match code {
            75 => assert_eq!(now["f"], "first\nmore\ntheirs\n"),
            _ => assert!(!now.contains_key("f"), "{now:?}"),
        }
        let end = ["down", "--no-drain", "--buffer", scene.root()];
        scene.stage.say(&end).ends_with(0);
    }
}

#[test]
fn their_side_of_a_renamed_file_leaves_it_where_others_have_changed_it() {
    let scene = Scene::new();
    scene.inside("mv d/a f");
    scene.outside("echo theirs >> d/a; rm f; echo theirs > f");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    let (code, said) = scene.drain(&["--take", "theirs", "f"]);
    assert_eq!(code, 0, "{said}");
    let now = tree(&scene.pfs);
    assert_eq!(
        (now["d/a"].as_str(), now["f"].as_str()),
        ("a\ntheirs\n", "theirs\n")
    );
}

/// What a rename replaces does not go before it is certain that the rename can follow.
#[test]
fn what_something_renamed_replaces_stays_if_others_have_taken_that_away() {
    for (inside, outside) in [
        ("mv f d/b", "mv f elsewhere"),
        ("mv f d/b", "rm f; mkdir f"),
        ("rm -r d; mv e d", "mv e elsewhere"),
    ] {
        let scene = Scene::new();
        scene.outside("mkdir e; echo e > e/e");
        scene.inside(inside);
        scene.outside(outside);
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 75, "{inside}, {outside}: {said}");
        let now = tree(&scene.pfs);
        let kept = now.get("d/b").map(String::as_str);
        assert_eq!(kept, Some("b\n"), "{inside}, {outside}");
    }
}

#[test]
fn what_was_renamed_and_removed_by_others_is_let_go() {
    for outside in ["rm d/a", "rm -r d"] {
        let scene = Scene::new();
        scene.inside("mv d/a x");
        scene.outside(outside);
        let (code, said) = scene.drain(&[]);
        assert_eq!((code, changed(&said)), (75, vec!["x"]), "{said}");
        let (code, said) = scene.drain(&["--take", "theirs", "x"]);
        assert_eq!(code, 0, "{outside}: {said}");
        assert!(!scene.pfs.join("x").exists());
    }
}

#[test]
fn a_renamed_directory_that_others_have_replaced_and_that_has_changes_is_settled_as_the_refusal_says()
 {
    for side in ["ours", "theirs", "both"] {
        let scene = Scene::new();
        scene.inside("mv d x; rm x/a");
        scene.outside("rm -r d; echo theirs > d");
        let (code, said) = scene.drain(&["--take", side, "x"]);
        assert_eq!(code, 75, "{side}: {said}");
        assert!(
            said.contains("there are changes below it"),
            "{side}: {said}"
        );
        scene.inside("mkdir x");
        let (_, said) = scene.drain(&[]);
        assert_eq!(listed(&said), ["d"], "{side}: {said}");
        let (code, said) = scene.drain(&["--take", "theirs", "d"]);
        assert_eq!(code, 0, "{side}: {said}");
        let now = tree(&scene.pfs);
        assert!(now.contains_key("x/"), "{side}: {now:?}");
        assert_eq!(now["d"], "theirs\n", "{side}");
    }
}

#[test]
fn files_that_have_exchanged_their_names_get_them_back_together() {
    let replaced = [
        ("echo theirs > new; mv new d/a", "d/a"),
        ("rm d/a; mkdir d/a; echo theirs > d/a/new", "d/a/new"),
    ];
    for (outside, theirs) in replaced {
        for path in ["d/a", "d/b"] {
            let scene = Scene::new();
            scene.inside("mv d/a x; mv d/b d/a; mv x d/b");
            scene.outside(outside);
            let (code, said) = scene.drain(&[]);
            assert_eq!(code, 75, "{said}");
            let (code, said) = scene.drain(&["--take", "theirs", path]);
            assert_eq!(code, 0, "{outside}, {path}: {said}");
            let now = tree(&scene.pfs);
            assert_eq!((&*now[theirs], &*now["d/b"]), ("theirs\n", "b\n"));
        }
    }
}

#[test]
fn what_was_renamed_does_not_go_back_to_where_it_would_be_lost() {
    for inside in [
        "mv d/b x; echo new > d/b",
        "mv d/b x; mv f d/b",
        "mv d/b x; mkdir d/b",
    ] {
        let scene = Scene::new();
        scene.inside(inside);
        scene.outside("echo theirs > new; mv new x");
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 75, "{said}");
        let (code, said) = scene.drain(&["--take", "theirs", "x"]);
        assert_eq!(code, 75, "{inside}: {said}");
        assert!(said.contains("take both, or ours"), "{said}");
        let (code, said) = scene.drain(&["--take", "both", "x"]);
        assert_eq!(code, 0, "{inside}: {said}");
        let now = tree(&scene.pfs);
        assert_eq!((&*now["x"], &*now["x.ours"]), ("theirs\n", "b\n"));
    }
}

#[test]
fn of_a_renamed_directory_that_others_have_replaced_nothing_is_lost() {
    for side in ["ours", "theirs", "both"] {
        let scene = Scene::new();
        scene.inside("mv d x; echo mine > x/new; echo more >> x/b");
        scene.outside("mv d old; echo theirs > d");
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 75, "{said}");
        let (code, said) = scene.drain(&["--take", side, "x"]);
        assert_eq!(code, 75, "{side}: {said}");
        assert!(said.contains("move that away on the PFS"), "{side}: {said}");
        assert_eq!(tree(&scene.pfs)["d"], "theirs\n");
        // As the refusal says.
        scene.outside("mv d theirs; mv old d");
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 0, "{side}: {said}");
        let now = tree(&scene.pfs);
        assert_eq!(
            (now["x/new"].as_str(), now["x/b"].as_str()),
            ("mine\n", "b\nmore\n")
        );
    }
}

#[test]
fn a_file_under_a_name_of_the_drain_is_not_taken_for_what_was_renamed() {
    let scene = Scene::new();
    scene.inside("mkdir n; mv d/a n/x; mkdir d/a");
    // As another buffer over the same directory has left it, or somebody else has made it.
    for n in 0..16 {
        let name = format!(".forebay-000000010000000100000000000010{n:02x}.moved");
        fs::write(scene.pfs.join(name), "not ours\n").unwrap();
    }
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    assert!(
        said.contains("is in the way, and nothing of this buffer"),
        "{said}"
    );
    let now = tree(&scene.pfs);
    assert_eq!(now["d/a"], "a\n");
    assert!(!now.contains_key("n/x"), "{now:?}");
}

#[test]
fn a_file_whose_directory_others_have_renamed_is_not_there_for_stat_either() {
    let scene = Scene::new();
    let program = "
import os, subprocess
open('d/new', 'w').write('four')
for _ in range(20):
    assert os.stat(os.path.abspath('d/new')).st_size == 4
outside = {k: v for k, v in os.environ.items() if k != 'LD_PRELOAD'}
subprocess.run(['mv', 'd', 'e'], check=True, env=outside)
for look in [os.stat, open]:
    try:
        look(os.path.abspath('d/new'))
        raise SystemExit(f'{look} finds it')
    except FileNotFoundError:
        pass
";
    scene.inside(&format!("python3 -c \"{program}\""));
}

#[test]
fn of_a_buffered_directory_that_others_rename_the_report_says_where_its_data_is() {
    let scene = Scene::new();
    let moved = scene.pfs.with_extension("moved");
    let [ready, go] = ["ready", "go"].map(|name| scene.stage.path(name));
    let script = format!(
        "cd '{}' && echo data > new && : > '{}' && until test -e '{}'; do sleep 0.01; done",
        scene.root(),
        ready.display(),
        go.display()
    );
    let run = ["run", "--buffer", scene.root(), "--", "sh", "-ec", &script];
    let run = start(scene.stage.forebay(&run));
    scene.stage.wait_for_file("ready");
    fs::rename(&scene.pfs, &moved).unwrap();
    fs::create_dir(&scene.pfs).unwrap();
    fs::write(&go, "").unwrap();
    let said = wait(run);
    let there = fs::read_to_string(moved.join("new"));
    let now = tree(&scene.pfs);
    fs::remove_dir_all(&moved).unwrap();
    said.ends_with(0).tells(&format!(
        "others have renamed {} while it was buffered: what was drained is in {}",
        scene.root(),
        moved.display()
    ));
    assert_eq!(there.unwrap(), "data\n");
    assert!(now.is_empty(), "{now:?}");
}

#[test]
fn a_copy_does_not_stay_where_others_have_moved_its_directory_to() {
    let scene = Scene::new();
    scene.outside("mkdir e");
    scene.inside("head -c 3000000 /dev/zero > d/a");
    let slow = ["drain", "--buffer", scene.root(), "--drain-rate", "1M"];
    let drain = start(scene.stage.forebay(&slow));
    let has_copy = |dir: &str| {
        let names = fs::read_dir(scene.pfs.join(dir)).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name());
        names.any(|name| name.as_bytes().starts_with(b".forebay-"))
    };
    scene.stage.wait_for("a copy on the PFS", || has_copy("d"));
    let pfs = fs::File::open(&scene.pfs).unwrap();
    forebay_sys::exchange(pfs.as_fd(), b"d", b"e").unwrap();
    assert!(has_copy("e"));
    // Ours is where the drain found a place for it, or still in the buffer.
    let said = wait(drain);
    assert!([0, 75].contains(&said.code), "{said:?}");
    assert!(!has_copy("d") && !has_copy("e"), "{said:?}");
}

#[test]
fn a_file_whose_directory_others_rename_and_bring_back_is_no_conflict() {
    let scene = Scene::new();
    scene.inside("echo more >> d/a");
    scene.outside("mv d e");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    scene.outside("mv e d");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(tree(&scene.pfs)["d/a"], "a\nmore\n");
}

#[test]
fn what_was_in_a_renamed_directory_that_others_removed_is_no_damage_when_a_program_replaces_that() {
    for (rename, dir) in [("mv e k", "k"), ("mkdir b; mv e b/k", "b/k")] {
        let scene = Scene::new();
        scene.outside("mkdir e; echo e > e/f");
        scene.inside(&format!("{rename}; echo data > {dir}/x; mkdir {dir}/dir"));
        scene.outside("rm -r e; echo theirs > e");
        scene.inside(&format!("echo ours > n; mv n {dir}"));
        let storage = scene.stage.path("storage").display().to_string();
        let fsck = |more: &[&str]| {
            let all = [&["fsck", "--storage", &storage][..], more].concat();
            scene.stage.say(&all).ends_with(0)
        };
        fsck(&[]).prints("nothing wrong");
        let instance = fs::read_dir(&storage).unwrap().next().unwrap().unwrap();
        fs::remove_dir_all(instance.path().join("meta")).unwrap();
        fsck(&["--rebuild"]);
        fsck(&[]).prints("nothing wrong");
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 75, "{said}");
        // Its label tells where it was.
        assert!(said.contains("e/x: "), "{said}");
    }
}

#[test]
fn of_a_file_with_several_names_the_one_without_a_directory_is_named_and_settled() {
    for (dir, side) in [("d", "theirs"), ("d", "both"), ("a", "theirs")] {
        let scene = Scene::new();
        scene.outside("mkdir -p a; echo b > c");
        scene.inside(&format!("ln c {dir}/b2; echo more >> c"));
        scene.outside(&format!("mv {dir} gone"));
        let name = format!("{dir}/b2");
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, 75, "{said}");
        let blocked = format!("c: {name} is another name of it, and has no directory");
        assert!(said.contains(&blocked), "{said}");
        assert!(
            said.contains(&format!("{name}: its directory is not on the PFS any more")),
            "{said}"
        );
        let (code, said) = scene.drain(&["--take", side, &name]);
        assert_eq!(code, 0, "{said}");
        let now = tree(&scene.pfs);
        assert_eq!(now["c"], "b\nmore\n");
        assert_eq!(now.contains_key("b2.ours"), side == "both", "{now:?}");
    }
}

#[test]
fn two_names_of_a_file_of_which_one_was_not_drained_are_still_one_file() {
    let scenes = [
        // The one is refused when the copy is given its names, the other has something in its way before.
        ("mkdir q; echo precious > b", "ln b q/n", "mv q gone", "q/n"),
        (
            "mkdir d; echo precious > b; echo x > x",
            "rm x; mv d x; ln b d",
            "echo theirs > x",
            "d",
        ),
    ];
    for (before, inside, outside, name) in scenes {
        let scene = Scene::new();
        scene.outside("rm -r d");
        scene.outside(before);
        scene.inside(inside);
        scene.outside(outside);
        let (code, said) = scene.drain(&["--keep"]);
        assert_eq!(code, 75, "{said}");
        let same = format!("! cp b {name} 2> said; grep -q 'are the same file' said; rm said");
        if name == "q/n" {
            scene.outside("mv gone q");
        }
        scene.inside(&same);
        let (code, said) = scene.drain(&[]);
        assert_eq!(code, if name == "q/n" { 0 } else { 75 }, "{said}");
        let now = tree(&scene.pfs);
        assert_eq!(now["b"], "precious\n", "{now:?}");
        assert_eq!(now.contains_key("q/n"), name == "q/n", "{now:?}");
    }
}

#[test]
fn two_names_of_a_file_are_still_one_file_when_a_drain_was_killed() {
    crate::common::need!("strace");
    for calls in ["renameat,renameat2,linkat", "setxattr,fsetxattr"] {
        let is_killed = |at: &u32| {
            let scene = Scene::new();
            scene.outside("echo precious > b");
            let up = ["up", "--buffer", scene.root()];
            scene.stage.say(&up).ends_with(0);
            scene.inside("ln b d/n");
            if !scene.is_killed_in_drain(calls, *at) {
                let down = ["down", "--buffer", scene.root()];
                scene.stage.say(&down).ends_with(0);
                return false;
            }
            // The number is that of what is on the PFS: a new file there can get any other one.
            let number = fs::metadata(scene.pfs.join("b")).unwrap().ino();
            scene.inside(&format!(
                "test \"$(stat -c %i b d/n | sort -u)\" = {number}"
            ));
            scene.inside("! cp b d/n 2> said; grep -q 'are the same file' said; rm said");
            let (code, said) = scene.drain(&[]);
            assert_eq!(code, 0, "{calls} {at}: {said}");
            let now = tree(&scene.pfs);
            assert_eq!((&*now["b"], &*now["d/n"]), ("precious\n", "precious\n"));
            true
        };
        assert!((1..).take_while(is_killed).count() > 0, "{calls}");
    }
}

/// Where others may rename, a directory is made in another one.
#[test]
fn nothing_is_left_of_how_a_directory_was_made_when_a_drain_was_killed() {
    crate::common::need!("strace");
    let mut had_left = 0;
    for calls in ["mkdirat", "renameat2", "unlinkat", "fsetxattr"] {
        let mut is_killed = |at: &u32| {
            let scene = Scene::new();
            scene.outside("mkdir project; chmod 2777 project");
            let up = ["up", "--buffer", scene.root()];
            scene.stage.say(&up).ends_with(0);
            scene.inside("mkdir project/a project/b; echo x > project/b/x");
            let reserved = || {
                let now = tree(&scene.pfs.join("project")).into_keys();
                now.filter(|path| path.contains(".forebay-")).count()
            };
            let is_killed = scene.is_killed_in_drain(calls, *at);
            had_left += reserved();
            let down = ["down", "--buffer", scene.root()];
            match is_killed {
                true => assert_eq!(scene.drain(&[]).0, 0, "{calls} {at}"),
                false => drop(scene.stage.say(&down).ends_with(0)),
            }
            assert_eq!(reserved(), 0, "{calls} {at}");
            let now = tree(&scene.pfs);
            assert!(now.contains_key("project/a/"), "{calls} {at}: {now:?}");
            assert_eq!(now["project/b/x"], "x\n", "{calls} {at}");
            is_killed
        };
        assert!((1..).take_while(&mut is_killed).count() > 0, "{calls}");
    }
    assert!(had_left > 0, "a kill has left something");
}

#[test]
fn what_others_move_before_a_drain_has_come_to_its_end_stays_closed_and_is_made_again() {
    crate::common::need!("strace");
    let is_killed = |at: &u32| {
        let scene = Scene::new();
        scene.outside("mkdir group; chmod 2777 group");
        let up = ["up", "--buffer", scene.root()];
        scene.stage.say(&up).ends_with(0);
        scene.inside("umask 022; mkdir group/new group/new/in; chmod 2775 group/new; echo x > group/new/in/f");
        let is_killed = scene.is_killed_in_drain("fremovexattr", *at);
        if !is_killed {
            let down = ["down", "--buffer", scene.root()];
            scene.stage.say(&down).ends_with(0);
            return false;
        }
        scene.outside("mv group/new group/moved");
        // By that what is in it would count as theirs when it is back.
        let (code, said) = scene.drain(&["--take", "ours", "group/new"]);
        let is_refused = said.contains("not taken: group/new: others have moved or removed");
        assert_eq!((code, is_refused), (1, true), "{said}");
        let now = tree(&scene.pfs.join("group"));
        let names: Vec<&str> = now.keys().map(String::as_str).collect();
        // What was complete is not made again.
        let expected = ["moved/", "moved/in/", "moved/in/f", "new/"];
        assert_eq!(names[..4], expected, "{at}");
        assert_eq!(now["moved/in/f"], "x\n", "{at}");
        let mode = |path: &str| fs::metadata(scene.pfs.join(path)).unwrap().mode() & 0o777;
        assert_eq!((mode("group/moved"), mode("group/new")), (0o700, 0o775));
        true
    };
    assert!((1..).take_while(is_killed).count() > 0);
}

#[test]
fn a_kept_copy_whose_directory_others_remove_is_not_left() {
    let scene = Scene::new();
    let up = ["up", "--buffer", scene.root()];
    scene.stage.say(&up).ends_with(0);
    scene.inside("echo x > d/c; mkdir d/sub");
    assert_eq!(scene.drain(&["--keep"]).0, 0);
    scene.outside("rm -r d");
    let (code, said) = scene.drain(&["--keep"]);
    assert_eq!(code, 0, "{said}");
    let down = ["down", "--no-drain", "--buffer", scene.root()];
    scene.stage.say(&down).ends_with(0);
}

#[test]
fn what_has_no_place_is_settled_also_below_a_new_directory_of_that_name() {
    for side in ["both", "theirs"] {
        let scene = Scene::new();
        scene.outside("mkdir -p c/b");
        scene.inside("echo data > c/b/n");
        scene.outside("mv c away; mkdir c");
        let (code, said) = scene.drain(&["--keep"]);
        assert_eq!(
            (code, said.contains("c/b/n: its directory")),
            (75, true),
            "{said}"
        );
        let (code, said) = scene.drain(&["--keep", "--take", side, "c/b/n"]);
        assert_eq!(code, 0, "{said}");
        let now = tree(&scene.pfs);
        assert_eq!(
            now.get("c/n.ours").is_some_and(|text| text == "data\n"),
            side == "both"
        );
    }
}

#[test]
fn what_has_no_place_is_named_with_what_is_in_it_and_is_no_damage() {
    let scene = Scene::new();
    scene.outside("mkdir e k; echo k > k/f");
    scene.inside("echo data > e/x; mkdir e/dir; echo y > e/dir/y; mv k e/k; mkdir e/k/n");
    scene.outside("rm -r e; echo theirs > e");
    // A program replaces their file.
    scene.inside("echo ours > e.new; mv e.new e");
    let storage = scene.stage.path("storage").display().to_string();
    let fsck = |more: &[&str]| {
        let all = [&["fsck", "--storage", &storage][..], more].concat();
        scene.stage.say(&all).ends_with(0)
    };
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 75, "{said}");
    fsck(&[]).prints("nothing wrong");
    let instance = fs::read_dir(&storage).unwrap().next().unwrap().unwrap();
    fs::remove_dir_all(instance.path().join("meta")).unwrap();
    fsck(&["--rebuild"]);
    fsck(&[]).prints("nothing wrong");
    for side in ["theirs", "both"] {
        let (code, said) = scene.drain(&["--take", side, "e/k"]);
        let refusal = "not taken: e/k: e/k/n, in it, has no place on the PFS either";
        assert_eq!((code, said.contains(refusal)), (75, true), "{said}");
    }
    let (code, said) = scene.drain(&["--take", "theirs", "e/k/n"]);
    assert_eq!((code, said.contains("not taken")), (75, false), "{said}");
    let (code, said) = scene.drain(&["--take", "both", "e/k", "e/x", "e/dir/y"]);
    assert_eq!((code, said.contains("not taken")), (75, false), "{said}");
    let (code, said) = scene.drain(&["--take", "theirs", "e/dir"]);
    assert_eq!((code, said.contains("not taken")), (75, false), "{said}");
    let (code, said) = scene.drain(&["--take", "ours", "e"]);
    assert_eq!(code, 0, "{said}");
    let now = tree(&scene.pfs);
    assert_eq!(
        (&*now["e"], &*now["k.ours/f"]),
        ("ours\n", "k\n"),
        "{now:?}"
    );
    assert!(holds(&now, "data\n") && holds(&now, "y\n"), "{now:?}");
}
