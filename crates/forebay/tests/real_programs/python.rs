//! CPython, its standard library, numpy and h5py. Each program prints what it finds.

use crate::common::{Case, PYTHON, case, need};
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
fn a_file_keeps_its_inode_number_when_it_is_written_to() {
    let start = "mkdir dir; for f in append empty moved linked mode locked dir/below times; do echo $f > $f; done";
    python(case!().start(start), "inode_numbers.py", &[]);
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
fn a_file_without_a_name_is_refused() {
    let open = "import errno, os\ntry:\n    os.open('.', os.O_TMPFILE | os.O_RDWR)\nexcept OSError as e:\n    print('refused', e.errno == errno.EOPNOTSUPP)";
    let case = case!().start(PROJECT);
    let outcome = case.buffered(&format!("exec $PYTHON -c \"{open}\""));
    let text = outcome.text();
    assert_eq!(
        (outcome.code, text.lines().next()),
        (0, Some("refused True"))
    );
    case.passes();
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

#[test]
fn links_of_proc_show_and_lead_to_what_the_buffer_has() {
    need!("python3", "perl");
    case!().start("mkdir old; echo 1 > old/file").same(
        r#"
        cp "$(command -v perl)" own-perl; ./own-perl -e 'print $^X =~ m{^/.*/own-perl$} ? "own\n" : "$^X\n"'
        mkdir -p dir/sub; echo 2 > dir/sub/file; echo 3 > gone
        python3 - <<'END'
import os
root = os.getcwd()
def show(what, path): print(what, path.replace(root, 'ROOT') if isinstance(path, str) else path)
for name in ('dir', 'dir/sub/file', 'old', 'old/file', '.'):
    fd = os.open(name, os.O_RDONLY)
    link = f'/proc/self/fd/{fd}'
    show(name, os.readlink(link))
    show('real', os.path.realpath(link))
    show('the same', os.path.samestat(os.stat(name), os.fstat(fd)))
    os.close(fd)
writer = open('dir/new', 'w')
show('new', os.readlink(f'/proc/self/fd/{writer.fileno()}'))
gone = open('gone'); os.unlink('gone')
show('gone', os.readlink(f'/proc/self/fd/{gone.fileno()}').endswith(' (deleted)'))
os.chdir('dir')
show('cwd', os.readlink('/proc/self/cwd'))
show('short', len(os.readlink('/proc/self/cwd')))
print(open('/proc/self/cwd/sub/file').read(), os.path.exists('/proc/self/cwd/none'), sorted(os.listdir('/proc/self/cwd/')))
fd = os.open('..', os.O_RDONLY)
print(open(f'/proc/self/fd/{fd}/old/file').read(), open(f'/dev/fd/{fd}/dir/sub/file').read())
os.mkdir(f'/proc/self/fd/{fd}/dir/made')
os.rename(f'/proc/self/fd/{fd}/dir/made', '/proc/self/cwd/moved')
show('real', os.path.realpath(f'/proc/self/fd/{fd}/dir/sub/file'))
print(sorted(os.listdir('.')))
links = os.open('/proc/self/fd', os.O_RDONLY)
show('by its directory', os.readlink(str(fd), dir_fd=links))
END
        rm own-perl
        "#,
    );
}
