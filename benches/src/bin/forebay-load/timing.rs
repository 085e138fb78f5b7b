//! Measures wall time and processor time of calls.

use crate::place::Place;
use crate::usage::cpu_seconds;
use forebay_benches::sample::Cost;
use std::io;
use std::time::{Duration, Instant};

/// Calls between two readings of the clock. Compared with so many calls, a reading costs nothing.
const CALLS_PER_LOOK: u32 = 32;

/// Both clocks at one moment.
pub struct Stopwatch {
    wall: Instant,
    cpu: f64,
}

impl Stopwatch {
    /// Starts both clocks.
    pub fn start() -> Self {
        Stopwatch {
            cpu: cpu_seconds(),
            wall: Instant::now(),
        }
    }

    /// The cost of one operation, if `operations` were made since the start.
    pub fn cost(&self, operations: f64) -> Cost {
        let wall = self.wall.elapsed().as_secs_f64();
        Cost {
            wall: wall / operations,
            cpu: (cpu_seconds() - self.cpu) / operations,
        }
    }
}

/// The cost of one call in each of several windows of time. A first window is not
/// counted: it fills caches and wakes the bridge.
pub fn windows(place: &Place, mut call: impl FnMut() -> io::Result<()>) -> io::Result<Vec<Cost>> {
    window(place.window, &mut call)?;
    (0..place.windows)
        .map(|_| window(place.window, &mut call))
        .collect()
}

fn window(least: Duration, call: &mut impl FnMut() -> io::Result<()>) -> io::Result<Cost> {
    let mut calls = 0u32;
    let watch = Stopwatch::start();
    loop {
        for _ in 0..CALLS_PER_LOOK {
            call()?;
        }
        calls += CALLS_PER_LOOK;
        if watch.wall.elapsed() >= least {
            return Ok(watch.cost(f64::from(calls)));
        }
    }
}

/// The cost of `work`, divided by its number of operations.
pub fn per_operation(operations: usize, work: impl FnOnce() -> io::Result<()>) -> io::Result<Cost> {
    let watch = Stopwatch::start();
    work()?;
    Ok(watch.cost(operations as f64))
}
