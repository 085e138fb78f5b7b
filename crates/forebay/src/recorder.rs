//! Runs the recorder for one command: chooses the place of its tables, sets the command's environment, and writes the
//! log at the end.

use crate::cli::RecordOptions;
use crate::error::{Fault, fault};
use crate::place::{self, plain};
use crate::run_report::CallBytes;
use crate::units;
use crate::verbs::shell_word;
use forebay_collect::naming::Moment;
use forebay_collect::recording::{CommandEnd, Note, Recording, left_in};
use forebay_collect::{Collected, collect};
use forebay_count::{ENV_RECORD_DIR, ENV_RECORD_INCLUDE, ENV_RECORD_MEMORY};
use forebay_report::text::printable;
use forebay_sys as sys;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Environment variable: directory in which recording directories are made.
const ENV_BASE: &str = "FOREBAY_TABLES";
/// Environment variable: directory of the logs, unless an option names one.
const ENV_LOG_DIR: &str = "FOREBAY_LOG_DIR";
/// Free space that a place for tables needs. It may be memory, which the tables must not fill.
const LEAST_FREE_BYTES: u64 = 1 << 30;

/// So long the log waits for processes that outlive the command by a moment.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// A command that is recorded.
pub struct Recorder {
    recording: Recording,
    library: PathBuf,
    memory: Option<u64>,
    include: Vec<PathBuf>,
    /// The tables stay for `forebay collect`.
    keeps_tables: bool,
}

impl Recorder {
    /// Finds the library, makes the recording directory, and checks that the log can be written.
    /// Files below a directory in `include` are recorded even where others are not.
    pub fn prepare(
        options: &RecordOptions,
        log_dir: Option<&Path>,
        command: &[OsString],
        include: Vec<PathBuf>,
    ) -> Result<Recorder, Fault> {
        let library = place::recorder_library()?;
        let mut note = Note::new(
            command
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
        );
        note.uid = sys::my_ids().0;
        note.user = user();
        note.batch_job = batch_job();
        note.outer_rank = forebay_collect::outer_rank(&|name| std::env::var(name).ok());
        if options.tables.is_none() {
            match &options.log {
                Some(log) => note.log = Some(new_log(log)?),
                None => note.log_dir = Some(usable_log_dir(log_dir)?),
            }
        }
        let base = match &options.tables {
            Some(dir) => {
                make_dirs(dir).map_err(|e| cannot("--tables", dir, &e))?;
                absolute(dir)?
            }
            None => base()?,
        };
        let (pid, ticks) = note.recorder;
        let dir = base.join(format!("{}-{pid}-{ticks}", note.host));
        Ok(Recorder {
            recording: Recording::create(&dir, note).map_err(from_collect)?,
            library,
            memory: options.memory,
            include,
            keeps_tables: options.tables.is_some(),
        })
    }

    /// The library that the command must load.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// The variables of the environment that tell a command where to record.
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables: Vec<(OsString, OsString)> = Vec::new();
        let mut set = |name: &str, value: OsString| variables.push((name.into(), value));
        set(ENV_RECORD_DIR, self.recording.dir.clone().into_os_string());
        if let Some(bytes) = self.memory {
            set(ENV_RECORD_MEMORY, bytes.to_string().into());
        }
        let mut include = std::env::var_os(ENV_RECORD_INCLUDE).unwrap_or_default();
        for path in &self.include {
            // A colon separates the entries of the list.
            if path.as_os_str().as_bytes().contains(&b':') {
                eprintln!(
                    "forebay: {} has a colon in its path, so it cannot be recorded if it lies in a directory that is left out",
                    path.display()
                );
                continue;
            }
            if !include.is_empty() {
                include.push(":");
            }
            include.push(path);
        }
        if !include.is_empty() {
            set(ENV_RECORD_INCLUDE, include);
        }
        variables
    }

    /// Notes that the command runs in a buffer.
    pub fn is_buffered(&mut self, directory: &Path) {
        self.recording.note.buffer = Some(directory.to_owned());
    }

    /// Notes that the command is about to start.
    pub fn starts(&mut self) {
        self.recording.note.start_ns = now_ns();
    }

    /// Notes the command's process id.
    pub fn started(&mut self, pid: u32) {
        self.recording.note.pid = pid;
        self.save();
    }

    /// Notes how the command ended.
    pub fn ended(&mut self, status: Option<ExitStatus>, calls: CallBytes) {
        self.recording.note.end = Some(CommandEnd {
            end_ns: now_ns(),
            code: status.and_then(|s| s.code()),
            signal: status.and_then(|s| s.signal()),
            read_bytes: calls.read,
            written_bytes: calls.written,
            fetched_bytes: Some(calls.fetched),
        });
        self.save();
    }

    fn save(&self) {
        if let Err(e) = self.recording.save() {
            eprintln!("forebay: recording: {e}");
        }
    }

    /// Removes the tables, because the command was not started.
    pub fn discard(self) {
        if let Err(e) = self.recording.remove() {
            eprintln!("forebay: recording: {e}");
        }
    }

    /// Waits a moment for processes that are just about to end, such as those that clean up behind a pool of workers. Daemons go on
    /// for longer than that.
    pub fn await_stragglers(&self) {
        let patience = Instant::now() + STRAGGLERS;
        while self.recording.has_living() && Instant::now() < patience {
            std::thread::sleep(STRAGGLERS / 100);
        }
    }

    /// Writes the log and removes the tables. If that fails, the tables stay, and the error says how to continue.
    pub fn conclude(self) -> Result<Option<Collected>, Fault> {
        if self.keeps_tables {
            eprintln!(
                "forebay: tables are in {0}; for the log, run: {1}",
                self.recording.dir.display(),
                collect_command(&[&self.recording.dir]),
            );
            return Ok(None);
        }
        let collected = write_log(vec![self.recording], None)?;
        Ok(Some(collected))
    }
}

/// Joins recordings into a log, then removes the recordings.
pub fn write_log(recordings: Vec<Recording>, log: Option<&Path>) -> Result<Collected, Fault> {
    let collected = collect(&recordings, log, local_time).map_err(|e| {
        let dirs: Vec<&Path> = recordings.iter().map(|r| r.dir.as_path()).collect();
        from_collect(e).hint(format!(
            "the tables are kept; to try again, run: {} --log FILE",
            collect_command(&dirs)
        ))
    })?;
    for recording in recordings {
        if let Err(e) = recording.remove() {
            eprintln!("forebay: the log is written, but {e}");
        }
    }
    Ok(collected)
}

/// The command that makes a log of these directories.
fn collect_command(dirs: &[&Path]) -> String {
    let words = dirs
        .iter()
        .map(|dir| shell_word(dir.as_os_str().as_encoded_bytes()));
    format!("forebay collect {}", words.collect::<Vec<_>>().join(" "))
}

/// One line that describes a log.
pub fn log_text(collected: &Collected) -> String {
    let processes = units::count(collected.processes, "process", "processes");
    let who = match collected.is_parallel {
        true => {
            let ranks = units::count(collected.ranks.into(), "rank", "ranks");
            format!("{ranks}, {processes}")
        }
        false => processes,
    };
    format!("{} ({who})", collected.log.display())
}

/// Characters of a command that a message has.
const MOST_OF_COMMAND: usize = 60;

/// A command as a message names it: in one line, and not all of a script.
fn beginning(command: &str) -> String {
    let mut shown: String = command.chars().take(MOST_OF_COMMAND).collect();
    if shown.len() < command.len() {
        shown.push_str("...");
    }
    printable(shown.as_bytes())
}

/// Prints what killed recorders have left, and how to make logs of it.
pub fn tell_left() {
    for base in bases() {
        for recording in left_in(&base, sys::my_ids().0) {
            eprintln!(
                "forebay: the recording of `{}` was interrupted; for its log, run: {}",
                beginning(&recording.note.command.join(" ")),
                collect_command(&[&recording.dir])
            );
        }
    }
}

/// True if a recorder is at work around this process. Its log then covers everything that this process starts.
pub fn is_recorded_already() -> bool {
    std::env::var_os(ENV_RECORD_DIR).is_some_and(|dir| Recording::open(Path::new(&dir)).is_ok())
}

pub fn from_collect(e: forebay_collect::Error) -> Fault {
    fault(e.to_string()).because(e)
}

fn cannot(option: &str, path: &Path, e: &std::io::Error) -> Fault {
    fault(format!("{option} {}: {}", path.display(), plain(e)))
}

fn absolute(path: &Path) -> Result<PathBuf, Fault> {
    std::path::absolute(path).map_err(|e| cannot("path", path, &e))
}

/// Checks that a log file does not exist yet, and that its directory does.
pub fn new_log(log: &Path) -> Result<PathBuf, Fault> {
    let log = absolute(log)?;
    if fs::symlink_metadata(&log).is_ok() {
        return Err(fault(format!("--log {}: it exists", log.display()))
            .hint("logs are never overwritten; name another file"));
    }
    let dir = log.parent().unwrap_or(Path::new("/"));
    make_dirs(dir).map_err(|e| cannot("--log", dir, &e))?;
    sys::check_access(dir, libc::W_OK | libc::X_OK).map_err(|e| cannot("--log", dir, &e.into()))?;
    Ok(log)
}

/// The directory of the logs. It is made and checked now, because a failure after hours of work would be worse.
fn usable_log_dir(asked: Option<&Path>) -> Result<PathBuf, Fault> {
    let (option, dir) = match asked {
        Some(dir) => ("--log-dir", absolute(dir)?),
        None => ("the log directory", default_log_dir()?),
    };
    make_dirs(&dir).map_err(|e| cannot(option, &dir, &e))?;
    sys::check_access(&dir, libc::W_OK | libc::X_OK)
        .map_err(|e| cannot(option, &dir, &e.into()))?;
    Ok(dir)
}

/// `$FOREBAY_LOG_DIR`, or else a directory in the user's state directory (XDG Base Directory Specification). Either
/// holds a directory for each day.
fn default_log_dir() -> Result<PathBuf, Fault> {
    let from_env = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let base = from_env(ENV_LOG_DIR)
        .or_else(|| from_env("XDG_STATE_HOME").map(|dir| dir.join("forebay/logs")))
        .or_else(|| from_env("HOME").map(|dir| dir.join(".local/state/forebay/logs")))
        .ok_or_else(|| {
            fault("no directory for the log: neither $FOREBAY_LOG_DIR nor $HOME is set")
                .hint("name one with --log-dir DIR")
        })?;
    Ok(forebay_collect::naming::day_dir(
        &base,
        local_time(now_ns()),
    ))
}

/// Converts nanoseconds since 1970 into a moment in the time zone of this machine.
fn local_time(ns: u64) -> Moment {
    let time = sys::local_time(ns);
    Moment {
        year: time.year,
        month: time.month,
        day: time.day,
        second_of_day: time.second_of_day,
    }
}

fn make_dirs(dir: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(dir)
}

/// The candidates for the parent of recording directories, the best first.
fn bases() -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os(ENV_BASE).filter(|dir| !dir.is_empty()) {
        return vec![PathBuf::from(dir)];
    }
    let own = format!("forebay-tables-{}", sys::my_ids().0);
    ["/dev/shm", "/tmp", "/var/tmp"]
        .iter()
        .map(|dir| Path::new(dir).join(&own))
        .collect()
}

/// Makes the parent of recording directories in the first place that has room.
pub fn base() -> Result<PathBuf, Fault> {
    let mut tried = Vec::new();
    for dir in bases() {
        match usable_base(&dir) {
            Ok(()) => return absolute(&dir),
            Err(why) => tried.push(format!("{}: {why}", dir.display())),
        }
    }
    Err(
        fault(format!("no place for the tables ({})", tried.join("; ")))
            .hint(format!("let ${ENV_BASE} name a directory on this node")),
    )
}

fn usable_base(dir: &Path) -> Result<(), String> {
    let made = fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(dir);
    made.map_err(|e| plain(&e))?;
    let meta = fs::symlink_metadata(dir).map_err(|e| plain(&e))?;
    // In a place like /var/tmp another user may have made this directory as a trap.
    if !meta.is_dir() || meta.uid() != sys::my_ids().0 || meta.mode() & 0o022 != 0 {
        return Err("not a directory of this user that nobody else can write to".to_owned());
    }
    match sys::space(dir) {
        Ok((_, free)) if free >= LEAST_FREE_BYTES => Ok(()),
        Ok((_, free)) => Err(format!("only {} free", units::bytes(free))),
        Err(e) => Err(plain(&e.into())),
    }
}

/// The user's name as Darshan writes it into the name of a log.
fn user() -> String {
    ["LOGNAME", "USER"]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|name| !name.is_empty())
        .or_else(|| sys::user_name(sys::my_ids().0))
        .unwrap_or_else(|| sys::my_ids().0.to_string())
}

/// The id of the batch job that this process runs in.
fn batch_job() -> Option<String> {
    const NAMES: [&str; 7] = [
        "SLURM_JOB_ID",
        "PBS_JOBID",
        "LSB_JOBID",
        "JOB_ID",
        "COBALT_JOBID",
        "OAR_JOB_ID",
        "FLUX_JOB_ID",
    ];
    NAMES
        .iter()
        .filter_map(std::env::var_os)
        .map(|id| OsStr::to_string_lossy(&id).into_owned())
        .find(|id| !id.is_empty())
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// The recordings in `dirs`. Each directory is a recording, or holds some.
pub fn recordings_of(dirs: &[PathBuf]) -> Result<Vec<Recording>, Fault> {
    let mut all = Vec::new();
    for dir in dirs {
        let dir = fs::canonicalize(dir).map_err(|e| cannot("cannot read", dir, &e))?;
        match Recording::open(&dir) {
            Ok(recording) => all.push(recording),
            Err(e) => {
                let inside = recordings_in(&dir);
                if inside.is_empty() {
                    return Err(
                        from_collect(e).hint("name a directory that `forebay record` has made")
                    );
                }
                all.extend(inside);
            }
        }
    }
    all.sort_by(|a, b| a.dir.cmp(&b.dir));
    all.dedup_by(|a, b| a.dir == b.dir);
    if let Some(busy) = all.iter().find(|recording| recording.note.is_recorded()) {
        return Err(fault(format!(
            "{} is being recorded by process {}, which will write the log",
            busy.dir.display(),
            busy.note.recorder.0
        )));
    }
    Ok(all)
}

fn recordings_in(dir: &Path) -> Vec<Recording> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Recording::open(&entry.path()).ok())
        .collect()
}
