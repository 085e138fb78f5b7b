//! A file tree as a value, with everything that must survive the way through the buffer.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// Most differences that a message lists.
const DIFFERENCES_SHOWN: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Mtime {
    /// The run itself made this time, so the two runs differ in it.
    Fresh,
    /// The script set this time, or it is older than the run. It must be equal to the nanosecond.
    Exactly(i64, i64),
}

#[derive(Debug, Clone)]
struct Entry {
    kind: &'static str,
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: Mtime,
    /// For a directory neither is kept, because file systems define them differently.
    size: Option<u64>,
    links: Option<u64>,
    /// The first name of the file, if it has several.
    first_name: Option<PathBuf>,
    target: Option<PathBuf>,
    device: Option<u64>,
    contents: Option<u64>,
}

/// All entries below one folder, by relative path.
pub struct Tree {
    entries: BTreeMap<PathBuf, Entry>,
    xattrs: String,
}

impl Tree {
    /// Reads the tree below `dir`. A time within `run` counts as made by the run.
    pub fn read(dir: &Path, run: RangeInclusive<SystemTime>) -> Tree {
        let mut entries = BTreeMap::new();
        let mut names_of_inode: HashMap<(u64, u64), PathBuf> = HashMap::new();
        for (path, meta) in forebay_testkit::entries_below(dir) {
            let kind = meta.file_type();
            let mtime =
                SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(meta.mtime().max(0) as u64));
            let fresh = mtime.is_some_and(|at| {
                let at = at + Duration::from_nanos(meta.mtime_nsec() as u64);
                run.contains(&at)
            });
            let first_name = (!kind.is_dir() && meta.nlink() > 1).then(|| {
                names_of_inode
                    .entry((meta.dev(), meta.ino()))
                    .or_insert_with(|| path.clone())
                    .clone()
            });
            let entry = Entry {
                kind: if kind.is_dir() {
                    "directory"
                } else if kind.is_file() {
                    "file"
                } else if kind.is_symlink() {
                    "symlink"
                } else if kind.is_fifo() {
                    "fifo"
                } else if kind.is_socket() {
                    "socket"
                } else if kind.is_block_device() {
                    "block device"
                } else {
                    "character device"
                },
                mode: meta.mode() & 0o7777,
                uid: meta.uid(),
                gid: meta.gid(),
                mtime: if fresh {
                    Mtime::Fresh
                } else {
                    Mtime::Exactly(meta.mtime(), meta.mtime_nsec())
                },
                size: (!kind.is_dir()).then_some(meta.size()),
                links: (!kind.is_dir()).then_some(meta.nlink()),
                first_name,
                target: kind
                    .is_symlink()
                    .then(|| fs::read_link(dir.join(&path)).expect("read a symlink")),
                device: (kind.is_block_device() || kind.is_char_device()).then_some(meta.rdev()),
                contents: kind.is_file().then(|| hash_of(&dir.join(&path))),
            };
            entries.insert(path, entry);
        }
        Tree {
            entries,
            xattrs: xattrs_of(dir),
        }
    }

    /// The relative paths, in order.
    pub fn names(&self) -> Vec<PathBuf> {
        self.entries.keys().cloned().collect()
    }

    /// The differences to `buffered`, one line each. The contents of a file are not compared if its
    /// path ends with one of `changing`.
    pub fn differences(&self, buffered: &Tree, changing: &[String]) -> Vec<String> {
        let mut all = Vec::new();
        for (path, native) in &self.entries {
            let name = printable(path);
            let Some(other) = buffered.entries.get(path) else {
                all.push(format!(
                    "{name}: a {} natively, nothing buffered",
                    native.kind
                ));
                continue;
            };
            let changes = changing
                .iter()
                .any(|suffix| path.as_os_str().as_bytes().ends_with(suffix.as_bytes()));
            let mut check = |what: &str, a: String, b: String| {
                if a != b {
                    all.push(format!("{name}: {what}: native {a}, buffered {b}"));
                }
            };
            check("kind", native.kind.into(), other.kind.into());
            check(
                "mode",
                format!("{:o}", native.mode),
                format!("{:o}", other.mode),
            );
            check("owner", native.uid.to_string(), other.uid.to_string());
            check("group", native.gid.to_string(), other.gid.to_string());
            check(
                "mtime",
                format!("{:?}", native.mtime),
                format!("{:?}", other.mtime),
            );
            if !changes {
                check(
                    "size",
                    format!("{:?}", native.size),
                    format!("{:?}", other.size),
                );
                if native.size == other.size && native.contents != other.contents {
                    all.push(format!("{name}: contents differ"));
                    continue;
                }
            }
            let mut check = |what: &str, a: String, b: String| {
                if a != b {
                    all.push(format!("{name}: {what}: native {a}, buffered {b}"));
                }
            };
            check(
                "links",
                format!("{:?}", native.links),
                format!("{:?}", other.links),
            );
            check(
                "same file as",
                format!("{:?}", native.first_name),
                format!("{:?}", other.first_name),
            );
            check(
                "target",
                format!("{:?}", native.target),
                format!("{:?}", other.target),
            );
            check(
                "device",
                format!("{:?}", native.device),
                format!("{:?}", other.device),
            );
        }
        for (path, other) in &buffered.entries {
            if !self.entries.contains_key(path) {
                all.push(format!(
                    "{}: nothing natively, a {} buffered",
                    printable(path),
                    other.kind
                ));
            }
        }
        if self.xattrs != buffered.xattrs {
            all.push(format!(
                "extended attributes: native:\n{}\nbuffered:\n{}",
                self.xattrs, buffered.xattrs
            ));
        }
        let more = all.len().saturating_sub(DIFFERENCES_SHOWN);
        all.truncate(DIFFERENCES_SHOWN);
        if more > 0 {
            all.push(format!("... and {more} more"));
        }
        all
    }
}

fn printable(path: &Path) -> String {
    let name = path.display().to_string();
    match name.char_indices().nth(120) {
        Some((cut, _)) => format!("{}... ({} bytes)", &name[..cut], name.len()),
        None => name,
    }
}

fn hash_of(path: &Path) -> u64 {
    let mut file =
        fs::File::open(path).unwrap_or_else(|error| panic!("open {}: {error}", path.display()));
    let mut hasher = DefaultHasher::new();
    let mut block = vec![0; 1 << 16];
    loop {
        let n = file.read(&mut block).expect("read a file");
        if n == 0 {
            return hasher.finish();
        }
        hasher.write(&block[..n]);
    }
}

/// Extended attributes and ACLs as getfattr prints them. Empty if getfattr is not installed.
fn xattrs_of(dir: &Path) -> String {
    let Ok(output) = Command::new("getfattr")
        .args(["-hRd", "-m", "-", "-e", "hex", "."])
        .current_dir(dir)
        .output()
    else {
        forebay_testkit::skip("extended attributes are not compared: getfattr is not installed");
        return String::new();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut blocks: Vec<&str> = text.split("\n\n").map(str::trim).collect();
    blocks.sort_unstable();
    blocks.join("\n\n").trim().to_owned()
}

/// Removes a tree, even if the test left modes that forbid it, and however deep it is.
pub fn remove_tree(dir: &Path) {
    if dir.symlink_metadata().is_err() {
        return;
    }
    let removed = || {
        Command::new("rm")
            .arg("-rf")
            .arg(dir)
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    if !removed() {
        let _ = Command::new("chmod")
            .args(["-R", "u+rwx"])
            .arg(dir)
            .status();
        removed();
    }
}
