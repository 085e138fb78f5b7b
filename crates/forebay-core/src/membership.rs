//! The bridges that serve one namespace together.
//!
//! The set is fixed for the life of a bridge. A bridge that joins means a new
//! [`Homes`]; carrying the records of its shards over is not done here yet.

use crate::home::Homes;
use crate::path::TreePath;
use crate::record::BridgeId;
use std::sync::Arc;

/// Most bridges of one namespace: as many as fit into a version number, see [`crate::bridge::version`].
pub const MAX_MEMBERS: usize = 1 << 12;

/// Who belongs to the namespace, and which of them this bridge is.
#[derive(Debug, Clone)]
pub struct Membership {
    me: BridgeId,
    members: Vec<BridgeId>,
    homes: Arc<Homes>,
}

impl Membership {
    /// A namespace of one bridge.
    pub fn single(me: BridgeId) -> Self {
        Membership::new(me, vec![me])
    }

    /// A namespace of `members`, seen from `me`.
    ///
    /// # Panics
    /// If `me` is no member, or there are more than [`MAX_MEMBERS`] or numbers beyond it.
    pub fn new(me: BridgeId, mut members: Vec<BridgeId>) -> Self {
        members.sort_unstable();
        members.dedup();
        assert!(members.contains(&me), "bridge {} is no member", me.0);
        assert!(
            members.last().is_some_and(|b| (b.0 as usize) < MAX_MEMBERS),
            "bridge numbers end at {MAX_MEMBERS}"
        );
        let homes = Arc::new(Homes::new(&members));
        Membership { me, members, homes }
    }

    /// The same namespace, seen from another member. Shares the table of homes.
    pub fn seen_from(&self, me: BridgeId) -> Self {
        Membership { me, ..self.clone() }
    }

    /// This bridge.
    pub fn me(&self) -> BridgeId {
        self.me
    }

    /// All bridges, by number.
    pub fn members(&self) -> &[BridgeId] {
        &self.members
    }

    /// All bridges but this one.
    pub fn others(&self) -> impl Iterator<Item = BridgeId> {
        self.members.iter().copied().filter(|b| *b != self.me)
    }

    /// Is this bridge alone?
    pub fn is_single(&self) -> bool {
        self.members.len() == 1
    }

    /// The bridge whose global table holds `path`.
    pub fn home(&self, path: &TreePath) -> BridgeId {
        self.homes.of(path)
    }

    /// Does this bridge's global table hold `path`?
    pub fn is_home(&self, path: &TreePath) -> bool {
        self.home(path) == self.me
    }
}
