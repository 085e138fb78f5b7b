//! Bridges where something is scarce: room on the storage, descriptors, the size of files.

use crate::common;
use crate::stage::{Said, SmallDisk, Stage, finish, kill, start, wait, wait_dead};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Fills the storage and goes on: one process appends to a file that is open, whatever room there is, and another one makes
/// files with one line. Both write down what was acknowledged. They end when `go-on` is gone.
const GREEDY: &str = r#"
import os
def goes_on():
    return os.path.exists("go-on")
if os.fork() == 0:
    n = 0
    while goes_on():
        n += 1
        try:
            with open(f"pfs/name{n}", "x") as file:
                file.write(f"line {n}\n")
        except OSError:
            continue
        with open("names", "a") as names:
            names.write(f"name{n}\n")
    os._exit(0)
bulk = os.open("pfs/bulk", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
size = 0
while goes_on():
    for piece in [1 << 20, 4096]:
        try:
            size += os.write(bulk, b"x" * piece)
        except OSError:
            pass
    with open("size.new", "w") as file:
        file.write(str(size))
    os.rename("size.new", "size")
os.close(bulk)
os.wait()
"#;

fn free_bytes(disk: &Path) -> u64 {
    forebay_sys::space(disk).unwrap().1
}

#[test]
fn a_storage_that_a_program_keeps_full_while_bridges_are_killed_is_drained_in_the_end() {
    type Make = fn(PathBuf) -> Option<SmallDisk>;
    let kinds: [(&str, Make); 2] = [
        ("tmpfs", |dir| {
            SmallDisk::new(dir, "size=200m,nr_inodes=20000")
        }),
        ("ext4", |dir| SmallDisk::ext4(dir, 200)),
    ];
    for (kind, make) in kinds {
        let stage = Stage::without_storage();
        let Some(disk) = make(stage.path("storage")) else {
            return forebay_testkit::skip("only root can mount a small disk");
        };
        let mut command = stage.forebay(&["run", "--buffer", "pfs", "--no-drain", "--no-record"]);
        command.args(["--log-dir", "bridge-logs", "--", "python3", "-c", GREEDY]);
        fs::write(stage.path("go-on"), "").unwrap();
        let run = start(command);
        let log = stage.path("bridge-logs/bridge.log");
        let refuses = |why: &str| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.contains(why)
        };
        let is_full = || free_bytes(disk.path()) < 1 << 16;
        let mut killed = 0;
        loop {
            stage.wait_for("a full storage", is_full);
            let mut bridges = Vec::new();
            stage.wait_for("a bridge, or the last word of one", || {
                bridges = stage.bridges();
                !bridges.is_empty() || refuses(" is full")
            });
            let Some(bridge) = bridges.first() else {
                break;
            };
            let pid = bridge["pid"].as_u64().unwrap().try_into().unwrap();
            kill("KILL", pid);
            wait_dead(pid);
            killed += 1;
            assert!(killed < 100, "{kind}: each bridge finds room");
        }
        fs::remove_file(stage.path("go-on")).unwrap();
        let ended = wait(run);
        assert!(
            killed > 0 && [0, 75].contains(&ended.code),
            "{kind}: {ended:?}"
        );
        let drained = stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
        assert_eq!(drained.err, "", "{kind}");
        assert!(refuses("the last of it is kept for a drain"), "{kind}");
        let size: u64 = fs::read_to_string(stage.path("size"))
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(
            fs::metadata(stage.path("pfs/bulk")).unwrap().len(),
            size,
            "{kind}"
        );
        for name in fs::read_to_string(stage.path("names")).unwrap().lines() {
            let text = fs::read_to_string(stage.pfs().join(name)).unwrap();
            assert_eq!(text, name.replace("name", "line ") + "\n", "{kind}");
        }
    }
}

#[test]
fn a_buffer_that_holds_nothing_takes_no_room() {
    let stage = Stage::new();
    let taken = || -> u64 {
        let found = forebay_testkit::entries_below(&stage.path("storage"));
        found.iter().map(|(_, about)| about.blocks() * 512).sum()
    };
    // The two files of the journal are the most of it.
    const FEW: u64 = 6 << 20;
    for _ in 0..2 {
        stage.script(&["--no-drain"], "echo 1 > pfs/f").ends_with(0);
        assert!(taken() > 48 << 20, "{}", taken());
        stage.script(&[], "echo 2 >> pfs/f").ends_with(0);
        assert!(taken() < FEW, "{}", taken());
        stage.say(&["fsck", "--storage", "storage"]).ends_with(0);
        stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
        assert!(taken() < FEW, "{}", taken());
    }
    assert_eq!(stage.on_pfs()["f"], "1\n2\n");
}

/// `forebay` with these arguments and this limit, as `prlimit` takes it.
fn limited(stage: &Stage, limit: &str, arguments: &[&str]) -> Said {
    let mut command = stage.command("prlimit");
    command.arg(limit).arg(common::forebay()).args(arguments);
    finish(command)
}

#[test]
fn where_a_limit_is_too_low_for_a_bridge_it_says_so_and_doctor_as_well() {
    let stage = Stage::new();
    for (limit, told) in [
        (
            "--nofile=200:200",
            "may open 200 files here, and a bridge needs 256",
        ),
        (
            "--fsize=1048576:1048576",
            "may have 1048576 bytes here (ulimit -f)",
        ),
    ] {
        limited(&stage, limit, &["up", "--buffer", "pfs"])
            .ends_with(1)
            .tells(told)
            .tells("hint: raise the hard limit");
        limited(&stage, limit, &["doctor"])
            .ends_with(1)
            .prints(told);
    }
    assert!(stage.bridges().is_empty());
}

#[test]
fn a_drain_with_few_descriptors_brings_everything() {
    let stage = Stage::new();
    let work = "for n in $(seq 600); do echo $n > pfs/$n; done";
    stage.script(&["--no-drain"], work).ends_with(0);
    let drain = ["drain", "--buffer", "pfs", "--drain-workers", "32"];
    limited(&stage, "--nofile=256:256", &drain).ends_with(0);
    let drained = stage.on_pfs();
    assert_eq!(drained.len(), 600);
    assert!(
        drained
            .iter()
            .all(|(name, text)| *text == format!("{name}\n"))
    );
}

#[test]
fn a_file_above_the_limit_of_sizes_is_named_by_the_drain_and_follows_without_the_limit() {
    let stage = Stage::new();
    let work = "truncate -s 300M pfs/large; printf end >> pfs/large; echo small > pfs/small";
    stage.script(&["--no-drain"], work).ends_with(0);
    let drain = ["drain", "--buffer", "pfs"];
    limited(&stage, "--fsize=209715200:209715200", &drain)
        .ends_with(75)
        .tells("large: ")
        .tells("File too large");
    assert_eq!(fs::read(stage.path("pfs/small")).unwrap(), b"small\n");
    stage.say(&drain).ends_with(0);
    let large = fs::metadata(stage.path("pfs/large")).unwrap();
    assert_eq!(large.len(), (300 << 20) + 3);
}

/// Hundredths of a second that a process has had the processor.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<_> = fields.split(' ').collect();
    let number = |n: usize| fields[n].parse::<u64>().unwrap();
    number(11) + number(12)
}

#[test]
fn a_bridge_without_a_descriptor_for_who_comes_rests_and_serves_him_later() {
    let stage = Stage::new();
    stage
        .say(&["up", "--buffer", "pfs", "--log-dir", "bridge-logs"])
        .ends_with(0);
    let pid = stage.bridge_pid();
    let limit = |soft: &str| {
        let mut command = stage.command("prlimit");
        command.args(["--pid", &pid.to_string(), &format!("--nofile={soft}:")]);
        finish(command).ends_with(0);
    };
    limit("3");
    let waits = start(stage.forebay(&["status"]));
    stage.wait_for("a connection that is not accepted", || {
        let log = fs::read_to_string(stage.path("bridge-logs/bridge.log")).unwrap_or_default();
        log.contains("a connection could not be accepted")
    });
    let (before, began) = (ticks(pid), Instant::now());
    // An event loop that does not rest has the processor for all of this time.
    stage.wait_for("a second", || began.elapsed() >= Duration::from_secs(1));
    let used = ticks(pid) - before;
    limit("1024");
    wait(waits);
    stage.say(&["status"]).ends_with(0).prints("pfs");
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
    assert!(used < 20, "{used} hundredths of a second in one second");
}

/// Forbids itself `socket`, as seccomp filters of sandboxes do, and runs the rest of its arguments.
const SANDBOX: &str = "
import ctypes, os, struct, sys
SOCKET = {'x86_64': 41, 'aarch64': 198}[os.uname().machine]
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ENOSYS = 0x7fff0000, 0x00050000 | 38
steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, SOCKET), (RETURN, 0, 0, ENOSYS), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_void_p(ctypes.addressof(program)), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
";

#[test]
fn a_program_in_a_sandbox_without_sockets_is_told_so_and_the_run_goes_on() {
    let stage = Stage::new();
    fs::write(stage.path("sandbox.py"), SANDBOX).unwrap();
    let script = "echo text > pfs/f
        if python3 sandbox.py cat pfs/f; then exit 3; fi
        # What it has open already needs nobody.
        python3 sandbox.py cat < pfs/f";
    let said = stage.script(&[], script).ends_with(0).prints("text");
    said.tells("this process may make no sockets, as in a sandbox");
    assert_eq!(fs::read_to_string(stage.path("pfs/f")).unwrap(), "text\n");
}
