//! The settings from the environment, read once at the first hook.
//!
//! The values are copied into a private mapping, because a program may change or
//! clear its environment. One atomic store publishes the copy, because the first
//! hook may run in any thread or in a signal handler.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use forebay_hook::{environment, kernel};
use forebay_link::{Config, ENV_RECONNECT, Text};
use forebay_wire::{ENV_ALIAS, ENV_BUFFER, ENV_DEVICES, ENV_SOCKET, ENV_STORAGE, MAX_PATH_BYTES};

/// Beginning of this library's file name in `LD_PRELOAD`.
const LIBRARY_STEM: &[u8] = b"libforebay_preload";
/// Beginning of the recorder's file name. In a recorded run it stands before this library.
const RECORDER_STEM: &[u8] = b"libforebay_record";
/// Beginning of all variables of the project.
pub const ENV_PREFIX: &[u8] = b"FOREBAY_";
/// The variables that a new program needs, in the order of [`Inheritance::exports`]: first those of the buffer, then
/// those of the recorder.
const EXPORTED: [&str; 9] = [
    ENV_BUFFER,
    ENV_ALIAS,
    ENV_SOCKET,
    ENV_STORAGE,
    ENV_RECONNECT,
    ENV_DEVICES,
    "FOREBAY_RECORD",
    "FOREBAY_RECORD_MEMORY",
    "FOREBAY_RECORD_INCLUDE",
];
/// The buffer cannot work without the first so many of them.
const NEEDED: usize = 6;
/// Longest `NAME=value` in bytes.
const MAX_ENTRY_BYTES: usize = MAX_PATH_BYTES + 64;

/// The settings. All zeroes is a valid, empty value.
struct Settings {
    link: Config,
    inheritance: Inheritance,
}

/// What the environment of a started program must contain, so that it sees the buffer too.
pub struct Inheritance {
    exports: [Text<MAX_ENTRY_BYTES>; EXPORTED.len()],
    library: Text<{ MAX_PATH_BYTES + 1 }>,
}

impl Inheritance {
    /// The `NAME=value` entries; each is followed by a NUL.
    pub fn exports(&self) -> impl Iterator<Item = &[u8]> {
        self.exports.iter().map(Text::get).filter(|e| !e.is_empty())
    }

    /// This library as `LD_PRELOAD` names it, with the recorder before it if there is one. Empty if `LD_PRELOAD` does
    /// not name it.
    pub fn library(&self) -> &[u8] {
        self.library.get()
    }

    /// Copies an entry of the environment. False if the entry is too long, and the buffer cannot work without it.
    #[must_use]
    fn take(&mut self, entry: &[u8]) -> bool {
        let value = |name: &str| environment::value(entry, name.as_bytes());
        if let Some(at) = EXPORTED.iter().position(|name| value(name).is_some()) {
            return self.exports[at].set(entry) || at >= NEEDED;
        }
        match value("LD_PRELOAD").and_then(|list| Some((list, find_own(list)?))) {
            Some((list, own)) => {
                self.library.set(with_recorder(list, own)) || self.library.set(own)
            }
            None => true,
        }
    }
}

/// Null if the settings are not read yet; `OFF` if there is no buffer.
static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(null_mut());
const OFF: *mut Settings = core::ptr::dangling_mut::<Settings>();

#[inline(always)]
fn settings() -> Option<&'static Settings> {
    let at = SETTINGS.load(Ordering::Acquire);
    if at == OFF {
        None
    } else if at.is_null() {
        read()
    } else {
        // SAFETY: published once, never written or unmapped after that.
        Some(unsafe { &*at })
    }
}

/// Where the buffer and its bridge are, if this process has a buffer.
#[inline(always)]
pub fn get() -> Option<&'static Config> {
    settings().map(|settings| &settings.link)
}

/// What a program that this one starts needs, if this process has a buffer.
pub fn inheritance() -> Option<&'static Inheritance> {
    settings().map(|settings| &settings.inheritance)
}

#[cold]
fn read() -> Option<&'static Settings> {
    let block = environment::block();
    if block.is_null() {
        return None; // before libc is ready: ask again next time
    }
    let len = size_of::<Settings>();
    let mut fresh = OFF;
    let has = |name: &str| environment::variable(name.as_bytes()).is_some();
    if has(ENV_BUFFER) && has(ENV_SOCKET) {
        let p = kernel::map(len).cast::<Settings>();
        if p.is_null() {
            return None;
        }
        // SAFETY: the memory is new, zeroed, of the right size and alignment, and only this thread sees it.
        let settings = unsafe { &mut *p };
        // SAFETY: libc keeps `environ` well-formed.
        let entries = || unsafe { environment::entries(block) };
        let fits = entries().all(|entry| settings.inheritance.take(entry));
        fresh = if fits && settings.link.read(entries()) {
            p
        } else {
            kernel::complain(&[b"forebay: FOREBAY_BUFFER or FOREBAY_SOCKET is too long or no absolute path; the buffer is off\n"]);
            OFF
        };
    }
    match SETTINGS.compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) if fresh == OFF => None,
        // SAFETY: published just now.
        Ok(_) => Some(unsafe { &*fresh }),
        Err(other) => {
            if fresh != OFF {
                // SAFETY: another thread was first, so this copy was not published.
                unsafe { kernel::unmap(fresh.cast(), len) };
            }
            // SAFETY: published by the other thread.
            if other == OFF {
                None
            } else {
                Some(unsafe { &*other })
            }
        }
    }
}

/// This library in an `LD_PRELOAD` list.
pub fn find_own(list: &[u8]) -> Option<&[u8]> {
    environment::find_library(list, LIBRARY_STEM)
}

/// The part of a list that names this library, with the recorder if that stands right before it.
fn with_recorder<'l>(list: &'l [u8], own: &'l [u8]) -> &'l [u8] {
    let place = |element: &[u8]| element.as_ptr() as usize - list.as_ptr() as usize;
    let end = place(own) + own.len();
    match environment::find_library(list, RECORDER_STEM) {
        Some(recorder) if place(recorder) + recorder.len() + 1 == place(own) => {
            &list[place(recorder)..end]
        }
        _ => own,
    }
}
