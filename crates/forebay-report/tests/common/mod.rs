//! Logs that tests build, and where the sample logs are.
#![allow(
    dead_code,
    reason = "each test program uses another part of the common ones"
)]

pub mod random;
pub mod timed;

use darshan_log::counters::{mpiio, posix};
use darshan_log::{
    DxtPosix, DxtRecord, Heatmap, HeatmapRecord, Job, Log, LogWriter, Lustre, LustreComponent,
    LustreRecord, Mount, MpiIo, Posix, Record, Segment, Time, record_id,
};
use forebay_report::{Report, of_log};
use std::collections::HashSet;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// All logs below a directory, in order.
pub fn logs_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            found.extend(logs_below(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "darshan")
        {
            found.push(path);
        }
    }
    found
}

/// A log that a test builds.
pub struct Sketch {
    pub job: Job,
    pub exe: String,
    pub names: Vec<Vec<u8>>,
    known: HashSet<u64>,
    pub posix: Vec<Record<Posix>>,
    pub mpiio: Vec<Record<MpiIo>>,
    pub stripes: Vec<LustreRecord>,
    pub traces: Vec<DxtRecord>,
    pub heatmaps: Vec<HeatmapRecord>,
}

impl Sketch {
    /// A job of 100 s with its own id.
    pub fn new(nprocs: i64, exe: &str) -> Self {
        let mut job = Job {
            uid: 1000,
            start: Time {
                sec: 1_700_000_000,
                nsec: 0,
            },
            end: Time {
                sec: 1_700_000_100,
                nsec: 0,
            },
            nprocs,
            id: 4711,
            ..Job::default()
        };
        job.metadata.insert("lib_ver", "3.5.0").unwrap();
        Sketch {
            job,
            exe: exe.to_owned(),
            names: Vec::new(),
            known: HashSet::new(),
            posix: Vec::new(),
            mpiio: Vec::new(),
            stripes: Vec::new(),
            traces: Vec::new(),
            heatmaps: Vec::new(),
        }
    }

    /// One rank writes and reads a file of its own.
    pub fn own_file(&mut self, name: &[u8], rank: i64, writes: i64, size: i64) {
        use posix::{Counter, FCounter};
        let mut record = Record::<Posix>::new(self.name(name), rank);
        for (counter, value) in [
            (Counter::Opens, 1),
            (Counter::Writes, writes),
            (Counter::BytesWritten, writes * size),
            (Counter::MaxByteWritten, (writes * size - 1).max(0)),
            (Counter::SeqWrites, writes - 1),
            (Counter::ConsecWrites, writes - 1),
            (Counter::Access1Access, size),
            (Counter::Access1Count, writes),
            (Counter::FileAlignment, 4096),
            (
                if size <= 1024 {
                    Counter::SizeWrite100To1K
                } else {
                    Counter::SizeWrite100KTo1M
                },
                writes,
            ),
        ] {
            record.set(counter, value);
        }
        let start = 5.0 + rank as f64;
        for (counter, value) in [
            (FCounter::WriteTime, 0.5 + 0.25 * rank as f64),
            (FCounter::MetaTime, 0.01),
            (FCounter::OpenStartTimestamp, start),
            (FCounter::OpenEndTimestamp, start),
            (FCounter::WriteStartTimestamp, start),
            (FCounter::WriteEndTimestamp, start + 20.0),
            (FCounter::CloseStartTimestamp, start + 20.0),
            (FCounter::CloseEndTimestamp, start + 20.0),
        ] {
            record.setf(counter, value);
        }
        self.posix.push(record);
    }

    /// All ranks write a file through MPI-IO; the logger has summed them.
    pub fn shared_file(&mut self, name: &[u8], writes: i64, size: i64) {
        use mpiio::{Counter, FCounter};
        let id = self.name(name);
        let mut record = Record::<MpiIo>::new(id, -1);
        for (counter, value) in [
            (Counter::CollOpens, self.job.nprocs),
            (Counter::IndepWrites, writes),
            (Counter::BytesWritten, writes * size),
            (Counter::SlowestRank, 3),
            (Counter::SlowestRankBytes, writes * size / self.job.nprocs),
        ] {
            record.set(counter, value);
        }
        record.setf(FCounter::WriteTime, 10.0 * self.job.nprocs as f64);
        record.setf(FCounter::SlowestRankTime, 30.0);
        record.setf(FCounter::WriteStartTimestamp, 40.0);
        record.setf(FCounter::WriteEndTimestamp, 70.0);
        self.mpiio.push(record);
        self.stripes.push(four_stripes(id));
    }

    /// A heat map in which every rank writes for a while, higher ranks later.
    pub fn diagonal_heatmap(&mut self) {
        let bins = 50;
        for rank in 0..self.job.nprocs {
            let mut written = vec![0; bins];
            for (i, cell) in written.iter_mut().skip(rank as usize).take(8).enumerate() {
                *cell = (1 << 20) * (i as i64 + 1);
            }
            let mut read = vec![0; bins];
            read[bins - 1] = 4096;
            self.heatmaps.push(HeatmapRecord {
                id: record_id(b"heatmap:POSIX"),
                rank,
                bin_width: 2.0,
                written,
                read,
            });
        }
        self.names.push(b"heatmap:POSIX".to_vec());
    }

    /// Requests of each rank in one file.
    pub fn trace(&mut self, name: &[u8], requests: usize) {
        let id = self.name(name);
        for rank in 0..self.job.nprocs {
            let one = |i: usize| Segment {
                offset: (i as i64) << 20,
                length: 1 << 20,
                start: i as f64 * 80.0 / requests as f64 + rank as f64 * 0.01,
                end: i as f64 * 80.0 / requests as f64 + 0.5,
                thread: None,
            };
            self.traces.push(DxtRecord {
                id,
                rank,
                shared: 0,
                hostname: format!("node{}", rank / 4),
                writes: (0..requests).map(one).collect(),
                reads: (0..requests / 4).map(one).collect(),
            });
        }
    }

    pub fn name(&mut self, name: &[u8]) -> u64 {
        let id = record_id(name);
        if self.known.insert(id) {
            self.names.push(name.to_vec());
        }
        id
    }

    /// The bytes of the log.
    pub fn bytes(&self) -> Vec<u8> {
        let mounts = [Mount {
            path: "/pfs".to_owned(),
            fs_type: "lustre".to_owned(),
        }];
        let mut writer =
            LogWriter::new(Cursor::new(Vec::new()), &self.job, &self.exe, &mounts).unwrap();
        for name in &self.names {
            writer.name(record_id(name), name).unwrap();
        }
        for record in &self.posix {
            writer.record::<Posix>(record).unwrap();
        }
        for record in &self.mpiio {
            writer.record::<MpiIo>(record).unwrap();
        }
        for record in &self.stripes {
            writer.record::<Lustre>(record).unwrap();
        }
        for record in &self.traces {
            writer.record::<DxtPosix>(record).unwrap();
        }
        for record in &self.heatmaps {
            writer.record::<Heatmap>(record).unwrap();
        }
        writer.finish().unwrap().0.into_inner()
    }

    /// The report of the log.
    pub fn report(&self) -> Report {
        of_log("sketch.darshan", &Log::from_bytes(self.bytes()).unwrap())
    }
}

/// Names and a command that try to break out of their place, in the page and in the terminal.
pub const HOSTILE_NAMES: [&[u8]; 8] = [
    b"/pfs/</script><script>alert(1)</script>",
    b"/pfs/<img src=x onerror=alert(2)>.dat",
    b"/pfs/\"><svg onload=alert(3)>",
    b"/pfs/\x1b[2J\x1b]0;owned\x07.h5",
    b"/pfs/broken-\xff\xfe\x80.nc",
    b"/pfs/\xe2\x80\xaetxt.exe",
    b"/pfs/<!--<script>",
    b"/pfs/&lt;b&gt;'`${alert(4)}",
];

/// A job with a bit of everything.
pub fn full_job() -> Sketch {
    let mut sketch = Sketch::new(
        8,
        "/home/me/sim --title </title><script>alert(0)</script> \u{1b}[31m",
    );
    for rank in 0..8 {
        let name = HOSTILE_NAMES[rank as usize];
        sketch.own_file(name, rank, 2000, 512);
        for i in 0..20 {
            sketch.own_file(
                format!("/pfs/run/part.{rank}.{i:02}").as_bytes(),
                rank,
                4,
                1 << 20,
            );
        }
    }
    sketch.shared_file(b"/pfs/checkpoint.nc", 4000, 65_536);
    sketch.trace(b"/pfs/run/part.0.00", 200);
    sketch.diagonal_heatmap();
    sketch
}

/// A file in stripes of 1 MiB on four targets.
pub fn four_stripes(id: u64) -> LustreRecord {
    LustreRecord {
        id,
        rank: -1,
        components: vec![LustreComponent {
            stripe_size: 1 << 20,
            stripe_count: 4,
            stripe_pattern: -1,
            flags: -1,
            extent_start: 0,
            extent_end: -1,
            mirror_id: -1,
            pool: String::new(),
        }],
        osts: vec![1, 2, 3, 4],
    }
}
