//! What all ranks access in a call, brought to rank 0 for the trace.
#![allow(unsafe_code)]

use forebay_core::collective::{
    Access, CapturedAccesses, LeftOut, MAX_CAPTURED_PARTS, from_words, to_words,
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
    let words = to_words(&mine);
    let sizes = [mine.parts() as u64, words.len() as u64];
    let all = mpi.allgather(processes, &sizes)?;
    let parts = all.chunks(2).map(|sizes| sizes[0]);
    if parts.fold(0, u64::saturating_add) > MAX_CAPTURED_PARTS as u64 {
        return Ok(Err(LeftOut::Irregular));
    }
    let mut requests = mpi.requests();
    if processes.rank != 0 {
        if !words.is_empty() {
            let from = (words.as_ptr().cast(), size_of_val(&words[..]));
            // SAFETY: the words stay until the request is done.
            unsafe { mpi.send(processes, 0, from, &mut requests)? };
        }
        mpi.wait(&mut requests)?;
        return Ok(Ok(CapturedAccesses::default()));
    }
    let room = |sizes: &[u64]| vec![0_u64; sizes[1] as usize];
    let mut told: Vec<Vec<u64>> = all.chunks(2).map(room).collect();
    for (from, words) in told.iter_mut().enumerate().skip(1) {
        if !words.is_empty() {
            let to = (words.as_mut_ptr().cast(), size_of_val(&words[..]));
            // SAFETY: the room stays until all requests are done, and nobody else uses it.
            unsafe { mpi.receive(processes, from, to, &mut requests)? };
        }
    }
    mpi.wait(&mut requests)?;
    told[0] = words;
    let accesses = told.iter().map(|words| from_words(words));
    let accesses = accesses.collect::<std::result::Result<Vec<_>, _>>();
    Ok(Ok(CapturedAccesses::of(&accesses.map_err(|_| Failed)?)))
}
