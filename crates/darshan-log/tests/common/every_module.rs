//! A log that has every module, made by this crate's own writer.

use darshan_log::*;
use std::io::Cursor;

pub const RANKS: i64 = 4;
pub const FILE: &[u8] = b"/scratch/shared.h5";

/// The job of [`write`].
pub fn job() -> Job {
    let mut job = Job {
        uid: 1000,
        start: Time {
            sec: 1_700_000_000,
            nsec: 250_000_000,
        },
        end: Time {
            sec: 1_700_000_010,
            nsec: 750_000_000,
        },
        nprocs: RANKS,
        id: 4711,
        metadata: Metadata::default(),
    };
    for (key, value) in [("lib_ver", "3.5.0"), ("nnodes", "2"), ("hosts", "n1,n2")] {
        job.metadata.insert(key, value).unwrap();
    }
    job
}

/// A record with a different number in each counter, times that make sense, and bytes.
pub fn record<M: CounterModule>(name: &[u8], rank: i64) -> Record<M> {
    let mut record = Record::<M>::new(record_id(name), rank);
    let layout = M::layout();
    for (i, counter) in record.counters.as_mut().iter_mut().enumerate() {
        *counter = 1 + i as i64 + rank;
    }
    for (i, counter) in record.fcounters.as_mut().iter_mut().enumerate() {
        *counter = 0.5 + i as f64 / 8.0 + rank as f64 / 64.0;
    }
    if let Some((read, written)) = layout.bytes {
        record.counters.as_mut()[read] = (rank + 1) << 20;
        record.counters.as_mut()[written] = (rank + 2) << 20;
    }
    record
}

/// Writes the log to `writer`.
pub fn write<W: std::io::Write + std::io::Seek>(mut writer: LogWriter<W>) -> W {
    let names: [&[u8]; 7] = [
        FILE,
        b"/scratch/own.0",
        b"<STDOUT>",
        b"/scratch/shared.h5:/data",
        b"heatmap:POSIX",
        b"heatmap:MPIIO",
        b"heatmap:STDIO",
    ];
    for name in names {
        writer.name(record_id(name), name).unwrap();
    }
    fixed::<Posix, W>(&mut writer, FILE);
    writer
        .record::<Posix>(&record(b"/scratch/own.0", 0))
        .unwrap();
    fixed::<MpiIo, W>(&mut writer, FILE);
    fixed::<H5f, W>(&mut writer, FILE);
    let mut dataset = reduced::<H5d>(b"/scratch/shared.h5:/data");
    dataset.extra.file_id = record_id(FILE);
    writer.record::<H5d>(&dataset).unwrap();
    fixed::<PnetcdfFile, W>(&mut writer, FILE);
    let mut variable = reduced::<PnetcdfVar>(b"/scratch/shared.h5:/data");
    variable.extra.file_id = record_id(FILE);
    writer.record::<PnetcdfVar>(&variable).unwrap();
    writer.record::<Lustre>(&lustre()).unwrap();
    fixed::<Stdio, W>(&mut writer, b"<STDOUT>");
    for rank in 0..RANKS {
        writer.record::<DxtPosix>(&trace(rank)).unwrap();
    }
    for rank in 0..RANKS {
        writer.record::<DxtMpiio>(&trace(rank)).unwrap();
    }
    let heatmaps: [&[u8]; 3] = [b"heatmap:POSIX", b"heatmap:MPIIO", b"heatmap:STDIO"];
    for name in heatmaps {
        for rank in 0..RANKS {
            writer.record::<Heatmap>(&heatmap(name, rank)).unwrap();
        }
    }
    writer.mark_partial(ModuleId::Stdio);
    writer.trailing(b"more than Darshan knows").unwrap();
    writer.finish().unwrap().0
}

/// The log's bytes.
pub fn bytes() -> Vec<u8> {
    let mounts = [mount("/scratch", "lustre"), mount("/", "ext4")];
    let sink = Cursor::new(Vec::new());
    write(LogWriter::new(sink, &job(), "./app -n 4", &mounts).unwrap()).into_inner()
}

pub fn mount(path: &str, fs_type: &str) -> Mount {
    Mount {
        path: path.into(),
        fs_type: fs_type.into(),
    }
}

pub fn reduced<M: CounterModule>(name: &[u8]) -> Record<M> {
    let ranks: Vec<Record<M>> = (0..RANKS).map(|rank| record(name, rank)).collect();
    reduce(&ranks).unwrap()
}

fn fixed<M: CounterModule, W: std::io::Write + std::io::Seek>(
    writer: &mut LogWriter<W>,
    name: &[u8],
) {
    writer.record::<M>(&reduced(name)).unwrap();
}

pub fn lustre() -> LustreRecord {
    let component = |start, end, count| LustreComponent {
        stripe_size: 1 << 20,
        stripe_count: count,
        stripe_pattern: 1,
        flags: 0,
        extent_start: start,
        extent_end: end,
        mirror_id: 0,
        pool: "flash".into(),
    };
    LustreRecord {
        id: record_id(FILE),
        rank: -1,
        components: vec![component(0, 1 << 20, 1), component(1 << 20, -1, 3)],
        osts: vec![5, 7, 8, 9],
    }
}

pub fn trace(rank: i64) -> DxtRecord {
    let segment = |i: i64, direction: f64| Segment {
        offset: (rank * 4 + i) << 20,
        length: 1 << 20,
        start: i as f64 + direction,
        end: i as f64 + direction + 0.25,
        thread: None,
    };
    DxtRecord {
        id: record_id(FILE),
        rank,
        shared: 0,
        hostname: format!("n{}", 1 + rank / 2),
        writes: (0..3).map(|i| segment(i, 0.0)).collect(),
        reads: (0..2).map(|i| segment(i, 4.5)).collect(),
    }
}

pub fn heatmap(name: &[u8], rank: i64) -> HeatmapRecord {
    HeatmapRecord {
        id: record_id(name),
        rank,
        bin_width: 0.1,
        written: (0..105).map(|bin| bin * (rank + 1)).collect(),
        read: (0..105).map(|bin| bin + rank).collect(),
    }
}
