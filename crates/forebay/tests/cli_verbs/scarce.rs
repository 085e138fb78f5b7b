//! Bridges where something is scarce: room on the storage, descriptors, the size of files.

use crate::stage::{SmallDisk, Stage, kill, start, wait, wait_dead};
use std::fs;
use std::path::{Path, PathBuf};

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
        let stage = Stage::new();
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
