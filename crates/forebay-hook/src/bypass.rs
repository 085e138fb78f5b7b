//! Which programs a preloaded library does not reach, by the head of their files and by their modes.

use crate::shebang::{self, Head};
use forebay_types::Bypass;

/// Bytes of a file that are enough to tell.
pub const HEAD_BYTES: usize = 4096;

const CLASS_64: u8 = 2;
const SEGMENT_BYTES: usize = 56;
const INTERPRETER: u32 = 3;
const NOTE: u32 = 4;
/// Type and name of the note in which the linker of Go keeps the id of a build.
const GO_BUILD: u64 = 4;
const GO_NAME: &[u8] = b"Go\0\0";
/// A note begins with three numbers of four bytes: the lengths of its name and of what it tells, and its type.
const NOTE_HEAD: usize = 12;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut whole = [0; 8];
    whole[..N].copy_from_slice(bytes.get(at..)?.get(..N)?);
    Some(u64::from_le_bytes(whole))
}

/// Type, offset and length of the segments whose headers lie in the head of a file.
fn segments(head: &[u8]) -> impl Iterator<Item = (u32, u64, u64)> {
    let first = number::<8>(head, 32).unwrap_or(u64::MAX);
    let count = number::<2>(head, 56).unwrap_or(0);
    (0..count).map_while(move |n| {
        let at = usize::try_from(first).ok()?;
        let at = at.checked_add(n as usize * SEGMENT_BYTES)?;
        let kind = number::<4>(head, at)?;
        Some((
            kind as u32,
            number::<8>(head, at + 8)?,
            number::<8>(head, at + 32)?,
        ))
    })
}

/// Is one of the notes in this part of the file that of Go? What lies beyond the head counts as none.
fn is_of_go(head: &[u8], offset: u64, len: u64) -> bool {
    let in_head = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(head.len());
    let mut notes = &head[in_head(offset)..in_head(offset.saturating_add(len))];
    loop {
        let [Some(name), Some(told), Some(kind)] = [0, 4, 8].map(|at| number::<4>(notes, at))
        else {
            return false;
        };
        let rest = &notes[NOTE_HEAD..];
        if kind == GO_BUILD && name == GO_NAME.len() as u64 && rest.starts_with(GO_NAME) {
            return true;
        }
        // Both parts are filled up to four bytes.
        let len = name.next_multiple_of(4) + told.next_multiple_of(4);
        match rest.get(len as usize..) {
            Some(next) => notes = next,
            None => return false,
        }
    }
}

/// Is it the dynamic linker itself? It has none, and loads libraries all the same.
fn is_dynamic_linker(path: &[u8]) -> bool {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    name.starts_with(b"ld-") || name.starts_with(b"ld.so")
}

/// Why no library is loaded into the program whose file begins with `head`. `None`: it is loaded, or the file is no program.
fn of_file(path: &[u8], head: &[u8]) -> Option<Bypass> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    if head.get(4) != Some(&CLASS_64) {
        return Some(Bypass::Foreign);
    }
    let mut has_linker = false;
    let mut is_go = false;
    for (kind, offset, len) in segments(head) {
        has_linker |= kind == INTERPRETER;
        is_go |= kind == NOTE && is_of_go(head, offset, len);
    }
    match (is_go, has_linker) {
        (true, _) => Some(Bypass::Go),
        (false, false) if !is_dynamic_linker(path) => Some(Bypass::Static),
        (false, _) => None,
    }
}

/// Does a program of this mode, user and group get other rights than a caller of these effective ids has?
fn is_privileged(mode: u32, owner: (u32, u32), caller: (u32, u32)) -> bool {
    let other_user = mode & libc::S_ISUID != 0 && owner.0 != caller.0;
    // Without the bit for the group to execute it, this one is for locks.
    let of_group = libc::S_ISGID | libc::S_IXGRP;
    let other_group = mode & of_group == of_group && owner.1 != caller.1;
    other_user || other_group
}

/// A file that is about to be started.
#[derive(Debug, Clone, Copy)]
pub struct Program<'p> {
    /// Its path as it was given.
    pub path: &'p [u8],
    /// Its first [`HEAD_BYTES`].
    pub head: &'p [u8],
    /// `st_mode`.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
}

/// What becomes of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'p> {
    /// The library is loaded into it, or it is no program.
    Reached,
    /// The library does not reach it.
    Past(Bypass),
    /// It is a script. This program, by its path, is what counts.
    By(&'p [u8]),
}

/// Does the library reach a program that somebody of these effective ids starts? `has_capabilities` tells whether the file has an
/// attribute `security.capability`; root has all of them anyway.
pub fn judge<'p>(
    program: &Program<'p>,
    caller: (u32, u32),
    has_capabilities: impl FnOnce() -> bool,
) -> Verdict<'p> {
    let line = &program.head[..program.head.len().min(shebang::HEAD_BYTES)];
    // The kernel ignores these bits of a script.
    if let Head::Script(line) = shebang::parse(line) {
        return Verdict::By(line.interpreter);
    }
    if is_privileged(program.mode, program.owner, caller) || caller.0 != 0 && has_capabilities() {
        return Verdict::Past(Bypass::Privileged);
    }
    of_file(program.path, program.head).map_or(Verdict::Reached, Verdict::Past)
}

/// Does an argument name something in the buffer, by its root or by another path of that, which may be empty? Then the program may
/// look there.
pub fn names(argument: &[u8], root: &[u8], alias: &[u8]) -> bool {
    let has =
        |path: &[u8]| !path.is_empty() && argument.windows(path.len()).any(|part| part == path);
    has(root) || has(alias)
}

/// Copies of a path what a terminal may be shown, as far as there is room; the number of bytes.
pub fn shown(path: &[u8], room: &mut [u8]) -> usize {
    let len = path.len().min(room.len());
    for (to, &from) in room.iter_mut().zip(path) {
        *to = if from.is_ascii_control() { b'?' } else { from };
    }
    len
}

/// Does this file have the mode of a program?
pub fn is_program(mode: u32) -> bool {
    mode & libc::S_IFMT == libc::S_IFREG && mode & 0o111 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with these segments, each with these notes behind the headers if it is for notes.
    fn elf(segments: &[u32], notes: &[u8]) -> [u8; 512] {
        let mut head = [0; 512];
        head[..5].copy_from_slice(b"\x7fELF\x02");
        head[32] = 64;
        head[56] = segments.len() as u8;
        for (n, kind) in segments.iter().enumerate() {
            let at = 64 + n * SEGMENT_BYTES;
            head[at] = *kind as u8;
            head[at + 8..][..2].copy_from_slice(&400u16.to_le_bytes());
            head[at + 32] = notes.len() as u8;
        }
        head[400..][..notes.len()].copy_from_slice(notes);
        head
    }

    #[test]
    fn a_program_without_a_dynamic_linker_is_static() {
        let load = 1;
        assert_eq!(of_file(b"p", &elf(&[load], b"")), Some(Bypass::Static));
        assert_eq!(of_file(b"p", &elf(&[load, INTERPRETER], b"")), None);
        assert_eq!(
            of_file(b"/lib64/ld-linux-x86-64.so.2", &elf(&[load], b"")),
            None
        );
    }

    #[test]
    fn a_go_program_is_one_whether_it_has_a_dynamic_linker_or_not() {
        let go = b"\x04\0\0\0\x05\0\0\0\x04\0\0\0Go\0\0build\0\0\0";
        let gnu = b"\x04\0\0\0\x08\0\0\0\x03\0\0\0GNU\0 build 8";
        // With parts in C, the linker puts the notes of both into one segment.
        let mut both = [0; 48];
        both[..24].copy_from_slice(gnu);
        both[24..].copy_from_slice(go);
        for segments in [&[NOTE][..], &[INTERPRETER, NOTE]] {
            assert_eq!(of_file(b"p", &elf(segments, go)), Some(Bypass::Go));
            assert_eq!(of_file(b"p", &elf(segments, &both)), Some(Bypass::Go));
        }
        assert_eq!(of_file(b"p", &elf(&[INTERPRETER, NOTE], gnu)), None);
        let endless = b"\xff\xff\xff\xff\xff\xff\xff\xff\x04\0\0\0";
        assert_eq!(of_file(b"p", &elf(&[INTERPRETER, NOTE], endless)), None);
    }

    #[test]
    fn what_is_cut_off_or_no_program_is_not_judged_wrongly() {
        assert_eq!(of_file(b"p", b"#!/bin/sh\n"), None);
        assert_eq!(of_file(b"p", b""), None);
        let mut small = elf(&[INTERPRETER], b"");
        small[4] = 1;
        assert_eq!(of_file(b"p", &small), Some(Bypass::Foreign));
        let mut wild = elf(&[1], b"");
        wild[32..40].fill(0xff);
        wild[56..58].fill(0xff);
        assert_eq!(of_file(b"p", &wild), Some(Bypass::Static));
    }

    #[test]
    fn of_a_script_its_interpreter_counts_and_capabilities_do_for_others_than_root() {
        let program = |head| Program {
            path: b"p",
            head,
            mode: 0o104_755,
            owner: (0, 0),
        };
        let judged = |head, uid| judge(&program(head), (uid, uid), || true);
        assert_eq!(judged(b"#!/bin/x -y\n", 1000), Verdict::By(b"/bin/x"));
        let dynamic = elf(&[INTERPRETER], b"");
        assert_eq!(judged(&dynamic, 0), Verdict::Reached);
        let own = Program {
            owner: (1000, 1000),
            ..program(&dynamic)
        };
        let with = |has: bool| judge(&own, (1000, 1000), || has);
        assert_eq!(with(true), Verdict::Past(Bypass::Privileged));
        assert_eq!(with(false), Verdict::Reached);
    }

    #[test]
    fn an_argument_names_the_buffer_by_each_of_its_paths() {
        let any = |text: &str, alias: &str| names(text.as_bytes(), b"/pfs/run", alias.as_bytes());
        for text in ["/pfs/run", "--out=/pfs/run/x", "/link/x"] {
            assert!(any(text, "/link"), "{text}");
        }
        assert!(!any("/pfs/other", "/link") && !any("", "") && !any("/link/x", ""));
    }

    #[test]
    fn a_path_writes_no_lines_and_steers_no_terminal() {
        let mut room = [0; 8];
        let n = shown(b"a\n\x1b[0m\x7fbeyond", &mut room);
        assert_eq!(&room[..n], b"a??[0m?b");
        assert_eq!(shown(b"a", &mut room), 1);
    }

    #[test]
    fn other_rights_than_those_of_the_caller_count() {
        let (root, user) = ((0, 0), (1000, 1000));
        assert!(is_privileged(0o104_755, root, user));
        assert!(!is_privileged(0o104_755, root, root));
        assert!(is_privileged(0o102_755, root, user));
        assert!(!is_privileged(0o102_745, root, user), "for locks");
        assert!(!is_privileged(0o100_755, root, user));
    }
}
