//! The command line: verbs, options, examples. [`crate::verbs`] carries the verbs out.

mod attach;
mod doctor;
mod mount;
mod sim;

pub use attach::AttachArgs;
pub use doctor::{Attempt, DoctorArgs};
pub use mount::{EnterArgs, MountArgs, ServeMountArgs, UmountArgs, Via, door_name};
pub use sim::{SimArgs, SimVerb};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Exit codes, promised to scripts.
pub mod exit {
    /// The verb succeeded.
    pub const OK: u8 = 0;
    /// The command could not be carried out (every verb that starts no command).
    pub const FAILURE: u8 = 1;
    /// The command line is wrong (every verb that starts no command).
    pub const USAGE: u8 = 2;
    /// Data remains in the buffer (`EX_TEMPFAIL`). Nothing is lost, but the data is not on the PFS yet.
    pub const DATA_LEFT: u8 = 75;
    /// A program of the run went past the buffer, and may have looked for something in it (`run` only).
    pub const WENT_PAST: u8 = 76;
    /// `run`, `attach` or `record` failed before the command was started.
    pub const NOT_STARTED: u8 = 125;
    /// `run`, `attach` or `record` found the command but could not execute it.
    pub const NOT_EXECUTABLE: u8 = 126;
    /// `run`, `attach` or `record` did not find the command.
    pub const NOT_FOUND: u8 = 127;
}

const EXAMPLES: &str = "\
Examples:
  forebay run --buffer /pfs/me/run7 -- mpirun -n 64 ./sim
  forebay run --buffer . --storage /local/nvme --report report.json -- python3 post.py
  forebay attach --buffer /pfs/me/run7 -- ./post   joins a run, from another shell
  forebay record -- mpirun -n 64 ./sim     only the log, no buffer
  forebay up --buffer /pfs/me/run7         a bridge that outlives runs
  forebay mount --buffer /pfs/me/run7 /mnt/run7    the same buffer as a mount
  forebay status --json
  forebay drain --buffer /pfs/me/run7      also after a crash
  forebay quarantine --buffer /pfs/me/run7 what a power loss has left without a name
  forebay down --buffer /pfs/me/run7
  forebay report job.darshan --html job.html

Completions for the shell: forebay completions bash > ~/.local/share/bash-completion/completions/forebay";

/// A burst buffer over a directory of a parallel file system.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Cli {
    /// Print more details, and for an error the whole chain of causes.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a command with the buffer over a directory, then drain and report.
    Run(RunArgs),
    /// Run a command in a buffer that is in use: beside the command of a run, from another shell or launcher.
    Attach(AttachArgs),
    /// Run a command and record what it reads and writes, without a buffer.
    Record(RecordArgs),
    /// Write the log of a job whose recording was interrupted, or that ran on several nodes.
    Collect(CollectArgs),
    /// Start a bridge that outlives runs.
    Up(UpArgs),
    /// Mount the buffer at a directory, for shells and for programs that no library can be loaded into.
    Mount(MountArgs),
    /// Take away what `forebay mount` has mounted.
    Umount(UmountArgs),
    /// Say what works on this node, what does not, and how to mend it.
    Doctor(DoctorArgs),
    /// Drain, then stop the bridge of a directory.
    Down(DownArgs),
    /// List bridges with their directories, and how much data is not on the PFS yet.
    Status(StatusArgs),
    /// Bring what is in the buffer to the PFS, also after a crash.
    Drain(DrainArgs),
    /// Remove the lock of a directory, which a buffer that is given up has left there.
    Unlock(UnlockArgs),
    /// Check the tables and objects of a bridge that is not running.
    Fsck(FsckArgs),
    /// Show the files that a power loss has left without a name, and take them out or drop them.
    Quarantine(QuarantineArgs),
    /// Show where the I/O time of a job went, from its Darshan logs.
    Report(ReportArgs),
    /// Measure which locks a file system has between its clients, for collective I/O.
    Probe(ProbeArgs),
    /// Run the simulators.
    Sim(SimArgs),
    /// Print a completion script for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Run the server process.
    #[command(hide = true)]
    Bridge(BridgeArgs),
    /// Write for `forebay probe` as one of its clients.
    #[command(hide = true)]
    ProbeClient {
        /// The directory in which it writes.
        dir: PathBuf,
        /// Each write waits for the servers (O_SYNC).
        #[arg(long)]
        waiting: bool,
    },
    /// Try something that changes the process.
    #[command(hide = true)]
    Try {
        #[command(subcommand)]
        what: Attempt,
    },
    /// Serve a mount whose connection is standard input.
    #[command(hide = true)]
    ServeMount(ServeMountArgs),
    /// Mount the buffer in a namespace of its own, and become a command.
    #[command(hide = true)]
    Enter(EnterArgs),
}

/// The options that say where the buffer is.
#[derive(Debug, Clone, Args)]
pub struct PlaceArgs {
    /// The PFS directory that the buffer lies over. Programs use the same paths as before.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub buffer: PathBuf,
    /// Local directory that keeps the buffered data. Default: the first usable one of
    /// $FOREBAY_STORAGE, $SLURM_TMPDIR, $LOCAL_SCRATCH, /var/tmp/forebay-UID.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub storage: Option<PathBuf>,
}

/// The options of a bridge.
#[derive(Debug, Clone, Default, Args)]
pub struct BridgeOptions {
    /// Directory for logs. The log of the bridge goes there (default: beside its data) and, with `run`, the Darshan log
    /// (default: $FOREBAY_LOG_DIR, $XDG_STATE_HOME/forebay/logs or ~/.local/state/forebay/logs, with a directory for each day).
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub log_dir: Option<PathBuf>,
    #[command(flatten)]
    pub moved: MovedOptions,
}

impl BridgeOptions {
    /// For a bridge that takes the place of one that has died: what was said of the directory was said of that moment.
    pub fn again(&self) -> BridgeOptions {
        BridgeOptions {
            log_dir: self.log_dir.clone(),
            moved: MovedOptions::default(),
        }
    }
}

/// What is said of a buffer directory that is another one than before.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct MovedOptions {
    /// Go on although DIR is another directory now than the one for which the storage holds files. From now on they belong to
    /// the one that is there now.
    #[arg(long)]
    pub root_has_moved: bool,
}

/// The options of a drain.
#[derive(Debug, Clone, Args)]
pub struct DrainOptions {
    /// Keep the buffered copies after the drain: the next run reads them at buffer speed.
    #[arg(long)]
    pub keep: bool,
    /// Limit of the drain in bytes per second, with K, M, G (powers of 1024). Default: none.
    #[arg(long, value_name = "BYTES", value_parser = crate::units::parse_bytes)]
    pub drain_rate: Option<u64>,
    /// Files copied at the same time; with 1 names change one after the other, too. Default: 4 to a file system of this machine, else 32.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub drain_workers: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: that of CMD; 128+N if signal N killed it; 75 if data could not be drained (listed,
with the command that retries; nothing is lost); 76 if CMD ended with 0, but a program went past the
buffer and may have looked into it (--allow-bypass); 125 if forebay failed before CMD was started;
126 if CMD cannot be executed; 127 if it is not found.

Examples:
  forebay run --buffer /pfs/me/run7 -- mpirun -n 64 ./sim
  forebay run --buffer . --no-drain -- ./stage1 && forebay run --buffer . -- ./stage2

A run ends when CMD has ended and no process that CMD has started holds anything in the buffer: an open
or mapped file, a working directory, a connection. Processes that hold nothing are waited for up to two
seconds. Those who go on after that are served as before; when they have ended, what they have
done is drained, and `forebay status` shows how that went.

Ctrl-C goes to CMD; then processes have two seconds to close their files, and what is closed is drained.
While the run waits for processes, Ctrl-C leaves them in the background. During the drain, it stops
the drain; that of another command goes on, and the run ends with 75.")]
pub struct RunArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub bridge: BridgeOptions,
    #[command(flatten)]
    pub drain: DrainOptions,
    /// Leave the data in the buffer; `forebay drain` brings it to the PFS later.
    #[arg(long, conflicts_with = "keep")]
    pub no_drain: bool,
    /// Do not wait longer than two seconds for processes that outlive CMD. The bridge serves them in the background.
    #[arg(long)]
    pub no_wait: bool,
    /// Print no report, unless data is left, a process goes on, the bridge has died, or there is a remark. With -v the report has all details.
    #[arg(short, long)]
    pub quiet: bool,
    /// Also write the report to this file, as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
    /// Do not load the recorder, and write no Darshan log.
    #[arg(long, conflicts_with_all = ["log", "memory", "include", "tables"])]
    pub no_record: bool,
    #[command(flatten)]
    pub record: RecordOptions,
    /// Load the collective layer, which carries out collective reads and writes of MPI programs (docs/COLLECTIVE.md).
    #[arg(long)]
    pub collective: bool,
    /// How CMD gets the buffer: a library that is loaded into its processes, a mount over the directory that all programs
    /// see, also static ones and those in Go (docs/MOUNT.md), or the better one that works here.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Via::Preload)]
    pub via: Via,
    /// End with CMD's status although programs that the library does not reach (static ones, those in Go, set-user-id) were
    /// started in the buffer, or with a path in it. They see the PFS as it is; the report names them.
    #[arg(long)]
    pub allow_bypass: bool,
    /// With --collective: say for each file what became of its collective calls, which method was chosen and why. On the
    /// standard error, or into FILE; as JSON if its name ends in .json.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", requires = "collective")]
    pub explain: Option<PathBuf>,
    /// With --collective: add a line to FILE for each collective call, with what each rank accesses. `forebay sim collective
    /// --trace FILE` replays it with more processes.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "collective")]
    pub trace: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// The options of the recorder.
#[derive(Debug, Clone, Args)]
pub struct RecordOptions {
    /// Write the Darshan log to this file, which must not exist yet.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Memory for the counters of each process, with K, M, G. Default: 2M.
    #[arg(long, value_name = "BYTES", value_parser = crate::units::parse_bytes)]
    pub memory: Option<u64>,
    /// Also record files below this directory, even if it lies in one that is left out
    /// (/etc /dev /usr /bin /boot /lib /opt /sbin /sys /proc /var, /tmp/ompi.* /tmp/prte.*). May be given
    /// several times.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub include: Vec<PathBuf>,
    /// Keep the tables in a directory below this one and write no log. `forebay collect` writes it later,
    /// for all nodes of the job.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "log")]
    pub tables: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: that of CMD; 128+N if signal N killed it; 125 if forebay failed before CMD was started;
126 if CMD cannot be executed; 127 if it is not found. What becomes of the log does not change it.

Examples:
  forebay record -- mpirun -n 64 ./sim
  forebay record --log post.darshan -- python3 post.py
  srun forebay record --tables /pfs/me/tables -- ./sim && forebay collect /pfs/me/tables")]
pub struct RecordArgs {
    /// Directory for the Darshan log. Default: $FOREBAY_LOG_DIR, $XDG_STATE_HOME/forebay/logs or ~/.local/state/forebay/logs, with a
    /// directory for each day.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["log", "tables"])]
    pub log_dir: Option<PathBuf>,
    #[command(flatten)]
    pub options: RecordOptions,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The directories hold the tables of one job, from one or several nodes. They are removed when the log
is written.

Examples:
  forebay collect /dev/shm/forebay-tables-1000/node7-4711-123456
  forebay collect /pfs/me/tables --log job.darshan")]
pub struct CollectArgs {
    /// Write the log to this file, which must not exist yet. Default: the file that the recorder was to write.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Directories with tables that `forebay record` or `forebay run` has left.
    #[arg(required = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dirs: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  forebay up --buffer /pfs/me/run7 --storage /local/nvme")]
pub struct UpArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub bridge: BridgeOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 75 if data could not be drained; the bridge goes on running then.

Example:
  forebay down --buffer /pfs/me/run7")]
pub struct DownArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub drain: DrainOptions,
    /// Stop the bridge and leave the data in the buffer.
    #[arg(long, conflicts_with = "keep")]
    pub no_drain: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  forebay status\n  forebay status --buffer /pfs/me/run7 --json"
)]
pub struct StatusArgs {
    /// Only the bridge of this directory.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub buffer: Option<PathBuf>,
    /// Where to look for what became of processes that runs have left in the background. Default: all places where
    /// `forebay run` looks for storage.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub storage: Option<PathBuf>,
    /// Print JSON, for scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Works with a running bridge, or starts one for the purpose.
Exit status: 75 if data could not be drained, 1 if something that --take names could not be settled.

What others have changed on the PFS, or made under a name that the buffer needs, is not replaced or removed. The
drain lists it, and --take settles it:
ours (what is on the PFS goes), theirs (what is in the buffer goes), or both (PATH stays theirs, and
ours gets the name PATH.ours).

Examples:
  forebay drain --buffer /pfs/me/run7
  forebay drain --buffer /pfs/me/run7 --take both out/a.dat
  forebay drain --buffer /pfs/me/run7 --drain-rate 200M --json")]
pub struct DrainArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub drain: DrainOptions,
    #[command(flatten)]
    pub moved: MovedOptions,
    /// Whose version of each PATH stays, where others have changed it on the PFS.
    #[arg(long, value_name = "SIDE", requires = "paths")]
    pub take: Option<Side>,
    /// Paths in the buffer, for `--take`. A drain is always of all that is in the buffer.
    #[arg(value_name = "PATH", requires = "take", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// Print JSON, for scripts.
    #[arg(long)]
    pub json: bool,
}

/// Whose version stays.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Side {
    /// That of the buffer.
    Ours,
    /// That of the PFS.
    Theirs,
    /// That of the PFS, and that of the buffer beside it.
    Both,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A buffer locks its directory, on all nodes and for all users, until it is drained and its bridge has ended.
The lock goes by itself with `forebay drain`. Remove it only if the storage that it names is gone or given up:
what is left there is not drained any more as long as another buffer has the directory. The lock of a
bridge that runs on this node stays.

Example:
  forebay unlock --buffer /pfs/me/run7")]
pub struct UnlockArgs {
    /// The PFS directory.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub buffer: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 nothing wrong (any more), 1 something is wrong or could not be checked.

Examples:
  forebay fsck --storage /local/nvme
  forebay fsck --storage /local/nvme --rebuild     tables lost: rebuild them from the objects")]
pub struct FsckArgs {
    /// The storage directory, or one instance in it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub storage: PathBuf,
    /// Mend what can be mended. Without this option, fsck only checks (and finishes what a killed bridge left unfinished).
    #[arg(long)]
    pub mend: bool,
    /// Throw the tables away and rebuild them from the labels of the backing objects.
    #[arg(long)]
    pub rebuild: bool,
    /// Print JSON, for scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
After a power loss `forebay drain` finds files whose names were not on the disk yet. It puts them
into quarantine, names them, and ends with 75 until each is taken out or dropped. Works with or
without a running bridge.

Examples:
  forebay quarantine --buffer /pfs/me/run7                   list them
  forebay quarantine take --buffer /pfs/me/run7 out/a.dat    put it where it was
  forebay quarantine take --buffer /pfs/me/run7 out/a.dat --to /home/me/a.dat
  forebay quarantine drop --buffer /pfs/me/run7 --all        remove them for good")]
pub struct QuarantineArgs {
    /// The PFS directory that the buffer lies over. Required.
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub buffer: Option<PathBuf>,
    /// Local directory that keeps the buffered data. Default: as for `forebay run`.
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub storage: Option<PathBuf>,
    /// Print JSON, for scripts.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub what: Option<QuarantineVerb>,
}

impl QuarantineArgs {
    /// Where the buffer is. Ends the program with a usage error if the command line does not say so: an option that all
    /// subcommands share can't be a required one.
    pub fn place(&self) -> PlaceArgs {
        let Some(buffer) = self.buffer.clone() else {
            let missing = clap::error::ErrorKind::MissingRequiredArgument;
            Cli::command()
                .error(missing, "--buffer <DIR> is required")
                .exit()
        };
        PlaceArgs {
            buffer,
            storage: self.storage.clone(),
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum QuarantineVerb {
    /// List the files: id, size, last change, and the path that each had. This is the default.
    List,
    /// Copy files out, durably and with all attributes, and remove them from quarantine. Replaces nothing.
    Take {
        /// Id or path of a file, as the list shows it.
        #[arg(required = true, value_name = "ID|PATH")]
        which: Vec<OsString>,
        /// A file that does not exist yet, or a directory. Default: the path that it had, on the PFS.
        #[arg(long, value_name = "DEST", value_hint = ValueHint::AnyPath)]
        to: Option<PathBuf>,
    },
    /// Remove files for good.
    Drop {
        /// Id or path of a file, as the list shows it.
        #[arg(required_unless_present = "all", value_name = "ID|PATH")]
        which: Vec<OsString>,
        /// All of them.
        #[arg(long, conflicts_with = "which")]
        all: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Logs of the same job are joined; jobs are shown one by one. A directory stands for the logs in it.
-v shows every finding with its evidence.
Exit status: 1 if a log could not be read; the others are shown all the same.

Examples:
  forebay report job.darshan
  forebay report logs/*_id4711-*.darshan --html job.html
  forebay report --compare before.darshan after.darshan --html change.html
  forebay report job.darshan --json")]
pub struct ReportArgs {
    /// Darshan logs (format 3.x) of any program.
    #[arg(value_name = "LOG", required_unless_present = "compare", value_hint = ValueHint::FilePath)]
    pub logs: Vec<PathBuf>,
    /// Write a page for browsers. The logs must be those of one job.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Print JSON, for scripts.
    #[arg(long)]
    pub json: bool,
    /// Compare two runs of a program: the logs before and after a change.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with = "logs", value_hint = ValueHint::FilePath)]
    pub compare: Vec<PathBuf>,
    /// JSON file with other limits for findings; docs/REPORT.md names them.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub rules: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Two processes write small pieces into files of DIR in turns. What a write takes longer than one to a file
of its own, the process has waited for the other one to give up a lock. Processes of one node that use one mount are
one client for the file system, which takes no locks from itself: to see locks, let the second one
run on another node, or use another mount.

What is seen is kept, for each mounted file system, in $FOREBAY_LOCKS (default: ~/.cache/forebay/locks), where
the collective layer looks for it.
Exit status: 1 if the times say nothing clear.

Examples:
  forebay probe /pfs/me --via 'ssh node2'
  forebay probe /pfs/me --via 'srun -N1 -n1 -w node2' --json
  forebay probe /mnt/client1 --also /mnt/client2
  forebay probe --known                       what is known by the type of a file system")]
pub struct ProbeArgs {
    /// A directory of the file system. Files are made in it, and removed.
    #[arg(value_name = "DIR", required_unless_present = "known", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// The same directory, as the second process sees it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub also: Option<PathBuf>,
    /// A command that starts the second process elsewhere; the program and its arguments are added.
    #[arg(long, value_name = "CMD")]
    pub via: Option<String>,
    /// Print the table of known file systems, and end.
    #[arg(long, conflicts_with_all = ["dir", "also", "via"])]
    pub known: bool,
    /// Print JSON, for scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct BridgeArgs {
    /// Canonical buffer root.
    #[arg(long)]
    pub root: PathBuf,
    /// Storage directory that holds the instances.
    #[arg(long)]
    pub storage: PathBuf,
    /// Standard input is a pipe. The bridge writes one line to it when it is ready, or the reason why it cannot start.
    #[arg(long)]
    pub ready_on_stdin: bool,
    /// Live until `forebay down`, not only as long as a run needs the bridge.
    #[arg(long)]
    pub stay: bool,
    /// It is started to bring data away, or to end a run: it may spend all that is kept back on a full storage.
    #[arg(long)]
    pub bring_away: bool,
    #[command(flatten)]
    pub moved: MovedOptions,
    /// The process of the run that starts it, and that uses it from the beginning.
    #[arg(long, value_name = "PID")]
    pub run: Option<u32>,
}
