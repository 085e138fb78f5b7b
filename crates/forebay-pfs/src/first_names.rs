//! Picks one page of a directory in the order of names, with bounded memory.

use forebay_core::facts::{LowerEntry, LowerPage};
use forebay_sys as sys;

/// Collects the first names of a directory that is read in any order.
pub(super) struct First {
    after: Option<Vec<u8>>,
    limit: usize,
    entries: Vec<LowerEntry>,
    /// Names after this one are left out.
    last: Option<Vec<u8>>,
}

impl First {
    pub(super) fn new(after: Option<&[u8]>, limit: usize) -> Self {
        assert!(limit > 0, "a page has room for a name");
        First {
            after: after.map(<[u8]>::to_vec),
            limit,
            entries: Vec::new(),
            last: None,
        }
    }

    pub(super) fn take(&mut self, entry: sys::RawEntry) {
        let is_before = self
            .after
            .as_ref()
            .is_some_and(|after| entry.name <= *after);
        let is_beyond = self.last.as_ref().is_some_and(|last| entry.name > *last);
        if is_before || is_beyond {
            return;
        }
        self.entries.push(LowerEntry {
            name: entry.name,
            ino: entry.ino,
            dtype: entry.dtype,
        });
        if self.entries.len() >= 2 * self.limit {
            let by_name = |a: &LowerEntry, b: &LowerEntry| a.name.cmp(&b.name);
            self.entries.select_nth_unstable_by(self.limit - 1, by_name);
            self.entries.truncate(self.limit);
            self.last = Some(self.entries[self.limit - 1].name.clone());
        }
    }

    pub(super) fn page(mut self) -> LowerPage {
        self.entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        // Some file systems list a name twice if others come or go meanwhile.
        self.entries.dedup_by(|a, b| a.name == b.name);
        let ends = self.last.is_none() && self.entries.len() <= self.limit;
        self.entries.truncate(self.limit);
        LowerPage {
            entries: self.entries,
            after: self.after,
            ends,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_directory_hold_every_name_once_in_order_and_are_bounded() {
        let mut names: Vec<Vec<u8>> = (0..1000)
            .map(|n| format!("{}", n * 7919 % 1000).into_bytes())
            .collect();
        let all = names.clone();
        names.sort();
        let mut after: Option<Vec<u8>> = None;
        let mut found = Vec::new();
        loop {
            let mut first = First::new(after.as_deref(), 64);
            for name in &all {
                first.take(sys::RawEntry {
                    name: name.clone(),
                    ino: 1,
                    dtype: libc::DT_REG,
                });
                assert!(first.entries.len() < 128);
            }
            let page = first.page();
            assert!(page.covers(after.as_deref()));
            assert_eq!(page.entries.len(), 64.min(names.len() - found.len()));
            found.extend(page.entries.iter().map(|e| e.name.clone()));
            after = found.last().cloned();
            if page.ends {
                break;
            }
        }
        assert_eq!(found, names);
    }

    #[test]
    fn a_name_that_is_listed_twice_is_in_one_page_once() {
        for limit in [2, 3, 100] {
            let mut after: Option<Vec<u8>> = None;
            let mut found = Vec::new();
            loop {
                let mut first = First::new(after.as_deref(), limit);
                for name in ["e", "a", "d", "e", "c", "e", "a"] {
                    first.take(sys::RawEntry {
                        name: name.into(),
                        ino: 1,
                        dtype: libc::DT_DIR,
                    });
                }
                let page = first.page();
                found.extend(page.entries.iter().map(|e| e.name.clone()));
                after = found.last().cloned();
                if page.ends {
                    break;
                }
            }
            assert_eq!(found, [b"a", b"c", b"d", b"e"], "{limit} in a page");
        }
    }

    #[test]
    fn a_page_holds_no_more_than_its_limit_and_says_whether_names_come_after_it() {
        for (count, held, ends) in [(3, 3, true), (4, 4, true), (5, 4, false), (7, 4, false)] {
            let mut first = First::new(None, 4);
            for n in (0..count).rev() {
                first.take(sys::RawEntry {
                    name: vec![b'a' + n],
                    ino: 1,
                    dtype: libc::DT_REG,
                });
            }
            let page = first.page();
            assert_eq!(
                (page.entries.len(), page.ends),
                (held, ends),
                "{count} names"
            );
            assert_eq!(page.entries[0].name, b"a");
        }
    }
}
