//! Which file a descriptor stands for, and its position.
//!
//! Descriptors that came through an exec or a socket are not known; [`known_name`] tells at their first use. The map is
//! this process' own memory, made in chunks as descriptors are used. A child of fork gets a copy, and makes it lead to
//! its own table.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering, Ordering::Relaxed,
};

use forebay_count::path::MAX_NAME_BYTES;
use forebay_count::table::{Handle, Name};
use forebay_count::{Kind, Table};

use crate::config;
use crate::file_system;
use crate::record_names;
use crate::state::{self, Recording};
use forebay_hook::kernel;
use forebay_hook::{FD_NAME, FdName, Offered};

const CHUNK: usize = 1024;
const CHUNKS: usize = 16384;

/// Writes go to the end of the file.
pub const APPEND: u32 = 1;
/// Others move the position, too, so the kernel is asked for it after each call.
pub const ASK: u32 = 2;
/// A write ends when the storage has it: `O_SYNC`, `O_DSYNC`.
pub const SYNCED: u32 = 4;
/// Requests go past the page cache: `O_DIRECT`.
pub const DIRECT: u32 = 8;
/// The flags that `fcntl` may change while a descriptor is open.
const CHANGEABLE: u32 = APPEND | DIRECT;

/// What the flags of an open say of its descriptor.
pub fn flags_of(open: c_int) -> u32 {
    let flag = |bits: c_int, flag: u32| if open & bits != 0 { flag } else { 0 };
    flag(libc::O_APPEND, APPEND)
        | flag(libc::O_SYNC | libc::O_DSYNC, SYNCED)
        | flag(libc::O_DIRECT, DIRECT)
}

/// What a descriptor stands for in one of the two interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Standing {
    /// Not known yet.
    Unknown = 0,
    /// A pipe, a socket, a terminal.
    NoFile = 1,
    /// A file that is left out.
    Excluded = 2,
    /// A file with a record.
    File = 3,
}

impl Standing {
    fn from(n: u32) -> Self {
        match n {
            1 => Standing::NoFile,
            2 => Standing::Excluded,
            3 => Standing::File,
            _ => Standing::Unknown,
        }
    }
}

/// A descriptor in one of the two interfaces.
#[derive(Default)]
pub struct View {
    standing: AtomicU32,
    cell: AtomicU32,
    id: AtomicU64,
    /// Position of the descriptor, or of the stream.
    pub position: AtomicI64,
}

impl View {
    /// What the descriptor stands for.
    #[inline(always)]
    pub fn standing(&self) -> Standing {
        Standing::from(self.standing.load(Ordering::Acquire))
    }

    /// Its record, if it stands for a file.
    #[inline(always)]
    pub fn handle(&self) -> Option<Handle> {
        (self.standing() == Standing::File).then(|| Handle {
            cell: self.cell.load(Relaxed),
            id: self.id.load(Relaxed),
        })
    }

    /// Sets what the descriptor stands for.
    pub fn set(&self, standing: Standing, handle: Option<Handle>) {
        if let Some(handle) = handle {
            self.cell.store(handle.cell, Relaxed);
            self.id.store(handle.id, Relaxed);
        }
        self.standing.store(standing as u32, Ordering::Release);
    }

    /// Forgets what the descriptor stood for, and returns its record.
    fn take(&self) -> Option<Handle> {
        let handle = self.handle();
        self.standing.store(0, Ordering::Release);
        self.position.store(0, Relaxed);
        handle
    }
}

/// A descriptor.
#[derive(Default)]
#[repr(align(64))]
pub struct Entry {
    /// For POSIX calls.
    pub posix: View,
    /// For calls on the stream over it.
    pub stream: View,
    /// [`APPEND`], [`ASK`], [`SYNCED`], [`DIRECT`].
    pub flags: AtomicU32,
}

impl Entry {
    /// Notes flags that `fcntl` has set.
    pub fn set_flags(&self, open: c_int) {
        self.flags.fetch_and(!CHANGEABLE, Relaxed);
        self.flags.fetch_or(flags_of(open) & CHANGEABLE, Relaxed);
    }

    /// Forgets the descriptor, because its number will stand for something else. Its records are still held.
    pub fn take(&self) -> Taken {
        self.flags.store(0, Relaxed);
        Taken {
            posix: self.posix.take(),
            stream: self.stream.take(),
        }
    }
}

/// The records of a descriptor that was forgotten. They are held until [`Taken::let_go`].
#[must_use]
pub struct Taken {
    /// For POSIX calls.
    pub posix: Option<Handle>,
    /// For stream calls.
    pub stream: Option<Handle>,
}

impl Taken {
    /// Lets the records go.
    pub fn let_go(self, table: &Table<'_>) {
        if let Some(handle) = self.posix {
            table.let_go(Kind::Posix, handle);
        }
        if let Some(handle) = self.stream {
            table.let_go(Kind::Stdio, handle);
        }
    }
}

static MAP: [AtomicPtr<Entry>; CHUNKS] = [const { AtomicPtr::new(null_mut()) }; CHUNKS];
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

/// The entry of a descriptor, if there is memory for it.
#[inline(always)]
pub fn entry(fd: c_int) -> Option<&'static Entry> {
    let n = usize::try_from(fd).ok()?;
    let mut chunk = MAP.get(n / CHUNK)?.load(Ordering::Acquire);
    if chunk.is_null() {
        chunk = make_chunk(n / CHUNK);
        if chunk.is_null() {
            return None;
        }
    }
    // SAFETY: a chunk has this many entries, and zeroes are a valid one.
    Some(unsafe { &*chunk.add(n % CHUNK) })
}

/// The entry of a descriptor, if something is known about it.
#[inline(always)]
pub fn known(fd: c_int) -> Option<&'static Entry> {
    let n = usize::try_from(fd).ok()?;
    let chunk = MAP.get(n / CHUNK)?.load(Ordering::Acquire);
    if chunk.is_null() {
        return None;
    }
    // SAFETY: as above.
    let entry = unsafe { &*chunk.add(n % CHUNK) };
    let something =
        entry.posix.standing() != Standing::Unknown || entry.stream.standing() != Standing::Unknown;
    something.then_some(entry)
}

#[cold]
fn make_chunk(n: usize) -> *mut Entry {
    const BYTES: usize = CHUNK * size_of::<Entry>();
    if state::is_restricted() {
        return null_mut();
    }
    let fresh = kernel::map(BYTES);
    if fresh.is_null() {
        return null_mut();
    }
    match MAP[n].compare_exchange(
        null_mut(),
        fresh.cast(),
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        Ok(_) => fresh.cast(),
        Err(other) => {
            // SAFETY: no other thread has seen the chunk.
            unsafe { kernel::unmap(fresh, BYTES) };
            other
        }
    }
}

/// Begins the entry of a new descriptor: forgets what its number stood for before.
pub fn begin(recording: &Recording, fd: c_int) -> Option<&'static Entry> {
    let entry = entry(fd)?;
    entry.take().let_go(&recording.table);
    reach(fd);
    Some(entry)
}

/// Notes that something may be known of descriptors up to this one. It looks before it writes, because all threads
/// share the word.
#[inline(always)]
fn reach(fd: c_int) {
    if HIGHEST.load(Relaxed) < fd {
        HIGHEST.fetch_max(fd, Relaxed);
    }
}

/// Calls `act` for all descriptors from `first` to `last` about which something is known.
pub fn each_known(first: u32, last: u32, mut act: impl FnMut(c_int, &'static Entry)) {
    let highest = HIGHEST.load(Relaxed);
    let last = c_int::try_from(last).unwrap_or(c_int::MAX).min(highest);
    let mut fd = c_int::try_from(first).unwrap_or(c_int::MAX);
    while fd <= last {
        if MAP[fd as usize / CHUNK].load(Ordering::Acquire).is_null() {
            fd = (fd / CHUNK as c_int + 1) * CHUNK as c_int;
            continue;
        }
        if let Some(entry) = known(fd) {
            act(fd, entry);
        }
        fd += 1;
    }
}

/// What a descriptor stands for to one interface, with its entry and the record to count in.
type Found = (Standing, Option<&'static Entry>, Option<Handle>);

/// The record for POSIX calls on a descriptor. Asks the kernel if nothing is known of it.
#[inline(always)]
pub fn posix(recording: &Recording, fd: c_int) -> Found {
    let Some(entry) = entry(fd) else {
        return (Standing::Unknown, None, None);
    };
    match entry.posix.standing() {
        Standing::Unknown => resolve(recording, fd, entry, Kind::Posix, None),
        standing => (standing, Some(entry), entry.posix.handle()),
    }
}

/// The record for calls on a stream over `fd`. `standard` is the name of a stream that is open from the start, such as
/// `<STDIN>`, if that leads to no file.
#[inline(always)]
pub fn stream(recording: &Recording, fd: c_int, standard: Option<&'static [u8]>) -> Found {
    let Some(entry) = entry(fd) else {
        return (Standing::Unknown, None, None);
    };
    match entry.stream.standing() {
        Standing::Unknown => resolve(recording, fd, entry, Kind::Stdio, standard),
        standing => (standing, Some(entry), entry.stream.handle()),
    }
}

/// Finds out what a descriptor is: by its record in the other interface, else by asking; if it is no file, by `standard`.
#[cold]
fn resolve(
    recording: &Recording,
    fd: c_int,
    entry: &'static Entry,
    kind: Kind,
    standard: Option<&'static [u8]>,
) -> Found {
    let (view, other, other_kind) = match kind {
        Kind::Stdio => (&entry.stream, &entry.posix, Kind::Posix),
        _ => (&entry.posix, &entry.stream, Kind::Stdio),
    };
    let mut room = [0; MAX_NAME_BYTES];
    let own = other
        .handle()
        .and_then(|h| own_name(recording, other_kind, h, &mut room));
    let origin = match own {
        Some(len) => Some(Origin::Named(&room[..len])),
        None => ask(fd, &mut room),
    };
    // What has no name of its own: a terminal, a pipe, a file that is left out.
    let origin = match (origin, standard) {
        (Some(Origin::Named(name)), _) => Some(Origin::Named(name)),
        (_, Some(name)) => Some(Origin::Named(name)),
        (origin, None) => origin,
    };
    let (standing, handle) = match origin {
        Some(Origin::Named(name)) => match hold(recording, kind, name, fd) {
            Some(handle) => (Standing::File, Some(handle)),
            None => (Standing::Unknown, None),
        },
        Some(Origin::Excluded) => (Standing::Excluded, None),
        Some(Origin::NoFile) => (Standing::NoFile, None),
        None => (Standing::Unknown, None),
    };
    // A child of `vfork` shares this memory, but its descriptors are its own.
    if standing != Standing::Unknown && !state::is_borrowed() {
        if kind == Kind::Posix {
            entry.flags.fetch_or(ASK | inherited_flags(fd), Relaxed);
        }
        view.set(standing, handle);
        reach(fd);
    }
    (standing, Some(entry), handle)
}

/// Holds the record of a file that was not opened here: the descriptor was inherited, or is that of a stream.
fn hold(recording: &Recording, kind: Kind, name: &[u8], fd: c_int) -> Option<Handle> {
    let handle = recording.table.hold(kind, &Name::of(name), recording)?;
    if kind == Kind::Posix
        && let Some(alignment) = recording.table.alignment(handle)
        && alignment.load(Relaxed) == 0
        && !state::is_restricted()
        && let Some(stat) = kernel::fstat(fd)
    {
        let bytes = file_system::alignment(fd, stat.st_dev);
        alignment.store(u64::from(bytes), Relaxed);
    }
    Some(handle)
}

/// What the kernel says of a descriptor that was not opened here. The position of all these is asked for, which serves `O_APPEND`, too.
fn inherited_flags(fd: c_int) -> u32 {
    if state::is_restricted() {
        return 0;
    }
    kernel::open_flags(fd).map_or(0, |open| flags_of(open) & !APPEND)
}

enum Origin<'o> {
    Named(&'o [u8]),
    Excluded,
    NoFile,
}

fn can_be_file(stat: &libc::stat) -> bool {
    matches!(
        stat.st_mode & libc::S_IFMT,
        libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK
    )
}

/// Is it certain that no record counts what happens on a descriptor?
pub fn is_no_file(fd: c_int) -> bool {
    match known(fd).map(|entry| entry.posix.standing()) {
        Some(Standing::NoFile | Standing::Excluded) => true,
        Some(Standing::File) => false,
        _ => !state::is_restricted() && kernel::fstat(fd).is_some_and(|stat| !can_be_file(&stat)),
    }
}

/// Asks what a descriptor is that is not known: see [`known_name`].
fn ask(fd: c_int, room: &mut [u8; MAX_NAME_BYTES]) -> Option<Origin<'_>> {
    if state::is_restricted() {
        return None;
    }
    let stat = kernel::fstat(fd)?;
    if !can_be_file(&stat) {
        return Some(Origin::NoFile);
    }
    let name = known_name(fd, room)?;
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    if name.first() != Some(&b'/') || name.starts_with(b"/memfd:") {
        return Some(Origin::NoFile);
    }
    match config::get()?.records(name) {
        true => Some(Origin::Named(name)),
        false => Some(Origin::Excluded),
    }
}

/// The path of an open descriptor as the program knows it: that of an object of a buffer if the program began with it, else by the kernel.
pub fn known_name(fd: c_int, room: &mut [u8; MAX_NAME_BYTES]) -> Option<&[u8]> {
    if let Some(inherited) = inherited(fd) {
        let len = inherited.len.min(room.len());
        room[..len].copy_from_slice(&inherited.name[..len]);
        return Some(&room[..len]);
    }
    kernel::fd_name(fd, room)
}

/// So many of the lowest descriptors are looked at when a program begins: those that a shell redirects.
const LOOKED_AT: usize = 10;

/// An object of a buffer, with whose descriptor the program began.
struct Inherited {
    dev: u64,
    ino: u64,
    len: usize,
    name: [u8; MAX_NAME_BYTES],
}

/// Null, or memory for [`LOOKED_AT`] of them; zeroes where the descriptor is no such object.
static INHERITED: AtomicPtr<Inherited> = AtomicPtr::new(null_mut());

fn inherited(fd: c_int) -> Option<&'static Inherited> {
    let all = INHERITED.load(Ordering::Acquire);
    let n = usize::try_from(fd).ok().filter(|n| *n < LOOKED_AT)?;
    if all.is_null() {
        return None;
    }
    // SAFETY: the memory has so many, is never given back, and does not change any more.
    let it = unsafe { &*all.add(n) };
    let now = kernel::fstat(fd)?;
    (it.len > 0 && (it.dev, it.ino) == (now.st_dev, now.st_ino)).then_some(it)
}

/// Asks the path library for the names of the descriptors with which the program begins. The kernel only knows where an object of a buffer
/// lies in the storage. At load time: this takes a lock of the loader, a message to the bridge, and stack.
pub fn learn_inherited() {
    static NAME: Offered = Offered::new(FD_NAME);
    let Some(at) = NAME.get() else {
        return;
    };
    // SAFETY: what is offered under this name has this type.
    let name_of = unsafe { core::mem::transmute::<*mut c_void, FdName>(at) };
    let mut room = [0; MAX_NAME_BYTES];
    let mut all = null_mut::<Inherited>();
    for n in 0..LOOKED_AT {
        let Some(stat) = kernel::fstat(n as c_int) else {
            continue;
        };
        // SAFETY: the memory is writable for its length.
        let len = unsafe { name_of(n as c_int, room.as_mut_ptr(), room.len()) };
        if len == 0 || len > room.len() {
            continue;
        }
        if all.is_null() {
            all = kernel::map(LOOKED_AT * size_of::<Inherited>()).cast();
            if all.is_null() {
                return;
            }
        }
        // SAFETY: the memory is mapped and has so many; zeroes are a valid one, and nobody else knows it yet.
        let it = unsafe { &mut *all.add(n) };
        (it.dev, it.ino, it.len) = (stat.st_dev, stat.st_ino, len);
        it.name[..len].copy_from_slice(&room[..len]);
    }
    INHERITED.store(all, Ordering::Release);
}

/// The name of a record, unless it is that of a stream like `<STDOUT>` or of folded files.
fn own_name(
    recording: &Recording,
    kind: Kind,
    handle: Handle,
    room: &mut [u8; MAX_NAME_BYTES],
) -> Option<usize> {
    let name = recording.table.name(kind, handle, room)?;
    (name.first() == Some(&b'/')).then_some(name.len())
}

/// The path of a descriptor: by its record, else by the kernel.
pub fn name<'o>(
    recording: &Recording,
    fd: c_int,
    room: &'o mut [u8; MAX_NAME_BYTES],
) -> Option<&'o [u8]> {
    let handle = known(fd).and_then(|e| e.posix.handle());
    if let Some(len) = handle.and_then(|h| own_name(recording, Kind::Posix, h, room)) {
        return Some(&room[..len]);
    }
    if state::is_restricted() {
        return None;
    }
    known_name(fd, room)
}

/// Marks all descriptors as shared: from now on the kernel is asked for their positions.
pub fn share_positions() {
    each_known(0, u32::MAX, |_, entry| {
        entry.flags.fetch_or(ASK, Relaxed);
    });
}

/// Makes the descriptors of a new child lead to the same files in its own table.
pub fn inherit(from: &Table<'static>, to: &Recording) {
    each_known(0, u32::MAX, |fd, entry| {
        for (kind, view) in [(Kind::Posix, &entry.posix), (Kind::Stdio, &entry.stream)] {
            let Some(old) = view.handle() else {
                continue;
            };
            let mut room = [0; MAX_NAME_BYTES];
            let new = from
                .name(kind, old, &mut room)
                .and_then(|name| hold(to, kind, name, fd));
            match new {
                Some(handle) => view.set(Standing::File, Some(handle)),
                None => view.set(Standing::Unknown, None),
            }
        }
    });
    // For forks before which no handler ran.
    share_positions();
    record_names::directory_changed();
}
