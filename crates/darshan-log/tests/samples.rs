//! The sample logs of the Darshan project, if they are there, against figures that other tools found.

mod common;

use common::{sample_log, sample_logs};
use darshan_log::counters::posix::Counter as P;
use darshan_log::counters::{h5d, mpiio, pnetcdf_file, pnetcdf_var, stdio};
use darshan_log::*;
use forebay_testkit::optional_data;
use std::collections::HashSet;

fn all<M: Module>(log: &Log) -> Vec<M::Record> {
    log.records::<M>().collect::<Result<_>>().unwrap()
}

fn sum<M: CounterModule>(log: &Log, counter: M::Counter) -> i64 {
    all::<M>(log).iter().map(|record| record.get(counter)).sum()
}

fn derived<M: CounterModule>(log: &Log) -> Derived {
    derive(log.records::<M>(), log.job.nprocs).unwrap()
}

fn assert_near(value: f64, expected: f64) {
    // Half of the last digit given.
    assert!(
        (value - expected).abs() <= 0.000_051,
        "{value}, not {expected}"
    );
}

fn partial(log: &Log) -> Vec<ModuleId> {
    log.modules()
        .iter()
        .filter(|module| module.partial)
        .map(|module| module.id)
        .collect()
}

#[test]
fn every_log_is_read_whole_and_its_regions_fill_the_file() {
    for path in optional_data!(sample_logs()) {
        let log = Log::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let regions = log
            .modules()
            .iter()
            .map(|module| module.extent.len)
            .sum::<u64>();
        let header = log.header.job.offset;
        let total = header + log.header.job.len + log.header.names.len + regions;
        assert_eq!(total, log.file_len(), "{}", path.display());
        assert!(log.trailing().unwrap().is_empty());
    }
}

#[test]
fn the_hash_of_a_name_is_its_id() {
    let (mut names, mut anonymous) = (0, 0);
    for path in optional_data!(sample_logs()) {
        let log = Log::open(&path).unwrap();
        // Names of DFS and DAOS are made of ids.
        let others: HashSet<u64> = all::<Dfs>(&log)
            .iter()
            .map(|record| record.id)
            .chain(all::<Daos>(&log).iter().map(|record| record.id))
            .collect();
        // Anonymous logs have numbers in the place of paths.
        if log
            .names
            .iter()
            .any(|(_, name)| name.iter().all(u8::is_ascii_digit))
        {
            anonymous += 1;
            continue;
        }
        for (id, name) in log.names.iter().filter(|(id, _)| !others.contains(id)) {
            let shown = name.escape_ascii();
            assert_eq!(record_id(name), id, "{}: {shown}", path.display());
            names += 1;
        }
    }
    assert!(
        names > 1_000 && anonymous == 1,
        "{names} names, {anonymous} anonymous logs"
    );
}

#[test]
fn thirty_six_releases_say_the_same_of_the_same_program() {
    let logs: Vec<_> = optional_data!(sample_logs())
        .into_iter()
        .filter(|path| path.to_string_lossy().contains("release_logs"))
        .collect();
    assert_eq!(logs.len(), 36);
    for path in &logs {
        let log = Log::open(path).unwrap();
        let is_big = path.to_string_lossy().contains("ppc64");
        assert_eq!(log.header.endian == Endian::Big, is_big);
        assert_eq!(log.job.nprocs, 4);
        let bytes = 67_108_864;
        for counter in [P::BytesRead, P::BytesWritten] {
            assert_eq!(sum::<Posix>(&log, counter), bytes, "{}", path.display());
        }
        for counter in [mpiio::Counter::BytesRead, mpiio::Counter::BytesWritten] {
            assert_eq!(sum::<MpiIo>(&log, counter), bytes, "{}", path.display());
        }
        assert_eq!(
            (sum::<Posix>(&log, P::Reads), sum::<Posix>(&log, P::Writes)),
            (4, 4)
        );
        assert_eq!(sum::<Posix>(&log, P::SizeRead10MTo100M), 4);
    }
}

#[test]
fn release_3_5_0() {
    let path = optional_data!(sample_log("mpi-io-test-x86_64-3.5.0.darshan"));
    let log = Log::open(path).unwrap();
    assert_eq!(
        (log.header.version, log.file_len()),
        (FormatVersion::V3_41, 2_597)
    );
    assert_eq!(
        log.header.job,
        Extent {
            offset: 1328,
            len: 455
        }
    );
    assert_eq!(
        log.header.names,
        Extent {
            offset: 1783,
            len: 162
        }
    );
    let extents: Vec<_> = log
        .modules()
        .iter()
        .map(|m| (m.id.name(), m.extent.offset, m.extent.len))
        .collect();
    assert_eq!(
        extents,
        [
            ("POSIX", 1945, 156),
            ("MPI-IO", 2101, 133),
            ("LUSTRE", 2234, 37),
            ("STDIO", 2271, 51),
            ("HEATMAP", 2322, 275)
        ]
    );
    assert_near(log.run_time(), 0.051284);
    let posix = derived::<Posix>(&log);
    assert_near(posix.agg_perf_by_slowest, 3122.2865);
    assert_near(posix.agg_time_by_slowest, 0.040996);
    assert_near(derived::<MpiIo>(&log).agg_perf_by_slowest, 2897.6663);
    let shared = all::<Posix>(&log)[0];
    assert_eq!(
        (shared.get(P::Opens), shared.get(P::FileAlignment)),
        (16, 1_048_576)
    );
    assert_eq!(
        (shared.get(P::FastestRank), shared.get(P::SlowestRank)),
        (2, 3)
    );
    assert_eq!(
        sum::<MpiIo>(&log, mpiio::Counter::CollOpens)
            + sum::<MpiIo>(&log, mpiio::Counter::IndepOpens),
        8
    );
    assert_eq!(sum::<Stdio>(&log, stdio::Counter::BytesWritten), 322);
    let lustre = &all::<Lustre>(&log)[0];
    assert_eq!((lustre.components.len(), &lustre.osts[..]), (1, &[1][..]));
    assert_eq!(
        (
            lustre.components[0].stripe_size,
            lustre.components[0].stripe_count
        ),
        (1 << 20, 1)
    );
    let heat = all::<Heatmap>(&log);
    assert_eq!((heat.len(), heat[0].bins(), heat[0].bin_width), (9, 1, 0.1));
}

#[test]
fn release_3_0_0_of_a_big_endian_machine() {
    let path = optional_data!(sample_log("mpi-io-test-ppc64-3.0.0.darshan"));
    let log = Log::open(path).unwrap();
    assert_eq!(
        (log.header.version, log.run_time()),
        (FormatVersion::V3_00, 2.0)
    );
    assert_eq!(log.module(ModuleId::Posix).unwrap().version, 1);
    assert_eq!(
        (sum::<Posix>(&log, P::Stats), sum::<Posix>(&log, P::Seeks)),
        (16, 6)
    );
    assert_near(derived::<Posix>(&log).agg_perf_by_slowest, 456.7445);
    assert_near(derived::<MpiIo>(&log).agg_perf_by_slowest, 233.0285);
}

#[test]
fn imbalanced_io() {
    let path = optional_data!(sample_log("imbalanced-io.darshan"));
    let log = Log::open(path).unwrap();
    assert_eq!(
        (log.job.nprocs, log.names.len(), partial(&log)),
        (496, 1_030, vec![ModuleId::Posix])
    );
    let posix = all::<Posix>(&log);
    assert_eq!(posix.len(), 2_014);
    for (counter, value) in [
        (P::BytesRead, 53_791_619_826),
        (P::BytesWritten, 52_938_480_076),
        (P::Opens, 16_745),
        (P::Reads, 67_861),
        (P::Writes, 50_832),
    ] {
        assert_eq!(sum::<Posix>(&log, counter), value, "{}", counter.name());
    }
    let derived_posix = derived::<Posix>(&log);
    let count = |category| derived_posix.category(category).count;
    let counts = Category::ALL.map(count);
    assert_eq!(counts, [1_026, 12, 2, 1, 1_023, 1, 2]);
    assert_near(derived_posix.agg_perf_by_slowest, 164.9925);
    assert_near(derived_posix.agg_time_by_slowest, 616.9115);
    assert_near(derived_posix.shared_time_by_slowest, 583.149111);
    let shared = posix
        .iter()
        .find(|record| record.id == 15_708_535_418_621_378_501)
        .unwrap();
    assert_eq!(
        (shared.get(P::SlowestRank), shared.get(P::SlowestRankBytes)),
        (0, 105_876_790_000)
    );
    assert_eq!(
        (shared.get(P::FastestRank), shared.get(P::FastestRankBytes)),
        (465, 2_072)
    );
    assert_eq!(
        sum::<MpiIo>(&log, mpiio::Counter::BytesRead),
        52_939_424_612
    );
    assert_eq!(
        sum::<MpiIo>(&log, mpiio::Counter::BytesWritten),
        79_523_848_632
    );
    assert_near(derived::<MpiIo>(&log).agg_perf_by_slowest, 101.5801);
    let lustre = all::<Lustre>(&log);
    assert_eq!(lustre.len(), 1_001);
    assert!(
        lustre
            .iter()
            .all(|r| r.components[0].stripe_size == 1 << 20 && r.components[0].stripe_count == 1)
    );
}

#[test]
fn dlio_is_one_job_of_many_processes() {
    let logs: Vec<_> = optional_data!(sample_logs())
        .into_iter()
        .filter(|path| path.to_string_lossy().contains("dlio_logs"))
        .collect();
    let logs: Vec<Log> = logs.iter().map(|path| Log::open(path).unwrap()).collect();
    assert_eq!(logs.len(), 24);
    assert!(
        logs.iter()
            .all(|log| log.job.id == 3_116_902 && log.job.nprocs == 1)
    );
    let records: Vec<_> = logs.iter().flat_map(all::<Posix>).collect();
    let ids: HashSet<u64> = records.iter().map(|record| record.id).collect();
    assert_eq!((records.len(), ids.len()), (670, 194));
    let total = |counter: P| {
        records
            .iter()
            .map(|record| record.get(counter))
            .sum::<i64>()
    };
    let totals = [P::BytesRead, P::BytesWritten, P::Opens, P::Reads, P::Writes].map(total);
    assert_eq!(totals, [129_953_991_223, 523_946_754, 1_482, 35_762, 168]);
    let start = logs.iter().map(|log| log.job.start).min().unwrap();
    let end = logs.iter().map(|log| log.job.end).max().unwrap();
    let milliseconds = |time: Time| time.sec * 1_000 + time.nsec / 1_000_000;
    assert_eq!(
        (milliseconds(start), milliseconds(end)),
        (1_734_633_357_062, 1_734_633_516_667)
    );
}

#[test]
fn traces_agree_with_the_counters() {
    let path = optional_data!(sample_log(
        "treddy_mpi-io-test_id4373053_6-2-60198-9815401321915095332_1.darshan"
    ));
    let log = Log::open(path).unwrap();
    assert_eq!(sum::<Posix>(&log, P::BytesRead), 2_147_483_648);
    assert_eq!(sum::<Posix>(&log, P::BytesWritten), 2_147_486_208);
    let of = |traces: Vec<DxtRecord>| {
        let bytes = |segments: &[Segment]| segments.iter().map(|s| s.length).sum::<i64>();
        let writes: usize = traces.iter().map(|trace| trace.writes.len()).sum();
        let reads: usize = traces.iter().map(|trace| trace.reads.len()).sum();
        let written: i64 = traces.iter().map(|trace| bytes(&trace.writes)).sum();
        let read: i64 = traces.iter().map(|trace| bytes(&trace.reads)).sum();
        (writes, reads, written, read)
    };
    assert_eq!(
        of(all::<DxtPosix>(&log)),
        (192, 128, 2_147_486_208, 2_147_483_648)
    );
    assert_eq!(
        of(all::<DxtMpiio>(&log)),
        (128, 128, 2_147_483_648, 2_147_483_648)
    );
}

#[test]
fn an_overflown_trace_is_marked() {
    let path = optional_data!(sample_log("partial_data_dxt.darshan"));
    let log = Log::open(path).unwrap();
    assert_eq!(partial(&log), [ModuleId::DxtPosix, ModuleId::DxtMpiio]);
    assert_eq!(sum::<Posix>(&log, P::Reads), 1_000_000);
    let segments = |traces: Vec<DxtRecord>| {
        traces
            .iter()
            .map(|t| t.writes.len() + t.reads.len())
            .sum::<usize>()
    };
    let counted = (
        segments(all::<DxtPosix>(&log)),
        segments(all::<DxtMpiio>(&log)),
    );
    assert!(
        counted == (65_536, 65_529) || counted == (65_529, 65_536),
        "{counted:?}"
    );
}

#[test]
fn hdf5_and_pnetcdf() {
    let path = optional_data!(sample_log(
        "shane_ior-HDF5_id438090-438090_11-9-41522-17417065676046418211_1.darshan"
    ));
    let log = Log::open(path).unwrap();
    use h5d::Counter as H;
    let totals = [
        H::BytesRead,
        H::BytesWritten,
        H::Reads,
        H::Writes,
        H::Opens,
        H::RegularHyperslabSelects,
    ]
    .map(|counter| sum::<H5d>(&log, counter));
    assert_eq!(totals, [4_194_304, 4_194_304, 16, 16, 8, 32]);
    assert!(
        all::<H5d>(&log)
            .iter()
            .all(|record| record.extra.file_id == 0xa433_2cfc_ab3a_ba2b)
    );
    let path = optional_data!(sample_log(
        "shane_ior-PNETCDF_id438100-438100_11-9-41525-10280033558448664385_1.darshan"
    ));
    let log = Log::open(path).unwrap();
    assert_eq!(
        sum::<PnetcdfVar>(&log, pnetcdf_var::Counter::BytesRead),
        4_194_304
    );
    assert_eq!(
        sum::<PnetcdfVar>(&log, pnetcdf_var::Counter::BytesWritten),
        4_194_304
    );
    assert_eq!(
        sum::<PnetcdfFile>(&log, pnetcdf_file::Counter::BytesRead),
        4_456_448
    );
    assert_eq!(
        sum::<PnetcdfFile>(&log, pnetcdf_file::Counter::BytesWritten),
        4_194_476
    );
}

#[test]
fn each_rank_writes_ten_bytes_more_than_the_one_before() {
    let path = optional_data!(sample_log("hdf5_diagonal_write_bytes_range_dxt.darshan"));
    let log = Log::open(path).unwrap();
    assert_eq!(all::<Posix>(&log).len(), 650);
    assert_eq!(sum::<Posix>(&log, P::BytesWritten), 16_470);
    let mut written = vec![0; log.job.nprocs as usize];
    for record in all::<H5d>(&log) {
        written[record.rank as usize] += record.get(h5d::Counter::BytesWritten);
    }
    assert_eq!(written, (1..=10).map(|rank| 10 * rank).collect::<Vec<_>>());
}

#[test]
fn an_empty_log_has_no_modules() {
    let path = optional_data!(sample_log("empty_log.darshan"));
    let log = Log::open(path).unwrap();
    assert_eq!(
        (log.modules().len(), log.names.len(), log.file_len()),
        (0, 0, 1_947)
    );
    assert_eq!(derived::<Posix>(&log), Derived::default());
}

#[test]
fn bytes_of_heat_maps_add_up_to_the_counters() {
    let mut compared = 0;
    for path in optional_data!(sample_logs()) {
        let log = Log::open(&path).unwrap();
        let maps = all::<Heatmap>(&log);
        let of_posix: Vec<&HeatmapRecord> = maps
            .iter()
            .filter(|map| map.id == record_id(b"heatmap:POSIX"))
            .collect();
        let Some(total) = combine(of_posix.iter().copied()).unwrap() else {
            continue;
        };
        if partial(&log).contains(&ModuleId::Posix) {
            continue;
        }
        // Bytes are split over bins in proportion to time and rounded.
        let bins = (of_posix.len() * total.bins()) as i64;
        let differs =
            |bins_sum: i64, counter: P| (bins_sum - sum::<Posix>(&log, counter)).abs() > bins;
        let name = path.display();
        assert!(
            !differs(total.written.iter().sum(), P::BytesWritten),
            "{name}"
        );
        assert!(!differs(total.read.iter().sum(), P::BytesRead), "{name}");
        compared += 1;
    }
    assert!(compared > 30, "{compared}");
}
