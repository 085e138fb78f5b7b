//! Memory of a table: it makes records and names, and folds files when it is full.
//!
//! All of it happens under one lock. Nobody waits for that lock for long: the first use of a file 10 ms at
//! most, the fifth size of its accesses some microseconds. Memory is **type-stable**: cells that
//! once were a record of some kind stay one, so that a thread with an old handle finds a lock where it expects one.

use core::ops::Range;
use core::sync::atomic::{Ordering, Ordering::Relaxed};

use crate::layout::*;
use crate::lock::{self, Held};
use crate::path::{self, MAX_NAME_BYTES, OTHER_FILES};
use crate::table::{Handle, Host, Name, Record, Table, word_of};
use crate::track::{add, overflow_words};
use crate::{busy, heat, library, posix, stdio};

/// Cells that are backed by memory in one step: at first as many as a process with few files needs (4 KiB), then as many as
/// there are already, up to 32 KiB.
const BACKING_STEP_CELLS: Range<usize> = 64..512;
/// One cell in this many is reserved for records of directories.
const RESERVE_SHARE: usize = 16;
/// The heap has room for one record of a directory per this many cells.
const CELLS_PER_DIRECTORY: usize = 256;
/// Files among which the one to fold is chosen.
const CANDIDATES: usize = 16;
/// Most buckets that a search for candidates looks at.
const MAX_BUCKETS_SEEN: usize = 512;

/// What a run of cells is used for; each has a list of free runs.
#[derive(Clone, Copy)]
enum Use {
    Name(usize),
    Record(Kind),
    Overflow(usize),
}

impl Use {
    fn cells(self) -> usize {
        match self {
            Use::Name(len) => (NAME_HEAD_WORDS + len.div_ceil(WORD_BYTES)).div_ceil(CELL_WORDS),
            Use::Record(kind) => kind.cells(),
            Use::Overflow(value_words) => overflow_words(value_words).div_ceil(CELL_WORDS),
        }
    }

    /// Number of the list of free runs; names have one list for each length.
    fn list(self) -> usize {
        const NAMES: usize = (NAME_HEAD_WORDS + MAX_NAME_BYTES / WORD_BYTES).div_ceil(CELL_WORDS);
        const _: () = assert!(NAMES + 9 <= MAX_FREE_CELLS);
        match self {
            Use::Name(_) => self.cells(),
            Use::Record(kind) => NAMES + kind as usize,
            Use::Overflow(1) => NAMES + 8,
            Use::Overflow(_) => NAMES + 9,
        }
    }
}

/// The word that holds the bucket of an id.
pub(crate) fn bucket(table: &Table<'_>, id: u64) -> usize {
    let count = table.get(H_BUCKET_COUNT).max(1);
    table.get(H_BUCKETS).saturating_add(id & (count - 1)) as usize
}

/// The longest time for which the first use of a file waits for the lock of the structure. Its holder may have to wait for
/// memory, or for a processor. Without a record, all that is done with the file until then would be lost.
const MOST_WAIT_NS: u64 = 10_000_000;

/// The lock of the structure, released on drop.
struct Locked<'t> {
    table: Table<'t>,
    held: Held,
}

impl<'t> Locked<'t> {
    fn take(table: &Table<'t>, host: &impl Host) -> Option<Self> {
        let words = table.words();
        let held = lock::acquire(&words[H_LOCK], &words[H_LOCK + 1], host.now_ns())?;
        table.put(H_LOCK_HOLDER, host.thread());
        Some(Locked {
            table: *table,
            held,
        })
    }

    /// Like [`Locked::take`], but lets the holder run for as long as it may need. A signal handler does not wait for the
    /// call that it has interrupted, unless that was taking or releasing the lock at this moment. Nobody waits again for a holder for whom
    /// somebody has waited in vain: it may have been cancelled.
    fn take_patiently(table: &Table<'t>, host: &impl Host) -> Option<Self> {
        let since_ns = host.now_ns();
        loop {
            if let Some(locked) = Locked::take(table, host) {
                return Some(locked);
            }
            let held = table.get(H_LOCK);
            let me = host.thread();
            let is_own = me != 0 && table.get(H_LOCK_HOLDER) == me;
            if is_own || table.get(H_LOCK_HOLDER + 1) == held {
                return None;
            }
            if host.now_ns().saturating_sub(since_ns) > MOST_WAIT_NS {
                // An even count is that of a lock that is free.
                if held & 1 == 1 {
                    table.put(H_LOCK_HOLDER + 1, held);
                }
                return None;
            }
            if !host.give_way() {
                return None;
            }
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.table.put(H_LOCK_HOLDER, 0);
        self.table.unlock(&self.table.words()[H_LOCK], self.held);
    }
}

/// The record of a new file, or that of its directory.
#[cold]
pub(crate) fn obtain(
    table: &Table<'_>,
    kind: Kind,
    name: &Name<'_>,
    host: &impl Host,
) -> Option<Handle> {
    let _locked = Locked::take_patiently(table, host)?;
    if let Some(cell) = table.find(kind, name.id) {
        return Some(Handle { cell, id: name.id });
    }
    // Only processes that use an I/O library need a last resort for it, so it is made here.
    if !matches!(kind, Kind::Posix | Kind::Stdio)
        && table.find(kind, Name::of(OTHER_FILES).id).is_none()
    {
        make_last_resort(table, kind, host);
    }
    let made = make(table, kind, name, 0, host).or_else(|| {
        // One fold frees room for a record. It may take more of them until a name of that length has room.
        for _ in 0..4 {
            if !fold_one(table, kind, host) {
                break;
            }
            if let Some(cell) = make(table, kind, name, 0, host) {
                return Some(cell);
            }
        }
        None
    });
    if let Some(cell) = made {
        return Some(Handle { cell, id: name.id });
    }
    let cell = directory_record(table, kind, name.bytes, host)?;
    let record = table.record(kind, cell)?;
    count_file(table, &record, kind, name.id, host);
    Some(Handle {
        cell,
        id: record.id(),
    })
}

/// Makes the record for files whose directories have none. Called when a table begins.
pub(crate) fn make_last_resort(table: &Table<'_>, kind: Kind, host: &impl Host) -> Option<u32> {
    make(table, kind, &Name::of(OTHER_FILES), FOLDED, host)
}

/// Allocates an area for tracked values.
#[cold]
pub(crate) fn overflow_area(
    table: &Table<'_>,
    value_words: usize,
    host: &impl Host,
) -> Option<u32> {
    let _locked = Locked::take(table, host)?;
    allocate(table, Use::Overflow(value_words), false, host)
}

/// Makes a record and puts it into the index. The caller holds the lock of the structure.
fn make(
    table: &Table<'_>,
    kind: Kind,
    name: &Name<'_>,
    flags: u64,
    host: &impl Host,
) -> Option<u32> {
    let reserve = flags & FOLDED != 0;
    let shared = table.chain(name.id).find(|r| r.id() == name.id);
    let name_cell = match shared.map(|r| r.words[NEXT_NAME].load(Relaxed) as u32) {
        Some(cell) if cell != 0 => cell,
        _ => write_name(table, name.bytes, reserve, host)?,
    };
    let Some(cell) = allocate(table, Use::Record(kind), reserve, host) else {
        if table.get(name_users(name_cell)) == 0 {
            release_run(table, Use::Name(name.bytes.len()), name_cell);
        }
        return None;
    };
    add(table.words().get(name_users(name_cell))?, 1);
    let words = table.words().get(cell as usize * CELL_WORDS..)?;
    let words = words.get(..kind.cells() * CELL_WORDS)?;
    let before = if was_folded(table, kind, name.id) {
        COUNTED_BEFORE
    } else {
        0
    };
    let head = bucket(table, name.id);
    words[PARENT].store(name.parent, Relaxed);
    words[NEXT_NAME].store(table.get(head) << 32 | u64::from(name_cell), Relaxed);
    words[ID].store(name.id, Relaxed);
    words[KIND_FLAGS].store(kind as u64 | flags | before, Ordering::Release);
    if flags & FOLDED != 0 {
        add(&table.words()[H_FOLDED_RECORDS], 1);
    }
    table
        .words()
        .get(head)?
        .store(u64::from(cell), Ordering::Release);
    Some(cell)
}

fn name_users(cell: u32) -> usize {
    cell as usize * CELL_WORDS + 1
}

fn write_name(table: &Table<'_>, name: &[u8], reserve: bool, host: &impl Host) -> Option<u32> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let cell = allocate(table, Use::Name(name.len()), reserve, host)?;
    let at = cell as usize * CELL_WORDS;
    table.put(at, name.len() as u64);
    for (i, piece) in name.chunks(WORD_BYTES).enumerate() {
        table.put(at + NAME_HEAD_WORDS + i, word_of(piece));
    }
    Some(cell)
}

/// Allocates a zeroed run of cells. The lock of a former record stays as it is. The caller holds the lock of the
/// structure.
fn allocate(table: &Table<'_>, use_: Use, reserve: bool, host: &impl Host) -> Option<u32> {
    let cells = use_.cells();
    let list = H_FREE + use_.list();
    let free = table.get(list) as u32;
    if free != 0 {
        let words = table.words().get(free as usize * CELL_WORDS..)?;
        let words = words.get(..cells * CELL_WORDS)?;
        table.put(list, words[PARENT].load(Relaxed));
        let keep = if matches!(use_, Use::Record(_)) {
            LOCK_NOTE + 1
        } else {
            0
        };
        words[keep..].iter().for_each(|w| w.store(0, Relaxed));
        return Some(free);
    }
    let (first, next) = (
        table.get(H_HEAP_FIRST) as usize,
        table.get(H_HEAP_NEXT) as usize,
    );
    let all = (table.get(H_HEAP_END) as usize).min(table.words().len() / CELL_WORDS);
    let kept = if reserve {
        0
    } else {
        (all - first.min(all)) / RESERVE_SHARE
    };
    let end = next + cells;
    if end + kept > all {
        return None;
    }
    let backed = table.get(H_HEAP_BACKED) as usize;
    if end > backed {
        let step = backed.saturating_sub(first);
        let step = step.clamp(BACKING_STEP_CELLS.start, BACKING_STEP_CELLS.end);
        if !back_to((end + step).min(all), table, host) {
            return None;
        }
    }
    table.put(H_HEAP_NEXT, end as u64);
    u32::try_from(next).ok()
}

/// Backs the heap with memory up to a cell. If there is none, the table makes do with what it has from now on. The caller holds
/// the lock of the structure.
fn back_to(upto: usize, table: &Table<'_>, host: &impl Host) -> bool {
    let backed = table.get(H_HEAP_BACKED) as usize;
    let done = host.back(backed * CELL_WORDS..upto * CELL_WORDS);
    if done {
        table.put(H_HEAP_BACKED, upto as u64);
    } else {
        table.put(H_HEAP_END, backed as u64);
    }
    done
}

/// Backs as many free cells as there may be, of one largest step.
pub(crate) fn reserve(table: &Table<'_>, host: &impl Host) {
    let Some(_locked) = Locked::take(table, host) else {
        return;
    };
    let upto = table.get(H_HEAP_NEXT) as usize + BACKING_STEP_CELLS.end;
    let upto = upto.min(table.get(H_HEAP_END) as usize);
    if upto > table.get(H_HEAP_BACKED) as usize {
        back_to(upto, table, host);
    }
}

/// Gives a run back. The caller holds the lock of the structure.
fn release_run(table: &Table<'_>, use_: Use, cell: u32) {
    let list = H_FREE + use_.list();
    table.put(cell as usize * CELL_WORDS + PARENT, table.get(list));
    table.put(list, u64::from(cell));
}

/// The record into which the files of a directory are folded: its own, or that of a directory above. The caller holds
/// the lock of the structure.
fn directory_record(table: &Table<'_>, kind: Kind, name: &[u8], host: &impl Host) -> Option<u32> {
    let cells = table.words().len() / CELL_WORDS;
    let room = (cells / CELLS_PER_DIRECTORY) as u64;
    let mut text = [0; MAX_NAME_BYTES];
    let mut directory = path::directory(name);
    loop {
        let end = directory.len() + OTHER_FILES.len();
        if let Some(text) = text.get_mut(..end) {
            text[..directory.len()].copy_from_slice(directory);
            text[directory.len()..].copy_from_slice(OTHER_FILES);
            let name = Name::of(text);
            if let Some(cell) = table.find(kind, name.id) {
                return Some(cell);
            }
            if (table.get(H_FOLDED_RECORDS) < room || directory.is_empty())
                && let Some(cell) = make(table, kind, &name, FOLDED, host)
            {
                return Some(cell);
            }
        }
        if directory.is_empty() {
            return None;
        }
        directory = path::directory(directory);
    }
}

/// Folds the file that weighs least among some that nobody uses. The caller holds the lock of the structure.
fn fold_one(table: &Table<'_>, kind: Kind, host: &impl Host) -> bool {
    let Some(victim) = choose(table, kind) else {
        return false;
    };
    let Some(record) = table.record(kind, victim) else {
        return false;
    };
    let name_cell = record.words[NEXT_NAME].load(Relaxed) as u32;
    let mut name = [0; MAX_NAME_BYTES];
    let name = read_name(table, name_cell, &mut name);
    let Some(target) = directory_record(table, kind, name, host) else {
        return false;
    };
    let Some(into) = table.record(kind, target) else {
        return false;
    };
    let Some(held) = lock::try_once(&record.words[LOCK]) else {
        return false;
    };
    let free = record.words[HANDLES].load(Ordering::Acquire) == 0;
    let both = free
        .then(|| lock::acquire(&into.words[LOCK], &into.words[LOCK_NOTE], host.now_ns()))
        .flatten();
    if let Some(both) = both {
        heat::flush(table, kind, record.state());
        busy::flush(table, &record);
        match kind {
            Kind::Posix => posix::fold(table, &record, &into, host),
            Kind::Stdio => stdio::fold(&record, &into),
            _ => library::fold(&record, &into),
        }
        let flags = record.words[KIND_FLAGS].load(Relaxed);
        into.words[KIND_FLAGS].fetch_or(flags & VALUES_LOST, Relaxed);
        let id = record.id();
        let used = record.is_used();
        unlink(table, victim, &record);
        record.words[ID].store(0, Ordering::Release);
        record.words[KIND_FLAGS].store(0, Ordering::Release);
        if used && flags & COUNTED_BEFORE == 0 {
            count_file(table, &into, kind, id, host);
        }
        table.unlock(&into.words[LOCK], both);
    }
    table.unlock(&record.words[LOCK], held);
    let done = both.is_some();
    if done {
        give_back(table, victim, &record, name_cell, name.len());
    }
    done
}

fn choose(table: &Table<'_>, kind: Kind) -> Option<u32> {
    let count = table.get(H_BUCKET_COUNT).max(1);
    let hand = table.get(H_HAND);
    let mut best: Option<(u64, u32)> = None;
    let mut seen = 0;
    let mut steps = 0;
    while steps < MAX_BUCKETS_SEEN && seen < CANDIDATES {
        for link in table.chain(hand.wrapping_add(steps as u64)) {
            let free = link.words[HANDLES].load(Relaxed) == 0;
            if link.kind != kind || !free || link.is_folded() {
                continue;
            }
            seen += 1;
            let weight = match kind {
                Kind::Posix => posix::weight(&link),
                Kind::Stdio => stdio::weight(&link),
                _ => library::weight(&link),
            };
            if best.is_none_or(|(least, _)| weight < least) {
                best = Some((weight, link.cell));
            }
        }
        steps += 1;
    }
    table.put(H_HAND, hand.wrapping_add(steps as u64) & (count - 1));
    best.map(|(_, cell)| cell)
}

/// Takes a record out of its bucket. The caller holds the lock of the structure.
fn unlink(table: &Table<'_>, cell: u32, record: &Record<'_>) {
    let next = record.words[NEXT_NAME].load(Relaxed) >> 32;
    let head = bucket(table, record.id());
    if table.get(head) as u32 == cell {
        table.put(head, next);
        return;
    }
    for link in table.chain(record.id()) {
        let word = link.words[NEXT_NAME].load(Relaxed);
        if (word >> 32) as u32 == cell {
            link.words[NEXT_NAME].store(word & u64::from(u32::MAX) | next << 32, Ordering::Release);
            return;
        }
    }
}

fn give_back(table: &Table<'_>, cell: u32, record: &Record<'_>, name_cell: u32, name_len: usize) {
    let shape = record.kind.shape();
    for set in 0..shape.value_sets {
        let area = record.overflow_cell(set);
        if area != 0 {
            release_run(table, Use::Overflow(shape.value_words), area);
        }
    }
    release_run(table, Use::Record(record.kind), cell);
    if let Some(users) = table.words().get(name_users(name_cell)) {
        add(users, -1);
        if users.load(Relaxed) == 0 {
            release_run(table, Use::Name(name_len), name_cell);
        }
    }
}

/// The text of a name; empty if the name is damaged.
pub(crate) fn read_name<'o>(
    table: &Table<'_>,
    cell: u32,
    out: &'o mut [u8; MAX_NAME_BYTES],
) -> &'o [u8] {
    let at = cell as usize * CELL_WORDS;
    let len = table.get(at) as usize;
    if cell == 0 || len > MAX_NAME_BYTES {
        return &[];
    }
    for (i, piece) in out[..len].chunks_mut(WORD_BYTES).enumerate() {
        let word = table.get(at + NAME_HEAD_WORDS + i).to_ne_bytes();
        piece.copy_from_slice(&word[..piece.len()]);
    }
    &out[..len]
}

/// True if a record is that of a file or of a directory's files: other names, such as `<STDIN>`, are no paths.
pub(crate) fn is_of_file(table: &Table<'_>, record: &Record<'_>) -> bool {
    let cell = record.words[NEXT_NAME].load(Relaxed) as u32;
    let first = table
        .get(cell as usize * CELL_WORDS + NAME_HEAD_WORDS)
        .to_ne_bytes()[0];
    cell != 0 && first == b'/'
}

// ---- which files have been folded ----

/// Counts a file in a folded record, unless it was counted there before. The caller holds the lock of the structure.
fn count_file(table: &Table<'_>, into: &Record<'_>, kind: Kind, id: u64, host: &impl Host) {
    let room = table.get(H_FOLDED_ROOM);
    if table.get(H_FOLDED_BACKED) == 0 {
        let first = table.get(H_FOLDED) as usize;
        let backed = host.back(first..first + room as usize);
        table.put(H_FOLDED_BACKED, if backed { 1 } else { 2 });
    }
    let full = table.get(H_FOLDED_BACKED) != 1 || table.get(H_FOLDED_COUNT) >= room / 8 * 7;
    match place_of(table, kind, id) {
        Some((_, true)) => return,
        Some((at, false)) if !full => {
            table.put(at, folded_key(kind, id));
            add(&table.words()[H_FOLDED_COUNT], 1);
        }
        _ => add(&table.words()[H_UNSURE_FILES], 1),
    }
    add(&into.words[FILES], 1);
}

fn was_folded(table: &Table<'_>, kind: Kind, id: u64) -> bool {
    table.get(H_FOLDED_COUNT) != 0 && place_of(table, kind, id).is_some_and(|(_, there)| there)
}

/// What stands for a file in the list of those that have been folded.
pub(crate) fn folded_key(kind: Kind, id: u64) -> u64 {
    id.wrapping_add((kind as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .max(1)
}

/// The word of an id in the list of folded files, and true; or the free word where it belongs, and false.
fn place_of(table: &Table<'_>, kind: Kind, id: u64) -> Option<(usize, bool)> {
    let (first, room) = (table.get(H_FOLDED), table.get(H_FOLDED_ROOM));
    if room == 0 || table.get(H_FOLDED_BACKED) != 1 {
        return None;
    }
    let key = folded_key(kind, id);
    (0..room).find_map(|i| {
        let at = (first + (key.wrapping_add(i)) % room) as usize;
        match table.get(at) {
            0 => Some((at, false)),
            there if there == key => Some((at, true)),
            _ => None,
        }
    })
}
