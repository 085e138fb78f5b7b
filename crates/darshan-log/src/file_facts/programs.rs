//! The programs that a job has run: who started whom, when, and what became of them.

use super::Unread;

/// Bytes of a program without its command.
const PROGRAM_BYTES: usize = 64;
/// Stands for no parent and for no rank.
const NONE: u32 = u32::MAX;

/// A program that a process of the job has executed. A process that executes several has several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The program that started it, as an index into the programs of the job: that of the parent process, or the one
    /// that the process executed before. It is less than the program's own index.
    pub parent: Option<u32>,
    /// Process id.
    pub pid: u32,
    /// The rank that it counts for, if it counts for any.
    pub rank: Option<u32>,
    /// How it ended.
    pub end: ProgramEnd,
    /// First sign of life, nanoseconds since the start of the job.
    pub start_ns: i64,
    /// Last sign of life, nanoseconds since the start of the job.
    pub end_ns: i64,
    /// Bytes that its calls have read from files.
    pub bytes_read: u64,
    /// Bytes that they have written.
    pub bytes_written: u64,
    /// Nanoseconds that these calls took, of all threads together.
    pub call_ns: u64,
    /// Its command line.
    pub command: String,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgramEnd {
    /// Nothing is known.
    #[default]
    Unknown,
    /// It exited with this code.
    Exited(i32),
    /// It executed the next program.
    Executed,
    /// It was killed, or ended itself by a signal.
    Killed,
    /// It still ran when the log was written.
    Runs,
}

impl ProgramEnd {
    fn to_words(self) -> [u32; 2] {
        match self {
            ProgramEnd::Unknown => [0, 0],
            ProgramEnd::Exited(code) => [1, code as u32],
            ProgramEnd::Executed => [2, 0],
            ProgramEnd::Killed => [3, 0],
            ProgramEnd::Runs => [4, 0],
        }
    }

    fn from_words(kind: u32, code: u32) -> Self {
        match kind {
            1 => ProgramEnd::Exited(code as i32),
            2 => ProgramEnd::Executed,
            3 => ProgramEnd::Killed,
            4 => ProgramEnd::Runs,
            _ => ProgramEnd::Unknown,
        }
    }
}

/// How much each program matters: its share of all bytes, and its share of all seconds in calls.
pub fn weights(amounts: impl Iterator<Item = (f64, f64)> + Clone) -> Vec<f64> {
    let all = amounts.clone().fold((0.0, 0.0), |sum: (f64, f64), one| {
        (sum.0 + one.0, sum.1 + one.1)
    });
    let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
    amounts
        .map(|one| share(one.0, all.0) + share(one.1, all.1))
        .collect()
}

/// Chooses the programs that weigh most, at most so many of them, and with each all that started it. Of equal ones, the
/// first are chosen. A parent has a lower index than its children. Returns which ones are chosen.
pub fn heaviest(parents: &[Option<usize>], weights: &[f64], most: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..parents.len()).collect();
    order.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
    let mut is_chosen = vec![false; parents.len()];
    let mut left = most;
    for at in order {
        if left == 0 {
            break;
        }
        let missing: Vec<usize> = std::iter::successors(Some(at), |at| parents[*at])
            .take_while(|at| !is_chosen[*at])
            .take(left + 1)
            .collect();
        if missing.len() > left {
            continue;
        }
        left -= missing.len();
        for at in missing {
            is_chosen[at] = true;
        }
    }
    is_chosen
}

pub(super) fn encode(programs: &[Program], plain: &mut Vec<u8>) {
    plain.extend((programs.len() as u32).to_le_bytes());
    plain.extend((PROGRAM_BYTES as u32).to_le_bytes());
    for program in programs {
        let [end, code] = program.end.to_words();
        for word in [
            program.parent.unwrap_or(NONE),
            program.pid,
            program.rank.unwrap_or(NONE),
            end,
            code,
            program.command.len() as u32,
        ] {
            plain.extend(word.to_le_bytes());
        }
        plain.extend(program.start_ns.to_le_bytes());
        plain.extend(program.end_ns.to_le_bytes());
        for word in [program.bytes_read, program.bytes_written, program.call_ns] {
            plain.extend(word.to_le_bytes());
        }
        plain.extend(program.command.as_bytes());
    }
}

pub(super) fn decode(words: &mut Unread) -> Result<Vec<Program>, String> {
    let count = words.u32()?;
    let bytes = words.u32()? as usize;
    if bytes < PROGRAM_BYTES {
        return Err(format!("programs of {bytes} bytes"));
    }
    let mut programs = Vec::new();
    for at in 0..count {
        let mut head = Unread(words.bytes(bytes)?);
        let (parent, pid, rank) = (head.u32()?, head.u32()?, head.u32()?);
        let end = ProgramEnd::from_words(head.u32()?, head.u32()?);
        let length = head.u32()? as usize;
        programs.push(Program {
            // A parent comes before its children, so nobody who follows parents goes in circles.
            parent: (parent < at).then_some(parent),
            pid,
            rank: (rank != NONE).then_some(rank),
            end,
            start_ns: head.i64()?,
            end_ns: head.i64()?,
            bytes_read: head.u64()?,
            bytes_written: head.u64()?,
            call_ns: head.u64()?,
            command: String::from_utf8_lossy(words.bytes(length)?).into_owned(),
        });
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_programs_are_chosen_with_all_that_started_them() {
        let parents = [None, Some(0), Some(0), Some(2), Some(3), Some(0)];
        let amounts = [
            (0.0, 0.0),
            (1.0, 0.0),
            (0.0, 0.0),
            (0.0, 0.0),
            (1.0, 4.0),
            (2.0, 0.0),
        ];
        let weights = weights(amounts.into_iter());
        assert!((weights[4] - 1.25).abs() < 1e-9 && (weights[5] - 0.5).abs() < 1e-9);
        let chosen = |most| heaviest(&parents, &weights, most);
        assert_eq!(chosen(6), [true; 6]);
        assert_eq!(chosen(5), [true, false, true, true, true, true]);
        // The way to the heaviest one is too long: the next ones are taken.
        assert_eq!(chosen(3), [true, true, false, false, false, true]);
        assert_eq!(chosen(0), [false; 6]);
    }
}
