//! Decides whether a shard polls for the next request or sleeps.
//!
//! Waking a sleeping thread costs ten times what serving a request does, so after
//! a request a shard looks for the next one for a short while, as long as that
//! pays off. Where clients may need its processor it lets them run between two
//! looks.

use forebay_sys as sys;
use forebay_wire::Attention;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long to look for the next request before sleeping.
const SPIN: Duration = Duration::from_micros(60);
/// The same where clients have to wait for a processor before they can send the next one.
const SPIN_CROWDED: Duration = Duration::from_micros(300);
/// The same after a client has asked for a sync: it waits for the disk, and comes back at once when that is done.
const SPIN_DISK: Duration = Duration::from_millis(2);
/// Requests in a row from a client on the shard's own processor after which the shard moves.
const SHARED: u32 = 4;
/// Time between two moves to another processor.
const MOVE_INTERVAL: Duration = Duration::from_millis(2);
/// Success of spinning, in 1024ths, as a moving average; below this it is not worth it.
const SPIN_WORTH: u32 = 256;
/// Rounds without spinning after which it is tried again.
const SPIN_RETRY: u32 = 32;
/// Time after its last request in which a client counts as running.
const RUNNING: Duration = Duration::from_micros(200);

/// What the shards know of each other.
pub struct Load {
    start: Instant,
    next: AtomicUsize,
    shards: Box<[Share]>,
}

/// What one shard tells of itself.
#[derive(Default)]
struct Share {
    /// When it last counted its running clients (microseconds since the start), and how many it counted.
    count: AtomicU64,
    /// Its connections.
    connections: AtomicUsize,
    /// The processor on which it last ran.
    cpu: AtomicU32,
}

/// Bits of [`Share::count`] that hold the count.
const COUNT_BITS: u32 = 16;

impl Load {
    /// The load of this number of shards.
    pub fn new(shards: usize) -> Self {
        Load {
            start: Instant::now(),
            next: AtomicUsize::new(0),
            shards: (0..shards).map(|_| Share::default()).collect(),
        }
    }

    /// A place for one more shard.
    pub fn join(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn micros(&self, at: Instant) -> u64 {
        (at - self.start).as_micros() as u64
    }

    fn tell(&self, shard: usize, count: usize, now: Instant) {
        let count = count.min((1 << COUNT_BITS) - 1) as u64;
        self.shards[shard]
            .count
            .store(self.micros(now) << COUNT_BITS | count, Ordering::Relaxed);
    }

    /// Clients of a shard that are running now. What it said before it went to sleep soon counts no more.
    fn running_at(&self, share: &Share, now: Instant) -> usize {
        let entry = share.count.load(Ordering::Relaxed);
        let age = self.micros(now).saturating_sub(entry >> COUNT_BITS);
        match age < RUNNING.as_micros() as u64 {
            true => entry as usize & ((1 << COUNT_BITS) - 1),
            false => 0,
        }
    }

    fn running(&self, now: Instant) -> usize {
        self.shards.iter().map(|s| self.running_at(s, now)).sum()
    }

    /// Does a shard before this one, whose clients are running, have the same processor?
    fn is_behind_another(&self, shard: usize, cpu: u32, now: Instant) -> bool {
        self.shards[..shard]
            .iter()
            .any(|s| s.cpu.load(Ordering::Relaxed) == cpu && self.running_at(s, now) > 0)
    }

    /// The shard with the fewest connections; `own` if that has no more than another.
    pub fn least_busy(&self, own: usize) -> usize {
        let connections = |shard: usize| self.shards[shard].connections.load(Ordering::Relaxed);
        (0..self.shards.len())
            .min_by_key(|&shard| (connections(shard), shard != own))
            .unwrap_or(own)
    }

    /// Counts one connection more of a shard.
    pub fn gain(&self, shard: usize) {
        self.shards[shard]
            .connections
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one connection less of a shard.
    pub fn lose(&self, shard: usize) {
        self.shards[shard]
            .connections
            .fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether looking for a request pays, as far as experience tells.
struct Worth {
    average: u32,
    idle_rounds: u32,
}

impl Worth {
    const fn new() -> Self {
        Worth {
            average: 1024,
            idle_rounds: 0,
        }
    }

    /// True if it is worth a try; now and then it is, whatever experience says.
    fn try_it(&mut self) -> bool {
        if self.average >= SPIN_WORTH {
            return true;
        }
        self.idle_rounds += 1;
        if self.idle_rounds >= SPIN_RETRY {
            self.idle_rounds = 0;
            self.average = SPIN_WORTH;
            return true;
        }
        false
    }

    fn learn(&mut self, paid: bool) {
        if paid {
            self.average += (1024 - self.average) / 8;
        } else {
            self.average -= self.average / 8;
        }
    }
}

/// What a shard has learnt about spinning.
pub struct Spin {
    /// Looking for the next request.
    next: Worth,
    /// Looking for the one after a sync, which a slow disk delays.
    disk: Worth,
    /// A client has asked for a sync since the shard last began to look.
    has_synced: bool,
    /// It looks for the request after a sync.
    awaits_disk: bool,
    cores: usize,
    /// Connections that have sent something since the last count.
    fresh: Vec<u64>,
    /// Connections whose clients count as running, with the time of their last request.
    running: Vec<(u64, Instant)>,
    number: usize,
    crowded: bool,
    cpu: u32,
    /// Requests in a row from clients on the shard's processor.
    shared: u32,
    moved: Instant,
}

impl Spin {
    /// Of the shard at place `number`.
    pub fn new(number: usize) -> Self {
        Spin {
            next: Worth::new(),
            disk: Worth::new(),
            has_synced: false,
            awaits_disk: false,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            fresh: Vec::new(),
            running: Vec::new(),
            number,
            crowded: false,
            cpu: u32::MAX,
            shared: 0,
            moved: Instant::now(),
        }
    }

    /// How long to look for the next request; `None` if that has not paid lately.
    pub fn patience(&mut self) -> Option<Duration> {
        let has_synced = std::mem::take(&mut self.has_synced);
        self.awaits_disk = has_synced && !self.crowded && self.disk.try_it();
        if self.awaits_disk {
            return Some(SPIN_DISK);
        }
        let patience = if self.crowded { SPIN_CROWDED } else { SPIN };
        self.next.try_it().then_some(patience)
    }

    /// Notes that a client has asked for a sync.
    pub fn note_sync(&mut self) {
        self.has_synced = true;
    }

    /// Its place among the shards.
    pub fn number(&self) -> usize {
        self.number
    }

    /// What the clients should know.
    pub fn attention(&mut self, load: &Load) -> Attention {
        let cpu = sys::cpu();
        if self.cpu != cpu {
            self.cpu = cpu;
            load.shards[self.number].cpu.store(cpu, Ordering::Relaxed);
        }
        Attention {
            cpu,
            crowded: self.crowded,
        }
    }

    /// Should the shard take another processor? If a client and it keep each other from this one while there is
    /// another; and where there are more clients than processors, if two shards share one.
    pub fn should_move(&mut self, load: &Load, now: Instant) -> bool {
        let shares = match self.crowded {
            true => load.is_behind_another(self.number, self.cpu, now),
            false => self.shared >= SHARED,
        };
        let due = shares && now - self.moved >= MOVE_INTERVAL;
        if due {
            self.shared = 0;
            self.moved = now;
        }
        due
    }

    /// Learns whether a request came in time.
    pub fn learn(&mut self, paid: bool) {
        let worth = match self.awaits_disk {
            true => &mut self.disk,
            false => &mut self.next,
        };
        worth.learn(paid);
    }

    /// Notes a request of a connection, whose client runs on processor `cpu`, if that is known.
    pub fn note_client(&mut self, key: u64, cpu: Option<u32>) {
        self.shared = match cpu {
            Some(cpu) if cpu == self.cpu => self.shared + 1,
            _ => 0,
        };
        if !self.fresh.contains(&key) {
            self.fresh.push(key);
        }
    }

    /// Forgets a connection that has ended.
    pub fn forget(&mut self, key: u64) {
        self.fresh.retain(|&fresh| fresh != key);
        self.running.retain(|&(running, _)| running != key);
    }

    /// Counts the connections whose clients are running.
    pub fn note_running(&mut self, load: &Load, now: Instant) {
        for key in self.fresh.drain(..) {
            match self.running.iter_mut().find(|(running, _)| *running == key) {
                Some(entry) => entry.1 = now,
                None => self.running.push((key, now)),
            }
        }
        self.running.retain(|(_, at)| now - *at < RUNNING);
        load.tell(self.number, self.running.len(), now);
        self.crowded = load.running(now) + 1 > self.cores;
    }

    /// True if more clients run than there are processors beside the shard's own.
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }
}
