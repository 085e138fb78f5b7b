//! What requests meet: calls on the PFS and on the storage fail, the storage is full for a while, bridges die between two
//! effects. It has a source of chance of its own, so that old seeds give their old runs when all of this is off.

use super::env::Env;
use super::plan::{Calm, Plan};
use super::random::Random;

/// How bad it is. Chances are in a million.
pub(super) struct Hardship {
    random: Random,
    /// A look at the PFS, an open there, or the copy of a file of it fails.
    pfs: u32,
    /// Work on the storage fails.
    storage: u32,
    /// The tables take nothing.
    tables: u32,
    /// Chance that a failure fills the storage, and how long it is full at most.
    fills_up: u32,
    full_us: u64,
    full_until: u64,
    /// A bridge dies between two effects.
    pub(super) strikes: u32,
    /// The same where one of them leaves something behind.
    pub(super) strikes_beside_traces: u32,
    /// Requests take turns to commit, look at many records out of turn, and wait for times to be written.
    pub(super) takes_turns: bool,
    records_at_once: Option<usize>,
    /// Programs write to files of the PFS in place, where one bridge knows of all of them.
    pub(super) writes_in_place: bool,
}

impl Hardship {
    pub(super) fn of(plan: &Plan) -> Self {
        let mut random = Random::new(plan.seed.rotate_left(48) ^ 0x4861_7264_7368_6970);
        let fails = random.chance(400_000) && !plan.calm.has(Calm::REQUESTS_FAIL);
        let mut pick = |fails: bool, values: &[u32]| {
            let value = *random.pick(values);
            if fails { value } else { 0 }
        };
        let pfs = pick(fails, &[0, 5_000, 20_000, 60_000]);
        let storage = pick(fails, &[0, 10_000, 40_000, 100_000]);
        let tables = pick(fails, &[0, 10_000, 40_000, 100_000]);
        let fills_up = pick(fails, &[0, 100_000, 300_000]);
        let full_us = u64::from(pick(true, &[2_000, 20_000]));
        let may_strike = !plan.calm.has(Calm::STRIKES);
        let strikes = pick(may_strike, &[0, 0, 1_000, 4_000]);
        let strikes_beside_traces = pick(may_strike && strikes > 0, &[5_000, 15_000, 40_000]);
        let takes_turns = random.chance(300_000) && !plan.calm.has(Calm::TURNS);
        let most = *random.pick(&[0, 0, 1, 2]);
        let is_alone = plan.bridges == 1;
        let writes_in_place = random.chance(600_000) && is_alone && !plan.calm.has(Calm::IN_PLACE);
        Hardship {
            random,
            pfs,
            storage,
            tables,
            fills_up,
            full_us,
            full_until: 0,
            strikes,
            strikes_beside_traces,
            takes_turns,
            records_at_once: takes_turns.then_some(most),
            writes_in_place,
        }
    }

    pub(super) fn calm_down(&mut self) {
        (self.pfs, self.storage, self.tables) = (0, 0, 0);
        (self.strikes, self.strikes_beside_traces) = (0, 0);
        self.full_until = 0;
    }

    /// Does the connection break before the client hears of a failure?
    pub(super) fn hangs_up(&mut self) -> bool {
        self.random.chance(200_000)
    }

    /// How many records one step may read; `None`: any number, because several bridges wait for each other anyway.
    pub(super) fn records_at_once(&self, bridges: usize) -> Option<usize> {
        self.records_at_once.filter(|_| bridges == 1)
    }

    pub(super) fn chance(&mut self, parts: u32) -> bool {
        self.random.chance(parts)
    }

    /// A time between these two.
    pub(super) fn delay_us(&mut self, low: u64, high: u64) -> u64 {
        self.random.between(low, high)
    }

    /// A request tries something: the errno with which that fails, if it does.
    fn failure(&mut self, chance: u32, errnos: &[i32]) -> Option<i32> {
        let fails = self.random.chance(chance);
        fails.then(|| *self.random.pick(errnos))
    }
}

impl Env {
    /// The errno with which a call on the PFS fails for a request, if it does.
    pub(super) fn pfs_fails_request(&mut self) -> Option<i32> {
        let is_away = self.hardship.pfs > 0 && self.is_pfs_away();
        let chance = if is_away { 700_000 } else { self.hardship.pfs };
        let errnos = [libc::EIO, libc::ESTALE, libc::ETIMEDOUT];
        self.hardship.failure(chance, &errnos)
    }

    /// The errno with which something new on the storage fails for a request, if it does.
    pub(super) fn storage_refuses(&mut self) -> Option<i32> {
        if self.is_storage_full() {
            return Some(libc::ENOSPC);
        }
        let errnos = [libc::EIO, libc::ENOSPC, libc::EDQUOT];
        let errno = self.hardship.failure(self.hardship.storage, &errnos)?;
        self.fills_up(errno);
        Some(errno)
    }

    /// The errno with which something that is on the storage can't be read or opened, if so.
    pub(super) fn storage_fails_request(&mut self) -> Option<i32> {
        let errnos = [libc::EIO, libc::ENFILE];
        self.hardship.failure(self.hardship.storage / 4, &errnos)
    }

    /// The errno with which the tables refuse a batch, if they do.
    pub(super) fn tables_refuse(&mut self) -> Option<i32> {
        if self.is_storage_full() {
            return Some(libc::ENOSPC);
        }
        let errnos = [libc::EIO, libc::ENOSPC];
        let errno = self.hardship.failure(self.hardship.tables, &errnos)?;
        self.fills_up(errno);
        Some(errno)
    }

    fn is_storage_full(&self) -> bool {
        self.now < self.hardship.full_until
    }

    fn fills_up(&mut self, errno: i32) {
        let fills_up = self.hardship.fills_up;
        if errno != libc::EIO && self.hardship.chance(fills_up) {
            let most = self.hardship.full_us;
            self.hardship.full_until = self.now + self.hardship.delay_us(500, most);
        }
    }
}
