//! A map without a lock, from a library's handle (`MPI_File`, an HDF5 id, a netCDF id) to the record it leads to.
//!
//! A key is searched in a few places after its own, so every operation is short, however many handles have come and
//! gone. Threads may add and remove different handles at the same time. One handle is opened or closed by one thread
//! at a time.

use core::sync::atomic::{AtomicU64, Ordering};

/// Words that go with a handle.
pub const VALUE_WORDS: usize = 4;
/// Places in which a handle can be.
const WINDOW: usize = 64;

const NEVER_USED: u64 = 0;
const FREE: u64 = u64::MAX;
const BUSY: u64 = u64::MAX - 1;

struct Place {
    key: AtomicU64,
    value: [AtomicU64; VALUE_WORDS],
}

/// A map of `N` places; `N` is a power of two. It is full before all places are taken.
pub struct Handles<const N: usize> {
    places: [Place; N],
}

impl<const N: usize> Handles<N> {
    /// An empty map; all bytes are 0.
    pub const fn new() -> Self {
        assert!(N.is_power_of_two() && N >= WINDOW);
        Handles {
            places: [const {
                Place {
                    key: AtomicU64::new(NEVER_USED),
                    value: [const { AtomicU64::new(0) }; VALUE_WORDS],
                }
            }; N],
        }
    }

    /// The places in which `key` can be.
    fn window(&self, key: u64) -> impl Iterator<Item = &Place> {
        let home = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        (0..WINDOW).map(move |step| &self.places[(home + step) & (N - 1)])
    }

    fn find(&self, key: u64) -> Option<&Place> {
        self.window(key)
            .map(|place| (place, place.key.load(Ordering::Acquire)))
            .take_while(|(_, found)| *found != NEVER_USED)
            .find(|(_, found)| *found == key)
            .map(|(place, _)| place)
    }

    /// Sets what `key` leads to. Returns `false` if there is no room, or if the map uses the key itself.
    pub fn insert(&self, key: u64, value: [u64; VALUE_WORDS]) -> bool {
        if matches!(key, NEVER_USED | FREE | BUSY) {
            return false;
        }
        let claim = |place: &&Place| {
            let found = place.key.load(Ordering::Relaxed);
            matches!(found, NEVER_USED | FREE)
                && place
                    .key
                    .compare_exchange(found, BUSY, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        };
        let Some(place) = self.find(key).or_else(|| self.window(key).find(claim)) else {
            return false;
        };
        for (word, value) in place.value.iter().zip(value) {
            word.store(value, Ordering::Relaxed);
        }
        place.key.store(key, Ordering::Release);
        true
    }

    /// What `key` leads to.
    pub fn get(&self, key: u64) -> Option<[u64; VALUE_WORDS]> {
        let place = self.find(key)?;
        Some(core::array::from_fn(|at| {
            place.value[at].load(Ordering::Relaxed)
        }))
    }

    /// Forgets `key` and returns what it led to.
    pub fn remove(&self, key: u64) -> Option<[u64; VALUE_WORDS]> {
        let value = self.get(key)?;
        self.find(key)?.key.store(FREE, Ordering::Release);
        Some(value)
    }

    /// Forgets all keys for which `is_gone` is true, and hands over what they led to.
    pub fn remove_all(
        &self,
        is_gone: impl Fn(u64) -> bool,
        mut removed: impl FnMut([u64; VALUE_WORDS]),
    ) {
        for place in &self.places {
            let key = place.key.load(Ordering::Acquire);
            if !matches!(key, NEVER_USED | FREE | BUSY) && is_gone(key) {
                removed(core::array::from_fn(|at| {
                    place.value[at].load(Ordering::Relaxed)
                }));
                place.key.store(FREE, Ordering::Release);
            }
        }
    }
}

impl<const N: usize> Default for Handles<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_leads_to_what_was_said_last() {
        let handles = Handles::<64>::new();
        assert_eq!(handles.get(7), None);
        assert!(handles.insert(7, [1, 2, 0, 0]));
        assert!(handles.insert(7, [3, 4, 0, 0]));
        assert_eq!(handles.get(7), Some([3, 4, 0, 0]));
        assert_eq!(handles.remove(7), Some([3, 4, 0, 0]));
        assert_eq!(handles.remove(7), None);
    }

    #[test]
    fn handles_come_and_go_without_end() {
        let handles = Handles::<128>::new();
        for round in 0..1_000u64 {
            for key in 1..=60 {
                assert!(handles.insert(round * 60 + key, [key, round, 0, 0]));
            }
            for key in 1..=60 {
                assert_eq!(handles.remove(round * 60 + key), Some([key, round, 0, 0]));
            }
        }
    }

    #[test]
    fn a_full_map_says_so_and_keeps_what_it_has() {
        let handles = Handles::<64>::new();
        for key in 1..=64 {
            assert!(handles.insert(key, [key, 0, 0, 0]));
        }
        assert!(!handles.insert(65, [0; 4]));
        assert!((1..=64).all(|key| handles.get(key) == Some([key, 0, 0, 0])));
    }

    #[test]
    fn keys_of_its_own_are_refused() {
        let handles = Handles::<64>::new();
        for key in [0, u64::MAX, u64::MAX - 1] {
            assert!(!handles.insert(key, [1; 4]));
        }
    }

    #[test]
    fn what_belongs_to_a_file_goes_with_it() {
        let handles = Handles::<64>::new();
        for file in 1..=3u64 {
            for variable in 0..4 {
                assert!(handles.insert(file << 32 | variable, [file, variable, 0, 0]));
            }
        }
        let mut seen = 0;
        handles.remove_all(|key| key >> 32 == 2, |value| seen += value[1]);
        assert_eq!(seen, 6);
        assert_eq!(handles.get(2 << 32 | 1), None);
        assert_eq!(handles.get(3 << 32 | 1), Some([3, 1, 0, 0]));
    }
}
