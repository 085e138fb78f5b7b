//! Who is a rank: one pure function from the process tree of a job to rank numbers.
//!
//! - A process that says which rank it is (MPI, or a launcher's environment) is one, and so are, with the
//!   same number, its children and whatever it executes.
//! - Every launch in the job (two `mpirun` in a script) gets a range of ranks of its own, in start order.
//! - Processes outside of any launch that have done I/O (`prep.py` before `mpirun`) come after the ranks,
//!   each with a number of its own, in the order in which the programs that did it began; in a job without
//!   launches they are all there is.
//! - What only starts others (`mpirun`, its proxies, the shell around it) is no rank.

use std::collections::{BTreeMap, HashMap, HashSet};

/// A job with more ranks than this is a damaged table that claims so.
pub const MOST_RANKS: u32 = 1 << 24;

/// What a process says of its own rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Its number in the launch.
    pub rank: u32,
    /// Ranks of the launch.
    pub size: u32,
    /// What all ranks of the launch, and no others, have in common; 0 if nothing is known.
    pub key: u64,
    /// Did MPI itself say so? Otherwise it is from the environment.
    pub by_mpi: bool,
}

/// One process, whatever programs it has executed one after the other.
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// Name of its machine.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Its parent when it was first seen.
    pub parent_pid: u32,
    /// Start in clock ticks since the boot of its machine.
    pub start_ticks: u64,
    /// First and last sign of life, in nanoseconds since 1970.
    pub first_ns: u64,
    /// See `first_ns`.
    pub last_ns: u64,
    /// File names of the programs that it executed, without directories; of a Python program that of its
    /// script, or its module.
    pub programs: Vec<String>,
    /// Its rank, if it has one of its own.
    pub claim: Option<Claim>,
    /// When the first of its programs began that has left a record, in nanoseconds since 1970.
    pub io_ns: Option<u64>,
}

/// What a process is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Its records belong to this rank.
    Rank(u32),
    /// It started others; its bytes are in a total only.
    Launcher,
    /// It has no rank and no records.
    Silent,
}

/// Ranks that were started together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Its rank 0 in the log.
    pub first_rank: u32,
    /// How many ranks it says it has.
    pub size: u32,
    /// How many of them have left a table.
    pub seen: u32,
    /// Was it MPI that gave the ranks?
    pub by_mpi: bool,
}

/// The ranks of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    /// One for each process, in the order of the argument of [`assign`].
    pub roles: Vec<Role>,
    /// The launches, in the order of their ranks.
    pub launches: Vec<Launch>,
    /// Processes outside of launches that have a rank each; their ranks follow those of the launches.
    pub single: u32,
}

impl Ranks {
    /// All ranks of the log; a job has at least one.
    pub fn count(&self) -> u32 {
        (self.launched() + self.single).max(1)
    }

    /// The ranks of launches.
    fn launched(&self) -> u32 {
        self.launches.iter().map(|launch| launch.size).sum()
    }
}

/// Programs that start ranks, and have none.
const LAUNCHERS: &[&str] = &[
    "mpirun",
    "mpiexec",
    "mpiexec.mpich",
    "mpirun.mpich",
    "mpiexec.hydra",
    "hydra_pmi_proxy",
    "hydra_bstrap_proxy",
    "mpiexec.openmpi",
    "mpirun.openmpi",
    "orterun",
    "orted",
    "prterun",
    "prte",
    "prted",
    "srun",
    "slurmstepd",
    "aprun",
    "palsd",
    "jsrun",
    "flux",
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "ssh",
    "rsh",
];

/// Programs that only run others, when they are above a rank.
const WRAPPERS: &[&str] = &[
    "sh", "bash", "dash", "zsh", "ksh", "ash", "env", "time", "timeout", "nice", "nohup", "setsid",
    "numactl", "taskset", "stdbuf", "make", "gmake", "xargs", "parallel",
];

/// Gives every process of a job its role.
pub fn assign(processes: &[Process]) -> Ranks {
    let tree = Tree::new(processes);
    let claims = tree.valid_claims();
    let launches = tree.launches(&claims);
    let mut roles = vec![Role::Silent; processes.len()];
    let mut first = 0_u32;
    let mut said = Vec::new();
    for launch in &launches {
        if first.saturating_add(launch.size) > MOST_RANKS {
            continue;
        }
        let mut seen = HashSet::new();
        for &at in &launch.members {
            if let Some(claim) = &claims[at] {
                roles[at] = Role::Rank(first + claim.rank);
                seen.insert(claim.rank);
            }
        }
        said.push(Launch {
            first_rank: first,
            size: launch.size,
            seen: seen.len() as u32,
            by_mpi: launch.members.iter().any(|&at| is_by_mpi(&claims[at])),
        });
        first += launch.size;
    }
    tree.children_follow(&mut roles);
    let above = tree.above_ranks(&roles);
    let mut single = 0;
    let mut by_io = tree.in_start_order();
    by_io.sort_by_key(|&at| processes[at].io_ns);
    for at in by_io {
        let process = &processes[at];
        if roles[at] != Role::Silent {
            continue;
        }
        if is_any(process, LAUNCHERS) || (above.contains(&at) && is_any(process, WRAPPERS)) {
            roles[at] = Role::Launcher;
        } else if process.io_ns.is_some() && first + single < MOST_RANKS {
            roles[at] = Role::Rank(first + single);
            single += 1;
        }
    }
    Ranks {
        roles,
        launches: said,
        single,
    }
}

fn is_by_mpi(claim: &Option<Claim>) -> bool {
    claim.as_ref().is_some_and(|claim| claim.by_mpi)
}

fn is_any(process: &Process, names: &[&str]) -> bool {
    let last = process.programs.last().map(String::as_str);
    last.is_some_and(|name| names.contains(&name))
}

/// The processes with their parents.
struct Tree<'p> {
    processes: &'p [Process],
    parent: Vec<Option<usize>>,
}

/// A launch while it is found out who belongs to it.
struct Found {
    members: Vec<usize>,
    size: u32,
    first_ns: u64,
    host: String,
    /// Per rank, when the last of its processes was alive.
    last_ns: HashMap<u32, u64>,
}

impl<'p> Tree<'p> {
    fn new(processes: &'p [Process]) -> Self {
        let mut by_pid: HashMap<(&str, u32), Vec<usize>> = HashMap::new();
        for (at, process) in processes.iter().enumerate() {
            let same = by_pid.entry((&process.host, process.pid)).or_default();
            same.push(at);
        }
        // Process ids come again: the parent is the youngest that is not younger than the child.
        let parent_of = |child: &Process| {
            by_pid
                .get(&(child.host.as_str(), child.parent_pid))?
                .iter()
                .copied()
                .filter(|&at| order(&processes[at]) < order(child))
                .max_by_key(|&at| order(&processes[at]))
        };
        Tree {
            processes,
            parent: processes.iter().map(parent_of).collect(),
        }
    }

    /// The process and all above it. Ends, because a parent always is before its child in [`order`].
    fn upwards(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(from), |&at| self.parent[at])
    }

    fn in_start_order(&self) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.processes.len()).collect();
        all.sort_by_key(|&at| {
            let p = &self.processes[at];
            (p.first_ns, &p.host, p.start_ticks, p.pid)
        });
        all
    }

    /// The claims that can be true. A launch of one rank below which another one runs is only the place
    /// from which that was started (a batch script has rank 0 of 1).
    fn valid_claims(&self) -> Vec<Option<Claim>> {
        let possible = |claim: &Claim| claim.rank < claim.size && claim.size <= MOST_RANKS;
        let mut claims: Vec<Option<Claim>> = self
            .processes
            .iter()
            .map(|process| process.claim.filter(possible))
            .collect();
        let mut outdone = HashSet::new();
        for (at, claim) in claims.iter().enumerate() {
            let Some(claim) = claim else { continue };
            for above in self.upwards(at).skip(1) {
                if let Some(other) = &claims[above]
                    && other.size == 1
                    && claim.size > 1
                {
                    outdone.insert(above);
                }
            }
        }
        for at in outdone {
            claims[at] = None;
        }
        claims
    }

    /// The highest process above this one that claims the same rank.
    fn top_of(&self, from: usize, claims: &[Option<Claim>]) -> usize {
        let mine = claims[from].as_ref();
        self.upwards(from)
            .take_while(|&at| match (mine, claims[at].as_ref()) {
                (Some(a), Some(b)) => (a.rank, a.size) == (b.rank, b.size),
                _ => false,
            })
            .last()
            .unwrap_or(from)
    }

    fn launches(&self, claims: &[Option<Claim>]) -> Vec<Found> {
        let mut tops: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in (0..claims.len()).filter(|&at| claims[at].is_some()) {
            tops.entry(self.top_of(at, claims)).or_default().push(at);
        }
        let mut launches: Vec<Found> = Vec::new();
        let mut running: HashMap<LaunchId, usize> = HashMap::new();
        for top in self.in_start_order() {
            let (Some(members), Some(claim)) = (tops.remove(&top), claims[top].as_ref()) else {
                continue;
            };
            let process = &self.processes[top];
            let id = self.launch_id(top, claim);
            let open = running.get(&id).copied().filter(|&at| {
                // The same rank again after its end: launched once more from the same place.
                let before = launches[at].last_ns.get(&claim.rank);
                claim.size > 1 && before.is_none_or(|&last| last >= process.first_ns)
            });
            let at = open.unwrap_or_else(|| {
                launches.push(Found {
                    members: Vec::new(),
                    size: claim.size,
                    first_ns: process.first_ns,
                    host: process.host.clone(),
                    last_ns: HashMap::new(),
                });
                launches.len() - 1
            });
            running.insert(id, at);
            let launch = &mut launches[at];
            for &member in &members {
                let last = launch.last_ns.entry(claim.rank).or_default();
                *last = (*last).max(self.processes[member].last_ns);
            }
            launch.members.extend(members);
        }
        join_hosts(launches)
    }

    fn launch_id(&self, top: usize, claim: &Claim) -> LaunchId {
        let process = &self.processes[top];
        if claim.size == 1 {
            return LaunchId::Process(top);
        }
        if claim.key != 0 {
            return LaunchId::Key(claim.key, claim.size);
        }
        LaunchId::Parent {
            host: process.host.clone(),
            pid: process.parent_pid,
            // A proxy without a table: its id must do.
            started: self.parent[top].map(|at| self.processes[at].start_ticks),
            size: claim.size,
        }
    }

    /// Children belong to the rank that started them.
    fn children_follow(&self, roles: &mut [Role]) {
        for at in 0..roles.len() {
            if roles[at] == Role::Silent {
                let rank = self.upwards(at).find_map(|above| match roles[above] {
                    Role::Rank(rank) => Some(Role::Rank(rank)),
                    _ => None,
                });
                roles[at] = rank.unwrap_or(Role::Silent);
            }
        }
    }

    fn above_ranks(&self, roles: &[Role]) -> HashSet<usize> {
        let mut above = HashSet::new();
        for at in (0..roles.len()).filter(|&at| matches!(roles[at], Role::Rank(_))) {
            for parent in self.upwards(at).skip(1) {
                if roles[parent] == Role::Silent && !above.insert(parent) {
                    break;
                }
            }
        }
        above
    }
}

/// Parents come before their children, whatever the clock says.
fn order(process: &Process) -> (u64, u64, u32) {
    (process.start_ticks, process.first_ns, process.pid)
}

/// What tells launches apart.
#[derive(Debug, PartialEq, Eq, Hash)]
enum LaunchId {
    Process(usize),
    Key(u64, u32),
    Parent {
        host: String,
        pid: u32,
        started: Option<u64>,
        size: u32,
    },
}

/// Launches whose ranks have no common key look like one per host. Those that fit together (same size, other hosts, no
/// rank twice, and at the same time) are one.
fn join_hosts(found: Vec<Found>) -> Vec<Found> {
    let mut joined: Vec<(Found, HashSet<String>)> = Vec::new();
    for launch in found {
        let end = |launch: &Found| launch.last_ns.values().copied().max().unwrap_or(0);
        let fits = |(other, hosts): &(Found, HashSet<String>)| {
            launch.size > 1
                && other.size == launch.size
                && !hosts.contains(&launch.host)
                && launch.first_ns <= end(other)
                && other.first_ns <= end(&launch)
                && launch
                    .last_ns
                    .keys()
                    .all(|rank| !other.last_ns.contains_key(rank))
        };
        match joined.iter().position(fits) {
            Some(at) => {
                let (other, hosts) = &mut joined[at];
                hosts.insert(launch.host);
                other.members.extend(launch.members);
                other.last_ns.extend(launch.last_ns);
            }
            None => {
                let hosts = HashSet::from([launch.host.clone()]);
                joined.push((launch, hosts));
            }
        }
    }
    joined.into_iter().map(|(launch, _)| launch).collect()
}

#[cfg(test)]
mod tests;
