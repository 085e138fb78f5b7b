//! This process' table, and what a child must not inherit.
//!
//! A page leads to the table. The kernel wipes that page in a forked child (`MADV_WIPEONFORK`), whatever call made the
//! child. So a child finds the page empty at its first call and makes a table of its own. The table of its parent is
//! still mapped then, and tells which files the inherited descriptors stand for. If the child can't make a table (it
//! has changed its root or its user), it goes on in its parent's. What a child closes before anything else counts in its
//! parent's: a shell's child does no more than that before it starts a program, which has a table of its own.
//!
//! A child of `vfork` shares its parent's memory and counts in its parent's table. Its descriptors are its own, so it
//! must not change what is known of its parent's.

use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use forebay_count::layout::{H_THREADS, WORD_BYTES};
use forebay_count::{Host, Table};

use forebay_hook::fork::{self, ForkPage, ZeroIsNew};
use forebay_hook::kernel::{self, Errno, call};
use forebay_hook::thread;

use crate::birth;
use crate::clock;
use crate::config;
use crate::fds;
use crate::own_reads;

const PAGE_BYTES: usize = 4096;

/// State of one process. All zeroes is the state of a new process.
struct Page {
    phase: AtomicU32,
    owner: AtomicI32,
    words: AtomicPtr<AtomicU64>,
    len: AtomicUsize,
    /// The thread that makes or borrows a table, or has made it.
    thread: AtomicU64,
}

// SAFETY: it holds atomics alone. Phase `NEW` is zero, and the rest is read in later phases only.
unsafe impl ZeroIsNew for Page {}

const NEW: u32 = 0;
const STARTING: u32 = 1;
const READY: u32 = 2;
const OFF: u32 = 3;
/// A forked child without a table counts in that of its parent at this moment.
const LENT: u32 = 4;
/// Times that a thread yields to another one that is making the table before it goes on uncounted.
const MAX_TURNS: usize = 1000;

static PAGE: ForkPage<Page> = ForkPage::new();
/// The table of this process or, in a new child, that of its parent.
static LAST_WORDS: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
static LAST_LEN: AtomicUsize = AtomicUsize::new(0);
/// Tables that this process and its ancestors since the last exec have made.
static SERIAL: AtomicU64 = AtomicU64::new(0);
/// True if a child may share this memory. Always true where no hook sees how children are made.
pub static MAY_BE_BORROWED: AtomicBool = AtomicBool::new(cfg!(not(target_arch = "x86_64")));
/// True once the program has restricted its system calls. The recorder makes none then.
static RESTRICTED: AtomicBool = AtomicBool::new(false);

/// The table of this process.
#[derive(Clone, Copy)]
pub struct Recording {
    /// The table.
    pub table: Table<'static>,
}

impl Host for Recording {
    fn back(&self, words: Range<usize>) -> bool {
        back(self.table.words(), words)
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn thread(&self) -> u64 {
        thread::id()
    }

    fn give_way(&self) -> bool {
        let may = !is_restricted();
        if may {
            kernel::give_way();
        }
        may
    }
}

/// Backs some words of a table with memory. Returns `false` if there is none.
pub fn back(words: &'static [AtomicU64], range: Range<usize>) -> bool {
    let first = range.start * WORD_BYTES / PAGE_BYTES * PAGE_BYTES;
    let end = (range.end * WORD_BYTES)
        .next_multiple_of(PAGE_BYTES)
        .min(size_of_val(words));
    if is_restricted() || first >= end {
        return first >= end;
    }
    // SAFETY: inside the mapping.
    let at = unsafe { words.as_ptr().cast::<u8>().add(first) };
    match populate(at.cast_mut().cast::<c_void>(), end - first) {
        Ok(()) => true,
        // An older kernel: the whole file was allocated when the table was made.
        Err(libc::EINVAL) => true,
        Err(_) => false,
    }
}

/// Backs pages with memory. Where there is none it fails, while a first touch would bring a signal.
pub fn populate(at: *mut c_void, len: usize) -> Result<(), Errno> {
    /// `MADV_POPULATE_WRITE`, Linux 5.14.
    const POPULATE_WRITE: c_int = 23;
    // SAFETY: the range belongs to a mapping of the recorder.
    unsafe { call!(libc::SYS_madvise, at, len, POPULATE_WRITE) }.map(drop)
}

/// The table to count in, if this process is recorded.
#[inline(always)]
pub fn recording() -> Option<Recording> {
    if let Some(page) = PAGE.peek() {
        match page.phase.load(Ordering::Acquire) {
            READY => return attach(page),
            OFF => return None,
            _ => {}
        }
    }
    start()
}

#[inline(always)]
fn attach(page: &Page) -> Option<Recording> {
    let (at, len) = (
        page.words.load(Ordering::Relaxed),
        page.len.load(Ordering::Relaxed),
    );
    // SAFETY: the mapping of the table stays for as long as the page says READY.
    let words = unsafe { core::slice::from_raw_parts(at, len) };
    let table = Table::attach(words)?;
    if page.thread.load(Ordering::Relaxed) != thread::id() && table.get(H_THREADS) == 0 {
        table.put(H_THREADS, 1);
    }
    Some(Recording { table })
}

#[cold]
fn start() -> Option<Recording> {
    let config = config::get()?;
    let page = PAGE.get()?;
    for _ in 0..MAX_TURNS {
        match page.phase.load(Ordering::Acquire) {
            READY => return attach(page),
            OFF => return None,
            // This thread itself is at it: this is a signal handler, or one has jumped out of it.
            STARTING | LENT if page.thread.load(Ordering::Relaxed) == thread::id() => return None,
            STARTING | LENT => {
                kernel::give_way();
            }
            _ if page
                .phase
                .compare_exchange(NEW, STARTING, Ordering::AcqRel, Ordering::Acquire)
                .is_ok() =>
            {
                page.thread.store(thread::id(), Ordering::Relaxed);
                let found = make(config);
                if let Some(words) = found {
                    page.words
                        .store(words.as_ptr().cast_mut(), Ordering::Relaxed);
                    page.len.store(words.len(), Ordering::Relaxed);
                }
                if !is_restricted() {
                    page.owner.store(kernel::getpid(), Ordering::Relaxed);
                }
                let phase = if found.is_some() { READY } else { OFF };
                page.phase.store(phase, Ordering::Release);
            }
            _ => {}
        }
    }
    None
}

/// The words of the last table: in a new child those of its parent.
///
/// # Safety
/// The caller keeps other threads from giving the mapping up.
unsafe fn last_words() -> Option<&'static [AtomicU64]> {
    let (at, len) = (
        LAST_WORDS.load(Ordering::Acquire),
        LAST_LEN.load(Ordering::Relaxed),
    );
    // SAFETY: the caller's promise.
    (!at.is_null()).then(|| unsafe { core::slice::from_raw_parts(at, len) })
}

/// True in a forked child that has no table yet.
#[inline(always)]
pub fn is_new_child() -> bool {
    PAGE.peek()
        .is_some_and(|page| page.phase.load(Ordering::Relaxed) == NEW)
        && !LAST_WORDS.load(Ordering::Relaxed).is_null()
}

/// The table of the parent, lent to a child that has none yet. Records that it leads to are held by the parent's
/// descriptors, not by the child's. Other threads wait until it is given back.
pub struct Lent {
    page: &'static Page,
    /// The parent's table.
    pub recording: Recording,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.page.thread.store(0, Ordering::Relaxed);
        self.page.phase.store(NEW, Ordering::Release);
    }
}

/// Lends the table of the parent; `None` if this process has its own, or no parent with one.
pub fn lent() -> Option<Lent> {
    let page = PAGE.peek()?;
    if !is_new_child() {
        return None;
    }
    page.phase
        .compare_exchange(NEW, LENT, Ordering::AcqRel, Ordering::Acquire)
        .ok()?;
    page.thread.store(thread::id(), Ordering::Relaxed);
    // SAFETY: no other thread makes a table now.
    let table = unsafe { last_words() }.and_then(Table::attach);
    if table.is_none() {
        page.thread.store(0, Ordering::Relaxed);
        page.phase.store(NEW, Ordering::Release);
    }
    table.map(|table| Lent {
        page,
        recording: Recording { table },
    })
}

/// Does something to the table of the parent, in a process that counts there: a new child, or one of `vfork`.
pub fn in_parents_table(act: impl FnOnce(&Table<'static>)) {
    if let Some(lent) = lent() {
        act(&lent.recording.table);
    } else if is_borrowed()
        && let Some(recording) = recording()
    {
        act(&recording.table);
    }
}

/// Makes a table for this process; if it can't, returns that of the parent.
fn make(config: &config::Config) -> Option<&'static [AtomicU64]> {
    // SAFETY: the mapping is there until the next lines give it up.
    let parent = unsafe { last_words() };
    if is_restricted() {
        return parent;
    }
    if parent.is_some() {
        own_reads::forget();
    }
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let Some(words) = birth::make(config, serial, parent.is_some()) else {
        return parent;
    };
    LAST_WORDS.store(words.as_ptr().cast_mut(), Ordering::Release);
    LAST_LEN.store(words.len(), Ordering::Relaxed);
    if let Some(parent) = parent {
        if let (Some(from), Some(to)) = (Table::attach(parent), Table::attach(words)) {
            fds::inherit(&from, &Recording { table: to });
        }
        // SAFETY: nothing refers to the mapping any more: what this process knew of its cells was just replaced.
        unsafe { kernel::unmap(parent.as_ptr().cast_mut().cast(), size_of_val(parent)) };
    }
    Some(words)
}

/// True in a child of `vfork`, which has its parent's memory. What it does to its descriptors must not be noted.
#[inline(always)]
pub fn is_borrowed() -> bool {
    MAY_BE_BORROWED.load(Ordering::Relaxed) && !is_restricted() && ask_whether_borrowed()
}

#[cold]
fn ask_whether_borrowed() -> bool {
    PAGE.get().is_some_and(|page| {
        let owner = page.owner.load(Ordering::Relaxed);
        owner != 0 && owner != kernel::getpid()
    })
}

/// Notes that a child may share this process' memory from now on.
pub fn expect_borrowers() {
    MAY_BE_BORROWED.store(true, Ordering::Relaxed);
}

/// Keeps the recorder from making system calls from now on. Files that come later need memory now; a child that is forked
/// later goes on in this process' table.
pub fn restrict() {
    if let Some(recording) = recording() {
        recording.table.reserve(&recording);
    }
    RESTRICTED.store(true, Ordering::Relaxed);
}

/// True once the recorder makes no system calls any more.
#[inline(always)]
pub fn is_restricted() -> bool {
    RESTRICTED.load(Ordering::Relaxed)
}

/// Makes the table of a process that will have a child, so that the collector knows the child's parent. From now on two
/// processes move the positions of the open files.
extern "C" fn before_fork() {
    if recording().is_some() && !is_borrowed() {
        fds::share_positions();
    }
}

extern "C" fn after_fork_in_child() {
    // SAFETY: the only thread of a new process.
    unsafe { PAGE.wipe() };
}

/// Registers the handlers of forks. Called at load time, while there is one thread and no lock is held.
pub fn watch_forks() {
    fork::watch(Some(before_fork), after_fork_in_child);
}

/// Number of the newest table, from 0.
pub fn serial() -> u64 {
    SERIAL.load(Ordering::Relaxed).saturating_sub(1)
}

/// True if this process has a table already.
pub fn has_begun() -> bool {
    PAGE.peek()
        .is_some_and(|page| page.phase.load(Ordering::Acquire) == READY)
}
