//! Writes the log of a job, one rank after the other, so that memory grows with the files and not with the records.

use crate::Error;
use crate::busy;
use crate::flushing;
use crate::heatmap::Axis;
use crate::job::Job;
use crate::job_facts;
use crate::merge::Seen;
use crate::mounts;
use crate::nodes::RankSums;
use crate::programs;
use crate::sharing::FileUsers;
use crate::uncounted_calls;
use darshan_log::file_facts::Facts;
use darshan_log::{
    CounterModule, H5d, H5f, Heatmap, HeatmapRecord, Job as JobRecord, LogWriter, Module, Mount,
    MpiIo, Parent, PnetcdfFile, PnetcdfVar, Posix, Record, Reducer, Stdio, Time, record_id,
};
use forebay_count::Kind;
use forebay_count::heat::TICK_NS;
use std::collections::{BTreeMap, HashMap};
use std::io::{Seek, Write};

/// Writes the whole log of the job into `sink`.
///
/// # Errors
/// A table can't be read any more, or the sink can't be written.
pub fn write<W: Write + Seek>(job: &Job, sink: W) -> Result<W, Error> {
    let sharing = job.sharing();
    let facts = sharing.facts();
    let lines = job_facts::lines(job, &facts);
    let all_lines = lines.clone().all();
    let mut header = header(job);
    for (key, value) in lines.fitted() {
        header.metadata.insert(&key, &value)?;
    }
    let mounts = mounts(job);
    let mut sums = RankSums::new(job, mounts.clone());
    let mut writer = LogWriter::new(
        sink,
        &header,
        &job.command_line().replace('\0', " "),
        &mounts,
    )?;
    let heat_names = [Kind::Posix, Kind::Mpiio, Kind::Stdio].map(heat_name);
    let names: BTreeMap<u64, &[u8]> = job
        .tables
        .names
        .iter()
        .map(|(&id, name)| (id, name.as_slice()))
        .chain(heat_names.map(|name| (record_id(name.as_bytes()), name.as_bytes())))
        .collect();
    for (id, name) in names {
        writer.name(id, name)?;
    }
    write_kind::<Posix, W>(&mut writer, &mut sums, &sharing, Kind::Posix, |_, _| {})?;
    sums.add_uncached();
    write_kind::<MpiIo, W>(&mut writer, &mut sums, &sharing, Kind::Mpiio, |_, _| {})?;
    write_kind::<H5f, W>(&mut writer, &mut sums, &sharing, Kind::H5f, |_, _| {})?;
    write_kind::<H5d, W>(
        &mut writer,
        &mut sums,
        &sharing,
        Kind::H5d,
        |record, file_id| {
            record.extra = Parent { file_id };
        },
    )?;
    write_kind::<PnetcdfFile, W>(
        &mut writer,
        &mut sums,
        &sharing,
        Kind::PnetcdfFile,
        |_, _| {},
    )?;
    write_kind::<PnetcdfVar, W>(
        &mut writer,
        &mut sums,
        &sharing,
        Kind::PnetcdfVar,
        |record, file_id| {
            record.extra = Parent { file_id };
        },
    )?;
    write_kind::<Stdio, W>(&mut writer, &mut sums, &sharing, Kind::Stdio, |_, _| {})?;
    write_heat(&mut writer, job)?;
    let trailer = Facts {
        files: facts,
        lines: all_lines,
        programs: programs::of(job),
        notes: notes(job, &sums),
    };
    writer.trailing(&trailer.encode())?;
    Ok(writer.finish()?.0)
}

/// What Darshan's format has no place for, in JSON; `forebay-report` reads it.
fn notes(job: &Job, sums: &RankSums) -> Vec<(String, String)> {
    let mut notes = vec![
        ("calls".to_owned(), uncounted_calls::note(job)),
        ("busy".to_owned(), busy::note(job)),
    ];
    notes.extend(flushing::note(job).map(|note| (flushing::NOTE.to_owned(), note)));
    notes.extend(sums.note().map(|note| ("nodes".to_owned(), note)));
    if !job.tables.collective.is_empty() {
        let told = serde_json::Value::from(job.tables.collective.clone());
        notes.push(("collective".to_owned(), told.to_string()));
    }
    notes
}

fn header(job: &Job) -> JobRecord {
    let time = |ns: u64| Time {
        sec: (ns / 1_000_000_000) as i64,
        nsec: (ns % 1_000_000_000) as i64,
    };
    JobRecord {
        uid: i64::from(job.note().uid),
        start: time(job.start_ns),
        end: time(job.end_ns),
        nprocs: i64::from(job.ranks.count()),
        id: job_id(job),
        ..JobRecord::default()
    }
}

/// The number that the batch job's id begins with; without a batch system the process id of the command.
pub fn job_id(job: &Job) -> i64 {
    let note = job.note();
    let digits = note.batch_job.as_deref().unwrap_or_default();
    let end = digits.find(|c: char| !c.is_ascii_digit());
    let number = digits[..end.unwrap_or(digits.len())].parse().ok();
    let pid = if note.pid == 0 {
        note.recorder.0
    } else {
        note.pid
    };
    number.unwrap_or(i64::from(pid))
}

fn mounts(job: &Job) -> Vec<Mount> {
    let names = job.tables.names.values();
    let paths: Vec<&str> = names
        .filter_map(|name| std::str::from_utf8(name).ok())
        .collect();
    mounts::for_log(&job.note().mounts, paths.into_iter())
}

/// Writes all records of one interface: those of each rank, then those that all ranks share.
fn write_kind<M, W>(
    writer: &mut LogWriter<W>,
    sums: &mut RankSums,
    sharing: &FileUsers,
    kind: Kind,
    set_parent: fn(&mut Record<M>, u64),
) -> Result<(), Error>
where
    M: CounterModule + Module<Record = Record<M>>,
    W: Write + Seek,
{
    let job = sums.job();
    let mut shared: BTreeMap<u64, Reducer<M>> = BTreeMap::new();
    let mut is_folded = false;
    for (&rank, members) in &job.members {
        for record in records_of(job, rank, members, kind, set_parent)? {
            sums.add(rank, kind, &record);
            match sharing.is_shared(kind, record.id, rank) {
                Some(true) => shared.entry(record.id).or_default().add(&record),
                Some(false) => writer.record::<M>(&record)?,
                // The record is newer than the first reading of the tables.
                None => {}
            }
        }
        let entries = members.iter().flat_map(|&at| &job.tables.images[at].files);
        is_folded |= entries
            .clone()
            .any(|e| e.kind == kind && e.folded.is_some());
    }
    for record in shared.into_values().filter_map(Reducer::finish) {
        writer.record::<M>(&record)?;
    }
    if is_folded {
        writer.mark_partial(<M as CounterModule>::ID);
    }
    Ok(())
}

/// The records of one rank, one for each file, joined over its processes.
fn records_of<M: CounterModule>(
    job: &Job,
    rank: u32,
    members: &[usize],
    kind: Kind,
    set_parent: fn(&mut Record<M>, u64),
) -> Result<Vec<Record<M>>, Error> {
    let mut files: Vec<Seen<M>> = Vec::new();
    let mut at: HashMap<u64, usize> = HashMap::new();
    for image in members.iter().map(|&at| &job.tables.images[at]) {
        if !image.has(kind) {
            continue;
        }
        image.each::<M>(kind, job.start_ns, |mut seen, parent| {
            seen.record.rank = i64::from(rank);
            set_parent(&mut seen.record, parent);
            match at.get(&seen.record.id) {
                Some(&n) => files[n].merge(&seen),
                None => {
                    at.insert(seen.record.id, files.len());
                    files.push(seen);
                }
            }
        })?;
    }
    Ok(files.into_iter().map(|seen| seen.record).collect())
}

/// Darshan's name for the heat map of an interface.
fn heat_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Mpiio => "heatmap:MPIIO",
        Kind::Stdio => "heatmap:STDIO",
        _ => "heatmap:POSIX",
    }
}

fn write_heat<W: Write + Seek>(writer: &mut LogWriter<W>, job: &Job) -> Result<(), Error> {
    let heat = || job.tables.images.iter().flat_map(|image| &image.heat);
    let widest = heat().map(|(_, bins)| bins.width_ns).max().unwrap_or(0);
    // The axis begins at a whole tick, so that bins of the processes are moved and not split.
    let axis = Axis::of(job.start_ns / TICK_NS * TICK_NS, job.end_ns, widest);
    for kind in [Kind::Posix, Kind::Mpiio, Kind::Stdio] {
        for (&rank, members) in &job.members {
            let maps = members.iter().flat_map(|&at| &job.tables.images[at].heat);
            let mut maps = maps.filter(|(k, _)| *k == kind).peekable();
            if maps.peek().is_none() {
                continue;
            }
            let (mut read, mut written) = (vec![0; axis.count], vec![0; axis.count]);
            for (_, bins) in maps {
                axis.add(bins, &mut read, &mut written);
            }
            let signed = |bins: Vec<u64>| bins.into_iter().map(|n| n as i64).collect();
            writer.record::<Heatmap>(&HeatmapRecord {
                id: record_id(heat_name(kind).as_bytes()),
                rank: i64::from(rank),
                bin_width: axis.width_s(),
                written: signed(written),
                read: signed(read),
            })?;
        }
    }
    Ok(())
}
