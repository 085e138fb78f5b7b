//! Cutting a proposal along the bridges that it concerns.

use super::messages::{Part, ReadSet};
use super::persist::{clear, owned_key, set};
use super::{Bridge, locks};
use crate::home::{hash_bytes, mix};
use crate::path::TreePath;
use crate::record::{BridgeId, Kind, PathRecord};
use crate::table::Change;
use std::collections::{BTreeMap, BTreeSet};

/// A proposal cut along the bridges that it concerns.
pub(super) struct Cut {
    pub(super) parts: BTreeMap<BridgeId, Part>,
    pub(super) follow_up: Vec<Change>,
}

impl Bridge {
    /// Who checks and changes what.
    pub(super) fn cut(&self, reads: &ReadSet, batch: Vec<Change>, uncovers: bool) -> Cut {
        let me = self.me();
        let mut parts: BTreeMap<BridgeId, Part> = BTreeMap::new();
        let mut own: Vec<Change> = Vec::new();
        let mut at_owner = |parts: &mut BTreeMap<BridgeId, Part>, owner: BridgeId, c: Change| {
            if owner == me {
                own.push(c);
            } else {
                parts.entry(owner).or_default().changes.push(c);
            }
        };
        for change in batch {
            match &change {
                Change::Put { path, record } => {
                    let (home, owner) = (self.membership.home(path), record.object.oid.bridge());
                    let key = owned_key(record.object);
                    // The home's own table finds the path of an object that it keeps itself.
                    let where_it_is = if home == owner {
                        clear(key)
                    } else {
                        set(key, path.as_bytes().to_vec())
                    };
                    at_owner(&mut parts, owner, where_it_is);
                    parts.entry(home).or_default().changes.push(change);
                }
                Change::Delete { path, .. } => {
                    let home = self.membership.home(path);
                    parts.entry(home).or_default().changes.push(change);
                }
                Change::Doom(object) => {
                    let (owner, key) = (object.oid.bridge(), owned_key(*object));
                    at_owner(&mut parts, owner, change);
                    at_owner(&mut parts, owner, clear(key));
                }
                Change::Undoom(o) | Change::Relabel(o) | Change::Relabeled(o) => {
                    at_owner(&mut parts, o.oid.bridge(), change);
                }
                Change::Meta { .. } => at_owner(&mut parts, me, change),
            }
        }
        if !reads.ranges.is_empty() || !reads.speakers.is_empty() || !reads.superseded.is_empty() {
            // Only all bridges together know what is below a directory, and who speaks of a path of the PFS.
            for member in self.membership.members() {
                parts.entry(*member).or_default();
            }
        }
        for (path, seen) in &reads.records {
            // A directory above a path that is checked is there as long as that is.
            let next = reads.records.range(first_below(path)..).next();
            if seen.followed || !lies_below(path, next.map(|(p, _)| p)) {
                parts.entry(self.membership.home(path)).or_default();
            }
        }
        let mut ended = ended(reads, &parts);
        if !reads.ranges.is_empty() {
            ended.extend(covered(&parts));
        }
        for (path, version) in &reads.superseded {
            if !ended.contains(&(path.clone(), *version)) {
                ended.push((path.clone(), *version));
            }
        }
        for (path, absence) in &reads.appearing {
            ended.push((path.clone(), absent(reads, path, *absence)));
        }
        let changes = parts.values().flat_map(|p| &p.changes);
        let begun: BTreeSet<_> = changes
            .filter_map(|change| match change {
                Change::Put { path, .. } => Some(path.clone()),
                _ => None,
            })
            .collect();
        for (bridge, part) in &mut parts {
            part.ended = ended.clone();
            part.uncovers = uncovers;
            self.add_reads(*bridge, part, reads, &begun);
            for range in &reads.ranges {
                if let Some((_, digest)) = range.seen.iter().find(|(b, _)| b == bridge) {
                    part.ranges.push((range.dir.clone(), *digest));
                }
            }
        }
        for read in &reads.speakers {
            for (bridge, digest) in &read.seen {
                if let Some(part) = parts.get_mut(bridge)
                    && !part.speakers.contains(&(read.of.clone(), *digest))
                {
                    part.speakers.push((read.of.clone(), *digest));
                }
            }
        }
        match parts.get_mut(&me) {
            Some(part) => {
                part.changes.append(&mut own);
                Cut {
                    parts,
                    follow_up: own,
                }
            }
            None => Cut {
                parts,
                follow_up: own,
            },
        }
    }

    /// What `bridge` has to check: its own records, and the directories above what it writes, but for those that `begin`
    /// with the transaction.
    fn add_reads(
        &self,
        bridge: BridgeId,
        part: &mut Part,
        reads: &ReadSet,
        begin: &BTreeSet<TreePath>,
    ) {
        let written: BTreeSet<_> = locks::paths(&part.changes).collect();
        for (path, seen) in &reads.records {
            if self.membership.home(path) == bridge {
                part.reads.push((path.clone(), seen.stand()));
            } else if !begin.contains(path)
                && lies_below(path, written.range(first_below(path)..).copied().next())
            {
                part.above.push((path.clone(), incarnation(reads, path)));
                if seen.version.is_none() {
                    // As `covered` speaks of it.
                    part.above.push((path.clone(), unrecorded(reads, path)));
                }
            }
        }
    }
}

/// The first path that there can be in a directory.
fn first_below(dir: &TreePath) -> TreePath {
    dir.join(&[1])
}

/// Is the first path that comes after `dir` below it?
fn lies_below(dir: &TreePath, next: Option<&TreePath>) -> bool {
    next.is_some_and(|path| path.is_within(dir))
}

/// Which of the directories that were or will be at `path` the decision saw. With a record that is its
/// version. A directory of the PFS without a record goes for good by a record of its own, or with a
/// directory above: so it is known by what is above it.
fn incarnation(reads: &ReadSet, path: &TreePath) -> u64 {
    let seen = reads.records.get(path);
    match (seen.and_then(|seen| seen.version), path.split()) {
        (Some(version), _) => version,
        (None, _) => absent(reads, path, seen.map_or(0, |seen| seen.absence)),
    }
}

/// The incarnation of a directory of the PFS without a record. The place may have been that of another one before,
/// which a drain has put there: `absence` tells them apart.
fn absent(reads: &ReadSet, path: &TreePath, absence: u64) -> u64 {
    match path.split() {
        Some((parent, name)) => {
            let here = mix(incarnation(reads, &parent), hash_bytes(name));
            mix(here, absence)
        }
        None => 0,
    }
}

/// A directory of the PFS at `path` that has no record, whenever that was seen.
fn unrecorded(reads: &ReadSet, path: &TreePath) -> u64 {
    fn at(reads: &ReadSet, path: &TreePath) -> u64 {
        let seen = reads.records.get(path).and_then(|seen| seen.version);
        match (seen, path.split()) {
            (Some(version), _) => version,
            (None, Some((parent, name))) => mix(at(reads, &parent), hash_bytes(name)),
            (None, None) => 0,
        }
    }
    covered_in(at(reads, &path.parent()), path.name())
}

/// The number of [`unrecorded`] for a name in a directory with this number.
fn covered_in(dir: u64, name: &[u8]) -> u64 {
    mix(mix(dir, hash_bytes(name)), u64::MAX)
}

/// Directories of the PFS that get a new path and a record in one transaction. A reader that misses the record would
/// take it for an unrecorded directory.
fn covered(parts: &BTreeMap<BridgeId, Part>) -> Vec<(TreePath, u64)> {
    let puts = parts.values().flat_map(|p| &p.changes);
    let puts: BTreeMap<_, _> = puts
        .filter_map(|change| match change {
            Change::Put { path, record } => Some((path, record)),
            _ => None,
        })
        .collect();
    let paths = puts.keys().filter_map(|path| {
        let (parent, name) = path.split()?;
        let dir = moved_incarnation(&puts, &parent)?;
        Some(((*path).clone(), covered_in(dir, name)))
    });
    paths.collect()
}

/// The incarnation of a directory of the PFS at `path`, if it is or lies in one that these records have moved.
fn moved_incarnation(puts: &BTreeMap<&TreePath, &PathRecord>, path: &TreePath) -> Option<u64> {
    match puts.get(path) {
        Some(record) => (record.kind == Kind::Moved).then_some(record.version),
        None => {
            let (parent, name) = path.split()?;
            let dir = moved_incarnation(puts, &parent)?;
            Some(mix(dir, hash_bytes(name)))
        }
    }
}

/// Directories that the transaction removes or replaces, and whose contents it has read.
fn ended(reads: &ReadSet, parts: &BTreeMap<BridgeId, Part>) -> Vec<(TreePath, u64)> {
    if reads.ranges.is_empty() {
        return Vec::new();
    }
    let written: BTreeSet<_> = parts
        .values()
        .flat_map(|p| locks::paths(&p.changes))
        .collect();
    reads
        .records
        .iter()
        .filter(|(path, seen)| {
            written.contains(path) && (seen.dir || reads.ranges.iter().any(|r| r.dir == **path))
        })
        .map(|(path, _)| (path.clone(), incarnation(reads, path)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::tests::Table;
    use crate::membership::Membership;

    /// `link/f` was looked for before it was seen that `link` leads elsewhere.
    #[test]
    fn the_home_of_a_link_that_was_followed_is_asked_whether_it_is_still_there() {
        let membership = Membership::new(BridgeId(0), vec![BridgeId(0), BridgeId(1)]);
        let bridge = Bridge::recover(membership, 1, &Table::default(), 0).unwrap();
        let link = (0..)
            .map(|i| TreePath::new(format!("link{i}")).unwrap())
            .find(|p| {
                let home = |p| bridge.membership().home(p);
                home(p) == BridgeId(1) && home(&p.join(b"f")) == BridgeId(0)
            })
            .unwrap();
        let mut reads = ReadSet::default();
        reads.saw(&link, None);
        reads.saw(&link.join(b"f"), None);
        let asked = |reads: &ReadSet| {
            bridge
                .cut(reads, Vec::new(), false)
                .parts
                .contains_key(&BridgeId(1))
        };
        assert!(
            !asked(&reads),
            "a directory is there as long as what is in it"
        );
        reads.records.get_mut(&link).unwrap().followed = true;
        assert!(asked(&reads));
    }
}
