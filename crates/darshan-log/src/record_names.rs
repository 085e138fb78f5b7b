//! Names of records.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::region::RegionReader;
use crate::{FormatVersion, Result};

/// A longer name is damage. Linux' longest path has 4,095 bytes, and the name of a dataset holds
/// two paths.
const MAX_NAME_BYTES: usize = 64 * 1024;

/// The names of a log by record id, in the order of the log.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// All names, one behind the other.
    bytes: Vec<u8>,
    /// Id, first byte, byte behind the last.
    entries: Vec<(u64, usize, usize)>,
    by_id: HashMap<u64, usize>,
}

impl Names {
    /// The bytes of a record's name.
    pub fn bytes(&self, id: u64) -> Option<&[u8]> {
        let (_, start, end) = self.entries[*self.by_id.get(&id)?];
        Some(&self.bytes[start..end])
    }

    /// A record's name, with bytes that are not UTF-8 replaced.
    pub fn get(&self, id: u64) -> Option<Cow<'_, str>> {
        self.bytes(id).map(String::from_utf8_lossy)
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no names.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Ids and names in the order of the log.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.entries
            .iter()
            .map(|(id, start, end)| (*id, &self.bytes[*start..*end]))
    }

    /// Adds a name. The first name of an id stays, unless it is empty.
    pub fn insert(&mut self, id: u64, name: &[u8]) {
        let start = self.bytes.len();
        match self.by_id.entry(id) {
            Entry::Vacant(entry) => {
                entry.insert(self.entries.len());
                self.entries.push((id, start, start + name.len()));
            }
            Entry::Occupied(entry) => {
                let known = &mut self.entries[*entry.get()];
                if known.1 < known.2 || name.is_empty() {
                    return;
                }
                *known = (id, start, start + name.len());
            }
        }
        self.bytes.extend_from_slice(name);
    }

    /// Reads the region into `self`; what was read before an error stays.
    pub(crate) fn read(&mut self, reader: &mut RegionReader, version: FormatVersion) -> Result<()> {
        let mut name = Vec::new();
        while let Some(id) = reader.read_words(1)? {
            name.clear();
            if version == FormatVersion::V3_00 {
                read_counted(reader, &mut name)?;
            } else {
                read_terminated(reader, &mut name)?;
            }
            self.insert(id[0], &name);
        }
        Ok(())
    }
}

/// Format 3.00: a 32-bit length, then the bytes.
fn read_counted(reader: &mut RegionReader, name: &mut Vec<u8>) -> Result<()> {
    let mut len = [0; 4];
    if !reader.read_record(&mut len)? {
        return Err(reader.corrupt("it ends within a name"));
    }
    let len = reader.endian.u32(&len) as usize;
    if len > MAX_NAME_BYTES {
        return Err(reader.over_limit("a name", MAX_NAME_BYTES as u64));
    }
    name.resize(len, 0);
    if !reader.read_record(name)? {
        return Err(reader.corrupt("it ends within a name"));
    }
    Ok(())
}

fn read_terminated(reader: &mut RegionReader, name: &mut Vec<u8>) -> Result<()> {
    loop {
        let available = reader.available()?;
        if available.is_empty() {
            return Err(reader.corrupt("it ends within a name"));
        }
        let end = available.iter().position(|byte| *byte == 0);
        let taken = end.unwrap_or(available.len());
        name.extend_from_slice(&available[..taken]);
        reader.consume(taken + usize::from(end.is_some()));
        if name.len() > MAX_NAME_BYTES {
            return Err(reader.over_limit("a name", MAX_NAME_BYTES as u64));
        }
        if end.is_some() {
            return Ok(());
        }
    }
}
