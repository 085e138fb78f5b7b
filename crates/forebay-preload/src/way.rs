//! Follows a path that leads through the buffer and out of it again, by what the bridge says.
//!
//! Only the bridge knows what a symbolic link or `..` in the buffer leads to. Where the path leaves the buffer it answers with
//! an absolute path outside, and the path goes on from there. So the kernel gets no path through a directory of the buffer.

use core::ffi::{c_char, c_int};

use forebay_hook::kernel::{self, Errno};
use forebay_link::{Answer, Fail, ask_where_it_is};
use forebay_wire::MAX_PATH_BYTES;

use crate::locate::{Scratch, Target, locate};
use crate::requests;

/// How many symbolic links out of the buffer and back one call follows (`MAXSYMLINKS`).
const MAX_REDIRECTS: usize = 40;

/// A path as the program wrote it, and later as the bridge has resolved it: each time that it leaves the buffer, it goes on
/// from the directory that it comes to.
pub struct Way {
    dirfd: c_int,
    written: *const c_char,
    /// Where it goes on, if there was a redirect.
    led_to: Scratch,
    redirects: usize,
}

impl Way {
    /// # Safety
    /// `path` is a C string, and outlives this.
    pub unsafe fn new(dirfd: c_int, path: *const c_char) -> Self {
        Way {
            dirfd,
            written: path,
            led_to: Scratch::new(),
            redirects: 0,
        }
    }

    /// The path as it is now, a C string, for a call. A call may write to one that the bridge has given.
    pub fn now(&mut self) -> (c_int, *const c_char) {
        if self.has_turned() {
            (libc::AT_FDCWD, self.led_to.room().0.cast())
        } else {
            (self.dirfd, self.written)
        }
    }

    /// Is it another path than the program wrote?
    pub fn has_turned(&self) -> bool {
        self.redirects > 0
    }

    /// The path goes on at `place`, an absolute path; its last `kept` bytes still follow.
    ///
    /// # Errors
    /// What a call fails with by such a path.
    pub fn leads_on_to(&mut self, place: &[u8], kept: usize) -> Result<(), Errno> {
        if place.first() != Some(&b'/') {
            return Err(libc::EIO);
        }
        if self.redirects == MAX_REDIRECTS {
            return Err(libc::ELOOP);
        }
        if place.len() + kept > MAX_PATH_BYTES {
            return Err(libc::ENAMETOOLONG);
        }
        // SAFETY: a C string.
        let path = unsafe { kernel::bytes(self.now().1) };
        let tail = path[path.len() - kept..].as_ptr();
        let (room, _) = self.led_to.room();
        // SAFETY: the room has more bytes. The tail may lie in it and overlap its new place.
        unsafe {
            core::ptr::copy(tail, room.add(place.len()), kept);
            core::ptr::copy_nonoverlapping(place.as_ptr(), room, place.len());
            *room.add(place.len() + kept) = 0;
        }
        self.redirects += 1;
        Ok(())
    }

    /// Follows the path to its end, or to the directory that holds its last component. Says whether that is in the buffer. If
    /// it is not, the path leads there without the buffer from now on.
    ///
    /// # Errors
    /// What a call fails with that looks up this path.
    #[inline(never)]
    pub fn ends_in_buffer(&mut self, end: End) -> Result<bool, Errno> {
        let mut scratch = Scratch::new();
        let mut answer = Answer::new();
        loop {
            let (dirfd, path) = self.now();
            // SAFETY: a C string.
            let bytes = unsafe { kernel::bytes(path) };
            let (kept, flags) = match end {
                End::Name => (last_component(bytes), 0),
                End::Object(flags) => (0, flags),
            };
            let is_in_buffer = ask_where_it_is(|| {
                let Some(target) = locate(dirfd, bytes, &mut scratch) else {
                    return Ok(false);
                };
                // What is left of a path without its last component is the place where the path begins, or ends with a slash.
                let Some(len) = target.rel.len().checked_sub(kept) else {
                    return Ok(true);
                };
                let target = Target {
                    rel: &target.rel[..len],
                    ..target
                };
                if len == 0 && end == End::Name {
                    return Ok(true);
                }
                requests::stat(&target, flags, &mut answer).map(|_| true)
            });
            match is_in_buffer {
                Ok(is_in_buffer) => return Ok(is_in_buffer),
                Err(Fail::Errno(e)) => return Err(e),
                Err(Fail::Redirect) => self.leads_on_to(answer.body(), kept)?,
            }
        }
    }
}

/// What of a path [`Way::ends_in_buffer`] follows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The directory of the last component: a call makes, moves or removes that name.
    Name,
    /// All of it, with these flags of [`forebay_wire::Op::Stat`].
    Object(u32),
}

/// Length of the last component of a path, with the slashes after it.
fn last_component(path: &[u8]) -> usize {
    let slashes = path.iter().rev().take_while(|&&b| b == b'/').count();
    let name = path[..path.len() - slashes].iter().rev();
    slashes + name.take_while(|&&b| b != b'/').count()
}
