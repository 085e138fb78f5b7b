//! What a start believes of what the last life has left, and does about it.
//!
//! Three things may be unfinished: names to unlink and labels to write, which have marks in the tables, and objects that were
//! made and never named, which have sequence numbers above the watermark.
//!
//! A power loss leaves the tables of the last sync point, and of each object some state that it has had since. Then any
//! object may be without a name. Whatever may hold what somebody has written goes into quarantine.

use crate::bridge::Mutation;
use crate::drain::{OURS, is_dirty};
use crate::facts::{Attr, Label, LabelParent, Outcome};
use crate::markers::may_be_unmade;
use crate::path::TreePath;
use crate::record::{Kind, ObjectName, PathRecord};
use crate::table::{Change, Mark, TableError, Tables};

const EPOCH: &[u8] = b"server/epoch";
const CLEAN: &[u8] = b"server/clean";
const WATERMARK: &[u8] = b"server/watermark";
const LOSS: &[u8] = b"store/loss";

fn meta(key: &[u8], value: Option<Vec<u8>>) -> Mark {
    Mark::Meta {
        key: key.to_vec(),
        value,
    }
}

fn number<const N: usize>(tables: &dyn Tables, key: &[u8]) -> Result<Option<[u8; N]>, TableError> {
    tables
        .meta(key)?
        .map(|v| <[u8; N]>::try_from(&v[..]).map_err(|_| TableError::damaged("value", key)))
        .transpose()
}

/// Something that was acknowledged once is not in the tables any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// They are those of the last sync point: the machine has lost its power since, or the storage was copied or moved.
    Power,
    /// They are those of some moment after the last sync point: a part of the journal can't be read.
    Torn,
}

impl Loss {
    const TORN: &[u8] = b"torn";

    /// The loss that was noted and not dealt with.
    ///
    /// # Errors
    /// The tables can't be read.
    pub fn of(tables: &dyn Tables) -> Result<Option<Self>, TableError> {
        let noted = tables.meta(LOSS)?;
        Ok(noted.map(|value| match value == Loss::TORN {
            true => Loss::Torn,
            false => Loss::Power,
        }))
    }

    /// The change that notes it.
    pub fn noted(self) -> Change {
        let value = match self {
            Loss::Power => b"power",
            Loss::Torn => Loss::TORN,
        };
        meta(LOSS, Some(value.to_vec())).into()
    }

    /// The change that says that the loss was dealt with.
    pub fn dealt_with() -> Mark {
        meta(LOSS, None)
    }
}

/// What the tables say about the life before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    /// Its epoch, 0 if there was none.
    pub epoch: u32,
    /// It ended in order.
    pub clean: bool,
    /// Something that it acknowledged is not in the tables.
    pub loss: Option<Loss>,
    /// Objects with smaller sequence numbers are named, or gone.
    pub watermark: u64,
}

/// The objects on the disk that may be without a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspects {
    /// None.
    None,
    /// Those with this sequence number and later ones.
    From(u64),
    /// Any: its name may have come or gone since.
    All,
}

/// A part of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The next sync point writes the contents of all suspects out: some may come from the last life of the bridge, which
    /// has not told of which it had not done so.
    DistrustContents,
    /// The next sync point syncs all names of the PFS: the last life has not told which of them it has changed.
    DistrustPfs,
    /// Files get the names again that were removed after the last sync point while they had others ([`lost_names`]). Comes
    /// before the sweep: then a later name of such a file is one of several, and may go.
    LinkWhatIsAhead,
    /// A sync point: the last one may know a name of what the sweep removes. The watermark stays where it is until the
    /// recovery is done, or what it has not judged would never be looked at again.
    SyncPoint,
    /// Removes objects that have a doom mark or no name; relabels those with a relabel mark ([`crate::bridge::Bridge::sweep`]).
    Sweep {
        /// Objects without a name are judged first ([`Stray::fate`]).
        judges: bool,
    },
    /// Objects whose labels tell of a later rename than the tables are labelled anew, and all whose records are at other homes
    /// ([`crate::bridge::Bridge::named_elsewhere`]): these can't be asked now.
    RelabelWhatIsAhead,
    /// Clears `drained` where it cannot be trusted ([`undrained_by_loss`]). If the record is at another home, changes the
    /// file's ctime instead, so that the file looks written.
    DoubtWhatWasDrained,
}

impl Past {
    /// Reads what the tables say about it.
    ///
    /// # Errors
    /// The tables can't be read, or are damaged.
    pub fn of(tables: &dyn Tables) -> Result<Self, TableError> {
        let epoch = number(tables, EPOCH)?.map_or(0, u32::from_le_bytes);
        let clean = epoch == 0 || tables.meta(CLEAN)?.is_some();
        Ok(Past {
            epoch,
            clean,
            // A start takes the sign of a clean end away, durably, before it serves. Where it is nothing came after it.
            loss: Loss::of(tables)?.filter(|_| !clean),
            watermark: number(tables, WATERMARK)?.map_or(0, u64::from_le_bytes),
        })
    }

    /// Have the tables lost what they said? `newest_epoch`: the latest epoch of any object. An epoch is durable in the tables
    /// before its first object is made.
    pub fn is_older_than_objects(&self, newest_epoch: u32) -> bool {
        newest_epoch > self.epoch
    }

    /// The greatest sequence number that is known to have been used, beside those of objects that are there: the watermark, and those of
    /// markers that may not be made yet. `to_label`: the objects of which marks tell.
    pub fn last_number(&self, to_label: &[ObjectName]) -> u64 {
        let marked = to_label.iter().map(|object| object.oid.seq());
        marked.fold(self.watermark, u64::max)
    }

    /// Which objects have to be looked at.
    pub fn suspects(&self) -> Suspects {
        match (self.loss, self.clean) {
            (Some(_), _) => Suspects::All,
            (None, true) => Suspects::None,
            (None, false) => Suspects::From(self.watermark),
        }
    }

    /// What a start does, in this order.
    pub fn steps(&self, planted: Option<Mutation>) -> Vec<Step> {
        let sweep = Step::Sweep {
            judges: self.loss.is_some() && !Mutation::StraysAreRemoved.is(planted),
        };
        let mut steps = vec![
            Step::DistrustContents,
            Step::DistrustPfs,
            Step::LinkWhatIsAhead,
            Step::SyncPoint,
            sweep,
            Step::RelabelWhatIsAhead,
            Step::DoubtWhatWasDrained,
        ];
        steps.retain(|step| match step {
            Step::DistrustContents => {
                !self.clean && !Mutation::KilledCopiesAreForgotten.is(planted)
            }
            Step::DistrustPfs => !self.clean && !Mutation::KilledDrainsAreForgotten.is(planted),
            Step::SyncPoint => !self.clean && !Mutation::SweepsBeforeNamesAreDurable.is(planted),
            Step::Sweep { .. } => true,
            _ if self.loss.is_none() => false,
            Step::LinkWhatIsAhead => !Mutation::LinksAheadAreNotMade.is(planted),
            Step::RelabelWhatIsAhead => !Mutation::LabelsAheadAreKept.is(planted),
            Step::DoubtWhatWasDrained => true,
        });
        steps
    }
}

/// The changes that begin an epoch. Until its end is written down, it counts as broken off.
pub fn begun(epoch: u32) -> [Change; 2] {
    [
        meta(EPOCH, Some(epoch.to_le_bytes().to_vec())).into(),
        meta(CLEAN, None).into(),
    ]
}

/// The marks at the end of an epoch. Everything else is durable before they are. An epoch that leaves objects without names behind
/// (`has_unnamed`: they could not be removed) has not ended in order, or the next start would look at none.
pub fn ended(settled: u64, has_unnamed: bool) -> Vec<Mark> {
    let clean = (!has_unnamed).then(|| meta(CLEAN, Some(Vec::new())));
    [watermark(settled)].into_iter().chain(clean).collect()
}

/// The watermark as a mark.
pub fn watermark(settled: u64) -> Mark {
    meta(WATERMARK, Some(settled.to_le_bytes().to_vec()))
}

/// The marks that end the recovery from this `past`. The watermark goes below all that can't be judged yet
/// ([`crate::bridge::Sweep::undecided`]): the next start has to look at them.
pub fn recovered(past: &Past, undecided: &[ObjectName]) -> Vec<Mark> {
    let first = undecided.iter().map(|object| object.oid.seq()).min();
    let lower = first.filter(|first| *first < past.watermark);
    let mut marks: Vec<_> = lower.map(watermark).into_iter().collect();
    marks.push(Loss::dealt_with());
    marks
}

/// The records of `page` whose objects are not there, each with the other names that its file has. Not removals: their markers are
/// made from the tables. `on_disk` is sorted.
/// Objects whose records are at other homes ([`crate::bridge::Bridge::named_elsewhere`]) have to be looked for as well: by
/// [`lost_name`].
pub fn lost_names<'a>(
    page: &'a [(TreePath, PathRecord)],
    on_disk: &'a [ObjectName],
) -> impl Iterator<Item = (&'a TreePath, ObjectName, &'a [ObjectName])> {
    debug_assert!(on_disk.is_sorted());
    let page = page.iter().filter(|(_, r)| !may_be_unmade(r.kind));
    page.filter_map(|(path, PathRecord { object, .. })| {
        Some((path, *object, lost_name(*object, on_disk)?))
    })
}

/// The other names of the file of this object, if the object itself is not there. `on_disk` is sorted.
pub fn lost_name(object: ObjectName, on_disk: &[ObjectName]) -> Option<&[ObjectName]> {
    let from = on_disk.partition_point(|other| other.oid < object.oid);
    let names = &on_disk[from..];
    let names = &names[..names.partition_point(|other| other.oid == object.oid)];
    names.binary_search(&object).is_err().then_some(names)
}

/// The path that a label tells, as far as its directory is known.
///
/// # Errors
/// The tables can't be read.
pub fn told_path(tables: &dyn Tables, label: &Label) -> Result<TreePath, TableError> {
    let dir = match &label.parent {
        LabelParent::Object(oid) => tables.path_of(ObjectName { oid: *oid, link: 0 })?,
        LabelParent::Lower(path) => Some(path.clone()),
    };
    Ok(dir.unwrap_or_else(TreePath::root).join(&label.name))
}

/// An object that no record names, although records may have been lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stray {
    /// What its label says; `None` if it has none.
    pub kind: Option<Kind>,
    /// Bytes in it.
    pub bytes: u64,
    /// Other names lead to the same file. They are judged on their own.
    pub has_others: bool,
    /// What is in it is on the PFS as well.
    pub is_on_pfs: bool,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes: nothing is lost with it that was ever synced, and nothing that somebody has written.
    Remove,
    /// Somebody may have written what is in it. It is kept, and listed.
    Quarantine,
}

impl Stray {
    /// An object with these attributes and this label. `original` is what the PFS has where the label hides something:
    /// it may have been copied from there, with its time. `is_same`: are the bytes the same? Is asked only if it matters:
    /// bytes that were written since may be on the disk before the time that tells of them.
    pub fn of(
        label: Option<&Label>,
        attr: &Attr,
        original: Option<&Attr>,
        is_same: impl FnOnce() -> bool,
    ) -> Self {
        let is_alike = |o: &Attr| o.is_file() && (o.size, o.mtime) == (attr.size, attr.mtime);
        Stray {
            kind: label.map(|label| label.kind),
            bytes: attr.size,
            has_others: attr.nlink > 1,
            is_on_pfs: original.is_some_and(is_alike) && is_same(),
        }
    }

    /// Judges it. An object gets its label before anybody is given it, and a name before it is synced.
    pub fn fate(self) -> Fate {
        let is_data = self.kind == Some(Kind::File) && self.bytes > 0;
        match is_data && !self.has_others && !self.is_on_pfs {
            true => Fate::Quarantine,
            false => Fate::Remove,
        }
    }
}

/// The record of a file whose mark "drained" is not to be believed after a power loss; `None` if the record stays.
///
/// Contents reach a disk before times do, and `fdatasync` leaves the times behind. So an object that looks as it did when
/// it was drained may hold other bytes. It is drained once more, unless others have changed what is on the PFS: `found`, an
/// error if nobody can tell.
pub fn undrained_by_loss(
    path: &TreePath,
    record: &PathRecord,
    now: &Attr,
    found: Outcome<Option<Attr>>,
) -> Option<PathRecord> {
    let is_as_drained = match found {
        Ok(found) => found.is_some_and(|found| match record.replaces {
            Some(known) => known.is(&found),
            None => (found.size, found.mtime) == (now.size, now.mtime),
        }),
        Err(_) => true,
    };
    let is_doubtful =
        record.kind == Kind::File && !is_dirty(path, record, Some(now)) && is_as_drained;
    is_doubtful.then(|| PathRecord {
        drained: Some(OURS),
        ..record.clone()
    })
}

/// What a start makes of a label that has a relabel mark, or that may be ahead of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelStanding {
    /// It says what its record does.
    Right,
    /// It is to be written now.
    Wrong,
    /// It is that of a marker that is not made yet, and can wait: there may be thousands, and calls wait for a start.
    Unmade,
}

/// What a start sees of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenLabel {
    /// It says what the record does.
    Right,
    /// The object is not there.
    NoObject,
    /// Anything else.
    Other,
}

impl LabelStanding {
    /// Of the object of a record of this kind.
    pub fn of(kind: Kind, seen: SeenLabel) -> Self {
        match seen {
            SeenLabel::Right => LabelStanding::Right,
            SeenLabel::NoObject if may_be_unmade(kind) => LabelStanding::Unmade,
            _ => LabelStanding::Wrong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::stamp;
    use crate::facts::Stop;
    use crate::record::{BridgeId, ObjectId, ObjectName};

    const WRITTEN: Stray = Stray {
        kind: Some(Kind::File),
        bytes: 1,
        has_others: false,
        is_on_pfs: false,
    };

    #[test]
    fn an_epoch_that_leaves_objects_without_names_has_not_ended_in_order() {
        let is_clean = |mark: &Mark| matches!(mark, Mark::Meta { key, .. } if key == CLEAN);
        for has_unnamed in [true, false] {
            let marks = ended(7, has_unnamed);
            assert_eq!(marks[0], watermark(7));
            assert_eq!(marks.iter().any(is_clean), !has_unnamed);
        }
    }

    #[test]
    fn a_start_counts_on_from_markers_that_are_not_made_yet() {
        let past = Past {
            epoch: 1,
            clean: false,
            loss: None,
            watermark: 40,
        };
        let marker = |seq| ObjectName {
            oid: ObjectId::new(BridgeId(1), 1, seq),
            link: 0,
        };
        assert_eq!(past.last_number(&[]), 40);
        assert_eq!(past.last_number(&[marker(96), marker(12)]), 96);
    }

    #[test]
    fn a_stray_file_with_bytes_of_its_own_is_kept() {
        assert_eq!(WRITTEN.fate(), Fate::Quarantine);
        let large = Stray {
            bytes: u64::MAX,
            ..WRITTEN
        };
        assert_eq!(large.fate(), Fate::Quarantine);
    }

    #[test]
    fn a_stray_whose_bytes_are_nowhere_or_also_elsewhere_goes() {
        for stray in [
            Stray {
                bytes: 0,
                ..WRITTEN
            },
            Stray {
                has_others: true,
                ..WRITTEN
            },
            Stray {
                is_on_pfs: true,
                ..WRITTEN
            },
            // A part of a copy that nobody was given.
            Stray {
                kind: None,
                ..WRITTEN
            },
        ] {
            assert_eq!(stray.fate(), Fate::Remove, "{stray:?}");
        }
    }

    #[test]
    fn a_stray_that_only_looks_like_the_file_that_it_was_copied_from_is_kept() {
        let label = Label {
            kind: Kind::File,
            parent: LabelParent::Lower(TreePath::root()),
            name: b"f".to_vec(),
            origin: None,
            hides: Some(path()),
            renamed: None,
        };
        let attr = Attr {
            mode: libc::S_IFREG | 0o644,
            ..drained().1
        };
        let fate = |original: &Attr, is_same| {
            Stray::of(Some(&label), &attr, Some(original), || is_same).fate()
        };
        assert_eq!(fate(&attr, true), Fate::Remove);
        assert_eq!(fate(&attr, false), Fate::Quarantine);
        let mut older = attr;
        older.mtime.sec -= 1;
        assert_eq!(fate(&older, true), Fate::Quarantine);
        // To read a FIFO that somebody has put there could take for ever.
        let fifo = Attr {
            mode: libc::S_IFIFO | 0o644,
            ..attr
        };
        let stray = Stray::of(Some(&label), &attr, Some(&fifo), || panic!("it is read"));
        assert_eq!(stray.fate(), Fate::Quarantine);
    }

    #[test]
    fn of_all_kinds_only_a_file_holds_what_somebody_has_written() {
        let kept: Vec<_> = Kind::ALL
            .into_iter()
            .filter(|&kind| {
                let stray = Stray {
                    kind: Some(kind),
                    ..WRITTEN
                };
                stray.fate() == Fate::Quarantine
            })
            .collect();
        assert_eq!(kept, [Kind::File]);
    }

    #[test]
    fn a_start_looks_at_what_the_last_life_may_have_left() {
        let clean = Past {
            epoch: 1,
            clean: true,
            loss: None,
            watermark: 7,
        };
        let killed = Past {
            clean: false,
            ..clean
        };
        let lost = Past {
            loss: Some(Loss::Torn),
            ..killed
        };
        assert_eq!(clean.suspects(), Suspects::None);
        assert_eq!(killed.suspects(), Suspects::From(7));
        assert_eq!(lost.suspects(), Suspects::All);
        let judges = |past: Past| past.steps(None).contains(&Step::Sweep { judges: true });
        assert!(!judges(clean) && !judges(killed) && judges(lost));
    }

    #[test]
    fn nothing_is_removed_that_the_last_sync_point_may_know() {
        for loss in [None, Some(Loss::Power), Some(Loss::Torn)] {
            let killed = Past {
                epoch: 1,
                clean: false,
                loss,
                watermark: 0,
            };
            let steps = killed.steps(None);
            let at = |wanted: fn(&Step) -> bool| steps.iter().position(wanted).unwrap();
            let sync_point = at(|step| *step == Step::SyncPoint);
            assert!(sync_point < at(|step| matches!(step, Step::Sweep { .. })));
            // It is one like any other, and so it needs to know what it has to sync.
            assert!(at(|step| *step == Step::DistrustContents) < sync_point);
            assert!(at(|step| *step == Step::DistrustPfs) < sync_point);
        }
    }

    #[test]
    fn a_name_that_was_removed_while_its_file_had_others_is_found_with_them() {
        let name = |oid, link| ObjectName {
            oid: crate::record::ObjectId(oid),
            link,
        };
        let (path, record) = (path(), drained().0);
        let named = |object| {
            let record = PathRecord {
                object,
                ..record.clone()
            };
            [(path.clone(), record)]
        };
        let on_disk = [name(1, 0), name(2, 1), name(2, 3), name(4, 0)];
        assert_eq!(lost_names(&named(name(2, 3)), &on_disk).count(), 0);
        let page = named(name(2, 2));
        let lost: Vec<_> = lost_names(&page, &on_disk).collect();
        assert_eq!(lost, [(&path, name(2, 2), &on_disk[1..3])]);
        let page = named(name(3, 0));
        let lost: Vec<_> = lost_names(&page, &on_disk).collect();
        assert_eq!(lost, [(&path, name(3, 0), &on_disk[..0])]);
    }

    fn path() -> TreePath {
        TreePath::new(b"f").unwrap()
    }

    /// A drained file and its attributes.
    fn drained() -> (PathRecord, Attr) {
        let now = Attr {
            size: 4096,
            ..Attr::default()
        };
        let record = PathRecord {
            version: 1,
            drained: Some(stamp(&now)),
            ..PathRecord::new(Kind::File, ObjectName::default(), BridgeId(0))
        };
        (record, now)
    }

    #[test]
    fn after_a_power_loss_what_looks_drained_is_drained_once_more() {
        let (record, now) = drained();
        for found in [Ok(Some(now)), Err(Stop::Errno(5))] {
            let after = undrained_by_loss(&path(), &record, &now, found).unwrap();
            assert!(is_dirty(&path(), &after, Some(&now)), "it is drained again");
            assert!(
                after.drained.is_some(),
                "what is on the PFS is still known as ours"
            );
        }
    }

    #[test]
    fn after_a_power_loss_the_changes_of_others_stay_on_the_pfs() {
        let (record, now) = drained();
        let mut changed = now;
        changed.mtime.sec += 1;
        for found in [None, Some(changed)] {
            assert_eq!(undrained_by_loss(&path(), &record, &now, Ok(found)), None);
        }
    }

    #[test]
    fn only_the_marker_of_a_removal_can_wait() {
        for kind in Kind::ALL {
            let gone = match kind {
                Kind::Whiteout => LabelStanding::Unmade,
                _ => LabelStanding::Wrong,
            };
            assert_eq!(LabelStanding::of(kind, SeenLabel::NoObject), gone);
            assert_eq!(
                LabelStanding::of(kind, SeenLabel::Other),
                LabelStanding::Wrong
            );
            assert_eq!(
                LabelStanding::of(kind, SeenLabel::Right),
                LabelStanding::Right
            );
        }
    }
}
