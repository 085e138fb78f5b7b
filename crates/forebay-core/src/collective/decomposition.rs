//! How the accesses of the processes of a call lie to each other, and what they would be with other numbers of processes.
//!
//! The captured accesses of a few processes are to say what many would access (weak scaling: each process has as many bytes
//! as one that was captured). If all accesses are translations of one, by distances that repeat in the order of ranks, then
//! the processes are a grid: file offsets are a sum over directions of a coordinate times a distance. The strides inside
//! an access and the distances between processes are one nest of levels, sorted by distance. More processes in a direction
//! make its level longer, and every level around it moves apart by as much: rows of an array become longer. Gaps stay: as many
//! bytes behind a row, as many rows behind a plane.
//!
//! Where accesses are no such grid, the call is repeated behind itself.

use super::{Access, Extent};
use std::fmt;

/// More directions than this are no grid of processes.
const MAX_DIRECTIONS: usize = 4;

/// How a call is divided among its processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decomposition {
    processes: u32,
    rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    Grid(Grid),
    /// These accesses, one call behind the other.
    Copies(Vec<Access>),
}

/// Translations of one access.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Grid {
    /// The access of the first process.
    first: Access,
    /// Processes in each direction, that of neighbouring ranks last.
    counts: Vec<u32>,
    /// Innermost first. Directions in which all processes have the same bytes are not among them.
    levels: Vec<Level>,
    /// `first` is no single nest of strides: it moves as a whole.
    is_whole: bool,
}

/// A level of the nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Level {
    of: LevelOf,
    count: u64,
    distance: u64,
}

/// What repeats at a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LevelOf {
    /// Processes of this direction.
    Processes(usize),
    /// Blocks of one process.
    Blocks,
}

/// Why there is no such call with a number of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleError {
    /// A call without a process.
    Nobody,
    /// The call is repeated as a whole, so only multiples of this number can be.
    NoMultipleOf(u32),
    /// It goes beyond [`super::MAX_OFFSET`].
    TooLarge,
}

impl fmt::Display for ScaleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScaleError::Nobody => f.write_str("a call has at least one process"),
            ScaleError::NoMultipleOf(captured) => write!(
                f,
                "these accesses fit no pattern, so the call is repeated as a whole, for multiples of {captured} processes"
            ),
            ScaleError::TooLarge => f.write_str("it goes beyond the largest offset of a file"),
        }
    }
}

impl std::error::Error for ScaleError {}

impl Decomposition {
    /// Looks at the accesses of all processes, in the order of ranks.
    ///
    /// # Panics
    /// If there is no process.
    pub fn of(accesses: &[Access]) -> Self {
        assert!(!accesses.is_empty(), "a call has at least one process");
        let accesses: Vec<Access> = accesses.iter().map(Access::folded).collect();
        let processes = u32::try_from(accesses.len()).expect("ranks are 32-bit numbers");
        let rule = match Grid::of(&accesses) {
            Some(grid) => Rule::Grid(grid),
            None => Rule::Copies(accesses),
        };
        Decomposition { processes, rule }
    }

    /// Is it a grid? Else only multiples of the captured number of processes can be.
    pub fn is_grid(&self) -> bool {
        matches!(self.rule, Rule::Grid(_))
    }

    /// The accesses of `processes` processes. Those of the captured number are what was captured, in folded form.
    ///
    /// # Errors
    /// If there is no such call.
    pub fn scaled(&self, processes: u32) -> Result<Vec<Access>, ScaleError> {
        if processes == 0 {
            return Err(ScaleError::Nobody);
        }
        match &self.rule {
            Rule::Grid(grid) => grid.scaled(&counts_for(&grid.counts, processes)),
            Rule::Copies(accesses) => self.copies(accesses, processes),
        }
    }

    fn copies(&self, accesses: &[Access], processes: u32) -> Result<Vec<Access>, ScaleError> {
        if !processes.is_multiple_of(self.processes) {
            return Err(ScaleError::NoMultipleOf(self.processes));
        }
        let distance = Access::region(accesses).bytes();
        let copy = |number: u32| {
            let away = distance.checked_mul(number.into());
            accesses.iter().map(move |access| {
                let start = access.hull().map_or(0, |hull| hull.start);
                let start = away.and_then(|away| away.checked_add(start));
                let moved = start.map(|start| access.moved_to(start));
                moved.and_then(Result::ok).ok_or(ScaleError::TooLarge)
            })
        };
        (0..processes / self.processes).flat_map(copy).collect()
    }

    /// What it is, and how it is scaled, in words.
    pub fn in_words(&self) -> String {
        match &self.rule {
            Rule::Copies(_) => format!(
                "no pattern was found: the call of {} processes is repeated as a whole, each copy behind the one before",
                self.processes
            ),
            Rule::Grid(grid) => grid.in_words(),
        }
    }

    /// The directions of the processes, as `4 x 2`; one number where there is one direction.
    pub fn grid_in_words(&self, processes: u32) -> String {
        match &self.rule {
            Rule::Copies(_) => format!("{} copies", processes / self.processes),
            Rule::Grid(grid) => in_directions(&counts_for(&grid.counts, processes)),
        }
    }
}

fn in_directions(counts: &[u32]) -> String {
    let each: Vec<String> = counts.iter().map(u32::to_string).collect();
    each.join(" x ")
}

impl Grid {
    fn of(accesses: &[Access]) -> Option<Self> {
        // One process alone shows no pattern.
        let [first, _, ..] = accesses else {
            return None;
        };
        let first = first.clone();
        let origin = first.hull()?.start;
        let mut starts = Vec::new();
        for access in accesses {
            let start = access.hull()?.start;
            if access.moved_to(origin).ok()? != first {
                return None;
            }
            starts.push(start);
        }
        let directions = directions(starts)?;
        let strides: Vec<_> = first.strides().collect();
        let is_whole = strides.len() > 1;
        let blocks = |&(count, distance)| Level {
            of: LevelOf::Blocks,
            count,
            distance,
        };
        let (mut levels, block): (Vec<Level>, u64) = match &strides[..] {
            [(_, block, own)] => (own.iter().map(blocks).collect(), *block),
            _ => (Vec::new(), first.hull()?.bytes()),
        };
        let apart = directions.iter().enumerate().filter(|(_, d)| d.1 > 0);
        levels.extend(apart.map(|(direction, &(count, distance))| Level {
            of: LevelOf::Processes(direction),
            count: count.into(),
            distance,
        }));
        levels.sort_by_key(|level| level.distance);
        // Neighbours may share bytes if nothing lies around them.
        let may_overlap = levels.len() == 1 && !is_whole;
        if !may_overlap && !is_nested(&levels, block) {
            return None;
        }
        Some(Grid {
            first,
            counts: directions.iter().map(|d| d.0).collect(),
            levels,
            is_whole,
        })
    }

    fn scaled(&self, counts: &[u32]) -> Result<Vec<Access>, ScaleError> {
        let levels = self.stretched(counts).ok_or(ScaleError::TooLarge)?;
        let origin = self.first.hull().map_or(0, |hull| hull.start);
        let own = levels.iter().rev().filter(|l| l.of == LevelOf::Blocks);
        let own: Vec<(u64, u64)> = own.map(|l| (l.count, l.distance)).collect();
        let shape = match self.first.strides().next() {
            Some((_, block, _)) if !self.is_whole => Access::strided(origin, block, &own),
            _ => Ok(self.first.clone()),
        };
        let shape = shape.map_err(|_| ScaleError::TooLarge)?;
        let of = |rank: u32| {
            let at = coordinates(rank, counts);
            let mut start = u128::from(origin);
            for level in &levels {
                if let LevelOf::Processes(direction) = level.of {
                    start += u128::from(at[direction]) * u128::from(level.distance);
                }
            }
            let start = u64::try_from(start).map_err(|_| ScaleError::TooLarge)?;
            shape.moved_to(start).map_err(|_| ScaleError::TooLarge)
        };
        (0..counts.iter().product()).map(of).collect()
    }

    /// The levels with other numbers of processes. `None` if a distance becomes too large.
    fn stretched(&self, counts: &[u32]) -> Option<Vec<Level>> {
        let mut all: Vec<(Level, Level)> = Vec::new();
        for level in &self.levels {
            let mut new = *level;
            if let LevelOf::Processes(direction) = level.of {
                new.count = counts[direction].into();
            }
            // The innermost level lies around blocks, which stay as they are.
            if !all.is_empty() {
                new.distance = stretched_distance(level.distance, &all)?;
            }
            all.push((*level, new));
        }
        Some(all.into_iter().map(|(_, new)| new).collect())
    }

    fn in_words(&self) -> String {
        let mut of_processes = self.levels.iter().enumerate();
        let is_of_processes = |(_, l): &(usize, &Level)| matches!(l.of, LevelOf::Processes(_));
        let outermost = self.levels.len().wrapping_sub(1);
        let apart = of_processes.clone().filter(is_of_processes).count();
        let how = match (apart, of_processes.find(is_of_processes)) {
            (0, _) => "every process has the same bytes, and more processes have them too",
            (1, Some((at, _))) if at == outermost => {
                "blocks one behind the other in the order of ranks: more processes have blocks behind them"
            }
            (1, _) => {
                "records of all processes in turns: more processes have records in each turn, and turns become longer"
            }
            _ => "blocks of an array: the array grows with the grid of processes",
        };
        format!("{how} (captured: {})", in_directions(&self.counts))
    }
}

/// The directions of a grid, that of neighbouring ranks last: processes, and the distance between two of them.
fn directions(starts: Vec<u64>) -> Option<Vec<(u32, u64)>> {
    let mut starts = starts;
    let mut directions = Vec::new();
    while let [first, second, ..] = starts[..] {
        let distance = second.checked_sub(first)?;
        let steps = |w: &[u64]| w[1].checked_sub(w[0]) == Some(distance);
        let count = 1 + starts.windows(2).take_while(|w| steps(w)).count();
        let is_row = |row: &[u64]| row.len() == count && row.windows(2).all(steps);
        if !starts.chunks(count).all(is_row) || directions.len() == MAX_DIRECTIONS {
            return None;
        }
        directions.push((count as u32, distance));
        starts = starts.chunks(count).map(|row| row[0]).collect();
    }
    if directions.is_empty() {
        directions.push((1, 0));
    }
    directions.reverse();
    Some(directions)
}

/// What a distance around some levels becomes when they change: so many repetitions of the outermost one of them, which may
/// have a gap of whole repetitions behind them, so many of the next one, and bytes.
fn stretched_distance(distance: u64, inside: &[(Level, Level)]) -> Option<u64> {
    let (mut rest, mut stretched) = (distance, 0_u128);
    // Does what is left still have all of the next level in it, or is it a part of a gap?
    let mut covers = true;
    for (old, new) in inside.iter().rev() {
        let whole = rest / old.distance;
        assert!(
            !covers || whole + 1 >= old.count,
            "a level lies around those inside it"
        );
        rest %= old.distance;
        let more = match covers {
            true => i128::from(new.count) - i128::from(old.count),
            false => 0,
        };
        covers &= whole + 1 == old.count;
        let whole = u128::try_from(i128::from(whole) + more).ok()?;
        stretched = stretched.saturating_add(whole.saturating_mul(new.distance.into()));
    }
    u64::try_from(stretched.saturating_add(rest.into())).ok()
}

/// Does every level lie around those inside it?
fn is_nested(levels: &[Level], block: u64) -> bool {
    let mut span = u128::from(block);
    levels.iter().all(|level| {
        let fits = u128::from(level.distance) >= span;
        span += u128::from(level.count - 1) * u128::from(level.distance);
        fits
    })
}

/// The coordinates of a rank: the last direction is that of neighbouring ranks.
fn coordinates(rank: u32, counts: &[u32]) -> Vec<u32> {
    let mut rest = rank;
    let mut at: Vec<u32> = counts
        .iter()
        .rev()
        .map(|count| {
            let here = rest % count;
            rest /= count;
            here
        })
        .collect();
    at.reverse();
    at
}

/// So many processes in the directions of a grid: all directions grow by factors that are as equal as possible, the first
/// ones more than the last.
fn counts_for(captured: &[u32], processes: u32) -> Vec<u32> {
    let mut best: Option<(Spread, Vec<u32>)> = None;
    each_grid(processes, captured.len(), &mut Vec::new(), &mut |counts| {
        let spread = Spread::of(captured, counts);
        let is_better = match &best {
            None => true,
            Some((least, kept)) => {
                let order = spread.compare(*least);
                order.is_lt() || order.is_eq() && counts > &kept[..]
            }
        };
        if is_better {
            best = Some((spread, counts.to_vec()));
        }
    });
    best.map(|(_, counts)| counts).unwrap_or_default()
}

/// The largest growth of a direction over the smallest, as a fraction.
#[derive(Clone, Copy)]
struct Spread(u128, u128);

impl Spread {
    fn of(captured: &[u32], counts: &[u32]) -> Self {
        let growth = |(&new, &old): (&u32, &u32)| (u128::from(new), u128::from(old));
        let all = || counts.iter().zip(captured).map(growth);
        let by_growth = |a: &(u128, u128), b: &(u128, u128)| (a.0 * b.1).cmp(&(b.0 * a.1));
        let most = all().max_by(by_growth).unwrap_or((1, 1));
        let least = all().min_by(by_growth).unwrap_or((1, 1));
        Spread(most.0 * least.1, most.1 * least.0)
    }

    fn compare(self, other: Spread) -> std::cmp::Ordering {
        (self.0 * other.1).cmp(&(other.0 * self.1))
    }
}

/// Calls `hear` with every way to write a number as a product of so many factors.
fn each_grid(number: u32, factors: usize, before: &mut Vec<u32>, hear: &mut impl FnMut(&[u32])) {
    if factors == 1 {
        before.push(number);
        hear(before);
        before.pop();
        return;
    }
    for factor in (1..=number).filter(|factor| number.is_multiple_of(*factor)) {
        before.push(factor);
        each_grid(number / factor, factors - 1, before, hear);
        before.pop();
    }
}

/// What a call is without the place where it begins: accesses whose region begins at 0.
pub fn moved_to_front(accesses: &[Access]) -> Vec<Access> {
    let Extent { start, .. } = Access::region(accesses);
    let moved = accesses.iter().map(|access| {
        let own = access.hull().map_or(start, |hull| hull.start);
        access.moved_to(own - start)
    });
    moved
        .map(|access| access.expect("it moves to the front"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::counts_for;

    #[test]
    fn a_grid_grows_alike_in_all_directions_and_first_in_the_first() {
        assert_eq!(counts_for(&[2, 2], 4), [2, 2]);
        assert_eq!(counts_for(&[2, 2], 8), [4, 2]);
        assert_eq!(counts_for(&[2, 2], 1024), [32, 32]);
        assert_eq!(counts_for(&[4, 2, 2], 128), [8, 4, 4]);
        assert_eq!(counts_for(&[2, 4], 128), [8, 16]);
        assert_eq!(counts_for(&[3], 17), [17]);
        assert_eq!(counts_for(&[2, 2], 17), [17, 1]);
        assert_eq!(counts_for(&[2, 2], 1), [1, 1]);
        assert_eq!(counts_for(&[5, 7], 35), [5, 7]);
    }
}
