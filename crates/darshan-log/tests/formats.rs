//! Every format, byte order, compression and record version, without any log from elsewhere.

mod common;

use common::dump::{Quirks, dump};
use common::every_module;
use common::raw::{RawLog, every_version, heatmaps, record_words, trace};
use darshan_log::counters::{h5f, pnetcdf_file, posix, stdio};
use darshan_log::*;

const ENDIANS: [Endian; 2] = [Endian::Little, Endian::Big];
const COMPRESSIONS: [Compression; 3] = [Compression::Zlib, Compression::Bzip2, Compression::None];

fn all<M: Module>(log: &Log) -> Vec<M::Record> {
    log.records::<M>().collect::<Result<_>>().unwrap()
}

/// The dump without lengths of regions.
fn contents(log: &Log) -> Vec<String> {
    let lines = dump(log, Quirks::None);
    let without_length = |line: String| match line.strip_prefix("module ") {
        Some(module) => module.rsplit_once(' ').unwrap().0.to_owned(),
        None => line,
    };
    lines.into_iter().map(without_length).collect()
}

#[test]
fn byte_order_and_compression_make_no_difference() {
    let reference: Vec<Vec<String>> = every_version(Endian::Little, Compression::Zlib)
        .iter()
        .map(|log| contents(&Log::from_bytes(log.bytes()).unwrap()))
        .collect();
    assert!(reference.iter().all(|lines| lines.len() > 15));
    for endian in ENDIANS {
        for compression in COMPRESSIONS {
            for (raw, reference) in every_version(endian, compression).iter().zip(&reference) {
                let log = Log::from_bytes(raw.bytes()).unwrap();
                assert_eq!(
                    (log.header.endian, log.header.compression),
                    (endian, compression)
                );
                assert_eq!(log.header.version, raw.version);
                assert_eq!(&contents(&log), reference, "{endian:?} {compression:?}");
            }
        }
    }
}

#[test]
fn numbers_of_old_formats_become_those_of_today() {
    let ids = |version: FormatVersion| {
        let logs = every_version(Endian::Big, Compression::Zlib);
        let raw = logs.iter().find(|log| log.version == version).unwrap();
        let log = Log::from_bytes(raw.bytes()).unwrap();
        let lost = log
            .modules()
            .iter()
            .filter(|m| m.partial)
            .map(|m| m.id)
            .collect::<Vec<_>>();
        let all = log.modules().iter().map(|m| m.id).collect::<Vec<_>>();
        (all, lost, log.header.partial_only.clone())
    };
    use ModuleId::*;
    let v3_00 = [Posix, MpiIo, H5f, PnetcdfFile, Bgq];
    assert_eq!(
        ids(FormatVersion::V3_00),
        (v3_00.to_vec(), vec![PnetcdfFile], vec![])
    );
    let v3_10 = [
        Posix,
        MpiIo,
        H5f,
        PnetcdfFile,
        Bgq,
        Lustre,
        Stdio,
        DxtPosix,
        DxtMpiio,
    ];
    assert_eq!(
        ids(FormatVersion::V3_10),
        (v3_10.to_vec(), vec![Stdio], vec![])
    );
    let v3_21 = [Posix, MpiIo, H5f, H5d, PnetcdfFile, Stdio, DxtMpiio];
    assert_eq!(
        ids(FormatVersion::V3_21),
        (v3_21.to_vec(), vec![PnetcdfFile, Stdio], vec![])
    );
    let v3_41 = [
        Posix,
        H5f,
        H5d,
        PnetcdfFile,
        PnetcdfVar,
        Lustre,
        Heatmap,
        Dfs,
        Daos,
    ];
    assert_eq!(
        ids(FormatVersion::V3_41),
        (v3_41.to_vec(), vec![Heatmap], vec![Unknown(40)])
    );
}

/// A log of one module with these records.
fn with_module(
    version: FormatVersion,
    number: usize,
    record_version: u32,
    records: &[Vec<u64>],
) -> Log {
    let mut raw = RawLog::new(version, Endian::Big, Compression::Zlib);
    let streams = records
        .iter()
        .map(|words| raw.words(words.iter().copied()))
        .collect();
    raw.modules = vec![(number, record_version, streams)];
    Log::from_bytes(raw.bytes()).unwrap()
}

#[test]
fn what_an_old_posix_record_lacks_is_minus_one() {
    let log = with_module(FormatVersion::V3_10, 1, 2, &[record_words(11, 3, 81)]);
    let record = all::<Posix>(&log)[0];
    use posix::{Counter as C, FCounter as F};
    assert_eq!((record.id, record.rank), (11, 3));
    assert_eq!(record.get(C::Opens), 100);
    assert_eq!([record.get(C::Filenos), record.get(C::Dups)], [-1, -1]);
    assert_eq!(record.get(C::Reads), 101);
    assert_eq!(record.get(C::Fdsyncs), 107);
    assert_eq!(
        [record.get(C::RenameSources), record.get(C::RenameTargets)],
        [-1, -1]
    );
    assert_eq!([record.get(C::RenamedFrom), record.get(C::Mode)], [0, 108]);
    assert_eq!(record.get(C::SlowestRankBytes), 163);
    assert_eq!(record.getf(F::OpenStartTimestamp).to_bits(), 164);
    assert_eq!(
        [
            record.getf(F::CloseStartTimestamp),
            record.getf(F::OpenEndTimestamp)
        ],
        [-1.0, -1.0]
    );
    assert_eq!(record.getf(F::ReadEndTimestamp).to_bits(), 167);
    assert_eq!(record.getf(F::VarianceRankBytes).to_bits(), 178);
}

#[test]
fn a_stream_among_the_first_posix_records_is_left_out() {
    let (mut file, stream) = (record_words(11, 0, 85), record_words(12, 0, 85));
    file[8..12].fill(0);
    let log = with_module(FormatVersion::V3_00, 1, 1, &[stream.clone(), file, stream]);
    let records = all::<Posix>(&log);
    assert_eq!(
        records.iter().map(|record| record.id).collect::<Vec<_>>(),
        [11]
    );
    assert_eq!(records[0].get(posix::Counter::Mmaps), 105);
    assert_eq!(records[0].get(posix::Counter::Fsyncs), 110);
}

#[test]
fn what_other_old_records_lack_is_minus_one() {
    let log = with_module(FormatVersion::V3_10, 7, 1, &[record_words(11, 0, 30)]);
    let stdio = all::<Stdio>(&log)[0];
    assert_eq!(stdio.counters[..3], [100, -1, 101]);
    assert_eq!(
        stdio.getf(stdio::FCounter::VarianceRankBytes).to_bits(),
        127
    );

    let log = with_module(FormatVersion::V3_00, 3, 1, &[record_words(11, 0, 5)]);
    let file = all::<H5f>(&log)[0];
    assert_eq!(file.counters, [100, -1, -1]);
    assert_eq!(file.fcounters.map(f64::to_bits)[0], 101);
    assert_eq!(file.fcounters[1..3], [-1.0, -1.0]);
    assert_eq!(file.getf(h5f::FCounter::CloseEndTimestamp).to_bits(), 102);
    assert_eq!(file.getf(h5f::FCounter::MetaTime), -1.0);

    let log = with_module(FormatVersion::V3_00, 4, 1, &[record_words(11, 0, 6)]);
    let file = all::<PnetcdfFile>(&log)[0];
    // Opens by all ranks and by one are one counter now.
    assert_eq!(file.counters, [-1, 100 + 101, -1, -1, -1, -1, -1, -1, -1]);
    assert_eq!(
        file.getf(pnetcdf_file::FCounter::OpenStartTimestamp)
            .to_bits(),
        102
    );
    assert_eq!(
        file.getf(pnetcdf_file::FCounter::CloseEndTimestamp)
            .to_bits(),
        103
    );

    let log = with_module(FormatVersion::V3_21, 4, 1, &[record_words(11, 0, 113)]);
    let dataset = all::<H5d>(&log)[0];
    assert_eq!((dataset.extra.file_id, dataset.counters[0]), (0, 100));

    let log = with_module(FormatVersion::V3_00, 5, 1, &[record_words(11, 0, 15)]);
    assert_eq!(all::<Bgq>(&log)[0].counters[0], 101);
}

#[test]
fn traces_have_threads_or_no_offsets_by_version() {
    let raw = |number: usize, version: u32, words: u64| {
        let mut raw = RawLog::new(FormatVersion::V3_41, Endian::Big, Compression::Zlib);
        raw.modules = vec![(number, version, vec![trace(&raw, 11, 3, words, 1, 2)])];
        Log::from_bytes(raw.bytes()).unwrap()
    };
    let segment = |offset, i: u64, thread| Segment {
        offset,
        length: 4096 + i as i64,
        start: i as f64 / 4.0,
        end: (i + 1) as f64 / 4.0,
        thread,
    };
    let first = all::<DxtPosix>(&raw(10, 1, 4)).remove(0);
    assert_eq!(first.hostname, "node7");
    assert_eq!(first.writes, [segment(0, 0, None)]);
    assert_eq!(
        first.reads,
        [segment(1 << 20, 1, None), segment(2 << 20, 2, None)]
    );
    let with_threads = all::<DxtPosix>(&raw(10, 2, 5)).remove(0);
    assert_eq!(with_threads.reads[1], segment(2 << 20, 2, Some(1002)));
    assert_eq!(
        all::<DxtMpiio>(&raw(11, 1, 4)).remove(0).reads[1],
        segment(-1, 2, None)
    );
    assert_eq!(all::<DxtMpiio>(&raw(11, 2, 4)).remove(0), first);
    assert_eq!(all::<DxtMpiio>(&raw(11, 3, 5)).remove(0), with_threads);
}

#[test]
fn a_heat_map_with_a_bin_more_or_less_is_made_to_fit_the_first() {
    let mut raw = RawLog::new(FormatVersion::V3_41, Endian::Little, Compression::Zlib);
    raw.modules = vec![(15, 1, heatmaps(&raw, &[5, 6, 4, 8]))];
    let maps = all::<Heatmap>(&Log::from_bytes(raw.bytes()).unwrap());
    assert_eq!(
        maps.iter().map(HeatmapRecord::bins).collect::<Vec<_>>(),
        [5, 5, 5, 8]
    );
    assert_eq!(maps[1].written, [0, 1, 2, 3, 4]);
    assert_eq!(maps[1].read, [100, 101, 102, 103, 104]);
    assert_eq!(maps[2].written, [0, 1, 2, 3, 0]);
    assert_eq!(maps[2].read, [100, 101, 102, 103, 0]);
}

#[test]
fn modules_that_are_not_decoded_are_named_and_can_be_had_raw() {
    let mut raw = RawLog::new(FormatVersion::V3_41, Endian::Big, Compression::Zlib);
    raw.modules = vec![
        (14, 1, vec![b"one".to_vec(), b"two".to_vec()]),
        (33, 9, vec![b"x".to_vec()]),
    ];
    let log = Log::from_bytes(raw.bytes()).unwrap();
    let named: Vec<String> = log.modules().iter().map(|m| m.id.to_string()).collect();
    assert_eq!(named, ["APMPI", "module 33"]);
    assert!(log.modules().iter().all(|module| !module.is_decoded()));
    let mut bytes = Vec::new();
    let sink = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    log.raw_module(ModuleId::Apmpi, sink).unwrap();
    assert_eq!(bytes, b"onetwo");
}

#[test]
fn a_record_version_from_the_future_is_an_error_of_that_module_alone() {
    let mut raw = RawLog::new(FormatVersion::V3_41, Endian::Little, Compression::Zlib);
    let stdio = raw.words(record_words(11, 0, 31));
    raw.modules = vec![(1, 5, vec![vec![0; 800]]), (9, 2, vec![stdio])];
    let log = Log::from_bytes(raw.bytes()).unwrap();
    let error = log.records::<Posix>().next().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "POSIX region: record version 5 is not known"
    );
    assert_eq!(all::<Stdio>(&log).len(), 1);
}

#[test]
fn what_a_killed_process_leaves_behind_is_read() {
    // Its regions have fixed places with gaps between them: text up to byte 5424, a MiB for
    // names, then the modules' memory.
    let mut raw = RawLog::new(FormatVersion::V3_41, Endian::Little, Compression::None);
    raw.text += &"\0".repeat(4096 - 1080 - raw.text.len() - 1);
    let records: Vec<u8> = raw.words(record_words(11, 0, 88));
    raw.modules = vec![(1, 4, vec![records])];
    let packed = raw.bytes();
    let log = Log::from_bytes(packed.clone()).unwrap();
    assert_eq!(log.header.names.offset, 5424);
    let (names, posix) = (log.header.names, log.modules()[0].extent);
    let mut bytes = packed[..names.end() as usize].to_vec();
    bytes.resize(1_054_000, 0);
    bytes.extend_from_slice(&packed[posix.offset as usize..]);
    bytes.resize(5_251_072, 0);
    bytes[64..72].copy_from_slice(&1_054_000u64.to_le_bytes());
    let log = Log::from_bytes(bytes).unwrap();
    assert_eq!(log.header.compression, Compression::None);
    assert_eq!(
        (log.names.len(), log.exe.as_str(), log.mounts.len()),
        (2, "./app", 2)
    );
    assert_eq!(all::<Posix>(&log).len(), 1);
}

#[test]
fn the_job_record_is_read_in_both_lengths() {
    for (version, run_time) in [(FormatVersion::V3_21, 3.0), (FormatVersion::V3_41, 2.25)] {
        let log =
            Log::from_bytes(RawLog::new(version, Endian::Big, Compression::Bzip2).bytes()).unwrap();
        assert_eq!((log.job.uid, log.job.nprocs, log.job.id), (77, 4, 99));
        assert_eq!(log.run_time(), run_time);
        assert_eq!(
            log.job.metadata.iter().collect::<Vec<_>>(),
            [("lib_ver", "0.0"), ("project", "x=y")]
        );
        assert_eq!(log.exe, "./app");
        assert_eq!(
            log.mounts,
            [
                every_module::mount("/", "ext4"),
                every_module::mount("/scratch", "lustre")
            ]
        );
        assert_eq!(log.names.get(12).as_deref(), Some("/scratch/b"));
    }
}

#[test]
fn the_first_name_of_an_id_stays_unless_it_is_empty() {
    let mut raw = RawLog::new(FormatVersion::V3_41, Endian::Little, Compression::Zlib);
    let name = |id, name: &str| (id, name.to_owned());
    raw.names = vec![
        name(1, ""),
        name(2, "two"),
        name(1, "one"),
        name(2, "other"),
        name(1, "late"),
    ];
    let log = Log::from_bytes(raw.bytes()).unwrap();
    assert_eq!(
        log.names.iter().collect::<Vec<_>>(),
        [(1, &b"one"[..]), (2, b"two")]
    );
}
