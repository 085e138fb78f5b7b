//! Measures what the recorder costs: nanoseconds per call, and per cent of the time of a real program.
//!
//! Every number comes from pairs of runs: the same work without and with the recorder, one right after the other. The
//! program prints the median of the differences, and their range.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use forebay_benches::statistics::{Spread, median};
use forebay_count::{ENV_RECORD_DIR, read};

/// The recorder should add at most this many nanoseconds to a call.
const GOAL_NS: f64 = 100.0;
/// The recorder should add at most this part of its time to a program.
const GOAL_SHARE: f64 = 0.01;

/// Measures the recorder.
#[derive(Parser)]
struct Options {
    /// Pairs of runs for each line.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Calls of each thread in a run.
    #[arg(long, default_value_t = 300_000)]
    calls: u64,
    /// Pairs of runs of each real program; 0 for none.
    #[arg(long, default_value_t = 5)]
    programs: usize,
    /// The library. Default: beside this program.
    #[arg(long)]
    library: Option<PathBuf>,
    /// Folder for the files. Default: that of temporary files.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Do the work in this process, and print nanoseconds per call: processor time, wall time.
    #[arg(long, hide = true)]
    work: Option<Work>,
    #[arg(long, hide = true, default_value_t = 1)]
    threads: u64,
    #[arg(long, hide = true)]
    same_file: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Work {
    Pread,
    OpenClose,
}

impl Work {
    /// Hooked calls in one turn of the loop.
    fn calls_per_turn(self) -> f64 {
        match self {
            Work::Pread => 1.0,
            Work::OpenClose => 2.0,
        }
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let dir = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    if let Some(work) = options.work {
        return run(work, &options, &dir);
    }
    let library = match &options.library {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("libforebay_record.so"),
    };
    ensure!(
        library.exists(),
        "{} is missing: cargo build --release -p forebay-record",
        library.display()
    );
    let bench = Bench {
        scratch: Scratch::new(&dir)?,
        library,
        options,
    };
    println!(
        "recorder: added per call, median (least, most) of {} pairs; goal {GOAL_NS} ns",
        bench.options.rounds
    );
    for (work, name) in [
        (Work::Pread, "pread of 1 byte"),
        (Work::OpenClose, "open + close"),
    ] {
        for (threads, same_file) in [(1, false), (2, false), (2, true)] {
            bench.calls(work, name, threads, same_file)?;
        }
    }
    bench.programs()
}

struct Bench {
    scratch: Scratch,
    library: PathBuf,
    options: Options,
}

impl Bench {
    fn calls(&self, work: Work, name: &str, threads: u64, same_file: bool) -> Result<()> {
        let mut bare = Vec::new();
        let mut added = [Vec::new(), Vec::new()];
        for _ in 0..self.options.rounds.max(1) {
            let without = self.worker(work, threads, same_file, false)?;
            let with = self.worker(work, threads, same_file, true)?;
            bare.push(without[0]);
            for (list, (w, o)) in added.iter_mut().zip(with.iter().zip(without)) {
                list.push((w - o) / work.calls_per_turn());
            }
        }
        let (cpu, wall) = (Spread::of(&added[0]), Spread::of(&added[1]));
        let where_ = match (threads, same_file) {
            (1, _) => "1 thread",
            (_, false) => "2 threads, a file each",
            (_, true) => "2 threads, one file",
        };
        println!(
            "  {name:<16} {where_:<23} bare {:>5.0} ns  + {:>4.0} ns of processor ({:.0}, {:.0})  + {:>4.0} ns of time ({:.0}, {:.0})  {}",
            median(&bare),
            cpu.median,
            cpu.least,
            cpu.most,
            wall.median,
            wall.least,
            wall.most,
            judged(cpu, GOAL_NS)
        );
        Ok(())
    }

    fn command(&self, program: impl AsRef<Path>, recorded: bool) -> Result<Command> {
        let mut command = Command::new("env");
        if recorded {
            let tables = self.scratch.0.join("tables");
            let _ = std::fs::remove_dir_all(&tables);
            std::fs::create_dir(&tables)?;
            command.arg(format!("LD_PRELOAD={}", self.library.display()));
            command.env(ENV_RECORD_DIR, tables);
        }
        command.arg(program.as_ref()).current_dir(&self.scratch.0);
        Ok(command)
    }

    /// Processor and wall nanoseconds per turn.
    fn worker(
        &self,
        work: Work,
        threads: u64,
        same_file: bool,
        recorded: bool,
    ) -> Result<[f64; 2]> {
        let mut command = self.command(std::env::current_exe()?, recorded)?;
        let name = work.to_possible_value().context("a name")?;
        command.args(["--work", name.get_name(), "--threads", &threads.to_string()]);
        command
            .args(["--calls", &self.options.calls.to_string(), "--dir"])
            .arg(&self.scratch.0);
        if same_file {
            command.arg("--same-file");
        }
        let out = command.output()?;
        ensure!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        if recorded {
            self.check_tables()?;
        }
        let text = String::from_utf8(out.stdout)?;
        let (cpu, wall) = text.trim().split_once(' ').context("two numbers")?;
        Ok([cpu.parse()?, wall.parse()?])
    }

    /// Checks that the runs were recorded: without a recorder they would seem to cost nothing.
    fn check_tables(&self) -> Result<()> {
        let mut records = 0;
        for entry in std::fs::read_dir(self.scratch.0.join("tables"))? {
            let words: Vec<_> = read::words(&std::fs::read(entry?.path())?).collect();
            read::each_file(&read::open(&words)?, |_| records += 1);
        }
        ensure!(records > 0, "nothing was recorded");
        Ok(())
    }

    fn programs(&self) -> Result<()> {
        let rounds = self.options.programs;
        if rounds == 0 {
            return Ok(());
        }
        println!(
            "recorder: added to programs, median (least, most) of {rounds} pairs; goal {:.0} %",
            GOAL_SHARE * 100.0
        );
        std::fs::write(self.scratch.0.join("in.melt"), LAMMPS)?;
        std::fs::write(self.scratch.0.join("job.py"), H5PY)?;
        for (name, program, args) in [
            ("LAMMPS", "lmp", &["-in", "in.melt", "-log", "none"][..]),
            ("h5py", "/usr/bin/python3", &["job.py"][..]),
        ] {
            let mut shares = [Vec::new(), Vec::new()];
            let mut bare = Vec::new();
            let mut failure = None;
            for _ in 0..rounds {
                let (without, with) = match (
                    self.program(program, args, false),
                    self.program(program, args, true),
                ) {
                    (Ok(o), Ok(w)) => (o, w),
                    (Err(e), _) | (_, Err(e)) => {
                        failure = Some(e);
                        break;
                    }
                };
                bare.push(without[1]);
                for (list, (w, o)) in shares.iter_mut().zip(with.iter().zip(without)) {
                    list.push((w / o - 1.0) * 100.0);
                }
            }
            if let Some(e) = failure {
                println!("  {name:<16} skipped: {e:#}");
                continue;
            }
            let (cpu, wall) = (Spread::of(&shares[0]), Spread::of(&shares[1]));
            println!(
                "  {name:<16} bare {:.2} s  {:+.2} % of processor ({:+.2}, {:+.2})  {:+.2} % of time ({:+.2}, {:+.2})  {}",
                median(&bare),
                cpu.median,
                cpu.least,
                cpu.most,
                wall.median,
                wall.least,
                wall.most,
                judged(cpu, GOAL_SHARE * 100.0)
            );
        }
        Ok(())
    }

    /// Processor and wall seconds of a program.
    fn program(&self, program: &str, args: &[&str], recorded: bool) -> Result<[f64; 2]> {
        let before = cpu_s(libc::RUSAGE_CHILDREN);
        let started = Instant::now();
        let mut command = self.command(program, recorded)?;
        let out = command.args(args).env("OMP_NUM_THREADS", "1").output()?;
        let wall = started.elapsed().as_secs_f64();
        ensure!(
            out.status.success(),
            "{program}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        if recorded {
            self.check_tables()?;
        }
        Ok([cpu_s(libc::RUSAGE_CHILDREN) - before, wall])
    }
}

/// A Lennard-Jones melt that writes its atoms to a file now and then.
const LAMMPS: &str = "units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 10 0 10 0 10
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
dump 1 all custom 20 dump.lammpstrj id x y z vx vy vz
restart 100 restart.a restart.b
thermo 10
run 600
";

/// A job that computes and writes chunks of a dataset.
const H5PY: &str = "import h5py, numpy as np
rng = np.random.default_rng(1)
with h5py.File('job.h5', 'w') as f:
    d = f.create_dataset('steps', (200, 256, 256), dtype='f8', chunks=(1, 256, 256))
    a = rng.random((256, 256))
    for n in range(200):
        a = np.tanh(a @ a.T / 256.0)
        d[n] = a
with h5py.File('job.h5', 'r') as f:
    s = sum(float(f['steps'][n].sum()) for n in range(200))
assert s > 0
";

fn judged(cpu: Spread, goal: f64) -> &'static str {
    if cpu.median <= goal { "met" } else { "missed" }
}

// ---- the work itself ----

fn run(work: Work, options: &Options, dir: &Path) -> Result<()> {
    let files: Vec<CString> = (0..options.threads)
        .map(|t| {
            let name = if options.same_file { 0 } else { t };
            let path = dir.join(format!("bench-{name}"));
            std::fs::write(&path, b"x")?;
            Ok(CString::new(path.into_os_string().into_encoded_bytes())?)
        })
        .collect::<Result<_>>()?;
    let cpu = cpu_s(libc::RUSAGE_SELF);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(move || match work {
                Work::Pread => preads(file, options.calls),
                Work::OpenClose => opens(file, options.calls / 4),
            });
        }
    });
    let turns = match work {
        Work::Pread => options.calls,
        Work::OpenClose => options.calls / 4,
    } as f64;
    let wall = started.elapsed().as_secs_f64();
    let per_turn = |seconds: f64| seconds * 1e9 / turns;
    println!(
        "{} {}",
        per_turn((cpu_s(libc::RUSAGE_SELF) - cpu) / options.threads as f64),
        per_turn(wall)
    );
    Ok(())
}

#[allow(unsafe_code)]
fn preads(file: &CString, turns: u64) {
    let mut byte = 0u8;
    // SAFETY: a C string; one byte is writable.
    unsafe {
        let fd = libc::open(file.as_ptr(), libc::O_RDONLY);
        for _ in 0..turns {
            assert_eq!(libc::pread(fd, (&raw mut byte).cast(), 1, 0), 1);
        }
        libc::close(fd);
    }
}

#[allow(unsafe_code)]
fn opens(file: &CString, turns: u64) {
    for _ in 0..turns {
        // SAFETY: a C string.
        unsafe {
            let fd = libc::open(file.as_ptr(), libc::O_RDONLY);
            assert_eq!(libc::close(fd), 0);
        }
    }
}

#[allow(unsafe_code)]
fn cpu_s(who: libc::c_int) -> f64 {
    // SAFETY: zeroes are a valid value, which the call overwrites.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    };
    let s = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    s(usage.ru_utime) + s(usage.ru_stime)
}

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: &Path) -> Result<Scratch> {
        let path = dir.join(format!("forebay-record-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
