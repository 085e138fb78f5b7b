//! A token bucket: limits the bytes per second of all copying threads together.

use crate::counters::Counters;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The bucket holds this much time's worth of bytes.
const DEPTH: Duration = Duration::from_millis(250);
/// Longest sleep before the next look whether the drain is being stopped.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// Limits the rate of a drain.
pub struct Throttle {
    rate: Option<f64>,
    bucket: Mutex<(f64, Instant)>,
}

impl Throttle {
    /// A limit in bytes per second; `None`: no limit.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Throttle {
            rate: bytes_per_second.filter(|r| *r > 0).map(|r| r as f64),
            bucket: Mutex::new((0.0, Instant::now())),
        }
    }

    /// Waits until `bytes` may be copied. Debt is allowed, so that a chunk may be larger than the bucket.
    pub fn take(&self, bytes: u64, counters: &Counters) {
        let Some(rate) = self.rate else { return };
        let mut wait = {
            let mut bucket = self.bucket.lock();
            let (level, at) = *bucket;
            let now = Instant::now();
            let filled = level + rate * now.duration_since(at).as_secs_f64();
            let level = filled.min(rate * DEPTH.as_secs_f64()) - bytes as f64;
            *bucket = (level, now);
            Duration::from_secs_f64((-level / rate).max(0.0))
        };
        while !wait.is_zero() && !counters.is_stopping() {
            let nap = wait.min(LONGEST_SLEEP);
            std::thread::sleep(nap);
            wait -= nap;
        }
    }
}
