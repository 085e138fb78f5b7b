//! Turns seconds of all ranks together into seconds of the slowest rank, as in Darshan's `agg_time_by_slowest`. Ranks
//! wait for each other, so what one rank loses is lost for all, and what ranks lose at the same time is lost once.

use super::{FileEvidence, NAMED_FILES, Subject};
use crate::model::{FileUse, Job, Layer, RankShare, Reduced};
use crate::units::share;

/// Which part of its time a rank loses.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Read,
    /// Writes that need not wait for storage, as far as the time of the others is known.
    Write,
    /// All writes, with syncs.
    WriteAndSync,
    Data,
    Metadata,
}

impl Part {
    /// Seconds of a rank that has waited for storage for some of them.
    fn of_rank(self, share: &RankShare, waited: f64) -> f64 {
        match self {
            Part::Read => share.read_seconds,
            Part::Write => (share.write_seconds - waited).max(0.0),
            Part::WriteAndSync => share.write_seconds,
            Part::Data => share.read_seconds + share.write_seconds,
            Part::Metadata => share.meta_seconds,
        }
    }

    /// The same of ranks together.
    fn of_reduced(self, sum: &Reduced, waited: f64) -> f64 {
        match self {
            Part::Read => sum.read_seconds,
            Part::Write => (sum.write_seconds - waited).max(0.0),
            Part::WriteAndSync => sum.write_seconds,
            Part::Data => sum.read_seconds + sum.write_seconds,
            Part::Metadata => sum.meta_seconds,
        }
    }

    /// Seconds of all ranks together.
    pub(super) fn of_use(self, one: &FileUse) -> f64 {
        match self {
            Part::Read => one.total.read.seconds,
            Part::Write => one.total.plain_write_seconds(),
            Part::WriteAndSync => one.total.write.seconds,
            Part::Data => one.total.read.seconds + one.total.write.seconds,
            Part::Metadata => one.total.meta_seconds,
        }
    }
}

/// The time that a job lost.
pub(super) struct Loss<'a> {
    /// Seconds of the rank that lost most.
    pub seconds: f64,
    /// That rank; `None` if all ranks lost the same.
    pub rank: Option<u32>,
    /// Seconds of each rank.
    pub by_rank: Vec<f64>,
    /// Files by seconds lost per rank that touched them, most first.
    pub files: Vec<(&'a FileUse, f64)>,
}

/// Finds the rank that lost most. `lost` gives the seconds of a file, all ranks together; they are distributed over its
/// ranks like the time of that `part`.
pub(super) fn slowest_path<'a>(
    subject: &Subject,
    uses: impl Iterator<Item = &'a FileUse>,
    part: Part,
    lost: impl Fn(&FileUse) -> f64,
) -> Loss<'a> {
    let mut spread = Spread::new(subject);
    for one in uses {
        let seconds = lost(one);
        if seconds <= 0.0 {
            continue;
        }
        spread.add_file(one, seconds);
        let whole = part.of_use(one);
        for rank in &one.by_rank {
            let mine = part.of_rank(rank, one.waited(rank.rank..=rank.rank));
            spread.add(rank.rank, seconds * share(mine, whole));
        }
        for sum in &one.reduced {
            let ranks = sum.ranks.max(1);
            let last = sum.first_rank.saturating_add(ranks - 1);
            let ours = part.of_reduced(sum, one.waited(sum.first_rank..=last));
            let each = seconds * share(ours, whole) / f64::from(ranks);
            spread.add_to_each(sum.first_rank, sum.ranks, each);
        }
    }
    spread.loss()
}

/// Finds the rank that waited longest in syncs and synced writes, as far as their time is known.
pub(super) fn longest_wait<'a>(
    subject: &Subject,
    uses: impl Iterator<Item = &'a FileUse>,
) -> Loss<'a> {
    let mut spread = Spread::new(subject);
    for one in uses.filter(|one| !one.waits.is_empty()) {
        spread.add_file(one, one.waits.iter().map(|(_, seconds)| seconds).sum());
        for (rank, seconds) in &one.waits {
            spread.add(*rank, *seconds);
        }
    }
    spread.loss()
}

/// Seconds that are distributed over ranks.
struct Spread<'a> {
    own: Vec<f64>,
    /// What is added from each rank on.
    borders: Vec<f64>,
    files: Vec<(&'a FileUse, f64)>,
}

impl<'a> Spread<'a> {
    fn new(subject: &Subject) -> Self {
        let n = subject.job.ranks as usize;
        Spread {
            own: vec![0.0; n],
            borders: vec![0.0; n + 1],
            files: Vec::new(),
        }
    }

    fn add_file(&mut self, one: &'a FileUse, seconds: f64) {
        self.files
            .push((one, seconds / f64::from(one.ranks.max(1))));
    }

    fn add(&mut self, rank: u32, seconds: f64) {
        if let Some(mine) = self.own.get_mut(rank as usize) {
            *mine += seconds;
        }
    }

    fn add_to_each(&mut self, first: u32, ranks: u32, seconds: f64) {
        let n = self.own.len();
        let first = (first as usize).min(n);
        self.borders[first] += seconds;
        self.borders[(first + ranks as usize).min(n)] -= seconds;
    }

    fn loss(self) -> Loss<'a> {
        let mut running = 0.0;
        let each = self.own.iter().zip(&self.borders).map(|(own, border)| {
            running += border;
            own + running
        });
        Loss::of(each.collect(), self.files)
    }
}

impl<'a> Loss<'a> {
    fn of(by_rank: Vec<f64>, mut files: Vec<(&'a FileUse, f64)>) -> Self {
        files.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.file.cmp(&b.0.file)));
        let mut worst = (0.0, None);
        let mut least = f64::INFINITY;
        for (rank, seconds) in by_rank.iter().enumerate() {
            least = least.min(*seconds);
            if *seconds > worst.0 {
                worst = (*seconds, Some(rank as u32));
            }
        }
        Loss {
            seconds: worst.0,
            rank: worst.1.filter(|_| worst.0 - least > 1e-9),
            by_rank,
            files,
        }
    }

    /// Both together, of different files.
    pub(super) fn and(mut self, other: Loss<'a>) -> Self {
        for (seconds, more) in self.by_rank.iter_mut().zip(other.by_rank) {
            *seconds += more;
        }
        self.files.extend(other.files);
        Loss::of(self.by_rank, self.files)
    }

    /// The most costly files, each with what `detail` says.
    pub(super) fn evidence(
        &self,
        subject: &Subject,
        detail: impl Fn(&FileUse) -> String,
    ) -> Vec<FileEvidence> {
        self.files
            .iter()
            .take(NAMED_FILES)
            .map(|(one, _)| FileEvidence {
                name: subject.job.files[one.file].name.clone(),
                detail: detail(one),
            })
            .collect()
    }

    /// Where the time was lost: "on rank 3" or "on every rank".
    pub(super) fn where_lost(&self, job: &Job) -> String {
        match self.rank {
            Some(rank) => format!("on {}", job.name_of(rank)),
            None if job.ranks == 1 => format!("on the only {}", job.who()),
            None => format!("on every {}", job.who()),
        }
    }
}

/// Uses of the files of a layer, without standard streams.
pub(super) fn real_files<'a>(
    subject: &'a Subject,
    layer: &'a Layer,
) -> impl Iterator<Item = &'a FileUse> {
    layer
        .uses
        .iter()
        .filter(|one| !subject.job.files[one.file].is_std_stream)
}
