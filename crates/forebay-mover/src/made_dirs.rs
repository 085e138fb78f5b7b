//! The directories that a drain of root has made. They belong to other users in the end, and may be in directories of these, who can rename
//! another one to their place.

use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Directories by their paths, of which a number is kept: trees may be deep.
#[derive(Default)]
pub(crate) struct MadeDirs {
    is_needed: bool,
    numbers: RandomState,
    known: Mutex<HashMap<u64, Identity>>,
}

impl MadeDirs {
    /// Of a drain by this user.
    pub fn of(user: u32) -> Self {
        MadeDirs {
            is_needed: user == 0,
            ..MadeDirs::default()
        }
    }

    /// This one was made here.
    pub fn note(&self, path: &TreePath, known: Identity) {
        if self.is_needed {
            self.known.lock().insert(self.number(path), known);
        }
    }

    /// What is at this path from now on is not what was made here.
    pub fn forget(&self, path: &TreePath) {
        if self.is_needed {
            self.known.lock().remove(&self.number(path));
        }
    }

    /// The directory in which alone something is to get this path: what is known of it (`within`), or the one that was made for it.
    pub fn within(&self, path: &TreePath, within: Option<Identity>) -> Option<Identity> {
        let made = || {
            let above = self.number(&path.parent());
            self.known.lock().get(&above).copied()
        };
        within.or_else(|| self.is_needed.then(made).flatten())
    }

    fn number(&self, path: &TreePath) -> u64 {
        self.numbers.hash_one(path)
    }
}
