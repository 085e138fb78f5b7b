//! Names of records: cleaned paths, their ids, and which paths are left out.

/// Longest name, in bytes. Longer paths have no record of their own.
pub const MAX_NAME_BYTES: usize = 4096;
/// Standard input as a stream.
pub const STDIN: &[u8] = b"<STDIN>";
/// Standard output as a stream.
pub const STDOUT: &[u8] = b"<STDOUT>";
/// Standard error as a stream.
pub const STDERR: &[u8] = b"<STDERR>";
/// What follows the directory in the name of a record into which files were folded.
pub const OTHER_FILES: &[u8] = b"/<other files>";
/// The id of a name: Bob Jenkins' 64-bit hash of 1997 (public domain), as Darshan takes it.
pub fn record_id(name: &[u8]) -> u64 {
    let (mut a, mut b, mut c) = (0u64, 0u64, 0x9e37_79b9_7f4a_7c13_u64);
    let mut blocks = name.chunks_exact(24);
    for block in &mut blocks {
        a = a.wrapping_add(word(&block[..8]));
        b = b.wrapping_add(word(&block[8..16]));
        c = c.wrapping_add(word(&block[16..]));
        (a, b, c) = mix(a, b, c);
    }
    let tail = blocks.remainder();
    let part = |from: usize| tail.get(from..tail.len().min(from + 8)).map_or(0, word);
    a = a.wrapping_add(part(0));
    b = b.wrapping_add(part(8));
    // The lowest byte of `c` is kept for the length.
    c = c
        .wrapping_add(name.len() as u64)
        .wrapping_add(part(16) << 8);
    mix(a, b, c).2
}

/// Up to eight bytes, the first one lowest.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    if let Ok(eight) = bytes.try_into() {
        return u64::from_le_bytes(eight);
    }
    bytes.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b))
}

fn mix(mut a: u64, mut b: u64, mut c: u64) -> (u64, u64, u64) {
    const RIGHT_LEFT_RIGHT: [[u32; 3]; 4] = [[43, 9, 8], [38, 23, 5], [35, 49, 11], [12, 18, 22]];
    for [x, y, z] in RIGHT_LEFT_RIGHT {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> x);
        b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << y);
        c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> z);
    }
    (a, b, c)
}

/// Writes the absolute form of `path` into `out`: below `cwd` if it is relative, without `//` and `/./`. `..` and
/// symbolic links stay as they are. `None` if it is empty or does not fit.
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

/// Is the clean path left out by default? The directories that hold the system and not the job's data; Darshan's list.
#[inline]
#[rustfmt::skip]
pub fn is_left_out(path: &[u8]) -> bool {
    // Patterns, because this runs at each open and a comparison of strings is a call.
    matches!(
        path,
        [b'/', b'e', b't', b'c', b'/', ..]
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

/// Is the clean path `dir` itself or below it?
pub fn is_within(path: &[u8], dir: &[u8]) -> bool {
    let dir = dir.strip_suffix(b"/").unwrap_or(dir);
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The directory of a clean path; of one in the root, and of anything that is no path, the empty name.
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

    /// Ids that Darshan gave to these names in its own logs.
    #[test]
    fn ids_are_those_of_darshan() {
        for (name, id) in KNOWN_IDS {
            assert_eq!(record_id(name.as_bytes()), id, "{name}");
        }
    }

    const KNOWN_IDS: [(&str, u64); 5] = [
        ("<STDIN>", 14734109647742566553),
        ("heatmap:POSIX", 16592106915301738621),
        ("/tmp/test/mpi-io-test.tmp.dat", 6331129185542144414),
        (
            "/home/wkliao/Darshan/TEST/mpi-io-test.tmp.dat",
            9347516096890457488,
        ),
        (
            "/home/shane/software/ior/build/testFile:data_var",
            13643764139999164549,
        ),
    ];

    #[test]
    fn the_system_is_left_out_and_what_only_looks_like_it_is_not() {
        assert!(is_left_out(b"/etc/passwd"));
        assert!(is_left_out(b"/dev/shm/x"));
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
