//! Building blocks of decisions: plans, names, permissions and labels.

use super::hidden::{Below, Hidden};
use super::read::LowerNames;
use super::{Answer, Context, Decision, FollowUp, Touched, Unseen};
use crate::access::{self, SEARCH, WRITE, check_sticky};
use crate::drain::abandon;
use crate::facts::{Attr, Fresh, Label, Need, NewKind, NewObject, Outcome, Stop, errno};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Dirs, Kind, ObjectName, PathRecord};
use crate::table::Change;
use crate::walk::{Dir, Found, Node, Place, RESERVED_PREFIX};
use std::collections::BTreeSet;

/// Names that locks and drains use on the PFS are for nobody else.
pub(super) fn check_name(found: &Found) -> Outcome<()> {
    match found.name().starts_with(RESERVED_PREFIX) {
        true => errno(libc::EPERM),
        false => Ok(()),
    }
}

impl Context<'_> {
    /// Write and search permission in the directory, as every change of its entries needs.
    pub(super) fn check_change(&self, dir: &Dir) -> Outcome<()> {
        self.walk.check_dir(dir, WRITE | SEARCH)
    }

    /// The sticky rule for removing or replacing `node` in `dir`.
    pub(super) fn check_removal(&self, dir: &Dir, node: &Node) -> Outcome<()> {
        if self.cred.uid == 0 {
            return Ok(());
        }
        check_sticky(self.cred, &self.walk.dir_attr(dir)?, &self.walk.attr(node)?)
    }

    /// May the caller make programs that run with the rights of this group?
    fn may_act_as(&self, gid: u32) -> bool {
        self.cred.uid == 0 || self.cred.in_group(gid)
    }

    /// Owner, group and mode bits of a new entry: the group comes from a set-group-id directory.
    pub(super) fn inherit(&self, dir: &Dir, mode: u32, is_dir: bool) -> Outcome<(u32, u32, u32)> {
        let parent = self.walk.dir_attr(dir)?;
        if parent.mode & libc::S_ISGID != 0 {
            let for_group = libc::S_ISGID | libc::S_IXGRP;
            let mode = if is_dir {
                mode | libc::S_ISGID
            } else if mode & for_group == for_group && !self.may_act_as(parent.gid) {
                mode & !libc::S_ISGID
            } else {
                mode
            };
            return Ok((self.cred.uid, parent.gid, mode));
        }
        Ok((self.cred.uid, self.cred.gid, mode))
    }

    /// Makes the backing object for a new name at `found`.
    pub(super) fn make(
        &self,
        found: &Found,
        kind: Kind,
        what: NewKind,
        (uid, gid, mode): (u32, u32, u32),
        renamed: Option<(&TreePath, Identity)>,
        hidden: Option<&Hidden>,
    ) -> Outcome<Fresh> {
        check_name(found)?;
        check_length(&found.path)?;
        self.facts.fresh(&NewObject {
            what,
            label: Label {
                kind,
                parent: found.dir.place.label(),
                name: found.name().to_vec(),
                origin: renamed.map(|(origin, _)| origin.clone()),
                hides: hidden.map(|hidden| hidden.path.clone()),
                renamed: renamed.map(|(_, known)| known),
            },
            mode,
            uid,
            gid,
        })
    }

    /// A record of this request for a fresh object.
    pub(super) fn record(&self, kind: Kind, fresh: Fresh, hidden: Option<Hidden>) -> PathRecord {
        PathRecord {
            version: self.facts.next_version(),
            ino: fresh.ino,
            token: self.request.token,
            ..PathRecord::new(kind, fresh.object, self.facts.me())
        }
        .over(hidden)
    }

    /// See [`Dirs::within`], for a name in this directory, in which the caller needs the permissions `want` for it.
    pub(super) fn within(&self, dir: &Dir, want: u32) -> Outcome<Option<Identity>> {
        let known = match &dir.place {
            Place::Merged(_) => {
                let attr = self.walk.dir_attr(dir)?;
                access::check(self.cred, &attr, want)?;
                self.known_dir(&attr)
            }
            // It is on the PFS as well.
            Place::Born(_) if !self.settings.knows_dirs_of(self.cred.uid) => None,
            Place::Born(_) => {
                let record = self.facts.record(&dir.path)?;
                let drained = record.filter(|record| record.drained.is_some());
                let known = drained.and_then(|record| record.replaces);
                known.and_then(Identity::itself)
            }
        };
        Ok(known)
    }

    /// What a directory is known by later on.
    fn known_dir(&self, attr: &Attr) -> Option<Identity> {
        let knows = self.settings.knows_dirs_of(self.cred.uid);
        knows.then(|| Identity::of_dir(attr))
    }

    /// How a directory is touched ([`Plan::touch`]); `None`: others have removed it.
    pub(super) fn touched(&self, dir: &Dir) -> Outcome<Option<Touched>> {
        Ok(match &dir.place {
            Place::Born(object) => Some(Touched::Object(*object)),
            Place::Merged(lower) => {
                let attr = self.walk.merged_attr(dir, lower)?;
                attr.map(|attr| Touched::Lower(lower.clone(), self.known_dir(&attr)))
            }
        })
    }

    /// Takes the record at `found` out of the tables, with its object; nothing to do if there is none.
    pub(super) fn drop_record(&self, found: &Found, plan: &mut Plan) {
        match (&found.record, &found.node) {
            (Some(record), Some(_)) => plan.delete(&found.path, record),
            (Some(record), None) => plan.delete_unseen_one(&found.path, record),
            (None, _) => {}
        }
    }

    /// Puts a whiteout over what would show through once the record at `found` is gone.
    pub(super) fn vacate(
        &self,
        found: &Found,
        hidden: Option<Hidden>,
        plan: &mut Plan,
    ) -> Outcome<()> {
        let Some(hidden) = hidden else {
            return Ok(());
        };
        check_name(found)?;
        check_length(&found.path)?;
        // If the tables are lost before it is made, what was removed shows again. Without that of a rename more would be lost.
        let marker = Fresh::new(self.facts.new_marker(), 0);
        plan.mark(marker.object);
        let whiteout = PathRecord {
            dirs: Dirs::within(self.within(&found.dir, WRITE | SEARCH)?),
            ..self.record(Kind::Whiteout, marker, Some(hidden))
        };
        plan.put(found.path.clone(), whiteout);
        Ok(())
    }

    /// ENOTEMPTY if the directory has visible entries; otherwise the records below it, which nobody sees.
    pub(super) fn check_empty(&self, found: &Found) -> Outcome<Below> {
        let below = self.facts.subtree(&found.path)?;
        self.walk.check_all_here(&found.path, &below)?;
        let seen = || below.iter().filter(|(_, r)| r.is_visible());
        if seen().any(|(_, record)| record.kind != Kind::Moved) {
            return errno(libc::ENOTEMPTY);
        }
        for (path, record) in seen() {
            if record.transit.is_some() {
                return Err(Stop::Need(Need::Settled(path.clone())));
            }
            // What was renamed, and removed by others, nobody sees.
            if self.facts.renamed(record)?.is_some() {
                return errno(libc::ENOTEMPTY);
            }
        }
        if let Some(Node::Born(record)) = &found.node
            && self.facts.has_strays(record.object)?
        {
            // It would be lost.
            return errno(libc::ENOTEMPTY);
        }
        if let Some(Node::Lower(lower, _)) = &found.node {
            let hidden: BTreeSet<&TreePath> = below.iter().map(|(path, _)| path).collect();
            let mut names = LowerNames::new(self.facts, lower, None);
            while let Some(entry) = names.peek()? {
                if !hidden.contains(&found.path.join(&entry.name)) {
                    return errno(libc::ENOTEMPTY);
                }
                names.advance();
            }
        }
        Ok(below)
    }

    /// A new thing at `found`, where nothing visible is: its record over what was hidden there.
    pub(super) fn plant(&self, found: &Found, record: PathRecord) -> Outcome<Plan> {
        let mut plan = Plan::default();
        self.drop_record(found, &mut plan);
        plan.touch(self.touched(&found.dir)?);
        let record = PathRecord {
            dirs: Dirs::within(self.within(&found.dir, WRITE | SEARCH)?),
            ..record
        };
        plan.put(found.path.clone(), record);
        self.settle_origin(found, &[], &mut plan)?;
        Ok(plan)
    }
}

/// ENAMETOOLONG for a name whose path from the root of the buffer no call takes as a whole. A program can make one with
/// `mkdir` and `chdir`, but the drain could never bring it to the PFS.
pub(super) fn check_length(path: &TreePath) -> Outcome<()> {
    match path.as_bytes().len() > forebay_types::MAX_PATH_BYTES {
        true => errno(libc::ENAMETOOLONG),
        false => Ok(()),
    }
}

impl PathRecord {
    /// The record when it is not drained, and this is hidden by it.
    pub(super) fn over(self, hidden: Option<Hidden>) -> Self {
        let (hides, replaces, chosen) = match hidden {
            Some(hidden) => (Some(hidden.path), hidden.entry, hidden.chosen),
            None => (None, None, None),
        };
        PathRecord {
            hides,
            replaces,
            chosen,
            drained: None,
            ..self
        }
    }
}

/// A decision in the making. Keeps deletions before puts.
#[derive(Default)]
pub(super) struct Plan {
    deletes: Vec<Change>,
    puts: Vec<Change>,
    unseen: Option<Unseen>,
    follow_ups: Vec<FollowUp>,
}

impl Plan {
    pub(super) fn put(&mut self, path: TreePath, record: PathRecord) {
        self.puts.push(Change::Put { path, record });
    }

    /// The record that it puts to keep this place of the PFS from view.
    pub(super) fn hiding(&mut self, lower: &TreePath) -> Option<&mut PathRecord> {
        self.puts.iter_mut().find_map(|change| match change {
            Change::Put { record, .. } if record.hides.as_ref() == Some(lower) => Some(record),
            _ => None,
        })
    }

    /// The record goes, and what waits for its name on the PFS is this.
    pub(super) fn abandons(&mut self, record: &PathRecord, known: Identity) {
        let key_of = |change: &Change| match change {
            Change::Meta { key, .. } => Some(key.clone()),
            _ => None,
        };
        if let Some(note) = abandon(record, Some(known)) {
            let same = self
                .puts
                .iter_mut()
                .find(|put| key_of(put) == key_of(&note));
            *same.expect("a record that waits leaves a note") = note;
        }
    }

    /// Does it change what is at this path?
    pub(super) fn changes(&self, at: &TreePath) -> bool {
        self.deletes.iter().chain(&self.puts).any(
            |change| matches!(change, Change::Delete { path, .. } | Change::Put { path, .. } if path == at),
        )
    }

    /// The record goes and its backing object with it.
    pub(super) fn delete(&mut self, path: &TreePath, record: &PathRecord) {
        // The thing may wait on the PFS under its waiting name. The note tells the drain to remove it.
        self.puts.extend(abandon(record, None));
        self.delete_unseen_one(path, record);
    }

    /// The same for a record that nobody sees: of something removed, or of something renamed that others have removed. If that
    /// comes back it is theirs.
    pub(super) fn delete_unseen_one(&mut self, path: &TreePath, record: &PathRecord) {
        let object = record.object;
        self.forget(path, object);
        self.puts.push(Change::Doom(object));
        self.follow_ups.push(FollowUp::Remove(object));
    }

    /// The records below a directory go, for which the plan has a whiteout. Nobody can see them then.
    pub(super) fn delete_unseen(&mut self, dir: &TreePath, below: &Below, per_part: usize) {
        let records = below.iter().map(|(path, r)| (path.clone(), r.object));
        let removals = below.iter().map(|(_, r)| FollowUp::Remove(r.object));
        self.follow_ups.extend(removals);
        self.unseen = Some(Unseen {
            dir: dir.clone(),
            records: records.collect(),
            per_part,
        });
    }

    /// The record goes, the object stays (it gets another name).
    pub(super) fn forget(&mut self, path: &TreePath, object: ObjectName) {
        self.deletes.push(Change::Delete {
            path: path.clone(),
            object,
        });
    }

    /// The label on the object has to follow the record at `path`.
    pub(super) fn relabel(&mut self, object: ObjectName, path: &TreePath) {
        self.puts.push(Change::Relabel(object));
        self.follow_ups
            .push(FollowUp::Relabel(object, path.clone()));
    }

    /// A record names this new marker, which may be made later.
    pub(super) fn mark(&mut self, object: ObjectName) {
        self.puts.push(Change::Relabel(object));
        self.follow_ups.push(FollowUp::Mark(object));
    }

    /// An entry of a directory has come or gone, if that is there ([`Context::touched`]).
    pub(super) fn touch(&mut self, touched: Option<Touched>) {
        let follow_up = touched.map(FollowUp::Touch);
        let new = follow_up.filter(|follow_up| !self.follow_ups.contains(follow_up));
        self.follow_ups.extend(new);
    }

    pub(super) fn decide(mut self, answer: Answer) -> Decision {
        self.deletes.append(&mut self.puts);
        Decision {
            batch: self.deletes,
            unseen: self.unseen,
            follow_ups: self.follow_ups,
            answer,
        }
    }
}

/// A decision that changes nothing.
pub(super) fn only(answer: Answer) -> Decision {
    Decision {
        batch: vec![],
        unseen: None,
        follow_ups: vec![],
        answer,
    }
}

/// File type bits of a mode.
pub(super) fn type_of(attr: &Attr) -> u32 {
    attr.mode & libc::S_IFMT
}
