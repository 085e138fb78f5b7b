//! Pools of Python's multiprocessing: every file of every worker is in the one log.

use crate::common::PYTHON;
use crate::job::Job;
use crate::stage::{Stage, finish};
use std::fs;

const POOL: &str = r#"
import multiprocessing, os, sys

def write(n):
    with open(f"part.{n}", "w") as f:
        f.write("x" * (1000 + n))
    return os.getpid()

if __name__ == "__main__":
    how, end = sys.argv[1:]
    context = multiprocessing.get_context(how)
    if end == "terminate":
        with context.Pool(4) as pool:
            pool.map(write, range(16), chunksize=1)
    else:
        pool = context.Pool(4)
        pool.map(write, range(16), chunksize=1)
        pool.close()
        pool.join()
"#;

fn all_files_are_there(how: &str) {
    for end in ["terminate", "join"] {
        let stage = Stage::new();
        fs::write(stage.path("pool.py"), POOL).unwrap();
        let arguments = [
            "record",
            "--log",
            "job.darshan",
            "--",
            PYTHON,
            "pool.py",
            how,
            end,
        ];
        finish(stage.forebay(&arguments)).ends_with(0);
        let job = Job::of(&stage);
        let found: Vec<i64> = (0..16)
            .filter(|n| {
                let bytes = job.bytes(&stage, &format!("part.{n}"));
                bytes.len() == 1 && bytes.values().all(|b| *b == (0, 1000 + n))
            })
            .collect();
        assert_eq!(found, (0..16).collect::<Vec<_>>(), "{how}, {end}");
    }
}

#[test]
fn workers_that_are_forked() {
    all_files_are_there("fork");
}

#[test]
fn workers_that_are_spawned() {
    all_files_are_there("spawn");
}

#[test]
fn workers_of_a_fork_server() {
    all_files_are_there("forkserver");
}
