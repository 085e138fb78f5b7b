//! Directories of the PFS that their owner may not change, and in which a drain of that user has to change entries: a program has
//! given them the permission, changed them in the buffer, and taken it away again.
//!
//! Like that program, the drain gives the owner the permission: for one act. Before, a note in the storage tells which
//! directories get it and what modes they had, so that the next drain gives them back after one that was killed. A mode that
//! somebody else has set meanwhile stays.

use crate::facts::{Attr, Timestamp};
use crate::path::TreePath;

/// To make and to remove entries takes these bits.
const NEEDED: u32 = 0o300;
const MODE: u32 = 0o7777;

/// The user of a drain.
#[derive(Debug, Clone)]
pub struct Lender {
    /// The number of the user.
    pub user: u32,
    /// The groups that the user is in.
    pub groups: Vec<u32>,
}

/// A directory that gets a permission for an act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LentDir {
    /// Where it is before the act, and after it: a directory needs the permission as well to get another parent.
    places: [TreePath; 2],
    /// Another directory may get the same number when this one is gone. Where the file system does not tell when something was
    /// made, this is the same for all.
    made: Timestamp,
    ino: u64,
    own: u32,
    lent: u32,
}

impl Lender {
    /// Is it a user who never needs more permission?
    pub fn may_everything(&self) -> bool {
        self.user == 0
    }

    /// What the directory with these attributes gets. `None`: nothing, because it gives the permission already, or belongs to
    /// somebody else. The kernel takes the set-group-id bit away when who changes a mode is not in the group, and nobody could
    /// give that back: so such a directory gets nothing either.
    pub fn lends(&self, [from, to]: [&TreePath; 2], now: &Attr) -> Option<LentDir> {
        let own = now.mode & MODE;
        let keeps_group = own & libc::S_ISGID == 0 || self.groups.contains(&now.gid);
        let is_due = now.is_dir() && now.uid == self.user && own & NEEDED != NEEDED && keeps_group;
        (is_due && !self.may_everything()).then(|| LentDir {
            places: [from.clone(), to.clone()],
            made: now.btime,
            ino: now.ino,
            own,
            lent: own | NEEDED,
        })
    }
}

impl LentDir {
    /// The mode that it gets for the act.
    pub fn mode(&self) -> u32 {
        self.lent
    }

    /// Where it may be when it gets its own mode back.
    pub fn places(&self) -> &[TreePath] {
        match self.places[0] == self.places[1] {
            true => &self.places[..1],
            false => &self.places,
        }
    }

    /// Is it this one that has these attributes?
    pub fn is(&self, now: &Attr) -> bool {
        now.is_dir() && (now.ino, now.btime) == (self.ino, self.made)
    }

    /// The mode that what has these attributes gets back. `None`: it is another one, or somebody has given it another mode.
    pub fn gives_back(&self, now: &Attr) -> Option<u32> {
        (self.is(now) && now.mode & MODE == self.lent).then_some(self.own)
    }

    /// What people are told if it is nowhere where it may be.
    pub fn missed(&self) -> String {
        let (place, own, lent) = (&self.places[0], self.own, self.lent);
        format!(
            "{place}: is not there any more since a drain was killed; if others have moved it, its mode is {lent:04o} in place of {own:04o}"
        )
    }

    /// The text of a note about these.
    pub fn note(dirs: &[LentDir]) -> Vec<u8> {
        let mut text = format!("{}", dirs.len()).into_bytes();
        text.push(0);
        for dir in dirs {
            let Timestamp { sec, nsec } = dir.made;
            let (ino, own, lent) = (dir.ino, dir.own, dir.lent);
            text.extend(format!("{ino:x} {own:o} {lent:o} {sec} {nsec}").as_bytes());
            for place in &dir.places {
                text.push(0);
                text.extend(place.as_bytes());
            }
            text.push(0);
        }
        text
    }

    /// What a note tells. `None`: it is not whole, so no permission was given by it.
    pub fn of_note(text: &[u8]) -> Option<Vec<LentDir>> {
        // Behind the last one is a separator, too: a note of which the end is missing shows.
        let (0, text) = text.split_last()? else {
            return None;
        };
        let mut parts = text.split(|byte| *byte == 0);
        let words = |text| std::str::from_utf8(text).ok();
        let count: usize = words(parts.next()?)?.parse().ok()?;
        let mut dirs = Vec::new();
        while let Some(numbers) = parts.next() {
            let mut numbers = words(numbers)?.split(' ');
            dirs.push(LentDir {
                ino: u64::from_str_radix(numbers.next()?, 16).ok()?,
                own: u32::from_str_radix(numbers.next()?, 8).ok()?,
                lent: u32::from_str_radix(numbers.next()?, 8).ok()?,
                made: Timestamp {
                    sec: numbers.next()?.parse().ok()?,
                    nsec: numbers.next()?.parse().ok()?,
                },
                places: [TreePath::new(parts.next()?)?, TreePath::new(parts.next()?)?],
            });
        }
        (dirs.len() == count).then_some(dirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: u32 = 7;

    fn lender(user: u32) -> Lender {
        let groups = vec![70, 71];
        Lender { user, groups }
    }

    fn dir(mode: u32) -> Attr {
        Attr {
            ino: 4711,
            mode: libc::S_IFDIR | mode,
            uid: USER,
            gid: 71,
            btime: Timestamp { sec: 12, nsec: 0 },
            ..Attr::default()
        }
    }

    fn path(text: &str) -> TreePath {
        TreePath::new(text).unwrap()
    }

    fn lent(now: &Attr) -> Option<LentDir> {
        lender(USER).lends([&path("d"); 2], now)
    }

    #[test]
    fn only_an_owner_who_lacks_it_gets_the_permission_to_change_entries() {
        let modes = |mode| lent(&dir(mode)).map(|lent| lent.mode());
        assert_eq!(modes(0o555), Some(0o755));
        assert_eq!(modes(0o000), Some(0o300));
        assert_eq!(modes(0o1600), Some(0o1700));
        assert_eq!(modes(0o300), None);
        let file = Attr {
            mode: libc::S_IFREG | 0o444,
            ..dir(0)
        };
        let theirs = Attr {
            uid: USER + 1,
            ..dir(0o555)
        };
        assert_eq!([lent(&file), lent(&theirs)], [None, None]);
        let root = Attr {
            uid: 0,
            ..dir(0o555)
        };
        assert_eq!(lender(0).lends([&path("d"); 2], &root), None);
    }

    #[test]
    fn a_set_group_id_bit_that_could_not_be_given_back_is_not_risked() {
        assert_eq!(lent(&dir(0o2555)).map(|lent| lent.mode()), Some(0o2755));
        let of_others = Attr {
            gid: 9,
            ..dir(0o2555)
        };
        assert_eq!(lent(&of_others), None);
        let plain = Attr {
            gid: 9,
            ..dir(0o555)
        };
        assert!(lent(&plain).is_some());
    }

    #[test]
    fn a_mode_is_given_back_unless_somebody_has_set_another_one_or_it_is_another_directory() {
        let lent = lent(&dir(0o1555)).unwrap();
        assert_eq!(lent.gives_back(&dir(lent.mode())), Some(0o1555));
        assert_eq!(lent.gives_back(&dir(0o1555)), None);
        assert_eq!(lent.gives_back(&dir(0o700)), None);
        let other = Attr {
            ino: 4712,
            ..dir(lent.mode())
        };
        assert_eq!(lent.gives_back(&other), None);
        // The number is used again.
        let later = Attr {
            btime: Timestamp { sec: 12, nsec: 1 },
            ..dir(lent.mode())
        };
        assert_eq!(lent.gives_back(&later), None);
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_not_at_all_if_a_part_is_missing() {
        let moved = lender(USER)
            .lends([&path("a/b"), &path("c\nd")], &dir(0))
            .unwrap();
        assert_eq!(moved.places(), [path("a/b"), path("c\nd")]);
        let root = lender(USER).lends([&path(""); 2], &dir(0o555)).unwrap();
        assert_eq!(root.places(), [path("")]);
        let dirs = vec![moved, root];
        let note = LentDir::note(&dirs);
        assert_eq!(LentDir::of_note(&note), Some(dirs));
        for end in 0..note.len() {
            assert_eq!(LentDir::of_note(&note[..end]), None, "{end}");
        }
        assert_eq!(LentDir::of_note(b"1\0x 1 2\0a\0b\0"), None);
    }
}
