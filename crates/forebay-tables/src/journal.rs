//! Two files that batches go to at once, long before they reach the store.
//!
//! Each has a fixed size and takes one *lap* at a time: laps with even numbers are in one file, the others in the
//! other. What was written is in the page cache, and survives the death of the process. Nobody brings it to the disk:
//! after a power loss the store alone counts. So each lap says during which *life* of the storage it was written
//! ([`Life`]), and one of another life is passed over.

use crate::map::Sheet;
use forebay_core::table::TableError;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// What stays the same as long as the page cache of a storage does: no reboot, the same mount of the same disk.
pub type Life = [u8; 16];

/// Size of one file in bytes.
const FILE_BYTES: usize = 2 << 20;
/// A larger entry goes past the journal.
const LARGEST_ENTRY_BYTES: usize = FILE_BYTES / 8;
/// What stands before the entries: mark, lap, life, checksum of these, bytes of all entries.
const TOP_BYTES: usize = 64;
/// Begins a file. Its last byte is the format.
const TOP_MARK: [u8; 8] = *b"FBYLAP\x00\x02";
/// Where the bytes of all entries are counted.
const LEN_AT: usize = 40;
/// Length of the payload, mark, checksum of the payload.
const HEADER_BYTES: usize = 16;
/// Stands in each entry. Its last byte is the format of the entries, so that a later one is told from an end.
const MARK: [u8; 4] = *b"FBYJ";
/// Entries begin at multiples of this.
const ALIGNMENT: usize = 8;
/// Bytes per write when a file is made.
const PIECE_BYTES: usize = 64 << 10;

/// Both files.
pub(crate) struct Journal {
    files: [Sheet; 2],
    life: Life,
    lap: u64,
    /// Where the next entry of the lap goes.
    at: usize,
    /// The prepared entry. The buffer is kept for its memory.
    entry: Vec<u8>,
}

/// What the page cache still had of a lap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// Everything. Holds the entries.
    Whole(Vec<Vec<u8>>),
    /// The lap was not begun.
    Nothing,
    /// It was written during another life of the storage.
    OtherLife,
    /// A part of it can't be read. Holds the entries before that.
    Torn(Vec<Vec<u8>>),
}

fn failed(e: std::io::Error) -> TableError {
    let said = format!("journal: {e}");
    match e.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => TableError::NoSpace(said),
        _ => TableError::Failed(said),
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..].first_chunk().expect("the file is long enough");
    u64::from_le_bytes(*word)
}

/// What the checksums of a lap are made with; the format of the entry is in it.
pub(crate) fn seed(lap: u64, format: u8) -> u64 {
    lap ^ u64::from(format) << 56
}

/// An entry of some format whose checksum is right: the format, the payload and the end.
fn valid(bytes: &[u8], at: usize, seed: impl Fn(u8) -> u64) -> Option<(u8, &[u8], usize)> {
    let (header, rest) = bytes.get(at..)?.split_first_chunk::<HEADER_BYTES>()?;
    let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let (project, format) = (&header[4..7], header[7]);
    if *project != MARK[..3] {
        return None;
    }
    let payload = rest.get(..len)?;
    let sum = xxh3_64_with_seed(payload, seed(format)).to_le_bytes();
    let end = (at + HEADER_BYTES + len).next_multiple_of(ALIGNMENT);
    (header[8..] == sum).then_some((format, payload, end))
}

/// The entries from `at` on whose checksums are made with the seed for their format, and their end.
pub(crate) fn entries(
    bytes: &[u8],
    mut at: usize,
    seed: impl Fn(u8) -> u64,
) -> Result<(Vec<Vec<u8>>, usize), TableError> {
    let mut entries = Vec::new();
    while let Some((format, payload, end)) = valid(bytes, at, &seed) {
        if format != MARK[3] {
            return Err(TableError::OtherFormat(format!(
                "the journal has entries of format {:?}, and this program knows {:?} alone",
                char::from(format),
                char::from(MARK[3])
            )));
        }
        entries.push(payload.to_vec());
        at = end;
    }
    Ok((entries, at))
}

/// The lap of a file and the life in which it began.
fn top(bytes: &[u8]) -> Option<(u64, Life)> {
    let is_right = bytes[..8] == TOP_MARK && word(bytes, 32) == xxh3_64(&bytes[..32]);
    is_right.then(|| {
        let life = bytes[16..].first_chunk().expect("the file is long enough");
        (word(bytes, 8), *life)
    })
}

fn open(path: &Path) -> Result<(File, Vec<u8>), TableError> {
    let file = File::options()
        .mode(0o600)
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len() as usize;
    // The file gets all its blocks, so that no later write fails for want of space.
    let zeros = vec![0; PIECE_BYTES];
    for at in (len.min(FILE_BYTES)..FILE_BYTES).step_by(PIECE_BYTES) {
        let piece = PIECE_BYTES.min(FILE_BYTES - at);
        file.write_all_at(&zeros[..piece], at as u64)
            .map_err(failed)?;
    }
    let mut bytes = vec![0; FILE_BYTES];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    Ok((file, bytes))
}

/// What a file has of a lap, and where its entries end.
fn look(bytes: &[u8], lap: u64, life: Life) -> Result<(Found, usize), TableError> {
    match top(bytes) {
        Some((number, then)) if number == lap => {
            if then != life {
                return Ok((Found::OtherLife, TOP_BYTES));
            }
        }
        _ => return Ok((Found::Nothing, TOP_BYTES)),
    }
    let (entries, end) = entries(bytes, TOP_BYTES, |format| seed(lap, format))?;
    // An entry is written before it is counted, so there may be one more than is counted.
    let is_whole = end - TOP_BYTES >= word(bytes, LEN_AT) as usize;
    let found = if is_whole {
        Found::Whole(entries)
    } else {
        Found::Torn(entries)
    };
    Ok((found, end))
}

/// The payloads of a journal file that begins with `bytes`, in the lap and life that they name. `is_sealed`: checksums
/// are made right before. For fuzzers.
#[doc(hidden)]
pub fn payloads_of_journal(bytes: &[u8], is_sealed: bool) -> Vec<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().max(TOP_BYTES), 0);
    if is_sealed {
        bytes[..8].copy_from_slice(&TOP_MARK);
        let sum = xxh3_64(&bytes[..32]).to_le_bytes();
        bytes[32..40].copy_from_slice(&sum);
        let lap = word(&bytes, 8);
        let mut at = TOP_BYTES;
        while let Some(header) = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
            let len = u32::from_le_bytes(*header) as usize;
            let from = at + HEADER_BYTES;
            let Some(payload) = bytes.get(from..).and_then(|rest| rest.get(..len)) else {
                break;
            };
            let sum = xxh3_64_with_seed(payload, seed(lap, MARK[3])).to_le_bytes();
            bytes[at + 4..at + 8].copy_from_slice(&MARK);
            bytes[at + 8..from].copy_from_slice(&sum);
            at = (from + len).next_multiple_of(ALIGNMENT);
        }
    }
    let Some((lap, life)) = top(&bytes) else {
        return Vec::new();
    };
    match look(&bytes, lap, life) {
        Ok((Found::Whole(entries) | Found::Torn(entries), _)) => entries,
        _ => Vec::new(),
    }
}

impl Journal {
    /// Opens the files `journal.0` and `journal.1` in `dir`, or makes them, and gives what was written in `lap` and in the
    /// one after it. The later of the two goes on, and entries that were torn away are forgotten with all that came after
    /// them. If something is missing that was acknowledged once, `loss` is entered: a start that dies is followed by one that
    /// knows. `is_new`: nothing was ever acknowledged.
    ///
    /// # Errors
    /// They can't be made, for want of space perhaps, or read, or have a format that is not known.
    pub(crate) fn open(
        dir: &Path,
        lap: u64,
        life: Life,
        is_new: bool,
        loss: impl Fn(&Found, &mut Vec<u8>),
    ) -> Result<(Self, [Found; 2]), TableError> {
        let mut sheets = Vec::new();
        let mut contents = Vec::new();
        for name in ["journal.0", "journal.1"] {
            let (file, bytes) = open(&dir.join(name))?;
            sheets.push(Sheet::new(file, FILE_BYTES).map_err(failed)?);
            contents.push(bytes);
        }
        let [first, second] = [lap, lap + 1].map(|l| look(&contents[l as usize % 2], l, life));
        let (first, first_end) = first?;
        let (second, second_end) = second?;
        let Ok(files) = <[Sheet; 2]>::try_from(sheets) else {
            unreachable!("there are two files");
        };
        let mut journal = Journal {
            files,
            life,
            lap,
            at: first_end,
            entry: Vec::new(),
        };
        let found = match (first, second) {
            (first @ Found::Whole(_), second @ (Found::Whole(_) | Found::Torn(_))) => {
                journal.lap = lap + 1;
                journal.at = second_end;
                [first, second]
            }
            // What came after a loss is lost as well.
            (first, _) => {
                journal.files[(lap + 1) as usize % 2]
                    .write(&[0; TOP_BYTES], 0)
                    .map_err(failed)?;
                [first, Found::Nothing]
            }
        };
        let last = if journal.lap == lap {
            &found[0]
        } else {
            &found[1]
        };
        match last {
            Found::Whole(_) => journal.count()?,
            Found::Torn(_) => {
                journal.prepare(|out| loss(last, out));
                journal.write_uncounted()?;
                journal.wipe(journal.at)?;
                journal.count()?;
            }
            Found::Nothing | Found::OtherLife => {
                journal.wipe(0)?;
                if !is_new || *last == Found::OtherLife {
                    journal.prepare(|out| loss(last, out));
                    journal.write_uncounted()?;
                }
                let at = journal.at;
                journal.begin(lap)?;
                journal.at = at;
                journal.count()?;
            }
        }
        Ok((journal, found))
    }

    /// Takes away what lies behind the last entry: the lap may get entries of that length again.
    fn wipe(&mut self, from: usize) -> Result<(), TableError> {
        let zeros = vec![0; FILE_BYTES - from];
        self.file().write(&zeros, from).map_err(failed)
    }

    fn file(&mut self) -> &mut Sheet {
        &mut self.files[self.lap as usize % 2]
    }

    /// The lap that entries belong to now.
    pub(crate) fn lap(&self) -> u64 {
        self.lap
    }

    /// Is the lap half full?
    pub(crate) fn is_half_full(&self) -> bool {
        self.at >= FILE_BYTES / 2
    }

    /// Makes an entry of what `fill` appends, but does not write it; false if there is no room for it in this lap.
    pub(crate) fn prepare(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.entry.clear();
        self.entry.resize(HEADER_BYTES, 0);
        fill(&mut self.entry);
        self.fits()
    }

    /// Is there room for an entry that holds so many bytes?
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.at + HEADER_BYTES + bytes <= FILE_BYTES
    }

    /// Is there room for the prepared entry?
    pub(crate) fn fits(&self) -> bool {
        self.at + self.entry.len() <= FILE_BYTES
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
        self.write_uncounted()?;
        self.count()
    }

    fn write_uncounted(&mut self) -> Result<(), TableError> {
        assert!(
            self.entry.len() >= HEADER_BYTES && self.fits(),
            "an entry is prepared, and there is room for it"
        );
        let (header, payload) = self.entry.split_at_mut(HEADER_BYTES);
        header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&MARK);
        header[8..]
            .copy_from_slice(&xxh3_64_with_seed(payload, seed(self.lap, MARK[3])).to_le_bytes());
        self.files[self.lap as usize % 2]
            .write(&self.entry, self.at)
            .map_err(failed)?;
        self.at = (self.at + self.entry.len()).next_multiple_of(ALIGNMENT);
        Ok(())
    }

    fn count(&mut self) -> Result<(), TableError> {
        let len = ((self.at - TOP_BYTES) as u64).to_le_bytes();
        self.file().write(&len, LEN_AT).map_err(failed)
    }

    /// Begins the next lap, in the file of the lap before this one: all entries of that one are in the store.
    ///
    /// # Errors
    /// Of the file system; this lap goes on then.
    pub(crate) fn next(&mut self) -> Result<(), TableError> {
        self.begin(self.lap + 1)
    }

    fn begin(&mut self, lap: u64) -> Result<(), TableError> {
        let mut top = [0; TOP_BYTES];
        top[..8].copy_from_slice(&TOP_MARK);
        top[8..16].copy_from_slice(&lap.to_le_bytes());
        top[16..32].copy_from_slice(&self.life);
        let sum = xxh3_64(&top[..32]);
        top[32..40].copy_from_slice(&sum.to_le_bytes());
        self.files[lap as usize % 2]
            .write(&top, 0)
            .map_err(failed)?;
        self.lap = lap;
        self.at = TOP_BYTES;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Life = [7; 16];

    fn open_in(folder: &tempfile::TempDir, lap: u64, life: Life) -> (Journal, [Found; 2]) {
        Journal::open(folder.path(), lap, life, true, |_, out| {
            out.extend_from_slice(b"loss");
        })
        .unwrap()
    }

    fn write(journal: &mut Journal, payload: &[u8]) {
        assert!(journal.prepare(|out| out.extend_from_slice(payload)));
        journal.write().unwrap();
    }

    /// A folder with the laps 0 and 1, of two entries each.
    fn written() -> (tempfile::TempDir, Journal) {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, found) = open_in(&folder, 0, LIFE);
        assert_eq!(found, [Found::Nothing, Found::Nothing]);
        for payload in [b"one", b"two"] {
            write(&mut journal, payload);
        }
        journal.next().unwrap();
        for payload in [&b"three"[..], b"four"] {
            write(&mut journal, payload);
        }
        (folder, journal)
    }

    fn whole(payloads: &[&[u8]]) -> Found {
        Found::Whole(payloads.iter().map(|p| p.to_vec()).collect())
    }

    fn damage(folder: &tempfile::TempDir, name: &str, at: u64, bytes: &[u8]) {
        let path = folder.path().join(name);
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(bytes, at).unwrap();
    }

    #[test]
    fn a_full_disk_and_a_full_quota_are_no_space_and_nothing_else_is() {
        assert!(failed(ErrorKind::StorageFull.into()).is_no_space());
        assert!(failed(ErrorKind::QuotaExceeded.into()).is_no_space());
        assert!(!failed(ErrorKind::PermissionDenied.into()).is_no_space());
    }

    #[test]
    fn both_laps_are_found_again_and_the_later_one_goes_on() {
        let (folder, _) = written();
        let (mut journal, found) = open_in(&folder, 0, LIFE);
        assert_eq!(
            found,
            [whole(&[b"one", b"two"]), whole(&[b"three", b"four"])]
        );
        write(&mut journal, b"five");
        // The store has taken the first lap over.
        let (_, found) = open_in(&folder, 1, LIFE);
        assert_eq!(
            found,
            [whole(&[b"three", b"four", b"five"]), Found::Nothing]
        );
    }

    #[test]
    fn a_lap_of_another_life_is_passed_over_and_does_not_come_back() {
        let (folder, _) = written();
        let (mut journal, found) = open_in(&folder, 0, [8; 16]);
        assert_eq!(found, [Found::OtherLife, Found::Nothing]);
        write(&mut journal, b"x");
        let (_, found) = open_in(&folder, 0, [8; 16]);
        assert_eq!(found, [whole(&[b"loss", b"x"]), Found::Nothing]);
    }

    #[test]
    fn a_page_that_is_missing_is_noticed_and_what_came_after_it_is_forgotten() {
        let (folder, mut journal) = written();
        drop(journal);
        damage(&folder, "journal.0", TOP_BYTES as u64 + 24, &[0; 100]);
        let (again, found) = open_in(&folder, 0, LIFE);
        journal = again;
        assert_eq!(found, [Found::Torn(vec![b"one".to_vec()]), Found::Nothing]);
        write(&mut journal, b"new");
        let (_, found) = open_in(&folder, 0, LIFE);
        assert_eq!(found, [whole(&[b"one", b"loss", b"new"]), Found::Nothing]);
    }

    #[test]
    fn a_missing_end_of_the_later_lap_is_noticed() {
        let (folder, _) = written();
        damage(&folder, "journal.1", TOP_BYTES as u64, &[0; 4096]);
        let (_, found) = open_in(&folder, 0, LIFE);
        assert_eq!(found, [whole(&[b"one", b"two"]), Found::Torn(vec![])]);
    }

    #[test]
    fn a_top_that_is_damaged_is_no_lap() {
        for at in [0, 9, 20, 33] {
            let (folder, _) = written();
            damage(&folder, "journal.0", at, b"?");
            let (_, found) = open_in(&folder, 0, LIFE);
            assert_eq!(found, [Found::Nothing, Found::Nothing], "{at}");
        }
    }

    #[test]
    fn an_entry_of_another_format_is_an_error_that_names_it() {
        let (folder, _) = written();
        let later = xxh3_64_with_seed(b"one", seed(0, b'K')).to_le_bytes();
        let entry = [b"K", &later[..]].concat();
        damage(&folder, "journal.0", TOP_BYTES as u64 + 7, &entry);
        let error = Journal::open(folder.path(), 0, LIFE, true, |_, _| {});
        let error = error.err().unwrap();
        assert!(
            error.to_string().contains("entries of format 'K'"),
            "{error}"
        );
        // With another checksum it is no entry at all: a name in an old entry may look like a mark.
        damage(&folder, "journal.0", TOP_BYTES as u64 + 8, b"x");
        let (_, found) = open_in(&folder, 0, LIFE);
        assert_eq!(found[0], Found::Torn(vec![]));
    }

    #[test]
    #[should_panic(expected = "there is room for it")]
    fn an_entry_without_room_is_not_written() {
        let (_folder, mut journal) = written();
        assert!(!journal.prepare(|out| out.resize(FILE_BYTES, 0)));
        let _ = journal.write();
    }
}
