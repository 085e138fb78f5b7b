//! Runs a workload on disks that write down what reaches them.

use crate::disk;
use crate::log::START;
use crate::model::Op;
use crate::rig::{self, BASE, Loop};
use crate::workload::{Program, ROWS, Situation, Workload};
use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Longest run of a command, in seconds.
const LIMIT_S: u32 = 60;
const PYTHON: &str = "/usr/bin/python3";

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

    /// Mount points of the disks of a workload.
    pub fn mounts(&self, workload: Workload) -> Vec<PathBuf> {
        let mut all = vec![self.storage(), self.pfs()];
        all.truncate(workload.disks().len());
        all
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
}

/// Records a run of a workload.
///
/// # Errors
/// Something in the machine or in the workload failed; what was recorded is worth nothing then.
pub fn record(workload: Workload, seed: u64, forebay: &Path, log: &Path) -> anyhow::Result<()> {
    let places = Places::new(forebay)?;
    let at = places.at("disks");
    let sizes: Vec<String> = workload.disks().iter().map(u64::to_string).collect();
    let mut server = Command::new(std::env::current_exe()?)
        .arg("disk")
        .arg("--at")
        .arg(&at)
        .arg("--log")
        .arg(log)
        .args(&sizes)
        .stdin(Stdio::null())
        .spawn()?;
    while !at.join(disk::MARK).exists() {
        ensure!(server.try_wait()?.is_none(), "the disks ended at once");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let outcome = on_disks(workload, seed, &places);
    // In order, also after an error: mounts first, then the disks.
    rig::end_others_but(server.id());
    for mount in places.mounts(workload) {
        let _ = rig::unmount(&mount);
    }
    rig::unmount(&at)?;
    ensure!(server.wait()?.success(), "the disks ended with an error");
    outcome
}

fn on_disks(workload: Workload, seed: u64, places: &Places) -> anyhow::Result<()> {
    for (number, mount) in places.mounts(workload).iter().enumerate() {
        let file = places.at("disks").join(disk::name(number));
        let device = Loop::attach(&file, true)?;
        rig::make_ext4(&device.device)?;
        rig::mount_ext4(&device.device, mount)?;
    }
    if matches!(workload.situation, Situation::Used | Situation::Up) {
        let earlier = "for i in 1 2 3 4 5; do echo text > e$i; done; rm e*";
        for _ in 0..2 {
            expect(places.forebay(
                "run",
                &run_of(
                    &[],
                    &[
                        "sh",
                        "-c",
                        &format!("cd {} && {earlier}", places.pfs().display()),
                    ],
                ),
            )?)?;
        }
    }
    if workload.situation == Situation::Up {
        expect(places.forebay("up", &[])?)?;
    }
    rustix::fs::sync();
    say(places, START)?;
    if workload.program == Program::Sqlite {
        return database(workload, places);
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
        Situation::Fresh | Situation::Used | Situation::Up => &["--no-drain"][..],
        Situation::Keep => &["--keep"],
        Situation::Drain => &[],
    };
    expect(places.forebay("run", &run_of(option, command))?)
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

fn database(workload: Workload, places: &Places) -> anyhow::Result<()> {
    let script = places.at("database.py");
    fs::write(&script, include_str!("database.py"))?;
    let (tree, mark) = (places.tree(workload), places.at("disks").join(disk::MARK));
    let arguments = [&script, Path::new(&ROWS.to_string()), &tree, &mark]
        .map(|path| path.display().to_string());
    let mut command = vec![PYTHON];
    command.extend(arguments.iter().map(String::as_str));
    program(workload, places, &command)
}
