//! `fsync` and its relatives: the bridge is asked for durable names exactly when it has to be.

use crate::common::{PYTHON, need, programs_dir};
use crate::stage::{Stage, finish, kill, start, wait};
use std::fs;
use std::process::Command;

/// `WHAT: REQUESTS PAGES` lines of durable.py, without the pages.
fn requests<'a>(out: &'a str, what: &str) -> Vec<&'a str> {
    let line = out
        .lines()
        .find_map(|line| line.strip_prefix(what)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {what:?} in:\n{out}"))
        .split(' ')
        .collect()
}

/// A stage with its storage on a disk: on one in memory there is nothing to make durable, and nobody is asked.
fn on_disk() -> Stage {
    Stage::without_storage()
}

/// A script under a bridge that makes nothing durable before it is asked.
fn patient(stage: &Stage, script: &str) -> Command {
    let mut command = stage.script_command(&[], script);
    command.env("FOREBAY_TEST_LONGEST_UNSYNCED_S", "3600");
    command
}

#[test]
fn the_bridge_is_asked_for_durable_names_exactly_when_they_are_not() {
    let stage = on_disk();
    fs::write(stage.path("pfs/old"), "on the PFS").unwrap();
    fs::create_dir(stage.path("out")).unwrap();
    let program = programs_dir().join("python/durable.py");
    let script = format!("exec {PYTHON} -S '{}' pfs out", program.display());
    let said = finish(patient(&stage, &script)).ends_with(0);
    let is = |what: &str, expected: &[&str]| {
        assert_eq!(requests(&said.out, what), expected, "{what}\n{}", said.out);
    };

    // Once before the file is synced; once more if the names are not durable when it is.
    let asks = |what: &str, pages: &str| {
        let found = requests(&said.out, what);
        assert!(["1", "2"].contains(&found[0]), "{what}\n{}", said.out);
        assert_eq!(found[1], pages, "{what}\n{}", said.out);
    };
    asks("first fsync", "1");
    is("second fsync", &["0", "0"]);
    is("fsync after a write", &["0", "0"]);
    asks("fsync after a rename", "0");
    asks("fsync after a removal", "0");
    // In this process and its copies, which have the page.
    for what in [
        "fdatasync",
        "dup",
        "fork",
        "directory",
        "root",
        "on the PFS",
    ] {
        asks(what, "0");
        is(&format!("{what} again"), &["0", "0"]);
    }
    for what in [
        "O_SYNC",
        "O_DSYNC",
        "msync",
        "msync by syscall",
        "pwritev2",
        "pwritev2 by syscall",
        "aio_fsync",
        "sync",
    ] {
        is(what, &["1", "0"]);
        is(&format!("{what} again"), &["0", "0"]);
    }
    is("O_CREAT", &["1", "0"]);
    // Other programs need the page to know.
    is("sync(1)", &["1", "1"]);
    is("sync(1) again", &["0", "1"]);
    for what in ["inherited", "sent", "sync(1) file", "sync(1) data", "dd"] {
        asks(what, "1");
        is(&format!("{what} again"), &["0", "1"]);
    }
    // The data of all files is another question.
    for what in ["syncfs", "sync(1) fs"] {
        is(what, &["1", "0"]);
        is(&format!("{what} again"), &["1", "0"]);
    }
    for what in [
        "outside",
        "outside inherited",
        "outside syncfs",
        "pipe",
        "O_RDONLY",
        "no O_SYNC",
        "pwritev2 without",
        "sync(1) outside",
    ] {
        is(what, &["0", "0"]);
        is(&format!("{what} again"), &["0", "0"]);
    }
}

#[test]
fn a_data_base_asks_for_its_names_and_not_for_each_transaction() {
    need!("sqlite3");
    const UPDATES: usize = 50;
    let stage = on_disk();
    let count =
        "\"$FOREBAY\" status --json | tr -d ' \\n' | sed 's/.*\"sync\":\\([0-9]*\\).*/\\1/'; echo";
    let script = format!(
        "cd pfs; sqlite3 db 'pragma journal_mode=wal; create table t (n); insert into t values (1)'; {count}
         (for n in $(seq {UPDATES}); do echo 'pragma synchronous=full; update t set n = n + 1;'; done) | sqlite3 db; {count}
         sqlite3 db 'select n from t'"
    );
    let said = stage.script(&[], &script).ends_with(0);
    let lines: Vec<_> = said.out.lines().collect();
    let [_, before, after, rows] = lines[..] else {
        panic!("{}", said.out);
    };
    let number = |text: &str| text.parse::<usize>().unwrap();
    assert_eq!(number(rows), UPDATES + 1);
    let (before, after) = (number(before), number(after));
    assert!(before > 0);
    assert!(after - before < 10, "{before} {after}");
}

#[test]
fn a_page_of_a_killed_bridge_is_not_believed() {
    let stage = Stage::new();
    // The first fsync maps the page. The second must notice that the bridge is another one.
    let script = format!(
        "exec {PYTHON} -S -c \"
import os, time
fd = os.open('pfs/file', os.O_CREAT | os.O_RDWR)
os.fsync(fd)
open('started', 'w').close()
while not os.path.exists('go'): time.sleep(0.02)
os.write(fd, b'through an old descriptor')
os.fsync(fd)
os.fsync(fd)
open('synced', 'w').close()
while not os.path.exists('end'): time.sleep(0.02)
\""
    );
    let child = start(patient(&stage, &script));
    stage.wait_for_file("started");
    let first = stage.bridge_pid();
    kill("KILL", first);
    fs::write(stage.path("go"), "").unwrap();
    stage.wait_for_file("synced");
    let bridges = stage.bridges();
    let operations = &bridges[0]["server"]["operations"];
    assert_ne!(bridges[0]["pid"], first);
    // Its own page is mapped. It has made everything durable before it served, so nobody has to ask.
    assert_eq!(operations["words"], 1);
    fs::write(stage.path("end"), "").unwrap();
    wait(child).ends_with(0);
    assert_eq!(stage.on_pfs()["file"], "through an old descriptor");
}

#[test]
fn fsync_fails_when_no_bridge_can_promise_anything() {
    let stage = Stage::new();
    let script = format!(
        "export FOREBAY_RECONNECT_S=0; exec {PYTHON} -S -c \"
import os, time
fd = os.open('pfs/file', os.O_CREAT | os.O_RDWR)
outside = os.open('outside', os.O_CREAT | os.O_RDWR)
os.fsync(fd)
open('started', 'w').close()
while not os.path.exists('go'): time.sleep(0.02)
os.write(fd, b'x')
for number in (fd, outside):
    try: os.fsync(number); print('done')
    except OSError as e: print(e.errno)
\""
    );
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    let child = start(stage.script_command(&[], &script));
    stage.wait_for_file("started");
    let bridge = stage.bridge_pid();
    // Whoever starts the next bridge waits for this name.
    let instance = fs::read_dir(stage.path("storage"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let (tables, away) = (instance.join("meta"), instance.join("away"));
    fs::rename(&tables, &away).unwrap();
    fs::write(&tables, "no tables").unwrap();
    kill("KILL", bridge);
    stage.wait_for("the end of the bridge", || {
        !std::path::Path::new(&format!("/proc/{bridge}/exe")).exists()
    });
    fs::write(stage.path("go"), "").unwrap();
    let said = wait(child);
    assert_eq!(said.out, format!("{}\ndone\n", libc::EIO), "{}", said.err);
}
