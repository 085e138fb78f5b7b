//! What an entry of the PFS is known by: a drain replaces and removes only what it knows.

use crate::facts::{Attr, Timestamp};
use crate::home::{hash_bytes, mix};

/// Of a file the change time is known, of a directory what is in it.
const IN_FULL: u64 = 1;
/// It was renamed in the buffer.
const LEAVING: u64 = 2;
const IS_DIR: u64 = 4;
/// It had several names, or something in it had.
const SHARED: u64 = 8;
/// A drain may have removed it already.
const DOUBTFUL: u64 = 16;
const FLAGS: u64 = 31;
/// It can't be told whether it is still where it was.
const PASSING: u64 = LEAVING | DOUBTFUL;
const BELOW_BODY: u64 = u32::MAX as u64;
/// Of a directory: the sum over the contents of the files in it that have several names. Above it lies that over everything else.
const CONTENTS: u64 = BELOW_BODY & !FLAGS;
/// Of a file that was renamed, without [`IN_FULL`]: a hash of its time of birth, or 0 if that is not known.
const BORN: u64 = BELOW_BODY & !FLAGS;
/// As far as the sum over contents has to be raised to count in the one above it.
const ABOVE: u32 = 32;

/// What an entry was when it was seen.
///
/// A file is known by its inode number, type, size and times. A file with several names is known by its inode number alone as
/// long as it has another name: it may change through that, and removing one name loses nothing (`drain::shared_files` judges
/// names that go together). A directory is known by its inode number and, where that was looked at, by what is in it: names, inode
/// numbers and contents. The contents of files with several names are a sum of their own, since those may change in the same way.
/// What may change altogether is known by its inode number and, where the file system tells it, its time of birth: another file may get
/// the number when it is gone. The device is no part of it: network file systems get another number with each mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    ino: u64,
    /// Flags, and above them 27 bits and 32 more. Of a directory of which is known what is in it: a sum over the contents of files in it
    /// with several names, and one over other contents, names and inode numbers. Of another directory: nothing, and a hash of its
    /// time of birth, or 0. Of anything else: a hash of its change time, or of its birth ([`BORN`]), or 0; and one of its type, size
    /// and modification time.
    state: u64,
}

/// Bytes of an [`Identity`] in a record and in a label.
pub const BYTES: usize = 16;

impl Identity {
    /// Of an entry with these attributes. What is in a directory is not known.
    pub fn of(attr: &Attr) -> Self {
        let mut known = Self::new(attr, attr.nlink <= 1);
        if known.state & IS_DIR == 0 && attr.nlink > 1 {
            known.state |= SHARED;
        }
        known
    }

    /// Of an entry whose change time may change: of a copy that is still to get its name.
    pub fn of_copy(attr: &Attr) -> Self {
        Self::new(attr, false)
    }

    /// Of something in a directory ([`Identity::with_contents`]) that is no directory.
    pub fn of_entry(attr: &Attr) -> Self {
        let mut known = Self::of_copy(attr);
        if attr.nlink > 1 {
            known.state |= SHARED;
        }
        known
    }

    /// Of a copy that had these attributes before it got its name, and has those `now`. A name changes the change time. That is not
    /// known where a client may go on showing the one before, as far as this says (`shows_at_once`: it never does), nor of a
    /// copy with several names.
    pub fn of_named(before: &Attr, now: &Attr, shows_at_once: bool) -> Self {
        let is_shown = shows_at_once || now.ctime != before.ctime;
        Self::new(now, is_shown && now.nlink <= 1)
    }

    /// Of a directory, with its birth: another one may get its number when it is gone. What is in it is not known.
    pub fn of_dir(attr: &Attr) -> Self {
        let born = match attr.btime == Timestamp::default() {
            true => 0,
            false => of_time(attr.btime) & !BELOW_BODY,
        };
        Identity {
            ino: attr.ino,
            state: IS_DIR | born,
        }
    }

    /// Of a directory that the drain has made, whatever its inode number is.
    pub const MADE_DIR: Identity = Identity {
        ino: 0,
        state: IS_DIR,
    };

    /// Is it a directory?
    pub fn is_dir(self) -> bool {
        self.state & IS_DIR != 0
    }

    /// The directory itself, whatever is in it; `None` if it is none, or one of which nothing is known.
    pub(crate) fn itself(self) -> Option<Self> {
        let is_known = self.is_dir() && self != Self::MADE_DIR;
        let itself = match self.has_contents() {
            true => Identity {
                state: IS_DIR,
                ..self
            },
            false => self,
        };
        is_known.then_some(itself)
    }

    /// Its inode number.
    pub(crate) fn inode(self) -> u64 {
        self.ino
    }

    /// Of what nothing can be known of: no entry is it.
    pub const NOTHING: Identity = Identity {
        ino: u64::MAX,
        state: IN_FULL,
    };

    fn new(attr: &Attr, with_ctime: bool) -> Self {
        let ino = attr.ino;
        if attr.is_dir() {
            return Identity { ino, state: IS_DIR };
        }
        let kind = u64::from(attr.mode & libc::S_IFMT);
        let body = mix(mix(kind, attr.size), of_time(attr.mtime)) & !BELOW_BODY;
        let changed = match with_ctime {
            true => of_time(attr.ctime) & BELOW_BODY & !FLAGS | IN_FULL,
            false => 0,
        };
        Identity {
            ino,
            state: body | changed,
        }
    }

    /// What it adds to the two sums of the directory that it is in, under this name. Of a file that is the same however many
    /// names it has; the number of a directory does not count, since it may be one that the drain has made. What is in a
    /// directory adds as much for each thing by itself, so that one can be added later ([`Identity::with_also`]).
    fn share(self, name: &[u8]) -> (u64, u64) {
        let hash = hash_bytes(name);
        if self.state & IS_DIR == 0 {
            let place = mix(hash, self.ino) & !BELOW_BODY;
            let contents = mix(hash, self.state & !BELOW_BODY) & CONTENTS;
            return match self.state & SHARED {
                0 => (place.wrapping_add(contents << ABOVE), 0),
                _ => (place, contents),
            };
        }
        let (places, contents) = lifted((self.state & !BELOW_BODY, self.state & CONTENTS), name);
        let itself = mix(hash, IS_DIR) & !BELOW_BODY;
        (places.wrapping_add(itself), contents)
    }

    /// Of this directory with these entries in it, in any order. What is about to leave does not count. Of the directory
    /// alone if one of them is not known. Anything else than a directory stays what it is.
    pub fn with_contents<'a>(
        self,
        entries: impl IntoIterator<Item = (&'a [u8], Option<Identity>)>,
    ) -> Self {
        if self.state & IS_DIR == 0 {
            return self;
        }
        let (mut places, mut contents, mut flags) = (0u64, 0u64, self.state & PASSING);
        for (name, entry) in entries {
            let Some(entry) = entry.filter(|e| e.is_lasting()) else {
                return self;
            };
            if !entry.is_leaving() {
                (places, contents) = sum((places, contents), entry.share(name));
                flags |= entry.state & SHARED;
            }
        }
        Identity {
            state: places | contents | flags | IS_DIR | IN_FULL,
            ..self
        }
    }

    /// Of this directory with `entry` added at `path` below it; the directories on the way are in it already. Of the directory
    /// alone if `entry` is not known well enough.
    pub fn with_also<'a>(
        self,
        path: impl DoubleEndedIterator<Item = &'a [u8]>,
        entry: Identity,
    ) -> Self {
        let mut path = path.rev();
        let Some(name) = path.next().filter(|_| self.has_contents()) else {
            return self;
        };
        if !entry.is_lasting() {
            return self.without_contents();
        }
        if entry.is_leaving() {
            return self;
        }
        let share = path.fold(entry.share(name), lifted);
        let sums = (self.state & !BELOW_BODY, self.state & CONTENTS);
        let (places, contents) = sum(sums, share);
        let flags = self.state & FLAGS | entry.state & SHARED;
        Identity {
            state: places | contents | flags,
            ..self
        }
    }

    /// How much the contents of this file add to those of a directory in which it has this path, as one with several names.
    pub(crate) fn contents_at<'a>(self, path: impl DoubleEndedIterator<Item = &'a [u8]>) -> u64 {
        let mut path = path.rev();
        let Some(name) = path.next() else {
            return 0;
        };
        let shared = Identity {
            state: self.state | SHARED,
            ..self
        };
        path.fold(shared.share(name), lifted).1
    }

    /// Of this directory, if a file in it whose contents add so much is not taken for one with a single name.
    pub(crate) fn with_shared(self, contents: u64) -> Self {
        let places = (self.state & !BELOW_BODY).wrapping_sub(contents << ABOVE);
        let contents = (self.state & CONTENTS).wrapping_add(contents) & CONTENTS;
        Identity {
            state: places | contents | self.state & FLAGS,
            ..self
        }
    }

    /// Of this with all contents, however many names a file has.
    pub fn strictly(self) -> Self {
        Identity {
            state: self.state & !SHARED,
            ..self
        }
    }

    /// Of a directory known by its number alone.
    fn without_contents(self) -> Self {
        match self.state & IS_DIR {
            0 => self,
            _ => Identity {
                state: self.state & (PASSING | IS_DIR),
                ..self
            },
        }
    }

    /// Of something with these attributes that was renamed in the buffer: see [`Identity::leaving`]. What is made later with the same inode
    /// number is another one.
    pub fn of_leaving(attr: &Attr) -> Self {
        if attr.is_dir() {
            return Self::of_dir(attr).leaving();
        }
        let known = Self::of(attr).leaving();
        if attr.btime == Timestamp::default() {
            return known;
        }
        Identity {
            state: known.state & !(BELOW_BODY & !FLAGS | IN_FULL) | of_time(attr.btime) & BORN,
            ..known
        }
    }

    /// Of something that was renamed in the buffer: programs change it under its new name, and a drain takes it away.
    pub fn leaving(self) -> Self {
        Identity {
            state: self.state | LEAVING,
            ..self
        }
    }

    /// Was it renamed in the buffer ([`Identity::leaving`])?
    pub(crate) fn is_leaving(self) -> bool {
        self.state & LEAVING != 0
    }

    /// Of something that was to leave, and stays.
    pub fn staying(self) -> Self {
        let born = self.birth();
        Identity {
            state: self.state & !LEAVING & !born,
            ..self
        }
    }

    /// Of what had its change time changed by a rename.
    pub fn renamed(self) -> Self {
        match self.state & (IS_DIR | IN_FULL) {
            IN_FULL => Identity {
                state: self.state & (!BELOW_BODY | FLAGS & !IN_FULL),
                ..self
            },
            _ => self,
        }
    }

    /// Had the file several names, or, of a directory, something in it?
    pub fn is_of_several_names(self) -> bool {
        self.state & SHARED != 0
    }

    /// Of something that a drain was about to remove.
    pub fn doubtful(self) -> Self {
        Identity {
            state: self.state | DOUBTFUL,
            ..self
        }
    }

    /// May it be gone? A drain was about to remove it, or it was known that nothing was there.
    pub fn may_be_gone(self) -> bool {
        self.state & DOUBTFUL != 0 || self == Self::NOTHING
    }

    /// Of what turned out to be still there.
    pub fn certain(self) -> Self {
        Identity {
            state: self.state & !DOUBTFUL,
            ..self
        }
    }

    /// Does the identity include the contents of the directory? Then attributes alone cannot compare it.
    pub fn has_contents(self) -> bool {
        self.state & (IS_DIR | IN_FULL) == IS_DIR | IN_FULL
    }

    /// Is it known well enough to be told again, or leaves it anyway?
    fn is_lasting(self) -> bool {
        self.is_leaving()
            || self.state & DOUBTFUL == 0 && (self.state & IS_DIR == 0 || self.has_contents())
    }

    /// Is it what has these attributes now, as far as attributes tell?
    pub fn is(self, attr: &Attr) -> bool {
        let now = Self::new(attr, self.state & IN_FULL != 0);
        let is_dir = |state: u64| state & IS_DIR != 0;
        match (is_dir(self.state), is_dir(now.state)) {
            (true, true) => self.is_inode_of(attr),
            (false, false) if self.may_change(attr) => self.is_inode_of(attr),
            (false, false) => self.is_same(now),
            _ => false,
        }
    }

    /// Do programs change it in other ways than under its own name?
    fn may_change(self, now: &Attr) -> bool {
        self.is_leaving() || self.state & SHARED != 0 && now.nlink > 1
    }

    /// Is it this inode, whatever has become of it?
    pub fn is_inode_of(self, now: &Attr) -> bool {
        let is_other = self.birth() != 0 && Self::of_leaving(now).birth() != self.birth();
        let may_tell = now.btime != Timestamp::default();
        self.is_same_inode(Self::new(now, false)) && !(is_other && may_tell)
    }

    /// A hash of the time of birth of what was renamed, or 0 if that is not known: see [`BORN`].
    fn birth(self) -> u64 {
        match self.state & (LEAVING | IN_FULL | IS_DIR) {
            LEAVING => self.state & BORN,
            known if known == LEAVING | IS_DIR => self.state & !BELOW_BODY,
            _ => 0,
        }
    }

    /// Is it this directory? Where its birth is known, one that was made later with the same number is another one.
    pub fn is_dir_of(self, now: &Attr) -> bool {
        let born = |known: Self| known.state & !BELOW_BODY;
        let (then, now_born) = (born(self), born(Self::of_dir(now)));
        let is_other = then != 0 && now_born != 0 && then != now_born;
        self.is_inode_of(now) && !self.has_contents() && !is_other
    }

    /// Are the two of one inode, whatever has become of it?
    pub fn is_same_inode(self, other: Self) -> bool {
        self.has_number_of(other) && (self.state ^ other.state) & IS_DIR == 0
    }

    /// Is it the same, wherever it is going? What files with several names hold in a directory does not count, unless it is known
    /// [`Identity::strictly`].
    pub fn is_same(self, other: Self) -> bool {
        let differs = |a: u64, b: u64| (a ^ b) & !(PASSING | SHARED) != 0;
        let are_dirs = self.state & other.state & IS_DIR != 0;
        let is_so = match are_dirs && self.state & SHARED != 0 {
            true => !differs(self.state & !CONTENTS, other.state & !CONTENTS),
            // Files have got other names, or lost some, since.
            false if are_dirs => !differs(self.as_of_single_names(), other.as_of_single_names()),
            false => !differs(self.state, other.state),
        };
        self.has_number_of(other) && is_so
    }

    /// The state of a directory if all contents were those of files with one name.
    fn as_of_single_names(self) -> u64 {
        let contents = self.state & CONTENTS;
        (self.state & !CONTENTS).wrapping_add(contents << ABOVE)
    }

    fn has_number_of(self, other: Self) -> bool {
        self.ino == other.ino || self.ino == Self::MADE_DIR.ino
    }

    /// As a record and a label hold it.
    pub fn encode(self) -> [u8; BYTES] {
        (u128::from(self.state) << 64 | u128::from(self.ino)).to_le_bytes()
    }

    /// What [`Identity::encode`] gave.
    pub fn decode(bytes: [u8; BYTES]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Identity {
            ino: both as u64,
            state: (both >> 64) as u64,
        }
    }
}

fn of_time(at: Timestamp) -> u64 {
    mix(at.sec as u64, u64::from(at.nsec))
}

/// The two sums of a directory with something more in it.
fn sum(sums: (u64, u64), share: (u64, u64)) -> (u64, u64) {
    let contents = sums.1.wrapping_add(share.1) & CONTENTS;
    (sums.0.wrapping_add(share.0), contents)
}

/// What this adds to the sums of the directory above, if it adds so much to those of the directory of this name. A product, so
/// that it is the same for a sum and for its parts.
fn lifted((place, contents): (u64, u64), name: &[u8]) -> (u64, u64) {
    let factor = hash_bytes(name) | 1;
    (
        place.wrapping_mul(factor),
        contents.wrapping_mul(factor) & CONTENTS,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_into_a_directory_later_is_as_if_it_had_been_there() {
        let (dir, empty) = (Identity::of(&dir()), Identity::of(&dir()).with_contents([]));
        let (a, b) = (Identity::of(&file()), Identity::of(&file()).leaving());
        let in_it = |name: &'static [u8], entry| (name, Some(entry));
        let sub = dir.with_contents([in_it(b"a", a)]);
        let whole = dir.with_contents([in_it(b"a", a), in_it(b"sub", sub)]);
        let later = dir.with_contents([in_it(b"a", a), in_it(b"sub", empty)]);
        assert!(!later.is_same(whole));
        let path = || [&b"sub"[..], b"a"].into_iter();
        assert_eq!(later.with_also(path(), a), whole);
        assert_eq!(later.with_also(path(), b), later, "it leaves anyway");
        let deeper = dir.with_contents([in_it(b"d", whole)]);
        let deep = [&b"d"[..], b"sub", b"a"].into_iter();
        assert_eq!(
            dir.with_contents([in_it(b"d", later)]).with_also(deep, a),
            deeper
        );
        assert!(!later.with_also(path(), dir).has_contents());
        assert_eq!(dir.with_also(path(), a), dir, "what is in it is not known");
    }

    fn file() -> Attr {
        let mut attr = Attr {
            mode: libc::S_IFREG | 0o644,
            nlink: 1,
            ino: 7,
            size: 100,
            ..Attr::default()
        };
        attr.mtime.sec = 5;
        attr.ctime.sec = 6;
        attr
    }

    fn dir() -> Attr {
        Attr {
            mode: libc::S_IFDIR | 0o755,
            nlink: 2,
            ino: 8,
            ..Attr::default()
        }
    }

    #[test]
    fn whatever_others_change_makes_it_another() {
        let known = Identity::of(&file());
        assert!(known.is(&file()));
        let moved = Attr {
            ctime: Timestamp { sec: 9, nsec: 9 },
            ..file()
        };
        assert!(known.renamed().is(&moved) && known.renamed().is(&file()));
        let changes: [fn(&mut Attr); 6] = [
            |a| a.ino += 1,
            |a| a.size += 1,
            |a| a.mtime.nsec += 1,
            |a| a.ctime.nsec += 1,
            |a| a.mode = libc::S_IFLNK | 0o777,
            |a| a.mode = libc::S_IFDIR | 0o755,
        ];
        for change in changes {
            let mut now = file();
            change(&mut now);
            assert!(!known.is(&now), "{now:?}");
        }
        let mut read = file();
        read.atime.sec += 1;
        assert!(known.is(&read));
    }

    #[test]
    fn a_file_with_several_names_may_lose_another_one_or_change_through_it() {
        let mut two = file();
        two.nlink = 2;
        let known = Identity::of(&two);
        let mut one = file();
        one.ctime.sec += 1;
        assert!(known.is(&one));
        two.size += 1;
        assert!(known.is(&two), "it was changed through another name");
        one.size += 1;
        assert!(!known.is(&one), "this is the last name");
    }

    #[test]
    fn what_was_renamed_in_the_buffer_may_change_under_its_new_name() {
        let known = Identity::of(&file()).leaving();
        let mut now = file();
        now.size += 1;
        now.ctime.sec += 1;
        assert!(known.is(&now));
        now.ino += 1;
        assert!(!known.is(&now), "somebody else's");
        let known = Identity::of(&file()).doubtful();
        assert!(known.is(&file()));
        now.ino = file().ino;
        assert!(!known.is(&now));
    }

    #[test]
    fn what_was_renamed_is_another_file_if_it_was_made_later_with_its_number() {
        let born = |sec| {
            let mut attr = file();
            attr.btime.sec = sec;
            attr
        };
        let known = Identity::of_leaving(&born(5));
        let mut changed = born(5);
        (changed.size, changed.nlink) = (1, 3);
        assert!(known.is(&changed) && known.is_inode_of(&changed) && known.is_leaving());
        assert!(!known.is(&born(6)) && !known.is_inode_of(&born(6)));
        // Some file systems do not tell it, and records of earlier versions do not know it.
        assert!(known.is(&born(0)) && Identity::of_leaving(&born(0)).is(&born(6)));
        assert!(Identity::of(&born(5)).leaving().is(&born(6)));
        // If it stays, what it was when it was renamed counts again.
        assert!(known.staying().is(&born(5)) && !known.staying().is(&changed));
    }

    #[test]
    fn a_copy_stays_what_it_is_when_it_gets_its_name() {
        let known = Identity::of_copy(&file());
        let mut named = file();
        named.ctime.sec += 1;
        assert!(known.is(&named));
        named.mtime.sec += 1;
        assert!(!known.is(&named));
    }

    #[test]
    fn a_copy_with_its_name_is_known_by_the_change_time_where_that_is_shown() {
        let mut named = file();
        named.ctime.sec += 1;
        let mut changed = named;
        changed.ctime.sec += 1;
        let known = |before: &Attr, now: &Attr, at_once| {
            let known = Identity::of_named(before, now, at_once);
            assert!(known.is(now));
            known
        };
        assert!(!known(&file(), &named, false).is(&changed));
        assert!(!known(&named, &named, true).is(&changed));
        let late = known(&named, &named, false);
        assert!(late.is(&changed), "it may be shown later");
        // Of one with two names a change of size is seen, unlike [`Identity::of`].
        let mut two = named;
        two.nlink = 2;
        let both = known(&file(), &two, true);
        assert!(both.is(&changed));
        changed.size += 1;
        assert!(!both.is(&changed));
    }

    #[test]
    fn a_directory_is_known_by_what_is_in_it_in_any_order() {
        let dir = Identity::of(&dir());
        let (a, b) = (Identity::of(&file()), dir.with_contents([]));
        let known = dir.with_contents([(&b"a"[..], Some(a)), (b"b", Some(b))]);
        assert!(known.has_contents() && !dir.has_contents());
        assert!(known.is_same(dir.with_contents([(&b"b"[..], Some(b)), (b"a", Some(a))])));
        assert!(
            Identity::MADE_DIR
                .with_contents([(&b"a"[..], Some(a)), (b"b", Some(b))])
                .is_same(known)
        );
        for other in [
            dir.with_contents([(&b"a"[..], Some(a))]),
            dir.with_contents([(&b"a"[..], Some(b)), (b"b", Some(a))]),
            dir.with_contents([(&b"a"[..], Some(a)), (b"b", Some(known))]),
        ] {
            assert!(other.has_contents() && !known.is_same(other));
        }
    }

    #[test]
    fn a_directory_that_was_made_later_with_the_number_of_one_is_another() {
        let born = |sec| {
            let mut attr = dir();
            attr.btime.sec = sec;
            attr
        };
        let known = Identity::of_dir(&born(5));
        assert!(known.is_dir_of(&born(5)) && !known.is_dir_of(&born(6)));
        // Some file systems do not tell it.
        assert!(known.is_dir_of(&born(0)) && Identity::of_dir(&born(0)).is_dir_of(&born(5)));
        let mut other = born(5);
        other.ino += 1;
        assert!(!known.is_dir_of(&other) && !known.is_dir_of(&file()));
        assert!(Identity::MADE_DIR.is_dir_of(&born(5)));
    }

    #[test]
    fn what_is_in_it_is_not_known_if_one_of_it_can_not_be_told_again() {
        let dir = Identity::of(&dir());
        let unknown = [
            None,
            Some(Identity::of(&file()).doubtful()),
            Some(dir),
            Some(dir.doubtful().with_contents([])),
        ];
        for entry in unknown {
            assert_eq!(dir.with_contents([(&b"a"[..], entry)]), dir);
        }
    }

    #[test]
    fn what_leaves_a_directory_is_not_missed_in_it() {
        let dir = Identity::of(&dir());
        let a = Identity::of(&file());
        let stays = dir.with_contents([(&b"a"[..], Some(a))]);
        for leaving in [a.leaving(), dir.leaving(), dir.leaving().with_contents([])] {
            let known = dir.with_contents([(&b"a"[..], Some(a)), (b"b", Some(leaving))]);
            assert!(known.is_same(stays));
            let alone = dir.with_contents([(&b"b"[..], Some(leaving))]);
            assert_eq!(alone, dir.with_contents([]));
        }
        assert_ne!(stays, dir.with_contents([]));
        let others = dir.with_contents([(&b"a"[..], Some(a)), (b"new", Some(a))]);
        assert!(!others.is_same(stays), "others have put something into it");
    }

    #[test]
    fn what_a_file_with_several_names_holds_counts_in_a_directory_for_itself() {
        let dir = Identity::of(&dir());
        let with = |names, size, ino| {
            let mut attr = file();
            (attr.nlink, attr.size, attr.ino) = (names, size, ino);
            let entries = [
                (&b"a"[..], Some(Identity::of_entry(&attr))),
                (b"b", Some(Identity::of_entry(&file()))),
            ];
            let sub = dir.with_contents(entries);
            dir.with_contents([(&b"d"[..], Some(sub))])
        };
        let known = with(2, 100, 9);
        assert!(known.is_same(known) && known.strictly().is_same(known));
        // It was changed by the other name.
        let changed = with(2, 101, 9);
        assert!(known.is_same(changed) && !known.strictly().is_same(changed));
        // The other name has gone.
        let alone = with(1, 100, 9);
        assert!(!known.is_same(alone) && known.strictly().is_same(alone));
        let path = [&b"d"[..], b"a"];
        let both = |size| {
            let mut attr = file();
            (attr.size, attr.ino) = (size, 9);
            let contents = Identity::of_copy(&attr).contents_at(path.into_iter());
            with(1, size, 9).with_shared(contents)
        };
        assert!(known.is_same(both(101)) && !known.strictly().is_same(both(101)));
        assert!(known.is_same(both(100)) && known.strictly().is_same(both(100)));
        let other = with(2, 100, 10);
        assert!(!known.is_same(other) && !known.strictly().is_same(other));
    }

    #[test]
    fn a_file_has_no_contents_of_this_kind() {
        let file = Identity::of(&file());
        assert_eq!(file.with_contents([]), file);
    }

    #[test]
    fn the_encoded_form_gives_it_back() {
        for known in [
            Identity::of(&file()),
            Identity::of(&dir()).with_contents([]),
        ] {
            assert_eq!(Identity::decode(known.encode()), known);
        }
    }
}
