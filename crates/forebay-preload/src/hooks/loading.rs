//! `dlopen` of a library in the buffer.
//!
//! libc's `dlopen` uses its return address to find the search path of the calling library. So a hook must not call it:
//! the hook chooses a function and jumps there, with all arguments and the return address as they were.

use core::arch::naked_asm;
use core::ffi::{c_int, c_long, c_void};
use core::mem::MaybeUninit;

use forebay_hook::Real;
use forebay_wire::MAX_PATH_BYTES;
use libc::AT_FDCWD;

use super::{Path, open};
use crate::locate::{Target, may_be_mine, route};
use forebay_hook::kernel::{self, FdPath, OwnFd};
use forebay_link::{Answer, Fail};

static DLOPEN: Real = Real::new(c"dlopen");
static DLMOPEN: Real = Real::new(c"dlmopen");

type Dlopen = unsafe extern "C" fn(Path, c_int) -> *mut c_void;
type Dlmopen = unsafe extern "C" fn(c_long, Path, c_int) -> *mut c_void;

/// True if `path` may lie in the buffer. A name without a slash is no path.
unsafe fn is_path_of_ours(path: Path) -> bool {
    // SAFETY: dlopen takes null or a C string; `may_be_mine` looks for null.
    unsafe { may_be_mine(AT_FDCWD, path) && kernel::bytes(path).contains(&b'/') }
}

unsafe extern "C" fn choose_dlopen(path: Path) -> *const c_void {
    // SAFETY: as dlopen's caller promises.
    if unsafe { is_path_of_ours(path) } {
        ours as *const c_void
    } else {
        DLOPEN.get()
    }
}

unsafe extern "C" fn choose_dlmopen(path: Path) -> *const c_void {
    // SAFETY: as dlmopen's caller promises.
    if unsafe { is_path_of_ours(path) } {
        ours_in as *const c_void
    } else {
        DLMOPEN.get()
    }
}

unsafe extern "C" fn ours(path: Path, flags: c_int) -> *mut c_void {
    // SAFETY: libc's function has this type.
    let real = unsafe { core::mem::transmute::<*mut c_void, Dlopen>(DLOPEN.get()) };
    // SAFETY: as dlopen's caller promises.
    unsafe { load(path, |p| real(p, flags)) }
}

unsafe extern "C" fn ours_in(space: c_long, path: Path, flags: c_int) -> *mut c_void {
    // SAFETY: libc's function has this type.
    let real = unsafe { core::mem::transmute::<*mut c_void, Dlmopen>(DLMOPEN.get()) };
    // SAFETY: as dlmopen's caller promises.
    unsafe { load(path, |p| real(space, p, flags)) }
}

/// # Safety
/// `path` is a C string.
unsafe fn load(path: Path, real: impl Fn(Path) -> *mut c_void) -> *mut c_void {
    let file = |target: &Target<'_>, answer: &mut Answer| match open::grant(
        target,
        libc::O_RDONLY | libc::O_CLOEXEC,
        0,
        answer,
    ) {
        Ok(fd) => Ok(load_granted(fd, &real)),
        Err(Fail::Errno(_)) => Ok(real(missing(path))),
        Err(redirect) => Err(redirect),
    };
    // SAFETY: the caller's promise.
    unsafe { route(AT_FDCWD, path, |_, p| real(p), file) }
}

/// A path at which there is no library, so that `dlerror` has a text: the path that the program gave, unless the PFS
/// still has a file there.
fn missing(path: Path) -> Path {
    // SAFETY: a C string.
    let there = unsafe { kernel::call!(libc::SYS_faccessat, AT_FDCWD, path, libc::F_OK) };
    if there.is_ok() {
        c"/dev/null/removed in the buffer".as_ptr()
    } else {
        path
    }
}

/// Loads a granted library. The loader tells libraries apart by their names, so the name must be unique as long as the
/// library is loaded. It is the path of the backing file or, if this user cannot reach that path, a descriptor that
/// stays open.
fn load_granted(fd: OwnFd, real: &impl Fn(Path) -> *mut c_void) -> *mut c_void {
    let mut name = MaybeUninit::<[u8; MAX_PATH_BYTES + 1]>::uninit();
    let start = name.as_mut_ptr().cast::<u8>();
    // SAFETY: the path is a C string, and the buffer has one byte more than `MAX_PATH_BYTES`.
    if let Ok(n) = unsafe { kernel::readlink(FdPath::new(fd.0).as_ptr(), start, MAX_PATH_BYTES) } {
        // SAFETY: the buffer has room for the NUL, which makes the path a C string.
        unsafe {
            *start.add(n) = 0;
            if kernel::call!(libc::SYS_faccessat, AT_FDCWD, start, libc::R_OK).is_ok() {
                return real(start.cast());
            }
        }
    }
    let kept = forebay_link::to_high_number(fd.into_raw());
    let library = real(FdPath::new(kept).as_ptr());
    if library.is_null() {
        kernel::close(kept);
    }
    library
}

/// `dlopen` of libc, defined anew.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen() {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "push rdi", "push rsi", "sub rsp, 8",
        "call {choose}",
        "add rsp, 8", "pop rsi", "pop rdi",
        "jmp rax",
        choose = sym choose_dlopen
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "stp x0, x1, [sp, #-32]!", "str x30, [sp, #16]",
        "bl {choose}",
        "mov x16, x0", "ldr x30, [sp, #16]", "ldp x0, x1, [sp], #32",
        "br x16",
        choose = sym choose_dlopen
    );
}

/// `dlmopen` of libc, defined anew.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmopen() {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "push rdi", "push rsi", "push rdx",
        "mov rdi, rsi",
        "call {choose}",
        "pop rdx", "pop rsi", "pop rdi",
        "jmp rax",
        choose = sym choose_dlmopen
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "stp x0, x1, [sp, #-32]!", "stp x2, x30, [sp, #16]",
        "mov x0, x1",
        "bl {choose}",
        "mov x16, x0", "ldp x2, x30, [sp, #16]", "ldp x0, x1, [sp], #32",
        "br x16",
        choose = sym choose_dlmopen
    );
}
