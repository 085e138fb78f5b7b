//! Compiles MPI programs, and runs them with and without the collective layer.
//!
//! | variable | meaning |
//! |---|---|
//! | `FOREBAY_MPIIO` | the library under test instead of the one that cargo has built with the tests |
//! | `FOREBAY_TEST_DIR` | where programs and files are made (default `target/tmp`) |

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Seconds after which a program counts as hung; the machine may be shared.
const LIMIT_S: &str = "400";

/// Ranks of different tests do not compete: MPI libraries poll while they wait.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// An MPI library: how it compiles, and how it starts ranks.
#[derive(Debug, Clone)]
pub struct Mpi {
    pub c: Vec<String>,
    pub start: Vec<String>,
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn installed(program: &str) -> Result<(), String> {
    let found = Command::new("which")
        .arg(program)
        .stdout(Stdio::null())
        .status();
    match found.is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err(format!(
            "{program} is not installed (scripts/setup.sh test installs it)"
        )),
    }
}

pub fn mpich() -> Result<Mpi, String> {
    installed("mpicc.mpich")?;
    Ok(Mpi {
        c: words("mpicc.mpich"),
        start: words("mpiexec.mpich"),
    })
}

pub fn open_mpi() -> Result<Mpi, String> {
    installed("mpicc.openmpi")?;
    Ok(Mpi {
        c: words("mpicc.openmpi"),
        start: words("mpiexec.openmpi --allow-run-as-root --oversubscribe"),
    })
}

/// A library of the standard ABI.
pub fn standard() -> Result<Mpi, String> {
    let root = forebay_testkit::standard_mpi()?.display().to_string();
    Ok(Mpi {
        c: words(&format!("{root}/bin/mpicc_abi")),
        start: words(&format!("{root}/bin/mpiexec")),
    })
}

fn with(libraries: &[Result<Mpi, String>], test: fn(&Mpi)) {
    for mpi in libraries {
        match mpi {
            Ok(mpi) => test(mpi),
            Err(reason) => forebay_testkit::skip(reason),
        }
    }
}

/// Runs a test with MPICH, Open MPI and a library of the standard ABI.
pub fn with_each(test: fn(&Mpi)) {
    with(&[mpich(), open_mpi(), standard()], test);
}

/// Runs a test that needs Fortran or libraries above MPI with those of the distribution.
pub fn with_each_of_the_distribution(test: fn(&Mpi)) {
    with(&[mpich(), open_mpi()], test);
}

/// The library under test.
pub fn library() -> PathBuf {
    forebay_testkit::built::Library::Collective.path()
}

/// A folder for one test, removed when the test passes.
pub struct Stage {
    dir: PathBuf,
}

/// What a program said.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Stage {
    pub fn new() -> Stage {
        let dir = forebay_testkit::new_folder(env!("CARGO_TARGET_TMPDIR"), "mpiio");
        Stage { dir }
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Compiles a program of `tests/programs`. Returns its path.
    pub fn compile(&self, compiler: &[String], source: &str) -> String {
        let stem = Path::new(source).file_stem().expect("a source has a name");
        let out = self.path(&stem.to_string_lossy());
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let built = Command::new(&compiler[0])
            .current_dir(&self.dir)
            .args(["-O1", "-g", "-o", &out])
            .arg(programs.join(source))
            .args(&compiler[1..])
            .output()
            .expect("run the compiler");
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{source}: {said}");
        out
    }

    /// Runs ranks of a program, with the layer or without it.
    pub fn run(&self, mpi: &Mpi, ranks: u32, layer: bool, command: &[&str]) -> Ran {
        self.run_with(mpi, ranks, layer, command, &[])
    }

    pub fn run_with(
        &self,
        mpi: &Mpi,
        ranks: u32,
        layer: bool,
        command: &[&str],
        environment: &[(&str, &str)],
    ) -> Ran {
        let all = self.run_together(mpi, ranks, layer, &[command], environment);
        all.into_iter().next().expect("one program ran")
    }

    /// Runs programs at once, each with so many ranks. Their results are in the order of the commands.
    pub fn run_together(
        &self,
        mpi: &Mpi,
        ranks: u32,
        layer: bool,
        commands: &[&[&str]],
        environment: &[(&str, &str)],
    ) -> Vec<Ran> {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        let settings = environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let library = layer.then(|| format!("LD_PRELOAD={}", library().display()));
        let settings: Vec<String> = library.into_iter().chain(settings).collect();
        let start = |(number, command): (usize, &&[&str])| {
            // Open MPI fails where another start makes the folder of its user at the same time.
            let own = self.dir.join(format!("session-{number}"));
            fs::create_dir_all(&own).expect("a folder of the test's own");
            Command::new("timeout")
                .args(["-k", "5", LIMIT_S])
                .args(&mpi.start)
                .args(["-n", &ranks.to_string(), "env"])
                .args(&settings)
                .args(*command)
                // Another process' memory may not be read in a container.
                .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
                .env("OMPI_MCA_mpi_yield_when_idle", "1")
                .env("OMPI_MCA_orte_tmpdir_base", own)
                .current_dir(&self.dir)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("run timeout")
        };
        let running: Vec<_> = commands.iter().enumerate().map(start).collect();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let end = |one: std::process::Child| {
            let out = one.wait_with_output().expect("wait for timeout");
            Ran {
                code: out.status.code(),
                out: text(&out.stdout),
                err: text(&out.stderr),
            }
        };
        running.into_iter().map(end).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

impl Ran {
    /// Checks that the program succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{}\n{}", self.out, self.err);
        self
    }
}
