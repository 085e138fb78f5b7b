//! What has to be done to backing objects after a crash, as a plan.
//!
//! Backing objects are made before the commit that names them and unlinked
//! after the commit that forgets them. So a crash leaves objects that no record
//! names: those whose commit never happened go, those whose commit is undecided
//! wait, those that a mark speaks of are dealt with as it says.

use super::persist::{OWNED, owned_key, owned_object, owned_prefix};
use super::{Bridge, Mutation};
use crate::path::TreePath;
use crate::record::{ObjectId, ObjectName};
use crate::table::{Change, Marks, TableError, Tables};

/// What a backing object on the local disk turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectStanding {
    /// A record names it, here or at another home.
    Named,
    /// A transaction that is still open may name it. Look again when [`Bridge::is_quiet`].
    Undecided,
    /// Nobody will ever name it.
    Orphan,
}

/// Work that is left over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sweep {
    /// Unlink these, then apply [`Change::Undoom`] for each.
    pub remove: Vec<ObjectName>,
    /// Label these anew from their records, then apply [`Change::Relabeled`] for each.
    pub relabel: Vec<ObjectName>,
    /// These can't be judged yet: see [`Bridge::judge`]. The watermark stays below them until they are: else the next start would
    /// not look at them.
    pub undecided: Vec<ObjectName>,
}

/// The object that this change says has its name at another home.
pub fn named_elsewhere(change: &Change) -> Option<ObjectName> {
    match change {
        Change::Meta { key, value } => owned_object(key).filter(|_| value.is_some()),
        _ => None,
    }
}

impl Bridge {
    /// Judges one backing object.
    ///
    /// # Errors
    /// The tables failed.
    pub fn judge(
        &self,
        object: ObjectName,
        tables: &dyn Tables,
    ) -> Result<ObjectStanding, TableError> {
        if self.path_of(object, tables)?.is_some() {
            return Ok(ObjectStanding::Named);
        }
        let in_follow_up = |changes: &[Change]| {
            changes
                .iter()
                .any(|c| matches!(c, Change::Meta { key, .. } if owned_object(key) == Some(object)))
        };
        let mine = self
            .txns
            .values()
            .filter(|t| t.is_undecided())
            .any(|t| in_follow_up(t.follow_up()));
        if mine && !Mutation::SweepIgnoresIntents.is(self.mutation) {
            return Ok(ObjectStanding::Undecided);
        }
        Ok(ObjectStanding::Orphan)
    }

    /// The path of an object that is kept here, wherever its record is.
    ///
    /// # Errors
    /// The tables failed.
    pub fn path_of(
        &self,
        object: ObjectName,
        tables: &dyn Tables,
    ) -> Result<Option<TreePath>, TableError> {
        if let Some(path) = tables.path_of(object)? {
            return Ok(Some(path));
        }
        Ok(tables.meta(&owned_key(object))?.and_then(TreePath::new))
    }

    /// All names of an object that is kept here with their paths, wherever their records are.
    ///
    /// # Errors
    /// The tables failed.
    pub fn names_of(
        &self,
        object: ObjectId,
        tables: &dyn Tables,
    ) -> Result<Vec<(ObjectName, TreePath)>, TableError> {
        let mut names = tables.names_of(object)?;
        for (key, path) in tables.metas(&owned_prefix(object))? {
            if Mutation::NamesElsewhereAreForgotten.is(self.mutation) {
                break;
            }
            names.extend(owned_object(&key).zip(TreePath::new(path)));
        }
        // A name that changes its home may be known by both ways.
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Objects that are kept here while their records are at other homes, sorted, with their paths.
    ///
    /// # Errors
    /// The tables failed.
    pub fn named_elsewhere(
        &self,
        tables: &dyn Tables,
    ) -> Result<Vec<(ObjectName, TreePath)>, TableError> {
        let owned = tables.metas(OWNED)?.into_iter();
        let named = owned.filter_map(|(key, path)| owned_object(&key).zip(TreePath::new(path)));
        Ok(named.collect())
    }

    /// Plans the work after a crash. `suspects` are the backing objects on the
    /// local disk that are newer than the settled watermark.
    ///
    /// # Errors
    /// The tables failed.
    pub fn sweep(
        &self,
        suspects: impl IntoIterator<Item = ObjectName>,
        tables: &dyn Tables,
    ) -> Result<Sweep, TableError> {
        let Marks { doomed, relabel } = tables.marks()?;
        let mut sweep = Sweep {
            relabel,
            ..Sweep::default()
        };
        if !Mutation::RecoveryIgnoresDoomMarks.is(self.mutation) {
            for object in &doomed {
                // A link, or a file that is used again, is doomed until the commit that names it.
                match self.judge(*object, tables)? {
                    ObjectStanding::Undecided => sweep.undecided.push(*object),
                    ObjectStanding::Named | ObjectStanding::Orphan => sweep.remove.push(*object),
                }
            }
        }
        let is_doomed = |o: ObjectName| doomed.contains(&o);
        for object in suspects {
            if is_doomed(object) {
                continue;
            }
            match self.judge(object, tables)? {
                ObjectStanding::Named => {}
                ObjectStanding::Undecided => sweep.undecided.push(object),
                ObjectStanding::Orphan => {
                    if !Mutation::NamelessObjectsAreKept.is(self.mutation) {
                        sweep.remove.push(object);
                    }
                }
            }
        }
        Ok(sweep)
    }
}
