//! The environment of a new program. It keeps the buffer, even if a program builds an environment of its own.

use core::ffi::c_char;
use core::mem::MaybeUninit;

use forebay_hook::environment;

use super::Path;
use crate::config::{self, Inheritance};
use forebay_hook::kernel;

/// A NULL-terminated array of C strings.
pub type Strings = *const Path;

/// Most pointers that are kept on the stack. More need a mapping, which a child of `vfork` leaves behind in its parent.
const ON_STACK: usize = 512;
/// Most bytes of `LD_PRELOAD` that are kept on the stack.
const PRELOAD_ON_STACK: usize = 1024;
const PRELOAD: &[u8] = b"LD_PRELOAD";

/// Memory for up to `N` values on the stack, or for more values in a mapping.
struct Room<T, const N: usize> {
    stack: MaybeUninit<[T; N]>,
    mapping: *mut u8,
    count: usize,
}

impl<T, const N: usize> Room<T, N> {
    fn new(count: usize) -> Option<Self> {
        let mut room = Room {
            stack: MaybeUninit::uninit(),
            mapping: core::ptr::null_mut(),
            count,
        };
        if count > N {
            room.mapping = kernel::map(count * size_of::<T>());
            if room.mapping.is_null() {
                return None;
            }
        }
        Some(room)
    }

    fn start(&mut self) -> *mut T {
        if self.mapping.is_null() {
            self.stack.as_mut_ptr().cast()
        } else {
            self.mapping.cast()
        }
    }
}

impl<T, const N: usize> Drop for Room<T, N> {
    fn drop(&mut self) {
        if !self.mapping.is_null() {
            // SAFETY: the mapping was made here, and no reference to it is left.
            unsafe { kernel::unmap(self.mapping, self.count * size_of::<T>()) };
        }
    }
}

/// A list of C strings that is being built.
pub struct Pointers {
    room: Room<Path, ON_STACK>,
    len: usize,
}

impl Pointers {
    /// An empty list with room for `count` pointers, including the closing NULL.
    pub fn with_room(count: usize) -> Option<Self> {
        Some(Pointers {
            room: Room::new(count)?,
            len: 0,
        })
    }

    /// Adds a string.
    pub fn push(&mut self, s: Path) {
        assert!(self.len < self.room.count);
        // SAFETY: there is room.
        unsafe { self.room.start().add(self.len).write(s) };
        self.len += 1;
    }

    /// The list, ended by a NULL.
    pub fn terminated(&mut self) -> Strings {
        self.push(core::ptr::null());
        self.len -= 1;
        self.room.start()
    }
}

/// Runs `act` with an environment that keeps the buffer.
///
/// # Safety
/// `envp` is null or a NULL-terminated array of C strings.
pub unsafe fn with<R>(envp: Strings, act: impl FnOnce(Strings) -> R) -> R {
    let Some(inheritance) = config::inheritance() else {
        return act(envp);
    };
    // SAFETY: the caller's promise.
    if unsafe { is_complete(inheritance, envp) } {
        return act(envp);
    }
    // SAFETY: the caller's promise.
    unsafe { completed(inheritance, envp, act) }
}

fn names_library(inheritance: &Inheritance, list: &[u8]) -> bool {
    inheritance.library().is_empty() || config::find_own(list).is_some()
}

/// # Safety
/// As [`with`].
unsafe fn is_complete(inheritance: &Inheritance, envp: Strings) -> bool {
    let mut missing =
        inheritance.exports().count() + usize::from(!inheritance.library().is_empty());
    // SAFETY: the caller's promise.
    for entry in unsafe { environment::entries(envp) } {
        let name = entry.split(|&b| b == b'=').next().unwrap_or(entry);
        if name == PRELOAD {
            if inheritance.library().is_empty() {
                continue;
            }
            match environment::value(entry, PRELOAD) {
                Some(list) if names_library(inheritance, list) => {
                    missing = missing.saturating_sub(1)
                }
                _ => return false,
            }
        } else if name.starts_with(config::ENV_PREFIX)
            && inheritance.exports().any(|e| name_of(e) == name)
        {
            missing = missing.saturating_sub(1);
        }
    }
    missing == 0
}

fn name_of(entry: &[u8]) -> &[u8] {
    entry.split(|&b| b == b'=').next().unwrap_or(entry)
}

/// # Safety
/// As [`with`].
#[inline(never)]
unsafe fn completed<R>(
    inheritance: &Inheritance,
    envp: Strings,
    act: impl FnOnce(Strings) -> R,
) -> R {
    // SAFETY: the caller's promise.
    let all = || unsafe { environment::entries(envp) };
    let theirs = all().find_map(|e| environment::value(e, PRELOAD));
    let add_preload =
        !inheritance.library().is_empty() && !theirs.is_some_and(|l| names_library(inheritance, l));
    let text_len = PRELOAD.len() + inheritance.library().len() + theirs.map_or(0, <[u8]>::len) + 3;
    let count = all().count() + inheritance.exports().count() + 2;
    let (Some(mut list), Some(mut text)) = (
        Pointers::with_room(count),
        Room::<u8, PRELOAD_ON_STACK>::new(text_len),
    ) else {
        return act(envp);
    };
    for (i, entry) in all().enumerate() {
        if !(add_preload && environment::value(entry, PRELOAD).is_some()) {
            // SAFETY: within the array.
            list.push(unsafe { *envp.add(i) });
        }
    }
    for export in inheritance.exports() {
        if !all().any(|e| name_of(e) == name_of(export)) {
            list.push(export.as_ptr().cast());
        }
    }
    if add_preload {
        let start = text.start();
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            // SAFETY: the memory has `text_len` bytes, which is the sum of all pieces.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(at), bytes.len()) };
            at += bytes.len();
        };
        put(PRELOAD);
        put(b"=");
        put(inheritance.library());
        if let Some(theirs) = theirs.filter(|t| !t.is_empty()) {
            put(b":");
            put(theirs);
        }
        put(b"\0");
        list.push(start.cast::<c_char>());
    }
    act(list.terminated())
}
