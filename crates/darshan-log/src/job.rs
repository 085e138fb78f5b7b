//! The job record: who ran what, when, on how many ranks, with which file systems mounted.

use crate::entry::until_nul;
use crate::region::RegionReader;
use crate::{Error, FormatVersion, Result};

/// Bytes of the metadata text, a closing NUL included.
pub(crate) const METADATA_BYTES: usize = 1024;
/// Most bytes of executable and mounts together, a closing NUL not included.
pub(crate) const TEXT_BYTES: usize = 3015;
/// A longer job region is damaged: Darshan's own has 4,096 bytes.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// A point in time: seconds and nanoseconds since 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds; 0 in logs older than format 3.41.
    pub nsec: i64,
}

impl Time {
    /// The time in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.sec as f64 + self.nsec as f64 / 1e9
    }
}

/// The job record of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// User id.
    pub uid: i64,
    /// When the job started.
    pub start: Time,
    /// When it ended; 0 if the process was killed and the log is what it left behind.
    pub end: Time,
    /// Number of processes.
    pub nprocs: i64,
    /// Job id of the scheduler, else the process id of the first process.
    pub id: i64,
    /// Further facts.
    pub metadata: Metadata,
}

impl Job {
    /// Seconds from start to end, as darshan-util computes them. Formats before 3.41 have whole
    /// seconds, so one is added. The result is negative if the end was never written.
    pub fn run_time(&self, version: FormatVersion) -> f64 {
        if version >= FormatVersion::V3_41 {
            self.end.as_secs_f64() - self.start.as_secs_f64()
        } else {
            self.end.sec.wrapping_sub(self.start.sec).wrapping_add(1) as f64
        }
    }
}

/// `key=value` lines that a recorder adds to the job record, 1,023 bytes at most.
///
/// ```
/// use darshan_log::Metadata;
/// let mut metadata = Metadata::default();
/// metadata.insert("nnodes", "4")?;
/// metadata.insert("nnodes", "8")?;
/// assert_eq!(metadata.get("nnodes"), Some("8"));
/// assert!(metadata.insert("hosts", &"n".repeat(1020)).is_err());
/// assert_eq!(metadata.text(), "nnodes=8\n");
/// # Ok::<(), darshan_log::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    text: String,
}

impl Metadata {
    /// Takes the lines as a log holds them.
    pub(crate) fn from_text(text: String) -> Metadata {
        Metadata { text }
    }

    /// The lines as they are stored.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// All keys and values; lines without `=` are left out.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.lines().filter_map(|line| line.split_once('='))
    }

    /// Bytes that are still free.
    pub fn free_bytes(&self) -> usize {
        (METADATA_BYTES - 1).saturating_sub(self.text.len())
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// [`Error::Unwritable`] if the line doesn't fit, or has characters that would break the
    /// lines. Nothing is changed then.
    pub fn insert(&mut self, key: &str, value: &str) -> Result<()> {
        let breaks = |text: &str| text.contains(['\n', '\0']);
        if key.is_empty() || key.contains('=') || breaks(key) || breaks(value) {
            return Err(Error::Unwritable {
                reason: format!(
                    "metadata \"{}={}\" is no line",
                    key.escape_debug(),
                    value.escape_debug()
                ),
            });
        }
        let is_other = |line: &&str| line.split_once('=').is_none_or(|(k, _)| k != key);
        let mut text: String = self
            .text
            .lines()
            .filter(is_other)
            .flat_map(|line| [line, "\n"])
            .collect();
        text.extend([key, "=", value, "\n"]);
        if text.len() >= METADATA_BYTES {
            return Err(Error::Unwritable {
                reason: format!(
                    "metadata of {key} needs {} bytes of {}",
                    text.len(),
                    METADATA_BYTES - 1
                ),
            });
        }
        self.text = text;
        Ok(())
    }
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mount {
    /// Where it is mounted.
    pub path: String,
    /// Its type, such as `lustre`.
    pub fs_type: String,
}

/// Reads the job region.
pub(crate) fn read(
    reader: &mut RegionReader,
    version: FormatVersion,
) -> Result<(Job, String, Vec<Mount>)> {
    let has_nanoseconds = version >= FormatVersion::V3_41;
    let words = if has_nanoseconds { 7 } else { 5 };
    let Some(words) = reader.read_words(words)? else {
        return Err(reader.corrupt("it is empty"));
    };
    let mut metadata = [0u8; METADATA_BYTES];
    if !reader.read_record(&mut metadata)? {
        return Err(reader.corrupt("it ends before the metadata"));
    }
    let at = |i: usize| words[i] as i64;
    let time = |sec: usize, nsec: usize| Time {
        sec: at(sec),
        nsec: at(nsec),
    };
    let whole = |sec: usize| Time {
        sec: at(sec),
        nsec: 0,
    };
    let metadata = Metadata::from_text(until_nul(&metadata));
    let job = if has_nanoseconds {
        Job {
            uid: at(0),
            start: time(1, 2),
            end: time(3, 4),
            nprocs: at(5),
            id: at(6),
            metadata,
        }
    } else {
        Job {
            uid: at(0),
            start: whole(1),
            end: whole(2),
            nprocs: at(3),
            id: at(4),
            metadata,
        }
    };
    let (exe, mounts) = parse_text(&read_text(reader)?);
    Ok((job, exe, mounts))
}

fn read_text(reader: &mut RegionReader) -> Result<String> {
    let mut text = Vec::new();
    loop {
        let available = reader.available()?;
        let len = available.len();
        text.extend_from_slice(available);
        reader.consume(len);
        if len == 0 {
            return Ok(until_nul(&text));
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(
                reader.over_limit("the text of executable and mounts", MAX_TEXT_BYTES as u64)
            );
        }
    }
}

/// The first line is the command, each other one a type and a path.
fn parse_text(text: &str) -> (String, Vec<Mount>) {
    let mut lines = text.split('\n');
    let exe = lines.next().unwrap_or_default().to_owned();
    let mount = |line: &str| {
        let (fs_type, path) = line.split_once('\t')?;
        Some(Mount {
            path: path.to_owned(),
            fs_type: fs_type.to_owned(),
        })
    };
    (exe, lines.filter_map(mount).collect())
}

/// As much as fits of the text that [`parse_text`] reads, and what was left out.
pub(crate) struct JobText {
    pub(crate) text: String,
    pub(crate) exe_truncated: bool,
    pub(crate) mounts_left_out: usize,
}

pub(crate) fn text_of(exe: &str, mounts: &[Mount]) -> JobText {
    let is_line = |mount: &&Mount| {
        !mount.path.contains(['\n', '\0']) && !mount.fs_type.contains(['\n', '\t', '\0'])
    };
    let mut entries = mounts
        .iter()
        .filter(is_line)
        .map(|mount| format!("\n{}\t{}", mount.fs_type, mount.path));
    // darshan-util shows no command line of a log without mounts, so one mount always gets room.
    let first = entries
        .next()
        .filter(|entry| entry.len() <= TEXT_BYTES)
        .unwrap_or_default();
    let mut end = exe.len().min(TEXT_BYTES - first.len());
    while !exe.is_char_boundary(end) {
        end -= 1;
    }
    let mut text = exe[..end].replace('\n', " ");
    let mut written = usize::from(!first.is_empty());
    text += &first;
    for entry in entries {
        if text.len() + entry.len() <= TEXT_BYTES {
            text += &entry;
            written += 1;
        }
    }
    JobText {
        text,
        exe_truncated: end < exe.len(),
        mounts_left_out: mounts.len() - written,
    }
}
