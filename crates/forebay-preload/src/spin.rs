//! Whether waiting awake for an answer pays off.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::process::Process;
use crate::sys::call;

/// Polls of the socket before the thread goes to sleep. One poll takes 0.1 to 0.4 us.
const POLLS: u32 = 400;
/// Full mark of the score.
const SCALE: u32 = 1024;
/// Below this score only one request of [`PROBE_EVERY`] spins, to see whether it pays again.
const LEAST: u32 = SCALE / 4;
const PROBE_EVERY: u32 = 64;

static PROBE: AtomicU32 = AtomicU32::new(0);

/// How often to look at the socket before going to sleep.
pub fn budget(process: Option<&Process>) -> u32 {
    let Some(p) = process else { return 0 };
    if one_cpu() {
        return 0;
    }
    let score = p.spin_score.load(Ordering::Relaxed);
    if score == 0
        || score > LEAST
        || PROBE
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(PROBE_EVERY)
    {
        POLLS
    } else {
        0
    }
}

/// Moving average over about eight requests.
pub fn learn(process: Option<&Process>, paid: bool) {
    if let Some(p) = process {
        let old = match p.spin_score.load(Ordering::Relaxed) {
            0 => SCALE,
            score => score - 1,
        };
        let new = old - old / 8 + if paid { SCALE / 8 } else { 0 };
        p.spin_score.store(new + 1, Ordering::Relaxed);
    }
}

/// May this process run on one CPU only? Then spinning keeps the bridge from answering.
fn one_cpu() -> bool {
    /// 0: not asked, 1: one, 2: more.
    static CPUS: AtomicU32 = AtomicU32::new(0);
    match CPUS.load(Ordering::Relaxed) {
        0 => {
            let mut mask = [0u64; 128];
            // SAFETY: `mask` is writable for its size.
            let got = unsafe {
                call!(
                    libc::SYS_sched_getaffinity,
                    0,
                    size_of_val(&mask),
                    mask.as_mut_ptr()
                )
            };
            let count: u32 = mask.iter().map(|w| w.count_ones()).sum();
            let one = got.is_err() || count < 2;
            CPUS.store(if one { 1 } else { 2 }, Ordering::Relaxed);
            one
        }
        n => n == 1,
    }
}
