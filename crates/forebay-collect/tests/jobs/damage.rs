//! Files that are no tables, and logs for which there is no room.

use crate::stage::{Stage, image};
use darshan_log::Posix;
use forebay_count::layout::H_IO_FIRST;
use std::fs;

/// The job still has the file of its only good table.
fn still_has_one_file(stage: &Stage, named: &str) {
    let (collected, log) = stage.collect();
    assert_eq!(log.records::<Posix>().count(), 1);
    assert_eq!(collected.remarks.len(), 1, "{:?}", collected.remarks);
    assert!(
        collected.remarks[0].contains(named),
        "{:?}",
        collected.remarks
    );
    let degraded = log.job.metadata.get("degraded");
    assert_eq!(degraded, Some("1 table unreadable"));
    fs::remove_file(&collected.log).unwrap();
}

#[test]
fn a_table_that_is_none_is_named_and_the_others_are_used() {
    let mut stage = Stage::new();
    let good = stage.table(&image(10, 1, "sim"), |does| does.write("/d/x", 0, 1, 1));
    let bad = good.with_file_name("99-99-0.table");
    let whole = fs::read(&good).unwrap();
    let garbage: Vec<u8> = (0..100_000_u32)
        .map(|n| n.wrapping_mul(2_654_435_761) as u8)
        .collect();
    // Its process has made it, and its first page is lost.
    let mut headless = whole.clone();
    headless[..4096].fill(0);
    // It was in use, so its process had not been killed while it made it.
    let mut nameless = whole.clone();
    nameless[..8].fill(0);
    nameless[8 * H_IO_FIRST] = 1;
    let garbled = [&garbage[..], &whole[..100], &[0xff; 1 << 16], &[0; 100]];
    for content in garbled.into_iter().chain([&headless[..], &nameless]) {
        fs::write(&bad, content).unwrap();
        still_has_one_file(&stage, "99-99-0.table is damaged");
    }
    fs::remove_file(&bad).unwrap();
    fs::create_dir(&bad).unwrap();
    still_has_one_file(&stage, "99-99-0.table is damaged");
}

#[test]
fn a_process_that_was_killed_while_it_started_is_named_and_is_no_damage() {
    let mut stage = Stage::new();
    let good = stage.table(&image(10, 1, "sim"), |does| does.write("/d/x", 0, 1, 1));
    let other = stage.table(&image(11, 1, "sim"), |_| {});
    let mut begun = fs::read(&other).unwrap();
    fs::remove_file(&other).unwrap();
    begun[..8].fill(0);
    let begun_table = good.with_file_name("99-98-0.table");
    for content in [&[][..], &vec![0; begun.len()], &begun] {
        fs::write(&begun_table, content).unwrap();
        let (collected, log) = stage.collect();
        assert_eq!(
            collected.remarks,
            ["process 99 was killed before it had recorded anything"]
        );
        assert_eq!(log.records::<Posix>().count(), 1);
        assert_eq!(log.job.metadata.get("degraded"), None);
        fs::remove_file(&collected.log).unwrap();
    }
}

#[test]
fn a_table_with_any_byte_changed_or_cut_anywhere_gives_a_log_and_no_panic() {
    let mut stage = Stage::new();
    let path = stage.table(&image(10, 1, "sim"), |does| {
        does.open("/d/x", Some(10), 1);
        does.write("/d/x", 0, 1000, 2);
    });
    let whole = fs::read(&path).unwrap();
    let used: Vec<usize> = (0..whole.len()).filter(|&at| whole[at] != 0).collect();
    for (n, &at) in used.iter().enumerate() {
        let mut changed = whole.clone();
        changed[at] = if n % 2 == 0 { 0xff } else { 0x80 };
        fs::write(&path, changed).unwrap();
        let collected = stage.try_collect().unwrap();
        fs::remove_file(collected.log).unwrap();
    }
    for length in (0..whole.len()).step_by(997) {
        fs::write(&path, &whole[..length]).unwrap();
        let collected = stage.try_collect().unwrap();
        fs::remove_file(collected.log).unwrap();
    }
}

#[test]
fn a_table_with_any_word_changed_costs_no_record_of_another_process() {
    let mut stage = Stage::new();
    stage.table(&image(11, 1, "good"), |does| {
        does.write("/d/good", 0, 77, 1)
    });
    let path = stage.table(&image(10, 1, "sim"), |does| {
        does.open("/d/x", Some(10), 1);
        does.write("/d/x", 0, 1000, 2);
        does.read("/d/x", 0, 1000, 700);
    });
    let whole = fs::read(&path).unwrap();
    let words = whole.chunks_exact(8).enumerate();
    let used: Vec<usize> = words
        .filter(|(_, word)| word.iter().any(|&b| b != 0))
        .map(|(n, _)| n * 8)
        .collect();
    let values = [u64::MAX, 1 << 63, 1 << 40];
    // What is not set in a table: side slots, heat maps, totals.
    let unused = (0..whole.len().min(64 << 10)).step_by(8 * 101);
    for at in used.into_iter().chain(unused) {
        for value in values {
            let mut changed = whole.clone();
            changed[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            fs::write(&path, changed).unwrap();
            let (collected, log) = stage.collect();
            let records: Vec<_> = log.records::<Posix>().map(Result::unwrap).collect();
            let good = records
                .iter()
                .find(|r| r.id == darshan_log::record_id(b"/d/good"));
            let written = good.map(|r| r.get(darshan_log::counters::posix::Counter::BytesWritten));
            assert_eq!(written, Some(77), "{value:x} at {at}");
            fs::remove_file(&collected.log).unwrap();
        }
    }
}

#[test]
fn calls_in_no_record_of_a_file_are_counted_with_their_bytes() {
    for (calls, said) in [
        (1, "1 call in no record of a file"),
        (2, "2 calls in no record of a file"),
    ] {
        let mut stage = Stage::new();
        stage.table(&image(10, 1, "sim"), |does| {
            (0..calls).for_each(|_| does.write_nowhere(36));
        });
        let (_, log) = stage.collect();
        assert_eq!(log.job.metadata.get("degraded"), Some(said));
        let bytes = (36 * calls).to_string();
        let written = log.job.metadata.get("unplaced_written");
        assert_eq!(written, Some(bytes.as_str()));
    }
}

#[test]
fn what_the_recorder_complained_of_is_a_remark() {
    let mut stage = Stage::new();
    stage.table(&image(10, 1, "sim"), |_| {});
    let note = stage.recordings[0].dir.join("trouble.77");
    fs::write(note, "no room\nfor a \x1b[31mtable\n").unwrap();
    let (collected, _) = stage.collect();
    assert_eq!(
        collected.remarks,
        ["the recorder of process 77 says: no room for a  [31mtable"]
    );
}

#[test]
fn a_log_that_exists_is_not_overwritten() {
    let stage = Stage::new();
    let error = stage.try_collect().unwrap_err().to_string();
    assert!(error.contains("no recording"), "{error}");
    let mut stage = Stage::new();
    stage.table(&image(10, 1, "sim"), |_| {});
    fs::write(stage.dir.join("job.darshan"), "mine").unwrap();
    let error = stage.try_collect().unwrap_err().to_string();
    assert!(error.contains("job.darshan"), "{error}");
    assert_eq!(fs::read(stage.dir.join("job.darshan")).unwrap(), b"mine");
}
