//! Files of the PFS with several names, some of which are to go.
//!
//! A name may go whatever the file holds, as long as another name stays. If all names go, one of them has to
//! find the file as it is known: what others have written to it since would go with the last one. A name may have been hidden before
//! our own programs wrote to the file by another one. So it counts if *one* of the names knows it as it is. Names in a directory
//! that goes as a whole are such names, too: the directory knows them all, in one sum.

use super::act::{Act, DrainCommit, Got};
use super::drain_facts::DrainFacts;
use super::known_dir::{KnownDir, KnownFile};
use super::rules::{Update, commit_of, is_copy, read};
use super::sheet::Sheet;
use super::strand::Strand;
use crate::bridge::{Mutation, ReadSet};
use crate::facts::{Attr, Outcome};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::PathRecord;
use std::collections::{BTreeMap, BTreeSet};

/// Most files that are remembered. Of others each name has to know the file as it is.
const MOST: usize = 1 << 16;

/// What the names of one file tell.
#[derive(Debug)]
struct SharedFile {
    /// The state in which it was found, if one of its names knows that state.
    known: Option<Identity>,
    /// The smallest number of its names that was found since one of them went.
    names: u32,
    /// Where names go that know another state: a name itself, or a directory with so many of them.
    going: BTreeMap<TreePath, u32>,
}

impl SharedFile {
    fn new(names: u32) -> Self {
        SharedFile {
            known: None,
            names,
            going: BTreeMap::new(),
        }
    }

    /// If so many names go at this place, with all that go already, does one stay? Also true if they may go already.
    fn keeps_one(&self, place: &TreePath, count: u32) -> bool {
        let elsewhere = self.going.iter().filter(|(at, _)| *at != place);
        let elsewhere: u32 = elsewhere.map(|(_, count)| count).sum();
        let may_go = self.going.get(place).is_some_and(|&going| going >= count);
        may_go || elsewhere + count < self.names
    }
}

/// The numbers of a file: inode and device.
type Key = (u64, u64);

/// What one pass knows of such files.
#[derive(Debug, Default)]
pub(super) struct SharedFiles {
    files: BTreeMap<Key, SharedFile>,
    /// Of which files names are going at a place.
    going: BTreeMap<TreePath, BTreeSet<Key>>,
}

impl SharedFiles {
    /// May this name go from where the record hides it: the record knows what was found, or another name knows it, or another name
    /// stays? Gives what has to be there when it goes. While the file has another name then, its inode number is enough.
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
        let knows_it = known.is_same(now);
        if found.nlink > 1 && (self.files.len() < MOST || self.files.contains_key(&key(found))) {
            let file = self
                .files
                .entry(key(found))
                .or_insert_with(|| SharedFile::new(found.nlink));
            file.names = file.names.min(found.nlink);
            if knows_it {
                file.known = Some(now);
            }
        }
        if knows_it {
            return Some(known);
        }
        if self.is_known(record, found) {
            return Some(as_found(found));
        }
        let file = self
            .files
            .get_mut(&key(found))
            .filter(|_| found.nlink > 1)?;
        let place = record.hides.as_ref().unwrap_or(path);
        let trusts = Mutation::NamesOfOneFileAllGo.is(planted);
        if !file.keeps_one(place, 1) && !trusts {
            return None;
        }
        self.goes(place, key(found), 1);
        Some(if trusts { as_found(found) } else { known })
    }

    /// May the directory at `place` go, which is known by this, with all that is in it `now`? What else than files with several names
    /// is in it has to be as it is known, and each of those too, unless another name knows it or stays. Gives what has to be there
    /// when it goes.
    pub(super) fn may_go_with(
        &mut self,
        place: &TreePath,
        known: Identity,
        now: &KnownDir,
        planted: Option<Mutation>,
    ) -> Option<Identity> {
        let files = now.files.all();
        let has_several =
            |file: &&KnownFile| file.names > 1 || self.files.contains_key(&key_of(file));
        let shared: Vec<_> = files
            .unwrap_or_default()
            .iter()
            .filter(has_several)
            .collect();
        if known.in_full().is_same(now.is) {
            let tells = known.is_of_several_names();
            for file in shared.into_iter().filter(|_| tells) {
                if self.files.len() < MOST || self.files.contains_key(&key_of(file)) {
                    self.seen(file).known = Some(file.is);
                }
            }
            return Some(now.is.in_full());
        }
        let single = shared.iter().filter(|file| file.names <= 1);
        let is = single.fold(now.is, |is, file| is.with_shared(file.contents));
        if !known.is_same(is) {
            return None;
        }
        if Mutation::NamesOfOneFileAllGo.is(planted) {
            return Some(now.is);
        }
        if files.is_none() || self.files.len() + shared.len() > MOST {
            return None;
        }
        let mut here: BTreeMap<Key, u32> = BTreeMap::new();
        for file in &shared {
            *here.entry(key_of(file)).or_default() += 1;
        }
        let knows = |all: &mut Self, file: &KnownFile| {
            let known = all.seen(file).known;
            known.is_some_and(|known| known.is_same(file.is))
        };
        let mut unknown: Vec<&KnownFile> = Vec::new();
        for file in shared {
            if !knows(self, file) {
                unknown.push(file);
            }
        }
        let is_certain = unknown.is_empty();
        let stays = |file: &&KnownFile| self.seen(file).keeps_one(place, here[&key_of(file)]);
        if !unknown.iter().all(stays) {
            return None;
        }
        for file in unknown {
            let count = here[&key_of(file)];
            self.goes(place, key_of(file), count);
        }
        Some(if is_certain { now.is.in_full() } else { now.is })
    }

    /// So many names of a file go at this place.
    fn goes(&mut self, place: &TreePath, key: Key, count: u32) {
        if let Some(file) = self.files.get_mut(&key) {
            file.going.insert(place.clone(), count);
            self.going.entry(place.clone()).or_default().insert(key);
        }
    }

    /// What was at this place has gone. How many names are left, the next look tells.
    pub(super) fn went(&mut self, place: &TreePath) {
        for key in self.going.remove(place).unwrap_or_default() {
            if let Some(file) = self.files.get_mut(&key) {
                file.going.remove(place);
                file.names = u32::MAX;
            }
        }
    }

    /// What is known of a file that was seen.
    fn seen(&mut self, file: &KnownFile) -> &mut SharedFile {
        let known = self
            .files
            .entry(key_of(file))
            .or_insert_with(|| SharedFile::new(file.names));
        known.names = known.names.min(file.names);
        known
    }

    /// Is it a file that the record knows, and has another name known it as it was found here?
    pub(super) fn is_known(&self, record: &PathRecord, found: &Attr) -> bool {
        let is_it = |known: Identity| known.is_of_several_names() && known.is_inode_of(found);
        let known = self.files.get(&key(found)).and_then(|file| file.known);
        let is_same = known.is_some_and(|known| known.is_same(Identity::of_copy(found)));
        is_same && record.replaces.is_some_and(is_it)
    }

    /// Is the state of one of them known?
    pub(super) fn knows_any(&self) -> bool {
        self.files.values().any(|file| file.known.is_some())
    }

    /// What the record replaces, if another name knows more of that.
    fn known_better(&self, record: &PathRecord) -> Option<Identity> {
        let known = record.replaces.filter(|_| record.hides.is_some())?;
        let settles = known.is_of_several_names() && record.transit.is_none();
        let ino = known.inode();
        let mut files = self.files.range((ino, 0)..=(ino, u64::MAX));
        // The record does not say on which of two file systems it is.
        let (Some((_, file)), None) = (files.next(), files.next()) else {
            return None;
        };
        let now = file.known?;
        (settles && !known.is_same(now)).then(|| known.with_body_of(now))
    }
}

fn key(found: &Attr) -> Key {
    (found.ino, found.dev)
}

fn key_of(file: &KnownFile) -> Key {
    let (dev, ino) = file.inode;
    (ino, dev)
}

/// What was found, which programs may go on changing by another name.
pub(super) fn as_found(found: &Attr) -> Identity {
    match found.nlink > 1 {
        true => Identity::of(found),
        false => Identity::of_copy(found),
    }
}

/// Lets names that stay, because something has failed, know files as the names knew them that went.
pub(super) struct KnowBetter {
    entries: Vec<(TreePath, PathRecord)>,
}

impl KnowBetter {
    pub(super) fn new(entries: Vec<(TreePath, PathRecord)>) -> Self {
        KnowBetter { entries }
    }
}

impl Strand for KnowBetter {
    /// Where programs have changed something at the same time, nothing is known better.
    fn take(&mut self, _got: Got, _sheet: &mut Sheet) {}

    fn next(&mut self, facts: &dyn DrainFacts, sheet: &mut Sheet) -> Outcome<Option<Act>> {
        let mut reads = ReadSet::default();
        let mut updates = Vec::new();
        for (path, record) in &self.entries {
            if sheet.shared_files.known_better(record).is_none() {
                continue;
            }
            let Some(before) = read(facts, path, &mut reads)? else {
                continue;
            };
            let better = sheet.shared_files.known_better(&before);
            updates.extend(better.map(|better| Update {
                path: path.clone(),
                after: Some(PathRecord {
                    replaces: Some(better),
                    ..before.clone()
                }),
                before,
            }));
        }
        self.entries.clear();
        let (commit, _): (DrainCommit, _) = commit_of(facts, reads, updates, Vec::new());
        Ok((!commit.batch.is_empty()).then_some(Act::Commit(commit)))
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
    fn names_go_if_one_of_them_knows_the_file_as_it_is() {
        let ((a, early), (b, late)) = (hides("a", &file(2, 1)), hides("b", &file(2, 2)));
        let mut files = SharedFiles::default();
        assert_eq!(files.may_go(&a, &early, &file(1, 2), None), None);
        assert!(files.may_go(&b, &late, &file(2, 2), None).is_some() && files.knows_any());
        let goes = files.may_go(&a, &early, &file(1, 2), None).unwrap();
        assert!(goes.is(&file(1, 2)) && !goes.is(&file(1, 3)));
        assert!(files.is_known(&early, &file(1, 2)) && !files.is_known(&early, &file(1, 3)));
        let (_, other) = hides(
            "a",
            &Attr {
                ino: 8,
                ..file(2, 1)
            },
        );
        assert!(
            !files.is_known(&other, &file(1, 2)),
            "others have put it there"
        );
        assert_eq!(
            files.may_go(&a, &early, &file(1, 3), None),
            None,
            "others wrote to it"
        );
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
        assert!(!files.knows_any());
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
    fn a_name_that_stays_knows_the_file_as_the_one_that_went() {
        let ((_, early), (b, late)) = (hides("a", &file(2, 1)), hides("b", &file(2, 2)));
        let mut files = SharedFiles::default();
        assert_eq!(files.known_better(&early), None);
        assert!(files.may_go(&b, &late, &file(2, 2), None).is_some());
        let better = files.known_better(&early).unwrap();
        assert!(better.is(&file(1, 2)) && !better.is(&file(1, 1)));
        assert_eq!(files.known_better(&late), None);
        // The same number on another file system is another file.
        let elsewhere = Attr {
            dev: 2,
            ..file(2, 3)
        };
        assert_eq!(
            files.may_go(&b, &late, &elsewhere, None),
            Some(late.replaces.unwrap())
        );
        assert_eq!(files.known_better(&early), None);
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

    #[test]
    fn a_directory_goes_with_a_file_of_which_another_name_stays_and_with_no_other_change() {
        let place = TreePath::new("d").unwrap();
        let before = dir_with(&[("x", file(2, 1)), ("y", single(9, 1))]);
        let may_go = |files: &[(&str, Attr)]| {
            let now = dir_with(files);
            let goes = SharedFiles::default().may_go_with(&place, before.is, &now, None);
            // Should the other name go at that moment, the directory stays.
            let last = dir_with(&[("x", file(1, 2)), ("y", single(9, 1))]);
            assert!(goes.is_none_or(|is| is.is_same(now.is) && !is.is_same(last.is)));
            goes.is_some()
        };
        assert!(may_go(&[("x", file(2, 1)), ("y", single(9, 1))]));
        assert!(
            may_go(&[("x", file(1, 1)), ("y", single(9, 1))]),
            "the other name went"
        );
        assert!(
            may_go(&[("x", file(2, 2)), ("y", single(9, 1))]),
            "it was changed by that"
        );
        assert!(
            !may_go(&[("x", file(1, 2)), ("y", single(9, 1))]),
            "the last name"
        );
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
            assert!(files.may_go_with(&d, before.is, &now, None).is_some());
            assert!(files.may_go(&a, &record, &file(3, 2), None).is_some());
            assert!(files.may_go_with(&e, before.is, &now, None).is_none());
        }
        // Two of its three names are in one directory.
        let both = |sec| dir_with(&[("x", file(3, sec)), ("y", file(3, sec))]);
        let mut files = SharedFiles::default();
        assert!(files.may_go_with(&d, both(1).is, &both(2), None).is_some());
        assert!(files.may_go(&a, &record, &file(3, 2), None).is_none());
    }

    #[test]
    fn a_directory_tells_how_it_knows_a_file_and_hears_it() {
        let place = TreePath::new("d").unwrap();
        let dir = |nlink, sec| dir_with(&[("x", file(nlink, sec))]);
        // It was removed after the other name, by which it was known as it was before.
        let ((a, early), (_, late)) = (hides("a", &file(2, 1)), hides("b", &file(2, 2)));
        let mut files = SharedFiles::default();
        assert!(
            files
                .may_go_with(&place, dir(2, 2).is, &dir(2, 2), None)
                .is_some()
        );
        assert!(files.is_known(&early, &file(1, 2)) && !files.is_known(&early, &file(1, 3)));
        // It was removed before, and the other name goes first.
        let mut files = SharedFiles::default();
        assert!(files.may_go(&a, &late, &file(2, 2), None).is_some());
        let goes = files.may_go_with(&place, dir(2, 1).is, &dir(1, 2), None);
        assert!(goes.is_some_and(|is| is.is_same(dir(1, 2).is) && !is.is_same(dir(1, 3).is)));
        assert!(
            files
                .may_go_with(&place, dir(2, 1).is, &dir(1, 3), None)
                .is_none()
        );
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
