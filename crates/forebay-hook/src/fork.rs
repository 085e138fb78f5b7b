//! State that a forked child must not inherit.
//!
//! It lies in a page that the kernel wipes in a child (`MADV_WIPEONFORK`), whatever made the child: `fork`, `_Fork` or
//! a bare `clone`. So a child finds it as it is in a new process. A child of `vfork` shares the page instead.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::kernel::{self, call};

/// Size of the mapping.
const PAGE_BYTES: usize = 4096;

/// State that is reached by shared references and that is new when all of it is zero.
///
/// # Safety
/// All zeroes is a valid value, and stays one if a forked child finds it under its references.
pub unsafe trait ZeroIsNew: Sync + 'static {}

/// A page with a `T`, mapped when it is first asked for and wiped in a forked child.
pub struct ForkPage<T: ZeroIsNew>(AtomicPtr<T>);

impl<T: ZeroIsNew> ForkPage<T> {
    /// Not mapped yet.
    pub const fn new() -> Self {
        const { assert!(size_of::<T>() <= PAGE_BYTES && align_of::<T>() <= PAGE_BYTES) };
        ForkPage(AtomicPtr::new(null_mut()))
    }

    /// The state, if it was ever asked for.
    #[inline(always)]
    pub fn peek(&self) -> Option<&'static T> {
        // SAFETY: published once, never unmapped; zeroes are a valid state.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The state. `None`: there is no memory.
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
        // SAFETY: the mapping is ours. A kernel before 4.14 refuses; a fork handler is enough for fork() then.
        let _ = unsafe { call!(libc::SYS_madvise, fresh, PAGE_BYTES, libc::MADV_WIPEONFORK) };
        let won = self.0.compare_exchange(
            null_mut(),
            fresh.cast(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if won.is_err() {
            // SAFETY: nobody saw it.
            unsafe { kernel::unmap(fresh, PAGE_BYTES) };
        }
        self.peek()
    }

    /// Makes the state new, as the kernel does in a forked child where it can.
    ///
    /// # Safety
    /// This is the only thread of a new process.
    pub unsafe fn wipe(&self) {
        let at = self.0.load(Ordering::Acquire);
        if !at.is_null() {
            // SAFETY: the page is mapped, and by the caller's promise nobody else looks at it.
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

/// Has `fork` call `before` in the parent and `in_child` in the child. For load time, while there is one thread and no
/// lock is held, and for libraries that are never unloaded.
pub fn watch(before: Option<extern "C" fn()>, in_child: extern "C" fn()) {
    // SAFETY: functions that stay.
    unsafe { __register_atfork(before, None, Some(in_child), null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    struct State(AtomicU32);
    // SAFETY: an atomic integer.
    unsafe impl ZeroIsNew for State {}

    /// Ends with what `child` says, and never goes on in it as this process.
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
