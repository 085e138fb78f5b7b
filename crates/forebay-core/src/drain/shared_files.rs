//! Files of the PFS with several names, some of which are to go.
//!
//! A name may go whatever the file holds, as long as another name stays. If all names go, one of them has to
//! find the file as it is known: what others have written to it since would go with the last one. A name may have been hidden before
//! our own programs wrote to the file by another one. So it counts if *one* of the names knows it as it is.

use super::act::{Act, DrainCommit, Got};
use super::drain_facts::DrainFacts;
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
    /// The smallest number of its names that was found.
    names: u32,
    /// Names that go although they know another state.
    going: BTreeSet<TreePath>,
}

/// What one pass knows of such files, by the numbers of their inodes and devices.
#[derive(Debug, Default)]
pub(super) struct SharedFiles(BTreeMap<(u64, u64), SharedFile>);

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
        if found.nlink > 1 && (self.0.len() < MOST || self.0.contains_key(&key(found))) {
            let file = self.0.entry(key(found)).or_insert_with(|| SharedFile {
                known: None,
                names: found.nlink,
                going: BTreeSet::new(),
            });
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
        let file = self.0.get_mut(&key(found)).filter(|_| found.nlink > 1)?;
        let place = record.hides.as_ref().unwrap_or(path);
        let keeps_one = file.going.len() + 1 < file.names as usize;
        let trusts = Mutation::NamesOfOneFileAllGo.is(planted);
        if !keeps_one && !file.going.contains(place) && !trusts {
            return None;
        }
        file.going.insert(place.clone());
        Some(if trusts { as_found(found) } else { known })
    }

    /// Is it a file that the record knows, and has another name known it as it was found here?
    pub(super) fn is_known(&self, record: &PathRecord, found: &Attr) -> bool {
        let is_it = |known: Identity| known.is_of_several_names() && known.is_inode_of(found);
        let known = self.0.get(&key(found)).and_then(|file| file.known);
        let is_same = known.is_some_and(|known| known.is_same(Identity::of_copy(found)));
        is_same && record.replaces.is_some_and(is_it)
    }

    /// Is the state of one of them known?
    pub(super) fn knows_any(&self) -> bool {
        self.0.values().any(|file| file.known.is_some())
    }

    /// What the record replaces, if another name knows more of that.
    fn known_better(&self, record: &PathRecord) -> Option<Identity> {
        let known = record.replaces.filter(|_| record.hides.is_some())?;
        let settles = known.is_of_several_names() && record.transit.is_none();
        let ino = known.inode();
        let mut files = self.0.range((ino, 0)..=(ino, u64::MAX));
        // The record does not say on which of two file systems it is.
        let (Some((_, file)), None) = (files.next(), files.next()) else {
            return None;
        };
        let now = file.known?;
        (settles && !known.is_same(now)).then(|| known.with_body_of(now))
    }
}

fn key(found: &Attr) -> (u64, u64) {
    (found.ino, found.dev)
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
