//! What a drain has done so far, for whoever asks.

use forebay_admin::drain::{DrainState, DrainStatus, Left, Reason};
use forebay_core::path::TreePath;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

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
    state: DrainState,
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
                state: if running {
                    DrainState::Running
                } else {
                    DrainState::Idle
                },
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
        self.rest.lock().state == DrainState::Running
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
            Some(_) => DrainState::Failed,
            None if self.is_stopping() => DrainState::Stopped,
            None => DrainState::Done,
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
                DrainState::Running => self.started.elapsed().as_secs_f64(),
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

    /// A part of the list of what is left: at most `limit` entries, by path, from the first path greater than
    /// `after` on.
    pub fn left_after(&self, after: Option<&TreePath>, limit: usize) -> Vec<(TreePath, Left)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.rest.lock();
        rest.left
            .range((from, Bound::Unbounded))
            .take(limit)
            .map(|(path, left)| (path.clone(), left.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_entries_are_listed_in_parts_without_a_gap() {
        const ENTRIES: u64 = 1_000_000;
        let counters = Counters::new(true);
        for n in 0..ENTRIES {
            let path = TreePath::new(format!("d{:03}/f{n:07}", n % 1000)).unwrap();
            counters.leave(&path, n, Reason::Stopped, "", String::new());
        }
        let (mut after, mut seen, mut bytes) = (None, 0, 0);
        loop {
            let part = counters.left_after(after.as_ref(), 1000);
            assert!(part.len() <= 1000 && part.is_sorted_by_key(|(path, _)| path));
            let Some((last, _)) = part.last() else { break };
            assert!(after.is_none_or(|before| before < part[0].0));
            after = Some(last.clone());
            seen += part.len() as u64;
            bytes += part.iter().map(|(_, left)| left.bytes).sum::<u64>();
        }
        assert_eq!((seen, bytes), (ENTRIES, ENTRIES * (ENTRIES - 1) / 2));
    }
}
