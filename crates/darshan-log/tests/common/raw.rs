//! Builds logs byte by byte, of any format, byte order and compression: those that no released
//! writer makes any more, and those that none should make.

use bzip2::write::BzEncoder;
use darshan_log::{Compression, Endian, FormatVersion};
use flate2::write::ZlibEncoder;
use std::io::Write;

/// The parts of a log that is to be built.
pub struct RawLog {
    pub version: FormatVersion,
    pub endian: Endian,
    pub compression: Compression,
    pub text: String,
    pub metadata: String,
    pub names: Vec<(u64, String)>,
    /// Number in *this* format, record version, streams (one per rank that had records).
    pub modules: Vec<(usize, u32, Vec<Vec<u8>>)>,
    pub partial: u64,
}

impl RawLog {
    pub fn new(version: FormatVersion, endian: Endian, compression: Compression) -> RawLog {
        RawLog {
            version,
            endian,
            compression,
            text: "./app\next4\t/\nlustre\t/scratch".into(),
            metadata: "lib_ver=0.0\nproject=x=y\n".into(),
            names: vec![(11, "/scratch/a".into()), (12, "/scratch/b".into())],
            modules: Vec::new(),
            partial: 0,
        }
    }

    /// 8-byte words in the log's byte order.
    pub fn words(&self, words: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let bytes = |word: u64| match self.endian {
            Endian::Little => word.to_le_bytes(),
            Endian::Big => word.to_be_bytes(),
        };
        words.into_iter().flat_map(bytes).collect()
    }

    fn u32(&self, word: u32) -> [u8; 4] {
        match self.endian {
            Endian::Little => word.to_le_bytes(),
            Endian::Big => word.to_be_bytes(),
        }
    }

    /// One compressed stream.
    pub fn stream(&self, plain: &[u8]) -> Vec<u8> {
        match self.compression {
            Compression::None => plain.to_vec(),
            Compression::Zlib => {
                let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Bzip2 => {
                let mut encoder = BzEncoder::new(Vec::new(), bzip2::Compression::default());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
        }
    }

    fn job(&self) -> Vec<u8> {
        let is_new = self.version == FormatVersion::V3_41;
        let times: &[u64] = if is_new {
            &[1000, 500_000_000, 1002, 750_000_000]
        } else {
            &[1000, 1002]
        };
        let mut job = self.words([77].into_iter().chain(times.iter().copied()).chain([4, 99]));
        let mut metadata = self.metadata.clone().into_bytes();
        metadata.resize(1024, 0);
        job.extend(metadata);
        job.extend(self.text.bytes());
        job.push(0);
        self.stream(&job)
    }

    fn name_region(&self) -> Vec<u8> {
        let mut plain = Vec::new();
        for (id, name) in &self.names {
            plain.extend(self.words([*id]));
            if self.version == FormatVersion::V3_00 {
                plain.extend(self.u32(name.len() as u32));
                plain.extend(name.bytes());
            } else {
                plain.extend(name.bytes());
                plain.push(0);
            }
        }
        self.stream(&plain)
    }

    /// The log.
    pub fn bytes(&self) -> Vec<u8> {
        let is_new = self.version == FormatVersion::V3_41;
        let slots = if is_new { 64 } else { 16 };
        let header_bytes = if is_new { 1328 } else { 360 };
        let mut body = self.job();
        let mut extents = vec![(0u64, 0u64); slots];
        let mut versions = vec![0u32; slots];
        let place = |body: &mut Vec<u8>, region: &[u8]| {
            let extent = ((header_bytes + body.len()) as u64, region.len() as u64);
            body.extend_from_slice(region);
            extent
        };
        let names = place(&mut body, &self.name_region());
        for (number, version, streams) in &self.modules {
            let region: Vec<u8> = streams
                .iter()
                .flat_map(|plain| self.stream(plain))
                .collect();
            extents[*number] = place(&mut body, &region);
            versions[*number] = *version;
        }
        let mut header = [self.version.as_str().as_bytes(), &[0; 4]].concat();
        header.extend(self.words([6_567_223]));
        let compression = match self.compression {
            Compression::Zlib => 0,
            Compression::Bzip2 => 1,
            Compression::None => 2,
        };
        header.extend([compression, 0, 0, 0]);
        if is_new {
            header.extend([0; 4]);
            header.extend(self.words([self.partial]));
        } else {
            header.extend(self.u32(self.partial as u32));
        }
        header.extend(self.words([names.0, names.1]));
        header.extend(
            extents
                .iter()
                .flat_map(|extent| self.words([extent.0, extent.1])),
        );
        header.extend(versions.iter().flat_map(|version| self.u32(*version)));
        assert_eq!(header.len(), header_bytes);
        header.extend(body);
        header
    }
}

/// A record of `words` words whose numbers are all different: id and rank, then 100, 101 ...
pub fn record_words(id: u64, rank: i64, words: usize) -> Vec<u64> {
    let mut record = vec![id, rank as u64];
    record.extend((0..words as u64 - 2).map(|i| 100 + i));
    record
}

/// A log with modules of every version, as old formats have them: `(format, log)`.
pub fn every_version(endian: Endian, compression: Compression) -> Vec<RawLog> {
    let mut logs = vec![
        of_3_00(RawLog::new(FormatVersion::V3_00, endian, compression)),
        of_3_10(RawLog::new(FormatVersion::V3_10, endian, compression)),
        of_3_21(RawLog::new(FormatVersion::V3_21, endian, compression)),
        of_3_41(RawLog::new(FormatVersion::V3_41, endian, compression)),
    ];
    logs.push(of_3_21(RawLog::new(
        FormatVersion::V3_20,
        endian,
        compression,
    )));
    logs
}

/// Two ranks with a stream each. The reader must go on after the end of the first.
fn two_ranks(log: &RawLog, words: usize) -> Vec<Vec<u8>> {
    (0..2)
        .map(|rank| log.words(record_words(11, rank, words)))
        .collect()
}

/// Numbers of 3.00 and 3.10: no H5D, no PNETCDF_VAR.
fn of_3_00(mut log: RawLog) -> RawLog {
    // A POSIX record of version 1 that is one of a stream (word 8 > 0) is left out.
    let mut file = record_words(11, 0, 85);
    file[8..12].fill(0);
    let stream = record_words(12, 0, 85);
    let posix = vec![log.words(file), log.words(stream)];
    let bgq = vec![log.words(record_words(12, 0, 15))];
    log.modules = vec![
        (1, 1, posix),
        (2, 1, two_ranks(&log, 68)),
        (3, 1, two_ranks(&log, 5)),
        (4, 1, two_ranks(&log, 6)),
        (5, 1, bgq),
    ];
    log.partial = 1 << 4;
    log
}

fn of_3_10(mut log: RawLog) -> RawLog {
    // id, rank, OSTs, MDTs, offset, stripe size, stripe count, targets
    let lustre = [11, u64::MAX, 8, 1, u64::MAX, 1 << 20, 2, 5, 6];
    let lustre = vec![log.words(lustre)];
    let dxt = vec![trace(&log, 11, 0, 4, 2, 1)];
    log.modules = vec![
        (1, 2, two_ranks(&log, 81)),
        (2, 2, two_ranks(&log, 68)),
        (3, 2, two_ranks(&log, 7)),
        (4, 2, two_ranks(&log, 8)),
        (5, 2, vec![log.words(record_words(12, 0, 14))]),
        (6, 1, lustre),
        (7, 1, two_ranks(&log, 30)),
        (8, 1, dxt.clone()),
        (9, 1, dxt),
    ];
    log.partial = 1 << 7;
    log
}

/// Numbers of 3.20 and 3.21: H5D is 4, there is no PNETCDF_VAR.
fn of_3_21(mut log: RawLog) -> RawLog {
    let dxt = vec![trace(&log, 11, 0, 4, 1, 2), trace(&log, 12, 1, 4, 0, 0)];
    log.modules = vec![
        (1, 3, two_ranks(&log, 83)),
        (2, 3, two_ranks(&log, 70)),
        (3, 3, two_ranks(&log, 10)),
        (4, 1, two_ranks(&log, 113)),
        (5, 2, two_ranks(&log, 8)),
        (8, 2, two_ranks(&log, 31)),
        (10, 2, dxt),
    ];
    log.partial = 1 << 8 | 1 << 5;
    log
}

fn of_3_41(mut log: RawLog) -> RawLog {
    log.modules = vec![
        (1, 4, two_ranks(&log, 88)),
        (3, 3, two_ranks(&log, 10)),
        (4, 2, two_ranks(&log, 114)),
        (5, 3, two_ranks(&log, 19)),
        (6, 1, two_ranks(&log, 140)),
        (8, 2, vec![lustre(&log, 3)]),
        (15, 1, heatmaps(&log, &[5, 6])),
        (16, 1, two_ranks(&log, 73)),
        (17, 1, two_ranks(&log, 87)),
    ];
    log.partial = 1 << 15 | 1 << 40;
    log
}

/// A trace with segments of `words` words.
pub fn trace(log: &RawLog, id: u64, rank: u64, words: u64, writes: u64, reads: u64) -> Vec<u8> {
    let mut bytes = log.words([id, rank, 0]);
    let mut host = b"node7".to_vec();
    host.resize(64, 0);
    bytes.extend(host);
    bytes.extend(log.words([writes, reads]));
    let time = |i: u64| (i as f64 / 4.0).to_bits();
    let segment = |i: u64| {
        [i << 20, 4096 + i, time(i), time(i + 1), 1000 + i]
            .into_iter()
            .take(words as usize)
    };
    bytes.extend(log.words((0..writes + reads).flat_map(segment)));
    bytes
}

/// A Lustre record with `components` components, of which the last isn't in use.
fn lustre(log: &RawLog, components: u64) -> Vec<u8> {
    let mut bytes = log.words([11, u64::MAX, components, 2 * components]);
    for i in 0..components {
        let size = if i + 1 == components {
            u64::MAX
        } else {
            1 << 20
        };
        bytes.extend(log.words([size, 2, 1, 0, i << 30, (i + 1) << 30, 0]));
        bytes.extend(*b"flash\0\0\0\0\0\0\0\0\0\0\0");
    }
    bytes.extend(log.words(40..40 + 2 * components));
    bytes
}

/// Heat maps of several ranks with these numbers of bins.
pub fn heatmaps(log: &RawLog, bins: &[u64]) -> Vec<Vec<u8>> {
    let heatmap = |rank: u64, bins: u64| {
        let head = [11, rank, 0.5f64.to_bits(), bins, 0xdead_beef, 0xdead_beef];
        log.words(head.into_iter().chain(0..bins).chain(100..100 + bins))
    };
    bins.iter()
        .enumerate()
        .map(|(rank, bins)| heatmap(rank as u64, *bins))
        .collect()
}
