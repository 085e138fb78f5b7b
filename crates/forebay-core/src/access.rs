//! Permission checks, as POSIX says: mode bits, owner, group, sticky directories, and lists ([`crate::access_list`]).

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
    debug_assert!(want <= READ | WRITE | SEARCH, "{want} is no sum of rights");
    if let Some(granted) = attr.granted {
        return granted >> want & 1 == 1;
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
    if is_sticky(dir) && cred.uid != 0 && cred.uid != entry.uid && cred.uid != dir.uid {
        return errno(libc::EPERM);
    }
    Ok(())
}

/// What Linux forbids beyond POSIX: `fs.protected_*` of `sysctl`. All but `hardlinks` holds for root as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Protections {
    /// `fs.protected_symlinks`: in a sticky directory that all may write to, nobody follows a link of somebody else at the end of a
    /// path, unless its owner owns the directory.
    pub symlinks: bool,
    /// `fs.protected_hardlinks`: nobody but its owner and root links what is no plain file, or may not be read and written to.
    pub hardlinks: bool,
    /// `fs.protected_fifos`: 1: `O_CREAT` opens no FIFO of somebody else in a sticky directory that all may write to; 2: nor in one
    /// that a group may write to.
    pub fifos: u8,
    /// `fs.protected_regular`: the same of regular files.
    pub regular: u8,
}

impl Protections {
    /// May a link in this directory be followed?
    ///
    /// # Errors
    /// EACCES if not.
    pub fn check_follow(self, cred: &Cred, dir: &Attr, link: &Attr) -> Outcome<()> {
        let is_shared = is_sticky(dir) && dir.mode & 0o002 != 0;
        match self.symlinks && is_shared && cred.uid != link.uid && dir.uid != link.uid {
            true => errno(libc::EACCES),
            false => Ok(()),
        }
    }

    /// May this get another name?
    ///
    /// # Errors
    /// EPERM if not.
    pub fn check_link(self, cred: &Cred, source: &Attr) -> Outcome<()> {
        let runs_as_group = libc::S_ISGID | libc::S_IXGRP;
        let is_plain = source.is_file()
            && source.mode & libc::S_ISUID == 0
            && source.mode & runs_as_group != runs_as_group;
        let may_link =
            cred.uid == 0 || cred.uid == source.uid || is_plain && may(cred, source, READ | WRITE);
        match self.hardlinks && !may_link {
            true => errno(libc::EPERM),
            false => Ok(()),
        }
    }

    /// May `O_CREAT` open what is there in this directory?
    ///
    /// # Errors
    /// EACCES if not.
    pub fn check_create(self, cred: &Cred, dir: &Attr, there: &Attr) -> Outcome<()> {
        let level = match there.mode & libc::S_IFMT {
            libc::S_IFIFO => self.fifos,
            libc::S_IFREG => self.regular,
            // No setting is asked about sockets, devices and links.
            _ => 1,
        };
        let is_shared = level >= 1 && dir.mode & 0o002 != 0 || level >= 2 && dir.mode & 0o020 != 0;
        match is_shared && is_sticky(dir) && there.uid != dir.uid && there.uid != cred.uid {
            true => errno(libc::EACCES),
            false => Ok(()),
        }
    }
}

fn is_sticky(dir: &Attr) -> bool {
    dir.mode & libc::S_ISVTX != 0
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
    fn links_and_files_of_others_in_shared_directories_are_protected_as_linux_is_told_to() {
        let none = Protections::default();
        let all = Protections {
            symlinks: true,
            hardlinks: true,
            fifos: 2,
            regular: 2,
        };
        let some = Protections {
            fifos: 1,
            regular: 1,
            ..none
        };
        let of = |uid, mode| Attr { uid, ..attr(mode) };
        let me = &cred(11, 21);
        let shared = of(10, libc::S_IFDIR | 0o1777);
        // Of me, of the owner of the directory, of another one.
        for (uid, is_refused) in [(11, false), (10, false), (12, true)] {
            let link = of(uid, libc::S_IFLNK | 0o777);
            assert_eq!(all.check_follow(me, &shared, &link).is_err(), is_refused);
            let file = of(uid, libc::S_IFREG | 0o666);
            assert_eq!(some.check_create(me, &shared, &file).is_err(), is_refused);
        }
        let theirs = of(12, libc::S_IFREG | 0o666);
        let link = of(12, libc::S_IFLNK | 0o777);
        assert_eq!(none.check_follow(me, &shared, &link), Ok(()));
        assert_eq!(none.check_create(me, &shared, &theirs), Ok(()));
        for kind in [libc::S_IFSOCK, libc::S_IFCHR, libc::S_IFLNK] {
            assert!(
                none.check_create(me, &shared, &of(12, kind | 0o666))
                    .is_err()
            );
        }
        let root = &cred(0, 0);
        assert!(all.check_follow(root, &shared, &link).is_err());
        for mode in [0o777, 0o1755] {
            let dir = of(10, libc::S_IFDIR | mode);
            assert_eq!(all.check_follow(me, &dir, &link), Ok(()));
            assert_eq!(all.check_create(me, &dir, &theirs), Ok(()));
        }
        let of_group = of(10, libc::S_IFDIR | 0o1775);
        assert_eq!(some.check_create(me, &of_group, &theirs), Ok(()));
        assert!(all.check_create(me, &of_group, &theirs).is_err());
        // What may be linked.
        for (mode, is_refused) in [
            (0o666, false),
            (0o644, true),
            (0o4666, true),
            (0o2676, true),
        ] {
            let file = of(12, libc::S_IFREG | mode);
            assert_eq!(all.check_link(me, &file).is_err(), is_refused, "{mode:o}");
            assert_eq!(none.check_link(me, &file), Ok(()));
            assert_eq!(all.check_link(root, &file), Ok(()));
            assert_eq!(all.check_link(&cred(12, 21), &file), Ok(()));
        }
        assert!(all.check_link(me, &of(12, libc::S_IFIFO | 0o666)).is_err());
    }

    #[test]
    fn root_reads_everything_but_executes_only_what_someone_may() {
        assert!(may(&cred(0, 0), &attr(0), READ | WRITE));
        assert!(!may(&cred(0, 0), &attr(libc::S_IFREG | 0o666), SEARCH));
        assert!(may(&cred(0, 0), &attr(libc::S_IFDIR), SEARCH));
    }
}
