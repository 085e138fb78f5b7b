//! One copy at a time of each PFS file: sixty processes that open one file for
//! writing need one staged copy, not sixty.

use forebay_core::path::TreePath;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::sync::Arc;

#[derive(Default)]
struct Inner {
    busy: Mutex<HashSet<TreePath>>,
    ended: Condvar,
}

/// PFS files that are being copied.
#[derive(Default)]
pub struct Staging(Arc<Inner>);

/// The right to copy one file; ends with the value.
pub struct Turn {
    staging: Arc<Inner>,
    path: TreePath,
}

impl Turn {
    /// The file.
    pub fn path(&self) -> &TreePath {
        &self.path
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.staging.busy.lock().remove(&self.path);
        self.staging.ended.notify_all();
    }
}

impl Staging {
    /// Takes the right to copy `path`. `None` if someone else has it, after waiting
    /// for him to end where `may_block`.
    pub fn enter(&self, path: &TreePath, may_block: bool) -> Option<Turn> {
        let mut busy = self.0.busy.lock();
        if busy.insert(path.clone()) {
            return Some(Turn {
                staging: self.0.clone(),
                path: path.clone(),
            });
        }
        while may_block && busy.contains(path) {
            self.0.ended.wait(&mut busy);
        }
        None
    }
}
