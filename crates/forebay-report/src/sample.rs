//! Jobs made by hand, for tests.

use crate::model::*;

/// An MPI job of 100 s without I/O.
pub fn mpi_job(ranks: u32) -> Job {
    Job {
        logs: vec![LogFacts {
            name: "sample.darshan".to_owned(),
            version: "3.41".to_owned(),
            first_rank: 0,
            ranks,
            is_mpi: true,
        }],
        exe: "/home/me/sim in.melt".to_owned(),
        job_id: 4711,
        uid: 1000,
        ranks,
        launches: std::iter::once(0..ranks).collect(),
        start: 1_700_000_000.0,
        run_seconds: 100.0,
        ..Job::default()
    }
}

/// A job of processes that know nothing of each other.
pub fn plain_job(ranks: u32) -> Job {
    let mut job = mpi_job(ranks);
    job.logs[0].is_mpi = false;
    job.launches.clear();
    job
}

fn file(job: &mut Job, name: &str) -> usize {
    if let Some(known) = job.files.iter().position(|file| file.name == name) {
        return known;
    }
    job.files.push(File {
        name: name.to_owned(),
        is_std_stream: name.starts_with('<'),
        ..File::default()
    });
    job.files.len() - 1
}

fn add_use(job: &mut Job, interface: Interface, one: FileUse) {
    let at = match job.layers.iter().position(|l| l.interface == interface) {
        Some(at) => at,
        None => {
            job.layers.push(Layer {
                interface,
                uses: Vec::new(),
                by_slowest: None,
                is_partial: false,
                is_condensed: false,
            });
            job.layers.sort_by_key(|layer| layer.interface);
            let at = job.layers.iter().position(|l| l.interface == interface);
            at.expect("just added")
        }
    };
    let uses = &mut job.layers[at].uses;
    match uses.iter_mut().find(|known| known.file == one.file) {
        Some(known) => {
            known.total.add(&one.total);
            known.by_rank.extend(one.by_rank);
            known.ranks += one.ranks;
        }
        None => uses.push(one),
    }
    for one in uses.iter_mut() {
        one.sharing = match one.ranks {
            1 => Sharing::Unique,
            n if n == job.ranks => Sharing::Shared,
            _ => Sharing::Partial,
        };
    }
    job.settle_layers();
}

/// What one rank did with a file.
pub fn by_rank(job: &mut Job, interface: Interface, name: &str, rank: u32, total: Counters) {
    let file = file(job, name);
    let share = RankShare {
        rank,
        read_seconds: total.read.seconds,
        write_seconds: total.write.seconds,
        meta_seconds: total.meta_seconds,
        bytes_read: total.read.bytes,
        bytes_written: total.write.bytes,
        in_use: total.in_use,
    };
    let one = FileUse {
        file,
        ranks: 1,
        sharing: Sharing::Unique,
        total,
        waits: Vec::new(),
        by_rank: vec![share],
        reduced: Vec::new(),
        is_lowest: true,
        is_highest: true,
    };
    add_use(job, interface, one);
}

/// What all ranks did with a file, summed by the logger.
pub fn by_all(job: &mut Job, interface: Interface, name: &str, slowest: Extreme, total: Counters) {
    let file = file(job, name);
    let ranks = job.ranks;
    let reduced = Reduced {
        first_rank: 0,
        ranks,
        read_seconds: total.read.seconds,
        write_seconds: total.write.seconds,
        meta_seconds: total.meta_seconds,
        bytes: total.bytes(),
        in_use: total.in_use,
        slowest,
        fastest: Extreme::default(),
    };
    let one = FileUse {
        file,
        ranks,
        sharing: Sharing::Shared,
        total,
        waits: Vec::new(),
        by_rank: Vec::new(),
        reduced: vec![reduced],
        is_lowest: true,
        is_highest: true,
    };
    add_use(job, interface, one);
}

/// Requests of one size, in ascending order without gaps.
pub fn flow(ops: u64, size: u64, seconds: f64) -> Flow {
    let mut sizes = [0; 10];
    sizes[darshan_log::size_bucket(size)] = ops;
    Flow {
        ops,
        bytes: ops * size,
        max_byte: (ops * size).checked_sub(1),
        consecutive: ops.saturating_sub(1),
        sequential: ops.saturating_sub(1),
        sizes,
        seconds,
        span: Some((1.0, 1.0 + seconds)),
        ..Flow::default()
    }
}

/// Only reads.
pub fn reads(ops: u64, size: u64, seconds: f64) -> Counters {
    Counters {
        read: flow(ops, size, seconds),
        opens: 1,
        alignment: 4096,
        common: vec![(size, ops)],
        ..Counters::default()
    }
}

/// Only writes.
pub fn writes(ops: u64, size: u64, seconds: f64) -> Counters {
    Counters {
        write: flow(ops, size, seconds),
        opens: 1,
        alignment: 4096,
        common: vec![(size, ops)],
        ..Counters::default()
    }
}

/// A measured timeline; `written[rank][bin]`.
pub fn timeline(bin_seconds: f64, written: &[Vec<f64>]) -> Timeline {
    let bins = written.first().map_or(0, Vec::len);
    Timeline {
        interface: Interface::Posix,
        source: TimelineSource::Heatmap,
        bin_seconds,
        bins,
        ranks_per_row: 1,
        read: vec![0.0; bins * written.len()],
        written: written.concat(),
        last_active: written
            .iter()
            .map(|row| {
                let last = row.iter().rposition(|bytes| *bytes > 0.0)?;
                Some((last + 1) as f64 * bin_seconds)
            })
            .collect(),
    }
}
