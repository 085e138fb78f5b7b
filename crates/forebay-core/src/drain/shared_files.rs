//! Files of the PFS with several names, some of which are to go.
//!
//! A name may go whatever the file holds, as long as another name stays. If all names go, the file has to be as it is known: what
//! others have written to it since would go with the last one. A name may have been hidden before our own programs wrote to the file
//! by another one. So a note tells how the file was when the last name was hidden, whichever that was. Names in a directory
//! that goes as a whole are such names, too: that directory knows what they hold, in one sum.

use super::drain_facts::DrainFacts;
use super::known_dir::KnownDir;
use super::rules::is_copy;
use crate::bridge::Mutation;
use crate::facts::{Attr, Inode, Outcome};
use crate::identity::{self, Identity};
use crate::path::TreePath;
use crate::record::PathRecord;
use crate::table::Change;
use std::collections::{BTreeMap, BTreeSet};

/// Most files that are remembered. Others have to be as they are known.
const MOST: usize = 1 << 16;

/// Notes begin so; the number of the inode follows, in hexadecimal.
const NOTES: &[u8] = b"file/";

/// Most notes that go in one commit.
const MOST_NOTES: usize = 1 << 12;

fn note_name(ino: u64) -> Vec<u8> {
    [NOTES, format!("{ino:016x}").as_bytes()].concat()
}

/// The change that notes how a file was when one of its names was hidden.
pub(crate) fn note_file(known: Identity) -> Change {
    Change::Meta {
        key: note_name(known.inode()),
        value: Some(known.encode().to_vec()),
    }
}

/// How the file of this number was when the last one of its names was hidden, as far as that is noted.
fn noted(facts: &dyn DrainFacts, ino: u64) -> Outcome<Option<Identity>> {
    let notes = facts.notes(&note_name(ino))?;
    let value = notes.into_iter().next().map(|(_, value)| value);
    let bytes: Option<[u8; identity::BYTES]> = value.and_then(|value| value.try_into().ok());
    Ok(bytes.map(Identity::decode))
}

/// What is told of a file, apart from what the records know.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Evidence {
    /// There is a note of it, so it had several names.
    is_noted: bool,
    /// It is as is noted.
    is_as_noted: bool,
    /// Our own programs can have made it what it is, by writing to it in place.
    is_ours: bool,
}

/// What is told of a file that was found with these attributes.
pub(super) fn evidence(facts: &dyn DrainFacts, found: &Attr) -> Outcome<Evidence> {
    let noted = noted(facts, found.ino)?;
    Ok(Evidence {
        is_noted: noted.is_some(),
        is_as_noted: noted.is_some_and(|noted| noted.is_same(Identity::of_copy(found))),
        is_ours: facts.is_written_in_place(found),
    })
}

/// The changes that take notes away, a few at a time; none if there is no note.
pub(super) fn forget(facts: &dyn DrainFacts) -> Outcome<Vec<Change>> {
    let notes = facts.notes(NOTES)?.into_iter().take(MOST_NOTES);
    let forget = notes.map(|(key, _)| Change::Meta { key, value: None });
    Ok(forget.collect())
}

/// What the names of one file tell.
#[derive(Debug)]
struct SharedFile {
    /// At most so many names are left of it.
    names: u32,
    /// Names that are about to go, by place: one for a name, and for a directory how many of those in it have changed since it was
    /// removed.
    going: BTreeMap<TreePath, u32>,
}

impl SharedFile {
    /// If so many names go at this place, with all that go elsewhere, does one stay? Asked anew at each look: a name that was to stay
    /// may have gone since.
    fn keeps_one(&self, place: &TreePath, count: u32) -> bool {
        let elsewhere = self.going.iter().filter(|(at, _)| *at != place);
        let elsewhere: u32 = elsewhere.map(|(_, count)| count).sum();
        elsewhere + count < self.names
    }
}

/// What one pass knows of such files.
#[derive(Debug, Default)]
pub(super) struct SharedFiles {
    files: BTreeMap<Inode, SharedFile>,
    /// Of which files names are going at a place.
    going: BTreeMap<TreePath, BTreeSet<Inode>>,
    /// Names that earlier drains have put aside may still be there. They count in what a look tells, and are going as well.
    may_be_aside: bool,
}

impl SharedFiles {
    /// Before a sweep: it is not known what is aside.
    pub(super) fn unswept() -> Self {
        SharedFiles {
            may_be_aside: true,
            ..SharedFiles::default()
        }
    }

    /// Is something left that a sweep could not take away?
    pub(super) fn swept(&mut self, is_left: bool) {
        self.may_be_aside = is_left;
    }

    /// May this name go from where the record hides it: the record knows what was found, or nothing (those of older versions, and of
    /// `fsck --rebuild`), or another name stays? Gives what has to be there when it goes. While the file has another name then, its
    /// inode number is enough.
    pub(super) fn may_go(
        &mut self,
        path: &TreePath,
        record: &PathRecord,
        found: &Attr,
        planted: Option<Mutation>,
    ) -> Option<Identity> {
        let Some(known) = record.replaces.filter(|_| !is_copy(record, found)) else {
            return Some(Identity::of_copy(found));
        };
        if !known.is_of_several_names() || found.is_dir() || known.is_leaving() {
            return known.is(found).then_some(known);
        }
        let now = Identity::of_copy(found);
        if !known.is_same_inode(now) {
            return None;
        }
        let place = record.hides.as_ref().unwrap_or(path);
        if known.is_same(now) {
            self.goes_for_certain(place, found);
            return Some(known);
        }
        if found.nlink > 1 && Mutation::NamesOfOneFileAllGo.is(planted) {
            return Some(as_found(found));
        }
        let file = found.inode();
        let stays = found.nlink > 1 && self.keeps_one(place, file, found.nlink, 1);
        stays.then(|| {
            self.goes(place, file, 1);
            known
        })
    }

    /// Is what was found at `place` the known file, and can all changes of it be ours? So it is if it is as its note says (a file of
    /// several names), or if our programs can have made it so by writing to it in place. Then this name counts as going.
    pub(super) fn is_changed_by_us(
        &mut self,
        place: &TreePath,
        known: Identity,
        found: &Attr,
        facts: &dyn DrainFacts,
    ) -> Outcome<bool> {
        if found.is_dir() || !known.is_inode_of(found) {
            return Ok(false);
        }
        let told = evidence(facts, found)?;
        let is_ours = told.is_ours || known.is_of_several_names() && told.is_as_noted;
        if is_ours {
            self.goes_for_certain(place, found);
        }
        Ok(is_ours)
    }

    /// This name goes, whichever others stay: none of them may count on it.
    pub(super) fn goes_for_certain(&mut self, place: &TreePath, found: &Attr) {
        if !found.is_dir() && found.nlink > 1 && self.seen(found.inode(), found.nlink).is_some() {
            self.goes(place, found.inode(), 1);
        }
    }

    /// May the directory at `place` go, which is known by this, with all that is in it `now`? What else than files with several names
    /// is in it has to be as it is known, and so has each of those by what the `evidence` of it says, unless another name stays. Gives
    /// what has to be there when it goes.
    pub(super) fn may_go_with(
        &mut self,
        place: &TreePath,
        known: Identity,
        now: &KnownDir,
        evidence: &dyn Fn(&Attr) -> Outcome<Evidence>,
        planted: Option<Mutation>,
    ) -> Outcome<Option<Identity>> {
        if known.strictly().is_same(now.is) {
            return Ok(Some(now.is.strictly()));
        }
        let Some(files) = now.files.all().filter(|_| known.is_of_several_names()) else {
            return Ok(None);
        };
        let mut is = now.is;
        let mut unknown: BTreeMap<Inode, (u32, u32)> = BTreeMap::new();
        for file in files {
            let (names, told) = (file.attr.nlink, evidence(&file.attr)?);
            if names <= 1 && told.is_noted {
                is = is.with_shared(file.contents);
            }
            if (names > 1 || told.is_noted) && !(told.is_as_noted || told.is_ours) {
                unknown.entry(file.attr.inode()).or_insert((names, 0)).1 += 1;
            }
        }
        // A note may be of a file that is gone, or had one name only when the directory was removed: then that is as it was.
        let singles_are_known = known.is_same(now.is);
        if !singles_are_known && !known.is_same(is) {
            return Ok(None);
        }
        if singles_are_known {
            unknown.retain(|_, (names, _)| *names > 1);
        }
        if Mutation::NamesOfOneFileAllGo.is(planted) {
            return Ok(Some(now.is));
        }
        for (inode, (names, count)) in &unknown {
            if !self.keeps_one(place, *inode, *names, *count) {
                return Ok(None);
            }
        }
        let is_certain = unknown.is_empty();
        for (inode, (_, count)) in unknown {
            self.goes(place, inode, count);
        }
        Ok(Some(if is_certain {
            now.is.strictly()
        } else {
            now.is
        }))
    }

    /// Does a name stay of a file that was found with `names`, if so many go at this place?
    fn keeps_one(&mut self, place: &TreePath, inode: Inode, names: u32, count: u32) -> bool {
        let is_sure = !self.may_be_aside;
        let file = self.seen(inode, names);
        file.is_some_and(|file| is_sure && file.keeps_one(place, count))
    }

    /// What is known of a file that was found with so many names; `None` if there is no room for it.
    fn seen(&mut self, inode: Inode, names: u32) -> Option<&mut SharedFile> {
        if self.files.len() >= MOST && !self.files.contains_key(&inode) {
            return None;
        }
        let file = self.files.entry(inode).or_insert_with(|| SharedFile {
            names,
            going: BTreeMap::new(),
        });
        file.names = file.names.min(names);
        Some(file)
    }

    /// So many names of a file go at this place.
    fn goes(&mut self, place: &TreePath, inode: Inode, count: u32) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.going.insert(place.clone(), count);
            self.going.entry(place.clone()).or_default().insert(inode);
        }
    }

    /// What was at this place has gone.
    pub(super) fn went(&mut self, place: &TreePath) {
        for inode in self.going.remove(place).unwrap_or_default() {
            if let Some(file) = self.files.get_mut(&inode) {
                // A look that began before may still tell of the name: so the number does not grow again.
                let count = file.going.remove(place).unwrap_or(0);
                file.names = file.names.saturating_sub(count);
            }
        }
    }
}

/// What was found, which programs may go on changing by another name: the last name has to be as it was found.
pub(super) fn as_found(found: &Attr) -> Identity {
    match found.nlink > 1 {
        true => Identity::of(found),
        false => Identity::of_copy(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::known_dir::KnownFiles;
    use crate::facts::Timestamp;
    use crate::record::{BridgeId, Kind, ObjectName};

    fn file(nlink: u32, sec: i64) -> Attr {
        Attr {
            mode: libc::S_IFREG | 0o644,
            ino: 7,
            nlink,
            mtime: Timestamp { sec, nsec: 0 },
            ..Attr::default()
        }
    }

    fn hides(name: &str, replaces: &Attr) -> (TreePath, PathRecord) {
        let path = TreePath::new(name).unwrap();
        let record = PathRecord {
            hides: Some(path.clone()),
            replaces: Some(Identity::of(replaces)),
            ..PathRecord::new(Kind::Whiteout, ObjectName::default(), BridgeId(1))
        };
        (path, record)
    }

    #[test]
    fn a_name_goes_if_it_knows_the_file_or_another_one_stays() {
        let (a, record) = hides("a", &file(2, 1));
        let may_go = |found| SharedFiles::default().may_go(&a, &record, &found, None);
        assert!(may_go(file(2, 1)).is_some() && may_go(file(1, 1)).is_some());
        assert_eq!(may_go(file(1, 2)), None, "others wrote to it");
        let goes = may_go(file(2, 2)).unwrap();
        assert!(goes.is(&file(2, 3)) && !goes.is(&file(1, 2)));
        let other = Attr {
            ino: 8,
            ..file(2, 1)
        };
        assert_eq!(may_go(other), None, "others have put it there");
    }

    #[test]
    fn what_is_noted_is_told_again() {
        let known = Identity::of(&file(2, 1));
        let Change::Meta { key, value } = note_file(known) else {
            panic!("a note is a named value");
        };
        let of_ten = note_name(16 * 7);
        assert!(key.starts_with(NOTES) && !key.starts_with(&of_ten) && !of_ten.starts_with(&key));
        let bytes: [u8; identity::BYTES] = value.unwrap().try_into().unwrap();
        assert_eq!(Identity::decode(bytes), known);
    }

    #[test]
    fn of_a_file_that_no_name_knows_one_name_stays_however_many_go_at_once() {
        let names: Vec<_> = ["a", "b", "c"].map(|name| hides(name, &file(3, 1))).into();
        let mut files = SharedFiles::default();
        for _ in 0..2 {
            let mut may_go = |(path, record): &(TreePath, PathRecord)| {
                let goes = files.may_go(path, record, &file(3, 2), None);
                // Should the others go at the same time, it does not.
                goes.is_some_and(|it| it.is(&file(2, 2)) && !it.is(&file(1, 2)))
            };
            let went: Vec<_> = names.iter().map(&mut may_go).collect();
            assert_eq!(went, [true, true, false]);
        }
        // Others have taken one away since.
        let (path, record) = hides("d", &file(3, 1));
        let mut fewer = SharedFiles::default();
        assert!(
            fewer
                .may_go(&names[0].0, &names[0].1, &file(3, 2), None)
                .is_some()
        );
        assert_eq!(fewer.may_go(&path, &record, &file(2, 2), None), None);
    }

    #[test]
    fn of_more_files_than_are_remembered_all_names_stay() {
        let mut files = SharedFiles::default();
        let (path, record) = hides("a", &file(2, 1));
        let numbered = |ino| Attr { ino, ..file(2, 2) };
        for ino in 0..=MOST as u64 {
            let record = PathRecord {
                replaces: Some(Identity::of(&Attr { ino, ..file(2, 1) })),
                ..record.clone()
            };
            let goes = files.may_go(&path, &record, &numbered(ino), None);
            assert_eq!(goes.is_some(), ino < MOST as u64);
        }
    }

    #[test]
    fn of_more_files_in_a_directory_than_are_told_none_is() {
        let dir = TreePath::new("d").unwrap();
        let mut listed = KnownFiles::new(&dir, true);
        for number in 0..=1u64 << 16 {
            assert!(listed.all().is_some());
            listed.add(&file(2, 1), &dir, format!("{number}").as_bytes());
        }
        assert!(listed.all().is_none());
    }

    /// What a look at a directory with these files in it tells.
    fn dir_with(files: &[(&str, Attr)]) -> KnownDir {
        let dir = TreePath::new("d").unwrap();
        let mut listed = KnownFiles::new(&dir, true);
        for (name, attr) in files {
            listed.add(attr, &dir, name.as_bytes());
        }
        let itself = Identity::of(&Attr {
            mode: libc::S_IFDIR | 0o755,
            ino: 3,
            ..Attr::default()
        });
        let entry =
            |(name, attr): &'_ (&'_ str, Attr)| (name.to_string(), Identity::of_entry(attr));
        let entries: Vec<_> = files.iter().map(entry).collect();
        let entries = entries
            .iter()
            .map(|(name, is)| (name.as_bytes(), Some(*is)));
        KnownDir {
            is: itself.with_contents(entries),
            files: listed,
        }
    }

    fn single(ino: u64, sec: i64) -> Attr {
        Attr {
            ino,
            ..file(1, sec)
        }
    }

    /// Does a directory go that was known so?
    fn goes_with(
        files: &mut SharedFiles,
        place: &TreePath,
        known: &KnownDir,
        now: &KnownDir,
        noted: Option<&Attr>,
    ) -> Option<Identity> {
        let evidence = |found: &Attr| {
            let noted = noted.filter(|attr| attr.ino == found.ino);
            Ok(Evidence {
                is_noted: noted.is_some(),
                is_as_noted: noted
                    .is_some_and(|it| Identity::of(it).is_same(Identity::of_copy(found))),
                is_ours: false,
            })
        };
        let goes = files.may_go_with(place, known.is, now, &evidence, None);
        goes.unwrap_or_else(|_| panic!("there is nothing to ask for"))
    }

    #[test]
    fn a_directory_goes_with_a_file_of_which_another_name_stays_and_with_no_other_change() {
        let place = TreePath::new("d").unwrap();
        let before = dir_with(&[("x", file(2, 1)), ("y", single(9, 1))]);
        let may_go = |files: &[(&str, Attr)]| {
            let now = dir_with(files);
            let known = Some(&file(2, 1));
            let goes = goes_with(&mut SharedFiles::default(), &place, &before, &now, known);
            // Should the other name go at that moment, the directory stays.
            let last = dir_with(&[("x", file(1, 2)), ("y", single(9, 1))]);
            assert!(goes.is_none_or(|is| is.is_same(now.is) && !is.is_same(last.is)));
            goes.is_some()
        };
        assert!(may_go(&[("x", file(2, 1)), ("y", single(9, 1))]));
        let one = [("x", file(1, 1)), ("y", single(9, 1))];
        assert!(may_go(&one), "the other name went");
        let changed = [("x", file(2, 2)), ("y", single(9, 1))];
        assert!(may_go(&changed), "it was changed by that");
        let last = [("x", file(1, 2)), ("y", single(9, 1))];
        assert!(!may_go(&last), "it was changed, and has no other name");
        assert!(!may_go(&[("x", file(2, 1)), ("y", single(9, 2))]));
        assert!(!may_go(&[("x", file(2, 1)), ("y", single(10, 1))]));
        assert!(!may_go(&[("x", file(2, 2)), ("y", single(9, 2))]));
        assert!(!may_go(&[("x", file(2, 1))]));
    }

    #[test]
    fn names_in_directories_and_outside_do_not_all_go_if_nobody_knows_the_file() {
        let (d, e) = (TreePath::new("d").unwrap(), TreePath::new("e").unwrap());
        let before = dir_with(&[("x", file(3, 1))]);
        let now = dir_with(&[("x", file(3, 2))]);
        let (a, record) = hides("a", &file(3, 1));
        let mut files = SharedFiles::default();
        for _ in 0..2 {
            assert!(goes_with(&mut files, &d, &before, &now, Some(&file(3, 1))).is_some());
            assert!(files.may_go(&a, &record, &file(3, 2), None).is_some());
            assert!(goes_with(&mut files, &e, &before, &now, Some(&file(3, 1))).is_none());
        }
        files.went(&TreePath::new("a").unwrap());
        let two = dir_with(&[("x", file(2, 2))]);
        assert!(goes_with(&mut files, &e, &before, &two, None).is_none());
        // Two of its three names are in one directory.
        let both = |sec| dir_with(&[("x", file(3, sec)), ("y", file(3, sec))]);
        let mut files = SharedFiles::default();
        assert!(goes_with(&mut files, &d, &both(1), &both(2), None).is_some());
        assert!(files.may_go(&a, &record, &file(3, 2), None).is_none());
    }

    #[test]
    fn a_name_that_goes_or_may_be_aside_is_none_that_stays() {
        let d = TreePath::new("d").unwrap();
        let dir = |sec| dir_with(&[("x", file(2, sec))]);
        let (a, record) = hides("a", &file(2, 1));
        let mut files = SharedFiles::default();
        assert!(files.may_go(&a, &record, &file(2, 1), None).is_some());
        // Others write to it then.
        assert!(goes_with(&mut files, &d, &dir(1), &dir(2), None).is_none());
        let mut files = SharedFiles::default();
        files.swept(true);
        assert!(files.may_go(&a, &record, &file(2, 2), None).is_none());
        assert!(goes_with(&mut files, &d, &dir(1), &dir(2), None).is_none());
        files.swept(false);
        assert!(files.may_go(&a, &record, &file(2, 2), None).is_some());
    }

    #[test]
    fn a_note_about_an_earlier_file_of_this_number_is_no_conflict() {
        let place = TreePath::new("d").unwrap();
        let dir = |sec, of_single| dir_with(&[("x", file(2, sec)), ("y", single(9, of_single))]);
        let earlier = Attr {
            ino: 9,
            ..file(2, 5)
        };
        let mut files = SharedFiles::default();
        assert!(goes_with(&mut files, &place, &dir(1, 1), &dir(2, 1), Some(&earlier)).is_some());
        let mut files = SharedFiles::default();
        assert!(goes_with(&mut files, &place, &dir(1, 1), &dir(2, 2), Some(&earlier)).is_none());
    }

    #[test]
    fn what_was_to_go_is_asked_anew_and_a_look_from_before_counts_for_nothing() {
        let (d, a) = (TreePath::new("d").unwrap(), TreePath::new("a").unwrap());
        let dir = |nlink, sec| dir_with(&[("x", file(nlink, sec))]);
        let noted = file(2, 1);
        // The other name went after it was allowed.
        let mut files = SharedFiles::default();
        assert!(goes_with(&mut files, &d, &dir(2, 1), &dir(2, 2), Some(&noted)).is_some());
        assert!(goes_with(&mut files, &d, &dir(2, 1), &dir(1, 2), Some(&noted)).is_none());
        // It went while the directory was looked through.
        let (_, record) = hides("a", &file(2, 1));
        let mut files = SharedFiles::default();
        assert!(files.may_go(&a, &record, &file(2, 2), None).is_some());
        files.went(&a);
        assert!(goes_with(&mut files, &d, &dir(2, 1), &dir(2, 2), Some(&noted)).is_none());
    }

    #[test]
    fn a_directory_goes_with_a_file_that_is_as_it_was_when_another_name_was_hidden() {
        let place = TreePath::new("d").unwrap();
        let dir = |nlink, sec| dir_with(&[("x", file(nlink, sec))]);
        for names in [1, 2] {
            let mut files = SharedFiles::default();
            let (now, noted) = (dir(names, 2), file(2, 2));
            let goes = goes_with(&mut files, &place, &dir(2, 1), &now, Some(&noted));
            let is_it = |is: Identity| is.is_same(now.is) && !is.is_same(dir(names, 3).is);
            assert!(goes.is_some_and(is_it), "{names}");
        }
        let now = dir(1, 3);
        let goes = goes_with(
            &mut SharedFiles::default(),
            &place,
            &dir(2, 1),
            &now,
            Some(&file(2, 2)),
        );
        assert_eq!(goes, None, "others wrote to it");
    }

    #[test]
    fn another_file_and_what_has_one_name_are_judged_by_themselves() {
        let (a, record) = hides("a", &file(1, 1));
        let mut files = SharedFiles::default();
        assert!(files.may_go(&a, &record, &file(1, 1), None).is_some());
        assert_eq!(files.may_go(&a, &record, &file(1, 2), None), None);
        let (a, record) = hides("a", &file(2, 1));
        let other = Attr {
            ino: 8,
            ..file(2, 1)
        };
        assert_eq!(files.may_go(&a, &record, &other, None), None);
    }
}
