//! How the process ends, and how many bytes the kernel has counted for it.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use forebay_count::Table;
use forebay_count::layout::{H_END, H_END_CODE, H_IO_LAST, H_LAST, H_OWN_READ};
use forebay_count::read::End;

use crate::clock;
use crate::own_reads;
use crate::state;

/// The figures of /proc/self/io are read again at the first close after this time.
const LOOK_EVERY_NS: u64 = 1_000_000_000;

/// Notes how this process ends, or that it begins another program.
pub fn note(end: End) {
    if state::is_borrowed() {
        return;
    }
    let Some(recording) = state::recording() else {
        return;
    };
    if !state::is_restricted() {
        look_at_io(&recording.table, H_IO_LAST);
    }
    let (kind, code) = end.to_words();
    // An abort of MPI ends in an exit or abort, which says less.
    let aborts = End::MpiAbort(0).to_words().0;
    if recording.table.get(H_END) == aborts && matches!(end, End::Exit(_) | End::Abort) {
        return;
    }
    recording.table.put(H_END_CODE, code);
    recording.table.put(H_END, kind);
    recording.table.put(H_LAST, clock::now_ns());
}

/// [`note`], if there is a table already. A process that ends needs no new one.
pub fn note_if_begun(end: End) {
    if state::has_begun() {
        note(end);
    }
}

/// Reads the figures of /proc/self/io about once a second, because a killed process can't do it at its end.
#[inline]
pub fn look_now_and_then(table: &Table<'_>, now_ns: u64) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let last = LAST.load(Ordering::Relaxed);
    if now_ns.saturating_sub(last) < LOOK_EVERY_NS || state::is_restricted() {
        return;
    }
    if LAST
        .compare_exchange(last, now_ns, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
        && last != 0
        && !state::is_borrowed()
    {
        look_at_io(table, H_IO_LAST);
        table.put(H_LAST, now_ns);
    }
}

/// Writes the figures of /proc/self/io into the header, less what the recorder itself has read.
pub fn look_at_io(table: &Table<'_>, at: usize) {
    let [bytes, calls] = own_reads::totals();
    let mut room = [0; 512];
    let Some(text) = own_reads::read_file(c"/proc/self/io", &mut room) else {
        return;
    };
    table.put(H_OWN_READ, own_reads::totals()[0]);
    // rchar is the first line, syscr the third.
    let own = [bytes, 0, calls];
    for (i, line) in text.split(|&b| b == b'\n').take(7).enumerate() {
        let value = number(line.split(|&b| b == b' ').nth(1).unwrap_or(&[]));
        let own = own.get(i).copied().unwrap_or(0);
        table.put(at + i, value.saturating_sub(own));
    }
}

/// A decimal number; 0 of anything else.
pub fn number(text: &[u8]) -> u64 {
    text.iter()
        .try_fold(0u64, |n, &b| {
            Some(n.wrapping_mul(10) + u64::from((b as char).to_digit(10)?))
        })
        .unwrap_or(0)
}

unsafe extern "C" {
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), arg: *mut c_void) -> c_int;
}

extern "C" fn at_exit(code: c_int, _: *mut c_void) {
    note_if_begun(End::Exit(code));
}

/// Registers the handler of exits. Called at load time, because the first handler to be registered is called last.
pub fn watch_exit() {
    // SAFETY: a static function of a library that is never unloaded.
    unsafe { on_exit(at_exit, null_mut()) };
}
