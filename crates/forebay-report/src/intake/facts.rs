//! Reads what a log says about its job, beside counters.

use crate::model::{Coverage, Job, ModuleFacts};
use crate::text::printable;
use darshan_log::{Log, ModuleId};
use std::collections::BTreeMap;

pub(super) fn note_job(job: &mut Job, log: &Log) {
    job.exe = printable(log.exe.trim_end().as_bytes());
    job.job_id = log.job.id;
    job.uid = log.job.uid;
    for (key, value) in log.job.metadata.iter() {
        let (key, value) = (printable(key.as_bytes()), printable(value.as_bytes()));
        job.metadata.insert(key, value);
    }
    job.nodes = job
        .metadata
        .get("nnodes")
        .and_then(|text| text.parse().ok());
    if let Some(hosts) = job.metadata.get("hosts") {
        job.hosts = hosts.split(',').map(str::to_owned).collect();
        // A list that was cut ends with the number of entries left out.
        job.hosts
            .retain(|host| !host.starts_with('+') && !host.is_empty());
    }
    job.coverage = coverage(&job.metadata);
    if let Some(text) = job
        .metadata
        .get("degraded")
        .filter(|text| !text.is_empty() && *text != "0")
    {
        job.losses.push(format!(
            "the recorder ran out of memory and summed files: {text}"
        ));
    }
    for (key, what) in MISSING {
        if let Some(count) = job.metadata.get(key).filter(|count| *count != "0") {
            job.losses.push(format!("{count} {what}"));
        }
    }
}

/// Counts of what is missing, under their names in the metadata.
const MISSING: [(&str, &str); 3] = [
    ("ranks_missing", "ranks of the launch left no record"),
    (
        "outlived",
        "processes were still running when the log was written",
    ),
    ("abnormal_ends", "processes did not end by themselves"),
];

/// `coverage_read=SEEN/TOTAL` and `coverage_written=SEEN/TOTAL`, bytes.
fn coverage(metadata: &BTreeMap<String, String>) -> Option<Coverage> {
    let mut sum = Coverage { seen: 0, total: 0 };
    let mut is_known = false;
    for key in ["coverage_read", "coverage_written"] {
        let Some((seen, total)) = metadata.get(key).and_then(|text| text.split_once('/')) else {
            continue;
        };
        if let (Ok(seen), Ok(total)) = (seen.trim().parse::<u64>(), total.trim().parse::<u64>()) {
            sum.seen = sum.seen.saturating_add(seen);
            sum.total = sum.total.saturating_add(total);
            is_known = true;
        }
    }
    is_known.then_some(sum)
}

pub(super) fn note_modules(job: &mut Job, log: &Log) {
    for module in log.modules() {
        let name = module.id.name().to_owned();
        let name = match module.id {
            ModuleId::Unknown(number) => format!("module {number}"),
            _ => name,
        };
        match job.modules.iter_mut().find(|known| known.name == name) {
            Some(known) => known.is_partial |= module.partial,
            None => job.modules.push(ModuleFacts {
                name,
                version: module.version,
                records: 0,
                is_partial: module.partial,
                is_unknown: !module.is_decoded(),
            }),
        }
    }
}

/// Type of the file system whose mount point is the longest prefix of the name.
pub(super) fn file_system(log: &Log, name: &[u8]) -> String {
    log.mounts
        .iter()
        .filter(|mount| {
            let path = mount.path.trim_end_matches('/').as_bytes();
            name.starts_with(path) && name.get(path.len()).is_none_or(|next| *next == b'/')
        })
        .max_by_key(|mount| mount.path.trim_end_matches('/').len())
        .map(|mount| printable(mount.fs_type.as_bytes()))
        .unwrap_or_default()
}
