//! The programs of a job are in its log: who started whom, and for which rank each counts.

use crate::stage::{MS, Stage, image};
use darshan_log::file_facts::{Program, ProgramEnd};

#[test]
fn a_log_says_who_started_whom_and_how_each_ended() {
    let mut stage = Stage::new();
    let shell = image(10, 1, "bash");
    stage.table(&shell, |_| {});
    // The helper begins before the shell executes the interpreter, and another one after that.
    let mut helper = image(11, 10, "dirname");
    helper.end = (1, 3);
    stage.table(&helper, |_| {});
    stage.table(&shell.clone().then("sim.py"), |does| {
        does.write("/d/out", 0, 1000, 1);
    });
    let mut killed = image(30, 10, "cat");
    killed.end = (0, 0);
    stage.table(&killed, |does| does.read("/d/in", 0, 500, 1));
    let (_, log) = stage.collect();
    let programs: Vec<Program> = log.facts().unwrap().unwrap().programs;
    let told: Vec<_> = programs
        .iter()
        .map(|one| (one.pid, one.parent, one.rank, one.end))
        .collect();
    assert_eq!(
        told,
        [
            (10, None, Some(0), ProgramEnd::Exited(0)),
            (11, Some(0), Some(0), ProgramEnd::Exited(3)),
            (10, Some(0), Some(0), ProgramEnd::Exited(0)),
            (30, Some(2), Some(0), ProgramEnd::Killed),
        ]
    );
    assert_eq!(programs[2].command, "sim.py -x");
    assert_eq!((programs[2].bytes_written, programs[2].call_ns), (1000, MS));
    assert_eq!(
        (programs[3].bytes_read, programs[3].bytes_written),
        (500, 0)
    );
    assert_eq!(programs[1].start_ns, 11 * MS as i64);
    assert_eq!(log.job.nprocs, 1);
}

#[test]
fn a_program_that_was_executed_and_left_no_table_is_counted() {
    let mut stage = Stage::new();
    let mut env = image(10, 1, "env");
    env.end = (2, 0);
    stage.table(&env, |_| {});
    let (_, log) = stage.collect();
    assert_eq!(log.job.metadata.get("unrecorded"), Some("1"));
    let mut sim = env.then("sim");
    sim.end = (1, 0);
    stage.table(&sim, |_| {});
    std::fs::remove_file(stage.dir.join("job.darshan")).unwrap();
    let (_, log) = stage.collect();
    assert_eq!(log.job.metadata.get("unrecorded"), None);
}

#[test]
fn forebay_itself_is_no_program_of_the_job_and_names_the_buffer() {
    let mut stage = Stage::new();
    stage.table(&image(10, 1, "bash"), |_| {});
    let attach = image(11, 10, "forebay");
    stage.table(&attach, |does| does.write("/d/own", 0, 10, 1));
    stage.table(&attach.clone().then("sim"), |does| {
        does.write("/d/out", 0, 20, 1)
    });
    let (_, log) = stage.collect();
    let programs: Vec<Program> = log.facts().unwrap().unwrap().programs;
    let told: Vec<_> = programs
        .iter()
        .map(|one| (&*one.command, one.parent))
        .collect();
    assert_eq!(told, [("bash -x", None), ("sim -x", Some(0))]);
    let names: Vec<String> = log
        .names
        .iter()
        .map(|(_, name)| String::from_utf8_lossy(name).into_owned())
        .collect();
    assert!(names.contains(&"/d/out".to_owned()), "{names:?}");
    assert_eq!(log.records::<darshan_log::Posix>().count(), 1);
}
