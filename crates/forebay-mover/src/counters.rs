//! Counts what a drain has done so far.

use forebay_admin::drain::{DrainState, DrainStatus, Left, Reason};
use forebay_core::drain::{self, Drain, DrainReport, Tally};
use forebay_core::path::TreePath;
use forebay_core::pfs_kind::SyncBy;
use forebay_core::record::ObjectName;
use forebay_objects::{Withheld, path_of_dir, withheld_as};
use forebay_sys::Errno;
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Most remarks that are kept; of further ones it is said that there are some.
const MOST_REMARKS: usize = 20;

/// Bytes of each list of lines in a state: which choices were refused, second names, remarks. In JSON a byte may take six, and the
/// whole state goes in one frame of 1 MiB.
const MOST_TOLD_BYTES: usize = 40 << 10;

/// Said if there are more.
const MORE_REMARKS: &str = "there are more remarks than are shown here: mend these and drain again";

/// Counters of one drain.
pub struct Counters {
    number: u64,
    started: Instant,
    pub(crate) bytes_done: AtomicU64,
    pub(crate) bytes_verified: AtomicU64,
    stopping: AtomicBool,
    synced_by: OnceLock<SyncBy>,
    /// The instance directory, which has the backing objects.
    instance: OnceLock<PathBuf>,
    rest: Mutex<Rest>,
}

#[derive(Default)]
struct Rest {
    state: DrainState,
    seconds: f64,
    tally: Tally,
    report: DrainReport,
    /// See [`Counters::came_back`].
    came_back: Vec<TreePath>,
    remarks: Vec<String>,
    /// There are remarks that are not kept.
    has_more_remarks: bool,
    failure: Option<String>,
}

impl Counters {
    /// Counters of the drain of this number, which begins now; 0: there has been none yet.
    pub fn new(number: u64) -> Self {
        Counters {
            number,
            started: Instant::now(),
            bytes_done: AtomicU64::new(0),
            bytes_verified: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            synced_by: OnceLock::new(),
            instance: OnceLock::new(),
            rest: Mutex::new(Rest {
                state: match number {
                    0 => DrainState::Idle,
                    _ => DrainState::Running,
                },
                ..Rest::default()
            }),
        }
    }

    /// Which drain of the bridge it is; 0: none.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// Notes how what is copied gets to the disks of the PFS.
    pub(crate) fn syncs_by(&self, by: SyncBy) {
        let _ = self.synced_by.set(by);
    }

    /// Notes where backing objects are.
    pub(crate) fn keeps_objects_in(&self, instance: &Path) {
        let _ = self.instance.set(instance.to_owned());
    }

    /// Where something that was made past the buffer lies.
    fn place_of_stray(&self, dir: ObjectName, name: &[u8]) -> String {
        let instance = self.instance.get().cloned().unwrap_or_default();
        let place = instance
            .join(path_of_dir(dir))
            .join(OsStr::from_bytes(name));
        place.to_string_lossy().into_owned()
    }

    /// Asks the drain to stop.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// True if somebody has asked the drain to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// True if the drain is at work.
    pub fn is_running(&self) -> bool {
        self.rest.lock().state == DrainState::Running
    }

    /// Notes how far the drain has come.
    pub(crate) fn follow(&self, tally: Tally) {
        self.rest.lock().tally = tally;
    }

    /// Notes the result of the drain.
    pub(crate) fn close(&self, drain: &Drain) {
        let mut rest = self.rest.lock();
        rest.tally = drain.tally();
        rest.report = drain.report().clone();
    }

    /// Notes that this is on the PFS again: a directory that was to go, with what others have put into it since.
    pub(crate) fn came_back(&self, path: TreePath) {
        self.rest.lock().came_back.push(path);
    }

    /// Adds what is in quarantine: it was not the work of the drain, and is not on the PFS either.
    pub(crate) fn withhold(&self, all: Vec<Withheld>) {
        let report = &mut self.rest.lock().report;
        for file in all {
            report.withhold(file.path_or_lost(), file.bytes, file.object);
        }
    }

    /// What has come back since the last call.
    pub(crate) fn take_back_list(&self) -> Vec<TreePath> {
        std::mem::take(&mut self.rest.lock().came_back)
    }

    /// Adds something that the user should know.
    pub fn remark(&self, text: String) {
        let mut rest = self.rest.lock();
        if rest.remarks.contains(&text) {
            return;
        }
        match rest.remarks.len() < MOST_REMARKS {
            true => rest.remarks.push(text),
            false => rest.has_more_remarks = true,
        }
    }

    /// The result of the drain.
    pub(crate) fn report(&self) -> DrainReport {
        self.rest.lock().report.clone()
    }

    /// The drain has ended, by this failure if there is one.
    pub fn end(&self, failure: Option<String>) {
        let mut rest = self.rest.lock();
        rest.seconds = self.started.elapsed().as_secs_f64();
        rest.state = match failure {
            Some(_) => DrainState::Failed,
            None if self.is_stopping() => DrainState::Stopped,
            None => DrainState::Done,
        };
        rest.failure = failure;
    }

    /// The counters as a control message shows them.
    pub fn status(&self) -> DrainStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let rest = self.rest.lock();
        DrainStatus {
            state: rest.state,
            number: self.number,
            files_total: rest.tally.files_total,
            files_done: rest.tally.files_done,
            files_drained: rest.tally.files_drained,
            bytes_total: rest.tally.bytes_total,
            bytes_done: load(&self.bytes_done),
            bytes_drained: rest.tally.bytes_drained,
            bytes_verified: load(&self.bytes_verified),
            synced_by: self
                .synced_by
                .get()
                .map_or("", |by| by.in_words())
                .to_owned(),
            dirs: rest.tally.dirs,
            renamed: rest.tally.renamed,
            removed: rest.tally.removed,
            seconds: match rest.state {
                DrainState::Running => self.started.elapsed().as_secs_f64(),
                _ => rest.seconds,
            },
            left: rest.report.left_count,
            left_bytes: rest.report.left_bytes,
            released: rest.report.released,
            kept_because: rest.report.kept_because.clone(),
            remarks: {
                let second_names = rest.report.second_names.iter();
                let second_names =
                    second_names.map(|(path, now)| format!("ours of {path} is {now} now"));
                let remarks = told(rest.remarks.iter().cloned());
                let more = rest.has_more_remarks.then(|| MORE_REMARKS.to_owned());
                let names = told(second_names).into_iter();
                names.chain(remarks).chain(more).collect()
            },
            refused: {
                let refused = rest.report.refused.iter();
                told(refused.map(|(path, why)| format!("{path}: {why}")))
            },
            failure: rest.failure.clone(),
        }
    }

    /// Length of the list of what is left.
    pub fn listed(&self) -> usize {
        self.rest.lock().report.left.len()
    }

    /// A part of the list of what is left: at most `limit` entries, by path, from the entry with number `from` on.
    /// There is no list before the end of the drain, and it does not change after that.
    pub fn left_from(&self, from: usize, limit: usize) -> Vec<Left> {
        let rest = self.rest.lock();
        let list = rest.report.left.iter();
        let words = |left| self.words(left);
        list.skip(from).take(limit).map(words).collect()
    }

    /// An entry of the list as a control message shows it.
    fn words(&self, left: &drain::Left) -> Left {
        let (reason, operation, cause) = match &left.reason {
            drain::Reason::Open => (Reason::Open, "", String::new()),
            drain::Reason::Changing => (Reason::Changing, "", String::new()),
            drain::Reason::Changed => (Reason::Changed, "", String::new()),
            drain::Reason::Taken => (Reason::Taken, "", String::new()),
            drain::Reason::NoDirectory => (Reason::NoDirectory, "", String::new()),
            drain::Reason::OtherDirectory => (Reason::OtherDirectory, "", String::new()),
            drain::Reason::CameBack => (Reason::CameBack, "", String::new()),
            drain::Reason::Stopped => (Reason::Stopped, "", String::new()),
            drain::Reason::Withheld(object) => (Reason::Withheld, "", withheld_as(*object)),
            drain::Reason::Stray(dir) => {
                let place = self.place_of_stray(*dir, left.path.name());
                (Reason::Stray, "", place)
            }
            drain::Reason::Blocked(cause) => (Reason::Blocked, "", cause.clone()),
            drain::Reason::Refused(trouble) => {
                (Reason::Error, trouble.operation, errno_text(*trouble))
            }
            drain::Reason::Leftovers(trouble) => {
                (Reason::Leftovers, trouble.operation, errno_text(*trouble))
            }
        };
        let bytes = left.path.as_bytes();
        let is_text = std::str::from_utf8(bytes).is_ok();
        Left {
            path: left.path.to_string(),
            path_bytes: (!is_text).then(|| bytes.to_vec()),
            bytes: left.bytes,
            reason,
            operation: operation.to_owned(),
            cause,
        }
    }
}

/// What the kernel said, in words.
fn errno_text(trouble: drain::Trouble) -> String {
    let said = Errno::from_raw_os_error(trouble.errno).to_string();
    let text = said.split_once(" (os error").map(|(text, _)| text);
    text.unwrap_or(&said).to_owned()
}

/// As many lines as an answer of a bridge has room for, and how many more there are.
fn told(mut all: impl ExactSizeIterator<Item = String>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut bytes = 0;
    while let Some(line) = all.next() {
        bytes += line.len();
        if bytes > MOST_TOLD_BYTES {
            lines.push(format!("{} more", all.len() + 1));
            break;
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_remarks_that_are_too_many_it_is_said_that_there_are_more() {
        let counters = Counters::new(1);
        for n in 0..MOST_REMARKS {
            counters.remark(format!("d{n} can't be listed"));
        }
        counters.remark("d0 can't be listed".to_owned());
        assert_eq!(counters.status().remarks.len(), MOST_REMARKS);
        counters.remark("one more".to_owned());
        let remarks = counters.status().remarks;
        assert_eq!(remarks[MOST_REMARKS..], [MORE_REMARKS]);
    }

    #[test]
    fn the_state_of_a_drain_fits_into_a_frame_whatever_it_tells() {
        let counters = Counters::new(1);
        let path = |n: usize| {
            // Each byte takes six in JSON.
            let name = [&[1; 200][..], n.to_string().as_bytes()].concat();
            TreePath::new([&name[..]; 5].join(&b'/')).unwrap()
        };
        for n in 0..MOST_REMARKS {
            let path = path(n);
            counters.remark(format!("{path} {path} {path} {path}"));
        }
        for n in 0..500 {
            let report = &mut counters.rest.lock().report;
            report.refused.push((path(n), "why".to_owned()));
            report.second_names.push((path(n), path(n + 1)));
        }
        let status = counters.status();
        assert!(status.refused.len() > 1 && status.remarks.len() > 2);
        let bytes = serde_json::to_vec(&status).unwrap().len();
        assert!(bytes < (1 << 20) - (128 << 10), "{bytes}");
    }

    #[test]
    fn a_million_entries_are_listed_in_parts_without_a_gap() {
        const ENTRIES: u64 = 1_000_000;
        let counters = Counters::new(1);
        let mut list: Vec<_> = (0..ENTRIES)
            .map(|n| drain::Left {
                path: TreePath::new(format!("d{:03}/f{n:07}", n % 1000)).unwrap(),
                bytes: n,
                reason: drain::Reason::Stopped,
            })
            .collect();
        list.sort_by(|a, b| a.path.cmp(&b.path));
        let paths: Vec<_> = list.iter().map(|left| left.path.to_string()).collect();
        counters.rest.lock().report.left = list;
        let (mut seen, mut bytes) = (0, 0);
        loop {
            let part = counters.left_from(seen, 1000);
            assert!(part.len() <= 1000);
            if part.is_empty() {
                break;
            }
            for left in &part {
                assert_eq!(left.path, paths[seen]);
                seen += 1;
                bytes += left.bytes;
            }
        }
        assert_eq!((seen as u64, bytes), (ENTRIES, ENTRIES * (ENTRIES - 1) / 2));
    }
}
