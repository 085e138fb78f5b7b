//! Entries of an environment block, and the list in `LD_PRELOAD`.

use core::ffi::c_char;

use crate::kernel::bytes;

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// The process's environment block at this moment; null before libc is ready.
pub fn block() -> *const *const c_char {
    // SAFETY: a plain read of a pointer that libc owns.
    unsafe { environ }
}

/// Entries of an environment block, or of any such list.
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
            Some(bytes(s))
        }
    })
}

/// The value of an environment variable at this moment. A NUL follows the bytes.
pub fn variable(name: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: libc keeps `environ` well-formed.
    unsafe { entries(block()) }.find_map(|entry| value(entry, name))
}

/// The value in `entry` if it is `name=value`.
pub fn value<'e>(entry: &'e [u8], name: &[u8]) -> Option<&'e [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}

/// The first element of an `LD_PRELOAD` list whose file name begins with `stem`.
pub fn find_library<'l>(list: &'l [u8], stem: &[u8]) -> Option<&'l [u8]> {
    list.split(|&b| b == b':' || b == b' ').find(|element| {
        let name = element.rsplit(|&b| b == b'/').next().unwrap_or(element);
        name.starts_with(stem)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_name_is_another_variable() {
        assert_eq!(value(b"HOME=/root", b"HOME"), Some(&b"/root"[..]));
        assert_eq!(value(b"HOME2=/root", b"HOME"), None);
        assert_eq!(value(b"HOME", b"HOME"), None);
    }

    #[test]
    fn our_library_is_found_in_a_list_with_either_separator() {
        let stem = b"libforebay_preload.so";
        let list = b"/x/libjemalloc.so:/opt/lib/libforebay_preload.so /y/z.so";
        assert_eq!(
            find_library(list, stem),
            Some(&b"/opt/lib/libforebay_preload.so"[..])
        );
        assert_eq!(find_library(b"/x/libother.so", stem), None);
    }
}
