//! Another user of the node who means harm: sees nothing that POSIX hides, and blocks, fills and fools nobody. All of it needs
//! root, because only root can be several users.

#[path = "../common/mod.rs"]
mod common;
mod leases;
mod lists;
mod modes;
mod renames;
mod shared;
#[path = "../cli_verbs/stage.rs"]
mod stage;
mod swapped;

use stage::{Said, Stage, finish, kill, start, wait};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

const HOSTILE: u32 = 65_534;
const VICTIM: u32 = 61_234;

macro_rules! as_root {
    () => {
        forebay_testkit::skip_unless!(forebay_testkit::is_root(), "only root can be several users");
    };
}
use as_root;

/// A command of this user.
fn user(stage: &Stage, uid: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = stage.command("setpriv");
    command
        .arg(format!("--reuid={uid}"))
        .arg(format!("--regid={uid}"))
        .args(["--clear-groups", "--"])
        .arg(program);
    command
}

fn python(stage: &Stage, uid: u32, script: &str) -> Command {
    let mut command = user(stage, uid, common::PYTHON);
    command.args(["-c", script]);
    command
}

/// Gives a directory to a user. Nobody else may enter it.
fn give(dir: &Path, uid: u32) {
    fs::create_dir_all(dir).unwrap();
    chown(dir, Some(uid), Some(uid)).unwrap();
    fs::set_permissions(dir, Permissions::from_mode(0o700)).unwrap();
}

/// A victim's `forebay run` with its own homes, over a buffer of its own.
fn run_of_victim(stage: &Stage, uid: u32) -> Command {
    let mut command = forebay_of_victim(stage, uid);
    command.args(["run", "--buffer", "own/pfs"]);
    command
}

fn forebay_of_victim(stage: &Stage, uid: u32) -> Command {
    for dir in [
        "own",
        "own/home",
        "own/run",
        "own/pfs",
        "own/logs",
        "own/tables",
        "own/storage",
    ] {
        give(&stage.path(dir), uid);
    }
    let mut command = user(stage, uid, common::forebay());
    command
        .env("HOME", stage.path("own/home"))
        .env("XDG_RUNTIME_DIR", stage.path("own/run"))
        .env("FOREBAY_LOG_DIR", stage.path("own/logs"))
        .env("FOREBAY_TABLES", stage.path("own/tables"))
        .env("FOREBAY_STORAGE", stage.path("own/storage"));
    command
}

#[test]
fn a_storage_that_was_made_in_advance_as_a_trap_is_refused_before_anything_in_it_is_touched() {
    as_root!();
    let stage = Stage::new();
    let treasure = stage.path("treasure");
    fs::write(&treasure, "secret").unwrap();
    fs::set_permissions(&treasure, Permissions::from_mode(0o600)).unwrap();
    let uid = VICTIM + std::process::id() % 1000;
    let trap = Path::new("/var/tmp").join(format!("forebay-{uid}"));
    give(&trap, HOSTILE);
    for name in [".probe", ".forebay-probe", "lock", "root"] {
        symlink(&treasure, trap.join(name)).unwrap();
    }
    chown(&treasure, Some(uid), Some(uid)).unwrap();
    let mut command = run_of_victim(&stage, uid);
    command.env_remove("FOREBAY_STORAGE").args(["--", "true"]);
    let said = finish(command);
    fs::remove_dir_all(&trap).unwrap();
    said.ends_with(125).tells("belongs to ");
    assert_eq!(fs::read_to_string(&treasure).unwrap(), "secret");
}

#[test]
fn an_instance_that_another_user_has_made_in_advance_is_refused() {
    as_root!();
    let stage = Stage::new();
    let scratch = stage.path("scratch");
    fs::create_dir(&scratch).unwrap();
    fs::set_permissions(&scratch, Permissions::from_mode(0o1777)).unwrap();
    let run = || {
        let mut command = run_of_victim(&stage, VICTIM);
        command.args(["--no-drain", "--storage"]).arg(&scratch);
        command.args(["--", "sh", "-c", "echo 1 > own/pfs/f"]);
        finish(command)
    };
    run().ends_with(0);
    let instances: Vec<_> = fs::read_dir(&scratch)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    let [instance] = &instances[..] else {
        panic!("{instances:?}")
    };
    // Nothing in it is open to others, whatever the umask was.
    for (path, about) in forebay_testkit::entries_below(instance) {
        let is_object = path.starts_with("obj") || path.starts_with("dir");
        if !is_object && !about.is_symlink() {
            assert_eq!(
                about.mode() & 0o077,
                0,
                "{} {:o}",
                path.display(),
                about.mode()
            );
        }
    }
    fs::remove_dir_all(instance).unwrap();
    give(instance, HOSTILE);
    run().ends_with(125).tells("belongs to ");
}

#[test]
fn links_that_lie_in_wait_in_shared_memory_lead_nobody_astray() {
    as_root!();
    let stage = Stage::new();
    // The names begin with the process id of a bridge, so there is one for each that may come.
    let script = "import os\nfor pid in range(int(open('/proc/loadavg').read().split()[-1]), \
        int(open('/proc/loadavg').read().split()[-1]) + 400):\n  for n in range(3):\n    d = f'/dev/shm/forebay-{pid}-{n}'\n    \
        try:\n      os.mkdir(d, 0o777); [os.symlink('MADE', d + '/' + f) for f in ('LOCK', 'LOG', 'CURRENT', 'IDENTITY')]\n    \
        except OSError: pass";
    let made = stage.path("made-by-root");
    let script = script.replace("MADE", made.to_str().unwrap());
    finish(python(&stage, HOSTILE, &script)).ends_with(0);
    let said = stage.script(&[], "echo 1 > pfs/f");
    for entry in fs::read_dir("/dev/shm").unwrap().flatten() {
        let is_trap = entry.file_name().to_string_lossy().starts_with("forebay-");
        if is_trap
            && entry
                .metadata()
                .is_ok_and(|m| m.is_dir() && m.uid() == HOSTILE)
        {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    said.ends_with(0);
    assert!(!made.exists());
    assert_eq!(stage.on_pfs()["f"], "1\n");
}

#[test]
fn a_descriptor_that_a_program_has_opened_before_it_drops_its_rights_stays_a_right() {
    as_root!();
    let stage = Stage::new();
    fs::create_dir_all(stage.path("pfs/old/sub")).unwrap();
    fs::write(stage.path("pfs/old/sub/f"), "old").unwrap();
    fs::set_permissions(stage.path("pfs/old"), Permissions::from_mode(0o700)).unwrap();
    let script = r#"
import os
root = os.path.abspath('pfs')
os.makedirs('pfs/new/sub'); os.chmod('pfs/new', 0o700)
open('pfs/new/sub/f', 'w').write('new')
held = {name: os.open(f'pfs/{name}/sub', os.O_RDONLY | os.O_DIRECTORY) for name in ('old', 'new')}
only_path = os.open('pfs/new/sub', os.O_PATH | os.O_DIRECTORY)
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
for name, fd in held.items():
    try: open(f'{root}/{name}/sub/f'); print('reached', name)
    except PermissionError: print('refused', name)
    print(os.read(os.open('f', os.O_RDONLY, dir_fd=fd), 9).decode())
    print(os.listdir(fd))
    os.stat('f', dir_fd=only_path)
    os.fchdir(fd)
    print(os.stat('f').st_size, open('f').read(), os.getcwd().endswith(f'pfs/{name}/sub'))
    try: os.stat('../../old/sub/f', dir_fd=fd); print('reached')
    except PermissionError: print('refused')
"#;
    let mut command = stage.forebay(&["run", "--buffer", "pfs", "--", common::PYTHON]);
    command.args(["-c", script]);
    let said = finish(command).ends_with(0);
    let expected = |name: &str| format!("refused {name}\n{name}\n['f']\n3 {name} True\nrefused\n");
    assert_eq!(said.out, expected("old") + &expected("new"), "{}", said.err);
}

/// Opens connections until one is refused; says how many it has, and keeps them until its input ends.
const HOARD: &str = r"
import socket, sys
held = []
while True:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); s.settimeout(0.2)
    try:
        s.recv(64); break
    except TimeoutError: held.append(s)
print(len(held), flush=True)
open(sys.argv[2], 'w').write('x') if len(sys.argv) > 2 else None
sys.stdin.read()
";

#[test]
fn one_user_does_not_take_all_connections_of_a_bridge() {
    as_root!();
    let stage = Stage::new();
    fs::set_permissions(stage.pfs(), Permissions::from_mode(0o1777)).unwrap();
    // With so few descriptors it has 76 connections.
    let mut up = stage.command("prlimit");
    up.arg("--nofile=1100:1100").arg(common::forebay());
    up.args(["up", "--buffer", "pfs"]);
    finish(up).ends_with(0);
    let socket = fs::read_dir(stage.path("run/forebay")).unwrap().next();
    let socket = socket.unwrap().unwrap().path();
    give(&stage.path("signal"), HOSTILE);
    let mut hoard = python(&stage, HOSTILE, HOARD);
    hoard.arg(&socket).arg(stage.path("signal/full"));
    hoard.stdin(std::process::Stdio::piped());
    let hoard = start(hoard);
    stage.wait_for_file("signal/full");
    let mut of_another = python(&stage, VICTIM, HOARD);
    of_another.arg(&socket);
    let another: Said = finish(of_another).ends_with(0);
    let other: u32 = another.out.trim().parse().unwrap();
    stage.say(&["status"]).ends_with(0).prints("pfs");
    let pid = hoard.id();
    kill("TERM", pid);
    let hoarded: u32 = wait(hoard).out.trim().parse().unwrap();
    assert!((30..=38).contains(&hoarded), "{hoarded}");
    assert!(other >= 15, "{other} are left beside {hoarded}");
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
}

#[test]
fn status_tells_of_a_bridge_of_another_user() {
    as_root!();
    let stage = Stage::new();
    let of_victim = |verb: &str| {
        let mut command = forebay_of_victim(&stage, VICTIM);
        command.args([verb, "--buffer", "own/pfs"]);
        finish(command).ends_with(0)
    };
    of_victim("up");
    let ask = ["status", "--buffer", "own/pfs"];
    let said = stage.say(&ask).ends_with(0);
    let served = format!("served by the bridge of user {VICTIM} (process ");
    assert!(said.out.contains(&served), "{said:?}");
    assert!(!said.out.contains("no bridge runs"), "{said:?}");
    of_victim("down");
    let said = stage.say(&ask).ends_with(0);
    assert_eq!(said.out, "no bridge runs\n");
}

#[test]
fn a_bridge_ends_although_connections_are_open_through_which_nothing_was_asked() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    let socket = fs::read_dir(stage.path("run/forebay")).unwrap().next();
    let silent = "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
        s.connect(sys.argv[1]); open('connected', 'w').close(); sys.stdin.read()";
    let mut command = stage.command(common::PYTHON);
    command
        .args(["-c", silent])
        .arg(socket.unwrap().unwrap().path());
    command.stdin(std::process::Stdio::piped());
    let mut client = start(command);
    stage.wait_for_file("connected");
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
    drop(client.stdin.take());
    wait(client);
}

#[test]
fn a_socket_directory_that_was_made_in_advance_is_refused_by_name() {
    as_root!();
    let stage = Stage::new();
    let uid = VICTIM + 1000 + std::process::id() % 1000;
    let trap = Path::new("/tmp").join(format!("forebay-{uid}"));
    give(&trap, HOSTILE);
    let mut command = run_of_victim(&stage, uid);
    command.env_remove("XDG_RUNTIME_DIR");
    give(&stage.path("own/storage"), uid);
    command.args(["--storage", "own/storage", "--", "true"]);
    let said = finish(command);
    fs::remove_dir(&trap).unwrap();
    said.ends_with(125)
        .tells(trap.to_str().unwrap())
        .tells("XDG_RUNTIME_DIR");
}

#[test]
fn a_descriptor_of_a_removed_file_leads_to_no_later_file_of_another_user() {
    as_root!();
    let stage = Stage::new();
    for dir in [stage.dir.clone(), stage.pfs(), stage.path("run")] {
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    }
    let open = stage.pfs().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
    // Past the library, which would ask the bridge for the path of a link of /proc.
    let spy = "import ctypes, os, sys\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        raw = lambda path, flags: libc.syscall(257, -100, path, flags, 0)\n\
        names = [f'pfs/open/spy{n}' for n in range(16)]\n\
        held = []\n\
        for name in names:\n\
        \x20   fd = os.open(name, os.O_CREAT | os.O_RDWR, 0o644)\n\
        \x20   held.append(os.open(f'/proc/self/fd/{fd}', os.O_PATH))\n\
        \x20   os.close(fd)\n\
        for name in names: os.unlink(name)\n\
        print('removed', flush=True)\n\
        sys.stdin.readline()\n\
        for fd in held:\n\
        \x20   try: print(open(f'/proc/self/fd/{fd}').read(), end='')\n\
        \x20   except OSError: pass\n";
    let script = format!(
        "mkdir -m 700 pfs/secret; mkfifo go said; \
        setpriv --reuid={HOSTILE} --regid={HOSTILE} --clear-groups -- {} -c \"$SPY\" < go > said & \
        exec 3> go 4< said; read line <&4; test \"$line\" = removed; \
        for n in $(seq 16); do echo secret > pfs/secret/$n; done; echo >&3; cat <&4; wait $!",
        common::PYTHON
    );
    let mut command = stage.forebay(&["run", "--buffer", "pfs", "--no-record", "--", "sh", "-ec"]);
    let said = finish({
        command.arg(script).env("SPY", spy);
        command
    });
    let said = said.ends_with(0);
    assert_eq!(said.out, "", "{}", said.err);
    assert_eq!(
        fs::read_to_string(stage.pfs().join("secret/16")).unwrap(),
        "secret\n"
    );
}
