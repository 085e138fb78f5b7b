//! MPI-IO on both MPI libraries, from C and from Fortran. `mpiexec` itself runs with the buffer,
//! and the ranks inherit it.

use crate::common::{case, forebay, need};

/// One library: how it compiles, and how it starts four ranks on a machine with fewer cores.
struct Mpi {
    c: &'static str,
    fortran: &'static str,
    start: &'static str,
}

const MPICH: Mpi = Mpi {
    c: "mpicc.mpich",
    fortran: "mpif90.mpich",
    start: "mpiexec.mpich -n 4",
};

const OPEN_MPI: Mpi = Mpi {
    c: "mpicc.openmpi",
    fortran: "mpif90.openmpi",
    start: "OMPI_MCA_btl_vader_single_copy_mechanism=none \
            mpiexec.openmpi --allow-run-as-root --oversubscribe -n 4",
};

/// A file that the ranks read and change, and one that they delete.
const START: &str =
    "printf '\\001\\002\\000\\000' > old; head -c 1000 /dev/zero >> old; echo x > unwanted";

fn c(mpi: &Mpi, case: crate::common::Case) {
    // The ranks reach the shared pointer in any order.
    case.start(START)
        .contents_change_in(["shared"])
        .compile_with(mpi.c, "mpi/mpi_io.c", &[])
        .same(&format!("{} \"$BIN/mpi_io\"; echo $?; ls -A", mpi.start));
}

fn fortran(mpi: &Mpi, case: crate::common::Case) {
    case.compile_with(mpi.fortran, "mpi/mpi_io_fortran.f90", &[])
        .same(&format!(
            "{} \"$BIN/mpi_io_fortran\"; echo $?; ls -A",
            mpi.start
        ));
}

#[test]
fn mpich_writes_and_reads_one_file_from_four_ranks() {
    need!("mpiexec.mpich", "mpicc.mpich");
    c(&MPICH, case!());
}

#[test]
fn open_mpi_writes_and_reads_one_file_from_four_ranks() {
    need!("mpiexec.openmpi", "mpicc.openmpi");
    c(&OPEN_MPI, case!());
}

#[test]
fn open_mpi_with_the_collective_layer_writes_and_reads_one_file_from_four_ranks() {
    need!("mpiexec.openmpi", "mpicc.openmpi");
    c(&OPEN_MPI, case!().options(["--collective"]));
}

#[test]
fn a_traced_run_on_mpich_is_replayed_with_more_processes() {
    need!("mpiexec.mpich", "mpicc.mpich");
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("calls.json");
    let trace = trace.to_str().unwrap();
    c(&MPICH, case!().options(["--collective", "--trace", trace]));
    let replay = |more: &[&str]| {
        let mut command = std::process::Command::new(forebay());
        command.args(["sim", "collective", "--trace", trace]);
        command.args(more).output().unwrap()
    };
    let replayed = replay(&["--processes", "16"]);
    assert!(replayed.status.success(), "{replayed:?}");
    let text = String::from_utf8(replayed.stdout).unwrap();
    for part in [
        "/blocks: collective write, 4 pieces, 65536 bytes, 4 processes\n",
        "  scaled: blocks one behind the other in the order of ranks",
        "  processes: 4 as 4, 16 as 16; ",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn open_mpi_with_romio_writes_and_reads_one_file_from_four_ranks() {
    need!("mpiexec.openmpi", "mpicc.openmpi");
    c(
        &Mpi {
            start: "OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_io=romio321 \
                    mpiexec.openmpi --allow-run-as-root --oversubscribe -n 4",
            ..OPEN_MPI
        },
        case!(),
    );
}

#[test]
fn fortran_on_mpich_writes_and_reads_one_file() {
    need!("mpiexec.mpich", "mpif90.mpich");
    fortran(&MPICH, case!());
}

#[test]
fn fortran_on_open_mpi_writes_and_reads_one_file() {
    need!("mpiexec.openmpi", "mpif90.openmpi");
    fortran(&OPEN_MPI, case!());
}
