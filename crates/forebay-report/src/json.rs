//! The report as JSON for scripts. docs/REPORT.md promises the schema: within one version fields are added, never
//! changed or removed.

use crate::Report;
use crate::account::{Moved, TimeSplit, split_of};
use crate::model::{Counters, FileUse, Flow, Layer};
use serde_json::{Value, json};

/// Version of the schema.
pub const FORMAT: u32 = 1;
/// Files that are listed one by one.
const SLOW_FILES: usize = 100;

/// The whole report.
pub(crate) fn report(report: &Report) -> Value {
    let (job, account) = (&report.job, &report.account);
    json!({
        "forebay_job_report": FORMAT,
        "job": {
            "exe": job.exe,
            "id": job.job_id,
            "uid": job.uid,
            "processes": job.ranks,
            "mpi": job.is_mpi(),
            "ranks": job.rank_count(),
            "serial_steps": job.serial_steps(),
            "nodes": job.nodes,
            "hosts": job.hosts,
            "start_unix_seconds": job.start,
            "run_seconds": job.run_seconds,
            "run_seconds_rounded": job.run_seconds_rounded,
            "metadata": job.metadata,
            "logs": job.logs,
            "modules": job.modules,
        },
        "coverage": job.coverage.map(|coverage| json!({
            "seen_bytes": coverage.seen,
            "total_bytes": coverage.total,
            "elsewhere_bytes": coverage.elsewhere,
            "share": coverage.share(),
            "fetched_bytes": coverage.fetched.map(|fetched| fetched.bytes),
            "fetched_at_start_bytes": coverage.fetched.map(|fetched| fetched.at_start),
            "asked_bytes": coverage.fetched.map(|fetched| fetched.asked),
        })),
        "moved": moved(&account.moved),
        "io_seconds": account.io_seconds,
        "mib_per_second": account.mib_per_second(),
        "mib_per_second_is_least": account.may_overlap(job),
        "mib_per_second_per_node": account.mib_per_second_per_node(job),
        "time": split(&account.time),
        "waiting_share_of_writes": account.waiting_writes,
        "slowest_rank": account.slowest.map(|slowest| json!({
            "rank": slowest.rank,
            "name": job.name_of(slowest.rank),
            "seconds": slowest.seconds,
        })),
        "sharing": account.sharing.iter().map(|(class, sums)| {
            let mut row = moved(sums);
            row["class"] = json!(class);
            row
        }).collect::<Vec<_>>(),
        // The last bucket has no bound.
        "size_bucket_bounds": &darshan_log::SIZE_BUCKETS[..9],
        "interfaces": job.layers.iter().zip(&account.totals)
            .map(|(one, total)| layer(report, one, total)).collect::<Vec<_>>(),
        "slowest_files": report.slowest_files(SLOW_FILES).iter()
            .map(|(layer, one)| file(report, layer, one)).collect::<Vec<_>>(),
        "programs": job.programs,
        "collective": job.collective.iter().zip(&report.avoided).map(|(one, avoided)| {
            let mut row = json!(one);
            row["avoided"] = json!(avoided);
            row
        }).collect::<Vec<_>>(),
        "findings": report.findings,
        "unexplained": report.unexplained,
        "plots": report.plots(),
    })
}

fn moved(sums: &Moved) -> Value {
    json!({
        "files": sums.files,
        "directories": sums.directories,
        "bytes_read": sums.bytes_read,
        "bytes_written": sums.bytes_written,
    })
}

fn split(time: &TimeSplit) -> Value {
    json!({
        "read_seconds": time.read,
        "write_seconds": time.write,
        "metadata_seconds": time.metadata,
        "other_seconds": time.other,
    })
}

fn layer(report: &Report, layer: &Layer, total: &Counters) -> Value {
    let mut value = counters(total);
    value["interface"] = json!(layer.interface.name());
    let is_file = |one: &&FileUse| !report.job.files[one.file].is_calls;
    value["files"] = json!(layer.uses.iter().filter(is_file).count());
    value["partial"] = json!(layer.is_partial);
    value["condensed"] = json!(layer.is_condensed);
    value["by_slowest"] = json!(layer.by_slowest);
    value["mean_rank"] = split(&split_of(&report.job, layer.interface));
    value
}

fn counters(total: &Counters) -> Value {
    json!({
        "opens": total.opens,
        "seeks": total.seeks,
        "stats": total.stats,
        "asked": total.asked,
        "other_calls": total.other_calls,
        "syncs": total.syncs,
        "sync_seconds": total.has_timed_syncs().then_some(total.flushing.sync_seconds),
        "synced_writes": total.flushing.synced_writes,
        "direct_requests": total.flushing.direct,
        "mmaps": total.mmaps,
        "switches": total.switches,
        "misaligned": total.misaligned,
        "metadata_seconds": total.meta_seconds,
        "read": flow(&total.read),
        "write": flow(&total.write),
        "common_sizes": total.common,
    })
}

fn flow(flow: &Flow) -> Value {
    json!({
        "ops": flow.ops,
        "bytes": flow.bytes,
        "seconds": flow.seconds,
        "sequential": flow.sequential,
        "consecutive": flow.consecutive,
        "sizes": flow.sizes,
        "independent": flow.independent,
        "collective": flow.collective,
    })
}

fn file(report: &Report, layer: &Layer, one: &FileUse) -> Value {
    let facts = &report.job.files[one.file];
    let mut value = counters(&one.total);
    value["name"] = json!(facts.name);
    value["file_system"] = json!(facts.fs);
    value["interface"] = json!(layer.interface.name());
    value["sharing"] = json!(one.sharing);
    value["ranks"] = json!(one.ranks);
    value["slowest"] = json!(one.slowest());
    value["created"] = json!(facts.created);
    value["size_at_open"] = json!(facts.size_at_open);
    value
}
