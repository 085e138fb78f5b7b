//! Turns seconds of all ranks together into seconds of the slowest rank, as in Darshan's `agg_time_by_slowest`. Ranks
//! wait for each other, so what one rank loses is lost for all, and what ranks lose at the same time is lost once.

use super::{FileEvidence, NAMED_FILES, Subject};
use crate::model::{FileUse, Job, Layer, RankShare, Reduced};
use crate::units::share;

/// Which part of its time a rank loses.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Read,
    Write,
    Data,
    Metadata,
}

impl Part {
    fn of_rank(self, share: &RankShare) -> f64 {
        match self {
            Part::Read => share.read_seconds,
            Part::Write => share.write_seconds,
            Part::Data => share.read_seconds + share.write_seconds,
            Part::Metadata => share.meta_seconds,
        }
    }

    fn of_reduced(self, sum: &Reduced) -> f64 {
        match self {
            Part::Read => sum.read_seconds,
            Part::Write => sum.write_seconds,
            Part::Data => sum.read_seconds + sum.write_seconds,
            Part::Metadata => sum.meta_seconds,
        }
    }

    /// Seconds of all ranks together.
    pub(super) fn of_use(self, one: &FileUse) -> f64 {
        match self {
            Part::Read => one.total.read.seconds,
            Part::Write => one.total.write.seconds,
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
    let n = subject.job.ranks as usize;
    let mut own = vec![0.0f64; n];
    let mut borders = vec![0.0f64; n + 1];
    let mut files = Vec::new();
    for one in uses {
        let seconds = lost(one);
        if seconds <= 0.0 {
            continue;
        }
        files.push((one, seconds / f64::from(one.ranks.max(1))));
        let whole = part.of_use(one);
        for rank in &one.by_rank {
            if let Some(mine) = own.get_mut(rank.rank as usize) {
                *mine += seconds * share(part.of_rank(rank), whole);
            }
        }
        for sum in &one.reduced {
            let each = seconds * share(part.of_reduced(sum), whole) / f64::from(sum.ranks.max(1));
            let first = (sum.first_rank as usize).min(n);
            borders[first] += each;
            borders[(first + sum.ranks as usize).min(n)] -= each;
        }
    }
    files.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.file.cmp(&b.0.file)));
    let mut running = 0.0;
    let mut worst = (0.0, None);
    let mut least = f64::INFINITY;
    for (rank, (own, border)) in own.iter_mut().zip(&borders).enumerate() {
        running += border;
        *own += running;
        let seconds = *own;
        least = least.min(seconds);
        if seconds > worst.0 {
            worst = (seconds, Some(rank as u32));
        }
    }
    Loss {
        seconds: worst.0,
        rank: worst.1.filter(|_| worst.0 - least > 1e-9),
        by_rank: own,
        files,
    }
}

impl Loss<'_> {
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
