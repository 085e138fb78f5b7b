//! Starts the user's command with preload libraries, and tells how it ended.

use crate::cli::exit;
use crate::place::plain;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

/// File name of the preload library, which gives programs the buffer.
pub const PRELOAD: &str = "libforebay_preload.so";
/// File name of the recorder.
pub const RECORDER: &str = "libforebay_record.so";

/// File name of the collective layer.
pub const COLLECTIVE: &str = "libforebay_mpiio.so";

/// Adds libraries to those that the dynamic linker loads before libc.
pub fn load(command: &mut Command, libraries: &[&Path]) {
    let mut list = std::env::var_os("LD_PRELOAD");
    for library in libraries {
        list = Some(with_entry(list, library));
    }
    if let Some(list) = list {
        command.env("LD_PRELOAD", list);
        let asked = std::env::var_os(ASAN_OPTIONS).unwrap_or_default();
        command.env(ASAN_OPTIONS, with_asan(&asked));
    }
}

/// Environment variable: options of the runtime of AddressSanitizer, separated by colons.
const ASAN_OPTIONS: &str = "ASAN_OPTIONS";

/// Lets a program built with AddressSanitizer run though other libraries are loaded before its runtime, which refuses
/// that. Our libraries allocate nothing, so nothing is lost to it. What the user asks for comes later and counts.
fn with_asan(asked: &OsStr) -> OsString {
    let mut options = OsString::from("verify_asan_link_order=0");
    if !asked.is_empty() {
        options.push(":");
        options.push(asked);
    }
    options
}

/// The list in `LD_PRELOAD` with one further entry at its end. So a tool that must come first stays first. Only the
/// recorder must come before the preload library, because it passes calls on to it.
fn with_entry(list: Option<OsString>, entry: &Path) -> OsString {
    let list = list.unwrap_or_default();
    let mut entries: Vec<&OsStr> = list
        .as_bytes()
        .split(|b| b" :".contains(b))
        .filter(|e| !e.is_empty())
        .map(OsStr::from_bytes)
        .collect();
    let is_named = |e: &OsStr, name: &str| Path::new(e).file_name() == Some(OsStr::new(name));
    if !entries.contains(&entry.as_os_str()) {
        let before = entries
            .iter()
            .position(|e| is_named(entry.as_os_str(), RECORDER) && is_named(e, PRELOAD));
        entries.insert(before.unwrap_or(entries.len()), entry.as_os_str());
    }
    entries.join(OsStr::new(":"))
}

/// Starts the command. The error is an exit code and a message of one line.
pub fn spawn(mut command: Command) -> Result<Child, (u8, String)> {
    command.spawn().map_err(|e| not_started(&command, &e))
}

/// Becomes the command. Returns only if that fails, an exit code and a message of one line.
pub fn become_it(mut command: Command) -> (u8, String) {
    let e = command.exec();
    not_started(&command, &e)
}

/// Why a command was not started: an exit code and a message of one line.
fn not_started(command: &Command, e: &std::io::Error) -> (u8, String) {
    let code = match e.kind() {
        std::io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_EXECUTABLE,
    };
    let program = command.get_program().to_string_lossy();
    (code, format!("{program}: {}", plain(e)))
}

/// The exit status that a shell would give.
pub fn exit_status(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => exit::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_loaded_after_what_was_asked_for_before_and_only_once() {
        let lib = Path::new("/x/lib.so");
        let with = |list: &str| with_entry(Some(list.into()), lib);
        assert_eq!(with_entry(None, lib), "/x/lib.so");
        assert_eq!(with(""), "/x/lib.so");
        assert_eq!(with("libasan.so"), "libasan.so:/x/lib.so");
        assert_eq!(with("a.so /x/lib.so"), "a.so:/x/lib.so");
    }

    #[test]
    fn what_the_user_asks_of_address_sanitizer_stays() {
        assert_eq!(with_asan(OsStr::new("")), "verify_asan_link_order=0");
        assert_eq!(
            with_asan(OsStr::new("detect_leaks=0")),
            "verify_asan_link_order=0:detect_leaks=0"
        );
    }

    #[test]
    fn the_recorder_stands_before_the_library_of_the_buffer() {
        let list = Some("a.so:/y/libforebay_preload.so:b.so".into());
        assert_eq!(
            with_entry(list, Path::new("/x/libforebay_record.so")),
            "a.so:/x/libforebay_record.so:/y/libforebay_preload.so:b.so"
        );
    }
}
