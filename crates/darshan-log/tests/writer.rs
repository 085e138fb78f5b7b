//! What the writer promises: the order, the names of files, what fits and what does not.

mod common;

use common::every_module::{self, heatmap, job, lustre, mount, record, reduced, trace};
use common::{TempFolder, every_module::RANKS};
use darshan_log::*;
use std::cell::Cell;
use std::io::{Cursor, SeekFrom};
use std::rc::Rc;

fn writer() -> LogWriter<Cursor<Vec<u8>>> {
    LogWriter::new(Cursor::new(Vec::new()), &job(), "./app", &[]).unwrap()
}

fn log_of(writer: LogWriter<Cursor<Vec<u8>>>) -> Log {
    Log::from_bytes(writer.finish().unwrap().0.into_inner()).unwrap()
}

fn all<M: Module>(log: &Log) -> Vec<M::Record> {
    log.records::<M>().collect::<Result<_>>().unwrap()
}

#[test]
fn every_module_is_read_as_it_was_written() {
    let log = Log::from_bytes(every_module::bytes()).unwrap();
    assert_eq!(log.job, job());
    assert_eq!(log.exe, "./app -n 4");
    assert_eq!(
        log.mounts,
        [mount("/scratch", "lustre"), mount("/", "ext4")]
    );
    assert_eq!(log.names.len(), 7);
    let posix = all::<Posix>(&log);
    assert_eq!(
        posix,
        [reduced(every_module::FILE), record(b"/scratch/own.0", 0)]
    );
    assert_eq!(all::<MpiIo>(&log), [reduced(every_module::FILE)]);
    assert_eq!(
        all::<H5d>(&log)[0].extra.file_id,
        record_id(every_module::FILE)
    );
    assert_eq!(
        all::<PnetcdfVar>(&log)[0].counters,
        reduced::<PnetcdfVar>(b"").counters
    );
    assert_eq!(all::<Lustre>(&log), [lustre()]);
    assert_eq!(
        all::<DxtPosix>(&log),
        (0..RANKS).map(trace).collect::<Vec<_>>()
    );
    assert_eq!(all::<DxtMpiio>(&log).len(), 4);
    assert_eq!(all::<Heatmap>(&log)[5], heatmap(b"heatmap:MPIIO", 1));
    assert!(log.module(ModuleId::Stdio).unwrap().partial);
    assert!(!log.module(ModuleId::Posix).unwrap().partial);
    assert_eq!(log.trailing().unwrap(), b"more than Darshan knows");
}

#[test]
fn regions_lie_one_behind_the_other_up_to_the_end() {
    let bytes = every_module::bytes();
    let log = Log::from_bytes(bytes.clone()).unwrap();
    let mut regions = vec![log.header.job, log.header.names];
    regions.extend(log.modules().iter().map(|module| module.extent));
    assert_eq!(regions[0].offset, 1328);
    assert!(
        regions
            .windows(2)
            .all(|pair| pair[0].end() == pair[1].offset),
        "{regions:?}"
    );
    assert_eq!(
        log.header.end() + log.trailing().unwrap().len() as u64,
        bytes.len() as u64
    );
}

#[test]
fn daos_records_keep_pool_container_and_object() {
    let mut object = record::<Daos>(b"object", 2);
    object.extra = DaosObject {
        place: DaosContainer {
            pool: [1, 2],
            container: [3, 4],
        },
        oid_hi: 5,
        oid_lo: 6,
    };
    let mut file = record::<Dfs>(b"file", 2);
    file.extra = object.extra.place;
    let mut writer = writer();
    writer.record::<Dfs>(&file).unwrap();
    writer.record::<Daos>(&object).unwrap();
    let log = log_of(writer);
    assert_eq!(
        (all::<Dfs>(&log), all::<Daos>(&log)),
        (vec![file], vec![object])
    );
}

#[test]
fn a_log_without_names_and_records_is_a_log() {
    let log = log_of(writer());
    assert!(log.names.is_empty() && log.modules().is_empty());
    assert_eq!(
        (log.trailing().unwrap().len(), log.header.end()),
        (0, log.file_len())
    );
}

#[test]
fn out_of_order_is_an_error_that_says_so() {
    let mut writer = writer();
    writer.record::<Stdio>(&Record::new(1, 0)).unwrap();
    let error = writer.record::<Posix>(&Record::new(1, 0)).unwrap_err();
    assert!(
        error.to_string().contains("modules come by number"),
        "{error}"
    );
    assert!(
        writer
            .name(1, b"late")
            .unwrap_err()
            .to_string()
            .contains("names come before records")
    );
    writer.record::<Stdio>(&Record::new(2, 0)).unwrap();
    assert_eq!(all::<Stdio>(&log_of(writer)).len(), 2);
}

#[test]
fn what_the_format_cannot_hold_is_an_error() {
    let mut writer = writer();
    assert!(writer.name(1, b"a\0b").is_err());
    let lopsided = HeatmapRecord {
        written: vec![1],
        ..Default::default()
    };
    assert!(writer.record::<Heatmap>(&lopsided).is_err());
    assert!(LogWriter::new(Cursor::new(Vec::new()), &job(), "a\0b", &[]).is_err());
}

#[test]
fn a_long_command_line_leaves_room_for_one_mount_and_the_rest_is_counted() {
    let exe = "ä".repeat(2000);
    let mounts = [
        mount("/a\nb", "ext4"),
        mount("/scratch", "lustre"),
        mount("/home", "nfs"),
    ];
    let writer = LogWriter::new(Cursor::new(Vec::new()), &job(), &exe, &mounts).unwrap();
    let (file, written) = writer.finish().unwrap();
    assert!(written.exe_truncated);
    assert_eq!(written.mounts_left_out, 2);
    let log = Log::from_bytes(file.into_inner()).unwrap();
    assert!(exe.starts_with(&log.exe) && log.exe.len() > 2990);
    assert_eq!(log.mounts, [mount("/scratch", "lustre")]);
}

#[test]
fn a_file_has_its_name_only_when_it_is_complete() {
    let folder = TempFolder::new("writer");
    let path = folder.0.join("job.darshan");
    let partial = folder.0.join("job.darshan_partial");
    let writer = LogWriter::create(&path, &job(), "./app", &[]).unwrap();
    assert!(partial.exists() && !path.exists());
    drop(writer);
    assert!(
        !partial.exists() && !path.exists(),
        "an unfinished log stays behind"
    );
    let writer = LogWriter::create(&path, &job(), "./app", &[]).unwrap();
    writer.finish().unwrap();
    assert!(!partial.exists());
    assert_eq!(Log::open(&path).unwrap().exe, "./app");
    let missing = folder.0.join("nowhere/job.darshan");
    let error = LogWriter::create(&missing, &job(), "", &[]).err().unwrap();
    assert!(
        error
            .to_string()
            .contains("nowhere/job.darshan_partial: can't create"),
        "{error}"
    );
}

/// Counts bytes and keeps none. Bytes that the writer holds back are not counted.
#[derive(Clone, Default)]
struct Counting {
    position: u64,
    bytes: Rc<Cell<u64>>,
}

impl std::io::Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.position += bytes.len() as u64;
        self.bytes.set(self.bytes.get() + bytes.len() as u64);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl std::io::Seek for Counting {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        match to {
            SeekFrom::Start(at) => self.position = at,
            SeekFrom::Current(by) => self.position = self.position.saturating_add_signed(by),
            SeekFrom::End(_) => panic!("the writer knows where it is"),
        }
        Ok(self.position)
    }
}

#[test]
fn records_are_written_as_they_come() {
    let sink = Counting::default();
    let bytes = sink.bytes.clone();
    let mut writer = LogWriter::new(sink, &job(), "", &[]).unwrap();
    let mut random = 1u64;
    for _ in 0..4_000 {
        let mut record = Record::<Posix>::new(random, 0);
        for counter in &mut record.counters {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            *counter = random as i64;
        }
        writer.record::<Posix>(&record).unwrap();
    }
    let before_the_end = bytes.get();
    writer.finish().unwrap();
    assert!(bytes.get() > 2_000_000);
    assert!(
        bytes.get() - before_the_end < 128 * 1024,
        "{before_the_end} of {}",
        bytes.get()
    );
}
