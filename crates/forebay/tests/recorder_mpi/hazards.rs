//! Hard cases: full tables, threads, other tools, calls that fail, and programs without MPI.

use forebay_count::{ENV_RECORD_MEMORY, Kind};

use crate::common::{self, need};
use crate::tables::{MPICH, OPEN_MPI, Process, Stage};

/// Sums over all records of MPI-IO.
fn sums(process: &Process, counters: [&str; 4]) -> [i64; 4] {
    let records = process.records.iter().filter(|r| r.kind == Kind::Mpiio);
    records.fold([0; 4], |sums, record| {
        std::array::from_fn(|at| sums[at] + record.get(counters[at]))
    })
}

#[test]
fn a_full_table_keeps_exact_totals_of_mpi_io() {
    need!("mpicc.mpich");
    let stage = Stage::new();
    let program = stage.compile(MPICH.c, "mpi_many.c", &["-pthread"]);
    let recorded = stage
        .record_with(
            &[&program, stage.dir(), "400", "0"],
            &[(ENV_RECORD_MEMORY, "65536")],
        )
        .succeeded();
    let process = recorded.one_with(Kind::Mpiio);
    let counters = [
        "INDEP_OPENS",
        "INDEP_WRITES",
        "BYTES_WRITTEN",
        "SIZE_WRITE_AGG_0_100",
    ];
    assert_eq!(sums(process, counters), [401, 400, 6400, 400]);
    assert!(
        process.names(Kind::Mpiio).len() < 400,
        "the table was meant to be full"
    );
    assert!(
        process
            .names(Kind::Mpiio)
            .iter()
            .any(|name| name.ends_with("<other files>"))
    );
}

#[test]
fn threads_on_one_file_are_counted_exactly() {
    need!("mpicc.mpich");
    let stage = Stage::new();
    let program = stage.compile(MPICH.c, "mpi_many.c", &["-pthread"]);
    let recorded = stage.record(&[&program, stage.dir(), "0", "4"]).succeeded();
    let record = recorded
        .one_with(Kind::Mpiio)
        .record(Kind::Mpiio, &stage.path("shared.4"));
    assert_eq!(
        (record.get("INDEP_READS"), record.get("INDEP_WRITES")),
        (2000, 2000)
    );
    assert_eq!(
        (record.get("BYTES_READ"), record.get("BYTES_WRITTEN")),
        (16_000, 16_000)
    );
    assert_eq!(
        (record.get("ACCESS1_ACCESS"), record.get("ACCESS1_COUNT")),
        (8, 4000)
    );
}

#[test]
fn another_tool_sees_its_calls_and_each_counts_once() {
    need!("mpicc.mpich", "mpicc.openmpi");
    for mpi in [MPICH, OPEN_MPI] {
        let stage = Stage::new();
        let program = stage.compile(mpi.c, "mpi_many.c", &["-pthread"]);
        let tool = stage.compile(mpi.c, "pmpi_tool.c", &["-shared", "-fPIC"]);
        let recorder = common::recorder();
        // The other tool stands after the recorder, then before it.
        for preload in [
            format!("LD_PRELOAD={}:{tool}", recorder.display()),
            format!("LD_PRELOAD={tool}:{}", recorder.display()),
        ] {
            let recorded = stage
                .ranks(&mpi, 1, &["env", &preload, &program, stage.dir(), "7", "0"])
                .succeeded();
            assert!(
                recorded.output.contains("the tool saw 7 writes"),
                "{}",
                recorded.output
            );
            let process = recorded.one_with(Kind::Mpiio);
            assert_eq!(process.mpi_rank(), Some((0, 1)));
            let counters = [
                "INDEP_OPENS",
                "INDEP_WRITES",
                "BYTES_WRITTEN",
                "INDEP_READS",
            ];
            let opened = sums(process, counters);
            assert_eq!(opened[1..], [7, 112, 0]);
        }
    }
}

#[test]
fn calls_that_fail_are_not_counted() {
    need!("mpicc.mpich", "mpicc.openmpi");
    for mpi in [MPICH, OPEN_MPI] {
        let stage = Stage::new();
        let program = stage.compile(mpi.c, "mpi_wrong.c", &[]);
        let file = stage.path("file");
        let recorded = stage.ranks(&mpi, 1, &[&program, &file]).succeeded();
        recorded
            .one_with(Kind::Mpiio)
            .record(Kind::Mpiio, &file)
            .is(&[
                ("INDEP_OPENS", 1),
                ("INDEP_WRITES", 1),
                ("MODE", 5),
                ("BYTES_WRITTEN", 1),
                ("SIZE_WRITE_AGG_0_100", 1),
                ("ACCESS1_ACCESS", 1),
                ("ACCESS1_COUNT", 1),
            ]);
    }
}

#[test]
fn a_program_that_looks_mpi_up_by_itself_runs_on_and_its_bytes_are_seen_below() {
    need!("mpiexec.mpich");
    let stage = Stage::new();
    let file = stage.path("ctypes");
    let script = format!(
        "import ctypes\n\
         mpi = ctypes.CDLL('libmpich.so.12')\n\
         mpi.MPI_Init(None, None)\n\
         file = ctypes.c_void_p()\n\
         open_error = mpi.MPI_File_open(0x44000001, b'{file}', 5, 0x1c000000, ctypes.byref(file))\n\
         write_error = mpi.MPI_File_write(file, b'x' * 100, 100, 0x4c00010d, ctypes.c_void_p(1))\n\
         mpi.MPI_File_close(ctypes.byref(file))\n\
         mpi.MPI_Finalize()\n\
         assert (open_error, write_error) == (0, 0)\n"
    );
    let recorded = stage
        .record(&["/usr/bin/python3", "-c", &script])
        .succeeded();
    let record = recorded.one_with(Kind::Posix).record(Kind::Posix, &file);
    assert_eq!(record.get("BYTES_WRITTEN"), 100);
}

#[test]
fn a_kill_at_any_instant_loses_no_call_that_came_back() {
    need!("mpicc.mpich");
    let stage = Stage::new();
    let program = stage.compile(MPICH.c, "mpi_killed.c", &[]);
    let (file, progress) = (stage.path("file"), stage.path("progress"));
    for round in 0..20u32 {
        // The kills are spread over the first 20 ms.
        let microseconds = (1 + round.wrapping_mul(2_654_435_761) % 20_000).to_string();
        let recorded = stage.record(&[&program, &file, &progress, &microseconds]);
        assert_eq!(recorded.code, None, "killed: {}", recorded.output);
        let came_back = i64::from_ne_bytes(std::fs::read(&progress).unwrap().try_into().unwrap());
        let record = recorded.one_with(Kind::Mpiio).record(Kind::Mpiio, &file);
        // The call in which the kill came may be counted in part.
        let calls = came_back..=came_back + 1;
        assert!(
            calls.contains(&record.get("INDEP_WRITES")),
            "{came_back} came back"
        );
        assert!(
            calls.contains(&(record.get("BYTES_WRITTEN") / 8)),
            "{came_back} came back"
        );
        assert!(
            calls.contains(&record.get("SIZE_WRITE_AGG_0_100")),
            "{came_back} came back"
        );
    }
}
