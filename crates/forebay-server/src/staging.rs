//! One copy at a time of each PFS file: sixty processes that open one file for
//! writing need one staged copy, not sixty.

use forebay_core::path::TreePath;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;

/// PFS files that are being copied.
#[derive(Default)]
pub struct Staging {
    busy: Mutex<HashSet<TreePath>>,
    ended: Condvar,
}

/// The right to copy one file; ends with the value.
pub struct Turn<'a> {
    staging: &'a Staging,
    path: TreePath,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.staging.busy.lock().remove(&self.path);
        self.staging.ended.notify_all();
    }
}

impl Staging {
    /// Takes the right to copy `path`. `None` if someone else has it, after waiting
    /// for him to end where `may_block`.
    pub fn enter(&self, path: &TreePath, may_block: bool) -> Option<Turn<'_>> {
        let mut busy = self.busy.lock();
        if busy.insert(path.clone()) {
            return Some(Turn {
                staging: self,
                path: path.clone(),
            });
        }
        while may_block && busy.contains(path) {
            self.ended.wait(&mut busy);
        }
        None
    }
}
