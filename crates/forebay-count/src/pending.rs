//! Side slots: they keep events whose record was locked.
//!
//! A slot is free, being filled, full, or being emptied. The next thread to release a record counts the full ones; so
//! does the reader. If all slots are taken, or the record is gone, the event is added to the totals alone.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::event::{Event, Op};
use crate::layout::{H_PENDING, Kind, PENDING_AT, PENDING_SLOTS, PENDING_WORDS};
use crate::table::{Handle, Host, Table};

const FREE: u64 = 0;
const FILLING: u64 = 1;
const FULL: u64 = 2;
const EMPTYING: u64 = 3;
/// The lowest byte of a slot's first word is its state; kind and operation are above.
const STATE_BITS: u64 = 0xff;

/// Leaves an event in a slot. Returns `false` if no slot is free.
#[cold]
pub fn leave(table: &Table<'_>, kind: Kind, handle: Handle, event: &Event) -> bool {
    for slot in slots(table) {
        if slot[0]
            .compare_exchange(FREE, FILLING, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            continue;
        }
        let values = [
            u64::from(handle.cell),
            handle.id,
            event.offset as u64,
            event.bytes as u64,
            event.start_ns,
            event.end_ns,
            event.aux,
        ];
        for (word, value) in slot[1..].iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        let tag = (kind as u64) << 8 | (event.op as u64) << 16;
        slot[0].store(FULL | tag, Ordering::Release);
        table.words()[H_PENDING].fetch_add(1, Ordering::Relaxed);
        return true;
    }
    false
}

/// Counts the events in the slots. With `settle` nobody else is at work, so slots that were being emptied are
/// counted, too.
#[cold]
pub fn drain(table: &Table<'_>, host: &impl Host, settle: bool) {
    for slot in slots(table) {
        let tag = slot[0].load(Ordering::Acquire);
        let state = tag & STATE_BITS;
        if state != FULL && !(settle && state == EMPTYING) {
            continue;
        }
        let taken = tag & !STATE_BITS | EMPTYING;
        if slot[0]
            .compare_exchange(tag, taken, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            continue;
        }
        let counted = match event_in(slot, tag) {
            Some((kind, handle, event)) => table.count_left(kind, handle, &event, host),
            None => true,
        };
        if counted {
            slot[0].store(FREE, Ordering::Release);
            let _ =
                table.words()[H_PENDING]
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        } else {
            slot[0].store(taken & !STATE_BITS | FULL, Ordering::Release);
        }
    }
}

fn event_in(slot: &[AtomicU64], tag: u64) -> Option<(Kind, Handle, Event)> {
    let word = |i: usize| slot[i].load(Ordering::Relaxed);
    let event = Event {
        op: Op::from_number(tag >> 16 & 0xff)?,
        offset: word(3) as i64,
        bytes: word(4) as i64,
        start_ns: word(5),
        end_ns: word(6),
        aux: word(7),
    };
    let handle = Handle {
        cell: word(1) as u32,
        id: word(2),
    };
    Some((Kind::from_number(tag >> 8 & 0xff)?, handle, event))
}

fn slots<'t>(table: &Table<'t>) -> impl Iterator<Item = &'t [AtomicU64]> {
    table.words()[PENDING_AT..PENDING_AT + PENDING_SLOTS * PENDING_WORDS]
        .chunks_exact(PENDING_WORDS)
}
