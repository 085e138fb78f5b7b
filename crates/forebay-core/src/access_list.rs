//! POSIX access control lists: what one of them lets somebody do.
//!
//! The mode of an object with a list tells less than the list. The bits of its group are the mask, which is the most that the
//! group and all that are named can get.

use crate::facts::{Attr, Cred, Timestamp};
use std::time::Duration;

/// The extended attribute that holds a list.
pub const XATTR: &[u8] = b"system.posix_acl_access";

const VERSION: u32 = 2;
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

const USER: u16 = 0x02;
const OWN_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// All rights: read, write, search or execute.
const ALL: u16 = 7;

/// Can a list change what `cred` may do with an object that looks like `attr`? Root needs none, the owner has what the mode says, and links
/// have none. Linux does not ask a list whose mask gives nothing.
pub fn matters(cred: &Cred, attr: &Attr) -> bool {
    let is_link = attr.mode & libc::S_IFMT == libc::S_IFLNK;
    cred.uid != 0 && cred.uid != attr.uid && !is_link && attr.mode & libc::S_IRWXG != 0
}

/// `attr` with what the object's list, if it has one, gives to `cred`. A list without entries is none; one that can't be read gives nothing.
pub fn with_list(attr: Attr, list: Option<&[u8]>, cred: &Cred) -> Attr {
    let list = list.filter(|list| matters(cred, &attr) && list.len() != HEAD_BYTES);
    let granted = list.map(|list| {
        let entries = entries(list).unwrap_or_default();
        (0..=ALL)
            .filter(|&want| grants(&entries, cred, &attr, want))
            .fold(0, |all, want| all | 1 << want)
    });
    Attr { granted, ..attr }
}

/// Longer than a tick of the clock of a file system that keeps nanoseconds, in whatever steps.
const TICK: Duration = Duration::from_millis(100);
/// The same of one that keeps whole seconds.
const WHOLE_SECOND: Duration = Duration::from_millis(1100);
/// How long a list is believed.
const KEPT: Duration = Duration::from_secs(1);

/// Is a list that was read before still that of a file with this `ctime`? It was read `after` that `ctime` was first seen, and is of this `age`.
///
/// Whatever changes a list changes the `ctime` of its file, too. But several changes within a tick of the file system's clock have the same
/// one. So a list is believed if it was read more than a tick after its `ctime` was first seen: a later change has another
/// `ctime`. It is not believed for long, for file systems that do not keep to that.
pub fn is_believed(ctime: Timestamp, after: Duration, age: Duration) -> bool {
    let tick = match ctime.nsec {
        0 => WHOLE_SECOND,
        _ => TICK,
    };
    after >= tick && age < KEPT
}

/// An entry: its tag, its rights, and whom it names.
type Entry = (u16, u16, u32);

fn entries(list: &[u8]) -> Option<Vec<Entry>> {
    let (version, rest) = list.split_first_chunk::<HEAD_BYTES>()?;
    let (entries, []) = rest.as_chunks::<ENTRY_BYTES>() else {
        return None;
    };
    let entry = |&[a, b, c, d, e, f, g, h]: &[u8; ENTRY_BYTES]| {
        let number = u32::from_le_bytes([e, f, g, h]);
        (
            u16::from_le_bytes([a, b]),
            u16::from_le_bytes([c, d]),
            number,
        )
    };
    (u32::from_le_bytes(*version) == VERSION).then(|| entries.iter().map(entry).collect())
}

/// Does the list give all of `want`? As Linux does it: who is named has that entry alone, a member of groups needs one entry that gives all
/// of it, and others have theirs only if no entry fits. The mask limits all but that of others.
fn grants(entries: &[Entry], cred: &Cred, attr: &Attr, want: u16) -> bool {
    let gives = |rights: u16| rights & want == want;
    let of = |tag| entries.iter().filter(move |entry| entry.0 == tag);
    let mask = of(MASK).next().map_or(ALL, |entry| entry.1);
    if let Some((_, rights, _)) = of(USER).find(|entry| entry.2 == cred.uid) {
        return gives(rights & mask);
    }
    let own = of(OWN_GROUP).filter(|_| cred.in_group(attr.gid));
    let mut groups = own
        .chain(of(GROUP).filter(|entry| cred.in_group(entry.2)))
        .peekable();
    if groups.peek().is_some() {
        return groups.any(|entry| gives(entry.1)) && gives(mask);
    }
    of(OTHER).next().is_some_and(|entry| gives(entry.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{READ, SEARCH, WRITE, may};

    const OWNER: u16 = 0x01;
    const NOBODY: u32 = u32::MAX;

    fn list(entries: &[Entry]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, rights, number) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(rights.to_le_bytes());
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    /// Of user 10 and group 20; named are user 11, and groups 21 and 22.
    fn example() -> Vec<u8> {
        list(&[
            (OWNER, 7, NOBODY),
            (USER, 6, 11),
            (OWN_GROUP, 0, NOBODY),
            (GROUP, 4, 21),
            (GROUP, 2, 22),
            (MASK, 6, NOBODY),
            (OTHER, 5, NOBODY),
        ])
    }

    fn cred(uid: u32, groups: &[u32]) -> Cred {
        Cred {
            uid,
            gid: 99,
            groups: groups.to_vec(),
        }
    }

    fn attr() -> Attr {
        Attr {
            mode: libc::S_IFREG | 0o765,
            uid: 10,
            gid: 20,
            ..Attr::default()
        }
    }

    fn with(list: &[u8], cred: &Cred) -> Attr {
        with_list(attr(), Some(list), cred)
    }

    #[test]
    fn the_list_decides_and_not_the_bits_of_the_mode() {
        let can = |cred: &Cred, want| may(cred, &with(&example(), cred), want);
        // Whom it names, whatever groups that user is in.
        let named = cred(11, &[20, 21]);
        assert!(can(&named, READ | WRITE) && !can(&named, SEARCH));
        // The group has the mask in the mode, and nothing in the list.
        let member = cred(12, &[20]);
        assert!(may(&member, &attr(), READ | WRITE));
        assert!(!can(&member, READ) && !can(&member, WRITE));
        // No entry gives both.
        let of_two = cred(12, &[21, 22]);
        assert!(can(&of_two, READ) && can(&of_two, WRITE) && !can(&of_two, READ | WRITE));
        // Others are not masked.
        let other = cred(12, &[]);
        assert!(can(&other, READ | SEARCH) && !can(&other, WRITE));
        // The owner and root.
        assert!(can(&cred(10, &[]), READ | WRITE | SEARCH));
        assert!(can(&cred(0, &[]), READ | WRITE | SEARCH));
    }

    #[test]
    fn the_mask_limits_all_that_are_named() {
        let masked = list(&[
            (OWNER, 7, NOBODY),
            (USER, 7, 11),
            (OWN_GROUP, 7, NOBODY),
            (MASK, 4, NOBODY),
            (OTHER, 0, NOBODY),
        ]);
        for who in [cred(11, &[]), cred(12, &[20])] {
            let attr = with(&masked, &who);
            assert!(may(&who, &attr, READ) && !may(&who, &attr, WRITE));
        }
    }

    #[test]
    fn a_list_whose_mask_gives_nothing_is_not_asked() {
        let closed = Attr {
            mode: libc::S_IFREG | 0o705,
            ..attr()
        };
        let named = cred(11, &[]);
        let attr = with_list(closed, Some(&example()), &named);
        assert!(may(&named, &attr, READ | SEARCH) && !may(&named, &attr, WRITE));
    }

    #[test]
    fn a_list_is_believed_once_the_clock_of_its_file_has_gone_on_and_not_for_long() {
        let ms = Duration::from_millis;
        for (nsec, tick) in [(1, 100), (0, 1100)] {
            let ctime = Timestamp { sec: 7, nsec };
            assert!(is_believed(ctime, ms(tick), ms(999)));
            assert!(!is_believed(ctime, ms(tick - 1), ms(0)));
            assert!(!is_believed(ctime, ms(tick), ms(1000)));
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_grants_nothing() {
        let good = example();
        let mut other_version = good.clone();
        other_version[0] = 3;
        let named = cred(11, &[]);
        assert_eq!(with(&good[..HEAD_BYTES], &named), attr());
        for bad in [&[][..], &good[..3], &good[..good.len() - 1], &other_version] {
            assert!(!may(&named, &with(bad, &named), READ));
        }
    }
}
