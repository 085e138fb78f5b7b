//! The mode string of `fopen`, as glibc reads it.

/// `O_*` flags of x86-64 and AArch64 Linux that a mode string can stand for.
const O_WRONLY: i32 = 0o1;
const O_RDWR: i32 = 0o2;
const O_CREAT: i32 = 0o100;
const O_EXCL: i32 = 0o200;
const O_TRUNC: i32 = 0o1000;
const O_APPEND: i32 = 0o2000;
const O_CLOEXEC: i32 = 0o2000000;

/// The flags of `open` that the `mode` of `fopen` stands for; `None` if it is no mode (`EINVAL`).
///
/// Letters after a comma (`,ccs=`) do not count, and glibc looks at no more than
/// seven letters after the first.
pub fn open_flags(mode: &[u8]) -> Option<i32> {
    let (first, rest) = mode.split_first()?;
    let mut flags = match first {
        b'r' => 0,
        b'w' => O_WRONLY | O_CREAT | O_TRUNC,
        b'a' => O_WRONLY | O_CREAT | O_APPEND,
        _ => return None,
    };
    for letter in rest.iter().take(6) {
        match letter {
            b'+' => flags = flags & !O_WRONLY | O_RDWR,
            b'x' => flags |= O_EXCL,
            b'e' => flags |= O_CLOEXEC,
            b',' => break,
            _ => {}
        }
    }
    Some(flags)
}

/// The mode with which to open the same file once more. It has no `x`, because the file exists by now. A
/// `w` stays, because a second truncation does no harm. Writes the mode and a NUL into `out`.
pub fn reopen_mode<'o>(mode: &[u8], out: &'o mut [u8; 32]) -> &'o [u8] {
    let mut n = 0;
    let mut in_letters = true;
    for &b in mode.iter().take(out.len() - 1) {
        in_letters &= b != b',';
        if b != b'x' || !in_letters {
            out[n] = b;
            n += 1;
        }
    }
    out[n] = 0;
    &out[..=n]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_means_what_glibc_means() {
        assert_eq!(open_flags(b"r"), Some(0));
        assert_eq!(open_flags(b"rb+"), Some(O_RDWR));
        assert_eq!(
            open_flags(b"wxe"),
            Some(O_WRONLY | O_CREAT | O_TRUNC | O_EXCL | O_CLOEXEC)
        );
        assert_eq!(open_flags(b"a+"), Some(O_RDWR | O_CREAT | O_APPEND));
        assert_eq!(open_flags(b"r,ccs=utf-8x+"), Some(0));
        assert_eq!(open_flags(b""), None);
        assert_eq!(open_flags(b"q"), None);
    }

    #[test]
    fn the_second_opening_does_not_insist_on_a_new_file() {
        let mut out = [0; 32];
        assert_eq!(reopen_mode(b"w+xe,ccs=x", &mut out), b"w+e,ccs=x\0");
    }
}
