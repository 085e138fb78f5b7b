//! Lock managers: who may write which granules, and what a client loses when another one asks.
//!
//! Positions are granules of a *space*. A lock protocol on the servers has a space for each server, over the granules
//! that the server holds; a protocol of the whole file has one space. A request is for one granule; how much more is
//! granted is the rule of the protocol.

use forebay_core::collective::{Layout, LockProtocol};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Lustre: with more locks than this in its way a new lock does not grow downwards (`ldlm_extent.c`).
const FEW_LOCKS: usize = 4;
/// Lustre: with more than this a new write lock grows by at most [`GROWN_BYTES`] (`ldlm_extent.c`).
const MANY_LOCKS: usize = 32;
/// Lustre: `LDLM_MAX_GROWN_EXTENT`.
const GROWN_BYTES: u64 = 32 << 20;

/// A lock protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locks {
    /// Extent locks of each server, greedy: the first client gets everything, a later one the part before or after
    /// what the holder asked for (SC'08).
    ServerExtents,
    /// Extent locks of each server by the rules of Lustre: a lock in the way is given up as a whole, and the new one
    /// grows up to other locks and to requests that wait.
    ServerGrown,
    /// Byte-range tokens for the whole file: a later client gets the part before or after the position of the holder
    /// (Schmuck and Haskin, FAST'02).
    Tokens,
    /// One lock for the whole file.
    WholeFile,
    /// None.
    None,
}

impl Locks {
    /// All protocols, with their names in parameter files.
    pub const ALL: [(&'static str, Locks); 5] = [
        ("server-extents", Locks::ServerExtents),
        ("server-grown", Locks::ServerGrown),
        ("tokens", Locks::Tokens),
        ("whole-file", Locks::WholeFile),
        ("none", Locks::None),
    ];

    /// Its name in parameter files.
    pub fn name(self) -> &'static str {
        let of = Locks::ALL.iter().find(|(_, locks)| *locks == self);
        of.map_or("", |(name, _)| name)
    }

    /// What core calls it.
    pub fn protocol(self) -> LockProtocol {
        match self {
            Locks::ServerExtents | Locks::ServerGrown => LockProtocol::ServerSide,
            Locks::Tokens => LockProtocol::ClientToken,
            Locks::WholeFile => LockProtocol::WholeFile,
            Locks::None => LockProtocol::None,
        }
    }

    /// The place of the lock for an offset of the file; `None` without locks.
    fn place(self, layout: Layout, offset: u64) -> Option<Place> {
        let granule = layout.granule_of(offset);
        let (space, unit) = match self {
            Locks::ServerExtents | Locks::ServerGrown => (
                layout.server_of(offset) as usize,
                granule / u64::from(layout.servers),
            ),
            Locks::Tokens => (0, granule),
            Locks::WholeFile => (0, 0),
            Locks::None => return None,
        };
        Some(Place { space, unit })
    }
}

/// A granule of a lock space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) space: usize,
    pub(super) unit: u64,
}

/// What a request comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    /// What the client gets.
    granted: Range<u64>,
    /// Who loses what for it.
    pub(super) lost: Option<(usize, Range<u64>)>,
}

/// A lock that a client holds on a range of units, which begins at its key in [`Space::held`].
#[derive(Debug, Clone, Copy)]
struct Held {
    end: u64,
    client: usize,
    /// What the holder asked for, or where it is, by the protocol.
    anchor: u64,
}

#[derive(Debug, Default)]
struct Space {
    held: BTreeMap<u64, Held>,
    /// Clients with a lock for reading. Readers never take anything from each other, so each has the whole space.
    readers: BTreeSet<usize>,
}

/// All locks of one file. A run only reads or only writes.
#[derive(Debug)]
pub struct LockTable {
    locks: Locks,
    layout: Layout,
    is_read: bool,
    spaces: Vec<Space>,
}

impl LockTable {
    /// Nobody holds a lock.
    pub fn new(locks: Locks, layout: Layout, is_read: bool) -> Self {
        LockTable {
            locks,
            layout,
            is_read,
            spaces: (0..layout.servers).map(|_| Space::default()).collect(),
        }
    }

    /// The place of the lock that an access needs; `None` if it needs none.
    pub(super) fn place(&self, offset: u64) -> Option<Place> {
        self.locks.place(self.layout, offset)
    }

    /// Gives a client the lock that it needs at an offset. Did another client have to give it up?
    pub fn take(&mut self, client: usize, offset: u64) -> bool {
        let Some(place) = self.place(offset) else {
            return false;
        };
        if self.holds(client, place) {
            self.used(place);
            return false;
        }
        let verdict = self.judge(place, std::iter::empty());
        self.grant(client, place, &verdict);
        verdict.lost.is_some()
    }

    /// Does a client hold the lock at a place?
    pub(super) fn holds(&self, client: usize, place: Place) -> bool {
        let space = &self.spaces[place.space];
        match self.is_read {
            true => space.readers.contains(&client),
            false => matches!(space.at(place.unit), Some((_, held)) if held.client == client),
        }
    }

    /// Notes that a client uses a lock that it holds.
    pub(super) fn used(&mut self, place: Place) {
        if self.locks == Locks::Tokens && !self.is_read {
            let held = self.spaces[place.space].held.range_mut(..=place.unit);
            if let Some((_, held)) = held.last() {
                held.anchor = place.unit;
            }
        }
    }

    /// What a request of a client comes to while requests for the units `waiting` wait behind it.
    pub(super) fn judge(&self, place: Place, waiting: impl Iterator<Item = u64>) -> Verdict {
        let (space, unit) = (&self.spaces[place.space], place.unit);
        let free = |granted| Verdict {
            granted,
            lost: None,
        };
        if self.is_read {
            return free(0..u64::MAX);
        }
        let Some((start, holder)) = space.at(unit) else {
            let gap = space.gap(unit);
            return free(match self.locks {
                Locks::ServerGrown => self.grown(space.held.len(), unit, gap, waiting),
                _ => gap,
            });
        };
        let all = start..holder.end;
        let (granted, lost) = match self.locks {
            Locks::ServerGrown => {
                let around = space.gap_without(start, unit);
                let granted = self.grown(space.held.len(), unit, around, waiting);
                (granted, all)
            }
            Locks::WholeFile => (all.clone(), all),
            _ => {
                let part = if unit > holder.anchor {
                    unit..all.end
                } else if unit < holder.anchor {
                    all.start..holder.anchor.min(all.end)
                } else {
                    unit..unit + 1
                };
                (part.clone(), part)
            }
        };
        assert!(
            granted.contains(&unit),
            "a grant without what was asked for"
        );
        Verdict {
            granted,
            lost: Some((holder.client, lost)),
        }
    }

    /// Carries out what a request came to.
    pub(super) fn grant(&mut self, client: usize, place: Place, verdict: &Verdict) {
        let space = &mut self.spaces[place.space];
        if self.is_read {
            space.readers.insert(client);
            return;
        }
        if let Some((_, lost)) = &verdict.lost {
            let (start, holder) = space.at(place.unit).expect("who loses a lock holds it");
            space.held.remove(&start);
            if start < lost.start {
                let end = lost.start;
                space.held.insert(start, Held { end, ..holder });
            }
            if lost.end < holder.end {
                space.held.insert(lost.end, holder);
            }
        }
        let held = Held {
            end: verdict.granted.end,
            client,
            anchor: place.unit,
        };
        let before = space.held.insert(verdict.granted.start, held);
        assert!(before.is_none(), "two locks at one place");
    }

    /// The growth of a new lock by the rules of Lustre: within the gap between other locks, not past the start of a
    /// waiting request, not downwards past a few locks, not far past many.
    fn grown(
        &self,
        locks: usize,
        unit: u64,
        gap: Range<u64>,
        waiting: impl Iterator<Item = u64>,
    ) -> Range<u64> {
        let mut granted = gap;
        for other in waiting {
            if other > unit {
                granted.end = granted.end.min(other);
            } else if other < unit {
                granted.start = granted.start.max(other + 1);
            }
        }
        if locks > FEW_LOCKS {
            granted.start = unit;
        }
        if locks > MANY_LOCKS {
            let most = unit + (GROWN_BYTES / self.layout.granule_bytes).max(1);
            granted.end = granted.end.min(most);
        }
        granted
    }
}

impl Space {
    /// The lock that covers a unit, and where it begins.
    fn at(&self, unit: u64) -> Option<(u64, Held)> {
        let (start, held) = self.held.range(..=unit).next_back()?;
        (held.end > unit).then_some((*start, *held))
    }

    /// The free units around a free unit.
    fn gap(&self, unit: u64) -> Range<u64> {
        let before = self.held.range(..unit).next_back();
        let after = self.held.range(unit..).next();
        before.map_or(0, |(_, held)| held.end)..after.map_or(u64::MAX, |(start, _)| *start)
    }

    /// The units around `unit` that would be free without the lock that begins at `start`.
    fn gap_without(&self, start: u64, unit: u64) -> Range<u64> {
        let before = self.held.range(..start).next_back();
        let after = self.held.range(unit + 1..).next();
        before.map_or(0, |(_, held)| held.end)..after.map_or(u64::MAX, |(start, _)| *start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = u64::MAX;

    fn table(locks: Locks, is_read: bool) -> LockTable {
        LockTable::new(locks, Layout::new(4096, 1), is_read)
    }

    fn at(unit: u64) -> Place {
        Place { space: 0, unit }
    }

    /// One client asks for a unit while others wait for the units `waiting`: the range that it gets, and who loses which range.
    fn ask(
        table: &mut LockTable,
        client: usize,
        unit: u64,
        waiting: &[u64],
    ) -> (Range<u64>, Option<(usize, Range<u64>)>) {
        let verdict = table.judge(at(unit), waiting.iter().copied());
        table.grant(client, at(unit), &verdict);
        assert!(table.holds(client, at(unit)));
        (verdict.granted, verdict.lost)
    }

    #[test]
    fn greedy_extents_go_to_the_later_client_from_what_the_holder_asked_for_to_the_end() {
        let mut t = table(Locks::ServerExtents, false);
        assert_eq!(ask(&mut t, 0, 5, &[]), (0..END, None));
        assert_eq!(ask(&mut t, 1, 9, &[]), (9..END, Some((0, 9..END))));
        assert_eq!(ask(&mut t, 2, 2, &[]), (0..5, Some((0, 0..5))));
        // What the holder asked for itself: only that, and the holder keeps the rest.
        assert_eq!(ask(&mut t, 1, 5, &[]), (5..6, Some((0, 5..6))));
        assert!(t.holds(0, at(6)) && t.holds(0, at(8)) && !t.holds(0, at(9)));
        // Where the holder is meanwhile does not matter.
        t.used(at(8));
        assert_eq!(ask(&mut t, 2, 7, &[]), (7..9, Some((0, 7..9))));
    }

    #[test]
    fn a_token_is_divided_where_its_holder_is() {
        let mut t = table(Locks::Tokens, false);
        assert_eq!(ask(&mut t, 0, 5, &[]), (0..END, None));
        t.used(at(8));
        assert_eq!(ask(&mut t, 1, 7, &[]), (0..8, Some((0, 0..8))));
        assert_eq!(ask(&mut t, 2, 20, &[]), (20..END, Some((0, 20..END))));
        assert!(t.holds(0, at(8)) && t.holds(0, at(19)));
    }

    #[test]
    fn a_lock_of_lustre_goes_as_a_whole_and_grows_up_to_others() {
        let mut t = table(Locks::ServerGrown, false);
        assert_eq!(ask(&mut t, 0, 5, &[]), (0..END, None));
        assert_eq!(ask(&mut t, 1, 9, &[20]), (0..20, Some((0, 0..END))));
        assert_eq!(ask(&mut t, 2, 30, &[]), (20..END, None));
        assert_eq!(ask(&mut t, 3, 12, &[3, 15]), (4..15, Some((1, 0..20))));
        assert!(!t.holds(1, at(17)));
    }

    #[test]
    fn a_lock_of_lustre_grows_less_among_many_others() {
        let mut t = table(Locks::ServerGrown, false);
        for client in 0..33 {
            let unit = 100 * client as u64 + 50;
            let (granted, lost) = ask(&mut t, client, unit, &[100 * (client as u64 + 1)]);
            let start = if client > FEW_LOCKS {
                unit
            } else {
                100 * client as u64
            };
            assert_eq!(
                (granted.start, granted.end),
                (start, 100 * (client as u64 + 1))
            );
            assert_eq!(lost, None);
        }
        let grown = GROWN_BYTES / 4096;
        assert_eq!(ask(&mut t, 99, 9000, &[]), (9000..9000 + grown, None));
    }

    #[test]
    fn one_lock_for_the_file_goes_from_hand_to_hand_and_readers_share_any() {
        let mut t = table(Locks::WholeFile, false);
        let place = t.place(1 << 30).unwrap();
        assert_eq!(place, at(0));
        assert_eq!(ask(&mut t, 0, 0, &[]), (0..END, None));
        assert_eq!(ask(&mut t, 1, 0, &[]), (0..END, Some((0, 0..END))));
        for (_, locks) in Locks::ALL {
            let mut t = table(locks, true);
            assert_eq!(ask(&mut t, 0, 5, &[]).1, None);
            assert_eq!(ask(&mut t, 1, 5, &[]).1, None);
            assert!(t.holds(0, at(7)) && t.holds(1, at(7)));
        }
    }

    #[test]
    fn servers_keep_their_own_locks_and_tokens_are_of_the_file() {
        let layout = Layout::new(4096, 4);
        let place = |locks: Locks| locks.place(layout, 4096 * 11).map(|p| (p.space, p.unit));
        assert_eq!(place(Locks::ServerExtents), Some((3, 2)));
        assert_eq!(place(Locks::ServerGrown), Some((3, 2)));
        assert_eq!(place(Locks::Tokens), Some((0, 11)));
        assert_eq!(place(Locks::WholeFile), Some((0, 0)));
        assert_eq!(place(Locks::None), None);
    }
}
