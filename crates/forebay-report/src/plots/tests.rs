use super::*;
use crate::model::Counters;
use crate::sample::*;

fn about(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-6, "{value} is not {expected}");
}

fn used(meta_seconds: f64, start: f64, end: f64) -> Counters {
    Counters {
        opens: 1,
        meta_seconds,
        in_use: Some((start, end)),
        ..Counters::default()
    }
}

#[test]
fn metadata_is_spread_over_the_time_in_which_files_are_in_use_and_none_is_lost() {
    let mut job = plain_job(1);
    by_rank(&mut job, Interface::Posix, "/a", 0, used(3.0, 10.25, 40.25));
    by_rank(&mut job, Interface::Posix, "/b", 0, used(1.0, 55.5, 55.5));
    by_rank(
        &mut job,
        Interface::Posix,
        "/c",
        0,
        used(2.0, 99.0, f64::INFINITY),
    );
    let sums = over_time(&job).unwrap();
    assert_eq!(sums.metadata_seconds.len(), 100);
    about(sums.metadata_seconds.iter().sum(), 6.0);
    about(sums.metadata_seconds[9], 0.0);
    about(sums.metadata_seconds[10], 0.075);
    about(sums.metadata_seconds[20], 0.1);
    about(sums.metadata_seconds[40], 0.025);
    about(sums.metadata_seconds[55], 1.0);
    about(sums.metadata_seconds[99], 2.0);
}

#[test]
fn bytes_of_two_timelines_are_added_on_the_finer_grid() {
    let mut job = plain_job(1);
    for (interface, bins, read) in [
        (Interface::Posix, 4, vec![8.0, 0.0, 0.0, 4.0]),
        (Interface::Stdio, 2, vec![2.0, 6.0]),
        // What passes through MPI-IO passes through POSIX again.
        (Interface::MpiIo, 1, vec![100.0]),
    ] {
        job.timelines.push(Timeline {
            interface,
            source: TimelineSource::Heatmap,
            bin_seconds: 100.0 / bins as f64,
            bins,
            ranks_per_row: 1,
            written: vec![0.0; read.len()],
            read,
            last_active: vec![None],
        });
    }
    let sums = over_time(&job).unwrap();
    assert_eq!(sums.bytes_read, [9.0, 1.0, 3.0, 7.0]);
    assert_eq!(sums.interfaces, ["POSIX", "STDIO"]);
    about(sums.interval_seconds, 25.0);
}

#[test]
fn many_ranks_share_a_group_that_still_tells_the_slowest_one() {
    let mut job = plain_job(130);
    for rank in 0..130 {
        let seconds = if rank == 77 { 50.0 } else { 1.0 };
        by_rank(
            &mut job,
            Interface::Posix,
            &format!("/d/{rank}"),
            rank,
            writes(1, 10, seconds),
        );
    }
    let plots = Plots::of(&job, &Account::of(&job));
    assert_eq!(plots.ranks.len(), 44);
    assert_eq!(plots.ranks.iter().map(|one| one.ranks).sum::<u32>(), 130);
    about(plots.ranks[25].most_seconds, 50.0);
    about(plots.ranks[25].write_seconds, 52.0 / 3.0);
    assert_eq!(plots.directories.len(), 1);
    assert_eq!(plots.directories[0].files, 130);
    assert_eq!(plots.file_classes[1].files, 130);
    about(plots.directories[0].seconds, 179.0);
}

#[test]
fn each_target_of_a_file_has_an_equal_part() {
    let mut job = plain_job(2);
    for (name, rank, seconds) in [("/pfs/a", 0, 6.0), ("/pfs/b", 1, 1.0)] {
        by_rank(
            &mut job,
            Interface::Posix,
            name,
            rank,
            writes(3, 100, seconds),
        );
    }
    assert_eq!(Plots::of(&job, &Account::of(&job)).targets, []);
    job.files[0].targets = vec![7, 8, 9];
    job.files[1].targets = vec![9];
    let found = Plots::of(&job, &Account::of(&job)).targets;
    let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["OST 9", "OST 7", "OST 8"]);
    assert_eq!((found[0].files, found[0].bytes_written), (2, 400));
    assert_eq!((found[1].files, found[1].bytes_written), (1, 100));
    about(found[0].seconds, 3.0);
    about(found.iter().map(|one| one.seconds).sum(), 7.0);
}

#[test]
fn several_mounts_with_io_are_told_and_types_only_where_they_sum_them() {
    let mut job = plain_job(1);
    for (at, (mount, fs)) in [("/", "xfs"), ("/pfs", "lustre"), ("/scratch", "lustre")]
        .into_iter()
        .enumerate()
    {
        let told = |job: &Job| {
            let plots = Plots::of(job, &Account::of(job));
            (plots.mounts_are_told(), plots.file_systems_are_told())
        };
        let name = format!("{mount}/f");
        // A file that was only opened, in no time, makes no picture.
        by_rank(&mut job, Interface::Posix, &name, 0, used(0.0, 1.0, 1.0));
        let file = job.files.last_mut().unwrap();
        (file.mount, file.fs) = (mount.to_owned(), fs.to_owned());
        let before = [(false, false), (false, false), (true, false)];
        assert_eq!(told(&job), before[at], "{mount}");
        by_rank(
            &mut job,
            Interface::Posix,
            &format!("{mount}/g"),
            0,
            writes(1, 5, 1.0),
        );
        let file = job.files.last_mut().unwrap();
        (file.mount, file.fs) = (mount.to_owned(), fs.to_owned());
        let after = [(false, false), (true, false), (true, true)];
        assert_eq!(told(&job), after[at], "{mount}");
    }
    let plots = Plots::of(&job, &Account::of(&job));
    let of_pfs = plots.mounts.iter().find(|one| one.name == "/pfs").unwrap();
    assert_eq!(of_pfs.file_system.as_deref(), Some("lustre"));
    assert!(
        plots
            .directories
            .iter()
            .all(|one| one.file_system.is_none())
    );
    for file in &mut job.files {
        file.mount.clear();
    }
    let plots = Plots::of(&job, &Account::of(&job));
    assert!(!plots.mounts_are_told() && plots.file_systems_are_told());
}

#[test]
fn places_beyond_the_first_ones_are_summed() {
    let mut job = plain_job(1);
    for i in 0..20u32 {
        let counters = writes(1, 5, f64::from(i + 1));
        by_rank(
            &mut job,
            Interface::Posix,
            &format!("/d{i:02}/f"),
            0,
            counters,
        );
    }
    let found = Plots::of(&job, &Account::of(&job)).directories;
    assert_eq!(found.len(), MOST_PLACES + 1);
    assert_eq!(found[0].name, "/d19/");
    assert_eq!(found[MOST_PLACES].name, OTHER_PLACES);
    assert_eq!(found.iter().map(|one| one.files).sum::<u64>(), 20);
    about(found.iter().map(|one| one.seconds).sum(), 210.0);
}
