//! Sums over a job that every view shows: the bytes moved, how long ranks waited, how files are shared.
//!
//! Bytes are counted at the *lowest* interface that saw a file, because these went to the file system. Time is counted
//! at the *highest* one, because the program waited for that. So MPI-IO over POSIX is never counted twice.
//!
//! Times are by the wall clock. Forebay's recorder tells how long ranks were in I/O. Of other logs it is known that a rank
//! whose threads overlap was in I/O no longer than its files were in use, and never longer than the job ran.

use crate::busy::{self, Claim};
use crate::model::{Counters, File, FileUse, Interface, Job, Layer, RankShare, Sharing, join};
use crate::units::{self, share};
use serde::Serialize;
use std::collections::BTreeMap;

/// Files and bytes of a job, or of one class of its files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Files.
    pub files: u64,
    /// Directories that were opened, as far as they are known from files.
    pub directories: u64,
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

    /// How many files, and how many directories if there are any.
    pub(crate) fn files_text(&self) -> String {
        let files = units::count(self.files, "file", "files");
        match self.directories {
            0 => files,
            n => format!(
                "{files} and {}",
                units::count(n, "directory", "directories")
            ),
        }
    }

    /// Adds a use of `file`. `is_counted` keeps a file that POSIX and STDIO calls used from counting twice. What
    /// was only asked for (stat) is no file that the job used.
    fn add(&mut self, one: &FileUse, file: &File, is_counted: &mut bool) {
        if one.total.opens + one.total.ops() > 0 && !std::mem::replace(is_counted, true) {
            if file.is_directory() {
                self.directories += file.count();
            } else {
                self.files += file.count();
            }
        }
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
    /// Seconds of the run in which any process was in I/O; where the log does not tell, and ranks wait for each other, those of
    /// the slowest rank.
    pub io_seconds: f64,
    /// Most that the calls of one rank add up to, as a multiple of its seconds in I/O: more than 1 if threads overlap.
    pub overlap: f64,
    /// Share of the time of writes in which they waited for storage: in syncs, and by descriptors with `O_SYNC` or `O_DSYNC`. `None` if
    /// that is not known of all.
    pub waiting_writes: Option<f64>,
    /// Bytes on standard streams, which are in no sum.
    pub std_streams: u64,
    /// Sums over all files of each interface, in the order of [`Job::layers`].
    pub totals: Vec<Counters>,
    /// Files and bytes by class at the highest interfaces, in the order of [`Sharing::ALL`].
    pub sharing: Vec<(Sharing, Moved)>,
}

impl Account {
    /// Sums up a job.
    pub fn of(job: &Job) -> Self {
        let mut account = Account {
            sharing: Sharing::ALL.map(|class| (class, Moved::default())).to_vec(),
            totals: job.layers.iter().map(Layer::total).collect(),
            ..Account::default()
        };
        let mut seen = vec![[false; 2]; job.files.len()];
        for one in job.layers.iter().flat_map(|layer| &layer.uses) {
            let file = &job.files[one.file];
            if file.is_std_stream {
                account.std_streams += one.total.bytes();
                continue;
            }
            // A data set that counts for itself is part of a file, whose others may count, too.
            let counted = &mut seen[file.container.unwrap_or(one.file)];
            if one.is_lowest {
                account.moved.add(one, file, &mut counted[0]);
            }
            if one.is_highest && !file.is_rest() {
                let class = account.sharing.iter_mut().find(|(c, _)| *c == one.sharing);
                let class = class.expect("every class has a row");
                class.1.add(one, file, &mut counted[1]);
            }
        }
        let wanted = |_, one: &FileUse| one.is_highest;
        let (ranks, overlap) = wall_shares(job, wanted);
        account.ranks = ranks;
        account.overlap = overlap;
        account.time = mean_split(&account.ranks, job.run_seconds);
        account.slowest = slowest(&account.ranks);
        account.waiting_writes = waiting_writes(job);
        // An empty sum is -0.
        account.io_seconds = io_seconds(job, &account.ranks, wanted) + 0.0;
        account
    }

    /// MiB/s of the job: bytes over the seconds in which it was in I/O. `None` without time or bytes.
    pub fn mib_per_second(&self) -> Option<f64> {
        (self.io_seconds > 0.0 && self.moved.bytes() > 0)
            .then(|| self.moved.bytes() as f64 / f64::from(1 << 20) / self.io_seconds)
    }

    /// True if [`io_seconds`](Self::io_seconds) may count a second twice, because processes did I/O at the same time, now
    /// and then. The speed is a lower bound then.
    pub fn may_overlap(&self, job: &Job) -> bool {
        match &job.busy {
            Some(busy) => !busy.whole.is_exact(),
            None => job.ranks > 1 && job.launches.len() as u32 + job.serial_steps() != 1,
        }
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

/// See [`Account::waiting_writes`].
fn waiting_writes(job: &Job) -> Option<f64> {
    let layer = job.layer(Interface::Posix)?;
    if !layer.uses.iter().all(|one| one.total.has_timed_syncs()) {
        return None;
    }
    let waited = layer.uses.iter().map(|one| one.total.flushing.seconds());
    let waited: f64 = waited.sum();
    let uses = job.layers.iter().flat_map(|layer| &layer.uses);
    let written = uses.filter(|one| one.is_highest && !job.files[one.file].is_std_stream);
    let written: f64 = written.map(|one| one.total.write.seconds).sum();
    (waited > 0.0).then(|| share(waited, written).min(1.0))
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

/// Seconds by the wall clock and bytes of every rank, over the uses that `wanted` picks.
pub fn rank_shares(job: &Job, wanted: impl Fn(Interface, &FileUse) -> bool) -> Vec<RankShare> {
    wall_shares(job, wanted).0
}

/// The shares of all ranks, and [`Account::overlap`].
fn wall_shares(job: &Job, wanted: impl Fn(Interface, &FileUse) -> bool) -> (Vec<RankShare>, f64) {
    let mut shares = summed_shares(job, &wanted);
    let own = own_data_seconds(job, &wanted);
    let shared = shared_data_seconds(job, &wanted);
    let mut overlap = 1.0f64;
    for share in &mut shares {
        let (calls, data) = (share.seconds(), share.read_seconds + share.write_seconds);
        let at = share.rank as usize;
        let most = own[at] + shared.get(at).copied().unwrap_or(0.0);
        let factor = if data > most { most / data } else { 1.0 };
        share.read_seconds *= factor;
        share.write_seconds *= factor;
        let whole = share.seconds();
        let told = job.busy.as_ref().and_then(|busy| busy.ranks.get(at));
        let told = told.map(|bounds| bounds.most).filter(|most| *most > 0.0);
        let most = told.unwrap_or(f64::INFINITY).min(job.run_seconds);
        if whole > most {
            let factor = most / whole;
            share.read_seconds *= factor;
            share.write_seconds *= factor;
            share.meta_seconds *= factor;
        }
        if share.seconds() > 0.0 {
            overlap = overlap.max(calls / share.seconds());
        }
    }
    (shares, overlap)
}

/// By rank: most seconds that it can have been reading and writing the files that the log keeps apart by rank.
fn own_data_seconds(job: &Job, wanted: &impl Fn(Interface, &FileUse) -> bool) -> Vec<f64> {
    let mut seconds = vec![0.0; job.ranks as usize];
    let mut claims: Vec<(u32, Claim)> = Vec::new();
    for one in uses(job, wanted) {
        for share in &one.by_rank {
            let data = share.read_seconds + share.write_seconds;
            match share.in_use {
                Some(span) if data > 0.0 => {
                    claims.push((share.rank, Claim::new(span, data, job.run_seconds)));
                }
                _ => {
                    if let Some(mine) = seconds.get_mut(share.rank as usize) {
                        *mine += data;
                    }
                }
            }
        }
    }
    claims.sort_by_key(|(rank, _)| *rank);
    for of_rank in claims.chunk_by(|a, b| a.0 == b.0) {
        let joined = busy::join(of_rank.iter().map(|(_, claim)| *claim).collect());
        if let Some(mine) = seconds.get_mut(of_rank[0].0 as usize) {
            *mine += busy::seconds(&joined);
        }
    }
    seconds
}

/// By rank: most seconds that it can have been reading and writing the files whose ranks the logger has summed, which is
/// the length of the spans in which these were in use.
fn shared_data_seconds(job: &Job, wanted: &impl Fn(Interface, &FileUse) -> bool) -> Vec<f64> {
    let mut spans: BTreeMap<(u32, u32), Vec<Claim>> = BTreeMap::new();
    for sum in uses(job, wanted).flat_map(|one| &one.reduced) {
        let span = sum.in_use.unwrap_or((0.0, f64::INFINITY));
        let claim = Claim::new(span, f64::INFINITY, job.run_seconds);
        let of_log = spans.entry((sum.first_rank, sum.ranks)).or_default();
        of_log.push(claim);
    }
    let mut seconds = vec![0.0; job.ranks as usize];
    for ((first, ranks), claims) in spans {
        let length = busy::seconds(&busy::join(claims));
        let range = first as usize..first.saturating_add(ranks).min(job.ranks) as usize;
        for mine in seconds.get_mut(range).into_iter().flatten() {
            *mine += length;
        }
    }
    seconds
}

fn uses<'j>(
    job: &'j Job,
    wanted: &impl Fn(Interface, &FileUse) -> bool,
) -> impl Iterator<Item = &'j FileUse> {
    let layers = job.layers.iter();
    layers.flat_map(move |layer| {
        let of_layer = layer.uses.iter();
        of_layer.filter(move |one| wanted(layer.interface, one))
    })
}

/// Seconds of the run in which the job was in I/O, [`Account::io_seconds`].
fn io_seconds(
    job: &Job,
    shares: &[RankShare],
    wanted: impl Fn(Interface, &FileUse) -> bool,
) -> f64 {
    let run = job.run_seconds;
    let slowest = shares.iter().map(RankShare::seconds).fold(0.0, f64::max);
    if let Some(busy) = job.busy.as_ref().filter(|busy| busy.whole.most > 0.0) {
        return busy.whole.most.max(slowest).min(run);
    }
    // For every rank the launch that it is part of, if others wait for it.
    let mut launch_of: Vec<Option<usize>> = vec![None; job.ranks as usize];
    for (at, launch) in job.launches.iter().enumerate() {
        let ranks = launch.start as usize..launch.end.min(job.ranks) as usize;
        for one in launch_of.get_mut(ranks).into_iter().flatten() {
            *one = Some(at);
        }
    }
    let mut spans: Vec<Option<(f64, f64)>> = vec![None; job.launches.len()];
    let (mut data, mut metadata) = (Vec::new(), Vec::new());
    for one in uses(job, &wanted) {
        let shares = one.by_rank.iter().map(|share| {
            let seconds = share.read_seconds + share.write_seconds;
            (share.rank, (share.in_use, seconds, share.meta_seconds))
        });
        let sums = one.reduced.iter().map(|sum| {
            let seconds = sum.read_seconds + sum.write_seconds;
            (sum.first_rank, (sum.in_use, seconds, sum.meta_seconds))
        });
        for (rank, times) in shares.chain(sums) {
            let launch = launch_of.get(rank as usize).copied().flatten();
            let span = launch.map(|at| &mut spans[at]);
            claim(times, span, run, (&mut data, &mut metadata));
        }
    }
    for (launch, span) in job.launches.iter().zip(spans) {
        let ranks = launch.start as usize..launch.end.min(job.ranks) as usize;
        let shares = shares.get(ranks).unwrap_or_default();
        let slowest = shares.iter().map(RankShare::seconds).fold(0.0, f64::max);
        let claim = Claim::new(span.unwrap_or((0.0, run)), slowest, run);
        data.push(claim.stretched(run));
    }
    let all = busy::seconds(&busy::join(data)) + busy::seconds(&busy::join(metadata));
    all.max(slowest).min(run)
}

/// Notes what was done with a file: in the span of its launch, or else as claims of its own.
fn claim(
    (in_use, data_seconds, meta_seconds): (Option<(f64, f64)>, f64, f64),
    launch: Option<&mut Option<(f64, f64)>>,
    run: f64,
    (data, metadata): (&mut Vec<Claim>, &mut Vec<Claim>),
) {
    if let Some(span) = launch {
        *span = join(*span, in_use);
        return;
    }
    let span = in_use.unwrap_or((0.0, run));
    if data_seconds > 0.0 {
        data.push(Claim::new(span, data_seconds, run));
    }
    if meta_seconds > 0.0 {
        metadata.push(Claim::new(span, meta_seconds, run).stretched(run));
    }
}

/// Seconds and bytes of every rank as the log sums them, whatever overlaps.
fn summed_shares(job: &Job, wanted: &impl Fn(Interface, &FileUse) -> bool) -> Vec<RankShare> {
    let n = job.ranks as usize;
    // Sums over ranges of ranks are added at their borders only: a job may have many ranks and many shared files.
    let mut borders = vec![[0.0f64; 5]; n + 1];
    let mut shares: Vec<RankShare> = (0..job.ranks)
        .map(|rank| RankShare {
            rank,
            ..RankShare::default()
        })
        .collect();
    for one in uses(job, wanted) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Bounds, Busy, Counters};
    use crate::sample::*;

    const MIB: u64 = 1 << 20;

    /// Writes of so many seconds into a file that is in use from `start` to `end`.
    fn written(bytes: u64, seconds: f64, start: f64, end: f64) -> Counters {
        Counters {
            in_use: Some((start, end)),
            ..writes(1, bytes, seconds)
        }
    }

    /// A job of processes without MPI; each wrote 100 MiB in 2 s, from its time on.
    fn writers(starts: &[f64]) -> Account {
        let mut job = plain_job(starts.len() as u32);
        for (rank, start) in (0..).zip(starts) {
            let counters = written(100 * MIB, 2.0, *start, start + 2.0);
            by_rank(
                &mut job,
                Interface::Posix,
                &format!("/pfs/{rank}"),
                rank,
                counters,
            );
        }
        Account::of(&job)
    }

    fn about(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-6, "{value} is not {expected}");
    }

    #[test]
    fn the_speed_of_processes_is_that_of_the_time_in_which_any_was_in_io() {
        about(writers(&[0.0]).mib_per_second().unwrap(), 50.0);
        about(
            writers(&[0.0, 10.0, 20.0, 30.0]).mib_per_second().unwrap(),
            50.0,
        );
        about(
            writers(&[0.0, 0.0, 0.0, 0.0]).mib_per_second().unwrap(),
            200.0,
        );
        about(
            writers(&[0.0, 0.0, 9.0, 9.0]).mib_per_second().unwrap(),
            100.0,
        );
    }

    #[test]
    fn it_is_told_for_how_much_of_their_time_writes_wait_for_storage() {
        let waiting = |syncs, timed_syncs, sync_seconds| {
            let mut job = plain_job(1);
            let mut counters = written(MIB, 4.0, 10.0, 14.0);
            counters.syncs = syncs;
            counters.flushing.timed_syncs = timed_syncs;
            counters.flushing.sync_seconds = sync_seconds;
            by_rank(&mut job, Interface::Posix, "/pfs/a", 0, counters);
            let other = written(MIB, 4.0, 10.0, 14.0);
            by_rank(&mut job, Interface::Stdio, "/pfs/b", 0, other);
            Account::of(&job).waiting_writes
        };
        assert_eq!(waiting(2, 2, 2.0), Some(0.25));
        assert_eq!(waiting(2, 0, 0.0), None);
        assert_eq!(waiting(0, 0, 0.0), None);
        assert_eq!(waiting(1, 1, 99.0), Some(1.0));
    }

    #[test]
    fn the_speed_of_ranks_is_that_of_the_slowest_and_launches_follow_each_other() {
        let mut job = mpi_job(4);
        for rank in 0..4 {
            let start = if rank < 2 { 0.0 } else { 50.0 };
            let counters = written(100 * MIB, 1.0 + f64::from(rank % 2), start, start + 40.0);
            by_rank(
                &mut job,
                Interface::Posix,
                &format!("/pfs/{rank}"),
                rank,
                counters,
            );
        }
        about(Account::of(&job).io_seconds, 2.0);
        job.launches = vec![0..2, 2..4];
        about(Account::of(&job).io_seconds, 4.0);
    }

    #[test]
    fn threads_that_write_at_the_same_time_take_no_longer_than_their_files_were_in_use() {
        let mut job = plain_job(1);
        for thread in 0..64 {
            let mut counters = written(MIB, 3.0, 10.0, 14.0);
            counters.meta_seconds = 0.01;
            by_rank(
                &mut job,
                Interface::Posix,
                &format!("/pfs/{thread}"),
                0,
                counters,
            );
        }
        let account = Account::of(&job);
        about(account.slowest.unwrap().seconds, 4.64);
        about(account.overlap, 64.0 * 3.01 / 4.64);
        about(account.time.io() + account.time.other, job.run_seconds);
        // A file that was never closed may have been in use until the end.
        for one in &mut job.layers[0].uses {
            one.by_rank[0].in_use = Some((10.0, f64::INFINITY));
        }
        about(Account::of(&job).slowest.unwrap().seconds, 90.64);
    }

    #[test]
    fn what_the_recorder_tells_of_times_counts() {
        let mut job = plain_job(2);
        for (rank, thread) in [(0, 0), (0, 1), (1, 0)] {
            let name = format!("/pfs/{rank}.{thread}");
            let counters = written(100 * MIB, 20.0, 0.0, 90.0);
            by_rank(&mut job, Interface::Posix, &name, rank, counters);
        }
        let bounds = |least, most| Bounds { least, most };
        job.busy = Some(Busy {
            whole: bounds(25.0, 25.5),
            ranks: vec![bounds(5.0, 5.0), bounds(20.0, 20.0)],
        });
        let account = Account::of(&job);
        about(account.ranks[0].seconds(), 5.0);
        about(account.ranks[1].seconds(), 20.0);
        about(account.overlap, 8.0);
        about(account.io_seconds, 25.5);
        assert!(!account.may_overlap(&job));
        job.busy.as_mut().unwrap().whole.least = 20.0;
        assert!(account.may_overlap(&job));
    }

    #[test]
    fn no_share_exceeds_the_run_whatever_the_log_says() {
        let mut job = plain_job(1);
        let mut counters = written(MIB, 1e12, 0.0, 1e12);
        counters.meta_seconds = 1e12;
        by_rank(&mut job, Interface::Posix, "/pfs/a", 0, counters);
        let account = Account::of(&job);
        about(account.slowest_share(&job), 1.0);
        about(account.io_seconds, job.run_seconds);
        about(account.time.other, 0.0);
    }

    #[test]
    fn standard_streams_are_counted_apart() {
        let mut job = plain_job(1);
        by_rank(
            &mut job,
            Interface::Stdio,
            "<STDOUT>",
            0,
            writes(1, 322, 5.0),
        );
        job.settle_layers();
        let account = Account::of(&job);
        assert_eq!(
            (account.moved, account.std_streams, account.slowest),
            (Moved::default(), 322, None)
        );
    }
}
