//! PnetCDF from C and Fortran.

use std::path::Path;

use forebay_count::Kind;
use forebay_count::path::record_id;

use crate::common::need;
use crate::tables::{OPEN_MPI, Process, Stage};

/// Skips the test if PnetCDF is missing. Debian builds it for Open MPI only.
pub fn is_missing() -> bool {
    let missing = !Path::new("/usr/include/pnetcdf.h").exists();
    if missing {
        forebay_testkit::skip("PnetCDF is not installed (scripts/setup.sh test installs it)");
    }
    missing
}

fn grid_is_counted(process: &Process, file: &str) {
    // 10 x 20 elements of 4 bytes twice; 5 x 5 with strides written and read by a map; 1; 3 + 4; a row of 20.
    process
        .record(Kind::PnetcdfVar, &format!("{file}:grid"))
        .is(&[
            ("OPENS", 1),
            ("INDEP_READS", 1),
            ("INDEP_WRITES", 1),
            ("COLL_READS", 2),
            ("COLL_WRITES", 4),
            ("BYTES_READ", 100 + 28 + 80),
            ("BYTES_WRITTEN", 800 + 800 + 100 + 4),
            ("RW_SWITCHES", 3),
            ("PUT_VAR1", 1),
            ("PUT_VARA", 2),
            ("PUT_VARS", 1),
            ("PUT_VARD", 1),
            ("GET_VARM", 1),
            ("GET_VARN", 1),
            ("GET_VARD", 1),
            ("SIZE_READ_AGG_0_100", 3),
            ("SIZE_WRITE_AGG_0_100", 3),
            ("SIZE_WRITE_AGG_100_1K", 2),
            ("ACCESS1_ACCESS", 800),
            ("ACCESS1_LENGTH_D1", 10),
            ("ACCESS1_LENGTH_D2", 20),
            ("ACCESS1_COUNT", 2),
            ("ACCESS2_ACCESS", 100),
            ("ACCESS2_LENGTH_D1", 5),
            ("ACCESS2_LENGTH_D2", 5),
            ("ACCESS2_STRIDE_D1", 2),
            ("ACCESS2_STRIDE_D2", 4),
            ("ACCESS2_COUNT", 2),
            ("ACCESS3_ACCESS", 80),
            ("ACCESS3_COUNT", 1),
            ("ACCESS4_ACCESS", 28),
            ("ACCESS4_COUNT", 1),
            ("NDIMS", 2),
            ("NPOINTS", 400),
            ("DATATYPE_SIZE", 4),
        ]);
}

#[test]
fn files_and_variables_of_a_program_in_c() {
    need!("mpiexec.openmpi", "mpicc.openmpi");
    if is_missing() {
        return;
    }
    let stage = Stage::new();
    let program = stage.compile(OPEN_MPI.c, "pnetcdf_calls.c", &["-lpnetcdf"]);
    let file = stage.path("p.nc");
    let recorded = stage.ranks(&OPEN_MPI, 2, &[&program, &file]).succeeded();
    let ranks = recorded.by_rank();
    assert_eq!(ranks.len(), 2);
    for process in &ranks {
        let names = ["grid", "scalar", "series"].map(|name| format!("{file}:{name}"));
        assert_eq!(process.names(Kind::PnetcdfVar), names);
        for name in &names {
            let record = process.record(Kind::PnetcdfVar, name);
            assert_eq!(record.parent, record_id(file.as_bytes()));
            record.times_make_sense();
        }
        grid_is_counted(process, &file);
        // A record of 20 doubles put, buffered and got without waiting; then both records at once.
        process
            .record(Kind::PnetcdfVar, &format!("{file}:series"))
            .is(&[
                ("OPENS", 2),
                ("COLL_READS", 1),
                ("NB_READS", 1),
                ("NB_WRITES", 2),
                ("BYTES_READ", 160 + 320),
                ("BYTES_WRITTEN", 320),
                ("RW_SWITCHES", 1),
                ("IPUT_VARA", 1),
                ("BPUT_VARA", 1),
                ("IGET_VARA", 1),
                ("GET_VAR", 1),
                ("SIZE_READ_AGG_100_1K", 2),
                ("SIZE_WRITE_AGG_100_1K", 2),
                ("ACCESS1_ACCESS", 160),
                ("ACCESS1_LENGTH_D1", 1),
                ("ACCESS1_LENGTH_D2", 20),
                ("ACCESS1_COUNT", 3),
                ("ACCESS2_ACCESS", 320),
                ("ACCESS2_COUNT", 1),
                ("NDIMS", 2),
                ("NPOINTS", 20),
                ("DATATYPE_SIZE", 8),
                ("IS_RECORD_VAR", 1),
            ]);
        process
            .record(Kind::PnetcdfVar, &format!("{file}:scalar"))
            .is(&[
                ("OPENS", 1),
                ("COLL_WRITES", 1),
                ("BYTES_WRITTEN", 2),
                ("PUT_VAR", 1),
                ("SIZE_WRITE_AGG_0_100", 1),
                ("ACCESS1_ACCESS", 2),
                ("ACCESS1_COUNT", 1),
                ("NPOINTS", 1),
                ("DATATYPE_SIZE", 2),
            ]);
        let record = process.record(Kind::PnetcdfFile, &file);
        let calls = [
            "CREATES",
            "OPENS",
            "REDEFS",
            "INDEP_WAITS",
            "COLL_WAITS",
            "SYNCS",
            "WAIT_FAILURES",
        ];
        assert_eq!(calls.map(|name| record.get(name)), [1, 1, 1, 1, 2, 1, 0]);
        assert!(record.time("F_WAIT_TIME") > 0.0 && record.time("F_META_TIME") > 0.0);
        assert!(record.time("F_WAIT_START_TIMESTAMP") >= record.time("F_OPEN_START_TIMESTAMP"));
        // The calls of MPI-IO that PnetCDF itself makes are counted, too.
        assert!(process.record(Kind::Mpiio, &file).get("COLL_WRITES") > 0);
    }
    // What the library says it has moved covers the variables' bytes of both ranks, and its header.
    let sum = |name| -> i64 {
        ranks
            .iter()
            .map(|p| p.record(Kind::PnetcdfFile, &file).get(name))
            .sum()
    };
    let of_variables = 2 * (1704 + 320 + 2);
    assert!(
        (of_variables - 2 * 4..of_variables + 4000).contains(&sum("BYTES_WRITTEN")),
        "{}",
        sum("BYTES_WRITTEN")
    );
    assert!(
        sum("BYTES_READ") >= 2 * (208 + 480),
        "{}",
        sum("BYTES_READ")
    );
}

#[test]
fn fortran_counts_once() {
    need!("mpiexec.openmpi", "mpif90.openmpi");
    if is_missing() {
        return;
    }
    let stage = Stage::new();
    let program = stage.compile(
        OPEN_MPI.fortran,
        "pnetcdf_calls.f90",
        &["-I/usr/include/x86_64-linux-gnu", "-lpnetcdf"],
    );
    let file = stage.path("f.nc");
    let recorded = stage.ranks(&OPEN_MPI, 2, &[&program, &file]).succeeded();
    for process in recorded.by_rank() {
        process.record(Kind::PnetcdfVar, &format!("{file}:v")).is(&[
            ("OPENS", 1),
            ("COLL_WRITES", 1),
            ("BYTES_WRITTEN", 40),
            ("PUT_VARA", 1),
            ("SIZE_WRITE_AGG_0_100", 1),
            ("ACCESS1_ACCESS", 40),
            ("ACCESS1_LENGTH_D1", 10),
            ("ACCESS1_COUNT", 1),
            ("NDIMS", 1),
            ("NPOINTS", 20),
            ("DATATYPE_SIZE", 4),
        ]);
        assert_eq!(process.record(Kind::PnetcdfFile, &file).get("CREATES"), 1);
    }
}
