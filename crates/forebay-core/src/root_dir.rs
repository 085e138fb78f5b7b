//! Which directory of the PFS a buffer lies over. A path alone does not tell: others rename directories, a file system may not be
//! mounted, and another container has other mounts.
//!
//! Two questions. A storage that still holds something asks whether the directory that has the path now is the one that it
//! holds this for ([`judge`]). It remembers that one ([`RootNote`]) from one life to the next, so a device number is of no use:
//! network file systems get another with each mount. A command that has found a running bridge asks whether both of them
//! mean the same directory ([`is_same`]). That is at one time on one node, where device numbers do tell.

use crate::facts::{Attr, Timestamp};
use crate::identity::Identity;
use std::fmt;

/// The first word of a note. The text of a later version is not understood.
const VERSION: &str = "forebay-root-1";

/// What a storage remembers of the root that it holds something for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootNote {
    ino: u64,
    /// Zero if the file system does not tell.
    born: Timestamp,
}

impl RootNote {
    /// Of the directory with these attributes.
    pub fn of(dir: &Attr) -> Self {
        RootNote {
            ino: dir.ino,
            born: dir.btime,
        }
    }

    /// Its inode number.
    pub fn ino(self) -> u64 {
        self.ino
    }

    /// Is it the directory with these attributes?
    fn is(self, now: &Attr) -> bool {
        let noted = Attr {
            mode: libc::S_IFDIR,
            ino: self.ino,
            btime: self.born,
            ..Attr::default()
        };
        Identity::of_dir(&noted).is_dir_of(now)
    }

    /// The text of the note: one line of words.
    pub fn to_text(self) -> String {
        let Timestamp { sec, nsec } = self.born;
        format!("{VERSION} ino={} born={sec}.{nsec:09}\n", self.ino)
    }

    /// Reads a text; `None` if it is damaged, or of a later version.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        if words.next()? != VERSION {
            return None;
        }
        let ino = words.next()?.strip_prefix("ino=")?.parse().ok()?;
        let (sec, nsec) = words.next()?.strip_prefix("born=")?.split_once('.')?;
        let born = Timestamp {
            sec: sec.parse().ok()?,
            nsec: nsec.parse().ok()?,
        };
        Some(RootNote { ino, born })
    }
}

impl fmt::Display for RootNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {}", self.ino)?;
        match self.born == Timestamp::default() {
            true => Ok(()),
            // To the end: a directory that is made anew at once often gets the number of the one before.
            false => write!(
                f,
                ", made {}.{:09} s after 1970",
                self.born.sec, self.born.nsec
            ),
        }
    }
}

/// The named value that tells in which root the directories are known by their numbers: the text of its note.
pub const KNOWN_IN: &[u8] = b"root/known-in";

/// Are the directories that records know still those in this root, as that value tells? A tree that was copied back, or that somebody has
/// put in the place of another one, has others. `None`: an earlier version, or a new storage.
pub fn knows_dirs_of(noted: Option<&[u8]>, now: &Attr) -> bool {
    let text = noted.map(|text| std::str::from_utf8(text).ok());
    let noted = text.map(|text| text.and_then(RootNote::from_text));
    noted.is_none_or(|noted| noted.is_some_and(|noted| noted.is(now)))
}

/// What a storage and the directory at the path of its root tell about each other.
#[derive(Debug, Clone, Copy)]
pub struct Meeting<'a> {
    /// What the storage remembers. `None`: nothing, because it is new, or an earlier version has written it.
    pub noted: Option<RootNote>,
    /// The directory that has the path now.
    pub now: &'a Attr,
    /// Does the storage hold something?
    pub holds: bool,
    /// Has the directory the lock that this very storage has made in the noted one?
    pub has_own_lock: bool,
    /// Does somebody say that this directory has taken the place of the other one?
    pub has_moved: bool,
}

/// What the directory is to the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its root, which is to be noted if it is not.
    Root,
    /// Another one than this, for which it holds something: nothing may be done here.
    Another(RootNote),
}

/// May a storage with the root at this path serve and drain into the directory that has the path now?
///
/// The lock decides where the numbers say no: some file systems (sshfs) number their files otherwise after each mount, and a tree that was
/// copied back has the lock with it.
pub fn judge(met: Meeting<'_>) -> Standing {
    let is_excused = !met.holds || met.has_own_lock || met.has_moved;
    match met.noted {
        Some(noted) if !is_excused && !noted.is(met.now) => Standing::Another(noted),
        _ => Standing::Root,
    }
}

/// How a directory looks to one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// Device that it is on.
    pub dev: u64,
    /// Its inode number.
    pub ino: u64,
    /// When it was made; zero if the file system does not tell.
    pub born: Timestamp,
}

impl Sight {
    /// Of what has these attributes.
    pub fn of(attr: &Attr) -> Self {
        Sight {
            dev: attr.dev,
            ino: attr.ino,
            born: attr.btime,
        }
    }
}

/// Do two processes of one node that look at this moment see the same directory? `has_lock`: there is the lock of the one where the
/// other looks.
///
/// Bind mounts and mount namespaces leave both numbers as they are. A network file system that was mounted twice has two device
/// numbers; there the lock says whether it is the same one.
pub fn is_same(one: Sight, other: Sight, has_lock: bool) -> bool {
    let unknown = Timestamp::default();
    let is_other_birth = ![one.born, other.born].contains(&unknown) && one.born != other.born;
    one.ino == other.ino && (one.dev == other.dev || has_lock && !is_other_birth)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(ino: u64, sec: i64) -> Attr {
        Attr {
            mode: libc::S_IFDIR | 0o755,
            dev: 9,
            ino,
            btime: Timestamp { sec, nsec: 0 },
            ..Attr::default()
        }
    }

    /// A storage that holds something for the directory `dir(7, 5)`, and another directory without a lock.
    fn met(now: &Attr) -> Meeting<'_> {
        Meeting {
            noted: Some(RootNote::of(&dir(7, 5))),
            now,
            holds: true,
            has_own_lock: false,
            has_moved: false,
        }
    }

    #[test]
    fn a_note_is_one_line_that_comes_back() {
        let mut known = dir(7, -5);
        known.btime.nsec = 30;
        let note = RootNote::of(&known);
        let text = note.to_text();
        assert_eq!(text, "forebay-root-1 ino=7 born=-5.000000030\n");
        assert_eq!(RootNote::from_text(&text), Some(note));
        assert_eq!(
            RootNote::from_text("forebay-root-1 ino=7 born=-5.000000030 later=1"),
            Some(note)
        );
        for unknown in ["", "forebay-root-2 ino=7 born=5.0", "forebay-root-1 ino=7"] {
            assert_eq!(RootNote::from_text(unknown), None, "{unknown}");
        }
        assert_eq!(
            RootNote::of(&dir(7, 5)).to_string(),
            "inode 7, made 5.000000000 s after 1970"
        );
        assert_eq!(RootNote::of(&dir(7, 0)).to_string(), "inode 7");
    }

    #[test]
    fn directories_are_known_in_the_root_in_which_they_were_seen() {
        let noted = RootNote::of(&dir(7, 5)).to_text();
        let knows = |noted: &str, now| knows_dirs_of(Some(noted.as_bytes()), &now);
        assert!(knows(&noted, dir(7, 5)) && knows(&noted, dir(7, 0)));
        assert!(!knows(&noted, dir(8, 5)) && !knows(&noted, dir(7, 6)));
        assert!(!knows("of a later version", dir(7, 5)));
        assert!(knows_dirs_of(None, &dir(7, 5)));
    }

    #[test]
    fn what_is_held_for_a_directory_goes_into_no_other_one_that_has_its_path() {
        let noted = RootNote::of(&dir(7, 5));
        for other in [dir(8, 5), dir(7, 6), dir(8, 0)] {
            assert_eq!(judge(met(&other)), Standing::Another(noted), "{other:?}");
        }
        assert_eq!(judge(met(&dir(7, 5))), Standing::Root);
    }

    #[test]
    fn a_file_system_that_tells_no_birth_or_another_device_is_no_other_directory() {
        let elsewhere = Attr {
            dev: 10,
            ..dir(7, 5)
        };
        for same in [dir(7, 0), elsewhere] {
            assert_eq!(judge(met(&same)), Standing::Root, "{same:?}");
        }
    }

    #[test]
    fn another_directory_is_the_root_if_nothing_is_held_or_it_has_the_lock_or_somebody_says_so() {
        let other = dir(8, 6);
        let met = met(&other);
        let ways = [
            Meeting {
                holds: false,
                ..met
            },
            Meeting {
                has_own_lock: true,
                ..met
            },
            Meeting {
                has_moved: true,
                ..met
            },
            // A storage of an earlier version.
            Meeting { noted: None, ..met },
        ];
        for way in ways {
            assert_eq!(judge(way), Standing::Root, "{way:?}");
        }
    }

    #[test]
    fn two_see_the_same_directory_by_its_numbers_or_by_the_lock_in_it() {
        let one = Sight::of(&dir(7, 5));
        let cases = [
            (one, false, true),
            (Sight { ino: 8, ..one }, true, false),
            // Mounted twice, or another file system.
            (Sight { dev: 10, ..one }, true, true),
            (Sight { dev: 10, ..one }, false, false),
            (
                Sight {
                    dev: 10,
                    ..Sight::of(&dir(7, 0))
                },
                true,
                true,
            ),
            (
                Sight {
                    dev: 10,
                    ..Sight::of(&dir(7, 6))
                },
                true,
                false,
            ),
        ];
        for (other, has_lock, is_it) in cases {
            assert_eq!(is_same(one, other, has_lock), is_it, "{other:?}");
            assert_eq!(is_same(other, one, has_lock), is_it, "{other:?}");
        }
    }
}
