//! Parts of PFS directories, kept between the parts of one listing: a large
//! directory is read once, and its reader sees one state of it.

use crate::limits::{LISTING_ENTRIES, LISTINGS};
use forebay_core::facts::LowerPage;
use forebay_core::path::TreePath;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

type List = Arc<LowerPage>;

/// A listing of one user: numbers can be guessed, and others may not see what this one may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Session {
    /// Whose it is.
    pub user: u32,
    /// 0: a new one.
    pub number: u64,
}

#[derive(Default)]
struct Inner {
    kept: HashMap<Session, Kept>,
    entries: usize,
    clock: u64,
    last_session: u64,
}

struct Kept {
    lower: Option<(TreePath, List)>,
    used: u64,
}

impl Kept {
    fn entries(&self) -> usize {
        self.lower
            .as_ref()
            .map_or(0, |(_, list)| list.entries.len())
    }
}

/// All kept listings.
#[derive(Default)]
pub struct Listings(Mutex<Inner>);

impl Inner {
    fn remove(&mut self, session: Session) {
        if let Some(kept) = self.kept.remove(&session) {
            self.entries -= kept.entries();
        }
    }
}

impl Listings {
    /// The listing that `session` has of `path`.
    pub fn get(&self, session: Session, path: &TreePath) -> Option<List> {
        if session.number == 0 {
            return None;
        }
        let mut inner = self.0.lock();
        inner.clock += 1;
        let clock = inner.clock;
        let kept = inner.kept.get_mut(&session)?;
        kept.used = clock;
        let (at, list) = kept.lower.as_ref()?;
        (at == path).then(|| list.clone())
    }

    /// Keeps a listing for its next part and returns the number of its session, a new one for 0.
    pub fn keep(&self, mut session: Session, lower: Option<(TreePath, List)>) -> u64 {
        let mut inner = self.0.lock();
        inner.clock += 1;
        if session.number == 0 {
            inner.last_session += 1;
            session.number = inner.last_session;
        }
        if lower.is_none() {
            // A listing from the tables alone is not kept; the last name says where it goes on.
            return session.number;
        }
        inner.remove(session);
        let kept = Kept {
            lower,
            used: inner.clock,
        };
        inner.entries += kept.entries();
        inner.kept.insert(session, kept);
        while inner.kept.len() > LISTINGS || inner.entries > LISTING_ENTRIES && inner.kept.len() > 1
        {
            let Some((&oldest, _)) = inner.kept.iter().min_by_key(|(_, k)| k.used) else {
                break;
            };
            inner.remove(oldest);
        }
        session.number
    }

    /// The listing has ended.
    pub fn end(&self, session: Session) {
        if session.number != 0 {
            self.0.lock().remove(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::facts::LowerEntry;

    fn list(n: usize) -> List {
        let entry = LowerEntry {
            name: b"x".to_vec(),
            ino: 1,
            dtype: 8,
        };
        Arc::new(LowerPage {
            entries: vec![entry; n],
            ..LowerPage::default()
        })
    }

    #[test]
    fn the_listing_not_used_for_longest_goes_and_the_number_is_bounded() {
        let listings = Listings::default();
        let dir = TreePath::new(*b"d").unwrap();
        let of = |number| Session { user: 7, number };
        let keep = || of(listings.keep(of(0), Some((dir.clone(), list(1)))));
        let (first, second) = (keep(), keep());
        for _ in 2..LISTINGS {
            keep();
        }
        let guessed = Session { user: 8, ..first };
        assert!(listings.get(guessed, &dir).is_none());
        listings.end(guessed);
        assert!(listings.get(first, &dir).is_some());
        keep();
        assert!(listings.get(first, &dir).is_some());
        assert!(listings.get(second, &dir).is_none());
        assert!(listings.get(first, &TreePath::root()).is_none());
        listings.end(first);
        assert!(listings.get(first, &dir).is_none());
    }
}
