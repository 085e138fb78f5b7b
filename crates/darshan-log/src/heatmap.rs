//! Records of the heat map module: bytes per rank, interface and interval of time.

use crate::entry::{Decoder, Module};
use crate::{Error, ModuleId, Result};

/// The heat map module.
///
/// Records of one log should have the same bins. Some versions of the Darshan runtime write
/// records that have one bin more or less than the first one; as darshan-util does, the reader
/// drops the bin or adds an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heatmap;

/// Bytes that one rank read and wrote through one interface, by interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatmapRecord {
    /// Record id: the hash of `heatmap:POSIX`, `heatmap:MPIIO`, `heatmap:STDIO` ...
    pub id: u64,
    /// Rank.
    pub rank: i64,
    /// Length of an interval in seconds.
    pub bin_width: f64,
    /// Bytes written in each interval from the start of the job.
    pub written: Vec<i64>,
    /// Bytes read in each interval; as many as `written`.
    pub read: Vec<i64>,
}

impl Module for Heatmap {
    type Record = HeatmapRecord;
    const ID: ModuleId = ModuleId::Heatmap;
    const WRITTEN_VERSION: u32 = 1;

    fn decode(decoder: &mut Decoder) -> Result<Option<HeatmapRecord>> {
        // Two pointers of the recording process follow; they mean nothing here.
        let Some(head) = decoder.reader.read_words(6)? else {
            return Ok(None);
        };
        let (width, bins) = (f64::from_bits(head[2]), decoder.count(head[3], "bins")?);
        decoder.check_words(bins.checked_mul(2))?;
        let signed = |words: Vec<u64>| {
            words
                .into_iter()
                .map(|word| word as i64)
                .collect::<Vec<_>>()
        };
        let mut record = HeatmapRecord {
            id: head[0],
            rank: head[1] as i64,
            bin_width: width,
            written: signed(decoder.reader.read_counted_words(bins)?),
            read: signed(decoder.reader.read_counted_words(bins)?),
        };
        let (first_bins, first_width) = *decoder.first_heatmap.get_or_insert((bins, width));
        if width == first_width && bins.abs_diff(first_bins) == 1 {
            // One bin at most is added to what was just read, so a wrong first map costs no memory.
            record.written.resize(first_bins as usize, 0);
            record.read.resize(first_bins as usize, 0);
        }
        Ok(Some(record))
    }

    fn encode(record: &HeatmapRecord, out: &mut Vec<u8>) -> Result<()> {
        if record.written.len() != record.read.len() {
            return Err(Error::Unwritable {
                reason: format!(
                    "a heat map has {} bins of writes and {} of reads",
                    record.written.len(),
                    record.read.len()
                ),
            });
        }
        let head = [
            record.id,
            record.rank as u64,
            record.bin_width.to_bits(),
            record.written.len() as u64,
            0,
            0,
        ];
        for word in head {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for bytes in record.written.iter().chain(&record.read) {
            out.extend_from_slice(&bytes.to_le_bytes());
        }
        Ok(())
    }
}

impl HeatmapRecord {
    /// Number of intervals.
    pub fn bins(&self) -> usize {
        self.written.len()
    }
}

/// Most bins that [`combine`] makes. It limits what one wrong record can cost.
pub const MAX_COMBINED_BINS: usize = 1 << 20;

/// Adds up heat maps, for example those of all ranks for one interface.
///
/// The result has the widest of the bin widths; narrower bins are doubled until they reach it. It
/// has as many bins as the longest map, rank -1, and the id of the first.
///
/// # Errors
/// [`Error::Corrupt`] if widths aren't powers of two of each other, or aren't positive, or if
/// there are more than [`MAX_COMBINED_BINS`] bins.
///
/// ```
/// use darshan_log::{HeatmapRecord, combine};
/// let fine = HeatmapRecord { bin_width: 0.1, written: vec![1, 2, 3], read: vec![0, 0, 5], ..Default::default() };
/// let coarse = HeatmapRecord { bin_width: 0.2, written: vec![10, 20], read: vec![0, 0], ..Default::default() };
/// let sum = combine([&fine, &coarse])?.unwrap();
/// assert_eq!((sum.bin_width, sum.written, sum.read), (0.2, vec![13, 23], vec![0, 5]));
/// # Ok::<(), darshan_log::Error>(())
/// ```
pub fn combine<'a>(
    records: impl IntoIterator<Item = &'a HeatmapRecord>,
) -> Result<Option<HeatmapRecord>> {
    let records: Vec<&HeatmapRecord> = records.into_iter().collect();
    let Some(first) = records.first() else {
        return Ok(None);
    };
    let width = records
        .iter()
        .fold(0.0f64, |widest, record| widest.max(record.bin_width));
    let mut sum = HeatmapRecord {
        id: first.id,
        rank: -1,
        bin_width: width,
        ..Default::default()
    };
    for record in &records {
        add(&mut sum, record)?;
    }
    Ok(Some(sum))
}

fn add(sum: &mut HeatmapRecord, record: &HeatmapRecord) -> Result<()> {
    let damaged = |reason: String| Error::Corrupt {
        region: crate::Region::Module(ModuleId::Heatmap),
        offset: 0,
        reason,
    };
    let doublings = (sum.bin_width / record.bin_width).log2();
    if !doublings.is_finite() || (doublings - doublings.round()).abs() > 1e-6 {
        let (wide, narrow) = (sum.bin_width, record.bin_width);
        return Err(damaged(format!(
            "bins of {wide} s and of {narrow} s can't be combined"
        )));
    }
    if record.bins() > MAX_COMBINED_BINS {
        return Err(damaged(format!("{} bins", record.bins())));
    }
    // Bin i holds what was in the 2^doublings bins from i * 2^doublings on.
    let shift = doublings.round() as u32;
    let bins = record
        .bins()
        .div_ceil(1usize.checked_shl(shift).unwrap_or(usize::MAX))
        .max(sum.bins());
    sum.written.resize(bins, 0);
    sum.read.resize(bins, 0);
    for (to, from) in [
        (&mut sum.written, &record.written),
        (&mut sum.read, &record.read),
    ] {
        for (i, bytes) in from.iter().enumerate() {
            let bin = &mut to[i.checked_shr(shift).unwrap_or(0)];
            *bin = bin.saturating_add(*bytes);
        }
    }
    Ok(())
}
