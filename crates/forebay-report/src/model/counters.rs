//! Counts, bytes and times of calls, and how they are added up.

/// Most common request sizes that are kept.
const COMMON_SIZES: usize = 8;

/// Most seconds of a call that opens a file, or asks for it, if none waits for something else.
const USUAL_CALL_SECONDS: f64 = 2.0;

/// Names of the ten request size buckets, [`darshan_log::SIZE_BUCKETS`].
pub const BUCKET_NAMES: [&str; 10] = [
    "0-100 B",
    "100 B-1 KiB",
    "1-10 KiB",
    "10-100 KiB",
    "100 KiB-1 MiB",
    "1-4 MiB",
    "4-10 MiB",
    "10-100 MiB",
    "100 MiB-1 GiB",
    "> 1 GiB",
];

/// One direction of data, all requests of one file at one layer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Flow {
    /// Requests.
    pub ops: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Highest byte offset touched; `None` if nothing was moved or it was not counted.
    pub max_byte: Option<u64>,
    /// Requests that start right behind the previous one of this direction.
    pub consecutive: u64,
    /// Requests that start anywhere behind the previous one of this direction.
    pub sequential: u64,
    /// Requests by size, see [`BUCKET_NAMES`].
    pub sizes: [u64; 10],
    /// Seconds, summed over the ranks.
    pub seconds: f64,
    /// Seconds of the slowest single request.
    pub longest: f64,
    /// First start and last end, seconds since the job's start.
    pub span: Option<(f64, f64)>,
    /// Independent MPI-IO requests: blocking, non-blocking and split ones together.
    pub independent: u64,
    /// Collective MPI-IO requests.
    pub collective: u64,
}

/// What was to reach storage at once, as far as the logger tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Flushing {
    /// Syncs whose time is known.
    pub timed_syncs: u64,
    /// Seconds in these, a part of those of writes.
    pub sync_seconds: f64,
    /// Writes by descriptors with `O_SYNC` or `O_DSYNC`.
    pub synced_writes: u64,
    /// Seconds in these, a part of those of writes.
    pub synced_seconds: f64,
    /// Requests by descriptors with `O_DIRECT`.
    pub direct: u64,
}

impl Flushing {
    /// Adds another one.
    pub fn add(&mut self, other: &Flushing) {
        self.timed_syncs = self.timed_syncs.saturating_add(other.timed_syncs);
        self.sync_seconds += other.sync_seconds;
        self.synced_writes = self.synced_writes.saturating_add(other.synced_writes);
        self.synced_seconds += other.synced_seconds;
        self.direct = self.direct.saturating_add(other.direct);
    }

    /// Seconds of writes that waited for storage.
    pub fn seconds(&self) -> f64 {
        self.sync_seconds + self.synced_seconds
    }
}

/// Everything counted for one file at one layer, summed over the ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counters {
    /// Reads.
    pub read: Flow,
    /// Writes; their seconds include fsync.
    pub write: Flow,
    /// Opens.
    pub opens: u64,
    /// Seeks.
    pub seeks: u64,
    /// stat and its kin.
    pub stats: u64,
    /// Calls that ask for a name and have no counter of Darshan: `access`, `readlink`, failed `stat` and `open`.
    pub asked: u64,
    /// Other calls on names and directories without a counter of Darshan: `unlink`, `mkdir`, `readdir`.
    pub other_calls: u64,
    /// Mappings; their page faults are not seen.
    pub mmaps: u64,
    /// fsync, fdatasync, `MPI_File_sync`, fflush.
    pub syncs: u64,
    /// What is known of these, and of writes that wait for storage without one.
    pub flushing: Flushing,
    /// Changes between reading and writing.
    pub switches: u64,
    /// Requests that start off the file's alignment.
    pub misaligned: u64,
    /// The file's alignment in bytes; 0 if unknown.
    pub alignment: u64,
    /// Seconds in open, close, stat, seek, summed over the ranks.
    pub meta_seconds: f64,
    /// What the longest of these calls took at least, in any record, as far as that is known. [`Counters::longest_call`]
    /// tells what a sum says by itself.
    pub longest_call: f64,
    /// First open and last close, seconds since the job's start.
    pub span: Option<(f64, f64)>,
    /// First and last time at which the file was in use, seconds since the job's start. The end is infinite if the file
    /// was never closed. `None` if no time was noted.
    pub in_use: Option<(f64, f64)>,
    /// Most frequent request sizes and their counts; the list is incomplete.
    pub common: Vec<(u64, u64)>,
}

impl Counters {
    /// Requests of both directions.
    pub fn ops(&self) -> u64 {
        self.read.ops + self.write.ops
    }

    /// Bytes of both directions.
    pub fn bytes(&self) -> u64 {
        self.read.bytes + self.write.bytes
    }

    /// Seconds in writes that need not wait for storage: without syncs and synced writes, as far as their time is known.
    pub fn plain_write_seconds(&self) -> f64 {
        (self.write.seconds - self.flushing.seconds()).max(0.0)
    }

    /// True if the time of every sync is known.
    pub fn has_timed_syncs(&self) -> bool {
        self.flushing.timed_syncs >= self.syncs
    }

    /// Seconds in reading, writing and metadata, summed over the ranks.
    pub fn seconds(&self) -> f64 {
        self.read.seconds + self.write.seconds + self.meta_seconds
    }

    /// Seconds of the longest call that opens the file, or asks for it, at least: all others take the usual time at most.
    pub fn longest_call(&self) -> f64 {
        // Not summed as integers: this is also asked of counters that are too large to be true.
        let counts = [
            self.opens,
            self.stats,
            self.asked,
            self.other_calls,
            self.seeks,
        ];
        let calls = counts.iter().map(|n| *n as f64).sum::<f64>().max(1.0);
        let others = (calls - 1.0) * USUAL_CALL_SECONDS;
        let of_sum = (self.meta_seconds - others).max(self.meta_seconds / calls);
        of_sum.max(self.longest_call)
    }

    /// Size of the file as far as it was touched.
    pub fn extent(&self) -> u64 {
        let end = |flow: &Flow| flow.max_byte.map_or(0, |byte| byte.saturating_add(1));
        end(&self.read).max(end(&self.write))
    }

    /// The sum of all counters that are ever summed up, by which it is judged whether they can be true.
    pub fn weight(&self) -> u128 {
        let flow = |flow: &Flow| {
            let sizes: u128 = flow.sizes.iter().copied().map(u128::from).sum();
            let counts = [
                flow.ops,
                flow.bytes,
                flow.consecutive,
                flow.sequential,
                flow.independent,
                flow.collective,
            ];
            sizes + counts.map(u128::from).iter().sum::<u128>()
        };
        let counts = [
            self.opens,
            self.seeks,
            self.stats,
            self.asked,
            self.other_calls,
            self.mmaps,
            self.syncs,
            self.switches,
            self.misaligned,
        ];
        flow(&self.read) + flow(&self.write) + counts.map(u128::from).iter().sum::<u128>()
    }

    /// Adds what another record counted for the same or another file.
    pub fn add(&mut self, other: &Counters) {
        self.read.add(&other.read);
        self.write.add(&other.write);
        self.opens += other.opens;
        self.seeks += other.seeks;
        self.stats += other.stats;
        self.asked += other.asked;
        self.other_calls += other.other_calls;
        self.mmaps += other.mmaps;
        self.syncs += other.syncs;
        self.flushing.add(&other.flushing);
        self.switches += other.switches;
        self.misaligned += other.misaligned;
        self.alignment = self.alignment.max(other.alignment);
        self.meta_seconds += other.meta_seconds;
        self.longest_call = self.longest_call.max(other.longest_call);
        self.span = join(self.span, other.span);
        self.in_use = join(self.in_use, other.in_use);
        if other.common.is_empty() {
            return;
        }
        for &(size, count) in &other.common {
            match self.common.iter_mut().find(|known| known.0 == size) {
                Some(known) => known.1 = known.1.saturating_add(count),
                None => self.common.push((size, count)),
            }
        }
        // Equal counts are ordered by size, so that the order of the records does not show.
        self.common
            .sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        self.common.truncate(COMMON_SIZES);
    }
}

impl Flow {
    fn add(&mut self, other: &Flow) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.max_byte = self.max_byte.max(other.max_byte);
        self.consecutive += other.consecutive;
        self.sequential += other.sequential;
        for (mine, theirs) in self.sizes.iter_mut().zip(other.sizes) {
            *mine += theirs;
        }
        self.seconds += other.seconds;
        self.longest = self.longest.max(other.longest);
        self.span = join(self.span, other.span);
        self.independent += other.independent;
        self.collective += other.collective;
    }
}

/// The span that holds both.
pub fn join(a: Option<(f64, f64)>, b: Option<(f64, f64)>) -> Option<(f64, f64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}
