//! MPI-IO from C and Fortran on MPICH and Open MPI, and the ranks of the processes.

use forebay_count::Kind;
use forebay_count::read::End;

use crate::common::{self, need};
use crate::tables::{MPICH, Mpi, OPEN_MPI, Process, Stage};

const RANKS: u32 = 3;
/// `MPI_MODE_CREATE | MPI_MODE_RDWR`.
const CREATE_RDWR: (&str, i64) = ("MODE", 9);

/// Checks the counters of the C program on one rank.
fn every_call_is_counted(process: &Process, rank: u32, stage: &Stage) {
    let shared = process.record(Kind::Mpiio, &stage.path("shared"));
    shared.is(&[
        ("COLL_OPENS", 1),
        ("INDEP_READS", 1),
        ("INDEP_WRITES", 2),
        ("COLL_READS", 1),
        ("COLL_WRITES", 1),
        ("SPLIT_READS", 1),
        ("SPLIT_WRITES", 1),
        ("NB_READS", 2),
        ("NB_WRITES", 2),
        ("SYNCS", 2),
        ("HINTS", 1),
        ("VIEWS", 1),
        CREATE_RDWR,
        ("BYTES_READ", 3020),
        ("BYTES_WRITTEN", 4020),
        ("RW_SWITCHES", 1),
        ("SIZE_READ_AGG_0_100", 2),
        ("SIZE_READ_AGG_100_1K", 3),
        ("SIZE_WRITE_AGG_0_100", 2),
        ("SIZE_WRITE_AGG_100_1K", 4),
        ("ACCESS1_ACCESS", 1000),
        ("ACCESS1_COUNT", 7),
        ("ACCESS2_ACCESS", 10),
        ("ACCESS2_COUNT", 4),
    ]);
    process.record(Kind::Mpiio, &stage.path("strided")).is(&[
        ("COLL_OPENS", 1),
        ("INDEP_READS", 1),
        ("COLL_READS", 1),
        ("COLL_WRITES", 2),
        ("SPLIT_READS", 1),
        ("NB_READS", 2),
        ("VIEWS", 1),
        CREATE_RDWR,
        ("BYTES_READ", 2400),
        ("BYTES_WRITTEN", 1600),
        ("RW_SWITCHES", 2),
        ("SIZE_READ_AGG_100_1K", 5),
        ("SIZE_WRITE_AGG_100_1K", 2),
        ("ACCESS1_ACCESS", 800),
        ("ACCESS1_COUNT", 4),
        ("ACCESS2_ACCESS", 200),
        ("ACCESS2_COUNT", 2),
        ("ACCESS3_ACCESS", 400),
        ("ACCESS3_COUNT", 1),
    ]);
    let own = process.record(Kind::Mpiio, &stage.path(&format!("own.{rank}")));
    let plain = i64::from(rank) + 1;
    assert_eq!(own.get("INDEP_OPENS"), 1);
    assert_eq!(own.get("INDEP_WRITES"), plain + 1);
    assert_eq!((own.get("SPLIT_WRITES"), own.get("NB_WRITES")), (1, 3));
    assert_eq!(own.get("BYTES_WRITTEN"), 500 * plain + 800);
    assert_eq!(own.get("SIZE_WRITE_AGG_0_100"), 2);
    if rank < 2 {
        process.record(Kind::Mpiio, &stage.path("two")).is(&[
            ("COLL_OPENS", 1),
            ("INDEP_READS", 1),
            ("INDEP_WRITES", 1),
            ("COLL_READS", 1),
            ("COLL_WRITES", 1),
            ("SPLIT_READS", 1),
            ("SPLIT_WRITES", 1),
            CREATE_RDWR,
            ("BYTES_READ", 900),
            ("BYTES_WRITTEN", 900),
            ("RW_SWITCHES", 1),
            ("SIZE_READ_AGG_100_1K", 3),
            ("SIZE_WRITE_AGG_100_1K", 3),
            ("ACCESS1_ACCESS", 300),
            ("ACCESS1_COUNT", 6),
        ]);
    }
    let files = if rank < 2 { 4 } else { 3 };
    assert_eq!(process.names(Kind::Mpiio).len(), files);
    for record in process.records.iter().filter(|r| r.kind == Kind::Mpiio) {
        record.times_make_sense();
        assert!(record.time("F_CLOSE_END_TIMESTAMP") > record.time("F_OPEN_START_TIMESTAMP"));
        assert!(record.time("F_META_TIME") > 0.0);
    }
}

/// Bytes that all ranks wrote to a file through POSIX calls.
fn posix_bytes(processes: &[&Process], name: &str) -> i64 {
    let records = processes.iter().flat_map(|p| &p.records);
    records
        .filter(|r| r.kind == Kind::Posix && r.name == name)
        .map(|r| r.get("BYTES_WRITTEN"))
        .sum()
}

fn c(mpi: &Mpi, options: &[&str]) {
    c_under(mpi, options, &[]);
}

/// Runs the C program with the first words of a command before it.
fn c_under(mpi: &Mpi, options: &[&str], before: &[&str]) {
    let stage = Stage::new();
    let program = stage.compile(mpi.c, "mpi_files.c", &[]);
    let mut command = before.to_vec();
    command.extend([program.as_str(), stage.dir()]);
    command.extend(options);
    let recorded = stage.ranks(mpi, RANKS, &command).succeeded();
    let ranks = recorded.by_rank();
    assert_eq!(ranks.len(), RANKS as usize);
    for (rank, process) in (0..).zip(&ranks) {
        assert_eq!(process.mpi_rank(), Some((rank, RANKS)));
        assert_eq!(process.end, End::Exit(0));
        every_call_is_counted(process, rank, &stage);
    }
    // The POSIX calls of the MPI library are counted, too. A rank's own file has only that rank; shared files have all
    // their bytes.
    for rank in 0..RANKS {
        let name = stage.path(&format!("own.{rank}"));
        let plain = 500 * (i64::from(rank) + 1);
        assert_eq!(
            posix_bytes(&ranks[rank as usize..][..1], &name),
            plain + 800,
            "{name}"
        );
        assert_eq!(posix_bytes(&ranks, &name), plain + 800, "{name}");
    }
    assert_eq!(
        posix_bytes(&ranks, &stage.path("shared")),
        i64::from(RANKS) * 4020
    );
    assert_eq!(posix_bytes(&ranks, &stage.path("two")), 2 * 900);
}

#[test]
fn every_call_is_counted_in_front_of_the_collective_layer() {
    need!("mpiexec.openmpi", "mpicc.openmpi");
    let (recorder, layer) = (common::recorder(), common::collective());
    let preload = format!("LD_PRELOAD={}:{}", recorder.display(), layer.display());
    let always = "FOREBAY_COLLECTIVE_HINTS=forebay_collective=always";
    c_under(&OPEN_MPI, &[], &["env", &preload, always]);
}

/// Behind the layer it sees what the layer passes on. The program must not notice the order.
#[test]
fn the_recorder_may_stand_behind_the_collective_layer() {
    need!("mpiexec.openmpi", "mpicc.openmpi");
    let stage = Stage::new();
    let program = stage.compile(OPEN_MPI.c, "mpi_files.c", &[]);
    let (recorder, layer) = (common::recorder(), common::collective());
    let preload = format!("LD_PRELOAD={}:{}", layer.display(), recorder.display());
    let command = ["env", &preload, &program, stage.dir()];
    stage.ranks(&OPEN_MPI, RANKS, &command).succeeded();
}

#[test]
fn every_call_of_c_is_counted_on_mpich() {
    need!("mpiexec.mpich", "mpicc.mpich");
    // ROMIO takes the name of the file system in front of a path.
    c(&MPICH, &["ufs:"]);
}

#[test]
fn every_call_of_c_is_counted_on_open_mpi() {
    need!("mpiexec.openmpi", "mpicc.openmpi");
    c(&OPEN_MPI, &[]);
}

fn fortran(mpi: &Mpi, source: &str) {
    let stage = Stage::new();
    let program = stage.compile(mpi.fortran, source, &[]);
    let recorded = stage.ranks(mpi, 2, &[&program, stage.dir()]).succeeded();
    let ranks = recorded.by_rank();
    assert_eq!(ranks.len(), 2);
    for (rank, process) in (0..).zip(&ranks) {
        assert_eq!(process.mpi_rank(), Some((rank, 2)));
        assert_eq!(process.names(Kind::Mpiio).len(), 1);
        process.record(Kind::Mpiio, &stage.path("fortran")).is(&[
            ("COLL_OPENS", 1),
            ("INDEP_WRITES", 1),
            ("COLL_READS", 1),
            ("COLL_WRITES", 1),
            ("SPLIT_READS", 1),
            ("NB_WRITES", 1),
            ("SYNCS", 1),
            ("VIEWS", 1),
            CREATE_RDWR,
            ("BYTES_READ", 880),
            ("BYTES_WRITTEN", 2000),
            ("RW_SWITCHES", 1),
            ("SIZE_READ_AGG_0_100", 1),
            ("SIZE_READ_AGG_100_1K", 1),
            ("SIZE_WRITE_AGG_100_1K", 3),
            ("ACCESS1_ACCESS", 800),
            ("ACCESS1_COUNT", 3),
            ("ACCESS2_ACCESS", 400),
            ("ACCESS2_COUNT", 1),
            ("ACCESS3_ACCESS", 80),
            ("ACCESS3_COUNT", 1),
        ]);
    }
}

#[test]
fn fortran_counts_once_on_mpich() {
    need!("mpiexec.mpich", "mpif90.mpich");
    fortran(&MPICH, "mpi_files.f90");
}

#[test]
fn fortran_counts_once_on_open_mpi() {
    need!("mpiexec.openmpi", "mpif90.openmpi");
    fortran(&OPEN_MPI, "mpi_files.f90");
}

#[test]
fn fortran_2008_counts_once_on_mpich() {
    need!("mpiexec.mpich", "mpif90.mpich");
    fortran(&MPICH, "mpi_files_f08.f90");
}

#[test]
fn fortran_2008_counts_once_on_open_mpi() {
    need!("mpiexec.openmpi", "mpif90.openmpi");
    fortran(&OPEN_MPI, "mpi_files_f08.f90");
}

/// Rank 1 dies in the way `how` after all ranks have written. The tables hold everything that was written before.
fn dies(mpi: &Mpi, how: &str) {
    let stage = Stage::new();
    let program = stage.compile(mpi.c, "mpi_dies.c", &[]);
    let recorded = stage.ranks(mpi, 2, &[&program, &stage.path("file"), how]);
    assert_ne!(recorded.code, Some(0));
    let ranks = recorded.by_rank();
    assert_eq!(ranks.len(), 2, "{}", recorded.output);
    for process in &ranks {
        let record = process.record(Kind::Mpiio, &stage.path("file"));
        assert_eq!(record.get("INDEP_WRITES"), 100);
        assert_eq!(record.get("BYTES_WRITTEN"), 100 * 64);
    }
    let expected = if how == "abort" {
        End::MpiAbort(7)
    } else {
        End::Unsaid
    };
    assert_eq!(ranks[1].end, expected);
}

#[test]
fn mpi_abort_and_a_killed_rank_lose_nothing_on_mpich() {
    need!("mpiexec.mpich", "mpicc.mpich");
    dies(&MPICH, "abort");
    dies(&MPICH, "kill");
}

#[test]
fn mpi_abort_and_a_killed_rank_lose_nothing_on_open_mpi() {
    need!("mpiexec.openmpi", "mpicc.openmpi");
    dies(&OPEN_MPI, "abort");
    dies(&OPEN_MPI, "kill");
}

#[test]
fn mpi_that_python_loads_for_itself_alone_is_found() {
    need!("mpiexec.openmpi");
    let stage = Stage::new();
    let script = format!(
        "from mpi4py import MPI\n\
         f = MPI.File.Open(MPI.COMM_WORLD, '{}', MPI.MODE_CREATE | MPI.MODE_WRONLY)\n\
         f.Write_at_all(100 * MPI.COMM_WORLD.rank, b'x' * 100)\n\
         f.Close()\n",
        stage.path("python")
    );
    let recorded = stage
        .ranks(&OPEN_MPI, 2, &["/usr/bin/python3", "-c", &script])
        .succeeded();
    let ranks = recorded.by_rank();
    assert_eq!(ranks.len(), 2);
    for process in ranks {
        process.record(Kind::Mpiio, &stage.path("python")).is(&[
            ("COLL_OPENS", 1),
            ("COLL_WRITES", 1),
            ("MODE", 5),
            ("BYTES_WRITTEN", 100),
            ("SIZE_WRITE_AGG_0_100", 1),
            ("ACCESS1_ACCESS", 100),
            ("ACCESS1_COUNT", 1),
        ]);
    }
}
