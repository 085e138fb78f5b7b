//! What a record means for the drain: what is dirty, what may be put where, whose the thing on the PFS is.

use super::act::Act;
use super::drain_facts::DrainFacts;
use super::reserved_names::{discarded_name, waiting_path};
use super::sheet::Reason;
use crate::bridge::ReadSet;
use crate::facts::{Attr, Outcome, Timestamp};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::pfs_kind::SyncBy;
use crate::record::{Kind, ObjectId, PathRecord, Stamp, Transit};
use crate::speakers::{Lowers, Speaker, Word};

/// Entries of one page of a walk.
pub(super) const PAGE: usize = 256;

/// The state of an inode that [`PathRecord::drained`] is compared with.
pub fn stamp(attr: &Attr) -> Stamp {
    Stamp {
        size: attr.size,
        ctime: attr.ctime,
    }
}

/// Stamp for "ours, but not in the object's present state". No object ever has it.
pub(crate) const OURS: Stamp = Stamp {
    size: 0,
    ctime: Timestamp { sec: 0, nsec: 0 },
};

/// Does the PFS differ from what the buffer shows at this path? `now` are the attributes of the backing
/// object; `None` if it can't be had, which never counts as clean.
pub fn is_dirty(path: &TreePath, record: &PathRecord, now: Option<&Attr>) -> bool {
    if record.hides.is_some() {
        return true;
    }
    match record.kind {
        Kind::Whiteout => true,
        Kind::Moved => record.origin.as_ref() != Some(path),
        Kind::Dir | Kind::File | Kind::Symlink | Kind::Special => {
            now.is_none_or(|attr| record.drained != Some(stamp(attr)))
        }
    }
}

/// Does the PFS still have what was drained, or what others have made of it? Somebody may have removed it.
pub(super) fn is_still_there(record: &PathRecord, now: &Attr, found: Option<&Attr>) -> bool {
    found.is_some_and(|found| {
        record.kind != Kind::File || found.size == now.size || is_changed(record, found)
    })
}

/// True if the drain may replace what is at this PFS path. Otherwise it belongs to a stranger. (A thing that was
/// renamed with its directory hides its old place, not this one.)
pub(super) fn is_ours(path: &TreePath, record: &PathRecord) -> bool {
    record.hides.as_ref() == Some(path) || record.drained.is_some()
}

/// True if others changed the entry on the PFS, as far as this record tells: it is neither what that replaced or drained, nor our copy
/// under way.
fn is_changed(record: &PathRecord, found: &Attr) -> bool {
    !is_copy(record, found) && record.replaces.is_some_and(|known| !known.is(found))
}

/// Is it our copy under way?
pub(super) fn is_copy(record: &PathRecord, found: &Attr) -> bool {
    has_contents(record) && record.arriving.as_ref().is_some_and(|copy| copy.is(found))
}

/// True if the entry appeared or changed after its directory was put aside, at `moment` by the clock of the PFS. `was_there`:
/// was this directory in it at that moment, if that is known? `touched`: if this drain, or one before it that was killed, has removed or
/// renamed another name of the same file since, the time of modification that this had before.
pub fn is_of_others_since(
    moment: Timestamp,
    found: &Attr,
    was_there: impl FnOnce() -> Option<bool>,
    touched: impl FnOnce() -> Option<Timestamp>,
) -> bool {
    if found.is_dir() {
        // What others put into a directory that was there is judged by itself.
        return found.btime >= moment
            || !was_there().unwrap_or_else(|| {
                // A removal that was killed has changed times of old directories as well. A directory that others have moved
                // here, and that they left as it was, has a new `ctime` only.
                found.ctime < moment || found.mtime >= moment
            });
    }
    // A new file can have the inode number of one that was touched and is gone. And programs set times as they like, to later ones too.
    let is_as_it_was = |mtime| found.mtime < moment || found.mtime == mtime;
    found.ctime >= moment && !(found.btime < moment && touched().is_some_and(is_as_it_was))
}

/// What is known of a copy before it is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopyFacts {
    /// User and group of who makes it.
    pub maker: (u32, u32),
    /// The group of the directory that it is made in: it may hand that on.
    pub dir_group: u32,
    /// It gets an access list.
    pub has_list: bool,
    /// It was staged from the PFS.
    pub is_staged: bool,
    /// It gets attributes of users (`user.*`).
    pub has_user_xattrs: bool,
}

/// The mode with which a copy with these attributes is made. It is the final one where nobody can use it now who may not in the end:
/// others choose who is in the group of the directory, beside an access list the group's bits are its mask, and one that the directory
/// hands on is not for what was a file of the PFS before. The kernel takes attributes of users from who may write to the file.
pub fn first_mode(of: &Attr, copy: CopyFacts) -> u32 {
    let is_mine = (of.uid, of.gid) == copy.maker && of.gid == copy.dir_group;
    let takes_xattrs = of.mode & 0o200 != 0 || !copy.has_user_xattrs;
    match is_mine && !copy.has_list && !copy.is_staged && takes_xattrs {
        true => of.mode & 0o777,
        false => 0o600,
    }
}

/// Can somebody have opened a copy that was just made who may not use it in the end? Its directory has got another group since it was
/// looked at, or the server gives files another owner.
pub fn may_be_open_to_others(of: &Attr, made: &Attr) -> bool {
    made.mode & 0o077 != 0 && (made.uid, made.gid) != (of.uid, of.gid)
}

/// The mode of something with an access list, where the file system takes none. Beside a list the bits of the group are its mask, and
/// would give the group what only some user has. `list`: its bytes, as in `system.posix_acl_access`; `None`: nobody knows.
pub fn mode_without_list(mode: u32, list: Option<&[u8]>) -> u32 {
    // Bytes before the entries, those of each, and the tag of the entry of the group.
    const HEAD: usize = 4;
    const ENTRY: usize = 8;
    const GROUP: u16 = 4;
    let entries = list.and_then(|list| list.get(HEAD..)).unwrap_or_default();
    let of_group = entries.chunks_exact(ENTRY).find_map(|entry| {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        (tag == GROUP).then(|| u32::from(entry[2] & 7))
    });
    mode & (!0o070 | of_group.unwrap_or(0) << 3)
}

/// Is the moment before a directory gets these attributes the last one in which `user` can sync it and what is in it? Only
/// where each directory is synced by itself: a sync of the whole file system opens none. Root can always open it.
pub fn is_last_sync(attr: &Attr, user: u32, by: SyncBy) -> bool {
    by == SyncBy::Each && user != 0 && attr.mode & 0o500 != 0o500
}

/// Can something be in it? Of what was renamed by an older version it is not known.
pub(super) fn holds_things(record: &PathRecord) -> bool {
    match record.kind {
        Kind::Dir => true,
        Kind::Moved => record
            .arriving
            .as_deref()
            .is_none_or(|known| known.is_dir()),
        _ => false,
    }
}

/// True for kinds with contents of their own.
pub(super) fn has_contents(record: &PathRecord) -> bool {
    matches!(record.kind, Kind::File | Kind::Symlink | Kind::Special)
}

/// Reads a record, and notes that the commit relies on it.
pub(super) fn read(
    facts: &dyn DrainFacts,
    path: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<Option<PathRecord>> {
    let record = facts.record(path)?;
    reads.saw_since(path, record.as_ref(), facts.absence(path));
    Ok(record)
}

/// Where on the PFS the directory at `path` is served from now; `None` for one that was made in the
/// buffer, below which nothing of the PFS shows.
pub(super) fn lower_dir(
    facts: &dyn DrainFacts,
    path: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<Option<TreePath>> {
    match read(facts, path, reads)? {
        Some(r) if r.kind == Kind::Moved => Ok(r.origin),
        Some(_) => Ok(None),
        None => match path.split() {
            None => Ok(Some(TreePath::root())),
            Some((parent, name)) => Ok(lower_dir(facts, &parent, reads)?.map(|dir| dir.join(name))),
        },
    }
}

/// Does the PFS by itself show, under the same path, what is in the directory at `path`?
pub(super) fn is_natural(
    facts: &dyn DrainFacts,
    path: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<bool> {
    Ok(lower_dir(facts, path, reads)?.as_ref() == Some(path))
}

/// Is it a directory that a drain has made?
fn is_there(record: &PathRecord) -> bool {
    record.kind == Kind::Dir && record.drained.is_some() && record.hides.is_none()
}

/// The highest directory at or above `path` that is not on the PFS under its own path, with nothing left to
/// move. `None`: something may be put into `path` there.
pub(super) fn unsettled(
    facts: &dyn DrainFacts,
    path: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<Option<TreePath>> {
    let mut highest = None;
    for at in upwards(path) {
        let here = match read(facts, &at, reads)? {
            Some(r) if r.transit == Some(Transit::Placing) => false,
            Some(r) if r.kind == Kind::Moved => r.origin.as_ref() == Some(&at),
            // One that is not known may be of others.
            Some(r) => is_there(&r) && r.replaces.is_some(),
            None => true,
        };
        if !here {
            highest = Some(at);
        }
    }
    Ok(highest)
}

/// Will the contents of this record replace what it hides, in one atomic rename?
pub(super) fn is_replaced(
    facts: &dyn DrainFacts,
    path: &TreePath,
    record: &PathRecord,
    reads: &mut ReadSet,
) -> Outcome<bool> {
    if !has_contents(record) || record.hides.is_none() {
        return Ok(false);
    }
    let dir = lower_dir(facts, &path.parent(), reads)?;
    Ok(record.hides == dir.map(|dir| dir.join(path.name())))
}

/// Does something that still has to go lie at this PFS path or above it?
pub(super) fn is_obstructed(
    facts: &dyn DrainFacts,
    path: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<bool> {
    for at in upwards(path) {
        for speaker in speakers_of(facts, &at, reads)? {
            if speaker.word != Word::Hides {
                continue;
            }
            let Some(record) = facts.record(&speaker.path)? else {
                continue;
            };
            // What was renamed and could not leave its place would be destroyed.
            let own = speaker.path == *path
                && is_replaced(facts, path, &record, reads)?
                && !holds_something_moved(facts, &at, reads)?;
            if record.hides.as_ref() == Some(&at) && !own {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// This path, and all above it.
pub(super) fn upwards(from: &TreePath) -> impl Iterator<Item = TreePath> {
    let above = |at: &TreePath| (!at.is_root()).then(|| at.parent());
    std::iter::successors(Some(from.clone()), above)
}

/// Why a directory is not on the PFS, in words.
pub(super) enum Unsettled {
    /// What is in the buffer in its place will not be one.
    Gone(String),
    /// It is still to come there.
    Comes(String),
}

/// Why the directory at `dir`, which is [`unsettled`], is not on the PFS.
pub(super) fn why_unsettled(
    facts: &dyn DrainFacts,
    dir: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<Unsettled> {
    let will_be = read(facts, dir, reads)?.is_none_or(|there| holds_things(&there));
    Ok(match will_be {
        true => Unsettled::Comes(format!("its directory {dir} is not on the PFS yet")),
        false => Unsettled::Gone(format!(
            "its directory {dir} was removed or replaced: choose about that first"
        )),
    })
}

/// Why nothing may be put at `path` on the PFS now; `None` if something may.
pub(super) fn obstacle(
    facts: &dyn DrainFacts,
    path: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<Option<Reason>> {
    if let Some(dir) = unsettled(facts, &path.parent(), reads)? {
        return Ok(Some(match why_unsettled(facts, &dir, reads)? {
            Unsettled::Gone(_) => Reason::NoDirectory,
            Unsettled::Comes(why) => Reason::Blocked(why),
        }));
    }
    let why = || Reason::Blocked("what it replaces could not be removed or renamed".to_owned());
    Ok(is_obstructed(facts, path, reads)?.then(why))
}

/// Does a renamed thing lie under its final name, and hide what was there? It was renamed away and back, and nothing of it has to
/// go. (In a directory that is still to be renamed it has another name: there it leaves and comes as all others.)
pub(super) fn hides_itself(path: &TreePath, record: &PathRecord) -> bool {
    let is_here = |place: &Option<TreePath>| place.as_ref() == Some(path);
    record.kind == Kind::Moved && is_here(&record.hides) && is_here(&record.origin)
}

/// Must something renamed leave the place on the PFS where it is? Where to, then: its waiting path.
pub(super) fn has_to_leave(
    facts: &dyn DrainFacts,
    path: &TreePath,
    record: &PathRecord,
    reads: &mut ReadSet,
) -> Outcome<Option<(TreePath, TreePath)>> {
    let (Kind::Moved, Some(from)) = (record.kind, &record.origin) else {
        return Ok(None);
    };
    let to = waiting_path(record.object.oid);
    if *from == to {
        return Ok(None);
    }
    // A thing that is under its final name by chance has to go, too, if the directory around it is to
    // be replaced.
    let in_place = from == path
        && (record.hides.is_none() || hides_itself(path, record))
        && unsettled(facts, &path.parent(), reads)?.is_none();
    Ok((!in_place).then(|| (from.clone(), to)))
}

/// Is this PFS path, or one above it, the place of something else that comes before all that was renamed has its final name? Then
/// what is there has to leave before. If it only has to go, or contents are to come, which do so later, it can stay.
pub(super) fn is_wanted(
    facts: &dyn DrainFacts,
    lower: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<bool> {
    for at in upwards(lower) {
        for speaker in speakers_of(facts, &at, reads)? {
            if speaker.word != Word::Hides {
                continue;
            }
            let record = facts.record(&speaker.path)?;
            let wants = |r: PathRecord| {
                matches!(r.kind, Kind::Dir | Kind::Moved) && !hides_itself(&speaker.path, &r)
            };
            if record.is_some_and(|r| r.hides.as_ref() == Some(&at) && wants(r)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// All records that speak of exactly this path of the PFS. Adds to `reads` that a commit relies on it.
pub(super) fn speakers_of(
    facts: &dyn DrainFacts,
    lower: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<Vec<Speaker>> {
    let speakers = facts.speakers_of(lower)?;
    if !facts.is_single() {
        facts.rely_on_speakers(&Lowers::At(lower.clone()), None, reads);
    }
    Ok(speakers)
}

/// A page of [`all_speakers`].
fn page_of_speakers(
    facts: &dyn DrainFacts,
    lower: &TreePath,
    before: Option<&TreePath>,
    reads: &mut ReadSet,
) -> Outcome<Vec<Speaker>> {
    let page = facts.speakers(lower, before, PAGE)?;
    if !facts.is_single() {
        facts.rely_on_speakers(&Lowers::Within(lower.clone()), before, reads);
    }
    Ok(page)
}

/// All records that speak of this path of the PFS or of something below it. Adds to `reads` that a commit relies on it.
pub(super) fn all_speakers(
    facts: &dyn DrainFacts,
    lower: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<Vec<Speaker>> {
    let mut all: Vec<Speaker> = Vec::new();
    loop {
        let before = all.last().map(|s| s.lower.clone());
        let page = page_of_speakers(facts, lower, before.as_ref(), reads)?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// True if something renamed still lies at or below this PFS path: the buffer shows it elsewhere.
pub(super) fn holds_something_moved(
    facts: &dyn DrainFacts,
    lower: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<bool> {
    any_speaker(facts, lower, reads, |s| s.word == Word::Origin)
}

/// True if a record still says that something below this PFS path has to go.
pub(super) fn holds_something_hidden(
    facts: &dyn DrainFacts,
    lower: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<bool> {
    any_speaker(facts, lower, reads, |s| {
        s.word == Word::Hides && s.lower != *lower
    })
}

fn any_speaker(
    facts: &dyn DrainFacts,
    lower: &TreePath,
    reads: &mut ReadSet,
    is_meant: impl Fn(&Speaker) -> bool,
) -> Outcome<bool> {
    let mut before: Option<TreePath> = None;
    loop {
        let page = page_of_speakers(facts, lower, before.as_ref(), reads)?;
        let Some(last) = page.last() else {
            return Ok(false);
        };
        before = Some(last.lower.clone());
        if page.iter().any(&is_meant) {
            return Ok(true);
        }
    }
}

/// True if a directory strictly above this PFS path is on its way to another place, by a drain that has marked it.
pub(super) fn is_placed_above(
    facts: &dyn DrainFacts,
    lower: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<bool> {
    for at in upwards(lower).skip(1) {
        if any_mark_at(facts, &at, reads, |mark| mark == Transit::Placing)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if something renamed that lies at this PFS path or above it is marked, so that the path soon may mean something else. Adds
/// to `reads` that a commit relies on none being marked.
pub(super) fn is_marked_upwards(
    facts: &dyn DrainFacts,
    lower: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<bool> {
    let mut is_marked = false;
    for at in upwards(lower) {
        is_marked |= any_mark_at(facts, &at, reads, |_| true)?;
    }
    Ok(is_marked)
}

/// Is something renamed that lies at exactly this PFS path marked so?
fn any_mark_at(
    facts: &dyn DrainFacts,
    at: &TreePath,
    reads: &mut ReadSet,
    is_meant: impl Fn(Transit) -> bool,
) -> Outcome<bool> {
    let mut is_marked = false;
    for speaker in speakers_of(facts, at, reads)? {
        if speaker.word == Word::Origin {
            let record = read(facts, &speaker.path, reads)?;
            is_marked |= record.and_then(|r| r.transit).is_some_and(&is_meant);
        }
    }
    Ok(is_marked)
}

/// The act that takes what is at `path` away from the PFS, which had these attributes a moment ago and is known by this to
/// the record that speaks of it, if there is one. `oid` is the object on whose behalf it goes: it names a directory that
/// can't go at once. `by`: by which name a file goes. `within`: see [`crate::record::Dirs::within`].
pub(super) fn removal(
    path: TreePath,
    oid: ObjectId,
    attr: &Attr,
    known: Option<Identity>,
    by: Option<TreePath>,
    within: Option<Identity>,
) -> Act {
    if attr.is_dir() {
        let aside = TreePath::root().join(&discarded_name(oid));
        let is = known.filter(|known| known.has_contents());
        Act::Discard {
            path,
            is,
            aside,
            within,
        }
    } else {
        let known = known.filter(|known| known.is(attr));
        let is = known.unwrap_or(Identity::of_copy(attr));
        Act::Remove {
            path,
            is,
            by,
            within,
        }
    }
}

/// [`crate::record::Dirs::within`], also of something in a directory that a drain has made.
pub(super) fn within(
    facts: &dyn DrainFacts,
    path: &TreePath,
    record: &PathRecord,
) -> Outcome<Option<Identity>> {
    let own = record.dirs().within;
    if own.is_some() || !facts.knows_dirs() {
        return Ok(own);
    }
    let dir = path.parent();
    let made = facts.record(&dir)?.filter(|above| above.drained.is_some());
    Ok(made.and_then(|made| match made.kind {
        Kind::Dir => made.replaces.and_then(Identity::itself),
        _ if made.is_open_at(&dir) => made.dirs().within,
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_for_its_owner_alone_until_it_is_what_it_becomes() {
        let of = |mode| Attr {
            mode: libc::S_IFREG | mode,
            uid: 7,
            gid: 7,
            ..Attr::default()
        };
        let own = CopyFacts {
            maker: (7, 7),
            dir_group: 7,
            ..CopyFacts::default()
        };
        assert_eq!(first_mode(&of(0o664), own), 0o664);
        assert_eq!(first_mode(&of(0o4755), own), 0o755);
        let locked = CopyFacts {
            has_user_xattrs: true,
            ..own
        };
        assert_eq!(
            [0o644, 0o444].map(|mode| first_mode(&of(mode), locked)),
            [0o644, 0o600]
        );
        for other in [
            CopyFacts {
                dir_group: 8,
                ..own
            },
            CopyFacts {
                maker: (0, 0),
                ..own
            },
            CopyFacts {
                has_list: true,
                ..own
            },
            CopyFacts {
                is_staged: true,
                ..own
            },
        ] {
            assert_eq!(first_mode(&of(0o664), other), 0o600, "{other:?}");
        }
        let theirs = |mode| Attr { gid: 8, ..of(mode) };
        assert!(may_be_open_to_others(&of(0o660), &theirs(0o660)));
        assert!(!may_be_open_to_others(&of(0o660), &of(0o660)));
        assert!(!may_be_open_to_others(&of(0o660), &theirs(0o600)));
    }

    #[test]
    fn without_its_list_the_group_has_its_own_rights_and_not_the_mask() {
        // user::rw-, user:5:rw-, group::r--, mask::rw-, other::---
        let entries: [(u16, u16, u32); 5] = [
            (1, 6, u32::MAX),
            (2, 6, 5),
            (4, 4, u32::MAX),
            (16, 6, u32::MAX),
            (32, 0, u32::MAX),
        ];
        let mut list = 2u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(rights.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        assert_eq!(mode_without_list(0o100_660, Some(&list)), 0o100_640);
        for unknown in [None, Some(&list[..3]), Some(&list[..15])] {
            assert_eq!(mode_without_list(0o100_664, unknown), 0o100_604);
        }
    }
}
