//! What the operations promise, on a world in memory.

mod world;

use forebay_core::facts::{Attr, Cred, Label, LabelParent, Settings, Stop};
use forebay_core::identity::Identity;
use forebay_core::label::{label_at, void_label};
use forebay_core::ops::{Answer, GrantTarget, Op, Path, Start};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Dirs, Kind, ObjectId, ObjectName, PathRecord, Token};
use forebay_core::repair::{self, Problem, Survivor, rebuild};
use forebay_core::table::Change;
use forebay_core::walk::Walk;
use std::collections::BTreeMap;
use world::{Lower, World, p, path};

fn create(s: &str) -> Op {
    Op::Open {
        path: path(s),
        flags: libc::O_CREAT | libc::O_WRONLY,
        mode: 0o644,
    }
}
fn create_new(s: &str) -> Op {
    Op::Open {
        path: path(s),
        flags: libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY,
        mode: 0o644,
    }
}
fn open(s: &str, flags: i32) -> Op {
    Op::Open {
        path: path(s),
        flags,
        mode: 0,
    }
}
fn mkdir(s: &str) -> Op {
    Op::Mkdir {
        path: path(s),
        mode: 0o755,
    }
}
fn unlink(s: &str) -> Op {
    Op::Unlink {
        path: path(s),
        dir: false,
    }
}
fn rmdir(s: &str) -> Op {
    Op::Unlink {
        path: path(s),
        dir: true,
    }
}
fn rename(a: &str, b: &str) -> Op {
    rename2(a, b, 0)
}
fn rename2(a: &str, b: &str, flags: u32) -> Op {
    Op::Rename {
        old: path(a),
        new: path(b),
        flags,
    }
}
fn symlink(s: &str, text: &str) -> Op {
    Op::Symlink {
        path: path(s),
        text: text.into(),
    }
}
fn stat(s: &str) -> Op {
    Op::Stat {
        path: path(s),
        follow: true,
    }
}
fn fails(r: Result<Answer, Stop>, e: i32) {
    assert_eq!(r.unwrap_err(), Stop::Errno(e));
}

#[test]
fn an_exclusive_create_has_one_winner_and_a_repeated_request_is_its_own() {
    let mut w = World::default();
    w.run(create_new("a")).unwrap();
    w.retry = true;
    w.run(create_new("a")).unwrap();
    w.retry = false;
    fails(w.run(create_new("a")), libc::EEXIST);
}

#[test]
fn what_others_did_since_is_not_undone_by_a_repeated_request() {
    let mut w = World::default();
    // Carries the last request out a second time, after somebody else has done something.
    let again = |w: &mut World, op: Op, others: &[Op]| {
        let own = w.last_seq;
        for other in others {
            w.run(other.clone()).unwrap();
        }
        (w.last_seq, w.retry) = (own, true);
        let answer = w.run(op);
        (w.last_seq, w.retry) = (own + others.len() as u32, false);
        answer
    };
    w.run(mkdir("d")).unwrap();
    again(&mut w, mkdir("d"), &[rmdir("d")]).unwrap();
    fails(w.run(stat("d")), libc::ENOENT);
    w.run(create("a")).unwrap();
    fails(again(&mut w, create("a"), &[unlink("a")]), libc::ESTALE);
    w.run(mkdir("d")).unwrap();
    w.run(create("d/a")).unwrap();
    let others = [unlink("d/a"), rmdir("d"), create("d")];
    fails(again(&mut w, create("d/a"), &others), libc::ESTALE);
    fails(w.run(stat("a")), libc::ENOENT);
    w.run(create("a")).unwrap();
    w.run(unlink("a")).unwrap();
    again(&mut w, unlink("a"), &[create("a")]).unwrap();
    w.run(stat("a")).unwrap();
    w.run(rename("a", "b")).unwrap();
    again(&mut w, rename("a", "b"), &[rename("b", "c"), create("a")]).unwrap();
    w.run(stat("a")).unwrap();
    fails(w.run(stat("b")), libc::ENOENT);
}

#[test]
fn a_repeated_unlink_or_rename_succeeds_and_a_new_one_does_not() {
    let mut w = World::default();
    w.run(create("a")).unwrap();
    w.run(unlink("a")).unwrap();
    w.retry = true;
    w.run(unlink("a")).unwrap();
    w.retry = false;
    fails(w.run(unlink("a")), libc::ENOENT);
    w.run(create("b")).unwrap();
    w.run(rename("b", "c")).unwrap();
    w.retry = true;
    w.run(rename("b", "c")).unwrap();
    w.retry = false;
    fails(w.run(rename("b", "c")), libc::ENOENT);
}

#[test]
fn a_pfs_file_is_read_in_place_and_staged_when_written() {
    let mut w = World::with_lower(&[("f", Lower::File(10)), ("big", Lower::File(2000))]);
    let target = |a: Answer| match a {
        Answer::Grant { target, .. } => target,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        target(w.run(open("f", libc::O_RDONLY)).unwrap()),
        w.in_place("f")
    );
    assert_eq!(
        target(w.run(open("big", libc::O_RDWR)).unwrap()),
        w.in_place("big")
    );
    assert!(w.table.is_empty());
    let granted = target(w.run(open("f", libc::O_RDWR)).unwrap());
    assert_eq!(granted, GrantTarget::Object(w.table[&p("f")].object));
    // What was staged and is removed must not let the PFS file come back.
    w.run(unlink("f")).unwrap();
    fails(w.run(stat("f")), libc::ENOENT);
    assert_eq!(w.table[&p("f")].kind, Kind::Whiteout);
    assert_eq!(w.table[&p("f")].hides, Some(p("f")));
}

#[test]
fn a_create_with_a_slash_at_the_end_is_refused_as_on_linux() {
    let mut w = World::with_lower(&[("d", Lower::Dir), ("f", Lower::File(1))]);
    w.run(symlink("dangling", "nowhere")).unwrap();
    for path in ["d/", "f/", "new/", "dangling/"] {
        fails(w.run(create_new(path)), libc::EISDIR);
    }
    fails(w.run(create_new("d/.")), libc::EEXIST);
}

#[test]
fn a_pfs_file_with_two_names_is_written_in_place() {
    let mut w = World::with_lower(&[("f", Lower::File(10))]);
    w.linked.push(p("f"));
    for flags in [libc::O_RDWR, libc::O_WRONLY | libc::O_TRUNC] {
        let granted = w.run(open("f", flags)).unwrap();
        let Answer::Grant { target, .. } = granted else {
            panic!("{granted:?}");
        };
        assert_eq!(target, w.in_place("f"));
    }
    // A third name in the buffer would have to share the data with both.
    let link = Op::Link {
        old: path("f"),
        new: path("g"),
        follow: false,
    };
    fails(w.run(link), libc::EXDEV);
    assert!(w.table.is_empty());
}

#[test]
fn nobody_makes_a_program_for_a_group_that_he_is_not_in() {
    let mut w = World::default();
    let op = Op::Mkdir {
        path: path("d"),
        mode: 0o777,
    };
    let owner = Cred {
        uid: 0,
        gid: 50,
        groups: vec![],
    };
    w.run_as(&owner, op).unwrap();
    let dir = w.table[&p("d")].object;
    // As `chmod` does; `mkdir` gives no such bit.
    w.objects.get_mut().get_mut(&dir).unwrap().mode |= libc::S_ISGID;
    let made = |w: &mut World, name: &str, mode, groups| {
        let cred = Cred {
            uid: 7,
            gid: 70,
            groups,
        };
        let op = Op::Open {
            path: path(name),
            flags: libc::O_CREAT | libc::O_WRONLY,
            mode,
        };
        w.run_as(&cred, op).unwrap();
        let object = w.table[&p(name)].object;
        let made = &w.objects.borrow()[&object];
        assert_eq!(made.gid, 50);
        made.mode & 0o7777
    };
    assert_eq!(made(&mut w, "d/a", 0o2755, vec![]), 0o755);
    assert_eq!(made(&mut w, "d/b", 0o2755, vec![50]), 0o2755);
    // Without the right to run it is a mark for locks.
    assert_eq!(made(&mut w, "d/c", 0o2745, vec![]), 0o2745);
}

#[test]
fn a_directory_made_over_a_removed_one_shows_nothing_of_it() {
    let mut w = World::with_lower(&[("d", Lower::Dir), ("d/x", Lower::File(1))]);
    fails(w.run(rmdir("d")), libc::ENOTEMPTY);
    w.run(unlink("d/x")).unwrap();
    w.run(rmdir("d")).unwrap();
    w.run(mkdir("d")).unwrap();
    assert_eq!(w.tree(), BTreeMap::from([(p("d"), libc::DT_DIR)]));
    assert_eq!(w.table[&p("d")].hides, Some(p("d")));
}

#[test]
fn a_renamed_pfs_directory_shows_its_contents_under_the_new_name() {
    let mut w = World::with_lower(&[
        ("d", Lower::Dir),
        ("d/x", Lower::File(1)),
        ("d/sub", Lower::Dir),
        ("d/sub/y", Lower::File(1)),
    ]);
    w.run(create("d/new")).unwrap();
    w.run(unlink("d/x")).unwrap();
    w.run(rename("d", "e")).unwrap();
    let names: Vec<_> = w.tree().into_keys().collect();
    assert_eq!(names, [p("e"), p("e/new"), p("e/sub"), p("e/sub/y")]);
    // A descriptor of the PFS directory still leads to the right place.
    let start = w.held("d/sub");
    let name = w.run(Op::NameOf { start });
    assert_eq!(name, Ok(Answer::Bytes(b"/pfs/run/e/sub".to_vec())));
    // And back again.
    w.run(rename("e", "d")).unwrap();
    let names: Vec<_> = w.tree().into_keys().collect();
    assert_eq!(names, [p("d"), p("d/new"), p("d/sub"), p("d/sub/y")]);
}

#[test]
fn what_is_named_relative_to_a_directory_is_in_that_one_and_in_no_other_at_its_path() {
    let mut w = World::with_lower(&[
        ("d", Lower::Dir),
        ("d/x", Lower::File(1)),
        ("e", Lower::Dir),
        ("e/x", Lower::File(2)),
    ]);
    let (in_d, in_e) = (w.held("d"), w.held("e"));
    let Start::Lower(_, other) = in_e else {
        panic!("a directory of the PFS");
    };
    let Start::Lower(at, _) = &in_d else {
        panic!("a directory of the PFS");
    };
    let below = |start: &Start| Path {
        start: start.clone(),
        bytes: b"x".to_vec(),
    };
    let swapped = Start::Lower(at.clone(), other);
    let stat = |start: &Start| Op::Stat {
        path: below(start),
        follow: true,
    };
    let unlink = |start: &Start| Op::Unlink {
        path: below(start),
        dir: false,
    };
    w.run(stat(&in_d)).unwrap();
    for op in [
        stat(&swapped),
        unlink(&swapped),
        Op::NameOf {
            start: swapped.clone(),
        },
    ] {
        fails(w.run(op), forebay_types::START_TAKEN);
    }
    let over = Op::Rename {
        old: below(&in_d),
        new: below(&swapped),
        flags: 0,
    };
    fails(w.run(over), forebay_types::START_TAKEN);
    let Start::Lower(_, itself) = in_d else {
        panic!("a directory of the PFS");
    };
    // It cannot be at both paths, although each was right when it was looked at.
    let between = Op::Rename {
        old: below(&in_d),
        new: below(&Start::Lower(p("e"), itself)),
        flags: 0,
    };
    fails(w.run(between), forebay_types::START_TAKEN);
    assert!(w.table.is_empty());
    w.run(unlink(&in_d)).unwrap();
}

/// Each level is looked at once.
#[test]
fn a_deep_way_that_is_elsewhere_at_each_level_is_walked_in_no_time() {
    let deep = |levels: usize| vec!["m"; levels].join("/");
    let names: Vec<_> = (1..=60).map(deep).collect();
    let lower: Vec<_> = names.iter().map(|name| (&**name, Lower::Dir)).collect();
    let mut w = World::default();
    for name in &names {
        w.run(mkdir(name)).unwrap();
    }
    // They were made in other directories than these.
    let other = Identity::of_dir(&forebay_core::facts::Attr {
        ino: 9999,
        mode: libc::S_IFDIR,
        ..Default::default()
    });
    for record in w.table.values_mut() {
        record.dirs = Dirs::within(Some(other));
    }
    w.lower = World::with_lower(&lower).lower;
    w.have_all_open = true;
    for cred in [
        Cred::default(),
        Cred {
            uid: 7,
            ..Cred::default()
        },
    ] {
        let start = w.held(names.last().unwrap());
        let named = w.run_as(&cred, Op::NameOf { start });
        assert!(named.is_ok(), "{named:?}");
    }
}

/// A message only claims that a descriptor leads there.
#[test]
fn who_has_a_directory_open_is_not_told_what_is_where_no_path_leads_him() {
    let mut w = World::with_lower(&[
        ("d", Lower::Dir),
        ("private", Lower::Dir),
        ("private/d", Lower::Dir),
        ("private/f", Lower::File(1)),
        ("private/gone", Lower::Dir),
    ]);
    w.run(Op::Unlink {
        path: path("private/gone"),
        dir: true,
    })
    .unwrap();
    w.locked.push(p("private"));
    let Start::Lower(_, open) = w.held("d") else {
        panic!("a directory of the PFS");
    };
    let other = Cred {
        uid: 7,
        ..Cred::default()
    };
    for (has_open, code) in [(true, forebay_types::START_TAKEN), (false, libc::EACCES)] {
        w.have_all_open = has_open;
        for at in [
            "private/d",
            "private/f",
            "private/none",
            "private/f/x",
            "private/gone",
        ] {
            let start = Start::Lower(p(at), open);
            let told = w.run_as(&other, Op::NameOf { start });
            assert_eq!(told, Err(Stop::Errno(code)), "{at}");
        }
    }
    let start = w.held("private/d");
    w.have_all_open = true;
    assert!(w.run_as(&other, Op::NameOf { start }).is_ok());
}

#[test]
fn where_directories_get_other_numbers_only_what_other_users_do_is_bound_to_them() {
    for renumbers in [false, true] {
        let mut w = World::with_lower(&[("d", Lower::Dir), ("d/x", Lower::File(1))]);
        w.renumbers = renumbers;
        w.run(mkdir("made")).unwrap();
        let made = w.table.get_mut(&p("made")).unwrap();
        // A drain has made it, as this.
        made.replaces = Some(Identity::of_dir(&forebay_core::facts::Attr {
            ino: 99,
            mode: libc::S_IFDIR,
            ..Default::default()
        }));
        made.drained = Some(Default::default());
        for path in ["d/new", "made/new"] {
            w.run(create(path)).unwrap();
            assert_eq!(w.table[&p(path)].dirs.is_some(), !renumbers, "{path}");
        }
    }
    let settings = |bridge_uid| Settings {
        root: b"/pfs/run".to_vec(),
        stage_limit_bytes: 1000,
        stamps_mapped_writes: true,
        bridge_uid,
        removed_at_once: 256,
        devices: Default::default(),
        keeps_numbers: false,
        protections: Default::default(),
    };
    assert!(settings(0).knows_dirs_of(7) && settings(0).knows_dirs());
    assert!(!settings(7).knows_dirs_of(7) && !settings(7).knows_dirs());
}

#[test]
fn an_exchange_swaps_a_pfs_directory_with_a_new_file() {
    let mut w = World::with_lower(&[("d", Lower::Dir), ("d/x", Lower::File(1))]);
    w.run(create("f")).unwrap();
    w.run(rename2("d", "f", libc::RENAME_EXCHANGE)).unwrap();
    let tree = w.tree();
    assert_eq!(tree[&p("d")], libc::DT_REG);
    assert_eq!(tree[&p("f")], libc::DT_DIR);
    assert!(tree.contains_key(&p("f/x")));
}

#[test]
fn links_are_followed_and_paths_that_leave_are_sent_back() {
    let mut w = World::with_lower(&[("l", Lower::Link(b"d".to_vec())), ("d", Lower::Dir)]);
    w.run(create("l/x")).unwrap();
    w.run(stat("d/x")).unwrap();
    w.run(symlink("out", "/etc")).unwrap();
    assert_eq!(
        w.run(stat("out/passwd")),
        Err(Stop::Redirect(b"/etc/passwd".to_vec()))
    );
    w.run(symlink("in", "/pfs/run/d")).unwrap();
    w.run(stat("in/x")).unwrap();
    assert_eq!(
        w.run(stat("d/../../other")),
        Err(Stop::Redirect(b"/pfs/other".to_vec()))
    );
    // Some calls would take the directory above by its own name, and none takes `..`.
    for (path, end) in [("d/../..", "/pfs/run/.."), ("..//", "/pfs/run/..//")] {
        assert_eq!(
            w.run(stat(path)),
            Err(Stop::Redirect(end.as_bytes().to_vec())),
            "{path}"
        );
    }
    w.run(symlink("far", &format!("/{}", "x".repeat(4000))))
        .unwrap();
    fails(
        w.run(stat(&format!("far/{}", "y".repeat(100)))),
        libc::ENAMETOOLONG,
    );
    w.run(symlink("loop", "loop")).unwrap();
    fails(w.run(stat("loop")), libc::ELOOP);
    fails(w.run(rename("d/x", "out/x")), libc::EXDEV);
    // A dangling link: creating through it makes its target.
    w.run(symlink("dangling", "d/made")).unwrap();
    w.run(create("dangling")).unwrap();
    w.run(stat("d/made")).unwrap();
    fails(w.run(create_new("dangling")), libc::EEXIST);
}

#[test]
fn slashes_and_dots_at_the_end_mean_what_linux_says() {
    let mut w = World::default();
    w.run(create("f")).unwrap();
    w.run(mkdir("d/")).unwrap();
    fails(w.run(stat("f/")), libc::ENOTDIR);
    fails(w.run(create("new/")), libc::EISDIR);
    fails(w.run(rmdir("d/.")), libc::EINVAL);
    fails(w.run(rmdir("d/..")), libc::ENOTEMPTY);
    fails(w.run(unlink("f/")), libc::ENOTDIR);
    fails(w.run(symlink("s/", "x")), libc::ENOENT);
    fails(w.run(mkdir("d/.")), libc::EEXIST);
    fails(w.run(create_new("d/..//")), libc::EEXIST);
    fails(w.run(rename("d/.", "e")), libc::EBUSY);
    fails(w.run(stat("f/x")), libc::ENOTDIR);
    fails(w.run(mkdir(&"n".repeat(256))), libc::ENAMETOOLONG);
    w.run(rename("d/", "e/")).unwrap();
}

#[test]
fn reserved_names_are_made_by_nobody() {
    let mut w = World::default();
    w.run(create("f")).unwrap();
    w.run(mkdir("d")).unwrap();
    for name in [".forebay-lock", "d/.forebay-x"] {
        fails(w.run(create(name)), libc::EPERM);
        fails(w.run(mkdir(name)), libc::EPERM);
        fails(w.run(symlink(name, "text")), libc::EPERM);
        fails(w.run(rename("f", name)), libc::EPERM);
        fails(w.run(rename("d", ".forebay-y")), libc::EPERM);
        fails(w.run(stat(name)), libc::ENOENT);
    }
}

#[test]
fn only_those_who_may_change_a_directory_change_it() {
    let mut w = World::default();
    let user = Cred {
        uid: 5,
        gid: 5,
        groups: vec![],
    };
    w.run(mkdir("d")).unwrap();
    fails(w.run_as(&user, create("d/x")), libc::EACCES);
    w.run(Op::Mkdir {
        path: path("sticky"),
        mode: 0o1777,
    })
    .unwrap();
    w.run(create("sticky/roots")).unwrap();
    w.run_as(&user, create("sticky/own")).unwrap();
    fails(w.run_as(&user, unlink("sticky/roots")), libc::EPERM);
    w.run_as(&user, unlink("sticky/own")).unwrap();
    fails(
        w.run_as(&user, open("sticky/roots", libc::O_WRONLY)),
        libc::EACCES,
    );
    w.run_as(&user, open("sticky/roots", libc::O_RDONLY))
        .unwrap();
}

/// A plain tree: what the namespace must look like from outside.
#[derive(Clone, Default)]
struct Model(BTreeMap<TreePath, u8>);

impl Model {
    fn is_dir(&self, at: &TreePath) -> bool {
        at.is_root() || self.0.get(at) == Some(&libc::DT_DIR)
    }
    fn parent_ok(&self, at: &TreePath) -> bool {
        self.is_dir(&at.parent())
    }
    fn is_empty(&self, dir: &TreePath) -> bool {
        !self.0.keys().any(|k| k != dir && k.is_within(dir))
    }
    fn take(&mut self, from: &TreePath) -> Vec<(TreePath, u8)> {
        let keys: Vec<_> = self
            .0
            .keys()
            .filter(|k| k.is_within(from))
            .cloned()
            .collect();
        keys.into_iter()
            .map(|k| {
                let v = self.0.remove(&k).unwrap();
                (k, v)
            })
            .collect()
    }
    fn put(&mut self, taken: Vec<(TreePath, u8)>, from: &TreePath, to: &TreePath) {
        for (k, v) in taken {
            self.0.insert(k.rebase(from, to).unwrap(), v);
        }
    }
    /// Applies the operation; says whether it succeeds.
    fn apply(&mut self, op: &(u32, TreePath, TreePath)) -> bool {
        let (what, a, b) = op;
        let exists = |m: &Model, x: &TreePath| m.0.contains_key(x);
        match what {
            0 => {
                let ok = self.parent_ok(a) && !exists(self, a);
                if ok {
                    self.0.insert(a.clone(), libc::DT_REG);
                }
                ok
            }
            1 => {
                let ok = self.parent_ok(a) && !exists(self, a);
                if ok {
                    self.0.insert(a.clone(), libc::DT_DIR);
                }
                ok
            }
            2 => {
                let ok = exists(self, a) && !self.is_dir(a);
                if ok {
                    self.0.remove(a);
                }
                ok
            }
            3 => {
                let ok = exists(self, a) && self.is_dir(a) && self.is_empty(a);
                if ok {
                    self.0.remove(a);
                }
                ok
            }
            4 => {
                if !exists(self, a) || !self.parent_ok(b) {
                    return false;
                }
                if a == b {
                    return true;
                }
                if b.is_within(a) || a.is_within(b) {
                    return false;
                }
                if exists(self, b)
                    && (self.is_dir(a) != self.is_dir(b) || self.is_dir(b) && !self.is_empty(b))
                {
                    return false;
                }
                self.0.remove(b);
                let t = self.take(a);
                self.put(t, a, b);
                true
            }
            5 => {
                if !exists(self, a) || !exists(self, b) {
                    return false;
                }
                if a == b {
                    return true;
                }
                if b.is_within(a) || a.is_within(b) {
                    return false;
                }
                let (ta, tb) = (self.take(a), self.take(b));
                self.put(ta, a, b);
                self.put(tb, b, a);
                true
            }
            _ => exists(self, a) && !self.is_dir(a),
        }
    }
}

#[test]
fn random_operations_over_a_pfs_tree_look_like_a_plain_tree() {
    let names = ["a", "b", "c"];
    for seed in 0..150u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let mut rnd = |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % n
        };
        let mut w = World::default();
        let mut model = Model::default();
        for _ in 0..12 {
            let mut at = TreePath::root();
            for _ in 0..=rnd(3) {
                let next = at.join(names[rnd(3)].as_bytes());
                if w.lower.contains_key(&next) && w.lower[&next] != Lower::Dir {
                    break;
                }
                w.lower.entry(next.clone()).or_insert(Lower::Dir);
                at = next;
            }
            let leaf = at.join(names[rnd(3)].as_bytes());
            w.lower.entry(leaf).or_insert(Lower::File(1));
        }
        for (k, v) in &w.lower {
            let t = if *v == Lower::Dir {
                libc::DT_DIR
            } else {
                libc::DT_REG
            };
            model.0.insert(k.clone(), t);
        }
        assert_eq!(w.tree(), model.0, "seed {seed}: start");
        for step in 0..60 {
            let mut some = || {
                let mut at = TreePath::root().join(names[rnd(3)].as_bytes());
                for _ in 0..rnd(3) {
                    at = at.join(names[rnd(3)].as_bytes());
                }
                at
            };
            let (a, b) = (some(), some());
            let what = rnd(7) as u32;
            let s = |x: &TreePath| String::from_utf8(x.as_bytes().to_vec()).unwrap();
            let op = match what {
                0 => create_new(&s(&a)),
                1 => mkdir(&s(&a)),
                2 => unlink(&s(&a)),
                3 => rmdir(&s(&a)),
                4 => rename(&s(&a), &s(&b)),
                5 => rename2(&s(&a), &s(&b), libc::RENAME_EXCHANGE),
                _ => open(&s(&a), libc::O_RDWR),
            };
            let before = w.tree();
            let got = w.run(op.clone());
            let want = model.apply(&(what, a, b));
            assert_eq!(
                got.is_ok(),
                want,
                "seed {seed} step {step}: {op:?} gave {got:?}\n{before:?}"
            );
            assert_eq!(w.tree(), model.0, "seed {seed} step {step}: {op:?}");
        }
    }
}

/// What is left of a world whose tables are lost.
fn survivors(w: &World) -> Vec<Survivor> {
    let settings = Settings {
        root: b"/pfs/run".to_vec(),
        stage_limit_bytes: 1000,
        stamps_mapped_writes: true,
        bridge_uid: 0,
        removed_at_once: 256,
        devices: Default::default(),
        keeps_numbers: true,
        protections: Default::default(),
    };
    let root = world::root();
    let walk = Walk::new(&root, &settings, w, false);
    let survivor = |(path, record): (&TreePath, &PathRecord)| Survivor {
        object: record.object,
        label: label_at(&walk, path, record).unwrap(),
        ino: record.ino,
    };
    w.table.iter().map(survivor).collect()
}

#[test]
fn labels_alone_tell_which_records_there_were() {
    let mut marked = 0;
    for seed in 1..200u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let mut rnd = |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % n
        };
        let mut w = World::with_lower(&[
            ("a", Lower::Dir),
            ("a/a", Lower::Dir),
            ("a/b", Lower::File(1)),
            ("a/a/c", Lower::File(1)),
            ("b", Lower::Dir),
            ("b/a", Lower::File(1)),
        ]);
        for _ in 0..40 {
            let mut some = || {
                let parts: Vec<_> = (0..=rnd(3)).map(|_| ["a", "b", "c"][rnd(3)]).collect();
                parts.join("/")
            };
            let (a, b) = (some(), some());
            // Many of them fail, which is no matter.
            let _ = w.run(match rnd(7) {
                0 => create(&a),
                1 => mkdir(&a),
                2 => unlink(&a),
                3 => rmdir(&a),
                4 => open(&a, libc::O_RDWR),
                _ => rename(&a, &b),
            });
        }
        let rebuilt = rebuild(survivors(&w), false, BridgeId(1), u64::from);
        assert_eq!(rebuilt.problems, [], "seed {seed}");
        let found: BTreeMap<_, _> = rebuilt.records.into_iter().collect();
        let expected: BTreeMap<_, _> = w
            .table
            .iter()
            .map(|(path, record)| {
                let record = PathRecord {
                    version: found.get(path).map_or(0, |r| r.version),
                    token: Token::default(),
                    copy_of: 0,
                    replaces: None,
                    drained: None,
                    dirs: None,
                    ..record.clone()
                };
                (path.clone(), record)
            })
            .collect();
        assert_eq!(found, expected, "seed {seed}");
        marked += found.values().filter(|r| repair::is_marker(r.kind)).count();
    }
    assert!(marked > 200, "only {marked} markers");
}

#[test]
fn where_nothing_was_to_be_replaced_only_what_is_there_counts_for_a_removed_directory() {
    let world = || {
        World::with_lower(&[
            ("d", Lower::Dir),
            ("d/a", Lower::File(1)),
            ("d/b", Lower::File(2)),
        ])
    };
    let removed = |mut w: World| {
        w.run(unlink("d/a")).unwrap();
        w.run(rmdir("d")).unwrap();
        w.table[&p("d")].replaces.unwrap()
    };
    // Somebody has decided for the removal of `b` when it was not there.
    let decided = |is_there_again: bool| {
        let mut w = world();
        w.run(unlink("d/b")).unwrap();
        w.table.get_mut(&p("d/b")).unwrap().replaces = Some(Identity::NOTHING);
        if !is_there_again {
            w.lower.remove(&p("d/b"));
        }
        removed(w)
    };
    let mut without = world();
    without.lower.remove(&p("d/b"));
    assert_eq!(decided(false), removed(without));
    let mut with_both = world();
    with_both.run(unlink("d/b")).unwrap();
    assert_ne!(decided(true), removed(with_both));
    assert!(decided(true).has_contents());
}

#[test]
fn nothing_with_data_is_dropped_whatever_labels_are_lost() {
    let object = |seq| ObjectName {
        oid: ObjectId::new(BridgeId(1), 1, seq),
        link: 0,
    };
    let survivor = |seq, kind, parent, name: &str| Survivor {
        object: object(seq),
        label: Label {
            kind,
            parent,
            name: name.into(),
            origin: None,
            hides: None,
            renamed: None,
        },
        ino: seq,
    };
    let root = || LabelParent::Lower(TreePath::root());
    let rebuilt = rebuild(
        vec![
            survivor(1, Kind::File, root(), "same"),
            survivor(2, Kind::File, root(), "same"),
            survivor(3, Kind::Whiteout, root(), "same"),
            survivor(4, Kind::File, LabelParent::Object(object(99).oid), "orphan"),
            // Each is in the other one.
            survivor(5, Kind::Dir, LabelParent::Object(object(6).oid), "x"),
            survivor(6, Kind::Dir, LabelParent::Object(object(5).oid), "y"),
            Survivor {
                label: void_label(&p("void")),
                ..survivor(7, Kind::Moved, root(), "void")
            },
        ],
        false,
        BridgeId(1),
        u64::from,
    );
    let paths: BTreeMap<_, _> = rebuilt
        .records
        .iter()
        .map(|(path, record)| (record.object, path.clone()))
        .collect();
    assert_eq!(paths.len(), 6);
    // The youngest has the name, although it is a mark.
    assert_eq!(paths[&object(3)], p("same"));
    assert_eq!(paths[&object(2)], repair::conflict(&p("same"), object(2)));
    assert_eq!(paths[&object(1)], repair::conflict(&p("same"), object(1)));
    assert_eq!(paths[&object(4)], repair::lost(object(4)));
    // It speaks of nothing, so it goes.
    assert_eq!(rebuilt.void, [object(7)]);
    // Their labels are to be written anew.
    let moved = &rebuilt.moved;
    assert_eq!(moved[..3], [object(1), object(2), object(4)]);
    let changes = rebuilt.clone().into_changes();
    let relabels = changes.iter().filter(|c| matches!(c, Change::Relabel(_)));
    assert_eq!(relabels.count(), moved.len());
    assert!(changes.contains(&Change::Doom(object(7))));
    let same = |problem: &&Problem| matches!(problem, Problem::SameName { .. });
    assert_eq!(rebuilt.problems.iter().filter(same).count(), 2);
}

#[test]
fn a_path_that_no_call_takes_is_refused_when_it_is_made() {
    let mut w = World::default();
    let name = "n".repeat(255);
    let mut dir = name.clone();
    w.run(mkdir(&dir)).unwrap();
    while dir.len() + 256 < 4095 {
        dir = format!("{dir}/{name}");
        w.run(mkdir(&dir)).unwrap();
    }
    let room = 4095 - dir.len() - 1;
    let longest = format!("{dir}/{}", "l".repeat(room));
    let longer = format!("{longest}o");
    assert_eq!(longest.len(), 4095);
    fails(w.run(mkdir(&longer)), libc::ENAMETOOLONG);
    fails(w.run(create(&longer)), libc::ENAMETOOLONG);
    fails(w.run(symlink(&longer, "x")), libc::ENAMETOOLONG);
    w.run(create("short")).unwrap();
    fails(w.run(rename("short", &longer)), libc::ENAMETOOLONG);
    w.run(rename("short", &longest)).unwrap();
    // Neither does a rename of a directory make one, with what is below it.
    w.run(mkdir("below")).unwrap();
    fails(
        w.run(rename(&name, &format!("below/{name}"))),
        libc::ENAMETOOLONG,
    );
    w.run(stat(&longest)).unwrap();
}

/// Another directory has the place of `nd`, which `world` has already: the records are bound to the one that was there.
fn swapped(world: &mut World) {
    let gone = Identity::of_dir(&Attr {
        ino: 9999,
        mode: libc::S_IFDIR,
        ..Attr::default()
    });
    for (path, record) in &mut world.table {
        let dirs = record.dirs.as_deref().copied().unwrap_or_default();
        let is_in = path.is_within(&p("nd"));
        record.dirs = Dirs {
            within: if is_in { Some(gone) } else { dirs.within },
            out_of: dirs.out_of.map(|_| gone),
        }
        .boxed();
    }
}

#[test]
fn what_was_removed_in_another_directory_hides_nothing_of_one_that_is_open_below() {
    let mut w = World::with_lower(&[("nd", Lower::Dir), ("nd/d", Lower::Dir)]);
    let (path_of_d, dir) = (path("nd/d"), true);
    w.run(Op::Unlink {
        path: path_of_d,
        dir,
    })
    .unwrap();
    swapped(&mut w);
    w.lower.insert(p("nd/d/sub"), Lower::Dir);
    w.lower.insert(p("nd/d/sub/own"), Lower::File(1));
    let listed = w.run(Op::ReadDir {
        path: Path {
            start: w.held("nd/d/sub"),
            bytes: Vec::new(),
        },
        after: None,
        limit: 100,
    });
    let Ok(Answer::Entries { entries, .. }) = listed else {
        panic!("{listed:?}");
    };
    assert!(entries.iter().any(|entry| entry.name == b"own"));
}

#[test]
fn what_is_where_something_renamed_was_is_not_below_the_new_path_of_that() {
    let dirs = ["nd", "nd/d", "nd/d/sub"].map(|dir| (dir, Lower::Dir));
    let mut w = World::with_lower(&dirs);
    w.run(Op::Rename {
        old: path("nd/d"),
        new: path("d"),
        flags: 0,
    })
    .unwrap();
    let start = w.held("nd/d/sub");
    let name_of = |w: &mut World| {
        w.run(Op::NameOf {
            start: start.clone(),
        })
    };
    assert_eq!(
        name_of(&mut w),
        Ok(Answer::Bytes(b"/pfs/run/d/sub".to_vec()))
    );
    swapped(&mut w);
    assert_eq!(
        name_of(&mut w),
        Ok(Answer::Bytes(b"/pfs/run/nd/d/sub".to_vec()))
    );
}

#[test]
fn a_directory_is_not_renamed_over_what_waits_below_its_new_name() {
    let mut w = World::with_lower(&[("a", Lower::Dir), ("old", Lower::File(1))]);
    let rename = |old, new, flags| Op::Rename {
        old: path(old),
        new: path(new),
        flags,
    };
    w.run(rename("old", "a/d", 0)).unwrap();
    for dir in ["f", "f/d"] {
        let (path, mode) = (path(dir), 0o755);
        w.run(Op::Mkdir { path, mode }).unwrap();
    }
    w.lower.remove(&p("a"));
    let busy = Err(Stop::Errno(libc::EBUSY));
    assert_eq!(w.run(rename("f", "a", 0)), busy);
    w.lower.insert(p("a"), Lower::File(1));
    assert_eq!(w.run(rename("f", "a", libc::RENAME_EXCHANGE)), busy);
    assert_eq!(w.run(rename("a", "f", libc::RENAME_EXCHANGE)), busy);
}
