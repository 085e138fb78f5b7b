//! What must hold for any bytes that are given as a Darshan log.

use darshan_log::{
    Bgq, CounterModule, Daos, Dfs, DxtMpiio, DxtPosix, Error, H5d, H5f, Heatmap, Limits, Log,
    LogWriter, Lustre, Module, MpiIo, OpenOptions, PnetcdfFile, PnetcdfVar, Posix, Stdio,
    accumulate, combine, derive, reduce, rewrite,
};
use std::io::Cursor;

const LIMITS: Limits = Limits {
    name_bytes: 1 << 18,
    module_bytes: 1 << 18,
    record_bytes: 1 << 16,
    trailing_bytes: 1 << 18,
};

/// Reads `bytes` in every way that there is. What is whole can be rewritten, and rewritten
/// again it is the same.
pub fn any_log(bytes: &[u8]) {
    let strict = OpenOptions::new().limits(LIMITS).from_bytes(bytes);
    let Ok(log) = OpenOptions::new()
        .lenient(true)
        .limits(LIMITS)
        .from_bytes(bytes)
    else {
        assert!(strict.is_err());
        return;
    };
    assert_eq!(strict.is_ok(), log.damage.is_empty());
    let errors = [
        counters::<Posix>(&log),
        counters::<MpiIo>(&log),
        counters::<Stdio>(&log),
        counters::<H5f>(&log),
        counters::<H5d>(&log),
        counters::<PnetcdfFile>(&log),
        counters::<PnetcdfVar>(&log),
        counters::<Bgq>(&log),
        counters::<Dfs>(&log),
        counters::<Daos>(&log),
        log.readable_records::<Lustre>().1,
        log.readable_records::<DxtPosix>().1,
        log.readable_records::<DxtMpiio>().1,
        heatmaps(&log),
    ];
    // What stands behind the regions may be anything.
    let _ = log.facts();
    if errors.iter().all(Option::is_none) && log.damage.is_empty() {
        rewritten_twice(&log);
    }
}

fn counters<M: CounterModule>(log: &Log) -> Option<Error> {
    let (records, error) = log.readable_records::<M>();
    assert_eq!(reduce(&records).is_some(), !records.is_empty());
    assert_eq!(accumulate(&records).is_some(), !records.is_empty());
    derive(records.into_iter().map(Ok), log.job.nprocs).expect("no record is an error");
    error
}

fn heatmaps(log: &Log) -> Option<Error> {
    let (records, error) = log.readable_records::<Heatmap>();
    assert!(
        records
            .iter()
            .all(|record| record.written.len() == record.read.len())
    );
    // Widths may not fit each other; it must not panic.
    let _ = combine(&records);
    error
}

fn rewritten_twice(log: &Log) {
    let Some(once) = rewritten(log) else { return };
    let copy = Log::from_bytes(once.clone()).expect("what was written is a log");
    assert_eq!(count::<Posix>(log), count::<Posix>(&copy));
    assert_eq!(count::<DxtPosix>(log), count::<DxtPosix>(&copy));
    let twice = rewritten(&copy).expect("it could be written before");
    assert!(once == twice, "a copy of a copy is another log");
}

fn count<M: Module>(log: &Log) -> usize {
    log.records::<M>().count()
}

/// `None`: a name that the format of today can't hold, or a limit.
fn rewritten(log: &Log) -> Option<Vec<u8>> {
    let writer = LogWriter::new(Cursor::new(Vec::new()), &log.job, &log.exe, &log.mounts).ok()?;
    match rewrite(log, writer) {
        Ok((file, written, _)) => {
            assert_eq!(file.get_ref().len() as u64, written.bytes);
            Some(file.into_inner())
        }
        Err(
            Error::Unwritable { .. }
            | Error::Limit { .. }
            | Error::Corrupt { .. }
            | Error::Truncated { .. },
        ) => None,
        Err(error) => panic!("{error}"),
    }
}
