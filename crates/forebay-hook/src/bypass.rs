//! Which programs a preloaded library does not reach, by the head of their files and by their modes.

use forebay_types::Bypass;

/// Bytes of a file that are enough to tell.
pub const HEAD_BYTES: usize = 4096;

const CLASS_64: u8 = 2;
const SEGMENT_BYTES: usize = 56;
const INTERPRETER: u32 = 3;
const NOTE: u32 = 4;
/// Name and type of the note in which the linker of Go keeps the id of a build.
const GO_BUILD: &[u8] = b"\x04\0\0\0";
const GO_NAME: &[u8] = b"Go\0\0";

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut whole = [0; 8];
    whole[..N].copy_from_slice(bytes.get(at..)?.get(..N)?);
    Some(u64::from_le_bytes(whole))
}

/// The program headers that lie in the head of a file.
fn segments(head: &[u8]) -> impl Iterator<Item = (u32, u64)> {
    let first = number::<8>(head, 32).unwrap_or(u64::MAX);
    let count = number::<2>(head, 56).unwrap_or(0);
    (0..count).map_while(move |n| {
        let at = usize::try_from(first).ok()?;
        let at = at.checked_add(n as usize * SEGMENT_BYTES)?;
        let kind = number::<4>(head, at)?;
        Some((kind as u32, number::<8>(head, at + 8)?))
    })
}

/// Does the note at this place of the file say that it is of Go?
fn is_of_go(head: &[u8], offset: u64) -> bool {
    let at = usize::try_from(offset).ok();
    let note = at.and_then(|at| head.get(at..));
    let note = note.and_then(|note| note.get(8..16));
    note.is_some_and(|note| note[..4] == *GO_BUILD && note[4..] == *GO_NAME)
}

/// Is it the dynamic linker itself? It has none, and loads libraries all the same.
fn is_dynamic_linker(path: &[u8]) -> bool {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    name.starts_with(b"ld-") || name.starts_with(b"ld.so")
}

/// Why no library is loaded into the program whose file begins with `head`. `None`: it is loaded, or the file is no program.
pub fn of_file(path: &[u8], head: &[u8]) -> Option<Bypass> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    if head.get(4) != Some(&CLASS_64) {
        return Some(Bypass::Foreign);
    }
    let mut has_linker = false;
    let mut is_go = false;
    for (kind, offset) in segments(head) {
        has_linker |= kind == INTERPRETER;
        is_go |= kind == NOTE && is_of_go(head, offset);
    }
    match (is_go, has_linker) {
        (true, _) => Some(Bypass::Go),
        (false, false) if !is_dynamic_linker(path) => Some(Bypass::Static),
        (false, _) => None,
    }
}

/// Does a program of this mode, user and group get other rights than a caller of these effective ids has?
pub fn is_privileged(mode: u32, owner: (u32, u32), caller: (u32, u32)) -> bool {
    let other_user = mode & libc::S_ISUID != 0 && owner.0 != caller.0;
    // Without the bit for the group to execute it, this one is for locks.
    let of_group = libc::S_ISGID | libc::S_IXGRP;
    let other_group = mode & of_group == of_group && owner.1 != caller.1;
    other_user || other_group
}

/// Does this file have the mode of a program?
pub fn is_program(mode: u32) -> bool {
    mode & libc::S_IFMT == libc::S_IFREG && mode & 0o111 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with these segments, each with a note behind the headers if it is one.
    fn elf(segments: &[u32], note: &[u8]) -> [u8; 512] {
        let mut head = [0; 512];
        head[..5].copy_from_slice(b"\x7fELF\x02");
        head[32] = 64;
        head[56] = segments.len() as u8;
        for (n, kind) in segments.iter().enumerate() {
            let at = 64 + n * SEGMENT_BYTES;
            head[at] = *kind as u8;
            head[at + 8..][..2].copy_from_slice(&400u16.to_le_bytes());
        }
        head[400..][..note.len()].copy_from_slice(note);
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
        let note = b"\x04\0\0\0\x53\0\0\0\x04\0\0\0Go\0\0";
        for segments in [&[NOTE][..], &[INTERPRETER, NOTE]] {
            assert_eq!(of_file(b"p", &elf(segments, note)), Some(Bypass::Go));
        }
        let gnu = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
        assert_eq!(of_file(b"p", &elf(&[INTERPRETER, NOTE], gnu)), None);
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
    fn other_rights_than_those_of_the_caller_count() {
        let (root, user) = ((0, 0), (1000, 1000));
        assert!(is_privileged(0o104_755, root, user));
        assert!(!is_privileged(0o104_755, root, root));
        assert!(is_privileged(0o102_755, root, user));
        assert!(!is_privileged(0o102_745, root, user), "for locks");
        assert!(!is_privileged(0o100_755, root, user));
    }
}
