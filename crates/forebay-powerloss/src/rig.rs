//! Loop devices, mounts and processes, in namespaces of their own: when the first process in them ends they are gone.

use anyhow::{Context, bail, ensure};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Everything is below this directory, which a memory file system covers in our own namespace. Paths are the same in every
/// process, because a storage remembers them.
pub const BASE: &str = "/mnt";
/// Longest wait for a mount that is still in use.
const UNMOUNT_LIMIT: Duration = Duration::from_secs(10);

/// Says why the machine can't run here.
///
/// # Errors
/// What is missing.
pub fn check() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("loop devices and mounts need root".into());
    }
    for path in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(path).exists() {
            return Err(format!("there is no {path}"));
        }
    }
    let needed = [
        "unshare",
        "losetup",
        "blockdev",
        "mkfs.ext4",
        "python3",
        "sqlite3",
    ];
    if let Some(missing) = needed.iter().find(|program| installed(program).is_none()) {
        return Err(format!(
            "{missing} is not installed (scripts/setup.sh test installs it)"
        ));
    }
    let output = enclosed(Path::new("true")).output();
    let output = output.map_err(|e| format!("can't run unshare: {e}"))?;
    if !output.status.success() {
        return Err(format!("no namespaces: {}", both(&output)));
    }
    Ok(())
}

/// Where a program is.
pub fn installed(program: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(program))
        .find(|path| path.exists())
}

/// A command that runs in mount and process namespaces of its own; everything in them ends with it.
pub fn enclosed(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--",
    ]);
    command.arg(program);
    command
}

/// Mounts an empty memory file system.
///
/// # Errors
/// The kernel says no.
pub fn mount_memory(at: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(at)?;
    rustix::mount::mount("powerloss", at, "tmpfs", MountFlags::empty(), c"size=90%")
        .with_context(|| format!("can't mount a memory file system at {}", at.display()))
}

/// Runs a command; its output in the error if it fails.
///
/// # Errors
/// It can't be run, or fails.
pub fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = output.with_context(|| format!("can't run {program}"))?;
    ensure!(
        output.status.success(),
        "{program} failed: {}",
        both(&output)
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Standard output and standard error as one text.
pub fn both(output: &Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    format!("{out}{err}").trim().to_owned()
}

/// A loop device that detaches itself with its last user.
#[derive(Debug)]
pub struct Loop {
    /// The device.
    pub device: PathBuf,
    /// Keeps it attached.
    _held: File,
}

impl Loop {
    /// Attaches a free loop device.
    ///
    /// # Errors
    /// There is none.
    pub fn attach(file: &Path, direct: bool) -> anyhow::Result<Self> {
        let direct = if direct {
            "--direct-io=on"
        } else {
            "--direct-io=off"
        };
        let device = run(
            "losetup",
            &[
                OsStr::new("--find"),
                OsStr::new("--show"),
                OsStr::new(direct),
                file.as_os_str(),
            ],
        )?;
        let held = File::open(&device).with_context(|| format!("can't open {device}"));
        // While somebody has it open this only asks the kernel to detach it later.
        run("losetup", &["--detach", &device])?;
        Ok(Loop {
            device: device.into(),
            _held: held?,
        })
    }

    /// Drops what the kernel has cached of the device. Fails if anybody still has it mounted.
    ///
    /// # Errors
    /// It is in use.
    pub fn forget(&self) -> anyhow::Result<()> {
        let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        let alone = rustix::fs::open(&self.device, flags, Mode::empty())
            .with_context(|| format!("{} is still in use", self.device.display()))?;
        drop(alone);
        run(
            "blockdev",
            &[OsStr::new("--flushbufs"), self.device.as_os_str()],
        )
        .map(drop)
    }
}

/// Bytes of the smallest disk that an XFS wants, and some.
pub const XFS_BYTES: u64 = 320 << 20;

/// What is on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4.
    Ext4,
    /// XFS; at least [`XFS_BYTES`].
    Xfs,
}

impl FileSystem {
    fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        }
    }

    /// Why there can be none here, if so.
    pub fn missing(self) -> Option<String> {
        let program = format!("mkfs.{}", self.name());
        if installed(&program).is_none() {
            return Some(format!("{program} is not installed"));
        }
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let is_known = known
            .lines()
            .any(|line| line.split_whitespace().last() == Some(self.name()));
        (!is_known).then(|| format!("the kernel has no {}", self.name()))
    }

    /// Makes one that writes nothing later that it could write now.
    ///
    /// # Errors
    /// The program for it says no.
    pub fn make(self, device: &Path) -> anyhow::Result<()> {
        let options: &[&str] = match self {
            FileSystem::Ext4 => &[
                "-q",
                "-F",
                "-b",
                "4096",
                "-J",
                "size=4",
                "-E",
                "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
            ],
            FileSystem::Xfs => &["-q", "-f", "-K"],
        };
        let arguments: Vec<&OsStr> = options
            .iter()
            .map(OsStr::new)
            .chain([device.as_os_str()])
            .collect();
        run(&format!("mkfs.{}", self.name()), &arguments).map(drop)
    }

    /// Mounts one.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn mount(self, device: &Path, at: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(at)?;
        // Images of one recording, mounted at the same time, have the same number.
        let options = match self {
            FileSystem::Ext4 => c"",
            FileSystem::Xfs => c"nouuid",
        };
        rustix::mount::mount(device, at, self.name(), MountFlags::empty(), options)
            .with_context(|| format!("can't mount {} at {}", device.display(), at.display()))
    }
}

/// Unmounts, and waits until the last process has left. Ends processes of this namespace that stay too long.
///
/// # Errors
/// It stays in use.
pub fn unmount(at: &Path) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        match rustix::mount::unmount(at, UnmountFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if begun.elapsed() < UNMOUNT_LIMIT => {
                if begun.elapsed() > UNMOUNT_LIMIT / 2 {
                    end_others_but(0);
                }
                reap();
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(e) => bail!("can't unmount {}: {e}", at.display()),
        }
    }
}

/// Ends every other process of our own process namespace, whose first process we must be, but one.
pub fn end_others_but(spared: u32) {
    if std::process::id() != 1 {
        return;
    }
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    for number in numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        if let Some(process) = rustix::process::Pid::from_raw(number)
            .filter(|_| number != 1 && number.unsigned_abs() != spared)
        {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    }
}

/// Takes leave of processes that ended and whose parents are gone. Not while a [`Command`] of ours runs.
pub fn reap() {
    if std::process::id() == 1 {
        while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
    }
}

/// A file in memory that stands for a disk.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    /// Its path.
    pub path: PathBuf,
    bytes: u64,
}

impl DiskFile {
    /// Makes an empty one.
    ///
    /// # Errors
    /// There is no space.
    pub fn new(path: &Path, bytes: u64) -> anyhow::Result<Self> {
        let file = File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(path)?;
        file.set_len(bytes)?;
        Ok(DiskFile {
            file,
            path: path.to_owned(),
            bytes,
        })
    }

    /// Gives it other contents.
    ///
    /// # Errors
    /// There is no space.
    pub fn fill<'a>(
        &self,
        blocks: impl Iterator<Item = (u64, &'a [u8; crate::log::BLOCK_BYTES])>,
    ) -> anyhow::Result<()> {
        let whole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, whole, 0, self.bytes)?;
        for (number, block) in blocks {
            self.file.write_all_at(block, number * block.len() as u64)?;
        }
        Ok(())
    }
}
