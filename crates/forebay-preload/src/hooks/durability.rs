//! `fsync` and its relatives: what was written, and its name, are to survive a power loss.
//!
//! The kernel makes the bytes durable, as the program holds a real descriptor. The names of the buffer are in the tables
//! of the bridge, which makes them durable when it is asked ([`Op::Sync`]). Memory that the bridge shares says whether
//! anything is left to do, so most calls ask nobody.
//!
//! Not hooked: `sync_file_range`, which promises nothing about names, and does not even write down a new size; `fflush`
//! and `fclose`, which promise nothing about the disk.

use core::ffi::{c_int, c_void};

use forebay_hook::hooks;
use forebay_hook::kernel::{self, Errno};
use forebay_link::{Answer, Config, Fail};
use forebay_wire::{Names, Op, Request, WHOLE, WRITTEN};

use crate::config;
use crate::locate::{LEAST_ADDRESS, failed, is_in_buffer};
use crate::requests::LINK;

/// `pwritev2` flags that make a write durable before it returns.
const WRITE_THROUGH: c_int = libc::RWF_DSYNC | libc::RWF_SYNC;

/// The bridge to ask before the file `fd` is durable. `None` if the kernel can do it alone.
#[inline]
fn bridge_of(fd: c_int) -> Option<&'static Config> {
    match LINK.names() {
        Names::Durable => None,
        _ => bridge_of_file(fd),
    }
}

#[inline(never)]
fn bridge_of_file(fd: c_int) -> Option<&'static Config> {
    let config = config::get()?;
    // A process that has nothing to do with the buffer does not begin to speak to a bridge here.
    (is_in_buffer(fd) && are_left(config)).then_some(config)
}

/// True unless all names are known to be durable.
fn are_left(config: &Config) -> bool {
    LINK.learn_names(config) != Names::Durable
}

fn errno_of(fail: Fail) -> Errno {
    match fail {
        Fail::Errno(e) => e,
        Fail::Redirect => libc::EIO,
    }
}

/// Asks the bridge with these flags, and waits; without flags for `commit`, or for all if that is 0. Gives the number of
/// the last commit that the answer is about.
fn ask_about(config: &Config, flags: u32, commit: u64) -> Result<u64, Errno> {
    let mut request = Request {
        arg0: flags,
        arg2: commit,
        ..Request::new(Op::Sync)
    };
    let mut answer = Answer::new();
    let asked = LINK.ask(config, &mut request, true, &mut answer);
    asked.map(|()| answer.aux()).map_err(errno_of)
}

fn ask(config: &Config, flags: u32) -> Result<(), Errno> {
    ask_about(config, flags, 0).map(drop)
}

/// Makes a file durable, and the names of the buffer. Most of the time that takes goes into the journal of the file
/// system. So everything is written out first, by the kernel what the program has, by the bridge the names. Then both
/// wait for one commit of that journal, if the file lies on the storage and that is an ext4 or XFS.
#[inline(never)]
fn sync_with_names(config: &Config, fd: c_int, sync: impl FnOnce() -> c_int) -> c_int {
    kernel::begin_write_out(fd);
    let written = ask_about(config, WRITTEN, 0);
    let result = sync();
    if result != 0 {
        return result;
    }
    let names = written.and_then(|commit| match LINK.is_durable(commit) {
        true => Ok(()),
        false => ask_about(config, 0, commit).map(drop),
    });
    names.map_or_else(failed, |()| result)
}

/// Makes the names durable that a file was just opened under, for a program that wants each of its writes to be
/// (`O_SYNC`, `O_DSYNC`). Later writes need only the kernel.
///
/// # Errors
/// Those of the bridge.
pub fn of_opened(config: &Config, flags: c_int) -> Result<(), Errno> {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    if flags & libc::O_DSYNC == 0 || !writes || !are_left(config) {
        return Ok(());
    }
    ask(config, 0)
}

/// `fsync` of the file `fd`. `fdatasync` does the same: it makes durable what is needed to read the data again, which
/// includes the name of a new file.
pub fn of_file(fd: c_int, native: impl FnOnce() -> c_int) -> c_int {
    match bridge_of(fd) {
        None => native(),
        Some(config) => sync_with_names(config, fd, native),
    }
}

/// `syncfs` of the file system of `fd`.
pub fn of_file_system(fd: c_int, native: impl FnOnce() -> c_int) -> c_int {
    match config::get() {
        // The file may be on the PFS. So the bridge is asked for the data of the buffer, too.
        Some(config) if is_in_buffer(fd) => {
            let names = ask(config, WHOLE);
            // The kernel's part is done whatever the bridge says, and its error goes first.
            match native() {
                0 => names.map_or_else(failed, |()| 0),
                result => result,
            }
        }
        _ => native(),
    }
}

/// `sync`. It is about all file systems, and the buffer is one of those of this process. It reports no error.
pub fn of_all(native: impl FnOnce()) {
    native();
    if let Some(config) = config::get()
        && are_left(config)
    {
        let _ = ask(config, 0);
    }
}

/// `msync` with `flags`. Which files are mapped there is dear to find out. So any mapping counts once the process uses
/// the buffer.
pub fn of_mapping(flags: c_int, native: impl FnOnce() -> c_int) -> c_int {
    let result = native();
    if result == 0
        && flags & libc::MS_SYNC != 0
        && LINK.names() != Names::Durable
        && LINK.is_attached()
        && let Some(config) = config::get()
        && are_left(config)
        && let Err(e) = ask(config, 0)
    {
        return failed(e);
    }
    result
}

/// `pwritev2` with `flags` to the file `fd`.
pub fn of_write(fd: c_int, flags: c_int, native: impl FnOnce() -> isize) -> isize {
    let written = native();
    if flags & WRITE_THROUGH != 0
        && written >= 0
        && let Some(config) = bridge_of(fd)
        && let Err(e) = ask(config, 0)
    {
        return failed(e);
    }
    written
}

hooks! {
    fn fsync | fdatasync [real] (fd: c_int) -> c_int {
        of_file(fd, || real(fd))
    }

    fn syncfs [real] (fd: c_int) -> c_int {
        of_file_system(fd, || real(fd))
    }

    fn sync [real] () -> () {
        of_all(|| real());
    }

    fn msync [real] (at: *mut c_void, bytes: usize, flags: c_int) -> c_int {
        of_mapping(flags, || real(at, bytes, flags))
    }

    // libc's threads make the call for the data, which no hook sees. So the names go first.
    fn aio_fsync | aio_fsync64 [real] (op: c_int, control: *mut c_void) -> c_int {
        if control as isize >= LEAST_ADDRESS {
            // The descriptor is the first field of `struct aiocb`.
            if let Some(config) = bridge_of(*control.cast::<c_int>())
                && let Err(e) = ask(config, 0)
            {
                return failed(e);
            }
        }
        real(op, control)
    }

    fn pwritev2 | pwritev64v2 [real] (fd: c_int, parts: *const c_void, count: c_int, offset: i64, flags: c_int) -> isize {
        of_write(fd, flags, || real(fd, parts, count, offset, flags))
    }
}
