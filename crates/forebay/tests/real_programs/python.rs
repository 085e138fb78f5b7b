//! CPython, its standard library, numpy and h5py. Each program prints what it finds.

use crate::common::{Case, PYTHON, case};
use crate::{PROJECT, UNLINKED};

/// Runs `tests/programs/python/<program>` in the buffer, and natively.
fn python(case: Case, program: &str, modules: &[&str]) {
    for module in modules {
        let there = std::process::Command::new(PYTHON)
            .args(["-c", &format!("import {module}")])
            .output()
            .is_ok_and(|output| output.status.success());
        if !there {
            forebay_testkit::skip(&format!("{PYTHON} has no module {module}"));
            return case.passes();
        }
    }
    case.same(&format!(r#"exec $PYTHON "$PROGRAMS/python/{program}""#));
}

#[test]
fn open_reads_writes_and_refuses_in_every_mode() {
    python(
        case!().start(&[PROJECT, UNLINKED].concat()),
        "open_modes.py",
        &[],
    );
}

#[test]
fn mmap_shares_pages_with_files_and_children() {
    python(case!().start(PROJECT), "mmap_files.py", &[]);
}

#[test]
fn pathlib_walks_and_changes_the_tree() {
    python(
        case!().start(&[PROJECT, UNLINKED].concat()),
        "path_objects.py",
        &[],
    );
}

#[test]
fn shutil_copies_moves_and_removes_trees() {
    python(case!().start(PROJECT), "tree_tools.py", &[]);
}

#[test]
fn tempfile_makes_files_that_vanish() {
    python(case!().start(PROJECT), "temporary.py", &[]);
}

#[test]
fn scandir_and_walk_list_the_merged_tree() {
    python(
        case!().start(&[PROJECT, UNLINKED].concat()),
        "listing.py",
        &[],
    );
}

#[test]
fn subprocesses_inherit_descriptors_and_directories() {
    python(case!().start(PROJECT), "children.py", &[]);
}

#[test]
fn multiprocessing_by_fork_and_by_spawn_writes_one_file() {
    python(case!(), "workers.py", &[]);
}

#[test]
fn sqlite3_in_wal_mode_serves_two_processes() {
    python(
        case!().contents_change_in([".db"]),
        "wal_database.py",
        &["sqlite3"],
    );
}

#[test]
fn numpy_memmap_and_save_round_trip() {
    python(case!(), "arrays.py", &["numpy"]);
}

#[test]
fn h5py_writes_and_reads_a_file() {
    // HDF5 writes the time into its files, unless told not to.
    python(
        case!().contents_change_in([".h5"]),
        "hdf5.py",
        &["numpy", "h5py"],
    );
}

#[test]
fn directory_descriptors_and_at_calls_agree_with_paths() {
    python(
        case!().start(&[PROJECT, UNLINKED].concat()),
        "at_calls.py",
        &[],
    );
}

#[test]
fn descriptors_locks_and_leases_stay_native() {
    python(case!().start(PROJECT), "descriptors.py", &[]);
}
