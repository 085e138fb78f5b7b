//! Copies one object to the PFS under a temporary name.

use crate::copies::{CHUNK_BYTES, Held};
use crate::counters::Counters;
use crate::pass::Pass;
use crate::pfs::{self, During, LastDir, Ours, Work};
use crate::processes;
use forebay_core::drain::{
    Copied, Copy, CopyFacts, LentMode, first_mode, may_be_open_to_others, mode_without_list,
};
use forebay_core::facts::Attr;
use forebay_core::identity::Identity;
use forebay_core::record::{Kind, ObjectName};
use forebay_sys::Openers;
use forebay_sys::{self as sys, Errno, Sys, Xattr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};
use xxhash_rust::xxh3::Xxh3;

/// Change times tick this coarsely on old kernels: a file that changed within one tick after we
/// looked at it would look unchanged.
const TICK: Duration = Duration::from_millis(20);
/// So often a file that changes meanwhile is waited for.
const MOST_TICKS: u32 = 5;

/// A file of this size is copied without a question after its holes, if it has none to speak of.
const SMALL_BYTES: u64 = 64 << 10;
const STAT_BLOCK_BYTES: u64 = 512;

/// What a copy wrote: the ranges with data, and the checksum of ranges and bytes.
pub(crate) struct Written {
    pub(crate) size: u64,
    pub(crate) ranges: Vec<(u64, u64)>,
    pub(crate) sum: u64,
    /// The source became shorter meanwhile, so the copy is of no use.
    is_short: bool,
}

impl Written {
    /// Bytes of the ranges.
    pub(crate) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }
}

/// A backing file that is open for reading.
pub(crate) struct Source {
    pub(crate) file: OwnedFd,
    /// What has to be known of it if its owner may not read it.
    pub(crate) locked: Option<Locked>,
}

/// Of a backing file that its owner may not read.
pub(crate) struct Locked {
    /// The attributes before its mode was changed for a moment, and after that.
    pub(crate) lent: LentMode,
    /// Its extended attributes, which can be read in that moment alone.
    pub(crate) xattrs: Vec<Xattr>,
}

impl Pass<'_> {
    /// Puts the contents under a temporary name. What there is of the copy goes into `held`.
    pub(crate) fn copy(
        &self,
        copy: &Copy,
        dirs: &mut LastDir,
        buffer: &mut [u8],
        held: &mut Option<Held>,
    ) -> Work<Copied> {
        let path = &copy.temporary.path;
        let temp = path.name();
        if copy.kind != Kind::File {
            let attr = wait_a_tick(|| self.ground.objects.attr(copy.object))?;
            let Some(dir) = dirs.parent_if_there(self.ground.lower, path)? else {
                return Ok(Copied::NoDirectory);
            };
            pfs::check_within(dir.as_fd(), copy.within)?;
            let Some(file) = or_supplanted(self.make_other(copy, &attr, dir.as_fd(), temp))? else {
                return Ok(Copied::Supplanted);
            };
            let made = sys::stat(file.as_fd(), b"").during("stat")?;
            let held = held.insert(Held::new(copy, dir, file.into(), &made, self.ground.lower));
            self.dress_by_path(copy.object, copy.kind, held.file.as_fd(), &attr)?;
            let made = sys::stat(held.file.as_fd(), b"").during("stat")?;
            return Ok(Copied::Whole {
                of: attr,
                copy: Identity::of_copy(&made),
                bytes: 0,
            });
        }
        let Source { file, locked } = self.open_source(copy.object)?;
        if processes::is_in_use(&file, Openers::Writers) {
            return Ok(Copied::InUse);
        }
        let source: std::fs::File = file.into();
        let attr = wait_a_tick(|| sys::stat(source.as_fd(), b""))?;
        let Some(dir) = dirs.parent_if_there(self.ground.lower, path)? else {
            return Ok(Copied::NoDirectory);
        };
        pfs::check_within(dir.as_fd(), copy.within)?;
        let xattrs = match locked {
            // Somebody has changed it since, perhaps an attribute.
            Some(locked) if locked.lent.opened.ctime != attr.ctime => return Ok(Copied::InUse),
            Some(locked) => locked.xattrs,
            None => pfs::read_xattrs(source.as_fd())?,
        };
        let is_staged = copy.object.oid.is_copy();
        let has_list = access_list(&xattrs).is_some();
        let facts = CopyFacts {
            maker: self.my_ids,
            dir_group: dirs.group()?,
            has_list,
            is_staged,
            has_user_xattrs: xattrs.iter().any(|(name, _)| name.starts_with(b"user.")),
        };
        let mut mode = first_mode(&attr, facts);
        let Some(mut new) = or_supplanted(make_file(dir.as_fd(), temp, mode))? else {
            return Ok(Copied::Supplanted);
        };
        if may_be_open_to_others(&attr, &new.1) {
            let (_, made) = &new;
            let ours = Ours::new(made, !self.ground.lower.may_wait());
            ours.remove(dir.as_fd(), temp)?;
            mode = 0o600;
            match or_supplanted(make_file(dir.as_fd(), temp, mode))? {
                Some(private) => new = private,
                None => return Ok(Copied::Supplanted),
            }
        }
        let (file, made) = new;
        let held = held.insert(Held::new(copy, dir, file.into(), &made, self.ground.lower));
        let target = &held.file;
        let outcome = (|| {
            let copied = self.copy_data(&source, target, &attr, buffer)?;
            let Some(written) = copied else {
                return Ok(Err(Copied::Stopped));
            };
            if written.is_short {
                return Ok(Err(Copied::Short));
            }
            if is_staged && !has_list {
                drop_access_list(target.as_fd())?;
            }
            let made = self.dress_new(&xattrs, target.as_fd(), &attr, mode)?;
            Ok(Ok((written, made)))
        })();
        match outcome {
            Ok(Ok((written, made))) => {
                let bytes = written.bytes();
                held.written = Some(written);
                Ok(Copied::Whole {
                    of: attr,
                    copy: made,
                    bytes,
                })
            }
            other => {
                // At once, because the next one may need the space. The drain makes sure of it later.
                let _ = held.ours.remove(held.dir.as_fd(), temp);
                let _ = sys::set_size(held.file.as_fd(), 0);
                other.map(|useless| useless.err().unwrap_or(Copied::Short))
            }
        }
    }

    /// Opens a backing file for reading, also one that its owner may not read: that takes a change of its mode for a moment.
    pub(crate) fn open_source(&self, object: ObjectName) -> Work<Source> {
        let objects = self.ground.objects;
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW;
        let mut locked = None;
        let opened = match objects.open_object(object, flags) {
            Err(Errno::ACCESS) => {
                objects.never_reuse(object);
                let path = objects
                    .open_object(object, libc::O_PATH | libc::O_NOFOLLOW)
                    .during("open in the buffer")?;
                let open = |before| {
                    let file = objects
                        .open_object(object, flags)
                        .during("open in the buffer")?;
                    let xattrs = pfs::read_xattrs(file.as_fd())?;
                    Ok((file, before, xattrs))
                };
                let opened = objects
                    .lend(path.as_fd(), object, 0o400, open)
                    .during("chmod in the buffer")?;
                opened.and_then(|(file, before, xattrs)| {
                    let opened = sys::stat(file.as_fd(), b"").during("stat in the buffer")?;
                    let lent = LentMode { before, opened };
                    locked = Some(Locked { lent, xattrs });
                    Ok(file)
                })
            }
            other => other.during("open in the buffer"),
        };
        Ok(Source {
            file: opened?,
            locked,
        })
    }

    /// Copies what is not a hole; `None` if the drain was stopped.
    fn copy_data(
        &self,
        source: &std::fs::File,
        target: &std::fs::File,
        attr: &Attr,
        buffer: &mut [u8],
    ) -> Work<Option<Written>> {
        let size = attr.size;
        let is_dense = size <= SMALL_BYTES && size <= attr.blocks * STAT_BLOCK_BYTES;
        if size > CHUNK_BYTES as u64 {
            sys::will_read_all(source.as_fd());
        }
        let mut sum = Xxh3::new();
        let mut ranges = Vec::new();
        let mut is_short = false;
        let mut at = 0;
        while at < size {
            let next = match is_dense {
                true => Some((at, size)),
                false => sys::next_data(source.as_fd(), at).during("seek")?,
            };
            let Some((start, end)) = next else {
                break;
            };
            let end = end.min(size);
            if start >= end {
                break;
            }
            ranges.push((start, end));
            sum.update(&start.to_le_bytes());
            let mut pos = start;
            while pos < end {
                if self.is_stopping() {
                    return Ok(None);
                }
                let want = buffer.len().min((end - pos) as usize);
                self.throttle.take(want as u64, self.counters);
                let n = source
                    .read_at(&mut buffer[..want], pos)
                    .map_err(sys::errno_of)
                    .during("read in the buffer")?;
                if n == 0 {
                    is_short = true;
                    break;
                }
                sum.update(&buffer[..n]);
                target
                    .write_all_at(&buffer[..n], pos)
                    .map_err(sys::errno_of)
                    .during("write")?;
                pos += n as u64;
                Counters::add(&self.counters.bytes_done, n as u64);
            }
            if is_short {
                break;
            }
            at = end;
        }
        if ranges.last().is_none_or(|&(_, end)| end < size) {
            sys::set_size(target.as_fd(), size).during("truncate")?;
        }
        Ok(Some(Written {
            size,
            ranges,
            sum: sum.digest(),
            is_short,
        }))
    }

    /// As [`Pass::dress`], for a file that was just made with this mode. Gives what it is known by.
    fn dress_new(
        &self,
        xattrs: &[Xattr],
        target: BorrowedFd<'_>,
        attr: &Attr,
        mode: u32,
    ) -> Work<Identity> {
        let look = || sys::stat(target, b"").during("stat");
        let shown = |attr: &Attr| (attr.uid, attr.gid, attr.mode & 0o7777);
        if (attr.uid, attr.gid) == self.my_ids && attr.mode & 0o7777 == mode {
            self.write_xattrs(xattrs, target, attr)?;
            sys::set_times(target, b"", Some(attr.atime), Some(attr.mtime)).during("set times")?;
            let made = look()?;
            // A directory hands on its group, or an access list.
            if shown(&made) == shown(attr) {
                return Ok(Identity::of_copy(&made));
            }
        }
        self.dress(xattrs, target, attr)?;
        Ok(Identity::of_copy(&look()?))
    }

    /// Gives the mode to set after that.
    fn write_xattrs(&self, xattrs: &[Xattr], target: BorrowedFd<'_>, attr: &Attr) -> Work<u32> {
        let refused = pfs::write_xattrs(target, xattrs)?;
        let mode = match refused.iter().any(|name| name.as_bytes() == ACCESS_LIST) {
            true => mode_without_list(attr.mode, access_list(xattrs)),
            false => attr.mode,
        };
        self.remark_on(refused);
        Ok(mode & 0o7777)
    }

    fn remark_on(&self, refused_xattrs: Vec<String>) {
        for name in refused_xattrs {
            self.counters.remark(format!(
                "the PFS does not take the extended attribute {name} of some files"
            ));
        }
    }

    /// Owner, mode, extended attributes and times.
    pub(crate) fn dress(&self, xattrs: &[Xattr], target: BorrowedFd<'_>, attr: &Attr) -> Work<()> {
        let now = sys::stat(target, b"").during("stat")?;
        if (now.uid, now.gid) != (attr.uid, attr.gid) {
            sys::chown(target, b"", attr.uid, attr.gid).during("chown")?;
        }
        let mode = self.write_xattrs(xattrs, target, attr)?;
        sys::chmod(target, mode).during("chmod")?;
        sys::set_times(target, b"", Some(attr.atime), Some(attr.mtime)).during("set times")
    }

    /// A symbolic link or a node, without its attributes. Gives an `O_PATH` descriptor of it.
    fn make_other(
        &self,
        copy: &Copy,
        attr: &Attr,
        dir: BorrowedFd<'_>,
        temp: &[u8],
    ) -> Work<OwnedFd> {
        if copy.kind == Kind::Symlink {
            let text = self
                .ground
                .objects
                .link_text(copy.object)
                .during("read in the buffer")?;
            sys::symlink(&text, dir, temp).during("symlink")?;
            open_made(dir, temp, &Made::Link(&text), attr.uid)
        } else {
            // Beside an access list the group's bits are its mask: others may use it when the list is there.
            sys::mknod(dir, temp, attr.mode & !0o077, attr.rdev).during("mknod")?;
            open_made(dir, temp, &Made::Node(attr.mode, attr.rdev), attr.uid)
        }
    }

    /// As [`Pass::dress`], for what can't be opened but with `O_PATH`.
    pub(crate) fn dress_by_path(
        &self,
        object: ObjectName,
        kind: Kind,
        target: BorrowedFd<'_>,
        attr: &Attr,
    ) -> Work<()> {
        let now = sys::stat(target, b"").during("stat")?;
        if (now.uid, now.gid) != (attr.uid, attr.gid) {
            sys::chown(target, b"", attr.uid, attr.gid).during("chown")?;
        }
        let by_path = libc::O_PATH | libc::O_NOFOLLOW;
        let source = self.ground.objects.open_object(object, by_path);
        let source = source.during("open in the buffer")?;
        let copy = |but: &[u8]| pfs::copy_xattrs_of_path(kind, source.as_fd(), target, but);
        let refused = match copy(b"") {
            // Those of users can be read only by who may read the directory, and set by who may write to it.
            Err(trouble) if kind == Kind::Dir && trouble.errno == Errno::ACCESS => {
                let said = "attributes user.* of directories that their owner may not read or write to are left out";
                self.counters.remark(said.to_owned());
                copy(b"user.")?
            }
            refused => refused?,
        };
        if kind != Kind::Symlink {
            let mode = match refused.iter().any(|name| name.as_bytes() == ACCESS_LIST) {
                true => mode_without_list(attr.mode, None),
                false => attr.mode,
            };
            sys::chmod_of_path(target, mode & 0o7777).during("chmod")?;
        }
        self.remark_on(refused);
        sys::set_times_of_path(target, Some(attr.atime), Some(attr.mtime)).during("set times")
    }
}

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// A new file, with the attributes that it has.
fn make_file(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> Work<(OwnedFd, Attr)> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let file = sys::open(dir, name, flags, mode).during("create")?;
    let made = sys::stat(file.as_fd(), b"").during("stat")?;
    Ok((file, made))
}

/// The access list among extended attributes; `None` if there is none beside the mode.
fn access_list(xattrs: &[Xattr]) -> Option<&[u8]> {
    let mut lists = xattrs.iter().filter(|(name, _)| name == ACCESS_LIST);
    lists.next().map(|(_, list)| &list[..])
}

/// Takes away the access list that a new file has from its directory.
fn drop_access_list(file: BorrowedFd<'_>) -> Work<()> {
    match sys::remove_xattr(file, ACCESS_LIST) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        dropped => dropped.during("remove access list"),
    }
}

/// What a copy that is no plain file was made as.
enum Made<'a> {
    /// A symbolic link with this text.
    Link(&'a [u8]),
    /// A node with this mode, and this device if it stands for one.
    Node(u32, u64),
}

/// Opens with `O_PATH` what was just made for `owner`, maybe by this user. The call that makes it gives no descriptor, so
/// others may have put something else under its name: EEXIST if it is not what was made.
fn open_made(dir: BorrowedFd<'_>, name: &[u8], made: &Made<'_>, owner: u32) -> Work<OwnedFd> {
    let file = sys::open(dir, name, libc::O_PATH | libc::O_NOFOLLOW, 0).during("open")?;
    let now = sys::stat(file.as_fd(), b"").during("stat")?;
    let is_same = match made {
        Made::Link(text) => {
            now.mode & libc::S_IFMT == libc::S_IFLNK
                && sys::readlink(file.as_fd(), b"").during("readlink")? == *text
        }
        Made::Node(mode, rdev) => {
            (now.mode & libc::S_IFMT, now.rdev) == (mode & libc::S_IFMT, *rdev)
        }
    };
    // Some servers say themselves whose all files are. What has another name was not made just now.
    let is_own = [sys::my_ids().0, owner].contains(&now.uid) && now.nlink <= 1;
    match is_same && is_own {
        true => Ok(file),
        false => Err(Errno::EXIST).during("open"),
    }
}

/// Attributes of an object, taken when the tick of its last change is surely over: any later change shows in its change time. One
/// that was changed before each of [`MOST_TICKS`] looks will be found changed after the copy, too.
fn wait_a_tick(mut attr: impl FnMut() -> Sys<Attr>) -> Work<Attr> {
    let mut seen = attr().during("stat in the buffer")?;
    for _ in 0..MOST_TICKS {
        let changed = Duration::new(seen.ctime.sec.max(0) as u64, seen.ctime.nsec);
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let Some(rest) = (changed + TICK).checked_sub(now).filter(|r| !r.is_zero()) else {
            break;
        };
        // A clock that was set back must not stop the drain.
        std::thread::sleep(rest.min(TICK));
        let before = std::mem::replace(&mut seen, attr().during("stat in the buffer")?);
        if seen.ctime == before.ctime {
            break;
        }
    }
    Ok(seen)
}

/// `None`: others have something under this name, or have put it there meanwhile.
fn or_supplanted<T>(made: Work<T>) -> Work<Option<T>> {
    match made {
        Err(trouble) if trouble.errno == Errno::EXIST => Ok(None),
        made => made.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::facts::Timestamp;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_others_have_put_in_place_of_a_new_link_or_node_is_not_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let dir = sys::open_path(folder.path(), libc::O_PATH).unwrap();
        let (me, _) = sys::my_ids();
        let fifo = Made::Node(libc::S_IFIFO | 0o600, 0);
        let opened = |name: &str, made| {
            let opened = open_made(dir.as_fd(), name.as_bytes(), made, me);
            opened.map(drop).map_err(|trouble| trouble.errno)
        };
        sys::mknod(dir.as_fd(), b"fifo", libc::S_IFIFO | 0o600, 0).unwrap();
        symlink("text", at("link")).unwrap();
        fs::write(at("file"), "").unwrap();
        assert_eq!(opened("fifo", &fifo), Ok(()));
        assert_eq!(opened("link", &Made::Link(b"text")), Ok(()));
        assert_eq!(opened("link", &Made::Link(b"other")), Err(Errno::EXIST));
        assert_eq!(opened("link", &fifo), Err(Errno::EXIST));
        assert_eq!(opened("file", &fifo), Err(Errno::EXIST));
        assert_eq!(opened("file", &Made::Link(b"text")), Err(Errno::EXIST));
        fs::hard_link(at("fifo"), at("second")).unwrap();
        assert_eq!(opened("second", &fifo), Err(Errno::EXIST));
    }

    /// The change time of something that was changed just now.
    fn just_now() -> Timestamp {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap();
        Timestamp {
            sec: now.as_secs() as i64,
            nsec: now.subsec_nanos(),
        }
    }

    #[test]
    fn what_changes_while_its_tick_is_waited_for_is_waited_for_once_more() {
        for changes in [0, 1, 3] {
            let (mut looks, mut ctime) = (0, Timestamp::default());
            let seen = wait_a_tick(|| {
                if looks <= changes {
                    ctime = just_now();
                }
                looks += 1;
                Ok(Attr {
                    ctime,
                    ..Attr::default()
                })
            });
            assert_eq!(looks, changes + 2, "the last look shows no change");
            assert_eq!(seen.unwrap().ctime, ctime);
        }
        let mut looks = 0;
        wait_a_tick(|| {
            looks += 1;
            Ok(Attr {
                ctime: just_now(),
                ..Attr::default()
            })
        })
        .unwrap();
        assert_eq!(looks, MOST_TICKS + 1, "it is not waited for without end");
    }
}
