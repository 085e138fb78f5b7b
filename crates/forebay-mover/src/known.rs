//! Looks through a directory of the PFS: what it is known by, with all that is in it.

use crate::pfs::{self, During, Trouble};
use forebay_core::drain::{KnownDir, KnownFiles, Work, is_leftover};
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno};
use std::collections::{BTreeSet, HashSet};
use std::os::fd::AsFd;

/// See [`Act::Know`](forebay_core::drain::Act::Know).
///
/// # Errors
/// It can't be looked through, or is gone.
pub fn know(
    lower: &Lower,
    dir: &TreePath,
    without: &BTreeSet<TreePath>,
    with_files: bool,
) -> Work<KnownDir> {
    let mut files = KnownFiles::new(dir, with_files);
    let is = look_through(lower, dir, without, &mut HashSet::new(), &mut files);
    let is = is.map_err(Trouble::into_core)?;
    Ok(KnownDir { is, files })
}

/// What it is known by. Adds the inode numbers of the directories in it to `dirs`.
pub(crate) fn known(lower: &Lower, dir: &TreePath, dirs: &mut HashSet<u64>) -> pfs::Work<Identity> {
    let mut files = KnownFiles::new(dir, false);
    look_through(lower, dir, &BTreeSet::new(), dirs, &mut files)
}

/// A directory of which what is in it is being looked at.
struct Opened {
    path: TreePath,
    ino: u64,
    itself: Identity,
    entries: Vec<(Vec<u8>, Option<Identity>)>,
    /// Directories that are still to be looked at, and whether they count.
    dirs: Vec<(Vec<u8>, bool)>,
    /// Does it count for what the directory above is known by? What drains have left does not, because it is swept anyway, nor what
    /// is about to leave; but the directories in it are noted.
    counts: bool,
}

impl Opened {
    /// Adds to `files` those in it, if it counts.
    fn new(
        lower: &Lower,
        path: TreePath,
        without: &BTreeSet<TreePath>,
        counts: bool,
        files: &mut KnownFiles,
    ) -> pfs::Work<Self> {
        let fd = lower
            .open(&path, libc::O_RDONLY | libc::O_DIRECTORY)
            .during("open directory")?;
        let itself = sys::stat(fd.as_fd(), b"").during("stat")?;
        let mut opened = Opened {
            path,
            ino: itself.ino,
            itself: Identity::of(&itself),
            entries: Vec::new(),
            dirs: Vec::new(),
            counts,
        };
        let mut raw = Vec::new();
        while sys::read_dir(fd.as_fd(), &mut raw).during("read directory")? {}
        // Where names come and go meanwhile, a PFS may list one twice.
        raw.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        raw.dedup_by(|a, b| a.name == b.name);
        for entry in raw {
            let is_left = is_leftover(&entry.name)
                || !without.is_empty() && without.contains(&opened.path.join(&entry.name));
            match sys::stat(fd.as_fd(), &entry.name) {
                Ok(attr) if attr.is_dir() => opened.dirs.push((entry.name, !is_left)),
                Ok(_) if is_left => {}
                Ok(attr) => {
                    if counts {
                        files.add(&attr, &opened.path, &entry.name);
                    }
                    let known = Identity::of_entry(&attr);
                    opened.entries.push((entry.name, Some(known)));
                }
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e).during("stat"),
            }
        }
        Ok(opened)
    }
}

fn look_through(
    lower: &Lower,
    dir: &TreePath,
    without: &BTreeSet<TreePath>,
    dirs: &mut HashSet<u64>,
    files: &mut KnownFiles,
) -> pfs::Work<Identity> {
    let mut stack = vec![Opened::new(lower, dir.clone(), without, true, files)?];
    loop {
        let at = stack.last_mut().expect("it ends with the first");
        if let Some((name, counts)) = at.dirs.pop() {
            let counts = counts && at.counts;
            let below = Opened::new(lower, at.path.join(&name), without, counts, files)?;
            dirs.insert(below.ino);
            stack.push(below);
            continue;
        }
        let done = stack.pop().expect("it ends with the first");
        let entries = done.entries.iter().map(|(name, entry)| (&name[..], *entry));
        let known = done.itself.with_contents(entries);
        match stack.last_mut() {
            Some(_) if !done.counts => {}
            Some(above) => above.entries.push((done.path.name().to_vec(), Some(known))),
            None => return Ok(known),
        }
    }
}
