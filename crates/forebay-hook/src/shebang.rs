//! The `#!` line of a script, as Linux reads it.

/// Bytes of the file that the kernel reads (`BINPRM_BUF_SIZE`).
pub const HEAD_BYTES: usize = 256;
/// Longest chain of interpreters that are scripts themselves.
pub const MAX_DEPTH: usize = 5;

/// An interpreter and its one optional argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shebang<'a> {
    /// Path of the interpreter.
    pub interpreter: &'a [u8],
    /// The rest of the line without blanks at its ends; `None` if it is empty.
    pub argument: Option<&'a [u8]>,
}

/// What the head of a file says about how to run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head<'a> {
    /// The file does not begin with `#!`.
    Binary,
    /// A script with an interpreter.
    Script(Shebang<'a>),
    /// A `#!` line without an interpreter, or with one whose name is cut off: `ENOEXEC`.
    Broken,
}

fn blank(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

fn trim(mut s: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = s {
        if !blank(*first) {
            break;
        }
        s = rest;
    }
    while let [rest @ .., last] = s {
        if !blank(*last) {
            break;
        }
        s = rest;
    }
    s
}

/// Reads the first [`HEAD_BYTES`] of a file.
pub fn parse(head: &[u8]) -> Head<'_> {
    let Some(rest) = head.strip_prefix(b"#!") else {
        return Head::Binary;
    };
    let end = rest.iter().position(|&b| b == b'\n' || b == 0);
    let line = trim(&rest[..end.unwrap_or(rest.len())]);
    let name_end = line.iter().position(|&b| blank(b));
    // A line that fills the whole head may go on beyond it, so the end of the name must lie in the head.
    if line.is_empty() || (end.is_none() && name_end.is_none() && head.len() >= HEAD_BYTES) {
        return Head::Broken;
    }
    let (interpreter, argument) = line.split_at(name_end.unwrap_or(line.len()));
    let argument = trim(argument);
    Head::Script(Shebang {
        interpreter,
        argument: (!argument.is_empty()).then_some(argument),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script<'a>(interpreter: &'a str, argument: Option<&'a str>) -> Head<'a> {
        Head::Script(Shebang {
            interpreter: interpreter.as_bytes(),
            argument: argument.map(str::as_bytes),
        })
    }

    #[test]
    fn interpreter_and_argument_are_split_once() {
        assert_eq!(parse(b"#!/bin/sh\necho"), script("/bin/sh", None));
        assert_eq!(
            parse(b"#! /usr/bin/env  python3 -u \nx"),
            script("/usr/bin/env", Some("python3 -u"))
        );
        assert_eq!(parse(b"#!/bin/sh"), script("/bin/sh", None));
    }

    #[test]
    fn what_is_no_script_says_so() {
        assert_eq!(parse(b"\x7fELF"), Head::Binary);
        assert_eq!(parse(b""), Head::Binary);
        assert_eq!(parse(b"#!\n"), Head::Broken);
        assert_eq!(parse(b"#!   \n"), Head::Broken);
    }

    #[test]
    fn an_interpreter_name_that_does_not_fit_is_refused() {
        let mut head = [b'a'; HEAD_BYTES];
        head[..3].copy_from_slice(b"#!/");
        assert_eq!(parse(&head), Head::Broken);
    }
}
