//! Programs and places that make recording hard. Nothing breaks, and nothing that can be counted is lost.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use forebay_count::{TROUBLE_PREFIX, posix};
use forebay_testkit::built::Library;
use forebay_testkit::{is_root, skip_unless};

use crate::run::{Image, Place};

/// Runs a mode of `hostile` in a folder of its own.
fn run(mode: &str) -> (Place, Image) {
    let place = Place::new(mode);
    let program = place.compile("hostile");
    for n in 0..5 {
        std::fs::create_dir(place.path(&format!("data/d{n}"))).expect("a folder");
    }
    place.record(&program, [mode.into(), place.path("data")]);
    let image = place.image_of(&program);
    (place, image)
}

fn written(place: &Place, image: &Image, name: &str) -> i64 {
    let record = image.posix.get(&place.text(&format!("data/{name}")));
    record.map_or(0, |f| f.ints[posix::BYTES_WRITTEN])
}

#[test]
fn fifty_thousand_files_of_one_process_have_exact_totals() {
    let (_place, image) = run("files");
    let own = image
        .posix
        .values()
        .filter(|f| f.folded.is_none() && !f.counted_before)
        .count() as u64;
    let folded: u64 = image.posix.values().filter_map(|f| f.folded).sum();
    let bytes: i64 = (0..50_000).map(|i| 10 + i % 3).sum();
    assert_eq!(image.posix_sum(posix::OPENS), 50_001);
    assert_eq!(image.posix_sum(posix::WRITES), 50_001);
    assert_eq!(image.posix_sum(posix::BYTES_WRITTEN), bytes + 100);
    assert_eq!(own + folded, 50_001);
    assert_eq!((image.unsure_files, image.unplaced.opens), (0, 0));
    assert_eq!(image.extras["unlink"], 50_000);
    let directories = image.posix.values().filter(|f| f.folded.is_some());
    assert_eq!(
        directories.filter(|f| f.name.contains("/data/d")).count(),
        5
    );
    assert!(own > 1_000, "{own} files have a record of their own");
}

#[test]
fn a_program_may_close_all_descriptors() {
    let (place, image) = run("closes");
    assert_eq!(
        (
            written(&place, &image, "again"),
            written(&place, &image, "out")
        ),
        (5, 100)
    );
}

#[test]
fn a_signal_handler_that_interrupts_counting_loses_nothing_and_hangs_nobody() {
    let (place, image) = run("signals");
    let expected = std::fs::read_to_string(place.path("data/expected")).expect("counts");
    let expected: Vec<i64> = expected
        .split(' ')
        .map(|n| n.parse().expect("a number"))
        .collect();
    let file = &image.posix[&place.text("data/signalled")];
    let unplaced = image.unplaced.writes as i64;
    assert_eq!(file.ints[posix::WRITES] + unplaced, expected[0]);
    assert!(expected[1] > 100, "{} writes by the handler", expected[1]);
}

#[test]
fn a_process_that_is_stopped_for_long_while_its_threads_count_loses_nothing() {
    let (place, image) = run("stopped");
    let made = std::fs::read_to_string(place.path("data/expected")).expect("a count");
    let made: i64 = made.parse().expect("a number");
    let unplaced = &image.unplaced;
    // And "out".
    let sum = |counter| image.posix_sum(counter);
    assert_eq!(sum(posix::OPENS) + unplaced.opens as i64, made + 1);
    assert_eq!(sum(posix::WRITES) + unplaced.writes as i64, made + 1);
    assert_eq!(
        sum(posix::BYTES_WRITTEN) + unplaced.bytes_written as i64,
        10 * made + 100
    );
    assert_eq!((image.overlaps, image.extras["unlink"] as i64), (0, made));
}

#[test]
fn a_program_may_forbid_itself_the_counter_of_the_processor() {
    let (place, image) = run("blind");
    assert_eq!(written(&place, &image, "out"), 100);
    assert_eq!(written(&place, &image, "blind"), 1_010_000);
}

#[test]
fn a_handler_may_jump_out_of_counting() {
    let (place, image) = run("jumps");
    assert_eq!(written(&place, &image, "out"), 100);
    assert!(image.posix[&place.text("data/jumped")].ints[posix::WRITES] > 100);
}

#[test]
fn threads_may_be_cancelled_while_they_count() {
    let (place, image) = run("cancels");
    assert_eq!(written(&place, &image, "out"), 100);
    // A thread that is cancelled while it holds the record leaves it locked for a second. What fits into no side slot
    // in that time is in the totals.
    let file = &image.posix[&place.text("data/cancelled")];
    let unplaced = image.unplaced.opens as i64;
    assert_eq!(file.ints[posix::OPENS] + unplaced, 41);
}

#[test]
fn threads_may_open_files_and_load_libraries_at_once() {
    let (place, image) = run("threads");
    let sum: i64 = (0..4)
        .flat_map(|t| (0..10).map(move |n| (t, n)))
        .map(|(t, n)| written(&place, &image, &format!("t{t}-{n}")))
        .sum();
    // A thread that is not run for a second while it holds a record: what fits into no side slot meanwhile is in the totals.
    let unplaced = image.unplaced.writes as i64;
    assert!(
        sum <= 1_200 && sum + unplaced >= 1_200,
        "{sum} of 1200, and {unplaced}"
    );
}

#[test]
fn the_limits_of_a_program_stay_its_own() {
    let place = Place::new("limits");
    let program = place.compile("hostile");
    let script = "ulimit -S -f 1; ulimit -S -n 4; exec \"$@\"";
    let out = place
        .command("/bin/bash")
        .args(["-c", script, "bash"])
        .arg(&program)
        .arg("limits")
        .arg(place.path("data"))
        .output()
        .expect("timeout runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let image = place.image_of(&program);
    assert_eq!(
        (
            written(&place, &image, "big"),
            written(&place, &image, "out")
        ),
        (1024, 100)
    );
}

#[test]
fn a_hard_limit_on_file_sizes_makes_a_smaller_table_or_none() {
    for (blocks, recorded) in [(128, true), (1, false)] {
        let place = Place::new("hard-limit");
        let program = place.compile("hostile");
        let script = format!("ulimit -f {blocks}; exec \"$@\"");
        let mut command = place.command("/bin/bash");
        let command = command
            .args(["-c", &script, "bash"])
            .arg(&program)
            .arg("plain")
            .arg(place.path("data"));
        let out = command.output().expect("timeout runs");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let images = place.images();
        let exe = program.as_os_str().as_encoded_bytes();
        assert_eq!(
            images.iter().any(|i| i.process.exe() == exe),
            recorded,
            "{blocks} blocks"
        );
        let troubles = std::fs::read_dir(place.tables()).expect("tables").flatten();
        let troubles = troubles
            .filter(|e| e.file_name().to_string_lossy().starts_with(TROUBLE_PREFIX))
            .count();
        assert_eq!(troubles > 0, !recorded);
    }
}

#[test]
fn children_behind_another_root_or_user_count_in_the_table_of_their_parent() {
    skip_unless!(is_root(), "only root may do this");
    for mode in ["root", "user"] {
        let place = Place::new(mode);
        // Others may come in.
        std::fs::set_permissions(place.path(""), std::fs::Permissions::from_mode(0o755))
            .expect("permissions");
        std::fs::set_permissions(place.tables(), std::fs::Permissions::from_mode(0o700))
            .expect("permissions");
        let program = place.compile("hostile");
        place.record(&program, [mode.into(), place.path("data")]);
        let image = place.image_of(&program);
        let sum: i64 = image
            .posix
            .values()
            .filter(|f| f.name.ends_with("/child"))
            .map(|f| f.ints[posix::BYTES_WRITTEN])
            .sum();
        assert_eq!(sum, 30, "{mode}");
    }
}

#[test]
fn a_child_is_recorded_though_the_environment_is_cleared() {
    let (place, image) = run("bare");
    assert_eq!(written(&place, &image, "out"), 100);
    let child = place
        .images()
        .into_iter()
        .find(|i| i.process.by_fork)
        .expect("the child's table");
    assert_eq!(written(&place, &child, "child"), 30);
}

#[test]
fn paths_that_are_none_are_left_to_the_kernel() {
    let (place, image) = run("astray");
    assert_eq!(written(&place, &image, "out"), 100);
    assert_eq!(image.extras["open_failed"], 8);
    assert_eq!(image.extras["stat_missed"], 4);
    assert_eq!(image.extras["access"], 4);
}

#[test]
fn programs_that_forbid_themselves_system_calls_live_and_are_counted() {
    let (place, image) = run("strict");
    assert_eq!(written(&place, &image, "out"), 100);
    assert_eq!(image.excluded.bytes_read, 100);
    let (place, image) = run("filter");
    assert_eq!(
        [
            written(&place, &image, "out"),
            written(&place, &image, "shared")
        ],
        [100, 40]
    );
    assert_eq!(written(&place, &image, "filtered"), 30);
}

#[test]
fn children_that_may_make_few_system_calls_live_and_are_counted() {
    let place = Place::new("shut-in");
    let program = place.compile("shut_in");
    place.record(&program, [place.path("data")]);
    let images = place.images();
    let written = images.iter().map(|image| written(&place, image, "out"));
    assert_eq!(written.sum::<i64>(), 4);
}

#[test]
fn a_full_file_system_under_the_tables_kills_nobody() {
    skip_unless!(is_root(), "only root may mount");
    for size in ["4k", "64k", "96k", "200k"] {
        let place = Place::new("full");
        let program = place.compile("hostile");
        for n in 0..5 {
            std::fs::create_dir_all(place.path(&format!("data/d{n}"))).expect("a folder");
        }
        // A file system that only this process sees and that ends with it.
        let script = format!(
            "mount -t tmpfs -o size={size} tmpfs '{0}' && LD_PRELOAD='{1}' \"$@\" && cp -r '{0}' '{2}'",
            place.tables().display(),
            Library::Recorder.path().display(),
            place.text("copy"),
        );
        let mut command = Command::new("timeout");
        command.args(["100", "unshare", "-m", "bash", "-c", &script, "bash"]);
        command.arg(&program).arg("fewer").arg(place.path("data"));
        command
            .env(forebay_count::ENV_RECORD_DIR, place.tables())
            .process_group(0);
        let out = command.output().expect("timeout runs");
        let errors = String::from_utf8_lossy(&out.stderr);
        let refused = ["permission denied", "Operation not permitted"];
        skip_unless!(
            !refused.iter().any(|words| errors.contains(words)),
            "no mounts here"
        );
        assert!(out.status.success(), "{size}: {errors}");
        assert_eq!(
            std::fs::metadata(place.path("data/out"))
                .expect("a file")
                .len(),
            100
        );
        let tables = std::fs::read_dir(place.path("copy"))
            .expect("a copy")
            .flatten();
        for table in tables.filter(|t| t.path().extension().is_some_and(|e| e == "table")) {
            let image = Image::read(&table.path());
            let opens = image.posix_sum(posix::OPENS) as u64 + image.unplaced.opens;
            assert_eq!(
                opens, 5_001,
                "{size}: totals are exact however little room there is"
            );
        }
    }
}

#[test]
fn what_a_library_does_before_main_is_counted() {
    let place = Place::new("early");
    let library = place.compile_by("cc", "early.c", &["-shared", "-fPIC"]);
    let target = place.path("libearly.so");
    std::fs::rename(library, &target).expect("a library");
    let flags = ["-Wl,--no-as-needed", &place.text("libearly.so")];
    let program = place.compile_by("cc", "nothing.c", &flags);
    place.record(&program, [""; 0]);
    let image = place.image_of(&program);
    let early = &image.posix[&place.text("early-out")];
    assert_eq!(
        (early.ints[posix::BYTES_WRITTEN], early.ints[posix::OPENS]),
        (12, 1)
    );
    let late = &image.posix[&place.text("late-out")];
    assert_eq!(late.ints[posix::BYTES_WRITTEN], 4);
}
