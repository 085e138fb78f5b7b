//! Decides which processes are ranks: one pure function from the process tree of a job to rank numbers.
//!
//! - A process that says which rank it is (by MPI, or a launcher's environment) is that rank. Its children and what
//!   it executes belong to the same rank.
//! - Every launch in the job (two `mpirun` in a script) gets a range of ranks of its own, in the order of start.
//! - Processes outside of any launch (`prep.py` before `mpirun`) are gathered into workers by [`workers`]. Each worker
//!   gets a rank, after those of launches, in the order in which they began. A job without launches has no other ranks.
//! - A process that only starts others (`mpirun`, its proxies, the shell around it) is no rank.

mod workers;

use std::collections::{BTreeMap, HashMap, HashSet};

/// Most ranks that are believed. Only a damaged table claims more.
pub const MOST_RANKS: u32 = 1 << 24;

/// What a process says of its own rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Its number in the launch.
    pub rank: u32,
    /// Ranks of the launch.
    pub size: u32,
    /// A number that all ranks of the launch have in common, and no others; 0 if unknown.
    pub key: u64,
    /// True if MPI itself said so, false if the environment did.
    pub by_mpi: bool,
}

/// One process, with all programs that it has executed one after the other.
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// Name of its machine.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Process id of its parent when it was first seen.
    pub parent_pid: u32,
    /// Start in clock ticks since the boot of its machine.
    pub start_ticks: u64,
    /// First sign of life, in nanoseconds since 1970.
    pub first_ns: u64,
    /// Last sign of life, in nanoseconds since 1970.
    pub last_ns: u64,
    /// File names of the programs that it executed, without directories. A Python program counts by the name of its
    /// script or module.
    pub programs: Vec<String>,
    /// The rank that it says it is, if it says so.
    pub claim: Option<Claim>,
    /// When the first of its programs with a record began, in nanoseconds since 1970; `None` if none has one.
    pub io_ns: Option<u64>,
    /// How much I/O it did: bytes, and [`CALL_WEIGHT`] for each file that it used and each call on a name.
    pub weight: u64,
}

/// A file, or a call on a name, weighs as much as so many bytes.
pub const CALL_WEIGHT: u64 = 4096;

/// What a process is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Its records belong to this rank.
    Rank(u32),
    /// It started others. Its bytes are in a total only.
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
    /// How many of its ranks have left a table.
    pub seen: u32,
    /// True if MPI gave the ranks.
    pub by_mpi: bool,
}

/// The ranks of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    /// One for each process, in the order of the argument of [`assign`].
    pub roles: Vec<Role>,
    /// The launches, in the order of their ranks.
    pub launches: Vec<Launch>,
    /// How many workers there are outside of launches. Their ranks follow those of the launches.
    pub single: u32,
}

impl Ranks {
    /// True if ranks are those of a parallel program, which wait for each other.
    pub fn is_parallel(&self) -> bool {
        self.launches.iter().any(|launch| launch.size > 1)
    }

    /// How many ranks the log has, at least one.
    pub fn count(&self) -> u32 {
        (self.launched() + self.single).max(1)
    }

    /// How many ranks are those of launches.
    fn launched(&self) -> u32 {
        self.launches.iter().map(|launch| launch.size).sum()
    }
}

/// Forebay's own command, as a program of a job: `forebay attach` in a script.
pub const FOREBAY: &str = "forebay";

/// Programs that start ranks and are none.
const LAUNCHERS: &[&str] = &[
    FOREBAY,
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

/// Programs that are no ranks if they are above one: they only run others then.
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
    let parents: HashSet<usize> = tree.parent.iter().flatten().copied().collect();
    let (mut outside, mut reaches) = (Vec::new(), HashSet::new());
    for at in tree.in_order() {
        let process = &processes[at];
        if roles[at] != Role::Silent {
            continue;
        }
        let is_wrapper = is_any(process, WRAPPERS);
        // Whatever a launcher reaches other nodes by: a script in the place of ssh, and the programs of that.
        let by_launcher = !launches.is_empty()
            && tree.parent[at].is_some_and(|parent| {
                let above = &processes[parent];
                reaches.contains(&parent) || is_any(above, LAUNCHERS) && !is_any(above, &[FOREBAY])
            });
        if by_launcher {
            reaches.insert(at);
        }
        // A program may have the name of a launcher and be none.
        let is_launcher = is_any(process, &[FOREBAY])
            || is_any(process, LAUNCHERS) && (!launches.is_empty() || parents.contains(&at));
        if is_launcher || by_launcher || is_wrapper && above.contains(&at) {
            roles[at] = Role::Launcher;
        }
        outside.push(workers::Member {
            at,
            parent: tree.parent[at],
            is_launcher: roles[at] == Role::Launcher,
            is_wrapper,
        });
    }
    let mut single = 0;
    for worker in workers::gather(processes, &outside) {
        if first + single >= MOST_RANKS {
            break;
        }
        for at in worker {
            roles[at] = Role::Rank(first + single);
        }
        single += 1;
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

/// A launch while its ranks are being collected.
struct Found {
    members: Vec<usize>,
    size: u32,
    first_ns: u64,
    host: String,
    /// By rank, the last sign of life of its processes.
    last_ns: HashMap<u32, u64>,
}

impl<'p> Tree<'p> {
    fn new(processes: &'p [Process]) -> Self {
        let mut by_pid: HashMap<(&str, u32), Vec<usize>> = HashMap::new();
        for (at, process) in processes.iter().enumerate() {
            let same = by_pid.entry((&process.host, process.pid)).or_default();
            same.push(at);
        }
        // Process ids are reused. The parent is the youngest process with that id that is not younger than the child.
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

    /// The process and all above it. It ends, because a parent is always before its child in [`order`].
    fn upwards(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(from), |&at| self.parent[at])
    }

    /// All processes, parents before their children.
    fn in_order(&self) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.processes.len()).collect();
        all.sort_by_key(|&at| order(&self.processes[at]));
        all
    }

    fn in_start_order(&self) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.processes.len()).collect();
        all.sort_by_key(|&at| {
            let p = &self.processes[at];
            (p.first_ns, &p.host, p.start_ticks, p.pid)
        });
        all
    }

    /// The claims that can be true. A launch of one rank with another launch below it only started that one: a batch
    /// script, for example, is rank 0 of 1.
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
                // The same rank began again after its end, so the program was launched once more from the same place.
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
            // The proxy has no table, so its process id must do.
            started: self.parent[top].map(|at| self.processes[at].start_ticks),
            size: claim.size,
        }
    }

    /// Gives children the rank of the process that started them.
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

/// A key by which parents come before their children, whatever the clock says.
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

/// Joins launches over hosts. If the ranks of a launch have no common key, it looks like one launch per host. Those
/// that have the same size, other hosts, no rank twice, and run at the same time are one.
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
