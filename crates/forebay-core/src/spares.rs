//! Spare files: which removed files may be used again, and which of them a new file takes over.
//!
//! To make and remove a file costs the local file system several times as much as to change one. So a removed file is
//! kept if nobody can notice: it is empty, nobody has it open, and its inode holds nothing that a new file would not have.
//! The next new file takes it over, with its name and object id.
//!
//! If the tables are lost, its label would bring back a file that had been removed. So a *register* outside the tables
//! names every spare file, each in a [`Slot`]. The driver writes the register: it enters an object when it is kept, and
//! clears the slot before it is released.
//!
//! The driver opens, looks, changes and unlinks files. All else is decided here, for the server and for the simulator.

use crate::facts::{Attr, Timestamp};
use crate::record::ObjectName;
use crate::storage::StorageOrder;
use std::collections::BTreeSet;

/// Most spare files at a time. Each costs an open descriptor.
pub const MOST_SPARES: usize = 128;
/// How many spare files are searched for one with the right label. To write a label costs more than this search.
const SEARCHED: usize = 16;
/// How many objects are remembered one by one as not to be used again.
const REMEMBERED: usize = 1 << 16;
/// How many new files are remembered as they were when they were made.
const BIRTHS: usize = 1024;

/// A removed object, before its file is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovedObject {
    /// The object.
    pub object: ObjectName,
    /// Its file is a plain one.
    pub is_plain: bool,
    /// The last sync point may know it ([`StorageOrder::may_know`]). A power loss would leave its name, and the file has to
    /// be what it was.
    pub is_known: bool,
}

impl RemovedObject {
    /// May its file become another one, as far as is known without a look at it? `epoch` is the life of the bridge.
    /// `is_excluded` is asked once at most, and only if nothing else forbids it: see [`Excluded::take`].
    pub fn may_be_reused(self, epoch: u32, is_excluded: impl FnOnce() -> bool) -> bool {
        let RemovedObject {
            object,
            is_plain,
            is_known,
        } = self;
        !is_known
            && is_plain
            && object.link == 0
            // For objects of earlier lives it is not known who may open them.
            && object.oid.epoch() == epoch
            && !is_excluded()
    }
}

/// Objects that must not become another one: programs may open them at any time without the bridge.
#[derive(Debug, Default)]
pub struct Excluded {
    /// Their sequence numbers.
    one_by_one: BTreeSet<u64>,
    /// All objects with smaller sequence numbers are excluded, too.
    below: u64,
}

impl Excluded {
    /// Excludes the object with this sequence number. `next`: no object with this number or a larger one was made yet.
    pub fn add(&mut self, seq: u64, next: impl FnOnce() -> u64) {
        if self.one_by_one.len() >= REMEMBERED {
            self.below = next();
            self.one_by_one.clear();
        }
        self.one_by_one.insert(seq);
    }

    /// Is the object excluded? It is about to go, so this forgets it.
    pub fn take(&mut self, seq: u64) -> bool {
        seq < self.below || self.one_by_one.remove(&seq)
    }
}

/// The file of a removed object, as far as [`as_new`] asks about it. Each question may cost a system call.
pub trait RemovedFile {
    /// What its label says, in whatever form.
    type Label;
    /// Why it can't be looked at.
    type Error;

    /// Its attributes now.
    ///
    /// # Errors
    /// It can't be looked at.
    fn attr(&self) -> Result<Attr, Self::Error>;

    /// Has anybody else it open?
    fn is_open(&self) -> bool;

    /// Its label, if its inode is unchanged since the file was made; `ctime` is its change time now ([`Births::take`]).
    fn untouched(&self, ctime: Timestamp) -> Option<Self::Label>;

    /// Has it extended attributes beside its label?
    ///
    /// # Errors
    /// It can't be looked at.
    fn has_other_xattrs(&self) -> Result<bool, Self::Error>;

    /// Has it flags (`chattr`)?
    ///
    /// # Errors
    /// It can't be looked at.
    fn has_flags(&self) -> Result<bool, Self::Error>;

    /// Its label.
    ///
    /// # Errors
    /// It can't be read.
    fn label(&self) -> Result<Option<Self::Label>, Self::Error>;
}

/// Is a removed file as good as new? Then its attributes and its label.
///
/// # Errors
/// It can't be looked at, so it is not.
pub fn as_new<F: RemovedFile>(file: &F) -> Result<Option<(Attr, F::Label)>, F::Error> {
    if !is_empty(&file.attr()?) || file.is_open() {
        return Ok(None);
    }
    // Whoever had it open may have written to it before the last close, after the first look.
    let attr = file.attr()?;
    if !is_empty(&attr) {
        return Ok(None);
    }
    let label = match file.untouched(attr.ctime) {
        Some(label) => Some(label),
        None if file.has_other_xattrs()? || file.has_flags()? => None,
        None => file.label()?,
    };
    Ok(label.map(|label| (attr, label)))
}

fn is_empty(attr: &Attr) -> bool {
    attr.is_file() && attr.nlink == 1 && attr.size == 0 && attr.blocks == 0
}

/// Is this file, which was spare when its bridge died, still unused? Only needed if the tables are lost; else their doom
/// marks say more. After a power loss the register may be out of date, and name a file that is in use again.
pub fn is_still_spare(attr: &Attr) -> bool {
    attr.size == 0 && attr.blocks == 0
}

/// A file as it was when it was made.
#[derive(Debug)]
struct Birth<L> {
    object: ObjectName,
    ctime: Timestamp,
    label: L,
}

/// The files made last, as they were then. As long as the change time of one is the same, nothing was done to its inode.
#[derive(Debug)]
pub struct Births<L> {
    files: Vec<Option<Birth<L>>>,
    fine_times: bool,
}

impl<L> Births<L> {
    /// None yet. `fine_times`: each change after a look gives an inode another change time. Without that, the change time
    /// proves nothing.
    pub fn new(fine_times: bool) -> Self {
        Births {
            files: (0..BIRTHS).map(|_| None).collect(),
            fine_times,
        }
    }

    fn place(&mut self, count: u64) -> &mut Option<Birth<L>> {
        &mut self.files[count as usize % BIRTHS]
    }

    /// Notes an empty file that was just made, with its change time after that. `count`: as many objects were made before.
    pub fn note(&mut self, count: u64, object: ObjectName, ctime: Timestamp, label: L) {
        *self.place(count) = Some(Birth {
            object,
            ctime,
            label,
        });
    }

    /// The label of a file whose inode is unchanged since it was made. It is forgotten.
    pub fn take(&mut self, count: u64, object: ObjectName, ctime: Timestamp) -> Option<L> {
        let birth = self.place(count).take_if(|birth| birth.object == object)?;
        (self.fine_times && birth.ctime == ctime).then_some(birth.label)
    }
}

/// A place in the register, from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(usize);

impl Slot {
    /// Its number.
    pub fn number(self) -> usize {
        self.0
    }
}

/// A spare file. `F` is what the driver knows of it.
#[derive(Debug)]
pub struct Spare<F> {
    /// The removed object.
    pub object: ObjectName,
    /// Where the register names it.
    pub slot: Slot,
    /// What the driver knows of it.
    pub file: F,
}

/// What a new file finds.
#[derive(Debug)]
pub enum TakenSpare<F> {
    /// This file becomes it. The register names it until the commit that gives it a name.
    Again(Spare<F>),
    /// The last sync point may know this file by now. It can't be used again, and is unlinked after the next sync point.
    Known(Spare<F>),
}

/// All spare files, and the slots of the register.
///
/// A slot is [reserved](Spares::reserve) before a file is looked at. The file is [kept](Spares::keep), or the slot is
/// [released](Spares::release). When the file is taken its slot goes with it, and is released when the file has a name
/// again, is gone, or waits for a sync point like any other removed file.
#[derive(Debug)]
pub struct Spares<F> {
    files: Vec<Spare<F>>,
    free: Vec<Slot>,
}

impl<F> Spares<F> {
    /// None yet. The register has this many slots; without any no file is kept.
    pub fn new(slots: usize) -> Self {
        Spares {
            files: Vec::new(),
            free: (0..slots).map(Slot).collect(),
        }
    }

    /// A slot for a file that may become spare; `None`: there are enough spare files.
    pub fn reserve(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    /// Keeps a file. The register names it in this slot.
    pub fn keep(&mut self, object: ObjectName, slot: Slot, file: F) {
        debug_assert!(!self.free.contains(&slot), "{slot:?} was not reserved");
        debug_assert!(
            self.files.iter().all(|s| s.slot != slot),
            "{slot:?} has two files"
        );
        debug_assert!(
            self.files.iter().all(|s| s.object != object),
            "{object} is spare already"
        );
        self.files.push(Spare { object, slot, file });
    }

    /// Frees a slot, which the register has cleared.
    pub fn release(&mut self, slot: Slot) {
        debug_assert!(!self.free.contains(&slot), "{slot:?} is free already");
        debug_assert!(
            self.files.iter().all(|s| s.slot != slot),
            "{slot:?} names a spare file"
        );
        self.free.push(slot);
    }

    /// The file for a new one: one of the files removed last that `has_label`, if there is one; else the very last. The label
    /// is the same when a program removes a file and makes it again. A file that is not `of_user`, the one who makes the new one, is
    /// left for its own user: who made it may have a descriptor that only names it (`O_PATH`), which no lease shows, and could open
    /// by that what another user writes into it. `may_know` is asked for its sequence number, as [`StorageOrder::may_know`].
    pub fn take(
        &mut self,
        of_user: impl Fn(&F) -> bool,
        has_label: impl Fn(&F) -> bool,
        may_know: impl Fn(u64) -> bool,
    ) -> Option<TakenSpare<F>> {
        let from = self.files.len().saturating_sub(SEARCHED);
        let searched = self.files[from..].iter();
        let same = { searched }.rposition(|s| of_user(&s.file) && has_label(&s.file));
        let last = || self.files.iter().rposition(|s| of_user(&s.file));
        let place = same.map(|n| from + n).or_else(last)?;
        let spare = self.files.swap_remove(place);
        Some(match may_know(spare.object.oid.seq()) {
            true => TakenSpare::Known(spare),
            false => TakenSpare::Again(spare),
        })
    }

    /// A sync point begins: the files that go after it. Their names came and went within one sync point, or their files do
    /// not serve any more.
    pub fn take_for_sync_point(&mut self, storage: StorageOrder) -> Vec<Spare<F>> {
        match storage {
            StorageOrder::Volatile => Vec::new(),
            StorageOrder::Ordered | StorageOrder::Unordered => self.take_all(),
        }
    }

    /// No file is spare any more.
    pub fn take_all(&mut self) -> Vec<Spare<F>> {
        std::mem::take(&mut self.files)
    }

    /// Is no file spare?
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BridgeId, ObjectId};
    use std::cell::Cell;

    const EPOCH: u32 = 3;

    fn object(seq: u64) -> ObjectName {
        ObjectName {
            oid: ObjectId::new(BridgeId(1), EPOCH, seq),
            link: 0,
        }
    }

    fn removed(seq: u64) -> RemovedObject {
        RemovedObject {
            object: object(seq),
            is_plain: true,
            is_known: false,
        }
    }

    #[test]
    fn only_a_plain_file_of_this_life_with_its_first_name_may_be_used_again() {
        let may = |removed: RemovedObject| removed.may_be_reused(EPOCH, || false);
        assert!(may(removed(8)));
        let mut link = removed(8);
        link.object.link = 1;
        let mut earlier = removed(8);
        earlier.object.oid = ObjectId::new(BridgeId(1), EPOCH - 1, 8);
        let node = RemovedObject {
            is_plain: false,
            ..removed(8)
        };
        let known = RemovedObject {
            is_known: true,
            ..removed(8)
        };
        for other in [link, earlier, node, known] {
            assert!(!may(other), "{other:?}");
            let asked = || panic!("{other:?} needs no look at what is excluded");
            assert!(!other.may_be_reused(EPOCH, asked));
        }
        assert!(!removed(8).may_be_reused(EPOCH, || true));
    }

    #[test]
    fn what_was_excluded_stays_so_when_there_is_no_more_room_to_remember_it() {
        let mut excluded = Excluded::default();
        excluded.add(4, || panic!("there is room"));
        assert!(!excluded.take(8));
        assert!(excluded.take(4));
        let full = REMEMBERED as u64;
        (0..full).for_each(|seq| excluded.add(seq, || panic!("there is room")));
        // It makes room, and excludes all that was made before.
        excluded.add(full + 7, || full + 20);
        assert!(excluded.one_by_one.len() < 2);
        for seq in [0, full - 1, full, full + 7, full + 19] {
            assert!(excluded.take(seq), "{seq}");
        }
        assert!(!excluded.take(full + 20));
        excluded.add(full + 24, || panic!("there is room"));
        assert!(excluded.take(full + 24));
    }

    /// A file, and what was asked about it.
    struct Looked {
        attr: Attr,
        /// Somebody who has it open writes so many bytes and closes it, just before it is asked who has it open.
        written_last: u64,
        is_open: bool,
        untouched: Option<&'static str>,
        has_other_xattrs: bool,
        has_flags: bool,
        label: Result<Option<&'static str>, i32>,
        asked: Cell<u32>,
    }

    impl Looked {
        fn as_new() -> Looked {
            Looked {
                attr: Attr {
                    mode: libc::S_IFREG | 0o644,
                    nlink: 1,
                    ..Attr::default()
                },
                written_last: 0,
                is_open: false,
                untouched: None,
                has_other_xattrs: false,
                has_flags: false,
                label: Ok(Some("read")),
                asked: Cell::new(0),
            }
        }

        fn is_asked<T>(&self, answer: T) -> T {
            self.asked.set(self.asked.get() + 1);
            answer
        }
    }

    impl RemovedFile for Looked {
        type Label = &'static str;
        type Error = i32;

        fn attr(&self) -> Result<Attr, i32> {
            let size = match self.asked.get() {
                0 => self.attr.size,
                _ => self.attr.size + self.written_last,
            };
            self.is_asked(Ok(Attr { size, ..self.attr }))
        }

        fn is_open(&self) -> bool {
            self.is_asked(self.is_open)
        }

        fn untouched(&self, _: Timestamp) -> Option<&'static str> {
            self.untouched
        }

        fn has_other_xattrs(&self) -> Result<bool, i32> {
            self.is_asked(Ok(self.has_other_xattrs))
        }

        fn has_flags(&self) -> Result<bool, i32> {
            self.is_asked(Ok(self.has_flags))
        }

        fn label(&self) -> Result<Option<&'static str>, i32> {
            self.is_asked(self.label)
        }
    }

    fn verdict(change: impl FnOnce(&mut Looked)) -> Result<Option<&'static str>, i32> {
        let mut file = Looked::as_new();
        change(&mut file);
        as_new(&file).map(|found| found.map(|(_, label)| label))
    }

    #[test]
    fn a_file_that_a_new_one_could_be_told_from_is_not_as_good_as_new() {
        assert_eq!(verdict(|_| {}), Ok(Some("read")));
        let differences: [fn(&mut Looked); 9] = [
            |f| f.attr.size = 1,
            // It was written and cut off, or allocated.
            |f| f.attr.blocks = 8,
            |f| f.attr.nlink = 2,
            |f| f.attr.nlink = 0,
            |f| f.attr.mode = libc::S_IFIFO | 0o644,
            |f| f.is_open = true,
            |f| f.has_other_xattrs = true,
            |f| f.has_flags = true,
            |f| f.label = Ok(None),
        ];
        for (n, difference) in differences.into_iter().enumerate() {
            assert_eq!(verdict(difference), Ok(None), "difference {n}");
        }
        assert_eq!(verdict(|f| f.label = Err(libc::EIO)), Err(libc::EIO));
    }

    #[test]
    fn what_was_written_until_the_last_close_is_seen() {
        for untouched in [None, Some("noted")] {
            let written = verdict(|f| (f.written_last, f.untouched) = (1, untouched));
            assert_eq!(written, Ok(None));
        }
    }

    #[test]
    fn a_file_that_nothing_was_done_to_is_asked_no_more_than_that() {
        let file = Looked {
            untouched: Some("noted"),
            has_other_xattrs: true,
            ..Looked::as_new()
        };
        let found = as_new(&file).unwrap().map(|(_, label)| label);
        assert_eq!(found, Some("noted"));
        let file_with_data = Looked {
            attr: Attr {
                size: 1,
                ..Looked::as_new().attr
            },
            ..Looked::as_new()
        };
        assert_eq!(as_new(&file_with_data), Ok(None));
        assert_eq!(file_with_data.asked.get(), 1, "only its attributes");
    }

    #[test]
    fn only_a_fine_change_time_that_is_the_same_shows_that_nothing_was_done() {
        let at = |nsec| Timestamp { sec: 1, nsec };
        for fine in [true, false] {
            let mut births = Births::new(fine);
            births.note(5, object(20), at(7), "label");
            // Another object has its place.
            assert_eq!(births.take(5, object(24), at(7)), None);
            let found = births.take(5, object(20), at(7));
            assert_eq!(found, fine.then_some("label"));
            assert_eq!(births.take(5, object(20), at(7)), None, "it is forgotten");
            births.note(5, object(20), at(7), "label");
            assert_eq!(births.take(5, object(20), at(8)), None);
            assert_eq!(births.take(5, object(20), at(7)), None, "it was changed");
            births.note(5, object(20), at(7), "label");
            births.note(5 + BIRTHS as u64, object(4116), at(9), "younger");
            assert_eq!(births.take(5, object(20), at(7)), None);
        }
    }

    /// Spare files with these labels; their objects count from 1.
    fn spares(labels: &[&'static str]) -> Spares<&'static str> {
        let mut spares = Spares::new(MOST_SPARES);
        for (n, label) in labels.iter().enumerate() {
            let slot = spares.reserve().unwrap();
            spares.keep(object(n as u64 + 1), slot, *label);
        }
        spares
    }

    fn again(taken: Option<TakenSpare<&'static str>>) -> Option<u64> {
        match taken? {
            TakenSpare::Again(spare) => Some(spare.object.oid.seq()),
            TakenSpare::Known(spare) => panic!("{spare:?} is not known"),
        }
    }

    #[test]
    fn a_new_file_takes_one_with_its_label_else_the_one_removed_last() {
        let mut spares = spares(&["a", "b", "a", "c", "d"]);
        let mut take = |label: &str| again(spares.take(|_| true, |l| *l == label, |_| false));
        assert_eq!(take("a"), Some(3), "the last of those with the label");
        assert_eq!(take("x"), Some(4), "the last one has the free place now");
        assert_eq!(take("b"), Some(2));
        assert_eq!(take("a"), Some(1));
        assert_eq!(take("x"), Some(5));
        assert_eq!(take("x"), None);
    }

    #[test]
    fn a_file_of_another_user_is_left_for_that_user() {
        let mut spares = spares(&["a of 1", "a of 2", "b of 2"]);
        let mut take = |user: &str, label: &str| {
            let of_user = |file: &&str| file.ends_with(user);
            again(spares.take(of_user, |file| file.starts_with(label), |_| false))
        };
        assert_eq!(
            take("1", "b"),
            Some(1),
            "not that of 2, which has the label"
        );
        assert_eq!(take("1", "a"), None);
        assert_eq!(take("2", "a"), Some(2));
    }

    #[test]
    fn only_the_last_few_are_searched_for_a_label() {
        let mut labels = vec!["old"];
        labels.resize(SEARCHED + 1, "other");
        let mut beyond = spares(&labels);
        let last = labels.len() as u64;
        assert_eq!(
            again(beyond.take(|_| true, |l| *l == "old", |_| false)),
            Some(last)
        );
        let mut within = spares(&labels[..SEARCHED]);
        assert_eq!(
            again(within.take(|_| true, |l| *l == "old", |_| false)),
            Some(1)
        );
    }

    #[test]
    fn a_spare_file_that_the_last_sync_point_may_know_is_not_taken() {
        let mut spares = spares(&["a", "a"]);
        let taken = spares.take(|_| true, |_| true, |seq| seq < 3);
        assert!(matches!(taken, Some(TakenSpare::Known(s)) if s.object == object(2)));
        let taken = spares.take(|_| true, |_| true, |seq| seq < 1);
        assert!(matches!(taken, Some(TakenSpare::Again(s)) if s.object == object(1)));
    }

    #[test]
    fn a_sync_point_takes_the_spare_files_unless_nothing_outlives_a_power_loss() {
        for storage in [StorageOrder::Ordered, StorageOrder::Unordered] {
            let mut spares = spares(&["a", "b"]);
            assert_eq!(spares.take_for_sync_point(storage).len(), 2);
            assert!(spares.is_empty());
        }
        let mut spares = spares(&["a", "b"]);
        assert!(
            spares
                .take_for_sync_point(StorageOrder::Volatile)
                .is_empty()
        );
        assert!(!spares.is_empty());
    }

    #[test]
    fn a_slot_is_free_again_only_when_it_is_released() {
        let mut spares = Spares::new(2);
        let (one, two) = (spares.reserve().unwrap(), spares.reserve().unwrap());
        assert_ne!(one, two);
        assert_eq!(spares.reserve(), None);
        // The first file is not as good as new.
        spares.release(one);
        spares.keep(object(4), two, "kept");
        assert_eq!(spares.reserve(), Some(one));
        assert_eq!(spares.reserve(), None, "it is named in the register");
        let Some(TakenSpare::Again(spare)) = spares.take(|_| true, |_| false, |_| false) else {
            panic!("it is taken");
        };
        assert_eq!(spare.slot, two);
        assert_eq!(spares.reserve(), None, "it has no name yet");
        spares.release(two);
        assert_eq!(spares.reserve(), Some(two));
        assert_eq!(Spares::<()>::new(0).reserve(), None);
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn a_slot_is_not_released_twice() {
        let mut spares = Spares::<()>::new(1);
        let slot = spares.reserve().unwrap();
        spares.release(slot);
        spares.release(slot);
    }

    #[test]
    #[should_panic(expected = "names a spare file")]
    fn the_slot_of_a_spare_file_is_not_released() {
        let mut spares = Spares::new(1);
        let slot = spares.reserve().unwrap();
        spares.keep(object(4), slot, ());
        spares.release(slot);
    }
}
