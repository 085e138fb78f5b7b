//! New directories on the PFS: which one that is found may be taken for one.

use super::act::{OTHER_DIR, Trouble};
use crate::facts::Attr;
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::ObjectName;

/// A directory to be made on the PFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDir {
    /// Its path.
    pub path: TreePath,
    /// The backing directory.
    pub object: ObjectName,
    /// The one that an earlier pass has made or found there.
    pub known: Option<Identity>,
    /// See [`crate::record::Dirs::within`].
    pub within: Option<Identity>,
    /// The directory in which it is made where others could put another one in its place: beside it, under a name that nobody can
    /// guess.
    pub apart: TreePath,
    /// See [`crate::facts::Settings::knows_dirs`].
    pub knows_dirs: bool,
    /// An earlier pass has made it. It is not made again, and nothing else is taken for it.
    pub was_made: bool,
}

impl NewDir {
    /// Does this say that it is not where it was? Nothing is there, or something else, or another directory has the place of the one around.
    pub(super) fn is_absent(trouble: Trouble) -> bool {
        matches!(trouble.errno, libc::ENOENT | libc::ENOTDIR | libc::EEXIST)
            || trouble.operation == OTHER_DIR
    }

    /// May the directory that was found there, in the directory `around`, be taken for it? It will get the attributes of the backing
    /// directory, which are `own`: that of another user must not, nor one that others may have moved there. A drain by the user `by`
    /// that was killed may have made it and not have noted that, and a network file system may have made it and lost the answer: where
    /// others may have put it there, it has the mark of the object then ([`made_for`]).
    pub fn may_be(
        &self,
        found: &Attr,
        own: &Attr,
        by: u32,
        around: &Attr,
        is_empty: impl FnOnce() -> bool,
        is_marked: impl FnOnce() -> bool,
    ) -> bool {
        let is_known = self.known.is_some_and(|known| known.is_dir_of(found));
        // What is known has another number now.
        let is_told_by_owner = !self.knows_dirs && self.known.is_some();
        let is_put_by_owner = || is_put_by(own.uid, around) || is_kept_by(own.uid, around, found);
        let is_of_owner = || found.uid == own.uid && (is_told_by_owner || is_put_by_owner());
        // Before it got its owner, or after that.
        let is_new = [by, own.uid].contains(&found.uid) && found.mode & 0o777 == NEW_DIR_MODE;
        let is_just_made = || is_new && (is_put_by(by, around) || is_marked()) && is_empty();
        let is_taken = || !self.was_made && (is_of_owner() || is_just_made());
        found.is_dir() && (is_known || is_taken())
    }

    /// Is this what was made a moment ago by the user `by`, in a directory of the user `around`? The call that makes a directory
    /// gives no descriptor, so others may have put theirs in its place. For a file system on which it can't be made apart.
    pub fn is_made(found: &Attr, by: u32, around: u32, is_empty: impl FnOnce() -> bool) -> bool {
        [by, around].contains(&found.uid) && is_empty()
    }
}

/// Can only this user, or root, have put something into the directory `around`? If not, a new directory is made apart and gets its name when
/// it is known.
pub fn is_put_by(user: u32, around: &Attr) -> bool {
    [user, 0].contains(&around.uid) && around.mode & 0o022 == 0
}

/// Can nobody but this user, or root, have put `found`, which is theirs, into the sticky directory `around`? Others rename nothing of theirs
/// in it, and from another directory only a directory to which they may write.
fn is_kept_by(user: u32, around: &Attr, found: &Attr) -> bool {
    let is_sticky = around.mode & libc::S_ISVTX != 0 && found.mode & 0o022 == 0;
    [user, 0].contains(&around.uid) && is_sticky
}

/// The extended attribute of a directory that the user `by` has made apart: for which object, until it gets the mode of that. Until then only
/// its owner can enter the directory; others can't set it.
pub fn made_for(by: u32) -> &'static [u8] {
    match by {
        0 => b"trusted.forebay.made-for",
        _ => b"user.forebay.made-for",
    }
}

/// The mode of a directory of the PFS until it gets that of its backing directory. It has its owner from the first, so that one which others move
/// meanwhile is in reach of that, and of nobody else.
pub const NEW_DIR_MODE: u32 = 0o700;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BridgeId, ObjectId};

    #[test]
    fn what_others_put_in_place_of_a_directory_that_was_just_made_is_not_taken_for_it() {
        let (root, user, other) = (0, 1001, 1002);
        let of = |uid| Attr {
            mode: libc::S_IFDIR | 0o700,
            uid,
            ..Attr::default()
        };
        let is_made =
            |found, by, around, is_empty| NewDir::is_made(&of(found), by, around, || is_empty);
        assert!(is_made(root, root, user, true));
        // Some file systems show one owner for all.
        assert!(is_made(user, root, user, true));
        assert!(!is_made(other, root, user, true));
        assert!(!is_made(root, root, user, false), "it holds something");
        assert!(is_made(user, user, root, true));
        assert!(!is_made(other, user, user, true));
    }

    #[test]
    fn a_directory_that_is_found_is_taken_for_a_new_one_only_if_it_is_known_or_its_owner_has_put_it_there()
     {
        let dir = |uid, mode| Attr {
            ino: 5,
            mode: libc::S_IFDIR | mode,
            uid,
            ..Attr::default()
        };
        let (root, user, other) = (0, 1001, 1002);
        let new = |known, knows_dirs| NewDir {
            path: TreePath::new("d").unwrap(),
            object: ObjectName {
                oid: ObjectId::new(BridgeId(1), 1, 1),
                link: 0,
            },
            known,
            within: None,
            apart: TreePath::new("made").unwrap(),
            knows_dirs,
            was_made: false,
        };
        let own = dir(user, 0o755);
        let may_be = |known, found: &Attr, by, is_empty| {
            let around = dir(user, 0o755);
            new(known, true).may_be(found, &own, by, &around, || is_empty, || true)
        };
        assert!(may_be(None, &dir(user, 0o777), user, false));
        assert!(!may_be(None, &dir(other, 0o777), user, false));
        let known = Some(Identity::of_dir(&dir(other, 0o777)));
        assert!(may_be(known, &dir(other, 0o777), root, false));
        // A drain of root was killed, here in a directory that gives its group on.
        assert!(may_be(None, &dir(root, 0o2700), root, true));
        assert!(!may_be(None, &dir(root, 0o700), root, false));
        assert!(!may_be(None, &dir(root, 0o755), root, true));
        assert!(!may_be(None, &dir(root, 0o700), user, true));
        let file = Attr {
            mode: libc::S_IFREG | 0o700,
            ..dir(user, 0)
        };
        assert!(!may_be(None, &file, user, true));
        // Others may have moved one of the user there.
        let in_dir = |known, knows_dirs, around: &Attr| {
            let found = dir(user, 0o700);
            new(known, knows_dirs).may_be(&found, &own, root, around, || false, || true)
        };
        // Or one of root, which has no mark.
        let without_mark = |around: &Attr| {
            new(None, true).may_be(&dir(root, 0o700), &own, root, around, || true, || false)
        };
        assert!(without_mark(&dir(root, 0o755)));
        assert!(!without_mark(&dir(user, 0o755)));
        assert!(!without_mark(&dir(root, 0o777)));
        assert!(in_dir(None, true, &dir(root, 0o755)));
        assert!(in_dir(None, true, &dir(root, 0o1777)));
        assert!(!in_dir(None, true, &dir(other, 0o755)));
        assert!(!in_dir(None, true, &dir(other, 0o1777)));
        assert!(!in_dir(None, true, &dir(user, 0o775)));
        // Into a sticky directory they can have moved one to which they may write.
        let moved = |mode, is_empty, is_marked| {
            let found = dir(user, mode);
            let around = dir(root, 0o1777);
            new(None, true).may_be(&found, &own, root, &around, || is_empty, || is_marked)
        };
        assert!(moved(0o755, false, false));
        assert!(!moved(0o733, false, true) && !moved(0o770, true, false));
        // A drain that was killed had made it.
        let is_marked = |mode, is_empty| {
            let found = dir(user, mode);
            let around = dir(other, 0o777);
            new(None, true).may_be(&found, &own, root, &around, || is_empty, || true)
        };
        assert!(is_marked(0o700, true));
        assert!(!is_marked(0o700, false) && !is_marked(0o777, true));
        let another = Some(Identity::of_dir(&Attr {
            ino: 6,
            ..dir(user, 0o700)
        }));
        assert!(!in_dir(another, true, &dir(other, 0o755)));
        // Where numbers tell nothing the owner tells it.
        assert!(in_dir(another, false, &dir(other, 0o755)));
        assert!(!in_dir(None, false, &dir(other, 0o755)));
        let made = NewDir {
            was_made: true,
            ..new(another, true)
        };
        assert!(!made.may_be(&dir(user, 0o700), &own, user, &own, || true, || true));
    }
}
