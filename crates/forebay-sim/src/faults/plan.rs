//! What is to be run: options of a caller, and what one seed makes of them.

use super::Mutation;
use super::random::Random;
use std::fmt;

/// Kinds of bad weather, each by its bit. A plan can leave some of them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Calm(u32);

impl Calm {
    /// The kinds and their names.
    const NAMES: [(&'static str, u32); 21] = [
        ("lost", Calm::LOST.0),
        ("doubled", Calm::DOUBLED.0),
        ("slow", Calm::SLOW.0),
        ("cut", Calm::CUT.0),
        ("hangup", Calm::HANGUP.0),
        ("crash", Calm::CRASH.0),
        ("crash-after-write", Calm::CRASH_AFTER_WRITE.0),
        ("pfs-fails", Calm::PFS_FAILS.0),
        ("slow-pfs", Calm::SLOW_PFS.0),
        ("drains", Calm::DRAINS.0),
        ("intruders", Calm::INTRUDERS.0),
        ("tables", Calm::TABLES.0),
        ("links", Calm::LINKS.0),
        ("power", Calm::POWER.0),
        ("contents", Calm::CONTENTS.0),
        ("spares", Calm::SPARES.0),
        ("removers", Calm::REMOVERS.0),
        ("requests-fail", Calm::REQUESTS_FAIL.0),
        ("strikes", Calm::STRIKES.0),
        ("turns", Calm::TURNS.0),
        ("in-place", Calm::IN_PLACE.0),
    ];

    pub(super) const LOST: Calm = Calm(1);
    pub(super) const DOUBLED: Calm = Calm(1 << 1);
    pub(super) const SLOW: Calm = Calm(1 << 2);
    pub(super) const CUT: Calm = Calm(1 << 3);
    pub(super) const HANGUP: Calm = Calm(1 << 4);
    pub(super) const CRASH: Calm = Calm(1 << 5);
    pub(super) const CRASH_AFTER_WRITE: Calm = Calm(1 << 6);
    pub(super) const PFS_FAILS: Calm = Calm(1 << 7);
    pub(super) const SLOW_PFS: Calm = Calm(1 << 8);
    pub(super) const DRAINS: Calm = Calm(1 << 9);
    pub(super) const INTRUDERS: Calm = Calm(1 << 10);
    pub(super) const TABLES: Calm = Calm(1 << 11);
    /// Symbolic links.
    pub(super) const LINKS: Calm = Calm(1 << 12);
    /// Losses of power.
    pub(super) const POWER: Calm = Calm(1 << 13);
    /// Files of the PFS that are staged or truncated.
    pub(super) const CONTENTS: Calm = Calm(1 << 14);
    /// Removed files that are used again.
    pub(super) const SPARES: Calm = Calm(1 << 15);
    /// Clients that remove whole directories of the PFS, and make them again.
    pub(super) const REMOVERS: Calm = Calm(1 << 16);
    /// Calls on the PFS and on the storage fail for requests, and the storage is full.
    pub(super) const REQUESTS_FAIL: Calm = Calm(1 << 17);
    /// Bridges die between two effects of a request.
    pub(super) const STRIKES: Calm = Calm(1 << 18);
    /// Requests take turns to commit, look at many records out of turn, and wait for times to be written.
    pub(super) const TURNS: Calm = Calm(1 << 19);
    /// Programs that write to files of the PFS in place.
    pub(super) const IN_PLACE: Calm = Calm(1 << 20);

    /// Reads names with commas between them.
    ///
    /// # Errors
    /// The name that is none, with all that are.
    pub fn parse(names: &str) -> Result<Calm, String> {
        let mut calm = Calm::default();
        for name in names.split(',').filter(|name| !name.is_empty()) {
            let Some((_, bit)) = Calm::NAMES.iter().find(|(n, _)| *n == name) else {
                let all: Vec<_> = Calm::NAMES.iter().map(|(n, _)| *n).collect();
                return Err(format!("{name:?} is none of {}", all.join(", ")));
            };
            calm.0 |= bit;
        }
        Ok(calm)
    }

    /// No bad weather at all.
    pub(super) fn all() -> Self {
        Calm::kinds().fold(Calm::default(), Calm::and)
    }

    /// Each kind by itself.
    pub(super) fn kinds() -> impl Iterator<Item = Calm> {
        Calm::NAMES.iter().map(|(_, bit)| Calm(*bit))
    }

    pub(super) fn has(self, kind: Calm) -> bool {
        self.0 & kind.0 != 0
    }

    pub(super) fn and(self, kind: Calm) -> Calm {
        Calm(self.0 | kind.0)
    }

    /// How many kinds are left out.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }
}

impl fmt::Display for Calm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Calm::NAMES.iter().filter(|(_, bit)| self.0 & bit != 0);
        let names: Vec<_> = names.map(|(name, _)| *name).collect();
        f.write_str(&names.join(","))
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct FaultOptions {
    /// The first seed.
    pub first_seed: u64,
    /// How many seeds, counted up from the first.
    pub seeds: u64,
    /// Bridges; `None` leaves it to the seed, from 1 to 4.
    pub bridges: Option<u32>,
    /// Clients; `None` leaves it to the seed, from 2 to 5.
    pub clients: Option<usize>,
    /// Operations of each client; `None` leaves it to the seed, from 6 to 30.
    pub steps: Option<u32>,
    /// Kinds of bad weather that are left out.
    pub calm: Calm,
    /// A planted bug. Without the feature `planted-bugs` it does nothing.
    pub mutation: Option<Mutation>,
    /// Write the whole trace of each seed.
    pub trace: bool,
    /// Threads; `None`: one for each core. A seed is the same run on any of them.
    pub threads: Option<usize>,
    /// Look for a smaller run when a seed breaks a promise.
    pub shrink: bool,
}

impl Default for FaultOptions {
    fn default() -> Self {
        FaultOptions {
            first_seed: 1,
            seeds: 200,
            bridges: None,
            clients: None,
            steps: None,
            calm: Calm::default(),
            mutation: None,
            trace: false,
            threads: None,
            shrink: true,
        }
    }
}

/// One run, with all that follows from its seed and the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Bridges.
    pub bridges: u32,
    /// Clients.
    pub clients: usize,
    /// Operations of each client.
    pub steps: u32,
    /// Kinds of bad weather that are left out.
    pub calm: Calm,
    /// A planted bug.
    pub mutation: Option<Mutation>,
}

impl Plan {
    pub(super) fn of(seed: u64, options: &FaultOptions) -> Self {
        // Not the generator of the run itself, so that an option changes nothing else.
        let mut random = Random::new(!seed);
        let bridges = *random.pick(&[1, 1, 1, 1, 1, 2, 2, 3, 3, 4]);
        let clients = random.between(2, 5) as usize;
        let steps = random.between(6, 30) as u32;
        let mut calm = match random.chance(400_000) {
            true => options.calm,
            false => options.calm.and(Calm::LINKS),
        };
        let bridges = options.bridges.unwrap_or(bridges).max(1);
        // Of several bridges half have hard links instead, see `Workload::of`.
        if bridges > 1 && random.chance(500_000) {
            calm = calm.and(Calm::CONTENTS);
        }
        Plan {
            seed,
            bridges,
            clients: options.clients.unwrap_or(clients),
            steps: options.steps.unwrap_or(steps),
            calm,
            mutation: options.mutation,
        }
    }
}

impl Plan {
    /// The run that the options give which this one prints: a seed may leave out further kinds of bad weather.
    pub(super) fn as_printed(self) -> Self {
        let printed = FaultOptions {
            bridges: Some(self.bridges),
            clients: Some(self.clients),
            steps: Some(self.steps),
            calm: self.calm,
            mutation: self.mutation,
            ..FaultOptions::default()
        };
        Plan::of(self.seed, &printed)
    }
}

/// The options of `forebay sim faults` that give this very run.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "--first {} --seeds 1 --bridges {} --clients {} --steps {}",
            self.seed, self.bridges, self.clients, self.steps
        )?;
        if self.calm != Calm::default() {
            write!(f, " --calm {}", self.calm)?;
        }
        if let Some(mutation) = self.mutation {
            write!(f, " --mutation {mutation:?}")?;
        }
        Ok(())
    }
}
