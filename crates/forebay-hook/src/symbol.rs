//! Looks up the next definition of a symbol, once, without a lock.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

#[link(name = "c")]
unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
}

/// `RTLD_NEXT`: search the libraries after the calling one.
const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
const ENOSYS: c_int = 38;

/// `RTLD_DEFAULT`: search the program and all libraries.
const RTLD_DEFAULT: *mut c_void = null_mut();

/// The path in the buffer of the object that a descriptor stands for: a function that the path library offers to other libraries, because
/// the kernel only knows where the object lies in the storage.
pub const FD_NAME: &CStr = c"forebay_fd_name";
/// [`FD_NAME`]: asks the bridge, if that is there now, and writes a path to memory of so many bytes, without a NUL, and returns its length. 0: no object of a buffer, one that has no
/// name any more, or too little memory.
pub type FdName = unsafe extern "C" fn(c_int, *mut u8, usize) -> usize;

/// A function that another preloaded library may offer, looked up once. It does not matter which of them comes first.
pub struct Offered {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Offered {
    /// A function that is looked up later.
    pub const fn new(name: &'static CStr) -> Self {
        Offered {
            name,
            at: AtomicPtr::new(null_mut()),
        }
    }

    /// Its address, if a library has it.
    pub fn get(&self) -> Option<*mut c_void> {
        let none = missing as *mut c_void;
        let mut at = self.at.load(Ordering::Relaxed);
        if at.is_null() {
            // SAFETY: the name is a C string; dlsym may be called from any thread.
            at = unsafe { dlsym(RTLD_DEFAULT, self.name.as_ptr()) };
            at = if at.is_null() { none } else { at };
            self.at.store(at, Ordering::Relaxed);
        }
        (at != none).then_some(at)
    }
}

/// A symbol's next definition, looked up at first use.
///
/// Two threads may look it up at once; both find the same. For a versioned
/// symbol `dlsym` returns the default version, which a program linked today
/// would get, too.
pub struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Real {
    /// A symbol that is looked up later.
    pub const fn new(name: &'static CStr) -> Self {
        Real {
            name,
            at: AtomicPtr::new(null_mut()),
        }
    }

    /// Address of the definition. If libc has none because it is old, the
    /// address of a function that fails with `ENOSYS`.
    #[inline(always)]
    pub fn get(&self) -> *mut c_void {
        let at = self.at.load(Ordering::Relaxed);
        if at.is_null() { self.find() } else { at }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name is a C string; dlsym may be called from any thread.
        let mut at = unsafe { dlsym(RTLD_NEXT, self.name.as_ptr()) };
        if at.is_null() {
            at = missing as *mut c_void;
        }
        self.at.store(at, Ordering::Relaxed);
        at
    }
}

extern "C" fn missing() -> isize {
    // SAFETY: errno of the calling thread is always there.
    unsafe { *__errno_location() = ENOSYS };
    -1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_of_libc_is_found_and_remembered() {
        static GETPID: Real = Real::new(c"getpid");
        let first = GETPID.get();
        assert!(!first.is_null());
        assert_eq!(first, GETPID.get());
    }

    #[test]
    fn a_function_that_is_offered_is_found_and_one_that_is_not_is_none() {
        static GETPID: Offered = Offered::new(c"getpid");
        static NONE: Offered = Offered::new(c"no_such_function_in_libc");
        for _ in 0..2 {
            assert!(GETPID.get().is_some());
            assert_eq!(NONE.get(), None);
        }
    }

    #[test]
    fn a_symbol_that_does_not_exist_fails_with_enosys() {
        static NONE: Real = Real::new(c"no_such_function_in_libc");
        // SAFETY: `missing` takes nothing and returns an integer.
        let f =
            unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> isize>(NONE.get()) };
        assert_eq!(f(), -1);
    }
}
