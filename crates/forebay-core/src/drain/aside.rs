//! Directories of the PFS that are put aside to be removed, and what comes back of them.
//!
//! A program whose working directory is in such a directory goes on making files there. So the removal takes only what
//! is older than the moment at which the directory was put aside ([`super::is_of_others_since`]). A note in the storage tells
//! that moment, where the directory was, and which one it is. Nothing on the PFS is believed: others can rename there what
//! this user has made.

use super::beside::Places;
use super::reserved_names::{CLOCK, OLD_NOTE, discarded_name, leftover_of};
use crate::facts::{Attr, Timestamp};
use crate::identity::Identity;
use crate::path::TreePath;
use std::time::Duration;

/// Some other name is free after at most so many: each drain that was killed in a discard leaves one behind.
const MOST_ASIDE: u32 = 10_000;
/// The clocks by which file systems stamp files tick more often than this.
const LONGEST_TICK: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(1);

fn is_of_discarded(name: &[u8]) -> bool {
    leftover_of(name).is_some_and(|oid| name.starts_with(&discarded_name(oid)))
}

/// Is this the name of something aside, and not of what is or was made beside it?
pub fn is_aside(name: &[u8]) -> bool {
    is_of_discarded(name) && !name.ends_with(OLD_NOTE) && !name.ends_with(CLOCK)
}

/// Is this the name of what an earlier version made on the PFS as a note?
pub fn is_old_note(name: &[u8]) -> bool {
    is_of_discarded(name) && name.ends_with(OLD_NOTE)
}

/// Where something is made for a moment to read the clock of the PFS, before anything goes to `aside`.
pub fn clock_path(aside: &TreePath) -> TreePath {
    aside.parent().join(&[aside.name(), CLOCK].concat())
}

/// The paths to try for something that goes aside, in this order: `aside`, then that with a number behind it.
pub fn paths_aside(aside: &TreePath) -> impl Iterator<Item = TreePath> {
    (0..=MOST_ASIDE).map(move |n| match n {
        0 => aside.clone(),
        n => {
            let name = [aside.name(), format!("{n}").as_bytes()].concat();
            aside.parent().join(&name)
        }
    })
}

/// May a directory go aside in the root of the PFS? Only its own mode protects it there. So not if one of the directories `around` it,
/// all but the root, keeps its group or others out, or from the names in it.
pub fn may_be_aside_in_root(around: impl IntoIterator<Item = Attr>) -> bool {
    around.into_iter().all(|dir| dir.mode & 0o055 == 0o055)
}

/// Can nobody but root and the user `by` have changed a name in a directory with these attributes? Then what is found under a name that
/// a drain has just given is what the drain has brought there.
pub fn is_for_the_drain_alone(dir: &Attr, by: u32) -> bool {
    [0, by].contains(&dir.uid) && dir.mode & 0o022 == 0
}

/// Waits until the clock of a PFS has ticked: what was changed before the first stamp is older than the last one then.
#[derive(Debug)]
pub struct Tick {
    first: Timestamp,
    pause: Duration,
}

impl Tick {
    /// Something was made and has this time of change.
    pub fn since(first: Timestamp) -> Self {
        Tick {
            first,
            pause: FIRST_PAUSE,
        }
    }

    /// How long to pause before it is made again. `None`: the clock has ticked, or has stood still for too long to wait.
    /// `last`: the time of change of the last one.
    pub fn pause(&mut self, last: Timestamp) -> Option<Duration> {
        let pause = self.pause;
        self.pause *= 2;
        (last <= self.first && pause < LONGEST_TICK).then_some(pause)
    }
}

/// What the note about something aside tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsideNote {
    /// The moment at which it was put aside: what was changed before was in it by then.
    pub since: Timestamp,
    /// Where it is.
    pub aside: TreePath,
    /// Where it was.
    pub path: TreePath,
    /// Its inode number.
    pub ino: u64,
    /// The directory that it was in, if it goes back to that alone: see [`crate::record::Dirs::within`].
    pub within: Option<Identity>,
}

/// What becomes of something aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsideFate {
    /// Nothing: it is not there.
    None,
    /// It is removed, except what others have changed since.
    Remove,
    /// It stays whole, under another name in the directory in which it lies: somebody has put it there in place of the
    /// directory. It goes to no other directory: its owner may be one who may not write there.
    Rename,
}

impl AsideNote {
    /// The text of the note.
    pub fn text(&self) -> Vec<u8> {
        let Timestamp { sec, nsec } = self.since;
        let mut numbers = format!("{:x} {sec} {nsec}", self.ino);
        if let Some(within) = self.within {
            numbers += &format!(" {:032x}", u128::from_le_bytes(within.encode()));
        }
        let parts = [
            numbers.as_bytes(),
            self.aside.as_bytes(),
            self.path.as_bytes(),
            // Behind the last one, too: a note of which the end is missing shows.
            b"",
        ];
        parts.join(&0)
    }

    /// What the text of a note tells. `None`: it is not whole, so nothing was put aside by it.
    pub fn of(text: &[u8]) -> Option<Self> {
        let parts: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
        let [numbers, aside, path, b""] = parts[..] else {
            return None;
        };
        let mut numbers = std::str::from_utf8(numbers).ok()?.split(' ');
        let ino = u64::from_str_radix(numbers.next()?, 16).ok()?;
        let since = Timestamp {
            sec: numbers.next()?.parse().ok()?,
            nsec: numbers.next()?.parse().ok()?,
        };
        // Older versions knew none.
        let within = numbers.next().map(|hex| u128::from_str_radix(hex, 16));
        let within = within.transpose().ok()?;
        let below_root = |path: &[u8]| TreePath::new(path).filter(|path| !path.is_root());
        Some(AsideNote {
            since,
            aside: below_root(aside)?,
            path: below_root(path)?,
            ino,
            within: within.map(|bits| Identity::decode(bits.to_le_bytes())),
        })
    }

    /// What becomes of it; `found`: its attributes.
    pub fn fate(&self, found: Option<&Attr>) -> AsideFate {
        match found {
            None => AsideFate::None,
            Some(found) if found.is_dir() && found.ino == self.ino => AsideFate::Remove,
            Some(_) => AsideFate::Rename,
        }
    }

    /// Where it may come back.
    pub fn places(&self) -> Places {
        Places::of(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ObjectId;

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).unwrap()
    }

    fn time(sec: i64) -> Timestamp {
        Timestamp { sec, nsec: 0 }
    }

    fn found(kind: u32, ino: u64) -> Attr {
        Attr {
            mode: kind | 0o755,
            ino,
            mtime: time(5),
            ctime: time(6),
            ..Attr::default()
        }
    }

    fn note() -> AsideNote {
        AsideNote {
            since: time(5),
            aside: path(".forebay-x"),
            path: path("up/d"),
            ino: 0x2a,
            within: None,
        }
    }

    #[test]
    fn a_note_tells_where_a_directory_was_and_since_when_it_is_aside() {
        let known = AsideNote {
            within: Some(Identity::MADE_DIR),
            ..note()
        };
        for note in [note(), known] {
            assert_eq!(AsideNote::of(&note.text()), Some(note));
        }
        assert_eq!(note().places().place(), path("up/d"));
    }

    #[test]
    fn a_part_of_a_note_or_another_text_tells_nothing() {
        let text = note().text();
        for end in 0..text.len() {
            assert_eq!(AsideNote::of(&text[..end]), None, "{end}");
        }
        for text in [
            "2a 5 0\0\0d\0",
            "2a 5\0a\0d\0",
            "-1 5 0\0a\0d\0",
            "2a 5 0\0a\0../d\0",
        ] {
            assert_eq!(AsideNote::of(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn only_the_directory_that_was_put_aside_goes() {
        assert_eq!(note().fate(None), AsideFate::None);
        for (kind, ino, fate) in [
            (libc::S_IFDIR, 42, AsideFate::Remove),
            (libc::S_IFDIR, 43, AsideFate::Rename),
            (libc::S_IFREG, 42, AsideFate::Rename),
        ] {
            assert_eq!(note().fate(Some(&found(kind, ino))), fate);
        }
    }

    #[test]
    fn names_of_what_is_aside_and_of_what_is_beside_it_are_told_apart() {
        let name = discarded_name(ObjectId(7));
        let numbered = [&name[..], b"12"].concat();
        for name in [&name, &numbered] {
            let old = [&name[..], OLD_NOTE].concat();
            let clock = clock_path(&path("up").join(name));
            assert_eq!(clock.parent(), path("up"));
            assert!(is_aside(name) && !is_aside(&old) && !is_aside(clock.name()));
            assert!(is_old_note(&old) && !is_old_note(name) && !is_old_note(clock.name()));
            assert!(leftover_of(clock.name()).is_some());
        }
        assert!(!is_aside(b"d") && !is_old_note(b"d.from"));
    }

    #[test]
    fn what_goes_aside_finds_a_name_beside_what_others_have_left() {
        let aside = path("up").join(&discarded_name(ObjectId(7)));
        let mut paths = paths_aside(&aside);
        assert_eq!(paths.next(), Some(aside.clone()));
        let first = paths.next().unwrap();
        assert_eq!(first.parent(), path("up"));
        assert_eq!(first.name(), [aside.name(), b"1"].concat());
        assert!(paths.all(|path| is_aside(path.name())));
        assert_eq!(paths_aside(&aside).count(), MOST_ASIDE as usize + 1);
    }

    #[test]
    fn what_lies_in_a_directory_that_is_not_for_all_does_not_go_aside_in_the_root() {
        let may = |modes: &[u32]| {
            may_be_aside_in_root(modes.iter().map(|&mode| Attr {
                mode: libc::S_IFDIR | mode,
                ..Attr::default()
            }))
        };
        for (modes, is_open) in [
            (&[][..], true),
            (&[0o755, 0o1777], true),
            (&[0o755, 0o750], false),
            (&[0o705, 0o755], false),
            (&[0o711], false),
            (&[0o700], false),
        ] {
            assert_eq!(may(modes), is_open, "{modes:?}");
        }
    }

    #[test]
    fn what_is_where_others_may_change_names_may_be_theirs() {
        let dir = |uid, mode| Attr {
            uid,
            mode: libc::S_IFDIR | mode,
            ..Attr::default()
        };
        for (uid, mode, is_alone) in [
            (0, 0o755, true),
            (7, 0o700, true),
            (8, 0o755, false),
            (0, 0o775, false),
            (7, 0o1777, false),
        ] {
            assert_eq!(
                is_for_the_drain_alone(&dir(uid, mode), 7),
                is_alone,
                "{uid} {mode:o}"
            );
        }
    }

    #[test]
    fn the_moment_is_later_than_the_first_stamp_unless_the_clock_stands_still() {
        let mut tick = Tick::since(time(5));
        assert_eq!(tick.pause(time(5)), Some(FIRST_PAUSE));
        assert_eq!(tick.pause(time(5)), Some(2 * FIRST_PAUSE));
        assert_eq!(tick.pause(time(6)), None);
        let mut stands = Tick::since(time(5));
        let pauses = std::iter::from_fn(|| stands.pause(time(5)));
        let waited: Duration = pauses.take(100).sum();
        assert!(waited >= LONGEST_TICK / 2 && waited <= 2 * LONGEST_TICK);
    }
}
