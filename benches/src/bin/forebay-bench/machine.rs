//! The machine on which a figure was measured.

use serde::Serialize;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// The machine and how busy it is.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Seconds since 1970.
    pub unix_time: u64,
    /// The model name of the processor.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Processes that want to run, averaged over a minute. Before the first round these are processes of others.
    pub load_average: f64,
}

impl Machine {
    /// The machine at this moment.
    pub fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Machine {
            unix_time: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |t| t.as_secs()),
            processor: read("/proc/cpuinfo")
                .lines()
                .filter_map(|line| line.split_once(": "))
                .find(|(key, _)| key.starts_with("model name"))
                .map_or("unknown", |(_, name)| name)
                .to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_average: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|number| number.parse().ok())
                .unwrap_or_default(),
        }
    }
}
