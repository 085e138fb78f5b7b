//! A file that batches go to at once, long before they reach the store.
//!
//! It has a fixed size and is written from its start to its end and then anew:
//! each time is a *lap* with a number of its own. An entry is valid only with the
//! lap that its checksum was made with, so nothing has to be erased. What was
//! written is in the page cache, and survives the death of the process.

use crate::map::Sheet;
use forebay_core::table::TableError;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Size of the file in bytes.
const JOURNAL_BYTES: usize = 1 << 20;
/// A larger entry goes past the journal.
const LARGEST_ENTRY_BYTES: usize = JOURNAL_BYTES / 8;
/// Length of the payload, mark, checksum of the payload.
const HEADER_BYTES: usize = 16;
/// Stands in each entry. Its last byte is the format of the entries, so that a later one is told from an end.
const MARK: [u8; 4] = *b"FBYJ";
/// Entries begin at multiples of this.
const ALIGNMENT: usize = 8;
/// Bytes per write when the file is made.
const PIECE_BYTES: usize = 64 << 10;

/// The file.
pub(crate) struct Journal {
    sheet: Sheet,
    at: usize,
    lap: u64,
    /// The prepared entry. The buffer is kept for its memory.
    entry: Vec<u8>,
}

fn failed(e: std::io::Error) -> TableError {
    let said = format!("journal: {e}");
    match e.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => TableError::NoSpace(said),
        _ => TableError::Failed(said),
    }
}

/// An entry of some format whose checksum is right: the format, the payload and the end.
fn valid(bytes: &[u8], at: usize, lap: u64) -> Option<(u8, &[u8], usize)> {
    let (header, rest) = bytes.get(at..)?.split_first_chunk::<HEADER_BYTES>()?;
    let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let (project, format) = (&header[4..7], header[7]);
    if *project != MARK[..3] {
        return None;
    }
    let payload = rest.get(..len)?;
    let sum = xxh3_64_with_seed(payload, lap).to_le_bytes();
    let end = (at + HEADER_BYTES + len).next_multiple_of(ALIGNMENT);
    (header[8..] == sum).then_some((format, payload, end))
}

/// Reads the entry at `at`: its payload and its end.
fn entry(bytes: &[u8], at: usize, lap: u64) -> Option<(&[u8], usize)> {
    match valid(bytes, at, lap)? {
        (format, payload, end) if format == MARK[3] => Some((payload, end)),
        _ => None,
    }
}

/// All entries of a lap, and where the next one goes.
fn entries(bytes: &[u8], lap: u64) -> Result<(Vec<Vec<u8>>, usize), TableError> {
    let mut entries = Vec::new();
    let mut at = 0;
    while let Some((payload, end)) = entry(bytes, at, lap) {
        entries.push(payload.to_vec());
        at = end;
    }
    match valid(bytes, at, lap) {
        Some((format, ..)) => Err(TableError::OtherFormat(format!(
            "the journal has entries of format {:?}, and this program knows {:?} alone",
            char::from(format),
            char::from(MARK[3])
        ))),
        None => Ok((entries, at)),
    }
}

impl Journal {
    /// Opens the journal at `path`, or makes it, and gives what was written in `lap`, or if
    /// that has not begun, in the one before it. Its end is where the next entry goes.
    ///
    /// # Errors
    /// It can't be made, for want of space perhaps, or read; or it is damaged before its end.
    pub(crate) fn open(path: &Path, lap: u64) -> Result<(Self, Vec<Vec<u8>>), TableError> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len() as usize;
        // The file gets all its blocks, so that no later write fails for want of space.
        let zeros = vec![0; PIECE_BYTES];
        for at in (len.min(JOURNAL_BYTES)..JOURNAL_BYTES).step_by(PIECE_BYTES) {
            let piece = PIECE_BYTES.min(JOURNAL_BYTES - at);
            file.write_all_at(&zeros[..piece], at as u64)
                .map_err(failed)?;
        }
        if len < JOURNAL_BYTES {
            // Nothing is acknowledged in a file that a power loss could take away as a whole.
            file.sync_all().map_err(failed)?;
            let dir = path
                .parent()
                .map_or(Ok(()), |dir| File::open(dir)?.sync_all());
            dir.map_err(failed)?;
        }
        let mut bytes = vec![0; JOURNAL_BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        let (mut entries, mut at) = entries(&bytes, lap)?;
        // An entry that was cut off is the last one, and was not acknowledged. One after it means damage.
        let mut later = (at..JOURNAL_BYTES).step_by(ALIGNMENT).skip(1);
        if later.any(|at| entry(&bytes, at, lap).is_some()) {
            return Err(TableError::Damaged {
                what: "entry",
                at: format!("byte {at} of the journal"),
            });
        }
        let mut current = lap;
        if entries.is_empty() && lap > 0 {
            current = lap - 1;
            (entries, at) = self::entries(&bytes, current)?;
        }
        let journal = Journal {
            sheet: Sheet::new(file, JOURNAL_BYTES).map_err(failed)?,
            at,
            lap: current,
            entry: Vec::new(),
        };
        Ok((journal, entries))
    }

    /// The lap that entries belong to now.
    pub(crate) fn lap(&self) -> u64 {
        self.lap
    }

    /// Bytes that entries take in this lap.
    pub(crate) fn used(&self) -> usize {
        self.at
    }

    /// Makes an entry of what `fill` appends, but does not write it; false if there is no
    /// room for it in this lap.
    pub(crate) fn prepare(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.entry.clear();
        self.entry.resize(HEADER_BYTES, 0);
        fill(&mut self.entry);
        self.at + self.entry.len() <= JOURNAL_BYTES
    }

    /// True if the prepared entry is too large for the journal.
    pub(crate) fn is_large(&self) -> bool {
        self.entry.len() > LARGEST_ENTRY_BYTES
    }

    /// Writes the prepared entry, for which there is room.
    ///
    /// # Errors
    /// Of the file system; there is no entry then.
    pub(crate) fn write(&mut self) -> Result<(), TableError> {
        assert!(
            self.entry.len() >= HEADER_BYTES && self.at + self.entry.len() <= JOURNAL_BYTES,
            "an entry is prepared, and there is room for it"
        );
        let (header, payload) = self.entry.split_at_mut(HEADER_BYTES);
        header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&MARK);
        header[8..].copy_from_slice(&xxh3_64_with_seed(payload, self.lap).to_le_bytes());
        self.sheet.write(&self.entry, self.at).map_err(failed)?;
        self.at = (self.at + self.entry.len()).next_multiple_of(ALIGNMENT);
        Ok(())
    }

    /// Begins the next lap: all entries are in the store now.
    ///
    /// # Panics
    /// The number is not a later one: entries of old would count again.
    pub(crate) fn begin(&mut self, lap: u64) {
        assert!(lap > self.lap, "laps grow: {lap} after {}", self.lap);
        self.lap = lap;
        self.at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal with one entry, in a folder that goes at the end of the test.
    fn written() -> (tempfile::TempDir, Journal) {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(&folder.path().join("journal"), 0).unwrap();
        assert!(journal.prepare(|out| out.extend_from_slice(b"payload")));
        journal.write().unwrap();
        (folder, journal)
    }

    #[test]
    fn a_full_disk_and_a_full_quota_are_no_space_and_nothing_else_is() {
        assert!(failed(ErrorKind::StorageFull.into()).is_no_space());
        assert!(failed(ErrorKind::QuotaExceeded.into()).is_no_space());
        assert!(!failed(ErrorKind::PermissionDenied.into()).is_no_space());
    }

    #[test]
    fn an_entry_of_another_format_is_an_error_that_names_it() {
        let (folder, journal) = written();
        drop(journal);
        let path = folder.path().join("journal");
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"K", 7).unwrap();
        let error = Journal::open(&path, 0).err().unwrap();
        assert!(
            error.to_string().contains("entries of format 'K'"),
            "{error}"
        );
        // With another checksum it is no entry at all: a name in an old entry may look like a mark.
        file.write_all_at(b"x", 8).unwrap();
        assert!(Journal::open(&path, 0).unwrap().1.is_empty());
    }

    #[test]
    #[should_panic(expected = "laps grow: 0 after 0")]
    fn a_lap_does_not_begin_twice() {
        let (_folder, mut journal) = written();
        journal.begin(0);
    }

    #[test]
    #[should_panic(expected = "there is room for it")]
    fn an_entry_without_room_is_not_written() {
        let (_folder, mut journal) = written();
        assert!(!journal.prepare(|out| out.resize(JOURNAL_BYTES, 0)));
        let _ = journal.write();
    }
}
