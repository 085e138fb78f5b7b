//! Taking up what earlier lives have left in the tables.

use super::messages::TxnId;
use super::persist::{
    self, ABSENCE, ABSENCE_FLOOR, CARRIED_OUT, ENDED, INTENT, Intent, OUTCOME, PREFIX, PREPARED,
    SETTLED,
};
use super::{Bridge, MAX_EPOCH, Mutation};
use crate::batch;
use crate::membership::Membership;
use crate::path::TreePath;
use crate::record::{BadRecord, BridgeId, ObjectName, PathRecord, Reader};
use crate::repair::Rebuilt;
use crate::table::{Change, TableError, Tables};

/// The tables of one of several bridges, made anew from what the labels of all of them tell. They were read when no transaction
/// was open: what bridges have promised each other is in no label. `epoch` is a new one, also for the versions of the records,
/// because others remember older ones as ended. `settled` are the other bridges, each with [`Bridge::settled`]: what still
/// comes of transactions below that was carried out before.
pub fn rebuilt_of_one(
    rebuilt: Rebuilt,
    membership: &Membership,
    epoch: u32,
    settled: impl IntoIterator<Item = (BridgeId, u64)>,
    mutation: Option<Mutation>,
) -> Vec<Change> {
    let me = membership.me();
    let is_own = |object: &ObjectName| object.oid.bridge() == me;
    let mut changes = Vec::new();
    for (path, record) in rebuilt.records {
        let owner = record.object.oid.bridge();
        if membership.is_home(&path) {
            let record = PathRecord { owner, ..record };
            changes.push(Change::Put { path, record });
        } else if owner == me {
            let key = persist::owned_key(record.object);
            changes.push(persist::set(key, path.as_bytes().to_vec()));
        }
    }
    let moved = rebuilt.moved.into_iter().filter(is_own);
    changes.extend(moved.map(Change::Relabel));
    let void = rebuilt.void.into_iter().filter(is_own);
    changes.extend(void.map(Change::Doom));
    if !Mutation::RebuiltTablesForgetWhatIsOver.is(mutation) {
        // No absence is taken for an earlier one.
        let floor = (u64::from(epoch) << 32).to_le_bytes().to_vec();
        changes.push(persist::set(ABSENCE_FLOOR.to_vec(), floor));
        changes.extend(settled.into_iter().map(|(bridge, below)| {
            let key = persist::bridge_key(SETTLED, bridge);
            persist::set(key, below.to_le_bytes().to_vec())
        }));
    }
    changes
}

fn damaged(key: &[u8], why: BadRecord) -> TableError {
    TableError::unread("value", format!("key {}", key.escape_ascii()), why)
}

impl Bridge {
    /// The transaction layer of a bridge that starts. `epoch` counts its starts
    /// and has never been used before.
    ///
    /// # Errors
    /// The tables failed, or hold something that this layer has not written, or there were [`MAX_EPOCH`] starts.
    pub fn recover(
        membership: Membership,
        epoch: u32,
        tables: &dyn Tables,
        now: u64,
    ) -> Result<Self, TableError> {
        Self::recover_with(membership, epoch, tables, now, None)
    }

    /// [`Bridge::recover`] with a planted bug.
    ///
    /// # Errors
    /// As [`Bridge::recover`].
    #[doc(hidden)]
    pub fn recover_with(
        membership: Membership,
        epoch: u32,
        tables: &dyn Tables,
        now: u64,
        mutation: Option<Mutation>,
    ) -> Result<Self, TableError> {
        // It comes from the tables, so it is no assertion.
        if epoch >= MAX_EPOCH {
            return Err(TableError::Failed(format!(
                "a bridge with {epoch} starts has no versions left; drain it and begin with an empty storage"
            )));
        }
        let mut bridge = Bridge::new(membership, epoch);
        bridge.mutation = mutation;
        if !bridge.membership.is_single() {
            for (path, record) in tables.subtree(&TreePath::root())? {
                bridge.speakers.learn(&path, &record);
            }
        }
        for (key, value) in tables.metas(PREFIX)? {
            bridge
                .restore(&key, &value, now)
                .map_err(|why| damaged(&key, why))?;
        }
        Ok(bridge)
    }

    fn restore(&mut self, key: &[u8], value: &[u8], now: u64) -> Result<(), BadRecord> {
        let planted = self.mutation;
        if key.starts_with(INTENT) {
            let txn: TxnId = persist::txn_of(INTENT, key)?;
            let mut intent = Intent::decode(value)?;
            batch::check(&intent.follow_up).map_err(|_| BadRecord::Damaged)?;
            if Mutation::PrimaryForgetsOutcome.is(planted) {
                intent.outcome = None;
            }
            self.resume(txn, intent, now);
        } else if key.starts_with(PREPARED) {
            let txn = persist::txn_of(PREPARED, key)?;
            let (primary, part) = persist::decode_prepared(value)?;
            batch::check(&part.changes).map_err(|_| BadRecord::Damaged)?;
            if !Mutation::RecoveryForgetsPromises.is(planted) {
                self.promise(txn, primary, part, now);
            }
        } else if key.starts_with(OUTCOME) {
            let txn = persist::txn_of(OUTCOME, key)?;
            if !Mutation::PrimaryForgetsOutcome.is(planted) {
                self.outcomes.insert(txn, value == [1]);
            }
        } else if key.starts_with(SETTLED) {
            let from = persist::bridge_of(SETTLED, key)?;
            let settled = u64::from_le_bytes(Reader(value).array()?);
            self.peers.entry(from).or_default().settled = settled;
        } else if let Some(dir) = key.strip_prefix(ENDED) {
            let (dir, incarnation) = persist::ended_dir(dir)?;
            let number = u64::from_le_bytes(Reader(value).array()?);
            self.ended.restore(dir, incarnation, number);
        } else if let Some(path) = key.strip_prefix(ABSENCE) {
            let path = TreePath::new(path).ok_or(BadRecord::Damaged)?;
            let number = u64::from_le_bytes(Reader(value).array()?);
            self.absences.restore(path, number);
        } else if key == ABSENCE_FLOOR {
            let floor = u64::from_le_bytes(Reader(value).array()?);
            self.absences.restore_floor(floor);
        } else if key.starts_with(CARRIED_OUT) {
            for (number, token) in persist::decode_carried_out(value)? {
                if !Mutation::RequestsAreForgotten.is(planted) {
                    self.carried_out.restore(number, token);
                }
            }
        }
        // The paths of owned objects stay in the tables; they are looked up there.
        Ok(())
    }
}
