//! What a drain has itself changed on the PFS: that is no change by others.

use crate::pfs::Work;
use forebay_core::facts::{Attr, Timestamp};
use forebay_core::path::TreePath;
use forebay_objects::PfsNotes;
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::Write;

/// The name of the note about files that were touched.
const FILES: &[u8] = b"files";

/// What the drain itself does on the PFS.
#[derive(Default)]
pub(crate) struct Touched {
    /// Files of which it has renamed or removed a name, or tried to: that changes the time of change (`ctime`) of those with other names.
    /// Earlier drains have done that too, since something went aside that still is.
    files: Mutex<TouchedFiles>,
    /// Has a note about `files`, for the next drain if this one is killed.
    notes: Option<PfsNotes>,
    /// The directories that were in what it has put aside and not begun to remove. Numbers of their inodes, by that of what is
    /// aside.
    dirs_aside: Mutex<HashMap<u64, HashSet<u64>>>,
    /// What may be aside in other directories than the root; `None` before somebody asks.
    beside: Mutex<Option<BTreeSet<TreePath>>>,
    /// What was aside and is no more, while a loss of power may bring it back: the notes about it stay that long.
    gone: Mutex<BTreeSet<TreePath>>,
    forgetting: Mutex<()>,
}

#[derive(Default)]
struct TouchedFiles {
    /// By device and number of the inode, the time of modification that it had before.
    all: HashMap<(u64, u64), Timestamp>,
    /// The note, when something was added to it.
    note: Option<File>,
}

/// The files that a note tells of. What is behind the last line is a part of one.
fn files_of(note: &[u8]) -> HashMap<(u64, u64), Timestamp> {
    let mut lines: Vec<_> = note.split(|byte| *byte == b'\n').collect();
    lines.pop();
    let file = |line| {
        let mut fields = std::str::from_utf8(line).ok()?.split(' ');
        let inode = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        // Earlier versions have noted no time.
        let mtime = match (fields.next(), fields.next()) {
            (Some(sec), Some(nsec)) => Timestamp {
                sec: sec.parse().ok()?,
                nsec: nsec.parse().ok()?,
            },
            _ => Timestamp::default(),
        };
        Some((inode, mtime))
    };
    lines.into_iter().filter_map(file).collect()
}

impl Touched {
    /// With what earlier drains have noted.
    pub(crate) fn noted(notes: PfsNotes) -> Self {
        let files = notes.read(FILES).ok().flatten().unwrap_or_default();
        Touched {
            files: Mutex::new(TouchedFiles {
                all: files_of(&files),
                note: None,
            }),
            notes: Some(notes),
            ..Touched::default()
        }
    }

    /// A name of this is about to go or to move.
    pub(crate) fn note(&self, attr: &Attr) {
        if attr.nlink > 1 && !attr.is_dir() {
            let (device, ino) = attr.inode();
            let Timestamp { sec, nsec } = attr.mtime;
            let mut files = self.files.lock();
            match files.all.entry((device, ino)) {
                Entry::Occupied(_) => return,
                Entry::Vacant(vacant) => vacant.insert(attr.mtime),
            };
            if files.note.is_none() {
                let notes = self.notes.as_ref();
                files.note = notes.and_then(|notes| notes.open_to_add(FILES).ok());
            }
            if let Some(note) = &mut files.note {
                // Where that fails, and this drain is killed, the next one gives back what it has removed.
                let _ = note.write_all(format!("{device} {ino} {sec} {nsec}\n").as_bytes());
            }
        }
    }

    /// Nothing is aside any more: the next drain has no use for it.
    pub(crate) fn forget_files(&self) {
        if let Some(notes) = &self.notes {
            let mut files = self.files.lock();
            *files = TouchedFiles::default();
            let _ = notes.forget(FILES);
        }
    }

    /// The time of modification that this had before a name of it was touched.
    pub(crate) fn mtime_of(&self, attr: &Attr) -> Option<Timestamp> {
        self.files.lock().all.get(&attr.inode()).copied()
    }

    /// The directory of this number is aside, with these directories in it.
    pub(crate) fn has_put_aside(&self, ino: u64, dirs: HashSet<u64>) {
        self.dirs_aside.lock().insert(ino, dirs);
    }

    /// This is aside in another directory than the root.
    pub(crate) fn has_put_beside(&self, aside: TreePath) {
        // Who asks first reads the notes, which tell of it.
        if let Some(known) = &mut *self.beside.lock() {
            known.insert(aside);
        }
    }

    /// Nothing is aside there any more, and there is no note about it.
    pub(crate) fn note_forgotten(&self, aside: &TreePath) {
        if let Some(known) = &mut *self.beside.lock() {
            known.remove(aside);
        }
    }

    /// Nothing is aside there any more, while the note about it stays.
    pub(crate) fn note_gone(&self, aside: &TreePath) {
        self.gone.lock().insert(aside.clone());
    }

    /// See [`Touched::note_gone`].
    pub(crate) fn is_gone(&self, aside: &TreePath) -> bool {
        self.gone.lock().contains(aside)
    }

    /// Lets `forget` take out what has gone. One thread at a time.
    pub(crate) fn forget_gone(&self, forget: impl FnOnce(&mut BTreeSet<TreePath>)) {
        let _alone = self.forgetting.lock();
        let mut gone = std::mem::take(&mut *self.gone.lock());
        forget(&mut gone);
        self.gone.lock().extend(gone);
    }

    /// What may be aside below this directory; `noted` gives what earlier drains have put aside.
    pub(crate) fn aside_below(
        &self,
        dir: &TreePath,
        noted: impl FnOnce() -> Work<BTreeSet<TreePath>>,
    ) -> Work<Vec<TreePath>> {
        let mut known = self.beside.lock();
        let known = match &mut *known {
            Some(known) => known,
            unknown => unknown.insert(noted()?),
        };
        // They lie together, maybe with some that only begin like them.
        let from = known.range(dir.clone()..);
        let near = from.take_while(|aside| aside.as_bytes().starts_with(dir.as_bytes()));
        Ok(near.filter(|aside| aside.is_within(dir)).cloned().collect())
    }

    /// Gives the directories that were in it, once: as soon as its removal begins they say nothing any more.
    pub(crate) fn take_dirs_aside(&self, ino: u64) -> Option<HashSet<u64>> {
        self.dirs_aside.lock().remove(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_tells_the_files_and_their_times_and_no_half_line() {
        let told = files_of(b"5 70\n5 71 1700000000 9\n5 72 -3 0\nnothing\n5 73 12");
        let at = |sec, nsec| Timestamp { sec, nsec };
        let expected = [
            ((5, 70), at(0, 0)),
            ((5, 71), at(1_700_000_000, 9)),
            ((5, 72), at(-3, 0)),
        ];
        assert_eq!(told, HashMap::from(expected));
    }
}
