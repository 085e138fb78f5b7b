//! Runs a program under the recorder and reads the tables that it leaves.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use forebay_count::table::Bulk;
use forebay_count::{ENV_RECORD_DIR, Kind, posix, read, stdio};
use forebay_testkit::built::Library;

/// A folder for one test, removed at the end. It holds `tables` for the recorder and `data` for programs.
pub struct Place(PathBuf);

impl Place {
    /// A new one.
    pub fn new(name: &str) -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!(
            "forebay-recorder-{}-{n}-{name}",
            std::process::id()
        ));
        for inside in ["tables", "data"] {
            std::fs::create_dir_all(dir.join(inside)).expect("a folder");
        }
        Place(dir.canonicalize().expect("the folder"))
    }

    /// A path below it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// [`Place::path`] as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    /// Where the recorder writes.
    pub fn tables(&self) -> PathBuf {
        self.path("tables")
    }

    /// Builds a C program of `programs/`.
    pub fn compile(&self, name: &str) -> PathBuf {
        self.compile_by(
            "cc",
            &format!("{name}.c"),
            &["-O1", "-Wall", "-Werror", "-pthread"],
        )
    }

    /// Builds a program of `programs/` by a compiler.
    pub fn compile_by(&self, compiler: &str, source: &str, flags: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/recorder/programs")
            .join(source);
        let out = self.path(&format!(
            "bin-{}",
            source.file_stem().expect("a name").to_string_lossy()
        ));
        let done = Command::new(compiler)
            .arg("-o")
            .arg(&out)
            .arg(&source)
            .args(flags)
            .output();
        let done = done.unwrap_or_else(|e| panic!("{compiler}: {e}"));
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        out
    }

    /// A command that will be recorded.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "100"]).arg("env");
        command.arg(format!("LD_PRELOAD={}", Library::Recorder.path().display()));
        command
            .arg(program.as_ref())
            .env(ENV_RECORD_DIR, self.tables())
            .current_dir(&self.0);
        command
    }

    /// Runs a program under the recorder; it must succeed.
    pub fn record<S: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = S>,
    ) -> Output {
        let out = self
            .command(program)
            .args(args)
            .output()
            .expect("timeout runs");
        assert!(
            out.status.success(),
            "{}\n{}{}",
            out.status,
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        out
    }

    /// All tables, by pid and number.
    pub fn images(&self) -> Vec<Image> {
        let mut images: Vec<Image> = std::fs::read_dir(self.tables())
            .expect("tables")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|e| e == "table"))
            .filter(|path| !is_unfinished(path))
            .map(|path| Image::read(&path))
            .collect();
        images.sort_by_key(|i| (i.process.start_ticks, i.process.pid, i.process.serial));
        images
    }

    /// The one image in which a program of this name ran.
    pub fn image_of(&self, program: &Path) -> Image {
        let name = program.as_os_str().as_encoded_bytes().to_vec();
        let mut all = self.images();
        all.retain(|i| i.process.exe() == name && !i.process.by_fork);
        assert_eq!(all.len(), 1, "one table of {}", program.display());
        all.remove(0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// True if the process was killed while it made the table, before its first call.
fn is_unfinished(path: &Path) -> bool {
    let bytes = std::fs::read(path).expect("a table");
    bytes.iter().take(8).all(|&b| b == 0)
}

/// The record of a file.
pub struct File {
    pub name: String,
    pub folded: Option<u64>,
    pub counted_before: bool,
    pub facts: read::Facts,
    pub ints: Vec<i64>,
    pub floats: Vec<f64>,
}

/// A table as values.
pub struct Image {
    pub process: read::Process,
    pub posix: HashMap<String, File>,
    pub stdio: HashMap<String, File>,
    pub extras: HashMap<&'static str, u64>,
    pub excluded: read::Totals,
    pub no_files: read::Totals,
    pub unplaced: read::Totals,
    pub unsure_files: u64,
    /// How often threads may have spoiled counters for each other.
    pub overlaps: u64,
}

impl Image {
    /// Reads a table.
    pub fn read(path: &Path) -> Image {
        let bytes = std::fs::read(path).expect("a table");
        let words: Vec<AtomicU64> = read::words(&bytes).collect();
        let table = read::open(&words).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (mut posix, mut stdio) = (HashMap::new(), HashMap::new());
        read::each_file(&table, |f| {
            let name = String::from_utf8_lossy(f.name).into_owned();
            let (ints, floats, files) = match f.kind {
                Kind::Posix => {
                    let c = f.posix().expect("POSIX");
                    (c.ints.to_vec(), c.floats.to_vec(), &mut posix)
                }
                Kind::Stdio => {
                    let c = f.stdio().expect("STDIO");
                    (c.ints.to_vec(), c.floats.to_vec(), &mut stdio)
                }
                _ => return,
            };
            let file = File {
                name: name.clone(),
                folded: f.folded,
                counted_before: f.counted_before,
                facts: f.facts(),
                ints,
                floats,
            };
            assert!(files.insert(name, file).is_none(), "one record per name");
        });
        Image {
            process: read::process(&table),
            posix,
            stdio,
            extras: read::extras(&table).map(|(name, n, _)| (name, n)).collect(),
            excluded: read::totals(&table, Bulk::Excluded),
            no_files: read::totals(&table, Bulk::NoFiles),
            unplaced: read::totals(&table, Bulk::Unplaced),
            unsure_files: read::unsure_files(&table),
            overlaps: read::overlaps(&table),
        }
    }

    /// POSIX counters of a file, those that are not 0; the ones of alignment are left out.
    pub fn posix_of(&self, name: &str) -> Vec<(&'static str, i64)> {
        let file = self
            .posix
            .get(name)
            .unwrap_or_else(|| panic!("no POSIX record of {name}"));
        named(&POSIX_NAMES, &file.ints)
    }

    /// STDIO counters of a file, those that are not 0.
    pub fn stdio_of(&self, name: &str) -> Vec<(&'static str, i64)> {
        let file = self
            .stdio
            .get(name)
            .unwrap_or_else(|| panic!("no STDIO record of {name}"));
        named(&STDIO_NAMES, &file.ints)
    }

    /// A sum over all POSIX records.
    pub fn posix_sum(&self, counter: usize) -> i64 {
        self.posix.values().map(|f| f.ints[counter]).sum()
    }
}

fn named(names: &[(&'static str, usize)], ints: &[i64]) -> Vec<(&'static str, i64)> {
    let all = names.iter().map(|&(name, i)| (name, ints[i]));
    all.filter(|&(_, n)| n != 0).collect()
}

const POSIX_NAMES: [(&str, usize); 23] = [
    ("OPENS", posix::OPENS),
    ("FILENOS", posix::FILENOS),
    ("DUPS", posix::DUPS),
    ("READS", posix::READS),
    ("WRITES", posix::WRITES),
    ("SEEKS", posix::SEEKS),
    ("STATS", posix::STATS),
    ("MMAPS", posix::MMAPS),
    ("FSYNCS", posix::FSYNCS),
    ("FDSYNCS", posix::FDSYNCS),
    ("RENAME_SOURCES", posix::RENAME_SOURCES),
    ("RENAME_TARGETS", posix::RENAME_TARGETS),
    ("BYTES_READ", posix::BYTES_READ),
    ("BYTES_WRITTEN", posix::BYTES_WRITTEN),
    ("MAX_BYTE_READ", posix::MAX_BYTE_READ),
    ("MAX_BYTE_WRITTEN", posix::MAX_BYTE_WRITTEN),
    ("CONSEC_READS", posix::CONSEC_READS),
    ("CONSEC_WRITES", posix::CONSEC_WRITES),
    ("SEQ_READS", posix::SEQ_READS),
    ("SEQ_WRITES", posix::SEQ_WRITES),
    ("RW_SWITCHES", posix::RW_SWITCHES),
    ("STRIDE1", posix::STRIDE),
    ("STRIDE1_COUNT", posix::STRIDE_COUNT),
];

const STDIO_NAMES: [(&str, usize); 10] = [
    ("OPENS", stdio::OPENS),
    ("FDOPENS", stdio::FDOPENS),
    ("READS", stdio::READS),
    ("WRITES", stdio::WRITES),
    ("SEEKS", stdio::SEEKS),
    ("FLUSHES", stdio::FLUSHES),
    ("BYTES_WRITTEN", stdio::BYTES_WRITTEN),
    ("BYTES_READ", stdio::BYTES_READ),
    ("MAX_BYTE_READ", stdio::MAX_BYTE_READ),
    ("MAX_BYTE_WRITTEN", stdio::MAX_BYTE_WRITTEN),
];
