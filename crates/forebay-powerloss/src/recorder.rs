//! Runs a workload on disks that write down what reaches them.

use crate::case::{Case, Interrupted, Recovery};
use crate::image::Image;
use crate::log::{Log, START};
use crate::model::Op;
use crate::oracle::DRAINED;
use crate::rig::{self, BASE, DiskFile, FileSystem, Loop};
use crate::workload::{Situation, Workload};
use crate::{disk, foreign, tree};
use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Longest run of a command, in seconds.
const LIMIT_S: u32 = 60;
/// The interpreter of the programs.
pub const PYTHON: &str = "/usr/bin/python3";

/// The paths that recording and judging share, see [`BASE`].
#[derive(Debug, Clone)]
pub struct Places {
    base: PathBuf,
    /// The executable under test.
    pub forebay: PathBuf,
}

impl Places {
    /// Makes them, in memory.
    ///
    /// # Errors
    /// There can be none.
    pub fn new(forebay: &Path) -> anyhow::Result<Self> {
        let base = Path::new(BASE).join("machine");
        rig::mount_memory(&base)?;
        let places = Places {
            base,
            forebay: forebay.to_owned(),
        };
        for dir in ["disks", "storage", "pfs"] {
            fs::create_dir(places.base.join(dir))?;
        }
        places.forget_user()?;
        Ok(places)
    }

    /// Where the first disk is mounted.
    pub fn storage(&self) -> PathBuf {
        self.base.join("storage")
    }

    /// Where the second is.
    pub fn pfs(&self) -> PathBuf {
        self.base.join("pfs")
    }

    /// A further path.
    pub fn at(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// Mount points of the disks of a workload, and what is on them.
    pub fn mounts(&self, workload: Workload) -> Vec<(PathBuf, FileSystem)> {
        let kinds = workload.disks().into_iter().map(|(_, kind)| kind);
        [self.storage(), self.pfs()]
            .into_iter()
            .zip(kinds)
            .collect()
    }

    /// Where the programs work.
    pub fn tree(&self, workload: Workload) -> PathBuf {
        if workload.is_native() {
            self.storage()
        } else {
            self.pfs()
        }
    }

    /// Home and runtime directory are empty after a power loss, or at least of another boot.
    ///
    /// # Errors
    /// The memory file system says no.
    pub fn forget_user(&self) -> anyhow::Result<()> {
        for dir in ["home", "run"] {
            let dir = self.at(dir);
            if dir.exists() {
                fs::remove_dir_all(&dir)?;
            }
            fs::create_dir(&dir)?;
        }
        Ok(())
    }

    /// Runs `forebay VERB --buffer ... --storage ...` and more arguments.
    ///
    /// # Errors
    /// It can't be run.
    pub fn forebay(&self, verb: &str, more: &[OsString]) -> anyhow::Result<Output> {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after", "5", &LIMIT_S.to_string()])
            .arg(&self.forebay)
            .arg(verb);
        if verb != "fsck" {
            command.arg("--buffer").arg(self.pfs());
        }
        command.arg("--storage").arg(self.storage()).args(more);
        command
            .env("HOME", self.at("home"))
            .env("XDG_RUNTIME_DIR", self.at("run"))
            .env("TMPDIR", self.at("home"));
        command
            .env_remove("XDG_STATE_HOME")
            .env_remove("FOREBAY_STORAGE")
            .env_remove("FOREBAY_LOG_DIR");
        command
            .stdin(Stdio::null())
            .current_dir("/")
            .output()
            .context("can't run forebay")
    }

    /// Runs a command with the buffer over the PFS, and drains nothing.
    ///
    /// # Errors
    /// It can't be run.
    pub fn run_in_buffer(&self, command: &[OsString]) -> anyhow::Result<Output> {
        let mut arguments = run_of(&["--no-drain"], &[]);
        arguments.extend_from_slice(command);
        self.forebay("run", &arguments)
    }
}

/// Records a run of a workload.
///
/// # Errors
/// Something in the machine or in the workload failed; what was recorded is worth nothing then.
pub fn record(case: Case, forebay: &Path, log: &Path) -> anyhow::Result<()> {
    let places = Places::new(forebay)?;
    on_disks(case.workload, &places, log, &[], START, || {
        work(case.workload, case.seed, &places)
    })
}

/// Records the recovery of an image of `before`, the log of an earlier recording.
///
/// # Errors
/// Something in the machine failed. What the recovery says is not judged here.
pub fn record_recovery(
    case: Case,
    interrupted: Interrupted,
    before: &Log,
    forebay: &Path,
    log: &Path,
) -> anyhow::Result<()> {
    let places = Places::new(forebay)?;
    let sizes = case.workload.disks();
    let mut image = Image::new(before, sizes.len());
    let first = interrupted.first;
    image.make(first.point, &before.pieces(first, sizes.len() as u8));
    let mut from = Vec::new();
    for (number, (bytes, _)) in sizes.iter().enumerate() {
        let file = DiskFile::new(&places.at(&format!("image{number}")), *bytes)?;
        file.fill(image.blocks(number))?;
        from.push(file.path);
    }
    let progress = case.progress(before, first.point);
    on_disks(
        case.workload,
        &places,
        log,
        &from,
        &progress.resumed(),
        || recover(interrupted.recovery, &places),
    )
}

/// Recovers, and says if all is on the PFS after it.
fn recover(recovery: Recovery, places: &Places) -> anyhow::Result<()> {
    match recovery {
        Recovery::Start => {
            places.run_in_buffer(&["true".into()])?;
            return Ok(());
        }
        Recovery::Rebuild => drop(places.forebay("fsck", &["--rebuild".into()])?),
        Recovery::Drain => {}
    }
    if places.forebay("drain", &[])?.status.success() {
        let hash = tree::hash(&tree::read(&places.pfs())?);
        say(places, &format!("{DRAINED} {hash}"))?;
    }
    Ok(())
}

/// Does `work` on disks that write down what reaches them. They are empty, or hold what the files `from` hold.
/// `start` is said in between.
fn on_disks(
    workload: Workload,
    places: &Places,
    log: &Path,
    from: &[PathBuf],
    start: &str,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let at = places.at("disks");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("disk").arg("--at").arg(&at);
    command.arg("--log").arg(log);
    for file in from {
        command.arg("--from").arg(file);
    }
    command.args(workload.disks().iter().map(|(bytes, _)| bytes.to_string()));
    let mut server = command.stdin(Stdio::null()).spawn()?;
    while !at.join(disk::MARK).exists() {
        ensure!(server.try_wait()?.is_none(), "the disks ended at once");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let outcome = mount_all(workload, places, from.is_empty())
        .and_then(|()| prepare(workload, places, from.is_empty()))
        .and_then(|()| say(places, start))
        .and_then(|()| work());
    // In order, also after an error: mounts first, then the disks.
    rig::end_others_but(server.id());
    for (mount, _) in places.mounts(workload) {
        let _ = rig::unmount(&mount);
    }
    rig::unmount(&at)?;
    ensure!(server.wait()?.success(), "the disks ended with an error");
    outcome
}

fn mount_all(workload: Workload, places: &Places, make: bool) -> anyhow::Result<()> {
    for (number, (mount, kind)) in places.mounts(workload).iter().enumerate() {
        let file = places.at("disks").join(disk::name(number));
        let device = Loop::attach(&file, true)?;
        if make {
            kind.make(&device.device)?;
        }
        kind.mount(&device.device, mount)?;
    }
    Ok(())
}

/// What belongs to every image: earlier runs, a bridge that is up.
fn prepare(workload: Workload, places: &Places, is_new: bool) -> anyhow::Result<()> {
    use Situation::{Up, UpDrain, Used, Xfs};
    if is_new {
        foreign::prepare(workload.program, places, &places.tree(workload))?;
        if matches!(workload.situation, Used | Up | UpDrain | Xfs) {
            let pfs = places.pfs();
            let earlier = format!(
                "cd {} && for i in 1 2 3 4 5; do echo text > e$i; done; rm e*",
                pfs.display()
            );
            for _ in 0..2 {
                expect(places.forebay("run", &run_of(&[], &["sh", "-c", &earlier]))?)?;
            }
        }
        if matches!(workload.situation, Up | UpDrain | Xfs) {
            expect(places.forebay("up", &[])?)?;
        }
    }
    rustix::fs::sync();
    Ok(())
}

fn work(workload: Workload, seed: u64, places: &Places) -> anyhow::Result<()> {
    if workload.program.is_foreign() {
        let (tree, mark) = (places.tree(workload), places.at("disks").join(disk::MARK));
        let command = foreign::command(workload.program, seed, places, &tree, &mark)?;
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        return program(workload, places, &command);
    }
    let mut first = 0;
    for ops in workload.runs(seed) {
        let end = first + ops.len();
        one_run(workload, places, first, &ops)?;
        first = end;
    }
    Ok(())
}

fn say(places: &Places, text: &str) -> anyhow::Result<()> {
    fs::File::options()
        .write(true)
        .open(places.at("disks").join(disk::MARK))
        .and_then(|mut mark| std::io::Write::write_all(&mut mark, text.as_bytes()))
        .context("the mark file")
}

/// Arguments of `forebay run`.
fn run_of(options: &[&str], command: &[&str]) -> Vec<OsString> {
    let parts = options.iter().chain(&["--no-record", "--"]).chain(command);
    parts.map(OsString::from).collect()
}

fn expect(output: Output) -> anyhow::Result<()> {
    ensure!(
        output.status.success(),
        "{}: {}",
        output.status,
        rig::both(&output)
    );
    Ok(())
}

fn program(workload: Workload, places: &Places, command: &[&str]) -> anyhow::Result<()> {
    let option = match workload.situation {
        Situation::Native => {
            return rig::run(command[0], &command[1..]).map(drop);
        }
        Situation::Keep => &["--keep"][..],
        Situation::Drain => &[],
        _ => &["--no-drain"],
    };
    expect(places.forebay("run", &run_of(option, command))?)?;
    if workload.situation == Situation::UpDrain {
        expect(places.forebay("drain", &[])?)?;
    }
    Ok(())
}

fn one_run(workload: Workload, places: &Places, first: usize, ops: &[Op]) -> anyhow::Result<()> {
    let (script, list) = (places.at("operate.py"), places.at("operations.json"));
    let ends = ops.last() == Some(&Op::End);
    let of_program = &ops[..ops.len() - usize::from(ends)];
    fs::write(&script, include_str!("operate.py"))?;
    fs::write(&list, serde_json::to_vec(of_program)?)?;
    let (tree, mark) = (places.tree(workload), places.at("disks").join(disk::MARK));
    let arguments = [&script, &list, Path::new(&first.to_string()), &tree, &mark]
        .map(|path| path.display().to_string());
    let mut command = vec![PYTHON];
    command.extend(arguments.iter().map(String::as_str));
    program(workload, places, &command)?;
    if ends {
        let number = first + of_program.len();
        say(places, &format!("begin {number}"))?;
        say(places, &format!("ack {number}"))?;
    }
    Ok(())
}
