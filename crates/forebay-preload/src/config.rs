//! What the environment says, read once at the first hook.
//!
//! The values are copied into a mapping of their own, because a program may
//! change or clear its environment, and the copy is published by one atomic
//! store, because the first hook may run in any thread or in a signal handler.

use core::ffi::c_char;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use forebay_hook::environment;
use forebay_wire::{ENV_ALIAS, ENV_BUFFER, ENV_SOCKET, ENV_STORAGE, MAX_PATH_BYTES};

use crate::sys;

/// File name of this library, as `LD_PRELOAD` has it.
const LIBRARY_STEM: &[u8] = b"libforebay_preload";
/// File name of the recorder, which stands before it in a run that is recorded.
const RECORDER_STEM: &[u8] = b"libforebay_record";
/// Environment variable: seconds for which a lost bridge is tried again.
const ENV_RECONNECT: &str = "FOREBAY_RECONNECT_S";
/// All variables of the project begin with this.
pub const ENV_PREFIX: &[u8] = b"FOREBAY_";
/// What a new program needs, in the order of [`Config::exports`]: first what the buffer needs, then the recorder.
const EXPORTED: [&str; 8] = [
    ENV_BUFFER,
    ENV_ALIAS,
    ENV_SOCKET,
    ENV_STORAGE,
    ENV_RECONNECT,
    "FOREBAY_RECORD",
    "FOREBAY_RECORD_MEMORY",
    "FOREBAY_RECORD_INCLUDE",
];
/// As many of them the buffer can't do without.
const NEEDED: usize = 5;
/// Room for `NAME=value`.
const MAX_ENTRY_BYTES: usize = MAX_PATH_BYTES + 64;
const RECONNECT_DEFAULT_S: u64 = 10;
/// Room in `sockaddr_un`.
const MAX_SOCKET_PATH_BYTES: usize = 107;

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// A string with a fixed place.
struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    fn set(&mut self, value: &[u8]) -> bool {
        if value.len() >= N {
            return false;
        }
        self.bytes[..value.len()].copy_from_slice(value);
        self.len = value.len();
        true
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The environment's settings. All zeroes is a valid, empty value.
pub struct Config {
    root: Text<{ MAX_PATH_BYTES + 1 }>,
    alias: Text<{ MAX_PATH_BYTES + 1 }>,
    socket: Text<{ MAX_SOCKET_PATH_BYTES + 1 }>,
    storage: Text<{ MAX_PATH_BYTES + 1 }>,
    library: Text<{ MAX_PATH_BYTES + 1 }>,
    exports: [Text<MAX_ENTRY_BYTES>; EXPORTED.len()],
    /// How long a lost bridge is tried again.
    pub reconnect_ns: u64,
}

impl Config {
    /// Canonical path of the buffer root.
    pub fn root(&self) -> &[u8] {
        self.root.get()
    }
    /// Another spelling of it; may be empty.
    pub fn alias(&self) -> &[u8] {
        self.alias.get()
    }
    /// Path of the bridge's socket.
    pub fn socket(&self) -> &[u8] {
        self.socket.get()
    }
    /// Instance directory of the bridge.
    pub fn storage(&self) -> &[u8] {
        self.storage.get()
    }
    /// The `NAME=value` entries that a new program needs; each is followed by a NUL.
    pub fn exports(&self) -> impl Iterator<Item = &[u8]> {
        self.exports.iter().map(Text::get).filter(|e| !e.is_empty())
    }
    /// This library as `LD_PRELOAD` names it, with the recorder before it if there is one; empty if it was loaded
    /// otherwise.
    pub fn library(&self) -> &[u8] {
        self.library.get()
    }
}

/// Null: not read yet. `OFF`: no buffer.
static CONFIG: AtomicPtr<Config> = AtomicPtr::new(null_mut());
const OFF: *mut Config = core::ptr::dangling_mut::<Config>();

/// The settings, if this process has a buffer.
#[inline(always)]
pub fn get() -> Option<&'static Config> {
    let at = CONFIG.load(Ordering::Acquire);
    if at == OFF {
        None
    } else if at.is_null() {
        read()
    } else {
        // SAFETY: published once, never written or unmapped after that.
        Some(unsafe { &*at })
    }
}

/// Entries of an environment block.
///
/// # Safety
/// `block` is null or a NULL-terminated array of C strings that outlives `'a`.
pub unsafe fn entries<'a>(block: *const *const c_char) -> impl Iterator<Item = &'a [u8]> {
    let mut at = block;
    core::iter::from_fn(move || {
        if at.is_null() {
            return None;
        }
        // SAFETY: the caller's promise; the iterator stops at the NULL.
        unsafe {
            let s = *at;
            if s.is_null() {
                return None;
            }
            at = at.add(1);
            Some(sys::bytes(s))
        }
    })
}

/// The process's environment block at this moment.
pub fn environment() -> *const *const c_char {
    // SAFETY: a plain read of a pointer that libc owns.
    unsafe { environ }
}

/// The value of a variable of the environment at this moment.
pub fn entry(name: &[u8]) -> Option<*const c_char> {
    // SAFETY: libc keeps `environ` well-formed.
    unsafe { entries(environment()) }
        .find_map(|e| environment::value(e, name))
        .map(|v| v.as_ptr().cast())
}

#[cold]
fn read() -> Option<&'static Config> {
    let block = environment();
    if block.is_null() {
        return None; // before libc is ready: ask again next time
    }
    let len = size_of::<Config>();
    let mut fresh = OFF;
    // SAFETY: libc keeps `environ` well-formed.
    let has = |name: &str| {
        unsafe { entries(block) }.any(|e| environment::value(e, name.as_bytes()).is_some())
    };
    if has(ENV_BUFFER) && has(ENV_SOCKET) {
        let p = sys::map(len).cast::<Config>();
        if p.is_null() {
            return None;
        }
        // SAFETY: fresh zeroed memory of the right size and alignment, seen by this thread only.
        fresh = if unsafe { fill(&mut *p, block) } {
            p
        } else {
            sys::complain(&[b"forebay: FOREBAY_BUFFER or FOREBAY_SOCKET is too long or no absolute path; the buffer is off\n"]);
            OFF
        };
    }
    match CONFIG.compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) if fresh == OFF => None,
        // SAFETY: published just now.
        Ok(_) => Some(unsafe { &*fresh }),
        Err(other) => {
            if fresh != OFF {
                // SAFETY: another thread was first; nobody saw ours.
                unsafe { sys::unmap(fresh.cast(), len) };
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

/// # Safety
/// `block` is a well-formed environment block.
unsafe fn fill(config: &mut Config, block: *const *const c_char) -> bool {
    let mut ok = true;
    config.reconnect_ns = RECONNECT_DEFAULT_S * 1_000_000_000;
    // SAFETY: the caller's promise.
    for entry in unsafe { entries(block) } {
        let value = |name: &str| environment::value(entry, name.as_bytes());
        if let Some(at) = EXPORTED.iter().position(|name| value(name).is_some()) {
            ok &= config.exports[at].set(entry) || at >= NEEDED;
        }
        if let Some(v) = value(ENV_BUFFER) {
            ok &= config.root.set(without_slash(v));
        } else if let Some(v) = value(ENV_ALIAS) {
            ok &= config.alias.set(without_slash(v));
        } else if let Some(v) = value(ENV_SOCKET) {
            ok &= config.socket.set(v);
        } else if let Some(v) = value(ENV_STORAGE) {
            ok &= config.storage.set(without_slash(v));
        } else if let Some(v) = value(ENV_RECONNECT) {
            if let Some(s) = decimal(v) {
                config.reconnect_ns = s.saturating_mul(1_000_000_000);
            }
        } else if let Some(v) = value("LD_PRELOAD")
            && let Some(own) = find_own(v)
        {
            ok &= config.library.set(with_recorder(v, own)) || config.library.set(own);
        }
    }
    let absolute = |p: &[u8]| p.first() == Some(&b'/');
    ok && absolute(config.root())
        && absolute(config.socket())
        && (config.alias().is_empty() || absolute(config.alias()))
}

/// This library in an `LD_PRELOAD` list.
pub fn find_own(list: &[u8]) -> Option<&[u8]> {
    environment::find_library(list, LIBRARY_STEM)
}

/// This library in a list and, if it stands right before it, the recorder.
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

fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

fn decimal(text: &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for &b in text {
        let digit = (b as char).to_digit(10)?;
        n = n.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (!text.is_empty()).then_some(n)
}
