//! Learns whether to poll for an answer or to sleep until it comes.

use core::sync::atomic::{AtomicU32, Ordering};

use forebay_hook::kernel::call;

/// Polls of the socket before the thread goes to sleep. One poll takes 0.1 to 0.4 us.
const POLLS: u32 = 400;
/// The highest score.
const SCALE: u32 = 1024;
/// Below this score only one request of [`PROBE_EVERY`] polls, to learn whether polling pays again.
const LEAST: u32 = SCALE / 4;
const PROBE_EVERY: u32 = 64;

/// How often polling paid lately. All zeroes: never tried.
#[derive(Default)]
pub struct Spin {
    /// 0 to [`SCALE`], plus one; 0 before the first try.
    score: AtomicU32,
    /// Number of requests while polling did not pay.
    probe: AtomicU32,
}

impl Spin {
    /// How often to poll the socket before the thread sleeps.
    pub fn budget(&self) -> u32 {
        let pays = match self.score.load(Ordering::Relaxed) {
            0 => true,
            score => score > LEAST || self.is_probe(),
        };
        if pays && !one_cpu() { POLLS } else { 0 }
    }

    fn is_probe(&self) -> bool {
        let turn = self.probe.fetch_add(1, Ordering::Relaxed);
        turn.is_multiple_of(PROBE_EVERY)
    }

    /// Learns from a request whose answer was polled for. `paid`: the answer came before the thread slept. The score is
    /// a moving average over about eight requests.
    pub fn learn(&self, paid: bool) {
        let old = match self.score.load(Ordering::Relaxed) {
            0 => SCALE,
            score => score - 1,
        };
        let new = old - old / 8 + if paid { SCALE / 8 } else { 0 };
        self.score.store(new + 1, Ordering::Relaxed);
    }
}

/// True if this process may run on one CPU only: polling would then keep the bridge from answering.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Would a machine with several processors poll?
    fn polls(spin: &Spin) -> bool {
        spin.budget() == if one_cpu() { 0 } else { POLLS }
    }

    #[test]
    fn a_new_process_tries() {
        assert!(polls(&Spin::default()));
    }

    #[test]
    fn what_never_pays_is_tried_now_and_then_and_comes_back() {
        let spin = Spin::default();
        while spin.score.load(Ordering::Relaxed) > LEAST || spin.score.load(Ordering::Relaxed) == 0
        {
            spin.learn(false);
        }
        let probes = (0..PROBE_EVERY * 3).filter(|_| spin.budget() > 0).count();
        assert_eq!(probes, if one_cpu() { 0 } else { 3 });
        for _ in 0..3 {
            spin.learn(true);
        }
        assert!(spin.score.load(Ordering::Relaxed) > LEAST && polls(&spin));
    }

    #[test]
    fn the_score_stays_in_its_bounds() {
        let spin = Spin::default();
        for paid in [true, false] {
            for _ in 0..100 {
                spin.learn(paid);
                let score = spin.score.load(Ordering::Relaxed);
                assert!((1..=SCALE + 1).contains(&score), "{score}");
            }
        }
    }
}
