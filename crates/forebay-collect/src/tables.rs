//! Reads the tables of a recording.

use crate::Error;
use crate::image::{Image, entry_of};
use crate::recording::Recording;
use forebay_count::layout::{MAX_TABLE_BYTES, WORD_BYTES};
use forebay_count::read;
use forebay_count::{COLLECTIVE_PREFIX, TABLE_SUFFIX, TROUBLE_PREFIX};
use forebay_sys::{SparseWords, next_data};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Most bytes of a trouble note that are read.
const MOST_TROUBLE_BYTES: u64 = 4096;

/// Why a table is not read.
enum Unread {
    /// Its process was killed while it made it, so there is nothing in it.
    Unbegun,
    /// It can't be read.
    Failed(Error),
}

impl From<Error> for Unread {
    fn from(e: Error) -> Self {
        Unread::Failed(e)
    }
}

/// All tables of a job.
#[derive(Default)]
pub struct Tables {
    /// The tables that can be read.
    pub images: Vec<Image>,
    /// Names by record id.
    pub names: HashMap<u64, Vec<u8>>,
    /// Sentences on what is wrong with the others, and on trouble that the recorder itself noted.
    pub remarks: Vec<String>,
    /// How many tables can't be read.
    pub damaged: u64,
    /// What the collective layer did with files of MPI-IO, as it tells it itself: an object of JSON for each.
    pub collective: Vec<serde_json::Value>,
}

impl Tables {
    /// Reads the tables of a recording directory.
    ///
    /// # Errors
    /// The directory can't be read. A table that can't be read is a remark and no error.
    pub fn read(&mut self, recording: &Recording) -> Result<(), Error> {
        let dir = &recording.dir;
        let entries = fs::read_dir(dir).map_err(|e| Error::io("read", dir, e))?;
        let entries = entries.map(|entry| entry.map(|entry| entry.path()));
        for path in self.listed(entries, dir) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.ends_with(TABLE_SUFFIX) {
                match self.read_table(&path, recording) {
                    Ok(()) => {}
                    Err(Unread::Unbegun) => {
                        let pid = name.split('-').next().unwrap_or_default();
                        self.remarks.push(format!(
                            "process {pid} was killed before it had recorded anything"
                        ));
                    }
                    Err(Unread::Failed(e)) => {
                        self.damaged += 1;
                        self.remarks.push(format!("a table is not in the log: {e}"));
                    }
                }
            } else if name.starts_with(TROUBLE_PREFIX) {
                self.remarks.push(trouble(&path));
            } else if name.starts_with(COLLECTIVE_PREFIX) {
                self.read_collective(&path);
            }
        }
        Ok(())
    }

    /// The paths in a recording directory, sorted. If it can't be read to its end, that is a remark: tables may be missing.
    fn listed(
        &mut self,
        entries: impl Iterator<Item = io::Result<PathBuf>>,
        dir: &Path,
    ) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for entry in entries {
            match entry {
                Ok(path) => paths.push(path),
                Err(e) => {
                    let e = Error::io("list", dir, e);
                    self.damaged += 1;
                    self.remarks
                        .push(format!("tables may be missing in the log: {e}"));
                    // Some file systems go on to say so for ever.
                    break;
                }
            }
        }
        paths.sort();
        paths
    }

    fn read_table(&mut self, path: &Path, recording: &Recording) -> Result<(), Unread> {
        let is_empty = |meta: fs::Metadata| meta.is_file() && meta.len() == 0;
        if fs::symlink_metadata(path).is_ok_and(is_empty) {
            return Err(Unread::Unbegun);
        }
        let words = load(path)?;
        let table =
            read::open(words.words()).map_err(|e| match read::is_unbegun(words.words()) {
                true => Unread::Unbegun,
                false => Error::damaged(path, e.to_string()).into(),
            })?;
        let mut image = Image::of(&table, path, recording);
        if image.last_ns > LAST_TIME_NS {
            return Err(Error::damaged(path, "its times can't be").into());
        }
        read::each_file(&table, |file| {
            let Some(entry) = entry_of(file, &table) else {
                return;
            };
            let known = self.names.entry(entry.id).or_default();
            if known.is_empty() {
                // A damaged name may hold a NUL, and a log ends a name with its first one.
                let name = file.name.split(|&b| b == 0).next();
                *known = name.unwrap_or_default().to_vec();
            }
            image.folded_files += file.folded.unwrap_or(0);
            image.values_lost += u64::from(file.values_lost);
            image.mapped_bytes = image.mapped_bytes.saturating_add(file.facts().mapped_bytes);
            image.files.push(entry);
        });
        if image.is_alive {
            image.copy = Some(words);
        }
        self.images.push(image);
        Ok(())
    }
}

/// The last point in time that a log can tell, in nanoseconds since 1970.
const LAST_TIME_NS: u64 = i64::MAX as u64;

/// Most bytes that are read of a file in which the collective layer tells what it did, and most files of MPI-IO that a log tells of.
const MOST_COLLECTIVE: (u64, usize) = (4 << 20, 1000);

impl Tables {
    fn read_collective(&mut self, path: &Path) {
        // A line that is cut off is none.
        let text = first_bytes(path, MOST_COLLECTIVE.0);
        let told = String::from_utf8_lossy(&text);
        let told = told
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let room = MOST_COLLECTIVE.1.saturating_sub(self.collective.len());
        self.collective.extend(told.take(room));
    }
}

/// At most so many of the first bytes of a file; none of what is no file.
fn first_bytes(path: &Path, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let is_file = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file());
    if let (true, Ok(file)) = (is_file, fs::File::open(path)) {
        let _ = file.take(most).read_to_end(&mut bytes);
    }
    bytes
}

fn trouble(path: &Path) -> String {
    let text = first_bytes(path, MOST_TROUBLE_BYTES);
    let text = String::from_utf8_lossy(&text);
    let line: String = text
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let pid = name.trim_start_matches(TROUBLE_PREFIX);
    match line.is_empty() {
        // It has no words without memory, and no room for them where files must stay small.
        true => format!("process {pid} could not make a table, so it was not recorded"),
        false => format!("the recorder of process {pid} says: {line}"),
    }
}

/// Bytes of a table that are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// The words of a table file, of bounded number. Most of a table was never touched, and is a hole in its file: only what has
/// data is read, and the rest takes no memory.
pub fn load(path: &Path) -> Result<SparseWords, Error> {
    let failed = |e| Error::io("read", path, e);
    let meta = fs::symlink_metadata(path).map_err(|e| Error::io("look at", path, e))?;
    let count = meta.len() as usize / WORD_BYTES;
    if !meta.is_file() || meta.len() > MAX_TABLE_BYTES as u64 || count == 0 {
        return Err(Error::damaged(path, "not a table"));
    }
    let file = fs::File::open(path).map_err(failed)?;
    let sparse = SparseWords::new(count).map_err(|e| failed(e.into()))?;
    let data = |at| next_data(file.as_fd(), at).map_err(drop);
    fill(sparse.words(), data, |room, at| file.read_at(room, at)).map_err(failed)?;
    Ok(sparse)
}

/// Fills words that are 0. `data` gives the first range with data at or after a place, `read` some bytes from a place on: a
/// file system may give fewer than are asked for, but none only at the end.
fn fill(
    words: &[AtomicU64],
    data: impl Fn(u64) -> Result<Option<(u64, u64)>, ()>,
    read: impl Fn(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let end = (words.len() * WORD_BYTES) as u64;
    let mut buffer = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < end {
        let (first, last) = match data(at) {
            Ok(Some((first, last))) => (
                first - first % WORD_BYTES as u64,
                last.checked_next_multiple_of(WORD_BYTES as u64)
                    .map_or(end, |last| last.min(end)),
            ),
            Ok(None) => break,
            // Not every file system knows its holes.
            Err(()) => (at, end),
        };
        at = first.max(at);
        while at < last {
            let piece = buffer.len().min((last - at) as usize);
            let got = read_all(&mut buffer[..piece], at, &read)?;
            // The last word of a file may not be whole.
            buffer[got..piece].fill(0);
            let from = at as usize / WORD_BYTES;
            for (to, word) in words[from..].iter().zip(read::words(&buffer[..piece])) {
                let value = word.into_inner();
                if value != 0 {
                    to.store(value, Relaxed);
                }
            }
            if got < piece {
                return Ok(());
            }
            at += piece as u64;
        }
    }
    Ok(())
}

/// Reads until there is no room left or nothing more to read.
fn read_all(
    room: &mut [u8],
    at: u64,
    read: impl Fn(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut got = 0;
    while got < room.len() {
        match read(&mut room[got..], at + got as u64) {
            Ok(0) => break,
            Ok(some) => got += some,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_holes_is_read_as_if_it_had_none() {
        let path = std::env::temp_dir().join(format!("fbtable-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        // Holes before, between and behind the data, and a last word that is not whole.
        file.set_len((1 << 20) + 5).unwrap();
        let piece: Vec<u8> = (0..200_003u32).map(|n| (n % 251) as u8).collect();
        for at in [4096, 409_600 + 24, (1 << 20) - 200_000] {
            file.write_all_at(&piece, at).unwrap();
        }
        let dense = fs::read(&path).unwrap();
        let sparse = load(&path).unwrap();
        assert_eq!(sparse.words().len(), dense.len() / WORD_BYTES);
        for (found, expected) in sparse.words().iter().zip(read::words(&dense)) {
            assert_eq!(found.load(Relaxed), expected.into_inner());
        }
        file.set_len(7).unwrap();
        assert!(load(&path).is_err(), "not a single word");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_table_is_read_whole_however_few_bytes_come_at_a_time() {
        let bytes: Vec<u8> = (0..PIECE_BYTES + 4_099).map(|n| (n % 251) as u8).collect();
        for some in [1, 3, 7, 8, 9, 1_000] {
            let asked = std::cell::Cell::new(0_u32);
            let read = |room: &mut [u8], at: u64| {
                asked.set(asked.get() + 1);
                if asked.get().is_multiple_of(5) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                let left = &bytes[bytes.len().min(at as usize)..];
                let n = some.min(left.len()).min(room.len());
                room[..n].copy_from_slice(&left[..n]);
                Ok(n)
            };
            let words: Vec<AtomicU64> = (0..bytes.len() / WORD_BYTES)
                .map(|_| AtomicU64::new(0))
                .collect();
            // The data ends within a word.
            let data = |at| Ok((at < 1_001).then_some((at, 1_001)).or(Some((at, u64::MAX))));
            fill(&words, data, read).unwrap();
            for (found, expected) in words.iter().zip(read::words(&bytes)) {
                assert_eq!(found.load(Relaxed), expected.into_inner(), "{some}");
            }
        }
    }

    #[test]
    fn a_directory_that_cannot_be_listed_to_its_end_is_a_remark() {
        let mut tables = Tables::default();
        let entries = [
            Ok(PathBuf::from("b")),
            Ok(PathBuf::from("a")),
            Err(io::ErrorKind::Other.into()),
        ];
        let paths = tables.listed(entries.into_iter(), Path::new("/rec"));
        assert_eq!(paths, [PathBuf::from("a"), PathBuf::from("b")]);
        assert_eq!(tables.damaged, 1);
        assert!(tables.remarks[0].contains("/rec"), "{:?}", tables.remarks);
    }

    #[test]
    fn of_a_note_of_trouble_the_first_bytes_are_read() {
        let dir = std::env::temp_dir().join(format!("fbtrouble-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("trouble.7");
        fs::write(&path, "no room\n").unwrap();
        // Nobody has the memory for all of it.
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_len(1 << 43).unwrap();
        let said = trouble(&path);
        assert!(
            said.starts_with("the recorder of process 7 says: no room"),
            "{said}"
        );
        assert!(said.len() < 2 * MOST_TROUBLE_BYTES as usize);
        fs::write(&path, "").unwrap();
        let said = trouble(&path);
        assert_eq!(
            said,
            "process 7 could not make a table, so it was not recorded"
        );
        fs::remove_dir_all(&dir).unwrap();
    }
}
