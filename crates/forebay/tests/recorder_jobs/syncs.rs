//! What waits for storage has seconds of its own: they are known, and no other finding claims them.

use crate::common::slow_pfs::SlowPfs;
use crate::stage::{Stage, finish};
use serde_json::Value;

/// Microseconds that each call on the file system takes.
const LATENCY_US: u32 = 20_000;

/// Ten writes that the page cache takes, and an fsync after each two of them; four writes that wait by their descriptor; three past the
/// page cache; and calls that concern more than one file.
const PROGRAM: &str = r#"
import mmap, os, sys
pfs = sys.argv[1]
with open(pfs + '/mapped', 'wb') as mapped:
    mapped.truncate(4096)
fd = os.open(pfs + '/synced', os.O_CREAT | os.O_RDWR)
for n in range(10):
    os.write(fd, bytes(4096))
    if n % 2:
        os.fsync(fd)
os.fdatasync(fd)
fd = os.open(pfs + '/by_flag', os.O_CREAT | os.O_WRONLY | os.O_DSYNC)
for n in range(4):
    os.write(fd, bytes(100))
import fcntl
fd = os.open(pfs + '/direct', os.O_CREAT | os.O_RDWR)
page = mmap.mmap(-1, 4096)
os.write(fd, page)
fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
for n in range(3):
    os.pwrite(fd, page, 4096 * n)
with open(pfs + '/mapped', 'r+b') as mapped:
    with mmap.mmap(mapped.fileno(), 4096) as memory:
        memory[:5] = b'hello'
        memory.flush()
os.system('sync -f ' + pfs)
"#;

#[test]
fn syncs_and_synced_writes_have_their_own_seconds_in_the_log() {
    let Some(pfs) = SlowPfs::mount_with(LATENCY_US) else {
        return;
    };
    let stage = Stage::new();
    let program = [
        "record",
        "--log",
        "job.darshan",
        "--",
        "/usr/bin/python3",
        "-S",
        "-c",
        PROGRAM,
    ];
    let mut recorded = stage.forebay(&program);
    recorded.arg(&pfs.at);
    finish(recorded).ends_with(0);
    let said = finish(stage.forebay(&["report", "job.darshan", "--json"])).ends_with(0);
    let jobs: Value = serde_json::from_str(&said.out).unwrap();
    let files = jobs[0]["slowest_files"].as_array().unwrap();
    let file = |name: &str| {
        let is_it = |file: &&Value| file["name"].as_str().unwrap().ends_with(name);
        files
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("{name}: {files:?}"))
    };
    let latency = f64::from(LATENCY_US) / 1e6;
    let seconds = |file: &Value| file["sync_seconds"].as_f64().expect("known");

    let synced = file("/synced");
    assert_eq!(
        (&synced["syncs"], &synced["synced_writes"]),
        (&Value::from(6), &Value::from(0))
    );
    assert!(seconds(synced) >= 6.0 * latency, "{synced}");
    let writing = synced["write"]["seconds"].as_f64().unwrap();
    assert!(seconds(synced) <= writing, "{synced}");

    let by_flag = file("/by_flag");
    assert_eq!(
        (&by_flag["syncs"], &by_flag["synced_writes"]),
        (&Value::from(0), &Value::from(4))
    );
    // The write past the first was made before the descriptor had the flag.
    assert_eq!(file("/direct")["direct_requests"], 3);
    assert_eq!(file("/synced")["direct_requests"], 0);

    let calls = file("(sync, syncfs, sync_file_range, msync)");
    assert_eq!(calls["syncs"], 2);
    assert!(seconds(calls) >= latency, "{calls}");

    let findings = jobs[0]["findings"].as_array().unwrap();
    let of = |code: &str| findings.iter().find(|one| one["code"] == code);
    let bursts = of("fsync-bursts").unwrap_or_else(|| panic!("{findings:?}"));
    let concerned = bursts["concerned_seconds"].as_f64().unwrap();
    let known = seconds(synced) + seconds(calls);
    assert!(concerned >= known, "{concerned} {known}");
}
