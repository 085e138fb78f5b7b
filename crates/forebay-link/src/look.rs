//! `stat` of files in the buffer without a message, by the table of names that the bridge shares with clients of its own
//! user.
//!
//! The table is mapped after some requests, because a short program would pay more for it than it saves. It is mapped anew
//! when another bridge has come. An old mapping stays, as that of [`crate::durability`].
//!
//! A look that finds nothing certain gives `None`, and the bridge is asked: it alone says that something is not there, or
//! may not be seen.

use core::ffi::c_char;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use forebay_hook::kernel::{self, OwnFd, call};
use forebay_types::Backing;
use forebay_wire::{
    Attr, MAX_NAME_BYTES, MAX_PATH_BYTES, NAME_TABLE_BYTES, NameTable, Shown, Timestamp,
};

use crate::config::Config;

/// So many looks are asked of the bridge before the table is mapped.
const LOOKS_BEFORE: u32 = 3;
/// After this many more the table is asked for again if it could not be had.
const LOOKS_AGAIN: u32 = 1 << 16;
/// Most directories of the buffer above a file that are checked here.
const MOST_BORN: usize = 8;
/// A directory may be searched by its owner.
const SEARCHABLE: u32 = 0o100;
/// Times and whatever else `stat` shows.
const WANTED: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME;

/// The mapped table.
pub struct Looks {
    table: AtomicPtr<NameTable>,
    /// Looks that were asked of the bridge since the last attempt to map the table.
    asked: AtomicU32,
}

impl Looks {
    /// Not mapped yet.
    pub const fn new() -> Self {
        Looks {
            table: AtomicPtr::new(null_mut()),
            asked: AtomicU32::new(0),
        }
    }

    fn table(&self) -> Option<&'static NameTable> {
        // SAFETY: a mapping that was published is never unmapped, and consists of atomics.
        unsafe { self.table.load(Ordering::Acquire).as_ref() }
    }

    /// A look is asked of the bridge. True if the table is to be asked for first.
    pub fn is_due(&self) -> bool {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        asked == LOOKS_BEFORE || asked == LOOKS_AGAIN
    }

    /// The bridge of the mapped table is gone. The table of the next one is worth as many looks as the first was.
    fn outlived(&self) {
        if self.asked.load(Ordering::Relaxed) > LOOKS_BEFORE {
            self.asked.store(0, Ordering::Relaxed);
        }
    }

    /// Maps `memory` in place of what is mapped.
    pub fn map(&self, memory: &OwnFd) {
        let before = self.table.load(Ordering::Acquire);
        let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: makes a new mapping.
        let mapped = unsafe {
            call!(
                libc::SYS_mmap,
                0,
                NAME_TABLE_BYTES,
                prot,
                flags,
                memory.0,
                0
            )
        };
        let Ok(at) = mapped else {
            return;
        };
        let fresh = at as *mut NameTable;
        let publish =
            self.table
                .compare_exchange(before, fresh, Ordering::AcqRel, Ordering::Acquire);
        if publish.is_err() {
            // Another thread was first.
            // SAFETY: nobody else knows this mapping.
            unsafe { kernel::unmap(fresh.cast(), NAME_TABLE_BYTES) };
        }
    }

    /// Attributes of the file at this path below the root of the buffer, as written by the program. `is_alive`: is the
    /// bridge of this life the one that serves the buffer now?
    pub fn stat(
        &self,
        config: &Config,
        path: &[u8],
        is_alive: impl Fn(u64) -> bool,
    ) -> Option<Attr> {
        let table = self.table()?;
        let life = table.life();
        if !is_alive(life) {
            self.outlived();
            return None;
        }
        if !is_normal(path) {
            return None;
        }
        let (file, seen) = table.find(path)?;
        if file.is_dir {
            return None;
        }
        let mut ways = [None; MOST_BORN];
        search(config, table, path, file, &mut ways)?;
        let attr = stat(config, &Backing::file(file.object))?;
        let stand = ways
            .into_iter()
            .flatten()
            .all(|way| table.still_stands(way));
        (stand && table.still_stands(seen) && is_alive(life)).then_some(attr)
    }
}

impl Default for Looks {
    fn default() -> Self {
        Looks::new()
    }
}

/// Is this a path as it stands in the tables of the bridge?
fn is_normal(path: &[u8]) -> bool {
    let is_name = |c: &[u8]| !c.is_empty() && c.len() <= MAX_NAME_BYTES && c != b"." && c != b"..";
    path.split(|&b| b == b'/').all(is_name)
}

/// Are the directories above a file still those of the buffer, and may the user of the bridge search all of them? `None` if
/// that is not certain.
fn search(
    config: &Config,
    table: &NameTable,
    path: &[u8],
    file: Shown,
    ways: &mut [Option<forebay_wire::SeenName>; MOST_BORN],
) -> Option<()> {
    let mut above = path;
    for i in 0..usize::from(file.born_above) {
        above = parent(above);
        let (dir, seen) = table.find(above).filter(|(dir, _)| dir.is_dir)?;
        *ways.get_mut(i)? = Some(seen);
        if table.user() == 0 {
            // The superuser may.
            continue;
        }
        let attr = stat(config, &Backing::dir(dir.object))?;
        if attr.uid != table.user() || attr.mode & SEARCHABLE == 0 {
            return None;
        }
    }
    if table.user() == 0 {
        return Some(());
    }
    may_search(config)
}

fn parent(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b == b'/').unwrap_or(0);
    &path[..end]
}

/// May this process search the root of the buffer, and all above it?
fn may_search(config: &Config) -> Option<()> {
    let path = Joined::new(config.root(), b"")?;
    // SAFETY: the path ends with a NUL.
    let may = unsafe {
        call!(
            libc::SYS_faccessat2,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::X_OK,
            libc::AT_EACCESS
        )
    };
    may.ok().map(drop)
}

fn stat(config: &Config, backing: &Backing) -> Option<Attr> {
    let path = Joined::new(config.storage(), backing)?;
    // SAFETY: zeroes are a valid value.
    let mut x: libc::statx = unsafe { core::mem::zeroed() };
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT;
    // SAFETY: the path ends with a NUL, and `x` is writable.
    let done = unsafe {
        call!(
            libc::SYS_statx,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            WANTED,
            &raw mut x
        )
    };
    done.ok()?;
    Some(attr(&x))
}

fn attr(x: &libc::statx) -> Attr {
    let time = |t: libc::statx_timestamp| Timestamp {
        sec: t.tv_sec,
        nsec: t.tv_nsec,
    };
    Attr {
        mode: x.stx_mode.into(),
        nlink: x.stx_nlink,
        uid: x.stx_uid,
        gid: x.stx_gid,
        dev: libc::makedev(x.stx_dev_major, x.stx_dev_minor),
        rdev: libc::makedev(x.stx_rdev_major, x.stx_rdev_minor),
        ino: x.stx_ino,
        size: x.stx_size,
        blocks: x.stx_blocks,
        blksize: x.stx_blksize,
        atime: time(x.stx_atime),
        mtime: time(x.stx_mtime),
        ctime: time(x.stx_ctime),
        btime: time(x.stx_btime),
        copy_of: 0,
        granted: None,
    }
}

/// A path in two parts, with a NUL.
struct Joined {
    bytes: core::mem::MaybeUninit<[u8; MAX_PATH_BYTES + 1]>,
}

impl Joined {
    /// `None` if it is too long.
    fn new(dir: &[u8], below: &[u8]) -> Option<Self> {
        let mut joined = Joined {
            bytes: core::mem::MaybeUninit::uninit(),
        };
        let parts = [dir, b"/", below, b"\0"];
        if parts.iter().map(|part| part.len()).sum::<usize>() > MAX_PATH_BYTES + 1 {
            return None;
        }
        let mut at = joined.bytes.as_mut_ptr().cast::<u8>();
        for part in parts {
            // SAFETY: the parts fit into the array together.
            unsafe {
                core::ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
                at = at.add(part.len());
            }
        }
        Some(joined)
    }

    fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}
