//! What was fetched from storage, against what was read.

use super::*;

const MIB: u64 = 1 << 20;

/// A job with 2,000 reads of 16 KiB at 1,000 places, for which so many bytes were fetched.
fn fetched(bytes: u64) -> Job {
    let mut total = reads(2000, 16 << 10, 10.0);
    (total.read.consecutive, total.read.sequential) = (999, 1500);
    let mut job = with_own(total);
    let asked = 2000 * (16 << 10);
    job.coverage = Some(Coverage {
        seen: asked,
        total: asked,
        elsewhere: 0,
        fetched: Some(Fetched {
            bytes,
            at_start: 0,
            asked,
        }),
    });
    job
}

const ASKED: u64 = 2000 * (16 << 10);

fn with(mut job: Job, change: impl FnOnce(&mut Fetched)) -> Job {
    change(job.coverage.as_mut().unwrap().fetched.as_mut().unwrap());
    job
}

#[test]
fn read_ahead_that_nobody_reads_is_found_from_half_more_and_16_mib_more_on() {
    let found = fires(&fetched(3 * ASKED), "read-ahead");
    assert_eq!(found.seconds_lost, None);
    about(found.concerned_seconds, 10.0);
    assert_eq!(
        found.title,
        "Storage delivered 3.0 times what was read: 93.8 MiB for 31.2 MiB"
    );
    assert!(found.evidence[0].starts_with("1,000 reads in 1 file"));
    assert!(
        found.advice.contains("POSIX_FADV_RANDOM"),
        "{}",
        found.advice
    );
    // 31.25 MiB were read, so 16 MiB more are more than half.
    fires(&fetched(ASKED + 16 * MIB), "read-ahead");
    is_silent(&fetched(ASKED + 16 * MIB - 1), "read-ahead");
    let of_64 = |bytes| with(fetched(bytes), |f| f.asked = 64 * MIB);
    fires(&of_64(96 * MIB), "read-ahead");
    is_silent(&of_64(96 * MIB - 1), "read-ahead");
    let mut unknown = fetched(3 * ASKED);
    unknown.coverage.as_mut().unwrap().fetched = None;
    is_silent(&unknown, "read-ahead");
}

#[test]
fn what_is_fetched_for_code_for_writes_and_for_mappings_is_no_read_ahead() {
    let beyond = ASKED + 20 * MIB;
    let code = |bytes| with(fetched(beyond), |f| f.at_start = bytes);
    fires(&code(4 * MIB), "read-ahead");
    is_silent(&code(4 * MIB + 1), "read-ahead");
    let mut mapped = fetched(beyond);
    mapped.layers[0].uses[0].total.mmaps = 1;
    is_silent(&mapped, "read-ahead");
    // A write may fetch the pages at its ends, in a file that was there.
    let written = |writes_of: u64, created| {
        let mut job = fetched(beyond);
        let total = writes(writes_of, 100, 0.0);
        by_rank(&mut job, Interface::Posix, "/pfs/updated", 3, total);
        job.files[1].created = created;
        job
    };
    fires(&written(512, None), "read-ahead");
    is_silent(&written(513, Some(false)), "read-ahead");
    fires(&written(513, Some(true)), "read-ahead");
}

#[test]
fn files_that_are_read_in_a_row_are_not_what_was_read_ahead_in_vain() {
    let mut job = fetched(3 * ASKED);
    // One place less is below a thousand.
    job.layers[0].uses[0].total.read.consecutive = 1000;
    is_silent(&job, "read-ahead");
    let mut many = reads(10_000, 4 << 10, 10.0);
    many.read.consecutive = 9_999 - 2000;
    let mut job = fetched(3 * ASKED);
    job.layers.clear();
    by_rank(&mut job, Interface::Posix, "/pfs/own", 3, many.clone());
    fires(&job, "read-ahead");
    many.read.consecutive += 1;
    job.layers.clear();
    by_rank(&mut job, Interface::Posix, "/pfs/own", 3, many);
    is_silent(&job, "read-ahead");
}

#[test]
fn whole_pages_of_small_records_are_told_from_read_ahead() {
    let mut total = reads(10_000, 100, 10.0);
    total.read.consecutive = 0;
    let mut job = fetched(40 * MIB);
    job.layers.clear();
    by_rank(&mut job, Interface::Posix, "/pfs/own", 3, total);
    let found = fires(&with(job, |f| f.asked = MIB), "read-ahead");
    assert!(found.evidence[2].starts_with("whole pages"), "{found:#?}");
    assert!(!found.advice.contains("FADV"), "{}", found.advice);
}

#[test]
fn what_storage_delivered_is_said_beside_the_coverage() {
    let report = |bytes| crate::Report::new(fetched(bytes), &Thresholds::default());
    let text = report(20 * MIB).text();
    assert!(
        text.contains("delivered 20.0 MiB, by the kernel's count, of the 31.2 MiB"),
        "{text}"
    );
    let json = report(7).json();
    assert_eq!(json["coverage"]["fetched_bytes"], 7);
    assert_eq!(json["coverage"]["asked_bytes"], ASKED);
}
