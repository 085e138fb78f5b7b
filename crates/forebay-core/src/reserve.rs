//! How much room a bridge keeps back on its disk, and who may spend which part of it.
//!
//! The room is in two parts. The first one lets a bridge go on when the disk is full. Programs can fill it, because they
//! write to files that are open without asking a bridge. So the last part is only for what brings data away. A bridge that
//! serves programs never gives it up, and a full storage can be drained.

/// Files and bytes on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    /// Bytes.
    pub bytes: u64,
    /// Files that can still be made.
    pub names: u64,
}

impl Room {
    fn and(self, other: Room) -> Room {
        Room {
            bytes: self.bytes.saturating_add(other.bytes),
            names: self.names.saturating_add(other.names),
        }
    }

    fn has(self, other: Room) -> bool {
        self.bytes >= other.bytes && self.names >= other.names
    }
}

/// What a bridge needs room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It serves programs.
    Serve,
    /// It brings data away, or ends: a drain, a check, the end of a run.
    BringAway,
    /// It ends and leaves nothing behind: nobody will have to bring anything away.
    EndEmpty,
}

/// Rooms of the two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts {
    /// The part that any bridge may spend.
    pub first: Room,
    /// The part that [`Purpose::Serve`] may not spend.
    pub last: Room,
}

/// Both parts: several memory tables and logs of RocksDB, and what a bridge makes when it starts and ends.
const RESERVE: Room = Room {
    bytes: 48 << 20,
    names: 64,
};
/// At most this part of the disk.
const PART_OF_DISK: u64 = 4;
/// The last part is this part of the reserve.
const LAST_PART: u64 = 3;

impl Parts {
    /// What is to be kept back on a disk of this size.
    pub fn of_disk(disk: Room) -> Parts {
        let all = Room {
            bytes: RESERVE.bytes.min(disk.bytes / PART_OF_DISK),
            names: RESERVE.names.min(disk.names / PART_OF_DISK),
        };
        let last = Room {
            bytes: all.bytes / LAST_PART,
            names: all.names / LAST_PART,
        };
        let first = Room {
            bytes: all.bytes - last.bytes,
            names: all.names - last.names,
        };
        Parts { first, last }
    }

    fn sum(self) -> Room {
        self.first.and(self.last)
    }
}

/// What becomes of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// It is held; what is missing is taken.
    Hold,
    /// It stays as it is.
    Leave,
    /// It is given up.
    GiveUp,
}

/// What becomes of both parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepings {
    /// Of the first one.
    pub first: Keeping,
    /// Of the last one.
    pub last: Keeping,
}

/// What becomes of the parts when `free` is free beside what is `held`. A part is taken only if as much again stays free:
/// RocksDB sets room aside when it opens, and a bridge that starts on the reserve alone would use it up.
pub fn keep(free: Room, held: Parts, parts: Parts, purpose: Purpose) -> Keepings {
    let all = free.and(held.sum());
    let has_twice = |room: Room| all.has(room.and(room));
    if has_twice(parts.sum()) {
        return Keepings {
            first: Keeping::Hold,
            last: Keeping::Hold,
        };
    }
    match has_twice(parts.last) {
        true => Keepings {
            first: Keeping::GiveUp,
            last: Keeping::Hold,
        },
        false => spend(purpose),
    }
}

/// What becomes of the parts when a write of the tables has found no room.
pub fn spend(purpose: Purpose) -> Keepings {
    Keepings {
        first: Keeping::GiveUp,
        last: match purpose {
            Purpose::Serve => Keeping::Leave,
            Purpose::BringAway | Purpose::EndEmpty => Keeping::GiveUp,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Keeping::{GiveUp, Hold, Leave};
    use Purpose::{BringAway, Serve};

    const NOTHING: Room = Room { bytes: 0, names: 0 };

    fn room(bytes: u64, names: u64) -> Room {
        Room { bytes, names }
    }

    fn parts() -> Parts {
        Parts {
            first: room(200, 20),
            last: room(100, 10),
        }
    }

    fn of(free: Room, held: Parts, purpose: Purpose) -> (Keeping, Keeping) {
        let both = keep(free, held, parts(), purpose);
        (both.first, both.last)
    }

    #[test]
    fn the_reserve_is_kept_only_where_as_much_stays_free_beside_it() {
        for purpose in [Serve, BringAway] {
            let nothing = Parts::default();
            assert_eq!(of(room(600, 60), nothing, purpose), (Hold, Hold));
            assert_eq!(of(room(300, 30), parts(), purpose), (Hold, Hold));
            assert_eq!(of(room(299, 30), parts(), purpose), (GiveUp, Hold));
            assert_eq!(of(room(300, 29), parts(), purpose), (GiveUp, Hold));
        }
        // A file system that does not count files.
        let uncounted = Parts::of_disk(room(1 << 30, 0));
        assert_eq!(uncounted.sum().names, 0);
        let both = keep(room(1 << 30, 0), Parts::default(), uncounted, Serve);
        assert_eq!((both.first, both.last), (Hold, Hold));
    }

    #[test]
    fn on_a_full_disk_the_last_part_is_spent_by_what_brings_data_away_alone() {
        let last = Parts {
            first: NOTHING,
            last: parts().last,
        };
        assert_eq!(of(NOTHING, last, Serve), (GiveUp, Leave));
        assert_eq!(of(NOTHING, last, BringAway), (GiveUp, GiveUp));
        assert_eq!(spend(Serve).last, Leave);
        assert_eq!(spend(BringAway).last, GiveUp);
    }

    #[test]
    fn the_last_part_is_a_third_and_both_are_at_most_a_quarter_of_the_disk() {
        let large = Parts::of_disk(room(1 << 40, 1 << 20));
        assert_eq!(large.last, room(16 << 20, 21));
        assert_eq!(large.first, room(32 << 20, 43));
        let small = Parts::of_disk(room(120 << 20, 120));
        assert_eq!(small.sum(), room(30 << 20, 30));
        assert_eq!(small.last, room(10 << 20, 10));
    }

    #[test]
    fn a_bridge_that_serves_never_gives_the_last_part_up() {
        for free in (0..=700).step_by(50) {
            for (first, last) in [(0, 0), (0, 100), (200, 0), (200, 100), (300, 0), (50, 50)] {
                let held = Parts {
                    first: room(first, 20),
                    last: room(last, 10),
                };
                assert_ne!(of(room(free, 0), held, Serve).1, GiveUp, "{free} {held:?}");
            }
        }
    }
}
