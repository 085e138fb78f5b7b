//! Starts the user's command with libraries in front of libc, and tells how it ended.

use crate::cli::exit;
use crate::place::plain;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

/// File name of the library that gives programs the paths of the buffer.
pub const PRELOAD: &str = "libforebay_preload.so";
/// File name of the library that records.
pub const RECORDER: &str = "libforebay_record.so";

/// Adds libraries to what the dynamic linker loads before libc.
pub fn load(command: &mut Command, libraries: &[&Path]) {
    let mut list = std::env::var_os("LD_PRELOAD");
    for library in libraries {
        list = Some(with_entry(list, library));
    }
    if let Some(list) = list {
        command.env("LD_PRELOAD", list);
    }
}

/// `LD_PRELOAD` with one more entry at its end: tools that ask to be first stay first. Only the recorder
/// has to come before the library of the buffer, whose calls it passes on to.
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

/// Starts it. The error is an exit code and a line.
pub fn spawn(mut command: Command) -> Result<Child, (u8, String)> {
    command.spawn().map_err(|e| {
        let code = match e.kind() {
            std::io::ErrorKind::NotFound => exit::NOT_FOUND,
            _ => exit::NOT_EXECUTABLE,
        };
        let program = command.get_program().to_string_lossy();
        (code, format!("{program}: {}", plain(&e)))
    })
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
    fn the_recorder_stands_before_the_library_of_the_buffer() {
        let list = Some("a.so:/y/libforebay_preload.so:b.so".into());
        assert_eq!(
            with_entry(list, Path::new("/x/libforebay_record.so")),
            "a.so:/x/libforebay_record.so:/y/libforebay_preload.so:b.so"
        );
    }
}
