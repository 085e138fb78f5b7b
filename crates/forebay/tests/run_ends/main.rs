//! What `forebay run` says at its end is true, whatever the children of its command do around that moment.
//!
//! The machine: `actors.c` begins children that create, write, rename, remove, map, pass descriptors, detach, die and
//! begin further ones, before, at and after the end of the command, and write down what was acknowledged. After each
//! run the PFS, on another file system than the storage, is compared with that.

#[path = "../common/mod.rs"]
mod common;
mod programs;
#[path = "../cli_verbs/stage.rs"]
mod stage;

use forebay_sys as sys;
use stage::Stage;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs in a usual test.
const SHARE: u64 = 40;
/// Runs when the machine is asked for all.
const ALL: u64 = 10_000;
/// Exit status if the command has killed itself.
const KILLED: i32 = 128 + 9;
/// Runs at once.
const WORKERS: usize = 8;

/// What the children have written down.
#[derive(Default)]
struct Ledger {
    /// What each name may hold: what was acknowledged last, and what was begun since by one who was killed.
    names: BTreeMap<String, BTreeSet<String>>,
    errors: Vec<String>,
    lines: usize,
}

impl Ledger {
    fn read(path: &PathBuf) -> Ledger {
        let mut ledger = Ledger::default();
        for line in fs::read_to_string(path).unwrap().lines() {
            ledger.lines += 1;
            let words: Vec<&str> = line.split(' ').collect();
            if words[0] == "E" {
                ledger.errors.push(line.to_owned());
                continue;
            }
            for change in words[1..].chunks(2) {
                let absent = || BTreeSet::from(["-".to_owned()]);
                let may = ledger
                    .names
                    .entry(change[0].to_owned())
                    .or_insert_with(absent);
                if words[0] == "D" {
                    may.clear();
                }
                may.insert(change[1].to_owned());
            }
        }
        ledger
    }

    /// How the PFS differs from what was acknowledged.
    fn differences(&self, stage: &Stage) -> Vec<String> {
        let found = on_pfs(stage);
        let absent = "-".to_owned();
        let mut wrong = Vec::new();
        for (name, may) in &self.names {
            let holds = found.get(name).unwrap_or(&absent);
            if !may.contains(holds) {
                wrong.push(format!("{name} holds {holds:?}, not {may:?}"));
            }
        }
        let is_known = |name: &&String| self.names.contains_key(*name);
        let unknown = found.keys().filter(|name| !is_known(name));
        wrong.extend(unknown.map(|name| format!("{name} comes from nowhere")));
        wrong
    }
}

fn on_pfs(stage: &Stage) -> BTreeMap<String, String> {
    let entries = fs::read_dir(stage.pfs()).unwrap().map(Result::unwrap);
    entries
        .filter(|entry| entry.file_name() != ".forebay-lock")
        .map(|entry| {
            let holds = match fs::read_to_string(entry.path()) {
                Ok(text) if text.is_empty() => ".".to_owned(),
                Ok(text) => text,
                Err(_) => "/".to_owned(),
            };
            (entry.file_name().into_string().unwrap(), holds)
        })
        .collect()
}

fn compiled(stage: &Stage) -> PathBuf {
    let program = stage.path("actors");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run_ends/actors.c");
    let mut gcc = stage.command("gcc");
    gcc.args(["-O1", "-Wall", "-o"]).arg(&program).arg(source);
    stage::finish(gcc).ends_with(0);
    program
}

/// What became of some runs.
#[derive(Debug, Default)]
struct Figures {
    runs: u64,
    changes: usize,
    /// Runs that said that processes go on.
    went_on: u64,
    /// Runs that ended with 75.
    left: u64,
}

/// One run. The error says which promise was broken.
fn one_run(stage: &Stage, seed: u64, figures: &Mutex<Figures>) -> Result<(), String> {
    let ledger = stage.path("ledger");
    let _ = fs::remove_file(&ledger);
    let options: &[&str] = match seed % 8 {
        0 => &["--no-wait"],
        1 => &["--keep"],
        _ => &[],
    };
    let mut command = stage.forebay(&["run", "--buffer", "pfs", "--no-record"]);
    command.args(options).arg("--").arg(stage.path("actors"));
    command.arg(seed.to_string()).arg(stage.pfs()).arg(&ledger);
    let said = stage::finish(command);
    let goes_on = said.err.contains("  goes on ");
    // Looked at now: nothing that happens later counts for what was said.
    let then = Ledger::read(&ledger);
    let wrong = match (said.code, goes_on) {
        (0 | KILLED, false) => then.differences(stage),
        _ => Vec::new(),
    };
    stage.wait_for("the end of the children", || !sys::is_locked(&ledger));
    stage.wait_for("the end of the bridge", || !is_served(stage));
    let end = Ledger::read(&ledger);
    let told = |what: &str| Err(format!("seed {seed}: {what}\n{}", said.err));
    if !end.errors.is_empty() {
        return told(&format!("children got errors: {:?}", end.errors));
    }
    if !wrong.is_empty() {
        return told(&format!("exit 0, and not on the PFS: {wrong:?}"));
    }
    let is_expected = match said.code {
        0 | KILLED => true,
        75 => goes_on,
        _ => false,
    };
    if !is_expected {
        return told(&format!("exit {}", said.code));
    }
    if !goes_on && end.lines != then.lines {
        return told("a child that was not waited for has gone on");
    }
    let late = end.differences(stage);
    if !late.is_empty() {
        return told(&format!("not on the PFS when all have ended: {late:?}"));
    }
    let mut figures = figures.lock().unwrap();
    figures.runs += 1;
    figures.changes += end.lines / 2;
    figures.went_on += u64::from(goes_on);
    figures.left += u64::from(said.code == 75);
    drop(figures);
    if options.contains(&"--keep") {
        // The copies go, too: the PFS may be changed from outside only then.
        stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    }
    for name in end.names.keys() {
        let path = stage.pfs().join(name);
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
    }
    Ok(())
}

/// Does a bridge hold the storage of the stage, or does a run look after processes that go on?
fn is_served(stage: &Stage) -> bool {
    let instances = fs::read_dir(stage.path("storage")).unwrap();
    instances.map(Result::unwrap).any(|instance| {
        let files = fs::read_dir(instance.path()).unwrap().map(Result::unwrap);
        let mut runs = files.filter(|file| {
            file.file_name()
                .to_string_lossy()
                .starts_with("background-")
        });
        let goes_on = |run: fs::DirEntry| {
            let text = fs::read_to_string(run.path());
            text.is_ok_and(|text| text.contains("\"result\": null"))
        };
        sys::is_locked(&instance.path().join("lock")) || runs.any(goes_on)
    })
}

fn machine(seeds: std::ops::Range<u64>) {
    let next = AtomicU64::new(seeds.start);
    let figures = Mutex::new(Figures::default());
    let broken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let stage = Stage::new();
                compiled(&stage);
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    if let Err(what) = one_run(&stage, seed, &figures) {
                        eprintln!("{what}");
                        broken.lock().unwrap().push(seed);
                        break;
                    }
                }
            });
        }
    });
    eprintln!("{:?}", figures.into_inner().unwrap());
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "broken with the seeds {broken:?}");
}

#[test]
fn what_a_run_says_at_its_end_is_true_whatever_children_do_then() {
    machine(1..1 + SHARE);
}

#[test]
#[ignore = "ten thousand runs: half an hour on two processors"]
fn ten_thousand_runs_end_with_what_is_true() {
    machine(1..1 + ALL);
}
