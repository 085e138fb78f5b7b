//! What all ranks access in a call, brought to rank 0 for the trace.

use forebay_core::collective::{
    Access, CapturedAccesses, LeftOut, MAX_CAPTURED_PARTS, decode_nested, encode_nested,
};

use crate::mpi::{Communicator, Failed, Mpi, Result};

/// Gathers the accesses of all ranks. Ranks other than 0 get nothing. Where they are too many parts, no rank sends any, and
/// all get that. Collective.
pub fn gather(
    mpi: &Mpi,
    processes: Communicator,
    mine: &Access,
) -> Result<std::result::Result<CapturedAccesses, LeftOut>> {
    let mine = mine.folded();
    let message = encode_nested(&mine);
    let sizes = [mine.parts() as u64, message.len() as u64];
    let all = mpi.allgather(processes, &sizes)?;
    let parts = all.chunks(2).map(|sizes| sizes[0]);
    if parts.fold(0, u64::saturating_add) > MAX_CAPTURED_PARTS as u64 {
        return Ok(Err(LeftOut::Irregular));
    }
    let mut requests = mpi.requests();
    if processes.rank != 0 {
        if !message.is_empty() {
            mpi.send_message(processes, 0, message, &mut requests)?;
        }
        mpi.wait_for_messages(requests)?;
        return Ok(Ok(CapturedAccesses::default()));
    }
    let lengths = || all.chunks(2).map(|sizes| sizes[1] as usize).skip(1);
    for (from, bytes) in (1..).zip(lengths()).filter(|(_, bytes)| *bytes > 0) {
        mpi.receive_message(processes, from, bytes, &mut requests)?;
    }
    let mut told = mpi.wait_for_messages(requests)?.into_iter();
    let others = lengths().map(|bytes| match bytes {
        0 => Ok(Access::default()),
        _ => decode_nested(&told.next().ok_or(Failed)?).map_err(|_| Failed),
    });
    let accesses = std::iter::once(Ok(mine)).chain(others);
    Ok(Ok(CapturedAccesses::of(
        &accesses.collect::<Result<Vec<_>>>()?,
    )))
}
