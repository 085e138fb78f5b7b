//! What others commit while a request decides without a lock.

use super::Effect;
use crate::path::TreePath;
use crate::table::Change;

/// Paths that are noted for one decision.
const MOST_NOTED: usize = 4096;

/// What others have changed since some decisions began. A driver tells it of each batch before that is in the tables.
#[derive(Debug, Default)]
pub struct Meanwhile {
    last: u64,
    under_way: Vec<(u64, Changed)>,
}

#[derive(Debug)]
enum Changed {
    /// Records of these paths.
    Paths(Vec<TreePath>),
    /// Much, or the PFS.
    Much,
}

impl Meanwhile {
    /// A decision begins: its number. It has seen no batch in part.
    pub fn begin(&mut self) -> u64 {
        self.last += 1;
        self.under_way.push((self.last, Changed::Paths(Vec::new())));
        self.last
    }

    /// It has ended.
    pub fn end(&mut self, number: u64) {
        self.under_way.retain(|(other, _)| *other != number);
    }

    /// Somebody commits a batch.
    pub fn changed(&mut self, batch: &[Change]) {
        for (_, changed) in &mut self.under_way {
            if let Changed::Paths(paths) = changed {
                let new = batch.iter().filter_map(Change::path);
                match paths.len() + new.clone().count() <= MOST_NOTED {
                    true => paths.extend(new.cloned()),
                    false => *changed = Changed::Much,
                }
            }
        }
    }

    /// A drain has changed the PFS.
    pub fn pfs_changed(&mut self) {
        for (_, changed) in &mut self.under_way {
            *changed = Changed::Much;
        }
    }

    /// May this effect of the decision be carried out? For a commit, asked when nobody else can commit any more: it removes
    /// a directory, and nobody has changed something at it, below it or above it. An answer must not rest on facts of
    /// different moments, so nobody may have changed anything. Anything else only finds out more.
    pub fn allows(&self, number: u64, effect: &Effect) -> bool {
        let mut mine = self.under_way.iter().filter(|(n, _)| *n == number);
        let paths = match mine.next() {
            Some((_, Changed::Paths(paths))) => Some(paths),
            _ => None,
        };
        match effect {
            Effect::Commit(commit) => paths
                .zip(commit.unseen.as_ref())
                .is_some_and(|(paths, removed)| !removed.is_touched_by(paths)),
            Effect::Finish(_) => paths.is_some_and(Vec::is_empty),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::ReadSet;
    use crate::ops::Unseen;
    use crate::record::{BridgeId, ObjectId, ObjectName, Token};
    use crate::request::Commit;

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).unwrap()
    }

    fn batch(at: &str) -> Vec<Change> {
        let object = ObjectName {
            oid: ObjectId::new(BridgeId(1), 1, 1),
            link: 0,
        };
        let path = path(at);
        vec![Change::Delete { path, object }]
    }

    fn removal(dir: Option<&str>) -> Effect {
        let unseen = |dir| Unseen {
            dir: path(dir),
            records: Vec::new(),
            per_part: 1,
        };
        Effect::Commit(Commit {
            reads: ReadSet::default(),
            batch: Vec::new(),
            unseen: dir.map(unseen),
            token: Token::default(),
        })
    }

    #[test]
    fn a_removal_holds_unless_others_have_changed_something_there() {
        for (at, holds) in [
            ("p/d", false),
            ("p/d/f", false),
            ("p", false),
            ("p/e", true),
            ("q/d", true),
        ] {
            let mut meanwhile = Meanwhile::default();
            meanwhile.changed(&batch("p/d"));
            let number = meanwhile.begin();
            assert!(meanwhile.allows(number, &removal(Some("p/d"))));
            meanwhile.changed(&batch(at));
            let allowed = meanwhile.allows(number, &removal(Some("p/d")));
            assert_eq!(allowed, holds, "{at}");
            assert!(meanwhile.allows(number, &Effect::Pause));
            let later = meanwhile.begin();
            assert!(meanwhile.allows(later, &removal(Some("p/d"))));
        }
    }

    #[test]
    fn what_is_not_known_to_hold_does_not() {
        let mut meanwhile = Meanwhile::default();
        let number = meanwhile.begin();
        assert!(!meanwhile.allows(number, &removal(None)), "no removal");
        assert!(
            !meanwhile.allows(number + 1, &removal(Some("d"))),
            "of another"
        );
        for _ in 0..=MOST_NOTED {
            meanwhile.changed(&batch("elsewhere"));
        }
        assert!(!meanwhile.allows(number, &removal(Some("d"))), "much");
        let number = meanwhile.begin();
        meanwhile.pfs_changed();
        assert!(!meanwhile.allows(number, &removal(Some("d"))), "the PFS");
        meanwhile.end(number);
        assert!(!meanwhile.allows(number, &removal(Some("d"))), "ended");
    }
}
