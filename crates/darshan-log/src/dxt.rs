//! Records of the extended tracing modules: every read and write of a file by a rank.

use crate::entry::{Decoder, Module, nul_padded, until_nul};
use crate::{ModuleId, Result};

/// Traces of POSIX reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DxtPosix;

/// Traces of MPI-IO reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DxtMpiio;

/// The reads and writes of one rank on one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DxtRecord {
    /// Record id of the file.
    pub id: u64,
    /// Rank.
    pub rank: i64,
    /// -1 if the file is shared by all ranks, else 0.
    pub shared: i64,
    /// Host on which the rank ran, up to 63 bytes.
    pub hostname: String,
    /// Writes in the order they were made.
    pub writes: Vec<Segment>,
    /// Reads in the order they were made.
    pub reads: Vec<Segment>,
}

/// One read or write.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Segment {
    /// First byte; -1 if the log is too old to say (DXT_MPIIO version 1).
    pub offset: i64,
    /// Bytes.
    pub length: i64,
    /// Seconds from the start of the job.
    pub start: f64,
    /// Seconds from the start of the job.
    pub end: f64,
    /// Pthread id of the thread, if the log has it. The writer leaves it out.
    pub thread: Option<u64>,
}

const HOSTNAME_BYTES: usize = 64;

impl Module for DxtPosix {
    type Record = DxtRecord;
    const ID: ModuleId = ModuleId::DxtPosix;
    // PyDarshan 3.5.0 rejects version 2.
    const WRITTEN_VERSION: u32 = 1;

    fn decode(decoder: &mut Decoder) -> Result<Option<DxtRecord>> {
        let has_threads = decoder.version >= 2;
        decode(decoder, has_threads)
    }

    fn encode(record: &DxtRecord, out: &mut Vec<u8>) -> Result<()> {
        encode(record, out);
        Ok(())
    }
}

impl Module for DxtMpiio {
    type Record = DxtRecord;
    const ID: ModuleId = ModuleId::DxtMpiio;
    // PyDarshan 3.5.0 rejects version 3.
    const WRITTEN_VERSION: u32 = 2;

    fn decode(decoder: &mut Decoder) -> Result<Option<DxtRecord>> {
        let has_threads = decoder.version >= 3;
        let mut record = decode(decoder, has_threads)?;
        if decoder.version == 1 {
            for segment in record
                .iter_mut()
                .flat_map(|r| r.writes.iter_mut().chain(&mut r.reads))
            {
                segment.offset = -1;
            }
        }
        Ok(record)
    }

    fn encode(record: &DxtRecord, out: &mut Vec<u8>) -> Result<()> {
        encode(record, out);
        Ok(())
    }
}

fn decode(decoder: &mut Decoder, has_threads: bool) -> Result<Option<DxtRecord>> {
    let Some(head) = decoder.reader.read_words(3)? else {
        return Ok(None);
    };
    let mut host = [0u8; HOSTNAME_BYTES];
    if !decoder.reader.read_record(&mut host)? {
        return Err(decoder.reader.corrupt("it ends within a record"));
    }
    let counts = decoder.reader.read_counted_words(2)?;
    let writes = decoder.count(counts[0], "writes")?;
    let reads = decoder.count(counts[1], "reads")?;
    let segment_words = if has_threads { 5 } else { 4 };
    let segments = writes.checked_add(reads);
    decoder.check_words(segments.and_then(|count| count.checked_mul(segment_words)))?;
    Ok(Some(DxtRecord {
        id: head[0],
        rank: head[1] as i64,
        shared: head[2] as i64,
        hostname: until_nul(&host),
        writes: segments_of(decoder, writes, segment_words)?,
        reads: segments_of(decoder, reads, segment_words)?,
    }))
}

fn segments_of(decoder: &mut Decoder, count: u64, segment_words: u64) -> Result<Vec<Segment>> {
    let words = decoder.reader.read_counted_words(count * segment_words)?;
    let segment = |words: &[u64]| Segment {
        offset: words[0] as i64,
        length: words[1] as i64,
        start: f64::from_bits(words[2]),
        end: f64::from_bits(words[3]),
        thread: words.get(4).copied(),
    };
    Ok(words
        .chunks_exact(segment_words as usize)
        .map(segment)
        .collect())
}

fn encode(record: &DxtRecord, out: &mut Vec<u8>) {
    for word in [record.id, record.rank as u64, record.shared as u64] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&nul_padded::<HOSTNAME_BYTES>(&record.hostname));
    for count in [record.writes.len(), record.reads.len()] {
        out.extend_from_slice(&(count as u64).to_le_bytes());
    }
    for segment in record.writes.iter().chain(&record.reads) {
        let words = [
            segment.offset as u64,
            segment.length as u64,
            segment.start.to_bits(),
            segment.end.to_bits(),
        ];
        for word in words {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}
