//! Runs real programs twice, natively and in the buffer, and compares the results.
//!
//! A [`Case`] builds one start tree. It runs a bash script on a copy of that tree natively, and on a
//! second copy under `forebay run`. Then it compares the exit code, every line of output (in which
//! the script reports what it sees *before* the drain), and the tree on the "PFS" *after* the drain.
//!
//! The storage is on another file system than both copies, as it is wherever a buffer is of use.
//!
//! Both copies stand at the same path, one after the other. So a program that prints or stores
//! absolute paths gives the same bytes both times.
//!
//! | variable | meaning |
//! |---|---|
//! | `FOREBAY_BIN` | the executable under test instead of the one cargo has built |
//! | `FOREBAY_PRELOAD` | the preload library instead of `target/release/libforebay_preload.so` |
//! | `FOREBAY_RECORDER` | the recorder instead of `target/release/libforebay_record.so` |
//! | `FOREBAY_MPIIO` | the collective layer instead of the one that cargo has built with the tests |
//! | `FOREBAY_TEST_DIR` | where the trees are made; must be on a real disk (default `target/tmp`) |
//! | `FOREBAY_TEST_STORAGE` | a folder on another file system, where the storages are made (default: `/dev/shm`, or else `/var/tmp` or `/tmp`); `beside`: on one file system with the trees |
//! | `FOREBAY_TEST_VIA` | `mount`: run the scripts of all tests with `--via mount` |
//! | `FOREBAY_TEST_KEEP` | keep the trees of tests that pass, too |

// Each test binary uses its own part of this.
#![allow(dead_code, unused_macros, unused_imports)]

pub mod elsewhere;
pub mod slow_pfs;
pub mod tree;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use elsewhere::Elsewhere;
use forebay_testkit::built::Library;
pub use forebay_testkit::built::forebay;
use tree::{Tree, remove_tree};

/// In a tree with `src` and `data`: programs set the times of directories that they have just filled, by each way that there is. A later
/// change shows again.
pub const TIMES_OF_DIRECTORIES: &str = r#"
    mkdir -p new/in src/in; echo 1 > new/in/file; echo 1 > src/in/file
    for dir in new/in new src/in src .; do touch -d '2019-05-06 07:08:09' $dir; done
    stat -c '%n %y' new/in new src/in src .
    /usr/bin/python3 - <<'END'
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_EMPTY_PATH, UTIMENSAT = -100, 0x1000, 280
spec = (ctypes.c_long * 4)(10, 0, 20, 0)
ways = {
    "utime": lambda fd: os.utime(fd, (10, 20)),
    "futimes": lambda fd: libc.futimes(fd, spec),
    "futimesat": lambda fd: libc.futimesat(fd, None, spec),
    "empty": lambda fd: libc.utimensat(fd, b"", spec, AT_EMPTY_PATH),
    "raw": lambda fd: libc.syscall(UTIMENSAT, fd, None, spec, 0),
    "raw-empty": lambda fd: libc.syscall(UTIMENSAT, fd, b"", spec, AT_EMPTY_PATH),
}
for name, sets in ways.items():
    for dir in "data", name:
        os.makedirs(dir, exist_ok=True)
        fd = os.open(dir, os.O_RDONLY)
        open(dir + "/" + name, "w").close()
        print(name, sets(fd), os.stat(dir).st_mtime, os.fstat(fd).st_mtime)
print(libc.syscall(UTIMENSAT, AT_FDCWD, None, spec, 0), ctypes.get_errno())
print([os.stat(name).st_mtime for name in ways])
os.utime("data", (10, 20)); os.rename("data/raw", "utime/other")
print([os.stat(dir).st_mtime > 20 for dir in ("data", "utime")])
os.utime("data", (30, 40)); os.utime("utime", (50, 60))
END
    tar -cf "$OUTSIDE/t.tar" new src; mkdir out; tar -xf "$OUTSIDE/t.tar" -C out; cp -a src out/copied
    (cd out && find . -type d -printf '%p %TY\n' | grep -v '^\. ' | sort)
"#;

/// A script that takes longer counts as hung. The limit is generous, because the machine may be shared.
const LIMIT_S: u32 = 240;

/// A [`Case`] that is named after the test function around it.
macro_rules! case {
    () => {{
        fn here() {}
        let path = std::any::type_name_of_val(&here);
        $crate::common::Case::new(path.trim_end_matches("::here"))
    }};
}
pub(crate) use case;

/// Skips the test, with the reason on the terminal, if a program is missing. With `CI` set, the test fails instead.
macro_rules! need {
    ($($program:expr),+ $(,)?) => {
        $(if let Err(reason) = $crate::common::find_program($program) {
            ::forebay_testkit::skip(&reason);
            return;
        })+
    };
}
pub(crate) use need;

/// The full path of a program in the search path of the scripts.
pub fn find_program(name: &str) -> Result<PathBuf, String> {
    let cache = tools_dir().join("bin");
    SEARCH_PATH
        .split(':')
        .map(Path::new)
        .chain([cache.as_path()])
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("{name} is not installed (scripts/setup.sh test installs it)"))
}

/// The compiler of Go. If it is not installed, prints that, and returns `None`.
pub fn go_compiler() -> Option<PathBuf> {
    let beside = Path::new("/usr/local/go/bin/go");
    let there = || beside.exists().then(|| beside.to_owned());
    let go = find_program("go").ok().or_else(there);
    if go.is_none() {
        // Not a failure in continuous integration: Debian 12's Go is large, and few tests need it.
        forebay_testkit::without_data("Go is not installed");
    }
    go
}

/// The Python of Debian's python3-numpy and python3-h5py, even if PATH finds another one first.
pub const PYTHON: &str = "/usr/bin/python3";

const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where scripts/setup.sh puts the foreign conformance suites.
pub fn tools_dir() -> PathBuf {
    forebay_testkit::cache_dir().join("tools")
}

/// The folder with the small C, Fortran, Python and shell programs.
pub fn programs_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// The preload library under test.
pub fn preload() -> PathBuf {
    Library::Preload.path()
}

/// The recorder under test.
pub fn recorder() -> PathBuf {
    Library::Recorder.path()
}

/// The collective layer under test.
pub fn collective() -> PathBuf {
    Library::Collective.path()
}

/// The outcome of one run of a script.
pub struct Outcome {
    /// The exit code; 128+N after signal N.
    pub code: i32,
    /// Everything that the script and its programs printed, on either stream.
    pub output: Vec<u8>,
    /// What `forebay run` itself said; empty for a native run.
    pub forebay_said: String,
    /// The tree on the "PFS", after the drain.
    pub tree: Tree,
    /// The folder that holds that tree.
    pub dir: PathBuf,
}

impl Outcome {
    /// The output as text, for messages and for tests that look for a line.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

/// One test: a start tree, and scripts that run on copies of it.
pub struct Case {
    name: String,
    dir: PathBuf,
    /// The path is short, because programs put sockets there.
    tmp: PathBuf,
    /// Holds the storage. `None`: it lies in the folder of the test.
    elsewhere: Option<Elsewhere>,
    limit_s: u32,
    options: Vec<OsString>,
    changing_contents: Vec<String>,
    afterwards: Option<String>,
    expected_code: i32,
    observed: bool,
    passed: bool,
}

impl Case {
    /// An empty start tree in a new folder.
    pub fn new(name: &str) -> Case {
        let base = std::env::var_os("FOREBAY_TEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
        Case::below(&base, name)
    }

    /// Like [`Case::new`], for programs that have no room for a long path.
    pub fn below(base: &Path, name: &str) -> Case {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let short = name.rsplit("::").next().unwrap_or(name);
        let unique = format!(
            "{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let dir = base.join(format!("{}-{unique}", &short[..short.len().min(40)]));
        let tmp = std::env::temp_dir().join(format!("fbt-{unique}"));
        for sub in ["start", "bin", "home"] {
            fs::create_dir_all(dir.join(sub)).expect("make the folder of the test");
        }
        // The path is canonical, so that getcwd in a program returns the same path.
        let dir = dir.canonicalize().expect("the folder was just made");
        // Other users must reach the tree when a test changes its user.
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("chmod own folder");
        let via = std::env::var_os("FOREBAY_TEST_VIA");
        Case {
            name: name.to_owned(),
            elsewhere: Elsewhere::than(&dir),
            dir,
            tmp,
            limit_s: LIMIT_S,
            options: via.map_or_else(Vec::new, |how| vec!["--via".into(), how]),
            changing_contents: Vec::new(),
            afterwards: None,
            expected_code: 0,
            observed: true,
            passed: false,
        }
    }

    /// Builds the start tree with a bash script. Then every time is set to 2019, unless the script
    /// has set an older one. So a time that the run itself makes stands out.
    pub fn start(self, script: &str) -> Case {
        let age = r#"
            find . -newermt 2020-01-01 ! -type d -exec touch -h -d '2019-05-06 07:08:09.123456789' {} +
            find . -newermt 2020-01-01 -type d -exec touch -d '2019-05-06 07:08:09.987654321' {} +
        "#;
        let output = self
            .script_command(OsStr::new("bash"))
            .arg("-c")
            .arg(format!("set -e\n{script}\n{age}"))
            .current_dir(self.dir.join("start"))
            .output()
            .expect("run bash");
        assert!(
            output.status.success(),
            "the start tree could not be built: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        self
    }

    /// Options for `forebay run` in this test.
    pub fn options<const N: usize>(mut self, options: [&str; N]) -> Case {
        self.options.extend(options.map(OsString::from));
        self
    }

    /// Gives the buffer to the script by a mount, or by the library.
    pub fn via(self, how: &str) -> Case {
        self.options(["--via", how])
    }

    /// True if no library is loaded into the script's processes.
    fn is_mounted(&self) -> bool {
        self.options
            .windows(2)
            .any(|pair| pair == ["--via", "mount"])
    }

    /// Names files whose contents are not compared, because they hold times, inode numbers or random bytes.
    pub fn contents_change_in<const N: usize>(mut self, paths: [&str; N]) -> Case {
        self.changing_contents.extend(paths.map(str::to_owned));
        self
    }

    /// Adds a script that runs natively on both trees after the drain. Both outputs must be equal.
    pub fn afterwards(mut self, script: &str) -> Case {
        self.afterwards = Some(script.to_owned());
        self
    }

    /// Sets the exit code that both runs of the script must have.
    pub fn ends_with(mut self, code: i32) -> Case {
        self.expected_code = code;
        self
    }

    /// Adds no listing of the whole tree to the output, because the script itself prints what matters.
    pub fn without_walk(mut self) -> Case {
        self.observed = false;
        self
    }

    /// Sets the seconds after which the script counts as hung.
    pub fn limit_s(mut self, limit_s: u32) -> Case {
        self.limit_s = limit_s;
        self
    }

    /// Compiles a C source of `tests/programs` to `$BIN/<name without .c>`, natively.
    pub fn compile(self, source: &str, flags: &[&str]) -> Case {
        self.compile_with("gcc", source, flags)
    }

    /// Like [`Case::compile`] with another compiler (`mpicc.mpich`, `mpif90.openmpi`, ...).
    pub fn compile_with(self, compiler: &str, source: &str, flags: &[&str]) -> Case {
        let stem = Path::new(source).file_stem().expect("a source has a name");
        let output = Command::new(compiler)
            .args(["-O1", "-g", "-o"])
            .arg(self.dir.join("bin").join(stem))
            .arg(programs_dir().join(source))
            .args(flags)
            .current_dir(self.dir.join("bin"))
            .output()
            .unwrap_or_else(|error| panic!("{compiler}: {error}"));
        assert!(
            output.status.success(),
            "{compiler} {source}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        self
    }

    /// The folder of this test; outside every buffer.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The storage directory of this test.
    pub fn storage(&self) -> PathBuf {
        let holder = self.elsewhere.as_ref().map_or(self.dir(), Elsewhere::path);
        holder.join("storage")
    }

    /// The minimal environment of every script, the same for both runs.
    fn script_command(&self, program: &OsStr) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env("HOME", self.dir.join("home"))
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("TMPDIR", &self.tmp)
            .env("CHANGING", self.changing_pattern())
            .env("OMP_NUM_THREADS", "1")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHON", PYTHON)
            .env("BUFFER", self.dir.join("run"))
            .env("BIN", self.dir.join("bin"))
            .env("TOOLS", tools_dir().join("bin"))
            .env("OUTSIDE", self.dir.join("out"))
            .env("PROGRAMS", programs_dir())
            .stdin(Stdio::null());
        command
    }

    /// [`Case::contents_change_in`] for `grep -E`.
    fn changing_pattern(&self) -> String {
        let escaped = self.changing_contents.iter().map(|s| s.replace('.', "\\."));
        match escaped.collect::<Vec<_>>().join("|") {
            none if none.is_empty() => none,
            some => format!("({some})$"),
        }
    }

    /// Prepares a run: a fresh copy of the start tree at `run`, and empty folders beside it.
    fn prepare(&self, script: &str) -> (PathBuf, PathBuf, PathBuf) {
        for sub in ["out", "run"] {
            remove_tree(&self.dir.join(sub));
        }
        remove_tree(&self.storage());
        remove_tree(&self.tmp);
        for folder in [&self.dir.join("out"), &self.tmp] {
            fs::create_dir(folder).expect("make a folder beside the buffer");
        }
        let copied = Command::new("cp")
            .arg("-a")
            .arg(self.dir.join("start"))
            .arg(self.dir.join("run"))
            .status()
            .expect("run cp");
        assert!(copied.success(), "copy the start tree");

        let script_path = self.dir.join("script.sh");
        let wrapper_path = self.dir.join("wrapper.sh");
        let output_path = self.dir.join("output");
        fs::write(&script_path, script).expect("write the script");
        let observe = if self.observed { "observe ." } else { "" };
        // The script's output goes to a file, so that it is not mixed with that of `forebay run`.
        let wrapper = format!(
            r#"exec >"{dir}/output" 2>&1
grep -c libforebay_preload /proc/self/maps >"{dir}/hooked"
. "$PROGRAMS/observe.sh"
umask 022
bash "{dir}/script.sh"
code=$?
cd "$BUFFER"
{observe}
exit $code
"#,
            dir = self.dir.display()
        );
        fs::write(&wrapper_path, wrapper).expect("write the wrapper");
        (wrapper_path, output_path, self.dir.join("hooked"))
    }

    /// Runs the script on a copy of the start tree without Forebay.
    pub fn native(&self, script: &str) -> Outcome {
        let (wrapper, output, _) = self.prepare(script);
        let started = SystemTime::now();
        let status = self
            .script_command(OsStr::new("timeout"))
            .args(["-k", "5", &self.limit_s.to_string(), "bash"])
            .arg(wrapper)
            .current_dir(self.dir.join("run"))
            .status()
            .expect("run timeout");
        self.collect("nat", status, output, String::new(), started)
    }

    /// Runs the script on a copy of the start tree under `forebay run`.
    pub fn buffered(&self, script: &str) -> Outcome {
        self.buffered_between(script, || {}, || {})
    }

    /// As [`Case::buffered`], with something to do when the tree is there, and when the run has ended.
    pub fn buffered_between(
        &self,
        script: &str,
        before: impl FnOnce(),
        after: impl FnOnce(),
    ) -> Outcome {
        let (wrapper, output, hooked) = self.prepare(script);
        before();
        if self.elsewhere.is_some() {
            let device = |path: &Path| fs::metadata(path).expect("stat a folder").dev();
            let storage = self.storage();
            let holder = storage.parent().expect("it lies in a folder");
            assert_ne!(device(holder), device(&self.dir.join("run")));
        }
        let preload = preload();
        let started = SystemTime::now();
        let mut command = self.script_command(OsStr::new("timeout"));
        if self.options.iter().any(|option| option == "--collective") {
            command.env("FOREBAY_MPIIO", collective());
        }
        let ran = command
            .args(["-k", "20", &(self.limit_s + 60).to_string()])
            .arg(forebay())
            .arg("run")
            .arg("--buffer")
            .arg(self.dir.join("run"))
            .arg("--storage")
            .arg(self.storage())
            .args(&self.options)
            .args(["--", "timeout", "-k", "5", &self.limit_s.to_string()])
            .arg("bash")
            .arg(wrapper)
            .env("FOREBAY_PRELOAD", preload)
            .env("FOREBAY_RECORDER", recorder())
            .env("FOREBAY_TABLES", self.dir.join("tables"))
            .env("FOREBAY_LOG_DIR", self.dir.join("logs"))
            .current_dir(self.dir.join("run"))
            .output()
            .expect("run timeout");
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr)
        );
        after();
        self.no_process_is_left();
        let hooks = fs::read_to_string(&hooked).unwrap_or_default();
        assert!(
            // Without this check, a library that hooks nothing would pass.
            hooks.trim().parse::<u32>().unwrap_or(0) > 0
                || self.options.iter().any(|option| option == "mount")
                || std::env::var_os("FOREBAY_TEST_UNHOOKED").is_some(),
            "the preload library is not in the script's process; forebay said:\n{said}"
        );
        self.collect("buf", ran.status, output, said, started)
    }

    /// Moves the tree of a finished run aside, and reads it.
    fn collect(
        &self,
        to: &str,
        status: std::process::ExitStatus,
        output: PathBuf,
        forebay_said: String,
        started: SystemTime,
    ) -> Outcome {
        use std::os::unix::process::ExitStatusExt;
        let ended = SystemTime::now();
        // The new name has the same length. Otherwise a path of 4,000 bytes could exceed PATH_MAX.
        let dir = self.dir.join(to);
        remove_tree(&dir);
        fs::rename(self.dir.join("run"), &dir).expect("move the tree aside");
        // The clock by which the kernel stamps files lags a little behind the clock that the test reads,
        // and archives keep whole seconds.
        let slack = Duration::from_secs(2);
        Outcome {
            code: status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            output: fs::read(output).unwrap_or_default(),
            forebay_said,
            tree: Tree::read(&dir, started - slack..=ended),
            dir,
        }
    }

    /// Checks that no bridge outlives its run: it would hold the storage and hide a hang.
    fn no_process_is_left(&self) {
        let storage = self.storage();
        let storage = storage.to_string_lossy();
        let mut left = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
                continue;
            };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(&*storage) {
                left.push(format!("{pid}: {line}"));
                let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
            }
        }
        assert!(
            left.is_empty(),
            "still running after `forebay run`: {left:?}"
        );
    }

    /// Checks that the native run and the buffered run have the same outcome, which most tests state.
    pub fn same(self, script: &str) {
        let native = self.native(script);
        assert_eq!(
            native.code,
            self.expected_code,
            "the script fails even natively:\n{}",
            tail(&native.text())
        );
        let buffered = self.buffered(script);
        self.compare(&native, &buffered);
    }

    /// Compares two outcomes, and ends the test.
    pub fn compare(mut self, native: &Outcome, buffered: &Outcome) {
        let mut wrong = Vec::new();
        if native.code != buffered.code {
            wrong.push(format!(
                "exit code: native {}, buffered {}",
                native.code, buffered.code
            ));
        }
        if native.output != buffered.output {
            wrong.push(format!(
                "output (< native, > buffered):\n{}",
                self.diff(&native.output, &buffered.output)
            ));
        }
        wrong.extend(
            native
                .tree
                .differences(&buffered.tree, &self.changing_contents),
        );
        if let Some(script) = &self.afterwards {
            let said = [native, buffered].map(|outcome| {
                let output = self
                    .script_command(OsStr::new("timeout"))
                    .args(["-k", "5", "120", "bash", "-c"])
                    .arg(format!("exec 2>&1\n{script}"))
                    .current_dir(&outcome.dir)
                    .output()
                    .expect("run timeout");
                output.stdout
            });
            if said[0] != said[1] {
                wrong.push(format!(
                    "looked at natively after the drain (< native, > buffered):\n{}",
                    self.diff(&said[0], &said[1])
                ));
            }
        }
        assert!(
            wrong.is_empty(),
            "{}: native and buffered differ:\n{}\n\n\
             trees: {dir}/nat {dir}/buf (started from {dir}/start), script: {dir}/script.sh\n\
             forebay said:\n{}",
            self.name,
            wrong.join("\n"),
            tail(&buffered.forebay_said),
            dir = self.dir.display()
        );
        self.passed = true;
    }

    /// Ends a test that has made its own assertions.
    pub fn passes(mut self) {
        self.passed = true;
    }

    fn diff(&self, native: &[u8], buffered: &[u8]) -> String {
        let [left, right] =
            [("native.txt", native), ("buffered.txt", buffered)].map(|(name, bytes)| {
                let path = self.dir.join(name);
                fs::write(&path, bytes).expect("write an output for diff");
                path
            });
        let output = Command::new("diff")
            .arg("-a")
            .args([left, right])
            .output()
            .expect("run diff");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines: Vec<&str> = text.lines().take(60).collect();
        if text.lines().count() > lines.len() {
            lines.push("...");
        }
        lines.join("\n")
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        remove_tree(&self.tmp);
        // A failed test keeps its folder as evidence.
        if self.passed && std::env::var_os("FOREBAY_TEST_KEEP").is_none() {
            remove_tree(&self.dir);
        }
    }
}

/// The last lines of a long text.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
