//! Made-up jobs: tables as the recorder would leave them, of as many processes and hosts as a test likes.

use darshan_log::Log;
use forebay_collect::naming::Moment;
use forebay_collect::recording::{CommandEnd, Note, Recording};
use forebay_collect::{Collected, Error, collect};
use forebay_count::layout::{H_END, H_END_CODE, H_IO_FIRST, H_IO_LAST, Kind};
use forebay_count::table::{Birth, Bulk, InMemory, Name};
use forebay_count::{Event, Op, Table, event};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// When made-up jobs begin, in nanoseconds since 1970; not on a whole tick of the heat map.
pub const START: u64 = 1_700_000_000_050_000_000;
/// A second in nanoseconds.
pub const S: u64 = 1_000_000_000;
/// A millisecond.
pub const MS: u64 = 1_000_000;

/// One table of one process.
#[derive(Clone)]
pub struct Image {
    pub host: &'static str,
    pub pid: u32,
    pub parent: u32,
    pub serial: u64,
    pub program: &'static str,
    /// Rank, number of ranks, and true if MPI said so.
    pub rank: Option<(u32, u32, bool)>,
    pub key: &'static str,
    /// When it began, after [`START`].
    pub after_ns: u64,
    /// End and code, as the recorder notes them.
    pub end: (u64, u64),
    pub bytes: usize,
}

/// A process that exits with 0 at once.
pub fn image(pid: u32, parent: u32, program: &'static str) -> Image {
    Image {
        host: "node1",
        pid,
        parent,
        serial: 0,
        program,
        rank: None,
        key: "",
        after_ns: u64::from(pid) * MS,
        end: (1, 0),
        bytes: 256 << 10,
    }
}

impl Image {
    pub fn rank(mut self, rank: u32, size: u32) -> Image {
        self.rank = Some((rank, size, true));
        self
    }

    /// The next program of the same process.
    pub fn then(mut self, program: &'static str) -> Image {
        self.serial += 1;
        self.after_ns += 10 * MS;
        self.program = program;
        self
    }
}

/// Counts what a process does to files.
pub struct Does<'t>(Table<'t>);

impl Does<'_> {
    /// Bytes that the process had fetched from storage when its table began, and in the end.
    pub fn fetched(&self, first: u64, last: u64) {
        // The fifth figure of /proc/self/io.
        self.0.put(H_IO_FIRST + 4, first);
        self.0.put(H_IO_LAST + 4, last);
    }

    /// A call that takes a millisecond, `at_ms` after the start of the table.
    pub fn call(&self, name: &str, op: Op, offset: i64, bytes: i64, at_ms: u64) {
        let name = Name::of(name.as_bytes());
        let handle = self.0.hold(Kind::Posix, &name, &InMemory).unwrap();
        let start = 1000 + at_ms * MS;
        let event = Event {
            offset,
            bytes,
            ..Event::plain(op, start, start + MS)
        };
        assert!(self.0.count(Kind::Posix, handle, &event, &InMemory));
        self.0.let_go(Kind::Posix, handle);
    }

    /// Opens a file that had `size` bytes, or is created if that is `None`.
    pub fn open(&self, name: &str, size: Option<u64>, at_ms: u64) {
        let name = Name::of(name.as_bytes());
        let handle = self.0.hold(Kind::Posix, &name, &InMemory).unwrap();
        let start = 1000 + at_ms * MS;
        let origin = if size.is_some() {
            event::WAS_THERE
        } else {
            event::CREATED
        };
        let event = Event {
            offset: size.unwrap_or(0) as i64,
            aux: Event::opened(0o644, 4096, origin),
            ..Event::plain(Op::Open, start, start + MS)
        };
        assert!(self.0.count(Kind::Posix, handle, &event, &InMemory));
    }

    /// A write for which there is no record.
    pub fn write_nowhere(&self, bytes: i64) {
        let event = Event {
            bytes,
            ..Event::plain(Op::Write, 1000, 1000 + MS)
        };
        self.0.add_bulk(Bulk::Unplaced, &event);
    }

    pub fn write(&self, name: &str, offset: i64, bytes: i64, at_ms: u64) {
        self.call(name, Op::Write, offset, bytes, at_ms);
    }

    pub fn read(&self, name: &str, offset: i64, bytes: i64, at_ms: u64) {
        self.call(name, Op::Read, offset, bytes, at_ms);
    }
}

/// Recording directories of a job, one for each host, and a place for its log.
pub struct Stage {
    pub dir: PathBuf,
    pub recordings: Vec<Recording>,
}

impl Stage {
    pub fn new() -> Stage {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let dir = std::env::temp_dir().join(format!(
            "fbcollect-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        ));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Stage {
            dir,
            recordings: Vec::new(),
        }
    }

    /// The recording of a host.
    pub fn recording(&mut self, host: &str) -> &mut Recording {
        if let Some(at) = self.recordings.iter().position(|r| r.note.host == host) {
            return &mut self.recordings[at];
        }
        let mut note = Note::new(vec!["./job.sh".to_owned(), "a b".to_owned()]);
        note.host = host.to_owned();
        note.user = "ada".to_owned();
        note.uid = 7;
        note.pid = 4000;
        note.start_ns = START;
        note.end = Some(CommandEnd {
            end_ns: START + 2 * S,
            code: Some(0),
            ..CommandEnd::default()
        });
        note.mounts = "d / ext4 rw 0 0\n".to_owned();
        let recording = Recording::create(&self.dir.join(host), note).unwrap();
        self.recordings.push(recording);
        self.recordings.last_mut().unwrap()
    }

    /// Leaves the table of a process that has done what `act` says.
    pub fn table(&mut self, image: &Image, act: impl FnOnce(&Does)) -> PathBuf {
        let words: Vec<AtomicU64> = (0..image.bytes / 8).map(|_| AtomicU64::new(0)).collect();
        let args = format!("{}\0-x\0", image.program);
        let exe = format!("/usr/bin/{}", image.program);
        let birth = Birth {
            pid: image.pid,
            ppid: image.parent,
            start_ticks: u64::from(image.pid),
            serial: image.serial,
            realtime_ns: START + image.after_ns,
            monotonic_ns: 1000,
            hostname: image.host.as_bytes(),
            job_key: image.key.as_bytes(),
            exe: exe.as_bytes(),
            args: args.as_bytes(),
            ..Birth::default()
        };
        let table = Table::format(&words, &birth, &InMemory).unwrap();
        if let Some((rank, size, by_mpi)) = image.rank {
            table.set_rank(rank, size, by_mpi);
        }
        table.put(H_END, image.end.0);
        table.put(H_END_CODE, image.end.1);
        act(&Does(table));
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        let dir = self.recording(image.host).dir.clone();
        let path = dir.join(format!(
            "{}-{}-{}.table",
            image.pid, image.pid, image.serial
        ));
        fs::write(&path, bytes).unwrap();
        path
    }

    pub fn try_collect(&self) -> Result<Collected, Error> {
        let moment = |_| Moment {
            year: 2026,
            month: 3,
            day: 9,
            second_of_day: 300,
        };
        collect(
            &self.recordings,
            Some(&self.dir.join("job.darshan")),
            moment,
        )
    }

    pub fn collect(&self) -> (Collected, Log) {
        let collected = self.try_collect().unwrap();
        let log = Log::open(&collected.log).unwrap();
        (collected, log)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
