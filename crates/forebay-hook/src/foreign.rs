//! Hooks for functions of libraries that come with the program: MPI, HDF5, PnetCDF.
//!
//! These libraries differ from libc in two ways. A process may hold several of one kind (each Python wheel brings its
//! own HDF5). They may be loaded privately (`dlopen` without `RTLD_GLOBAL`), and `RTLD_NEXT` does not look there. So a
//! hook must call the definition that *its caller* would have got, symbol versions included. For this its entry point
//! is a few instructions that save the arguments and the return address in a [`Frame`]. The hooked functions have only
//! integers and pointers as arguments.

use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::elf::Image;

/// Arguments in registers.
#[cfg(target_arch = "x86_64")]
const REGISTERS: usize = 6;
/// Arguments in registers.
#[cfg(target_arch = "aarch64")]
const REGISTERS: usize = 8;
/// The most arguments that a function has: `ncmpi_iput_varm` (with `bufcount` and `buftype`).
const MAX_ARGUMENTS: usize = 10;
/// Longest name of a function, with its NUL.
const MAX_NAME_BYTES: usize = 40;
/// Calling objects (libraries, programs) for which a [`Symbol`] remembers the definition.
const CALLERS: usize = 4;

/// The arguments and the return address of a call, as the entry point left them on the stack.
#[repr(C)]
pub struct Frame {
    #[cfg(target_arch = "aarch64")]
    frame_pointer: usize,
    #[cfg(target_arch = "aarch64")]
    caller: usize,
    registers: [usize; REGISTERS],
    #[cfg(target_arch = "x86_64")]
    caller: usize,
    /// The stack of the caller: further arguments if there are any, then anything.
    stack: [usize; MAX_ARGUMENTS - REGISTERS],
}

impl Frame {
    /// Argument `at`, counted from 0. An argument narrower than a word has undefined upper bits.
    #[inline(always)]
    pub fn argument(&self, at: usize) -> usize {
        if at < REGISTERS {
            self.registers[at]
        } else {
            self.stack[at - REGISTERS]
        }
    }

    /// Argument `at` as an `int`.
    #[inline(always)]
    pub fn int(&self, at: usize) -> i32 {
        self.argument(at) as i32
    }

    /// Argument `at` as a pointer.
    #[inline(always)]
    pub fn pointer<T>(&self, at: usize) -> *mut T {
        self.argument(at) as *mut T
    }

    /// An address in the object that made the call.
    #[inline(always)]
    pub fn caller(&self) -> usize {
        self.caller
    }

    /// Calls `function` with the same arguments.
    ///
    /// # Safety
    /// `function` has the type of the function that the program called.
    #[inline(always)]
    pub unsafe fn pass_on(&self, function: usize) -> usize {
        type All = unsafe extern "C" fn(
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
        ) -> usize;
        let a = |at| self.argument(at);
        // SAFETY: a function does not look at words beyond its own arguments.
        unsafe {
            transmute::<usize, All>(function)(
                a(0),
                a(1),
                a(2),
                a(3),
                a(4),
                a(5),
                a(6),
                a(7),
                a(8),
                a(9),
            )
        }
    }
}

/// Exports functions. Each has a name, an entry, and a handler `fn(&Frame, &'static Entry) -> usize`.
///
/// The entry is a `static` of any type; the handler gets a reference to it. The name may be a `concat!`.
#[macro_export]
macro_rules! entry_point {
    ($name:expr, $entry:path, $handler:path) => {
        const _: () = {
            #[cfg(target_arch = "x86_64")]
            #[unsafe(naked)]
            #[unsafe(export_name = $name)]
            unsafe extern "C" fn entry_point() {
                ::core::arch::naked_asm!(
                    ".cfi_startproc",
                    "push r9",
                    "push r8",
                    "push rcx",
                    "push rdx",
                    "push rsi",
                    "push rdi",
                    "mov rdi, rsp",
                    "lea rsi, [rip + {entry}]",
                    // The stack is aligned to 16 bytes at a call.
                    "sub rsp, 8",
                    ".cfi_adjust_cfa_offset 56",
                    "call {handler}",
                    "add rsp, 56",
                    ".cfi_adjust_cfa_offset -56",
                    "ret",
                    ".cfi_endproc",
                    entry = sym $entry,
                    handler = sym $handler,
                )
            }

            #[cfg(target_arch = "aarch64")]
            #[unsafe(naked)]
            #[unsafe(export_name = $name)]
            unsafe extern "C" fn entry_point() {
                ::core::arch::naked_asm!(
                    ".cfi_startproc",
                    "stp x29, x30, [sp, #-80]!",
                    ".cfi_def_cfa_offset 80",
                    ".cfi_offset w30, -72",
                    ".cfi_offset w29, -80",
                    "mov x29, sp",
                    "stp x0, x1, [sp, #16]",
                    "stp x2, x3, [sp, #32]",
                    "stp x4, x5, [sp, #48]",
                    "stp x6, x7, [sp, #64]",
                    "mov x0, sp",
                    "adrp x1, {entry}",
                    "add x1, x1, :lo12:{entry}",
                    "bl {handler}",
                    "ldp x29, x30, [sp], #80",
                    "ret",
                    ".cfi_endproc",
                    entry = sym $entry,
                    handler = sym $handler,
                )
            }
        };
    };
}
pub use crate::entry_point;

/// The definition `real` for calls from an object at `start..end`.
struct Known {
    start: AtomicUsize,
    end: AtomicUsize,
    real: AtomicUsize,
}

/// A function (or variable) of a library, and its address for each calling object.
///
/// The name stands here and not behind a pointer, so that hundreds of symbols need no relocation at the start of a
/// process.
pub struct Symbol {
    name: [u8; MAX_NAME_BYTES],
    scope: Scope,
    claimed: AtomicUsize,
    known: [Known; CALLERS],
}

impl Symbol {
    /// A function that this library hooks: the next definition for a caller.
    pub const fn next(name: &str) -> Self {
        Symbol::new(name, Scope::Next)
    }

    /// A function or variable that only other libraries define. The program is searched first, because it may hold the
    /// one valid copy of a variable.
    pub const fn elsewhere(name: &str) -> Self {
        Symbol::new(name, Scope::Everywhere)
    }

    /// A function of the library that holds the "caller" itself.
    pub const fn of_library(name: &str) -> Self {
        Symbol::new(name, Scope::Library)
    }

    const fn new(name: &str, scope: Scope) -> Self {
        let bytes = name.as_bytes();
        let mut copy = [0; MAX_NAME_BYTES];
        assert!(bytes.len() < MAX_NAME_BYTES);
        let mut at = 0;
        while at < bytes.len() {
            copy[at] = bytes[at];
            at += 1;
        }
        Symbol {
            name: copy,
            scope,
            claimed: AtomicUsize::new(0),
            known: [const {
                Known {
                    start: AtomicUsize::new(0),
                    end: AtomicUsize::new(0),
                    real: AtomicUsize::new(0),
                }
            }; CALLERS],
        }
    }

    /// The address for calls from `caller`, if there is a definition.
    #[inline]
    pub fn for_caller(&self, caller: usize) -> Option<usize> {
        for known in &self.known {
            // `look_up` sets the end last and once, so the other two fields are complete.
            if caller < known.end.load(Ordering::Acquire)
                && caller >= known.start.load(Ordering::Relaxed)
            {
                let real = known.real.load(Ordering::Relaxed);
                return (real != 0).then_some(real);
            }
        }
        self.look_up(caller)
    }

    #[cold]
    fn look_up(&self, caller: usize) -> Option<usize> {
        let object = Object::of(caller);
        let real = object.find(&self.name, self.scope);
        let place = self.claimed.fetch_add(1, Ordering::Relaxed);
        // Without a free place, this caller is looked up each time.
        if let Some(known) = self.known.get(place) {
            known.start.store(object.start, Ordering::Relaxed);
            known.real.store(real.unwrap_or(0), Ordering::Relaxed);
            known.end.store(object.end, Ordering::Release);
        }
        real
    }
}

/// Where to look for a symbol.
#[derive(Clone, Copy)]
enum Scope {
    /// In the libraries after this one, then in those that the caller needs.
    Next,
    /// In the program and all libraries that are globally visible, then in those that the caller needs.
    Everywhere,
    /// In the library that holds the address.
    Library,
}

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// The address of a symbol in a scope of the dynamic loader, of any version if `version` is `None`. 0 if there is none.
fn symbol_in(handle: *mut c_void, name: &CStr, version: Option<&CStr>) -> usize {
    // SAFETY: both functions take C strings, and a handle that is open or stands for a scope, from any thread.
    unsafe {
        match version {
            Some(version) => dlvsym(handle, name.as_ptr(), version.as_ptr()) as usize,
            None => libc::dlsym(handle, name.as_ptr()) as usize,
        }
    }
}

/// A program or library in this process.
struct Object {
    image: Option<Image>,
    start: usize,
    end: usize,
    name: *const c_char,
}

impl Object {
    /// The object that holds `address`.
    fn of(address: usize) -> Object {
        let mut info = libc::Dl_info {
            dli_fname: null_mut(),
            dli_fbase: null_mut(),
            dli_sname: null_mut(),
            dli_saddr: null_mut(),
        };
        // SAFETY: dladdr takes any address, and writes into `info` only.
        let found = unsafe { libc::dladdr(address as *const c_void, &mut info) } != 0;
        let start = info.dli_fbase as usize;
        // SAFETY: an object is loaded there. It stays loaded, because this call comes from it.
        let image = (found && start != 0)
            .then(|| unsafe { Image::at(start) })
            .flatten();
        match image {
            Some(image) => Object {
                image: Some(image),
                start,
                end: image.end(),
                name: info.dli_fname,
            },
            // No object holds the code: a just-in-time compiler made it. Only this call site is remembered.
            None => Object {
                image: None,
                start: address,
                end: address + 1,
                name: null_mut(),
            },
        }
    }

    /// The definition of `name` that this object would have got without this library. As the dynamic loader does, it
    /// prefers the version that the object wants, and looks first in the program and all globally visible libraries,
    /// then in those that the object needs. The library found stays loaded, so that the address stays valid.
    fn find(&self, name: &[u8; MAX_NAME_BYTES], scope: Scope) -> Option<usize> {
        let name = CStr::from_bytes_until_nul(name).ok()?;
        let version = match scope {
            Scope::Next => self
                .image
                .as_ref()
                .and_then(|image| image.version_wanted(name)),
            _ => None,
        };
        let everywhere = match scope {
            Scope::Everywhere => libc::RTLD_DEFAULT,
            _ => libc::RTLD_NEXT,
        };
        let global = |version| symbol_in(everywhere, name, version);
        let own = |version| {
            // SAFETY: the name is that of a loaded object, so the call loads and runs nothing.
            let handle = unsafe { libc::dlopen(self.name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            if handle.is_null() {
                0
            } else {
                symbol_in(handle, name, version)
            }
        };
        let own = |version| if self.name.is_null() { 0 } else { own(version) };
        let found = match (scope, version) {
            (Scope::Library, _) => first(own(None), || global(None)),
            (_, None) => first(global(None), || own(None)),
            (_, Some(_)) => {
                let versioned = first(global(version), || own(version));
                first(versioned, || first(global(None), || own(None)))
            }
        };
        (found != 0).then_some(found)
    }
}

/// The first of two addresses that is not 0.
fn first(one: usize, other: impl FnOnce() -> usize) -> usize {
    if one != 0 { one } else { other() }
}

/// True if both addresses lie in the same program or library.
pub fn same_object(one: usize, other: usize) -> bool {
    let object = Object::of(one);
    (object.start..object.end).contains(&other)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::sync::Mutex;
    use std::vec::Vec;

    /// An address in the test program itself.
    fn here() -> usize {
        here as fn() -> usize as usize
    }

    #[test]
    fn a_function_is_found_for_a_caller_and_remembered() {
        static GETPID: Symbol = Symbol::next("getpid");
        let found = GETPID.for_caller(here()).unwrap();
        assert_eq!(GETPID.for_caller(here()), Some(found));
        // SAFETY: pid_t getpid(void).
        let getpid = unsafe { transmute::<usize, extern "C" fn() -> i32>(found) };
        assert_eq!(getpid(), crate::kernel::getpid());
    }

    #[test]
    fn what_no_library_has_is_not_found() {
        static NONE: Symbol = Symbol::elsewhere("no_such_function_anywhere");
        assert_eq!(NONE.for_caller(here()), None);
        assert_eq!(NONE.for_caller(here()), None);
    }

    #[test]
    fn a_library_is_asked_for_its_own_functions() {
        static STRLEN: Symbol = Symbol::next("strlen");
        static GETPPID: Symbol = Symbol::of_library("getppid");
        let in_libc = STRLEN.for_caller(here()).unwrap();
        let getppid = GETPPID.for_caller(in_libc).unwrap();
        assert!(same_object(in_libc, getppid));
        assert!(!same_object(in_libc, here()));
    }

    #[test]
    fn an_entry_point_hands_over_all_arguments_and_its_caller_and_a_frame_passes_them_on() {
        static SEEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
        static ENTRY: usize = 77;
        #[rustfmt::skip]
        type Ten = extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize, usize, usize) -> usize;
        #[rustfmt::skip]
        extern "C" fn sum(
            a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize, i: usize, j: usize,
        ) -> usize {
            a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j
        }
        extern "C" fn handle(frame: &Frame, entry: &'static usize) -> usize {
            let mut seen = SEEN.lock().unwrap();
            seen.extend((0..MAX_ARGUMENTS).map(|at| frame.argument(at)));
            seen.extend([usize::from(same_object(frame.caller(), here())), *entry]);
            // SAFETY: the caller below expects a function of the type of `sum`.
            unsafe { frame.pass_on(sum as *const () as usize) }
        }
        entry_point!("forebay_hook_test_entry", ENTRY, handle);
        unsafe extern "C" {
            fn forebay_hook_test_entry();
        }
        // SAFETY: the entry takes ten words, and returns one.
        let entry = unsafe { transmute::<*const (), Ten>(forebay_hook_test_entry as *const ()) };
        assert_eq!(
            entry(1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
            sum(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
        );
        assert_eq!(
            *SEEN.lock().unwrap(),
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 77]
        );
    }
}
