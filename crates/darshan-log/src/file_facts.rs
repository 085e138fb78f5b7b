//! Facts for which Darshan's format has no place: what each file was when the job found it, and which ranks used it.
//!
//! They stand behind the last region, where Darshan's own tools do not look:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `FBFACTS1` |
//! | 8 | length of the rest, little endian |
//! | length | zlib stream of the following, all little endian |
//! | 4, 4, 8 | version (1), bytes of a file (at least 32), number of files |
//! | 40 each | record id; size at the first open, -1 if unknown (8); flags (4); ranks that used it (4), the lowest (4), the highest (4); files that the record sums, 0 if it is that of one file (8; missing in entries of 32 bytes) |
//! | 4 | bytes of the lines |
//! | length | lines `key=value`, as in the metadata of the job |
//! | 4, 4 | number of programs, bytes of a program without its command (at least 64); both missing in older logs |
//! | 64 + length each | a program, see [`Program`]: parent (4, `u32::MAX` for none), pid (4), rank (4, `u32::MAX` for none), end (4), code (4), bytes of its command (4), start (8), end (8), bytes read (8), written (8), nanoseconds in calls (8); command |
//! | 4 | number of notes; missing in older logs |
//! | 8 + lengths each | a note: bytes of its name (4), bytes of its text (4), name, text |
//!
//! Flags: 1 if the job created the file, 2 if it was there before, neither if that is unknown.

mod programs;

pub use programs::{Program, ProgramEnd, heaviest, weights};

use std::io::{Read, Write};

use flate2::Compression as Level;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use crate::{Error, Log, Region, Result};

const MAGIC: &[u8; 8] = b"FBFACTS1";
const VERSION: u32 = 1;
const FILE_BYTES: usize = 40;
/// Bytes of a file without [`FileFacts::summed`].
const LEAST_FILE_BYTES: usize = 32;
const CREATED: u32 = 1;
const EXISTED: u32 = 2;
/// Facts that need more memory are refused; it is enough for 8 million files.
const MOST_BYTES: u64 = 256 << 20;

/// What is known of a file besides its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// Record id of its name.
    pub id: u64,
    /// Size in bytes when the job first opened it; `None` if unknown.
    pub size_at_open: Option<u64>,
    /// `true` if the job created it, `false` if it was there before, `None` if unknown.
    pub created: Option<bool>,
    /// How many ranks used it.
    pub ranks: u32,
    /// The lowest of them.
    pub lowest_rank: u32,
    /// The highest of them.
    pub highest_rank: u32,
    /// For a record that stands for several files: how many. A file that several ranks have used counts for each.
    pub summed: Option<u64>,
}

/// All facts of a log.
///
/// ```
/// use darshan_log::file_facts::{Facts, FileFacts};
/// let mut facts = Facts::default();
/// facts.files.push(FileFacts { id: 7, size_at_open: Some(4096), created: Some(false), ranks: 2, ..FileFacts::default() });
/// facts.lines.push(("unlinks".to_owned(), "12".to_owned()));
/// assert_eq!(Facts::decode(&facts.encode()).unwrap(), Some(facts));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// One for each file, by increasing record id.
    pub files: Vec<FileFacts>,
    /// Facts about the job that its metadata had no room for.
    pub lines: Vec<(String, String)>,
    /// The programs that the job has run, parents before children.
    pub programs: Vec<Program>,
    /// Names and texts that only whoever wrote the log can read.
    pub notes: Vec<(String, String)>,
}

impl Facts {
    /// The text of the note with this name.
    pub fn note(&self, name: &str) -> Option<&str> {
        let note = self.notes.iter().find(|(known, _)| known == name)?;
        Some(&note.1)
    }

    /// What is known of the file with this record id.
    pub fn file(&self, id: u64) -> Option<&FileFacts> {
        let at = self.files.binary_search_by_key(&id, |file| file.id).ok()?;
        self.files.get(at)
    }

    /// Encodes the facts for [`LogWriter::trailing`](crate::LogWriter::trailing).
    pub fn encode(&self) -> Vec<u8> {
        let mut plain = Vec::with_capacity(16 + self.files.len() * FILE_BYTES);
        plain.extend(VERSION.to_le_bytes());
        plain.extend((FILE_BYTES as u32).to_le_bytes());
        plain.extend((self.files.len() as u64).to_le_bytes());
        let mut files: Vec<&FileFacts> = self.files.iter().collect();
        files.sort_by_key(|file| file.id);
        for file in files {
            let size = file
                .size_at_open
                .map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX));
            let flags = match file.created {
                Some(true) => CREATED,
                Some(false) => EXISTED,
                None => 0,
            };
            plain.extend(file.id.to_le_bytes());
            plain.extend(size.to_le_bytes());
            for word in [flags, file.ranks, file.lowest_rank, file.highest_rank] {
                plain.extend(word.to_le_bytes());
            }
            plain.extend(file.summed.unwrap_or(0).to_le_bytes());
        }
        let mut text = String::new();
        for (key, value) in &self.lines {
            text += &format!("{key}={}\n", value.replace('\n', " "));
        }
        plain.extend((text.len() as u32).to_le_bytes());
        plain.extend(text.as_bytes());
        programs::encode(&self.programs, &mut plain);
        plain.extend((self.notes.len() as u32).to_le_bytes());
        for (name, text) in &self.notes {
            plain.extend((name.len() as u32).to_le_bytes());
            plain.extend((text.len() as u32).to_le_bytes());
            plain.extend(name.as_bytes());
            plain.extend(text.as_bytes());
        }
        let mut out = MAGIC.to_vec();
        let packed = compress(&plain);
        out.extend((packed.len() as u64).to_le_bytes());
        out.extend(packed);
        out
    }

    /// Decodes the bytes behind the last region; `None` if they are something else.
    ///
    /// # Errors
    /// The bytes begin as facts do, but are damaged. The text says what is wrong.
    pub fn decode(trailing: &[u8]) -> std::result::Result<Option<Facts>, String> {
        let Some(rest) = trailing.strip_prefix(MAGIC) else {
            return Ok(None);
        };
        let (length, rest) = rest.split_first_chunk().ok_or("cut off in their header")?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let packed = rest.get(..length).ok_or("cut off")?;
        let mut plain = Vec::new();
        let mut limited = ZlibDecoder::new(packed).take(MOST_BYTES + 1);
        limited.read_to_end(&mut plain).map_err(|e| e.to_string())?;
        if plain.len() as u64 > MOST_BYTES {
            return Err(format!("more than {MOST_BYTES} bytes"));
        }
        parse(&plain).map(Some)
    }
}

impl Log {
    /// The facts behind the last region; `None` if there are none.
    ///
    /// # Errors
    /// The facts are damaged, or the file can't be read.
    pub fn facts(&self) -> Result<Option<Facts>> {
        Facts::decode(&self.trailing()?).map_err(|reason| Error::Corrupt {
            region: Region::Trailing,
            offset: self.header.end(),
            reason: format!("facts: {reason}"),
        })
    }
}

fn compress(plain: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Level::default());
    encoder
        .write_all(plain)
        .and_then(|()| encoder.finish())
        .expect("a Vec takes all bytes")
}

fn parse(plain: &[u8]) -> std::result::Result<Facts, String> {
    let mut words = Unread(plain);
    let version = words.u32()?;
    if version != VERSION {
        return Err(format!("version {version} is not known"));
    }
    let file_bytes = words.u32()? as usize;
    let count = words.u64()?;
    let room = (plain.len() / file_bytes.max(LEAST_FILE_BYTES)) as u64;
    if file_bytes < LEAST_FILE_BYTES || count > room {
        return Err(format!("{count} files of {file_bytes} bytes do not fit"));
    }
    let mut facts = Facts::default();
    for _ in 0..count {
        let mut file = Unread(words.bytes(file_bytes)?);
        let (id, size) = (file.u64()?, file.u64()? as i64);
        let flags = file.u32()?;
        facts.files.push(FileFacts {
            id,
            size_at_open: u64::try_from(size).ok(),
            created: match flags & (CREATED | EXISTED) {
                CREATED => Some(true),
                EXISTED => Some(false),
                _ => None,
            },
            ranks: file.u32()?,
            lowest_rank: file.u32()?,
            highest_rank: file.u32()?,
            summed: file.u64().ok().filter(|files| *files > 0),
        });
    }
    facts.files.sort_by_key(|file| file.id);
    let length = words.u32()? as usize;
    let text = String::from_utf8_lossy(words.bytes(length)?);
    let lines = text.lines().filter_map(|line| line.split_once('='));
    facts.lines = lines
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    if !words.0.is_empty() {
        facts.programs = programs::decode(&mut words)?;
    }
    if !words.0.is_empty() {
        for _ in 0..words.u32()? {
            let (name, text) = (words.u32()? as usize, words.u32()? as usize);
            let name = words.text(name)?;
            facts.notes.push((name, words.text(text)?));
        }
    }
    Ok(facts)
}

/// The bytes that are not read yet.
struct Unread<'b>(&'b [u8]);

impl<'b> Unread<'b> {
    fn i64(&mut self) -> std::result::Result<i64, String> {
        self.u64().map(|word| word as i64)
    }

    fn bytes(&mut self, n: usize) -> std::result::Result<&'b [u8], String> {
        let (bytes, rest) = self.0.split_at_checked(n).ok_or("cut off")?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self, length: usize) -> std::result::Result<String, String> {
        Ok(String::from_utf8_lossy(self.bytes(length)?).into_owned())
    }

    fn u32(&mut self) -> std::result::Result<u32, String> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or("cut off")?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> std::result::Result<u64, String> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or("cut off")?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        let file = |id, size_at_open, created| FileFacts {
            id,
            size_at_open,
            created,
            ranks: 3,
            lowest_rank: 1,
            highest_rank: u32::MAX,
            summed: size_at_open.is_none().then_some(7),
        };
        Facts {
            files: vec![
                file(2, Some(0), Some(true)),
                file(5, None, None),
                file(u64::MAX, Some(1 << 40), Some(false)),
            ],
            lines: vec![("a".into(), "b=c".into()), ("d".into(), String::new())],
            programs: vec![
                Program {
                    pid: 10,
                    command: "bash job.sh".into(),
                    ..Program::default()
                },
                Program {
                    parent: Some(0),
                    pid: u32::MAX,
                    rank: Some(3),
                    end: ProgramEnd::Exited(-7),
                    start_ns: -5,
                    end_ns: i64::MAX,
                    bytes_read: u64::MAX,
                    bytes_written: 1,
                    call_ns: 2,
                    command: "cat \u{e4}".into(),
                },
            ],
            notes: vec![("calls".into(), "[]".into()), (String::new(), "x\n".into())],
        }
    }

    #[test]
    fn what_is_written_is_what_is_read_whatever_follows() {
        let mut bytes = facts().encode();
        assert_eq!(Facts::decode(&bytes), Ok(Some(facts())));
        bytes.extend(b"more");
        assert_eq!(Facts::decode(&bytes), Ok(Some(facts())));
        assert_eq!(facts().file(5), Some(&facts().files[1]));
        assert_eq!(facts().file(6), None);
        assert_eq!(facts().note("calls"), Some("[]"));
        assert_eq!(facts().note("other"), None);
    }

    #[test]
    fn other_bytes_are_no_facts() {
        assert_eq!(Facts::decode(b""), Ok(None));
        assert_eq!(Facts::decode(b"FBFACTS"), Ok(None));
        assert_eq!(Facts::decode(&[0; 100]), Ok(None));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_an_error_or_other_facts_but_no_panic() {
        let bytes = facts().encode();
        for length in MAGIC.len()..bytes.len() {
            assert!(Facts::decode(&bytes[..length]).is_err(), "{length}");
        }
        for at in MAGIC.len()..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x41;
            assert_ne!(Facts::decode(&changed), Ok(Some(facts())), "{at}");
        }
    }

    #[test]
    fn a_number_of_files_that_cannot_be_is_an_error() {
        for (count, file_bytes) in [(u64::MAX, 32), (1, 0), (1, u32::MAX), (2, 32)] {
            let mut plain = VERSION.to_le_bytes().to_vec();
            plain.extend(u32::to_le_bytes(file_bytes));
            plain.extend(u64::to_le_bytes(count));
            plain.extend([0; 32]);
            let packed = compress(&plain);
            let mut bytes = MAGIC.to_vec();
            bytes.extend((packed.len() as u64).to_le_bytes());
            bytes.extend(packed);
            assert!(Facts::decode(&bytes).is_err(), "{count} of {file_bytes}");
        }
    }
}
