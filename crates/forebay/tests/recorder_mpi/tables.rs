//! Runs programs with the recorder alone, and reads the tables that they leave.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use darshan_log::counters::{h5d, h5f, mpiio, pnetcdf_file, pnetcdf_var, posix};
use forebay_count::read::{self, Counters, End, RankSource};
use forebay_count::{COLLECTIVE_PREFIX, ENV_RECORD_DIR, Kind, TABLE_SUFFIX};

use crate::common;

/// Seconds after which a program counts as hung; the machine may be shared.
const LIMIT_S: &str = "200";

/// An MPI: how it compiles C and the two kinds of Fortran, and how it starts ranks on fewer processors.
#[derive(Clone, Copy)]
pub struct Mpi {
    pub c: &'static str,
    pub fortran: &'static str,
    pub start: &'static [&'static str],
}

pub const MPICH: Mpi = Mpi {
    c: "mpicc.mpich",
    fortran: "mpif90.mpich",
    start: &["mpiexec.mpich"],
};

pub const OPEN_MPI: Mpi = Mpi {
    c: "mpicc.openmpi",
    fortran: "mpif90.openmpi",
    start: &["mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe"],
};

/// A folder for one test, removed when the test passes.
pub struct Stage {
    dir: PathBuf,
}

impl Stage {
    pub fn new() -> Stage {
        let dir = forebay_testkit::new_folder(env!("CARGO_TARGET_TMPDIR"), "recorder_mpi");
        Stage { dir }
    }

    pub fn dir(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir())
    }

    /// Compiles a program of this folder. Returns its path.
    pub fn compile(&self, compiler: &str, source: &str, flags: &[&str]) -> String {
        let out = self.path(Path::new(source).file_stem().unwrap().to_str().unwrap());
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/recorder_mpi")
            .join(source);
        let built = Command::new(compiler)
            .current_dir(&self.dir)
            .arg("-O1")
            .arg(&source)
            .args(["-o", &out])
            .args(flags)
            .output()
            .unwrap();
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        out
    }

    /// Runs `command` under the recorder and reads the tables of all its processes.
    pub fn record(&self, command: &[&str]) -> Recorded {
        self.record_with(command, &[])
    }

    /// Starts this many ranks.
    pub fn ranks(&self, mpi: &Mpi, ranks: u32, command: &[&str]) -> Recorded {
        let number = ranks.to_string();
        let mut all = mpi.start.to_vec();
        all.extend(["-n", number.as_str()]);
        all.extend(command);
        self.record(&all)
    }

    pub fn record_with(&self, command: &[&str], environment: &[(&str, &str)]) -> Recorded {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let tables = self
            .dir
            .join(format!("tables.{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::DirBuilder::new().mode(0o700).create(&tables).unwrap();
        let sessions = tempfile::tempdir().unwrap();
        let out = Command::new("timeout")
            .args(["-k", "5", LIMIT_S, "env"])
            .arg(format!("LD_PRELOAD={}", common::recorder().display()))
            .arg(format!("{ENV_RECORD_DIR}={}", tables.display()))
            .args(command)
            .envs(environment.iter().copied())
            // Another process' memory may not be read in a container.
            .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
            // Two jobs that begin at once can't both make their common folder.
            .env("OMPI_MCA_orte_tmpdir_base", sessions.path())
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let output = [out.stdout, out.stderr].concat();
        Recorded {
            code: out.status.code(),
            output: String::from_utf8_lossy(&output).into_owned(),
            processes: processes(&tables),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// The tables that a command has left.
pub struct Recorded {
    pub code: Option<i32>,
    pub output: String,
    pub processes: Vec<Process>,
}

impl Recorded {
    /// Checks that the command succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.output);
        self
    }

    /// The processes with an MPI rank, sorted by rank.
    pub fn by_rank(&self) -> Vec<&Process> {
        let mut ranks: Vec<_> = self
            .processes
            .iter()
            .filter(|p| p.mpi_rank().is_some())
            .collect();
        ranks.sort_by_key(|p| p.mpi_rank());
        ranks
    }

    /// The one process that used this interface.
    #[track_caller]
    pub fn one_with(&self, kind: Kind) -> &Process {
        let mut found = self
            .processes
            .iter()
            .filter(|p| p.records.iter().any(|r| r.kind == kind));
        let one = found
            .next()
            .unwrap_or_else(|| panic!("no {kind:?}: {}", self.output));
        assert!(
            found.next().is_none(),
            "more than one process used {kind:?}"
        );
        one
    }
}

/// The table of one process.
pub struct Process {
    pub rank: Option<(u32, u32, RankSource)>,
    pub end: End,
    pub records: Vec<Record>,
}

impl Process {
    /// Rank and number of ranks, if the process is an MPI rank.
    pub fn mpi_rank(&self) -> Option<(u32, u32)> {
        self.rank
            .filter(|(.., source)| *source == RankSource::Mpi)
            .map(|(rank, ranks, _)| (rank, ranks))
    }

    /// The record of this name.
    #[track_caller]
    pub fn record(&self, kind: Kind, name: &str) -> &Record {
        let mut found = self
            .records
            .iter()
            .filter(|r| r.kind == kind && r.name == name);
        let record = found
            .next()
            .unwrap_or_else(|| panic!("no {kind:?} {name} in {:?}", self.names(kind)));
        assert!(found.next().is_none(), "two of {name}");
        record
    }

    /// Names of all records of an interface, sorted.
    pub fn names(&self, kind: Kind) -> Vec<&str> {
        let mut names: Vec<_> = self
            .records
            .iter()
            .filter(|r| r.kind == kind)
            .map(|r| r.name.as_str())
            .collect();
        names.sort_unstable();
        names
    }
}

/// A record; its counters by Darshan's names.
pub struct Record {
    pub kind: Kind,
    pub name: String,
    pub id: u64,
    pub parent: u64,
    ints: BTreeMap<&'static str, i64>,
    times: BTreeMap<&'static str, f64>,
}

/// Counters of the slowest call, which differ from run to run.
const OF_THE_SLOWEST: [&str; 2] = ["MAX_READ_TIME_SIZE", "MAX_WRITE_TIME_SIZE"];

impl Record {
    #[track_caller]
    pub fn get(&self, counter: &str) -> i64 {
        self.ints[counter]
    }

    #[track_caller]
    pub fn time(&self, counter: &str) -> f64 {
        self.times[counter]
    }

    /// Checks that the counters have these values, and all others are 0.
    #[track_caller]
    pub fn is(&self, expected: &[(&str, i64)]) {
        let seen: BTreeMap<_, _> = self
            .ints
            .iter()
            .filter(|(name, value)| **value != 0 && !OF_THE_SLOWEST.contains(name))
            .map(|(name, value)| (*name, *value))
            .collect();
        let expected: BTreeMap<_, _> = expected.iter().copied().collect();
        assert_eq!(seen, expected, "{:?} {}", self.kind, self.name);
    }

    /// Checks that no start comes after its end.
    #[track_caller]
    pub fn times_make_sense(&self) {
        for (name, &start) in &self.times {
            if let Some(stem) = name.strip_suffix("_START_TIMESTAMP") {
                let end = self.times[format!("{stem}_END_TIMESTAMP").as_str()];
                assert!(
                    start >= 0.0 && end >= start,
                    "{name} of {}: {start} to {end}",
                    self.name
                );
            }
        }
    }
}

fn processes(tables: &Path) -> Vec<Process> {
    let mut found = Vec::new();
    for entry in fs::read_dir(tables).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with(COLLECTIVE_PREFIX) {
            continue;
        }
        assert!(
            name.ends_with(TABLE_SUFFIX),
            "{name}: {}",
            fs::read_to_string(&path).unwrap_or_default()
        );
        let bytes = fs::read(&path).unwrap();
        let words: Vec<AtomicU64> = read::words(&bytes).collect();
        let table = read::open(&words).unwrap_or_else(|_| panic!("{name} is no table"));
        let process = read::process(&table);
        let mut records = Vec::new();
        read::each_file(&table, |file| records.extend(record(file)));
        found.push(Process {
            rank: process.rank,
            end: process.end,
            records,
        });
    }
    found
}

fn record(file: &read::File<'_, '_>) -> Option<Record> {
    let (ints, times) = match file.kind {
        Kind::Posix => named("POSIX_", &posix::COUNTERS, &posix::FCOUNTERS, file.posix()?),
        Kind::Stdio => return None,
        Kind::Mpiio => named("MPIIO_", &mpiio::COUNTERS, &mpiio::FCOUNTERS, file.mpiio()?),
        Kind::H5f => named("H5F_", &h5f::COUNTERS, &h5f::FCOUNTERS, file.h5f()?),
        Kind::H5d => named("H5D_", &h5d::COUNTERS, &h5d::FCOUNTERS, file.h5d()?),
        Kind::PnetcdfFile => {
            let (ints, times) = (&pnetcdf_file::COUNTERS, &pnetcdf_file::FCOUNTERS);
            named("PNETCDF_FILE_", ints, times, file.pnetcdf_file()?)
        }
        Kind::PnetcdfVar => {
            let (ints, times) = (&pnetcdf_var::COUNTERS, &pnetcdf_var::FCOUNTERS);
            named("PNETCDF_VAR_", ints, times, file.pnetcdf_var()?)
        }
    };
    Some(Record {
        kind: file.kind,
        name: String::from_utf8_lossy(file.name).into_owned(),
        id: file.id,
        parent: file.parent,
        ints,
        times,
    })
}

type Named = (BTreeMap<&'static str, i64>, BTreeMap<&'static str, f64>);

fn named<const I: usize, const F: usize>(
    prefix: &str,
    ints: &[&'static str; I],
    times: &[&'static str; F],
    counters: Counters<I, F>,
) -> Named {
    let short = |name: &'static str| name.strip_prefix(prefix).unwrap();
    let ints = ints
        .iter()
        .map(|name| short(name))
        .zip(counters.ints)
        .collect();
    let times = times
        .iter()
        .map(|name| short(name))
        .zip(counters.floats)
        .collect();
    (ints, times)
}
