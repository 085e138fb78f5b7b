//! What a hook asks of the bridge, and the answer.

use core::mem::MaybeUninit;

use forebay_wire::{
    Attr, MAX_PATH_BYTES, REPLY_HEADER_BYTES, Reply, ReplyKind, Request, STATUS_REDIRECT,
};

use crate::config::Config;
use crate::exchange::exchange;
use crate::locate::Target;
use crate::sys::{Errno, OwnFd};

/// Room for the reply of every operation but a listing.
const SHORT_REPLY_BYTES: usize = REPLY_HEADER_BYTES + MAX_PATH_BYTES + 1;

/// Why a request has no result.
pub enum Fail {
    /// The errno for the program.
    Errno(Errno),
    /// Go on natively at the path in [`Answer::path`].
    Redirect,
}

impl From<Errno> for Fail {
    fn from(e: Errno) -> Self {
        Fail::Errno(e)
    }
}

/// Room for a reply, and the descriptor that came with it.
pub struct Answer {
    buffer: MaybeUninit<[u8; SHORT_REPLY_BYTES + 1]>,
    len: usize,
    fd: Option<OwnFd>,
    kind: ReplyKind,
    /// `Reply::aux`.
    pub aux: u64,
}

impl Answer {
    /// Empty.
    pub fn new() -> Self {
        Answer {
            buffer: MaybeUninit::uninit(),
            len: 0,
            fd: None,
            kind: ReplyKind::Empty,
            aux: 0,
        }
    }

    /// The body of the reply.
    pub fn body(&self) -> &[u8] {
        let at = REPLY_HEADER_BYTES.min(self.len);
        // SAFETY: the kernel wrote `len` bytes.
        unsafe {
            core::slice::from_raw_parts(self.buffer.as_ptr().cast::<u8>().add(at), self.len - at)
        }
    }

    /// The body as a C string.
    pub fn path(&mut self) -> *const core::ffi::c_char {
        let start = self.buffer.as_mut_ptr().cast::<u8>();
        // SAFETY: `len` is at most SHORT_REPLY_BYTES, and the buffer has one byte more.
        unsafe {
            *start.add(self.len.max(REPLY_HEADER_BYTES)) = 0;
            start.add(REPLY_HEADER_BYTES).cast()
        }
    }

    /// The granted descriptor.
    pub fn take_fd(&mut self) -> Result<OwnFd, Errno> {
        self.fd.take().ok_or(libc::EIO)
    }
}

/// Sends `request` and waits for the answer. `cloexec`: how a granted descriptor is to be.
pub fn ask(
    config: &Config,
    request: &mut Request<'_>,
    cloexec: bool,
    answer: &mut Answer,
) -> Result<(), Fail> {
    let start = answer.buffer.as_mut_ptr().cast::<u8>();
    answer.len = 0;
    answer.fd = None;
    // SAFETY: the buffer has more than SHORT_REPLY_BYTES.
    let got = unsafe { exchange(config, request, cloexec, start, SHORT_REPLY_BYTES) }?;
    answer.len = got.len;
    answer.fd = got.fd;
    // SAFETY: the kernel wrote `len` bytes.
    let reply = Reply::decode(unsafe { core::slice::from_raw_parts(start, got.len) })
        .map_err(|_| libc::EIO)?;
    answer.aux = reply.aux;
    answer.kind = reply.kind;
    verdict(reply.status)
}

fn verdict(status: i32) -> Result<(), Fail> {
    match status {
        0 => Ok(()),
        STATUS_REDIRECT => Err(Fail::Redirect),
        e if (1..4096).contains(&e) => Err(Fail::Errno(e)),
        _ => Err(Fail::Errno(libc::EIO)),
    }
}

/// Like [`ask`], for a listing: the reply goes into memory of the caller. Gives body length and `aux`.
///
/// # Safety
/// `out` is writable for `room` bytes.
pub unsafe fn ask_long(
    config: &Config,
    request: &mut Request<'_>,
    out: *mut u8,
    room: usize,
) -> Result<(usize, u64), Fail> {
    // SAFETY: the caller's promise.
    let got = unsafe { exchange(config, request, true, out, room) }?;
    // SAFETY: the kernel wrote `len` bytes.
    let reply = Reply::decode(unsafe { core::slice::from_raw_parts(out, got.len) })
        .map_err(|_| libc::EIO)?;
    verdict(reply.status)?;
    Ok((reply.body.len(), reply.aux))
}

/// Attributes of the object.
pub fn stat(target: &Target<'_>, flags: u32, answer: &mut Answer) -> Result<Attr, Fail> {
    let mut request = target.request(forebay_wire::Op::Stat);
    request.arg0 = flags;
    ask(target.config, &mut request, true, answer)?;
    if answer.kind != ReplyKind::Attr {
        return Err(Fail::Errno(libc::EIO));
    }
    Ok(Attr::decode(answer.body()).map_err(|_| libc::EIO)?)
}

/// An `O_PATH` descriptor of the object.
pub fn resolve(target: &Target<'_>, flags: u32, answer: &mut Answer) -> Result<OwnFd, Fail> {
    resolve_as(target, flags, true, answer)
}

/// [`resolve`], where the program gets the descriptor.
pub fn resolve_as(
    target: &Target<'_>,
    flags: u32,
    cloexec: bool,
    answer: &mut Answer,
) -> Result<OwnFd, Fail> {
    let mut request = target.request(forebay_wire::Op::Resolve);
    request.arg0 = flags;
    ask(target.config, &mut request, cloexec, answer)?;
    Ok(answer.take_fd()?)
}
