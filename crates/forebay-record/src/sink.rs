//! Counts the calls of libraries in records of this process' table, and keeps the handles that lead to them.
//!
//! The bytes of MPI-IO, HDF5 and PnetCDF go through libc in the end and are counted there, too. So a file that is left
//! out needs neither record nor totals here, and no byte is missing if a call finds its record gone.

use core::ffi::{CStr, c_char};

use forebay_count::Kind;
use forebay_count::busy;
use forebay_count::handles::Handles;
use forebay_count::heat::Direction;
use forebay_count::library::{Span, Words, note_access};
use forebay_count::path::{MAX_NAME_BYTES, record_id};
use forebay_count::read::End;
use forebay_count::table::{Handle, Name, Record};

use crate::clock;
use crate::config;
use crate::end;
use crate::record_names;
use crate::state::{self, Recording};
use forebay_hook::kernel;

/// Most times that a thread yields for a locked record. A record is locked for some dozen nanoseconds, but its holder
/// may have lost its processor for some milliseconds. No library call comes from a signal handler, so waiting is safe.
const MAX_TURNS: usize = 1000;

/// True if this process is recorded.
pub fn recording() -> bool {
    state::recording().is_some()
}

/// Makes a call and looks at the clock before and after.
pub fn timed(call: impl FnOnce() -> usize) -> (usize, Span) {
    let start_ns = clock::now_ns();
    let result = call();
    let span = Span {
        start_ns,
        end_ns: clock::now_ns(),
    };
    (result, span)
}

/// Notes the rank and the number of ranks that MPI has said.
pub fn set_rank(rank: i32, ranks: i32) {
    if let (Some(recording), Ok(rank), Ok(ranks)) = (
        state::recording(),
        u32::try_from(rank),
        u32::try_from(ranks),
    ) {
        recording.table.set_rank(rank, ranks, true);
    }
}

/// Notes that `MPI_Abort` was called with this code.
pub fn aborting(code: i32) {
    end::note(End::MpiAbort(code));
}

/// A record that calls are counted in, or none.
#[derive(Clone, Copy)]
pub struct Open {
    kind: Kind,
    handle: Option<Handle>,
}

impl Open {
    const fn none(kind: Kind) -> Self {
        Open { kind, handle: None }
    }

    /// Runs `act` on the words of the record, which is locked meanwhile.
    pub fn update(&self, act: impl FnOnce(Words<'_>)) {
        self.with(|_, record| act(Words::of(record)));
    }

    /// [`Open::update`] for a call that moved bytes; `access[0]` is their number.
    pub fn transfer(
        &self,
        direction: Direction,
        access: &[i64],
        span: Span,
        act: impl FnOnce(Words<'_>),
    ) {
        self.with(|recording, record| {
            act(Words::of(record));
            note_access(&recording.table, record, direction, access, span, recording);
        });
    }

    fn with(&self, act: impl FnOnce(&Recording, &Record<'_>)) {
        let (Some(handle), Some(recording)) = (self.handle, state::recording()) else {
            return;
        };
        let mut act = Some(act);
        for _ in 0..MAX_TURNS {
            recording
                .table
                .with(self.kind, handle, &recording, |record| {
                    if let Some(act) = act.take() {
                        act(&recording, record);
                        busy::flush(&recording.table, record);
                    }
                });
            if act.is_none() || !self.is_usable() {
                return;
            }
            if !state::is_restricted() {
                kernel::give_way();
            }
        }
    }

    /// True if there is a record.
    pub fn is_some(&self) -> bool {
        self.handle.is_some()
    }

    /// True if it leads to a record of this process, or to none on purpose. False in a child that has inherited the
    /// handle but not the record.
    pub fn is_usable(&self) -> bool {
        self.handle.is_none_or(|handle| {
            state::recording()
                .and_then(|recording| recording.table.record(self.kind, handle.cell))
                .is_some_and(|record| record.id() == handle.id)
        })
    }

    /// Counts a close, and lets the record go.
    pub fn close(&self, count: impl FnOnce(Words<'_>)) {
        self.update(count);
        self.release();
    }

    /// Lets the record go: the handle that led to it is closed.
    pub fn release(&self) {
        if let (Some(handle), Some(recording)) = (self.handle, state::recording()) {
            recording.table.let_go(self.kind, handle);
        }
    }
}

/// The record of a file that a library has opened by this path.
pub fn open_path(kind: Kind, path: &CStr) -> Open {
    with_clean(path, |recording, clean| {
        hold(recording, kind, &Name::of(clean))
    })
    .flatten()
    .unwrap_or(Open::none(kind))
}

/// The record of something in a file: `file:inside`.
pub fn open_inside(kind: Kind, file: &CStr, inside: &[u8]) -> Open {
    with_clean(file, |recording, clean| {
        let mut room = [0; MAX_NAME_BYTES];
        let len = clean.len() + 1 + inside.len();
        let bytes = room.get_mut(..len)?;
        bytes[..clean.len()].copy_from_slice(clean);
        bytes[clean.len()] = b':';
        bytes[clean.len() + 1..].copy_from_slice(inside);
        let name = Name {
            parent: record_id(clean),
            ..Name::of(bytes)
        };
        hold(recording, kind, &name)
    })
    .flatten()
    .unwrap_or(Open::none(kind))
}

/// Calls `act` with the clean path if that is recorded.
fn with_clean<R>(path: &CStr, act: impl FnOnce(&Recording, &[u8]) -> R) -> Option<R> {
    let recording = state::recording()?;
    let config = config::get()?;
    let path: *const c_char = path.as_ptr();
    // SAFETY: a C string.
    let found = unsafe {
        record_names::with_name(&recording, libc::AT_FDCWD, path, |clean| {
            config.records(clean).then(|| act(&recording, clean))
        })
    };
    found.flatten()
}

fn hold(recording: &Recording, kind: Kind, name: &Name<'_>) -> Option<Open> {
    let handle = recording.table.hold(kind, name, recording)?;
    Some(Open {
        kind,
        handle: Some(handle),
    })
}

/// Notes that a library's handle leads to a record, and `extra` with it. If the handle led to another record, a call
/// that is not counted has closed that one.
pub fn remember<const N: usize>(handles: &Handles<N>, key: u64, open: &Open, extra: [u64; 2]) {
    let before = of_value(open.kind, handles.get(key));
    if before.handle != open.handle {
        before.release();
    }
    let (cell, id) = open
        .handle
        .map_or((0, 0), |handle| (handle.cell, handle.id));
    if !handles.insert(key, [u64::from(cell), id, extra[0], extra[1]]) {
        open.release();
    }
}

/// True if the handle is one of these.
pub fn is_known<const N: usize>(handles: &Handles<N>, key: u64) -> bool {
    handles.get(key).is_some()
}

/// The record that a library's handle leads to.
pub fn open_behind<const N: usize>(handles: &Handles<N>, kind: Kind, key: u64) -> Open {
    of_value(kind, handles.get(key))
}

/// What was noted with a handle.
pub fn extra<const N: usize>(handles: &Handles<N>, key: u64) -> Option<[u64; 2]> {
    handles.get(key).map(|[_, _, a, b]| [a, b])
}

/// Forgets a library's handle and returns the record that it led to, which the caller closes.
pub fn forget<const N: usize>(handles: &Handles<N>, kind: Kind, key: u64) -> Open {
    of_value(kind, handles.remove(key))
}

/// The record in the value of a handle.
pub fn of_value(kind: Kind, value: Option<[u64; 4]>) -> Open {
    let handle = value.and_then(|[cell, id, ..]| {
        (cell != 0).then_some(Handle {
            cell: cell as u32,
            id,
        })
    });
    Open { kind, handle }
}
