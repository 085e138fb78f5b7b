//! Cut, damaged and hostile logs: an error with region and offset, never a panic, and never
//! more memory than the limits allow.
#![allow(unsafe_code)]

mod common;

use common::every_module;
use common::raw::{RawLog, every_version, record_words, trace};
use darshan_log::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the memory of each thread, so that tests may run side by side.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn account(bytes: isize) {
    // At the end of a thread the counters may be gone already.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        account(layout.size() as isize);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        account(-(layout.size() as isize));
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes held at once while `f` ran, beyond those held before.
fn most_memory(f: impl FnOnce()) -> isize {
    let before = HELD.get();
    MOST.set(before);
    f();
    MOST.get() - before
}

const LIMITS: Limits = Limits {
    name_bytes: 1 << 20,
    module_bytes: 4 << 20,
    record_bytes: 1 << 20,
    trailing_bytes: 1 << 20,
};

fn lenient(bytes: &[u8]) -> Result<Log> {
    OpenOptions::new()
        .lenient(true)
        .limits(LIMITS)
        .from_bytes(bytes)
}

/// Reads all of a log; returns the number of records and all errors.
fn read_everything(log: &Log) -> (usize, Vec<Error>) {
    let mut records = 0;
    let mut errors = Vec::new();
    fn read<M: Module>(log: &Log, records: &mut usize, errors: &mut Vec<Error>) {
        // One by one, as a streaming reader does.
        for record in log.records::<M>() {
            match record {
                Ok(_) => *records += 1,
                Err(error) => errors.push(error),
            }
        }
    }
    read::<Posix>(log, &mut records, &mut errors);
    read::<MpiIo>(log, &mut records, &mut errors);
    read::<Stdio>(log, &mut records, &mut errors);
    read::<H5f>(log, &mut records, &mut errors);
    read::<H5d>(log, &mut records, &mut errors);
    read::<PnetcdfFile>(log, &mut records, &mut errors);
    read::<PnetcdfVar>(log, &mut records, &mut errors);
    read::<Bgq>(log, &mut records, &mut errors);
    read::<Dfs>(log, &mut records, &mut errors);
    read::<Daos>(log, &mut records, &mut errors);
    read::<Lustre>(log, &mut records, &mut errors);
    read::<Heatmap>(log, &mut records, &mut errors);
    read::<DxtPosix>(log, &mut records, &mut errors);
    read::<DxtMpiio>(log, &mut records, &mut errors);
    for module in log.modules() {
        errors.extend(log.raw_module(module.id, |_| Ok(())).err());
    }
    errors.extend(log.trailing().err());
    (records, errors)
}

/// Small logs of every kind.
fn seeds() -> Vec<Vec<u8>> {
    let compressions = [Compression::Zlib, Compression::Bzip2, Compression::None];
    let raw = compressions
        .into_iter()
        .flat_map(|compression| every_version(Endian::Big, compression));
    raw.map(|log| log.bytes())
        .chain([every_module::bytes()])
        .collect()
}

#[test]
fn a_log_that_is_cut_anywhere_is_an_error_with_its_place_or_a_whole_log() {
    for bytes in seeds() {
        let whole = lenient(&bytes).unwrap();
        let (all, errors) = read_everything(&whole);
        assert!(errors.is_empty() && whole.damage.is_empty());
        let end = whole.header.end() as usize;
        for len in (0..bytes.len()).step_by(7) {
            let cut = &bytes[..len];
            if len < end {
                let error = Log::from_bytes(cut).expect_err("a cut log");
                let says_where = error.offset().is_some() || matches!(error, Error::Format { .. });
                assert!(says_where && error.region().is_some(), "{error}");
            }
            let Ok(log) = lenient(cut) else { continue };
            let (records, errors) = read_everything(&log);
            assert!(records <= all);
            assert!(
                len >= end || !errors.is_empty() || !log.damage.is_empty(),
                "a cut at {len} unseen"
            );
        }
    }
}

#[test]
fn what_stands_before_a_cut_is_read() {
    let mut raw = RawLog::new(FormatVersion::V3_41, Endian::Little, Compression::Zlib);
    let streams = (0..50)
        .map(|rank| raw.words(record_words(11, rank, 88)))
        .collect();
    raw.modules = vec![(1, 4, streams)];
    let bytes = raw.bytes();
    let extent = Log::from_bytes(bytes.clone()).unwrap().modules()[0].extent;
    let cut = (extent.offset + extent.len / 2) as usize;
    let log = lenient(&bytes[..cut]).unwrap();
    assert_eq!(
        log.damage[0].to_string(),
        format!("POSIX region is cut off at byte {cut}")
    );
    let (records, error) = log.readable_records::<Posix>();
    assert!((20..30).contains(&records.len()), "{}", records.len());
    assert_eq!(error.unwrap().offset(), Some(cut as u64));
    assert_eq!((log.exe.as_str(), log.names.len()), ("./app", 2));
}

#[test]
fn damage_is_told_with_region_and_place() {
    let mut bytes = every_module::bytes();
    let log = Log::from_bytes(bytes.clone()).unwrap();
    let extent = log.module(ModuleId::MpiIo).unwrap().extent;
    bytes[extent.offset as usize + 20] ^= 0xff;
    let log = Log::from_bytes(bytes).unwrap();
    let error = log.records::<MpiIo>().find_map(Result::err).unwrap();
    assert_eq!(error.region(), Some(Region::Module(ModuleId::MpiIo)));
    let offset = error.offset().unwrap();
    assert!((extent.offset..=extent.end()).contains(&offset), "{error}");
    assert!(
        error
            .to_string()
            .starts_with("MPI-IO region is damaged near byte "),
        "{error}"
    );
    assert_eq!(log.records::<Posix>().filter(Result::is_ok).count(), 2);
}

#[test]
fn what_is_no_log_is_told() {
    let said = |bytes: &[u8]| Log::from_bytes(bytes).unwrap_err().to_string();
    assert_eq!(said(b""), "not a Darshan 3.x log: an empty file");
    assert_eq!(
        said(b"2.06\0\0\0\0"),
        "not a Darshan 3.x log: it starts with \"2.06\\x00\\x00\\x00\\x00\""
    );
    assert_eq!(said(b"3.41\0\0\0\0"), "header is cut off at byte 8");
    let mut bytes = every_module::bytes();
    bytes[8] ^= 1;
    assert!(
        said(&bytes).starts_with("not a Darshan 3.x log: no magic number at byte 8"),
        "{}",
        said(&bytes)
    );
    bytes[8] ^= 1;
    bytes[16] = 3;
    assert_eq!(
        said(&bytes),
        "header is damaged near byte 16: unknown compression 3"
    );
    let error = Log::open("/nowhere/job.darshan").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("/nowhere/job.darshan: can't open: "),
        "{error}"
    );
}

/// A log with one module region of these plain bytes.
fn with_region(number: usize, version: u32, compression: Compression, plain: Vec<u8>) -> Vec<u8> {
    let mut raw = RawLog::new(FormatVersion::V3_41, Endian::Little, compression);
    raw.modules = vec![(number, version, vec![plain])];
    raw.bytes()
}

#[test]
fn a_bomb_is_limited_and_the_limit_can_be_set() {
    let plain = vec![0; 64 << 20];
    for compression in [Compression::Zlib, Compression::Bzip2] {
        let bytes = with_region(14, 1, compression, plain.clone());
        assert!(bytes.len() < 100_000);
        let memory = most_memory(|| {
            let log = lenient(&bytes).unwrap();
            let error = log.raw_module(ModuleId::Apmpi, |_| Ok(())).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("exceeds the limit of 4194304 bytes"),
                "{error}"
            );
        });
        assert!(memory < 5 << 20, "{memory} bytes");
        let limits = Limits {
            module_bytes: 64 << 20,
            ..LIMITS
        };
        let log = OpenOptions::new().limits(limits).from_bytes(bytes).unwrap();
        log.raw_module(ModuleId::Apmpi, |_| Ok(())).unwrap();
    }
}

#[test]
fn a_bomb_of_names_or_job_text_is_limited() {
    let mut raw = RawLog::new(FormatVersion::V3_41, Endian::Little, Compression::Zlib);
    raw.names = vec![(1, "n".repeat(32 << 20))];
    let memory = most_memory(|| {
        let log = lenient(&raw.bytes()).unwrap();
        assert!(
            log.damage[0]
                .to_string()
                .contains("a name exceeds the limit"),
            "{}",
            log.damage[0]
        );
    });
    // The count includes the bytes of the log, which is built in here.
    assert!(memory < 100 << 20, "{memory} bytes");
    raw.names = (0..40_000).map(|id| (id, "n".repeat(100))).collect();
    let log = lenient(&raw.bytes()).unwrap();
    assert!(matches!(
        log.damage[..],
        [Error::Limit {
            region: Region::Names,
            limit: 1_048_576,
            ..
        }]
    ));
    assert!(log.names.len() > 9_000);
    raw.names.clear();
    raw.text = "x".repeat(1 << 20);
    let log = lenient(&raw.bytes()).unwrap();
    assert_eq!(log.damage[0].region(), Some(Region::Job));
}

#[test]
fn counts_that_a_record_claims_allocate_nothing() {
    let raw = RawLog::new(FormatVersion::V3_41, Endian::Little, Compression::None);
    let dxt = trace(&raw, 1, 0, 4, 0, 0);
    let claims = [
        u64::MAX,
        1 << 63,
        i64::MAX as u64,
        1 << 40,
        1 << 32,
        100_000,
    ];
    for claim in claims {
        let lustre = raw.words([1, 0, claim, 1]);
        let stripes = raw.words([1, 0, 0, claim]);
        let old_lustre = raw.words([1, 0, 0, 0, 0, 0, claim]);
        let heatmap = raw.words([1, 0, 0, claim, 0, 0]);
        let mut traces = dxt.clone();
        traces[88..96].copy_from_slice(&claim.to_le_bytes());
        let mut reads = dxt.clone();
        reads[96..104].copy_from_slice(&claim.to_le_bytes());
        for (number, version, plain) in [
            (8, 2, lustre),
            (8, 2, stripes),
            (8, 1, old_lustre),
            (15, 1, heatmap),
            (10, 1, traces.clone()),
            (10, 2, reads.clone()),
            (11, 3, traces),
            (11, 2, reads),
        ] {
            for compression in [Compression::None, Compression::Zlib] {
                let bytes = with_region(number, version, compression, plain.clone());
                let memory = most_memory(|| {
                    let (records, errors) = read_everything(&lenient(&bytes).unwrap());
                    assert_eq!(
                        (records, errors.len()),
                        (0, 1),
                        "module {number} claims {claim}"
                    );
                });
                assert!(
                    memory < 1 << 20,
                    "module {number} claims {claim}: {memory} bytes"
                );
            }
        }
    }
}

#[test]
fn regions_that_lie_outside_of_the_file_or_over_each_other_are_errors_or_records() {
    let bytes = every_module::bytes();
    let claims = [
        u64::MAX,
        u64::MAX - 100,
        1 << 62,
        bytes.len() as u64,
        1329,
        1,
        0,
    ];
    for field in (32..48 + 18 * 16).step_by(8) {
        for claim in claims {
            let mut hostile = bytes.clone();
            hostile[field..field + 8].copy_from_slice(&claim.to_le_bytes());
            let memory = most_memory(|| {
                if let Ok(log) = lenient(&hostile) {
                    read_everything(&log);
                }
            });
            assert!(memory < 4 << 20, "byte {field} is {claim}: {memory} bytes");
        }
    }
}

/// A generator of numbers (xorshift64*), the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

#[test]
fn five_thousand_mutated_logs_are_read_without_a_panic_within_the_limits() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let seeds = seeds();
    let (mut opened, mut failed) = (0, 0);
    for round in 0..5_000 {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..1 + random.below(6) {
            // Half of them in the header, where they do most harm.
            let range = if random.below(2) == 0 {
                1328.min(bytes.len())
            } else {
                bytes.len()
            };
            let at = random.below(range);
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.next() as u8,
                2 => bytes[at] = [0, 0xff, 0x7f, 0x80][random.below(4)],
                _ => {
                    let to = random.below(bytes.len());
                    bytes[to] = bytes[at];
                }
            }
        }
        if random.below(8) == 0 {
            bytes.truncate(random.below(bytes.len()));
        }
        let memory = most_memory(|| match lenient(&bytes) {
            Ok(log) => {
                opened += 1;
                let (_, errors) = read_everything(&log);
                failed += usize::from(!errors.is_empty());
            }
            Err(error) => assert!(error.region().is_some(), "{error}"),
        });
        assert!(memory < 12 << 20, "round {round}: {memory} bytes");
    }
    assert!(
        opened > 1_200 && failed > 700,
        "{opened} opened, {failed} damaged"
    );
}
