//! Shared files in whose lock units several nodes write, so that the units go from node to node. Only a trace of every write proves
//! that they did; the seconds of such writes, against others of the same size in the same files, tell what it cost.

use super::{Confidence, FileEvidence, Finding, Measured, NAMED_FILES, Subject};
use crate::model::{Amount, BUCKET_NAMES, Interface, LockedFile, Locks};
use crate::units::{self, bytes, number};

/// Name of the finding.
const CODE: &str = "lock-ping-pong";
/// Writes of a size that there must be of both kinds before they are compared.
const LEAST_COMPARED: u64 = 100;
const BUCKETS: usize = BUCKET_NAMES.len();

/// What writes of one size cost.
#[derive(Clone, Copy)]
struct Compared {
    contended: Amount,
    alone: Amount,
}

impl Compared {
    fn is_known(&self) -> bool {
        self.contended.requests.min(self.alone.requests) >= LEAST_COMPARED
    }

    /// True if there are many in units of several nodes, and too few of the same size to compare them with.
    fn is_unknown(&self) -> bool {
        self.contended.requests >= LEAST_COMPARED && self.times().is_none()
    }

    /// How many times as long writes in units of several nodes take; `None` if too few are known.
    fn times(&self) -> Option<f64> {
        (self.is_known() && self.alone.seconds > 0.0)
            .then(|| mean(&self.contended) / mean(&self.alone))
    }
}

fn mean(writes: &Amount) -> f64 {
    writes.seconds / writes.requests.max(1) as f64
}

fn by_size(locks: &Locks) -> [Compared; BUCKETS] {
    std::array::from_fn(|bucket| {
        let mut contended = Amount::default();
        for rank in &locks.ranks {
            contended.add(&rank.contended[bucket]);
        }
        Compared {
            contended,
            alone: locks.alone[bucket],
        }
    })
}

/// The rank that has most of the seconds of its contended writes, of each size times a factor.
fn most(locks: &Locks, factors: &[f64; BUCKETS]) -> (u32, f64) {
    let seconds = locks.ranks.iter().map(|rank| {
        let of_sizes = rank.contended.iter().zip(factors);
        let seconds: f64 = of_sizes
            .map(|(writes, factor)| writes.seconds * factor)
            .sum();
        (rank.rank, seconds)
    });
    let most = seconds.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
    most.unwrap_or((0, 0.0))
}

/// The rule.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    let locks = subject.job.locks.as_ref();
    locks
        .and_then(|locks| ping_pong(subject, locks))
        .into_iter()
        .collect()
}

fn ping_pong(subject: &Subject, locks: &Locks) -> Option<Finding> {
    let mut contended = Amount::default();
    for file in &locks.files {
        contended.add(&file.contended_writes);
    }
    if contended.requests < subject.limits.min_requests {
        return None;
    }
    let sizes = by_size(locks);
    let (units, all) = locks.files.iter().fold((0, 0), |(contended, all), file| {
        (contended + file.contended, all + file.units)
    });
    let title = format!(
        "{} writes of {} lie in lock units that several nodes write: {} of {} units",
        number(contended.requests),
        units::count(locks.files.len() as u64, "shared file", "shared files"),
        number(units),
        number(all)
    );
    let mut finding = priced(subject, locks, &sizes, &title)
        .or_else(|| unpriced(subject, locks, &sizes, &title))?;
    finding.evidence = evidence(locks, &sizes);
    finding.files = files(subject, locks);
    finding.advice = advice(subject);
    let by_layer =
        subject.job.layer(Interface::MpiIo).is_some() && subject.job.collective.is_empty();
    finding.setting = by_layer.then(|| {
        "LD_PRELOAD=libforebay_mpiio.so on all ranks: collective writes by Forebay's aggregators, whose parts end at lock units".to_owned()
    });
    Some(finding)
}

/// The finding where writes of the same size tell what the locks cost.
fn priced(
    subject: &Subject,
    locks: &Locks,
    sizes: &[Compared; BUCKETS],
    title: &str,
) -> Option<Finding> {
    let limit = subject.limits.lock_slowdown;
    let lost = sizes.map(|one| match one.times() {
        Some(times) if times >= limit => 1.0 - 1.0 / times,
        _ => 0.0,
    });
    let (rank, seconds) = most(locks, &lost);
    if seconds <= 0.0 {
        return None;
    }
    let mut finding = Finding::new(CODE, title.to_owned(), seconds);
    finding.estimate = format!(
        "time of writes in units of several nodes x (1 - mean time of a write of that size in units of one node / in those of several), \
         where they take {limit} times as long or more; on {}",
        subject.job.name_of(rank)
    );
    finding.confidence = Confidence::Medium;
    let lost_seconds = |bucket: &usize| sizes[*bucket].contended.seconds * lost[*bucket];
    let bucket = (0..BUCKETS).max_by(|a, b| lost_seconds(a).total_cmp(&lost_seconds(b)))?;
    let named = |writes: &Amount, nodes: &str| Measured {
        name: format!("{}, unit of {nodes}", BUCKET_NAMES[bucket]),
        seconds: mean(writes),
    };
    finding.measured = vec![
        named(&sizes[bucket].contended, "several nodes"),
        named(&sizes[bucket].alone, "one node"),
    ];
    Some(finding)
}

/// The finding where there is nothing to compare with; none where the comparison shows that locks cost little.
fn unpriced(
    subject: &Subject,
    locks: &Locks,
    sizes: &[Compared; BUCKETS],
    title: &str,
) -> Option<Finding> {
    let unknown = sizes.map(|one| if one.is_unknown() { 1.0 } else { 0.0 });
    let (rank, seconds) = most(locks, &unknown);
    if seconds <= 0.0 {
        return None;
    }
    let mut finding = Finding::not_estimated(CODE, title.to_owned(), seconds);
    finding.estimate = format!(
        "not estimated: fewer than {LEAST_COMPARED} writes of the same size lie in units of one node, by which to tell what the locks cost; \
         on {}",
        subject.job.name_of(rank)
    );
    Some(finding)
}

fn evidence(locks: &Locks, sizes: &[Compared; BUCKETS]) -> Vec<String> {
    let known = sizes
        .iter()
        .zip(BUCKET_NAMES)
        .filter(|(one, _)| one.is_known());
    let mut evidence: Vec<String> = known
        .map(|(one, name)| {
            format!(
                "a write of {name} takes {} in a unit of several nodes ({}), {} in a unit of one ({})",
                units::seconds(mean(&one.contended)),
                number(one.contended.requests),
                units::seconds(mean(&one.alone)),
                number(one.alone.requests)
            )
        })
        .collect();
    let mut all = [Amount::default(); 2];
    for file in &locks.files {
        all[0].add(&file.contended_writes);
        all[1].add(&file.alone_writes);
    }
    let [contended, alone] = all.map(|writes| {
        let requests = units::count(writes.requests, "write", "writes");
        format!(
            "{requests}, {}, {}",
            bytes(writes.bytes),
            units::seconds(writes.seconds)
        )
    });
    evidence.push(format!(
        "all ranks, in units of several nodes: {contended}; in units of one node: {alone}"
    ));
    if locks.left_out > 0 {
        evidence.push(format!(
            "{} with too many units not looked at",
            units::count(locks.left_out, "shared file", "shared files")
        ));
    }
    evidence
}

fn files(subject: &Subject, locks: &Locks) -> Vec<FileEvidence> {
    let mut order: Vec<&LockedFile> = locks.files.iter().collect();
    order.sort_by(|a, b| {
        let order = b
            .contended_writes
            .seconds
            .total_cmp(&a.contended_writes.seconds);
        order.then(a.file.cmp(&b.file))
    });
    let named = order.into_iter().take(NAMED_FILES);
    named
        .map(|one| FileEvidence {
            name: subject.job.files[one.file].name.clone(),
            detail: format!(
                "{} of {} units of {}, {} of {} writes",
                number(one.contended),
                number(one.units),
                bytes(one.unit),
                number(one.contended_writes.requests),
                number(one.contended_writes.requests + one.alone_writes.requests)
            ),
        })
        .collect()
}

fn advice(subject: &Subject) -> String {
    let align = "Start the part of each node at a multiple of the lock unit";
    if subject.job.is_mpi() {
        format!(
            "{align} (HDF5: H5Pset_alignment; MPI-IO: hint striping_unit), or write collectively (MPI_File_write_at_all, hint \
             romio_cb_write=enable), so that few aggregators write whole units."
        )
    } else {
        format!("{align}, or let one process of each node write for all on it.")
    }
}
