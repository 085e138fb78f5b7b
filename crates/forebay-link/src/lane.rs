//! Requests through the memory that a connection shares with the bridge.
//!
//! The memory belongs to the connection. Only the holder of the connection's lease
//! uses it, and it is unmapped when the connection ends. A forked child does not
//! have it (`MADV_DONTFORK`), and does not use its parent's connections either.
//! The bridge judges requests in it by the credentials of the request that asked
//! for the memory, so a thread with other credentials uses the socket.

use core::ffi::c_int;

use forebay_hook::kernel::{self, call};
use forebay_hook::thread;
use forebay_wire::{LANE_BYTES, LANE_REQUEST_BYTES, LanePage, Op, Request, Seen, Turned};

use crate::process::Process;
use crate::socket::{self, Broken, Received, Room, belongs};

/// Looks at the lane, of 25 ns each, before the thread yields its processor, which the bridge may need.
const LOOKS_PER_YIELD: u32 = 32;
/// Looks before the thread yields, if the bridge certainly needs a processor: see [`post`].
const LOOKS_WHERE_CROWDED: u32 = 1;
/// Yields before the client turns to the socket.
const YIELDS: u32 = 128;

/// What became of a request.
pub enum Passed {
    /// The reply is in the room.
    Answered(Received),
    /// The bridge has the request; the reply comes by the socket.
    Beside,
    /// The bridge does not have the request; it has to go by the socket.
    Unattended,
}

/// A request in the lane, and how often to look for its answer before the thread yields.
#[derive(Clone, Copy)]
pub struct Posted {
    looks_per_yield: u32,
}

/// Puts a request into the lane. `None` if it does not fit, or the bridge does not attend: it goes by the socket.
pub fn post(page: &LanePage, message: &[u8]) -> Option<Posted> {
    let words = &page.words;
    if message.len() > LANE_REQUEST_BYTES || !words.clear() {
        return None;
    }
    // SAFETY: the length was checked above; the caller holds the connection.
    unsafe {
        core::ptr::copy_nonoverlapping(message.as_ptr(), page.request(), message.len());
    }
    let (here, attention) = (thread::cpu(), words.attention());
    if !words.post(message.len(), here) {
        return None;
    }
    let in_the_way = attention.is_some_and(|a| a.crowded || Some(a.cpu) == here);
    Some(Posted {
        looks_per_yield: if in_the_way {
            LOOKS_WHERE_CROWDED
        } else {
            LOOKS_PER_YIELD
        },
    })
}

/// Waits for the answer to the posted request of number `seq`.
pub fn wait(page: &LanePage, posted: Posted, room: &Room, seq: u32) -> Result<Passed, Broken> {
    let words = &page.words;
    let looks_per_yield = posted.looks_per_yield;
    let mut looks = 0;
    loop {
        match words.look() {
            Seen::Nothing => {}
            Seen::Reply(len) => {
                // SAFETY: a reply in the lane is never longer than its place there.
                let fits = unsafe { room.fill(page.reply(), len) };
                words.finish();
                return match fits && belongs(&room.reply(len)?, seq) {
                    true => Ok(Passed::Answered(Received { len, fd: None })),
                    false => Err(Broken::Final(libc::EIO)),
                };
            }
            Seen::Beside => {
                words.finish();
                return Ok(Passed::Beside);
            }
        }
        looks += 1;
        if looks == YIELDS * looks_per_yield {
            match words.turn() {
                Turned::Withdrawn => return Ok(Passed::Unattended),
                Turned::Waiting => return Ok(Passed::Beside),
                Turned::Answered => looks = 0,
            }
        }
        if looks % looks_per_yield == 0 {
            kernel::give_way();
        } else {
            core::hint::spin_loop();
        }
    }
}

/// Asks the bridge for shared memory beside the connection `fd`. Null if the bridge gives none, or it can't be mapped.
pub fn open(
    fd: c_int,
    process: &Process,
    pid: c_int,
    ids: (u32, u32),
) -> Result<*const LanePage, Broken> {
    let none = Ok(core::ptr::null());
    let mut message = [0u8; 128];
    let request = Request {
        client: process.client(),
        seq: process.next_seq(),
        ..Request::new(Op::Lane)
    };
    let Ok(len) = request.encode(&mut message) else {
        return none;
    };
    socket::send(fd, pid, ids, &message[..len])?;
    // SAFETY: the message was sent and is not needed any more; the room is as long as the array.
    let room = unsafe { Room::new(message.as_mut_ptr(), message.len(), true) };
    let (got, _) = match socket::receive(fd, &room, request.seq, 0) {
        Ok(got) => got,
        Err(Broken::Final(_)) => return none,
        Err(broken) => return Err(broken),
    };
    let Some(memory) = got.fd else {
        return none;
    };
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: makes a new mapping, and keeps it from children.
    let page = unsafe {
        let Ok(at) = call!(
            libc::SYS_mmap,
            0,
            LANE_BYTES,
            prot,
            libc::MAP_SHARED,
            memory.0,
            0
        ) else {
            return none;
        };
        if call!(libc::SYS_madvise, at, LANE_BYTES, libc::MADV_DONTFORK).is_err() {
            kernel::unmap(at as *mut u8, LANE_BYTES);
            return none;
        }
        at as *const LanePage
    };
    Ok(page)
}
