//! Sums over a job that every view shows: the bytes moved, how long ranks waited, how files are shared.
//!
//! Bytes are counted at the *lowest* interface that saw a file, because these went to the file system. Time is counted
//! at the *highest* one, because the program waited for that. So MPI-IO over POSIX is never counted twice.

use crate::model::{FileUse, Interface, Job, RankShare, Sharing};
use crate::units::share;
use serde::Serialize;

/// Files and bytes of a job, or of one class of its files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Files.
    pub files: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

impl Moved {
    /// Bytes of both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes_read + self.bytes_written
    }

    /// Adds a use of a file. `is_counted` keeps a file that POSIX and STDIO calls used from counting twice.
    fn add(&mut self, one: &FileUse, is_counted: &mut bool) {
        self.files += u64::from(!std::mem::replace(is_counted, true));
        self.bytes_read += one.total.read.bytes;
        self.bytes_written += one.total.write.bytes;
    }
}

/// Seconds of a mean rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TimeSplit {
    /// Reading.
    pub read: f64,
    /// Writing, with fsync.
    pub write: f64,
    /// Open, close, stat, seek.
    pub metadata: f64,
    /// The rest of the run time; 0 if concurrent I/O adds up to more than the run time.
    pub other: f64,
}

impl TimeSplit {
    /// Seconds in I/O.
    pub fn io(&self) -> f64 {
        self.read + self.write + self.metadata
    }
}

/// A rank and its seconds in I/O.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SlowestRank {
    /// Rank.
    pub rank: u32,
    /// Seconds in I/O: its own files, and its part of the shared ones.
    pub seconds: f64,
}

/// The sums over a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Account {
    /// Files and bytes at the lowest interfaces.
    pub moved: Moved,
    /// Time at the highest interfaces, mean over all ranks.
    pub time: TimeSplit,
    /// Seconds and bytes per rank at the highest interfaces. Of a file whose ranks the logger has summed, the slowest
    /// rank gets its own time, and each other one the mean of the rest.
    pub ranks: Vec<RankShare>,
    /// The rank with most seconds in I/O; `None` if no time was measured.
    pub slowest: Option<SlowestRank>,
    /// Files and bytes by class at the highest interfaces, in the order of [`Sharing::ALL`].
    pub sharing: Vec<(Sharing, Moved)>,
}

impl Account {
    /// Sums up a job.
    pub fn of(job: &Job) -> Self {
        let mut account = Account {
            sharing: Sharing::ALL.map(|class| (class, Moved::default())).to_vec(),
            ..Account::default()
        };
        let mut seen = vec![[false; 2]; job.files.len()];
        for one in job.layers.iter().flat_map(|layer| &layer.uses) {
            if job.files[one.file].is_std_stream {
                continue;
            }
            if one.is_lowest {
                account.moved.add(one, &mut seen[one.file][0]);
            }
            if one.is_highest {
                let class = account.sharing.iter_mut().find(|(c, _)| *c == one.sharing);
                let class = class.expect("every class has a row");
                class.1.add(one, &mut seen[one.file][1]);
            }
        }
        account.ranks = rank_shares(job, |_, one| one.is_highest);
        account.time = mean_split(&account.ranks, job.run_seconds);
        account.slowest = slowest(&account.ranks);
        account
    }

    /// MiB/s of the job: bytes over the I/O time of the slowest rank. `None` without time or bytes.
    pub fn mib_per_second(&self) -> Option<f64> {
        let seconds = self.slowest?.seconds;
        (seconds > 0.0 && self.moved.bytes() > 0)
            .then(|| self.moved.bytes() as f64 / f64::from(1 << 20) / seconds)
    }

    /// MiB/s per compute node (MSST'11); `None` if the number of nodes is unknown.
    pub fn mib_per_second_per_node(&self, job: &Job) -> Option<f64> {
        Some(self.mib_per_second()? / f64::from(job.nodes.filter(|&n| n > 0)?))
    }

    /// Share of the run time that the slowest rank spends in I/O.
    pub fn slowest_share(&self, job: &Job) -> f64 {
        share(self.slowest.map_or(0.0, |s| s.seconds), job.run_seconds)
    }
}

/// Time of a mean rank at one interface.
pub fn split_of(job: &Job, interface: Interface) -> TimeSplit {
    mean_split(
        &rank_shares(job, |layer, _| layer == interface),
        job.run_seconds,
    )
}

fn mean_split(ranks: &[RankShare], run_seconds: f64) -> TimeSplit {
    let mut split = TimeSplit::default();
    for rank in ranks {
        split.read += rank.read_seconds;
        split.write += rank.write_seconds;
        split.metadata += rank.meta_seconds;
    }
    let n = ranks.len().max(1) as f64;
    split.read /= n;
    split.write /= n;
    split.metadata /= n;
    split.other = (run_seconds - split.io()).max(0.0);
    split
}

fn slowest(ranks: &[RankShare]) -> Option<SlowestRank> {
    ranks
        .iter()
        .map(|share| SlowestRank {
            rank: share.rank,
            seconds: share.seconds(),
        })
        .filter(|one| one.seconds > 0.0)
        .max_by(|a, b| a.seconds.total_cmp(&b.seconds).then(b.rank.cmp(&a.rank)))
}

/// Seconds and bytes of every rank, over the uses that `wanted` picks.
pub fn rank_shares(job: &Job, wanted: impl Fn(Interface, &FileUse) -> bool) -> Vec<RankShare> {
    let n = job.ranks as usize;
    // Sums over ranges of ranks are added at their borders only: a job may have many ranks and many shared files.
    let mut borders = vec![[0.0f64; 5]; n + 1];
    let mut shares: Vec<RankShare> = (0..job.ranks)
        .map(|rank| RankShare {
            rank,
            ..RankShare::default()
        })
        .collect();
    for layer in &job.layers {
        for one in layer.uses.iter().filter(|one| wanted(layer.interface, one)) {
            for share in &one.by_rank {
                if let Some(mine) = shares.get_mut(share.rank as usize) {
                    mine.add(share);
                }
            }
            let bytes = one.total.bytes().max(1) as f64;
            for reduced in &one.reduced {
                let (others, slowest) = rank_parts(reduced);
                let mean_bytes = reduced.bytes as f64 / f64::from(reduced.ranks.max(1));
                let mean = [
                    reduced.read_seconds * others,
                    reduced.write_seconds * others,
                    reduced.meta_seconds * others,
                    mean_bytes * one.total.read.bytes as f64 / bytes,
                    mean_bytes * one.total.write.bytes as f64 / bytes,
                ];
                let first = (reduced.first_rank as usize).min(n);
                let end = (first + reduced.ranks as usize).min(n);
                for (i, value) in mean.iter().enumerate() {
                    borders[first][i] += value;
                    borders[end][i] -= value;
                }
                if let Some(share) = shares.get_mut(reduced.slowest.rank as usize) {
                    let beyond = slowest - others;
                    share.read_seconds += reduced.read_seconds * beyond;
                    share.write_seconds += reduced.write_seconds * beyond;
                    share.meta_seconds += reduced.meta_seconds * beyond;
                }
            }
        }
    }
    let mut running = [0.0f64; 5];
    for (share, border) in shares.iter_mut().zip(&borders) {
        for (sum, value) in running.iter_mut().zip(border) {
            *sum += value;
        }
        share.read_seconds += running[0].max(0.0);
        share.write_seconds += running[1].max(0.0);
        share.meta_seconds += running[2].max(0.0);
        share.bytes_read += running[3].max(0.0).round() as u64;
        share.bytes_written += running[4].max(0.0).round() as u64;
    }
    without_rounding_dust(&mut shares);
    shares
}

/// Parts of a sum over ranks: that of each of the others, and that of the slowest rank. All parts add up to 1.
fn rank_parts(reduced: &crate::model::Reduced) -> (f64, f64) {
    let total = reduced.seconds();
    let ranks = f64::from(reduced.ranks.max(1));
    let slowest = share(reduced.slowest.seconds, total);
    // Some logs name no slowest rank, or one with less than the mean.
    if slowest * ranks <= 1.0 || slowest > 1.0 || reduced.ranks < 2 {
        return (1.0 / ranks, 1.0 / ranks);
    }
    ((1.0 - slowest) / (ranks - 1.0), slowest)
}

/// Sets tiny times to 0: adding and subtracting the same value at borders may leave 1e-17 seconds on idle ranks.
fn without_rounding_dust(shares: &mut [RankShare]) {
    for share in shares {
        for value in [
            &mut share.read_seconds,
            &mut share.write_seconds,
            &mut share.meta_seconds,
        ] {
            if *value < 1e-9 {
                *value = 0.0;
            }
        }
    }
}
