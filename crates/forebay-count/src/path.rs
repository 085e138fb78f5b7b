//! Names of records: cleaned paths, and which paths are left out. Nothing here looks at a file system.

pub use darshan_rules::record_id;
use forebay_types::below;

/// Longest name, in bytes. Longer paths have no record of their own.
pub const MAX_NAME_BYTES: usize = 4096;
/// Name of standard input as a stream.
pub const STDIN: &[u8] = b"<STDIN>";
/// Name of standard output as a stream.
pub const STDOUT: &[u8] = b"<STDOUT>";
/// Name of standard error as a stream.
pub const STDERR: &[u8] = b"<STDERR>";
/// What follows the directory in the name of a record into which files were folded.
pub const OTHER_FILES: &[u8] = b"/<other files>";

/// Writes the absolute form of `path` into `out`, without `//` and `/./`. A relative path is taken below `cwd`. `..`
/// and symbolic links stay as they are. `None` if `path` is empty or does not fit.
pub fn clean<'o>(cwd: &[u8], path: &[u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
    let mut len = 0;
    let mut put = |piece: &[u8]| {
        for &b in piece {
            if b == b'/' && len > 0 && out[len - 1] == b'/' {
                continue;
            }
            // "/./": the dot and this slash go, the slash before them stays.
            if b == b'/' && len > 1 && out[len - 2..len] == *b"/." {
                len -= 1;
                continue;
            }
            *out.get_mut(len)? = b;
            len += 1;
        }
        Some(())
    };
    if *path.first()? != b'/' {
        put(cwd)?;
        put(b"/")?;
    }
    put(path)?;
    Some(&out[..len])
}

/// True if the clean path is left out by default. The directories are Darshan's list: they hold the system and not the
/// job's data.
#[inline]
#[rustfmt::skip]
pub fn is_left_out(path: &[u8]) -> bool {
    // Patterns, because this runs at each open, and a comparison of strings is a call.
    matches!(
        path,
        [b'/']
            | [b'/', b'e', b't', b'c']
            | [b'/', b'd', b'e', b'v']
            | [b'/', b'u', b's', b'r']
            | [b'/', b'b', b'i', b'n']
            | [b'/', b'b', b'o', b'o', b't']
            | [b'/', b'l', b'i', b'b']
            | [b'/', b'o', b'p', b't']
            | [b'/', b's', b'b', b'i', b'n']
            | [b'/', b's', b'y', b's']
            | [b'/', b'p', b'r', b'o', b'c']
            | [b'/', b'v', b'a', b'r']
            | [b'/', b'e', b't', b'c', b'/', ..]
            | [b'/', b'd', b'e', b'v', b'/', ..]
            | [b'/', b'u', b's', b'r', b'/', ..]
            | [b'/', b'b', b'i', b'n', b'/', ..]
            | [b'/', b'b', b'o', b'o', b't', b'/', ..]
            | [b'/', b'l', b'i', b'b', b'/', ..]
            | [b'/', b'o', b'p', b't', b'/', ..]
            | [b'/', b's', b'b', b'i', b'n', b'/', ..]
            | [b'/', b's', b'y', b's', b'/', ..]
            | [b'/', b'p', b'r', b'o', b'c', b'/', ..]
            | [b'/', b'v', b'a', b'r', b'/', ..]
            // Session files of Open MPI and PRRTE: some forty per job that no program asked for.
            | [b'/', b't', b'm', b'p', b'/', b'o', b'm', b'p', b'i', b'.', ..]
            | [b'/', b't', b'm', b'p', b'/', b'p', b'r', b't', b'e', b'.', ..]
    )
}

/// True if the clean path is `dir` itself or below it.
pub fn is_within(path: &[u8], dir: &[u8]) -> bool {
    below(dir.strip_suffix(b"/").unwrap_or(dir), path).is_some()
}

/// The directory of a clean path. The empty name for a path in the root, and for a name that is no path.
pub fn directory(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b == b'/').unwrap_or(0);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned<'o>(cwd: &str, path: &str, out: &'o mut [u8]) -> &'o str {
        core::str::from_utf8(clean(cwd.as_bytes(), path.as_bytes(), out).unwrap()).unwrap()
    }

    #[test]
    fn a_path_is_made_absolute_and_loses_empty_components() {
        let mut out = [0; 64];
        for (path, clean) in [
            ("/a/b", "/a/b"),
            ("b", "/w/b"),
            ("./b", "/w/b"),
            ("../b", "/w/../b"),
            ("//a///b//", "/a/b/"),
            ("/a/././b", "/a/b"),
            ("/a/.//./b", "/a/b"),
            ("/a/.", "/a/."),
            ("/a/.b/..c", "/a/.b/..c"),
            ("/./a", "/a"),
            ("/", "/"),
        ] {
            assert_eq!(cleaned("/w", path, &mut out), clean, "{path}");
        }
        assert_eq!(cleaned("/", "b", &mut out), "/b");
    }

    #[test]
    fn what_does_not_fit_has_no_name() {
        assert_eq!(clean(b"/w", b"abc", &mut [0; 5]), None);
        assert_eq!(clean(b"/w", b"", &mut [0; 5]), None);
    }

    #[test]
    fn the_system_is_left_out_and_what_only_looks_like_it_is_not() {
        assert!(is_left_out(b"/etc/passwd"));
        assert!(is_left_out(b"/dev/shm/x"));
        assert!(is_left_out(b"/"));
        assert!(is_left_out(b"/sys"));
        assert!(!is_left_out(b"/syst"));
        assert!(!is_left_out(b"/etcetera/x"));
        assert!(!is_left_out(b"/tmp/x"));
        assert!(is_left_out(b"/tmp/ompi.node1.1000/jf.0/1/shared"));
        assert!(is_left_out(b"/tmp/prte.node1.1000/x"));
        assert!(!is_left_out(b"/tmp/ompi"));
        assert!(!is_left_out(b"/tmp/ompicc.out"));
        assert!(is_within(b"/a/b", b"/a"));
        assert!(is_within(b"/a/b", b"/a/"));
        assert!(is_within(b"/a", b"/a"));
        assert!(!is_within(b"/ab", b"/a"));
    }

    #[test]
    fn directories_go_up_to_the_root() {
        assert_eq!(directory(b"/a/b/c"), b"/a/b");
        assert_eq!(directory(b"/a"), b"");
        assert_eq!(directory(b""), b"");
        assert_eq!(directory(b"<STDIN>"), b"");
    }
}
