//! The same programs under `forebay record`: what the records of the ranks become in the job's log.

use std::process::Command;

use darshan_log::counters::{h5d, h5f, mpiio, pnetcdf_file, pnetcdf_var};
use darshan_log::{
    CounterModule, H5d, H5f, Heatmap, Log, Module, MpiIo, PnetcdfFile, PnetcdfVar, Record,
};

use crate::common::{self, need};
use crate::hdf5;
use crate::pnetcdf;
use crate::tables::{MPICH, Mpi, OPEN_MPI, Stage};

/// Runs ranks of a program and opens the log of the job.
fn log_of(stage: &Stage, mpi: &Mpi, ranks: u32, command: &[&str]) -> Log {
    let log = stage.path("job.darshan");
    let number = ranks.to_string();
    let sessions = tempfile::tempdir().unwrap();
    let out = Command::new(common::forebay())
        .args(["record", "--log", &log, "--"])
        .args(mpi.start)
        .args(["-n", &number])
        .args(command)
        .current_dir(stage.dir())
        .env("FOREBAY_RECORDER", common::recorder())
        .env("FOREBAY_TABLES", stage.dir())
        .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
        .env("OMPI_MCA_orte_tmpdir_base", sessions.path())
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let log = Log::open(&log).unwrap();
    assert_eq!(log.job.nprocs, i64::from(ranks));
    log
}

/// The records of one name in a module.
fn records<M: CounterModule + Module<Record = Record<M>>>(log: &Log, name: &str) -> Vec<Record<M>> {
    let all = log.records::<M>().map(|record| record.unwrap());
    all.filter(|record| log.names.get(record.id).as_deref() == Some(name))
        .collect()
}

/// The one record of a name that all ranks share.
fn shared<M: CounterModule + Module<Record = Record<M>>>(log: &Log, name: &str) -> Record<M> {
    let mut found = records::<M>(log, name);
    assert_eq!(found.len(), 1, "{name}");
    let record = found.remove(0);
    assert_eq!(record.rank, -1, "{name}");
    record
}

fn mpi_files(mpi: &Mpi) {
    let stage = Stage::new();
    let program = stage.compile(mpi.c, "mpi_files.c", &[]);
    let log = log_of(&stage, mpi, 3, &[&program, stage.dir()]);
    use mpiio::Counter::*;
    let all = shared::<MpiIo>(&log, &stage.path("shared"));
    let seen = [
        CollOpens,
        CollWrites,
        NbReads,
        Views,
        Hints,
        BytesRead,
        BytesWritten,
    ]
    .map(|c| all.get(c));
    assert_eq!(seen, [3, 3, 6, 3, 3, 9060, 12_060]);
    assert_eq!((all.get(Access1Access), all.get(Access1Count)), (1000, 21));
    assert_eq!((all.get(Access2Access), all.get(Access2Count)), (10, 12));
    // A file of two of three ranks keeps a record for each.
    let some = records::<MpiIo>(&log, &stage.path("two"));
    assert_eq!(some.iter().map(|r| r.rank).collect::<Vec<_>>(), [0, 1]);
    for rank in 0..3 {
        let own = records::<MpiIo>(&log, &stage.path(&format!("own.{rank}")));
        assert_eq!(own.iter().map(|r| r.rank).collect::<Vec<_>>(), [rank]);
    }
    let of_all: i64 = log
        .records::<MpiIo>()
        .map(|r| r.unwrap().get(BytesWritten))
        .sum();
    let maps = log.records::<Heatmap>().map(|map| map.unwrap());
    let mpiio = maps.filter(|map| log.names.get(map.id).as_deref() == Some("heatmap:MPIIO"));
    // A transfer over the end of a bin is split by time, and rounded.
    let in_maps: i64 = mpiio.map(|map| map.written.iter().sum::<i64>()).sum();
    assert!(
        (of_all - in_maps).abs() <= 10,
        "{of_all} bytes, {in_maps} in the maps"
    );
}

#[test]
fn mpi_io_of_mpich_in_the_log() {
    need!("mpiexec.mpich", "mpicc.mpich");
    mpi_files(&MPICH);
}

#[test]
fn mpi_io_of_open_mpi_in_the_log() {
    need!("mpiexec.openmpi", "mpicc.openmpi");
    mpi_files(&OPEN_MPI);
}

#[test]
fn parallel_hdf5_in_the_log() {
    need!("mpiexec.openmpi", "mpicc.openmpi");
    let Some(flags) = hdf5::flags("openmpi") else {
        return;
    };
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let stage = Stage::new();
    let program = stage.compile(OPEN_MPI.c, "hdf5_parallel.c", &flags);
    let name = stage.path("parallel.h5");
    let log = log_of(&stage, &OPEN_MPI, 2, &[&program, &name]);
    let file = shared::<H5f>(&log, &name);
    assert_eq!(file.get(h5f::Counter::Opens), 2);
    let grid = shared::<H5d>(&log, &format!("{name}:/grid"));
    assert_eq!(grid.extra.file_id, file.id);
    use h5d::Counter::*;
    let seen = [
        Opens,
        Reads,
        Writes,
        BytesRead,
        BytesWritten,
        RegularHyperslabSelects,
    ]
    .map(|c| grid.get(c));
    assert_eq!(seen, [2, 2, 2, 8000, 8000, 4]);
    let access = [
        Access1Access,
        Access1LengthD4,
        Access1LengthD5,
        Access1StrideD4,
        Access1Count,
    ];
    assert_eq!(access.map(|c| grid.get(c)), [4000, 100, 10, 1, 4]);
    let shape = [
        DataspaceNdims,
        DataspaceNpoints,
        DatatypeSize,
        UseMpiioCollective,
    ];
    assert_eq!(shape.map(|c| grid.get(c)), [2, 2000, 4, 1]);
}

#[test]
fn pnetcdf_in_the_log() {
    need!("mpiexec.openmpi", "mpicc.openmpi");
    if pnetcdf::is_missing() {
        return;
    }
    let stage = Stage::new();
    let program = stage.compile(OPEN_MPI.c, "pnetcdf_calls.c", &["-lpnetcdf"]);
    let name = stage.path("p.nc");
    let log = log_of(&stage, &OPEN_MPI, 2, &[&program, &name]);
    let file = shared::<PnetcdfFile>(&log, &name);
    use pnetcdf_file::Counter as File;
    assert_eq!(
        [File::Creates, File::Opens, File::CollWaits].map(|c| file.get(c)),
        [2, 2, 4]
    );
    let series = shared::<PnetcdfVar>(&log, &format!("{name}:series"));
    assert_eq!(series.extra.file_id, file.id);
    use pnetcdf_var::Counter as Variable;
    let seen = [
        Variable::BytesRead,
        Variable::BytesWritten,
        Variable::NbWrites,
        Variable::IsRecordVar,
    ];
    assert_eq!(seen.map(|c| series.get(c)), [960, 640, 4, 1]);
}
