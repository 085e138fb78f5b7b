//! The place of a measurement: a fresh directory on a file system whose kind is known.

use crate::unix;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Room for the largest workload, natively and buffered.
const IMAGE_BYTES: u64 = 4 << 30;

/// A place to measure. When dropped, it is removed and, if it is an image, unmounted.
pub struct Ground {
    /// The file system, for titles.
    pub name: String,
    /// What a reader should know about it.
    pub note: String,
    /// Directory of the native runs.
    pub native: PathBuf,
    /// Directory that the buffer lies over. Its path is as long as the native one, so that both cost the same.
    pub buffer: PathBuf,
    /// Storage of the buffer.
    pub storage: PathBuf,
    top: PathBuf,
    mount: Option<Mount>,
}

struct Mount {
    at: PathBuf,
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(e) = command("umount", &[self.at.as_os_str()]) {
            eprintln!("forebay-bench: {e:#}");
        }
    }
}

impl Ground {
    /// Makes a ground in `dir`, or in an ext4 image there.
    pub fn on_disk(dir: &Path, loop_ext4: bool) -> Result<Self> {
        let kind = unix::file_system(dir).with_context(|| format!("--dir {}", dir.display()))?;
        let top = own_directory(dir, "disk")?;
        let has_journal = kind == "ext4" && has_journal(&top);
        if has_journal && !loop_ext4 {
            let note = format!("{} is on ext4", dir.display());
            return Self::lay_out(kind, note, top, None);
        }
        if !unix::is_root() {
            if loop_ext4 {
                let _ = fs::remove_dir(&top);
                bail!("--loop-ext4 mounts an image, which only root may do");
            }
            let what = if kind == "ext4" {
                "ext4 without a journal, which hardly any site has"
            } else {
                "not ext4"
            };
            let note = format!(
                "{} is on {kind}, {what}; this is not root, so no ext4 could be mounted",
                dir.display()
            );
            return Self::lay_out(kind, note, top, None);
        }
        let note = format!(
            "an ext4 image (loop device) in {}, which is on {}",
            dir.display(),
            if kind == "ext4" && !has_journal {
                "ext4 without a journal"
            } else {
                &kind
            }
        );
        match mount_image(&top) {
            Ok(mount) => Self::lay_out("ext4".to_owned(), note, top, Some(mount)),
            Err(e) => {
                let _ = fs::remove_dir_all(&top);
                Err(e)
            }
        }
    }

    /// Makes a ground in `dir`, which should be on a tmpfs.
    pub fn on_tmpfs(dir: &Path) -> Result<Self> {
        let kind = unix::file_system(dir).with_context(|| format!("--tmpfs {}", dir.display()))?;
        let note = match kind.as_str() {
            "tmpfs" => format!("{} is on tmpfs", dir.display()),
            other => format!("{} is on {other}, not tmpfs", dir.display()),
        };
        Self::lay_out(kind, note, own_directory(dir, "tmpfs")?, None)
    }

    fn lay_out(name: String, note: String, top: PathBuf, mount: Option<Mount>) -> Result<Self> {
        let base = mount.as_ref().map_or(&top, |m| &m.at);
        let ground = Ground {
            name,
            note,
            native: base.join("native"),
            buffer: base.join("buffer"),
            storage: base.join("storage"),
            top,
            mount,
        };
        for dir in [&ground.native, &ground.buffer, &ground.storage] {
            fs::create_dir(dir).with_context(|| dir.display().to_string())?;
        }
        Ok(ground)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        drop(self.mount.take());
        if let Err(e) = fs::remove_dir_all(&self.top) {
            eprintln!("forebay-bench: {}: {e}", self.top.display());
        }
    }
}

/// True if the ext4 that holds `dir` has a journal. An ext4 without one also looks for free inodes in
/// another way: it passes over all those that were freed in the last minutes, one by one. A
/// benchmark that creates and removes files then measures little else.
fn has_journal(dir: &Path) -> bool {
    let Ok(meta) = fs::metadata(dir) else {
        return false;
    };
    let (major, minor) = (libc::major(meta.dev()), libc::minor(meta.dev()));
    let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"));
    let Some(name) = device.as_deref().ok().and_then(Path::file_name) else {
        return false;
    };
    // Each journal in use has a directory `<device>-<inode of the journal>`.
    let prefix = format!("{}-", name.to_string_lossy());
    fs::read_dir("/proc/fs/jbd2")
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
}

/// A fresh directory in `dir`. Its name holds the role, because `dir` may serve as disk and as tmpfs.
fn own_directory(dir: &Path, role: &str) -> Result<PathBuf> {
    let path = dir.join(format!("forebay-bench-{}-{role}", std::process::id()));
    fs::create_dir(&path).with_context(|| path.display().to_string())?;
    Ok(fs::canonicalize(path)?)
}

fn mount_image(top: &Path) -> Result<Mount> {
    let image = top.join("image");
    let at = top.join("ext4");
    fs::create_dir(&at)?;
    fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
    // The inode tables are written now, not in the background during the measurement.
    let lazy = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
    command(
        "mkfs.ext4",
        &[
            "-q".as_ref(),
            "-E".as_ref(),
            lazy.as_ref(),
            image.as_os_str(),
        ],
    )?;
    command(
        "mount",
        &[
            "-o".as_ref(),
            "loop".as_ref(),
            image.as_os_str(),
            at.as_os_str(),
        ],
    )?;
    Ok(Mount { at })
}

fn command(program: &str, arguments: &[&std::ffi::OsStr]) -> Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| program.to_owned())?;
    if !output.status.success() {
        bail!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
