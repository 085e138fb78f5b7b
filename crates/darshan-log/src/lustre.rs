//! Records of the Lustre module: how files are striped.

use crate::entry::{Decoder, Module, nul_padded, until_nul};
use crate::{ModuleId, Result};

/// The Lustre module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lustre;

/// Layout of one file on Lustre.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LustreRecord {
    /// Record id of the file.
    pub id: u64,
    /// Rank that saw it; -1: all ranks.
    pub rank: i64,
    /// Components in use, by extent.
    pub components: Vec<LustreComponent>,
    /// Numbers of the object storage targets: those of the first component, then of the
    /// second ...
    pub osts: Vec<i64>,
}

/// One component of a (possibly composite) layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LustreComponent {
    /// Bytes per stripe.
    pub stripe_size: i64,
    /// Stripes (targets).
    pub stripe_count: i64,
    /// Pattern of the stripes (RAID 0, MDT ...) as Lustre numbers it; -1 if the log is too old.
    pub stripe_pattern: i64,
    /// Flags as Lustre numbers them; -1 if the log is too old.
    pub flags: i64,
    /// First byte of the file that the component covers.
    pub extent_start: i64,
    /// The byte behind the last one; -1: the end of the file.
    pub extent_end: i64,
    /// Mirror; -1 if the log is too old.
    pub mirror_id: i64,
    /// Name of the pool of targets, may be empty.
    pub pool: String,
}

/// Names of a component's counters, in the order of the record.
pub const LUSTRE_COMPONENT_COUNTERS: [&str; 7] = [
    "LUSTRE_COMP_STRIPE_SIZE",
    "LUSTRE_COMP_STRIPE_COUNT",
    "LUSTRE_COMP_STRIPE_PATTERN",
    "LUSTRE_COMP_FLAGS",
    "LUSTRE_COMP_EXT_START",
    "LUSTRE_COMP_EXT_END",
    "LUSTRE_COMP_MIRROR_ID",
];

/// Words of a component: seven counters and 16 bytes of pool name.
const COMPONENT_WORDS: u64 = 9;
const POOL_BYTES: usize = 16;

impl LustreComponent {
    /// The counters in the order of [`LUSTRE_COMPONENT_COUNTERS`].
    pub fn counters(&self) -> [i64; 7] {
        [
            self.stripe_size,
            self.stripe_count,
            self.stripe_pattern,
            self.flags,
            self.extent_start,
            self.extent_end,
            self.mirror_id,
        ]
    }
}

impl Module for Lustre {
    type Record = LustreRecord;
    const ID: ModuleId = ModuleId::Lustre;
    const WRITTEN_VERSION: u32 = 2;

    fn decode(decoder: &mut Decoder) -> Result<Option<LustreRecord>> {
        if decoder.version == 1 {
            decode_v1(decoder)
        } else {
            decode_v2(decoder)
        }
    }

    fn encode(record: &LustreRecord, out: &mut Vec<u8>) -> Result<()> {
        let head = [
            record.id,
            record.rank as u64,
            record.components.len() as u64,
            record.osts.len() as u64,
        ];
        for word in head {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for component in &record.components {
            for counter in component.counters() {
                out.extend_from_slice(&counter.to_le_bytes());
            }
            out.extend_from_slice(&nul_padded::<POOL_BYTES>(&component.pool));
        }
        for ost in &record.osts {
            out.extend_from_slice(&ost.to_le_bytes());
        }
        Ok(())
    }
}

fn decode_v2(decoder: &mut Decoder) -> Result<Option<LustreRecord>> {
    let Some(head) = decoder.reader.read_words(4)? else {
        return Ok(None);
    };
    let components = decoder.count(head[2], "components")?;
    let stripes = decoder.count(head[3], "stripes")?;
    let component_words = components.checked_mul(COMPONENT_WORDS);
    decoder.check_words(component_words.and_then(|words| words.checked_add(stripes)))?;
    let mut record = LustreRecord {
        id: head[0],
        rank: head[1] as i64,
        ..LustreRecord::default()
    };
    let mut in_use = true;
    for _ in 0..components {
        let component = decode_component(decoder)?;
        // The recorder reserves components; those it did not need have no stripe size.
        in_use &= component.stripe_size != -1;
        if in_use {
            record.components.push(component);
        }
    }
    // Their stripes are not in use either.
    let used = record.components.iter().fold(0u64, |sum, c| {
        sum.saturating_add(c.stripe_count.max(0) as u64)
    });
    record.osts = decoder
        .reader
        .read_counted_words(stripes)?
        .into_iter()
        .map(|ost| ost as i64)
        .collect();
    record
        .osts
        .truncate(usize::try_from(used).unwrap_or(usize::MAX));
    Ok(Some(record))
}

fn decode_component(decoder: &mut Decoder) -> Result<LustreComponent> {
    let counters = decoder.reader.read_counted_words(7)?;
    let mut pool = [0u8; POOL_BYTES];
    if !decoder.reader.read_record(&mut pool)? {
        return Err(decoder.reader.corrupt("it ends within a record"));
    }
    Ok(LustreComponent {
        stripe_size: counters[0] as i64,
        stripe_count: counters[1] as i64,
        stripe_pattern: counters[2] as i64,
        flags: counters[3] as i64,
        extent_start: counters[4] as i64,
        extent_end: counters[5] as i64,
        mirror_id: counters[6] as i64,
        pool: until_nul(&pool),
    })
}

/// Version 1: id, rank, number of OSTs and of MDTs, stripe offset, size, count; then the targets.
fn decode_v1(decoder: &mut Decoder) -> Result<Option<LustreRecord>> {
    let Some(head) = decoder.reader.read_words(7)? else {
        return Ok(None);
    };
    let stripes = decoder.count(head[6], "stripes")?;
    decoder.check_words(Some(stripes))?;
    let osts = decoder.reader.read_counted_words(stripes)?;
    Ok(Some(LustreRecord {
        id: head[0],
        rank: head[1] as i64,
        components: vec![LustreComponent {
            stripe_size: head[5] as i64,
            stripe_count: head[6] as i64,
            stripe_pattern: -1,
            flags: -1,
            extent_start: 0,
            extent_end: -1,
            mirror_id: -1,
            pool: String::new(),
        }],
        osts: osts.into_iter().map(|ost| ost as i64).collect(),
    }))
}
