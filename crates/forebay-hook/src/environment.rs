//! Entries of an environment block, and the list in `LD_PRELOAD`.

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
