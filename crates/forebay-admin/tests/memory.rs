//! Measures how much memory a long answer takes. The test is alone in its process, because it counts all allocations.
#![allow(unsafe_code)]

use forebay_admin::drain::{Left, Reason};
use forebay_admin::{AnswerWriter, Items};
use std::alloc::{GlobalAlloc, Layout, System};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the allocated bytes, and keeps their maximum.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all work is done by the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ENTRIES: u64 = 1_000_000;
/// Room for the buffers of both sides, a thread, and an item on each side.
const MOST_BYTES: usize = 1 << 20;

fn left(n: u64) -> Left {
    Left {
        path: format!("results/rank{:04}/step{n:07}.h5", n % 1000),
        path_bytes: None,
        bytes: n,
        reason: Reason::Error,
        operation: "fsync".into(),
        cause: "No space left on device".into(),
    }
}

#[test]
fn a_million_entries_pass_through_bounded_memory_on_both_sides() {
    let (bridge, caller) = UnixStream::pair().unwrap();
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let writer = std::thread::spawn(move || {
        let mut answer = AnswerWriter::begin(bridge).unwrap();
        for n in 0..ENTRIES {
            answer.item(&left(n)).unwrap();
        }
        answer.end().unwrap();
    });
    let mut seen = 0;
    for item in Items::<Left>::new(caller, "a bridge".as_ref(), "left") {
        let item = item.unwrap();
        assert_eq!(item.bytes, seen);
        seen += 1;
    }
    writer.join().unwrap();
    assert_eq!(seen, ENTRIES);
    let peak = PEAK.load(Ordering::Relaxed) - before;
    assert!(peak < MOST_BYTES, "{peak} bytes at most");
}
