//! What this layer writes for people, for the recorder and for the laboratory.
//!
//! None of it is I/O of the program: into files it goes by system calls past libc, so that neither the recorder nor the library of the
//! buffer sees it. What can't be written is no reason to fail a program.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_core::collective::{MAX_TRACE_BYTES, cut_off_line};
use forebay_count::COLLECTIVE_PREFIX;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::explain::Explanation;
use crate::settings;

/// Room for the mark of a trace that ends.
const MARK_BYTES: u64 = 100;
/// A writer of a trace holds the lock for as long as one line takes. Who waits longer has met something else.
const LONGEST_LOCK: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// This process adds nothing more to the trace.
static TRACE_HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Why a line is not in the trace.
enum NotTraced {
    Full,
    Locked,
    Failed(Errno),
}

impl From<Errno> for NotTraced {
    fn from(error: Errno) -> Self {
        NotTraced::Failed(error)
    }
}

impl NotTraced {
    fn in_words(&self) -> String {
        match self {
            NotTraced::Full => format!(
                "it has {} MiB, the most that it may have",
                MAX_TRACE_BYTES >> 20
            ),
            NotTraced::Locked => format!(
                "another process has kept it locked for {} s",
                LONGEST_LOCK.as_secs()
            ),
            NotTraced::Failed(error) => std::io::Error::from(*error).to_string(),
        }
    }
}

/// Adds a line to the report, if one is wanted.
pub fn report(line: std::fmt::Arguments) {
    if let Some(path) = settings::report() {
        let _ = append(Path::new(&path), 0o666, &line.to_string());
    }
}

/// Are files to be explained?
pub fn explains() -> bool {
    settings::explanations()
        .or(settings::directory_of_tables())
        .is_some()
}

/// Explains a file where that is wanted: to the recorder, of whose log it becomes a part, and to people.
pub fn explain(explanation: &Explanation) {
    if let Some(tables) = settings::directory_of_tables() {
        let name = format!("{COLLECTIVE_PREFIX}{}", std::process::id());
        let _ = append(
            &Path::new(&tables).join(name),
            0o600,
            &explanation.to_json(),
        );
    }
    let Some(to) = settings::explanations() else {
        return;
    };
    let to = Path::new(&to);
    let is_json = to.extension().is_some_and(|e| e == "json");
    match is_json {
        _ if to == Path::new("-") => say(&explanation.to_text()),
        true => drop(append(to, 0o666, &explanation.to_json())),
        false => drop(append(to, 0o666, &explanation.to_text())),
    }
}

/// Are calls traced, as far as this process knows?
pub fn traces() -> bool {
    settings::trace().is_some() && !TRACE_HAS_ENDED.load(Ordering::Relaxed)
}

/// Adds a line to the trace. Once that has failed, or the trace is full, this process adds nothing more, and says so once.
pub fn trace(line: &str) {
    let Some(to) = settings::trace().filter(|_| traces()) else {
        return;
    };
    if let Err(why) = add_to_trace(Path::new(&to), line)
        && !TRACE_HAS_ENDED.swap(true, Ordering::Relaxed)
    {
        say(&format!(
            "forebay: trace of collective calls {}: {}; it ends here\n",
            Path::new(&to).display(),
            why.in_words()
        ));
    }
}

/// Adds a line to a trace that several processes may add to, or says in it that this one adds no more.
fn add_to_trace(path: &Path, line: &str) -> Result<(), NotTraced> {
    let file = open_to_append(path, 0o666)?;
    lock(&file)?;
    let added = add_line(&file, path, line);
    // Not by closing alone: a process that was forked meanwhile has a copy.
    let _ = rustix::fs::flock(&file, FlockOperation::Unlock);
    added
}

/// The same with a file that is locked.
fn add_line(file: &OwnedFd, path: &Path, line: &str) -> Result<(), NotTraced> {
    let size = rustix::fs::fstat(file)?.st_size as u64;
    // A line that another process could not finish is not to take this one with it.
    let parted = match size > 0 && !ends_a_line(path, size) {
        true => "\n",
        false => "",
    };
    let text = format!("{parted}{line}");
    let after = size.saturating_add(text.len() as u64);
    check_limit(after.max(size.saturating_add(MARK_BYTES)))?;
    if after > MAX_TRACE_BYTES {
        write_all(file, &format!("{parted}{}", cut_off_line()))?;
        return Err(NotTraced::Full);
    }
    Ok(write_all(file, &text)?)
}

/// Keeps other writers away until it is unlocked. File systems without such locks have none.
fn lock(file: &OwnedFd) -> Result<(), NotTraced> {
    let begin = Instant::now();
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begin.elapsed() < LONGEST_LOCK => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(Errno::WOULDBLOCK) => return Err(NotTraced::Locked),
            Err(Errno::INTR) => {}
            _ => return Ok(()),
        }
    }
}

/// Is the last of so many bytes the end of a line, as far as this process may read it?
fn ends_a_line(path: &Path, size: u64) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut last = [b'\n'];
    let read = rustix::fs::open(path, flags, Mode::empty())
        .and_then(|file| rustix::io::pread(&file, &mut last, size - 1));
    read.is_err() || last == [b'\n']
}

fn append(path: &Path, mode: u32, text: &str) -> Result<(), Errno> {
    let file = open_to_append(path, mode)?;
    let size = rustix::fs::fstat(&file)?.st_size as u64;
    check_limit(size.saturating_add(text.len() as u64))?;
    write_all(&file, text)
}

/// May a file become so long? Beyond its limit of file sizes a program gets a signal, which ends it.
fn check_limit(bytes: u64) -> Result<(), Errno> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    match limit.is_some_and(|limit| bytes > limit) {
        true => Err(Errno::FBIG),
        false => Ok(()),
    }
}

fn open_to_append(path: &Path, mode: u32) -> Result<OwnedFd, Errno> {
    // A FIFO without a reader is an error and no wait.
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::from_raw_mode(mode))
}

fn write_all(file: &OwnedFd, text: &str) -> Result<(), Errno> {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(file, rest) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Says something on the standard error. Nobody else can be told if that fails.
fn say(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(text.as_bytes());
}
