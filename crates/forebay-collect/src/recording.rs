//! A recording directory: the tables of a job's processes on one machine, and beside them a note that says whose they
//! are. With the note the log can still be made if the command that should have made it was killed.

use crate::Error;
use forebay_count::TABLE_SUFFIX;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// File name of the note.
const NOTE: &str = "job.json";
/// Version of the note's format.
const FORMAT: u32 = 1;
/// Longest note that is read, in bytes.
const MOST_NOTE_BYTES: u64 = 16 << 20;

/// What a note says: whose the tables in a recording directory are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// Version of the note's format.
    pub format: u32,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Process id of the recorder, and its start in clock ticks since boot.
    pub recorder: (u32, u64),
    /// User id of the recorder.
    pub uid: u32,
    /// Name of that user.
    pub user: String,
    /// Name of the machine.
    pub host: String,
    /// Id of the batch job, if there is one.
    pub batch_job: Option<String>,
    /// Rank and size that the recorder's own environment says, and that every process below it inherits.
    pub outer_rank: Option<(u32, u32)>,
    /// Process id of the command; 0 until it is started.
    pub pid: u32,
    /// Start in nanoseconds since 1970.
    pub start_ns: u64,
    /// `/proc/self/mounts` at the start.
    pub mounts: String,
    /// Directory below which the log is to go.
    pub log_dir: Option<PathBuf>,
    /// File that the log is to be.
    pub log: Option<PathBuf>,
    /// The directory that a buffer stands in for, if the command runs in one.
    #[serde(default)]
    pub buffer: Option<PathBuf>,
    /// How the command ended; `None` while it runs, and if the recorder was killed.
    pub end: Option<CommandEnd>,
}

/// How a command has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandEnd {
    /// When it ended, in nanoseconds since 1970.
    pub end_ns: u64,
    /// Exit code, if it has exited.
    pub code: Option<i32>,
    /// Signal that killed it, if one did.
    pub signal: Option<i32>,
    /// Bytes that system calls have read (`rchar` of proc(5)), by the command and by all its descendants that were
    /// waited for.
    pub read_bytes: u64,
    /// The same for `wchar`.
    pub written_bytes: u64,
    /// The same for `read_bytes`, which were fetched from storage; `None` if an earlier recorder did not note them.
    #[serde(default)]
    pub fetched_bytes: Option<u64>,
}

impl Note {
    /// A note about the command that this process is about to start.
    pub fn new(command: Vec<String>) -> Self {
        let pid = std::process::id();
        Note {
            format: FORMAT,
            command,
            recorder: (pid, start_ticks(pid).unwrap_or(0)),
            host: host_name(),
            mounts: fs::read_to_string("/proc/self/mounts").unwrap_or_default(),
            ..Note::default()
        }
    }

    /// True if the recorder still runs.
    pub fn is_recorded(&self) -> bool {
        let (pid, ticks) = self.recorder;
        self.host == host_name() && is_alive(pid, ticks)
    }
}

/// True if the process runs on this machine and is no zombie. Its start tells it from another one with the same id.
pub fn is_alive(pid: u32, ticks: u64) -> bool {
    let Some((state, started)) = stat_of(pid) else {
        return false;
    };
    started == ticks && !matches!(state, 'Z' | 'X')
}

/// Start of a process in clock ticks since boot.
pub fn start_ticks(pid: u32) -> Option<u64> {
    stat_of(pid).map(|(_, started)| started)
}

/// State and start of a process: fields 3 and 22 of `/proc/PID/stat` (proc(5)).
fn stat_of(pid: u32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the state may hold anything, even brackets.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Name of this machine.
pub fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// A recording directory that has a note.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// Where the directory is.
    pub dir: PathBuf,
    /// What its note says.
    pub note: Note,
}

impl Recording {
    /// Makes the directory (mode 0700) and writes the note.
    ///
    /// # Errors
    /// The directory is there already, or can't be made.
    pub fn create(dir: &Path, note: Note) -> Result<Self, Error> {
        fs::DirBuilder::new()
            .mode(0o700)
            .create(dir)
            .map_err(|e| Error::io("make", dir, e))?;
        let recording = Recording {
            dir: dir.to_owned(),
            note,
        };
        recording.save()?;
        Ok(recording)
    }

    /// Reads the note of a directory.
    ///
    /// # Errors
    /// There is no note, or it is damaged.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(NOTE);
        let meta = fs::metadata(&path).map_err(|e| Error::io("look at", &path, e))?;
        if !meta.is_file() || meta.len() > MOST_NOTE_BYTES {
            return Err(Error::damaged(&path, "not a note on a recording"));
        }
        let text = fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
        let note: Note =
            serde_json::from_slice(&text).map_err(|e| Error::damaged(&path, e.to_string()))?;
        if note.format != FORMAT {
            let what = format!("format {}, but {FORMAT} is known", note.format);
            return Err(Error::damaged(&path, what));
        }
        Ok(Recording {
            dir: dir.to_owned(),
            note,
        })
    }

    /// Replaces the note. A reader gets the old note or the new one.
    ///
    /// # Errors
    /// The file system refused.
    pub fn save(&self) -> Result<(), Error> {
        let (path, part) = (self.dir.join(NOTE), self.dir.join(".job.json.partial"));
        let text =
            serde_json::to_vec(&self.note).map_err(|e| Error::damaged(&path, e.to_string()))?;
        let write = || {
            let mut options = fs::OpenOptions::new();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&part)?;
            file.write_all(&text)?;
            fs::rename(&part, &path)
        };
        write().map_err(|e| Error::io("write", &path, e))
    }

    /// True if a process of this machine that has left a table still runs.
    pub fn has_living(&self) -> bool {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| {
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| {
                let (pid, rest) = name.strip_suffix(TABLE_SUFFIX)?.split_once('-')?;
                Some((pid.parse().ok()?, rest.split_once('-')?.0.parse().ok()?))
            });
            process.is_some_and(|(pid, ticks)| is_alive(pid, ticks))
        })
    }

    /// Removes the directory and all that is in it.
    ///
    /// # Errors
    /// The file system refused.
    pub fn remove(self) -> Result<(), Error> {
        fs::remove_dir_all(&self.dir).map_err(|e| Error::io("remove", &self.dir, e))
    }
}

/// The recordings in `base` whose recorder has gone, so that their logs are still to be made.
pub fn left_in(base: &Path, uid: u32) -> Vec<Recording> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let mut left: Vec<Recording> = entries
        .map(|entry| entry.path())
        // Directories of other users are not read.
        .filter(|dir| fs::symlink_metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == uid))
        .filter_map(|dir| Recording::open(&dir).ok())
        .filter(|recording| !recording.note.is_recorded())
        .collect();
    left.sort_by(|a, b| a.dir.cmp(&b.dir));
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("fbrec-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).unwrap();
            Dir(dir)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn uid() -> u32 {
        fs::metadata("/proc/self").unwrap().uid()
    }

    #[test]
    fn a_recording_is_read_back_as_it_was_written_and_closed_to_others() {
        let base = Dir::new("back");
        let mut made =
            Recording::create(&base.0.join("1-2"), Note::new(vec!["sim".into()])).unwrap();
        assert_eq!(Recording::open(&made.dir).unwrap(), made);
        assert_eq!(fs::metadata(&made.dir).unwrap().mode() & 0o777, 0o700);
        made.note.end = Some(CommandEnd {
            signal: Some(9),
            ..CommandEnd::default()
        });
        made.save().unwrap();
        assert_eq!(Recording::open(&made.dir).unwrap().note.end, made.note.end);
        assert!(Recording::create(&made.dir, Note::default()).is_err());
    }

    #[test]
    fn a_recording_is_left_when_its_process_is_gone() {
        let base = Dir::new("left");
        let mut child = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut note = Note::new(vec![]);
        note.recorder = (child.id(), start_ticks(child.id()).unwrap());
        let made = Recording::create(&base.0.join("1-2"), note).unwrap();
        assert!(left_in(&base.0, uid()).is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(left_in(&base.0, uid()), std::slice::from_ref(&made));
        assert!(left_in(&base.0, uid() + 1).is_empty());
        made.remove().unwrap();
        assert!(left_in(&base.0, uid()).is_empty());
    }

    #[test]
    fn a_process_with_the_id_of_an_earlier_one_is_another_one() {
        let me = std::process::id();
        let ticks = start_ticks(me).unwrap();
        assert!(is_alive(me, ticks));
        assert!(!is_alive(me, ticks + 1));
    }

    #[test]
    fn notes_that_are_not_ours_are_errors_that_name_the_file() {
        let base = Dir::new("bad");
        let path = base.0.join(NOTE);
        for text in ["", "{}", "[1,2", "{\"format\":99}", "\0\0\0"] {
            fs::write(&path, text).unwrap();
            let error = Recording::open(&base.0).unwrap_err().to_string();
            assert!(error.contains("job.json"), "{error}");
        }
        fs::remove_file(&path).unwrap();
        assert!(Recording::open(&base.0).is_err());
    }
}
