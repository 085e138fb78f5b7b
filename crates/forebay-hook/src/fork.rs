//! State that a forked child must not inherit.
//!
//! Such state lies in a page that the kernel wipes in a child (`MADV_WIPEONFORK`), whether `fork`, `_Fork` or a bare
//! `clone` made the child. So a child finds the state of a new process. A child of `vfork` shares the page instead.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::kernel::{self, call};

/// Size of the mapping.
const PAGE_BYTES: usize = 4096;

/// State for which all zeroes means "new". It is used by shared references.
///
/// # Safety
/// All zeroes is a valid value, also if the state becomes zero behind a reference that a forked child holds.
pub unsafe trait ZeroIsNew: Sync + 'static {}

/// A page with a `T`, mapped when it is first asked for and wiped in a forked child.
pub struct ForkPage<T: ZeroIsNew>(AtomicPtr<T>);

impl<T: ZeroIsNew> ForkPage<T> {
    /// Not mapped yet.
    pub const fn new() -> Self {
        const { assert!(size_of::<T>() <= PAGE_BYTES && align_of::<T>() <= PAGE_BYTES) };
        ForkPage(AtomicPtr::new(null_mut()))
    }

    /// The state, if [`ForkPage::get`] was ever called.
    #[inline(always)]
    pub fn peek(&self) -> Option<&'static T> {
        // SAFETY: the page was published once and is never unmapped; zeroes are a valid state.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The state, mapped at the first call. `None` if there is no memory.
    #[inline(always)]
    pub fn get(&self) -> Option<&'static T> {
        self.peek().or_else(|| self.map())
    }

    #[cold]
    fn map(&self) -> Option<&'static T> {
        let fresh = kernel::map(PAGE_BYTES);
        if fresh.is_null() {
            return None;
        }
        // SAFETY: the mapping was just made. A kernel before 4.14 refuses; then a fork handler does it, for fork() only.
        let _ = unsafe { call!(libc::SYS_madvise, fresh, PAGE_BYTES, libc::MADV_WIPEONFORK) };
        let won = self.0.compare_exchange(
            null_mut(),
            fresh.cast(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if won.is_err() {
            // SAFETY: the page was not published.
            unsafe { kernel::unmap(fresh, PAGE_BYTES) };
        }
        self.peek()
    }

    /// Makes the state new, for kernels that do not wipe the page in a forked child.
    ///
    /// # Safety
    /// The calling thread is the only one of a new process.
    pub unsafe fn wipe(&self) {
        let at = self.0.load(Ordering::Acquire);
        if !at.is_null() {
            // SAFETY: the page is mapped, and the caller promises that no other thread exists.
            unsafe { core::ptr::write_bytes(at.cast::<u8>(), 0, PAGE_BYTES) };
        }
    }
}

impl<T: ZeroIsNew> Default for ForkPage<T> {
    fn default() -> Self {
        ForkPage::new()
    }
}

unsafe extern "C" {
    fn __register_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
        dso: *mut c_void,
    ) -> c_int;
}

/// Makes `fork` call `before` in the parent and `in_child` in the child. Call this at load time, while there is one
/// thread and no lock is held, and only from a library that is never unloaded.
pub fn watch(before: Option<extern "C" fn()>, in_child: extern "C" fn()) {
    // SAFETY: the functions stay loaded.
    unsafe { __register_atfork(before, None, Some(in_child), null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    struct State(AtomicU32);
    // SAFETY: an atomic integer.
    unsafe impl ZeroIsNew for State {}

    /// Forks, and returns what `child` returned in the child process, which then exits.
    fn in_child(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child makes no call but system calls.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(i32::from(!child())),
                pid => {
                    let mut status = 0;
                    assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
                    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
                }
            }
        }
    }

    #[test]
    fn a_child_finds_the_state_of_a_new_process_and_leaves_its_parents_alone() {
        static PAGE: ForkPage<State> = ForkPage::new();
        assert!(PAGE.peek().is_none());
        let state = PAGE.get().unwrap();
        state.0.store(7, Ordering::Relaxed);
        assert!(in_child(|| {
            let found = state.0.swap(9, Ordering::Relaxed);
            found == 0
        }));
        assert_eq!(PAGE.get().unwrap().0.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_wiped_state_is_new() {
        static PAGE: ForkPage<State> = ForkPage::new();
        PAGE.get().unwrap().0.store(7, Ordering::Relaxed);
        // SAFETY: nobody else knows this page.
        unsafe { PAGE.wipe() };
        assert_eq!(PAGE.get().unwrap().0.load(Ordering::Relaxed), 0);
    }
}
