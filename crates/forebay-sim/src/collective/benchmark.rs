//! The benchmark of the paper: ROMIO's `coll_perf`, which writes and reads a 3-D array that is divided in all directions.

use super::locks::Locks;
use super::machine::{self, Direction, Outcome, Schedule, System};
use super::parameters::{ELEMENT_BYTES, Figure, Parameters};
use forebay_core::collective::{
    Access, ExchangePlan, FileDomains, Method, MethodChoice, Situation, aggregators, choose,
    fitting_count,
};

/// One point of a figure or a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Processes.
    pub processes: u32,
    /// Aggregators that the method has used.
    pub aggregators: u32,
    /// How the file was divided.
    pub method: Method,
    /// The collective write, without a lock held before.
    pub write: Outcome,
    /// The collective read, without a lock held before.
    pub read: Outcome,
}

/// Runs one point with an aggregator on each node, but no more than `most`.
pub fn measure(system: &System, method: Method, most: u32, side: u64, processes: u32) -> Point {
    let accesses = array_blocks(side, processes);
    let mut points = measure_accesses(system, method, most, &[system.locks], &accesses);
    points.remove(0)
}

/// Runs one call under several lock managers with an aggregator on each node, but no more than `most`. Gives a point for
/// each manager.
pub(super) fn measure_accesses(
    system: &System,
    method: Method,
    most: u32,
    managers: &[Locks],
    accesses: &[Access],
) -> Vec<Point> {
    let processes = accesses.len() as u32;
    let used = aggregators_of(system, method, most, processes);
    let region = Access::region(accesses);
    let domains = FileDomains::new(method, region, used, system.layout());
    let plan = ExchangePlan::new(domains, system.buffer_bytes, accesses);
    let schedule = Schedule::new(system, &plan, accesses);
    let under = |&locks: &Locks| {
        let system = System {
            locks,
            ..system.clone()
        };
        Point {
            processes,
            aggregators: used,
            method,
            write: machine::run(&system, &schedule, Direction::Write),
            read: machine::run(&system, &schedule, Direction::Read),
        }
    };
    managers.iter().map(under).collect()
}

/// What core chooses on a system.
pub fn choice(system: &System, processes: u32) -> MethodChoice {
    choose(&Situation {
        protocol: system.locks.protocol(),
        aggregators: nodes(system, processes),
        layout: system.layout(),
        knows_servers: true,
    })
}

/// Runs all points of a figure: for each side, each number of processes, each method of [`Method::ALL`].
///
/// # Panics
/// If the figure is not of these parameters.
pub fn run_figure(parameters: &Parameters, figure: &Figure) -> Vec<Point> {
    let system = &parameters.systems[&figure.system];
    let mut points = Vec::new();
    for &side in &figure.sides {
        for &processes in &figure.processes {
            let all = Method::ALL.map(|method| measure(system, method, u32::MAX, side, processes));
            points.extend(all);
        }
    }
    points
}

/// Aggregators that a method uses: one on each node, but no more than `most`, and as many as fit it.
pub(super) fn aggregators_of(system: &System, method: Method, most: u32, processes: u32) -> u32 {
    fitting_count(method, nodes(system, processes).min(most), system.servers)
}

/// Nodes, each with an aggregator.
fn nodes(system: &System, processes: u32) -> u32 {
    let of: Vec<u32> = (0..processes).map(|p| p / system.ranks_per_node).collect();
    aggregators(&of, 1, u32::MAX).len() as u32
}

/// What each process of the benchmark accesses: its block of the array, processes and array in row-major order. `side` is the
/// length of the cube of a process, in elements.
pub fn array_blocks(side: u64, processes: u32) -> Vec<Access> {
    let grid = grid(processes);
    let of = |process: u32| {
        let mut rest = process;
        let (mut start, mut stride) = (0, ELEMENT_BYTES);
        let mut levels = [(side, 0); 3];
        for (level, count) in levels.iter_mut().zip(grid).rev() {
            level.1 = stride;
            start += u64::from(rest % count) * side * stride;
            stride *= u64::from(count) * side;
            rest /= count;
        }
        Access::strided(start, ELEMENT_BYTES, &levels).expect("the file is small enough")
    };
    (0..processes).map(of).collect()
}

/// Processes in three directions, as equal as possible, the most first (`MPI_Dims_create`).
fn grid(processes: u32) -> [u32; 3] {
    let mut best = [processes, 1, 1];
    for c in (1..=processes).filter(|c| processes.is_multiple_of(*c)) {
        let rest = processes / c;
        for b in (c..=rest).filter(|b| rest.is_multiple_of(*b)) {
            let a = rest / b;
            if a >= b && a - c < best[0] - best[2] {
                best = [a, b, c];
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::grid;

    #[test]
    fn processes_are_divided_in_three_directions_as_equally_as_possible() {
        assert_eq!(grid(1), [1, 1, 1]);
        assert_eq!(grid(7), [7, 1, 1]);
        assert_eq!(grid(16), [4, 2, 2]);
        assert_eq!(grid(64), [4, 4, 4]);
        assert_eq!(grid(512), [8, 8, 8]);
        assert_eq!(grid(1024), [16, 8, 8]);
    }
}
