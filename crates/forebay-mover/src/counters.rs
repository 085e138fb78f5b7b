//! What a drain has done so far, for whoever asks.

use forebay_admin::drain::{DrainStatus, Left, LeftPage, Reason, State};
use forebay_core::path::TreePath;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// An answer must fit into one message.
const PAGE_BYTES: usize = 40 << 10;
/// More of the same kind say nothing new.
const MOST_REMARKS: usize = 20;

/// Counters of one drain.
pub struct Counters {
    started: Instant,
    pub(crate) files_total: AtomicU64,
    pub(crate) files_done: AtomicU64,
    pub(crate) files_drained: AtomicU64,
    pub(crate) bytes_total: AtomicU64,
    pub(crate) bytes_done: AtomicU64,
    pub(crate) bytes_verified: AtomicU64,
    pub(crate) dirs: AtomicU64,
    renamed: AtomicU64,
    removed: AtomicU64,
    stopping: AtomicBool,
    rest: Mutex<Rest>,
}

#[derive(Default)]
struct Rest {
    state: State,
    seconds: f64,
    left: BTreeMap<TreePath, Left>,
    remarks: Vec<String>,
    released: bool,
    kept_because: Option<String>,
    failure: Option<String>,
}

impl Counters {
    /// A drain that begins now; `running` is false for one that never was.
    pub fn new(running: bool) -> Self {
        Counters {
            started: Instant::now(),
            files_total: AtomicU64::new(0),
            files_done: AtomicU64::new(0),
            files_drained: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
            bytes_verified: AtomicU64::new(0),
            dirs: AtomicU64::new(0),
            renamed: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            rest: Mutex::new(Rest {
                state: if running { State::Running } else { State::Idle },
                ..Rest::default()
            }),
        }
    }

    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn renamed(&self, n: u64) {
        Self::add(&self.renamed, n);
    }

    pub(crate) fn removed(&self, n: u64) {
        Self::add(&self.removed, n);
    }

    /// Ends the drain soon.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Has somebody asked for an end?
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Is it at work?
    pub fn is_running(&self) -> bool {
        self.rest.lock().state == State::Running
    }

    pub(crate) fn leave(
        &self,
        path: &TreePath,
        bytes: u64,
        reason: Reason,
        operation: &str,
        cause: String,
    ) {
        // The first reason is the one that counts.
        self.rest
            .lock()
            .left
            .entry(path.clone())
            .or_insert_with(|| Left {
                path: path.to_string(),
                bytes,
                reason,
                operation: operation.to_owned(),
                cause,
            });
    }

    pub(crate) fn is_left(&self, path: &TreePath) -> bool {
        self.rest.lock().left.contains_key(path)
    }

    /// Forgets of what is left all but these.
    pub(crate) fn keep_left(&self, which: impl Fn(&TreePath) -> bool) {
        self.rest.lock().left.retain(|path, _| which(path));
    }

    pub(crate) fn has_left(&self) -> bool {
        !self.rest.lock().left.is_empty()
    }

    pub(crate) fn remark(&self, text: String) {
        let mut rest = self.rest.lock();
        if rest.remarks.len() < MOST_REMARKS && !rest.remarks.contains(&text) {
            rest.remarks.push(text);
        }
    }

    pub(crate) fn keep_because(&self, reason: &str) {
        self.rest.lock().kept_because = Some(reason.to_owned());
    }

    pub(crate) fn set_released(&self) {
        self.rest.lock().released = true;
    }

    /// The drain has ended, by this failure if there is one.
    pub fn end(&self, failure: Option<String>) {
        let mut rest = self.rest.lock();
        rest.seconds = self.started.elapsed().as_secs_f64();
        rest.state = match failure {
            Some(_) => State::Failed,
            None if self.is_stopping() => State::Stopped,
            None => State::Done,
        };
        rest.failure = failure;
    }

    /// For whoever asks.
    pub fn status(&self) -> DrainStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let rest = self.rest.lock();
        DrainStatus {
            state: rest.state,
            files_total: load(&self.files_total),
            files_done: load(&self.files_done),
            files_drained: load(&self.files_drained),
            bytes_total: load(&self.bytes_total),
            bytes_done: load(&self.bytes_done),
            bytes_verified: load(&self.bytes_verified),
            dirs: load(&self.dirs),
            renamed: load(&self.renamed),
            removed: load(&self.removed),
            seconds: match rest.state {
                State::Running => self.started.elapsed().as_secs_f64(),
                _ => rest.seconds,
            },
            left: rest.left.len() as u64,
            left_bytes: rest.left.values().map(|l| l.bytes).sum(),
            released: rest.released,
            kept_because: rest.kept_because.clone(),
            remarks: rest.remarks.clone(),
            failure: rest.failure.clone(),
        }
    }

    /// A part of the list of what is left.
    pub fn left_from(&self, from: u64) -> LeftPage {
        let rest = self.rest.lock();
        let mut page = LeftPage::default();
        let mut bytes = 0;
        for (i, left) in rest.left.values().enumerate().skip(from as usize) {
            // A byte of a path may take six in JSON.
            bytes += 6 * left.path.len() + left.cause.len() + left.operation.len() + 80;
            if bytes > PAGE_BYTES && !page.entries.is_empty() {
                page.next = Some(i as u64);
                break;
            }
            page.entries.push(left.clone());
        }
        page
    }
}
