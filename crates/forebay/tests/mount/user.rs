//! The mount of an ordinary user, who has a user namespace for it. Only root can become one, and can make a `/dev/fuse` that
//! everybody may open, as distributions have it.

use crate::common::{find_program, need};
use crate::need_fuse;
use crate::programs::{TREE, go_program};
use crate::stage::{Said, Stage, finish};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

const USER: u32 = 61_240;
/// A group of which the user is a member besides the own one, which has the user's number.
const PROJECT: u32 = 61_241;
/// A group of which the user is no member.
const OTHER: u32 = 61_242;

/// Shell functions of the scripts here.
pub const FUNCTIONS: &str = r#"
    run() { "$FOREBAY" run --via mount --no-record --quiet --buffer pfs "$@"; }
    attach() { "$FOREBAY" attach --buffer pfs -- "$@"; }
    why() { sed 's/.*: //'; }
    spaces() { readlink /proc/self/ns/user /proc/self/ns/mnt; }
    await() { while [ ! -e "$1" ]; do sleep 0.02; done; }
    export -f why spaces attach
"#;

/// A stage on which all belongs to the user, with a device `fuse` of this mode.
fn stage(device_mode: &str) -> Stage {
    let stage = Stage::new();
    equip(&stage, device_mode);
    stage
}

/// Gives all that is on a stage to the user, with a device `fuse` of this mode.
pub fn equip(stage: &Stage, device_mode: &str) {
    chown(&stage.dir, Some(USER), Some(USER)).unwrap();
    for dir in ["pfs", "run", "home", "storage", "logs", "tables", "out"] {
        fs::create_dir_all(stage.path(dir)).unwrap();
        chown(stage.path(dir), Some(USER), Some(USER)).unwrap();
    }
    let mut mknod = Command::new("mknod");
    mknod.args(["-m", device_mode]).arg(stage.path("fuse"));
    assert!(mknod.args(["c", "10", "229"]).status().unwrap().success());
}

/// A bash script of the user in the directory of the stage.
pub fn script(stage: &Stage, script: &str) -> Said {
    // The device of the stage is that of the node for this script alone.
    let become_user = format!(
        r#"mount --bind "$0" /dev/fuse
        exec setpriv --reuid={USER} --regid={USER} --groups={PROJECT} -- bash -c "$1""#
    );
    let mut command = stage.command("unshare");
    command
        .args(["--mount", "sh", "-ec", &become_user])
        .arg(stage.path("fuse"))
        .arg(format!("{FUNCTIONS}\n{script}"))
        .env("PROJECT", PROJECT.to_string())
        .env("BUSYBOX", find_program("busybox").unwrap_or_default());
    finish(command)
}

/// Gives something below the PFS directory to an owner and a group, with this mode.
fn give(stage: &Stage, name: &str, owner: u32, group: u32, mode: u32) {
    let path = stage.pfs().join(name);
    chown(&path, Some(owner), Some(group)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
}

/// Owner and group of what has arrived.
fn owner(path: &Path) -> (u32, u32) {
    let found = fs::metadata(path).unwrap();
    (found.uid(), found.gid())
}

#[test]
fn a_static_program_of_a_user_sees_the_buffer_and_nothing_is_left_but_what_it_wrote() {
    need_fuse!();
    need!("busybox", "setpriv", "unshare");
    let stage = stage("666");
    let said = script(
        &stage,
        r#"
        echo old > pfs/old
        # The first thing in the mount is a new name, without a look at the directory.
        run -- "$BUSYBOX" sh -c '
            echo new > pfs/new; cd pfs; mkdir dir; mv new dir/moved; ln dir/moved hard; rm old
            cat hard; stat -c "%u %g %h" hard; id -u; grep CapEff /proc/self/status; exit 7'
        echo "status $?"; cat pfs/hard; ls -A pfs; grep -c "$PWD/pfs" /proc/self/mountinfo
        pgrep -u "$(id -u)" -f "$PWD/"
        "#,
    );
    let said = said.ends_with(1).prints("new\n");
    let expected = format!(
        "new\n{USER} {USER} 2\n{USER}\nCapEff:\t0000000000000000\nstatus 7\nnew\ndir\nhard\n0\n"
    );
    assert_eq!(said.out, expected, "{}", said.err);
}

#[test]
fn a_program_in_go_of_a_user_does_what_it_does_natively() {
    need_fuse!();
    need!("setpriv", "unshare");
    let stage = stage("666");
    let Some(program) = go_program(&stage.path("out")) else {
        return;
    };
    fs::copy(program, stage.path("prog")).unwrap();
    let sums = "find . -type f | sort | xargs md5sum";
    let start = format!("cd pfs\n{TREE}\ncp -a . ../out/native; cd ../out/native");
    let native = script(&stage, &format!("{start}; ../../prog; {sums}")).ends_with(0);
    let mounted = format!("run -- sh -c 'cd pfs && ../prog'; cd pfs; {sums}");
    let mounted = script(&stage, &mounted).ends_with(0);
    assert_eq!(native.out, mounted.out, "{}", mounted.err);
    assert!(mounted.out.lines().count() > 15, "{}", mounted.out);
}

#[test]
fn who_joins_from_outside_or_from_within_is_in_the_namespaces_of_the_run() {
    need_fuse!();
    need!("busybox", "setpriv", "unshare");
    let stage = stage("666");
    let said = script(
        &stage,
        r#"
        mkfifo go
        run -- bash -c '
            spaces; echo one > pfs/one; attach bash -c "spaces; cat pfs/one; echo in > pfs/in"
            : > ready; cat go; cat pfs/out' > said &
        await ready
        attach bash -c "spaces; cat pfs/in; echo out > pfs/out; id -u"
        (cd pfs; "$FOREBAY" attach --buffer . -- "$BUSYBOX" cat one); ls pfs
        echo went on > go; wait $!; echo "status $?"; cat said; spaces; ls pfs
        "#,
    )
    .ends_with(0);
    let lines: Vec<_> = said.out.lines().collect();
    let [users, mounts, "in", user, "one", "status 0", rest @ ..] = &lines[..] else {
        panic!("{}\n{}", said.out, said.err);
    };
    assert_eq!(*user, USER.to_string());
    let [
        a,
        b,
        c,
        d,
        "one",
        "went on",
        "out",
        out_users,
        out_mounts,
        "in",
        "one",
        "out",
    ] = rest
    else {
        panic!("{}\n{}", said.out, said.err);
    };
    assert_eq!([a, b, c, d], [users, mounts, users, mounts]);
    assert!(out_users != users && out_mounts != mounts, "{}", said.out);
}

#[test]
fn the_directory_of_a_project_can_be_worked_in_and_what_arrives_has_its_group() {
    need_fuse!();
    need!("setpriv", "unshare");
    let stage = stage("666");
    for dir in ["project", "other", "project/old", "project/deep"] {
        fs::create_dir(stage.pfs().join(dir)).unwrap();
    }
    fs::write(stage.pfs().join("project/file"), "old\n").unwrap();
    for (name, group, mode) in [
        ("project", PROJECT, 0o2770),
        ("project/old", PROJECT, 0o2770),
        ("project/deep", PROJECT, 0o770),
        ("project/file", PROJECT, 0o660),
        ("other", OTHER, 0o2755),
    ] {
        give(&stage, name, USER, group, mode);
    }
    let said = script(
        &stage,
        r#"
        run -- bash -c '
            cd pfs/project
            echo new > new; mkdir dir; echo in > dir/in; mv new dir/moved; ln dir/in hard
            echo more >> file; truncate -s 6 file; rmdir old; ln -s file link; mkfifo pipe; rm pipe
            echo deep > deep/new; chmod 640 file; touch -d @5 file; cat file dir/in
            echo other > ../other/new
            stat -c "%n %u %g %a" . file dir deep ../other ../other/new; id -G; id -g
            chgrp '"$PROJECT"' file 2>&1 | why; chown :'"$(id -g)"' deep/new && echo own'
        "#,
    )
    .ends_with(0);
    let shown = format!(
        "old\nmoin\n. {USER} {USER} 2770\nfile {USER} {USER} 640\ndir {USER} {USER} 2755\ndeep {USER} {USER} 770\n\
         ../other {USER} {USER} 2755\n../other/new {USER} {USER} 644\n{USER} 65534\n{USER}\nInvalid argument\nown\n"
    );
    assert_eq!(said.out, shown, "{}", said.err);
    for (name, group) in [
        ("project", PROJECT),
        ("project/file", PROJECT),
        ("project/dir", PROJECT),
        ("project/dir/moved", PROJECT),
        ("project/hard", PROJECT),
        ("project/deep/new", USER),
        ("other", OTHER),
    ] {
        assert_eq!(owner(&stage.pfs().join(name)), (USER, group), "{name}");
    }
    assert!(!stage.pfs().join("project/old").exists());
}

#[test]
fn what_belongs_to_others_gives_no_more_than_natively_and_is_not_changed() {
    need_fuse!();
    need!("setpriv", "unshare");
    let stage = stage("666");
    fs::create_dir(stage.pfs().join("shared")).unwrap();
    for (name, owner, group, mode) in [
        ("open", 0, 0, 0o666),
        ("project", 0, PROJECT, 0o640),
        ("secret", 0, OTHER, 0o640),
        ("mine-of-other", USER, OTHER, 0o060),
        ("shared", 0, PROJECT, 0o2775),
        ("shared/file", 0, PROJECT, 0o664),
    ] {
        let path = stage.pfs().join(name);
        if !path.exists() {
            fs::write(&path, format!("{name}\n")).unwrap();
        }
        give(&stage, name, owner, group, mode);
    }
    let said = script(
        &stage,
        r#"
        run -- bash -c '
            cd pfs
            for file in open project secret mine-of-other shared/file; do cat $file 2>&1 | why; done
            stat -c "%U %G" open; stat -c "%u %g" project mine-of-other
            for file in open shared/file shared/new; do (echo x >> $file) 2>&1 | why; done
            rm -f open 2>&1 | why; mv open moved 2>&1 | why; chmod 777 project 2>&1 | why
            chmod 000 mine-of-other; mkdir shared/dir 2>&1 | why'
        "#,
    )
    .ends_with(0);
    let denied = "Permission denied\n";
    // The kernel's word for an owner without a number.
    let foreign = "Value too large for defined data type\n";
    let expected = format!(
        "open\nproject\n{denied}{denied}shared/file\nnobody nogroup\n65534 65534\n{USER} {USER}\n\
         {denied}{denied}{denied}{foreign}{foreign}{foreign}{denied}"
    );
    assert_eq!(said.out, expected, "{}", said.err);
    assert_eq!(
        fs::read_to_string(stage.pfs().join("open")).unwrap(),
        "open\n"
    );
    let mode = |name: &str| fs::metadata(stage.pfs().join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("project"), mode("mine-of-other")), (0o640, 0));
    // A whole buffer that belongs to somebody else is told of at the start.
    chown(stage.pfs(), Some(0), Some(PROJECT)).unwrap();
    fs::set_permissions(stage.pfs(), Permissions::from_mode(0o2775)).unwrap();
    script(&stage, "run -- sh -c 'echo x > pfs/new'")
        .ends_with(2)
        .tells("belongs to another user")
        .tells("Permission denied");
}

#[test]
fn a_bridge_of_a_user_that_is_killed_comes_back_under_the_mount() {
    need_fuse!();
    need!("setpriv", "unshare");
    let stage = stage("666");
    let said = script(
        &stage,
        r#"
        export ROOT="$PWD/pfs"
        run -- bash -c '
            cd pfs; echo before > before; sync before; exec 3> open; echo 1 >&3
            kill -9 $(pgrep -u "$(id -u)" -f "bridge --root $ROOT ")
            echo 2 >&3; exec 3>&-; cat before open; echo after > after; ls'
        cat pfs/open pfs/after
        "#,
    )
    .ends_with(0);
    let expected = "before\n1\n2\nafter\nbefore\nopen\n1\n2\nafter\n";
    assert_eq!(said.out, expected, "{}", said.err);
}

#[test]
fn without_passthrough_a_shared_mapping_is_refused_and_a_private_one_works() {
    need_fuse!();
    need!("setpriv", "unshare");
    let stage = stage("666");
    let program = r"
import mmap
f = open('pfs/file', 'w+b'); f.write(b'x' * 5000); f.flush()
try: mmap.mmap(f.fileno(), 5000); print('mapped')
except OSError as e: print(e.errno)
print(mmap.mmap(f.fileno(), 5000, flags=mmap.MAP_PRIVATE)[4999:])
";
    fs::write(stage.path("map.py"), program).unwrap();
    let said = script(&stage, "run -- /usr/bin/python3 map.py").ends_with(0);
    assert_eq!(
        said.out,
        format!("{}\nb'x'\n", libc::ENODEV),
        "{}",
        said.err
    );
}

/// Runs a script where no user namespace can be made any more.
const WITHOUT_NAMESPACES: &str = r#"
    none_left() {
        unshare --user --map-user="$(id -u)" --map-group="$(id -g)" --keep-caps sh -c '
            echo 0 > /proc/sys/user/max_user_namespaces
            exec setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all "$@"' sh "$@"
    }
"#;

#[test]
fn where_a_user_may_not_mount_a_run_says_what_mends_it_and_starts_nothing() {
    need_fuse!();
    need!("setpriv", "unshare");
    let run = r#""$FOREBAY" run --via mount --no-record --buffer pfs -- touch out/ran"#;
    let refused = |stage: &Stage, text: &str, told: [&str; 2]| {
        let said = script(stage, text).ends_with(125);
        let first = said.err.lines().next().unwrap_or_default();
        assert!(first.contains("cannot mount the buffer"), "{}", said.err);
        assert!(first.contains(told[0]), "{}", said.err);
        said.tells(told[1]).tells("--via preload");
        assert!(!stage.path("out/ran").exists());
        assert!(
            !script(stage, "pgrep -u $(id -u) -f $PWD/")
                .out
                .contains(|c: char| c.is_ascii_digit())
        );
    };
    let closed = stage("600");
    refused(&closed, run, ["may not open /dev/fuse", "chmod 666"]);
    let open = stage("666");
    let nested = format!("{WITHOUT_NAMESPACES}\nnone_left {run}");
    let setting = "sysctl user.max_user_namespaces=";
    refused(&open, &nested, ["no user namespace", setting]);
    let doctor = format!(r#"{WITHOUT_NAMESPACES} none_left "$FOREBAY" doctor"#);
    script(&open, &doctor)
        .ends_with(0)
        .prints("user.max_user_namespaces is 0");
}

#[test]
fn auto_gives_a_user_the_library_and_where_that_is_of_no_use_the_mount() {
    need_fuse!();
    need!("setpriv", "unshare");
    let stage = stage("666");
    let auto = r#""$FOREBAY" run --via auto --no-record --buffer pfs -- sh -c 'echo x > pfs/x; grep -c " $PWD/pfs " /proc/self/mountinfo'"#;
    let said = script(&stage, auto).ends_with(1);
    assert_eq!(said.out, "0\n", "{}", said.err);
    said.tells("via          preload: no mount: bytes would go through a server");
    let said = script(
        &stage,
        &format!("export FOREBAY_PRELOAD=/nowhere.so; {auto}"),
    );
    let said = said.ends_with(0);
    assert_eq!(said.out, "1\n", "{}", said.err);
    said.tells("via          mount: the library is of no use here");
    let said = script(&stage, r#""$FOREBAY" doctor"#).ends_with(0);
    said.prints("a mount is made in one")
        .prints("--via auto takes the preload");
}

#[test]
fn a_mount_that_others_see_is_refused_to_a_user_with_what_to_use_instead() {
    need_fuse!();
    need!("setpriv", "unshare");
    script(&stage("666"), r#""$FOREBAY" mount --buffer pfs out"#)
        .ends_with(1)
        .tells("needs root")
        .tells("forebay run --via mount");
}
