//! Prints a log as `pydarshan_dump.py` does, so that the two can be compared line by line.

use darshan_log::*;
use std::fmt::Write;

/// How PyDarshan 3.5.0 differs from what a log says.
#[derive(Clone, Copy, PartialEq)]
pub enum Quirks {
    /// As the log says.
    None,
    /// POSIX records of old versions: version 3 loses the last two floats (the variances), version 2
    /// the last four (the times of fastest and slowest rank, too), and of logs in another byte
    /// order floats 10 to 12 stay swapped.
    AsPyDarshan,
}

pub fn dump(log: &Log, quirks: Quirks) -> Vec<String> {
    let mut lines = Vec::new();
    dump_job(log, &mut lines);
    for module in log.modules() {
        lines.push(format!(
            "module {} {} {} {} {}",
            module.id.number(),
            module.id.name(),
            module.version,
            i32::from(module.partial),
            module.extent.len
        ));
        match module.id {
            ModuleId::Posix => dump_posix(log, quirks, &mut lines),
            ModuleId::MpiIo => dump_accumulated(log, read::<MpiIo>(log), &mut lines),
            ModuleId::Stdio => dump_accumulated(log, read::<Stdio>(log), &mut lines),
            ModuleId::Dfs => dump_accumulated(log, read::<Dfs>(log), &mut lines),
            ModuleId::Daos => dump_accumulated(log, read::<Daos>(log), &mut lines),
            ModuleId::H5f => dump_records(&read::<H5f>(log), &mut lines),
            ModuleId::H5d => dump_records(&read::<H5d>(log), &mut lines),
            ModuleId::PnetcdfFile => dump_records(&read::<PnetcdfFile>(log), &mut lines),
            ModuleId::PnetcdfVar => dump_records(&read::<PnetcdfVar>(log), &mut lines),
            ModuleId::Bgq => dump_records(&read::<Bgq>(log), &mut lines),
            ModuleId::Lustre => dump_lustre(log, &mut lines),
            ModuleId::Heatmap => dump_heatmap(log, &mut lines),
            ModuleId::DxtPosix => dump_dxt::<DxtPosix>(log, &mut lines),
            ModuleId::DxtMpiio => dump_dxt::<DxtMpiio>(log, &mut lines),
            // PyDarshan wheels are built without them.
            ModuleId::Apmpi | ModuleId::Apxc => {}
            other => panic!("no sample log has {other}"),
        }
    }
    lines
}

fn read<M: CounterModule>(log: &Log) -> Vec<Record<M>> {
    log.records::<M>().collect::<Result<_>>().unwrap()
}

fn hexed(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".into();
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn numbers<T: std::fmt::Display>(values: impl IntoIterator<Item = T>) -> String {
    values
        .into_iter()
        .map(|value| value.to_string())
        .collect::<Vec<_>>()
        .join(" ")
}

fn bits(values: &[f64]) -> String {
    numbers(values.iter().map(|value| value.to_bits()))
}

fn dump_job(log: &Log, lines: &mut Vec<String>) {
    let job = &log.job;
    let times = [job.start.sec, job.start.nsec, job.end.sec, job.end.nsec];
    lines.push(format!(
        "job {} {} {} {}",
        job.uid,
        numbers(times),
        job.nprocs,
        job.id
    ));
    lines.push(format!(
        "format {} {}",
        log.header.version.as_str(),
        bits(&[log.run_time()])
    ));
    for (key, value) in job.metadata.iter() {
        lines.push(format!(
            "metadata {} {}",
            hexed(key.as_bytes()),
            hexed(value.as_bytes())
        ));
    }
    // darshan-util ends the command line at the first mount, and finds none without.
    let exe = if log.mounts.is_empty() { "" } else { &log.exe };
    lines.push(format!("exe {}", hexed(exe.as_bytes())));
    let mount = |m: &Mount| {
        format!(
            "mount {} {}",
            hexed(m.path.as_bytes()),
            hexed(m.fs_type.as_bytes())
        )
    };
    let mut mounts: Vec<String> = log.mounts.iter().map(mount).collect();
    mounts.sort();
    lines.append(&mut mounts);
    let mut names: Vec<String> = log
        .names
        .iter()
        .map(|(id, name)| format!("name {id} {}", hexed(name)))
        .collect();
    names.sort();
    lines.append(&mut names);
}

fn dump_posix(log: &Log, quirks: Quirks, lines: &mut Vec<String>) {
    let mut records = read::<Posix>(log);
    if quirks == Quirks::AsPyDarshan {
        let version = log.module(ModuleId::Posix).unwrap().version;
        for record in &mut records {
            spoil(record, version, log.header.endian);
        }
    }
    dump_accumulated(log, records, lines);
}

/// Applies [`Quirks::AsPyDarshan`].
fn spoil(record: &mut Record<Posix>, version: u32, endian: Endian) {
    let lost = match version {
        2 => 13,
        3 => 15,
        _ => 17,
    };
    record.fcounters[lost..].fill(0.0);
    if version < 4 && endian == Endian::Big {
        for float in &mut record.fcounters[10..13] {
            *float = f64::from_bits(float.to_bits().swap_bytes());
        }
    }
}

fn record_line<M: CounterModule>(record: &Record<M>, extra: &str) -> String {
    let (ints, floats) = (
        numbers(record.counters.as_ref()),
        bits(record.fcounters.as_ref()),
    );
    format!(
        "record {} {} {} {extra} {ints} {floats}",
        M::ID.name(),
        record.id,
        record.rank
    )
}

/// What the record has besides counters, as text.
fn extra_of<M: CounterModule>(record: &Record<M>) -> String {
    let record: &dyn std::any::Any = record;
    let dataset = record
        .downcast_ref::<Record<H5d>>()
        .map(|r| r.extra.file_id);
    let variable = record
        .downcast_ref::<Record<PnetcdfVar>>()
        .map(|r| r.extra.file_id);
    dataset.or(variable).map_or("-".into(), |id| id.to_string())
}

fn dump_records<M: CounterModule>(records: &[Record<M>], lines: &mut Vec<String>) {
    lines.extend(
        records
            .iter()
            .map(|record| record_line(record, &extra_of(record))),
    );
}

fn dump_accumulated<M: CounterModule>(log: &Log, records: Vec<Record<M>>, lines: &mut Vec<String>) {
    dump_records(&records, lines);
    let derived = derive(records.iter().map(|record| Ok(*record)), log.job.nprocs).unwrap();
    let name = M::ID.name();
    let times = bits(&[
        derived.unique_time_by_slowest,
        derived.unique_transfer_time_by_slowest,
        derived.unique_meta_time_by_slowest,
        derived.shared_time_by_slowest,
        derived.agg_perf_by_slowest,
        derived.agg_time_by_slowest,
    ]);
    lines.push(format!(
        "derived {name} {} {} {times}",
        derived.total_bytes, derived.unique_slowest_rank
    ));
    for (i, category) in Category::ALL.into_iter().enumerate() {
        let c = derived.category(category);
        lines.push(format!(
            "category {name} {i} {}",
            numbers([
                c.count,
                c.bytes_read,
                c.bytes_written,
                c.max_bytes_read,
                c.max_bytes_written,
                c.sum_max_offset,
                c.max_offset,
                c.nprocs
            ])
        ));
    }
    if let Some(sum) = accumulate(&records) {
        lines.push(format!("sum {}", record_line(&sum, "-")));
    }
}

fn dump_lustre(log: &Log, lines: &mut Vec<String>) {
    for record in log.records::<Lustre>() {
        let record = record.unwrap();
        lines.push(format!(
            "lustre {} {} {}",
            record.id,
            record.rank,
            record.components.len()
        ));
        for component in &record.components {
            let counters = numbers(component.counters());
            lines.push(format!(
                "component {counters} {}",
                hexed(component.pool.as_bytes())
            ));
        }
        lines.push(format!("osts {}", numbers(&record.osts)));
    }
}

fn dump_heatmap(log: &Log, lines: &mut Vec<String>) {
    for record in log.records::<Heatmap>() {
        let record = record.unwrap();
        let (width, bins) = (bits(&[record.bin_width]), record.bins());
        lines.push(format!(
            "heatmap {} {} {width} {bins}",
            record.id, record.rank
        ));
        lines.push(format!("written {}", numbers(&record.written)));
        lines.push(format!("read {}", numbers(&record.read)));
    }
}

fn dump_dxt<M: Module<Record = DxtRecord>>(log: &Log, lines: &mut Vec<String>) {
    for record in log.records::<M>() {
        let record = record.unwrap();
        lines.push(format!(
            "dxt {} {} {} {} {} {} {}",
            M::ID.name(),
            record.id,
            record.rank,
            record.shared,
            hexed(record.hostname.as_bytes()),
            record.writes.len(),
            record.reads.len()
        ));
        let words = |s: &Segment| {
            [
                s.offset as u64,
                s.length as u64,
                s.start.to_bits(),
                s.end.to_bits(),
            ]
        };
        let segments: Vec<u64> = record
            .writes
            .iter()
            .chain(&record.reads)
            .flat_map(words)
            .collect();
        if !segments.is_empty() {
            lines.push(format!("segments {}", numbers(segments)));
        }
    }
}
