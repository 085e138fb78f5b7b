//! HDF5 from C, alone and in parallel, and from Python.

use std::path::Path;

use forebay_count::Kind;
use forebay_count::path::record_id;

use crate::common::need;
use crate::tables::{MPICH, Mpi, OPEN_MPI, Process, Stage};

/// Where Debian puts the three builds of HDF5.
pub fn flags(build: &str) -> Option<Vec<String>> {
    let include = format!("/usr/include/hdf5/{build}");
    let library = "/usr/lib/x86_64-linux-gnu/hdf5/".to_owned() + build;
    if !Path::new(&include).join("hdf5.h").exists() {
        forebay_testkit::skip(&format!(
            "HDF5 ({build}) is not installed (scripts/setup.sh test installs it)"
        ));
        return None;
    }
    Some(vec![
        format!("-I{include}"),
        format!("-L{library}"),
        "-lhdf5".to_owned(),
    ])
}

#[test]
fn files_and_datasets_of_a_program_in_c() {
    let Some(flags) = flags("serial") else { return };
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let stage = Stage::new();
    let program = stage.compile("gcc", "hdf5_calls.c", &flags);
    // The colons in this name are part of a date, and do not end the name of a file system.
    let file = stage.path("day-2026-11-21T10:30:00.h5");
    let recorded = stage.record(&[&program, &file]).succeeded();
    let process = recorded.one_with(Kind::H5f);

    process
        .record(Kind::H5f, &file)
        .is(&[("OPENS", 2), ("FLUSHES", 2)]);
    let names = [format!("{file}:/group/chunked"), format!("{file}:/plain")];
    assert_eq!(process.names(Kind::H5d), names);
    for name in &names {
        let record = process.record(Kind::H5d, name);
        assert_eq!(record.parent, record_id(file.as_bytes()));
        assert_eq!(record.id, record_id(name.as_bytes()));
        record.times_make_sense();
        assert!(record.time("F_CLOSE_END_TIMESTAMP") > 0.0);
    }
    // Whole: 600 elements of 4 bytes. Regular: 3 x 4 blocks of 2 x 3, twice. Irregular: one element more.
    process.record(Kind::H5d, &names[1]).is(&[
        ("OPENS", 1),
        ("READS", 3),
        ("WRITES", 1),
        ("FLUSHES", 1),
        ("BYTES_READ", 288 + 288 + 292),
        ("BYTES_WRITTEN", 2400),
        ("RW_SWITCHES", 1),
        ("REGULAR_HYPERSLAB_SELECTS", 2),
        ("IRREGULAR_HYPERSLAB_SELECTS", 1),
        ("SIZE_READ_AGG_100_1K", 3),
        ("SIZE_WRITE_AGG_1K_10K", 1),
        ("ACCESS1_ACCESS", 288),
        ("ACCESS1_LENGTH_D4", 12),
        ("ACCESS1_LENGTH_D5", 6),
        ("ACCESS1_STRIDE_D4", 5),
        ("ACCESS1_STRIDE_D5", 4),
        ("ACCESS1_COUNT", 2),
        ("ACCESS2_ACCESS", 2400),
        ("ACCESS2_COUNT", 1),
        ("ACCESS3_ACCESS", 292),
        ("ACCESS3_COUNT", 1),
        ("DATASPACE_NDIMS", 2),
        ("DATASPACE_NPOINTS", 600),
        ("DATATYPE_SIZE", 4),
    ]);
    // Created by a deprecated function, then opened by others; it has grown from 600 to 1200 elements in between.
    process.record(Kind::H5d, &names[0]).is(&[
        ("OPENS", 3),
        ("READS", 1),
        ("WRITES", 2),
        ("BYTES_READ", 9600),
        ("BYTES_WRITTEN", 24 + 9600),
        ("RW_SWITCHES", 1),
        ("POINT_SELECTS", 1),
        ("SIZE_READ_AGG_1K_10K", 1),
        ("SIZE_WRITE_AGG_0_100", 1),
        ("SIZE_WRITE_AGG_1K_10K", 1),
        ("ACCESS1_ACCESS", 9600),
        ("ACCESS1_COUNT", 2),
        ("ACCESS2_ACCESS", 24),
        ("ACCESS2_COUNT", 1),
        ("DATASPACE_NDIMS", 2),
        ("DATASPACE_NPOINTS", 1200),
        ("DATATYPE_SIZE", 8),
        ("CHUNK_SIZE_D1", 10),
        ("CHUNK_SIZE_D2", 5),
    ]);
}

/// One dataset of all ranks, a hyperslab each, written collectively and read independently.
fn parallel(mpi: &Mpi, build: &str) {
    let Some(flags) = flags(build) else { return };
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let stage = Stage::new();
    let program = stage.compile(mpi.c, "hdf5_parallel.c", &flags);
    let file = stage.path("parallel.h5");
    let recorded = stage.ranks(mpi, 2, &[&program, &file]).succeeded();
    let ranks = recorded.by_rank();
    assert_eq!(ranks.len(), 2);
    for process in ranks {
        process
            .record(Kind::H5f, &file)
            .is(&[("OPENS", 1), ("USE_MPIIO", 1)]);
        process.record(Kind::H5d, &format!("{file}:/grid")).is(&[
            ("OPENS", 1),
            ("READS", 1),
            ("WRITES", 1),
            ("BYTES_READ", 4000),
            ("BYTES_WRITTEN", 4000),
            ("RW_SWITCHES", 1),
            ("REGULAR_HYPERSLAB_SELECTS", 2),
            ("SIZE_READ_AGG_1K_10K", 1),
            ("SIZE_WRITE_AGG_1K_10K", 1),
            ("ACCESS1_ACCESS", 4000),
            ("ACCESS1_LENGTH_D4", 100),
            ("ACCESS1_LENGTH_D5", 10),
            ("ACCESS1_STRIDE_D4", 1),
            ("ACCESS1_STRIDE_D5", 1),
            ("ACCESS1_COUNT", 2),
            ("DATASPACE_NDIMS", 2),
            ("DATASPACE_NPOINTS", 2000),
            ("DATATYPE_SIZE", 4),
            ("USE_MPIIO_COLLECTIVE", 1),
        ]);
        // The calls of MPI-IO that HDF5 itself makes are counted, too.
        let mpiio = process.record(Kind::Mpiio, &file);
        assert_eq!((mpiio.get("COLL_OPENS"), mpiio.get("COLL_WRITES")), (1, 1));
        assert!(
            mpiio.get("BYTES_WRITTEN") >= 4000,
            "{}",
            mpiio.get("BYTES_WRITTEN")
        );
        assert!(mpiio.get("INDEP_READS") >= 1);
    }
}

#[test]
fn parallel_hdf5_on_mpich() {
    need!("mpiexec.mpich", "mpicc.mpich");
    parallel(&MPICH, "mpich");
}

#[test]
fn parallel_hdf5_on_open_mpi() {
    need!("mpiexec.openmpi", "mpicc.openmpi");
    parallel(&OPEN_MPI, "openmpi");
}

#[test]
fn two_builds_in_one_process_are_kept_apart() {
    need!("mpicc.openmpi");
    let (Some(outer), Some(inner)) = (flags("openmpi"), flags("serial")) else {
        return;
    };
    let stage = Stage::new();
    // The dynamic loader finds the library beside the program.
    let library = stage.compile(
        "gcc",
        "hdf5_two_builds.c",
        &with(&inner, &["-DINNER", "-shared", "-fPIC"]),
    );
    std::fs::rename(library, stage.path("libinner.so")).unwrap();
    let here = format!("-L{}", stage.dir());
    let run_time = format!("-Wl,-rpath,{}", stage.dir());
    let flags = with(&outer, &[&here, "-linner", &run_time]);
    let program = stage.compile(OPEN_MPI.c, "hdf5_two_builds.c", &flags);
    let (of_program, of_library) = (stage.path("outer.h5"), stage.path("inner.h5"));
    let recorded = stage
        .record(&[&program, &of_program, &of_library])
        .succeeded();
    let process = recorded.one_with(Kind::H5f);
    for file in [&of_program, &of_library] {
        process.record(Kind::H5f, file).is(&[("OPENS", 3)]);
        let set = process.record(Kind::H5d, &format!("{file}:/x"));
        assert_eq!((set.get("OPENS"), set.get("WRITES")), (3, 3));
        assert_eq!(
            (set.get("BYTES_WRITTEN"), set.get("DATASPACE_NPOINTS")),
            (120, 10)
        );
    }
}

/// Adds flags to other flags.
fn with<'f>(flags: &'f [String], more: &[&'f str]) -> Vec<&'f str> {
    flags
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect()
}

const H5PY: &str = r#"
import sys, numpy, h5py
with h5py.File(sys.argv[1], "w") as f:
    f.create_dataset("grid", data=numpy.arange(1000, dtype="f8"))
    steps = f.create_group("steps").create_dataset("chunked", (10, 100), chunks=(5, 50), dtype="i4")
    for i in range(10):
        steps[i] = numpy.arange(100)
    f.flush()
with h5py.File(sys.argv[1], "r") as f:
    assert f["grid"][::2].sum() > 0
    assert f["steps/chunked"][2:4, 10:20].shape == (2, 10)
"#;

/// Checks the counters of the script above.
fn h5py_is_counted(process: &Process, file: &str) {
    process
        .record(Kind::H5f, file)
        .is(&[("OPENS", 2), ("FLUSHES", 1)]);
    let grid = process.record(Kind::H5d, &format!("{file}:/grid"));
    assert_eq!(
        (grid.get("OPENS"), grid.get("READS"), grid.get("WRITES")),
        (2, 1, 1)
    );
    assert_eq!(
        (grid.get("BYTES_READ"), grid.get("BYTES_WRITTEN")),
        (4000, 8000)
    );
    assert_eq!(
        (grid.get("ACCESS2_LENGTH_D5"), grid.get("ACCESS2_STRIDE_D5")),
        (500, 2)
    );
    // h5py closes what it has opened by dropping the last reference.
    assert!(grid.time("F_CLOSE_END_TIMESTAMP") > grid.time("F_READ_END_TIMESTAMP"));
    process
        .record(Kind::H5d, &format!("{file}:/steps/chunked"))
        .is(&[
            ("OPENS", 2),
            ("READS", 1),
            ("WRITES", 10),
            ("BYTES_READ", 80),
            ("BYTES_WRITTEN", 4000),
            ("RW_SWITCHES", 1),
            ("REGULAR_HYPERSLAB_SELECTS", 11),
            ("SIZE_READ_AGG_0_100", 1),
            ("SIZE_WRITE_AGG_100_1K", 10),
            ("ACCESS1_ACCESS", 400),
            ("ACCESS1_LENGTH_D4", 100),
            ("ACCESS1_LENGTH_D5", 1),
            ("ACCESS1_STRIDE_D4", 1),
            ("ACCESS1_STRIDE_D5", 1),
            ("ACCESS1_COUNT", 10),
            ("ACCESS2_ACCESS", 80),
            ("ACCESS2_LENGTH_D4", 10),
            ("ACCESS2_LENGTH_D5", 2),
            ("ACCESS2_STRIDE_D4", 1),
            ("ACCESS2_STRIDE_D5", 1),
            ("ACCESS2_COUNT", 1),
            ("DATASPACE_NDIMS", 2),
            ("DATASPACE_NPOINTS", 1000),
            ("DATATYPE_SIZE", 4),
            ("CHUNK_SIZE_D1", 50),
            ("CHUNK_SIZE_D2", 5),
        ]);
}

#[test]
fn h5py_whose_library_python_loads_for_itself_alone() {
    forebay_testkit::skip_unless!(
        Path::new("/usr/lib/python3/dist-packages/h5py").exists(),
        "h5py is not installed (scripts/setup.sh test installs it)"
    );
    let stage = Stage::new();
    let file = stage.path("h5py.h5");
    let recorded = stage
        .record(&["/usr/bin/python3", "-c", H5PY, &file])
        .succeeded();
    h5py_is_counted(recorded.one_with(Kind::H5f), &file);
}

const FORKS: &str = r#"
import sys, os, h5py
with h5py.File(sys.argv[1], "w") as f:
    f["grid"] = list(range(100))
f = h5py.File(sys.argv[1], "r")
grid = f["grid"]
if os.fork() == 0:
    assert grid[10] == 10
    os._exit(0)
assert os.wait()[1] == 0
assert grid[:50].sum() == 1225
"#;

#[test]
fn a_forked_child_counts_on_the_datasets_it_has_inherited() {
    forebay_testkit::skip_unless!(
        Path::new("/usr/lib/python3/dist-packages/h5py").exists(),
        "h5py is not installed (scripts/setup.sh test installs it)"
    );
    let stage = Stage::new();
    let file = stage.path("forked.h5");
    let recorded = stage
        .record(&["/usr/bin/python3", "-c", FORKS, &file])
        .succeeded();
    let grid = format!("{file}:/grid");
    let mut read: Vec<(i64, i64)> = recorded
        .processes
        .iter()
        .filter(|p| p.names(Kind::H5d).contains(&grid.as_str()))
        .map(|p| p.record(Kind::H5d, &grid))
        .map(|record| (record.get("READS"), record.get("BYTES_READ")))
        .collect();
    read.sort_unstable();
    assert_eq!(read, [(1, 8), (1, 400)]);
}
