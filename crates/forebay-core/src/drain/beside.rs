//! Where something of others goes whose place is taken, or gone.

use crate::path::TreePath;
use forebay_types::MAX_NAME_BYTES;

/// So many names are tried in a directory.
const MOST_BESIDE: u32 = 100;

/// The names beside `name` that it may get, in this order: `NAME.theirs1` and so on. What would be too long loses the end of
/// `NAME`.
pub fn names_beside(name: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (1..=MOST_BESIDE).map(move |n| nth(name, n))
}

fn nth(name: &[u8], n: u32) -> Vec<u8> {
    let end = format!(".theirs{n}");
    let room = MAX_NAME_BYTES - end.len();
    [&name[..name.len().min(room)], end.as_bytes()].concat()
}

/// Places for what comes back, tried one after the other: where it was, a name beside that, and if its directory is gone
/// the nearest one above that is there.
#[derive(Debug)]
pub struct Places {
    name: Vec<u8>,
    dir: TreePath,
    beside: u32,
}

impl Places {
    /// It was at `path`.
    pub fn of(path: &TreePath) -> Self {
        Places {
            name: path.name().to_vec(),
            dir: path.parent(),
            beside: 0,
        }
    }

    /// The place to try now.
    pub fn place(&self) -> TreePath {
        self.dir.join(&match self.beside {
            0 => self.name.clone(),
            n => nth(&self.name, n),
        })
    }

    /// Its directory.
    pub fn dir(&self) -> &TreePath {
        &self.dir
    }

    /// Goes to the next place after this errno. False: no other place would help.
    pub fn move_on(&mut self, errno: i32) -> bool {
        match errno {
            libc::EEXIST => self.next_beside(),
            libc::ENOENT | libc::ENOTDIR | libc::ELOOP => self.one_up(),
            _ => false,
        }
    }

    /// Goes to the next name in this directory. False: there is no other.
    fn next_beside(&mut self) -> bool {
        self.beside += 1;
        self.beside <= MOST_BESIDE
    }

    /// Goes to the directory above. False: there is none.
    fn one_up(&mut self) -> bool {
        let Some((above, _)) = self.dir.split() else {
            return false;
        };
        self.dir = above;
        // That it was not there before is to be seen by its name.
        self.beside = 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_name_beside_the_longest_one_is_not_too_long() {
        let name = [b'n'; MAX_NAME_BYTES];
        let beside: Vec<_> = names_beside(&name).collect();
        assert!(beside.iter().all(|name| name.len() == MAX_NAME_BYTES));
        assert!(beside[99].ends_with(b"nn.theirs100"));
        assert_eq!(
            beside
                .iter()
                .collect::<std::collections::BTreeSet<_>>()
                .len(),
            100
        );
    }

    #[test]
    fn what_comes_back_goes_where_it_was_or_beside_it_or_above() {
        let mut places = Places::of(&path("a/b/c"));
        assert_eq!(places.place(), path("a/b/c"));
        assert!(places.next_beside());
        assert_eq!(places.place(), path("a/b/c.theirs1"));
        assert!(places.one_up());
        assert_eq!(places.place(), path("a/c.theirs1"));
        assert!(places.next_beside());
        assert_eq!(places.place(), path("a/c.theirs2"));
        assert!(places.one_up());
        assert_eq!(places.place(), path("c.theirs1"));
        assert!(!places.one_up());
        assert!((0..99).all(|_| places.next_beside()));
        assert_eq!(places.place(), path("c.theirs100"));
        assert!(!places.next_beside());
        assert_eq!(names_beside(b"c").count(), 100);
    }

    #[test]
    fn another_place_is_tried_only_if_that_may_help() {
        let mut places = Places::of(&path("a/c"));
        assert!(places.move_on(libc::EEXIST));
        assert_eq!(places.place(), path("a/c.theirs1"));
        for errno in [libc::EACCES, libc::EIO, libc::EROFS] {
            assert!(!places.move_on(errno));
            assert_eq!(places.place(), path("a/c.theirs1"));
        }
        assert!(places.move_on(libc::ELOOP));
        assert_eq!(places.place(), path("c.theirs1"));
        assert!(!places.move_on(libc::ENOENT), "the root is gone");
    }
}
