//! Gathers the records of one interface by file.

use super::counters::seconds;
use crate::model::*;
use darshan_log::Derived;
use std::collections::HashMap;
use std::ops::Range;

/// A layer that is being filled.
pub(super) struct LayerBuilder {
    interface: Interface,
    pub(super) is_partial: bool,
    pub(super) is_condensed: bool,
    uses: Vec<FileUse>,
    /// By file its place in `uses`. A job may have very many, and this takes the least memory.
    places: HashMap<usize, usize>,
    total_bytes: f64,
    /// Seconds of the slowest rank on files of its own, over all logs.
    unique_seconds: f64,
    /// Seconds of the slowest ranks on shared files, one file after the other.
    shared_seconds: f64,
    /// What Darshan's tools say of the latest log; exact for a job of one log.
    exact: Option<BySlowest>,
    logs: u32,
}

impl LayerBuilder {
    pub(super) fn new(interface: Interface) -> Self {
        LayerBuilder {
            interface,
            is_partial: false,
            is_condensed: false,
            uses: Vec::new(),
            places: HashMap::new(),
            total_bytes: 0.0,
            unique_seconds: 0.0,
            shared_seconds: 0.0,
            exact: None,
            logs: 0,
        }
    }

    pub(super) fn interface(&self) -> Interface {
        self.interface
    }

    /// Adds what one rank did.
    pub(super) fn add_rank(&mut self, file: usize, counters: Counters, rank: u32) {
        let one = self.of_file(file);
        one.by_rank.push(RankShare {
            rank,
            read_seconds: counters.read.seconds,
            write_seconds: counters.write.seconds,
            meta_seconds: counters.meta_seconds,
            bytes_read: counters.read.bytes,
            bytes_written: counters.write.bytes,
            in_use: counters.in_use,
        });
        one.total.add(&counters);
    }

    /// Adds what all ranks of a log did.
    pub(super) fn add_reduced(
        &mut self,
        file: usize,
        counters: Counters,
        first_rank: u32,
        ranks: u32,
        slowest: Extreme,
        fastest: Extreme,
    ) {
        let one = self.of_file(file);
        one.reduced.push(Reduced {
            first_rank,
            ranks,
            read_seconds: counters.read.seconds,
            write_seconds: counters.write.seconds,
            meta_seconds: counters.meta_seconds,
            bytes: counters.bytes(),
            in_use: counters.in_use,
            slowest,
            fastest,
        });
        one.total.add(&counters);
    }

    /// Adds the seconds that ranks waited for storage.
    pub(super) fn add_waits(&mut self, file: usize, waits: Vec<(u32, f64)>) {
        if !waits.is_empty() {
            self.of_file(file).waits.extend(waits);
        }
    }

    fn of_file(&mut self, file: usize) -> &mut FileUse {
        let at = *self.places.entry(file).or_insert_with(|| {
            self.uses.push(FileUse {
                file,
                ranks: 0,
                sharing: Sharing::Unique,
                total: Counters::default(),
                waits: Vec::new(),
                by_rank: Vec::new(),
                reduced: Vec::new(),
                is_lowest: true,
                is_highest: true,
            });
            self.uses.len() - 1
        });
        &mut self.uses[at]
    }

    /// Adds what Darshan's tools derive of one log.
    pub(super) fn add_derived(&mut self, derived: Derived) {
        self.logs += 1;
        self.total_bytes += derived.total_bytes as f64;
        self.unique_seconds = self
            .unique_seconds
            .max(seconds(derived.unique_time_by_slowest));
        self.shared_seconds += seconds(derived.shared_time_by_slowest);
        self.exact = Some(BySlowest {
            seconds: seconds(derived.agg_time_by_slowest),
            mib_per_second: seconds(derived.agg_perf_by_slowest),
        });
    }

    pub(super) fn finish(mut self, ranks: u32, launches: &[Range<u32>]) -> Layer {
        let by_slowest = self.by_slowest();
        self.uses.sort_unstable_by_key(|one| one.file);
        for one in &mut self.uses {
            merge_ranks(&mut one.by_rank);
            merge_waits(&mut one.waits);
            let summed: u32 = one
                .reduced
                .iter()
                .map(|sum| sum.ranks)
                .fold(0, u32::saturating_add);
            one.ranks = summed
                .saturating_add(one.by_rank.len() as u32)
                .clamp(1, ranks.max(1));
            one.sharing = match one.ranks {
                1 => Sharing::Unique,
                n if n == ranks || by_whole_launch(one, launches) => Sharing::Shared,
                _ => Sharing::Partial,
            };
        }
        Layer {
            interface: self.interface,
            uses: self.uses,
            by_slowest,
            is_partial: self.is_partial,
            is_condensed: self.is_condensed,
        }
    }

    /// Darshan's figure. For several logs it is that of the slowest process, with shared files one after the other.
    fn by_slowest(&self) -> Option<BySlowest> {
        if matches!(self.interface, Interface::Hdf5 | Interface::Pnetcdf) {
            return None;
        }
        if self.logs == 1 {
            return self.exact;
        }
        let seconds = self.unique_seconds + self.shared_seconds;
        let mib = self.total_bytes / f64::from(1 << 20);
        Some(BySlowest {
            seconds,
            mib_per_second: crate::units::share(mib, seconds),
        })
    }
}

/// True if all ranks of a launch touch the file, whatever other launches and steps do.
fn by_whole_launch(one: &FileUse, launches: &[Range<u32>]) -> bool {
    let singles = one.by_rank.iter().map(|share| share.rank);
    let sums = one.reduced.iter().map(|sum| sum.first_rank);
    let Some(first) = singles.clone().chain(sums).min() else {
        return false;
    };
    let Some(launch) = launches.iter().find(|launch| launch.contains(&first)) else {
        return false;
    };
    let of_sums = one.reduced.iter().map(|sum| {
        let end = sum.first_rank.saturating_add(sum.ranks).min(launch.end);
        end.saturating_sub(sum.first_rank.max(launch.start))
    });
    let alone = singles.filter(|rank| launch.contains(rank)).count() as u32;
    of_sums.fold(alone, u32::saturating_add) >= launch.len() as u32
}

/// Joins entries of the same rank, and sorts them by rank.
fn merge_waits(waits: &mut Vec<(u32, f64)>) {
    waits.sort_by_key(|(rank, _)| *rank);
    waits.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
}

/// The same of shares.
fn merge_ranks(shares: &mut Vec<RankShare>) {
    shares.sort_by_key(|share| share.rank);
    shares.dedup_by(|next, kept| {
        let same = next.rank == kept.rank;
        if same {
            kept.add(next);
        }
        same
    });
}
