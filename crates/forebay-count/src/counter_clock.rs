//! A clock that is read from a counter of the processor, and held against the kernel's now and then. To read the counter takes less than
//! half of what the kernel's clock takes, even where that needs no system call.
//!
//! While the kernel's clock keeps its rate, the two differ by a fraction of a microsecond. The kernel may change its rate to follow
//! another clock; then they differ for up to [`VALID`] counts, by as much as the rates do. From a difference of a thousandth on the counter
//! is not believed any more. The clock does not run backwards, unless it gives the counter up.

use core::sync::atomic::{
    AtomicBool, AtomicU64, Ordering, Ordering::Relaxed, Ordering::SeqCst, fence,
};

/// For so many counts the clock is read from the counter alone: about 25 ms.
pub const VALID: u64 = 1 << 26;
/// The rate is measured over this time at first.
const FIRST_NS: u64 = 10_000_000;
/// A kernel's clock that was read while the counter went on by more is not compared with it: the thread was interrupted.
const AT_ONCE: u64 = 2_000;
/// Bits behind the point of a rate.
const POINT: u32 = 32;
/// The rate of a counter that is of no use.
const NEVER: u64 = u64::MAX;
/// Largest rate that is believed, in nanoseconds for each count: that of a counter of 10 MHz.
const MOST_RATE: u64 = 100 << POINT;
/// Differences up to this count for nothing, in nanoseconds.
const NOISE_NS: u64 = 2_000;

/// The clock. It begins without a rate.
#[derive(Default)]
pub struct CounterClock {
    /// Odd while the other words change.
    version: AtomicU64,
    /// The counter when it was last held against the kernel's clock; 0 if never.
    counter: AtomicU64,
    /// The time at that moment.
    ns: AtomicU64,
    /// Nanoseconds for each count, with [`POINT`] bits behind the point. 0 while it is unknown.
    rate: AtomicU64,
    is_given_up: AtomicBool,
}

impl CounterClock {
    /// A clock that knows nothing yet.
    pub const fn new() -> Self {
        CounterClock {
            version: AtomicU64::new(0),
            counter: AtomicU64::new(0),
            ns: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            is_given_up: AtomicBool::new(false),
        }
    }

    /// The time in nanoseconds by the counter; `None` if the kernel's clock must be asked.
    #[inline(always)]
    pub fn read(&self, counter: impl FnOnce() -> u64) -> Option<u64> {
        let version = self.version.load(Ordering::Acquire);
        let rate = self.rate.load(Relaxed);
        if rate == 0 || rate == NEVER {
            return None;
        }
        let (from, ns) = (self.counter.load(Relaxed), self.ns.load(Relaxed));
        let since = counter().wrapping_sub(from);
        fence(Ordering::Acquire);
        let is_whole = version & 1 == 0 && self.version.load(Relaxed) == version;
        (is_whole && since < VALID).then(|| ns + ((since * rate) >> POINT))
    }

    /// Holds the counter against the kernel's clock, which said `ns` between two looks at the counter. `is_believed` tells whether the
    /// kernel itself believes the counter, `None` if that can't be asked now. Returns the time.
    pub fn compare(
        &self,
        ns: u64,
        (before, after): (u64, u64),
        is_believed: impl FnOnce() -> Option<bool>,
    ) -> u64 {
        let rate = self.rate.load(Relaxed);
        if rate == NEVER || after.wrapping_sub(before) > AT_ONCE {
            return ns;
        }
        let version = self.version.load(Relaxed);
        let odd = version.wrapping_add(1);
        // Another thread compares, or this is a signal handler in the midst of it.
        if version & 1 == 1
            || self
                .version
                .compare_exchange(version, odd, Ordering::Acquire, Relaxed)
                .is_err()
        {
            return ns;
        }
        fence(Ordering::Release);
        let now = self.changed(ns, after, is_believed);
        self.version.store(odd.wrapping_add(1), Ordering::Release);
        now
    }

    /// The counter is of no use from now on.
    pub fn give_up(&self) {
        self.is_given_up.store(true, SeqCst);
        self.rate.store(NEVER, SeqCst);
    }

    fn changed(&self, ns: u64, counter: u64, is_believed: impl FnOnce() -> Option<bool>) -> u64 {
        let (from, from_ns) = (self.counter.load(Relaxed), self.ns.load(Relaxed));
        let (counts, elapsed) = (counter.wrapping_sub(from), ns.wrapping_sub(from_ns));
        let rate = self.rate.load(Relaxed);
        if rate == NEVER {
            return ns;
        }
        if from == 0 {
            self.set(counter, ns, 0);
            return ns;
        }
        if rate == 0 {
            if elapsed < FIRST_NS {
                return ns;
            }
            return match is_believed() {
                Some(true) => self.begin(counter, ns, measured(counts, elapsed)),
                Some(false) => self.begin(counter, ns, NEVER),
                None => ns,
            };
        }
        if counts > u64::MAX / 2 {
            // An earlier look of a thread that came late is earlier by both clocks.
            if ns > from_ns + NOISE_NS {
                self.set(counter, ns, NEVER);
            }
            return ns;
        }
        if counts < VALID {
            return ns;
        }
        // Nobody was told more than the time at the end of the validity.
        let told = from_ns + ((VALID * rate) >> POINT);
        let expected = ((u128::from(counts) * u128::from(rate)) >> POINT) as u64;
        if expected.abs_diff(elapsed) > NOISE_NS + (expected >> 10) {
            return self.begin(counter, ns, NEVER);
        }
        // A clock that was ahead has a lower rate until it is not any more.
        self.begin(counter, ns.max(told), measured(counts, elapsed))
    }

    fn begin(&self, counter: u64, ns: u64, rate: u64) -> u64 {
        let is_sane = (1..=MOST_RATE).contains(&rate);
        self.set(counter, ns, if is_sane { rate } else { NEVER });
        ns
    }

    fn set(&self, counter: u64, ns: u64, rate: u64) {
        self.counter.store(counter, Relaxed);
        self.ns.store(ns, Relaxed);
        self.rate.store(rate, SeqCst);
        // Another thread may just have given it up.
        if self.is_given_up.load(SeqCst) {
            self.rate.store(NEVER, SeqCst);
        }
    }
}

/// The rate by which so many counts take so many nanoseconds.
fn measured(counts: u64, ns: u64) -> u64 {
    let rate = (u128::from(ns) << POINT) / u128::from(counts.max(1));
    u64::try_from(rate).unwrap_or(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// A processor and a kernel: the counter runs at 2.6 GHz, and the kernel's clock differs by some millionths.
    struct Machine {
        /// In picoseconds.
        time: Cell<u128>,
        kernel_ps: Cell<u128>,
        millionths: Cell<i64>,
        seed: Cell<u64>,
    }

    impl Machine {
        fn new() -> Self {
            Machine {
                time: Cell::new(1 << 50),
                kernel_ps: Cell::new(7 << 50),
                millionths: Cell::new(0),
                seed: Cell::new(1),
            }
        }

        fn random(&self, below: u64) -> u64 {
            let mut x = self.seed.get();
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            self.seed.set(x);
            x % below
        }

        fn pass(&self, ns: u64) {
            let ps = u128::from(ns) * 1000;
            self.time.set(self.time.get() + ps);
            let kernel = ps as i128 + ps as i128 * i128::from(self.millionths.get()) / 1_000_000;
            self.kernel_ps.set(self.kernel_ps.get() + kernel as u128);
        }

        fn counter(&self) -> u64 {
            (self.time.get() * 26 / 10_000) as u64
        }

        fn kernel_ns(&self) -> u64 {
            (self.kernel_ps.get() / 1000) as u64
        }

        /// As the recorder reads it.
        fn read(&self, clock: &CounterClock, believed: Option<bool>) -> u64 {
            clock.read(|| self.counter()).unwrap_or_else(|| {
                let before = self.counter();
                self.pass(self.random(30));
                let ns = self.kernel_ns();
                self.pass(self.random(30));
                clock.compare(ns, (before, self.counter()), || believed)
            })
        }

        fn is_by_counter(&self, clock: &CounterClock) -> bool {
            clock.read(|| self.counter()).is_some()
        }
    }

    #[test]
    fn it_tells_the_kernels_time_and_does_not_run_backwards() {
        let (machine, clock) = (Machine::new(), CounterClock::new());
        machine.millionths.set(37);
        let (mut last, mut by_counter) = (0, 0);
        for n in 0..400_000 {
            // Calls of microseconds, and now and then pauses up to 100 s.
            let pause = match n % 1000 {
                0 => machine.random(100_000_000_000),
                _ => machine.random(20_000),
            };
            machine.pass(pause);
            by_counter += u32::from(machine.is_by_counter(&clock));
            let now = machine.read(&clock, Some(true));
            assert!(now >= last, "{n}");
            assert!(now.abs_diff(machine.kernel_ns()) < 1_000, "{n}");
            last = now;
        }
        assert!(by_counter > 390_000, "{by_counter}");
    }

    #[test]
    fn it_follows_a_kernel_that_changes_its_rate() {
        let (machine, clock) = (Machine::new(), CounterClock::new());
        let mut last = 0;
        for n in 0..2_000_000 {
            if n % 50_000 == 0 {
                machine.millionths.set(machine.random(1000) as i64 - 500);
            }
            machine.pass(machine.random(20_000));
            let now = machine.read(&clock, Some(true));
            assert!(now >= last, "{n}");
            // A thousandth of the time for which it is valid.
            assert!(now.abs_diff(machine.kernel_ns()) < 60_000, "{n}");
            last = now;
        }
        assert!(machine.is_by_counter(&clock));
    }

    #[test]
    fn a_counter_that_the_kernel_does_not_believe_is_not_read() {
        let (machine, clock) = (Machine::new(), CounterClock::new());
        for _ in 0..10_000 {
            machine.pass(20_000);
            assert!(!machine.is_by_counter(&clock));
            assert!(
                machine
                    .read(&clock, Some(false))
                    .abs_diff(machine.kernel_ns())
                    < 100
            );
        }
        // Where it can't be asked yet it is asked again.
        let clock = CounterClock::new();
        for believed in [None, Some(true)] {
            for _ in 0..1_000 {
                machine.pass(20_000);
                machine.read(&clock, believed);
            }
            assert_eq!(machine.is_by_counter(&clock), believed.is_some());
        }
    }

    #[test]
    fn a_counter_that_stands_still_or_jumps_is_given_up() {
        for jump in [-3_000_000_000i64, -200_000_000, 200_000_000, 60_000_000_000] {
            let (machine, clock) = (Machine::new(), CounterClock::new());
            for _ in 0..10_000 {
                machine.pass(20_000);
                machine.read(&clock, Some(true));
            }
            assert!(machine.is_by_counter(&clock));
            let moved = machine.time.get() as i128 + i128::from(jump) * 1000;
            machine.time.set(moved as u128);
            for _ in 0..10_000 {
                machine.pass(20_000);
                machine.read(&clock, Some(true));
            }
            let off = machine
                .read(&clock, Some(true))
                .abs_diff(machine.kernel_ns());
            assert!(off < 1_000, "{jump}: {off}");
        }
    }

    #[test]
    fn a_thread_that_was_interrupted_between_the_clocks_compares_nothing() {
        let clock = CounterClock::new();
        assert_eq!(clock.compare(5, (100, 100 + AT_ONCE + 1), || Some(true)), 5);
        assert_eq!(clock.counter.load(Relaxed), 0);
        assert_eq!(clock.compare(5, (100, 200), || Some(true)), 5);
        assert_eq!(clock.counter.load(Relaxed), 200);
        // While another thread compares nobody waits.
        clock.version.store(1, Relaxed);
        assert_eq!(clock.compare(6, (300, 301), || Some(true)), 6);
        assert_eq!(clock.read(|| 301), None);
    }
}
