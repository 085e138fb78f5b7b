//! Real programs under the layer: Fortran, HDF5, and programs whose calls fail.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use common::{Mpi, Stage, with_each, with_each_of_the_distribution};
use forebay_core::collective::{LockProtocol, MeasuredLocks, mount_name};
use forebay_testkit::{skip, skip_unless};

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Calls that the layer took over, by its report.
fn taken(report: &str) -> u64 {
    let report = fs::read_to_string(report).expect("the layer was loaded");
    let count =
        |line: &str| -> Option<u64> { line.split('\t').nth(3)?.split(' ').next()?.parse().ok() };
    report.lines().filter_map(count).sum()
}

const EXCHANGE: (&str, &str) = ("FOREBAY_COLLECTIVE_HINTS", "forebay_collective=always");

#[test]
fn fortran_programs_of_all_three_kinds_are_served() {
    with_each_of_the_distribution(|mpi| {
        let fortran = mpi.c[0].replace("mpicc", "mpif90");
        for kind in ["INCLUDE", "MODULE", "F08"] {
            let stage = Stage::new();
            let define = format!("-D{kind}");
            let compiler = [fortran.clone(), define, "-fallow-argument-mismatch".into()];
            let program = stage.compile(&compiler, "strided.F90");
            let (native, layer) = (stage.path("native"), stage.path("layer"));
            let report = stage.path("report");
            let ran = stage.run(mpi, 2, false, &[&program, &native]).succeeded();
            assert_eq!(ran.out, "");
            let environment = [EXCHANGE, ("FOREBAY_COLLECTIVE_REPORT", report.as_str())];
            let ran = stage.run_with(mpi, 2, true, &[&program, &layer], &environment);
            assert_eq!(ran.succeeded().out, "", "{kind} {fortran}");
            assert_eq!(taken(&report), 3, "{kind} {fortran}");
            assert!(fs::read(native).unwrap() == fs::read(layer).unwrap());
        }
    });
}

#[test]
fn hdf5_files_are_the_same_for_readers_with_and_without_the_layer() {
    with_each_of_the_distribution(|mpi| {
        let name = mpi.c[0].replace("mpicc.", "hdf5-");
        let flags = Command::new("pkg-config")
            .args(["--cflags", "--libs", &name])
            .output();
        let flags = match flags {
            Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout).into_owned(),
            _ => return skip(&format!("{name} is not installed")),
        };
        let stage = Stage::new();
        let compiler = [mpi.c.clone(), words(&flags)].concat();
        let program = stage.compile(&compiler, "columns.c");
        let report = stage.path("report");
        for (writer, reader) in [(true, false), (false, true)] {
            let file = stage.path(&format!("{writer}.h5"));
            let environment = [EXCHANGE, ("FOREBAY_COLLECTIVE_REPORT", report.as_str())];
            let run = |layer, what| {
                let command = [program.as_str(), &file, what];
                stage
                    .run_with(mpi, 3, layer, &command, &environment)
                    .succeeded()
            };
            run(writer, "write");
            assert_eq!(run(reader, "read").out.matches("0 wrong").count(), 3);
        }
        assert!(taken(&report) >= 2, "{} calls taken over", taken(&report));
    });
}

/// What the ranks of `errors.c` said, each line once.
fn said(mpi: &Mpi, stage: &Stage, layer: bool, file: &str, what: &str) -> BTreeSet<String> {
    said_with(mpi, stage, layer, (file, what), EXCHANGE)
}

fn said_with(
    mpi: &Mpi,
    stage: &Stage,
    layer: bool,
    (file, what): (&str, &str),
    hints: (&str, &str),
) -> BTreeSet<String> {
    let program = stage.compile(&mpi.c, "errors.c");
    let command = [program.as_str(), file, what];
    let ran = stage
        .run_with(mpi, 3, layer, &command, &[hints])
        .succeeded();
    ran.out.lines().map(str::to_owned).collect()
}

fn lines<const N: usize>(lines: [&str; N]) -> BTreeSet<String> {
    lines.map(str::to_owned).into()
}

#[test]
fn every_rank_hears_of_a_full_disk() {
    skip_unless!(rustix::process::geteuid().is_root(), "only root can mount");
    with_each(|mpi| {
        let stage = Stage::new();
        let small = stage.path("small");
        fs::create_dir(&small).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "none", &small])
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            return skip("a tmpfs can't be mounted");
        }
        let file = format!("{small}/file");
        let (name, hints) = EXCHANGE;
        // In one round, in many, and in many with the writes beside the exchange.
        let hints = [
            "",
            ";cb_buffer_size=65536",
            ";cb_buffer_size=65536;forebay_overlap=enable",
        ]
        .map(|more| format!("{hints}{more}"));
        let said = hints.map(|hints| {
            let said = said_with(mpi, &stage, true, (&file, "full"), (name, &hints));
            let _ = fs::remove_file(&file);
            said
        });
        let _ = Command::new("umount").arg(&small).status();
        let each = ["rank 0", "rank 1", "rank 2"].map(|rank| format!("{rank}: no space, heard 1"));
        assert_eq!(said, [(); 3].map(|()| each.clone().into()));
    });
}

/// The program stands in for a file system that could not write and says so when a descriptor is closed.
#[test]
fn every_rank_hears_of_an_error_that_comes_with_the_close() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "closing.c");
        let command = [program.as_str(), &stage.path("file"), "late"];
        let ran = stage
            .run_with(mpi, 3, true, &command, &[EXCHANGE])
            .succeeded();
        let said: BTreeSet<_> = ran.out.lines().map(str::to_owned).collect();
        let each = [0, 1, 2].map(|rank| format!("rank {rank}: no space, heard 1, closed 1"));
        assert_eq!(said, each.into());
    });
}

#[test]
fn what_was_opened_is_written_to_whatever_has_its_path_since() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "closing.c");
        let file = stage.path("file");
        let command = [program.as_str(), &file, "moved"];
        let ran = stage
            .run_with(mpi, 3, true, &command, &[EXCHANGE])
            .succeeded();
        assert_eq!(
            ran.out.matches("success, heard 0, closed 1").count(),
            3,
            "{}",
            ran.out
        );
        let bytes = |path: &str| fs::metadata(path).unwrap().len();
        assert_eq!(bytes(&file), 0);
        assert_eq!(bytes(&format!("{file}.moved")), 2 * 3 * 2000 * 32);
    });
}

#[test]
fn settings_in_what_is_no_file_are_none_and_names_break_no_line() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "traps.c");
        let [pipe, report, explained] = ["pipe", "report", "explained"].map(|n| stage.path(n));
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|status| status.success()));
        let environment = [
            EXCHANGE,
            ("FOREBAY_COLLECTIVE_POLICY", pipe.as_str()),
            ("FOREBAY_LOCKS", "/dev/zero"),
            ("FOREBAY_COLLECTIVE_REPORT", report.as_str()),
            ("FOREBAY_COLLECTIVE_EXPLAIN", explained.as_str()),
        ];
        let file = stage.path("a\nb \u{1b}[31m");
        let command = [program.as_str(), &file, "plain"];
        let ran = stage.run_with(mpi, 2, true, &command, &environment);
        assert_eq!(ran.succeeded().out.matches("done").count(), 2);
        let report = fs::read_to_string(report).unwrap();
        assert_eq!(report.lines().count(), 1, "{report}");
        let explained = fs::read_to_string(explained).unwrap();
        assert!(
            explained.contains("a\\nb \\u{1b}[31m\n  calls "),
            "{explained}"
        );
        assert!(!explained.contains("policy"), "{explained}");
    });
}

/// Files of two file systems may have one inode number.
#[test]
fn what_was_opened_is_written_to_also_if_its_path_leads_to_another_file_system_since() {
    skip_unless!(rustix::process::geteuid().is_root(), "only root can mount");
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "closing.c");
        let link = stage.path("link");
        let mut targets = Vec::new();
        for (name, link) in [("one", link.clone()), ("other", format!("{link}.next"))] {
            let dir = stage.path(name);
            fs::create_dir(&dir).unwrap();
            let mut mount = Command::new("mount");
            let mount = mount.args(["-t", "tmpfs", "-o", "size=4m", "none", &dir]);
            if !mount.status().is_ok_and(|status| status.success()) {
                return skip("a tmpfs can't be mounted");
            }
            fs::write(format!("{dir}/file"), "").unwrap();
            std::os::unix::fs::symlink(format!("{dir}/file"), link).unwrap();
            targets.push(format!("{dir}/file"));
        }
        let facts = |path: &String| fs::metadata(path).unwrap();
        let inodes: Vec<u64> = targets.iter().map(|path| facts(path).ino()).collect();
        let (name, hints) = EXCHANGE;
        let hints = format!("{hints};forebay_locks=token");
        let command = [program.as_str(), &link, "linked"];
        let ran = stage.run_with(mpi, 3, true, &command, &[(name, &hints)]);
        let sizes: Vec<u64> = targets.iter().map(|path| facts(path).len()).collect();
        for name in ["one", "other"] {
            let _ = Command::new("umount").arg(stage.path(name)).status();
        }
        ran.succeeded();
        assert_eq!(inodes[0], inodes[1]);
        assert_eq!(sizes, [2 * 3 * 2000 * 32, 0]);
    });
}

/// Each file that the layer knows takes a communicator, and MPICH has 2,048 in all.
#[test]
fn a_program_may_have_as_many_files_open_as_without_the_layer() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "closing.c");
        let (file, report) = (stage.path("file"), stage.path("report"));
        let environment = [EXCHANGE, ("FOREBAY_COLLECTIVE_REPORT", report.as_str())];
        let command = [program.as_str(), &file, "many"];
        let ran = stage
            .run_with(mpi, 2, true, &command, &environment)
            .succeeded();
        let each = ran.out.matches("success, heard 0, closed 1").count();
        assert_eq!(each, 2, "{}", ran.out);
        let written = |number: u32| fs::read(format!("{file}.{number}")).unwrap();
        let expected = [[1; 32], [2; 32]].concat();
        assert!((0..1500).all(|number| written(number) == expected));
        assert_eq!(taken(&report), 128);
    });
}

/// Where few processes read for all, the size that they have seen before the others came is not the last word.
#[test]
fn a_read_ends_where_the_file_ends_when_all_have_come() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "late_write.c");
        let hints = (
            EXCHANGE.0,
            "forebay_collective=always;forebay_locks=token;cb_nodes=1",
        );
        let command = [program.as_str(), &stage.path("file")];
        let ran = stage.run_with(mpi, 2, true, &command, &[hints]).succeeded();
        let said: BTreeSet<_> = ran.out.lines().map(str::to_owned).collect();
        assert_eq!(said, lines(["rank 0: 1000 bytes", "rank 1: 1000 bytes"]));
    });
}

#[test]
fn a_read_ends_where_the_file_ends() {
    with_each(|mpi| {
        let stage = Stage::new();
        let expected = [
            "rank 0: 16010 bytes",
            "rank 1: 16000 bytes",
            "rank 2: 16000 bytes",
        ];
        let said = said(mpi, &stage, true, &stage.path("file"), "end");
        assert_eq!(said, lines(expected));
    });
}

#[test]
fn a_write_to_a_file_opened_for_reading_fails_as_without_the_layer() {
    with_each(|mpi| {
        let stage = Stage::new();
        let file = stage.path("file");
        let native = said(mpi, &stage, false, &file, "readonly");
        assert_eq!(said(mpi, &stage, true, &file, "readonly"), native);
        assert_eq!(native.len(), 3);
    });
}

#[test]
fn a_file_that_is_not_there_is_an_error_on_every_rank() {
    with_each(|mpi| {
        let stage = Stage::new();
        let each = ["rank 0", "rank 1", "rank 2"].map(|rank| format!("{rank}: no such file"));
        let said = said(mpi, &stage, true, &stage.path("file"), "missing");
        assert_eq!(said, each.into());
    });
}

#[test]
fn every_rank_hears_of_an_error_that_one_aggregator_alone_has() {
    with_each(|mpi| {
        let stage = Stage::new();
        let (name, hints) = EXCHANGE;
        for more in [
            "cb_config_list=*:3;cb_nodes=3",
            "cb_config_list=*:3;cb_nodes=3;cb_buffer_size=16384",
            "cb_config_list=*:3;cb_nodes=3;cb_buffer_size=16384;forebay_overlap=enable",
        ] {
            let hints = format!("{hints};forebay_partition=even;{more}");
            let file = stage.path("file");
            let said = said_with(mpi, &stage, true, (&file, "limited"), (name, &hints));
            let each = ["rank 0", "rank 1", "rank 2"].map(|rank| format!("{rank}: error, heard 1"));
            assert_eq!(said, each.into(), "{more}");
            // The others have written their parts: so it was not all of them that failed.
            let written = fs::metadata(&file).unwrap();
            assert!(written.blocks() > 0, "{more}");
            fs::remove_file(&file).unwrap();
        }
    });
}

#[test]
fn a_rank_that_is_killed_between_calls_or_in_one_ends_the_program() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "errors.c");
        for when in ["killed", "struck"] {
            let command = [program.as_str(), &stage.path(when), when];
            let ran = stage.run_with(mpi, 3, true, &command, &[EXCHANGE]);
            // 124: it hung.
            let code = ran.code.expect("timeout has an exit code");
            assert!(code != 0 && code != 124, "{when}: {code}: {}", ran.err);
            assert!(Path::new(&stage.path(when)).exists());
        }
    });
}

/// All libraries end a program that gives no buffer. Which rank's end they tell of differs from run to run.
#[test]
fn a_rank_without_a_buffer_ends_the_program_as_without_the_layer() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "errors.c");
        let command = [program.as_str(), &stage.path("file"), "nowhere"];
        let code = |layer| {
            let ran = stage.run_with(mpi, 3, layer, &command, &[EXCHANGE]);
            ran.code.expect("timeout has an exit code")
        };
        for layer in [false, true] {
            let code = code(layer);
            assert!(code != 0 && code != 124, "{layer}: {code}");
        }
    });
}

/// What `traps.c` says, and the files that it leaves, each with its bytes.
fn trap(mpi: &Mpi, layer: bool, what: &str) -> (BTreeSet<String>, BTreeMap<String, Vec<u8>>) {
    let stage = Stage::new();
    let program = stage.compile(&mpi.c, "traps.c");
    let dir = stage.path("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(format!("{dir}/file"), "before").unwrap();
    let script = format!("cd '{dir}' && exec '{program}' file {what}");
    let report = stage.path("report");
    let environment = [EXCHANGE, ("FOREBAY_COLLECTIVE_REPORT", report.as_str())];
    let ran = stage
        .run_with(mpi, 2, layer, &["sh", "-c", &script], &environment)
        .succeeded();
    if what == "jump" && layer {
        assert_eq!(taken(&report), 1, "after the jump the layer goes on");
        let closed = fs::read_to_string(&report).unwrap().lines().count();
        assert_eq!(closed, 2, "it has seen that both files were closed");
    }
    let files = fs::read_dir(&dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, fs::read(entry.path()).unwrap())
    });
    (
        ran.out.lines().map(str::to_owned).collect(),
        files.collect(),
    )
}

#[test]
fn a_name_with_a_prefix_means_what_the_mpi_library_makes_of_it() {
    with_each(|mpi| assert_eq!(trap(mpi, true, "prefix"), trap(mpi, false, "prefix")));
}

#[test]
fn views_of_which_mpi_libraries_have_ideas_of_their_own_stay_theirs() {
    with_each(|mpi| {
        for what in ["narrow", "lower"] {
            let with = trap(mpi, true, what);
            assert_eq!(with, trap(mpi, false, what), "{what}");
            assert_eq!(with.0, lines(["rank 0: done", "rank 1: done"]));
        }
    });
}

#[test]
fn types_made_with_large_counts_work_as_without_the_layer() {
    with_each(|mpi| {
        for kind in ["large", "nested"] {
            let with = trap(mpi, true, kind);
            assert_eq!(with, trap(mpi, false, kind));
            assert_eq!(with.0, lines(["rank 0: done", "rank 1: done"]));
            assert_eq!(with.1["file"].len(), 2 * 2000 * 32);
        }
    });
}

#[test]
fn a_split_call_that_has_failed_can_be_ended_and_the_next_one_works() {
    with_each(|mpi| {
        let (said, files) = trap(mpi, true, "split");
        assert_eq!(said, lines(["rank 0: done", "rank 1: done"]));
        let mut expected = Vec::new();
        for _ in 0..2000 {
            expected.extend([[b'a'; 32], [b'b'; 32]].concat());
        }
        assert!(files["file"] == expected);
    });
}

#[test]
fn a_second_split_call_before_the_first_has_ended_is_refused_as_without_the_layer() {
    with_each(|mpi| {
        let [with, without] = [true, false].map(|layer| trap(mpi, layer, "second"));
        assert_eq!(with.0, lines(["rank 0: done", "rank 1: done"]));
        // Open MPI says more.
        assert!(without.0.is_superset(&with.0), "{without:?}");
        assert!(with.1 == without.1);
    });
}

#[test]
fn a_type_that_was_not_committed_is_the_error_that_the_mpi_library_makes_of_it() {
    with_each(|mpi| {
        let with = trap(mpi, true, "raw");
        assert_eq!(with, trap(mpi, false, "raw"));
        assert_eq!(with.0, lines(["rank 0: failed", "rank 1: failed"]));
    });
}

/// What `together.c` says, how many collective calls the layer has taken over, and the files, each with its bytes.
fn together(
    mpi: &Mpi,
    layer: bool,
    what: &str,
) -> (BTreeSet<String>, u64, BTreeMap<String, Vec<u8>>) {
    let stage = Stage::new();
    let program = stage.compile(&mpi.c, "together.c");
    let dir = stage.path("dir");
    fs::create_dir(&dir).unwrap();
    let report = stage.path("report");
    let environment = [EXCHANGE, ("FOREBAY_COLLECTIVE_REPORT", report.as_str())];
    let command = [program.as_str(), &format!("{dir}/file"), what];
    let ran = stage
        .run_with(mpi, 2, layer, &command, &environment)
        .succeeded();
    let files = fs::read_dir(&dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, fs::read(entry.path()).unwrap())
    });
    let taken = if layer { taken(&report) } else { 0 };
    let said = ran.out.lines().map(str::to_owned).collect();
    (said, taken, files.collect())
}

/// The layer takes over so many calls of it, and makes the files that calls in turn make without the layer.
fn is_the_same_together(mpi: &Mpi, (what, in_turn): (&str, &str), calls: u64) {
    let (said, taken, files) = together(mpi, true, what);
    if said.contains("no threads") {
        return skip("this MPI library has no threads");
    }
    assert_eq!(said, lines(["rank 0: done", "rank 1: done"]), "{what}");
    assert_eq!(taken, calls, "{what}");
    assert!(files == together(mpi, false, in_turn).2, "{what}");
}

#[test]
fn forms_with_large_counts_are_taken_over() {
    with_each(|mpi| is_the_same_together(mpi, ("counts", "counts"), 8));
}

#[test]
fn threads_have_calls_under_way_at_the_same_time() {
    with_each(|mpi| is_the_same_together(mpi, ("threads", "turns"), 40));
}

#[test]
fn split_calls_on_two_files_are_under_way_at_the_same_time() {
    with_each(|mpi| is_the_same_together(mpi, ("two", "two"), 20));
}

#[test]
fn a_rank_gives_more_than_two_gib_in_one_call() {
    const FREE: u64 = 6 << 30;
    let shm = rustix::fs::statvfs("/dev/shm").unwrap();
    skip_unless!(
        shm.f_bavail * shm.f_frsize > FREE,
        "/dev/shm has less than 6 GiB free"
    );
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "together.c");
        let dir = forebay_testkit::new_folder("/dev/shm", "mpiio");
        let file = dir.join("file").display().to_string();
        let report = stage.path("report");
        let environment = [EXCHANGE, ("FOREBAY_COLLECTIVE_REPORT", report.as_str())];
        let ran = stage.run_with(mpi, 2, true, &[&program, &file, "huge"], &environment);
        fs::remove_dir_all(dir).unwrap();
        let said: BTreeSet<_> = ran.succeeded().out.lines().map(str::to_owned).collect();
        assert_eq!(said, lines(["rank 0: done", "rank 1: done"]));
        assert_eq!(taken(&report), 2);
    });
}

#[test]
fn an_error_handler_may_leave_by_longjmp() {
    with_each(|mpi| {
        let with = trap(mpi, true, "jump");
        assert_eq!(with, trap(mpi, false, "jump"));
        assert_eq!(with.0, lines(["rank 0: done", "rank 1: done"]));
    });
}

#[test]
fn what_the_probe_has_measured_decides_the_method_and_hints_go_over_it() {
    with_each(|mpi| {
        let stage = Stage::new();
        let device = fs::metadata(stage.path("")).unwrap().dev();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mount_name(&mounts, (libc::major(device), libc::minor(device))).unwrap();
        let measured = MeasuredLocks {
            protocol: LockProtocol::ServerSide,
            granule_bytes: Some(4096),
            servers: Some(2),
            write_nanos: 1,
            handover_nanos: 1,
        };
        let (kept, report) = (stage.path("locks"), stage.path("report"));
        fs::write(&kept, measured.to_line(&mount)).unwrap();
        let program = stage.compile(&mpi.c, "errors.c");
        let run = |file: &str, hints| {
            let environment = [
                ("FOREBAY_LOCKS", kept.as_str()),
                ("FOREBAY_COLLECTIVE_REPORT", report.as_str()),
                ("FOREBAY_COLLECTIVE_HINTS", hints),
            ];
            let command = [program.as_str(), &stage.path(file), "end"];
            stage
                .run_with(mpi, 3, true, &command, &environment)
                .succeeded();
        };
        run("one", "");
        run("other", "forebay_locks=token");
        let report = fs::read_to_string(&report).unwrap();
        let of = |file: &str| -> Vec<&str> {
            let line = report.lines().find(|line| line.contains(file)).unwrap();
            line.split('\t').collect()
        };
        let (one, other) = (of("/one"), of("/other"));
        assert_eq!(
            (one[1], one[5]),
            ("static-cyclic", "locks: server, measured")
        );
        assert_eq!((other[1], other[5]), ("aligned", "locks: token, asked for"));
    });
}

/// A number or a string in a line of JSON, by its name.
fn value<'a>(json: &'a str, name: &str) -> &'a str {
    let (_, rest) = json
        .split_once(&format!("\"{name}\":"))
        .unwrap_or_else(|| panic!("no {name} in {json}"));
    let end = match rest.strip_prefix('"') {
        Some(text) => text.find('"').map(|at| at + 2),
        None if rest.starts_with('[') => rest.find(']'),
        None => rest.find([',', '}']),
    };
    rest[..end.unwrap_or(rest.len())].trim_matches('"')
}

#[test]
fn a_file_is_explained_and_its_hints_do_the_same_again() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "errors.c");
        let explained = stage.path("explained.json");
        let run = |hints: &str, to: &str| {
            let environment = [
                ("FOREBAY_COLLECTIVE_EXPLAIN", to),
                ("FOREBAY_COLLECTIVE_HINTS", hints),
            ];
            let command = [program.as_str(), &stage.path("file"), "end"];
            let ran = stage.run_with(mpi, 3, true, &command, &environment);
            ran.succeeded().err
        };
        let hints = "forebay_collective=always;forebay_locks=token;striping_unit=4096;cb_config_list=*:2;cb_buffer_size=65536";
        let text = run(hints, "-");
        for part in [
            "forebay collective ",
            "2 carried out: 2 by aggregators",
            "token, asked for",
            "aligned, 2 aggregators of 3 ranks",
            "domains    rank 0: ",
            "conflicts  even          at most 2 of 3 lock requests",
            "static-cyclic at most 46 of 47 lock requests",
            "hints      FOREBAY_COLLECTIVE_HINTS=",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        run(hints, &explained);
        let first = fs::read_to_string(&explained).unwrap();
        run(value(&first, "hints"), &explained);
        let both = fs::read_to_string(&explained).unwrap();
        let lines: Vec<&str> = both.lines().collect();
        assert_eq!(lines.len(), 2, "{both}");
        for name in [
            "method",
            "exchanged",
            "granule_bytes",
            "cb_buffer_size",
            "pieces",
            "locks",
            "aggregators",
            "rounds",
        ] {
            assert_eq!(value(lines[0], name), value(lines[1], name), "{name}");
        }
        // 6000 were written; the file ends with the first 10 bytes of the last one that was read.
        assert_eq!(value(lines[0], "pieces"), "7501");
        assert_eq!(value(lines[0], "bytes"), "240010");
        let number = |name| value(lines[0], name).parse::<f64>().unwrap();
        assert!(number("rounds") >= 2.0 && number("seconds") > 0.0);
        assert!((0.0..=1.0).contains(&number("file_share")), "{both}");
    });
}

#[test]
fn hints_for_an_open_file_count_from_the_next_call_on_also_if_only_rank_0_gives_them() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "traps.c");
        let explained = stage.path("explained.json");
        let (file, policy) = (stage.path("file"), stage.path("policy"));
        fs::write(&policy, format!("{} cb_buffer_size=8192\n", stage.path(""))).unwrap();
        let environment = [
            EXCHANGE,
            ("FOREBAY_COLLECTIVE_EXPLAIN", explained.as_str()),
            ("FOREBAY_COLLECTIVE_POLICY", policy.as_str()),
        ];
        let command = [program.as_str(), &file, "hints"];
        let ran = stage.run_with(mpi, 2, true, &command, &environment);
        assert_eq!(ran.succeeded().out.matches("done").count(), 2);
        let explained = fs::read_to_string(&explained).unwrap();
        assert_eq!(value(&explained, "method"), "even");
        assert_eq!(value(&explained, "locks"), "token");
        assert_eq!(value(&explained, "cb_buffer_size"), "8192");
        assert_eq!(value(&explained, "exchanged"), "2");
    });
}

/// An aggregator of many rounds has a second part of the file, or else each exchange waits for the write before it.
#[test]
fn an_aggregator_has_two_parts_of_the_file_where_it_writes_beside_the_exchange() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "strided_write.c");
        let bytes = |overlap: &str| -> u64 {
            let hints = format!(
                "forebay_collective=always;cb_nodes=1;cb_buffer_size=65536;forebay_overlap={overlap}"
            );
            let explained = stage.path(&format!("{overlap}.json"));
            let environment = [
                ("FOREBAY_COLLECTIVE_HINTS", hints.as_str()),
                ("FOREBAY_COLLECTIVE_EXPLAIN", explained.as_str()),
            ];
            let command = [program.as_str(), &stage.path(overlap)];
            stage
                .run_with(mpi, 2, true, &command, &environment)
                .succeeded();
            let said = fs::read_to_string(&explained).unwrap();
            let (_, rest) = said.split_once("\"buffer_bytes\":").unwrap();
            rest.split(',').next().unwrap().parse().unwrap()
        };
        let (one, two) = (bytes("disable"), bytes("enable"));
        assert_eq!(two, one + 65536 + 65536 / 8);
        let file = |name| fs::read(stage.path(name)).unwrap();
        assert_eq!(file("disable"), file("enable"));
        assert_eq!(file("enable").len(), 1 << 20);
    });
}

/// Runs `bounds.c` under the layer. Returns how many MiB more the aggregator took than another rank.
fn more_memory(mpi: &Mpi, ranks: u32, what: &str) -> i64 {
    let stage = Stage::new();
    let program = stage.compile(&mpi.c, "bounds.c");
    let command = [program.as_str(), &stage.path("file"), what];
    let ran = stage
        .run_with(mpi, ranks, true, &command, &[EXCHANGE])
        .succeeded();
    let right = ran.out.lines().filter(|line| line.ends_with(": right"));
    assert_eq!(right.count(), ranks as usize, "{}", ran.out);
    let mut more = ran
        .out
        .lines()
        .filter_map(|line| line.strip_prefix("more memory: "));
    let more = more.next().and_then(|line| line.strip_suffix(" MiB"));
    more.and_then(|n| n.parse().ok()).expect("a number of MiB")
}

#[test]
fn ranks_that_read_the_same_bytes_take_two_buffers_of_the_aggregator() {
    with_each(|mpi| {
        // The buffer is 64 MiB. A stage for every rank would take 224 MiB more.
        let more = more_memory(mpi, 8, "same");
        assert!(more < 2 * 64 + 32, "{more} MiB");
    });
}

#[test]
fn lists_of_irregular_pieces_do_not_fill_the_memory_of_the_aggregator() {
    with_each(|mpi| {
        // The lists of all ranks at once are 20 MiB.
        let more = more_memory(mpi, 8, "irregular");
        assert!(more < 8, "{more} MiB");
    });
}

#[test]
fn what_nobody_accesses_between_far_pieces_costs_nothing() {
    with_each(|mpi| assert!(more_memory(mpi, 2, "far") < 8));
}
