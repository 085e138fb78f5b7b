//! Calls that are in no record of a file, steps beside ranks, and jobs that ran in a buffer.

use super::*;

/// Adds what a rank asked for, outside of all records.
fn asked(job: &mut Job, rank: u32, calls: u64, seconds: f64) {
    let counters = Counters {
        asked: calls,
        meta_seconds: seconds,
        ..Counters::default()
    };
    by_rank(job, Interface::Posix, "(access)", rank, counters);
    let file = job.files.iter_mut().find(|file| file.name == "(access)");
    file.expect("just added").is_calls = true;
}

#[test]
fn a_storm_of_access_is_a_stat_storm_with_its_seconds() {
    let mut job = plain_job(1);
    asked(&mut job, 0, 100_000, 40.0);
    let found = fires(&job, "stat-storm");
    about(found.seconds_lost, 40.0);
    assert_eq!(found.files[0].name, "(access)");
    let account = Account::of(&job);
    assert_eq!((account.time.metadata, account.moved.files), (40.0, 0));
    let mut few = plain_job(1);
    asked(&mut few, 0, 999, 40.0);
    is_silent(&few, "stat-storm");
}

#[test]
fn names_that_are_removed_take_time_and_are_no_storm() {
    let mut job = plain_job(1);
    let counters = Counters {
        other_calls: 100_000,
        meta_seconds: 40.0,
        ..Counters::default()
    };
    by_rank(&mut job, Interface::Posix, "(unlink)", 0, counters);
    job.files[0].is_calls = true;
    is_silent(&job, "stat-storm");
    is_silent(&job, "metadata-time");
    let report = crate::Report::new(job, &Thresholds::default());
    assert!(report.unexplained.is_some());
    assert_eq!(report.account.time.metadata, 40.0);
}

#[test]
fn who_looks_for_modules_pays_for_names_that_are_not_there_too() {
    let mut job = plain_job(1);
    for n in 0..200 {
        let counters = Counters {
            opens: 1,
            meta_seconds: 0.05,
            ..reads(1, 4096, 0.0)
        };
        by_rank(
            &mut job,
            Interface::Posix,
            &format!("/pfs/m{n}.py"),
            0,
            counters,
        );
    }
    let alone = fires(&job, "import-storm").seconds_lost.unwrap();
    asked(&mut job, 0, 2000, 20.0);
    let found = fires(&job, "import-storm");
    about(found.seconds_lost, alone + 20.0 * (1.0 - 1.0 / 200.0));
    assert!(found.evidence[1].contains("2,000 questions"), "{found:?}");
}

/// Four ranks and a step behind them, each with a file of its own.
fn ranks_and_step(seconds: f64) -> Job {
    let mut job = mpi_job(4);
    job.ranks = 5;
    for rank in 0..5 {
        let time = if rank == 4 { seconds } else { 1.0 };
        let name = format!("/pfs/{rank}");
        by_rank(
            &mut job,
            Interface::Posix,
            &name,
            rank,
            writes(10_000, 4096, time),
        );
    }
    job
}

#[test]
fn a_step_beside_the_ranks_is_no_straggler_and_is_called_what_it_is() {
    let job = ranks_and_step(60.0);
    for code in ["straggler-ranks", "uneven-bytes", "rank-0-io", "idle-tail"] {
        is_silent(&job, code);
    }
    let small = fires(&job, "small-writes");
    assert!(
        small.title.contains("files of a single process"),
        "{small:?}"
    );
    assert!(small.estimate.contains("serial step 0"), "{small:?}");
    let text = crate::Report::new(job, &Thresholds::default()).text();
    assert!(text.contains("4 ranks and 1 serial step"), "{text}");
    assert!(text.contains("serial step 0: 1 min 00 s in I/O"), "{text}");
}

#[test]
fn a_job_without_mpi_has_no_ranks_in_its_findings() {
    let mut job = plain_job(1);
    for n in 0..200 {
        let name = format!("/pfs/{n}");
        by_rank(
            &mut job,
            Interface::Posix,
            &name,
            0,
            Counters {
                opens: 20,
                meta_seconds: 0.1,
                ..writes(100, 4096, 0.2)
            },
        );
    }
    asked(&mut job, 0, 100_000, 10.0);
    for code in [
        "small-writes",
        "repeated-opens",
        "many-small-files",
        "stat-storm",
    ] {
        fires(&job, code);
    }
    let text = crate::Report::new(job, &Thresholds::default()).long_text();
    assert!(!text.contains("rank"), "{text}");
}

#[test]
fn a_job_that_ran_in_a_buffer_is_not_told_to_use_one() {
    let mut job = with_own(writes(10_000, 4096, 50.0));
    job.nodes = Some(1);
    assert!(fires(&job, "small-writes").setting.is_some());
    job.metadata.insert("buffer".to_owned(), "/pfs".to_owned());
    assert_eq!(fires(&job, "small-writes").setting, None);
}

#[test]
fn where_nothing_or_a_part_was_recorded_no_finding_is_not_called_a_good_sign() {
    let text = |job: &Job| crate::Report::new(job.clone(), &Thresholds::default()).text();
    let mut job = plain_job(1);
    assert!(
        text(&job).contains("none: no known pattern"),
        "{}",
        text(&job)
    );
    job.losses.push("1 program was executed".to_owned());
    assert!(text(&job).contains("none in the part that was recorded"));
    job.metadata.insert("processes".to_owned(), "0".to_owned());
    let all = text(&job);
    assert!(all.contains("UNKNOWN") && !all.contains("none:"), "{all}");
    assert!(!all.contains("mean process"), "{all}");
}

#[test]
fn what_the_collective_layer_gathered_is_no_finding_but_told() {
    let mut job = mpi_job(4);
    let counters = Counters {
        write: Flow {
            collective: 40,
            ..flow(40, 320_000, 2.0)
        },
        ..writes(40, 320_000, 2.0)
    };
    by_all(
        &mut job,
        Interface::MpiIo,
        "/pfs/out",
        slowest(0, 0.5, 3_200_000),
        counters,
    );
    job.collective = vec![Collective {
        path: "/pfs/out".to_owned(),
        ranks: 4,
        calls: Calls {
            exchanged: 10,
            ..Calls::default()
        },
        method: Some("aligned".to_owned()),
        aggregators: vec![0, 1],
        pieces: 400_000,
        bytes: 12_800_000,
        file_calls: 8,
        rounds: 4,
        seconds: 1.0,
        file_share: 0.1,
        predicted: [("even", 7), ("aligned", 2)]
            .map(|(method, conflicts)| Prediction {
                method: method.to_owned(),
                requests: Some(9),
                conflicts: Some(conflicts),
            })
            .to_vec(),
        ..Collective::default()
    }];
    let report = crate::Report::new(job.clone(), &Thresholds::default());
    let avoided = report.avoided[0].as_ref().expect("many small pieces");
    assert_eq!(avoided.code, "collective-writes-not-gathered");
    let text = report
        .text()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        text.contains("10 calls gathered by 2 aggregators (aligned)"),
        "{text}"
    );
    assert!(text.contains("5 lock conflicts avoided"), "{text}");
    assert!(
        text.contains("400,000 requests, the finding collective-writes-not-gathered"),
        "{text}"
    );
    let json = report.json();
    assert_eq!(json["collective"][0]["avoided"]["requests"], 400_000);
    assert!(report.html().contains("Collective layer"));
    let mut alone = job.clone();
    alone.collective[0].calls = Calls {
        direct: 16,
        ..Calls::default()
    };
    alone.collective[0].rounds = 0;
    let text = crate::Report::new(alone, &Thresholds::default()).text();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("no call gathered, 16 by each rank for itself"),
        "{text}"
    );
    assert!(
        !text.contains("aggregators (aligned)") && !text.contains("rounds"),
        "{text}"
    );
    job.collective[0].pieces = 10;
    assert_eq!(
        crate::Report::new(job, &Thresholds::default()).avoided,
        [None]
    );
}

/// A walk: so many directories, each opened and asked for twice, and as many seconds as thousands of them.
fn walk(directories: u64, is_noted: bool) -> Job {
    let mut job = plain_job(1);
    for n in 0..directories {
        let total = Counters {
            opens: 2,
            stats: 2,
            meta_seconds: 0.001,
            ..Counters::default()
        };
        by_rank(&mut job, Interface::Posix, &format!("/pfs/d{n}"), 0, total);
    }
    for file in &mut job.files {
        file.is_noted = is_noted;
    }
    job.run_seconds = 10.0;
    job.settle_layers();
    job
}

#[test]
fn directories_are_no_files_and_have_a_finding_of_their_own() {
    let job = walk(2000, true);
    let found = fires(&job, "directory-walk");
    about(found.concerned_seconds, 2.0);
    assert_eq!(
        found.title,
        "A walk over 2,000 directories: 4,000 opens, 4,000 stats"
    );
    for code in ["many-small-files", "metadata-time", "repeated-opens"] {
        is_silent(&job, code);
    }
    let moved = Account::of(&job).moved;
    assert_eq!((moved.files, moved.directories), (0, 2000));
    assert_eq!(moved.files_text(), "0 files and 2,000 directories");
    is_silent(&walk(99, true), "directory-walk");
    fires(&walk(100, true), "directory-walk");
    // One directory from which names are opened over and over.
    let mut one = walk(1, true);
    let of_one = &mut one.layers[0].uses[0];
    (of_one.total.opens, of_one.total.meta_seconds) = (1000, 1.0);
    of_one.by_rank[0].meta_seconds = 1.0;
    fires(&one, "directory-walk");
    is_silent(&one, "repeated-opens");
}

#[test]
fn reading_directories_is_part_of_a_walk() {
    let mut job = walk(200, true);
    let counters = Counters {
        other_calls: 400,
        meta_seconds: 3.0,
        ..Counters::default()
    };
    by_rank(&mut job, Interface::Posix, "(readdir)", 0, counters);
    job.files[200].is_calls = true;
    about(fires(&job, "directory-walk").concerned_seconds, 3.2);
}

#[test]
fn without_notes_of_a_recorder_what_was_only_opened_may_be_a_file() {
    let mut job = walk(200, false);
    let found = fires(&job, "directory-walk");
    assert!(found.title.contains("200 names"), "{}", found.title);
    is_silent(&job, "many-small-files");
    let moved = Account::of(&job).moved;
    assert_eq!((moved.files, moved.directories), (200, 0));
    // An open that was to make it, or a size, tells that it is a file.
    for file in &mut job.files {
        file.is_made = true;
    }
    job.settle_layers();
    is_silent(&job, "directory-walk");
    fires(&job, "many-small-files");
    let mut noted = walk(200, true);
    for file in &mut noted.files {
        file.size_at_open = Some(0);
    }
    noted.settle_layers();
    is_silent(&noted, "directory-walk");
    assert_eq!(Account::of(&noted).moved.files, 200);
}

#[test]
fn what_is_read_written_mapped_or_searched_is_no_directory() {
    for change in [
        |total: &mut Counters| total.mmaps = 1,
        |total: &mut Counters| total.seeks = 1,
        |total: &mut Counters| total.read.ops = 1,
        |total: &mut Counters| total.write.bytes = 1,
    ] {
        let mut job = walk(200, true);
        for one in &mut job.layers[0].uses {
            change(&mut one.total);
        }
        job.settle_layers();
        is_silent(&job, "directory-walk");
        assert_eq!(Account::of(&job).moved.files, 200);
    }
}
