//! The log: one line per event, and no flood from one cause.

use crate::limits::LOG_INTERVAL;
use forebay_types::OneLine;
use parking_lot::Mutex;
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Causes whose lines are limited in rate.
#[derive(Debug, Clone, Copy)]
pub enum Cause {
    /// A message that is no request.
    Malformed,
    /// A connection of a user that this bridge does not serve.
    Refused,
    /// A limit of [`crate::limits`] was reached.
    Limit,
    /// A client does not read its replies.
    Deaf,
    /// A system call on a backing object or on the PFS failed.
    Io,
    /// The tables failed, or what they say is not so.
    Fault,
}

const CAUSES: usize = 6;

/// Where lines go.
pub struct Log {
    out: Mutex<Box<dyn Write + Send>>,
    start: Instant,
    /// Microseconds since `start` of the last line, and lines left out since, by cause.
    last: [AtomicU64; CAUSES],
    left_out: [AtomicU64; CAUSES],
}

impl Log {
    /// Lines go to `out`.
    pub fn new(out: Box<dyn Write + Send>) -> Self {
        Log {
            out: Mutex::new(out),
            start: Instant::now(),
            last: Default::default(),
            left_out: Default::default(),
        }
    }

    /// A line that must appear.
    pub fn line(&self, text: fmt::Arguments<'_>) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        // Whoever names a file must not write lines of the log.
        let text = text.to_string();
        let text = OneLine(&text);
        let mut out = self.out.lock();
        // A log that can't be written must not stop the bridge.
        let _ = writeln!(out, "{}.{:03} {text}", now.as_secs(), now.subsec_millis());
        let _ = out.flush();
    }

    /// A line that clients can cause at any rate.
    pub fn limited(&self, cause: Cause, text: fmt::Arguments<'_>) {
        let i = cause as usize;
        // Zero means: never yet.
        let now = 1 + self.start.elapsed().as_micros() as u64;
        let last = self.last[i].load(Ordering::Relaxed);
        let due = last == 0 || now - last.min(now) >= LOG_INTERVAL.as_micros() as u64;
        let mine = due
            && self.last[i]
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !mine {
            self.left_out[i].fetch_add(1, Ordering::Relaxed);
            return;
        }
        match self.left_out[i].swap(0, Ordering::Relaxed) {
            0 => self.line(text),
            n => self.line(format_args!("{text} (and {n} more like it)")),
        }
    }
}
