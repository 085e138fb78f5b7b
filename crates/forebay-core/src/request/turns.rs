//! One copy at a time of each PFS file: sixty processes that open one file for writing need one
//! staged copy, not sixty.

use crate::path::TreePath;
use std::collections::BTreeMap;

/// Whether a request may copy now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// It has the turn, and gives it back with [`Turns::leave`].
    Mine,
    /// Another request has it. The waiter comes out of the `leave` that ends that.
    Waits,
}

/// PFS files that are being copied, each with those who wait for it. `W` is the driver's name for
/// a request.
#[derive(Debug)]
pub struct Turns<W> {
    busy: BTreeMap<TreePath, Vec<W>>,
}

impl<W> Default for Turns<W> {
    fn default() -> Self {
        Turns {
            busy: BTreeMap::new(),
        }
    }
}

impl<W> Turns<W> {
    /// Takes the turn to copy `path`, or lets `waiter` wait for it.
    pub fn enter(&mut self, path: &TreePath, waiter: impl FnOnce() -> W) -> Entered {
        match self.busy.get_mut(path) {
            Some(waiting) => {
                waiting.push(waiter());
                Entered::Waits
            }
            None => {
                self.busy.insert(path.clone(), Vec::new());
                Entered::Mine
            }
        }
    }

    /// The copy has ended, one way or the other: those who waited decide anew.
    ///
    /// # Panics
    /// If nobody has the turn.
    pub fn leave(&mut self, path: &TreePath) -> Vec<W> {
        let waiting = self.busy.remove(path);
        assert!(waiting.is_some(), "a turn that nobody has ends: {path}");
        waiting.unwrap_or_default()
    }

    /// Is no file being copied?
    pub fn is_empty(&self) -> bool {
        self.busy.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_copies_and_all_others_wait_for_its_end() {
        let file = TreePath::new(*b"a/b").unwrap();
        let other = TreePath::new(*b"a/c").unwrap();
        let mut turns = Turns::default();
        assert_eq!(turns.enter(&file, || 1), Entered::Mine);
        assert_eq!(turns.enter(&file, || 2), Entered::Waits);
        assert_eq!(turns.enter(&other, || 3), Entered::Mine);
        assert_eq!(turns.enter(&file, || 4), Entered::Waits);
        assert_eq!(turns.leave(&file), [2, 4]);
        assert_eq!(turns.enter(&file, || 5), Entered::Mine);
        assert!(turns.leave(&file).is_empty());
        assert!(turns.leave(&other).is_empty());
        assert!(turns.is_empty());
    }

    #[test]
    #[should_panic(expected = "a turn that nobody has ends")]
    fn a_turn_ends_once() {
        Turns::<u32>::default().leave(&TreePath::root());
    }
}
