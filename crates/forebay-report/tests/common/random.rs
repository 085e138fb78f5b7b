//! Random logs: well-formed, of several modules, with shared records, several ranks, and counters that are legal however
//! absurd they are. The generator knows what the job moved, because it decides which interface lies over which.

use darshan_log::{
    CounterModule, Daos, Dfs, Extra, H5d, H5f, Job, LogWriter, Metadata, Module, MpiIo, Parent,
    PnetcdfFile, PnetcdfVar, Posix, Record, Stdio, Time, counters::Rule, file_facts::Facts,
    file_facts::FileFacts, record_id,
};
use std::io::Cursor;

/// What a random job did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Truth {
    pub files: u64,
    pub read: u64,
    pub written: u64,
    pub std_streams: u64,
}

/// Splitmix64 (Steele, Lea and Flood, OOPSLA'14).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A number of any magnitude up to 2^38.
    fn wide(&mut self) -> i64 {
        let bits = self.below(38);
        self.below(1 << bits) as i64
    }

    /// From 0 to 1.
    pub fn part(&mut self) -> f64 {
        self.below(1 << 40) as f64 / (1u64 << 40) as f64
    }
}

/// Records of all modules of a log.
#[derive(Default)]
struct Records {
    posix: Vec<Record<Posix>>,
    mpiio: Vec<Record<MpiIo>>,
    h5f: Vec<Record<H5f>>,
    h5d: Vec<Record<H5d>>,
    pnetcdf_file: Vec<Record<PnetcdfFile>>,
    pnetcdf_var: Vec<Record<PnetcdfVar>>,
    stdio: Vec<Record<Stdio>>,
    dfs: Vec<Record<Dfs>>,
    daos: Vec<Record<Daos>>,
}

struct Generator {
    random: Random,
    ranks: i64,
    run: f64,
    names: Vec<Vec<u8>>,
    facts: Facts,
    records: Records,
    truth: Truth,
}

/// The bytes of a log, and what its job did. The same seed gives the same log.
pub fn log(seed: u64) -> (Vec<u8>, Truth) {
    let mut random = Random(seed);
    let ranks = [1, 1, 2, 4, 7, 33][random.below(6) as usize];
    let run = 10f64.powf(random.part() * 8.0 - 3.0);
    let is_forebay = random.one_in(2);
    let has_daos = random.one_in(6);
    let mut generator = Generator {
        random,
        ranks,
        run,
        names: Vec::new(),
        facts: Facts::default(),
        records: Records::default(),
        truth: Truth::default(),
    };
    let files = generator.random.below(12);
    for n in 0..files {
        if has_daos && generator.random.one_in(2) {
            generator.daos_file(n);
        } else {
            // What DAOS may hide is for `daos_file`.
            let kinds = if has_daos { 3 } else { 9 };
            generator.file(n, kinds);
        }
    }
    if generator.random.one_in(2) {
        let bytes = generator.bytes();
        generator.add::<Stdio>(b"<STDOUT>", bytes, |r| &mut r.stdio);
        generator.truth.std_streams = bytes.0 + bytes.1;
    }
    if is_forebay && !has_daos && generator.random.one_in(2) {
        generator.summed_files();
    }
    let job = generator.job(is_forebay);
    (generator.write(&job), generator.truth)
}

impl Generator {
    /// Bytes read and written.
    fn bytes(&mut self) -> (u64, u64) {
        let mut one = || {
            let is_none = self.random.one_in(4);
            if is_none {
                0
            } else {
                self.random.wide() as u64
            }
        };
        (one(), one())
    }

    /// A file of the job, through one of the stacks of interfaces.
    fn file(&mut self, n: u64, kinds: u64) {
        let name = format!("/pfs/run/file{n}:a").into_bytes();
        let (a, b) = (self.bytes(), self.bytes());
        let kind = self.random.below(kinds);
        let truth = match kind {
            0 => {
                self.add::<Posix>(&name, a, |r| &mut r.posix);
                a
            }
            1 => {
                self.add::<Stdio>(&name, a, |r| &mut r.stdio);
                a
            }
            2 => {
                // Two ways into the same file, which don't lie over each other.
                self.add::<Posix>(&name, a, |r| &mut r.posix);
                self.add::<Stdio>(&name, b, |r| &mut r.stdio);
                (a.0 + b.0, a.1 + b.1)
            }
            3 => {
                self.add::<Posix>(&name, a, |r| &mut r.posix);
                self.add::<MpiIo>(&name, b, |r| &mut r.mpiio);
                a
            }
            4 => {
                self.add::<MpiIo>(&name, a, |r| &mut r.mpiio);
                a
            }
            5 | 6 => {
                self.add::<Posix>(&name, a, |r| &mut r.posix);
                if kind == 6 {
                    self.add::<MpiIo>(&name, b, |r| &mut r.mpiio);
                }
                self.add::<H5f>(&name, (0, 0), |r| &mut r.h5f);
                self.datasets(&name);
                a
            }
            7 => {
                self.add::<H5f>(&name, (0, 0), |r| &mut r.h5f);
                self.datasets(&name)
            }
            _ => {
                self.add::<MpiIo>(&name, a, |r| &mut r.mpiio);
                self.add::<PnetcdfFile>(&name, (0, 0), |r| &mut r.pnetcdf_file);
                let file_id = record_id(&name);
                for v in 0..self.random.below(4) {
                    let variable = [&name[..], format!(":v{v}").as_bytes()].concat();
                    let bytes = self.bytes();
                    let from = self.records.pnetcdf_var.len();
                    self.add::<PnetcdfVar>(&variable, bytes, |r| &mut r.pnetcdf_var);
                    for record in &mut self.records.pnetcdf_var[from..] {
                        record.extra = Parent { file_id };
                    }
                }
                a
            }
        };
        self.count(1, truth);
    }

    fn count(&mut self, files: u64, bytes: (u64, u64)) {
        self.truth.files += files;
        self.truth.read += bytes.0;
        self.truth.written += bytes.1;
    }

    /// Data sets, at least one; old logs don't say of which file. Returns their bytes.
    fn datasets(&mut self, name: &[u8]) -> (u64, u64) {
        let is_old = self.random.one_in(2);
        let mut sum = (0, 0);
        for d in 0..1 + self.random.below(3) {
            let dataset = [name, format!(":/group:1/set{d}").as_bytes()].concat();
            let bytes = self.bytes();
            sum = (sum.0 + bytes.0, sum.1 + bytes.1);
            let from = self.records.h5d.len();
            self.add::<H5d>(&dataset, bytes, |r| &mut r.h5d);
            let file_id = if is_old { 0 } else { record_id(name) };
            for record in &mut self.records.h5d[from..] {
                record.extra = Parent { file_id };
            }
        }
        sum
    }

    /// A file of DFS over an object of DAOS, and perhaps MPI-IO over it, all under names of their own.
    fn daos_file(&mut self, n: u64) {
        let (bytes, other) = (self.bytes(), self.bytes());
        self.add::<Dfs>(format!("/file{n}").as_bytes(), bytes, |r| &mut r.dfs);
        self.add::<Daos>(format!("oid{n}").as_bytes(), other, |r| &mut r.daos);
        if self.random.one_in(2) {
            let name = format!("daos:/pool/file{n}");
            self.add::<MpiIo>(name.as_bytes(), other, |r| &mut r.mpiio);
        }
        self.count(1, bytes);
    }

    /// Files of a directory that the recorder has summed; some of them were used through MPI-IO.
    fn summed_files(&mut self) {
        let name = b"/pfs/many/<other files>";
        let (bytes, other) = (self.bytes(), self.bytes());
        self.add::<Posix>(name, bytes, |r| &mut r.posix);
        self.add::<MpiIo>(b"/pfs/many/one", other, |r| &mut r.mpiio);
        let files = 1 + self.random.below(1 << 30);
        self.facts.files.push(FileFacts {
            id: record_id(name),
            summed: Some(files),
            ..FileFacts::default()
        });
        self.count(files, bytes);
    }

    /// Records of a name: of all ranks together, or of some ranks. Their bytes add up to `bytes`.
    fn add<M: CounterModule>(
        &mut self,
        name: &[u8],
        bytes: (u64, u64),
        of: fn(&mut Records) -> &mut Vec<Record<M>>,
    ) where
        M::Extra: Extra,
    {
        if !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_vec());
        }
        let first = self.random.below(self.ranks as u64) as i64;
        let users = match self.random.below(3) {
            0 if self.ranks > 1 => vec![-1],
            1 => (0..self.ranks).collect(),
            _ => vec![first],
        };
        let n = users.len() as u64;
        for (at, rank) in users.into_iter().enumerate() {
            // The first record has what the division leaves.
            let part = |whole: u64| whole / n + if at == 0 { whole % n } else { 0 };
            let record = self.record::<M>(name, rank, (part(bytes.0), part(bytes.1)));
            of(&mut self.records).push(record);
        }
    }

    fn record<M: CounterModule>(&mut self, name: &[u8], rank: i64, bytes: (u64, u64)) -> Record<M> {
        let mut record = Record::<M>::new(record_id(name), rank);
        let layout = M::layout();
        let counters = record.counters.as_mut();
        for (value, rule) in counters.iter_mut().zip(layout.rules) {
            *value = match self.random.below(5) {
                0 => 0,
                1 => -1,
                _ if *rule == Rule::Extreme => self.random.below(self.ranks as u64 + 1) as i64,
                _ => self.random.wide(),
            };
        }
        for (at, counter) in layout.counters.iter().enumerate() {
            // Every file of a job was opened, at each of its interfaces.
            if counter.ends_with("OPENS") || counter.ends_with("_OBJ_OPENS") {
                counters[at] = 1 + self.random.below(100) as i64;
            }
        }
        if let Some((read, written)) = layout.bytes {
            counters[read] = bytes.0 as i64;
            counters[written] = bytes.1 as i64;
        }
        let fcounters = record.fcounters.as_mut();
        for (value, name) in fcounters.iter_mut().zip(layout.fcounters) {
            let is_time = name.ends_with("_TIMESTAMP");
            *value = match self.random.below(6) {
                0 => 0.0,
                // Threads add up to more than the run; clocks differ a little.
                1 if !is_time => self.random.part() * self.run * 1000.0,
                1 => self.random.part() * self.run * 1.1,
                _ => self.random.part() * self.run,
            };
        }
        record
    }

    fn job(&mut self, is_forebay: bool) -> Job {
        let seconds = self.run.floor();
        let mut metadata = Metadata::default();
        let mut note = |key: &str, value: &str| metadata.insert(key, value).unwrap();
        if is_forebay {
            note("lib_ver", "forebay-0.1.0");
            let is_mpi = self.random.one_in(2);
            note("mpi", if is_mpi { "1" } else { "0" });
            if is_mpi {
                note(
                    "launches",
                    &format!("{},{}", self.ranks / 2, self.ranks / 3),
                );
            }
            let seen = self.random.wide();
            note("coverage_read", &format!("{seen}/{}", self.random.wide()));
            note("fetched", &self.random.wide().to_string());
            note("nnodes", &(1 + self.random.below(9)).to_string());
        } else {
            note("lib_ver", "3.5.0");
        }
        Job {
            uid: 1000,
            start: Time {
                sec: 1_700_000_000,
                nsec: 0,
            },
            end: Time {
                sec: 1_700_000_000 + seconds as i64,
                nsec: ((self.run - seconds) * 1e9) as i64,
            },
            nprocs: self.ranks,
            id: 4711,
            metadata,
        }
    }

    fn write(&self, job: &Job) -> Vec<u8> {
        let sink = Cursor::new(Vec::new());
        let mut writer = LogWriter::new(sink, job, "/home/me/sim", &[]).unwrap();
        for name in &self.names {
            writer.name(record_id(name), name).unwrap();
        }
        let r = &self.records;
        write_all::<Posix>(&mut writer, &r.posix);
        write_all::<MpiIo>(&mut writer, &r.mpiio);
        write_all::<H5f>(&mut writer, &r.h5f);
        write_all::<H5d>(&mut writer, &r.h5d);
        write_all::<PnetcdfFile>(&mut writer, &r.pnetcdf_file);
        write_all::<PnetcdfVar>(&mut writer, &r.pnetcdf_var);
        write_all::<Stdio>(&mut writer, &r.stdio);
        write_all::<Dfs>(&mut writer, &r.dfs);
        write_all::<Daos>(&mut writer, &r.daos);
        writer.trailing(&self.facts.encode()).unwrap();
        writer.finish().unwrap().0.into_inner()
    }
}

fn write_all<M: CounterModule + Module<Record = Record<M>>>(
    writer: &mut LogWriter<Cursor<Vec<u8>>>,
    records: &[Record<M>],
) {
    for record in records {
        writer.record::<M>(record).unwrap();
    }
}
