//! Which records speak of which path of the PFS: where something is that was renamed, and what is hidden.
//!
//! A [`Speakers`] is kept beside the tables of a bridge and follows every commit. It holds an entry for
//! each record with `origin` or `hides`, and nothing for all others. Most of them are at the very path that
//! they speak of (a staged file, a whiteout); those cost one key.

use crate::home::{hash_bytes, mix};
use crate::path::TreePath;
use crate::record::{BridgeId, PathRecord};
use crate::table::Change;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// What a record says of a path of the PFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    /// What I name is there ([`PathRecord::origin`]).
    Origin,
    /// What is there is hidden, and has to go ([`PathRecord::hides`]).
    Hides,
}

/// A record that speaks of a path of the PFS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Speaker {
    /// The path of the PFS.
    pub lower: TreePath,
    /// The path of the record.
    pub path: TreePath,
    /// What it says.
    pub word: Word,
}

/// Some paths of the PFS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lowers {
    /// This one alone.
    At(TreePath),
    /// This one, and all below it.
    Within(TreePath),
}

impl Lowers {
    /// Is this path one of them?
    pub fn contains(&self, lower: &TreePath) -> bool {
        match self {
            Lowers::At(at) => at == lower,
            Lowers::Within(dir) => lower.is_within(dir),
        }
    }
}

/// Who speaks of some paths of the PFS, as all bridges of a namespace together say: a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpeakersPage {
    /// In the order of [`Speakers::within`], and all who speak of one path or none of them.
    pub speakers: Vec<Speaker>,
    /// [`Speakers::digest`] of each bridge, at the moment of its answer.
    pub seen: Vec<(BridgeId, u64)>,
}

/// What one bridge says of a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpeakersPart {
    /// In the order of [`Speakers::within`].
    pub speakers: Vec<Speaker>,
    /// Nothing comes after them.
    pub ends: bool,
    /// [`Speakers::digest`] of all that was asked for, not of this page alone.
    pub digest: u64,
}

impl SpeakersPage {
    /// One page from the answers of all bridges. It goes down to the path at which the first bridge broke off: what
    /// that one has to say of paths below is not known yet.
    pub fn merged(parts: impl IntoIterator<Item = (BridgeId, SpeakersPart)>) -> Self {
        let mut page = SpeakersPage::default();
        let mut broken_off = Vec::new();
        for (bridge, part) in parts {
            if !part.ends {
                broken_off.extend(part.speakers.last().map(|last| last.lower.clone()));
            }
            page.seen.push((bridge, part.digest));
            page.speakers.extend(part.speakers);
        }
        if let Some(end) = broken_off.into_iter().max() {
            page.speakers.retain(|speaker| speaker.lower >= end);
        }
        page.speakers.sort_by(|a, b| {
            let of_lower = b.lower.cmp(&a.lower);
            of_lower.then_with(|| (&a.path, a.word).cmp(&(&b.path, b.word)))
        });
        page
    }
}

/// Who speaks of one path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Here {
    /// What the record at this very path says. Mostly there is nothing else, and it takes no memory of its own.
    same: [Option<Word>; 2],
    others: BTreeSet<(TreePath, Word)>,
}

impl Here {
    fn is_empty(&self) -> bool {
        self.same == [None; 2] && self.others.is_empty()
    }

    fn of(&self, lower: &TreePath) -> impl Iterator<Item = Speaker> {
        let speaker = |path: &TreePath, word: Word| Speaker {
            lower: lower.clone(),
            path: path.clone(),
            word,
        };
        let same = self.same.iter().flatten().map(|word| speaker(lower, *word));
        let others = self.others.iter().map(|(path, word)| speaker(path, *word));
        same.chain(others).collect::<Vec<_>>().into_iter()
    }
}

/// The index of all records that speak of paths of the PFS, and of those in transit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Speakers {
    at: BTreeMap<TreePath, Here>,
    /// Of records that speak of other paths than their own: which.
    elsewhere: BTreeMap<TreePath, BTreeSet<TreePath>>,
    in_transit: BTreeSet<TreePath>,
}

impl Speakers {
    /// Follows a batch that has been committed, in its order.
    pub fn follow(&mut self, batch: &[Change]) {
        for change in batch {
            match change {
                Change::Delete { path, .. } => self.forget(path),
                Change::Put { path, record } => self.learn(path, record),
                _ => {}
            }
        }
    }

    /// The record at `path` is this one now.
    pub fn learn(&mut self, path: &TreePath, record: &PathRecord) {
        self.forget(path);
        let words = [(&record.origin, Word::Origin), (&record.hides, Word::Hides)];
        for (lower, word) in words {
            let Some(lower) = lower else { continue };
            let here = self.at.entry(lower.clone()).or_default();
            if lower == path {
                here.same[word as usize] = Some(word);
                continue;
            }
            here.others.insert((path.clone(), word));
            let lowers = self.elsewhere.entry(path.clone()).or_default();
            lowers.insert(lower.clone());
        }
        if record.transit.is_some() {
            self.in_transit.insert(path.clone());
        }
    }

    fn forget(&mut self, path: &TreePath) {
        self.in_transit.remove(path);
        if let Some(here) = self.at.get_mut(path) {
            here.same = [None; 2];
            if here.is_empty() {
                self.at.remove(path);
            }
        }
        for lower in self.elsewhere.remove(path).unwrap_or_default() {
            if let Some(here) = self.at.get_mut(&lower) {
                here.others.retain(|(at, _)| at != path);
                if here.is_empty() {
                    self.at.remove(&lower);
                }
            }
        }
    }

    /// Who speaks of exactly this path.
    pub fn of(&self, lower: &TreePath) -> Vec<Speaker> {
        match self.at.get(lower) {
            Some(here) => here.of(lower).collect(),
            None => Vec::new(),
        }
    }

    /// Where in the buffer the thing is that is at `origin` on the PFS, if it was renamed.
    pub fn moved(&self, origin: &TreePath) -> Option<TreePath> {
        let here = self.at.get(origin)?;
        if here.same[Word::Origin as usize].is_some() {
            return Some(origin.clone());
        }
        let mut others = here.others.iter();
        others
            .find(|(_, word)| *word == Word::Origin)
            .map(|(path, _)| path.clone())
    }

    /// Who speaks of this path or of something below it, at least `limit` of them if there are so many. They
    /// come in descending order of the path that they speak of: contents before their directory. The next page starts below
    /// `before`, the last path of this one. The speakers of one path are never split over two pages.
    pub fn within(
        &self,
        lower: &TreePath,
        before: Option<&TreePath>,
        limit: usize,
    ) -> Vec<Speaker> {
        let upper = match before {
            Some(before) if before <= lower => return Vec::new(),
            Some(before) => Bound::Excluded(before.clone()),
            None => end_of(lower),
        };
        let mut page = Vec::new();
        let range = self.at.range((Bound::Included(lower.clone()), upper));
        // Between `dir` and `dir/...` other names may lie (`dir!`), which begin alike.
        for (at, here) in range.rev().filter(|(at, _)| at.is_within(lower)) {
            if page.len() >= limit {
                break;
            }
            page.extend(here.of(at));
        }
        page
    }

    /// A page of those who speak of these paths: as [`Speakers::within`].
    pub fn part(&self, of: &Lowers, before: Option<&TreePath>, limit: usize) -> SpeakersPart {
        let speakers = match of {
            Lowers::At(_) if before.is_some() => Vec::new(),
            Lowers::At(lower) => self.of(lower),
            Lowers::Within(dir) => self.within(dir, before, limit),
        };
        let ends = match (of, speakers.last()) {
            (Lowers::Within(dir), Some(last)) => self.within(dir, Some(&last.lower), 1).is_empty(),
            _ => true,
        };
        SpeakersPart {
            speakers,
            ends,
            digest: self.digest(of),
        }
    }

    /// A digest of all that is said of these paths.
    pub fn digest(&self, of: &Lowers) -> u64 {
        let all = match of {
            Lowers::At(lower) => self.of(lower),
            Lowers::Within(dir) => self.within(dir, None, usize::MAX),
        };
        all.iter().fold(0, |digest, speaker| {
            let path = hash_bytes(speaker.path.as_bytes());
            let says = mix(hash_bytes(speaker.lower.as_bytes()), path);
            mix(digest, mix(says, speaker.word as u64))
        })
    }

    /// What the record at this path says, and of which paths of the PFS.
    pub fn words_of(&self, path: &TreePath) -> BTreeSet<(TreePath, Word)> {
        let lowers = self.elsewhere.get(path).into_iter().flatten().chain([path]);
        let said = lowers.flat_map(|lower| self.of(lower));
        let own = said.filter(|speaker| speaker.path == *path);
        own.map(|speaker| (speaker.lower, speaker.word)).collect()
    }

    /// Is the record at this path in transit?
    pub fn is_in_transit(&self, path: &TreePath) -> bool {
        self.in_transit.contains(path)
    }

    /// Records in transit, by path, after `after`, at most `limit`.
    pub fn in_transit(&self, after: Option<&TreePath>, limit: usize) -> Vec<TreePath> {
        let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
        let range = self.in_transit.range((start, Bound::Unbounded));
        range.take(limit).cloned().collect()
    }
}

/// The end of all paths at or below `lower`, and of some more.
fn end_of(lower: &TreePath) -> Bound<TreePath> {
    let mut bytes = lower.as_bytes().to_vec();
    if bytes.is_empty() {
        return Bound::Unbounded;
    }
    // '0' is the byte after '/'.
    bytes.push(b'0');
    TreePath::new(bytes).map_or(Bound::Unbounded, Bound::Excluded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BridgeId, Kind, ObjectName, Transit};

    fn p(s: &str) -> TreePath {
        TreePath::new(s.as_bytes()).unwrap()
    }

    fn record(origin: Option<&str>, hides: Option<&str>, transit: Option<Transit>) -> PathRecord {
        PathRecord {
            version: 1,
            origin: origin.map(p),
            hides: hides.map(p),
            transit,
            ..PathRecord::new(Kind::Moved, ObjectName::default(), BridgeId(0))
        }
    }

    fn put(path: &str, record: PathRecord) -> Change {
        Change::Put {
            path: p(path),
            record,
        }
    }

    fn delete(path: &str) -> Change {
        Change::Delete {
            path: p(path),
            object: ObjectName::default(),
        }
    }

    #[test]
    fn an_index_that_follows_is_the_one_that_is_made_anew() {
        let mut seed = 7u64;
        let mut random = |n: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 9) % n
        };
        let names = ["a", "b", "a/b", "a/c", "a!", "a/b/c"];
        let mut speakers = Speakers::default();
        let mut table: BTreeMap<TreePath, PathRecord> = BTreeMap::new();
        for _ in 0..2000 {
            let mut name = |n: u64| match random(n) {
                n if n < 6 => Some(names[n as usize]),
                _ => None,
            };
            let path = name(6).unwrap();
            let (origin, hides, transit) = (name(9), name(9), name(8).is_none());
            let change = if name(9).is_none() {
                table.remove(&p(path));
                delete(path)
            } else {
                let record = record(origin, hides, transit.then_some(Transit::Placing));
                table.insert(p(path), record.clone());
                put(path, record)
            };
            speakers.follow(&[change]);
            let mut anew = Speakers::default();
            for (path, record) in &table {
                anew.learn(path, record);
            }
            assert_eq!(speakers, anew);
        }
    }

    #[test]
    fn pages_of_several_bridges_meet_everything_once_wherever_one_breaks_off() {
        let mut bridges = [Speakers::default(), Speakers::default()];
        let lowers = ["a", "a/b", "a/b/c", "a/d", "a/e", "a/f", "b"];
        for (n, lower) in lowers.iter().enumerate() {
            let path = format!("x{n}");
            let told = put(&path, record(Some(lower), None, None));
            bridges[usize::from(n % 3 == 0)].follow(&[told]);
            let hides = put(&format!("y{n}"), record(None, Some(lower), None));
            bridges[usize::from(n % 2 == 0)].follow(&[hides]);
        }
        let of = Lowers::Within(p("a"));
        for limits in [[1, 9], [9, 1], [2, 3], [1, 1]] {
            let (mut all, mut before) = (Vec::new(), None);
            loop {
                let parts = bridges.iter().zip(limits).enumerate();
                let parts = parts.map(|(n, (speakers, limit))| {
                    (
                        BridgeId(n as u32),
                        speakers.part(&of, before.as_ref(), limit),
                    )
                });
                let page = SpeakersPage::merged(parts);
                let Some(last) = page.speakers.last() else {
                    break;
                };
                before = Some(last.lower.clone());
                all.extend(page.speakers);
            }
            assert!(all.is_sorted_by(|a, b| a.lower >= b.lower), "{limits:?}");
            assert_eq!(all.len(), 12, "{limits:?}: each once");
            let different: BTreeSet<_> = all.into_iter().collect();
            assert_eq!(different.len(), 12, "{limits:?}");
        }
    }

    #[test]
    fn what_lies_in_a_directory_comes_before_it_and_pages_meet_everything_once() {
        let mut speakers = Speakers::default();
        speakers.follow(&[
            put("x", record(Some("a"), Some("x"), None)),
            put("y", record(Some("a/b"), Some("a/b"), None)),
            put("a/b/c", record(None, Some("a/b/c"), Some(Transit::Placing))),
            put("z", record(None, Some("a!"), None)),
            put("w", record(None, Some("a!"), None)),
        ]);
        let all = |lower: &str, limit| {
            let (mut all, mut before) = (Vec::new(), None);
            loop {
                let page = speakers.within(&p(lower), before.as_ref(), limit);
                let Some(last) = page.last() else { break };
                before = Some(last.lower.clone());
                all.extend(page);
            }
            all
        };
        for limit in 1..5 {
            let lowers: Vec<_> = all("a", limit).into_iter().map(|s| s.lower).collect();
            assert_eq!(lowers, [p("a/b/c"), p("a/b"), p("a/b"), p("a")]);
            assert_eq!(all("", limit).len(), 7, "{limit}");
        }
        assert_eq!(all("a/b/c/d", 1), []);
        assert_eq!(speakers.moved(&p("a")), Some(p("x")));
        assert_eq!(speakers.moved(&p("a!")), None);
        assert_eq!(speakers.of(&p("a!")).len(), 2);
        assert_eq!(speakers.in_transit(None, 9), [p("a/b/c")]);
        assert_eq!(speakers.in_transit(Some(&p("a/b/c")), 9), []);
    }
}
