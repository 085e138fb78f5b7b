//! Which ranks use which files, and whose records a log joins into one.
//!
//! Darshan joins the records of a file that all ranks of `MPI_COMM_WORLD` have used (rank -1), and keeps one record per
//! rank of any other file. Here a launch takes the place of `MPI_COMM_WORLD`. Records are joined if every launch that
//! has used the file has done so with all its ranks. Processes outside of launches (`prep.py`) don't hinder that, and keep
//! records of their own. In a job without launches all ranks must have used the file. At least two ranks must have.

use crate::image::Entry;
use crate::ranks::Ranks;
use darshan_log::file_facts::FileFacts;
use forebay_count::Kind;
use std::collections::HashMap;

/// The ranks that use each record and each file.
pub struct FileUsers {
    /// For each launch the first rank after it, ascending.
    launch_ends: Vec<u32>,
    ranks: u32,
    /// Users of records, by interface and id.
    records: HashMap<(Kind, u64), Users>,
    /// Users of files, over all interfaces.
    files: HashMap<u64, (Users, Origin)>,
}

/// The ranks that use one record or file. They are added in ascending order.
#[derive(Debug, Clone, Copy, Default)]
struct Users {
    count: u32,
    lowest: u32,
    highest: u32,
    /// How many of them are ranks of launches.
    launched: u32,
    /// Ranks so far in the launch of `highest`.
    in_launch: u32,
    /// True if only some ranks of a launch used it.
    partly: bool,
}

/// What a file was when it was first opened.
#[derive(Debug, Clone, Copy, Default)]
struct Origin {
    opened_ns: u64,
    size: Option<u64>,
    created: Option<bool>,
    /// For a record that stands for several files: how many.
    summed: u64,
}

impl FileUsers {
    /// Begins without users.
    pub fn new(ranks: &Ranks) -> Self {
        let ends = ranks.launches.iter().map(|l| l.first_rank + l.size);
        FileUsers {
            launch_ends: ends.collect(),
            ranks: ranks.count(),
            records: HashMap::new(),
            files: HashMap::new(),
        }
    }

    /// Index and size of the launch of a rank.
    fn launch_of(ends: &[u32], rank: u32) -> Option<(usize, u32)> {
        let at = ends.partition_point(|&end| end <= rank);
        let end = *ends.get(at)?;
        let first = if at == 0 { 0 } else { ends[at - 1] };
        Some((at, end - first))
    }

    /// Adds a use by a rank. Ranks are added in ascending order.
    pub fn add(&mut self, rank: u32, entry: &Entry) {
        let ends = &self.launch_ends;
        let record = self.records.entry((entry.kind, entry.id)).or_default();
        record.add(rank, ends);
        if matches!(entry.kind, Kind::Posix | Kind::Stdio | Kind::Mpiio) {
            let (users, origin) = self.files.entry(entry.id).or_default();
            users.add(rank, ends);
            match entry.folded {
                // What goes through MPI-IO goes through POSIX again.
                Some(files) if entry.kind != Kind::Mpiio => origin.summed += files,
                Some(_) => {}
                None => origin.see(entry),
            }
        }
    }

    /// Ends the counting, after the last rank was added.
    pub fn finish(&mut self) {
        let ends = &self.launch_ends;
        for users in self.records.values_mut() {
            users.leave_launch(ends);
        }
    }

    /// Corrects how many files the records of several files stand for: of `counted`, which all of them say together, there are only
    /// `files`, because several processes have folded the same one, or one has it under a record of its own.
    pub fn count_once(&mut self, files: u64, counted: u64) {
        let mut origins: Vec<(&u64, &mut Origin)> = self
            .files
            .iter_mut()
            .map(|(id, (_, origin))| (id, origin))
            .filter(|(_, origin)| origin.summed > 0)
            .collect();
        origins.sort_by_key(|(id, _)| **id);
        let (mut before, mut given) = (0u128, 0u64);
        for (_, origin) in origins {
            // The running sum is rounded, so that the parts add up to the whole.
            before += u128::from(origin.summed);
            let sum = before * u128::from(files.min(counted)) / u128::from(counted.max(1));
            let sum = u64::try_from(sum).unwrap_or(u64::MAX);
            origin.summed = sum - given;
            given = sum;
        }
    }

    /// True if this rank's record is to be joined with those of others; `None` if no rank uses the file.
    pub fn is_shared(&self, kind: Kind, id: u64, rank: u32) -> Option<bool> {
        let users = self.records.get(&(kind, id))?;
        Some(if self.launch_ends.is_empty() {
            users.count == self.ranks && users.count >= 2
        } else {
            let is_launched = FileUsers::launch_of(&self.launch_ends, rank).is_some();
            is_launched && !users.partly && users.launched >= 2
        })
    }

    /// The facts of each file, by id.
    pub fn facts(&self) -> Vec<FileFacts> {
        let mut facts: Vec<FileFacts> = self
            .files
            .iter()
            .map(|(&id, (users, origin))| FileFacts {
                id,
                size_at_open: origin.size,
                created: origin.created,
                ranks: users.count,
                lowest_rank: users.lowest,
                highest_rank: users.highest,
                summed: (origin.summed > 0).then_some(origin.summed),
            })
            .collect();
        facts.sort_by_key(|file| file.id);
        facts
    }
}

impl Users {
    fn add(&mut self, rank: u32, ends: &[u32]) {
        debug_assert!(self.count == 0 || self.highest <= rank);
        if self.count > 0 && self.highest == rank {
            return;
        }
        let launch = FileUsers::launch_of(ends, rank);
        if self.count == 0 {
            self.lowest = rank;
        } else if launch.map(|l| l.0) != FileUsers::launch_of(ends, self.highest).map(|l| l.0) {
            self.leave_launch(ends);
        }
        self.count += 1;
        self.highest = rank;
        if launch.is_some() {
            self.launched += 1;
            self.in_launch += 1;
        }
    }

    /// Ends the launch of `highest`: the ranks that follow are of another launch, or of none.
    fn leave_launch(&mut self, ends: &[u32]) {
        if let Some((_, size)) = FileUsers::launch_of(ends, self.highest) {
            self.partly |= self.in_launch != size;
        }
        self.in_launch = 0;
    }
}

impl Origin {
    /// Takes over what an earlier open has seen of the file.
    fn see(&mut self, entry: &Entry) {
        let is_first =
            self.opened_ns == 0 || (entry.opened_ns > 0 && entry.opened_ns < self.opened_ns);
        let knows = entry.size_at_open.is_some() || entry.created.is_some();
        if is_first && knows {
            *self = Origin {
                opened_ns: entry.opened_ns,
                size: entry.size_at_open,
                created: entry.created.or(self.created),
                summed: self.summed,
            };
        } else {
            self.created = self.created.or(entry.created);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::Launch;

    fn entry(id: u64) -> Entry {
        Entry {
            kind: Kind::Posix,
            id,
            bytes: (0, 0),
            call_ns: 0,
            opened_ns: 0,
            folded: None,
            size_at_open: None,
            created: None,
            flushing: Default::default(),
        }
    }

    /// True if a file that `users` use is shared, with launches of these sizes and then `single` ranks of their own.
    fn shared(launches: &[u32], single: u32, users: &[u32]) -> bool {
        let mut first_rank = 0;
        let launches = launches.iter().map(|&size| {
            first_rank += size;
            Launch {
                first_rank: first_rank - size,
                size,
                seen: size,
                by_mpi: true,
            }
        });
        let ranks = Ranks {
            roles: vec![],
            launches: launches.collect(),
            single,
        };
        let mut sharing = FileUsers::new(&ranks);
        for &rank in users {
            sharing.add(rank, &entry(1));
            sharing.add(rank, &entry(1));
        }
        sharing.finish();
        let facts = sharing.facts();
        assert_eq!(facts[0].ranks as usize, users.len());
        assert_eq!(facts[0].lowest_rank, users[0]);
        let is_shared = |rank: &u32| sharing.is_shared(Kind::Posix, 1, *rank).unwrap();
        let launched = sharing.launch_ends.last().copied().unwrap_or(ranks.single);
        let (launched, outside): (Vec<u32>, Vec<u32>) =
            users.iter().partition(|&&rank| rank < launched);
        assert!(!outside.iter().any(is_shared), "it has a record of its own");
        launched.iter().any(is_shared)
    }

    #[test]
    fn a_file_of_all_ranks_of_a_launch_is_shared_and_of_some_is_not() {
        assert!(shared(&[4], 0, &[0, 1, 2, 3]));
        assert!(!shared(&[4], 0, &[0, 1, 2]));
        assert!(!shared(&[4], 0, &[3]));
        assert!(!shared(&[1], 0, &[0]));
    }

    #[test]
    fn what_ran_before_a_launch_does_not_keep_its_files_from_being_shared() {
        assert!(shared(&[4], 1, &[0, 1, 2, 3]));
        assert!(shared(&[4], 1, &[0, 1, 2, 3, 4]));
        assert!(!shared(&[4], 2, &[4, 5]));
        assert!(!shared(&[4], 1, &[0, 4]));
    }

    #[test]
    fn each_launch_uses_a_shared_file_with_all_its_ranks_or_not_at_all() {
        assert!(shared(&[2, 3], 0, &[0, 1]));
        assert!(shared(&[2, 3], 0, &[2, 3, 4]));
        assert!(shared(&[2, 3], 0, &[0, 1, 2, 3, 4]));
        assert!(!shared(&[2, 3], 0, &[0, 1, 2]));
        assert!(!shared(&[2, 3], 0, &[1, 2, 3, 4]));
    }

    #[test]
    fn without_launches_all_ranks_must_use_it() {
        assert!(shared(&[], 3, &[0, 1, 2]));
        assert!(!shared(&[], 3, &[0, 2]));
        assert!(!shared(&[], 1, &[0]));
    }

    #[test]
    fn files_that_several_processes_have_summed_count_once() {
        let ranks = Ranks {
            roles: vec![],
            launches: vec![],
            single: 2,
        };
        let summed = |counted: [u64; 3], files| {
            let mut sharing = FileUsers::new(&ranks);
            for (id, folded) in (1..).zip(counted) {
                let folded = Some(folded);
                sharing.add(
                    0,
                    &Entry {
                        folded,
                        ..entry(id)
                    },
                );
            }
            sharing.count_once(files, counted.iter().sum());
            let facts = sharing.facts();
            let summed = facts.iter().map(|facts| facts.summed.unwrap_or(0));
            summed.collect::<Vec<_>>()
        };
        assert_eq!(summed([10, 20, 30], 60), [10, 20, 30]);
        assert_eq!(summed([10, 20, 30], 30), [5, 10, 15]);
        assert_eq!(summed([1, 1, 1], 2), [0, 1, 1]);
        assert_eq!(summed([u64::MAX / 3; 3], 7).iter().sum::<u64>(), 7);
    }

    #[test]
    fn who_opened_a_file_first_knows_what_it_was() {
        let ranks = Ranks {
            roles: vec![],
            launches: vec![],
            single: 3,
        };
        let mut sharing = FileUsers::new(&ranks);
        let opened = |opened_ns, size, created| Entry {
            opened_ns,
            size_at_open: Some(size),
            created: Some(created),
            ..entry(1)
        };
        sharing.add(0, &opened(20, 500, false));
        sharing.add(1, &opened(10, 0, true));
        sharing.add(2, &opened(30, 900, false));
        let facts = sharing.facts()[0];
        assert_eq!((facts.size_at_open, facts.created), (Some(0), Some(true)));
    }
}
