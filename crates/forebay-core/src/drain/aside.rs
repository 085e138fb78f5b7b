//! Directories of the PFS that are put aside to be removed, and what comes back of them.
//!
//! A program whose working directory is in such a directory goes on making files there. So the removal takes only what
//! is older than the moment at which the directory was put aside ([`super::is_of_others_since`]). A note beside it, the text
//! of a symbolic link, tells where it was; its modification time is the moment.

use super::beside::Places;
use super::moves::is_dir;
use super::reserved_names::{DISCARDED_NOTE, discarded_name, leftover_of};
use crate::facts::{Attr, Timestamp};
use crate::path::TreePath;
use std::time::Duration;

/// Some other name is free after at most so many: each drain that was killed in a discard leaves one behind.
const MOST_ASIDE: u32 = 10_000;
/// The clocks by which file systems stamp files tick more often than this.
const LONGEST_TICK: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Is this the name of something aside, and not of the note about it?
pub fn is_aside(name: &[u8]) -> bool {
    let starts = leftover_of(name).is_some_and(|oid| name.starts_with(&discarded_name(oid)));
    starts && !name.ends_with(DISCARDED_NOTE)
}

/// The name of the note about what is aside under this name.
pub fn note_name(aside: &[u8]) -> Vec<u8> {
    [aside, DISCARDED_NOTE].concat()
}

/// The name of what this note is about, if it is the name of a note.
pub fn noted_name(note: &[u8]) -> Option<&[u8]> {
    note.strip_suffix(DISCARDED_NOTE)
        .filter(|name| is_aside(name))
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

/// Waits until the clock of a PFS has ticked: what was changed before the first stamp is older than the last one then.
#[derive(Debug)]
pub struct Tick {
    first: Timestamp,
    pause: Duration,
}

impl Tick {
    /// A note was made and has this modification time.
    pub fn since(first: Timestamp) -> Self {
        Tick {
            first,
            pause: FIRST_PAUSE,
        }
    }

    /// How long to pause before the note is made again. `None`: the clock has ticked, or has stood still for too long to
    /// wait. `last`: the modification time of the last note.
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
    /// Where it was.
    path: TreePath,
    /// Its inode number.
    pub ino: u64,
}

/// What becomes of something aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsideFate {
    /// Nothing: it is not there.
    None,
    /// It is removed, except what others have changed since.
    Remove,
    /// It comes back whole: somebody has put it there in place of the directory.
    GiveBack,
}

impl AsideNote {
    /// The text of a note about the directory at `path` with this inode number.
    pub fn text(path: &TreePath, ino: u64) -> Vec<u8> {
        [format!("{ino:x}/").as_bytes(), path.as_bytes()].concat()
    }

    /// What a symbolic link with the name of a note tells. `None`: user `me` has not made it as a note, and nothing is done about it or
    /// what it would be about. A note is made before anything goes aside. Where others may make names they could otherwise have a
    /// directory of this user removed that they give such a name, or a thing of theirs put where they may not write.
    pub fn of(link: &Attr, text: &[u8], me: u32) -> Option<Self> {
        if link.uid != me {
            return None;
        }
        let slash = text.iter().position(|byte| *byte == b'/')?;
        let ino = std::str::from_utf8(&text[..slash]).ok()?;
        Some(AsideNote {
            since: link.mtime,
            path: TreePath::new(&text[slash + 1..]).filter(|path| !path.is_root())?,
            ino: u64::from_str_radix(ino, 16).ok()?,
        })
    }

    /// What becomes of it; `found`: its attributes.
    pub fn fate(&self, found: Option<&Attr>) -> AsideFate {
        match found {
            None => AsideFate::None,
            Some(found) if is_dir(found) && found.ino == self.ino => AsideFate::Remove,
            Some(_) => AsideFate::GiveBack,
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
            uid: ME,
            ino,
            mtime: time(5),
            ctime: time(6),
            ..Attr::default()
        }
    }

    const ME: u32 = 1000;

    fn note() -> AsideNote {
        AsideNote {
            since: time(5),
            path: path("up/d"),
            ino: 0x2a,
        }
    }

    #[test]
    fn a_note_tells_where_a_directory_was_and_since_when_it_is_aside() {
        let text = AsideNote::text(&path("up/d"), 0x2a);
        assert_eq!(
            AsideNote::of(&found(libc::S_IFLNK, 9), &text, ME),
            Some(note())
        );
        assert_eq!(note().places().place(), path("up/d"));
    }

    #[test]
    fn a_link_of_another_user_or_with_another_text_is_no_note() {
        let link = found(libc::S_IFLNK, 9);
        assert_eq!(AsideNote::of(&link, b"2a/up/d", ME + 1), None);
        assert_eq!(AsideNote::of(&link, b"2a/up/d", 0), None);
        for text in ["", "up/d", "2a", "2a/", "-1/up/d", "2a/../d", "run5"] {
            assert_eq!(AsideNote::of(&link, text.as_bytes(), ME), None, "{text}");
        }
    }

    #[test]
    fn only_the_directory_that_was_put_aside_goes() {
        assert_eq!(note().fate(None), AsideFate::None);
        for (kind, ino, fate) in [
            (libc::S_IFDIR, 42, AsideFate::Remove),
            (libc::S_IFDIR, 43, AsideFate::GiveBack),
            (libc::S_IFREG, 42, AsideFate::GiveBack),
        ] {
            assert_eq!(note().fate(Some(&found(kind, ino))), fate);
        }
    }

    #[test]
    fn names_of_what_is_aside_and_of_notes_are_told_apart() {
        let name = discarded_name(ObjectId(7));
        let numbered = [&name[..], b"12"].concat();
        for name in [&name, &numbered] {
            let note = note_name(name);
            assert!(is_aside(name) && !is_aside(&note));
            assert_eq!(noted_name(&note), Some(&name[..]));
            assert_eq!(noted_name(name), None);
        }
        assert!(!is_aside(b"d"));
        assert_eq!(noted_name(b"d.from"), None);
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
