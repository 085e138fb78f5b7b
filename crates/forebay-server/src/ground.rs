//! The mover's ground under a real bridge.

use crate::{ServerHandle, follow};
use forebay_core::drain::{DrainCommit, DrainFacts, DrainVerdict};
use forebay_core::facts::{Attr, Outcome, Stop};
use forebay_core::ops::FollowUp;
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, ObjectId, ObjectName, PathRecord};
use forebay_core::speakers::Speaker;
use forebay_core::table::{KeyValue, Order, Tables};
use forebay_mover::{Door, Ground, Halt};

impl ServerHandle {
    /// What a mover stands on.
    pub fn ground(&self) -> Ground<'_> {
        Ground {
            objects: &self.objects,
            lower: &self.lower,
            instance: self.instance_dir(),
            door: self,
        }
    }
}

/// One bridge is home of every path, so there is nothing that it would have to ask others for. Each answer is
/// read under the lock, so that tables and index agree in it; but for pages, which are of the tables alone and may
/// take long.
impl DrainFacts for ServerHandle {
    fn knows_dirs(&self) -> bool {
        self.settings.knows_dirs()
    }

    fn record(&self, path: &TreePath) -> Outcome<Option<PathRecord>> {
        let _guard = self.namespace.read();
        self.namespace.tables().get(path).map_err(Stop::from)
    }

    fn is_written_in_place(&self, file: &Attr) -> bool {
        self.in_place.may_have_made(file)
    }

    fn page(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
    ) -> Outcome<Vec<(TreePath, PathRecord)>> {
        let tables = self.namespace.tables();
        tables.page(after, order, limit).map_err(Stop::from)
    }

    fn speakers_here(&self, before: Option<&TreePath>, limit: usize) -> Outcome<Vec<Speaker>> {
        self.speakers(&TreePath::root(), before, limit)
    }

    fn speakers(
        &self,
        lower: &TreePath,
        before: Option<&TreePath>,
        limit: usize,
    ) -> Outcome<Vec<Speaker>> {
        let state = self.namespace.read();
        Ok(state.speakers().within(lower, before, limit))
    }

    fn speakers_of(&self, lower: &TreePath) -> Outcome<Vec<Speaker>> {
        Ok(self.namespace.read().speakers().of(lower))
    }

    fn in_transit(&self, after: Option<&TreePath>, limit: usize) -> Outcome<Vec<TreePath>> {
        Ok(self.namespace.read().speakers().in_transit(after, limit))
    }

    fn below(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, PathRecord)>> {
        let _guard = self.namespace.read();
        self.namespace.tables().subtree(dir).map_err(Stop::from)
    }

    fn children(&self, dir: &TreePath, limit: usize) -> Outcome<Vec<(Vec<u8>, PathRecord)>> {
        let _guard = self.namespace.read();
        let tables = self.namespace.tables();
        tables.children(dir, None, limit).map_err(Stop::from)
    }

    fn names_of(&self, object: ObjectId) -> Outcome<Vec<(ObjectName, TreePath)>> {
        let _guard = self.namespace.read();
        self.namespace.tables().names_of(object).map_err(Stop::from)
    }

    fn notes(&self, prefix: &[u8]) -> Outcome<Vec<KeyValue>> {
        self.namespace.tables().metas(prefix).map_err(Stop::from)
    }

    fn next_version(&self) -> u64 {
        self.namespace.next_version()
    }

    fn me(&self) -> BridgeId {
        self.me
    }
}

impl Door for ServerHandle {
    fn commit(&self, commit: &DrainCommit) -> Result<DrainVerdict, Halt> {
        let verdict = self.namespace.commit_if(commit, || {
            if commit.uncovers() {
                self.namespace.lower_changed();
            }
            if commit.forbids_late_opens {
                self.lanes.forbid_late_opens();
            }
        })?;
        if verdict == DrainVerdict::Committed {
            self.wake_for(&commit.batch);
        }
        Ok(verdict)
    }

    fn passing(&self) -> Vec<ObjectId> {
        self.passing.now()
    }

    fn settle(&self) -> Result<(), Halt> {
        Ok(self.sync_point()?)
    }

    // Labels are written from the tables, under the lock of readers.
    fn follow(&self, follow_ups: &[FollowUp]) -> bool {
        follow::follow_up(self, follow_ups)
    }
}
