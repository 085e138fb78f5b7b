//! The memory that takes an answer. The caller owns it, because this crate does not allocate.

use core::ffi::c_char;
use core::mem::MaybeUninit;

use forebay_hook::kernel::{Errno, OwnFd};
use forebay_wire::{MAX_PATH_BYTES, REPLY_HEADER_BYTES, Reply, ReplyKind, STATUS_REDIRECT};

use crate::socket::{Received, Room};

/// Longest reply in bytes, except for a listing.
const SHORT_REPLY_BYTES: usize = REPLY_HEADER_BYTES + MAX_PATH_BYTES + 1;

/// Why a request has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fail {
    /// The errno for the program. `EIO`: the bridge can't be reached, or its answer makes no sense. `EPROTO`: the
    /// bridge speaks another version of the protocol.
    Errno(Errno),
    /// The path leaves the buffer: use [`Answer::path`] natively.
    Redirect,
}

impl From<Errno> for Fail {
    fn from(e: Errno) -> Self {
        Fail::Errno(e)
    }
}

/// Memory for a reply, and the descriptor that came with it. About 4 KiB, not initialised.
pub struct Answer {
    buffer: MaybeUninit<[u8; SHORT_REPLY_BYTES + 1]>,
    len: usize,
    fd: Option<OwnFd>,
    kind: ReplyKind,
    aux: u64,
}

impl Answer {
    /// An empty answer.
    pub const fn new() -> Self {
        Answer {
            buffer: MaybeUninit::uninit(),
            len: 0,
            fd: None,
            kind: ReplyKind::Empty,
            aux: 0,
        }
    }

    /// [`Reply::kind`].
    pub fn kind(&self) -> ReplyKind {
        self.kind
    }

    /// [`Reply::aux`].
    pub fn aux(&self) -> u64 {
        self.aux
    }

    /// The body of the reply.
    pub fn body(&self) -> &[u8] {
        let at = REPLY_HEADER_BYTES.min(self.len);
        // SAFETY: `len` bytes have been written.
        unsafe {
            core::slice::from_raw_parts(self.buffer.as_ptr().cast::<u8>().add(at), self.len - at)
        }
    }

    /// The body as a C string.
    pub fn path(&mut self) -> *const c_char {
        let start = self.buffer.as_mut_ptr().cast::<u8>();
        // SAFETY: `len` is at most SHORT_REPLY_BYTES, and the buffer has one byte more.
        unsafe {
            *start.add(self.len.max(REPLY_HEADER_BYTES)) = 0;
            start.add(REPLY_HEADER_BYTES).cast()
        }
    }

    /// Takes the granted descriptor.
    ///
    /// # Errors
    /// `EIO`: no descriptor came, or it was already taken.
    pub fn take_fd(&mut self) -> Result<OwnFd, Errno> {
        self.fd.take().ok_or(libc::EIO)
    }

    /// Empties the answer and lends its memory to the next reply.
    pub(crate) fn clear(&mut self, cloexec: bool) -> Room {
        self.len = 0;
        self.fd = None;
        let start = self.buffer.as_mut_ptr().cast::<u8>();
        // SAFETY: the buffer has more than SHORT_REPLY_BYTES. The user of the room borrows the answer meanwhile.
        unsafe { Room::new(start, SHORT_REPLY_BYTES, cloexec) }
    }

    /// Reads the reply that came into the room.
    pub(crate) fn fill(&mut self, got: Received) -> Result<(), Fail> {
        assert!(got.len <= SHORT_REPLY_BYTES);
        let start = self.buffer.as_ptr().cast::<u8>();
        // SAFETY: `len` bytes have been written.
        let reply = Reply::decode(unsafe { core::slice::from_raw_parts(start, got.len) })
            .map_err(|_| libc::EIO)?;
        self.aux = reply.aux;
        self.kind = reply.kind;
        let status = reply.status;
        self.len = got.len;
        self.fd = got.fd;
        verdict(status)
    }
}

impl Default for Answer {
    fn default() -> Self {
        Answer::new()
    }
}

/// What the status of a reply means.
pub(crate) fn verdict(status: i32) -> Result<(), Fail> {
    match status {
        0 => Ok(()),
        STATUS_REDIRECT => Err(Fail::Redirect),
        e if (1..4096).contains(&e) => Err(Fail::Errno(e)),
        _ => Err(Fail::Errno(libc::EIO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_is_no_errno_and_no_redirect_is_an_error_of_the_bridge() {
        assert_eq!(verdict(0), Ok(()));
        assert_eq!(verdict(libc::ENOENT), Err(Fail::Errno(libc::ENOENT)));
        assert_eq!(verdict(STATUS_REDIRECT), Err(Fail::Redirect));
        for odd in [-1, 4096, i32::MIN, i32::MAX] {
            assert_eq!(verdict(odd), Err(Fail::Errno(libc::EIO)));
        }
    }

    #[test]
    fn an_empty_answer_has_no_body_and_no_descriptor() {
        let mut answer = Answer::new();
        assert_eq!(answer.body(), b"");
        assert_eq!(answer.take_fd().unwrap_err(), libc::EIO);
        // SAFETY: a C string.
        assert_eq!(unsafe { *answer.path() }, 0);
    }
}
