//! Jobs without MPI: pipelines, programs that execute others, launchers that only set an environment.

use crate::common::PYTHON;
use crate::job::{Job, only, record, record_command, write};
use crate::stage::{Stage, finish};
use std::fs;
use std::io::Write as _;

#[test]
fn the_programs_of_a_pipeline_are_all_counted_and_all_in_the_tree() {
    let stage = Stage::new();
    fs::write(stage.path("in"), "b\na\n").unwrap();
    record(&stage, "cat in | sort | cat > out; exit 3")
        .ends_with(3)
        .tells("forebay: log ");
    let job = Job::of(&stage);
    let read = job.bytes(&stage, "in");
    assert_eq!(read.values().map(|b| b.0).sum::<i64>(), 4);
    let written = job.bytes(&stage, "out");
    assert_eq!(written.values().map(|b| b.1).sum::<i64>(), 4);
    let programs = job.log.facts().unwrap().unwrap().programs;
    for name in ["cat in", "sort", "cat"] {
        let one = programs.iter().find(|one| one.command == name);
        let one = one.unwrap_or_else(|| panic!("{name} is not among {programs:#?}"));
        assert!(one.rank.is_some() && one.parent.is_some(), "{one:#?}");
    }
    assert_eq!(job.line("exit"), "code 3");
    assert_eq!(job.line("mpi"), "0");
    assert_eq!(fs::read_to_string(stage.path("out")).unwrap(), "a\nb\n");
}

#[test]
fn what_a_process_did_before_and_after_exec_is_one_rank() {
    let stage = Stage::new();
    let script = format!(
        "exec {PYTHON} -c \"\nimport os\nopen('one', 'w').write('x' * 1000)\n\
         os.execv('{PYTHON}', ['{PYTHON}', '-c', 'open(\\\"two\\\", \\\"w\\\").write(\\\"y\\\" * 500)'])\""
    );
    record(&stage, &script).ends_with(0);
    let job = Job::of(&stage);
    let ranks: Vec<i64> = ["one", "two"]
        .iter()
        .flat_map(|name| job.bytes(&stage, name).into_keys())
        .collect();
    assert_eq!(ranks, [0, 0]);
    assert_eq!(job.bytes(&stage, "one"), only(0, 0, 1000));
    assert_eq!(job.bytes(&stage, "two"), only(0, 0, 500));
}

#[test]
fn a_launcher_that_sets_rank_and_world_size_makes_ranks() {
    let stage = Stage::new();
    let worker = format!(
        "{PYTHON} -c \"import os; r = int(os.environ['RANK']); \
         open(f'own.{{r}}', 'w').write('x' * (r + 1)); open('in').read()\""
    );
    fs::write(stage.path("in"), "data").unwrap();
    // The ranks start in reverse order, so that only the environment can give them the right numbers.
    let script = format!(
        "for r in 2 1 0; do RANK=$r WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=29500 {worker} & done; wait"
    );
    record(&stage, &script).ends_with(0);
    let job = Job::of(&stage);
    assert_eq!(job.log.job.nprocs, 3);
    assert_eq!(job.line("launches"), "3");
    for rank in 0..3 {
        assert_eq!(
            job.bytes(&stage, &format!("own.{rank}")),
            only(rank, 0, rank + 1)
        );
    }
    // All ranks have read it.
    assert_eq!(job.bytes(&stage, "in"), only(-1, 12, 0));
}

#[test]
fn the_environment_of_a_batch_script_makes_no_ranks() {
    let stage = Stage::new();
    let script = format!("{}; {}", write("one", 10), write("two", 20));
    let mut command = record_command(&stage, &script);
    // As Slurm sets it for a script that has asked for four tasks.
    command.env("SLURM_PROCID", "0").env("SLURM_NTASKS", "4");
    command.env("SLURM_JOB_ID", "4711");
    finish(command).ends_with(0);
    let job = Job::of(&stage);
    assert_eq!(job.line("launches"), "");
    assert_eq!(job.line("mpi"), "0");
    assert_eq!((job.log.job.nprocs, job.log.job.id), (1, 4711));
    assert_eq!(job.bytes(&stage, "one"), only(0, 0, 10));
    assert_eq!(job.bytes(&stage, "two"), only(0, 0, 20));
}

#[test]
fn two_jobs_at_the_same_time_do_not_mix() {
    let stage = Stage::new();
    let script = |own: &str| {
        let late = write(&format!("{own}.late"), 7);
        format!(
            "{}; while [ ! -e go ]; do sleep 0.01; done; {late}",
            write(own, 5)
        )
    };
    let start = |own: &str| {
        let log = format!("{own}.darshan");
        let arguments = ["record", "--log", &log, "--", "bash", "-c", &script(own)];
        crate::stage::start(stage.forebay(&arguments))
    };
    let jobs = [start("left"), start("right")];
    stage.wait_for_file("left");
    stage.wait_for_file("right");
    fs::write(stage.path("go"), "").unwrap();
    for job in jobs {
        crate::stage::wait(job).ends_with(0);
    }
    for (own, other) in [("left", "right"), ("right", "left")] {
        let job = Job::at(&stage, &format!("{own}.darshan"));
        assert_eq!(job.written(&stage, own), 5);
        assert_eq!(job.written(&stage, &format!("{own}.late")), 7);
        assert!(job.bytes(&stage, other).is_empty());
    }
}

#[test]
fn coverage_is_near_one_for_calls_of_libc_and_lower_for_raw_system_calls() {
    let stage = Stage::new();
    let write = |how: &str| {
        format!(
            "exec {PYTHON} -c \"\nimport ctypes, os\nlibc = ctypes.CDLL(None)\n\
             fd = os.open('out', os.O_WRONLY | os.O_CREAT)\nbuffer = b'x' * (1 << 20)\n\
             for n in range(64): {how}\""
        )
    };
    record(&stage, &write("os.write(fd, buffer)")).ends_with(0);
    let (seen, total) = Job::of(&stage).coverage("coverage_written");
    assert!(seen >= (64 << 20) as f64, "{seen} of {total}");
    assert!((0.99..1.01).contains(&(seen / total)), "{seen} of {total}");
    fs::remove_file(stage.path("job.darshan")).unwrap();
    // The program calls write(2) by its number, which no library can see.
    let number = if cfg!(target_arch = "x86_64") { 1 } else { 64 };
    record(
        &stage,
        &write(&format!("libc.syscall({number}, fd, buffer, 1 << 20)")),
    )
    .ends_with(0);
    let (seen, total) = Job::of(&stage).coverage("coverage_written");
    assert!(total >= (64 << 20) as f64, "{seen} of {total}");
    assert!(seen / total < 0.1, "{seen} of {total}");
}

/// A block file system accounts what it fetches, for the process and for those that wait for it. So the count of a child of a
/// child is in that of the recorder, and it is there once.
#[test]
fn bytes_of_a_cold_file_are_noted_once_however_deep_their_reader() {
    const SIZE: u64 = 32 << 20;
    let stage = Stage::new();
    let reader = format!(
        "import os
def fetched(): return int(open('/proc/self/io').read().split('\\nread_bytes: ')[1].split()[0])
fd = os.open('cold', os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
before = fetched()
for at in range(0, {SIZE}, 1 << 20): os.pread(fd, 1 << 20, at)
print(fetched() - before)
"
    );
    fs::write(stage.path("reader.py"), reader).unwrap();
    let file = fs::File::create(stage.path("cold")).unwrap();
    (&file).write_all(&vec![b'x'; SIZE as usize]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let said = record(
        &stage,
        &format!("bash -c '{PYTHON} reader.py > delivered; true'; true"),
    );
    said.ends_with(0);
    let delivered = fs::read_to_string(stage.path("delivered")).unwrap();
    let delivered: u64 = delivered.trim().parse().unwrap();
    // No installation makes a file system account what it fetches.
    if delivered < SIZE / 2 {
        forebay_testkit::without_data(&format!(
            "the file system of {} does not account what it fetches, or keeps it in memory: {delivered} of {SIZE} bytes",
            stage.path("cold").display()
        ));
        return;
    }
    let job = Job::of(&stage);
    let number = |key: &str| job.line(key).parse::<u64>().unwrap_or(0);
    let without_code = number("fetched") - number("fetched_at_start");
    assert!(
        (delivered..2 * delivered).contains(&without_code),
        "{delivered} were fetched by the reader, {} noted, {} of them code",
        number("fetched"),
        number("fetched_at_start")
    );
}
