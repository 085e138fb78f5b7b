//! Permission checks, as POSIX says: mode bits, owner, group, sticky directories.

use crate::facts::{Attr, Cred, Outcome, errno};

/// Read permission.
pub const READ: u32 = 4;
/// Write permission.
pub const WRITE: u32 = 2;
/// Execute or search permission.
pub const SEARCH: u32 = 1;

/// May `cred` do `want` (a sum of [`READ`], [`WRITE`], [`SEARCH`]) with an object that looks like `attr`?
pub fn may(cred: &Cred, attr: &Attr, want: u32) -> bool {
    if cred.uid == 0 {
        let is_dir = attr.is_dir();
        return want & SEARCH == 0 || is_dir || attr.mode & 0o111 != 0;
    }
    let shift = if cred.uid == attr.uid {
        6
    } else if cred.in_group(attr.gid) {
        3
    } else {
        0
    };
    attr.mode >> shift & want == want
}

/// [`may`], or EACCES.
pub fn check(cred: &Cred, attr: &Attr, want: u32) -> Outcome<()> {
    if may(cred, attr, want) {
        Ok(())
    } else {
        errno(libc::EACCES)
    }
}

/// In a sticky directory only the owner of the entry, of the directory, or root may remove it.
pub fn check_sticky(cred: &Cred, dir: &Attr, entry: &Attr) -> Outcome<()> {
    if dir.mode & libc::S_ISVTX != 0
        && cred.uid != 0
        && cred.uid != entry.uid
        && cred.uid != dir.uid
    {
        return errno(libc::EPERM);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(mode: u32) -> Attr {
        Attr {
            mode,
            uid: 10,
            gid: 20,
            ..Attr::default()
        }
    }

    fn cred(uid: u32, gid: u32) -> Cred {
        Cred {
            uid,
            gid,
            groups: vec![],
        }
    }

    #[test]
    fn the_first_class_that_fits_decides_even_if_a_later_one_gives_more() {
        assert!(!may(&cred(10, 20), &attr(0o077), READ));
        assert!(!may(&cred(11, 20), &attr(0o707), READ));
        assert!(may(&cred(11, 21), &attr(0o004), READ));
        let member = Cred {
            groups: vec![20],
            ..cred(11, 21)
        };
        assert!(may(&member, &attr(0o040), READ));
    }

    #[test]
    fn root_reads_everything_but_executes_only_what_someone_may() {
        assert!(may(&cred(0, 0), &attr(0), READ | WRITE));
        assert!(!may(&cred(0, 0), &attr(libc::S_IFREG | 0o666), SEARCH));
        assert!(may(&cred(0, 0), &attr(libc::S_IFDIR), SEARCH));
    }
}
