//! Which processes are ranks that wait for each other, and how they are called. A job script may also run steps of one
//! process (`prep.py` before `mpiexec`): the log numbers these behind the ranks, but nobody waits for them.

use super::Job;
use crate::text::speak_of_processes;
use crate::units;

impl Job {
    /// True if the process with this number is a rank of a parallel program. Where the log names no launch, all of an MPI
    /// program are.
    pub fn is_rank(&self, number: u32) -> bool {
        match self.launches.is_empty() {
            true => self.is_mpi(),
            false => self.launches.iter().any(|launch| launch.contains(&number)),
        }
    }

    /// How many ranks of parallel programs there are.
    pub fn rank_count(&self) -> u32 {
        if self.launches.is_empty() {
            return if self.is_mpi() { self.ranks } else { 0 };
        }
        self.launches.iter().map(|launch| launch.len() as u32).sum()
    }

    /// How many steps of one process there are beside ranks; 0 in a job without ranks.
    pub fn serial_steps(&self) -> u32 {
        match self.rank_count() {
            0 => 0,
            ranks => self.ranks.saturating_sub(ranks),
        }
    }

    /// True if the job ran in a buffer, as far as the recorder noted it.
    pub fn is_buffered(&self) -> bool {
        self.metadata.contains_key("buffer")
    }

    /// The word for one of the job's processes: "rank" if all of them are.
    pub fn who(&self) -> &'static str {
        if self.is_mpi() && self.serial_steps() == 0 {
            "rank"
        } else {
            "process"
        }
    }

    /// A text that speaks of ranks, in the word for this job's processes.
    pub(crate) fn say(&self, text: &str) -> String {
        match self.who() {
            "rank" => text.to_owned(),
            _ => speak_of_processes(text),
        }
    }

    /// So many of them: "3 ranks", "1 process".
    pub fn count_of(&self, n: u32) -> String {
        let (one, many) = match self.who() {
            "rank" => ("rank", "ranks"),
            _ => ("process", "processes"),
        };
        units::count(n.into(), one, many)
    }

    /// All of them: "2 ranks and 1 serial step".
    pub fn all_text(&self) -> String {
        match self.serial_steps() {
            0 => self.count_of(self.ranks),
            steps => format!(
                "{} and {}",
                units::count(self.rank_count().into(), "rank", "ranks"),
                units::count(steps.into(), "serial step", "serial steps")
            ),
        }
    }

    /// What a process with this number is called: "rank 3", "process 0", "serial step perl".
    pub fn name_of(&self, number: u32) -> String {
        if self.serial_steps() == 0 || self.is_rank(number) {
            let who = if self.is_rank(number) {
                "rank"
            } else {
                "process"
            };
            return format!("{who} {number}");
        }
        match self.program_of(number) {
            Some(program) => format!("serial step {program}"),
            None => format!("serial step {}", number - self.rank_count()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sample::*;

    #[test]
    fn ranks_are_those_of_launches_and_what_runs_beside_them_is_a_step() {
        let mut job = mpi_job(4);
        assert_eq!(job.all_text(), "4 ranks");
        assert_eq!((job.who(), job.name_of(3).as_str()), ("rank", "rank 3"));
        job.ranks = 6;
        assert_eq!(job.all_text(), "4 ranks and 2 serial steps");
        assert_eq!(job.who(), "process");
        assert_eq!(job.name_of(3), "rank 3");
        assert_eq!(job.name_of(5), "serial step 1");
        let plain = plain_job(1);
        assert_eq!(plain.all_text(), "1 process");
        assert_eq!(plain.name_of(0), "process 0");
    }
}
