//! What a power loss leaves of local storage, and what follows for removed files.
//!
//! The names of the buffer become durable at *sync points*. What the storage itself does to its files becomes durable on its
//! own, whenever the kernel likes. So nothing may be done to a file that a later sync point has to allow: a file whose name
//! the last sync point tells is unlinked after the next one.

use crate::bridge::Mutation;
use crate::markers::Unmade;
use crate::pfs_kind::IN_MEMORY;
use std::time::Duration;

/// A commit becomes durable so soon, even if nobody asks for it. The sync point itself takes time as well, and together they
/// are to stay below a second.
pub const LONGEST_UNSYNCED: Duration = Duration::from_millis(500);

/// Markers of removals are made so long after the first that waits: the tables tell what they do, and many are gone before.
pub const MARKERS_WAIT: Duration = Duration::from_secs(5);

/// What a file system makes of changes when the power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageOrder {
    /// Nothing is left of it. There is nothing to wait for.
    Volatile,
    /// Whatever was synced is there, and with it all changes of names and sizes that were made before.
    Ordered,
    /// What was synced is there. Of other changes nothing is known, so a sync point syncs the whole file system.
    Unordered,
}

/// A part of a sync point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncStep {
    /// The contents of objects that the bridge itself has written, and no program has synced.
    OwnContents,
    /// All of the storage, since it keeps no order.
    Storage,
    /// The directories of the PFS in which the bridge has changed names.
    PfsNames,
    /// The names. From here on a power loss leaves this sync point.
    Names,
}

/// By `statfs.f_type`. ext4 is taken to have its journal.
const ORDERED: [i64; 2] = [
    0xef53,      // ext4
    0x5846_5342, // XFS
];

impl StorageOrder {
    /// The storage on a file system of this type.
    pub fn on(fs_type: i64) -> Self {
        match fs_type {
            t if IN_MEMORY.contains(&t) => StorageOrder::Volatile,
            t if ORDERED.contains(&t) => StorageOrder::Ordered,
            _ => StorageOrder::Unordered,
        }
    }

    /// What becomes durable at a sync point, in this order. Names come last, because they rely on all the rest. The caller takes
    /// the commits and removals that belong to the sync point *before* the first step. After the last it answers those who wait
    /// for it, and unlinks the removed files.
    pub fn sync_point(self, planted: Option<Mutation>) -> &'static [SyncStep] {
        use SyncStep::{Names, OwnContents, PfsNames, Storage as Everything};
        if Mutation::NamesAreWrittenBeforeContents.is(planted) {
            return &[PfsNames, Names, Everything];
        }
        match self {
            _ if Mutation::PfsNamesAreNotSynced.is(planted) => &[Everything, Names],
            StorageOrder::Volatile => &[Names],
            StorageOrder::Ordered => &[OwnContents, PfsNames, Names],
            StorageOrder::Unordered => &[Everything, PfsNames, Names],
        }
    }

    /// May the last sync point know a name of this object? Then its file has to stay what it is. `seq` is the number of the
    /// object, `begun` the first number that the last sync point can't know.
    pub fn may_know(self, seq: u64, begun: u64) -> bool {
        self != StorageOrder::Volatile && seq < begun
    }
}

/// When the file of a removed object goes that the last sync point may know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// At once: it has other links, by which a recovery finds it, and programs see their number.
    AtOnce,
    /// After the next sync point.
    Later,
    /// After a sync point that the removal waits for: somebody has it open, and would see that it is still there.
    Now,
}

impl Removal {
    /// `is_open` is asked only if it matters.
    pub fn of(links: u32, is_open: impl FnOnce() -> bool) -> Self {
        if links > 1 {
            Removal::AtOnce
        } else if is_open() {
            Removal::Now
        } else {
            Removal::Later
        }
    }
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Everything that was committed before is durable.
    Durable,
    /// The contents of all files are durable as well.
    Whole,
    /// Everything that was committed before is written, but not synced. The asker syncs its own file then, which waits for
    /// the same commit of the file system's journal, and looks afterwards whether the names are durable.
    Written,
}

/// When sync points begin, and for whom. Times are since some moment of the driver. `A` is somebody who waits for one.
#[derive(Debug)]
pub struct Syncing<A> {
    longest: Duration,
    askers: Vec<A>,
    early: Vec<A>,
    whole: bool,
    hurries: bool,
    ended: bool,
    /// When it was seen that something is not durable.
    since: Option<Duration>,
    /// When it was seen that removed files may go.
    removed_since: Option<Duration>,
    /// Removed files don't wait.
    unlinks: bool,
    /// When it was seen that markers are to be made.
    unmade_since: Option<Duration>,
    /// Files that may go, and markers.
    put_off: [PutOff; 2],
}

/// Work that waits as long as somebody waits for a sync point.
#[derive(Debug, Clone, Copy, Default)]
struct PutOff {
    since: Option<Duration>,
    /// Since the last sync point.
    had_turn: bool,
}

/// What is to be done beside the sync points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    /// Everything that is committed is durable.
    pub is_durable: bool,
    /// Files of removed objects may go.
    pub has_removed: bool,
    /// Markers.
    pub unmade: Unmade,
}

/// What comes next. One thing at a time.
#[derive(Debug, PartialEq, Eq)]
pub enum SyncRound<A> {
    /// A sync point for these.
    Sync {
        /// Who waits for it.
        askers: Vec<A>,
        /// Who waits until it is written ([`Wish::Written`]).
        early: Vec<A>,
        /// The contents of all files are to be durable before.
        whole: bool,
    },
    /// Some of the files that no sync point needs any more are unlinked.
    Unlink,
    /// Some of the markers that are due are made. If none is, all that wait become so.
    Mark,
    /// Nothing, before this time comes or something changes; `None`: before something changes.
    Wait(Option<Duration>),
    /// Nothing will come.
    End,
}

impl<A> Syncing<A> {
    /// Nobody waits. A commit is to become durable after `longest` if nobody asks for it.
    pub fn new(longest: Duration) -> Self {
        Syncing {
            longest,
            askers: Vec::new(),
            early: Vec::new(),
            whole: false,
            hurries: false,
            ended: false,
            since: None,
            removed_since: None,
            unlinks: false,
            unmade_since: None,
            put_off: [PutOff::default(); 2],
        }
    }

    /// Somebody waits.
    pub fn ask(&mut self, asker: A, wish: Wish) {
        match wish {
            Wish::Written => self.early.push(asker),
            Wish::Durable | Wish::Whole => self.askers.push(asker),
        }
        self.whole |= wish == Wish::Whole;
    }

    /// There should be a sync point soon, although nobody waits for it, and removed files should go after it.
    pub fn hurry(&mut self) {
        self.hurries = true;
    }

    /// It ends when all that wait are answered.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// What comes next. Files of removed objects go together after a while, since between two syncs of a program they would
    /// make the file system write once more.
    pub fn next(&mut self, now: Duration, beside: Beside) -> SyncRound<A> {
        let Beside {
            is_durable,
            has_removed,
            unmade,
        } = beside;
        let marks_at = match unmade {
            Unmade::New => Some(*self.unmade_since.get_or_insert(now) + MARKERS_WAIT),
            Unmade::None | Unmade::Due => {
                self.unmade_since = None;
                (unmade == Unmade::Due).then_some(now)
            }
        };
        let unlinks_at = match has_removed {
            true => Some(*self.removed_since.get_or_insert(now) + self.longest),
            false => {
                self.removed_since = None;
                self.unlinks &= self.hurries;
                None
            }
        };
        // Somebody may wait always: what has waited too long gets a turn after each sync point.
        let put_off = [
            (has_removed, 2 * self.longest, SyncRound::Unlink),
            (unmade != Unmade::None, 2 * MARKERS_WAIT, SyncRound::Mark),
        ];
        for ((waits, longest, round), put_off) in put_off.into_iter().zip(&mut self.put_off) {
            match waits {
                true if now >= *put_off.since.get_or_insert(now) + longest
                    && !std::mem::replace(&mut put_off.had_turn, true)
                    && !self.ended =>
                {
                    return round;
                }
                true => {}
                false => put_off.since = None,
            }
        }
        if self.askers.is_empty() && self.early.is_empty() {
            if self.ended {
                return SyncRound::End;
            }
            if !self.hurries {
                if unlinks_at.is_some_and(|at| self.unlinks || at <= now) {
                    return SyncRound::Unlink;
                }
                let syncs_at = match is_durable {
                    true => {
                        self.since = None;
                        None
                    }
                    false => Some(*self.since.get_or_insert(now) + self.longest),
                };
                if syncs_at.is_none_or(|at| now < at) {
                    if marks_at.is_some_and(|at| at <= now) {
                        // What comes now, or can't be made, waits as long again.
                        self.unmade_since = None;
                        return SyncRound::Mark;
                    }
                    let times = [syncs_at, unlinks_at, marks_at];
                    return SyncRound::Wait(times.into_iter().flatten().min());
                }
            }
        }
        self.since = None;
        self.unlinks |= std::mem::take(&mut self.hurries);
        for put_off in &mut self.put_off {
            put_off.had_turn = false;
        }
        SyncRound::Sync {
            askers: std::mem::take(&mut self.askers),
            early: std::mem::take(&mut self.early),
            whole: std::mem::take(&mut self.whole),
        }
    }
}

/// A file system with less free space than this is full, and removed files can't wait.
const LITTLE_SPACE_BYTES: u64 = 64 << 20;
/// Or with less than this part of it.
const LITTLE_SPACE_PART: u64 = 64;

/// Is there so little space that removed files can't wait? Sizes in bytes.
pub fn is_short_of_space(size: u64, free: u64) -> bool {
    free < LITTLE_SPACE_BYTES.min(size / LITTLE_SPACE_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(is_durable: bool, has_removed: bool) -> Beside {
        Beside {
            is_durable,
            has_removed,
            unmade: Unmade::None,
        }
    }

    #[test]
    fn a_file_that_a_sync_point_knows_waits_for_the_next_one() {
        assert!(StorageOrder::on(0xef53).may_know(7, 8));
        assert!(!StorageOrder::on(0xef53).may_know(8, 8));
        assert!(!StorageOrder::on(0x0102_1994).may_know(7, 8));
        assert_eq!(StorageOrder::on(0x9123_683e), StorageOrder::Unordered);
    }

    #[test]
    fn names_become_durable_after_all_that_they_rely_on() {
        for storage in [
            StorageOrder::Volatile,
            StorageOrder::Ordered,
            StorageOrder::Unordered,
        ] {
            let steps = storage.sync_point(None);
            assert_eq!(steps.last(), Some(&SyncStep::Names), "{storage:?}");
            let has_pfs = steps.contains(&SyncStep::PfsNames);
            assert_eq!(has_pfs, storage != StorageOrder::Volatile, "{storage:?}");
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn files_and_markers_get_their_turn_although_somebody_always_waits() {
        let mut syncing = Syncing::new(SECOND);
        let all = Beside {
            unmade: Unmade::New,
            ..beside(true, true)
        };
        let (mut unlinks, mut marks, mut syncs) = (0, 0, 0);
        for tenth in 0..600 {
            syncing.ask(tenth, Wish::Written);
            match syncing.next(SECOND * tenth / 10, all) {
                SyncRound::Unlink => unlinks += 1,
                SyncRound::Mark => marks += 1,
                SyncRound::Sync { .. } => syncs += 1,
                round => panic!("{round:?}"),
            }
        }
        // Of 60 seconds they wait for 2 and 10; then they come in turns.
        assert_eq!(unlinks + marks + syncs, 600);
        assert!(unlinks >= 190 && marks >= 160 && syncs >= 200);
    }

    #[test]
    fn all_who_wait_are_taken_at_once_and_one_who_wants_the_contents_is_enough() {
        let mut syncing = Syncing::new(SECOND);
        syncing.ask(1, Wish::Durable);
        syncing.ask(2, Wish::Whole);
        syncing.ask(3, Wish::Written);
        syncing.ask(4, Wish::Durable);
        let all = SyncRound::Sync {
            askers: vec![1, 2, 4],
            early: vec![3],
            whole: true,
        };
        assert_eq!(syncing.next(Duration::ZERO, beside(true, true)), all);
        syncing.ask(5, Wish::Written);
        let last = SyncRound::Sync {
            askers: Vec::new(),
            early: vec![5],
            whole: false,
        };
        assert_eq!(syncing.next(Duration::ZERO, beside(true, false)), last);
    }

    #[test]
    fn who_waits_when_the_end_comes_is_still_taken() {
        let mut syncing = Syncing::new(SECOND);
        syncing.ask(1, Wish::Durable);
        syncing.end();
        let last = SyncRound::Sync {
            askers: vec![1],
            early: Vec::new(),
            whole: false,
        };
        assert_eq!(syncing.next(Duration::ZERO, beside(true, false)), last);
        assert_eq!(
            syncing.next(Duration::ZERO, beside(true, false)),
            SyncRound::End
        );
    }

    #[test]
    fn a_commit_that_nobody_asks_for_is_synced_after_a_while() {
        let mut syncing: Syncing<()> = Syncing::new(SECOND);
        let sync = SyncRound::Sync {
            askers: Vec::new(),
            early: Vec::new(),
            whole: false,
        };
        let until = SyncRound::Wait(Some(2 * SECOND));
        assert_eq!(syncing.next(SECOND, beside(false, false)), until);
        assert_eq!(syncing.next(SECOND * 3 / 2, beside(false, false)), until);
        assert_eq!(syncing.next(2 * SECOND, beside(false, false)), sync);
        // Later commits have a time of their own.
        assert_eq!(
            syncing.next(5 * SECOND, beside(true, false)),
            SyncRound::Wait(None)
        );
        let until = SyncRound::Wait(Some(7 * SECOND));
        assert_eq!(syncing.next(6 * SECOND, beside(false, false)), until);
        syncing.hurry();
        assert_eq!(syncing.next(6 * SECOND, beside(false, false)), sync);
    }

    #[test]
    fn removed_files_go_together_after_a_while_and_at_once_if_somebody_needs_that() {
        let mut syncing: Syncing<()> = Syncing::new(SECOND);
        let until = SyncRound::Wait(Some(2 * SECOND));
        assert_eq!(syncing.next(SECOND, beside(true, true)), until);
        // What was committed later waits for a time of its own.
        assert_eq!(syncing.next(SECOND * 3 / 2, beside(false, true)), until);
        assert_eq!(
            syncing.next(2 * SECOND, beside(false, true)),
            SyncRound::Unlink
        );
        assert_eq!(
            syncing.next(2 * SECOND, beside(false, true)),
            SyncRound::Unlink
        );
        let until = SyncRound::Wait(Some(SECOND * 5 / 2));
        assert_eq!(syncing.next(2 * SECOND, beside(false, false)), until);
        syncing.hurry();
        let sync = syncing.next(2 * SECOND, beside(false, false));
        assert!(matches!(sync, SyncRound::Sync { .. }), "{sync:?}");
        assert_eq!(
            syncing.next(2 * SECOND, beside(true, true)),
            SyncRound::Unlink
        );
        assert_eq!(
            syncing.next(2 * SECOND, beside(true, false)),
            SyncRound::Wait(None)
        );
        let until = SyncRound::Wait(Some(3 * SECOND));
        assert_eq!(syncing.next(2 * SECOND, beside(true, true)), until);
    }

    #[test]
    fn nobody_sees_that_a_removed_file_is_still_there() {
        assert_eq!(Removal::of(2, || true), Removal::AtOnce);
        assert_eq!(Removal::of(1, || true), Removal::Now);
        assert_eq!(Removal::of(1, || false), Removal::Later);
    }

    #[test]
    fn a_small_disk_is_full_later_than_a_large_one() {
        assert!(is_short_of_space(1 << 40, (64 << 20) - 1));
        assert!(!is_short_of_space(1 << 40, 64 << 20));
        assert!(!is_short_of_space(64 << 20, 1 << 20));
        assert!(is_short_of_space(64 << 20, (1 << 20) - 1));
    }

    #[test]
    fn markers_that_can_wait_come_later_and_after_all_that_somebody_waits_for() {
        let mut syncing = Syncing::<()>::new(SECOND);
        let with = |is_durable, unmade| Beside {
            unmade,
            ..beside(is_durable, false)
        };
        let until = SyncRound::Wait(Some(SECOND + MARKERS_WAIT));
        assert_eq!(syncing.next(SECOND, with(true, Unmade::New)), until);
        assert_eq!(syncing.next(2 * SECOND, with(true, Unmade::New)), until);
        let due = SECOND + MARKERS_WAIT;
        assert_eq!(syncing.next(due, with(true, Unmade::New)), SyncRound::Mark);
        assert_eq!(syncing.next(due, with(true, Unmade::Due)), SyncRound::Mark);
        let sync = SyncRound::Wait(Some(due + SECOND));
        assert_eq!(syncing.next(due, with(false, Unmade::None)), sync);
        assert_eq!(syncing.next(due, with(false, Unmade::Due)), SyncRound::Mark);
        syncing.ask((), Wish::Durable);
        let round = syncing.next(due, with(false, Unmade::Due));
        assert!(matches!(round, SyncRound::Sync { .. }), "{round:?}");
        // What comes meanwhile waits as long again, and so does what could not be made.
        let until = SyncRound::Wait(Some(due + MARKERS_WAIT));
        assert_eq!(syncing.next(due, with(true, Unmade::New)), until);
        assert_eq!(
            syncing.next(due, with(true, Unmade::None)),
            SyncRound::Wait(None)
        );
    }
}
